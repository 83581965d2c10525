/*
 * check_map_output.c - readers are told only registered, current map outputs.
 *
 * The model knows for every map task which attempts are registered, since and until which row, on which process, and
 * which attempt the task has succeeded with. Every source in an assignment, and every output that the core would serve,
 * must have been so at that moment; and no source may be missing.
 */
#include "sim/check.h"
#include "sim/leader_internal.h"
#include "sim/sim.h"

#define REMEMBERED 4

struct registered {
    uint32_t attempt; /* 0: none */
    uint32_t proc;
    uint64_t since_no;
    uint64_t until_no; /* 0: still */
};

struct map_task {
    struct registered outputs[REMEMBERED];
    uint32_t n_outputs;
    uint32_t succeeded; /* attempt */
    uint64_t succeeded_no;
    uint64_t undone_no; /* 0: it counts still */
    uint32_t leased;    /* attempt */
    uint64_t leased_no;
};

#define CHANGES 8

/* Which process of a worker was live, from which row on. */
struct change {
    uint64_t since_no;
    uint32_t proc; /* NO_INDEX: none */
};

struct map_worker {
    struct change changes[CHANGES]; /* a ring */
    uint32_t n_changes;
};

struct map_output {
    struct map_task tasks[MAX_TASKS];
    struct map_worker workers[MAX_WORKERS];
};

static void note_change(struct map_worker *worker, uint64_t no, uint32_t proc)
{
    if (worker->n_changes == 0 || worker->changes[(worker->n_changes - 1) % CHANGES].proc != proc) {
        worker->changes[worker->n_changes++ % CHANGES] = (struct change){.since_no = no, .proc = proc};
    }
}

/* The process that was live when row `no` was the newest; `proc` itself if that was too long ago to know. */
static uint32_t live_proc(const struct map_worker *worker, uint64_t no, uint32_t proc)
{
    for (uint32_t back = 1; back <= CHANGES && back <= worker->n_changes; back++) {
        const struct change *change = &worker->changes[(worker->n_changes - back) % CHANGES];
        if (change->since_no <= no) {
            return change->proc;
        }
    }
    return proc;
}

static bool holds(uint64_t since_no, uint64_t until_no, uint64_t no)
{
    return since_no <= no && (until_no == 0 || until_no > no);
}

/* The registration of this attempt as it was when row `no` was the newest; NULL: none. */
static const struct registered *find(const struct map_task *task, uint32_t attempt, uint64_t no)
{
    for (uint32_t i = 0; i < REMEMBERED; i++) {
        const struct registered *output = &task->outputs[i];
        if (output->attempt == attempt && attempt > 0 && holds(output->since_no, output->until_no, no)) {
            return output;
        }
    }
    return NULL;
}

/* NULL if this attempt may be read at that moment; else what is wrong. */
static const char *complaint(const struct map_task *task, uint32_t attempt, uint64_t no, uint32_t proc)
{
    const struct registered *output = find(task, attempt, no);
    if (output == NULL) {
        return "it is not registered";
    }
    if (output->proc != proc) {
        return "it lies elsewhere";
    }
    if (task->succeeded != attempt || !holds(task->succeeded_no, task->undone_no, no)) {
        return "its task has not succeeded with it";
    }
    return NULL;
}

static void row_task(struct map_task *task, const struct row_note *note)
{
    const struct row_task *row = (const struct row_task *)note->row;
    if (row->is_new) {
        *task = (struct map_task){0};
    }
    if (row->state == TASK_SUCCEEDED && task->succeeded != row->attempt) {
        task->succeeded = row->attempt;
        task->succeeded_no = note->no;
        task->undone_no = 0;
    } else if (row->state != TASK_SUCCEEDED && task->succeeded != 0 && task->undone_no == 0) {
        task->undone_no = note->no;
    }
}

static void gone(struct map_task *task, uint32_t attempt, uint64_t no)
{
    for (uint32_t i = 0; i < REMEMBERED; i++) {
        struct registered *output = &task->outputs[i];
        if (output->attempt != 0 && (attempt == 0 || output->attempt == attempt) && output->until_no == 0) {
            output->until_no = no;
        }
    }
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct map_output *model = state;
    if (note->row->kind == ROW_JOB_SWEEP) {
        const struct stored_job *job = &sim->store.jobs[note->job];
        for (uint32_t s = 0; s < job->n_stages; s++) {
            for (uint32_t t = 0; t < job->stages[s].spec->n_tasks; t++) {
                gone(&model->tasks[job->stages[s].first_tid + t], 0, note->no);
            }
        }
        return;
    }
    if (note->row->kind == ROW_NODE) {
        const struct row_node *node = (const struct row_node *)note->row;
        note_change(&model->workers[note->worker], note->no, node->is_live ? name_index(node->incarnation) : NO_INDEX);
        return;
    }
    if (note->row->kind == ROW_NODE_GONE) {
        note_change(&model->workers[note->worker], note->no, NO_INDEX);
        return;
    }
    struct map_task *task = &model->tasks[note->tid];
    if (note->row->kind == ROW_TASK) {
        row_task(task, note);
    } else if (note->row->kind == ROW_LEASE) {
        task->leased = ((const struct row_lease *)note->row)->attempt;
        task->leased_no = note->no;
    } else if (note->row->kind == ROW_MAP_OUTPUT_GONE) {
        gone(task, ((const struct row_output_gone *)note->row)->attempt, note->no);
    } else {
        const struct row_map_output *output = (const struct row_map_output *)note->row;
        gone(task, output->attempt, note->no);
        task->outputs[task->n_outputs++ % REMEMBERED] = (struct registered){
            .attempt = output->attempt, .proc = name_index(output->incarnation), .since_no = note->no};
    }
}

