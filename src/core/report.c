/*
 * Reports: what workers say about attempts, and when it counts.
 *
 * Only the holder of the current lease moves anything. A report that already won is accepted again, because its answer
 * may have been lost; everything else is refused with a reason and counted.
 */
#include <string.h>

#include "core/core_internal.h"

#define MISSING_OP_BEFORE "custom physical operator '"
#define MISSING_OP_AFTER "' is not registered on worker"

enum refusal core__refused(struct core *core, enum refusal refusal)
{
    core->stats.refused_total[refusal]++;
    return refusal;
}

/* The task that `ref` names; NULL with the reason if there is none. */
struct task *attempt_find(const struct core *core, const struct attempt_ref *ref, enum refusal *out_refusal)
{
    const struct job *job = job_find(core, ref->task.job_id);
    if (job == NULL) {
        *out_refusal = REFUSE_UNKNOWN_JOB;
        return NULL;
    }
    struct task *task = task_find(job, ref->task.stage, ref->task.task);
    *out_refusal = task == NULL ? REFUSE_UNKNOWN_TASK : REFUSE_NONE;
    return task;
}

/* Whether `ref` names the attempt of `task` that is running now. */
enum refusal attempt_current(const struct core *core, const struct attempt_ref *ref, const struct task *task)
{
    if (job_state_is_terminal((enum job_state)task->stage->job->state)) {
        return REFUSE_JOB_ENDED;
    }
    if (task->state != TASK_RUNNING || task->stage->child) {
        return REFUSE_STALE_ATTEMPT;
    }
    if (BUG(core, accept_stale_token)) {
        return REFUSE_NONE;
    }
    if (task->attempt != ref->attempt) {
        return REFUSE_STALE_ATTEMPT;
    }
    return lease_token_equal(task->token, ref->token) ? REFUSE_NONE : REFUSE_WRONG_TOKEN;
}

/* The same attempt said the same before, and it was taken. */
static bool is_repeat(const struct core *core, const struct task *task, const struct task_report *report)
{
    if (task->stage->child || task->attempt != report->ref.attempt ||
        !lease_token_equal(task->token, report->ref.token) || BUG(core, refuse_repeated_completion)) {
        return false;
    }
    return (report->state == TASK_SUCCEEDED && task->outcome == OUTCOME_COMPLETED) ||
           (report->state == TASK_FAILED && task->outcome == OUTCOME_FAILED);
}

/* The operator's name if the message says that it is missing on the worker; else NULL. */
static const char *missing_op(struct core *core, const char *message)
{
    size_t before = sizeof MISSING_OP_BEFORE - 1;
    size_t after = sizeof MISSING_OP_AFTER - 1;
    size_t n = message == NULL ? 0 : strlen(message);
    if (n <= before + after || strncmp(message, MISSING_OP_BEFORE, before) != 0 ||
        strcmp(message + n - after, MISSING_OP_AFTER) != 0) {
        return NULL;
    }
    size_t length = n - before - after;
    char *name = arena_alloc(&core->fx->arena, length + 1);
    memcpy(name, message + before, length);
    name[length] = '\0';
    return name;
}

static enum refusal take_failure(struct core *core, struct task *task, const struct task_report *report)
{
    struct worker *worker = task->u.lease->worker;
    const struct requirement *need = task->stage->queue->class->need->value;
    const char *op = missing_op(core, report->message);
    if (op != NULL && string_list_has(need->ops, op)) {
        worker_drop_op(core, worker, op);
        task_avoid(core, task, worker->id);
        task_requeue(core, task, OUTCOME_FAILED, report->message);
        return REFUSE_NONE;
    }
    if (report->n_fetch_failed > 0) {
        output_fetch_failed(core, task, report);
        return REFUSE_NONE;
    }
    if (!report->not_retryable) {
        worker_count_failure(core, worker, task);
    }
    task_retry_or_fail(
        core, task,
        &(struct failure){.message = report->message, .report = report, .is_retryable = !report->not_retryable});
    return REFUSE_NONE;
}

/* What the attempt leaves is there: it comes with the report, or was registered before, or the plan goes on. */
static enum refusal check_output(struct core *core, struct task *task, const struct task_report *report)
{
    const struct stage *stage = task->stage;
    enum refusal refusal = REFUSE_NONE;
    if (report->map_output != NULL) {
        refusal = output_take_map(core, task, report->map_output, report->n_map_output);
    } else if (report->query_results != NULL) {
        refusal = output_take_rows(core, task, report->query_results);
    }
    bool is_there = task->output != NULL && task->output->attempt == task->attempt;
    bool is_planned = stage->planning && report->n_added > 0;
    if (refusal == REFUSE_NONE && stage->output != OUTPUT_NONE && !is_there && !is_planned) {
        refusal = REFUSE_BAD_OUTPUT;
    }
    return refusal;
}

