/* Observers over real gRPC: a leader on a file, and a process without a store that follows it. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/sha256.h"
#include "coordinator/patience.h"
#include "service/peer.h"
#include "test.h"

#define SUCCEEDED CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED
#define JOB_HAS_SUCCEEDED CAPSTAN__V1__QUERY_STATE__QUERY_STATE_SUCCEEDED
#define JOB_IS_RUNNING CAPSTAN__V1__QUERY_STATE__QUERY_STATE_RUNNING
#define WAIT_MS 30000

#define CHAIN                                                                                                          \
    "{\"name\":\"t\",\"tasks\":["                                                                                      \
    "{\"name\":\"a\",\"executor\":\"command\",\"inputs\":{\"argv\":[\"echo\",\"only-for-workers\"]}},"                 \
    "{\"name\":\"b\",\"executor\":\"sleep\",\"depends_on\":[\"a\"],\"inputs\":{\"ms\":\"${results.a.n}\"}}]}"
#define SINGLE "{\"name\":\"one\",\"tasks\":[{\"name\":\"a\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0}}]}"
#define STUCK "{\"name\":\"stuck\",\"tasks\":[{\"name\":\"a\",\"executor\":\"nobody-has-it\",\"inputs\":{}}]}"

/* ---- an observer as a peer ---- */

static void observe_with(struct peer *o, const char *follow, int64_t silence_ms)
{
    *o = (struct peer){0};
    struct service_options options = {.node_id = "o1",
                                      .listen = "127.0.0.1:0",
                                      .settings = settings_default(),
                                      .follow = follow,
                                      .silence_ms = silence_ms};
    CHECK_ERR(service_start(&options, &o->service, &o->e), ERR_OK);
    struct rpc_channel_options channel = {.target = service_address(o->service)};
    CHECK_ERR(rpc_channel_open(&channel, &o->channel, &o->e), ERR_OK);
}

static void observe(struct peer *o, const char *follow)
{
    observe_with(o, follow, 0);
}

