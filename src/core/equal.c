/*
 * Whether two cores hold the same durable state. What is left out is listed in core.h.
 */
#include <string.h>

#include "base/arena.h"
#include "core/core_internal.h"

struct verdict {
    struct arena arena;
    const char *why; /* NULL: no difference so far */
};

static bool text_same(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static void differ(struct verdict *v, const struct task *task, const char *what)
{
    if (v->why == NULL) {
        v->why = arena_format(&v->arena, "job %s stage %u task %u: %s", task->stage->job->id, task->stage->id,
                              task_index(task), what);
    }
}

static void compare_outputs(struct verdict *v, const struct task *a, const struct task *b)
{
    const struct output *x = a->output;
    const struct output *y = b->output;
    if (x == NULL && y == NULL) {
        return;
    }
    if (x == NULL || y == NULL) {
        differ(v, a, "output");
    } else if (x->attempt != y->attempt || x->generation != y->generation || x->rows != y->rows ||
               x->bytes != y->bytes || x->is_inline != y->is_inline || x->n_partitions != y->n_partitions ||
               x->incarnation_mark != y->incarnation_mark || !text_same(x->worker_id, y->worker_id) ||
               (x->worker == NULL) != (y->worker == NULL) ||
               (x->worker != NULL && strcmp(x->worker->id, y->worker->id) != 0) ||
               memcmp(x->partitions, y->partitions, x->n_partitions * sizeof *x->partitions) != 0) {
        differ(v, a, "output's content");
    }
}

static bool same_avoided(const struct task *a, const struct task *b)
{
    const struct class *x = task_queue(a)->class;
    const struct class *y = task_queue(b)->class;
    if (x->n_avoid != y->n_avoid || x->priority != y->priority || !requirement_equal(x->need->value, y->need->value)) {
        return false;
    }
    for (uint32_t i = 0; i < x->n_avoid; i++) {
        if (strcmp(x->avoid[i], y->avoid[i]) != 0) {
            return false;
        }
    }
    return true;
}

static void compare_tasks(struct verdict *v, const struct task *a, const struct task *b)
{
    if (a->state != b->state) {
        differ(v, a, "state");
    }
    if (a->attempt != b->attempt || a->failures != b->failures || a->outcome != b->outcome) {
        differ(v, a, "attempt, failures or outcome");
    }
    if (!lease_token_equal(a->token, b->token)) {
        differ(v, a, "token");
    }
    if (memcmp(&a->inputs, &b->inputs, sizeof a->inputs) != 0 || a->inputs_bytes != b->inputs_bytes ||
        a->queued_at_ms != b->queued_at_ms || task_ready_at(a) != task_ready_at(b)) {
        differ(v, a, "inputs or times");
    }
    if (!same_avoided(a, b)) {
        differ(v, a, "requirement or workers to avoid");
    }
    if (v->why == NULL && a->state == TASK_RUNNING) {
        if (a->stage->child && (a->u.child == NULL) != (b->u.child == NULL)) {
            differ(v, a, "child job");
        }
        if (!a->stage->child && (strcmp(a->u.lease->worker->id, b->u.lease->worker->id) != 0 ||
                                 a->u.lease->acquired_at_ms != b->u.lease->acquired_at_ms)) {
            differ(v, a, "lease");
        }
    }
    compare_outputs(v, a, b);
}

static bool same_edges(const struct stage *a, const struct stage *b)
{
    uint32_t i = a->first_parent;
    uint32_t j = b->first_parent;
    while (i != EDGE_NONE && j != EDGE_NONE) {
        const struct edge *x = &a->job->edges[i];
        const struct edge *y = &b->job->edges[j];
        if (x->parent != y->parent || x->read != y->read || x->optional != y->optional ||
            x->is_satisfied != y->is_satisfied) {
            return false;
        }
        i = x->next_of_child;
        j = y->next_of_child;
    }
    return i == j;
}

static void compare_stages(struct verdict *v, const struct stage *a, const struct stage *b)
{
    bool same = text_same(a->name, b->name) && a->n_tasks == b->n_tasks && a->output == b->output &&
                a->partitions == b->partitions && a->max_attempts == b->max_attempts &&
                a->backoff_ms == b->backoff_ms && a->timeout_ms == b->timeout_ms &&
                a->nondeterministic == b->nondeterministic && a->exclusive == b->exclusive &&
                a->planning == b->planning && a->child == b->child && a->n_recovered == b->n_recovered &&
                a->waiting == b->waiting && a->n_missing == b->n_missing && a->rows == b->rows &&
                a->bytes == b->bytes && same_edges(a, b);
    if (same && a->n_recovered > 0) {
        same = memcmp(a->recovered, b->recovered, a->n_recovered * sizeof *a->recovered) == 0;
    }
    if (!same) {
        differ(v, &a->tasks[0], "stage");
        return;
    }
    for (uint32_t t = 0; t < a->n_tasks && v->why == NULL; t++) {
        compare_tasks(v, &a->tasks[t], &b->tasks[t]);
    }
}

static bool same_parent(const struct job *a, const struct job *b)
{
    if (a->parent == NULL || b->parent == NULL) {
        return a->parent == b->parent;
    }
    return a->parent_attempt == b->parent_attempt && a->parent_stage == b->parent_stage &&
           strcmp(a->parent_job, b->parent_job) == 0;
}

static void compare_jobs(struct verdict *v, const struct job *a, const struct job *b)
{
    bool same = text_same(a->name, b->name) && text_same(a->idempotency_key, b->idempotency_key) &&
                text_same(a->message, b->message) && a->kind == b->kind && a->priority == b->priority &&
                a->state == b->state && a->stop_on_failure == b->stop_on_failure &&
                a->submitted_at_ms == b->submitted_at_ms && a->started_at_ms == b->started_at_ms &&
                a->n_stages == b->n_stages && a->n_tasks == b->n_tasks && a->n_open == b->n_open &&
                a->running == b->running && a->n_outputs == b->n_outputs && a->inline_bytes == b->inline_bytes &&
                memcmp(&a->content, &b->content, sizeof a->content) == 0 && same_parent(a, b);
    if (!same) {
        v->why = arena_format(&v->arena, "job %s", a->id);
        return;
    }
    for (uint32_t s = 0; s < a->n_stages && v->why == NULL; s++) {
        compare_stages(v, a->stages[s], b->stages[s]);
    }
}

static void compare_workers(struct verdict *v, const struct worker *a, const struct worker *b)
{
    bool same = text_same(a->incarnation, b->incarnation) && text_same(a->address, b->address) &&
                text_same(a->version, b->version) && a->slots == b->slots && a->status == b->status &&
                a->is_live == b->is_live && a->draining == b->draining && a->failures == b->failures &&
                a->blacklisted_until_ms == b->blacklisted_until_ms && a->registered_at_ms == b->registered_at_ms &&
                a->n_running == b->n_running && offer_equal(a->profile->offer, b->profile->offer);
    for (int i = 0; i < NODE_PAST_INCARNATIONS; i++) {
        same = same && text_same(a->past_incarnations[i], b->past_incarnations[i]);
    }
    if (!same) {
        v->why = arena_format(&v->arena, "node %s", a->id);
    }
}

static void compare(struct verdict *v, const struct core *a, const struct core *b)
{
    size_t cursor = 0;
    if (a->stats.jobs != b->stats.jobs || a->workers.count != b->workers.count || a->event_seq != b->event_seq) {
        v->why = "number of jobs, nodes or events";
    }
    for (const struct job *job; v->why == NULL && (job = map_next(&a->jobs, &cursor)) != NULL;) {
        const struct job *other = job_find(b, job->id);
        if (job_state_is_terminal((enum job_state)job->state)) {
            continue;
        }
        if (other == NULL) {
            v->why = arena_format(&v->arena, "job %s is missing", job->id);
        } else {
            compare_jobs(v, job, other);
        }
    }
    cursor = 0;
    for (const struct worker *worker; v->why == NULL && (worker = map_next(&a->workers, &cursor)) != NULL;) {
        const struct worker *other = worker_find(b, worker->id);
        if (other == NULL) {
            v->why = arena_format(&v->arena, "node %s is missing", worker->id);
        } else {
            compare_workers(v, worker, other);
        }
    }
}

bool core_equal(const struct core *a, const struct core *b, char *why, size_t why_size)
{
    struct verdict v = {.why = NULL};
    compare(&v, a, b);
    if (v.why != NULL && why != NULL && why_size > 0) {
        size_t n = strlen(v.why) < why_size - 1 ? strlen(v.why) : why_size - 1;
        memcpy(why, v.why, n);
        why[n] = '\0';
    }
    bool equal = v.why == NULL;
    arena_deinit(&v.arena);
    return equal;
}
