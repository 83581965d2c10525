/*
 * Tasks with the executor "sql": a child job, whose rows become the task's result. The test plays the worker that plans
 * and runs the query, and, where rows are too many to be sent along, serves them as a worker does.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include "base/json.h"
#include "coordinator/rows_json.h"
#include "exchange/serve.h"
#include "exchange/writer.h"
#include "service/peer.h"
#include "test.h"
#include "unit/exchange/folder.h"
#include "unit/exchange/generate.h"
#include "unit/exchange/stream.h"

#define SUCCEEDED CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED
#define FAILED CAPSTAN__V1__TASK_STATE__TASK_STATE_FAILED
#define JOB_HAS_SUCCEEDED CAPSTAN__V1__QUERY_STATE__QUERY_STATE_SUCCEEDED
#define JOB_HAS_FAILED CAPSTAN__V1__QUERY_STATE__QUERY_STATE_FAILED
#define JOB_IS_CANCELED CAPSTAN__V1__QUERY_STATE__QUERY_STATE_CANCELED
#define JOB_RUNS CAPSTAN__V1__QUERY_STATE__QUERY_STATE_RUNNING

#define ONE_TASK "{\"tasks\":[{\"name\":\"count\",\"executor\":\"sql\",\"inputs\":{\"sql\":\"select 42 as x\"}}]}"

/* ---- rows ---- */

/* A stream of one column "x" with the numbers from `first` on. */
static struct ipc_tally numbers(int64_t first, int64_t n, struct buf *out)
{
    struct ArrowSchema schema = {0};
    struct ArrowArray array = {0};
    generate_numbers(first, n, &schema, &array);
    struct ipc_tally tally = stream_write(&schema, &array, 1, false, out);
    array.release(&array);
    schema.release(&schema);
    return tally;
}

/* Takes the child's planning task and answers with these rows. Returns the child's id. */
static const char *answer_query(struct peer *p, int64_t first, int64_t n)
{
    struct buf stream = {0};
    struct ipc_tally tally = numbers(first, n, &stream);
    const struct pb_task_assignment *plan = peer_take(p, "w1", "plan");
    CHECK_STR(plan->executor, "sql");
    CHECK_STR(peer_report_rows(p, "w1", plan, &stream, &tally), "");
    buf_deinit(&stream);
    return plan->query_id;
}

static struct pb_task_status *task_of(struct peer *p, const char *job, const char *name)
{
    struct pb_list_tasks_request *request = peer_message(p, PB_LIST_TASKS_REQUEST);
    struct pb_list_tasks_response *tasks = NULL;
    request->query_id = arena_strdup(&p->arena, job);
    CHECK_ERR(peer_call(p, "ControlPlane/ListTasks", request, PB_LIST_TASKS_RESPONSE, &tasks), ERR_OK);
    for (size_t i = 0; i < tasks->n_tasks; i++) {
        if (strcmp(tasks->tasks[i]->name, name) == 0) {
            return tasks->tasks[i];
        }
    }
    CHECK(!"there is no such task");
    return NULL;
}

/* A member of the planning task's inputs, as text. */
static const char *planned(struct peer *p, const struct pb_task_assignment *plan, const char *key)
{
    struct json *root = NULL;
    CHECK_ERR(json_parse((const char *)plan->plan_fragment_json.data, plan->plan_fragment_json.len, &root, &p->e),
              ERR_OK);
    const char *text = json_text(json_get(root, key), NULL);
    text = text == NULL ? NULL : arena_strdup(&p->arena, text);
    json_free(root);
    return text;
}

/* ---- the way of a task ---- */

