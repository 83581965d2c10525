/*
 * check_acked.c - no acknowledged job or task is lost.
 *
 * The model remembers what clients were told: this job is taken, this attempt's success is taken. Whenever a leader
 * takes over, and at the end, all of it must still be in the store, with the stages and tasks that were asked for.
 */
#include "sim/check.h"
#include "sim/sim.h"

struct acked {
    bool jobs[MAX_JOBS];
    uint32_t attempts[MAX_TASKS]; /* the newest whose success was acknowledged; 0: none */
};

/* A stored stage must be what was asked for. */
static void check_stage(struct sim *sim, const struct row_note *note)
{
    const struct row_stage *row = (const struct row_stage *)note->row;
    if (!row->is_new) {
        return;
    }
    const struct stage_spec *got = row->spec;
    const struct stage_def *def = world_stage_def(&sim->world, got->timeout_ms);
    const struct stage_spec *want = &def->spec;
    const struct cmd_submit *submit = &sim->world.jobs[note->job].submit;
    if (def->job != note->job ||
        (note->stage < submit->n_stages && submit->stages[note->stage].timeout_ms != got->timeout_ms)) {
        sim_fail(sim, PROPERTY_acked, "stage %u of %s is stored as another one", note->stage, job_name(note->job));
        return;
    }
    if (got->n_tasks != want->n_tasks || got->n_parents != want->n_parents || got->output != want->output ||
        got->partitions != want->partitions || got->nondeterministic != want->nondeterministic ||
        got->child != want->child || got->planning != want->planning || got->backoff_ms != want->backoff_ms ||
        got->max_attempts != want->max_attempts || !requirement_equal(got->need, want->need)) {
        sim_fail(sim, PROPERTY_acked, "stage %u of %s is not stored as it was asked for", note->stage,
                 job_name(note->job));
        return;
    }
    for (uint32_t i = 0; i < got->n_parents; i++) {
        const struct stage_parent *a = &got->parents[i];
        const struct stage_parent *b = &want->parents[i];
        if (a->optional != b->optional || a->read != b->read || (!b->added && a->stage != b->stage) || a->added) {
            sim_fail(sim, PROPERTY_acked, "stage %u of %s has another parent than asked for", note->stage,
                     job_name(note->job));
        }
    }
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct acked *acked = state;
    if (note->row->kind == ROW_STAGE) {
        check_stage(sim, note);
        return;
    }
    const struct row_task *task = (const struct row_task *)note->row;
    if (task->is_new) {
        acked->attempts[note->tid] = 0;
    }
}

static void leave(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    struct acked *acked = state;
    if (reply->kind == REPLY_SUBMIT) {
        acked->jobs[name_index(reply->u.job.job_id)] = true;
        return;
    }
    if (reply->kind != REPLY_REPORT) {
        return;
    }
    for (uint32_t i = 0; i < reply->u.report.n_outcomes; i++) {
        const struct report *report = &request->u.report.reports[i];
        if (reply->u.report.outcomes[i] != REFUSE_NONE || report->state != TASK_SUCCEEDED) {
            continue;
        }
        if (report->plan && sim->world.stage_defs[report->def].is_bad_plan) {
            continue; /* heard, and found to be a failure */
        }
        uint32_t tid = store_tid(&sim->store, report->ref.job, report->ref.stage, report->ref.task);
        if (tid != NO_INDEX && acked->attempts[tid] < report->ref.attempt) {
            acked->attempts[tid] = report->ref.attempt;
        }
    }
}

static void check_job(struct sim *sim, uint32_t index)
{
    const struct stored_job *job = &sim->store.jobs[index];
    const struct cmd_submit *submit = &sim->world.jobs[index].submit;
    if (!job->present) {
        sim_fail(sim, PROPERTY_acked, "%s was acknowledged and is not in the store", job_name(index));
        return;
    }
    for (uint32_t s = 0; s < submit->n_stages; s++) {
        if (!job->stages[s].present) {
            sim_fail(sim, PROPERTY_acked, "%s was acknowledged and its stage %u is not in the store", job_name(index),
                     s);
            return;
        }
        for (uint32_t t = 0; t < submit->stages[s].n_tasks; t++) {
            const struct stored_task *task = &sim->store.tasks[job->stages[s].first_tid + t];
            if (task->row.ref.job_id != job_name(index) || task->row.ref.stage != s || task->row.ref.task != t) {
                sim_fail(sim, PROPERTY_acked, "%s was acknowledged and its task %u.%u is not in the store",
                         job_name(index), s, t);
                return;
            }
        }
    }
}

static void check_all(struct sim *sim, void *state)
{
    const struct acked *acked = state;
    for (uint32_t i = 0; i < sim->world.n_jobs; i++) {
        if (acked->jobs[i]) {
            check_job(sim, i);
        }
    }
    for (uint32_t tid = 0; tid < sim->store.n_tids; tid++) {
        const struct row_task *task = &sim->store.tasks[tid].row;
        if (acked->attempts[tid] > task->attempt ||
            (acked->attempts[tid] == task->attempt && task->attempt > 0 && task->outcome != OUTCOME_COMPLETED)) {
            sim_fail(sim, PROPERTY_acked, "%s: success of attempt %u was acknowledged, the store has attempt %u (%s)",
                     task_text(sim, tid), acked->attempts[tid], task->attempt, attempt_outcome_name(task->outcome));
        }
    }
}

const struct checker check_acked = {
    .property = PROPERTY_acked,
    .state_size = sizeof(struct acked),
    .row_kinds = BIT(ROW_STAGE) | BIT(ROW_TASK),
    .leave_kinds = BIT(CMD_SUBMIT) | BIT(CMD_REPORT),
    .row = row,
    .leave = leave,
    .takeover = check_all,
    .end = check_all,
};
