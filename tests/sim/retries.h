/*
 * retries.h - which rows belong to a retry of a job.
 *
 * The rows that a retry writes follow directly on the number at which it was stepped. Each checker that needs to know
 * keeps a memory of its own.
 *
 * Ownership: plain values. Threads: one.
 */
#ifndef CAPSTAN_SIM_RETRIES_H
#define CAPSTAN_SIM_RETRIES_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/check.h"

#define RETRIES_REMEMBERED 4
#define ROWS_OF_RETRY_MAX (4 * MAX_STAGES * 4)

struct retries {
    uint64_t no[RETRIES_REMEMBERED]; /* the newest row before it */
    uint32_t n;
};

static inline void retries_add(struct retries *retries, const struct msg *request, const struct reply *reply)
{
    if (reply->kind == REPLY_JOB) {
        retries->no[retries->n++ % RETRIES_REMEMBERED] = request->step_row;
    }
}

static inline bool retries_cover(const struct retries *retries, uint64_t no)
{
    for (uint32_t i = 0; i < RETRIES_REMEMBERED && i < retries->n; i++) {
        if (no > retries->no[i] && no <= retries->no[i] + ROWS_OF_RETRY_MAX) {
            return true;
        }
    }
    return false;
}

#endif
