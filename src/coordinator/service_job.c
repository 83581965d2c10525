/*
 * What clients call about jobs: submit, status, cancel, retry, why.
 *
 * Texts that can be long (trees) are read by a clerk, who also looks whether the job is known from long ago, so that new
 * jobs do not wait for the finder one after the other. Questions about jobs that have left the leader's memory are answered by a clerk from a core of
 * its own, loaded with just that job.
 */
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/sha256.h"
#include "coordinator/board.h"
#include "coordinator/service_internal.h"
#include "core/idempotency.h"
#include "wire/command.h"
#include "wire/reply.h"
#include "wire/tree.h"

struct digest service__result_digest(struct task_ref ref, uint32_t attempt)
{
    struct digest none = {{0}};
    return attempt_key(ref, attempt, &none);
}

/* ---- submit ---- */

const char *service__new_job_id(struct arena *arena)
{
    char uuid[UUID_TEXT_BYTES];
    random_uuid7(uuid);
    return arena_strdup(arena, uuid);
}

void service__look_up(struct service *service, struct clerk *clerk, struct request *request)
{
    const struct cmd_submit *submit = &request->command.u.submit;
    struct sight sight = coordinator_sight(atomic_load(&service->coordinator));
    struct store *store;
    const char *by_key;
    bool is_known = false;
    if (clerk_store(clerk, &store, NULL) != ERR_OK) {
        return;
    }
    enum err err = clerk_note(clerk, store_known_jobs(store, &submit->job_id, 1, &is_known, NULL));
    if (err == ERR_OK && !is_known && submit->idempotency_key != NULL) {
        err = clerk_note(clerk, store_find_key(store, submit->idempotency_key, 0, &request->arena, &by_key, NULL));
        is_known = err == ERR_OK;
        err = err == ERR_NOT_FOUND ? ERR_OK : err;
    }
    if (err == ERR_OK && !is_known) {
        request->unknown = sight;
    }
}

void service__remember_inputs(struct service *service, const struct request *request)
{
    for (uint32_t i = 0; i < request->n_payloads; i++) {
        struct cache_key key = {.job_id = request->payloads[i].job_id, .digest = &request->payloads[i].digest};
        cache_put(service->cache, &key, request->payloads[i].bytes, request->payloads[i].n_bytes);
    }
}

static void answer_submit(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    if (exchange_failed(exchange, reply, err)) {
        return;
    }
    if (!reply->u.job.existed) {
        service__remember_inputs(exchange->service, request);
    }
    exchange_reply(exchange, wire_submit_tasks_reply(reply, &request->arena));
}

void service__submit_tree(struct request *request, const struct tree_submit *tree)
{
    struct cmd_submit *submit = &request->command.u.submit;
    struct payload *payloads = arena_alloc(&request->arena, tree->n_payloads * sizeof *payloads);
    request->command.kind = CMD_SUBMIT;
    submit->kind = JOB_KIND_TREE;
    submit->name = tree->name;
    submit->priority = tree->priority;
    submit->stop_on_failure = tree->stop_on_failure;
    submit->content = tree->content;
    submit->stages = tree->stages;
    submit->n_stages = tree->n_stages;
    for (uint32_t i = 0; i < tree->n_payloads; i++) {
        payloads[i] = (struct payload){.job_id = submit->job_id,
                                       .digest = tree->payloads[i].digest,
                                       .bytes = tree->payloads[i].bytes,
                                       .n_bytes = tree->payloads[i].n};
    }
    request->payloads = payloads;
    request->n_payloads = tree->n_payloads;
}

