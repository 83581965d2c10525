#include <inttypes.h>
#include <string.h>

#include "cli/client.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "wire/json_shape.h"

int verb_leader(struct cli *cli)
{
    struct pb_get_leader_request *request = cli_message(cli, PB_GET_LEADER_REQUEST);
    struct pb_get_leader_response *response = NULL;
    struct error e = {0};
    struct buf line = {0};
    if (cli_call(cli, "/capstan.v1.Cluster/GetLeader", PB_GET_LEADER_RESPONSE, request, &response, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    if (cli->wants_json) {
        wire_json_leader(&line, response);
    } else if (response->address[0] == '\0') {
        buf_format(&line, "nobody leads at the moment; asked a coordinator with the role %s", response->role);
    } else {
        text_clean(&line, response->node_id);
        buf_text(&line, " at ");
        text_clean(&line, response->address);
        buf_format(&line, " leads under epoch %" PRIu64, response->epoch);
    }
    if (!cli->wants_json && strcmp(response->role, "observer") == 0) {
        buf_format(&line, "; an observer says so, whose copy was complete %" PRIu64 " ms ago", response->staleness_ms);
    }
    cli_print(cli, &line);
    buf_deinit(&line);
    return EXIT_DONE;
}
