/*
 * cluster_calls.c - what clients, workers and operators of the test cluster say, and what they remember of the answers.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/sha256.h"
#include "base/siphash.h"
#include "cluster.h"

const struct requirement ANY_WORKER = {0};
const struct offer NOTHING_SPECIAL = {0};

struct digest digest_of(const char *text)
{
    struct digest digest;
    sha256_once(text, strlen(text), digest.bytes);
    return digest;
}

bool digest_equal(struct digest a, struct digest b)
{
    return memcmp(a.bytes, b.bytes, sizeof(a.bytes)) == 0;
}

struct task_ref at(const char *job_id, uint32_t stage, uint32_t task)
{
    return (struct task_ref){.job_id = job_id, .stage = stage, .task = task};
}

/* ---- jobs ---- */

struct cmd_submit submit_request(const char *job_id, enum job_kind kind, const struct stage_spec *stages, uint32_t n)
{
    return (struct cmd_submit){
        .job_id = job_id,
        .kind = kind,
        .priority = 2,
        .content = digest_of(job_id),
        .stages = stages,
        .n_stages = n,
    };
}

const struct reply *submit(struct cluster *c, const struct cmd_submit *request)
{
    struct command command = {.kind = CMD_SUBMIT, .u = {.submit = *request}};
    return cluster_do(c, &command);
}

void submit_ok(struct cluster *c, const struct cmd_submit *request)
{
    const struct reply *reply = submit(c, request);
    if (reply->kind == REPLY_ERROR) {
        CHECK_STR(reply->message, "");
    }
    CHECK_INT(reply->kind, REPLY_SUBMIT);
    CHECK_STR(reply->u.job.job_id, request->job_id);
    CHECK(!reply->u.job.existed);
}

void submit_stages(struct cluster *c, const char *job_id, enum job_kind kind, const struct stage_spec *stages,
                   uint32_t n)
{
    struct cmd_submit request = submit_request(job_id, kind, stages, n);
    submit_ok(c, &request);
}

void submit_tasks(struct cluster *c, const char *job_id, uint32_t n_tasks)
{
    submit_tasks_for(c, job_id, n_tasks, &ANY_WORKER);
}

void submit_tasks_for(struct cluster *c, const char *job_id, uint32_t n_tasks, const struct requirement *need)
{
    struct stage_spec stage = QUERY_STAGE(n_tasks);
    stage.need = need;
    submit_stages(c, job_id, JOB_KIND_QUERY, &stage, 1);
}

void submit_tasks_urgent(struct cluster *c, const char *job_id, uint32_t n_tasks, uint8_t priority)
{
    struct stage_spec stage = QUERY_STAGE(n_tasks);
    struct cmd_submit request = submit_request(job_id, JOB_KIND_QUERY, &stage, 1);
    request.priority = priority;
    submit_ok(c, &request);
}

const struct reply *child_is_done(struct cluster *c, struct attempt_ref ref)
{
    struct command command = {
        .kind = CMD_CHILD_DONE,
        .u.child_done = {.ref = ref, .result = digest_of("{\"row_count\":42}"), .result_bytes = 16, .rows = 42}};
    return cluster_do(c, &command);
}

void child_is_read(struct cluster *c, const char *job_id)
{
    const struct child_end *end = c->fx.child_ends;
    while (end != NULL && end->next != NULL) {
        end = end->next;
    }
    CHECK(end != NULL);
    CHECK_STR(end->job_id, job_id);
    const struct reply *reply = child_is_done(c, end->ref);
    CHECK_INT(reply->kind, REPLY_ACCEPT);
    CHECK_INT(reply->u.accept, REFUSE_NONE);
}

enum job_state client_cancels(struct cluster *c, const char *job_id)
{
    struct command command = {.kind = CMD_CANCEL, .u = {.cancel = {.job_id = job_id, .reason = "by hand"}}};
    const struct reply *reply = cluster_do(c, &command);
    CHECK_INT(reply->kind, REPLY_JOB);
    CHECK_STR(reply->u.job.job_id, job_id);
    return reply->u.job.state;
}

enum job_state client_retries(struct cluster *c, const char *job_id)
{
    const struct reply *reply = client_retries_from(c, job_id, NULL);
    CHECK_INT(reply->kind, REPLY_JOB);
    CHECK_STR(reply->u.job.job_id, job_id);
    return reply->u.job.state;
}

