/*
 * What workers get: the answer to a poll, with each task's inputs.
 *
 * The core knows inputs and results by name only. Here the payloads come in, from the cache or the store, results of
 * parents are filled into templates, and the answer leaves. One clerk does this for all polls, so that neither the loop
 * nor the pollers wait for the store or for JSON.
 *
 * A task whose inputs cannot be put together (a path that no result has) fails on the spot, as if its worker had said
 * so. Tasks whose worker has gone meanwhile are given back, and so are those that do not fit into the message any more,
 * for the next poll. If the store does not answer, nothing is handed out, and the worker is told to come again.
 *
 * All this may take longer than two heartbeats of the worker, which cannot name what has not come yet. So the coordinator
 * knows which answers have not left (struct leaving), and takes none of them for lost.
 */
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "coordinator/service_internal.h"
#include "core/command.h"
#include "wire/reply.h"
#include "wire/template.h"

/* Of all inputs in one answer: half of what the worker's side takes. */
#define ANSWER_BYTES_MAX (LIMIT_WIRE_BYTES / 2)
_Static_assert(ANSWER_BYTES_MAX >= LIMIT_FILLED_BYTES, "an answer has room for any one task");

#define RESULTS_AT_ONCE 64

/* What belongs to an assignment, beside the message that it is. */
struct part {
    struct task_inputs inputs;
    struct attempt_ref ref;
    bool is_query; /* the inputs are a fragment: they are given as they are, and once for all who share them */
};

struct draft {
    struct pb_get_task_response *response;
    struct part *parts; /* one per task of the response */
    const char *worker_id;
    const char *incarnation;
    const ProtobufCBinaryData *known; /* digests of fragments that the worker has */
    size_t n_known;
    struct leaving leaving;
    struct task_report *reports; /* about tasks that do not reach the worker */
    uint32_t n_reports;
};

/* ---- telling the core about tasks that never left ---- */

static void forget_answer(struct request *request, const struct reply *reply, enum err err)
{
    UNUSED(request);
    UNUSED(reply);
    UNUSED(err); /* if it was not taken, the worker's next heartbeats have the same effect */
}

static void send_reports(struct service *service, const struct draft *draft)
{
    if (draft->n_reports == 0) {
        return;
    }
    struct request *request = request_new(forget_answer, NULL);
    struct task_report *reports = arena_copy(&request->arena, draft->reports, draft->n_reports * sizeof *reports);
    for (uint32_t i = 0; i < draft->n_reports; i++) {
        reports[i].ref.task.job_id = arena_strdup(&request->arena, reports[i].ref.task.job_id);
        reports[i].message = arena_strdup(&request->arena, reports[i].message);
    }
    request->command = (struct command){.kind = CMD_REPORT,
                                        .u.report = {.worker_id = arena_strdup(&request->arena, draft->worker_id),
                                                     .incarnation = arena_strdup(&request->arena, draft->incarnation),
                                                     .reports = reports,
                                                     .n_reports = draft->n_reports}};
    coordinator_send(atomic_load(&service->coordinator), request);
}

/* ---- inputs ---- */

/* Who looks for payloads, and where they go. */
struct search {
    struct cache *cache;
    struct clerk *clerk;
    struct arena *arena;
};

static enum err find_inputs(const struct search *search, const struct task_inputs *inputs, const void **out_bytes,
                            size_t *out_n, struct error *e)
{
    struct cache_key key = {.job_id = inputs->job_id, .digest = &inputs->digest};
    struct store *store;
    if (inputs->n_bytes == 0) {
        *out_bytes = "{}";
        *out_n = 2;
        return ERR_OK;
    }
    if (cache_get(search->cache, &key, search->arena, out_bytes, out_n)) {
        return ERR_OK;
    }
    uint64_t mark = cache_mark(search->cache);
    enum err err = clerk_store(search->clerk, &store, e);
    if (err == ERR_OK) {
        err =
            clerk_note(search->clerk, store_payload(store, key.job_id, key.digest, search->arena, out_bytes, out_n, e));
    }
    if (err == ERR_OK) {
        cache_fill(search->cache, mark, &key, *out_bytes, *out_n);
    }
    return err;
}

