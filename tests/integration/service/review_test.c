/* What a hostile client, a slow reader or an unlucky moment could do to the services. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "coordinator/clerk.h"
#include "service/peer.h"
#include "test.h"

#define SUCCEEDED CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED
#define JOB_HAS_SUCCEEDED CAPSTAN__V1__QUERY_STATE__QUERY_STATE_SUCCEEDED

/* A JSON text of so many bytes, in the peer's arena. */
static char *long_text(struct peer *p, size_t n)
{
    char *text = arena_alloc(&p->arena, n + 1);
    memset(text, 'x', n);
    text[0] = '"';
    text[n - 1] = '"';
    text[n] = '\0';
    return text;
}

/* A tree of `n` tasks t0, t1, ... without dependencies. */
static const char *fan(struct peer *p, uint32_t n)
{
    struct buf tree = {0};
    buf_text(&tree, "{\"tasks\":[");
    for (uint32_t i = 0; i < n; i++) {
        buf_format(&tree, "%s{\"name\":\"t%u\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0}}", i == 0 ? "" : ",", i);
    }
    buf_text(&tree, "]}");
    const char *text = arena_strdup(&p->arena, tree.data);
    buf_deinit(&tree);
    return text;
}

/* ---- answers and the size of a message ---- */

/* Eight tasks that get 15 MiB each do not fit into one message; they must arrive all the same. */
TEST(tasks_whose_inputs_do_not_fit_into_one_answer_come_in_several)
{
    struct peer p;
    struct buf tree = {0};
    bool seen[8] = {false};
    uint32_t n_seen = 0;
    peer_init(&p);
    peer_register(&p, "w1");
    buf_text(&tree, "{\"tasks\":[{\"name\":\"a\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0}}");
    for (int i = 0; i < 8; i++) {
        buf_format(&tree,
                   ",{\"name\":\"b%d\",\"executor\":\"command\",\"depends_on\":[\"a\"],\"inputs\":{\"argv\":[\"x\"", i);
        for (int k = 0; k < 13; k++) {
            buf_text(&tree, ",\"${results.a}\"");
        }
        buf_text(&tree, "]}}");
    }
    buf_text(&tree, "]}");
    peer_submit(&p, tree.data);
    buf_deinit(&tree);
    const struct pb_task_assignment *a = peer_take(&p, "w1", "a");
    CHECK_STR(peer_report(&p, "w1", a, SUCCEEDED, long_text(&p, LIMIT_INLINE_RESULT_BYTES)), "");
    for (int round = 0; round < 20 && n_seen < 8; round++) {
        struct pb_get_task_response *got = peer_poll(&p, "w1", 8 - n_seen, 5000);
        for (size_t i = 0; i < got->n_tasks; i++) {
            int at = got->tasks[i]->name[1] - '0';
            CHECK(got->tasks[i]->plan_fragment_json.len > 13 * LIMIT_INLINE_RESULT_BYTES);
            CHECK(!seen[at]);
            seen[at] = true;
            n_seen++;
        }
        arena_reset(&p.arena);
    }
    CHECK_UINT(n_seen, 8);
    peer_deinit(&p);
}

