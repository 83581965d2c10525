#include "cli/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/text.h"
#include "client/events.h"

#define NAMES_MEASURED 1000 /* of a large job: a drawing must stay cheap */

struct progress_task {
    char *name; /* NULL: called by its number */
    enum progress_state state;
    uint32_t attempt;
    char *worker;          /* NULL: none yet */
    char *message;         /* why it failed; NULL: it did not */
    int64_t began_mono_ms; /* when the news came */
    uint64_t began_at_ms;  /* by the leader's clock, like the next */
    uint64_t ended_at_ms;  /* 0: not yet */
};

static const char *const state_names[PROGRESS_STATES] = {"queued", "running",  "succeeded",
                                                         "failed", "canceled", "skipped"};
static const enum color state_colors[PROGRESS_STATES] = {COLOR_DIM, COLOR_CYAN,   COLOR_GREEN,
                                                         COLOR_RED, COLOR_YELLOW, COLOR_YELLOW};

const char *progress_state_name(enum progress_state state)
{
    return state_names[state];
}

void progress_init(struct progress *progress, const char *const *names, uint32_t n_tasks)
{
    *progress = (struct progress){.n_tasks = n_tasks};
    progress->tasks = mem_calloc(n_tasks > 0 ? n_tasks : 1, sizeof *progress->tasks);
    progress->counts[PROGRESS_QUEUED] = n_tasks;
    for (uint32_t i = 0; names != NULL && i < n_tasks; i++) {
        progress->tasks[i].name = mem_strdup(names[i]);
    }
}

void progress_deinit(struct progress *progress)
{
    for (uint32_t i = 0; i < progress->n_tasks; i++) {
        mem_free(progress->tasks[i].name);
        mem_free(progress->tasks[i].worker);
        mem_free(progress->tasks[i].message);
    }
    mem_free(progress->tasks);
    *progress = (struct progress){0};
}

static void write_name(const struct progress *p, uint32_t i, struct buf *out)
{
    if (p->tasks[i].name != NULL) {
        text_clean(out, p->tasks[i].name);
    } else {
        buf_format(out, "task %" PRIu32, i);
    }
}

static void replace(char **text, const char *with)
{
    if (with != NULL && with[0] != '\0') {
        char *copy = mem_strdup(with);
        mem_free(*text);
        *text = copy;
    }
}

struct event_effect {
    const char *type;
    enum progress_state state;
};

static const struct event_effect effects[] = {
    {"pending", PROGRESS_QUEUED},      {"assigned", PROGRESS_RUNNING}, {"started", PROGRESS_RUNNING},
    {"completed", PROGRESS_SUCCEEDED}, {"failed", PROGRESS_FAILED},    {"reassigned", PROGRESS_QUEUED},
    {"cancelled", PROGRESS_CANCELED},  {"skipped", PROGRESS_SKIPPED},  {"retried", PROGRESS_QUEUED},
};

static const struct event_effect *effect_of(const char *type)
{
    for (size_t i = 0; i < ARRAY_LEN(effects); i++) {
        if (strcmp(effects[i].type, type) == 0) {
            return &effects[i];
        }
    }
    return NULL;
}

/* The message inside an event's details, which are a JSON object; NULL if there is none. The caller frees it. */
static char *message_of(const struct pb_event *event)
{
    struct json *root = NULL;
    char *out = NULL;
    if (event->details != NULL && event->details[0] != '\0' &&
        json_parse(event->details, strlen(event->details), &root, NULL) == ERR_OK) {
        const char *text = json_text(json_get(root, "message"), NULL);
        out = text != NULL && text[0] != '\0' ? mem_strdup(text) : NULL;
        json_free(root);
    }
    return out;
}