TEST(a_sql_task_runs_as_a_query_and_its_rows_are_its_result)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    const char *job =
        peer_submit(&p, "{\"name\":\"t\",\"priority\":1,\"tasks\":["
                        "{\"name\":\"count\",\"executor\":\"sql\",\"inputs\":{\"sql\":\"select 41 + 1 as x\"}},"
                        "{\"name\":\"after\",\"executor\":\"sleep\",\"depends_on\":[\"count\"],"
                        "\"inputs\":{\"ms\":\"${results.count.rows[0].x}\"}}]}");
    const char *child = answer_query(&p, 42, 1);
    CHECK_INT(strncmp(child, "c-", 2), 0);
    CHECK_UINT(strlen(child), 34);
    const struct pb_query_status *status = peer_status(&p, child, 10000);
    CHECK_INT(status->state, JOB_HAS_SUCCEEDED);
    CHECK_STR(status->kind, "query");
    CHECK_STR(status->name, "count");
    const struct pb_task_assignment *after = peer_take(&p, "w1", "after");
    const char *result = arena_format(&p.arena, "{\"rows\":[{\"x\":42}],\"row_count\":1,\"job_id\":\"%s\"}", child);
    CHECK_STR(peer_inputs(&p, after), arena_format(&p.arena, "{\"ms\":42,\"results\":{\"count\":%s}}", result));
    CHECK_STR(peer_report(&p, "w1", after, SUCCEEDED, "{}"), "");
    CHECK_INT(peer_status(&p, job, 10000)->state, JOB_HAS_SUCCEEDED);
    CHECK_STR(peer_results(&p, job, 0), arena_format(&p.arena, "{\"count\":%s,\"after\":{}}", result));
    CHECK_UINT(task_of(&p, job, "count")->rows, 1);
    peer_restart(&p); /* and from the store */
    CHECK_STR(peer_results(&p, job, 0), arena_format(&p.arena, "{\"count\":%s,\"after\":{}}", result));
    peer_deinit(&p);
}

TEST(results_of_other_tasks_go_into_the_statement_and_its_parameters)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    peer_submit(
        &p, "{\"tasks\":[{\"name\":\"a\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0}},"
            "{\"name\":\"count\",\"executor\":\"sql\",\"depends_on\":[\"a\"],\"inputs\":{"
            "\"sql\":\"select * from ${results.a.table} where k = $1\",\"params\":[\"${results.a.key}\", 2.50]}}]}");
    CHECK_STR(peer_report(&p, "w1", peer_take(&p, "w1", "a"), SUCCEEDED, "{\"table\":\"trips\",\"key\":[1,null]}"), "");
    const struct pb_task_assignment *plan = peer_take(&p, "w1", "plan");
    CHECK_STR(planned(&p, plan, "sql"), "select * from trips where k = $1");
    CHECK(strstr(peer_inputs(&p, plan), "\"params\":[[1,null],2.5") != NULL);
    CHECK(strstr(peer_inputs(&p, plan), "\"results\"") == NULL);
    peer_deinit(&p);
}

static void put_table(struct peer *p, const char *name)
{
    struct pb_put_table_request *put = peer_message(p, PB_PUT_TABLE_REQUEST);
    put->table = peer_message(p, PB_TABLE);
    put->table->name = arena_strdup(&p->arena, name);
    put->table->source = arena_strdup(&p->arena, "/data/*.parquet");
    put->table->format = arena_strdup(&p->arena, "parquet");
    CHECK_ERR(peer_call(p, "Cluster/PutTable", put, PB_PUT_TABLE_RESPONSE, NULL), ERR_OK);
}

TEST(data_sets_whose_names_stand_behind_an_escape_go_along)
{
    static const char *const statements[] = {"from t", "from query(E'from\\\\nt')", "from query(E'from\\\\x20t')",
                                             "from query(E'from\\\\U00000020t')", "from query(E'from\\\\t\\\\tT')"};
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    put_table(&p, "t");
    put_table(&p, "other");
    for (size_t i = 0; i < ARRAY_LEN(statements); i++) {
        peer_submit(&p,
                    arena_format(&p.arena,
                                 "{\"tasks\":[{\"name\":\"count\",\"executor\":\"sql\",\"inputs\":{\"sql\":\"%s\"}}]}",
                                 statements[i]));
        const char *inputs = peer_inputs(&p, peer_take(&p, "w1", "plan"));
        const char *tables = strstr(inputs, "\"tables\":[");
        CHECK(tables != NULL);
        CHECK_STR(tables == NULL ? "" : arena_format(&p.arena, "%.*s", 25, tables), "\"tables\":[{\"name\":\"t\",\"so");
        CHECK(strstr(inputs, "other") == NULL);
    }
    peer_deinit(&p);
}