TEST(large_results_of_many_tasks_come_in_pieces_and_all_of_them)
{
    enum { N = 70 };
    struct peer p;
    struct settings settings = settings_default();
    settings.core.max_concurrent_tasks_per_worker = N;
    settings.core.max_concurrent_tasks_per_query = N;
    peer_init_with(&p, settings);
    peer_register(&p, "w1");
    const char *job = peer_submit(&p, fan(&p, N));
    const char *result = long_text(&p, LIMIT_INLINE_RESULT_BYTES);
    struct pb_get_task_response *got = peer_poll(&p, "w1", N, 5000);
    CHECK_UINT(got->n_tasks, N);
    for (size_t i = 0; i < N; i++) {
        CHECK_STR(peer_report(&p, "w1", got->tasks[i], SUCCEEDED, result), "");
    }
    CHECK_INT(peer_status(&p, job, 10000)->state, JOB_HAS_SUCCEEDED);
    struct pb_list_tasks_request *list = peer_message(&p, PB_LIST_TASKS_REQUEST);
    struct pb_list_tasks_response *page = NULL;
    uint32_t n_listed = 0;
    list->query_id = arena_strdup(&p.arena, job);
    list->limit = 1000;
    do {
        CHECK_ERR(peer_call(&p, "ControlPlane/ListTasks", list, PB_LIST_TASKS_RESPONSE, &page), ERR_OK);
        for (size_t i = 0; i < page->n_tasks; i++, n_listed++) {
            CHECK_UINT(page->tasks[i]->result_json.len, LIMIT_INLINE_RESULT_BYTES); /* none is left out */
        }
        list->after = page->next;
    } while (page->next[0] != '\0');
    CHECK_UINT(n_listed, N);
    size_t whole = strlen(peer_results(&p, job, 0));
    CHECK(whole > (size_t)N * LIMIT_INLINE_RESULT_BYTES);
    const char *tail = peer_results(&p, job, whole - 10);
    CHECK_UINT(strlen(tail), 10);
    CHECK_STR(tail + 8, "\"}");
    CHECK_STR(peer_results(&p, job, whole), "");
    CHECK_STR(peer_results(&p, job, whole + 1000), "");
    peer_deinit(&p);
}

/* One task waits for so much that it can never be told. What it waits for is not even read as a whole. */
TEST(a_task_whose_parents_left_too_much_fails_and_says_so)
{
    enum { N = 20 };
    struct peer p;
    struct buf tree = {0};
    peer_init(&p);
    peer_register(&p, "w1");
    buf_text(&tree, "{\"tasks\":[");
    for (int i = 0; i < N; i++) {
        buf_format(&tree, "{\"name\":\"a%d\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0}},", i);
    }
    buf_text(&tree, "{\"name\":\"b\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0},\"depends_on\":[");
    for (int i = 0; i < N; i++) {
        buf_format(&tree, "%s\"a%d\"", i == 0 ? "" : ",", i);
    }
    buf_text(&tree, "]}]}");
    const char *job = peer_submit(&p, tree.data);
    buf_deinit(&tree);
    const char *result = long_text(&p, LIMIT_INLINE_RESULT_BYTES);
    for (int n = 0; n < N;) {
        struct pb_get_task_response *got = peer_poll(&p, "w1", 8, 5000);
        for (size_t i = 0; i < got->n_tasks; i++, n++) {
            CHECK_STR(peer_report(&p, "w1", got->tasks[i], SUCCEEDED, result), "");
        }
    }
    CHECK_UINT(peer_poll(&p, "w1", 8, 200)->n_tasks, 0);
    CHECK_INT(peer_status(&p, job, 10000)->state, CAPSTAN__V1__QUERY_STATE__QUERY_STATE_FAILED);
    struct pb_list_tasks_request *request = peer_message(&p, PB_LIST_TASKS_REQUEST);
    struct pb_list_tasks_response *tasks = NULL;
    request->query_id = arena_strdup(&p.arena, job);
    request->state = arena_strdup(&p.arena, "failed");
    CHECK_ERR(peer_call(&p, "ControlPlane/ListTasks", request, PB_LIST_TASKS_RESPONSE, &tasks), ERR_OK);
    CHECK_UINT(tasks->n_tasks, 1);
    CHECK(strstr(tasks->tasks[0]->message, "16777216 bytes") != NULL);
    peer_deinit(&p);
}

/* ---- reports ---- */

TEST(a_repeated_report_with_another_result_changes_nothing)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    peer_submit(&p, "{\"tasks\":[{\"name\":\"a\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0}},"
                    "{\"name\":\"b\",\"executor\":\"sleep\",\"depends_on\":[\"a\"],\"inputs\":{\"ms\":1}}]}");
    const struct pb_task_assignment *a = peer_take(&p, "w1", "a");
    CHECK_STR(peer_report(&p, "w1", a, SUCCEEDED, "{\"n\":1}"), "");
    CHECK_STR(peer_report(&p, "w1", a, SUCCEEDED, "{\"n\":2}"), ""); /* as if the answer had been lost */
    CHECK_STR(peer_inputs(&p, peer_take(&p, "w1", "b")), "{\"ms\":1,\"results\":{\"a\":{\"n\":1}}}");
    peer_deinit(&p);
}

