/*
 * verb_tasks.c - the tasks of a job, page by page.
 */
#include <inttypes.h>

#include "base/json.h"
#include "cli/client.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "wire/json_shape.h"

#define PAGE_TASKS 500

/* What is printed at the end: rows of a table, or {"tasks":[...],"next":...}. */
struct listing {
    struct cli *cli;
    struct table table;
    struct buf json;
    int64_t left; /* tasks still wanted */
    const char *next;
};

static void add_row(struct table *table, const struct pb_task_status *task)
{
    struct buf text = {0};
    table_cell(table, task->name);
    table_format(table, "%" PRIu64 ".%" PRIu64, task->ref != NULL ? task->ref->stage_id : 0,
                 task->ref != NULL ? task->ref->task_id : 0);
    table_cell(table, wire_task_state_name(task->state));
    table_format(table, "%" PRIu32, task->ref != NULL ? task->ref->attempt : 0);
    table_cell(table, task->worker_id);
    if (task->started_at_ms > 0 && task->finished_at_ms >= task->started_at_ms) {
        text_duration(&text, (int64_t)(task->finished_at_ms - task->started_at_ms));
    }
    table_buf(table, &text);
    table_cell(table, task->message);
    buf_deinit(&text);
}

static void add_page(struct listing *listing, const struct pb_list_tasks_response *page)
{
    for (size_t i = 0; i < page->n_tasks; i++) {
        if (listing->cli->wants_json) {
            buf_text(&listing->json, listing->json.n > 0 ? "," : "{\"tasks\":[");
            wire_json_task(&listing->json, page->tasks[i]);
        } else {
            add_row(&listing->table, page->tasks[i]);
        }
        listing->left--;
    }
}

static enum err read_pages(struct listing *listing, struct error *e)
{
    struct cli *cli = listing->cli;
    do {
        struct pb_list_tasks_request *request = cli_message(cli, PB_LIST_TASKS_REQUEST);
        struct pb_list_tasks_response *page = NULL;
        request->query_id = (char *)cli->args[0];
        request->state = (char *)cli_text_or(cli, "state", "");
        request->limit = (uint32_t)(listing->left < PAGE_TASKS ? listing->left : PAGE_TASKS);
        request->after = (char *)listing->next;
        enum err err = cli_call(cli, "/capstan.v1.ControlPlane/ListTasks", PB_LIST_TASKS_RESPONSE, request, &page, e);
        if (err != ERR_OK) {
            return err;
        }
        add_page(listing, page);
        listing->next = page->next;
    } while (listing->next[0] != '\0' && listing->left > 0);
    return ERR_OK;
}

static void print_listing(struct listing *listing)
{
    struct cli *cli = listing->cli;
    if (cli->wants_json) {
        buf_text(&listing->json, listing->json.n > 0 ? "]" : "{\"tasks\":[]");
        buf_text(&listing->json, ",\"next\":");
        if (listing->next[0] != '\0') {
            json_write_text(&listing->json, listing->next);
        } else {
            buf_text(&listing->json, "null");
        }
        buf_char(&listing->json, '}');
        cli_print(cli, &listing->json);
        return;
    }
    table_print(&listing->table, cli->out,
                (struct table_style){.bold_headings = cli->has_colors_out, .width = cli_table_width(cli)});
    if (listing->next[0] != '\0') {
        fprintf(cli->err, "more: capstan tasks %s --after %s\n", cli->args[0], listing->next);
    }
}

int verb_tasks(struct cli *cli)
{
    static const char *const headings[] = {"TASK", "ID", "STATE", "ATTEMPT", "WORKER", "TIME", "MESSAGE"};
    struct listing listing = {.cli = cli, .left = cli_number(cli, "limit"), .next = cli_text_or(cli, "after", "")};
    struct error e = {0};
    int code = EXIT_DONE;
    table_init(&listing.table, headings, ARRAY_LEN(headings), 1U << 3 | 1U << 5);
    if (read_pages(&listing, &e) == ERR_OK) {
        print_listing(&listing);
    } else {
        code = cli_fail(cli, &e);
    }
    table_deinit(&listing.table);
    buf_deinit(&listing.json);
    return code;
}
