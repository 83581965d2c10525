/*
 * check.c - the list of checkers, and who hears what.
 */
#include "sim/check.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "sim/sim.h"

static const struct checker *const CHECKERS[] = {
    &check_acked,       &check_identity,  &check_one_result, &check_stale,  &check_lease,      &check_kept,
    &check_incarnation, &check_stop,      &check_deps,       &check_limits, &check_backoff,    &check_capability,
    &check_placement,   &check_blacklist, &check_drain,      &check_budget, &check_outcome,    &check_avoid,
    &check_priority,    &check_durable,   &check_terminal,   &check_repeat, &check_map_output, &check_nondet,
    &check_events,      &check_end,
};

static const struct {
    const char *name;
    const char *text;
} PROPERTIES[] = {
#define PROPERTY_ENTRY(name, text) {#name, text},
    PROPERTY_TABLE(PROPERTY_ENTRY)
#undef PROPERTY_ENTRY
};

const char *property_name(enum property property)
{
    ASSERT(property < PROPERTY_COUNT);
    return PROPERTIES[property].name;
}

const char *property_text(enum property property)
{
    ASSERT(property < PROPERTY_COUNT);
    return PROPERTIES[property].text;
}

void checks_init(struct checks *checks)
{
    ASSERT(ARRAY_LEN(CHECKERS) <= MAX_CHECKERS);
    for (uint32_t i = 0; i < ARRAY_LEN(CHECKERS); i++) {
        const struct checker *checker = CHECKERS[i];
        checks->states[i] = mem_calloc(1, checker->state_size + 1);
        struct hook hook = {.checker = checker, .state = checks->states[i]};
        for (uint32_t kind = 0; kind <= ROW_META && checker->row != NULL; kind++) {
            if ((checker->row_kinds >> kind & 1) != 0) {
                checks->rows[kind][checks->n_rows[kind]++] = hook;
            }
        }
        for (uint32_t kind = 0; kind <= CMD_LOADED_JOB; kind++) {
            if ((checker->fact_kinds >> kind & 1) != 0) {
                checks->facts[kind][checks->n_facts[kind]++] = hook;
            }
            if ((checker->leave_kinds >> kind & 1) != 0) {
                checks->leaves[kind][checks->n_leaves[kind]++] = hook;
            }
        }
    }
}

void checks_deinit(struct checks *checks)
{
    for (uint32_t i = 0; i < ARRAY_LEN(CHECKERS); i++) {
        mem_free(checks->states[i]);
    }
}

void checks_reset(struct sim *sim)
{
    for (uint32_t i = 0; i < ARRAY_LEN(CHECKERS); i++) {
        if (CHECKERS[i]->reset != NULL) {
            CHECKERS[i]->reset(sim, sim->checks.states[i]);
        } else {
            memset(sim->checks.states[i], 0, CHECKERS[i]->state_size);
        }
    }
}

void check_fact(struct sim *sim, const struct msg *request, const struct reply *reply)
{
    const struct checks *checks = &sim->checks;
    for (uint32_t i = 0; i < checks->n_facts[request->kind]; i++) {
        const struct hook *hook = &checks->facts[request->kind][i];
        hook->checker->fact(sim, hook->state, request, reply);
    }
}

void check_leave(struct sim *sim, const struct msg *request, const struct reply *reply)
{
    const struct checks *checks = &sim->checks;
    for (uint32_t i = 0; i < checks->n_leaves[request->kind]; i++) {
        const struct hook *hook = &checks->leaves[request->kind][i];
        hook->checker->leave(sim, hook->state, request, reply);
    }
}

static void note_task(const struct sim *sim, struct row_note *note, const struct task_ref *ref)
{
    note->job = name_index(ref->job_id);
    note->stage = ref->stage;
    note->tid = store_tid(&sim->store, note->job, ref->stage, ref->task);
    ASSERT(note->tid < MAX_TASKS);
}