const struct reply *client_retries_from(struct cluster *c, const char *job_id, const char *task_name)
{
    struct command command = {.kind = CMD_RETRY, .u = {.retry = {.job_id = job_id, .from_task = task_name}}};
    return cluster_do(c, &command);
}

struct task_status task_of(const struct cluster *c, const char *job_id, uint32_t stage, uint32_t task)
{
    struct task_status status = {0};
    CHECK_ERR(core_task_status(c->core, at(job_id, stage, task), &status), ERR_OK);
    return status;
}

enum task_state state_of(const struct cluster *c, const char *job_id, uint32_t stage, uint32_t task)
{
    return task_of(c, job_id, stage, task).state;
}

struct job_status job_of(const struct cluster *c, const char *job_id)
{
    struct job_status status = {0};
    CHECK_ERR(core_job_status(c->core, job_id, &status), ERR_OK);
    return status;
}

enum job_state job_state_of(const struct cluster *c, const char *job_id)
{
    return job_of(c, job_id).state;
}

/* ---- workers: lives ---- */

struct worker *worker_named(const struct cluster *c, const char *name)
{
    for (struct worker *w = c->workers; w != NULL; w = w->next) {
        if (strcmp(w->name, name) == 0) {
            return w;
        }
    }
    CHECK_STR("no such worker", name);
    return NULL;
}

static struct worker *add_worker(struct cluster *c, const char *name, const char *worker_id, const struct offer *offer)
{
    struct worker *w = arena_zalloc(&c->arena, sizeof(*w));
    w->name = arena_strdup(&c->arena, name);
    w->worker_id = arena_strdup(&c->arena, worker_id);
    w->offer = *offer;
    w->slots = 8;
    struct worker **end = &c->workers;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = w;
    return w;
}

static void start_process(struct cluster *c, struct worker *w)
{
    w->starts++;
    snprintf(w->incarnation, sizeof(w->incarnation), "%.40s#%u", w->name, w->starts);
    w->n_running = 0;
    w->beats = true;
    CHECK_INT(worker_registers(c, w->name)->kind, REPLY_REGISTER);
}

void worker_joins(struct cluster *c, const char *name)
{
    worker_joins_with(c, name, &NOTHING_SPECIAL);
}

void worker_joins_with(struct cluster *c, const char *name, const struct offer *offer)
{
    start_process(c, add_worker(c, name, name, offer));
}

void worker_joins_as(struct cluster *c, const char *name, const char *worker_id)
{
    start_process(c, add_worker(c, name, worker_id, &NOTHING_SPECIAL));
}

const struct reply *worker_registers(struct cluster *c, const char *name)
{
    struct worker *w = worker_named(c, name);
    char *address = arena_format(&c->arena, "%s.test:7401", name);
    struct command command = {
        .kind = CMD_REGISTER,
        .u = {.reg = {.worker_id = w->worker_id,
                      .incarnation = w->incarnation,
                      .address = address,
                      .slots = w->slots,
                      .offer = w->offer,
                      .version = "1.0"}},
    };
    w->next_beat_ms = c->now_ms + c->config.heartbeat_interval_ms;
    return cluster_do(c, &command);
}

void worker_dies(struct cluster *c, const char *name)
{
    struct worker *w = worker_named(c, name);
    w->beats = false;
    w->n_running = 0;
}

void worker_restarts(struct cluster *c, const char *name)
{
    start_process(c, worker_named(c, name));
}

void worker_forgets(struct cluster *c, const char *name)
{
    worker_named(c, name)->n_running = 0;
}

static bool same_attempt(const struct attempt_ref *a, const struct attempt_ref *b)
{
    return a->attempt == b->attempt && a->task.stage == b->task.stage && a->task.task == b->task.task &&
           lease_token_equal(a->token, b->token) && strcmp(a->task.job_id, b->task.job_id) == 0;
}

static bool text_matches(const void *value, const void *text)
{
    return strcmp(value, text) == 0;
}