/* All results become a part of the inputs: with too many bytes of them there is no need to read the rest. */
static enum err check_size(size_t n_bytes, struct error *e)
{
    return n_bytes <= LIMIT_FILLED_BYTES
               ? ERR_OK
               : error_set(e, ERR_EXHAUSTED,
                           "inputs: the results of the tasks that it depends on are more than %d bytes together",
                           LIMIT_FILLED_BYTES);
}

/* Results that the cache lacks, some at a time: together they may be more than fits into memory. */
static enum err read_results(const struct search *search, const char *job_id, const uint32_t *stages, uint32_t n,
                             struct task_result *out, size_t n_bytes, struct error *e)
{
    struct store *store;
    uint64_t mark = cache_mark(search->cache);
    enum err err = clerk_store(search->clerk, &store, e);
    for (uint32_t from = 0; from < n && err == ERR_OK; from += RESULTS_AT_ONCE) {
        uint32_t n_now = n - from < RESULTS_AT_ONCE ? n - from : RESULTS_AT_ONCE;
        err =
            clerk_note(search->clerk, store_results(store, job_id, &stages[from], n_now, search->arena, &out[from], e));
        for (uint32_t i = from; i < from + n_now && err == ERR_OK; i++) {
            struct cache_key key = {.job_id = job_id, .stage = stages[i]};
            cache_fill(search->cache, mark, &key, out[i].result.bytes, out[i].result.n_bytes);
            n_bytes += out[i].result.n_bytes;
        }
        err = err == ERR_OK ? check_size(n_bytes, e) : err;
    }
    return err;
}

/* The parents' results, from the cache or the store. ERR_EXHAUSTED if they are too large. */
static enum err find_results(const struct search *search, const struct task_inputs *inputs,
                             struct template_result *results, struct error *e)
{
    uint32_t *stages = arena_alloc(search->arena, inputs->n_parents * sizeof *stages);
    uint32_t *places = arena_alloc(search->arena, inputs->n_parents * sizeof *places);
    uint32_t n_missing = 0;
    size_t n_bytes = 0;
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < inputs->n_parents && err == ERR_OK; i++) {
        const struct parent_result *parent = &inputs->parents[i];
        struct cache_key key = {.job_id = inputs->job_id, .stage = parent->stage};
        const void *bytes = NULL;
        results[i] = (struct template_result){.name = parent->name};
        if (parent->has_succeeded && !cache_get(search->cache, &key, search->arena, &bytes, &results[i].n)) {
            stages[n_missing] = parent->stage;
            places[n_missing++] = i;
        }
        results[i].json = bytes;
        n_bytes += results[i].n;
        err = check_size(n_bytes, e);
    }
    if (n_missing == 0 || err != ERR_OK) {
        return err;
    }
    struct task_result *found = arena_zalloc(search->arena, n_missing * sizeof *found);
    err = read_results(search, inputs->job_id, stages, n_missing, found, n_bytes, e);
    for (uint32_t i = 0; i < n_missing && err == ERR_OK; i++) {
        results[places[i]].json = found[i].result.bytes;
        results[places[i]].n = found[i].result.n_bytes;
    }
    return err;
}

/* A dollar is all that is looked for: an escaped template has to lose its escape, with parents or without. */
static bool may_have_template(const void *inputs, size_t n)
{
    return memchr(inputs, '$', n) != NULL;
}

