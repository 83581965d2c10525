/*
 * Jobs: submitted, ended, canceled, run again, forgotten.
 */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "core/core_internal.h"

static bool job_matches(const void *value, const void *key)
{
    return strcmp(((const struct job *)value)->id, key) == 0;
}

static bool job_key_matches(const void *value, const void *key)
{
    return strcmp(((const struct job *)value)->idempotency_key, key) == 0;
}

struct job *job_find(const struct core *core, const char *job_id)
{
    return map_get(&core->jobs, core__hash(core, job_id), job_matches, job_id);
}

/* A key is kept for a day after its job has ended. */
static struct job *job_find_key(const struct core *core, const char *key)
{
    struct job *job = map_get(&core->keys, core__hash(core, key), job_key_matches, key);
    bool is_over = job != NULL && job_state_is_terminal((enum job_state)job->state) &&
                   core->now_ms - job->finished_at_ms > IDEMPOTENCY_KEY_MS;
    return is_over ? NULL : job;
}

bool core_has_job(const struct core *core, const char *job_id)
{
    return job_find(core, job_id) != NULL;
}

const char *core_job_by_key(const struct core *core, const char *idempotency_key)
{
    const struct job *job = job_find_key(core, idempotency_key);
    return job == NULL ? NULL : job->id;
}

struct job *job_new(struct core *core, const char *id)
{
    size_t id_bytes = strlen(id) + 1;
    struct job *job = mem_calloc(1, sizeof *job + id_bytes);
    memcpy(job->id, id, id_bytes);
    list_init(&job->parked);
    job->hash = core__hash(core, id);
    job->turn = ++core->turn;
    job->serial = job->turn;
    map_put(&core->jobs, job->hash, job);
    core->stats.jobs++;
    return job;
}

void job_index_key(struct core *core, struct job *job)
{
    if (job->idempotency_key != NULL && job_find_key(core, job->idempotency_key) == NULL) {
        job->key_hash = core__hash(core, job->idempotency_key);
        map_take(&core->keys, job->key_hash, job_key_matches, job->idempotency_key); /* one that is over */
        map_put(&core->keys, job->key_hash, job);
    }
}

static void task_discard(struct core *core, struct task *task)
{
    task_clear_backoff(core, task);
    if (task->state == TASK_RUNNING && !task->stage->child && task->u.lease != NULL) {
        list_remove(&task->u.lease->in_worker);
        mem_free(task->u.lease);
    }
    if (task->output != NULL) {
        list_remove(&task->output->in_worker);
        mem_free(task->output->worker_id);
        mem_free(task->output);
    }
}

/* Frees the job and all that hangs on it, whatever its state. */
void job_free(struct core *core, struct job *job)
{
    map_take_value(&core->jobs, job->hash, job);
    if (job->idempotency_key != NULL) {
        map_take_value(&core->keys, job->key_hash, job);
    }
    list_remove(&job->in_list);
    for (uint32_t s = 0; s < job->n_stages; s++) {
        struct stage *stage = job->stages[s];
        for (uint32_t t = 0; stage != NULL && t < stage->n_tasks; t++) {
            task_discard(core, &stage->tasks[t]);
        }
        if (stage != NULL) {
            mem_free(stage->name);
            mem_free(stage->recovered);
        }
    }
    jobqueues_free(core, job);
    while (job->blocks != NULL) {
        struct block *block = job->blocks;
        job->blocks = block->next;
        mem_free(block);
    }
    if (job->has_stage_array) {
        mem_free(job->stages);
    }
    mem_free(job->edges);
    mem_free(job->name);
    mem_free(job->idempotency_key);
    mem_free(job->parent_job);
    mem_free(job->message);
    mem_free(job);
}

void job_remember_ended(struct core *core, struct job *job)
{
    list_push_back(&core->ended, &job->in_list);
    core->n_ended++;
    core->ended_total++;
    core->n_ended_tasks += job->n_tasks;
}