/* A reference whose job id stays valid as long as the cluster. */
static struct attempt_ref lasting(struct cluster *c, struct attempt_ref ref)
{
    struct siphash_key salt = {0};
    uint64_t hash = siphash(&salt, ref.task.job_id, strlen(ref.task.job_id));
    char *id = map_get(&c->jobs, hash, text_matches, ref.task.job_id);
    if (id == NULL) {
        id = arena_strdup(&c->arena, ref.task.job_id);
        map_put(&c->jobs, hash, id);
    }
    ref.task.job_id = id;
    return ref;
}

static void forget_attempt(struct worker *w, const struct attempt_ref *ref)
{
    for (uint32_t i = 0; i < w->n_running; i++) {
        if (same_attempt(&w->running[i], ref)) {
            w->running[i] = w->running[--w->n_running];
            return;
        }
    }
}

static void obey_stops(struct cluster *c, struct worker *w, const struct attempt_ref *stop, uint32_t n)
{
    w->stopped = mem_grow(w->stopped, &w->cap_stopped, w->n_stopped + n, sizeof(*w->stopped));
    for (uint32_t i = 0; i < n; i++) {
        w->stopped[w->n_stopped++] = lasting(c, stop[i]);
        forget_attempt(w, &stop[i]);
    }
}

bool worker_was_stopped(const struct cluster *c, const char *name, const struct assignment *a)
{
    const struct worker *w = worker_named(c, name);
    for (uint32_t i = 0; i < w->n_stopped; i++) {
        const struct attempt_ref *ref = &w->stopped[i];
        if (ref->attempt == a->ref.attempt && ref->task.stage == a->ref.task.stage &&
            ref->task.task == a->ref.task.task && strcmp(ref->task.job_id, a->ref.task.job_id) == 0) {
            return true;
        }
    }
    return false;
}

const struct reply *worker_beats(struct cluster *c, const char *name)
{
    struct worker *w = worker_named(c, name);
    struct command command = {
        .kind = CMD_HEARTBEAT,
        .u = {.heartbeat = {.worker_id = w->worker_id,
                            .incarnation = w->incarnation,
                            .running = w->running,
                            .n_running = w->n_running,
                            .ops = w->offer.ops,
                            .load = (double)w->n_running / w->slots,
                            .is_leaving = w->is_leaving}},
    };
    const struct reply *reply = cluster_do(c, &command);
    CHECK_INT(reply->kind, REPLY_HEARTBEAT);
    obey_stops(c, w, reply->u.heartbeat.stop, reply->u.heartbeat.n_stop);
    w->next_beat_ms = c->now_ms + c->config.heartbeat_interval_ms;
    return reply;
}

const struct reply *worker_leaves(struct cluster *c, const char *name)
{
    struct worker *w = worker_named(c, name);
    struct command command = {
        .kind = CMD_DEREGISTER,
        .u = {.deregister = {.worker_id = w->worker_id, .incarnation = w->incarnation}},
    };
    worker_dies(c, name);
    return cluster_do(c, &command);
}

void operator_drains(struct cluster *c, const char *name, bool draining)
{
    struct cmd_set_node set = {
        .worker_id = worker_named(c, name)->worker_id, .set_draining = true, .draining = draining};
    struct command command = {.kind = CMD_SET_NODE, .u = {.set_node = set}};
    CHECK_INT(cluster_do(c, &command)->kind, REPLY_DONE);
}

void operator_clears(struct cluster *c, const char *name)
{
    struct cmd_set_node set = {.worker_id = worker_named(c, name)->worker_id, .clear_blacklist = true};
    struct command command = {.kind = CMD_SET_NODE, .u = {.set_node = set}};
    CHECK_INT(cluster_do(c, &command)->kind, REPLY_DONE);
}

struct node_info node_of(const struct cluster *c, const char *name)
{
    struct node_info info = {0};
    CHECK_ERR(core_node(c->core, worker_named(c, name)->worker_id, &info), ERR_OK);
    return info;
}

/* ---- workers: work ---- */

static struct command get_task(const struct worker *w, uint32_t capacity, uint32_t wait_ms)
{
    return (struct command){
        .kind = CMD_GET_TASK,
        .u = {.get_task =
                  {.worker_id = w->worker_id, .incarnation = w->incarnation, .capacity = capacity, .wait_ms = wait_ms}},
    };
}

