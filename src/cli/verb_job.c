#include <inttypes.h>

#include "cli/client.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "client/job.h"
#include "wire/json_shape.h"

static void print_line(struct cli *cli, const char *label, const char *text)
{
    struct buf line = {0};
    if (text != NULL && text[0] != '\0') {
        buf_format(&line, "%-10s ", label);
        text_clean(&line, text);
        cli_print(cli, &line);
    }
    buf_deinit(&line);
}

static void print_times(struct cli *cli, const struct pb_query_status *job)
{
    struct buf text = {0};
    text_time(&text, job->submitted_at_ms);
    print_line(cli, "submitted", text.data);
    if (job->started_at_ms > 0) {
        buf_reset(&text);
        text_time(&text, job->started_at_ms);
        print_line(cli, "started", text.data);
    }
    if (job->finished_at_ms > 0) {
        buf_reset(&text);
        text_time(&text, job->finished_at_ms);
        if (job->started_at_ms > 0 && job->finished_at_ms >= job->started_at_ms) {
            buf_text(&text, " (");
            text_duration(&text, (int64_t)(job->finished_at_ms - job->started_at_ms));
            buf_char(&text, ')');
        }
        print_line(cli, "finished", text.data);
    }
    buf_deinit(&text);
}

/* The state of a stage with one task is that task's; of others, how many tasks are in which. */
static void write_stage_state(struct buf *out, const struct pb_stage_status *stage)
{
    const struct {
        const char *name;
        uint32_t count;
    } parts[] = {{"queued", stage->queued}, {"running", stage->running},   {"succeeded", stage->succeeded},
                 {"failed", stage->failed}, {"canceled", stage->canceled}, {"skipped", stage->skipped}};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        if (parts[i].count > 0 && stage->tasks == 1) {
            buf_text(out, parts[i].name);
        } else if (parts[i].count > 0) {
            buf_format(out, "%s%" PRIu32 " %s", out->n > 0 ? ", " : "", parts[i].count, parts[i].name);
        }
    }
}

static void print_stages(struct cli *cli, const struct pb_query_status *job)
{
    static const char *const headings[] = {"STAGE", "NAME", "AFTER", "TASKS", "STATE"};
    struct table table;
    struct buf text = {0};
    table_init(&table, headings, ARRAY_LEN(headings), 1U << 0 | 1U << 3);
    for (size_t i = 0; i < job->n_stages; i++) {
        const struct pb_stage_status *stage = job->stages[i];
        table_format(&table, "%" PRIu64, stage->stage_id);
        table_cell(&table, stage->name);
        for (size_t j = 0; j < stage->n_parents && j < 8; j++) {
            buf_format(&text, "%s%" PRIu64, j > 0 ? "," : "", stage->parents[j]);
        }
        buf_text(&text, stage->n_parents > 8 ? ",..." : "");
        table_buf(&table, &text);
        table_format(&table, "%" PRIu32, stage->tasks);
        write_stage_state(&text, stage);
        table_buf(&table, &text);
    }
    fputc('\n', cli->out);
    table_print(&table, cli->out,
                (struct table_style){.bold_headings = cli->has_colors_out, .width = cli_table_width(cli)});
    table_deinit(&table);
    buf_deinit(&text);
}

int verb_job(struct cli *cli)
{
    struct pb_query_status *job = NULL;
    struct client_caller caller;
    struct error e = {0};
    enum err err = cli_caller(cli, &caller, &e);
    if (err == ERR_OK) {
        err = cli_hint(client_job_status(&caller, cli->args[0], 0, &job, &e), &e);
    }
    if (err != ERR_OK) {
        return cli_fail(cli, &e);
    }
    if (cli->wants_json) {
        struct buf line = {0};
        wire_json_job(&line, job);
        cli_print(cli, &line);
        buf_deinit(&line);
        return EXIT_DONE;
    }
    print_line(cli, "job", job->query_id);
    print_line(cli, "name", job->name);
    print_line(cli, "kind", job->kind);
    print_line(cli, "state", wire_query_state_name(job->state));
    print_line(cli, "message", job->message);
    print_times(cli, job);
    if (job->n_stages > 0) {
        print_stages(cli, job);
    }
    return EXIT_DONE;
}
