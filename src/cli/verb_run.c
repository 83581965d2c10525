/*
 * verb_run.c - submits a tree, shows how it goes, prints its results.
 *
 * Ctrl-C cancels the job on the cluster. The id is ours, so this works even when the answer to the submit has not come.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/client.h"
#include "cli/interrupt.h"
#include "cli/submit.h"
#include "cli/verbs.h"
#include "cli/watch.h"
#include "wire/json_shape.h"

#define CANCEL_TRIES 5
#define CANCEL_PAUSE_MS 200

/*
 * A submit that was under way when Ctrl-C came may arrive after the first cancel, which then finds no job; hence a few
 * tries.
 */
static int cancel_job(struct cli *cli, struct interrupt *interrupt, const char *job_id)
{
    struct pb_cancel_query_request *request = cli_message(cli, PB_CANCEL_QUERY_REQUEST);
    struct pb_cancel_query_response *response = NULL;
    struct error e = {0};
    enum err err = ERR_OK;
    request->query_id = (char *)job_id;
    request->reason = (char *)"interrupted";
    for (int i = 0; i < CANCEL_TRIES; i++) {
        rpc_cancel_reset(interrupt_cancel(interrupt));
        err = cli_call(cli, "/capstan.v1.ControlPlane/CancelQuery", PB_CANCEL_QUERY_RESPONSE, request, &response, &e);
        if (err != ERR_NOT_FOUND) {
            break;
        }
        nanosleep(&(struct timespec){.tv_nsec = CANCEL_PAUSE_MS * 1000000L}, NULL);
    }
    if (err == ERR_OK) {
        fprintf(cli->err, "capstan: interrupted; job %s is %s\n", job_id, wire_query_state_name(response->state));
    } else if (err != ERR_NOT_FOUND) {
        cli_fail_with(cli, err, "'capstan cancel' cancels it", "interrupted, but job %s could not be canceled: %s",
                      job_id, e.message);
    }
    return EXIT_INTERRUPTED;
}

static int finish(struct cli *cli, const struct submission *submission, const struct watch_result *result)
{
    struct error e = {0};
    if (result->status->state != CAPSTAN__V1__QUERY_STATE__QUERY_STATE_SUCCEEDED) {
        return job_report_failure(cli, result->status);
    }
    if (results_print(cli, submission->job_id, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    return EXIT_DONE;
}

static int watch_and_finish(struct cli *cli, struct interrupt *interrupt, const struct submission *submission)
{
    struct error e = {0};
    struct watch_result result = {0};
    struct watch_request request = {
        .job_id = submission->job_id, .is_quiet = cli_flag(cli, "quiet"), .interrupt = interrupt};
    request.names = submit_names(cli, submission, &request.n_tasks);
    enum err err = watch_job(cli, &request, &result, &e);
    if (err == ERR_OK && result.is_interrupted) {
        return cancel_job(cli, interrupt, submission->job_id);
    }
    if (err != ERR_OK) {
        int code = cli_fail(cli, &e);
        fprintf(cli->err, "  job %s goes on; 'capstan job %s' shows it\n", submission->job_id, submission->job_id);
        return code;
    }
    return finish(cli, submission, &result);
}

int verb_run(struct cli *cli)
{
    struct submission submission;
    struct pb_submit_tasks_response *response = NULL;
    struct error e = {0};
    if (submit_read(cli, &submission, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    if (cli_flag(cli, "detach")) {
        if (submit_send(cli, &submission, &response, &e) != ERR_OK) {
            return cli_fail(cli, &e);
        }
        submit_print(cli, response);
        return EXIT_DONE;
    }
    struct interrupt *interrupt = interrupt_begin();
    int code = EXIT_DONE;
    cli->cancel = interrupt_cancel(interrupt);
    enum err err = submit_send(cli, &submission, &response, &e);
    if (interrupt_is_on(interrupt)) {
        code = cancel_job(cli, interrupt, submission.job_id);
    } else if (err != ERR_OK) {
        code = cli_fail(cli, &e);
    } else {
        /* With an idempotency key the job may be an older one. */
        submission.job_id = response->job_id;
        code = watch_and_finish(cli, interrupt, &submission);
        code = code != EXIT_DONE && interrupt_is_on(interrupt) ? EXIT_INTERRUPTED : code;
    }
    cli->cancel = NULL;
    interrupt_end(interrupt);
    return code;
}