static void remember_tasks(struct cluster *c, struct worker *w, const struct reply *reply)
{
    CHECK_INT(reply->kind, REPLY_TASKS);
    uint32_t n = 0;
    for (const struct assignment *a = reply->u.tasks.first; a != NULL; a = a->next) {
        w->running = mem_grow(w->running, &w->cap_running, w->n_running + 1, sizeof(*w->running));
        w->running[w->n_running++] = lasting(c, a->ref);
        n++;
    }
    CHECK_UINT(reply->u.tasks.n_tasks, n);
    obey_stops(c, w, reply->u.tasks.stop, reply->u.tasks.n_stop);
}

const struct reply *worker_polls(struct cluster *c, const char *name, uint32_t capacity)
{
    struct worker *w = worker_named(c, name);
    struct command command = get_task(w, capacity, 0);
    const struct reply *reply = cluster_do(c, &command);
    CHECK(reply != NULL);
    CHECK(reply->u.tasks.n_tasks <= capacity);
    remember_tasks(c, w, reply);
    return reply;
}

uint64_t worker_waits(struct cluster *c, const char *name, uint32_t capacity, uint32_t wait_ms)
{
    struct command command = get_task(worker_named(c, name), capacity, wait_ms);
    cluster_do(c, &command);
    return command.reply_to;
}

const struct reply *worker_answer(struct cluster *c, const char *name, uint64_t handle)
{
    const struct reply *reply = cluster_reply(c, handle);
    if (reply != NULL && c->answers[handle] == 1) {
        c->answers[handle] = 2;
        remember_tasks(c, worker_named(c, name), reply);
    }
    return reply;
}

const struct assignment *worker_takes(struct cluster *c, const char *name)
{
    const struct reply *reply = worker_polls(c, name, 1);
    CHECK_UINT(reply->u.tasks.n_tasks, 1);
    return reply->u.tasks.first;
}

void worker_gets_nothing(struct cluster *c, const char *name)
{
    CHECK_UINT(worker_polls(c, name, 1000)->u.tasks.n_tasks, 0);
}

const struct assignment *worker_takes_task(struct cluster *c, const char *name, struct task_ref ref)
{
    const struct assignment *a = worker_takes(c, name);
    CHECK_STR(a->ref.task.job_id, ref.job_id);
    CHECK_UINT(a->ref.task.stage, ref.stage);
    CHECK_UINT(a->ref.task.task, ref.task);
    return a;
}

uint32_t worker_takes_up_to(struct cluster *c, const char *name, uint32_t capacity)
{
    return worker_polls(c, name, capacity)->u.tasks.n_tasks;
}

bool refusal_is_stale(enum refusal refusal)
{
    static const char text[] = "stale attempt";
    return strncmp(refusal_text(refusal), text, sizeof(text) - 1) == 0;
}

struct task_report report_on(const struct assignment *a, enum task_state state)
{
    return (struct task_report){.ref = a->ref, .state = state};
}

enum refusal worker_reports(struct cluster *c, const char *name, const struct task_report *report)
{
    struct worker *w = worker_named(c, name);
    struct command command = {
        .kind = CMD_REPORT,
        .u = {.report = {.worker_id = w->worker_id, .incarnation = w->incarnation, .reports = report, .n_reports = 1}},
    };
    const struct reply *reply = cluster_do(c, &command);
    CHECK_INT(reply->kind, REPLY_REPORT);
    CHECK_UINT(reply->u.report.n_outcomes, 1);
    if (report->state != TASK_RUNNING) {
        forget_attempt(w, &report->ref); /* answered */
    }
    return reply->u.report.outcomes[0];
}

enum refusal worker_succeeds(struct cluster *c, const char *name, const struct assignment *a)
{
    struct task_report report = report_on(a, TASK_SUCCEEDED);
    return worker_reports(c, name, &report);
}

enum refusal worker_fails(struct cluster *c, const char *name, const struct assignment *a, const char *message)
{
    struct task_report report = report_on(a, TASK_FAILED);
    report.message = message;
    return worker_reports(c, name, &report);
}

enum refusal worker_fails_for_good(struct cluster *c, const char *name, const struct assignment *a, const char *message)
{
    struct task_report report = report_on(a, TASK_FAILED);
    report.message = message;
    report.not_retryable = true;
    return worker_reports(c, name, &report);
}

