/*
 * verb_results.c - the results that a job has. Those of one that failed or was canceled are a part only, and whoever
 * reads them in a script must notice: the exit code says so.
 */
#include "cli/client.h"
#include "cli/submit.h"
#include "cli/verbs.h"

int verb_results(struct cli *cli)
{
    struct pb_get_query_status_request *request = cli_message(cli, PB_GET_QUERY_STATUS_REQUEST);
    struct pb_get_query_status_response *response = NULL;
    struct error e = {0};
    if (results_print(cli, cli->args[0], &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    /* Asked afterwards: a job with results has ended, and only a retry in this very moment could change what it says. */
    request->query_id = (char *)cli->args[0];
    if (cli_call(cli, "/capstan.v1.ControlPlane/GetQueryStatus", PB_GET_QUERY_STATUS_RESPONSE, request, &response,
                 &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    if (response->status == NULL) {
        return cli_fail_with(cli, ERR_INTERNAL, NULL, "the answer has no job in it");
    }
    bool is_whole = response->status->state == CAPSTAN__V1__QUERY_STATE__QUERY_STATE_SUCCEEDED;
    return is_whole ? EXIT_DONE : job_report_failure(cli, response->status);
}
