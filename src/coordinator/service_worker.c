/* What workers call: registration, heartbeats, polls, reports, and where their outputs lie. */
#include <string.h>

#include "base/clock.h"
#include "coordinator/board.h"
#include "coordinator/query.h"
#include "coordinator/service_internal.h"
#include "wire/command.h"
#include "wire/reply.h"

/* ---- registration and heartbeats ---- */

static void answer_register(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    const struct settings *settings = &exchange->service->settings;
    if (exchange_failed(exchange, reply, err)) {
        return;
    }
    struct pb_register_worker_response *response = wire_register_reply(reply, &request->arena);
    response->orphan_ms = (uint32_t)settings->orphan_ms;
    response->drain_timeout_ms = (uint32_t)settings->drain_timeout_ms;
    response->kill_grace_ms = (uint32_t)settings->kill_grace_ms;
    response->result_ttl_ms = (uint64_t)settings->result_ttl_ms;
    response->shuffle_memory_bytes = (uint64_t)settings->shuffle_memory_bytes;
    exchange_reply(exchange, response);
}

void service__RegisterWorker(struct exchange *exchange)
{
    struct request *request = exchange->request;
    struct error e = {0};
    request->command.kind = CMD_REGISTER;
    if (wire_register(exchange->message, &request->arena, &request->command.u.reg, &e) != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    exchange_send(exchange, answer_register);
}

static void answer_heartbeat(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    if (exchange_failed(exchange, reply, err)) {
        return;
    }
    struct pb_heartbeat_response *response = wire_heartbeat_reply(reply, &request->arena);
    response->leader = exchange->service->address;
    exchange_reply(exchange, response);
}

void service__Heartbeat(struct exchange *exchange)
{
    struct request *request = exchange->request;
    struct error e = {0};
    request->command.kind = CMD_HEARTBEAT;
    board_take(exchange->service->board, exchange->message, clock_mono_ms());
    if (wire_heartbeat(exchange->message, &request->arena, &request->command.u.heartbeat, &e) != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    exchange_send(exchange, answer_heartbeat);
}

static void answer_deregister(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    if (!exchange_failed(exchange, reply, err)) {
        exchange_reply(exchange, wire_new(PB_DEREGISTER_WORKER_RESPONSE, &request->arena));
    }
}

void service__DeregisterWorker(struct exchange *exchange)
{
    struct request *request = exchange->request;
    struct error e = {0};
    request->command.kind = CMD_DEREGISTER;
    if (wire_deregister(exchange->message, &request->arena, &request->command.u.deregister, &e) != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    exchange_send(exchange, answer_deregister);
}

/* ---- polls ---- */

static void answer_get_task(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    if (exchange_failed(exchange, reply, err)) {
        return;
    }
    if (reply->u.tasks.n_tasks == 0) {
        exchange_reply(exchange, wire_tasks_reply(reply, &request->arena));
        return;
    }
    service__compose(exchange, reply);
}

void service__GetTask(struct exchange *exchange)
{
    struct request *request = exchange->request;
    struct error e = {0};
    request->command.kind = CMD_GET_TASK;
    if (wire_get_task(exchange->message, &request->arena, &request->command.u.get_task, &e) != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    exchange_send(exchange, answer_get_task);
}

/* ---- reports ---- */

/* Tasks that depend on these will want their results soon. */
static void remember_results(const struct exchange *exchange, const struct reply *reply)
{
    const struct cmd_report *report = &exchange->request->command.u.report;
    const struct payload *payloads = exchange->request->payloads;
    for (uint32_t i = 0; i < report->n_reports && i < reply->u.report.n_outcomes; i++) {
        const struct task_ref *ref = &report->reports[i].ref.task;
        bool is_new = reply->u.report.outcomes[i] == REFUSE_NONE && !reply->u.report.repeated[i];
        bool is_plan = report->reports[i].n_added > 0; /* the inputs of the tasks that it adds */
        if (is_new && report->reports[i].state == TASK_SUCCEEDED && ref->task == 0) {
            struct cache_key key = {.job_id = ref->job_id, .stage = ref->stage};
            key.digest = is_plan ? &payloads[i].digest : NULL;
            cache_put(exchange->service->cache, &key, payloads[i].bytes, payloads[i].n_bytes);
        }
    }
}

static void answer_report(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    if (exchange_failed(exchange, reply, err)) {
        return;
    }
    remember_results(exchange, reply);
    exchange_reply(exchange, wire_report_reply(reply, &request->arena));
}

/* A plan that came with a report: what it adds to the job. One that is wrong has failed its task for good. */
static void add_stages(const struct pb_task_report *message, struct task_report *report, struct arena *arena)
{
    struct error e = {0};
    bool is_plan = message->plan_json.len > 0 && report->state == TASK_SUCCEEDED && report->query_results == NULL;
    if (is_plan && query_stages(message->plan_json.data, message->plan_json.len, report->ref.task.stage, NULL, arena,
                                &report->added, &report->n_added, &e) != ERR_OK) {
        report->state = TASK_FAILED;
        report->not_retryable = true;
        report->message = arena_format(arena, "the plan is not valid: %s", e.message);
        report->n_added = 0;
    }
}

/* Results come first, one place for each report; then rows of final tasks, likewise. */
static void keep_payloads(struct request *request, const struct pb_report_task_status_request *message,
                          const struct wire_bytes *results)
{
    const struct cmd_report *report = &request->command.u.report;
    uint32_t n = report->n_reports;
    bool has_rows = false;
    for (uint32_t i = 0; i < n; i++) {
        has_rows |= report->reports[i].query_results != NULL;
    }
    struct payload *payloads = arena_zalloc(&request->arena, (has_rows ? 2 : 1) * n * sizeof *payloads);
    for (uint32_t i = 0; i < n; i++) {
        const struct attempt_ref *ref = &report->reports[i].ref;
        if (task_state_is_terminal(report->reports[i].state)) { /* what a failed command wrote is wanted, too */
            payloads[i] = (struct payload){.job_id = ref->task.job_id,
                                           .digest = report->reports[i].result,
                                           .bytes = results[i].data,
                                           .n_bytes = results[i].n};
        }
        const struct task_rows *rows = report->reports[i].query_results;
        if (rows != NULL && rows->is_inline && report->reports[i].state == TASK_SUCCEEDED) {
            payloads[n + i] = (struct payload){.job_id = ref->task.job_id,
                                               .digest = service__result_digest(ref->task, ref->attempt),
                                               .bytes = message->reports[i]->query_results->ipc_payload.data,
                                               .n_bytes = message->reports[i]->query_results->ipc_payload.len};
        }
    }
    request->payloads = payloads;
    request->n_payloads = has_rows ? 2 * n : n;
}

static void keep_tables(struct request *request, const struct pb_report_task_status_request *message)
{
    const struct cmd_report *report = &request->command.u.report;
    struct data_set *made = NULL;
    for (uint32_t i = 0; i < report->n_reports; i++) {
        const struct pb_table *table = message->reports[i]->table;
        if (table != NULL && report->reports[i].state == TASK_SUCCEEDED) {
            made = made != NULL ? made : arena_zalloc(&request->arena, report->n_reports * sizeof *made);
            made[i] = (struct data_set){.name = table->name, .source = table->source, .format = table->format};
        }
    }
    request->made = made;
}

static void take_reports(struct exchange *exchange)
{
    const struct pb_report_task_status_request *message = exchange->message;
    struct request *request = exchange->request;
    struct cmd_report *report = &request->command.u.report;
    const struct wire_bytes *results = NULL;
    struct error e = {0};
    request->command.kind = CMD_REPORT;
    if (wire_report(message, &request->arena, report, &results, &e) != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    struct task_report *reports = (struct task_report *)(uintptr_t)report->reports; /* made just now, in our arena */
    for (uint32_t i = 0; i < report->n_reports; i++) {
        add_stages(message->reports[i], &reports[i], &request->arena);
    }
    keep_payloads(request, message, results);
    keep_tables(request, message);
    exchange_send(exchange, answer_report);
}

static void take_large_reports(struct clerk *clerk, void *context)
{
    UNUSED(clerk);
    take_reports(context);
}

/* To check many results takes seconds, in which the poller would see no heartbeats. */
void service__ReportTaskStatus(struct exchange *exchange)
{
    if (exchange->weight > 0) {
        office_send(exchange->service->takers, exchange->request->sender, take_large_reports, exchange);
    } else {
        take_reports(exchange);
    }
}

/* ---- outputs ---- */

static void answer_map_output(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    if (!exchange_failed(exchange, reply, err)) {
        exchange_reply(exchange, wire_map_output_reply(reply, &request->arena));
    }
}

void service__RegisterMapOutput(struct exchange *exchange)
{
    struct request *request = exchange->request;
    struct error e = {0};
    request->command.kind = CMD_MAP_OUTPUT;
    if (wire_map_output(exchange->message, &request->arena, &request->command.u.map_output, &e) != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    exchange_send(exchange, answer_map_output);
}

static void answer_results(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    if (!exchange_failed(exchange, reply, err)) {
        exchange_reply(exchange, wire_results_reply(reply, &request->arena));
    }
}

void service__RegisterQueryResults(struct exchange *exchange)
{
    const struct pb_register_query_results_request *message = exchange->message;
    struct request *request = exchange->request;
    struct error e = {0};
    request->command.kind = CMD_RESULTS;
    if (wire_results(message, &request->arena, &request->command.u.results, &e) != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    if (request->command.u.results.rows.is_inline) {
        struct payload *payload = arena_zalloc(&request->arena, sizeof *payload);
        const struct attempt_ref *ref = &request->command.u.results.ref;
        *payload = (struct payload){.job_id = ref->task.job_id,
                                    .digest = service__result_digest(ref->task, ref->attempt),
                                    .bytes = message->ipc_payload.data,
                                    .n_bytes = message->ipc_payload.len};
        request->payloads = payload;
        request->n_payloads = 1;
    }
    exchange_send(exchange, answer_results);
}