static void job_forget_ended(struct core *core, struct job *job)
{
    list_remove(&job->in_list);
    core->n_ended--;
    core->n_ended_tasks -= job->n_tasks;
}

/* Forgets the oldest of the ended jobs while there are too many. */
void job_evict(struct core *core)
{
    while (core->n_ended > core->config.ended_jobs_resident ||
           (core->n_ended_tasks > ENDED_TASKS_RESIDENT && core->n_ended > 1)) {
        struct job *job = CONTAINER_OF(list_first(&core->ended), struct job, in_list);
        job_forget_ended(core, job);
        job_free(core, job);
    }
}

void job_mark_running(struct core *core, struct job *job)
{
    if (job->state == JOB_QUEUED) {
        job->state = JOB_RUNNING;
        core->stats.jobs_running++;
        job->started_at_ms = core->now_ms;
        core__emit_job(core, job, false);
    }
}

/* ---- the end of a job ---- */

static void cancel_open_tasks(struct core *core, struct job *job, struct list *children)
{
    for (uint32_t s = 0; s < job->n_stages; s++) {
        struct stage *stage = job->stages[s];
        for (uint32_t t = 0; t < stage->n_tasks && stage->counts[TASK_QUEUED] + stage->counts[TASK_RUNNING] > 0; t++) {
            struct task *task = &stage->tasks[t];
            if (task_state_is_terminal((enum task_state)task->state)) {
                continue;
            }
            struct job *child = task->state == TASK_RUNNING && stage->child ? task->u.child : NULL;
            if (child != NULL) {
                child->parent = NULL;
                /* One that has ended in this very step is only waiting to say so. */
                if (!job_state_is_terminal((enum job_state)child->state)) {
                    list_push_back(children, &child->in_list);
                }
            }
            task_cancel(core, task);
        }
    }
}

static void drop_map_outputs(struct core *core, struct job *job)
{
    for (uint32_t s = 0; s < job->n_stages && job->n_outputs > 0; s++) {
        struct stage *stage = job->stages[s];
        if (stage->output == OUTPUT_SHUFFLE) {
            stage->ended_rows = stage->rows;
            stage->ended_bytes = stage->bytes;
        }
        for (uint32_t t = 0; stage->output == OUTPUT_SHUFFLE && t < stage->n_tasks; t++) {
            output_drop(core, &stage->tasks[t], false);
        }
    }
}

/* What the end of a child means for the task that waits for it: after a success, that somebody reads the rows. */
static void tell_parent(struct core *core, struct job *job)
{
    struct task *task = job->parent;
    job->parent = NULL;
    if (task == NULL || task->state != TASK_RUNNING || task->attempt != job->parent_attempt) {
        return;
    }
    task->u.child = NULL;
    if (job->state == JOB_SUCCEEDED) {
        core__emit_child_end(core, task, job);
        return;
    }
    const char *text =
        arena_format(&core->fx->arena, "child job %s %s%s%s", job->id, job_state_name((enum job_state)job->state),
                     job->message != NULL ? ": " : "", job->message != NULL ? job->message : "");
    task_retry_or_fail(core, task, &(struct failure){.message = text});
}

static void end_one(struct core *core, struct job *job, enum job_state state, const char *message,
                    struct list *children)
{
    static const enum event_type types[] = {
        [JOB_SUCCEEDED] = EVENT_COMPLETED, [JOB_FAILED] = EVENT_FAILED, [JOB_CANCELED] = EVENT_CANCELLED};
    bool sweep = job->n_open > 0 || job->n_outputs > 0;
    if (message != NULL) {
        mem_free(job->message);
        job->message = mem_strdup(message);
    }
    /* Stop orders and slots come from task moves, which must still count as a live job's. */
    cancel_open_tasks(core, job, children);
    drop_map_outputs(core, job);
    for (struct jobqueue *queue = job->queues; queue != NULL; queue = queue->next) {
        jobqueue_leave(queue);
    }
    core->stats.jobs--;
    core->stats.jobs_running -= job->state == JOB_RUNNING;
    for (uint32_t s = 0; s < job->n_stages; s++) {
        for (int i = 0; i < TASK_STATE_COUNT; i++) {
            core->stats.tasks[i] -= job->stages[s]->counts[i];
        }
    }
    job->state = (uint8_t)state;
    job->finished_at_ms = core->now_ms;
    core__emit_job(core, job, false);
    if (sweep) {
        core__emit_sweep(core, job);
    }
    core__job_event(core, types[state], job, job->message);
    job_remember_ended(core, job);
}

