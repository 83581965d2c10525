#include <string.h>

#include "cli/client.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "wire/json_shape.h"

int verb_node(struct cli *cli)
{
    struct pb_set_node_request *request = cli_message(cli, PB_SET_NODE_REQUEST);
    struct pb_set_node_response *response = NULL;
    struct error e = {0};
    struct buf line = {0};
    request->worker_id = (char *)cli->args[1];
    request->clear_blacklist = strcmp(cli->args[0], "clear") == 0;
    request->set_draining = !request->clear_blacklist;
    request->draining = strcmp(cli->args[0], "drain") == 0;
    if (cli_call(cli, "/capstan.v1.Cluster/SetNode", PB_SET_NODE_RESPONSE, request, &response, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    const struct pb_node *node = response->node;
    if (node == NULL) {
        return cli_fail_with(cli, ERR_INTERNAL, NULL, "the answer has no node in it");
    }
    if (cli->wants_json) {
        wire_json_node(&line, node);
    } else {
        text_clean(&line, node->worker_id);
        buf_text(&line, " is ");
        text_clean(&line, node->status);
        buf_text(&line, node->draining != 0 ? ", draining" : "");
        buf_text(&line, node->blacklisted != 0 ? ", blacklisted" : "");
    }
    cli_print(cli, &line);
    buf_deinit(&line);
    return EXIT_DONE;
}
