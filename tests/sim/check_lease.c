/*
 * check_lease.c - at most one live lease per task, unique tokens, every lease ends.
 *
 * The model follows the lease rows and, for the phase without faults, the heartbeats that renew them: a lease that
 * nobody renews must be gone soon after its time.
 */
#include <string.h>

#include "core/core.h"
#include "sim/check.h"
#include "sim/sim.h"

#define TOKEN_SLOTS 8192 /* a power of two, far more than attempts of one run */

struct lease_model {
    bool is_live;
    uint32_t worker;
    struct lease_token token;
    int64_t renewed_at_ms; /* simulated time */
};

struct lease_state {
    struct lease_model tasks[MAX_TASKS];
    uint64_t tokens[TOKEN_SLOTS];
    uint32_t n_tokens;
    int64_t takeover_at_ms;
};

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    struct lease_state *lease = state;
    if (lease->n_tokens > 0) {
        memset(lease->tokens, 0, sizeof(lease->tokens));
    }
    lease->n_tokens = 0;
    lease->takeover_at_ms = 0;
}

/* False if the token was there before. */
static bool add_token(struct lease_state *state, struct lease_token token)
{
    uint64_t mark = (token.bits[0] * 31 + token.bits[1]) | 1;
    uint32_t i = (uint32_t)(mark >> 20) & (TOKEN_SLOTS - 1);
    while (state->tokens[i] != 0) {
        if (state->tokens[i] == mark) {
            return false;
        }
        i = (i + 1) & (TOKEN_SLOTS - 1);
    }
    if (state->n_tokens < TOKEN_SLOTS / 2) {
        state->tokens[i] = mark;
        state->n_tokens++;
    }
    return true;
}

static void grant(struct sim *sim, struct lease_state *state, const struct row_note *note)
{
    const struct row_lease *row = (const struct row_lease *)note->row;
    struct lease_model *task = &state->tasks[note->tid];
    if (task->is_live) {
        sim_fail(sim, PROPERTY_lease, "%s is leased to %s while %s has a live lease", task_text(sim, note->tid),
                 row->worker_id, worker_name(task->worker));
    }
    if (lease_token_is_none(row->token) || !add_token(state, row->token)) {
        sim_fail(sim, PROPERTY_lease, "%s is leased with a token that was used before", task_text(sim, note->tid));
    }
    *task = (struct lease_model){
        .is_live = true, .worker = note->worker, .token = row->token, .renewed_at_ms = sim->now_ms};
}

static void sweep(struct sim *sim, struct lease_state *state, uint32_t index)
{
    const struct stored_job *job = &sim->store.jobs[index];
    for (uint32_t s = 0; s < job->n_stages; s++) {
        for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
            state->tasks[job->stages[s].first_tid + t].is_live = false;
        }
    }
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct lease_state *lease = state;
    if (note->row->kind == ROW_LEASE) {
        grant(sim, lease, note);
    } else if (note->row->kind == ROW_LEASE_GONE) {
        struct lease_model *task = &lease->tasks[note->tid];
        if (lease_token_equal(task->token, ((const struct row_lease_gone *)note->row)->token)) {
            task->is_live = false;
        }
    } else if (note->row->kind == ROW_JOB_SWEEP) {
        sweep(sim, lease, note->job);
    } else if (((const struct row_task *)note->row)->is_new) {
        lease->tasks[note->tid] = (struct lease_model){0};
    }
}

static void fact(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    struct lease_state *lease = state;
    if (!sim->is_healed || reply->kind != REPLY_HEARTBEAT || !reply->u.heartbeat.accepted) {
        return;
    }
    for (uint32_t i = 0; i < request->u.heartbeat.n_running; i++) {
        const struct ref *ref = &request->u.heartbeat.running[i];
        uint32_t tid = store_tid(&sim->store, ref->job, ref->stage, ref->task);
        if (tid != NO_INDEX && lease_token_equal(lease->tasks[tid].token, ref->token)) {
            lease->tasks[tid].renewed_at_ms = sim->now_ms;
        }
    }
}

static void takeover(struct sim *sim, void *state)
{
    ((struct lease_state *)state)->takeover_at_ms = sim->now_ms;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void watch(struct sim *sim, void *state)
{
    const struct lease_state *lease = state;
    const struct core_config *config = &sim->world.config;
    int64_t allowed_ms = config->lease_ms + config->worker_liveness_timeout_ms + 4 * CORE_TICK_MS + 2000;
    int64_t since_ms = later(sim->healed_at_ms, lease->takeover_at_ms);
    for (uint32_t tid = 0; tid < sim->store.n_tids; tid++) {
        const struct lease_model *task = &lease->tasks[tid];
        if (task->is_live && sim->now_ms - later(task->renewed_at_ms, since_ms) > allowed_ms) {
            sim_fail(sim, PROPERTY_lease, "%s: the lease of %s was not renewed for %lld ms and does not end",
                     task_text(sim, tid), worker_name(task->worker), (long long)(sim->now_ms - task->renewed_at_ms));
        }
    }
}

static void end(struct sim *sim, void *state)
{
    const struct lease_state *lease = state;
    for (uint32_t tid = 0; tid < sim->store.n_tids; tid++) {
        if (lease->tasks[tid].is_live) {
            sim_fail(sim, PROPERTY_lease, "%s: a lease is left at the end", task_text(sim, tid));
        }
    }
}

const struct checker check_lease = {
    .property = PROPERTY_lease,
    .state_size = sizeof(struct lease_state),
    .row_kinds = BIT(ROW_TASK) | BIT(ROW_LEASE) | BIT(ROW_LEASE_GONE) | BIT(ROW_JOB_SWEEP),
    .fact_kinds = BIT(CMD_HEARTBEAT),
    .reset = reset,
    .fact = fact,
    .row = row,
    .takeover = takeover,
    .watch = watch,
    .end = end,
};