/*
 * Ends the job, and its children with it. `message` NULL keeps the one that it has.
 */
void job_end(struct core *core, struct job *job, enum job_state state, const char *message)
{
    struct list children;
    list_init(&children);
    ASSERT(!job_state_is_terminal((enum job_state)job->state));
    end_one(core, job, state, message, &children);
    while (!list_is_empty(&children)) {
        struct job *child = CONTAINER_OF(list_first(&children), struct job, in_list);
        list_remove(&child->in_list);
        end_one(core, child, JOB_CANCELED, "the job that started it has ended", &children);
    }
    if (job->parent != NULL) {
        job->next_told = core->to_tell;
        core->to_tell = job;
    }
}

/* Children can be nested deeply, so parents are told one after the other, not from within each other. */
void jobs_tell_parents(struct core *core)
{
    while (core->to_tell != NULL) {
        struct job *job = core->to_tell;
        core->to_tell = job->next_told;
        tell_parent(core, job);
    }
}

/* Ends the job if all of its tasks have. */
void job_maybe_end(struct core *core, struct job *job)
{
    if (job->n_open > 0 || job_state_is_terminal((enum job_state)job->state)) {
        return;
    }
    job_end(core, job, job->n_failed > 0 ? JOB_FAILED : JOB_SUCCEEDED, NULL);
}

/* ---- submit ---- */

static void reply_job(struct core *core, uint64_t to, enum reply_kind kind, const struct job *job, bool existed)
{
    struct reply *reply = core__reply(core, to, kind);
    reply->u.job.job_id = core__job_id(core, job);
    reply->u.job.state = (enum job_state)job->state;
    reply->u.job.existed = existed;
}

/* The task that has no child job at this moment and waits for one, or for news of one, if `ref` names it; else NULL. */
struct task *child_task_waiting(const struct core *core, const struct attempt_ref *ref)
{
    const struct job *job = job_find(core, ref->task.job_id);
    struct task *task = job == NULL ? NULL : task_find(job, ref->task.stage, ref->task.task);
    bool waits = task != NULL && task->stage->child && task->state == TASK_RUNNING && task->attempt == ref->attempt &&
                 task->u.child == NULL;
    return waits ? task : NULL;
}

static struct attempt_ref parent_of(const struct job *job)
{
    return (struct attempt_ref){.task = {.job_id = job->parent_job, .stage = job->parent_stage},
                                .attempt = job->parent_attempt};
}

/* Ties a job that has not ended to the task that it is a child of, if that still waits. */
void job_find_parent(struct core *core, struct job *job)
{
    struct attempt_ref ref = parent_of(job);
    struct task *task = ref.task.job_id == NULL ? NULL : child_task_waiting(core, &ref);
    if (task != NULL) {
        job->parent = task;
        task->u.child = job;
    }
}

static bool is_child_of(const struct job *job, const struct attempt_ref *ref)
{
    return job->parent_job != NULL && strcmp(job->parent_job, ref->task.job_id) == 0 &&
           job->parent_stage == ref->task.stage && job->parent_attempt == ref->attempt;
}