static struct row_note make_note(const struct sim *sim, const struct row *row, uint64_t no)
{
    struct row_note note = {
        .row = row, .no = no, .job = NO_INDEX, .stage = NO_INDEX, .tid = NO_INDEX, .worker = NO_INDEX};
    switch (row->kind) {
    case ROW_JOB:
        note.job = name_index(((const struct row_job *)row)->job_id);
        break;
    case ROW_JOB_SWEEP:
        note.job = name_index(((const struct row_job_sweep *)row)->job_id);
        break;
    case ROW_STAGE:
        note.job = name_index(((const struct row_stage *)row)->job_id);
        note.stage = ((const struct row_stage *)row)->stage;
        break;
    case ROW_TASK:
        note_task(sim, &note, &((const struct row_task *)row)->ref);
        note.worker = name_index(((const struct row_task *)row)->worker_id);
        break;
    case ROW_LEASE:
        note_task(sim, &note, &((const struct row_lease *)row)->ref);
        note.worker = name_index(((const struct row_lease *)row)->worker_id);
        break;
    case ROW_LEASE_GONE:
        note_task(sim, &note, &((const struct row_lease_gone *)row)->ref);
        break;
    case ROW_MAP_OUTPUT:
        note_task(sim, &note, &((const struct row_map_output *)row)->ref);
        note.worker = name_index(((const struct row_map_output *)row)->worker_id);
        break;
    case ROW_RESULT:
        note_task(sim, &note, &((const struct row_result *)row)->ref);
        break;
    case ROW_MAP_OUTPUT_GONE:
    case ROW_RESULT_GONE:
        note_task(sim, &note, &((const struct row_output_gone *)row)->ref);
        break;
    case ROW_ATTEMPT:
        note_task(sim, &note, &((const struct row_attempt *)row)->ref);
        note.worker = name_index(((const struct row_attempt *)row)->worker_id);
        break;
    case ROW_NODE:
        note.worker = name_index(((const struct row_node *)row)->worker_id);
        break;
    case ROW_NODE_GONE:
        note.worker = name_index(((const struct row_node_gone *)row)->worker_id);
        break;
    case ROW_EVENT:
    case ROW_META:
        break;
    }
    return note;
}

static void trace_row(struct sim *sim, const struct row_note *note)
{
    const struct row *row = note->row;
    if (row->kind == ROW_TASK) {
        const struct row_task *task = (const struct row_task *)row;
        sim_trace(sim, "row %llu task %s %u.%u is %s, attempt %u, failures %u, on %s", (unsigned long long)note->no,
                  task->ref.job_id, task->ref.stage, task->ref.task, task_state_name(task->state), task->attempt,
                  task->failures, task->worker_id == NULL ? "-" : task->worker_id);
    } else if (row->kind == ROW_JOB) {
        const struct row_job *job = (const struct row_job *)row;
        sim_trace(sim, "row %llu job %s is %s", (unsigned long long)note->no, job->job_id, job_state_name(job->state));
    } else if (row->kind == ROW_EVENT) {
        const struct row_event *event = (const struct row_event *)row;
        sim_trace(sim, "row %llu event %s %s %d.%d attempt %u on %s: %s", (unsigned long long)note->no,
                  event_type_name(event->type), event->ref.job_id == NULL ? "-" : event->ref.job_id,
                  (int)event->ref.stage, (int)event->ref.task, event->attempt,
                  event->worker_id == NULL ? "-" : event->worker_id, event->message == NULL ? "" : event->message);
    } else {
        static const char *const kinds[] = {"job",        "job sweep",  "stage",           "task",   "lease",
                                            "lease gone", "map output", "map output gone", "result", "result gone",
                                            "node",       "node gone",  "attempt",         "event",  "meta"};
        sim_trace(sim, "row %llu %s j%d tid %d w%d", (unsigned long long)note->no, kinds[row->kind], (int)note->job,
                  (int)note->tid, (int)note->worker);
    }
}

void check_row(struct sim *sim, const struct row *row, uint64_t no)
{
    struct checks *checks = &sim->checks;
    uint32_t n = checks->n_rows[row->kind];
    if (n == 0 && !sim->is_tracing) {
        return;
    }
    struct row_note note = make_note(sim, row, no);
    if (sim->is_tracing) {
        trace_row(sim, &note);
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct hook *hook = &checks->rows[row->kind][i];
        hook->checker->row(sim, hook->state, &note);
    }
}

void check_takeover(struct sim *sim)
{
    for (uint32_t i = 0; i < ARRAY_LEN(CHECKERS); i++) {
        if (CHECKERS[i]->takeover != NULL) {
            CHECKERS[i]->takeover(sim, sim->checks.states[i]);
        }
    }
}

void check_watch(struct sim *sim)
{
    for (uint32_t i = 0; i < ARRAY_LEN(CHECKERS); i++) {
        if (CHECKERS[i]->watch != NULL) {
            CHECKERS[i]->watch(sim, sim->checks.states[i]);
        }
    }
}

void check_end_of_run(struct sim *sim)
{
    for (uint32_t i = 0; i < ARRAY_LEN(CHECKERS); i++) {
        if (CHECKERS[i]->end != NULL) {
            CHECKERS[i]->end(sim, sim->checks.states[i]);
        }
    }
}

const char *task_text(const struct sim *sim, uint32_t tid)
{
    static char text[64];
    const struct task_ref *ref = &sim->store.tasks[tid].row.ref;
    (void)snprintf(text, sizeof(text), "task %s %u.%u", ref->job_id, ref->stage, ref->task);
    return text;
}
