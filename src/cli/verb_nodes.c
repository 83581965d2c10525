#include <inttypes.h>

#include "base/clock.h"
#include "cli/client.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "wire/json_shape.h"

static void add_row(struct table *table, const struct pb_node *node)
{
    struct buf text = {0};
    table_cell(table, node->worker_id);
    buf_text(&text, node->status);
    buf_text(&text, node->blacklisted != 0 ? ", blacklisted" : "");
    buf_text(&text, node->draining != 0 ? ", draining" : "");
    table_buf(table, &text);
    table_format(table, "%" PRIu32 "/%" PRIu32, node->running_tasks, node->slots);
    table_cell(table, node->address);
    for (size_t i = 0; i < node->n_executor_types; i++) {
        buf_format(&text, "%s%s", i > 0 ? "," : "", node->executor_types[i]);
    }
    table_buf(table, &text);
    table_cell(table, node->version);
    table_cell(table, node->capabilities_json);
    buf_deinit(&text);
}

int verb_nodes(struct cli *cli)
{
    static const char *const headings[] = {"WORKER",    "STATUS",  "BUSY",        "ADDRESS",
                                           "EXECUTORS", "VERSION", "CAPABILITIES"};
    struct pb_list_nodes_request *request = cli_message(cli, PB_LIST_NODES_REQUEST);
    struct pb_list_nodes_response *response = NULL;
    struct error e = {0};
    request->executor = (char *)cli_text_or(cli, "executor", "");
    request->capability = (char *)cli_text_or(cli, "capability", "");
    request->operator_ = (char *)cli_text_or(cli, "operator", "");
    if (cli_call(cli, "/capstan.v1.Cluster/ListNodes", PB_LIST_NODES_RESPONSE, request, &response, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    if (cli->wants_json) {
        struct buf line = {0};
        wire_json_nodes(&line, response);
        cli_print(cli, &line);
        buf_deinit(&line);
        return EXIT_DONE;
    }
    struct table table;
    table_init(&table, headings, ARRAY_LEN(headings), 1U << 2);
    for (size_t i = 0; i < response->n_nodes; i++) {
        add_row(&table, response->nodes[i]);
    }
    table_print(&table, cli->out,
                (struct table_style){.bold_headings = cli->has_colors_out, .width = cli_table_width(cli)});
    table_deinit(&table);
    return EXIT_DONE;
}