/* True if the submit was answered because the job is known already. */
static bool answer_known(struct core *core, const struct command *command)
{
    const struct cmd_submit *submit = &command->u.submit;
    const struct job *job = job_find(core, submit->job_id);
    const struct task *parent = submit->parent == NULL ? NULL : child_task_waiting(core, submit->parent);
    if (job != NULL && parent != NULL && !is_child_of(job, submit->parent)) {
        core__reply_error(core, command->reply_to, ERR_EXISTS,
                          arena_format(&core->fx->arena, "job '%s' exists and is not this task's", submit->job_id));
        return true;
    }
    if (job != NULL) {
        if (memcmp(&job->content, &submit->content, sizeof job->content) == 0) {
            reply_job(core, command->reply_to, REPLY_SUBMIT, job, true);
        } else {
            core__reply_error(core, command->reply_to, ERR_EXISTS,
                              arena_format(&core->fx->arena, "job '%s' exists with other content", submit->job_id));
        }
        return true;
    }
    job = submit->idempotency_key != NULL && parent == NULL ? job_find_key(core, submit->idempotency_key) : NULL;
    if (job != NULL) {
        reply_job(core, command->reply_to, REPLY_SUBMIT, job, true);
        return true;
    }
    return false;
}

static void emit_new_job(struct core *core, const struct job *job)
{
    struct task_news news = {.is_new = true};
    core__emit_job(core, job, true);
    for (uint32_t s = 0; s < job->n_stages; s++) {
        const struct stage *stage = job->stages[s];
        core__emit_stage(core, stage, true);
        for (uint32_t t = 0; t < stage->n_tasks; t++) {
            core__emit_task(core, &stage->tasks[t], &news);
        }
    }
    core__job_event(core, EVENT_CREATED, job, NULL);
}

/* Whether so many more tasks may be live. If not, that is the answer. */
static bool has_room(struct core *core, uint64_t reply_to, uint64_t n_tasks)
{
    uint64_t limit = (uint64_t)core->config.max_live_tasks;
    uint64_t n_live = 0;
    for (int i = 0; i < TASK_STATE_COUNT; i++) {
        n_live += core->stats.tasks[i];
    }
    if (limit == 0 || n_live + n_tasks <= limit) {
        return true;
    }
    if (n_tasks > limit) { /* there will never be room */
        core__reply_error(core, reply_to, ERR_INVALID,
                          arena_format(&core->fx->arena,
                                       "the job has %" PRIu64 " tasks, and max_live_tasks is %" PRIu64, n_tasks,
                                       limit));
        return false;
    }
    core__reply_error(core, reply_to, ERR_EXHAUSTED,
                      arena_format(&core->fx->arena,
                                   "jobs that have not ended have %" PRIu64 " tasks, and with the %" PRIu64
                                   " of this one that would be more than %" PRIu64,
                                   n_live, n_tasks, limit));
    return false;
}

static uint64_t count_tasks(const struct cmd_submit *submit)
{
    uint64_t n = 0;
    for (uint32_t s = 0; s < submit->n_stages; s++) {
        n += submit->stages[s].n_tasks;
    }
    return n;
}

