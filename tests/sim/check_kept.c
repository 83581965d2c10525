/*
 * check_kept.c - a lease that is renewed is kept.
 *
 * An attempt may be given up without a verdict only for a reason: its worker gave it back, left, started anew or did
 * not name it any more; an input is being redone; or there was silence for a full period. Silence is measured by the
 * leader's clock without the time in which the leader itself did not step.
 */
#include <string.h>

#include "sim/check.h"
#include "sim/sim.h"

#define BEATS 64
#define GOINGS 8
#define LIVE_MAX 16
#define ROWS_OF_STEP_MAX 64

struct kept_task {
    uint32_t attempt;
    uint32_t worker;
    struct lease_token token;
    uint64_t leased_no;
    int64_t leased_ms;   /* attended time */
    uint64_t unnamed_no; /* the newest row before a heartbeat that should have named it and did not, plus 1; 0: none */
    bool is_live;
    bool is_released;
};

/* A heartbeat or a registration that was taken. */
struct beat {
    bool is_registration;
    uint64_t step_no; /* the newest row before it */
    int64_t at_ms;    /* attended time */
    uint32_t n_named;
    uint64_t named[MAX_REFS]; /* tokens, half of each */
};

struct kept_worker {
    uint32_t proc;            /* as registered, plus 1 */
    uint64_t gone_no[GOINGS]; /* a ring: the newest rows before it left or started anew */
    uint32_t n_gone;
    uint32_t live[LIVE_MAX]; /* tids of its live attempts, as far as there is room */
    uint32_t n_live;
    struct beat beats[BEATS]; /* a ring; not in order, because immediate answers are heard of earlier */
    uint32_t n_beats;
};

struct kept {
    struct kept_task tasks[MAX_TASKS];
    struct kept_worker workers[MAX_WORKERS];
    uint64_t undone_no[MAX_JOBS][MAX_STAGES]; /* a result of the stage was taken back at this row */
    int64_t takeover_ms;                      /* attended time */
    uint64_t last_no;                         /* the newest committed row that it heard of */
};

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    struct kept *kept = state;
    for (uint32_t w = 0; w < MAX_WORKERS; w++) {
        kept->workers[w].proc = 0;
        kept->workers[w].n_gone = 0;
        kept->workers[w].n_beats = 0;
        kept->workers[w].n_live = 0;
    }
    kept->last_no = 0;
    memset(kept->undone_no, 0, sizeof(kept->undone_no));
    kept->takeover_ms = 0;
}

static bool is_told_to_stop(const struct reply *reply, const struct ref *ref)
{
    for (uint32_t i = 0; i < reply->u.heartbeat.n_stop; i++) {
        if (lease_token_equal(reply->u.heartbeat.stop[i].token, ref->token)) {
            return true;
        }
    }
    return false;
}

static struct beat *add_beat(const struct sim *sim, struct kept_worker *worker, const struct msg *request)
{
    struct beat *beat = &worker->beats[worker->n_beats++ % BEATS];
    beat->step_no = request->step_row;
    beat->at_ms = leader_attended_ms(&sim->leader, request->step_now_ms);
    beat->n_named = 0;
    beat->is_registration = false;
    return beat;
}

static void set_live(struct kept *kept, uint32_t tid, bool is_live)
{
    struct kept_task *task = &kept->tasks[tid];
    struct kept_worker *worker = &kept->workers[task->worker];
    if (is_live && worker->n_live < LIVE_MAX) {
        worker->live[worker->n_live++] = tid;
    }
    for (uint32_t i = 0; task->is_live && !is_live && i < worker->n_live; i++) {
        if (worker->live[i] == tid) {
            worker->live[i] = worker->live[--worker->n_live];
            break;
        }
    }
    task->is_live = is_live;
}

static bool is_named_in(const struct beat *beat, const struct kept_task *task)
{
    for (uint32_t i = 0; i < beat->n_named; i++) {
        if (beat->named[i] == task->token.bits[0]) {
            return true;
        }
    }
    return false;
}

static bool should_be_named(const struct sim *sim, const struct beat *beat, const struct kept_task *task)
{
    int64_t patience_ms = 2 * sim->world.config.heartbeat_interval_ms;
    return !beat->is_registration && beat->at_ms - task->leased_ms > patience_ms;
}