static void check_range(struct sim *sim, uint32_t tid, const struct stage_parent *parent, const struct stage_spec *map,
                        const struct source *source)
{
    const struct task_ref *reader = &sim->store.tasks[tid].row.ref;
    uint32_t n_tasks = sim->store.jobs[name_index(reader->job_id)].stages[reader->stage].spec->n_tasks;
    uint32_t first = 0;
    uint32_t end = map->partitions;
    if (parent->read == READ_PARTITION) {
        first = reader->task * map->partitions / n_tasks;
        end = (reader->task + 1) * map->partitions / n_tasks;
    }
    bool is_right = source->first_partition == first && source->n_partitions == end - first;
    struct ref ref = {.task = source->ref.task, .attempt = source->attempt};
    for (uint32_t i = 0; is_right && i < source->n_partitions; i++) {
        is_right = source->partitions[i].checksum == leader__partition(&ref, first + i).checksum;
    }
    if (!is_right) {
        sim_fail(sim, PROPERTY_map_output, "%s is told wrong partitions of stage %u task %u", task_text(sim, tid),
                 source->ref.stage, source->ref.task);
    }
}

static void check_source(struct sim *sim, const struct map_output *model, uint32_t tid, const struct source *source)
{
    const struct task_ref *reader = &sim->store.tasks[tid].row.ref;
    const struct stored_job *job = &sim->store.jobs[name_index(reader->job_id)];
    const struct stage_spec *spec = job->stages[reader->stage].spec;
    for (uint32_t p = 0; p < spec->n_parents; p++) {
        if (spec->parents[p].stage == source->ref.stage && spec->parents[p].read != READ_NONE) {
            check_range(sim, tid, &spec->parents[p], job->stages[source->ref.stage].spec, source);
        }
    }
    uint32_t map_tid = store_ref_tid(&sim->store, &source->ref);
    const char *wrong =
        complaint(&model->tasks[map_tid], source->attempt, model->tasks[tid].leased_no, name_index(source->address));
    uint32_t proc = name_index(source->address);
    if (wrong == NULL &&
        live_proc(&model->workers[name_index(source->worker_id)], model->tasks[tid].leased_no, proc) != proc) {
        wrong = "that process is gone";
    }
    if (wrong != NULL) {
        sim_fail(sim, PROPERTY_map_output, "%s is told to read attempt %u of stage %u task %u: %s", task_text(sim, tid),
                 source->attempt, source->ref.stage, source->ref.task, wrong);
    }
}

static void leave(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    UNUSED(request);
    const struct map_output *model = state;
    if (reply->kind != REPLY_TASKS) {
        return;
    }
    for (const struct assignment *a = reply->u.tasks.first; a != NULL; a = a->next) {
        uint32_t tid = store_ref_tid(&sim->store, &a->ref.task);
        if (tid == NO_INDEX || model->tasks[tid].leased != a->ref.attempt) {
            continue; /* another property says so */
        }
        const struct stored_job *job = &sim->store.jobs[name_index(a->ref.task.job_id)];
        const struct stage_spec *spec = job->stages[a->ref.task.stage].spec;
        uint32_t n_wanted = 0;
        uint32_t n_sized = 0; /* by a planning task, of what is still there: nothing is redone for it */
        for (uint32_t p = 0; p < spec->n_parents; p++) {
            const struct stage_parent *parent = &spec->parents[p];
            const struct stage_spec *map = job->stages[parent->stage].spec;
            n_wanted += parent->read == READ_NONE ? 0 : map->n_tasks;
            n_sized += parent->read == READ_NONE && spec->planning && map->output == OUTPUT_SHUFFLE ? map->n_tasks : 0;
        }
        if (a->n_sources < n_wanted || a->n_sources > n_wanted + n_sized) {
            sim_fail(sim, PROPERTY_map_output, "%s reads %u map outputs and is told %u", task_text(sim, tid), n_wanted,
                     a->n_sources);
        }
        for (uint32_t i = 0; i < a->n_sources; i++) {
            check_source(sim, model, tid, &a->sources[i]);
        }
    }
}

void check_map_output_probe(struct sim *sim, const struct fetch_probe *probe)
{
    uint32_t at = 0;
    while (sim->checks.leaves[CMD_GET_TASK][at].checker != &check_map_output) {
        at++;
    }
    const struct map_output *model = sim->checks.leaves[CMD_GET_TASK][at].state;
    if (!probe->served) {
        return;
    }
    const char *wrong = complaint(&model->tasks[probe->tid], probe->attempt, probe->step_row, probe->proc);
    if (wrong != NULL) {
        sim_fail(sim, PROPERTY_map_output, "the map output of %s attempt %u would be served: %s",
                 task_text(sim, probe->tid), probe->attempt, wrong);
    }
}

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    for (uint32_t w = 0; w < MAX_WORKERS; w++) { /* a task's model is made with its row */
        ((struct map_output *)state)->workers[w].n_changes = 0;
    }
}

const struct checker check_map_output = {
    .property = PROPERTY_map_output,
    .state_size = sizeof(struct map_output),
    .row_kinds = BIT(ROW_TASK) | BIT(ROW_LEASE) | BIT(ROW_MAP_OUTPUT) | BIT(ROW_MAP_OUTPUT_GONE) | BIT(ROW_JOB_SWEEP) |
                 BIT(ROW_NODE) | BIT(ROW_NODE_GONE),
    .leave_kinds = BIT(CMD_GET_TASK),
    .reset = reset,
    .row = row,
    .leave = leave,
};