static void pause_a_little(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* The bytes of an answer: equal answers have equal bytes. Empty if there was none. */
static struct buf answer_of(struct peer *p, const char *method, const void *request, enum pb_kind kind)
{
    struct buf bytes = {0};
    void *message = NULL;
    if (peer_call(p, method, request, kind, &message) == ERR_OK) {
        if (kind == PB_LIST_TASKS_RESPONSE) { /* each store has cursors of its own */
            ((struct pb_list_tasks_response *)message)->next = arena_strdup(&p->arena, "");
        }
        wire_encode(message, &bytes);
        buf_text(&bytes, "");
    }
    return bytes;
}

/* Asks both until they say the same. */
static void become_equal(struct peer *p, struct peer *o, const char *method, const void *request, enum pb_kind kind)
{
    int64_t until_ms = clock_mono_ms() + WAIT_MS;
    for (;;) {
        struct buf a = answer_of(p, method, request, kind);
        struct buf b = answer_of(o, method, request, kind);
        bool is_same = a.n == b.n && a.data != NULL && b.data != NULL && memcmp(a.data, b.data, a.n) == 0;
        buf_deinit(&a);
        buf_deinit(&b);
        if (is_same) {
            return;
        }
        if (clock_mono_ms() >= until_ms) {
            printf("%s: the answers differ: %s\n", method, o->e.message);
        }
        CHECK(clock_mono_ms() < until_ms);
        pause_a_little();
    }
}

static void all_jobs_become_equal(struct peer *p, struct peer *o)
{
    become_equal(p, o, "ControlPlane/ListJobs", peer_message(p, PB_LIST_JOBS_REQUEST), PB_LIST_JOBS_RESPONSE);
}

static void job_becomes_equal(struct peer *p, struct peer *o, const char *job)
{
    struct pb_list_tasks_request *tasks = peer_message(p, PB_LIST_TASKS_REQUEST);
    struct pb_get_query_status_request *status = peer_message(p, PB_GET_QUERY_STATUS_REQUEST);
    struct pb_why_pending_request *why = peer_message(p, PB_WHY_PENDING_REQUEST);
    tasks->query_id = status->query_id = why->query_id = arena_strdup(&p->arena, job);
    become_equal(p, o, "ControlPlane/ListTasks", tasks, PB_LIST_TASKS_RESPONSE);
    become_equal(p, o, "ControlPlane/GetQueryStatus", status, PB_GET_QUERY_STATUS_RESPONSE);
    become_equal(p, o, "ControlPlane/WhyPending", why, PB_WHY_PENDING_RESPONSE);
}

static struct pb_get_leader_response *leader_of(struct peer *p)
{
    struct pb_get_leader_response *leader = NULL;
    CHECK_ERR(
        peer_call(p, "Cluster/GetLeader", peer_message(p, PB_GET_LEADER_REQUEST), PB_GET_LEADER_RESPONSE, &leader),
        ERR_OK);
    return leader;
}

static void run_single(struct peer *p, const char *result)
{
    CHECK_STR(peer_report(p, "w1", peer_take(p, "w1", "a"), SUCCEEDED, result), "");
}

/* ---- raw streams ---- */

static struct rpc_stream *open_stream(struct peer *p, const char *path, const void *request)
{
    struct buf bytes = {0};
    struct rpc_stream *stream = NULL;
    wire_encode(request, &bytes);
    struct rpc_request call = {.path = path, .bytes = bytes.data, .n = bytes.n, .timeout_ms = WAIT_MS};
    CHECK_ERR(rpc_stream_open(p->channel, &call, &stream, &p->e), ERR_OK);
    buf_deinit(&bytes);
    return stream;
}

/* All rows of a snapshot, and where it is. */
static struct pb_snapshot_chunk *snapshot_of(struct peer *p, struct buf *rows)
{
    struct buf bytes = {0};
    struct pb_snapshot_chunk *chunk = NULL;
    bool is_end = false;
    struct rpc_stream *stream =
        open_stream(p, "/capstan.v1.Cluster/GetSnapshot", peer_message(p, PB_GET_SNAPSHOT_REQUEST));
    while (!is_end) {
        CHECK_ERR(rpc_stream_next(stream, &bytes, &is_end, NULL, &p->e), ERR_OK);
        if (!is_end) {
            CHECK_ERR(wire_decode(PB_SNAPSHOT_CHUNK, bytes.data, bytes.n, &p->arena, &chunk, &p->e), ERR_OK);
            buf_append(rows, chunk->rows_json.data, chunk->rows_json.len);
        }
    }
    rpc_stream_close(stream);
    buf_deinit(&bytes);
    CHECK(chunk != NULL);
    return chunk;
}

static struct pb_event *next_event(struct peer *p, struct rpc_stream *stream)
{
    struct buf bytes = {0};
    struct pb_event *event = NULL;
    bool is_end = false;
    CHECK_ERR(rpc_stream_next(stream, &bytes, &is_end, NULL, &p->e), ERR_OK);
    CHECK(!is_end);
    CHECK_ERR(wire_decode(PB_EVENT, bytes.data, bytes.n, &p->arena, &event, &p->e), ERR_OK);
    buf_deinit(&bytes);
    return event;
}

/* ---- tests ---- */

TEST(an_observer_answers_all_reads_as_the_leader_does)
{
    struct peer p, o;
    peer_init(&p);
    peer_register(&p, "w1");
    const char *before = peer_submit(&p, CHAIN); /* before there is an observer: it comes with the snapshot */
    CHECK_STR(peer_report(&p, "w1", peer_take(&p, "w1", "a"), SUCCEEDED, "{\"n\":7}"), "");
    observe(&o, service_address(p.service));
    CHECK_STR(peer_report(&p, "w1", peer_take(&p, "w1", "b"), SUCCEEDED, "true"), "");
    const char *after = peer_submit(&p, SINGLE);
    const char *stuck = peer_submit(&p, STUCK);
    run_single(&p, "[1,2]");
    struct pb_put_table_request *put = peer_message(&p, PB_PUT_TABLE_REQUEST);
    put->table = peer_message(&p, PB_TABLE);
    put->table->name = arena_strdup(&p.arena, "t");
    put->table->source = arena_strdup(&p.arena, "/data/t.parquet");
    CHECK_ERR(peer_call(&p, "Cluster/PutTable", put, PB_PUT_TABLE_RESPONSE, NULL), ERR_OK);

    all_jobs_become_equal(&p, &o);
    job_becomes_equal(&p, &o, before);
    job_becomes_equal(&p, &o, after);
    job_becomes_equal(&p, &o, stuck);
    become_equal(&p, &o, "Cluster/ListNodes", peer_message(&p, PB_LIST_NODES_REQUEST), PB_LIST_NODES_RESPONSE);
    become_equal(&p, &o, "Cluster/ListTables", peer_message(&p, PB_LIST_TABLES_REQUEST), PB_LIST_TABLES_RESPONSE);
    CHECK_STR(peer_results(&o, before, 0), "{\"a\":{\"n\":7},\"b\":true}");
    CHECK_STR(peer_results(&o, after, 0), "{\"a\":[1,2]}");
    CHECK(o.trailer.staleness_ms >= 0);

    struct pb_get_query_status_request *unknown = peer_message(&o, PB_GET_QUERY_STATUS_REQUEST);
    unknown->query_id = arena_strdup(&o.arena, "no-such-job");
    CHECK_ERR(peer_call(&o, "ControlPlane/GetQueryStatus", unknown, PB_GET_QUERY_STATUS_RESPONSE, NULL), ERR_NOT_FOUND);
    peer_deinit(&o);
    peer_deinit(&p);
}

TEST(an_observer_refuses_writes_and_names_the_leader)
{
    struct peer p, o;
    peer_init(&p);
    observe(&o, service_address(p.service));
    all_jobs_become_equal(&p, &o);
    CHECK_ERR(peer_submit_err(&o, "j1", SINGLE), ERR_PRECONDITION);
    CHECK_STR(o.trailer.leader, service_address(p.service));
    struct pb_get_task_request *poll = peer_message(&o, PB_GET_TASK_REQUEST);
    poll->worker_id = poll->incarnation = arena_strdup(&o.arena, "w1");
    poll->capacity = 1;
    CHECK_ERR(peer_call(&o, "ControlPlane/GetTask", poll, PB_GET_TASK_RESPONSE, NULL), ERR_PRECONDITION);
    CHECK_STR(o.trailer.leader, service_address(p.service));
    const struct pb_get_leader_response *leader = leader_of(&o);
    CHECK_STR(leader->role, "observer");
    CHECK_STR(leader->address, service_address(p.service));
    CHECK_STR(leader->node_id, "n1");
    CHECK(o.trailer.staleness_ms >= 0);
    peer_deinit(&o);
    peer_deinit(&p);
}

struct waiting {
    struct peer *peer;
    const char *job;
    const struct pb_query_status *status;
};

static void *wait_for_end(void *context)
{
    struct waiting *waiting = context;
    waiting->status = peer_status(waiting->peer, waiting->job, WAIT_MS);
    return NULL;
}

TEST(a_status_that_waits_for_the_end_is_answered_by_an_observer_when_it_comes)
{
    struct peer p, o, w;
    pthread_t thread;
    peer_init(&p);
    peer_register(&p, "w1");
    observe(&o, service_address(p.service));
    w = (struct peer){0};
    struct rpc_channel_options channel = {.target = service_address(o.service)};
    CHECK_ERR(rpc_channel_open(&channel, &w.channel, &w.e), ERR_OK);
    const char *job = peer_submit(&p, SINGLE);
    const struct pb_task_assignment *task = peer_take(&p, "w1", "a");
    all_jobs_become_equal(&p, &o);
    job_becomes_equal(&p, &o, job);
    CHECK_INT(peer_status(&o, job, 0)->state, JOB_IS_RUNNING);
    CHECK_INT(peer_status(&o, job, 50)->state, JOB_IS_RUNNING); /* its time is up first */
    struct waiting waiting = {.peer = &w, .job = job};
    int64_t begun_ms = clock_mono_ms();
    CHECK_INT(pthread_create(&thread, NULL, wait_for_end, &waiting), 0);
    CHECK_STR(peer_report(&p, "w1", task, SUCCEEDED, "1"), "");
    pthread_join(thread, NULL);
    CHECK_INT(waiting.status->state, JOB_HAS_SUCCEEDED);
    CHECK(clock_mono_ms() - begun_ms < WAIT_MS);
    rpc_channel_close(w.channel);
    arena_deinit(&w.arena);
    peer_deinit(&o);
    peer_deinit(&p);
}

TEST(events_can_be_followed_at_an_observer)
{
    struct peer p, o;
    peer_init(&p);
    peer_register(&p, "w1");
    observe(&o, service_address(p.service));
    const char *job = peer_submit(&p, SINGLE);
    all_jobs_become_equal(&p, &o);
    struct pb_watch_events_request *request = peer_message(&o, PB_WATCH_EVENTS_REQUEST);
    request->query_id = arena_strdup(&o.arena, job);
    request->follow = true;
    struct rpc_stream *stream = open_stream(&o, "/capstan.v1.ControlPlane/WatchEvents", request);
    CHECK_STR(next_event(&o, stream)->type, "created");
    run_single(&p, "1"); /* while it is followed */
    const struct pb_event *event;
    do {
        event = next_event(&o, stream);
    } while (strcmp(event->type, "completed") != 0);
    rpc_stream_close(stream);
    peer_deinit(&o);
    peer_deinit(&p);
}

/* Stops the leader, and starts another on the same file that listens at the same address. */
static void stop_leader(struct peer *p, char *address, size_t n)
{
    snprintf(address, n, "%s", service_address(p->service));
    rpc_channel_close(p->channel);
    service_stop(p->service);
    p->channel = NULL;
    p->service = NULL;
}

static void start_leader(struct peer *p, const char *address, const struct patience *patience)
{
    struct service_options options = {
        .store_url = p->url, .node_id = "n2", .listen = address, .settings = settings_default(), .patience = patience};
    CHECK_ERR(service_start(&options, &p->service, &p->e), ERR_OK);
    struct rpc_channel_options channel = {.target = address};
    CHECK_ERR(rpc_channel_open(&channel, &p->channel, &p->e), ERR_OK);
}

static void await_lead(struct peer *p)
{
    int64_t until_ms = clock_mono_ms() + WAIT_MS;
    while (leader_of(p)->role[0] != 'l') {
        CHECK(clock_mono_ms() < until_ms);
        pause_a_little();
    }
}

TEST(an_observer_outlives_its_leader_and_catches_up_with_the_next)
{
    struct peer p, o;
    char address[300];
    peer_init(&p);
    peer_register(&p, "w1");
    observe(&o, service_address(p.service));
    const char *first = peer_submit(&p, SINGLE);
    run_single(&p, "\"first\"");
    all_jobs_become_equal(&p, &o);
    stop_leader(&p, address, sizeof address);

    int64_t age_ms = 0;
    for (int i = 0; i < 3; i++) { /* answers go on and get older */
        int64_t until_ms = clock_mono_ms() + WAIT_MS;
        do {
            pause_a_little();
            CHECK_STR(peer_results(&o, first, 0), "{\"a\":\"first\"}");
            CHECK_INT(peer_status(&o, first, 0)->state, JOB_HAS_SUCCEEDED);
            CHECK(clock_mono_ms() < until_ms);
        } while (o.trailer.staleness_ms <= age_ms + 300);
        age_ms = o.trailer.staleness_ms;
    }
    CHECK(leader_of(&o)->staleness_ms >= (uint64_t)age_ms);

    start_leader(&p, address, NULL);
    int64_t until_ms = clock_mono_ms() + WAIT_MS;
    await_lead(&p);
    peer_register(&p, "w1");
    const char *second = peer_submit(&p, SINGLE);
    run_single(&p, "\"second\"");
    all_jobs_become_equal(&p, &o);
    job_becomes_equal(&p, &o, first);
    job_becomes_equal(&p, &o, second);
    CHECK_STR(peer_results(&o, second, 0), "{\"a\":\"second\"}");
    while (leader_of(&o)->staleness_ms > 700) {
        CHECK(clock_mono_ms() < until_ms);
        pause_a_little();
    }
    CHECK_STR(leader_of(&o)->node_id, "n2");
    peer_deinit(&o);
    peer_deinit(&p);
}

TEST(an_observer_without_a_leader_says_so_and_begins_when_one_comes)
{
    struct peer p, o;
    char address[300];
    peer_init(&p);
    stop_leader(&p, address, sizeof address);
    observe(&o, address);
    CHECK_ERR(
        peer_call(&o, "ControlPlane/ListJobs", peer_message(&o, PB_LIST_JOBS_REQUEST), PB_LIST_JOBS_RESPONSE, NULL),
        ERR_UNAVAILABLE);
    CHECK(strstr(o.e.message, "copy") != NULL);
    CHECK_STR(leader_of(&o)->role, "observer");
    start_leader(&p, address, NULL);
    all_jobs_become_equal(&p, &o);
    peer_deinit(&o);
    peer_deinit(&p);
}

TEST(a_batch_too_large_for_the_feed_reaches_an_observer_with_a_snapshot)
{
    enum { TASKS = 12000 };
    struct peer p, o;
    struct buf tree = {0};
    peer_init(&p);
    observe(&o, service_address(p.service));
    all_jobs_become_equal(&p, &o);
    buf_text(&tree, "{\"name\":\"large\",\"tasks\":[");
    for (int i = 0; i < TASKS; i++) {
        buf_format(&tree, "%s{\"name\":\"t%d\",\"executor\":\"sleep\",\"inputs\":{\"ms\":%d}}", i == 0 ? "" : ",", i,
                   i);
    }
    buf_text(&tree, "]}");
    const char *job = peer_submit(&p, tree.data);
    all_jobs_become_equal(&p, &o);
    struct pb_list_tasks_request *tasks = peer_message(&p, PB_LIST_TASKS_REQUEST);
    tasks->query_id = arena_strdup(&p.arena, job);
    tasks->limit = 1000;
    become_equal(&p, &o, "ControlPlane/ListTasks", tasks, PB_LIST_TASKS_RESPONSE);
    become_equal(&p, &o, "Cluster/ListNodes", peer_message(&p, PB_LIST_NODES_REQUEST), PB_LIST_NODES_RESPONSE);
    buf_deinit(&tree);
    peer_deinit(&o);
    peer_deinit(&p);
}

TEST(a_snapshot_holds_results_but_neither_lease_tokens_nor_inputs)
{
    struct peer p;
    struct buf rows = {0};
    char token[33];
    peer_init(&p);
    peer_register(&p, "w1");
    peer_submit(&p, CHAIN);
    CHECK_STR(peer_report(&p, "w1", peer_take(&p, "w1", "a"), SUCCEEDED, "{\"n\":7}"), "");
    const struct pb_task_assignment *b = peer_take(&p, "w1", "b");
    const struct pb_snapshot_chunk *last = snapshot_of(&p, &rows);
    CHECK(last->seq > 0);
    CHECK(last->feed != 0);
    CHECK_UINT(b->lease_token.len, 16);
    hex_encode(b->lease_token.data, 16, token);
    CHECK(strstr(rows.data, "task_leases") != NULL);
    CHECK(strstr(rows.data, token) == NULL);
    CHECK(strstr(rows.data, "7b226e223a377d") != NULL);                   /* {"n":7} */
    CHECK(strstr(rows.data, "6f6e6c792d666f722d776f726b657273") == NULL); /* only-for-workers */
    buf_deinit(&rows);
    peer_deinit(&p);
}

TEST(a_follower_gets_every_batch_once_and_a_lost_one_is_told_to_start_over)
{
    struct peer p;
    struct buf rows = {0};
    struct buf bytes = {0};
    bool is_end = false;
    peer_init(&p);
    const struct pb_snapshot_chunk *last = snapshot_of(&p, &rows);
    const char *job = peer_submit(&p, SINGLE);
    struct pb_watch_events_request *request = peer_message(&p, PB_WATCH_EVENTS_REQUEST);
    request->rows = request->follow = true;
    request->feed = last->feed;
    request->position = last->position;
    struct rpc_stream *stream = open_stream(&p, "/capstan.v1.ControlPlane/WatchEvents", request);
    const struct pb_event *event;
    uint64_t position = last->position;
    do { /* positions grow one by one; a message without changes says that there are none */
        event = next_event(&p, stream);
        CHECK_STR(event->type, "rows");
        CHECK(!event->resync);
        CHECK(event->position == position || event->position == position + 1);
        CHECK_UINT(event->details[0] == '\0', event->position == position);
        position = event->position;
    } while (strstr(event->details, job) == NULL);
    do {
        event = next_event(&p, stream);
    } while (event->details[0] != '\0' || event->position < event->head); /* silence is told, too */
    rpc_stream_close(stream);

    request->feed++;
    stream = open_stream(&p, "/capstan.v1.ControlPlane/WatchEvents", request);
    CHECK(next_event(&p, stream)->resync);
    CHECK_ERR(rpc_stream_next(stream, &bytes, &is_end, NULL, &p.e), ERR_OK);
    CHECK(is_end);
    rpc_stream_close(stream);
    buf_deinit(&bytes);
    buf_deinit(&rows);
    peer_deinit(&p);
}

TEST(a_follower_that_does_not_read_is_told_to_start_over)
{
    enum { RESULT_BYTES = 1000000, ROUNDS = 24 }; /* twice as many bytes as digits: more than the feed keeps */
    struct peer p;
    struct buf rows = {0};
    struct buf result = {0};
    peer_init(&p);
    peer_register(&p, "w1");
    const struct pb_snapshot_chunk *last = snapshot_of(&p, &rows);
    struct pb_watch_events_request *request = peer_message(&p, PB_WATCH_EVENTS_REQUEST);
    request->rows = request->follow = true;
    request->feed = last->feed;
    request->position = last->position;
    struct rpc_stream *stream = open_stream(&p, "/capstan.v1.ControlPlane/WatchEvents", request);
    CHECK(!next_event(&p, stream)->resync);
    buf_char(&result, '"');
    for (int i = 0; i < RESULT_BYTES; i++) {
        buf_char(&result, 'x');
    }
    buf_char(&result, '"');
    for (int i = 0; i < ROUNDS; i++) {
        peer_submit(&p, SINGLE);
        run_single(&p, result.data);
    }
    uint32_t n = 0;
    while (!next_event(&p, stream)->resync) {
        CHECK(++n < ROUNDS * 4); /* what was on its way already */
    }
    rpc_stream_close(stream);
    buf_deinit(&rows);
    buf_deinit(&result);
    peer_deinit(&p);
}

/* ---- slow readers of a snapshot ---- */

/* A leader with as much patience, whose snapshot has that many chunks, each with more than a connection takes unread. */
static void init_impatient(struct peer *p, const struct patience *patience, int chunks)
{
    enum { RESULT_BYTES = 200000 };
    char address[300];
    struct buf result = {0};
    peer_init(p);
    stop_leader(p, address, sizeof address);
    start_leader(p, address, patience);
    await_lead(p);
    peer_register(p, "w1");
    buf_char(&result, '"');
    for (int i = 0; i < RESULT_BYTES; i++) {
        buf_char(&result, 'x');
    }
    buf_char(&result, '"');
    for (int i = 0; i < chunks; i++) {
        peer_submit(p, SINGLE);
        run_single(p, result.data);
    }
    buf_deinit(&result);
}

/* Reads it to its end, with a pause before each message. Returns how it ended. */
static enum err read_slowly(struct peer *p, struct rpc_stream *stream, int64_t pause_ms)
{
    struct timespec pause = {.tv_nsec = pause_ms * 1000000};
    struct buf bytes = {0};
    bool is_end = false;
    enum err err = ERR_OK;
    while (err == ERR_OK && !is_end) {
        nanosleep(&pause, NULL);
        err = rpc_stream_next(stream, &bytes, &is_end, NULL, &p->e);
    }
    buf_deinit(&bytes);
    return err;
}

/* There is one clerk for snapshots: whoever is next gets one when the first reader's time is over. */
TEST(a_reader_that_takes_nothing_of_a_snapshot_is_dropped_and_the_next_is_served)
{
    static const struct patience short_one = {.left_ms = 3000, .max_ms = 3000, .bytes_per_s = PATIENCE_BYTES_PER_S};
    struct peer p;
    struct buf rows = {0};
    init_impatient(&p, &short_one, 10);
    struct rpc_stream *idle =
        open_stream(&p, "/capstan.v1.Cluster/GetSnapshot", peer_message(&p, PB_GET_SNAPSHOT_REQUEST));
    CHECK(rpc_stream_wait(idle, WAIT_MS)); /* it has the clerk */
    CHECK(snapshot_of(&p, &rows)->feed != 0);
    CHECK_ERR(read_slowly(&p, idle, 0), ERR_DEADLINE);
    CHECK(strstr(p.e.message, "too slowly") != NULL);
    rpc_stream_close(idle);
    buf_deinit(&rows);
    peer_deinit(&p);
}

/* It takes every chunk long before the time for one is over, and has had that time for all of them. */
TEST(a_reader_that_takes_a_snapshot_too_slowly_is_dropped_though_it_never_stops)
{
    static const struct patience no_more = {.left_ms = 250, .max_ms = 250, .bytes_per_s = INT64_MAX};
    struct peer p;
    init_impatient(&p, &no_more, 24);
    struct rpc_stream *slow =
        open_stream(&p, "/capstan.v1.Cluster/GetSnapshot", peer_message(&p, PB_GET_SNAPSHOT_REQUEST));
    CHECK_ERR(read_slowly(&p, slow, 80), ERR_DEADLINE);
    CHECK(strstr(p.e.message, "too slowly") != NULL);
    rpc_stream_close(slow);
    peer_deinit(&p);
}

/* ---- a leader that falls silent ---- */

/* Says that it leads, has a snapshot of nothing, and takes those who follow without a word. */
struct quiet {
    bool is_closing;
    struct rpc_server *server;
    pthread_mutex_t lock; /* for all below */
    struct rpc_call *followers[64];
    uint32_t n_followers;
};

static void say_who_leads(void *context, struct rpc_call *call)
{
    const struct quiet *quiet = context;
    struct arena arena = {0};
    struct buf bytes = {0};
    struct pb_get_leader_response *answer = wire_new(PB_GET_LEADER_RESPONSE, &arena);
    answer->role = arena_strdup(&arena, "leader");
    answer->node_id = arena_strdup(&arena, "quiet");
    answer->address = arena_strdup(&arena, rpc_server_address(quiet->server));
    answer->epoch = 1;
    wire_encode(answer, &bytes);
    rpc_call_reply(call, bytes.data, bytes.n);
    buf_deinit(&bytes);
    arena_deinit(&arena);
}

static void end_snapshot(void *context, struct rpc_call *call, bool ok)
{
    UNUSED(context);
    UNUSED(ok);
    rpc_call_end(call);
}

static void send_nothing_as_snapshot(void *context, struct rpc_call *call)
{
    struct arena arena = {0};
    struct buf bytes = {0};
    struct pb_snapshot_chunk *chunk = wire_new(PB_SNAPSHOT_CHUNK, &arena);
    chunk->feed = 1;
    wire_encode(chunk, &bytes);
    rpc_call_send(call, bytes.data, bytes.n, end_snapshot, context);
    buf_deinit(&bytes);
    arena_deinit(&arena);
}

static void take_follower(void *context, struct rpc_call *call)
{
    struct quiet *quiet = context;
    pthread_mutex_lock(&quiet->lock);
    bool is_kept = !quiet->is_closing && quiet->n_followers < ARRAY_LEN(quiet->followers);
    if (is_kept) {
        quiet->followers[quiet->n_followers++] = call;
    }
    pthread_mutex_unlock(&quiet->lock);
    if (!is_kept) {
        rpc_call_end(call);
    }
}

static void quiet_open(struct quiet *quiet)
{
    static const struct rpc_method methods[] = {
        {.path = "/capstan.v1.Cluster/GetLeader", .handler = say_who_leads},
        {.path = "/capstan.v1.Cluster/GetSnapshot", .handler = send_nothing_as_snapshot},
        {.path = "/capstan.v1.ControlPlane/WatchEvents", .handler = take_follower},
    };
    struct rpc_server_options options = {
        .listen = "127.0.0.1:0", .methods = methods, .n_methods = ARRAY_LEN(methods), .context = quiet};
    struct error e = {0};
    *quiet = (struct quiet){0};
    pthread_mutex_init(&quiet->lock, NULL);
    CHECK_ERR(rpc_server_open(&options, &quiet->server, &e), ERR_OK);
}

static void quiet_close(struct quiet *quiet)
{
    pthread_mutex_lock(&quiet->lock);
    quiet->is_closing = true;
    uint32_t n = quiet->n_followers;
    pthread_mutex_unlock(&quiet->lock);
    for (uint32_t i = 0; i < n; i++) {
        rpc_call_end(quiet->followers[i]);
    }
    rpc_server_close(quiet->server, 0);
    pthread_mutex_destroy(&quiet->lock);
}

/* Waits until so many have come, one after the other. */
static void quiet_await(struct quiet *quiet, uint32_t n)
{
    int64_t until_ms = clock_mono_ms() + WAIT_MS;
    uint32_t n_now = 0;
    while (n_now < n) {
        CHECK(clock_mono_ms() < until_ms);
        pause_a_little();
        pthread_mutex_lock(&quiet->lock);
        n_now = quiet->n_followers;
        pthread_mutex_unlock(&quiet->lock);
    }
}

/* Whoever was given up must not keep the observer from asking the same again, and again. */
TEST(an_observer_gives_up_a_leader_that_says_nothing_and_asks_it_again)
{
    struct peer o;
    struct quiet quiet;
    quiet_open(&quiet);
    observe_with(&o, rpc_server_address(quiet.server), 30);
    quiet_await(&quiet, 5);
    peer_deinit(&o);
    quiet_close(&quiet);
}

TEST(an_observer_whose_leader_says_nothing_stops_all_the_same)
{
    struct peer o;
    struct quiet quiet;
    quiet_open(&quiet);
    observe_with(&o, rpc_server_address(quiet.server), 3 * WAIT_MS);
    quiet_await(&quiet, 1);
    int64_t begun_ms = clock_mono_ms();
    peer_deinit(&o);
    CHECK(clock_mono_ms() - begun_ms < 2 * WAIT_MS);
    CHECK_UINT(quiet.n_followers, 1); /* it had not been given up */
    quiet_close(&quiet);
}