static enum refusal take_success(struct core *core, struct task *task, const struct task_report *report)
{
    struct stage *stage = task->stage;
    struct error e;
    enum refusal refusal = check_output(core, task, report);
    if (refusal != REFUSE_NONE) {
        worker_count_failure(core, task->u.lease->worker, task);
        task_retry_or_fail(
            core, task,
            &(struct failure){.message = "it succeeded without registering its output", .is_retryable = true});
        return core__refused(core, refusal);
    }
    if (report->n_added > 0) {
        enum err err = stage->planning ? job_add_stages(core, stage->job, report->added, report->n_added, &e)
                                       : error_set(&e, ERR_INVALID, "only planning tasks may add stages");
        if (err != ERR_OK) {
            const char *text = arena_format(&core->fx->arena, "the plan is not valid: %s", e.message);
            task_retry_or_fail(core, task, &(struct failure){.message = text});
            return core__refused(core, REFUSE_BAD_OUTPUT);
        }
    }
    output_tally(core, task, report->rows, report->bytes);
    worker_count_success(core, task->u.lease->worker);
    task_succeed(core, task, report);
    return REFUSE_NONE;
}

static enum refusal take_one(struct core *core, const struct cmd_report *cmd, const struct task_report *report,
                             bool *out_repeated)
{
    struct worker *worker = NULL;
    enum refusal refusal;
    struct task *task = attempt_find(core, &report->ref, &refusal);
    if (task == NULL) {
        return core__refused(core, refusal);
    }
    if (is_repeat(core, task, report)) {
        *out_repeated = true;
        return REFUSE_NONE;
    }
    refusal = attempt_current(core, &report->ref, task);
    if (refusal == REFUSE_NONE) {
        refusal = worker_speak(core, cmd->worker_id, cmd->incarnation, &worker);
    }
    if (refusal == REFUSE_NONE && task->u.lease->worker != worker && !BUG(core, accept_stale_token)) {
        refusal = REFUSE_WRONG_WORKER;
    }
#ifdef CAPSTAN_PLANTED_BUGS
    if (BUG(core, late_failure_revives_job) && refusal == REFUSE_JOB_ENDED && report->state == TASK_FAILED &&
        task->stage->job->state == JOB_CANCELED) {
        task->stage->job->state = JOB_FAILED;
        core__emit_job(core, task->stage->job, false);
    }
#endif
    if (refusal != REFUSE_NONE) {
        return core__refused(core, refusal);
    }
    switch (report->state) {
    case TASK_RUNNING:
        if (!task->u.lease->is_started) {
            task->u.lease->is_started = true;
            core__task_event(core, EVENT_STARTED, task, worker->id, NULL);
        }
        return REFUSE_NONE;
    case TASK_QUEUED:
        task_release(core, task, "released");
        return REFUSE_NONE;
    case TASK_SUCCEEDED:
        return take_success(core, task, report);
    case TASK_FAILED:
        return take_failure(core, task, report);
    case TASK_CANCELED:
    case TASK_SKIPPED:
        break;
    }
    return core__refused(core, REFUSE_BAD_OUTPUT);
}

void report_take(struct core *core, const struct command *command)
{
    const struct cmd_report *cmd = &command->u.report;
    enum refusal *outcomes = arena_alloc(&core->fx->arena, cmd->n_reports * sizeof *outcomes);
    bool *repeated = arena_zalloc(&core->fx->arena, cmd->n_reports * sizeof *repeated);
    for (uint32_t i = 0; i < cmd->n_reports; i++) {
        struct task_report report = cmd->reports[i];
        report.message = core__clip(core, report.message);
        outcomes[i] = take_one(core, cmd, &report, &repeated[i]);
        recovery_run(core);
    }
    struct reply *reply = core__reply(core, command->reply_to, REPLY_REPORT);
    reply->u.report.outcomes = outcomes;
    reply->u.report.repeated = repeated;
    reply->u.report.n_outcomes = cmd->n_reports;
}

/* The task that news from the coordinator are about; NULL if it does not wait for any, which has been answered then. */
static struct task *take_child_news(struct core *core, const struct command *command, const struct attempt_ref *ref)
{
    struct task *task = child_task_waiting(core, ref);
    if (task == NULL) {
        core__reply_error(core, command->reply_to, ERR_STALE, refusal_text(REFUSE_STALE_ATTEMPT));
    }
    return task;
}

void report_child_done(struct core *core, const struct command *command)
{
    const struct cmd_child_done *done = &command->u.child_done;
    struct task_report report = {
        .ref = done->ref, .result = done->result, .result_bytes = done->result_bytes, .rows = done->rows};
    struct task *task = take_child_news(core, command, &done->ref);
    if (task == NULL) {
        return;
    }
    output_tally(core, task, report.rows, report.bytes);
    task_succeed(core, task, &report);
    core__reply(core, command->reply_to, REPLY_ACCEPT)->u.accept = REFUSE_NONE;
}

void report_child_failed(struct core *core, const struct command *command)
{
    struct task *task = take_child_news(core, command, &command->u.child_failed.ref);
    if (task == NULL) {
        return;
    }
    task_retry_or_fail(core, task, &(struct failure){.message = core__clip(core, command->u.child_failed.message)});
    core__reply(core, command->reply_to, REPLY_DONE);
}
