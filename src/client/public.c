/*
 * public.c - the public interface (capstan/client.h) over the client that the command line uses, too: opening, jobs, lists.
 *
 * Nothing is decided here. Each function makes a caller with an arena, calls its like in job.h or client.h, and hands over
 * what came.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "client/job.h"
#include "client/public_internal.h"
#include "client/tokens.h"
#include "wire/json_shape.h"

#define PATIENCE_MS 10000
#define SERVER_DEFAULT "127.0.0.1:7400"

static_assert(CAPSTAN_ID_BYTES == LIMIT_ID_BYTES + 1, "an id has room");
static_assert(sizeof((struct capstan_error){0}.message) >= sizeof((struct error){0}.message), "a message has room");
static_assert(sizeof((struct capstan_error){0}.hint) >= sizeof((struct error){0}.hint), "a hint has room");

struct capstan_job {
    enum capstan_state state;
    char *message;
    char *json;
};

/* ---- errors ---- */

static const struct {
    enum err err;
    enum capstan_code code;
} codes[] = {
    {ERR_OK, CAPSTAN_OK},
    {ERR_INVALID, CAPSTAN_INVALID},
    {ERR_NOT_FOUND, CAPSTAN_NOT_FOUND},
    {ERR_EXISTS, CAPSTAN_EXISTS},
    {ERR_PRECONDITION, CAPSTAN_PRECONDITION},
    {ERR_STALE, CAPSTAN_STALE},
    {ERR_BUSY, CAPSTAN_BUSY},
    {ERR_EXHAUSTED, CAPSTAN_EXHAUSTED},
    {ERR_UNAVAILABLE, CAPSTAN_UNAVAILABLE},
    {ERR_DEADLINE, CAPSTAN_DEADLINE},
    {ERR_CANCELED, CAPSTAN_CANCELED},
    {ERR_FENCED, CAPSTAN_FENCED},
    {ERR_DENIED, CAPSTAN_DENIED},
    {ERR_UNAUTHENTICATED, CAPSTAN_UNAUTHENTICATED},
    {ERR_DATA_LOSS, CAPSTAN_DATA_LOSS},
    {ERR_INTERNAL, CAPSTAN_INTERNAL},
};

const char *capstan_code_name(enum capstan_code code)
{
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        if (codes[i].code == code) {
            return err_name(codes[i].err);
        }
    }
    return err_name(ERR_INTERNAL);
}

static enum capstan_code code_of(enum err err)
{
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        if (codes[i].err == err) {
            return codes[i].code;
        }
    }
    return CAPSTAN_INTERNAL;
}

enum capstan_code public__fail(const struct error *from, struct capstan_error *to)
{
    if (to != NULL) {
        to->code = code_of(from->code);
        memcpy(to->message, from->message, sizeof from->message);
        memcpy(to->hint, from->hint, sizeof from->hint);
        if (from->code == ERR_UNAUTHENTICATED && from->hint[0] == '\0') {
            static const char hint[] = "give a token: capstan_options.token, or CAPSTAN_TOKEN";
            memcpy(to->hint, hint, sizeof hint);
        }
    }
    return code_of(from->code);
}

enum capstan_code public__end(struct arena *arena, enum err err, const struct error *from, struct capstan_error *to)
{
    struct error e = *from;
    arena_deinit(arena);
    e.code = err;
    return err == ERR_OK ? CAPSTAN_OK : public__fail(&e, to);
}

/* ---- helpers ---- */

struct client_caller public__caller(struct capstan_client *client, struct arena *arena)
{
    return (struct client_caller){.client = client->client, .cancel = client->cancel, .arena = arena};
}

char *public__take_text(struct buf *text)
{
    char *out = mem_calloc(1, text->n + 1);
    if (text->n > 0) {
        memcpy(out, text->data, text->n);
    }
    buf_deinit(text);
    return out;
}

void public__read_struct(void *to, size_t known, const void *from)
{
    size_t given = 0;
    memset(to, 0, known);
    if (from != NULL) {
        memcpy(&given, from, sizeof given);
        memcpy(to, from, given < known ? given : known);
    }
}

void capstan_free(char *text)
{
    mem_free(text);
}

/* ---- the client ---- */

static const char *variable_or(const char *name, const char *fallback)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : fallback;
}

