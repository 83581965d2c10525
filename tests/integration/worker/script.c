#include "integration/worker/script.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/sha256.h"

#define JOB "job-1"
#define TOKEN_BYTES 16

/* ---- small things ---- */

static void token_of(const struct script_task *task, uint8_t token[TOKEN_BYTES])
{
    uint64_t bits[2] = {(uint64_t)(task->task + 1) * UINT64_C(0x9e3779b97f4a7c15), task->attempt};
    memcpy(token, bits, TOKEN_BYTES);
}

static void fail_with(struct rpc_call *call, enum err code, const char *text, const char *leader)
{
    struct error e = {0};
    error_set(&e, code, "%s", text);
    rpc_call_fail(call, &e, leader);
}

static void reply_with(struct rpc_call *call, const void *message)
{
    struct buf bytes = {0};
    wire_encode(message, &bytes);
    rpc_call_reply(call, bytes.data, bytes.n);
    buf_deinit(&bytes);
}

static void hold(struct script *s, struct rpc_call *call)
{
    s->held = mem_grow(s->held, &s->cap_held, s->n_held + 1, sizeof *s->held);
    s->held[s->n_held++] = call;
}

/* Deals with calls that get no proper answer in this mood. True: it has been dealt with. Under the lock. */
static bool is_moody(struct script *s, struct rpc_call *call)
{
    const char *token = rpc_call_metadata(call, RPC_TOKEN_KEY);
    snprintf(s->token, sizeof s->token, "%s", token == NULL ? "" : token);
    if (s->is_closing) {
        fail_with(call, ERR_UNAVAILABLE, "closing", NULL);
    } else if (s->mood == MOOD_FOLLOW) {
        fail_with(call, ERR_PRECONDITION, "not the leader", s->leader);
    } else if (s->mood == MOOD_DENY) {
        fail_with(call, ERR_UNAUTHENTICATED, "wrong token", NULL);
    } else if (s->mood == MOOD_SILENT) {
        hold(s, call);
    } else {
        return false;
    }
    return true;
}

static void *read_request(struct rpc_call *call, enum pb_kind kind, struct arena *arena)
{
    size_t n = 0;
    const void *bytes = rpc_call_bytes(call, &n);
    void *message = NULL;
    struct error e = {0};
    if (wire_decode(kind, bytes, n, arena, &message, &e) != ERR_OK) {
        fail_with(call, ERR_INVALID, e.message, NULL);
        return NULL;
    }
    return message;
}

/* ---- registration ---- */