TEST(a_statement_that_cannot_be_filled_in_fails_the_task_and_names_the_path)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    const char *job = peer_submit(
        &p,
        "{\"tasks\":[{\"name\":\"a\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0}},"
        "{\"name\":\"lost\",\"executor\":\"sql\",\"depends_on\":[\"a\"],\"inputs\":{\"sql\":\"select ${results.a.n}\"}},"
        "{\"name\":\"odd\",\"executor\":\"sql\",\"depends_on\":[\"a\"],\"inputs\":{\"sql\":\"${results.a.m}\"}},"
        "{\"name\":\"bare\",\"executor\":\"sql\",\"depends_on\":[\"a\"],\"inputs\":{\"sql\":\"select 1\","
        "\"params\":\"${results.a.m}\"}}]}");
    CHECK_STR(peer_report(&p, "w1", peer_take(&p, "w1", "a"), SUCCEEDED, "{\"m\":7}"), "");
    CHECK_INT(peer_status(&p, job, 10000)->state, JOB_HAS_FAILED);
    CHECK(strstr(task_of(&p, job, "lost")->message, "results.a.n") != NULL);
    CHECK_STR(task_of(&p, job, "odd")->message, "inputs.sql: must be a text that is not empty");
    CHECK_STR(task_of(&p, job, "bare")->message, "inputs.params: must be a list, or an object for named parameters");
    peer_deinit(&p);
}

TEST(a_query_that_fails_fails_the_task_with_its_message)
{
    struct peer p;
    struct settings settings = settings_default();
    settings.core.blacklist_failure_threshold = 10;
    peer_init_with(&p, settings);
    peer_register(&p, "w1");
    const char *job = peer_submit(&p, ONE_TASK);
    const struct pb_task_assignment *plan = peer_take(&p, "w1", "plan");
    for (int i = 0; i < 3; i++) {
        CHECK_STR(peer_report(&p, "w1", plan, FAILED, "no such table"), "");
        plan = i < 2 ? peer_take(&p, "w1", "plan") : plan;
    }
    CHECK_INT(peer_status(&p, job, 10000)->state, JOB_HAS_FAILED);
    CHECK_STR(
        task_of(&p, job, "count")->message,
        arena_format(&p.arena, "child job %s failed: task 'plan' failed in attempt 3: no such table", plan->query_id));
    struct pb_retry_job_request *retry = peer_message(&p, PB_RETRY_JOB_REQUEST);
    retry->query_id = arena_strdup(&p.arena, job);
    CHECK_ERR(peer_call(&p, "ControlPlane/RetryJob", retry, PB_RETRY_JOB_RESPONSE, NULL), ERR_OK);
    CHECK(strcmp(answer_query(&p, 1, 1), plan->query_id) != 0); /* another attempt, another child */
    CHECK_INT(peer_status(&p, job, 10000)->state, JOB_HAS_SUCCEEDED);
    peer_deinit(&p);
}

TEST(a_canceled_tree_cancels_the_query_of_its_task)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    const char *job = peer_submit(&p, ONE_TASK);
    const struct pb_task_assignment *plan = peer_take(&p, "w1", "plan");
    struct pb_cancel_query_request *cancel = peer_message(&p, PB_CANCEL_QUERY_REQUEST);
    cancel->query_id = arena_strdup(&p.arena, job);
    CHECK_ERR(peer_call(&p, "ControlPlane/CancelQuery", cancel, PB_CANCEL_QUERY_RESPONSE, NULL), ERR_OK);
    CHECK_INT(peer_status(&p, plan->query_id, 10000)->state, JOB_IS_CANCELED);
    CHECK_STR(peer_report(&p, "w1", plan, FAILED, "stopped"), "stale attempt: the job has ended");
    peer_deinit(&p);
}

TEST(a_task_that_takes_too_long_is_ended_with_its_query)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    const char *job = peer_submit(&p, "{\"tasks\":[{\"name\":\"slow\",\"executor\":\"sql\",\"timeout_ms\":5000,"
                                      "\"inputs\":{\"sql\":\"select 1\"}}]}");
    const struct pb_task_assignment *plan = peer_take(&p, "w1", "plan");
    peer_restart(&p); /* the next leader looks at the clock, too */
    CHECK_INT(peer_status(&p, job, 20000)->state, JOB_HAS_FAILED);
    CHECK_STR(task_of(&p, job, "slow")->message,
              arena_format(&p.arena, "child job %s canceled: timed out after 5000 ms", plan->query_id));
    job = peer_submit(&p, "{\"tasks\":[{\"name\":\"slow\",\"executor\":\"sql\",\"timeout_ms\":1,"
                          "\"inputs\":{\"sql\":\"select 1\"}}]}");
    CHECK_INT(peer_status(&p, job, 20000)->state, JOB_HAS_FAILED);
    CHECK(strstr(task_of(&p, job, "slow")->message, "timed out after 1 ms") != NULL);
    peer_deinit(&p);
}