/* The options as the client wants them; texts that are found live in the arena. */
static enum err find_options(const struct capstan_options *given, struct arena *arena, struct client_options *out,
                             struct error *e)
{
    *out = (struct client_options){
        .servers = given->servers != NULL ? given->servers : variable_or("CAPSTAN_SERVER", SERVER_DEFAULT),
        .token = given->token != NULL ? given->token : variable_or("CAPSTAN_TOKEN", NULL),
        .tls = given->tls != 0 || given->tls_ca_pem != NULL || given->tls_cert_pem != NULL,
        .tls_ca_pem = given->tls_ca_pem,
        .tls_cert_pem = given->tls_cert_pem,
        .tls_key_pem = given->tls_key_pem,
        .patience_ms = given->patience_ms > 0 ? given->patience_ms : PATIENCE_MS,
    };
    if ((given->tls_cert_pem == NULL) != (given->tls_key_pem == NULL)) {
        return error_set(e, ERR_INVALID, "tls_cert_pem and tls_key_pem belong together");
    }
    return out->token != NULL ? ERR_OK : token_find(arena, out->servers, &out->token, e);
}

enum capstan_code capstan_open(const struct capstan_options *options, struct capstan_client **out,
                               struct capstan_error *e)
{
    struct capstan_options given;
    struct client_options found;
    struct arena arena = {0};
    struct client *client = NULL;
    struct error why = {0};
    public__read_struct(&given, sizeof given, options);
    enum err err = find_options(&given, &arena, &found, &why);
    if (err == ERR_OK) {
        err = client_open(&found, &client, &why);
    }
    if (err == ERR_OK) {
        struct capstan_client *made = mem_calloc(1, sizeof *made);
        made->client = client;
        made->cancel = rpc_cancel_new();
        *out = made;
    }
    return public__end(&arena, err, &why, e);
}

void capstan_close(struct capstan_client *client)
{
    if (client != NULL) {
        client_close(client->client);
        rpc_cancel_free(client->cancel);
        mem_free(client);
    }
}

void capstan_interrupt(struct capstan_client *client)
{
    rpc_cancel_fire(client->cancel);
}

void capstan_resume(struct capstan_client *client)
{
    rpc_cancel_reset(client->cancel);
}

/* ---- submit ---- */

static void copy_id(char out[CAPSTAN_ID_BYTES], const char *id)
{
    size_t n = strlen(id);
    n = n < CAPSTAN_ID_BYTES ? n : CAPSTAN_ID_BYTES - 1;
    memcpy(out, id, n);
    out[n] = '\0';
}

enum capstan_code capstan_submit_tree(struct capstan_client *client, const struct capstan_tree *tree,
                                      char out_job_id[CAPSTAN_ID_BYTES], struct capstan_error *e)
{
    struct capstan_tree given;
    struct arena arena = {0};
    struct error why = {0};
    struct pb_submit_tasks_response *response = NULL;
    struct client_caller caller = public__caller(client, &arena);
    public__read_struct(&given, sizeof given, tree);
    const char *json = given.json != NULL ? given.json : "";
    struct tree_submission submission = {.job_id = given.job_id,
                                         .json = json,
                                         .n_json = given.n_json > 0 ? given.n_json : strlen(json),
                                         .key = given.idempotency_key};
    enum err err = client_submit_tree(&caller, &submission, &response, &why);
    if (err == ERR_OK) {
        copy_id(out_job_id, response->job_id);
    }
    return public__end(&arena, err, &why, e);
}

enum capstan_code capstan_submit_query(struct capstan_client *client, const struct capstan_query *query,
                                       char out_job_id[CAPSTAN_ID_BYTES], struct capstan_error *e)
{
    struct capstan_query given;
    struct arena arena = {0};
    struct error why = {0};
    struct pb_submit_query_response *response = NULL;
    struct client_caller caller = public__caller(client, &arena);
    public__read_struct(&given, sizeof given, query);
    struct query_submission submission = {.job_id = given.job_id,
                                          .sql = given.sql,
                                          .plan_json = given.plan_json,
                                          .n_plan = given.plan_json != NULL ? strlen(given.plan_json) : 0,
                                          .params_json = given.params_json,
                                          .options_json = given.options_json,
                                          .key = given.idempotency_key,
                                          .has_priority = given.has_priority != 0,
                                          .priority = given.priority,
                                          .explains = given.explain != 0};
    enum err err = client_submit_query(&caller, &submission, &response, &why);
    if (err == ERR_OK) {
        copy_id(out_job_id, response->query_id);
    }
    return public__end(&arena, err, &why, e);
}

