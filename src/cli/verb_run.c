/*
 * verb_run.c - submits a tree, shows how it goes, prints its results.
 *
 * Ctrl-C cancels the job on the cluster. The id is ours, so this works even when the answer to the submit has not come.
 * Once the job has ended and its results are printed, Ctrl-C just ends this process.
 */
#include <stdio.h>
#include <string.h>

#include "cli/client.h"
#include "cli/interrupt.h"
#include "cli/submit.h"
#include "cli/verbs.h"
#include "cli/watch.h"
#include "wire/json_shape.h"

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
        return submit_cancel(cli, interrupt, submission->job_id);
    }
    if (err != ERR_OK) {
        int code = cli_fail(cli, &e);
        fprintf(cli->err, "  job %s goes on; 'capstan job %s' shows it\n", submission->job_id, submission->job_id);
        return code;
    }
    return interrupt_hurry(interrupt) ? finish(cli, submission, &result) : EXIT_INTERRUPTED;
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
        code = submit_cancel(cli, interrupt, submission.job_id);
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
