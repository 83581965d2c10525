/* How the core's files write into the effects of the current step. */
#include "core/effects.h"

#include <string.h>

#include "base/utf8.h"
#include "core/core_internal.h"

static void ensure_ready(struct effects *fx)
{
    if (fx->rows_end == NULL) {
        fx->rows_end = &fx->rows;
        fx->replies_end = &fx->replies;
        fx->children_end = &fx->children;
        fx->child_ends_end = &fx->child_ends;
    }
}

void effects_reset(struct effects *fx)
{
    struct arena arena = fx->arena;
    arena_reset(&arena);
    *fx = (struct effects){.arena = arena};
    ensure_ready(fx);
}

void effects_deinit(struct effects *fx)
{
    arena_deinit(&fx->arena);
    *fx = (struct effects){0};
}

uint64_t core__hash(const struct core *core, const char *text)
{
    return siphash(&core->hash_key, text, strlen(text));
}

uint64_t core__mark(const char *text)
{
    static const struct siphash_key key = {0x6361707374616e, 1};
    return siphash(&key, text, strlen(text));
}

struct lease_token core__draw(struct core *core)
{
    struct lease_token token;
    core->draws++;
    siphash128(&core->random_key, &core->draws, sizeof core->draws, token.bits);
    return token;
}

/* ---- replies ---- */

struct reply *core__reply(struct core *core, uint64_t to, enum reply_kind kind)
{
    struct effects *fx = core->fx;
    ensure_ready(fx);
    struct reply *reply = arena_zalloc(&fx->arena, sizeof *reply);
    reply->to = to;
    reply->kind = kind;
    *fx->replies_end = reply;
    fx->replies_end = &reply->next;
    fx->n_replies++;
    return reply;
}

void core__reply_error(struct core *core, uint64_t to, enum err code, const char *message)
{
    struct reply *reply = core__reply(core, to, REPLY_ERROR);
    reply->code = code;
    reply->message = core__text(core, message);
}

const char *core__text(struct core *core, const char *text)
{
    return arena_strdup(&core->fx->arena, text);
}

const char *core__clip(struct core *core, const char *message)
{
    size_t n = message == NULL ? 0 : strlen(message);
    if (n <= LIMIT_MESSAGE_BYTES) {
        return message;
    }
    size_t keep = utf8_clip(message, n, LIMIT_MESSAGE_BYTES);
    char *copy = arena_alloc(&core->fx->arena, keep + 1);
    memcpy(copy, message, keep);
    copy[keep] = '\0';
    return copy;
}

const char *core__job_id(struct core *core, const struct job *job)
{
    struct effects *fx = core->fx;
    if (fx->last_job_id == NULL || fx->last_job_serial != job->serial) {
        fx->last_job_serial = job->serial;
        fx->last_job_id = arena_strdup(&fx->arena, job->id);
    }
    return fx->last_job_id;
}

struct task_ref core__ref(struct core *core, const struct task *task)
{
    return (struct task_ref){core__job_id(core, task->stage->job), task->stage->id, task_index(task)};
}

struct attempt_ref core__attempt(struct core *core, const struct task *task)
{
    return (struct attempt_ref){core__ref(core, task), task->attempt, task->token};
}

/* ---- rows ---- */

static void *emit(struct core *core, enum row_kind kind, size_t size)
{
    struct effects *fx = core->fx;
    ensure_ready(fx);
    struct row *row = arena_zalloc(&fx->arena, size);
    row->kind = kind;
    *fx->rows_end = row;
    fx->rows_end = &row->next;
    fx->n_rows++;
    return row;
}