/* Trap 24. */
TEST(a_query_of_a_task_does_not_wait_for_the_slot_of_its_tree)
{
    struct peer p;
    struct settings settings = settings_default();
    settings.core.max_concurrent_tasks_per_worker = 1;
    settings.core.max_concurrent_tasks_per_query = 1;
    peer_init_with(&p, settings);
    peer_register(&p, "w1");
    const char *job =
        peer_submit(&p, "{\"tasks\":["
                        "{\"name\":\"one\",\"executor\":\"sql\",\"inputs\":{\"sql\":\"select 1 as x\"}},"
                        "{\"name\":\"two\",\"executor\":\"sql\",\"inputs\":{\"sql\":\"select 2 as x\"}}]}");
    answer_query(&p, 1, 1);
    answer_query(&p, 2, 1);
    CHECK_INT(peer_status(&p, job, 10000)->state, JOB_HAS_SUCCEEDED);
    peer_deinit(&p);
}

/* ---- how many rows ---- */

TEST(a_result_has_the_first_rows_and_says_how_many_there_are)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    const char *job = peer_submit(&p, ONE_TASK);
    answer_query(&p, 0, 1000);
    CHECK_INT(peer_status(&p, job, 10000)->state, JOB_HAS_SUCCEEDED);
    CHECK(strstr(peer_results(&p, job, 0), "\"row_count\":1000,") != NULL);
    CHECK(strstr(peer_results(&p, job, 0), "truncated") == NULL); /* just so many */

    job = peer_submit(&p, ONE_TASK);
    answer_query(&p, 0, 1001);
    CHECK_INT(peer_status(&p, job, 10000)->state, JOB_HAS_SUCCEEDED);
    const char *results = peer_results(&p, job, 0);
    CHECK(strstr(results, ",{\"x\":999}],\"row_count\":1001,") != NULL);
    CHECK(strstr(results, ",\"truncated\":true}") != NULL);

    job = peer_submit(&p, ONE_TASK);
    answer_query(&p, 0, 0);
    CHECK_INT(peer_status(&p, job, 10000)->state, JOB_HAS_SUCCEEDED);
    CHECK(strstr(peer_results(&p, job, 0), "{\"rows\":[],\"row_count\":0,") != NULL);
    peer_deinit(&p);
}

static const char *feed_all(const struct buf *stream, size_t step, uint32_t rows_max, size_t bytes_max, struct buf *out)
{
    struct rows_json *rows = rows_json_new(rows_max, bytes_max);
    struct error e = {0};
    for (size_t at = 0; at < stream->n; at += step) {
        size_t n = stream->n - at < step ? stream->n - at : step;
        CHECK_ERR(rows_json_feed(rows, stream->data + at, n, &e), ERR_OK);
    }
    buf_reset(out);
    rows_json_write(rows, out);
    CHECK(rows_json_count(rows) <= rows_max);
    CHECK(out->n <= bytes_max);
    buf_text(out, rows_json_is_full(rows) ? "+" : "");
    rows_json_free(rows);
    return out->data;
}

TEST(rows_are_taken_while_there_is_room_however_the_bytes_come)
{
    struct buf stream = {0};
    struct buf out = {0};
    (void)numbers(8, 3, &stream);
    for (size_t step = 1; step < 40; step++) {
        CHECK_STR(feed_all(&stream, step, 9, 1000, &out), "[{\"x\":8},{\"x\":9},{\"x\":10}]");
        CHECK_STR(feed_all(&stream, step, 2, 1000, &out), "[{\"x\":8},{\"x\":9}]+");
    }
    CHECK_STR(feed_all(&stream, 1000000, 9, 26, &out), "[{\"x\":8},{\"x\":9},{\"x\":10}]"); /* just fits */
    CHECK_STR(feed_all(&stream, 1000000, 9, 25, &out), "[{\"x\":8},{\"x\":9}]+");
    CHECK_STR(feed_all(&stream, 1000000, 9, 2, &out), "[]+");
    buf_deinit(&stream);
    buf_deinit(&out);
}