static void submit_tasks(struct clerk *clerk, void *context)
{
    struct exchange *exchange = context;
    struct request *request = exchange->request;
    const struct pb_submit_tasks_request *message = exchange->message;
    struct tree_submit tree;
    struct error e = {0};
    if (exchange_is_gone(exchange)) {
        error_set(&e, ERR_CANCELED, "the client has gone");
        exchange_fail(exchange, &e);
        return;
    }
    if (wire_read_tree(message->tree_json.data, message->tree_json.len, &request->arena, &tree, NULL, &e) != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    struct cmd_submit *submit = &request->command.u.submit;
    submit->job_id = message->job_id[0] != '\0' ? message->job_id : service__new_job_id(&request->arena);
    submit->idempotency_key = message->idempotency_key[0] != '\0' ? message->idempotency_key : NULL;
    service__submit_tree(request, &tree);
    service__look_up(exchange->service, clerk, request);
    exchange_send(exchange, answer_submit);
}

void service__SubmitTasks(struct exchange *exchange)
{
    if (exchange_needs_leader(exchange)) {
        office_send(exchange->service->takers, exchange->request->sender, submit_tasks, exchange);
    }
}

/* ---- reads about one job ---- */

static void read_job(const struct core *core, struct request *request)
{
    const struct exchange *exchange = exchange_of(request);
    struct job_question *question = exchange->more;
    if (core_has_job(core, question->job_id)) {
        question->found = question->read(core, question->job_id, &request->arena);
        if (question->found != NULL && question->add != NULL) {
            question->add(exchange->service, core, question->found);
        }
    }
}

struct scratch {
    struct core *core;
    struct effects fx;
    struct core_input input;
    bool is_ended;
};

static void scratch_step(struct scratch *scratch, const struct command *command)
{
    core_step(scratch->core, &scratch->input, command, &scratch->fx);
    effects_reset(&scratch->fx);
}

static void scratch_row(void *context, const struct row *row)
{
    struct scratch *scratch = context;
    struct command command = {.kind = CMD_LOAD, .u.load = row};
    if (row->kind == ROW_JOB) {
        const struct row_job *job = (const struct row_job *)(const void *)row;
        scratch->is_ended = job_state_is_terminal(job->state);
    }
    if (scratch->is_ended) {
        scratch_step(scratch, &command);
    }
}

static void go_on(struct exchange *exchange)
{
    struct job_question *question = exchange->more;
    if (question->then != NULL) {
        question->then(exchange, question->found);
    } else {
        exchange_reply(exchange, question->found);
    }
}

enum err service__ask_store(struct service *service, struct clerk *clerk, struct job_question *question,
                            struct arena *arena, struct error *e)
{
    struct scratch scratch = {.input = {.now_ms = 1}};
    struct store *store;
    random_bytes(scratch.input.seed, sizeof scratch.input.seed);
    scratch.core = core_new(&service->settings.core, scratch.input.seed[0]);
    enum err err = clerk_store(clerk, &store, e);
    if (err == ERR_OK) {
        err = clerk_note(clerk, store_load_job(store, question->job_id, scratch_row, &scratch, e));
    }
    if (err == ERR_OK && scratch.is_ended) {
        struct command command = {.kind = CMD_LOADED_JOB, .u.loaded_job = question->job_id};
        scratch_step(&scratch, &command);
        question->found = question->read(scratch.core, question->job_id, arena);
    }
    effects_deinit(&scratch.fx);
    core_free(scratch.core);
    return err;
}

static void answer_from_store(struct clerk *clerk, void *context)
{
    struct exchange *exchange = context;
    struct job_question *question = exchange->more;
    struct error e = {0};
    enum err err = service__ask_store(exchange->service, clerk, question, &exchange->request->arena, &e);
    if (err == ERR_NOT_FOUND) {
        error_set(&e, ERR_NOT_FOUND, "there is no job '%s'", question->job_id);
        error_hint(&e, "jobs that ended long ago are removed; capstan jobs lists what there is");
    } else if (err == ERR_OK && question->found == NULL) {
        error_set(&e, ERR_UNAVAILABLE, "job '%s' is changing hands at this moment", question->job_id);
    }
    if (question->found == NULL) {
        exchange_fail(exchange, &e);
    } else {
        go_on(exchange);
    }
}

static void answer_question(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    const struct job_question *question = exchange->more;
    if (exchange_failed(exchange, reply, err)) {
        return;
    }
    if (question->found != NULL) {
        go_on(exchange);
    } else {
        office_send(exchange->service->readers, exchange->request->sender, answer_from_store, exchange);
    }
}

void service__ask(struct exchange *exchange, const struct job_question *question)
{
    exchange->more = arena_copy(&exchange->request->arena, question, sizeof *question);
    exchange->about = question->job_id;
    exchange->request->read = read_job;
    exchange_send(exchange, answer_question);
}

static struct pb_stage_status *read_stage(const struct core *core, const char *job_id, uint32_t stage,
                                          struct arena *arena)
{
    struct stage_status status = {0};
    uint32_t n = 0;
    enum err err = core_stage_status(core, job_id, stage, &status);
    ASSERT(err == ERR_OK);
    struct pb_stage_status *message = wire_stage(stage, &status, arena);
    const uint32_t *parents = core_stage_parents(core, job_id, stage, arena, &n);
    message->parents = arena_alloc(arena, n * sizeof *message->parents);
    for (uint32_t i = 0; i < n; i++) {
        message->parents[i] = parents[i];
    }
    message->n_parents = n;
    return message;
}

static void *read_status(const struct core *core, const char *job_id, struct arena *arena)
{
    struct pb_get_query_status_response *response = wire_new(PB_GET_QUERY_STATUS_RESPONSE, arena);
    struct job_status status;
    if (core_job_status(core, job_id, &status) != ERR_OK) {
        return NULL;
    }
    response->status = wire_job_status(&status, arena);
    if (status.n_stages <= LIMIT_STAGES_IN_STATUS) {
        response->status->stages = arena_alloc(arena, status.n_stages * sizeof *response->status->stages);
        for (uint32_t i = 0; i < status.n_stages; i++) {
            response->status->stages[i] = read_stage(core, job_id, i, arena);
        }
        response->status->n_stages = status.n_stages;
    }
    wire_own(response, arena); /* what a core says is true until its next step */
    return response;
}

static void add_progress(const struct service *service, const struct core *core, void *found)
{
    struct pb_get_query_status_response *response = found;
    if (response->status->state == CAPSTAN__V1__QUERY_STATE__QUERY_STATE_RUNNING) {
        board_add(service->board, core, response->status);
    }
}

void service__GetQueryStatus(struct exchange *exchange)
{
    const struct pb_get_query_status_request *message = exchange->message;
    if (message->wait_ms > 0) {
        exchange->request->await_job = message->query_id;
        exchange->request->await_until_mono_ms = clock_mono_ms() + message->wait_ms;
    }
    service__ask(exchange,
                 &(struct job_question){.job_id = message->query_id, .read = read_status, .add = add_progress});
}

static void *read_why(const struct core *core, const char *job_id, struct arena *arena)
{
    struct pb_why_pending_response *response = wire_new(PB_WHY_PENDING_RESPONSE, arena);
    struct pending_reason *reasons = arena_alloc(arena, LIMIT_PAGE * sizeof *reasons);
    uint32_t n = core_why_pending(core, job_id, arena, reasons, LIMIT_PAGE);
    response->reasons = arena_alloc(arena, n * sizeof *response->reasons);
    for (uint32_t i = 0; i < n; i++) {
        response->reasons[i] = wire_pending_reason(job_id, &reasons[i], arena);
    }
    response->n_reasons = n;
    wire_own(response, arena);
    return response;
}

void service__WhyPending(struct exchange *exchange)
{
    const struct pb_why_pending_request *message = exchange->message;
    service__ask(exchange, &(struct job_question){.job_id = message->query_id, .read = read_why});
}

/* ---- cancel and retry ---- */

static void answer_cancel(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    if (!exchange_failed(exchange, reply, err)) {
        exchange_reply(exchange, wire_cancel_reply(reply, &request->arena));
    }
}

void service__CancelQuery(struct exchange *exchange)
{
    struct request *request = exchange->request;
    struct error e = {0};
    request->command.kind = CMD_CANCEL;
    if (wire_cancel(exchange->message, &request->arena, &request->command.u.cancel, &e) != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    exchange_send(exchange, answer_cancel);
}

static void answer_retry(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    if (!exchange_failed(exchange, reply, err)) {
        exchange_reply(exchange, wire_retry_reply(reply, &request->arena));
    }
}

void service__RetryJob(struct exchange *exchange)
{
    struct request *request = exchange->request;
    struct error e = {0};
    request->command.kind = CMD_RETRY;
    if (wire_retry(exchange->message, &request->arena, &request->command.u.retry, &e) != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    request->command.u.retry.results_lost = lost_results_has(exchange->service->lost, request->command.u.retry.job_id);
    exchange_send(exchange, answer_retry);
}
