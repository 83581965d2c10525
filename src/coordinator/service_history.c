/*
 * Pages of history, and the results of trees. All of it comes from the store, through the clerks' own connections, so
 * that it costs the loop nothing however much there is.
 */
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "coordinator/service_internal.h"
#include "wire/command.h"
#include "wire/reply.h"

#define PAGE_DEFAULT 100
#define RESULTS_PER_PAGE 64 /* tasks at most; each may have a result of a mebibyte */
#define CHUNK_BYTES (256 * 1024)

/* ---- jobs and tasks ---- */

static uint32_t page_limit(uint32_t asked)
{
    if (asked == 0) {
        return PAGE_DEFAULT;
    }
    return asked < LIMIT_PAGE ? asked : LIMIT_PAGE;
}

static const char *none_if_empty(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

/* A filter by state: -1 for none. */
static enum err job_filter(const char *word, int *out, struct error *e)
{
    enum job_state state = JOB_QUEUED;
    enum err err = word[0] == '\0' ? ERR_OK : wire_job_state_word(word, &state, e);
    *out = word[0] == '\0' ? -1 : (int)state;
    return err;
}

static enum err task_filter(const char *word, int *out, struct error *e)
{
    enum task_state state = TASK_QUEUED;
    enum err err = word[0] == '\0' ? ERR_OK : wire_task_state_word(word, &state, e);
    *out = word[0] == '\0' ? -1 : (int)state;
    return err;
}

/* All that a store can find wrong with a query is where its page starts. */
static enum err name_page(enum err err, struct error *e)
{
    if (err == ERR_INVALID) {
        error_set(e, ERR_INVALID, "after: %s", e->message);
        error_hint(e, "give what the page before came with as its next, or nothing");
    }
    return err;
}

static void list_jobs(struct clerk *clerk, void *context)
{
    struct exchange *exchange = context;
    struct arena *arena = &exchange->request->arena;
    const struct pb_list_jobs_request *message = exchange->message;
    struct job_query query = {.name = none_if_empty(message->name),
                              .limit = page_limit(message->limit),
                              .after = none_if_empty(message->after)};
    struct page page = {0};
    struct store *store;
    struct error e = {0};
    enum err err = job_filter(message->state, &query.state, &e);
    if (err == ERR_OK) {
        err = clerk_store(clerk, &store, &e);
    }
    if (err == ERR_OK) {
        err = name_page(clerk_note(clerk, store_jobs(store, &query, arena, &page, &e)), &e);
    }
    if (err != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    struct pb_list_jobs_response *response = wire_new(PB_LIST_JOBS_RESPONSE, arena);
    response->jobs = arena_alloc(arena, page.n_rows * sizeof *response->jobs);
    for (uint32_t i = 0; i < page.n_rows; i++) {
        response->jobs[i] = wire_job_row((const struct row_job *)(const void *)page.rows[i], arena);
    }
    response->n_jobs = page.n_rows;
    if (page.next != NULL) {
        response->next = arena_strdup(arena, page.next);
    }
    exchange_reply(exchange, response);
}

void service__ListJobs(struct exchange *exchange)
{
    office_send(exchange->service->readers, exchange->request->sender, list_jobs, exchange);
}

/* A page of tasks has at most so many bytes of results, and ends where they do not fit any more. */
#define PAGE_RESULT_BYTES (8 * 1024 * 1024)

static bool has_result(const struct row_task *task)
{
    return task->result_bytes > 0;
}

/* How many of the tasks fit into one page with their results: at least one. */
static uint32_t count_fitting(const struct page *page)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < page->n_rows; i++) {
        const struct row_task *task = (const struct row_task *)(const void *)page->rows[i];
        bytes += has_result(task) ? task->result_bytes : 0;
        if (bytes > PAGE_RESULT_BYTES && i > 0) {
            return i;
        }
    }
    return page->n_rows;
}

/* A page; if its results are wanted and too large, a shorter one. */
static enum err read_tasks(struct store *store, struct task_query *query, bool has_results, struct arena *arena,
                           struct page *out, struct error *e)
{
    enum err err = store_tasks(store, query, arena, out, e);
    uint32_t n = err == ERR_OK ? count_fitting(out) : 0;
    if (err == ERR_OK && has_results && n < out->n_rows) {
        query->limit = n;
        err = store_tasks(store, query, arena, out, e);
    }
    return err;
}

