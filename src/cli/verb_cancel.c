#include "cli/client.h"
#include "cli/submit.h"
#include "cli/verbs.h"

int verb_cancel(struct cli *cli)
{
    struct pb_cancel_query_request *request = cli_message(cli, PB_CANCEL_QUERY_REQUEST);
    struct pb_cancel_query_response *response = NULL;
    struct error e = {0};
    request->query_id = (char *)cli->args[0];
    request->reason = (char *)cli_text_or(cli, "reason", "");
    if (cli_call(cli, "/capstan.v1.ControlPlane/CancelQuery", PB_CANCEL_QUERY_RESPONSE, request, &response, &e) !=
        ERR_OK) {
        return cli_fail(cli, &e);
    }
    submit_print_state(cli, response->query_id, response->state);
    return EXIT_DONE;
}
