/*
 * verb_sql.c - submits SQL, waits for it, prints its rows, or how it would run, or how it ran.
 *
 * Ctrl-C cancels the query on the cluster. The id is ours, so this works even when the answer to the submit has not come.
 * Once the query has ended and its rows go to stdout, Ctrl-C just ends this process.
 */
#include <stdio.h>
#include <string.h>

#include "cli/analyze.h"
#include "cli/client.h"
#include "cli/explain.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/print.h"
#include "cli/query.h"
#include "cli/submit.h"
#include "cli/verbs.h"

/* What is to be done with the query. */
struct call {
    struct query query;
    bool explains;
    bool analyzes;
    bool prints_rows;
    const char *format;
    const char *path;
    struct interrupt *interrupt; /* NULL: nobody waits */
};

/* What went wrong because of Ctrl-C is told by whoever looks after that. */
static int fail(struct cli *cli, const struct call *call, const struct error *e)
{
    return interrupt_is_on(call->interrupt) ? EXIT_INTERRUPTED : cli_fail(cli, e);
}

static enum err wrong(struct error *e, const char *message, const char *hint)
{
    error_set(e, ERR_INVALID, "sql: %s", message);
    error_hint(e, "%s", hint);
    return ERR_INVALID;
}

static enum err check_flags(struct cli *cli, struct call *call, struct error *e)
{
    const char *given = cli_text(cli, "output");
    if (call->explains && call->analyzes) {
        return wrong(e, "--explain does not run the query, --analyze does", "give one of them");
    }
    if (cli_flag(cli, "detach") && (call->analyzes || call->path != NULL || given != NULL)) {
        return wrong(e, "with --detach nothing is printed but the job's id",
                     "'capstan results ID -o FORMAT' prints the rows when the job has ended");
    }
    if (call->explains && given != NULL && strcmp(given, "json") != 0 && strcmp(given, "table") != 0) {
        return wrong(e, "--explain prints text, or the physical plan with -o json", "leave out -o");
    }
    return call->explains ? output_check(cli, call->path, true, e) : print_check(cli, call->format, call->path, e);
}

static enum err read_call(struct cli *cli, struct call *call, struct error *e)
{
    *call = (struct call){.explains = cli_flag(cli, "explain"),
                          .analyzes = cli_flag(cli, "analyze"),
                          .format = cli_text_or(cli, "output", cli->wants_json ? "json" : "table"),
                          .path = cli_text(cli, "out")};
    /* --analyze is about the run; rows are printed if something is said about them. */
    call->prints_rows = !call->analyzes || cli_text(cli, "output") != NULL || call->path != NULL;
    enum err err = check_flags(cli, call, e);
    return err == ERR_OK ? query_read(cli, &call->query, e) : err;
}

static int print_result(struct cli *cli, const struct call *call, const char *job_id)
{
    struct print_request request = {.job_id = job_id, .format = call->format, .path = call->path};
    struct print_result result;
    struct error e = {0};
    if (call->explains) {
        bool wants_plan = strcmp(call->format, "json") == 0;
        return explain_print(cli, job_id, wants_plan, call->path, &e) == ERR_OK ? EXIT_DONE : fail(cli, call, &e);
    }
    if (call->prints_rows && print_rows(cli, &request, &result, &e) != ERR_OK) {
        return result.reader_is_gone ? EXIT_JOB_FAILED : fail(cli, call, &e);
    }
    return EXIT_DONE;
}

static int wait_and_print(struct cli *cli, const struct call *call, const char *job_id)
{
    const struct pb_query_status *status = NULL;
    struct error e = {0};
    enum err err = query_wait(cli, job_id, cli_flag(cli, "quiet"), &status, &e);
    if (err == ERR_CANCELED) {
        return EXIT_INTERRUPTED;
    }
    if (err != ERR_OK) {
        int code = cli_fail(cli, &e);
        fprintf(cli->err, "  job %s goes on; 'capstan job %s' shows it\n", job_id, job_id);
        return code;
    }
    if (status->state != CAPSTAN__V1__QUERY_STATE__QUERY_STATE_SUCCEEDED) {
        return job_report_failure(cli, status);
    }
    if (call->path == NULL && !interrupt_hurry(call->interrupt)) {
        return EXIT_INTERRUPTED;
    }
    int code = print_result(cli, call, job_id);
    if (code == EXIT_DONE && call->analyzes) {
        /* Where rows are on stdout, they are all that is there. */
        FILE *to = call->prints_rows && call->path == NULL ? cli->err : cli->out;
        code = analyze_print(cli, status, to, &e) == ERR_OK ? EXIT_DONE : fail(cli, call, &e);
    }
    return code;
}

static int detach(struct cli *cli, const struct call *call)
{
    struct pb_submit_query_response *response = NULL;
    struct error e = {0};
    if (query_send(cli, &call->query, call->explains, &response, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    query_print(cli, response);
    return EXIT_DONE;
}

int verb_sql(struct cli *cli)
{
    struct call call;
    struct pb_submit_query_response *response = NULL;
    struct error e = {0};
    if (read_call(cli, &call, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    if (cli_flag(cli, "detach")) {
        return detach(cli, &call);
    }
    struct interrupt *interrupt = interrupt_begin();
    const char *job_id = call.query.job_id;
    int code = EXIT_DONE;
    cli->cancel = interrupt_cancel(interrupt);
    call.interrupt = interrupt;
    enum err err = query_send(cli, &call.query, call.explains, &response, &e);
    if (err == ERR_OK) {
        /* With an idempotency key the job may be an older one. */
        job_id = response->query_id;
        code = wait_and_print(cli, &call, job_id);
    } else if (!interrupt_is_on(interrupt)) {
        code = cli_fail(cli, &e);
    }
    if (interrupt_is_on(interrupt)) {
        code = submit_cancel(cli, interrupt, job_id);
    }
    cli->cancel = NULL;
    interrupt_end(interrupt);
    return code;
}
