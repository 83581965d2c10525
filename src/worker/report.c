/*
 * Reports: one thread tells the leader how attempts ended.
 *
 * A batch leaves as soon as there is something to say and no other is on its way; what ends meanwhile makes the next
 * one. Outcomes are sent again, unchanged, until a leader has answered them: repeating is harmless, because a report that
 * already counted is accepted again, and one that does not count any more is refused. Outcomes are kept even when no
 * coordinator was there for longer than running attempts may go on: they are done, and the next leader may want them.
 *
 * That an attempt runs is told only when it has run for a while: most are over sooner, and the assignment has made the
 * same thing durable already. It adds the event "started" for people who watch long tasks.
 */
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/planted.h"
#include "worker/worker_internal.h"

#define BATCH_MAX 1000
#define BATCH_BYTES_MAX ((size_t)4 * 1024 * 1024)
#define BATCH_FIELDS_MAX (LIMIT_REQUEST_FIELDS / 2) /* a single report has fewer */
#define REPORT_FIELDS 24                            /* without its lists */
#define LIST_FIELDS 6                               /* of a partition, and of a map output that was lost */
#define LIST_BYTES ((size_t)64)                     /* of a partition; one that was lost has its job's name besides */
#define TIMEOUT_MS 30000
#define PAUSE_MS_MAX 1000
#define GATHER_US 500
#define CROWDED_MAX 10 /* a coordinator may have too many calls at the moment; after so many tries it is the report */

/* What is on its way. The attempts are in state SENT and nobody else's; what is told of running ones is a copy. */
struct batch {
    struct attempt *attempts[BATCH_MAX];
    uint32_t n;
    struct pb_task_report **reports; /* in the arena: those of running ones first, then those of `attempts` */
    uint32_t n_started;
    struct arena arena;
    struct buf request;
};

/* ---- gathering ---- */

static void add_started_locked(struct worker *worker, struct batch *batch)
{
    for (struct list *first; batch->n_started < BATCH_MAX && (first = list_first(&worker->started)) != NULL;) {
        struct attempt *attempt = CONTAINER_OF(first, struct attempt, in_started);
        list_remove(first);
        struct pb_task_report *report = wire_new(PB_TASK_REPORT, &batch->arena);
        report->ref = worker__attempt_ref(attempt, &batch->arena);
        report->ref->query_id = arena_strdup(&batch->arena, attempt->job_id);
        report->ref->lease_token.data = arena_copy(&batch->arena, attempt->token, TOKEN_BYTES);
        report->state = CAPSTAN__V1__TASK_STATE__TASK_STATE_RUNNING;
        batch->reports[batch->n_started++] = report;
    }
}

static void take_done_locked(struct worker *worker, struct batch *batch)
{
    uint32_t n_max = worker->single_reports > 0 ? 1 : BATCH_MAX - batch->n_started;
    size_t bytes = 0;
    uint32_t fields = 0;
    for (struct list *first; batch->n < n_max && (first = list_first(&worker->done)) != NULL;) {
        struct attempt *attempt = CONTAINER_OF(first, struct attempt, in_line);
        bytes += attempt->report_bytes;
        fields += attempt->report_fields;
        if (batch->n > 0 && (bytes > BATCH_BYTES_MAX || fields > BATCH_FIELDS_MAX)) {
            break;
        }
        list_remove(first);
        attempt->state = ATTEMPT_SENT;
        attempt->was_sent = true;
        batch->attempts[batch->n++] = attempt;
    }
    worker->n_done -= batch->n;
    worker->n_sent += batch->n;
}

static uint32_t lost_count(const struct attempt *attempt)
{
    uint32_t n = attempt->outcome.n_lost;
    return n < LIMIT_FETCH_FAILED ? n : LIMIT_FETCH_FAILED;
}

void worker__report_measure(struct attempt *attempt)
{
    const struct exec_outcome *outcome = &attempt->outcome;
    size_t lost_bytes = LIST_BYTES + strlen(attempt->job_id);
    attempt->report_bytes = outcome->result.n + outcome->message.n + outcome->plan.n + outcome->output.ipc.n +
                            outcome->output.n_partitions * LIST_BYTES + lost_count(attempt) * lost_bytes;
    attempt->report_fields = REPORT_FIELDS + (outcome->output.n_partitions + lost_count(attempt)) * LIST_FIELDS;
}