enum err service__fill_inputs(struct service *service, struct clerk *clerk, const struct task_inputs *made_of,
                              struct arena *arena, struct json_bytes *out, bool *out_is_final, struct error *e)
{
    struct search search = {.cache = service->cache, .clerk = clerk, .arena = arena};
    const void *inputs = NULL;
    size_t n = 0;
    enum err err = find_inputs(&search, made_of, &inputs, &n, e);
    *out_is_final = false;
    if (err == ERR_NOT_FOUND) {
        error_set(e, ERR_DATA_LOSS, "the inputs of this task are not in the store");
        *out_is_final = true;
    }
    if (err == ERR_OK && (made_of->n_parents > 0 || may_have_template(inputs, n))) {
        struct template_result *results = arena_zalloc(arena, made_of->n_parents * sizeof *results);
        struct buf filled = {0};
        err = find_results(&search, made_of, results, e);
        *out_is_final = err == ERR_EXHAUSTED;
        if (err == ERR_OK) {
            err = wire_fill_inputs(inputs, n, results, made_of->n_parents, LIMIT_FILLED_BYTES, &filled, e);
            *out_is_final = err != ERR_OK;
        }
        if (err == ERR_OK) {
            inputs = arena_copy(arena, filled.data, filled.n);
            n = filled.n;
        }
        buf_deinit(&filled);
    }
    if (err == ERR_OK) {
        *out = (struct json_bytes){.bytes = inputs, .n = n};
    }
    return err;
}

static enum err fill(struct exchange *exchange, struct clerk *clerk, const struct part *part,
                     struct pb_task_assignment *task, bool *out_is_final, struct error *e)
{
    struct json_bytes filled;
    enum err err = service__fill_inputs(exchange->service, clerk, &part->inputs, &exchange->request->arena, &filled,
                                        out_is_final, e);
    if (err == ERR_OK) {
        task->plan_fragment_json.data = (uint8_t *)(uintptr_t)filled.bytes;
        task->plan_fragment_json.len = filled.n;
    }
    return err;
}