void core__emit_job(struct core *core, const struct job *job, bool is_new)
{
    struct row_job *row = emit(core, ROW_JOB, sizeof *row);
    row->is_new = is_new;
    row->job_id = core__job_id(core, job);
    if (is_new) {
        row->priority = job->priority;
        row->stop_on_failure = job->stop_on_failure;
        row->name = core__text(core, job->name);
        row->idempotency_key = core__text(core, job->idempotency_key);
        row->content = job->content;
        row->parent =
            (struct attempt_ref){.task = {.job_id = core__text(core, job->parent_job), .stage = job->parent_stage},
                                 .attempt = job->parent_attempt};
    }
    row->kind = (enum job_kind)job->kind;
    row->submitted_at_ms = job->submitted_at_ms;
    row->state = (enum job_state)job->state;
    row->started_at_ms = job->started_at_ms;
    row->finished_at_ms = job->finished_at_ms;
    row->n_stages = job->n_stages;
    row->inline_bytes = job->inline_bytes;
    row->message = core__text(core, job->message);
}

void core__emit_sweep(struct core *core, const struct job *job)
{
    struct row_job_sweep *row = emit(core, ROW_JOB_SWEEP, sizeof *row);
    row->job_id = core__job_id(core, job);
    row->at_ms = core->now_ms;
}

static const struct requirement *copy_need(struct core *core, const struct stage *stage)
{
    const struct requirement *need = stage->queue->class->need->value;
    struct effects *fx = core->fx;
    if (fx->last_need == NULL || !requirement_equal(fx->last_need, need)) {
        fx->last_need = requirement_copy_in(&fx->arena, need);
    }
    return fx->last_need;
}

static const struct stage_spec *stage_spec_of(struct core *core, const struct stage *stage)
{
    struct arena *arena = &core->fx->arena;
    const struct job *job = stage->job;
    uint32_t n = 0;
    for (uint32_t i = stage->first_parent; i != EDGE_NONE; i = job->edges[i].next_of_child) {
        n++;
    }
    struct stage_parent *parents = arena_alloc(arena, n * sizeof *parents);
    uint32_t at = 0;
    for (uint32_t i = stage->first_parent; i != EDGE_NONE; i = job->edges[i].next_of_child) {
        const struct edge *edge = &job->edges[i];
        parents[at++] = (struct stage_parent){
            .stage = edge->parent, .optional = edge->optional, .read = (enum read_mode)edge->read};
    }
    struct stage_spec *spec = arena_alloc(arena, sizeof *spec);
    *spec = (struct stage_spec){
        .name = core__text(core, stage->name),
        .need = copy_need(core, stage),
        .parents = parents,
        .n_parents = n,
        .n_tasks = stage->n_tasks,
        .output = (enum output_kind)stage->output,
        .partitions = stage->partitions,
        .max_attempts = stage->max_attempts,
        .backoff_ms = stage->backoff_ms,
        .timeout_ms = stage->timeout_ms,
        .nondeterministic = stage->nondeterministic,
        .exclusive = stage->exclusive,
        .planning = stage->planning,
        .child = stage->child,
    };
    return spec;
}

void core__emit_stage(struct core *core, const struct stage *stage, bool is_new)
{
    struct row_stage *row = emit(core, ROW_STAGE, sizeof *row);
    row->is_new = is_new;
    row->job_id = core__job_id(core, stage->job);
    row->stage = stage->id;
    row->spec = is_new ? stage_spec_of(core, stage) : NULL;
    row->n_recovered = stage->n_recovered;
    row->recovered = arena_copy(&core->fx->arena, stage->recovered, stage->n_recovered * sizeof *stage->recovered);
}

static bool has_placement(const struct stage *stage)
{
    const struct requirement *need = stage->queue->class->need->value;
    return need->any_executors.count > 0 || need->capabilities.count > 0 || need->allowed_nodes.count > 0 ||
           need->forbidden_nodes.count > 0 || need->max_parallel_per_node > 0;
}

static struct string_list failed_on(struct core *core, const struct task *task)
{
    if (task->avoid_queue == NULL) {
        return (struct string_list){NULL, 0};
    }
    const struct class *class = task->avoid_queue->class;
    const char **items = arena_alloc(&core->fx->arena, class->n_avoid * sizeof *items);
    for (uint32_t i = 0; i < class->n_avoid; i++) {
        items[i] = core__text(core, class->avoid[i]);
    }
    return (struct string_list){items, class->n_avoid};
}

