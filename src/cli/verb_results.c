/*
 * verb_results.c - the results that a job has: the rows of a query, or what the tasks of a tree brought.
 *
 * Those of a tree that failed or was canceled are a part only, and whoever reads them in a script must notice: the exit
 * code says so. A query has rows when it has succeeded, and none before.
 *
 * Ctrl-C ends it here, as anything does that goes wrong: no part of a file stays. The job is left alone. Without a file
 * there is nothing to put in order, and signals do what they always do, also when nobody reads stdout.
 */
#include <stdio.h>
#include <string.h>

#include "cli/client.h"
#include "cli/interrupt.h"
#include "cli/print.h"
#include "cli/submit.h"
#include "cli/verbs.h"
#include "client/job.h"

/* What a signal has ended is told once, in the end. */
static int fail(struct cli *cli, const struct interrupt *interrupt, const struct error *e)
{
    return interrupt_is_on(interrupt) ? EXIT_INTERRUPTED : cli_fail(cli, e);
}

static enum err ask(struct cli *cli, struct pb_query_status **out, struct error *e)
{
    struct client_caller caller;
    enum err err = cli_caller(cli, &caller, e);
    return err == ERR_OK ? cli_hint(client_job_status(&caller, cli->args[0], 0, out, e), e) : err;
}

static int print_query(struct cli *cli, const struct interrupt *interrupt, const struct pb_query_status *status)
{
    struct print_request request = {.job_id = status->query_id,
                                    .format = cli_text_or(cli, "output", cli->wants_json ? "json" : "table"),
                                    .path = cli_text(cli, "out")};
    struct print_result result = {0};
    struct error e = {0};
    bool has_failed = status->state == CAPSTAN__V1__QUERY_STATE__QUERY_STATE_FAILED ||
                      status->state == CAPSTAN__V1__QUERY_STATE__QUERY_STATE_CANCELED;
    if (print_check(cli, request.format, request.path, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    if (has_failed) {
        return job_report_failure(cli, status);
    }
    if (print_rows(cli, &request, &result, &e) != ERR_OK) {
        return result.reader_is_gone ? EXIT_JOB_FAILED : fail(cli, interrupt, &e);
    }
    return EXIT_DONE;
}

static int print_tree(struct cli *cli, const struct interrupt *interrupt)
{
    struct pb_query_status *status = NULL;
    struct error e = {0};
    if (cli_is_specific(cli, "output") && strcmp(cli_text(cli, "output"), "json") != 0) {
        return cli_fail_with(cli, ERR_INVALID, "leave out -o", "results: those of a task tree are JSON, nothing else");
    }
    if (cli_is_specific(cli, "out")) {
        return cli_fail_with(cli, ERR_INVALID, "send stdout there: capstan results ID >FILE",
                             "results: --out is for the rows of a query");
    }
    if (results_print(cli, cli->args[0], &e) != ERR_OK) {
        return fail(cli, interrupt, &e);
    }
    /* Asked afterwards: a job with results has ended, and only a retry in this very moment could change what it says. */
    if (ask(cli, &status, &e) != ERR_OK) {
        return fail(cli, interrupt, &e);
    }
    bool is_whole = status->state == CAPSTAN__V1__QUERY_STATE__QUERY_STATE_SUCCEEDED;
    return is_whole ? EXIT_DONE : job_report_failure(cli, status);
}

static int print_any(struct cli *cli, const struct interrupt *interrupt)
{
    struct pb_query_status *status = NULL;
    struct error e = {0};
    if (ask(cli, &status, &e) != ERR_OK) {
        return fail(cli, interrupt, &e);
    }
    return strcmp(status->kind, "query") == 0 ? print_query(cli, interrupt, status) : print_tree(cli, interrupt);
}

int verb_results(struct cli *cli)
{
    struct interrupt *interrupt = cli_text(cli, "out") == NULL ? NULL : interrupt_begin();
    cli->cancel = interrupt == NULL ? NULL : interrupt_cancel(interrupt);
    int code = print_any(cli, interrupt);
    if (code != EXIT_DONE && interrupt_is_on(interrupt)) {
        fprintf(cli->err, "capstan: interrupted\n");
        code = EXIT_INTERRUPTED;
    }
    cli->cancel = NULL;
    interrupt_end(interrupt);
    return code;
}