static enum err add_results(struct clerk *clerk, struct store *store, const char *job_id, const struct page *page,
                            struct pb_list_tasks_response *response, struct arena *arena, struct error *e)
{
    struct digest *digests = arena_alloc(arena, page->n_rows * sizeof *digests);
    uint32_t *places = arena_alloc(arena, page->n_rows * sizeof *places);
    struct found_bytes *found = arena_zalloc(arena, page->n_rows * sizeof *found);
    uint32_t n = 0;
    size_t bytes = 0;
    for (uint32_t i = 0; i < page->n_rows; i++) {
        const struct row_task *task = (const struct row_task *)(const void *)page->rows[i];
        bytes += has_result(task) ? task->result_bytes : 0;
        if (has_result(task) && bytes <= PAGE_RESULT_BYTES) { /* more if they have just changed */
            digests[n] = task->result;
            places[n++] = i;
        }
    }
    if (n == 0) {
        return ERR_OK;
    }
    enum err err = clerk_note(clerk, store_payloads(store, job_id, digests, n, arena, found, e));
    for (uint32_t i = 0; i < n && err == ERR_OK; i++) {
        response->tasks[places[i]]->result_json.data = (uint8_t *)(uintptr_t)found[i].bytes;
        response->tasks[places[i]]->result_json.len = found[i].n_bytes;
    }
    return err;
}

