#include "cli/submit.h"

#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "cli/interrupt.h"
#include "cli/pretty.h"
#include "cli/text.h"
#include "cli/value.h"
#include "client/job.h"
#include "client/results.h"
#include "wire/json_shape.h"
#include "wire/template.h"
#include "wire/tree.h"

#define FAILED_TASKS_SHOWN 10
#define CANCEL_TRIES 5
#define CANCEL_PAUSE_MS 200

static void add_params(struct cli *cli, const char *option, bool is_json, struct template_param *params, uint32_t *n)
{
    uint32_t count = 0;
    const char *const *texts = cli_list(cli, option, &count);
    for (uint32_t i = 0; i < count; i++) {
        size_t name_n = strcspn(texts[i], "=");
        char *name = arena_copy(&cli->arena, texts[i], name_n + 1);
        name[name_n] = '\0';
        params[*n] = (struct template_param){.name = name, .value = texts[i] + name_n + 1, .is_json = is_json};
        *n += 1;
    }
}

static enum err fill_params(struct cli *cli, struct submission *submission, struct error *e)
{
    uint32_t n_texts = 0;
    uint32_t n_jsons = 0;
    uint32_t n = 0;
    cli_list(cli, "param", &n_texts);
    cli_list(cli, "param-json", &n_jsons);
    struct template_param *params = arena_zalloc(&cli->arena, (n_texts + n_jsons + 1) * sizeof *params);
    struct buf filled = {0};
    add_params(cli, "param", false, params, &n);
    add_params(cli, "param-json", true, params, &n);
    enum err err = wire_fill_params(submission->tree, submission->n_tree, params, n, &filled, e);
    if (err == ERR_OK) {
        submission->tree = arena_copy(&cli->arena, filled.data, filled.n + 1);
        submission->n_tree = filled.n;
    }
    buf_deinit(&filled);
    return err;
}

enum err submit_read(struct cli *cli, struct submission *out, struct error *e)
{
    struct submission submission = {.job_id = cli_text(cli, "id")};
    enum err err = cli_read_file(cli, cli->args[0], SUBMIT_TREE_BYTES_MAX, &submission.tree, &submission.n_tree, e);
    if (err == ERR_OK) {
        err = fill_params(cli, &submission, e);
    }
    if (err != ERR_OK) {
        return err;
    }
    if (submission.job_id == NULL) {
        submission.job_id = client_new_job_id(&cli->arena);
    }
    *out = submission;
    return ERR_OK;
}

enum err submit_send(struct cli *cli, const struct submission *submission, struct pb_submit_tasks_response **out,
                     struct error *e)
{
    struct client_caller caller;
    struct tree_submission tree = {.job_id = submission->job_id,
                                   .json = submission->tree,
                                   .n_json = submission->n_tree,
                                   .key = cli_text(cli, "key")};
    enum err err = cli_caller(cli, &caller, e);
    return err == ERR_OK ? cli_hint(client_submit_tree(&caller, &tree, out, e), e) : err;
}

void submit_print(struct cli *cli, const struct pb_submit_tasks_response *response)
{
    struct buf line = {0};
    if (cli->wants_json) {
        wire_json_submitted(&line, response->job_id, response->state, response->existed != 0);
    } else {
        buf_text(&line, response->job_id);
    }
    cli_print(cli, &line);
    buf_deinit(&line);
}

void submit_print_state(struct cli *cli, const char *job_id, Capstan__V1__QueryState state)
{
    struct buf line = {0};
    if (cli->wants_json) {
        wire_json_job_state(&line, job_id, state);
    } else {
        buf_format(&line, "job %s is %s", job_id, wire_query_state_name(state));
    }
    cli_print(cli, &line);
    buf_deinit(&line);
}

const char *const *submit_names(struct cli *cli, const struct submission *submission, uint32_t *out_n)
{
    struct tree_submit tree;
    *out_n = 0;
    if (wire_read_tree(submission->tree, submission->n_tree, &cli->arena, &tree, NULL, NULL) != ERR_OK) {
        return NULL;
    }
    const char **names = arena_alloc(&cli->arena, tree.n_stages * sizeof *names);
    for (uint32_t i = 0; i < tree.n_stages; i++) {
        names[i] = tree.stages[i].name;
    }
    *out_n = tree.n_stages;
    return names;
}

/* ---- results ---- */