/* ---- one job ---- */

static struct capstan_job *make_job(const struct pb_query_status *status)
{
    struct capstan_job *job = mem_calloc(1, sizeof *job);
    struct buf json = {0};
    wire_json_job(&json, status);
    job->state = (enum capstan_state)status->state;
    job->message = mem_strdup(status->message);
    job->json = public__take_text(&json);
    return job;
}

enum capstan_state capstan_job_state(const struct capstan_job *job)
{
    bool is_known = job->state >= CAPSTAN_STATE_QUEUED && job->state <= CAPSTAN_STATE_CANCELED;
    return is_known ? job->state : CAPSTAN_STATE_UNKNOWN;
}

const char *capstan_job_message(const struct capstan_job *job)
{
    return job->message;
}

const char *capstan_job_json(const struct capstan_job *job)
{
    return job->json;
}

void capstan_job_free(struct capstan_job *job)
{
    if (job != NULL) {
        mem_free(job->message);
        mem_free(job->json);
        mem_free(job);
    }
}

enum capstan_code capstan_status(struct capstan_client *client, const char *job_id, struct capstan_job **out,
                                 struct capstan_error *e)
{
    struct arena arena = {0};
    struct error why = {0};
    struct pb_query_status *status = NULL;
    struct client_caller caller = public__caller(client, &arena);
    enum err err = client_job_status(&caller, job_id, 0, &status, &why);
    if (err == ERR_OK) {
        *out = make_job(status);
    }
    return public__end(&arena, err, &why, e);
}

enum capstan_code capstan_wait(struct capstan_client *client, const char *job_id, int64_t timeout_ms,
                               struct capstan_job **out, struct capstan_error *e)
{
    struct arena arena = {0};
    struct error why = {0};
    struct pb_query_status *status = NULL;
    struct client_caller caller = public__caller(client, &arena);
    struct client_wait wait = {.until_mono_ms = timeout_ms < 0 ? 0 : clock_mono_ms() + timeout_ms};
    enum err err = client_await(&caller, job_id, &wait, &status, &why);
    if (err == ERR_OK) {
        *out = make_job(status);
    }
    return public__end(&arena, err, &why, e);
}

enum capstan_code capstan_cancel(struct capstan_client *client, const char *job_id, const char *reason,
                                 struct capstan_error *e)
{
    struct arena arena = {0};
    struct error why = {0};
    struct pb_cancel_query_response *response = NULL;
    struct client_caller caller = public__caller(client, &arena);
    enum err err = client_cancel(&caller, job_id, reason, &response, &why);
    return public__end(&arena, err, &why, e);
}

enum capstan_code capstan_retry(struct capstan_client *client, const char *job_id, const char *from_task,
                                struct capstan_error *e)
{
    struct arena arena = {0};
    struct error why = {0};
    struct pb_retry_job_response *response = NULL;
    struct client_caller caller = public__caller(client, &arena);
    enum err err = client_retry(&caller, job_id, from_task, &response, &why);
    return public__end(&arena, err, &why, e);
}

/* ---- lists ---- */

/* A call whose answer is turned into JSON by `write`, which also gets `about`. */
struct question {
    const char *path;
    const void *message;
    enum pb_kind answer;
    void (*write)(struct buf *out, const void *answer, const char *about);
    const char *about;
};

static enum err ask(const struct client_caller *caller, const struct question *question, char **out, struct error *e)
{
    struct client_call call = {
        .path = question->path, .message = question->message, .answer = question->answer, .cancel = caller->cancel};
    void *answer = NULL;
    enum err err = client_call(caller->client, &call, caller->arena, &answer, e);
    if (err == ERR_OK) {
        struct buf json = {0};
        question->write(&json, answer, question->about);
        *out = public__take_text(&json);
    }
    return err;
}

static void write_jobs(struct buf *out, const void *answer, const char *about)
{
    UNUSED(about);
    wire_json_jobs(out, answer);
}

