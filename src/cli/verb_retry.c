#include "cli/client.h"
#include "cli/submit.h"
#include "cli/verbs.h"
#include "client/job.h"

int verb_retry(struct cli *cli)
{
    struct pb_retry_job_response *response = NULL;
    struct client_caller caller;
    struct error e = {0};
    enum err err = cli_caller(cli, &caller, &e);
    if (err == ERR_OK) {
        err = cli_hint(client_retry(&caller, cli->args[0], cli_text_or(cli, "from", ""), &response, &e), &e);
    }
    if (err != ERR_OK) {
        return cli_fail(cli, &e);
    }
    submit_print_state(cli, response->query_id, response->state);
    return EXIT_DONE;
}
