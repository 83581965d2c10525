/*
 * bench_times.h - where the time of a job went, and who took part in it, by what it says of its tasks.
 *
 * Ownership: nothing is kept. Threads: any.
 */
#ifndef CAPSTAN_MAIN_BENCH_TIMES_H
#define CAPSTAN_MAIN_BENCH_TIMES_H

#include <stddef.h>
#include <stdint.h>

#include "wire/message.h"

/*
 * What a job that has ended says of itself, in milliseconds of the coordinator's clock. Every moment between submit and end
 * is counted once: it is `run` while a task of a stage runs, else `plan` while a planning task does, else `dispatch`. Small
 * queries are run by their planning task.
 */
struct query_times {
    double plan_ms;
    double run_ms;
    double dispatch_ms;
    double job_ms;          /* the sum */
    double task_ms;         /* of all tasks of stages, one after the other */
    uint32_t stages;        /* at least 1; planning is none */
    uint32_t tasks;         /* of these */
    uint32_t tasks_max;     /* of one of these */
    uint32_t workers;       /* that ran one */
    uint32_t workers_least; /* the same of the stage of several tasks of which the fewest did; 0: none has several */
    uint64_t moved_bytes;   /* that stages wrote for other stages */
    uint64_t moved_rows;
};

/* Of a job that has ended, with all its tasks. */
void query_times_of(const struct pb_query_status *status, const struct pb_task_status *const *tasks, size_t n,
                    struct query_times *out);

#endif
