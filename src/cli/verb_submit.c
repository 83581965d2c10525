#include "cli/submit.h"
#include "cli/verbs.h"

int verb_submit(struct cli *cli)
{
    struct submission submission;
    struct pb_submit_tasks_response *response = NULL;
    struct error e = {0};
    if (submit_read(cli, &submission, &e) != ERR_OK || submit_send(cli, &submission, &response, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    submit_print(cli, response);
    return EXIT_DONE;
}
