/*
 * check_limits.c - no worker and no query above its limit, and no worker starves below it.
 *
 * The model counts running attempts per worker and per job from the task rows. After the heal it also looks for the
 * opposite: a worker that asks for work, is below its limit by this count, and gets none, while a task that every
 * worker could run waits for long.
 */
#include <string.h>

#include "sim/check.h"
#include "sim/sim.h"

#define STARVING_MS 6000
#define AS_A_JOB MAX_WORKERS /* in the place of a worker; counts for the job's limit only */

struct limits {
    uint32_t running_on[MAX_TASKS]; /* worker; NO_INDEX: not running on any */
    enum task_state states[MAX_TASKS];
    int64_t waiting_since_ms[MAX_TASKS]; /* 0: not assignable at the last look */
    uint32_t per_worker[MAX_WORKERS + 1];
    uint32_t per_job[MAX_JOBS];
    int64_t asking_since_ms[MAX_WORKERS]; /* 0: does not ask, is full, or just got something */
    int64_t asked_at_ms[MAX_WORKERS];
};

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    struct limits *limits = state;
    memset(limits->per_worker, 0, sizeof(limits->per_worker));
    memset(limits->per_job, 0, sizeof(limits->per_job));
    memset(limits->asking_since_ms, 0, sizeof(limits->asking_since_ms));
    memset(limits->asked_at_ms, 0, sizeof(limits->asked_at_ms));
}

static void set_running(struct sim *sim, struct limits *limits, uint32_t tid, uint32_t job, uint32_t worker)
{
    uint32_t *at = &limits->running_on[tid];
    if (*at != NO_INDEX) {
        limits->per_worker[*at]--;
        limits->per_job[job]--;
    }
    *at = worker;
    if (worker == NO_INDEX) {
        return;
    }
    const struct core_config *config = &sim->world.config;
    limits->per_worker[worker]++;
    if (worker != AS_A_JOB) {
        limits->asking_since_ms[worker] = 0;
    }
    if (worker != AS_A_JOB && limits->per_worker[worker] > config->max_concurrent_tasks_per_worker) {
        sim_fail(sim, PROPERTY_limits, "%s is given to %s, which runs %u already (limit %lld)", task_text(sim, tid),
                 worker_name(worker), limits->per_worker[worker] - 1,
                 (long long)config->max_concurrent_tasks_per_worker);
    }
    if (++limits->per_job[job] > config->max_concurrent_tasks_per_query) {
        sim_fail(sim, PROPERTY_limits, "%s is given out while its job runs %u already (limit %lld)",
                 task_text(sim, tid), limits->per_job[job] - 1, (long long)config->max_concurrent_tasks_per_query);
    }
}

static void sweep(struct sim *sim, struct limits *limits, uint32_t index)
{
    const struct stored_job *job = &sim->store.jobs[index];
    for (uint32_t s = 0; s < job->n_stages; s++) {
        for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
            uint32_t tid = job->stages[s].first_tid + t;
            set_running(sim, limits, tid, index, NO_INDEX);
            if (!task_state_is_terminal(limits->states[tid])) {
                limits->states[tid] = TASK_CANCELED;
            }
        }
    }
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct limits *limits = state;
    if (note->row->kind == ROW_JOB_SWEEP) {
        sweep(sim, limits, note->job);
        return;
    }
    const struct row_task *row = (const struct row_task *)note->row;
    if (row->is_new) {
        limits->running_on[note->tid] = NO_INDEX;
        limits->waiting_since_ms[note->tid] = 0;
    }
    limits->states[note->tid] = row->state;
    uint32_t worker = note->worker == NO_INDEX ? AS_A_JOB : note->worker;
    set_running(sim, limits, note->tid, note->job, row->state == TASK_RUNNING ? worker : NO_INDEX);
}

