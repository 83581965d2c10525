/*
 * Tasks of trees that run as jobs: the executor "sql".
 *
 * When such a task starts, the core asks for a child job. A clerk puts the task's inputs together, as for a worker, and
 * submits the query in them with the waiting attempt as its parent. The child's id follows from that attempt, so that a
 * new leader who is asked the same again submits the same job and finds out what has become of it. When the child has
 * succeeded, a clerk reads its first rows and sends them as the task's result; a child that failed fails the task inside
 * the core.
 *
 * The task waits until the core is told, so every errand ends with a command, unless there is nobody to tell: the loop
 * says that this process does not lead (the next leader begins anew), or the core that the task does not wait any more.
 * What only failed for the moment is tried again after a pause.
 *
 * A child whose time is limited is watched by the one who submitted it, and canceled when its time is over.
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "coordinator/rows_json.h"
#include "coordinator/service_internal.h"
#include "wire/canonical.h"

#define PRIORITY_NORMAL 2
#define ID_DIGEST_BYTES 16 /* of the child's id */
#define ROWS_MAX 1000
#define ROWS_BYTES_MAX ((size_t)256 * 1024)
#define PAUSE_NS 200000000
#define READ_TRIES 5

/* One errand; it belongs to whoever has it, a clerk or the loop, and ends with child_free. */
struct child {
    struct service *service;
    struct arena arena;
    struct attempt_ref ref; /* that waits */
    struct digest identity; /* of that attempt */
    const char *job_id;     /* of the child */
    struct task_inputs inputs;
    struct fleet fleet;
    const char *name;
    uint8_t priority;
    struct result_pieces *pieces;
    uint32_t timeout_ms;   /* 0: none */
    int64_t until_mono_ms; /* when it ends */
    bool has_ended;
    uint32_t n_tries;       /* to read the rows */
    struct relay *relay;    /* while they are read, */
    struct rows_json *rows; /* into this */
    struct office *office;  /* for the next step, */
    clerk_fn *next;         /* which is this */
};

/* ---- errands ---- */

static struct child *child_new(struct service *service, const struct attempt_ref *ref)
{
    struct child *child = mem_calloc(1, sizeof *child);
    child->service = service;
    child->ref = *ref;
    child->ref.task.job_id = arena_strdup(&child->arena, ref->task.job_id);
    return child;
}

static void child_free(struct child *child)
{
    arena_deinit(&child->arena);
    mem_free(child);
}