/* Whether the worker has the fragment, or gets it with one of the first `n_before` tasks of this answer. */
static bool has_fragment(const struct draft *draft, const struct digest *digest, size_t n_before)
{
    for (size_t i = 0; i < draft->n_known; i++) {
        if (draft->known[i].len == sizeof digest->bytes &&
            memcmp(draft->known[i].data, digest->bytes, sizeof digest->bytes) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < n_before; i++) {
        if (draft->parts[i].is_query && memcmp(&draft->parts[i].inputs.digest, digest, sizeof *digest) == 0) {
            return true;
        }
    }
    return false;
}

/* The fragment, or only its name. Results of parents and templates are not for queries. */
static enum err fill_fragment(struct exchange *exchange, struct clerk *clerk, const struct part *part,
                              struct pb_task_assignment *task, size_t n_before, bool *out_is_final, struct error *e)
{
    struct search search = {.cache = exchange->service->cache, .clerk = clerk, .arena = &exchange->request->arena};
    const struct digest *digest = &part->inputs.digest;
    const void *inputs = NULL;
    size_t n = 0;
    enum err err = ERR_OK;
    *out_is_final = false;
    if (!has_fragment(exchange->more, digest, n_before)) {
        err = find_inputs(&search, &part->inputs, &inputs, &n, e);
    }
    if (err == ERR_NOT_FOUND) {
        error_set(e, ERR_DATA_LOSS, "the plan of this task is not in the store");
        *out_is_final = true;
    }
    if (err == ERR_OK) {
        task->plan_fragment_json.data = (uint8_t *)(uintptr_t)inputs;
        task->plan_fragment_json.len = n;
        task->fragment.data = arena_copy(search.arena, digest->bytes, sizeof digest->bytes);
        task->fragment.len = sizeof digest->bytes;
    }
    return err;
}

static struct task_report *add_report(struct draft *draft, const struct part *part)
{
    struct task_report *report = &draft->reports[draft->n_reports++];
    *report = (struct task_report){.ref = part->ref};
    return report;
}

static void give_back(struct draft *draft, const struct part *part)
{
    add_report(draft, part)->state = TASK_QUEUED;
}

/* Fills in as many as the answer has room for; the others are given back. An error if the store did not answer. */
static enum err fill_all(struct exchange *exchange, struct clerk *clerk, struct draft *draft, struct error *e)
{
    struct pb_get_task_response *response = draft->response;
    size_t n_kept = 0;
    size_t n_bytes = 0;
    enum err trouble = ERR_OK;
    for (size_t i = 0; i < response->n_tasks; i++) {
        struct part part = draft->parts[i];
        struct error why = {0};
        bool is_final = false;
        if (trouble != ERR_OK || n_bytes > ANSWER_BYTES_MAX - LIMIT_FILLED_BYTES) {
            give_back(draft, &part);
            continue;
        }
        enum err err = part.is_query
                           ? fill_fragment(exchange, clerk, &part, response->tasks[i], n_kept, &is_final, &why)
                           : fill(exchange, clerk, &part, response->tasks[i], &is_final, &why);
        if (err == ERR_OK) {
            n_bytes += response->tasks[i]->plan_fragment_json.len;
            draft->parts[n_kept] = part;
            response->tasks[n_kept++] = response->tasks[i];
        } else if (is_final) {
            struct task_report *report = add_report(draft, &part);
            report->state = TASK_FAILED;
            report->not_retryable = true;
            report->message = arena_strdup(&exchange->request->arena, why.message);
        } else {
            give_back(draft, &part);
            trouble = err;
            *e = why;
        }
    }
    response->n_tasks = n_kept;
    return trouble;
}

static void compose(struct clerk *clerk, void *context)
{
    struct exchange *exchange = context;
    struct draft *draft = exchange->more;
    struct error e = {0};
    enum err trouble = fill_all(exchange, clerk, draft, &e);
    bool is_gone = exchange_is_gone(exchange);
    for (size_t i = 0; i < draft->response->n_tasks && is_gone; i++) {
        give_back(draft, &draft->parts[i]);
    }
    send_reports(exchange->service, draft);
    coordinator_has_left(exchange->service->coordinator, &draft->leaving);
    if (trouble != ERR_OK && draft->response->n_tasks == 0) {
        exchange_fail(exchange, &e); /* an empty answer would have the worker ask again at once */
    } else {
        exchange_reply(exchange, draft->response);
    }
}

const struct parent_result *service__copy_parents(struct arena *arena, const struct parent_result *from, uint32_t n)
{
    struct parent_result *parents = arena_copy(arena, from, n * sizeof *parents);
    for (uint32_t i = 0; i < n; i++) {
        parents[i].name = arena_strdup(arena, parents[i].name);
    }
    return parents;
}

void service__compose(struct exchange *exchange, const struct reply *reply)
{
    struct arena *arena = &exchange->request->arena;
    const struct pb_get_task_request *message = exchange->message;
    uint32_t n = reply->u.tasks.n_tasks;
    struct draft *draft = arena_zalloc(arena, sizeof *draft);
    draft->response = wire_tasks_reply(reply, arena);
    wire_own(draft->response, arena); /* the reply is the flight's */
    draft->parts = arena_alloc(arena, n * sizeof *draft->parts);
    draft->reports = arena_alloc(arena, n * sizeof *draft->reports);
    draft->worker_id = message->worker_id;
    draft->incarnation = message->incarnation;
    draft->known = message->known_fragments;
    draft->n_known = message->n_known_fragments;
    uint32_t i = 0;
    for (const struct assignment *from = reply->u.tasks.first; from != NULL; from = from->next, i++) {
        const char *job_id = draft->response->tasks[i]->query_id;
        draft->parts[i] = (struct part){.ref = from->ref, .is_query = from->kind == JOB_KIND_QUERY};
        draft->parts[i].ref.task.job_id = job_id;
        metric_observe(&exchange->service->metrics.assign_seconds,
                       from->queued_ms > 0 ? (double)from->queued_ms / 1000 : 0);
        draft->parts[i].inputs =
            (struct task_inputs){.job_id = job_id,
                                 .digest = from->inputs,
                                 .n_bytes = from->inputs_bytes,
                                 .parents = service__copy_parents(arena, from->parents, from->n_parents),
                                 .n_parents = from->n_parents};
    }
    exchange->more = draft;
    coordinator_leaves(exchange->service->coordinator, &draft->leaving);
    office_send(exchange->service->composers, exchange->request->sender, compose, exchange);
}