void job_submit(struct core *core, const struct command *command)
{
    const struct cmd_submit *submit = &command->u.submit;
    struct error e;
    if (answer_known(core, command)) {
        return;
    }
    if (submit->priority >= PRIORITY_COUNT) {
        core__reply_error(core, command->reply_to, ERR_INVALID, "priority must be 0 (urgent) to 3 (low)");
        return;
    }
    const struct task *parent = submit->parent == NULL ? NULL : child_task_waiting(core, submit->parent);
    if (submit->parent != NULL && parent == NULL) {
        core__reply_error(core, command->reply_to, ERR_STALE, "the task that wants this job is not waiting for it");
        return;
    }
    if (submit->refusal == NULL && stages_check(NULL, submit->stages, submit->n_stages, &e) != ERR_OK) {
        core__reply_error(core, command->reply_to, e.code, e.message);
        return;
    }
    /* A child is part of a job that has been let in. */
    if (parent == NULL && submit->refusal == NULL && !has_room(core, command->reply_to, count_tasks(submit))) {
        return;
    }
    struct job *job = job_new(core, submit->job_id);
    job->kind = (uint8_t)submit->kind;
    job->name = mem_strdup(submit->name);
    job->idempotency_key = mem_strdup(submit->idempotency_key);
    job->priority = submit->priority;
    job->stop_on_failure = submit->stop_on_failure || submit->kind == JOB_KIND_QUERY;
    job->content = submit->content;
    job->submitted_at_ms = core->now_ms;
    job_index_key(core, job);
    if (parent != NULL) {
        job->parent_job = mem_strdup(parent->stage->job->id);
        job->parent_stage = parent->stage->id;
        job->parent_attempt = parent->attempt;
        job_find_parent(core, job);
    }
    if (submit->refusal == NULL) {
        stages_build(core, job, submit->stages, submit->n_stages);
        job_derive(core, job);
    }
    emit_new_job(core, job);
    if (submit->refusal != NULL) {
        job_end(core, job, JOB_FAILED, core__clip(core, submit->refusal));
    }
    reply_job(core, command->reply_to, REPLY_SUBMIT, job, false);
}

/* A planning task's result: the job grows. */
enum err job_add_stages(struct core *core, struct job *job, const struct stage_spec *specs, uint32_t n, struct error *e)
{
    enum err err = stages_check(job, specs, n, e);
    if (err != ERR_OK) {
        return err;
    }
    uint32_t first = job->n_stages;
    stages_build(core, job, specs, n);
    struct task_news news = {.is_new = true};
    for (uint32_t s = first; s < job->n_stages; s++) {
        core__emit_stage(core, job->stages[s], true);
        for (uint32_t t = 0; t < job->stages[s]->n_tasks; t++) {
            core__emit_task(core, &job->stages[s]->tasks[t], &news);
        }
    }
    stages_derive(core, job, first);
    core__emit_job(core, job, false);
    return ERR_OK;
}

/* ---- cancel and retry ---- */

void job_cancel(struct core *core, const struct command *command)
{
    struct job *job = job_find(core, command->u.cancel.job_id);
    if (job == NULL) {
        core__reply_error(core, command->reply_to, ERR_NOT_FOUND,
                          arena_format(&core->fx->arena, "there is no job '%s'", command->u.cancel.job_id));
        return;
    }
    if (!job_state_is_terminal((enum job_state)job->state)) {
        const char *reason = core__clip(core, command->u.cancel.reason);
        job_end(core, job, JOB_CANCELED, reason != NULL ? reason : "canceled");
    }
    reply_job(core, command->reply_to, REPLY_JOB, job, true);
}

static struct stage *stage_by_name(const struct job *job, const char *name)
{
    for (uint32_t s = 0; s < job->n_stages; s++) {
        if (job->stages[s]->name != NULL && strcmp(job->stages[s]->name, name) == 0) {
            return job->stages[s];
        }
    }
    return NULL;
}

static void reset_task(struct core *core, struct task *task)
{
    struct task_news news = {0};
    if (task->state == TASK_QUEUED ||
        (task->stage->planning && task->state == TASK_SUCCEEDED && task->output == NULL)) {
        return; /* the stages that a plan added are there already */
    }
    output_drop(core, task, true);
    task->failures = 0;
    task->avoid_queue = NULL;
    task_move(core, task, TASK_QUEUED);
    core__emit_task(core, task, &news);
}

/* Marks `from` and everything that depends on it. Stages that a plan made follow it also if they read nothing from it. */
static void mark_dependents(struct job *job, struct stage *from)
{
    struct stage *work = from;
    for (uint32_t s = 0; from->planning && s < job->n_stages; s++) {
        job->stages[s]->is_marked |= job->stages[s]->id > from->id;
    }
    from->is_marked = true;
    from->next_work = NULL;
    while (work != NULL) {
        struct stage *stage = work;
        work = stage->next_work;
        for (uint32_t i = stage->first_child; i != EDGE_NONE; i = job->edges[i].next_of_parent) {
            struct stage *child = job->stages[job->edges[i].child];
            if (!child->is_marked) {
                child->is_marked = true;
                child->next_work = work;
                work = child;
            }
        }
    }
}