/* The loop calls before service_start has said where it is; that takes no time to speak of. */
static struct coordinator *coordinator_of(struct service *service)
{
    struct coordinator *coordinator;
    while ((coordinator = atomic_load(&service->coordinator)) == NULL) {
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return coordinator;
}

static void send_request(struct child *child, struct request *request)
{
    coordinator_send(coordinator_of(child->service), request);
}

static void look_nowhere(const struct core *core, struct request *request)
{
    UNUSED(core);
    UNUSED(request);
}

static void answer_look(struct request *request, const struct reply *reply, enum err err)
{
    struct child *child = request->context;
    if (reply == NULL && err == ERR_OK) {
        office_send(child->office, SENDER_SELF, child->next, child);
    } else {
        child_free(child);
    }
}

/* Has the loop look at the core, if this process still leads, and a clerk go on after that. On a clerk's thread. */
static void look_then(struct child *child, read_fn *look, struct office *office, clerk_fn *next)
{
    struct request *request = request_new(answer_look, child);
    request->read = look;
    child->office = office;
    child->next = next;
    send_request(child, request);
}

/* The store, or a worker, did not answer. */
static void look_later_then(struct child *child, read_fn *look, struct office *office, clerk_fn *next)
{
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    look_then(child, look, office, next);
}

/* ---- telling the core ---- */

/* The core has taken it, or the task does not wait any more, or this process does not lead. */
static void answer_last(struct request *request, const struct reply *reply, enum err err)
{
    UNUSED(reply);
    UNUSED(err);
    child_free(request->context);
}

static void fail_task(struct child *child, const char *message)
{
    struct request *request = request_new(answer_last, child);
    request->command = (struct command){
        .kind = CMD_CHILD_FAILED,
        .u.child_failed = {.ref = child->ref, .message = arena_strdup(&request->arena, message)},
    };
    send_request(child, request);
}

static void answer_done(struct request *request, const struct reply *reply, enum err err)
{
    struct child *child = request->context;
    if (reply != NULL && reply->kind == REPLY_ACCEPT) { /* tasks that depend on it will want its result soon */
        struct cache_key key = {.job_id = child->ref.task.job_id, .stage = child->ref.task.stage};
        cache_put(child->service->cache, &key, request->payloads[0].bytes, request->payloads[0].n_bytes);
    } else if (reply == NULL && err == ERR_INVALID) {
        fail_task(child, "the store refuses to keep the rows of its child job");
        return;
    }
    child_free(child);
}

static void finish_task(struct child *child, const struct buf *result)
{
    struct request *request = request_new(answer_done, child);
    struct payload *payload = arena_zalloc(&request->arena, sizeof *payload);
    *payload = (struct payload){.job_id = child->ref.task.job_id,
                                .bytes = arena_copy(&request->arena, result->data, result->n),
                                .n_bytes = result->n};
    sha256_once(result->data, result->n, payload->digest.bytes);
    request->payloads = payload;
    request->n_payloads = 1;
    request->command = (struct command){
        .kind = CMD_CHILD_DONE,
        .u.child_done = {.ref = child->ref,
                         .result = payload->digest,
                         .result_bytes = (uint32_t)result->n,
                         .rows = child->pieces->n_rows},
    };
    send_request(child, request);
}

/* ---- the rows ---- */

/*
 * False: a clerk goes on with it, when it is its turn to wait for the worker or to try it again; the child is not to be
 * touched any more.
 */
static bool read_rows(struct child *child, struct clerk *clerk, enum err *out_err, struct error *e)
{
    const struct buf *chunk = NULL;
    enum err err = ERR_OK;
    do {
        err = relay_next(child->relay, clerk, &chunk, e);
        if (err == ERR_OK && chunk == NULL) {
            return false;
        }
        if (err != ERR_OK && relay_may_go_on(child->relay)) {
            relay_send(child->relay);
            return false;
        }
        if (err == ERR_OK) {
            err = rows_json_feed(child->rows, chunk->data, chunk->n, e);
        }
    } while (err == ERR_OK && chunk->n > 0 && !rows_json_is_full(child->rows));
    *out_err = err;
    return true;
}

static void write_result(struct buf *out, const struct child *child, const struct rows_json *rows)
{
    buf_text(out, "{\"rows\":");
    rows_json_write(rows, out);
    buf_format(out, ",\"row_count\":%" PRIu64 ",\"job_id\":", child->pieces->n_rows);
    json_write_text(out, child->job_id);
    buf_text(out, rows_json_is_full(rows) ? ",\"truncated\":true}" : "}");
}

static void look_at_nodes(const struct core *core, struct request *request)
{
    struct child *child = request->context;
    service__read_addresses(core, child->pieces, &child->arena);
}

static struct office *office_of_rows(const struct child *child)
{
    return child->pieces->is_remote ? child->service->fetchers : child->service->relays;
}

static void fetch_rows(struct clerk *clerk, void *context)
{
    struct child *child = context;
    struct buf result = {0};
    struct error e = {0};
    enum err err = ERR_OK;
    if (child->rows == NULL) {
        child->rows = rows_json_new(ROWS_MAX, ROWS_BYTES_MAX);
        child->relay = relay_open(child->service, child->job_id, child->pieces, fetch_rows, child);
    }
    if (child->pieces->n > 0 && !read_rows(child, clerk, &err, &e)) {
        return;
    }
    if (err == ERR_OK) {
        write_result(&result, child, child->rows);
    }
    relay_close(child->relay);
    rows_json_free(child->rows);
    child->relay = NULL;
    child->rows = NULL;
    if (err == ERR_OK) {
        finish_task(child, &result);
    } else if ((err == ERR_UNAVAILABLE || err == ERR_DEADLINE) && ++child->n_tries < READ_TRIES) {
        look_later_then(child, look_at_nodes, office_of_rows(child), fetch_rows);
    } else {
        const char *why = arena_format(&child->arena, "the rows of child job %s: %s", child->job_id, e.message);
        fail_task(child, why);
    }
    buf_deinit(&result);
}

/* The child's end is durable, so the store knows which rows there are. */
static void find_rows(struct clerk *clerk, void *context)
{
    struct child *child = context;
    struct service *service = child->service;
    struct job_question question = {.job_id = child->job_id, .read = service__read_pieces};
    struct error e = {0};
    enum err err = service__ask_store(service, clerk, &question, &child->arena, &e);
    child->pieces = question.found;
    if (err == ERR_NOT_FOUND) {
        fail_task(child, arena_format(&child->arena, "child job %s is not there any more", child->job_id));
    } else if (err != ERR_OK) {
        look_later_then(child, look_nowhere, service->relays, find_rows);
    } else if (child->pieces == NULL) {
        child_free(child); /* somebody runs the child again: it will end once more */
    } else {
        look_then(child, look_at_nodes, office_of_rows(child), fetch_rows);
    }
}

void child_ended(void *context, const struct child_end *end)
{
    struct service *service = context;
    struct child *child = child_new(service, &end->ref);
    child->job_id = arena_strdup(&child->arena, end->job_id);
    office_send(service->relays, SENDER_SELF, find_rows, child);
}

/* ---- the child job ---- */

static void identify(struct child *child)
{
    static const char digits[] = "0123456789abcdef";
    const struct task_ref *task = &child->ref.task;
    uint8_t numbers[8];
    char id[2 + 2 * ID_DIGEST_BYTES + 1] = "c-";
    struct sha256 hash;
    for (unsigned i = 0; i < 4; i++) {
        numbers[i] = (uint8_t)(task->stage >> 8 * i);
        numbers[4 + i] = (uint8_t)(child->ref.attempt >> 8 * i);
    }
    sha256_init(&hash);
    sha256_update(&hash, task->job_id, strlen(task->job_id) + 1);
    sha256_update(&hash, numbers, sizeof numbers);
    sha256_final(&hash, child->identity.bytes);
    for (size_t i = 0; i < ID_DIGEST_BYTES; i++) {
        id[2 + 2 * i] = digits[child->identity.bytes[i] >> 4];
        id[3 + 2 * i] = digits[child->identity.bytes[i] & 15];
    }
    child->job_id = arena_strdup(&child->arena, id);
}

/* What the filled inputs ask for, in the child's arena. */
static enum err read_statement(struct child *child, const struct json *inputs, struct statement *out, struct error *e)
{
    size_t n = 0;
    const char *sql = json_text(json_get(inputs, "sql"), &n);
    const struct json *params = json_get(inputs, "params");
    struct buf text = {0};
    if (sql == NULL || strlen(sql) != n || sql[strspn(sql, " \t\r\n")] == '\0') {
        return error_set(e, ERR_INVALID, "inputs.sql: must be a text that is not empty");
    }
    if (n > LIMIT_SQL_BYTES) {
        return error_set(e, ERR_INVALID, "inputs.sql: has %zu bytes, but at most %d are allowed", n, LIMIT_SQL_BYTES);
    }
    if (params != NULL && json_kind_of(params) != JSON_ARRAY && json_kind_of(params) != JSON_OBJECT) {
        return error_set(e, ERR_INVALID, "inputs.params: must be a list, or an object for named parameters");
    }
    if (params != NULL) {
        wire_write_compact(&text, params);
    }
    *out = (struct statement){.sql = arena_strdup(&child->arena, sql),
                              .params_json = params == NULL ? "" : arena_strdup(&child->arena, text.data),
                              .options_json = ""};
    buf_deinit(&text);
    return ERR_OK;
}

/* If it fails: whether it always will. */
static enum err make_statement(struct child *child, struct clerk *clerk, struct statement *out, bool *out_is_final,
                               struct error *e)
{
    struct json_bytes filled = {0};
    struct json *root = NULL;
    enum err err = service__fill_inputs(child->service, clerk, &child->inputs, &child->arena, &filled, out_is_final, e);
    if (err == ERR_OK) {
        *out_is_final = true;
        err = json_parse(filled.bytes, filled.n, &root, e);
    }
    if (err == ERR_OK) {
        err = read_statement(child, root, out, e);
    }
    json_free(root);
    return err;
}

static void answer_submit(struct request *request, const struct reply *reply, enum err err);

static void submit_child(struct clerk *clerk, void *context)
{
    struct child *child = context;
    struct service *service = child->service;
    struct statement statement = {0};
    struct error e = {0};
    bool is_final = false;
    struct request *request = request_new(answer_submit, child);
    struct cmd_submit *submit = &request->command.u.submit;
    enum err err = make_statement(child, clerk, &statement, &is_final, &e);
    request->command.kind = CMD_SUBMIT;
    *submit = (struct cmd_submit){.job_id = child->job_id,
                                  .kind = JOB_KIND_QUERY,
                                  .name = child->name,
                                  .priority = child->priority,
                                  .stop_on_failure = true,
                                  .content = child->identity,
                                  .parent = &child->ref};
    if (err == ERR_OK) {
        err = service__plan_first(service, clerk, request, &child->fleet, &statement, &e);
        is_final = err == ERR_INVALID;
    }
    if (err == ERR_OK) {
        service__look_up(service, clerk, request);
        send_request(child, request);
        return;
    }
    request_free(request);
    if (is_final) {
        fail_task(child, e.message);
    } else {
        look_later_then(child, look_nowhere, service->takers, submit_child);
    }
}

/* ---- its time ---- */

static void look_whether_ended(const struct core *core, struct request *request)
{
    struct child *child = request->context;
    struct job_status status;
    child->has_ended = core_job_status(core, child->job_id, &status) != ERR_OK || job_state_is_terminal(status.state);
}

static void answer_watch(struct request *request, const struct reply *reply, enum err err)
{
    struct child *child = request->context;
    if (reply != NULL || err != ERR_OK || child->has_ended) {
        child_free(child);
        return;
    }
    struct request *cancel = request_new(answer_last, child);
    cancel->command = (struct command){
        .kind = CMD_CANCEL,
        .u.cancel = {.job_id = child->job_id,
                     .reason = arena_format(&cancel->arena, "timed out after %" PRIu32 " ms", child->timeout_ms)},
    };
    send_request(child, cancel);
}

/* Looks at the child when it has ended, or its time has. */
static void watch_child(struct child *child)
{
    struct request *request = request_new(answer_watch, child);
    request->read = look_whether_ended;
    request->await_job = child->job_id;
    request->await_until_mono_ms = child->until_mono_ms;
    send_request(child, request);
}

/* ---- what became of the submit ---- */

static void submit_again(struct clerk *clerk, void *context)
{
    struct child *child = context;
    UNUSED(clerk);
    look_later_then(child, look_nowhere, child->service->takers, submit_child);
}

static void took_child(struct child *child, const struct request *request, bool has_existed)
{
    if (!has_existed) {
        service__remember_inputs(child->service, request);
    }
    if (child->timeout_ms > 0) {
        watch_child(child);
    } else {
        child_free(child);
    }
}

/* If the job was there and has ended, that was under the leader before. */
static void answer_submit(struct request *request, const struct reply *reply, enum err err)
{
    struct child *child = request->context;
    struct service *service = child->service;
    if (reply == NULL && err == ERR_INVALID) {
        fail_task(child, "the store refuses to keep its child job");
    } else if (reply == NULL && err != ERR_PRECONDITION) {
        office_send(service->takers, SENDER_SELF, submit_again,
                    child); /* the store could not say whether the job is known */
    } else if (reply != NULL && reply->kind == REPLY_ERROR && reply->code != ERR_STALE) {
        fail_task(child, reply->message);
    } else if (reply == NULL || reply->kind == REPLY_ERROR) {
        child_free(child); /* the next leader begins anew; or nobody waits for it any more */
    } else if (!job_state_is_terminal(reply->u.job.state)) {
        took_child(child, request, reply->u.job.existed); /* the core says when it has ended */
    } else if (reply->u.job.state == JOB_SUCCEEDED) {
        office_send(service->relays, SENDER_SELF, find_rows, child);
    } else {
        fail_task(child,
                  arena_format(&child->arena, "child job %s %s", child->job_id, job_state_name(reply->u.job.state)));
    }
}

/* What the child takes over from the tree, and what there is to run it. */
static void look_at_parent(const struct core *core, struct request *request)
{
    struct child *child = request->context;
    struct job_status job;
    struct stage_status stage;
    child->fleet = service__read_fleet(core, &child->arena);
    child->priority = core_job_status(core, child->ref.task.job_id, &job) == ERR_OK ? job.priority : PRIORITY_NORMAL;
    if (core_stage_status(core, child->ref.task.job_id, child->ref.task.stage, &stage) == ERR_OK) {
        child->name = arena_strdup(&child->arena, stage.name);
    }
}

static void prepare_child(struct clerk *clerk, void *context)
{
    struct child *child = context;
    UNUSED(clerk);
    look_then(child, look_at_parent, child->service->takers, submit_child);
}

void child_started(void *context, const struct child_start *start)
{
    struct service *service = context;
    struct child *child = child_new(service, &start->ref);
    child->inputs =
        (struct task_inputs){.job_id = child->ref.task.job_id,
                             .digest = start->inputs,
                             .n_bytes = start->inputs_bytes,
                             .parents = service__copy_parents(&child->arena, start->parents, start->n_parents),
                             .n_parents = start->n_parents};
    child->timeout_ms = start->timeout_ms;
    child->until_mono_ms = clock_mono_ms() + start->timeout_left_ms;
    identify(child);
    office_send(service->takers, SENDER_SELF, prepare_child, child);
}
