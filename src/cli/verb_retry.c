#include "cli/client.h"
#include "cli/submit.h"
#include "cli/verbs.h"

int verb_retry(struct cli *cli)
{
    struct pb_retry_job_request *request = cli_message(cli, PB_RETRY_JOB_REQUEST);
    struct pb_retry_job_response *response = NULL;
    struct error e = {0};
    request->query_id = (char *)cli->args[0];
    request->from_task = (char *)cli_text_or(cli, "from", "");
    if (cli_call(cli, "/capstan.v1.ControlPlane/RetryJob", PB_RETRY_JOB_RESPONSE, request, &response, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    submit_print_state(cli, response->query_id, response->state);
    return EXIT_DONE;
}
