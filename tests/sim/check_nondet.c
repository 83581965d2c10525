/*
 * check_nondet.c - attempts of a nondeterministic map are never mixed among readers.
 *
 * The model remembers which map attempts each assignment was told to read, and which attempt of each task completed.
 * When a job succeeds, everything that its results were made of, directly or through other stages, must come from one
 * attempt of each nondeterministic map.
 */
#include "sim/check.h"
#include "sim/sim.h"

#define REMEMBERED 8
#define MAX_OPEN 512

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

struct open_attempt {
    uint32_t tid;
    uint32_t attempt;
};

/* Goes through all that an attempt was made of. */
static void trace_back(struct sim *sim, struct nondet *nondet, const struct stored_job *job, struct open_attempt from)
{
    struct open_attempt open[MAX_OPEN] = {from};
    for (uint32_t n = 1; n > 0;) {
        struct open_attempt at = open[--n];
        const struct told *told = &nondet->tasks[at.tid].told[at.attempt % REMEMBERED];
        for (uint32_t i = 0; told->attempt == at.attempt && i < told->n; i++) {
            uint32_t map = told->maps[i].tid;
            uint32_t *seen = &nondet->seen[map];
            bool matters = job->stages[sim->store.tasks[map].row.ref.stage].spec->nondeterministic;
            if (matters && *seen != 0 && *seen != told->maps[i].attempt) {
                sim_fail(sim, PROPERTY_nondet, "%s: some results were made of its attempt %u, others of attempt %u",
                         task_text(sim, map), *seen, told->maps[i].attempt);
                return;
            }
            *seen = told->maps[i].attempt;
            if (n < MAX_OPEN) {
                open[n++] = (struct open_attempt){.tid = map, .attempt = told->maps[i].attempt};
            }
        }
    }
}

static void check_job(struct sim *sim, struct nondet *nondet, uint32_t index)
{
    const struct stored_job *job = &sim->store.jobs[index];
    for (uint32_t s = 0; s < job->n_stages; s++) {
        for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
            nondet->seen[job->stages[s].first_tid + t] = 0;
        }
    }
    for (uint32_t s = 0; s < job->n_stages; s++) {
        for (uint32_t t = 0; job->stages[s].spec->output == OUTPUT_RESULT && t < job->stages[s].spec->n_tasks; t++) {
            uint32_t tid = job->stages[s].first_tid + t;
            trace_back(sim, nondet, job, (struct open_attempt){.tid = tid, .attempt = nondet->tasks[tid].winner});
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
            task->winner = 0;
            for (uint32_t i = 0; i < REMEMBERED; i++) {
                task->told[i].attempt = 0;
            }
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
        struct told *told = &nondet->tasks[tid].told[a->ref.attempt % REMEMBERED];
        told->attempt = a->ref.attempt;
        told->n = 0;
        for (uint32_t i = 0; i < a->n_sources && i < MAX_SOURCES; i++) {
            const struct source *source = &a->sources[i];
            told->maps[told->n].tid = store_ref_tid(&sim->store, &source->ref);
            told->maps[told->n++].attempt = source->attempt;
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
    .leave_kinds = BIT(CMD_GET_TASK),
    .reset = reset,
    .row = row,
    .leave = leave,
};