static void list_tasks(struct clerk *clerk, void *context)
{
    struct exchange *exchange = context;
    struct arena *arena = &exchange->request->arena;
    const struct pb_list_tasks_request *message = exchange->message;
    struct task_query query = {
        .job_id = message->query_id, .limit = page_limit(message->limit), .after = none_if_empty(message->after)};
    struct page page = {0};
    struct store *store;
    struct error e = {0};
    struct pb_list_tasks_response *response = wire_new(PB_LIST_TASKS_RESPONSE, arena);
    bool is_known = false;
    enum err err = task_filter(message->state, &query.state, &e);
    if (err == ERR_OK) {
        err = clerk_store(clerk, &store, &e);
    }
    if (err == ERR_OK) {
        err = name_page(clerk_note(clerk, read_tasks(store, &query, !message->without_results, arena, &page, &e)), &e);
    }
    if (err == ERR_OK && page.n_rows == 0 && query.after == NULL) {
        const char *job_id = message->query_id;
        err = clerk_note(clerk, store_known_jobs(store, &job_id, 1, &is_known, &e));
        if (err == ERR_OK && !is_known) {
            err = error_set(&e, ERR_NOT_FOUND, "there is no job '%s'", job_id);
        }
    }
    if (err == ERR_OK) {
        response->tasks = arena_alloc(arena, page.n_rows * sizeof *response->tasks);
        for (uint32_t i = 0; i < page.n_rows; i++) {
            response->tasks[i] = wire_task_row((const struct row_task *)(const void *)page.rows[i],
                                               page.names == NULL ? NULL : page.names[i], arena);
        }
        response->n_tasks = page.n_rows;
        if (!message->without_results) {
            err = add_results(clerk, store, message->query_id, &page, response, arena, &e);
        }
    }
    if (err != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    if (page.next != NULL) {
        response->next = arena_strdup(arena, page.next);
    }
    exchange_reply(exchange, response);
}

void service__ListTasks(struct exchange *exchange)
{
    office_send(exchange->service->readers, exchange->request->sender, list_tasks, exchange);
}

/* ---- results of a tree: one JSON object by task name, as a stream ---- */

/*
 * Between two chunks nothing runs: the transport says when it has taken one, and a clerk makes the next. So a slow reader
 * holds one chunk in memory and no thread.
 */
struct results {
    struct exchange *exchange;
    const char *job_id;
    int64_t after_stage;
    uint64_t skip;     /* bytes that the client has already */
    uint32_t per_page; /* tasks that are read at a time: fewer if their results are large */
    bool has_begun;
    bool is_first;
    bool is_last; /* everything has been made */
    struct buf chunk;
};

static void make_chunk(struct clerk *clerk, void *context);

static void end_results(struct results *results, const struct error *e)
{
    struct exchange *exchange = results->exchange;
    buf_deinit(&results->chunk);
    mem_free(results);
    if (e != NULL) {
        exchange_fail(exchange, e);
    } else {
        exchange_end(exchange);
    }
}

static void chunk_sent(void *context, struct rpc_call *call, bool ok)
{
    struct results *results = context;
    struct error e = {0};
    UNUSED(call);
    if (!ok) {
        error_set(&e, ERR_CANCELED, "the client has gone");
        end_results(results, &e);
    } else if (results->is_last) {
        end_results(results, NULL);
    } else {
        office_send(results->exchange->service->readers, results->exchange->request->sender, make_chunk, results);
    }
}

static void add_result(struct results *results, const struct task_result *task)
{
    struct buf *chunk = &results->chunk;
    buf_text(chunk, results->is_first ? "" : ",");
    results->is_first = false;
    json_write_text(chunk, task->name == NULL ? "" : task->name);
    buf_char(chunk, ':');
    if (task->state == TASK_SUCCEEDED && task->result.n_bytes > 0) {
        buf_append(chunk, task->result.bytes, task->result.n_bytes);
    } else {
        buf_text(chunk, "null");
    }
}

/* Adds results until the chunk is large enough. What is left of the page is read again, in a smaller one. */
static void add_page(struct results *results, const struct task_result *tasks, uint32_t n)
{
    uint32_t i = 0;
    for (; i < n && results->chunk.n < CHUNK_BYTES; i++) {
        add_result(results, &tasks[i]);
        results->after_stage = tasks[i].stage;
    }
    if (i < n) {
        results->per_page = i > 0 ? i : 1;
        return;
    }
    results->is_last = n < results->per_page;
    results->per_page = results->per_page * 2 < RESULTS_PER_PAGE ? results->per_page * 2 : RESULTS_PER_PAGE;
}

/* Fills the chunk until it is large enough or everything is in it. */
static enum err fill_chunk(struct results *results, struct clerk *clerk, struct error *e)
{
    struct store *store;
    struct arena arena = {0};
    enum err err = clerk_store(clerk, &store, e);
    if (!results->has_begun) {
        buf_char(&results->chunk, '{');
        results->has_begun = true;
    }
    while (err == ERR_OK && !results->is_last && results->chunk.n < CHUNK_BYTES) {
        const struct task_result *tasks = NULL;
        uint32_t n = 0;
        err = clerk_note(clerk, store_task_results(store, results->job_id, results->after_stage, results->per_page,
                                                   &arena, &tasks, &n, e));
        if (err == ERR_OK) {
            add_page(results, tasks, n);
        }
        arena_reset(&arena);
    }
    if (err == ERR_OK && results->is_last) {
        buf_char(&results->chunk, '}');
    }
    arena_deinit(&arena);
    return err;
}

/* Sends what of the chunk the client does not have yet. */
static void send_chunk(struct results *results)
{
    struct arena arena = {0};
    size_t from = results->skip < results->chunk.n ? (size_t)results->skip : results->chunk.n;
    results->skip = 0;
    struct pb_query_results_chunk *message = wire_new(PB_QUERY_RESULTS_CHUNK, &arena);
    message->payload.data = (uint8_t *)results->chunk.data + from;
    message->payload.len = results->chunk.n - from;
    exchange_stream(results->exchange, message, chunk_sent, results);
    arena_deinit(&arena);
}

static void make_chunk(struct clerk *clerk, void *context)
{
    struct results *results = context;
    struct error e = {0};
    buf_reset(&results->chunk);
    if (exchange_look(results->exchange, &e) != ERR_OK || fill_chunk(results, clerk, &e) != ERR_OK) {
        end_results(results, &e);
    } else if (results->chunk.n <= results->skip && !results->is_last) {
        results->skip -= results->chunk.n;
        office_send(results->exchange->service->readers, results->exchange->request->sender, make_chunk,
                    results); /* others have their turn meanwhile */
    } else {
        send_chunk(results);
    }
}

static void start_results(struct exchange *exchange)
{
    const struct pb_fetch_query_results_request *message = exchange->message;
    struct results *results = mem_calloc(1, sizeof *results);
    *results = (struct results){.exchange = exchange,
                                .job_id = message->query_id,
                                .after_stage = -1,
                                .skip = message->offset,
                                .per_page = RESULTS_PER_PAGE,
                                .is_first = true};
    office_send(exchange->service->readers, exchange->request->sender, make_chunk, results);
}

struct ending {
    enum job_state state;
    enum job_kind kind;
};

static void *read_ending(const struct core *core, const char *job_id, struct arena *arena)
{
    struct job_status status;
    struct ending *ending = arena_alloc(arena, sizeof *ending);
    if (core_job_status(core, job_id, &status) != ERR_OK) {
        return NULL;
    }
    *ending = (struct ending){status.state, status.kind};
    return ending;
}

/* If the job has ended, that is durable by now, so the store has all of its results. */
static void check_ending(struct exchange *exchange, void *found)
{
    const struct pb_fetch_query_results_request *message = exchange->message;
    const struct ending *ending = found;
    struct error e = {0};
    if (ending->kind == JOB_KIND_TREE && job_state_is_terminal(ending->state)) {
        start_results(exchange);
        return;
    }
    if (ending->kind == JOB_KIND_QUERY && ending->state == JOB_SUCCEEDED) {
        service__send_rows(exchange);
        return;
    }
    error_set(&e, ERR_PRECONDITION, "job '%s' is %s", message->query_id, job_state_name(ending->state));
    error_hint(&e, job_state_is_terminal(ending->state) ? "only queries that have succeeded have rows"
                                                        : "results can be fetched when it has ended");
    exchange_fail(exchange, &e);
}

void service__FetchQueryResults(struct exchange *exchange)
{
    const struct pb_fetch_query_results_request *message = exchange->message;
    service__ask(exchange,
                 &(struct job_question){.job_id = message->query_id, .read = read_ending, .then = check_ending});
}
