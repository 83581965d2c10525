#include <inttypes.h>

#include "cli/client.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "wire/json_shape.h"

int verb_why(struct cli *cli)
{
    static const char *const headings[] = {"STAGE", "TASKS", "REASON"};
    struct pb_why_pending_request *request = cli_message(cli, PB_WHY_PENDING_REQUEST);
    struct pb_why_pending_response *response = NULL;
    struct error e = {0};
    request->query_id = (char *)cli->args[0];
    if (cli_call(cli, "/capstan.v1.ControlPlane/WhyPending", PB_WHY_PENDING_RESPONSE, request, &response, &e) !=
        ERR_OK) {
        return cli_fail(cli, &e);
    }
    if (cli->wants_json) {
        struct buf line = {0};
        wire_json_why(&line, cli->args[0], response);
        cli_print(cli, &line);
        buf_deinit(&line);
        return EXIT_DONE;
    }
    if (response->n_reasons == 0) {
        fprintf(cli->out, "nothing waits: no task of this job is queued\n");
        return EXIT_DONE;
    }
    struct table table;
    table_init(&table, headings, ARRAY_LEN(headings), 1U << 0 | 1U << 1);
    for (size_t i = 0; i < response->n_reasons; i++) {
        const struct pb_pending_reason *reason = response->reasons[i];
        table_format(&table, "%" PRIu64, reason->ref != NULL ? reason->ref->stage_id : 0);
        table_format(&table, "%" PRIu32, reason->tasks);
        table_cell(&table, reason->reason);
    }
    table_print(&table, cli->out, (struct table_style){.bold_headings = cli->has_colors_out});
    table_deinit(&table);
    return EXIT_DONE;
}