TEST(a_task_that_is_run_again_gives_its_dependents_the_new_result)
{
    struct peer p;
    peer_init(&p);
    peer_register(&p, "w1");
    const char *job =
        peer_submit(&p, "{\"tasks\":[{\"name\":\"a\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0}},"
                        "{\"name\":\"b\",\"executor\":\"sleep\",\"depends_on\":[\"a\"],\"inputs\":{\"ms\":1}}]}");
    for (int round = 1; round <= 3; round++) {
        char result[32];
        char inputs[64];
        snprintf(result, sizeof result, "{\"n\":%d}", round);
        snprintf(inputs, sizeof inputs, "{\"ms\":1,\"results\":{\"a\":{\"n\":%d}}}", round);
        CHECK_STR(peer_report(&p, "w1", peer_take(&p, "w1", "a"), SUCCEEDED, result), "");
        const struct pb_task_assignment *b = peer_take(&p, "w1", "b");
        CHECK_STR(peer_inputs(&p, b), inputs);
        CHECK_STR(peer_report(&p, "w1", b, SUCCEEDED, "1"), "");
        struct pb_retry_job_request *retry = peer_message(&p, PB_RETRY_JOB_REQUEST);
        retry->query_id = arena_strdup(&p.arena, job);
        retry->from_task = arena_strdup(&p.arena, "a");
        CHECK_ERR(peer_call(&p, "ControlPlane/RetryJob", retry, PB_RETRY_JOB_RESPONSE, NULL), ERR_OK);
    }
    peer_deinit(&p);
}

/* ---- streams of events ---- */

static struct rpc_stream *watch(struct peer *p, const char *job_id, bool follow)
{
    struct pb_watch_events_request *request = peer_message(p, PB_WATCH_EVENTS_REQUEST);
    struct rpc_stream *stream = NULL;
    struct buf bytes = {0};
    request->query_id = arena_strdup(&p->arena, job_id);
    request->follow = follow;
    wire_encode(request, &bytes);
    struct rpc_request call = {
        .path = "/capstan.v1.ControlPlane/WatchEvents", .bytes = bytes.data, .n = bytes.n, .timeout_ms = 20000};
    CHECK_ERR(rpc_stream_open(p->channel, &call, &stream, &p->e), ERR_OK);
    buf_deinit(&bytes);
    return stream;
}

static enum err first_event(struct peer *p, const char *job_id, bool follow)
{
    struct rpc_stream *stream = watch(p, job_id, follow);
    struct buf bytes = {0};
    bool is_end = false;
    enum err err = rpc_stream_next(stream, &bytes, &is_end, &p->trailer, &p->e);
    buf_deinit(&bytes);
    rpc_stream_close(stream);
    return err;
}

/* Somebody who mistypes an id must not wait for ever for events that never come. */
TEST(events_of_a_job_that_does_not_exist_are_refused)
{
    struct peer p;
    peer_init(&p);
    CHECK_ERR(first_event(&p, "typo", false), ERR_NOT_FOUND);
    CHECK(strstr(p.e.message, "typo") != NULL);
    CHECK_ERR(first_event(&p, "typo", true), ERR_NOT_FOUND);
    const char *job = peer_submit(&p, fan(&p, 1));
    CHECK_ERR(first_event(&p, job, true), ERR_OK);
    peer_deinit(&p);
}

/* Clients that come and go at any moment, while events happen and in the end the coordinator stops. */
struct visitor {
    struct peer *peer;
    const char *job_id;
    uint64_t seed;
};

static void *come_and_go(void *context)
{
    struct visitor *visitor = context;
    struct peer own = {.channel = visitor->peer->channel};
    for (int i = 0; i < 60; i++) {
        bool is_all = (visitor->seed + (uint64_t)i) % 2 == 0;
        struct rpc_stream *stream = watch(&own, is_all ? "" : visitor->job_id, true);
        struct buf bytes = {0};
        bool is_end = false;
        for (uint64_t k = 0; k < (visitor->seed * 7 + (uint64_t)i) % (is_all ? 5 : 2); k++) {
            if (rpc_stream_next(stream, &bytes, &is_end, &own.trailer, &own.e) != ERR_OK || is_end) {
                break;
            }
        }
        rpc_stream_close(stream);
        buf_deinit(&bytes);
    }
    arena_deinit(&own.arena);
    return NULL;
}

