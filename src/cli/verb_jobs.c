#include "cli/client.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "wire/json_shape.h"

static void add_row(struct table *table, const struct pb_query_status *job)
{
    struct buf text = {0};
    table_cell(table, job->query_id);
    table_cell(table, wire_query_state_name(job->state));
    table_cell(table, job->kind);
    text_time(&text, job->submitted_at_ms);
    table_buf(table, &text);
    if (job->started_at_ms > 0 && job->finished_at_ms >= job->started_at_ms) {
        text_duration(&text, (int64_t)(job->finished_at_ms - job->started_at_ms));
    }
    table_buf(table, &text);
    table_cell(table, job->name);
    buf_deinit(&text);
}

int verb_jobs(struct cli *cli)
{
    static const char *const headings[] = {"JOB", "STATE", "KIND", "SUBMITTED", "TIME", "NAME"};
    struct pb_list_jobs_request *request = cli_message(cli, PB_LIST_JOBS_REQUEST);
    struct pb_list_jobs_response *response = NULL;
    struct error e = {0};
    request->state = (char *)cli_text_or(cli, "state", "");
    request->name = (char *)cli_text_or(cli, "name", "");
    request->after = (char *)cli_text_or(cli, "after", "");
    request->limit = (uint32_t)cli_number(cli, "limit");
    if (cli_call(cli, "/capstan.v1.ControlPlane/ListJobs", PB_LIST_JOBS_RESPONSE, request, &response, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    if (cli->wants_json) {
        struct buf line = {0};
        wire_json_jobs(&line, response);
        cli_print(cli, &line);
        buf_deinit(&line);
        return EXIT_DONE;
    }
    struct table table;
    table_init(&table, headings, ARRAY_LEN(headings), 1U << 4);
    for (size_t i = 0; i < response->n_jobs; i++) {
        add_row(&table, response->jobs[i]);
    }
    table_print(&table, cli->out,
                (struct table_style){.bold_headings = cli->has_colors_out, .width = cli_table_width(cli)});
    table_deinit(&table);
    if (response->next[0] != '\0') {
        fprintf(cli->err, "more: capstan jobs --after %s\n", response->next);
    }
    return EXIT_DONE;
}