/* An attempt that a heartbeat should have named is taken back in that very step. */
static void check_unnamed(struct sim *sim, struct kept *kept, uint32_t w, const struct beat *beat)
{
    const struct kept_worker *worker = &kept->workers[w];
    for (uint32_t i = 0; i < worker->n_live; i++) {
        struct kept_task *task = &kept->tasks[worker->live[i]];
        if (task->unnamed_no != 0 && kept->last_no > task->unnamed_no + ROWS_OF_STEP_MAX) {
            sim_fail(sim, PROPERTY_kept, "%s: %s does not name attempt %u any more, and it is not taken back",
                     task_text(sim, worker->live[i]), worker_name(w), task->attempt);
        }
        if (task->unnamed_no == 0 && task->leased_no <= beat->step_no && should_be_named(sim, beat, task) &&
            !is_named_in(beat, task)) {
            task->unnamed_no = beat->step_no + 1;
        }
    }
}

static void fact_heartbeat(struct sim *sim, struct kept *kept, const struct msg *request, const struct reply *reply)
{
    struct beat *beat = add_beat(sim, &kept->workers[request->worker], request);
    for (uint32_t i = 0; i < request->u.heartbeat.n_running; i++) {
        const struct ref *ref = &request->u.heartbeat.running[i];
        if (!is_told_to_stop(reply, ref)) {
            beat->named[beat->n_named++] = ref->token.bits[0];
        }
    }
    check_unnamed(sim, kept, request->worker, beat);
}

static void fact_report(struct sim *sim, struct kept *kept, const struct msg *request, const struct reply *reply)
{
    for (uint32_t i = 0; i < reply->u.report.n_outcomes; i++) {
        const struct ref *ref = &request->u.report.reports[i].ref;
        uint32_t tid = store_tid(&sim->store, ref->job, ref->stage, ref->task);
        if (request->u.report.reports[i].state == TASK_QUEUED && reply->u.report.outcomes[i] == REFUSE_NONE &&
            tid != NO_INDEX && kept->tasks[tid].attempt == ref->attempt) {
            kept->tasks[tid].is_released = true;
        }
    }
}

static void fact(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    struct kept *kept = state;
    if (reply->kind == REPLY_HEARTBEAT) {
        if (reply->u.heartbeat.accepted) {
            fact_heartbeat(sim, kept, request, reply);
        }
        return;
    }
    if (reply->kind == REPLY_REPORT) {
        fact_report(sim, kept, request, reply);
        return;
    }
    struct kept_worker *worker = &kept->workers[request->worker];
    if (reply->kind == REPLY_REGISTER) {
        if (worker->proc != request->proc + 1) {
            worker->gone_no[worker->n_gone++ % GOINGS] = request->step_row;
        }
        worker->proc = request->proc + 1;
        struct beat *beat = add_beat(sim, worker, request);
        beat->is_registration = true;
    } else if (reply->kind == REPLY_DONE) { /* it left */
        worker->gone_no[worker->n_gone++ % GOINGS] = request->step_row;
        worker->proc = 0;
    }
}

/* Something that the stage reads, directly or not, is nondeterministic and was taken back since the lease. */
static bool has_redone_input(const struct sim *sim, const struct kept *kept, const struct row_note *note,
                             uint64_t since_no)
{
    const struct stored_job *job = &sim->store.jobs[note->job];
    bool reaches[MAX_STAGES] = {false};
    reaches[note->stage] = true;
    for (uint32_t s = note->stage + 1; s-- > 0;) {
        if (!reaches[s]) {
            continue;
        }
        const struct stage_spec *spec = job->stages[s].spec;
        if (s != note->stage && spec->nondeterministic && kept->undone_no[note->job][s] > since_no) {
            return true;
        }
        for (uint32_t p = 0; p < spec->n_parents; p++) {
            reaches[spec->parents[p].stage] |= spec->parents[p].read != READ_NONE;
        }
    }
    return false;
}

