/*
 * check_placement.c - a task runs only where its placement allows.
 *
 * The model knows each worker's executors and capabilities from its registrations, matches them by itself, and counts
 * the running attempts per worker for max_parallel_per_node.
 */
#include <string.h>

#include "sim/check.h"
#include "sim/sim.h"

struct place {
    uint64_t since_no; /* row */
    struct traits traits;
};

#define REMEMBERED 4

struct placement {
    struct place places[MAX_WORKERS][REMEMBERED]; /* a ring: the last registrations */
    uint32_t n_places[MAX_WORKERS];
    uint32_t running_on[MAX_TASKS]; /* worker; NO_INDEX: none */
};

static void fact(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    UNUSED(sim);
    struct placement *placement = state;
    if (reply->kind == REPLY_REGISTER) {
        uint32_t at = placement->n_places[request->worker]++ % REMEMBERED;
        placement->places[request->worker][at] =
            (struct place){.since_no = request->step_row, .traits = request->u.reg};
    }
}

/* What the worker had registered when row `no` was written; NULL: too long ago to know. */
static const struct place *place_at(const struct placement *placement, uint32_t worker, uint64_t no)
{
    uint32_t n = placement->n_places[worker];
    for (uint32_t back = 1; back <= REMEMBERED && back <= n; back++) {
        const struct place *place = &placement->places[worker][(n - back) % REMEMBERED];
        if (place->since_no < no) {
            return place;
        }
    }
    return NULL;
}

static const char *complaint(const struct wants *wants, const struct traits *traits, uint32_t worker)
{
    if (wants->any_executors != 0 && (wants->any_executors & traits->executors) == 0) {
        return "requires_executors";
    }
    if (wants->gpu && traits->gpu != GPU_NVIDIA) {
        return "gpu";
    }
    if ((wants->cpu == CPU_EQUAL_16 && traits->cpu != 16) || (wants->cpu == CPU_AT_LEAST_8 && traits->cpu < 8)) {
        return "cpu_cores";
    }
    if ((wants->labels & ~traits->labels) != 0) {
        return "labels";
    }
    if (wants->ssd && !traits->ssd) {
        return "ssd";
    }
    if (wants->allowed != 0 && (wants->allowed >> worker & 1) == 0) {
        return "allowed_nodes";
    }
    if ((wants->forbidden >> worker & 1) != 0) {
        return "forbidden_nodes";
    }
    return NULL;
}

/* Running attempts of this job's tasks with the same requirement on this worker. */
static uint32_t count_alike(const struct sim *sim, const struct placement *placement, uint32_t index, uint32_t need,
                            uint32_t worker)
{
    const struct stored_job *job = &sim->store.jobs[index];
    uint32_t n = 0;
    for (uint32_t s = 0; s < job->n_stages; s++) {
        const struct stored_stage *stage = &job->stages[s];
        for (uint32_t t = 0; sim->world.stage_defs[stage->def].need == need && t < stage->spec->n_tasks; t++) {
            n += placement->running_on[stage->first_tid + t] == worker;
        }
    }
    return n;
}

static void check_start(struct sim *sim, const struct placement *placement, const struct row_note *note)
{
    const struct stored_stage *stage = &sim->store.jobs[note->job].stages[note->stage];
    uint32_t need = sim->world.stage_defs[stage->def].need;
    const struct wants *wants = &sim->world.needs[need].wants;
    const struct place *place = place_at(placement, note->worker, note->no);
    const char *broken = place == NULL ? NULL : complaint(wants, &place->traits, note->worker);
    if (broken != NULL) {
        sim_fail(sim, PROPERTY_placement, "%s is given to %s against its placement: %s", task_text(sim, note->tid),
                 worker_name(note->worker), broken);
    }
    if (wants->max_parallel != 0) {
        uint32_t n = count_alike(sim, placement, note->job, need, note->worker);
        if (n > wants->max_parallel) {
            sim_fail(sim, PROPERTY_placement, "%s makes %u alike on %s, max_parallel_per_node is %u",
                     task_text(sim, note->tid), n, worker_name(note->worker), wants->max_parallel);
        }
    }
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct placement *placement = state;
    if (note->row->kind == ROW_JOB_SWEEP) {
        const struct stored_job *job = &sim->store.jobs[note->job];
        for (uint32_t s = 0; s < job->n_stages; s++) {
            for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
                placement->running_on[job->stages[s].first_tid + t] = NO_INDEX;
            }
        }
        return;
    }
    const struct row_task *row = (const struct row_task *)note->row;
    uint32_t before = row->is_new ? NO_INDEX : placement->running_on[note->tid];
    uint32_t worker = row->state == TASK_RUNNING ? note->worker : NO_INDEX;
    placement->running_on[note->tid] = worker;
    if (worker != NO_INDEX && before == NO_INDEX) {
        check_start(sim, placement, note);
    }
}

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    struct placement *placement = state;
    memset(placement->n_places, 0, sizeof(placement->n_places));
}

const struct checker check_placement = {
    .property = PROPERTY_placement,
    .state_size = sizeof(struct placement),
    .row_kinds = BIT(ROW_TASK) | BIT(ROW_JOB_SWEEP),
    .fact_kinds = BIT(CMD_REGISTER),
    .reset = reset,
    .fact = fact,
    .row = row,
};