static void set_bytes(ProtobufCBinaryData *out, const struct buf *from)
{
    out->data = (uint8_t *)from->data;
    out->len = from->n;
}

static void describe_map(struct pb_task_report *report, const struct exec_output *output, struct arena *arena)
{
    report->map_output = arena_alloc(arena, output->n_partitions * sizeof *report->map_output);
    for (uint32_t i = 0; i < output->n_partitions; i++) {
        struct pb_map_output_partition *partition = wire_new(PB_MAP_OUTPUT_PARTITION, arena);
        partition->reduce_partition = output->partitions[i].number;
        partition->bytes = output->partitions[i].bytes;
        partition->rows = output->partitions[i].rows;
        partition->batches = output->partitions[i].batches;
        partition->checksum = output->partitions[i].checksum;
        report->map_output[report->n_map_output++] = partition;
    }
}

static void describe_rows(struct pb_task_report *report, const struct exec_output *output, struct arena *arena)
{
    report->query_results = wire_new(PB_TASK_ROWS, arena);
    report->query_results->bytes = output->bytes;
    report->query_results->rows = output->rows;
    set_bytes(&report->query_results->ipc_payload, &output->ipc);
}

static void describe_lost(struct pb_task_report *report, const struct attempt *attempt, struct arena *arena)
{
    uint32_t n = lost_count(attempt);
    report->fetch_failed = arena_alloc(arena, n * sizeof *report->fetch_failed);
    for (uint32_t i = 0; i < n; i++) {
        struct pb_attempt_ref *ref = wire_new(PB_ATTEMPT_REF, arena);
        ref->query_id = (char *)attempt->job_id;
        ref->stage_id = attempt->outcome.lost[i].stage;
        ref->task_id = attempt->outcome.lost[i].task;
        ref->attempt = attempt->outcome.lost[i].attempt;
        report->fetch_failed[report->n_fetch_failed++] = ref;
    }
}

/*
 * What a run leaves counts only if it succeeded: one that was over its time may have left something, too. Nothing is copied:
 * the attempt lives until the report has been answered.
 */
static struct pb_task_report *describe(const struct attempt *attempt, struct arena *arena)
{
    const struct exec_outcome *outcome = &attempt->outcome;
    struct pb_task_report *report = wire_new(PB_TASK_REPORT, arena);
    report->ref = worker__attempt_ref(attempt, arena);
    report->state = attempt->verdict;
    report->not_retryable = outcome->not_retryable;
    report->rows = outcome->rows;
    report->bytes = outcome->bytes;
    if (outcome->message.n > 0) {
        report->message = outcome->message.data;
    }
    set_bytes(&report->result_json, &outcome->result);
    if (!outcome->is_success) {
        describe_lost(report, attempt, arena);
        return report;
    }
    set_bytes(&report->plan_json, &outcome->plan);
    if (outcome->table_name.n > 0) {
        report->table = wire_new(PB_TABLE, arena);
        report->table->name = outcome->table_name.data;
        report->table->source = outcome->table_files.data;
        report->table->format = (char *)(uintptr_t) "parquet";
    }
    if (outcome->output.kind == EXEC_OUTPUT_MAP) {
        describe_map(report, &outcome->output, arena);
    } else if (outcome->output.kind == EXEC_OUTPUT_RESULT) {
        describe_rows(report, &outcome->output, arena);
    }
    return report;
}

static void encode(const struct worker *worker, struct batch *batch)
{
    struct pb_report_task_status_request *request = wire_new(PB_REPORT_TASK_STATUS_REQUEST, &batch->arena);
    request->worker_id = worker->worker_id;
    request->incarnation = (char *)worker->incarnation;
    request->reports = batch->reports;
    request->n_reports = batch->n_started + batch->n;
    buf_reset(&batch->request);
    wire_encode(request, &batch->request);
}

