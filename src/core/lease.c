/*
 * Leases: which worker may run a task, until when, under which token.
 *
 * A task has at most one lease, and only while it is running. Its attempt grows and its token is drawn anew with every
 * lease, so what an earlier holder says is always recognised. Deadlines are in attended time and only in memory.
 */
#include "base/mem.h"
#include "core/core_internal.h"

static struct lease *lease_alloc(struct core *core)
{
    struct lease *lease = core->lease_pool;
    if (lease == NULL) {
        return mem_calloc(1, sizeof *lease);
    }
    core->lease_pool = lease->next_free;
    *lease = (struct lease){0};
    return lease;
}

/* Ties a task that is running (or is about to) to a worker, with a full period from now. */
struct lease *lease_attach(struct core *core, struct task *task, struct worker *worker)
{
    struct lease *lease = lease_alloc(core);
    lease->task = task;
    lease->worker = worker;
    lease->expires_ms = core->attended_ms + core->config.lease_ms;
    lease->assigned_ms = core->attended_ms;
    lease->acquired_at_ms = core->now_ms;
    list_push_back(&worker->running, &lease->in_worker);
    worker->n_running++;
    task->stage->job->running++;
    task->u.lease = lease;
    core->stats.leases++;
    if (heap_has(&worker->watch.node) && lease->expires_ms < worker->watch.node.key) {
        heap_set(&core->watches, &worker->watch.node, lease->expires_ms);
    }
    return lease;
}

/* The task, just taken from its queue, runs on this worker now. */
void lease_grant(struct core *core, struct task *task, struct worker *worker)
{
    task->attempt++;
    task->token = core__draw(core);
    task->outcome = OUTCOME_PENDING;
    task_move(core, task, TASK_RUNNING);
    struct lease *lease = lease_attach(core, task, worker);
    core__emit_lease(core, lease);
    core->stats.assigned_total++;
}

/* The row is the caller's business: a job that ends sweeps all of its leases at once. */
void lease_end(struct core *core, struct task *task, bool tell_worker)
{
    struct lease *lease = task->u.lease;
    struct worker *worker = lease->worker;
    struct job *job = task->stage->job;
    ASSERT(lease->task == task);
    list_remove(&lease->in_worker);
    if (!(BUG(core, count_superseded_attempt) && tell_worker)) {
        worker->n_running--;
    }
    job->running--;
    if (tell_worker) {
        worker_tell_stop(core, worker, task);
    }
    task->u.lease = NULL;
    lease->next_free = core->lease_pool;
    core->lease_pool = lease;
    core->stats.leases--;
    job_slot_freed(core, job);
    poll_reconsider(core, worker);
}

void leases_free(struct core *core)
{
    while (core->lease_pool != NULL) {
        struct lease *lease = core->lease_pool;
        core->lease_pool = lease->next_free;
        mem_free(lease);
    }
}
