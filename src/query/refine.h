/*
 * refine.h - the second step of planning, when sizes are known that were guesses before.
 *
 * query_refine() is a pure function: a plan and the actual sizes of the stages that have finished give the plan to go on
 * with. Stages that have finished or that the job has (job_stage) stay as they are. Of the others:
 *
 * - An open choice whose small side has finished is made. If that is small enough, the reader takes in the SQL, splits
 *   and inputs of the large side, which then has no rows to send and no reader: its stage is gone from the plan. If it is not, and the reader only leaves
 *   out rows (PHYSICAL_SIEVE), it is the reader that goes: others read the large side itself.
 * - A stage whose input is empty, and which yields nothing then, keeps one task, or one for each of its scans. It runs, but
 *   reads no rows: splits are marked as empty, and its inputs are opened. Only if that input would be empty again were it
 *   redone: no stage that it comes from hangs on chance.
 * - The last stages become one (tail.h), if all that they read has finished and is small.
 * - A stage reads several small partitions with one task, as long as it need not keep its partitions apart from others'. Small
 *   means: less than a task's share, unless that is so little that it would be mostly overhead.
 *
 * Stages keep their ids, so that a coordinator can tell what is new.
 */
#ifndef CAPSTAN_QUERY_REFINE_H
#define CAPSTAN_QUERY_REFINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "query/physical.h"

/* What a stage has really written. */
struct stage_size {
    bool is_finished;
    uint64_t rows;
    uint64_t bytes;
    uint32_t n_partitions;           /* 0 if it is not known by partition */
    const uint64_t *partition_bytes; /* one each */
};

struct refine_options {
    uint64_t partition_bytes; /* what one task should read; 0: leave the number of tasks alone */
};

/* `sizes` has one entry per stage of the plan. The result lies in the arena and shares texts with the plan. */
struct physical_plan *query_refine(const struct physical_plan *plan, const struct stage_size *sizes,
                                   const struct refine_options *options, struct arena *arena);

#endif