static void keep_schema(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

TEST(columns_of_one_name_get_names_of_their_own)
{
    static const char *const names[] = {"a", "a_1", "a", "", "", "\"q"};
    const int64_t value = INT64_C(1) << 60;
    const void *buffers[] = {NULL, &value};
    struct ArrowSchema columns[6];
    struct ArrowSchema *children[6];
    struct ArrowArray cells[6];
    struct ArrowArray *arrays[6];
    struct buf stream = {0};
    struct buf out = {0};
    for (int i = 0; i < 6; i++) {
        columns[i] = (struct ArrowSchema){.format = "l", .name = names[i], .release = keep_schema};
        children[i] = &columns[i];
        cells[i] = (struct ArrowArray){.length = 1, .n_buffers = 2, .buffers = buffers};
        arrays[i] = &cells[i];
    }
    struct ArrowSchema schema = {
        .format = "+s", .name = "", .n_children = 6, .children = children, .release = keep_schema};
    const void *none[] = {NULL};
    struct ArrowArray batch = {.length = 1, .n_buffers = 1, .buffers = none, .n_children = 6, .children = arrays};
    (void)stream_write(&schema, &batch, 1, false, &stream);
    CHECK_STR(feed_all(&stream, 1000000, 9, 1000, &out),
              "[{\"a\":\"1152921504606846976\",\"a_1\":\"1152921504606846976\",\"a_2\":\"1152921504606846976\","
              "\"\":\"1152921504606846976\",\"_1\":\"1152921504606846976\",\"\\\"q\":\"1152921504606846976\"}]");
    buf_deinit(&stream);
    buf_deinit(&out);
}

/* ---- rows that lie on a worker, and leaders that change ---- */

/* Where a worker should be: connections are taken, and nobody says a word. */
static int open_void(char *address, size_t size)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof own;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK_INT(bind(fd, (struct sockaddr *)&own, n), 0);
    CHECK_INT(listen(fd, 16), 0);
    CHECK_INT(getsockname(fd, (struct sockaddr *)&own, &n), 0);
    snprintf(address, size, "127.0.0.1:%u", (unsigned)ntohs(own.sin_port));
    return fd;
}

/* What a worker has besides: a store with the rows of that attempt, and a server in front of it. */
struct shop {
    struct folder folder;
    struct exchange_server *server;
    struct rpc_server *rpc;
};

static void shop_open(struct shop *shop)
{
    struct error e = {0};
    struct rpc_method method = {.path = EXCHANGE_FETCH_PATH, .handler = exchange_serve};
    folder_open(&shop->folder, 1 << 20);
    shop->server = exchange_server_open(shop->folder.store, 1);
    struct rpc_server_options options = {
        .listen = "127.0.0.1:0", .methods = &method, .n_methods = 1, .context = shop->server, .pollers = 1};
    CHECK_ERR(rpc_server_open(&options, &shop->rpc, &e), ERR_OK);
}

static void shop_close(struct shop *shop)
{
    rpc_server_close(shop->rpc, 0);
    exchange_server_close(shop->server);
    folder_close(&shop->folder);
}

static struct ipc_tally shop_keep(struct shop *shop, const struct pb_task_assignment *task, int64_t first, int64_t n)
{
    struct ArrowSchema schema = {0};
    struct ArrowArray array = {0};
    struct exchange_writer *writer = NULL;
    struct ipc_tally tally;
    struct error e = {0};
    struct exchange_writer_options options = {.store = shop->folder.store,
                                              .kind = EXCHANGE_KIND_RESULT,
                                              .scatter = {.mode = SCATTER_ONE, .n_partitions = 1},
                                              .inline_bytes_max = 1};
    CHECK(exchange_key_make(task->query_id, (uint32_t)task->stage_id, (uint32_t)task->task_id, task->attempt,
                            &options.key));
    generate_numbers(first, n, &schema, &array);
    CHECK_ERR(exchange_writer_open(&options, &schema, &writer, &e), ERR_OK);
    CHECK_ERR(exchange_writer_append(writer, &array, &e), ERR_OK);
    CHECK_ERR(exchange_writer_finish(writer, &tally, &e), ERR_OK);
    exchange_writer_close(writer);
    array.release(&array);
    schema.release(&schema);
    return tally;
}