/* Waits until there is something to tell, and takes it. False: the worker ends. */
static bool gather(struct worker *worker, struct batch *batch)
{
    batch->reports = arena_alloc(&batch->arena, BATCH_MAX * sizeof(struct pb_task_report *));
    pthread_mutex_lock(&worker->mutex);
    while (!worker->is_reporter_closed &&
           (!worker->is_registered || (worker->n_done == 0 && list_is_empty(&worker->started)))) {
        worker->is_reporter_waiting = true;
        pthread_cond_wait(&worker->report_cond, &worker->mutex);
    }
    worker->is_reporter_waiting = false;
    if (worker->n_queued > 0 && worker->n_done < worker->slots / 2) {
        /* More wait for a slot, so more end in a moment. */
        worker__wait_until(&worker->report_cond, &worker->mutex, clock_mono_us() + GATHER_US);
    }
    bool goes_on = !worker->is_reporter_closed;
    if (goes_on) {
        add_started_locked(worker, batch);
        take_done_locked(worker, batch);
    }
    pthread_mutex_unlock(&worker->mutex);
    if (!goes_on) {
        return false;
    }
    for (uint32_t i = 0; i < batch->n; i++) {
        batch->reports[batch->n_started + i] = describe(batch->attempts[i], &batch->arena);
    }
    encode(worker, batch);
    return true;
}

/*
 * Nobody has answered. What the batch says of running attempts may not be true any more when somebody does, so it is
 * not sent again: the next heartbeat starts anew with those that still run. Returns whether anything is left to send.
 */
static bool drop_started(struct worker *worker, struct batch *batch)
{
    if (batch->n_started == 0) {
        return true;
    }
    pthread_mutex_lock(&worker->mutex);
    for (uint32_t i = 0; i < batch->n_started; i++) {
        worker__attempt_tell_started_later_locked(worker, batch->reports[i]->ref);
    }
    pthread_mutex_unlock(&worker->mutex);
    batch->reports += batch->n_started;
    batch->n_started = 0;
    encode(worker, batch);
    return batch->n > 0;
}

/* ---- answers ---- */

/* The batch has been answered, or cannot be: puts back those in `again`, frees the others. */
static void settle(struct worker *worker, struct batch *batch, const bool *again, uint32_t n_refused)
{
    struct list garbage;
    list_init(&garbage);
    pthread_mutex_lock(&worker->mutex);
    worker->n_sent -= batch->n;
    for (uint32_t i = batch->n; i-- > 0;) {
        struct attempt *attempt = batch->attempts[i];
        if (again != NULL && again[i]) {
            attempt->state = ATTEMPT_DONE;
            list_push_front(&worker->done, &attempt->in_line);
            worker->n_done++;
            continue;
        }
        worker__attempt_forget_locked(worker, attempt);
        list_push_back(&garbage, &attempt->in_line);
    }
    worker->stats.refused_total += n_refused;
    worker->stats.reports_total++;
    if (worker->single_reports > 0) {
        worker->single_reports--;
    }
    worker__watch_look_locked(worker);
    pthread_mutex_unlock(&worker->mutex);
    worker__attempts_free(&garbage);
}

static void take_answer(struct worker *worker, struct batch *batch, const struct pb_report_task_status_response *answer)
{
    bool again[BATCH_MAX] = {false};
    bool must_register = false;
    uint32_t n_refused = 0;
    for (uint32_t i = 0; i < batch->n; i++) {
        size_t at = batch->n_started + i;
        const struct pb_report_outcome *outcome = at < answer->n_outcomes ? answer->outcomes[at] : NULL;
        if (outcome == NULL || outcome->accepted) {
            batch->attempts[i]->is_refused =
                batch->attempts[i]->verdict != CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED;
            continue;
        }
        if (strstr(outcome->reason, TEXT_UNKNOWN_WORKER) != NULL) {
            again[i] = must_register = true; /* nobody has looked at the attempt itself yet */
            continue;
        }
        n_refused++;
        batch->attempts[i]->is_refused = true;
        log_line(n_refused == 1 ? LOG_INFO : LOG_DEBUG, "report", ATTEMPT_FORMAT " refused: %s",
                 ATTEMPT_VALUES(batch->attempts[i]), outcome->reason);
    }
    if (n_refused > 1) {
        log_info("report", "%u of %u refused", n_refused, batch->n);
    }
    if (must_register) {
        worker__heartbeat_register_again(worker);
    }
    settle(worker, batch, again, n_refused);
}