void core__emit_task(struct core *core, const struct task *task, const struct task_news *news)
{
    struct row_task *row = emit(core, ROW_TASK, sizeof *row);
    row->is_new = news->is_new;
    row->ref = core__ref(core, task);
    if (news->is_new) {
        row->inputs = task->inputs;
        row->inputs_bytes = task->inputs_bytes;
        row->placement = has_placement(task->stage) ? copy_need(core, task->stage) : NULL;
    }
    row->state = (enum task_state)task->state;
    row->outcome = (enum attempt_outcome)task->outcome;
    row->attempt = task->attempt;
    row->failures = task->failures;
    row->token = task->token;
    row->worker_id = core__text(core, news->worker_id);
    row->lease_expires_at_ms = news->lease_expires_at_ms;
    if (news->idempotency_key != NULL) {
        row->idempotency_key = *news->idempotency_key;
    }
    row->failed_on = failed_on(core, task);
    row->ready_at_ms = task_ready_at(task);
    row->queued_at_ms = task->queued_at_ms;
    row->started_at_ms = news->started_at_ms;
    row->finished_at_ms = news->finished_at_ms;
    row->message = core__text(core, news->message);
    if (news->report != NULL) {
        row->result = news->report->result;
        row->result_bytes = news->report->result_bytes;
        row->rows = news->report->rows;
        row->bytes = news->report->bytes;
    }
}

void core__emit_lease(struct core *core, const struct lease *lease)
{
    struct row_lease *row = emit(core, ROW_LEASE, sizeof *row);
    row->ref = core__ref(core, lease->task);
    row->attempt = lease->task->attempt;
    row->token = lease->task->token;
    row->worker_id = core__text(core, lease->worker->id);
    row->acquired_at_ms = lease->acquired_at_ms;
    row->expires_at_ms = lease->acquired_at_ms + core->config.lease_ms;
}

void core__emit_lease_gone(struct core *core, const struct task *task)
{
    if (task->stage->child) {
        return;
    }
    struct row_lease_gone *row = emit(core, ROW_LEASE_GONE, sizeof *row);
    row->ref = core__ref(core, task);
    row->token = task->token;
}

void core__emit_map_output(struct core *core, const struct output *output)
{
    struct row_map_output *row = emit(core, ROW_MAP_OUTPUT, sizeof *row);
    row->ref = core__ref(core, output->task);
    row->attempt = output->attempt;
    row->generation = output->generation;
    row->worker_id = core__text(core, output->worker->id);
    row->incarnation = core__text(core, output->worker->incarnation);
    row->address = core__text(core, output->worker->address);
    row->n_partitions = output->n_partitions;
    row->partitions =
        arena_copy(&core->fx->arena, output->partitions, output->n_partitions * sizeof *output->partitions);
}

void core__emit_result(struct core *core, const struct output *output)
{
    struct row_result *row = emit(core, ROW_RESULT, sizeof *row);
    row->ref = core__ref(core, output->task);
    row->attempt = output->attempt;
    row->worker_id = core__text(core, output->worker_id);
    row->rows = output->rows;
    row->bytes = output->bytes;
    row->is_inline = output->is_inline;
}

void core__emit_output_gone(struct core *core, const struct output *output)
{
    bool is_result = output->task->stage->output == OUTPUT_RESULT;
    if (output->task->stage->output == OUTPUT_NONE) {
        return; /* a tally is part of the task's row */
    }
    struct row_output_gone *row = emit(core, is_result ? ROW_RESULT_GONE : ROW_MAP_OUTPUT_GONE, sizeof *row);
    row->ref = core__ref(core, output->task);
    row->attempt = output->attempt;
}