TEST(rows_that_a_worker_keeps_are_fetched_from_there)
{
    struct peer p;
    struct shop shop;
    peer_init(&p);
    shop_open(&shop);
    peer_register_at(&p, "w1", "i1", rpc_server_address(shop.rpc));
    const char *job = peer_submit(&p, ONE_TASK);
    const struct pb_task_assignment *plan = peer_take(&p, "w1", "plan");
    struct ipc_tally tally = shop_keep(&shop, plan, 5, 200000);
    CHECK_STR(peer_report_rows(&p, "w1", plan, NULL, &tally), "");
    CHECK_INT(peer_status(&p, job, 10000)->state, JOB_HAS_SUCCEEDED);
    const char *results = peer_results(&p, job, 0);
    CHECK(strstr(results, "{\"count\":{\"rows\":[{\"x\":5},{\"x\":6},") == results);
    CHECK(strstr(results, ",{\"x\":1004}],\"row_count\":200000,") != NULL);
    peer_deinit(&p);
    shop_close(&shop);
}

/* A worker that has the rows, and fails as often before it sends them. */
struct moody {
    struct shop shop;
    struct rpc_server *rpc;
    atomic_uint n_asked;
    uint32_t n_failures;
};

static void serve_at_last(void *context, struct rpc_call *call)
{
    struct moody *moody = context;
    struct error e = {0};
    if (atomic_fetch_add(&moody->n_asked, 1) < moody->n_failures) {
        error_set(&e, ERR_INTERNAL, "out of sorts");
        rpc_call_fail(call, &e, NULL);
    } else {
        exchange_serve(moody->shop.server, call);
    }
}

static void moody_open(struct moody *moody, uint32_t n_failures)
{
    struct error e = {0};
    struct rpc_method method = {.path = EXCHANGE_FETCH_PATH, .handler = serve_at_last};
    struct rpc_server_options options = {
        .listen = "127.0.0.1:0", .methods = &method, .n_methods = 1, .context = moody, .pollers = 1};
    *moody = (struct moody){.n_failures = n_failures};
    shop_open(&moody->shop);
    CHECK_ERR(rpc_server_open(&options, &moody->rpc, &e), ERR_OK);
}

/* Runs the task, whose rows are there, and returns its job. */
static const char *moody_run(struct moody *moody, struct peer *p)
{
    peer_register_at(p, "w1", "i1", rpc_server_address(moody->rpc));
    const char *job = peer_submit(p, ONE_TASK);
    const struct pb_task_assignment *plan = peer_take(p, "w1", "plan");
    struct ipc_tally tally = shop_keep(&moody->shop, plan, 5, 3);
    CHECK_STR(peer_report_rows(p, "w1", plan, NULL, &tally), "");
    return job;
}

static void moody_close(struct moody *moody)
{
    rpc_server_close(moody->rpc, 0);
    shop_close(&moody->shop);
}

TEST(a_worker_that_fails_to_send_rows_is_asked_again_before_the_task_fails)
{
    struct peer p;
    struct moody moody;
    peer_init(&p);
    moody_open(&moody, 2);
    const char *job = moody_run(&moody, &p);
    CHECK_INT(peer_status(&p, job, 10000)->state, JOB_HAS_SUCCEEDED);
    CHECK(strstr(peer_results(&p, job, 0), "{\"rows\":[{\"x\":5},{\"x\":6},{\"x\":7}],\"row_count\":3,") != NULL);
    CHECK_UINT(atomic_load(&moody.n_asked), 3);
    peer_deinit(&p);
    moody_close(&moody);
}

TEST(a_worker_that_always_fails_to_send_rows_fails_the_task)
{
    struct peer p;
    struct moody moody;
    peer_init(&p);
    moody_open(&moody, UINT32_MAX);
    const char *job = moody_run(&moody, &p);
    CHECK_INT(peer_status(&p, job, 10000)->state, JOB_HAS_FAILED);
    CHECK(strstr(task_of(&p, job, "count")->message, "out of sorts") != NULL);
    CHECK_UINT(atomic_load(&moody.n_asked), 3);
    peer_deinit(&p);
    moody_close(&moody);
}

