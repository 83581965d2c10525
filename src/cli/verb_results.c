#include "cli/submit.h"
#include "cli/verbs.h"

int verb_results(struct cli *cli)
{
    struct error e = {0};
    if (results_print(cli, cli->args[0], &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    return EXIT_DONE;
}