TEST(watchers_may_come_and_go_while_events_happen)
{
    enum { N = 4 };
    struct peer p;
    struct visitor visitors[N];
    pthread_t threads[N];
    peer_init(&p);
    const char *job = peer_submit(&p, fan(&p, 8));
    for (uint64_t i = 0; i < N; i++) {
        visitors[i] = (struct visitor){.peer = &p, .job_id = job, .seed = i};
        CHECK_INT(pthread_create(&threads[i], NULL, come_and_go, &visitors[i]), 0);
    }
    for (int i = 0; i < 60; i++) {
        peer_submit(&p, fan(&p, 1));
    }
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
    }
    struct rpc_stream *left[3];
    for (int i = 0; i < 3; i++) {
        left[i] = watch(&p, i == 0 ? job : "", true);
    }
    service_stop(p.service);
    p.service = NULL;
    for (int i = 0; i < 3; i++) {
        struct buf bytes = {0};
        bool is_end = false;
        enum err err = ERR_OK;
        while (err == ERR_OK && !is_end) {
            err = rpc_stream_next(left[i], &bytes, &is_end, &p.trailer, &p.e);
        }
        CHECK(err != ERR_OK); /* an end without an error would mean that there are no more events */
        rpc_stream_close(left[i]);
        buf_deinit(&bytes);
    }
    peer_deinit(&p);
}

/* ---- floods ---- */

/* Large requests take memory until they are answered; more than so much at a time is turned away, and small ones pass. */
struct submitter {
    struct peer *peer;
    enum err err;
    atomic_bool is_done;
};

static void *send_large_tree(void *context)
{
    struct submitter *sender = context;
    struct peer own = {.channel = sender->peer->channel};
    struct pb_submit_tasks_request *request = peer_message(&own, PB_SUBMIT_TASKS_REQUEST);
    size_t n = LIMIT_TREE_BYTES - 1000;
    char *text = mem_alloc(n);
    memset(text, '[', n);
    request->tree_json.data = (uint8_t *)text;
    request->tree_json.len = n;
    sender->err = peer_call(&own, "ControlPlane/SubmitTasks", request, PB_SUBMIT_TASKS_RESPONSE, NULL);
    arena_deinit(&own.arena);
    mem_free(text);
    return NULL;
}

TEST(a_flood_of_large_requests_is_turned_away_and_small_ones_pass)
{
    enum { N = 12 };
    struct peer p;
    struct submitter senders[N];
    pthread_t threads[N];
    peer_init(&p);
    for (int i = 0; i < N; i++) {
        senders[i] = (struct submitter){.peer = &p};
        CHECK_INT(pthread_create(&threads[i], NULL, send_large_tree, &senders[i]), 0);
    }
    CHECK_ERR(peer_call(&p, "Cluster/ListNodes", peer_message(&p, PB_LIST_NODES_REQUEST), PB_LIST_NODES_RESPONSE, NULL),
              ERR_OK);
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        CHECK(senders[i].err == ERR_INVALID || senders[i].err == ERR_UNAVAILABLE);
    }
    peer_submit(&p, fan(&p, 1)); /* all that was held back is free again */
    struct submitter last = {.peer = &p};
    send_large_tree(&last);
    CHECK_ERR(last.err, ERR_INVALID);
    peer_deinit(&p);
}

