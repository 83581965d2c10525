/*
 * ids.h - the names of things: attempts, tokens, digests, and the states that they go through.
 *
 * Plain values without behaviour. Strings are NUL-terminated and belong to whoever filled the struct in.
 */
#ifndef CAPSTAN_CORE_IDS_H
#define CAPSTAN_CORE_IDS_H

#include <stdbool.h>
#include <stdint.h>

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_SUCCEEDED, JOB_FAILED, JOB_CANCELED };

enum task_state { TASK_QUEUED, TASK_RUNNING, TASK_SUCCEEDED, TASK_FAILED, TASK_CANCELED, TASK_SKIPPED };
#define TASK_STATE_COUNT 6

enum job_kind { JOB_KIND_QUERY, JOB_KIND_TREE };

/* How an attempt ended, as `execution_idempotency` knows it. OUTCOME_LOST covers every end without a verdict. */
enum attempt_outcome { OUTCOME_NONE, OUTCOME_PENDING, OUTCOME_COMPLETED, OUTCOME_FAILED, OUTCOME_LOST };

/* 128 random bits that a worker must quote in everything that it says about an attempt. All zero means none. */
struct lease_token {
    uint64_t bits[2];
};

/* A SHA-256 over canonical content; the content itself lives outside the core. */
struct digest {
    uint8_t bytes[32];
};

/* Names a task. Stages and tasks count from 0. */
struct task_ref {
    const char *job_id;
    uint32_t stage;
    uint32_t task;
};

/* Names one attempt of a task, counted from 1, and proves the right to speak for it. */
struct attempt_ref {
    struct task_ref task;
    uint32_t attempt;
    struct lease_token token;
};

/* One reduce partition of a map task's output. */
struct partition {
    uint64_t bytes;
    uint64_t rows;
    uint64_t batches;
    uint64_t checksum;
};

static inline bool lease_token_equal(struct lease_token a, struct lease_token b)
{
    return ((a.bits[0] ^ b.bits[0]) | (a.bits[1] ^ b.bits[1])) == 0;
}

static inline bool lease_token_is_none(struct lease_token token)
{
    return (token.bits[0] | token.bits[1]) == 0;
}

static inline bool job_state_is_terminal(enum job_state state)
{
    return state >= JOB_SUCCEEDED;
}

static inline bool task_state_is_terminal(enum task_state state)
{
    return state >= TASK_SUCCEEDED;
}

const char *job_state_name(enum job_state state);
const char *task_state_name(enum task_state state);
const char *attempt_outcome_name(enum attempt_outcome outcome);

#endif
