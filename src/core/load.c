/*
 * Loading: rows become structs again, then everything that is not stored is worked out.
 */
#include <string.h>

#include "base/mem.h"
#include "core/core_internal.h"

static struct worker *worker_for(struct core *core, const char *worker_id)
{
    struct worker *worker = worker_find(core, worker_id);
    return worker != NULL ? worker : worker_new(core, worker_id); /* its own row may come later */
}

static void load_job(struct core *core, const struct row_job *row)
{
    struct job *job = job_new(core, row->job_id);
    job->kind = (uint8_t)row->kind;
    job->priority = row->priority;
    job->stop_on_failure = row->stop_on_failure;
    job->name = mem_strdup(row->name);
    job->idempotency_key = mem_strdup(row->idempotency_key);
    job->message = mem_strdup(row->message);
    job->content = row->content;
    job->submitted_at_ms = row->submitted_at_ms;
    job->started_at_ms = row->started_at_ms;
    job->finished_at_ms = row->finished_at_ms;
    job->state = (uint8_t)row->state;
    core->stats.jobs_running += job->state == JOB_RUNNING;
    job_index_key(core, job);
    job->parent_job = mem_strdup(row->parent.task.job_id);
    job->parent_stage = row->parent.task.stage;
    job->parent_attempt = row->parent.attempt;
}

static void load_stage(struct core *core, const struct row_stage *row)
{
    struct job *job = job_find(core, row->job_id);
    const struct stage_spec *spec = row->spec;
    ASSERT(job != NULL);
    struct block *block =
        mem_calloc(1, sizeof *block + sizeof(struct stage) + (size_t)spec->n_tasks * sizeof(struct task));
    struct stage *stage = (struct stage *)(void *)(block + 1);
    block->next = job->blocks;
    job->blocks = block;
    stage->tasks = (struct task *)(void *)(stage + 1);
    stage_build_one(core, job, row->stage, spec, stage);
    for (uint32_t k = 0; k < spec->n_parents; k++) {
        stage_add_edge(job, spec->parents[k].stage, stage->id, &spec->parents[k]);
    }
    stage->n_recovered = row->n_recovered;
    stage->recovered =
        row->n_recovered > 0 ? mem_copy(row->recovered, row->n_recovered * sizeof *row->recovered) : NULL;
}

static struct task *load_find(struct core *core, struct task_ref ref)
{
    const struct job *job = job_find(core, ref.job_id);
    return job == NULL ? NULL : task_find(job, ref.stage, ref.task);
}

static void load_task(struct core *core, const struct row_task *row)
{
    struct task *task = load_find(core, row->ref);
    ASSERT(task != NULL);
    task->inputs = row->inputs;
    task->inputs_bytes = row->inputs_bytes;
    task->state = (uint8_t)row->state;
    task->outcome = (uint8_t)row->outcome;
    task->attempt = row->attempt;
    task->failures = row->failures;
    task->token = row->token;
    task->queued_at_ms = row->queued_at_ms;
    if (task->stage->child) {
        task->stage->child_started_at_ms = row->started_at_ms;
    }
    if (row->state == TASK_SUCCEEDED) {
        output_tally(core, task, row->rows, row->bytes);
    }
    if (row->state == TASK_SUCCEEDED && task->stage->output == OUTPUT_SHUFFLE &&
        job_state_is_terminal((enum job_state)task->stage->job->state)) {
        task->stage->ended_rows += row->rows;
        task->stage->ended_bytes += row->bytes;
    }
    for (uint32_t i = 0; i < row->failed_on.count; i++) {
        task_avoid(core, task, row->failed_on.items[i]);
    }
    if (row->state == TASK_QUEUED && row->ready_at_ms > core->now_ms) {
        task_set_backoff(core, task, row->ready_at_ms);
    }
}

static void load_lease(struct core *core, const struct row_lease *row)
{
    struct task *task = load_find(core, row->ref);
    if (task == NULL || task->state != TASK_RUNNING || task->attempt != row->attempt || task->stage->child) {
        return;
    }
    lease_attach(core, task, worker_for(core, row->worker_id))->acquired_at_ms = row->acquired_at_ms;
}

static void load_map_output(struct core *core, const struct row_map_output *row)
{
    struct task *task = load_find(core, row->ref);
    if (task == NULL || task->attempt != row->attempt) {
        return;
    }
    struct output *output = output_new(task, row->n_partitions);
    memcpy(output->partitions, row->partitions, row->n_partitions * sizeof *row->partitions);
    for (uint32_t i = 0; i < row->n_partitions; i++) {
        output->rows += row->partitions[i].rows;
        output->bytes += row->partitions[i].bytes;
    }
    output->worker = worker_for(core, row->worker_id);
    output->incarnation_mark = core__mark(row->incarnation);
    output->attempt = row->attempt;
    output->generation = row->generation;
    output_attach(core, output);
}

static void load_result(struct core *core, const struct row_result *row)
{
    struct task *task = load_find(core, row->ref);
    if (task == NULL || task->attempt != row->attempt) {
        return;
    }
    struct output *output = output_new(task, 0);
    output->worker_id = mem_strdup(row->worker_id);
    output->attempt = row->attempt;
    output->rows = row->rows;
    output->bytes = row->bytes;
    output->is_inline = row->is_inline;
    output_attach(core, output);
}