static void write_line(const struct progress *p, uint32_t i, const char *type, struct buf *line)
{
    const struct progress_task *task = &p->tasks[i];
    write_name(p, i, line);
    buf_format(line, ": %s", strcmp(type, "reassigned") == 0 ? "taken back" : state_names[task->state]);
    if (task->worker != NULL && task->state != PROGRESS_SKIPPED) {
        buf_text(line, task->state == PROGRESS_QUEUED ? " from " : " on ");
        text_clean(line, task->worker);
    }
    if (task->attempt > 1) {
        buf_format(line, " (attempt %" PRIu32 ")", task->attempt);
    }
    if (task->ended_at_ms >= task->began_at_ms && task->ended_at_ms > 0 && task->began_at_ms > 0) {
        buf_text(line, " in ");
        text_duration(line, (int64_t)(task->ended_at_ms - task->began_at_ms));
    }
    if (task->message != NULL && task->state == PROGRESS_FAILED) {
        buf_text(line, ": ");
        text_clean(line, task->message);
    }
    buf_char(line, '\n');
}

static void move(struct progress *p, uint32_t i, const struct pb_event *event, enum progress_state state,
                 int64_t now_ms)
{
    struct progress_task *task = &p->tasks[i];
    p->counts[task->state]--;
    p->counts[state]++;
    task->state = state;
    if (event->ref->attempt > 0) {
        task->attempt = event->ref->attempt;
    }
    replace(&task->worker, event->worker_id);
    if (state == PROGRESS_RUNNING) {
        task->began_mono_ms = now_ms;
        task->began_at_ms = event->at_ms;
        task->ended_at_ms = 0;
    } else if (state == PROGRESS_QUEUED) {
        task->began_at_ms = 0;
        task->ended_at_ms = 0;
    } else {
        task->ended_at_ms = event->at_ms;
    }
    if (state == PROGRESS_FAILED) {
        char *message = message_of(event);
        replace(&task->message, message);
        mem_free(message);
    }
}

/* Tasks that wait or run when their job ends are canceled with it, without an event of their own. */
static void cancel_rest(struct progress *p)
{
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        if (p->tasks[i].state <= PROGRESS_RUNNING) {
            p->counts[p->tasks[i].state]--;
            p->counts[PROGRESS_CANCELED]++;
            p->tasks[i].state = PROGRESS_CANCELED;
        }
    }
}

void progress_event(struct progress *progress, const struct pb_event *event, int64_t now_ms, struct buf *line)
{
    const struct event_effect *effect = effect_of(event->type);
    if (event->seq <= progress->last_seq && event->seq != 0) {
        return;
    }
    progress->last_seq = event->seq;
    if (effect == NULL || event->ref == NULL) {
        return;
    }
    if (event_is_of_whole_job(event)) {
        progress->has_ended = effect->state > PROGRESS_RUNNING;
        if (progress->has_ended) {
            cancel_rest(progress);
        }
        return;
    }
    if (event->ref->stage_id >= progress->n_tasks) {
        return;
    }
    uint32_t i = (uint32_t)event->ref->stage_id;
    bool is_news = progress->tasks[i].state != effect->state || progress->tasks[i].attempt != event->ref->attempt;
    if (!is_news) {
        return; /* it is running as soon as it is assigned, and then starts */
    }
    move(progress, i, event, effect->state, now_ms);
    if (line != NULL && strcmp(event->type, "pending") != 0) {
        write_line(progress, i, event->type, line);
    }
}

void progress_summary(const struct progress *progress, int64_t elapsed_ms, struct buf *out)
{
    static const enum progress_state others[] = {PROGRESS_RUNNING, PROGRESS_QUEUED, PROGRESS_FAILED, PROGRESS_SKIPPED,
                                                 PROGRESS_CANCELED};
    text_count(out, progress->counts[PROGRESS_SUCCEEDED]);
    buf_text(out, " of ");
    text_count(out, progress->n_tasks);
    buf_text(out, " done");
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        if (progress->counts[others[i]] > 0) {
            buf_text(out, ", ");
            text_count(out, progress->counts[others[i]]);
            buf_format(out, " %s", state_names[others[i]]);
        }
    }
    buf_text(out, " \xc2\xb7 ");
    text_duration(out, elapsed_ms);
}

