/*
 * check_nondet.c - attempts of a nondeterministic map are never mixed among readers.
 *
 * The model remembers which attempts of nondeterministic maps each assignment was told to read, and which attempt of
 * each task completed. When a job succeeds, all readers whose results count must have read the same attempts.
 */
#include "sim/check.h"
#include "sim/sim.h"

#define REMEMBERED 4

struct told {
    uint32_t attempt; /* of the reader; 0: none */
    uint32_t n;
    struct {
        uint32_t tid;
        uint32_t attempt;
    } maps[MAX_SOURCES];
};

struct nondet_task {
    uint32_t winner; /* attempt */
    struct told told[REMEMBERED];
};

struct nondet {
    struct nondet_task tasks[MAX_TASKS];
    uint32_t seen[MAX_TASKS]; /* scratch: the attempt of a map that the first reader read */
};

static void check_job(struct sim *sim, struct nondet *nondet, uint32_t index)
{
    const struct stored_job *job = &sim->store.jobs[index];
    for (uint32_t s = 0; s < job->n_stages; s++) {
        for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
            nondet->seen[job->stages[s].first_tid + t] = 0;
        }
    }
    for (uint32_t s = 0; s < job->n_stages; s++) {
        for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
            const struct nondet_task *task = &nondet->tasks[job->stages[s].first_tid + t];
            const struct told *told = &task->told[task->winner % REMEMBERED];
            for (uint32_t i = 0; told->attempt == task->winner && i < told->n; i++) {
                uint32_t *seen = &nondet->seen[told->maps[i].tid];
                if (*seen != 0 && *seen != told->maps[i].attempt) {
                    sim_fail(sim, PROPERTY_nondet, "%s: some readers that count read its attempt %u, others attempt %u",
                             task_text(sim, told->maps[i].tid), *seen, told->maps[i].attempt);
                }
                *seen = told->maps[i].attempt;
            }
        }
    }
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct nondet *nondet = state;
    if (note->row->kind == ROW_JOB) {
        if (((const struct row_job *)note->row)->state == JOB_SUCCEEDED) {
            check_job(sim, nondet, note->job);
        }
        return;
    }
    struct nondet_task *task = &nondet->tasks[note->tid];
    if (note->row->kind == ROW_TASK) {
        if (((const struct row_task *)note->row)->is_new) {
            *task = (struct nondet_task){0};
        }
    } else if (((const struct row_attempt *)note->row)->outcome == OUTCOME_COMPLETED) {
        task->winner = ((const struct row_attempt *)note->row)->attempt;
    }
}

static void leave(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    UNUSED(request);
    struct nondet *nondet = state;
    if (reply->kind != REPLY_TASKS) {
        return;
    }
    for (const struct assignment *a = reply->u.tasks.first; a != NULL; a = a->next) {
        uint32_t tid = store_ref_tid(&sim->store, &a->ref.task);
        if (tid == NO_INDEX) {
            continue;
        }
        const struct stored_job *job = &sim->store.jobs[name_index(a->ref.task.job_id)];
        struct told *told = &nondet->tasks[tid].told[a->ref.attempt % REMEMBERED];
        told->attempt = a->ref.attempt;
        told->n = 0;
        for (uint32_t i = 0; i < a->n_sources && i < MAX_SOURCES; i++) {
            const struct source *source = &a->sources[i];
            if (job->stages[source->ref.stage].spec->nondeterministic) {
                told->maps[told->n].tid = store_ref_tid(&sim->store, &source->ref);
                told->maps[told->n++].attempt = source->attempt;
            }
        }
    }
}

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    UNUSED(state); /* a task's model is made with its row */
}

const struct checker check_nondet = {
    .property = PROPERTY_nondet,
    .state_size = sizeof(struct nondet),
    .row_kinds = BIT(ROW_JOB) | BIT(ROW_TASK) | BIT(ROW_ATTEMPT),
    .request_kinds = BIT(CMD_GET_TASK),
    .reset = reset,
    .row = row,
    .leave = leave,
};