enum refusal worker_releases(struct cluster *c, const char *name, const struct assignment *a)
{
    struct task_report report = report_on(a, TASK_QUEUED);
    return worker_reports(c, name, &report);
}

enum refusal worker_starts(struct cluster *c, const char *name, const struct assignment *a)
{
    struct task_report report = report_on(a, TASK_RUNNING);
    return worker_reports(c, name, &report);
}

enum refusal worker_cannot_fetch(struct cluster *c, const char *name, const struct assignment *a,
                                 const struct source *source)
{
    struct attempt_ref lost = {.task = source->ref, .attempt = source->attempt};
    struct task_report report = report_on(a, TASK_FAILED);
    report.message = "fetch failed";
    report.fetch_failed = &lost;
    report.n_fetch_failed = 1;
    return worker_reports(c, name, &report);
}

static enum refusal accepted(const struct reply *reply)
{
    CHECK_INT(reply->kind, REPLY_ACCEPT);
    return reply->u.accept;
}

enum refusal worker_registers_map(struct cluster *c, const char *name, const struct assignment *a,
                                  uint32_t n_partitions)
{
    struct partition *partitions = mem_calloc(n_partitions + 1, sizeof(*partitions));
    for (uint32_t i = 0; i < n_partitions; i++) {
        partitions[i] = (struct partition){.bytes = 1000 + i, .rows = 10 + i, .batches = 1, .checksum = 77 + i};
    }
    struct cmd_map_output output = {.ref = a->ref,
                                    .worker_id = worker_named(c, name)->worker_id,
                                    .partitions = partitions,
                                    .n_partitions = n_partitions};
    struct command command = {.kind = CMD_MAP_OUTPUT, .u = {.map_output = output}};
    const struct reply *reply = cluster_do(c, &command);
    mem_free(partitions);
    return accepted(reply);
}

enum refusal worker_registers_result(struct cluster *c, const char *name, const struct assignment *a, uint64_t bytes,
                                     bool is_inline)
{
    struct cmd_results results = {.ref = a->ref,
                                  .worker_id = worker_named(c, name)->worker_id,
                                  .rows = {.rows = 5, .bytes = bytes, .is_inline = is_inline}};
    struct command command = {.kind = CMD_RESULTS, .u = {.results = results}};
    return accepted(cluster_do(c, &command));
}

const struct assignment *worker_maps(struct cluster *c, const char *name, struct task_ref ref, uint32_t n_partitions)
{
    const struct assignment *a = worker_takes_task(c, name, ref);
    CHECK_INT(worker_registers_map(c, name, a, n_partitions), REFUSE_NONE);
    CHECK_INT(worker_succeeds(c, name, a), REFUSE_NONE);
    return a;
}

const struct assignment *worker_runs(struct cluster *c, const char *name, struct task_ref ref)
{
    const struct assignment *a = worker_takes_task(c, name, ref);
    CHECK_INT(worker_succeeds(c, name, a), REFUSE_NONE);
    return a;
}

uint64_t worker_drains_queue(struct cluster *c, const char *name, uint32_t capacity)
{
    struct worker *w = worker_named(c, name);
    struct task_report *reports = mem_calloc(capacity, sizeof(*reports));
    uint64_t total = 0;
    for (;;) {
        cluster_forget(c);
        const struct reply *reply = worker_polls(c, name, capacity);
        uint32_t n = 0;
        for (const struct assignment *a = reply->u.tasks.first; a != NULL; a = a->next) {
            reports[n++] = report_on(a, TASK_SUCCEEDED);
        }
        if (n == 0) {
            break;
        }
        struct command command = {
            .kind = CMD_REPORT,
            .u = {.report =
                      {.worker_id = w->worker_id, .incarnation = w->incarnation, .reports = reports, .n_reports = n}},
        };
        const struct reply *answer = cluster_do(c, &command);
        CHECK_UINT(answer->u.report.n_outcomes, n);
        for (uint32_t i = 0; i < n; i++) {
            CHECK_INT(answer->u.report.outcomes[i], REFUSE_NONE);
        }
        w->n_running = 0;
        total += n;
    }
    mem_free(reports);
    return total;
}