TEST(rows_that_are_lost_fail_the_task)
{
    struct peer p;
    struct shop shop;
    peer_init(&p);
    shop_open(&shop);
    peer_register_at(&p, "w1", "i1", rpc_server_address(shop.rpc));
    const char *job = peer_submit(&p, ONE_TASK);
    const struct pb_task_assignment *plan = peer_take(&p, "w1", "plan");
    struct ipc_tally tally = {.bytes = 5000000, .rows = 7}; /* it says so, and has nothing */
    CHECK_STR(peer_report_rows(&p, "w1", plan, NULL, &tally), "");
    CHECK_INT(peer_status(&p, job, 10000)->state, JOB_HAS_FAILED);
    const char *message = task_of(&p, job, "count")->message;
    CHECK(strstr(message, plan->query_id) != NULL);
    CHECK(strstr(message, "that worker 'w1' had are lost") != NULL);
    peer_deinit(&p);
    shop_close(&shop);
}

/*
 * The child has ended, and the leader stops before it has read the rows: it hangs on a worker that does not answer. The
 * next leader is asked for the child again, finds that it has ended, and reads the rows where the worker is now.
 */
TEST(a_child_that_ended_under_the_leader_before_is_read_by_the_next)
{
    struct peer p;
    struct shop shop;
    char nowhere[32];
    int fd = open_void(nowhere, sizeof nowhere);
    peer_init(&p);
    shop_open(&shop);
    peer_register_at(&p, "w1", "i1", nowhere);
    const char *job = peer_submit(&p, ONE_TASK);
    const struct pb_task_assignment *plan = peer_take(&p, "w1", "plan");
    struct ipc_tally tally = shop_keep(&shop, plan, 1, 3);
    CHECK_STR(peer_report_rows(&p, "w1", plan, NULL, &tally), "");
    CHECK_INT(peer_status(&p, plan->query_id, 10000)->state, JOB_HAS_SUCCEEDED);
    int asked = accept(fd, NULL, NULL); /* the leader wants the rows */
    CHECK(asked >= 0);
    CHECK_INT(peer_status(&p, job, 0)->state, JOB_RUNS);
    peer_register_at(&p, "w1", "i2", rpc_server_address(shop.rpc));
    peer_restart(&p);
    CHECK_INT(peer_status(&p, job, 20000)->state, JOB_HAS_SUCCEEDED);
    CHECK_STR(peer_results(&p, job, 0),
              arena_format(&p.arena,
                           "{\"count\":{\"rows\":[{\"x\":1},{\"x\":2},{\"x\":3}],\"row_count\":3,\"job_id\":\"%s\"}}",
                           plan->query_id));
    peer_deinit(&p);
    shop_close(&shop);
    close(asked);
    close(fd);
}

TEST(a_child_that_was_not_asked_for_before_the_leader_stopped_is_submitted_by_the_next)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    const char *job = peer_submit(&p, ONE_TASK);
    peer_restart(&p); /* before or after the child job was submitted: both are fine */
    answer_query(&p, 3, 1);
    CHECK_INT(peer_status(&p, job, 10000)->state, JOB_HAS_SUCCEEDED);
    peer_deinit(&p);
}

TEST(a_job_that_has_the_childs_name_by_chance_fails_the_task)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    CHECK_ERR(peer_submit_err(&p, "t", ONE_TASK), ERR_OK);
    char child[40];
    snprintf(child, sizeof child, "%s", answer_query(&p, 1, 1));
    CHECK_INT(peer_status(&p, "t", 10000)->state, JOB_HAS_SUCCEEDED);
    peer_deinit(&p);
    struct peer q; /* a cluster where somebody was first */
    peer_init(&q);
    peer_register(&q, "w1");
    CHECK_ERR(peer_submit_err(&q, child, "{\"tasks\":[{\"name\":\"a\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0}}]}"),
              ERR_OK);
    CHECK_ERR(peer_submit_err(&q, "t", ONE_TASK), ERR_OK);
    CHECK_INT(peer_status(&q, "t", 10000)->state, JOB_HAS_FAILED);
    CHECK(strstr(task_of(&q, "t", "count")->message, "exists and is not this task's") != NULL);
    peer_deinit(&q);
}