static void on_register(void *context, struct rpc_call *call)
{
    struct script *s = context;
    struct arena arena = {0};
    pthread_mutex_lock(&s->mutex);
    struct pb_register_worker_request *request = NULL;
    if (!is_moody(s, call) && (request = read_request(call, PB_REGISTER_WORKER_REQUEST, &arena)) != NULL) {
        s->n_registered++;
        s->mood = s->mood == MOOD_FORGETFUL ? MOOD_LEAD : s->mood;
        snprintf(s->incarnation, sizeof s->incarnation, "%s", request->incarnation);
        snprintf(s->worker_address, sizeof s->worker_address, "%s", request->address);
        s->executors[0] = '\0';
        for (size_t i = 0; i < request->n_executor_types; i++) {
            size_t n = strlen(s->executors);
            snprintf(s->executors + n, sizeof s->executors - n, "%s%s", i == 0 ? "" : ",", request->executor_types[i]);
        }
        struct pb_register_worker_response *answer = wire_new(PB_REGISTER_WORKER_RESPONSE, &arena);
        answer->heartbeat_interval_ms = s->beat_ms;
        answer->lease_ms = s->lease_ms;
        answer->orphan_ms = s->orphan_ms;
        answer->drain_timeout_ms = s->drain_ms;
        answer->kill_grace_ms = s->kill_grace_ms;
        answer->result_ttl_ms = s->result_ttl_ms;
        answer->shuffle_memory_bytes = s->shuffle_memory_bytes;
        reply_with(call, answer);
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    arena_deinit(&arena);
}

static void on_deregister(void *context, struct rpc_call *call)
{
    struct script *s = context;
    struct arena arena = {0};
    pthread_mutex_lock(&s->mutex);
    if (!is_moody(s, call) && read_request(call, PB_DEREGISTER_WORKER_REQUEST, &arena) != NULL) {
        s->n_deregistered++;
        reply_with(call, wire_new(PB_DEREGISTER_WORKER_RESPONSE, &arena));
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    arena_deinit(&arena);
}

/* ---- heartbeats ---- */

static void note_beat(struct script *s, const struct pb_heartbeat_request *beat)
{
    s->beats = mem_grow(s->beats, &s->cap_beats, s->n_beats + 1, sizeof *s->beats);
    s->beats[s->n_beats++] =
        (struct script_beat){clock_mono_ms(), (uint32_t)beat->n_running, beat->leaving, beat->load};
    s->n_named = 0;
    for (size_t i = 0; i < beat->n_running && i < ARRAY_LEN(s->named); i++) {
        s->named[s->n_named++] = (uint32_t)beat->running[i]->task_id;
    }
    for (size_t i = 0; i < beat->n_progress && i < ARRAY_LEN(s->progress); i++) {
        const struct pb_attempt_progress *from = beat->progress[i];
        s->progress[i] =
            (struct script_progress){(uint32_t)from->ref->task_id, from->fraction, from->rows, from->bytes};
        s->n_progress = (uint32_t)i + 1;
    }
    s->n_held_jobs = (uint32_t)beat->n_held_jobs;
    for (size_t i = 0; i < beat->n_held_jobs && i < ARRAY_LEN(s->held_jobs); i++) {
        snprintf(s->held_jobs[i], sizeof s->held_jobs[0], "%s", beat->held_jobs[i]);
    }
}

static void tell_ended(const struct script *s, struct pb_heartbeat_response *answer, struct arena *arena)
{
    for (uint32_t i = 0; s->ended_job != NULL && i < s->n_held_jobs && i < ARRAY_LEN(s->held_jobs); i++) {
        if (strcmp(s->held_jobs[i], s->ended_job) == 0) {
            answer->ended_jobs = arena_alloc(arena, sizeof *answer->ended_jobs);
            answer->ended_jobs[0] = (char *)s->ended_job;
            answer->n_ended_jobs = 1;
            answer->failed_jobs = answer->ended_jobs;
            answer->n_failed_jobs = s->ended_job_has_failed ? 1 : 0;
        }
    }
}

static void on_heartbeat(void *context, struct rpc_call *call)
{
    struct script *s = context;
    struct arena arena = {0};
    pthread_mutex_lock(&s->mutex);
    struct pb_heartbeat_request *beat = NULL;
    if (!is_moody(s, call) && (beat = read_request(call, PB_HEARTBEAT_REQUEST, &arena)) != NULL) {
        struct pb_heartbeat_response *answer = wire_new(PB_HEARTBEAT_RESPONSE, &arena);
        const char *reason = s->mood == MOOD_FORGETFUL ? "unknown worker: register first" : s->beat_reason;
        note_beat(s, beat);
        answer->accepted = reason == NULL;
        answer->reason = (char *)(reason == NULL ? "" : reason);
        answer->leader = s->leader;
        answer->drain = s->drain;
        answer->outputs_needed = beat->leaving ? s->outputs_needed : 0;
        if (s->stop != NULL && !s->stop_by_poll && reason == NULL) {
            answer->stop = arena_copy(&arena, &s->stop, sizeof s->stop);
            answer->n_stop = 1;
            s->stop = NULL;
        }
        tell_ended(s, answer, &arena);
        reply_with(call, answer);
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    arena_deinit(&arena);
}

/* ---- polls ---- */

static void describe_sources(const struct script_task *task, struct pb_task_assignment *a, struct arena *arena)
{
    a->sources = arena_alloc(arena, task->n_sources * sizeof *a->sources);
    for (uint32_t i = 0; i < task->n_sources; i++) {
        const struct exec_source *from = &task->sources[i];
        struct pb_map_output_location *source = wire_new(PB_MAP_OUTPUT_LOCATION, arena);
        source->ref = wire_new(PB_ATTEMPT_REF, arena);
        source->ref->query_id = (char *)JOB;
        source->ref->stage_id = from->stage;
        source->ref->task_id = from->task;
        source->ref->attempt = from->attempt;
        source->worker_id = (char *)from->worker_id;
        source->address = (char *)from->address;
        source->partitions = arena_alloc(arena, from->n_partitions * sizeof *source->partitions);
        for (uint32_t k = 0; k < from->n_partitions; k++) {
            struct pb_map_output_partition *partition = wire_new(PB_MAP_OUTPUT_PARTITION, arena);
            partition->reduce_partition = from->partitions[k].number;
            partition->bytes = from->partitions[k].bytes;
            partition->rows = from->partitions[k].rows;
            partition->batches = from->partitions[k].batches;
            partition->checksum = from->partitions[k].checksum;
            source->partitions[source->n_partitions++] = partition;
        }
        a->sources[a->n_sources++] = source;
    }
}

static bool is_known(const struct script *s, const uint8_t *digest)
{
    for (uint32_t i = 0; i < s->n_known; i++) {
        if (memcmp(s->known[i], digest, SHA256_BYTES) == 0) {
            return true;
        }
    }
    return false;
}

/* Once for each worker, as far as it says; what has been sent in this answer is known to it, too. */
static void describe_fragment(struct script *s, const struct script_task *task, struct pb_task_assignment *a,
                              struct arena *arena)
{
    uint8_t *digest = arena_alloc(arena, SHA256_BYTES);
    sha256_once(task->fragment, strlen(task->fragment), digest);
    bool is_sent = !task->is_bare && !is_known(s, digest);
    a->plan_fragment_json.data = (uint8_t *)task->fragment;
    a->plan_fragment_json.len = is_sent ? strlen(task->fragment) : 0;
    a->fragment.data = digest;
    a->fragment.len = SHA256_BYTES;
    s->n_fragments_sent += is_sent;
    if (is_sent && !task->is_damaged && s->n_known < ARRAY_LEN(s->known)) {
        memcpy(s->known[s->n_known++], digest, SHA256_BYTES);
    }
    digest[0] ^= task->is_damaged;
}

static struct pb_task_assignment *describe(struct script *s, const struct script_task *task, struct arena *arena)
{
    struct pb_task_assignment *a = wire_new(PB_TASK_ASSIGNMENT, arena);
    const char *inputs = task->inputs == NULL ? "{}" : task->inputs;
    a->query_id = (char *)JOB;
    a->task_id = task->task;
    a->attempt = task->attempt;
    a->plan_fragment_json.data = (uint8_t *)inputs;
    a->plan_fragment_json.len = strlen(inputs);
    a->lease_token.data = arena_alloc(arena, TOKEN_BYTES);
    a->lease_token.len = TOKEN_BYTES;
    token_of(task, a->lease_token.data);
    a->lease_ms = task->lease_ms == 0 ? s->lease_ms : task->lease_ms;
    a->executor = (char *)task->executor;
    a->idempotency_key = (char *)"key-of-the-attempt";
    a->task_key = (char *)"key-of-the-task";
    a->exclusive = task->exclusive;
    a->timeout_ms = task->timeout_ms;
    if (task->op != NULL) {
        a->required_custom_ops = arena_alloc(arena, sizeof *a->required_custom_ops);
        a->required_custom_ops[0] = (char *)task->op;
        a->n_required_custom_ops = 1;
    }
    if (task->fragment != NULL) {
        describe_fragment(s, task, a, arena);
    }
    describe_sources(task, a, arena);
    return a;
}

static void answer_poll(struct script *s, bool with_tasks)
{
    struct arena arena = {0};
    struct pb_get_task_response *answer = wire_new(PB_GET_TASK_RESPONSE, &arena);
    uint32_t n = s->n_tasks - s->n_given;
    n = n < s->poll_capacity ? n : s->poll_capacity;
    n = s->give_max > 0 && n > s->give_max ? s->give_max : n;
    n = with_tasks ? n : 0;
    answer->tasks = arena_alloc(&arena, (n + 1) * sizeof *answer->tasks);
    for (uint32_t i = 0; i < n; i++) {
        answer->tasks[answer->n_tasks++] = describe(s, &s->tasks[s->n_given++], &arena);
    }
    if (with_tasks && s->stop != NULL && s->stop_by_poll) {
        answer->stop = arena_copy(&arena, &s->stop, sizeof s->stop);
        answer->n_stop = 1;
        s->stop = NULL;
    }
    answer->waited_ms = (uint32_t)(clock_mono_ms() - s->poll_since_ms);
    reply_with(s->poll, answer);
    s->poll = NULL;
    arena_deinit(&arena);
}

static void serve(struct script *s)
{
    if (s->poll != NULL && rpc_call_is_gone(s->poll)) {
        fail_with(s->poll, ERR_CANCELED, "gone", NULL);
        s->poll = NULL;
    }
    bool has_task = s->n_given < s->n_tasks && s->poll_capacity > 0;
    bool has_stop = s->stop != NULL && s->stop_by_poll;
    if (s->poll != NULL && s->mood == MOOD_LEAD && (has_task || has_stop)) {
        answer_poll(s, true);
    }
}

static void on_get_task(void *context, struct rpc_call *call)
{
    struct script *s = context;
    struct arena arena = {0};
    pthread_mutex_lock(&s->mutex);
    struct pb_get_task_request *get = NULL;
    if (is_moody(s, call)) {
        goto out;
    }
    if (s->mood == MOOD_FORGETFUL) {
        fail_with(call, ERR_NOT_FOUND, "unknown worker: register first", NULL);
    } else if (s->poll_reason != NULL) {
        fail_with(call, ERR_STALE, s->poll_reason, NULL);
    } else if ((get = read_request(call, PB_GET_TASK_REQUEST, &arena)) != NULL && s->capacity_max > 0 &&
               get->capacity > s->capacity_max) {
        fail_with(call, ERR_EXHAUSTED, "the answer is too large", NULL);
    } else if (get != NULL) {
        if (s->poll != NULL) {
            answer_poll(s, false);
        }
        s->polls = mem_grow(s->polls, &s->cap_polls, s->n_polls + 1, sizeof *s->polls);
        s->polls[s->n_polls++] = (struct script_poll){get->capacity, clock_mono_ms()};
        s->poll = call;
        s->n_known = 0;
        for (size_t i = 0; i < get->n_known_fragments; i++) {
            memcpy(s->known[s->n_known++], get->known_fragments[i].data, SHA256_BYTES);
        }
        s->poll_capacity = get->capacity;
        s->poll_since_ms = clock_mono_ms();
        serve(s);
    }
out:
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    arena_deinit(&arena);
}

/* ---- reports ---- */

static void note_report(struct script *s, const struct pb_task_report *from)
{
    s->n_final += from->state != CAPSTAN__V1__TASK_STATE__TASK_STATE_RUNNING;
    s->reports = mem_grow(s->reports, &s->cap_reports, s->n_reports + 1, sizeof *s->reports);
    struct script_report *report = &s->reports[s->n_reports++];
    *report = (struct script_report){.task = (uint32_t)from->ref->task_id,
                                     .attempt = from->ref->attempt,
                                     .state = (int)from->state,
                                     .not_retryable = from->not_retryable,
                                     .result_bytes = from->result_json.len,
                                     .batch = s->n_batches};
    snprintf(report->message, sizeof report->message, "%s", from->message);
    bool is_small = from->result_json.len > 0 && from->result_json.len < 1000;
    if (is_small || from->n_map_output > 0 || from->query_results != NULL || from->plan_json.len > 0 ||
        from->n_fetch_failed > 0) {
        buf_reset(&s->full);
        wire_encode(from, &s->full);
    }
}

struct pb_task_report *script_full_report(struct script *s, struct arena *arena)
{
    struct pb_task_report *report = NULL;
    struct error e = {0};
    pthread_mutex_lock(&s->mutex);
    enum err err = wire_decode(PB_TASK_REPORT, s->full.data, s->full.n, arena, &report, &e);
    pthread_mutex_unlock(&s->mutex);
    ASSERT(err == ERR_OK); /* it was encoded from one that had been decoded */
    return report;
}

static bool is_poisoned(const struct script *s, const struct pb_report_task_status_request *request)
{
    for (size_t i = 0; s->poison != NULL && i < request->n_reports; i++) {
        if (strcmp(request->reports[i]->message, s->poison) == 0) {
            return true;
        }
    }
    return false;
}

static void answer_report(struct script *s, struct rpc_call *call, size_t n, struct arena *arena)
{
    struct pb_report_task_status_response *answer = wire_new(PB_REPORT_TASK_STATUS_RESPONSE, arena);
    answer->outcomes = arena_alloc(arena, (n + 1) * sizeof *answer->outcomes);
    for (size_t i = 0; i < n; i++) {
        struct pb_report_outcome *outcome = wire_new(PB_REPORT_OUTCOME, arena);
        outcome->accepted = s->refusal == NULL;
        outcome->reason = (char *)(s->refusal == NULL ? "" : s->refusal);
        answer->outcomes[answer->n_outcomes++] = outcome;
    }
    reply_with(call, answer);
}

static void on_report(void *context, struct rpc_call *call)
{
    struct script *s = context;
    struct arena arena = {0};
    pthread_mutex_lock(&s->mutex);
    struct pb_report_task_status_request *request = NULL;
    if (!is_moody(s, call) && (request = read_request(call, PB_REPORT_TASK_STATUS_REQUEST, &arena)) != NULL) {
        s->n_batches++;
        if (is_poisoned(s, request)) {
            fail_with(call, ERR_INVALID, "reports[0].message: poison", NULL);
        } else {
            for (size_t i = 0; i < request->n_reports; i++) {
                note_report(s, request->reports[i]);
            }
            if (s->lose_reports > 0) {
                s->lose_reports--;
                fail_with(call, ERR_UNAVAILABLE, "the answer is lost", NULL);
            } else if (s->hold_reports) {
                hold(s, call);
            } else {
                answer_report(s, call, request->n_reports, &arena);
            }
        }
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    arena_deinit(&arena);
}

/* All that is held are reports. */
void script_release_reports(struct script *s)
{
    pthread_mutex_lock(&s->mutex);
    s->hold_reports = false;
    for (uint32_t i = 0; i < s->n_held; i++) {
        struct arena arena = {0};
        struct pb_report_task_status_request *request = read_request(s->held[i], PB_REPORT_TASK_STATUS_REQUEST, &arena);
        answer_report(s, s->held[i], request->n_reports, &arena);
        arena_deinit(&arena);
    }
    s->n_held = 0;
    pthread_mutex_unlock(&s->mutex);
}

/* ---- start and stop ---- */

static struct script *start(const char *listen, bool hold_reports)
{
    static const struct rpc_method methods[] = {
        {"/capstan.v1.HeartbeatService/RegisterWorker", on_register},
        {"/capstan.v1.HeartbeatService/Heartbeat", on_heartbeat},
        {"/capstan.v1.HeartbeatService/DeregisterWorker", on_deregister},
        {"/capstan.v1.ControlPlane/GetTask", on_get_task},
        {"/capstan.v1.ControlPlane/ReportTaskStatus", on_report},
    };
    struct script *s = mem_calloc(1, sizeof *s);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&s->mutex, NULL);
    s->beat_ms = 100;
    s->lease_ms = 600;
    s->orphan_ms = 60000;
    s->drain_ms = 20000;
    s->kill_grace_ms = 500;
    s->hold_reports = hold_reports;
    struct rpc_server_options options = {.listen = listen == NULL ? "127.0.0.1:0" : listen,
                                         .methods = methods,
                                         .n_methods = ARRAY_LEN(methods),
                                         .context = s,
                                         .pollers = 2};
    struct error e = {0};
    enum err err = rpc_server_open(&options, &s->server, &e);
    for (int i = 0; i < 100 && err != ERR_OK; i++) { /* a port that was just given back */
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        err = rpc_server_open(&options, &s->server, &e);
    }
    ASSERT(err == ERR_OK);
    snprintf(s->address, sizeof s->address, "%s", rpc_server_address(s->server));
    return s;
}

struct script *script_start(const char *listen)
{
    return start(listen, false);
}

struct script *script_start_holding(const char *listen)
{
    return start(listen, true);
}

void script_stop(struct script *s)
{
    if (s == NULL) {
        return;
    }
    pthread_mutex_lock(&s->mutex);
    s->is_closing = true;
    struct rpc_call *poll = s->poll;
    s->poll = NULL;
    pthread_mutex_unlock(&s->mutex);
    if (poll != NULL) {
        fail_with(poll, ERR_UNAVAILABLE, "closing", NULL);
    }
    for (uint32_t i = 0; i < s->n_held; i++) {
        fail_with(s->held[i], ERR_UNAVAILABLE, "closing", NULL);
    }
    rpc_server_close(s->server, 0);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    arena_deinit(&s->arena);
    mem_free(s->held);
    mem_free(s->tasks);
    mem_free(s->reports);
    mem_free(s->polls);
    mem_free(s->beats);
    buf_deinit(&s->full);
    mem_free(s);
}

/* ---- orders ---- */

static void add(struct script *s, const struct script_task *task)
{
    s->tasks = mem_grow(s->tasks, &s->cap_tasks, s->n_tasks + 1, sizeof *s->tasks);
    s->tasks[s->n_tasks] = *task;
    s->tasks[s->n_tasks++].attempt += task->attempt == 0;
}

void script_add_all(struct script *s, const struct script_task *tasks, uint32_t n)
{
    pthread_mutex_lock(&s->mutex);
    for (uint32_t i = 0; i < n; i++) {
        add(s, &tasks[i]);
    }
    serve(s);
    pthread_mutex_unlock(&s->mutex);
}

void script_add(struct script *s, const struct script_task *task)
{
    script_add_all(s, task, 1);
}

void script_add_many(struct script *s, const char *executor, uint32_t first, uint32_t n)
{
    pthread_mutex_lock(&s->mutex);
    for (uint32_t i = 0; i < n; i++) {
        add(s, &(struct script_task){.task = first + i, .executor = executor});
    }
    serve(s);
    pthread_mutex_unlock(&s->mutex);
}

void script_order_stop(struct script *s, uint32_t task, uint32_t attempt, bool by_poll, bool wrong_token)
{
    pthread_mutex_lock(&s->mutex);
    struct pb_attempt_ref *ref = wire_new(PB_ATTEMPT_REF, &s->arena);
    ref->query_id = (char *)JOB;
    ref->task_id = task;
    ref->attempt = attempt;
    ref->lease_token.data = arena_alloc(&s->arena, TOKEN_BYTES);
    ref->lease_token.len = TOKEN_BYTES;
    token_of(&(struct script_task){.task = task, .attempt = attempt}, ref->lease_token.data);
    ref->lease_token.data[3] ^= wrong_token;
    s->stop = ref;
    s->stop_by_poll = by_poll;
    serve(s);
    pthread_mutex_unlock(&s->mutex);
}

void script_set_mood(struct script *s, enum script_mood mood)
{
    pthread_mutex_lock(&s->mutex);
    s->mood = mood;
    pthread_mutex_unlock(&s->mutex);
}

void script_name_leader(struct script *s, const char *address)
{
    pthread_mutex_lock(&s->mutex);
    snprintf(s->leader, sizeof s->leader, "%s", address);
    pthread_mutex_unlock(&s->mutex);
}

/* ---- waiting ---- */

bool script_wait_ms(struct script *s, script_holds_fn *holds, int64_t value, int64_t ms)
{
    int64_t until_ms = clock_mono_ms() + ms;
    struct timespec at = {.tv_sec = (time_t)(until_ms / 1000), .tv_nsec = (long)(until_ms % 1000) * 1000000};
    pthread_mutex_lock(&s->mutex);
    bool is_so = holds(s, value);
    while (!is_so && clock_mono_ms() < until_ms) {
        pthread_cond_timedwait(&s->changed, &s->mutex, &at);
        is_so = holds(s, value);
    }
    pthread_mutex_unlock(&s->mutex);
    return is_so;
}

bool script_wait(struct script *s, script_holds_fn *holds, int64_t value)
{
    return script_wait_ms(s, holds, value, SCRIPT_PATIENCE_MS);
}

bool script_wait_beat(struct script *s, script_holds_fn *holds, int64_t value)
{
    uint32_t beats = script_beats(s);
    return script_wait(s, has_beats, beats + 2) && script_wait(s, holds, value);
}

bool has_beats(const struct script *s, int64_t n)
{
    return s->n_beats >= n;
}

bool has_registered(const struct script *s, int64_t n)
{
    return s->n_registered >= n;
}

bool has_deregistered(const struct script *s, int64_t n)
{
    return s->n_deregistered >= n;
}

bool has_final(const struct script *s, int64_t n)
{
    return (int64_t)s->n_final >= n;
}

bool has_batches(const struct script *s, int64_t n)
{
    return s->n_batches >= n;
}

bool has_given(const struct script *s, int64_t n)
{
    return s->n_given >= n;
}

bool has_polls(const struct script *s, int64_t n)
{
    return s->n_polls >= n;
}

bool has_open_poll(const struct script *s, int64_t capacity)
{
    return s->poll != NULL && s->poll_capacity == capacity;
}

bool has_open_poll_for(const struct script *s, int64_t capacity_min)
{
    return s->poll != NULL && s->poll_capacity >= capacity_min;
}

bool names_task(const struct script *s, int64_t task)
{
    for (uint32_t i = 0; i < s->n_named; i++) {
        if (s->named[i] == task) {
            return true;
        }
    }
    return false;
}

bool names_nothing(const struct script *s, int64_t unused)
{
    (void)unused;
    return s->n_beats > 0 && s->n_named == 0;
}

bool names_exactly(const struct script *s, int64_t n)
{
    return s->n_beats > 0 && s->beats[s->n_beats - 1].n_running == n;
}

bool has_leaving_beat(const struct script *s, int64_t unused)
{
    (void)unused;
    return s->n_beats > 0 && s->beats[s->n_beats - 1].leaving;
}

bool has_known(const struct script *s, int64_t n)
{
    return s->poll != NULL && s->n_known == n;
}

bool has_progress(const struct script *s, int64_t task)
{
    for (uint32_t i = 0; i < s->n_progress; i++) {
        if (s->progress[i].task == task) {
            return true;
        }
    }
    return false;
}

bool holds_jobs(const struct script *s, int64_t n)
{
    return s->n_beats > 0 && s->n_held_jobs == n;
}

struct script_report script_last_report(struct script *s, uint32_t task)
{
    struct script_report found = {0};
    pthread_mutex_lock(&s->mutex);
    for (uint32_t i = 0; i < s->n_reports; i++) {
        found = s->reports[i].task == task ? s->reports[i] : found;
    }
    pthread_mutex_unlock(&s->mutex);
    return found;
}

uint32_t script_count_reports(struct script *s, uint32_t task, int state)
{
    uint32_t n = 0;
    pthread_mutex_lock(&s->mutex);
    for (uint32_t i = 0; i < s->n_reports; i++) {
        n += s->reports[i].task == task && s->reports[i].state == state;
    }
    pthread_mutex_unlock(&s->mutex);
    return n;
}

uint32_t script_beats(struct script *s)
{
    pthread_mutex_lock(&s->mutex);
    uint32_t n = s->n_beats;
    pthread_mutex_unlock(&s->mutex);
    return n;
}

struct script_facts script_facts(struct script *s)
{
    pthread_mutex_lock(&s->mutex);
    struct script_facts facts = {.n_registered = s->n_registered,
                                 .n_deregistered = s->n_deregistered,
                                 .n_batches = s->n_batches,
                                 .n_polls = s->n_polls,
                                 .n_final = s->n_final};
    snprintf(facts.incarnation, sizeof facts.incarnation, "%s", s->incarnation);
    snprintf(facts.executors, sizeof facts.executors, "%s", s->executors);
    snprintf(facts.worker_address, sizeof facts.worker_address, "%s", s->worker_address);
    snprintf(facts.token, sizeof facts.token, "%s", s->token);
    pthread_mutex_unlock(&s->mutex);
    return facts;
}