void core__emit_node(struct core *core, const struct worker *worker)
{
    struct row_node *row = emit(core, ROW_NODE, sizeof *row);
    row->worker_id = core__text(core, worker->id);
    row->incarnation = core__text(core, worker->incarnation);
    for (int i = 0; i < NODE_PAST_INCARNATIONS; i++) {
        row->past_incarnations[i] = core__text(core, worker->past_incarnations[i]);
    }
    row->address = core__text(core, worker->address);
    row->version = core__text(core, worker->version);
    row->slots = worker->slots;
    row->offer = offer_copy_in(&core->fx->arena, worker->profile->offer);
    row->status = (enum node_status)worker->status;
    row->is_live = worker->is_live;
    row->draining = worker->draining;
    row->failures = worker->failures;
    row->blacklisted_until_ms = worker->blacklisted_until_ms;
    row->registered_at_ms = worker->registered_at_ms;
    row->heartbeat_at_ms = worker->heartbeat_at_ms;
}

void core__emit_node_gone(struct core *core, const struct worker *worker)
{
    struct row_node_gone *row = emit(core, ROW_NODE_GONE, sizeof *row);
    row->worker_id = core__text(core, worker->id);
}

void core__emit_attempt(struct core *core, const struct task *task, const char *worker_id,
                        const struct digest *idempotency_key)
{
    struct row_attempt *row = emit(core, ROW_ATTEMPT, sizeof *row);
    row->ref = core__ref(core, task);
    row->attempt = task->attempt;
    row->outcome = (enum attempt_outcome)task->outcome;
    row->worker_id = core__text(core, worker_id);
    row->at_ms = core->now_ms;
    if (idempotency_key != NULL) {
        row->idempotency_key = *idempotency_key;
    }
}

void core__emit_child(struct core *core, const struct task *task)
{
    struct effects *fx = core->fx;
    ensure_ready(fx);
    struct child_start *start = arena_zalloc(&fx->arena, sizeof *start);
    start->ref = core__attempt(core, task);
    start->inputs = task->inputs;
    start->inputs_bytes = task->inputs_bytes;
    start->parents = core__list_parents(core, task->stage, &start->n_parents);
    int64_t past_ms = core->now_ms - task->stage->child_started_at_ms;
    start->timeout_ms = task->stage->timeout_ms;
    start->timeout_left_ms = past_ms < start->timeout_ms ? start->timeout_ms - (uint32_t)past_ms : 0;
    *fx->children_end = start;
    fx->children_end = &start->next;
}

void core__emit_child_end(struct core *core, const struct task *task, const struct job *child)
{
    struct effects *fx = core->fx;
    ensure_ready(fx);
    struct child_end *end = arena_zalloc(&fx->arena, sizeof *end);
    end->ref = core__attempt(core, task);
    end->job_id = core__text(core, child->id);
    *fx->child_ends_end = end;
    fx->child_ends_end = &end->next;
}

static struct row_event *emit_event(struct core *core, enum event_type type, const char *worker_id, const char *message)
{
    struct row_event *row = emit(core, ROW_EVENT, sizeof *row);
    row->seq = ++core->event_seq;
    row->at_ms = core->now_ms;
    row->type = type;
    row->worker_id = core__text(core, worker_id);
    row->message = core__text(core, message);
    return row;
}

void core__job_event(struct core *core, enum event_type type, const struct job *job, const char *message)
{
    struct row_event *row = emit_event(core, type, NULL, message);
    row->ref = (struct task_ref){core__job_id(core, job), EVENT_WHOLE_JOB, EVENT_WHOLE_JOB};
}

void core__task_event(struct core *core, enum event_type type, const struct task *task, const char *worker_id,
                      const char *message)
{
    struct row_event *row = emit_event(core, type, worker_id, message);
    row->ref = core__ref(core, task);
    row->attempt = task->attempt;
}

void core__node_event(struct core *core, enum event_type type, const struct worker *worker, const char *message)
{
    emit_event(core, type, worker->id, message);
}
