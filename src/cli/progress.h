/*
 * progress.h - what is known about the tasks of one job while it runs, and how that looks.
 *
 * Events go in, in any number and also twice; out come either plain lines, one per change, or a drawing for a terminal
 * that is replaced by the next one. A drawing never has more lines than it is told: a job that does not fit shows what
 * runs, what failed, and a summary.
 *
 * Ownership: progress_init copies the names; progress_deinit frees. Threads: one at a time per value.
 */
#ifndef CAPSTAN_CLI_PROGRESS_H
#define CAPSTAN_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/message.h"

enum progress_state {
    PROGRESS_QUEUED,
    PROGRESS_RUNNING,
    PROGRESS_SUCCEEDED,
    PROGRESS_FAILED,
    PROGRESS_CANCELED,
    PROGRESS_SKIPPED
};
#define PROGRESS_STATES 6

struct progress_task;

struct progress {
    struct progress_task *tasks; /* by stage, as each task of a tree is a stage of its own */
    uint32_t n_tasks;
    uint32_t counts[PROGRESS_STATES];
    uint32_t drawn; /* lines of the last drawing */
    uint64_t last_seq;
    bool has_ended; /* the job's own last event came */
};

struct progress_view {
    uint32_t columns;
    uint32_t lines; /* the most that a drawing may have */
    int64_t now_ms; /* by the monotonic clock */
    int64_t elapsed_ms;
    bool has_colors;
};

/* `names` may be NULL, or any of them: such tasks are called by their number. */
void progress_init(struct progress *progress, const char *const *names, uint32_t n_tasks);
void progress_deinit(struct progress *progress);

/* Takes an event in. If it changes a task, appends a plain line that says so, with its line end. `line` may be NULL. */
void progress_event(struct progress *progress, const struct pb_event *event, int64_t now_ms, struct buf *line);

/* Appends what replaces the last drawing on a terminal: escape sequences, then the new one. */
void progress_draw(struct progress *progress, const struct progress_view *view, struct buf *out);

/* "3 of 8 done, 2 running, 1 failed · 1.2 s". */
void progress_summary(const struct progress *progress, int64_t elapsed_ms, struct buf *out);

const char *progress_state_name(enum progress_state state);

#endif
