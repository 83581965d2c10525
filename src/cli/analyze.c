/*
 * analyze.c - a plan beside what its stages took.
 *
 * Stage N of the plan is the stage called "sN" of the job. A plan of one stage with one task has none: the planning task
 * has run it at once.
 */
#include "cli/analyze.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/text.h"

#define PAGE_TASKS 500
#define INDENT 4
#define DEPTH_MAX 64

/* ---- times ---- */

void stage_times_add(struct stage_times *times, const struct pb_task_status *task)
{
    if (task->started_at_ms == 0) {
        return;
    }
    if (times->first_ms == 0 || task->started_at_ms < times->first_ms) {
        times->first_ms = task->started_at_ms;
    }
    if (task->finished_at_ms < task->started_at_ms) {
        return;
    }
    times->last_ms = task->finished_at_ms > times->last_ms ? task->finished_at_ms : times->last_ms;
    times->durations = mem_grow(times->durations, &times->cap, times->n + 1, sizeof *times->durations);
    times->durations[times->n++] = (int64_t)(task->finished_at_ms - task->started_at_ms);
}

void stage_times_deinit(struct stage_times *times)
{
    mem_free(times->durations);
    *times = (struct stage_times){0};
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

double stage_times_skew(struct stage_times *times)
{
    if (times->n < 2) {
        return 0;
    }
    qsort(times->durations, times->n, sizeof *times->durations, compare);
    uint32_t middle = times->n / 2;
    double median = times->n % 2 == 1 ? (double)times->durations[middle]
                                      : (double)(times->durations[middle - 1] + times->durations[middle]) / 2;
    return median > 0 ? (double)times->durations[times->n - 1] / median : 0;
}

static int64_t elapsed_ms(const struct stage_times *times)
{
    return times->last_ms > times->first_ms ? (int64_t)(times->last_ms - times->first_ms) : 0;
}

/* ---- the plan ---- */

struct writer {
    struct buf *out;
    const struct analysis *analysis;
    const struct json *stages;
    bool *is_shown; /* by place in the plan */
};

/* The place of the job's stage of that name, the last if there are several; -1: it has none. */
static int64_t find_named(const struct analysis *a, const char *name)
{
    for (size_t i = a->status->n_stages; i-- > 0;) {
        if (strcmp(a->status->stages[i]->name, name) == 0) {
            return (int64_t)i;
        }
    }
    return -1;
}

static const char *text_or(const struct json *node, const char *fallback)
{
    const char *text = json_text(node, NULL);
    return text != NULL ? text : fallback;
}

/* Which stage of the job ran the plan's; -1: none did. */
static int64_t find_run(const struct writer *w, const struct json *stage)
{
    char name[32];
    int64_t id = -1;
    (void)(json_int(json_get(stage, "id"), &id) && id >= 0);
    snprintf(name, sizeof name, "s%" PRId64, id);
    int64_t found = find_named(w->analysis, name);
    bool is_result = strcmp(text_or(json_get(json_get(stage, "output"), "exchange"), ""), "result") == 0;
    if (found < 0 && is_result) { /* whoever planned it, or planned it last, has done it at once */
        found = find_named(w->analysis, json_count(w->stages) == 1 ? "plan" : "refine");
    }
    return found;
}

/* The place of the plan's stage with that id; -1: there is none. */
static int64_t find_stage(const struct json *stages, int64_t id)
{
    for (size_t i = 0; i < json_count(stages); i++) {
        int64_t other = -1;
        if (json_int(json_get(json_at(stages, i), "id"), &other) && other == id) {
            return (int64_t)i;
        }
    }
    return -1;
}

/* An input is the id of a stage, or an object that has it. */
static int64_t input_stage(const struct json *stages, const struct json *input)
{
    int64_t id = -1;
    const struct json *number = json_kind_of(input) == JSON_OBJECT ? json_get(input, "stage") : input;
    return json_int(number, &id) ? find_stage(stages, id) : -1;
}

static const char *exchange_of(const struct json *stage)
{
    return text_or(json_get(json_get(stage, "output"), "exchange"), "?");
}

/* ---- for people ---- */

static void indent(struct writer *w, uint32_t depth)
{
    buf_format(w->out, "%*s", (int)(depth * INDENT), "");
}

static void put_clean_line(struct writer *w, const char *text, size_t n, uint32_t depth)
{
    struct buf line = {0};
    buf_append(&line, text, n);
    indent(w, depth);
    text_clean(w->out, line.data);
    buf_char(w->out, '\n');
    buf_deinit(&line);
}

/* "4 tasks, 1,234 rows, 56.0 KB, 12 ms, skew 1.3". */
static void put_figures(struct buf *out, const struct pb_stage_status *stage, struct stage_times *times)
{
    double skew = stage_times_skew(times);
    buf_format(out, "%" PRIu32 " task%s, ", stage->tasks, stage->tasks == 1 ? "" : "s");
    text_count(out, stage->rows);
    buf_text(out, stage->rows == 1 ? " row, " : " rows, ");
    text_size(out, stage->bytes);
    buf_text(out, ", ");
    text_duration(out, elapsed_ms(times));
    if (skew > 0) {
        buf_format(out, ", skew %.1f", skew);
    }
}

static void put_stage(struct writer *w, size_t at, uint32_t depth)
{
    const struct json *stage = json_at(w->stages, at);
    int64_t id = 0;
    (void)!json_int(json_get(stage, "id"), &id);
    indent(w, depth);
    buf_format(w->out, "stage %" PRId64 ": ", id);
    if (w->is_shown[at] || depth > DEPTH_MAX) {
        buf_text(w->out, "see above\n");
        return;
    }
    w->is_shown[at] = true;
    int64_t run = find_run(w, stage);
    if (run >= 0) {
        put_figures(w->out, w->analysis->status->stages[run], &w->analysis->times[run]);
    } else {
        buf_text(w->out, "not run");
    }
    buf_text(w->out, "; ");
    text_clean(w->out, exchange_of(stage));
    buf_char(w->out, '\n');
    for (const char *what = text_or(json_get(stage, "what"), ""); *what != '\0';) {
        size_t n = strcspn(what, "\n");
        put_clean_line(w, what, n, depth + 1);
        what += n + (what[n] == '\n' ? 1 : 0);
    }
    size_t cursor = 0;
    const char *name = NULL;
    const struct json *input = NULL;
    while (json_next(json_get(stage, "inputs"), &cursor, &name, &input)) {
        int64_t from = input_stage(w->stages, input);
        put_clean_line(w, name, strlen(name), depth + 1);
        if (from >= 0) {
            put_stage(w, (size_t)from, depth + 2);
        }
    }
}

static int64_t job_ms(const struct pb_query_status *status)
{
    return status->finished_at_ms > status->submitted_at_ms
               ? (int64_t)(status->finished_at_ms - status->submitted_at_ms)
               : 0;
}

static void put_people(struct writer *w, const struct json *plan)
{
    const struct analysis *a = w->analysis;
    const char *reason = json_text(json_get(plan, "single"), NULL);
    buf_format(w->out, "job %s took ", a->status->query_id);
    text_duration(w->out, job_ms(a->status));
    for (size_t i = 0; i < a->status->n_stages; i++) {
        bool is_planning =
            strcmp(a->status->stages[i]->name, "plan") == 0 || strcmp(a->status->stages[i]->name, "refine") == 0;
        if (is_planning && json_count(w->stages) > 1) {
            buf_format(w->out, ", %s ", a->status->stages[i]->name);
            text_duration(w->out, elapsed_ms(&a->times[i]));
        }
    }
    buf_char(w->out, '\n');
    if (reason != NULL) {
        buf_text(w->out, "one task: ");
        text_clean(w->out, reason);
        buf_char(w->out, '\n');
    }
    for (size_t i = json_count(w->stages); i-- > 0;) {
        if (strcmp(exchange_of(json_at(w->stages, i)), "result") == 0) {
            put_stage(w, i, 0);
        }
    }
}

/* ---- for machines ---- */

static void put_json_inputs(struct writer *w, const struct json *stage)
{
    size_t cursor = 0;
    const char *name = NULL;
    const struct json *input = NULL;
    bool is_first = true;
    buf_char(w->out, '[');
    while (json_next(json_get(stage, "inputs"), &cursor, &name, &input)) {
        int64_t from = input_stage(w->stages, input);
        int64_t id = 0;
        if (from >= 0 && json_int(json_get(json_at(w->stages, (size_t)from), "id"), &id)) {
            buf_format(w->out, "%s%" PRId64, is_first ? "" : ",", id);
            is_first = false;
        }
    }
    buf_char(w->out, ']');
}

static void put_json_stage(struct writer *w, const struct json *stage)
{
    int64_t run = find_run(w, stage);
    int64_t id = 0;
    (void)!json_int(json_get(stage, "id"), &id);
    buf_format(w->out, "{\"id\":%" PRId64 ",\"exchange\":", id);
    json_write_text(w->out, exchange_of(stage));
    buf_text(w->out, ",\"what\":");
    json_write_text(w->out, text_or(json_get(stage, "what"), ""));
    buf_text(w->out, ",\"inputs\":");
    put_json_inputs(w, stage);
    if (run >= 0) {
        const struct pb_stage_status *status = w->analysis->status->stages[run];
        struct stage_times *times = &w->analysis->times[run];
        double skew = stage_times_skew(times);
        buf_format(w->out, ",\"tasks\":%" PRIu32 ",\"rows\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"ms\":%" PRId64,
                   status->tasks, status->rows, status->bytes, elapsed_ms(times));
        buf_text(w->out, ",\"skew\":");
        if (skew > 0) {
            json_write_number(w->out, skew);
        } else {
            buf_text(w->out, "null");
        }
    }
    buf_char(w->out, '}');
}

static void put_json(struct writer *w, const struct json *plan)
{
    const char *reason = json_text(json_get(plan, "single"), NULL);
    buf_text(w->out, "{\"job_id\":");
    json_write_text(w->out, w->analysis->status->query_id);
    buf_format(w->out, ",\"ms\":%" PRId64 ",\"single\":", job_ms(w->analysis->status));
    if (reason != NULL) {
        json_write_text(w->out, reason);
    } else {
        buf_text(w->out, "null");
    }
    buf_text(w->out, ",\"stages\":[");
    for (size_t i = 0; i < json_count(w->stages); i++) {
        buf_text(w->out, i == 0 ? "" : ",");
        put_json_stage(w, json_at(w->stages, i));
    }
    buf_text(w->out, "]}\n");
}

enum err analyze_write(struct buf *out, const struct analysis *analysis, bool wants_json, struct error *e)
{
    struct json *plan = NULL;
    if (analysis->plan_json == NULL) {
        return error_set(e, ERR_INTERNAL, "job %s has no plan to show", analysis->status->query_id);
    }
    enum err err = json_parse_with_nan(analysis->plan_json, analysis->n_plan, &plan, e);
    if (err != ERR_OK) {
        return error_set(e, ERR_INTERNAL, "the plan of job %s cannot be read: %s", analysis->status->query_id,
                         e->message);
    }
    struct writer w = {.out = out, .analysis = analysis, .stages = json_get(plan, "stages")};
    w.is_shown = mem_calloc(json_count(w.stages) + 1, sizeof *w.is_shown);
    if (wants_json) {
        put_json(&w, plan);
    } else {
        put_people(&w, plan);
    }
    mem_free(w.is_shown);
    json_free(plan);
    return ERR_OK;
}

/* ---- with a coordinator ---- */

static void take_task(struct analysis *a, const struct pb_task_status *task)
{
    for (size_t i = 0; i < a->status->n_stages && task->ref != NULL; i++) {
        const struct pb_stage_status *stage = a->status->stages[i];
        if (stage->stage_id != task->ref->stage_id) {
            continue;
        }
        stage_times_add(&a->times[i], task);
        bool is_planning = strcmp(stage->name, "plan") == 0 || strcmp(stage->name, "refine") == 0;
        if (is_planning && task->result_json.len > 0) {
            a->plan_json = (const char *)task->result_json.data;
            a->n_plan = task->result_json.len;
        }
    }
}

/* Tasks come in the order of their stages, so the last plan wins. */
static enum err read_tasks(struct cli *cli, struct analysis *a, struct error *e)
{
    const char *next = "";
    do {
        struct pb_list_tasks_request *request = cli_message(cli, PB_LIST_TASKS_REQUEST);
        struct pb_list_tasks_response *page = NULL;
        request->query_id = a->status->query_id;
        request->limit = PAGE_TASKS;
        request->after = (char *)next;
        enum err err = cli_call(cli, "/capstan.v1.ControlPlane/ListTasks", PB_LIST_TASKS_RESPONSE, request, &page, e);
        if (err != ERR_OK) {
            return err;
        }
        for (size_t i = 0; i < page->n_tasks; i++) {
            take_task(a, page->tasks[i]);
        }
        next = page->next;
    } while (next[0] != '\0');
    return ERR_OK;
}

enum err analyze_print(struct cli *cli, const struct pb_query_status *status, FILE *to, struct error *e)
{
    struct analysis analysis = {.status = status, .times = mem_calloc(status->n_stages + 1, sizeof *analysis.times)};
    struct buf text = {0};
    enum err err = read_tasks(cli, &analysis, e);
    if (err == ERR_OK) {
        err = analyze_write(&text, &analysis, cli->wants_json, e);
    }
    if (err == ERR_OK) {
        fwrite(text.data, 1, text.n, to);
    }
    for (size_t i = 0; i < status->n_stages; i++) {
        stage_times_deinit(&analysis.times[i]);
    }
    mem_free(analysis.times);
    buf_deinit(&text);
    return err;
}
