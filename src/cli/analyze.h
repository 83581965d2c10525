/*
 * analyze.h - what `capstan sql --analyze` prints: the stages of a query that has run, and what each took.
 *
 * The plan comes from the job itself: it is the result of its planning task, or of the last one, if choices were made while
 * it ran. Rows, bytes and times come from the status of its stages and tasks.
 *
 * Ownership: nothing is kept but in the cli's arena. Threads: one.
 */
#ifndef CAPSTAN_CLI_ANALYZE_H
#define CAPSTAN_CLI_ANALYZE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"
#include "wire/message.h"

struct cli;

/* What the tasks of one stage took. */
struct stage_times {
    uint64_t first_ms; /* when the first began; 0: none has */
    uint64_t last_ms;
    int64_t *durations; /* of those that have ended, in any order */
    uint32_t n;
    uint32_t cap;
};

void stage_times_add(struct stage_times *times, const struct pb_task_status *task);
void stage_times_deinit(struct stage_times *times);

/* The slowest task's time by the median one's; 0 if there are fewer than two, or it cannot be told. Sorts. */
double stage_times_skew(struct stage_times *times);

/* A job that has ended, as far as this is about. */
struct analysis {
    const struct pb_query_status *status;
    struct stage_times *times; /* for each of the status's stages */
    const char *plan_json;     /* NULL: the job has none */
    size_t n_plan;
};

/* Appends the tree for people, or one line of JSON. ERR_INTERNAL if the plan cannot be read. */
MUST_USE enum err analyze_write(struct buf *out, const struct analysis *analysis, bool wants_json, struct error *e);

/* Asks for what is missing and prints it to `to`; as JSON with --json. */
MUST_USE enum err analyze_print(struct cli *cli, const struct pb_query_status *status, FILE *to, struct error *e);

#endif