static void write_tasks(struct buf *out, const void *answer, const char *about)
{
    UNUSED(about);
    wire_json_tasks(out, answer);
}

static void write_why(struct buf *out, const void *answer, const char *about)
{
    wire_json_why(out, about, answer);
}

static void write_nodes(struct buf *out, const void *answer, const char *about)
{
    UNUSED(about);
    wire_json_nodes(out, answer);
}

static void write_leader(struct buf *out, const void *answer, const char *about)
{
    UNUSED(about);
    wire_json_leader(out, answer);
}

static char *text_or_empty(const char *text)
{
    return (char *)(text != NULL ? text : "");
}

enum capstan_code capstan_jobs_json(struct capstan_client *client, const struct capstan_page *page, char **out,
                                    struct capstan_error *e)
{
    struct capstan_page given;
    struct arena arena = {0};
    struct error why = {0};
    struct client_caller caller = public__caller(client, &arena);
    struct pb_list_jobs_request *request = wire_new(PB_LIST_JOBS_REQUEST, &arena);
    public__read_struct(&given, sizeof given, page);
    request->state = text_or_empty(given.state);
    request->name = text_or_empty(given.name);
    request->after = text_or_empty(given.after);
    request->limit = given.limit;
    struct question question = {.path = "/capstan.v1.ControlPlane/ListJobs",
                                .message = request,
                                .answer = PB_LIST_JOBS_RESPONSE,
                                .write = write_jobs};
    enum err err = ask(&caller, &question, out, &why);
    return public__end(&arena, err, &why, e);
}

enum capstan_code capstan_tasks_json(struct capstan_client *client, const char *job_id, const struct capstan_page *page,
                                     char **out, struct capstan_error *e)
{
    struct capstan_page given;
    struct arena arena = {0};
    struct error why = {0};
    struct client_caller caller = public__caller(client, &arena);
    struct pb_list_tasks_request *request = wire_new(PB_LIST_TASKS_REQUEST, &arena);
    public__read_struct(&given, sizeof given, page);
    request->query_id = (char *)job_id;
    request->state = text_or_empty(given.state);
    request->after = text_or_empty(given.after);
    request->limit = given.limit;
    struct question question = {.path = "/capstan.v1.ControlPlane/ListTasks",
                                .message = request,
                                .answer = PB_LIST_TASKS_RESPONSE,
                                .write = write_tasks};
    enum err err = ask(&caller, &question, out, &why);
    return public__end(&arena, err, &why, e);
}

enum capstan_code capstan_why_json(struct capstan_client *client, const char *job_id, char **out,
                                   struct capstan_error *e)
{
    struct arena arena = {0};
    struct error why = {0};
    struct client_caller caller = public__caller(client, &arena);
    struct pb_why_pending_request *request = wire_new(PB_WHY_PENDING_REQUEST, &arena);
    request->query_id = (char *)job_id;
    struct question question = {.path = "/capstan.v1.ControlPlane/WhyPending",
                                .message = request,
                                .answer = PB_WHY_PENDING_RESPONSE,
                                .write = write_why,
                                .about = job_id};
    enum err err = ask(&caller, &question, out, &why);
    return public__end(&arena, err, &why, e);
}

enum capstan_code capstan_nodes_json(struct capstan_client *client, char **out, struct capstan_error *e)
{
    struct arena arena = {0};
    struct error why = {0};
    struct client_caller caller = public__caller(client, &arena);
    struct question question = {.path = "/capstan.v1.Cluster/ListNodes",
                                .message = wire_new(PB_LIST_NODES_REQUEST, &arena),
                                .answer = PB_LIST_NODES_RESPONSE,
                                .write = write_nodes};
    enum err err = ask(&caller, &question, out, &why);
    return public__end(&arena, err, &why, e);
}

enum capstan_code capstan_leader_json(struct capstan_client *client, char **out, struct capstan_error *e)
{
    struct arena arena = {0};
    struct error why = {0};
    struct client_caller caller = public__caller(client, &arena);
    struct question question = {.path = "/capstan.v1.Cluster/GetLeader",
                                .message = wire_new(PB_GET_LEADER_REQUEST, &arena),
                                .answer = PB_GET_LEADER_RESPONSE,
                                .write = write_leader};
    enum err err = ask(&caller, &question, out, &why);
    return public__end(&arena, err, &why, e);
}