/*
 * Map outputs went with the job's end: those that somebody has to read again are redone like any other loss. If it did not
 * succeed, so did results that workers had in files.
 */
static void reset_tasks(struct core *core, struct job *job, bool results_lost, bool has_failed)
{
    for (uint32_t s = 0; s < job->n_stages; s++) {
        struct stage *stage = job->stages[s];
        bool whole = stage->is_marked || (results_lost && stage->output == OUTPUT_RESULT);
        stage->is_marked = false;
        stage->ended_rows = 0;
        stage->ended_bytes = 0;
        if (stage->n_recovered > 0) {
            stage->n_recovered = 0; /* like the tasks' failures, they start anew */
            core__emit_stage(core, stage, false);
        }
        for (uint32_t t = 0; t < stage->n_tasks; t++) {
            const struct task *task = &stage->tasks[t];
            bool is_gone =
                has_failed && stage->output == OUTPUT_RESULT && task->output != NULL && !task->output->is_inline;
            if (whole || is_gone || task->state != TASK_SUCCEEDED) {
                reset_task(core, &stage->tasks[t]);
            }
        }
    }
}

static void revive(struct core *core, struct job *job)
{
    job_forget_ended(core, job);
    core->stats.jobs++;
    mem_free(job->message);
    job->message = NULL;
    job->state = JOB_QUEUED;
    job->started_at_ms = 0;
    job->finished_at_ms = 0;
    job_find_parent(core, job); /* which waits for the rows of a child that had succeeded */
    for (uint32_t s = 0; s < job->n_stages; s++) {
        for (int i = 0; i < TASK_STATE_COUNT; i++) {
            core->stats.tasks[i] += job->stages[s]->counts[i];
        }
    }
}

void job_retry(struct core *core, const struct command *command)
{
    const struct cmd_retry *retry = &command->u.retry;
    struct job *job = job_find(core, retry->job_id);
    if (job == NULL) {
        core__reply_error(core, command->reply_to, ERR_NOT_FOUND,
                          arena_format(&core->fx->arena, "there is no job '%s'", retry->job_id));
        return;
    }
    struct stage *from = retry->from_task == NULL ? NULL : stage_by_name(job, retry->from_task);
    if (retry->from_task != NULL && from == NULL) {
        const char *what = job->kind == JOB_KIND_QUERY ? "query has no stage" : "job has no task";
        core__reply_error(core, command->reply_to, ERR_INVALID,
                          arena_format(&core->fx->arena, "the %s '%s'", what, retry->from_task));
        return;
    }
    if (!job_state_is_terminal((enum job_state)job->state)) {
        reply_job(core, command->reply_to, REPLY_JOB, job, true);
        return;
    }
    if (job->n_stages == 0) {
        core__reply_error(core, command->reply_to, ERR_PRECONDITION,
                          "the job was never valid: mend it and submit it again");
        return;
    }
    bool has_reason = from != NULL || (job->kind == JOB_KIND_QUERY && retry->results_lost);
    if (job->state == JOB_SUCCEEDED && !has_reason) {
        core__reply_error(core, command->reply_to, ERR_PRECONDITION, "the job succeeded: there is nothing to retry");
        return;
    }
    if (!has_room(core, command->reply_to, job->n_tasks)) {
        return;
    }
    bool has_failed = job->state != JOB_SUCCEEDED;
    revive(core, job);
    if (from != NULL) {
        mark_dependents(job, from);
    }
    reset_tasks(core, job, retry->results_lost, has_failed);
    core__emit_job(core, job, false);
    core__job_event(core, EVENT_RETRIED, job, NULL);
    job_derive(core, job);
    reply_job(core, command->reply_to, REPLY_JOB, job, true);
}