/*
 * A leader does not want the batch as it is, and will not next time. Its reports are sent one by one; the one that is
 * the cause becomes a plain failure that says so, and is dropped if even that is refused.
 */
static void take_refusal(struct worker *worker, struct batch *batch, const struct error *e)
{
    bool again[BATCH_MAX] = {false};
    bool is_single = batch->n == 1 && batch->n_started == 0;
    log_warn("report", "%u reports refused: %s", batch->n, e->message);
    if (is_single && !batch->attempts[0]->is_replaced) {
        struct attempt *attempt = batch->attempts[0];
        attempt->is_replaced = true;
        attempt->verdict = CAPSTAN__V1__TASK_STATE__TASK_STATE_FAILED;
        pthread_mutex_lock(&worker->mutex);
        worker__shuffle_discard_locked(worker, attempt);
        pthread_mutex_unlock(&worker->mutex);
        exec_outcome_deinit(&attempt->outcome);
        exec_fail(&attempt->outcome, true, "the coordinator refused the outcome: %s", e->message);
        again[0] = true;
    } else if (!is_single) {
        memset(again, true, batch->n * sizeof *again);
    }
    if (!is_single) {
        pthread_mutex_lock(&worker->mutex);
        worker->single_reports = batch->n + 1;
        pthread_mutex_unlock(&worker->mutex);
    }
    settle(worker, batch, again, 0);
}

/* Sends the batch until a leader has answered it. False: the worker ends. */
static bool deliver(struct worker *worker, struct batch *batch)
{
    struct call call = {"/capstan.v1.ControlPlane/ReportTaskStatus", &batch->request, TIMEOUT_MS};
    struct buf bytes = {0};
    struct error e = {0};
    bool goes_on = true;
    uint32_t crowded = 0;
    for (bool is_over = false; !is_over && goes_on;) {
        struct pb_report_task_status_response *answer = NULL;
        buf_reset(&bytes);
        enum err err = worker__caller_call(&worker->leader, &worker->report_caller, &call, &bytes, &e);
        if (err == ERR_OK) {
            err = wire_decode(PB_REPORT_TASK_STATUS_RESPONSE, bytes.data, bytes.n, &batch->arena, &answer, &e);
        } else if (err == ERR_INVALID || (err == ERR_EXHAUSTED && ++crowded >= CROWDED_MAX)) {
            take_refusal(worker, batch, &e);
            break;
        }
        is_over = err == ERR_OK;
        if (PLANTED(drop_report) && err == ERR_UNAVAILABLE) {
            settle(worker, batch, NULL, 0);
            break;
        }
        if (is_over) {
            take_answer(worker, batch, answer);
        } else if (err != ERR_CANCELED) {
            log_line(err == ERR_UNAVAILABLE ? LOG_DEBUG : LOG_WARN, "report", "no answer: %s", e.message);
            worker__caller_pause(&worker->leader, &worker->report_caller, PAUSE_MS_MAX);
        }
        is_over = is_over || !drop_started(worker, batch);
        pthread_mutex_lock(&worker->mutex);
        goes_on = !worker->is_reporter_closed;
        pthread_mutex_unlock(&worker->mutex);
    }
    buf_deinit(&bytes);
    return goes_on;
}

void *worker__report_main(void *context)
{
    struct worker *worker = context;
    struct batch *batch = mem_calloc(1, sizeof *batch);
    bool goes_on = true;
    while (goes_on) {
        arena_reset(&batch->arena);
        batch->n = 0;
        batch->n_started = 0;
        goes_on = gather(worker, batch) && deliver(worker, batch);
    }
    arena_deinit(&batch->arena);
    buf_deinit(&batch->request);
    mem_free(batch);
    return NULL;
}