static void draw_task(const struct progress *p, uint32_t i, const struct progress_view *view, size_t name_width,
                      struct buf *out)
{
    const struct progress_task *task = &p->tasks[i];
    struct buf line = {0};
    struct buf name = {0};
    write_name(p, i, &name);
    text_clip(&line, name.data, name_width);
    size_t width = text_width(line.data);
    buf_format(&line, "%*s  %s", (int)(name_width - width), "",
               color_start(view->has_colors, state_colors[task->state]));
    buf_format(&line, "%-9s%s", state_names[task->state], color_end(view->has_colors, state_colors[task->state]));
    struct buf rest = {0};
    buf_text(&rest, "  ");
    if (task->worker != NULL && task->state != PROGRESS_QUEUED) {
        text_clean(&rest, task->worker);
        buf_text(&rest, "  ");
    }
    if (task->state == PROGRESS_RUNNING) {
        text_duration(&rest, view->now_ms - task->began_mono_ms);
    } else if (task->ended_at_ms >= task->began_at_ms && task->began_at_ms > 0) {
        text_duration(&rest, (int64_t)(task->ended_at_ms - task->began_at_ms));
    }
    if (task->attempt > 1) {
        buf_format(&rest, "  attempt %" PRIu32, task->attempt);
    }
    if (task->message != NULL && task->state != PROGRESS_SUCCEEDED) {
        buf_text(&rest, "  ");
        text_clean(&rest, task->message);
    }
    size_t used = name_width + 2 + 9;
    text_clip(&line, rest.data, view->columns > used + 1 ? view->columns - used - 1 : 0);
    buf_append(out, line.data, line.n);
    buf_char(out, '\n');
    buf_deinit(&line);
    buf_deinit(&name);
    buf_deinit(&rest);
}

static size_t name_width_of(const struct progress *p, uint32_t columns)
{
    size_t widest = 6;
    size_t most = columns > 60 ? columns / 3 : 20;
    for (uint32_t i = 0; i < p->n_tasks && i < NAMES_MEASURED && widest < most; i++) {
        struct buf name = {0};
        write_name(p, i, &name);
        size_t width = text_width(name.data);
        widest = width > widest ? width : widest;
        buf_deinit(&name);
    }
    return widest < most ? widest : most;
}

/* Whether a task is worth one of the few lines when not all fit, in the round `round`. */
static bool is_shown(const struct progress_task *task, int round)
{
    return (round == 0 && task->state == PROGRESS_RUNNING) || (round == 1 && task->state == PROGRESS_FAILED);
}

void progress_draw(struct progress *progress, const struct progress_view *view, struct buf *out)
{
    uint32_t room = view->lines > 2 ? view->lines - 1 : 1; /* the last line is the summary */
    uint32_t drawn = 0;
    size_t name_width = name_width_of(progress, view->columns);
    if (progress->drawn > 0) {
        buf_format(out, "\033[%" PRIu32 "A", progress->drawn);
    }
    buf_text(out, "\r\033[J");
    if (progress->n_tasks <= room) {
        for (uint32_t i = 0; i < progress->n_tasks; i++, drawn++) {
            draw_task(progress, i, view, name_width, out);
        }
    } else {
        for (int round = 0; round < 2; round++) {
            for (uint32_t i = 0; i < progress->n_tasks && drawn < room; i++) {
                if (is_shown(&progress->tasks[i], round)) {
                    draw_task(progress, i, view, name_width, out);
                    drawn++;
                }
            }
        }
    }
    struct buf summary = {0};
    progress_summary(progress, view->elapsed_ms, &summary);
    text_clip(out, summary.data, view->columns > 1 ? view->columns - 1 : 1);
    buf_char(out, '\n');
    progress->drawn = drawn + 1;
    buf_deinit(&summary);
}