/* Results that take long to check: a mebibyte of empty objects each, for tasks that do not exist. */
static void *send_heavy_reports(void *context)
{
    enum { N = 8 };
    struct submitter *sender = context;
    struct peer own = {.channel = sender->peer->channel};
    struct pb_report_task_status_request *request = peer_message(&own, PB_REPORT_TASK_STATUS_REQUEST);
    struct pb_task_report *reports[N];
    uint8_t token[16] = {1};
    size_t n = LIMIT_INLINE_RESULT_BYTES / 3 * 3;
    char *text = arena_alloc(&own.arena, n + 3);
    for (size_t at = 0; at < n; at++) {
        text[at] = ",{}"[at % 3];
    }
    text[0] = '[';
    text[n - 1] = ']';
    text[n - 2] = '0';
    for (int i = 0; i < N; i++) {
        reports[i] = peer_message(&own, PB_TASK_REPORT);
        reports[i]->ref = peer_message(&own, PB_ATTEMPT_REF);
        reports[i]->ref->query_id = arena_strdup(&own.arena, "j");
        reports[i]->ref->attempt = 1;
        reports[i]->ref->lease_token.data = token;
        reports[i]->ref->lease_token.len = sizeof token;
        reports[i]->state = SUCCEEDED;
        reports[i]->result_json.data = (uint8_t *)text;
        reports[i]->result_json.len = n;
    }
    request->worker_id = arena_strdup(&own.arena, "w1");
    request->incarnation = arena_strdup(&own.arena, "i1");
    request->reports = reports;
    request->n_reports = N;
    sender->err = peer_call(&own, "ControlPlane/ReportTaskStatus", request, PB_REPORT_TASK_STATUS_RESPONSE, NULL);
    atomic_store(&sender->is_done, true);
    arena_deinit(&own.arena);
    return NULL;
}

TEST(reports_that_take_long_to_check_hold_up_nobody_else)
{
    struct peer p;
    struct submitter sender = {.peer = &p};
    pthread_t thread;
    int64_t longest_ms = 0;
    peer_init(&p);
    int64_t began_ms = clock_mono_ms();
    CHECK_INT(pthread_create(&thread, NULL, send_heavy_reports, &sender), 0);
    while (!atomic_load(&sender.is_done)) {
        int64_t asked_ms = clock_mono_ms();
        struct pb_list_nodes_request *request = peer_message(&p, PB_LIST_NODES_REQUEST);
        CHECK_ERR(peer_call(&p, "Cluster/ListNodes", request, PB_LIST_NODES_RESPONSE, NULL), ERR_OK);
        int64_t took_ms = clock_mono_ms() - asked_ms;
        longest_ms = took_ms > longest_ms ? took_ms : longest_ms;
    }
    int64_t whole_ms = clock_mono_ms() - began_ms;
    pthread_join(thread, NULL);
    print_message("others waited for %lld of %lld ms\n", (long long)longest_ms, (long long)whole_ms);
    CHECK_ERR(sender.err, ERR_OK);
    CHECK(longest_ms < whole_ms / 2);
    peer_deinit(&p);
}

/* ---- a silent database ---- */

static void try_store(struct clerk *clerk, void *context)
{
    struct store *store = NULL;
    struct error e = {0};
    atomic_uint *n_failed = context;
    if (clerk_store(clerk, &store, &e) == ERR_UNAVAILABLE && e.code == ERR_UNAVAILABLE && e.message[0] != '\0') {
        atomic_fetch_add(n_failed, 1);
    }
}

/* A server that accepts and says nothing. Whoever is in the queue must not wait for it one after the other. */
TEST(errands_do_not_wait_for_a_silent_database_one_after_the_other)
{
    char folder[] = "/tmp/capstan-silent-XXXXXX";
    char url[128];
    atomic_uint n_failed = 0;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CHECK(mkdtemp(folder) != NULL);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/.s.PGSQL.5432", folder);
    snprintf(url, sizeof url, "postgres:///none?host=%s&user=nobody", folder);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(listener >= 0);
    CHECK_INT(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    CHECK_INT(listen(listener, 100), 0);
    int64_t began_ms = clock_mono_ms();
    struct office *office = office_new(url, 1);
    for (int i = 0; i < 20; i++) {
        office_send(office, SENDER_SELF, try_store, &n_failed);
    }
    office_free(office); /* does what is in the queue */
    int64_t took_ms = clock_mono_ms() - began_ms;
    close(listener);
    (void)unlink(address.sun_path);
    CHECK_INT(rmdir(folder), 0);
    CHECK_UINT(atomic_load(&n_failed), 20);
    CHECK(took_ms < 20000);
}