static void leave(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    UNUSED(state);
    if (reply->kind == REPLY_TASKS && reply->u.tasks.n_tasks > request->u.get_task.capacity) {
        sim_fail(sim, PROPERTY_limits, "%s asked for %u tasks and gets %u", worker_name(request->worker),
                 request->u.get_task.capacity, reply->u.tasks.n_tasks);
    }
}

/* ---- starving ---- */

/* Every worker could run it, now, as far as anybody knows. */
static bool is_assignable(const struct sim *sim, const struct limits *limits, uint32_t tid)
{
    const struct stored_task *task = &sim->store.tasks[tid];
    uint32_t index = name_index(task->row.ref.job_id);
    const struct stored_job *job = &sim->store.jobs[index];
    const struct stored_stage *stage = &job->stages[task->row.ref.stage];
    const struct wants *wants = &sim->world.needs[sim->world.stage_defs[stage->def].need].wants;
    if (limits->states[tid] != TASK_QUEUED || stage->spec->child || job_state_is_terminal(job->row.state)) {
        return false;
    }
    if (wants->max_parallel != 0 || wants->allowed != 0 || wants->forbidden != 0 || task->row.failed_on.count > 0 ||
        task->row.ready_at_ms > sim->leader.now_max_ms ||
        limits->per_job[index] >= sim->world.config.max_concurrent_tasks_per_query) {
        return false;
    }
    for (uint32_t p = 0; p < stage->spec->n_parents; p++) {
        const struct stored_stage *parent = &job->stages[stage->spec->parents[p].stage];
        for (uint32_t t = 0; t < parent->spec->n_tasks; t++) {
            if (limits->states[parent->first_tid + t] != TASK_SUCCEEDED) {
                return false;
            }
        }
    }
    return true;
}

static void note_asking(struct sim *sim, struct limits *limits)
{
    for (uint32_t w = 0; w < sim->world.n_safe; w++) {
        const struct proc *proc = &sim->workers.procs[sim->workers.workers[w].proc];
        const struct stored_node *node = &sim->store.nodes[w];
        bool is_able = node->present && node->row.blacklisted_until_ms == 0 && !node->row.draining;
        bool asks = proc->is_alive && proc->is_registered && proc->poll_rpc != 0 && proc->poll_capacity > 0;
        if (!asks || !is_able || limits->per_worker[w] >= sim->world.config.max_concurrent_tasks_per_worker) {
            limits->asking_since_ms[w] = 0;
        } else if (limits->asking_since_ms[w] == 0) {
            limits->asking_since_ms[w] = sim->now_ms;
        }
    }
}

static void watch(struct sim *sim, void *state)
{
    struct limits *limits = state;
    note_asking(sim, limits);
    for (uint32_t tid = 0; tid < sim->store.n_tids; tid++) {
        if (!is_assignable(sim, limits, tid)) {
            limits->waiting_since_ms[tid] = 0;
            continue;
        }
        if (limits->waiting_since_ms[tid] == 0) {
            limits->waiting_since_ms[tid] = sim->now_ms;
        }
        if (sim->now_ms - limits->waiting_since_ms[tid] < STARVING_MS) {
            continue;
        }
        for (uint32_t w = 0; w < sim->world.n_safe; w++) {
            int64_t since_ms = limits->asking_since_ms[w];
            if (since_ms != 0 && sim->now_ms - since_ms > STARVING_MS) {
                sim_fail(sim, PROPERTY_limits, "%s waits for long while %s runs %u of %lld and asks for more",
                         task_text(sim, tid), worker_name(w), limits->per_worker[w],
                         (long long)sim->world.config.max_concurrent_tasks_per_worker);
            }
        }
    }
}

const struct checker check_limits = {
    .property = PROPERTY_limits,
    .state_size = sizeof(struct limits),
    .row_kinds = BIT(ROW_TASK) | BIT(ROW_JOB_SWEEP),
    .leave_kinds = BIT(CMD_GET_TASK),
    .reset = reset,
    .row = row,
    .leave = leave,
    .watch = watch,
};