static void load_node(struct core *core, const struct row_node *row)
{
    struct worker *worker = worker_for(core, row->worker_id);
    worker->incarnation = mem_strdup(row->incarnation);
    worker->incarnation_mark = row->incarnation == NULL ? 0 : core__mark(row->incarnation);
    for (int i = 0; i < NODE_PAST_INCARNATIONS; i++) {
        worker->past_incarnations[i] = mem_strdup(row->past_incarnations[i]);
    }
    worker->address = mem_strdup(row->address);
    worker->version = mem_strdup(row->version);
    worker->slots = row->slots;
    worker->status = (uint8_t)row->status;
    worker->is_live = row->is_live;
    worker->draining = row->draining;
    worker->failures = row->failures;
    worker->blacklisted_until_ms = row->blacklisted_until_ms;
    worker->registered_at_ms = row->registered_at_ms;
    worker->heartbeat_at_ms = row->heartbeat_at_ms;
    worker_change_offer(core, worker, row->offer);
    profile_recount(core, worker);
}

void load_row(struct core *core, const struct row *row)
{
    switch (row->kind) {
    case ROW_JOB:
        load_job(core, (const struct row_job *)(const void *)row);
        break;
    case ROW_STAGE:
        load_stage(core, (const struct row_stage *)(const void *)row);
        break;
    case ROW_TASK:
        load_task(core, (const struct row_task *)(const void *)row);
        break;
    case ROW_LEASE:
        load_lease(core, (const struct row_lease *)(const void *)row);
        break;
    case ROW_MAP_OUTPUT:
        load_map_output(core, (const struct row_map_output *)(const void *)row);
        break;
    case ROW_RESULT:
        load_result(core, (const struct row_result *)(const void *)row);
        break;
    case ROW_NODE:
        load_node(core, (const struct row_node *)(const void *)row);
        break;
    case ROW_META:
        core->event_seq = ((const struct row_meta *)(const void *)row)->last_event_seq;
        break;
    case ROW_JOB_SWEEP:
    case ROW_LEASE_GONE:
    case ROW_MAP_OUTPUT_GONE:
    case ROW_RESULT_GONE:
    case ROW_NODE_GONE:
    case ROW_ATTEMPT:
    case ROW_EVENT:
        ASSERT(!"this kind of row is written, never loaded");
    }
}

/* ---- the rest follows ---- */

static void connect_children(struct core *core)
{
    size_t cursor = 0;
    for (struct job *job; (job = map_next(&core->jobs, &cursor)) != NULL;) {
        if (!job_state_is_terminal((enum job_state)job->state)) {
            job_find_parent(core, job);
        }
    }
}

/* A task that runs has a lease, or a job of its own. */
static void count_running(struct job *job)
{
    for (uint32_t s = 0; s < job->n_stages; s++) {
        const struct stage *stage = job->stages[s];
        for (uint32_t t = 0; t < stage->n_tasks; t++) {
            if (stage->tasks[t].state == TASK_RUNNING) {
                job->running += stage->child;
                ASSERT(stage->child || stage->tasks[t].u.lease != NULL);
            }
        }
    }
}

/*
 * Tasks without a child job: it was not submitted yet, or it has ended and nobody has said what it brought. And tasks with
 * one, if somebody has to look at the clock.
 */
static void ask_for_children(struct core *core, const struct job *job)
{
    for (uint32_t s = 0; s < job->n_stages; s++) {
        const struct stage *stage = job->stages[s];
        const struct task *task = &stage->tasks[0];
        if (stage->child && task->state == TASK_RUNNING && (task->u.child == NULL || stage->timeout_ms > 0)) {
            core__emit_child(core, task);
        }
    }
}

static void count_tasks(struct core *core, const struct job *job)
{
    for (uint32_t s = 0; s < job->n_stages; s++) {
        for (int i = 0; i < TASK_STATE_COUNT; i++) {
            core->stats.tasks[i] += job->stages[s]->counts[i];
        }
    }
}

void load_done(struct core *core)
{
    size_t cursor = 0;
    connect_children(core);
    memset(core->stats.tasks, 0, sizeof core->stats.tasks);
    for (struct job *job; (job = map_next(&core->jobs, &cursor)) != NULL;) {
        stage_link_edges(job, 0);
        count_running(job);
        job_derive(core, job);
        ask_for_children(core, job);
        count_tasks(core, job);
    }
    cursor = 0;
    for (struct worker *worker; (worker = map_next(&core->workers, &cursor)) != NULL;) {
        worker->last_seen_ms = core->attended_ms;
        worker_arm_blacklist(core, worker);
        profile_recount(core, worker);
        worker_watch(core, worker);
    }
}

/* An ended job was brought back because somebody asked for it. */
void load_job_done(struct core *core, const char *job_id)
{
    struct job *job = job_find(core, job_id);
    ASSERT(job != NULL && job_state_is_terminal((enum job_state)job->state));
    core->stats.jobs--;
    core->stats.tasks[TASK_QUEUED] -= job->n_tasks;
    stage_link_edges(job, 0);
    job_derive(core, job);
    for (struct jobqueue *queue = job->queues; queue != NULL; queue = queue->next) {
        jobqueue_leave(queue);
    }
    job_remember_ended(core, job);
}