/* True also if that was too long ago to know. */
static bool was_gone(const struct kept_worker *worker, uint64_t since_no, uint64_t no)
{
    if (worker->n_gone > GOINGS && worker->gone_no[worker->n_gone % GOINGS] > since_no) {
        return true;
    }
    for (uint32_t i = 0; i < GOINGS && i < worker->n_gone; i++) {
        if (worker->gone_no[i] >= since_no && worker->gone_no[i] < no) {
            return true;
        }
    }
    return false;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* What the heartbeats before a row say of an attempt. */
struct hearing {
    int64_t seen_ms;    /* the newest one at all */
    int64_t renewed_ms; /* the newest one that named it */
    bool is_unnamed;    /* the one right before the row should have named it, and did not */
};

static struct hearing hear(const struct sim *sim, const struct kept_worker *worker, const struct kept_task *task,
                           uint64_t no)
{
    struct hearing hearing = {.is_unnamed = worker->n_beats > BEATS}; /* unless one is found: too long ago to know */
    uint64_t last_no = 0;                                             /* the first row has number 1 */
    for (uint32_t i = 0; i < BEATS && i < worker->n_beats; i++) {
        const struct beat *beat = &worker->beats[i];
        if (beat->step_no >= no) {
            continue;
        }
        bool is_named = is_named_in(beat, task);
        hearing.seen_ms = later(hearing.seen_ms, beat->at_ms);
        hearing.renewed_ms = is_named ? later(hearing.renewed_ms, beat->at_ms) : hearing.renewed_ms;
        bool is_unnamed = !is_named && should_be_named(sim, beat, task);
        if (beat->step_no > last_no) {
            last_no = beat->step_no;
            hearing.is_unnamed = is_unnamed;
        } else if (beat->step_no == last_no) {
            hearing.is_unnamed = hearing.is_unnamed || is_unnamed;
        }
    }
    return hearing;
}

static void check_lost(struct sim *sim, const struct kept *kept, const struct row_note *note)
{
    const struct row_attempt *row = (const struct row_attempt *)note->row;
    const struct kept_task *task = &kept->tasks[note->tid];
    if (!task->is_live || task->attempt != row->attempt || task->is_released) {
        return;
    }
    const struct kept_worker *worker = &kept->workers[task->worker];
    struct hearing hearing = hear(sim, worker, task, note->no);
    if (hearing.is_unnamed || was_gone(worker, task->leased_no, note->no) ||
        has_redone_input(sim, kept, note, task->leased_no)) {
        return;
    }
    int64_t now_ms = leader_attended_ms(&sim->leader, row->at_ms);
    int64_t renewed_ms = later(later(hearing.renewed_ms, task->leased_ms), kept->takeover_ms);
    int64_t seen_ms = later(hearing.seen_ms, kept->takeover_ms);
    if (now_ms - renewed_ms < sim->world.config.lease_ms &&
        now_ms - seen_ms < sim->world.config.worker_liveness_timeout_ms) {
        sim_fail(sim, PROPERTY_kept,
                 "%s: attempt %u is taken from %s, which was heard %lld ms ago and renewed it %lld ms ago",
                 task_text(sim, note->tid), row->attempt, worker_name(task->worker), (long long)(now_ms - seen_ms),
                 (long long)(now_ms - renewed_ms));
    }
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct kept *kept = state;
    kept->last_no = note->no;
    if (note->row->kind == ROW_JOB_SWEEP) {
        const struct stored_job *job = &sim->store.jobs[note->job];
        for (uint32_t s = 0; s < job->n_stages; s++) {
            for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
                set_live(kept, job->stages[s].first_tid + t, false);
            }
        }
        return;
    }
    struct kept_task *task = &kept->tasks[note->tid];
    if (note->row->kind == ROW_TASK) {
        const struct row_task *row = (const struct row_task *)note->row;
        if (row->is_new) {
            *task = (struct kept_task){0};
        } else if (row->state == TASK_QUEUED && row->outcome == OUTCOME_COMPLETED) {
            kept->undone_no[note->job][note->stage] = note->no;
        }
    } else if (note->row->kind == ROW_LEASE) {
        const struct row_lease *row = (const struct row_lease *)note->row;
        set_live(kept, note->tid, false);
        *task = (struct kept_task){
            .attempt = row->attempt,
            .worker = note->worker,
            .token = row->token,
            .leased_no = note->no,
            .leased_ms = leader_attended_ms(&sim->leader, row->acquired_at_ms),
        };
        set_live(kept, note->tid, true);
    } else {
        const struct row_attempt *row = (const struct row_attempt *)note->row;
        if (row->outcome == OUTCOME_LOST) {
            check_lost(sim, kept, note);
        }
        if (row->outcome != OUTCOME_PENDING && row->attempt == task->attempt) {
            set_live(kept, note->tid, false);
        }
    }
}

/* Everyone gets a full period, by another clock. */
static void takeover(struct sim *sim, void *state)
{
    struct kept *kept = state;
    kept->takeover_ms = leader_attended_ms(&sim->leader, sim->leader.now_max_ms);
    for (uint32_t tid = 0; tid < sim->store.n_tids; tid++) {
        kept->tasks[tid].leased_ms = kept->takeover_ms;
        kept->tasks[tid].unnamed_no = 0;
    }
    for (uint32_t w = 0; w < MAX_WORKERS; w++) {
        kept->workers[w].n_beats = 0;
    }
}

const struct checker check_kept = {
    .property = PROPERTY_kept,
    .state_size = sizeof(struct kept),
    .row_kinds = BIT(ROW_TASK) | BIT(ROW_LEASE) | BIT(ROW_ATTEMPT) | BIT(ROW_JOB_SWEEP),
    .fact_kinds = BIT(CMD_HEARTBEAT) | BIT(CMD_REGISTER) | BIT(CMD_DEREGISTER) | BIT(CMD_REPORT),
    .reset = reset,
    .fact = fact,
    .row = row,
    .takeover = takeover,
};