static void print_chunk(struct cli *cli, struct pretty *pretty, const struct results_chunk *chunk)
{
    struct buf text = {0};
    pretty_feed(pretty, (const char *)chunk->bytes, chunk->n, &text);
    if (text.n > 0) {
        fwrite(text.data, 1, text.n, cli->out);
    }
    buf_deinit(&text);
}

enum err results_print(struct cli *cli, const char *job_id, struct error *e)
{
    struct client_caller caller;
    struct pretty pretty = {.indents = !cli->wants_json};
    bool is_end = false;
    enum err err = cli_caller(cli, &caller, e);
    if (err != ERR_OK) {
        return err;
    }
    struct results *results = results_open(&caller, job_id);
    while (err == ERR_OK && !is_end) {
        struct results_chunk chunk = {0};
        err = results_next(results, &chunk, &is_end, e);
        if (err == ERR_OK && !is_end) {
            print_chunk(cli, &pretty, &chunk);
        }
    }
    if (err == ERR_OK) {
        fputc('\n', cli->out);
    }
    results_close(results);
    return err;
}

/* ---- failures ---- */

/* One line for each of the first tasks that failed. */
static void append_failures(struct cli *cli, const char *job_id, struct error *e)
{
    struct pb_list_tasks_request *request = cli_message(cli, PB_LIST_TASKS_REQUEST);
    struct pb_list_tasks_response *response = NULL;
    request->query_id = (char *)job_id;
    request->state = (char *)"failed";
    request->limit = FAILED_TASKS_SHOWN;
    if (cli_call(cli, "/capstan.v1.ControlPlane/ListTasks", PB_LIST_TASKS_RESPONSE, request, &response,
                 &(struct error){0}) != ERR_OK) {
        return;
    }
    struct buf lines = {0};
    for (size_t i = 0; i < response->n_tasks; i++) {
        const struct pb_task_status *task = response->tasks[i];
        buf_char(&lines, '\n');
        text_clean(&lines, task->name);
        buf_text(&lines, ": ");
        text_clean(&lines, task->message);
    }
    if (lines.n > 0) {
        error_set(e, e->code, "%s%s", e->message, lines.data);
    }
    buf_deinit(&lines);
}

int job_report_failure(struct cli *cli, const struct pb_query_status *status)
{
    struct error e = {0};
    fflush(cli->out); /* where both go to one terminal, results come first */
    error_set(&e, ERR_PRECONDITION, "job %s %s", status->query_id,
              status->state == CAPSTAN__V1__QUERY_STATE__QUERY_STATE_CANCELED ? "was canceled" : "failed");
    if (status->message[0] != '\0') {
        error_set(&e, ERR_PRECONDITION, "%s: %s", e.message, status->message);
    }
    bool has_failed = status->state == CAPSTAN__V1__QUERY_STATE__QUERY_STATE_FAILED;
    if (has_failed && strcmp(status->kind, "query") == 0) {
        /* One failure ends a query, and the message is about that one. SQL that is wrong stays so: no word of a retry. */
        error_hint(&e, "'capstan tasks %s' shows each task", status->query_id);
    } else if (has_failed) {
        append_failures(cli, status->query_id, &e);
        error_hint(&e, "'capstan tasks %s' shows each task, 'capstan retry %s' tries again", status->query_id,
                   status->query_id);
    }
    cli_fail(cli, &e);
    return EXIT_JOB_FAILED;
}

/* ---- Ctrl-C ---- */

int submit_cancel(struct cli *cli, struct interrupt *interrupt, const char *job_id)
{
    struct pb_cancel_query_response *response = NULL;
    struct client_caller caller;
    struct error e = {0};
    enum err err = ERR_OK;
    for (int i = 0; i < CANCEL_TRIES; i++) {
        rpc_cancel_reset(interrupt_cancel(interrupt));
        err = cli_caller(cli, &caller, &e);
        if (err == ERR_OK) {
            err = client_cancel(&caller, job_id, "interrupted", &response, &e);
        }
        if (err != ERR_NOT_FOUND) {
            break;
        }
        nanosleep(&(struct timespec){.tv_nsec = CANCEL_PAUSE_MS * 1000000L}, NULL);
    }
    if (err == ERR_OK) {
        fprintf(cli->err, "capstan: interrupted; job %s is %s\n", job_id, wire_query_state_name(response->state));
    } else if (err != ERR_NOT_FOUND) {
        cli_fail_with(cli, err, "'capstan cancel' cancels it", "interrupted, but job %s could not be canceled: %s",
                      job_id, e.message);
    }
    return EXIT_INTERRUPTED;
}
