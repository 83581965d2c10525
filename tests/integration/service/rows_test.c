/*
 * Rows that lie on a worker which takes the question and says nothing: whom that holds up, and for how long. The test plays
 * that worker, and others that answer.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "exchange/serve.h"
#include "service/peer.h"
#include "test.h"
#include "unit/exchange/generate.h"
#include "unit/exchange/stream.h"

#define JOB_HAS_SUCCEEDED CAPSTAN__V1__QUERY_STATE__QUERY_STATE_SUCCEEDED
#define PATIENCE_MS 60000
#define QUESTIONS_MAX 64
#define FETCHERS 8        /* as service.c has it, */
#define FETCHERS_AT_ONE 2 /* and this, too */

/* A worker that is asked for rows. */
struct mute {
    struct rpc_server *server;
    struct buf rows;      /* all of its pieces are these; set before it is asked */
    pthread_mutex_t lock; /* for all below */
    bool is_closing;
    bool speaks;
    pthread_cond_t changed;
    struct rpc_call *questions[QUESTIONS_MAX];
    bool is_gone[QUESTIONS_MAX]; /* whoever asked that waits no more */
    uint32_t n_questions;
    uint32_t n_gone;
};

static void note_gone(void *context, struct rpc_call *call)
{
    struct mute *mute = context;
    pthread_mutex_lock(&mute->lock);
    for (uint32_t i = 0; i < mute->n_questions; i++) {
        mute->is_gone[i] |= mute->questions[i] == call;
    }
    mute->n_gone++;
    pthread_cond_broadcast(&mute->changed);
    pthread_mutex_unlock(&mute->lock);
}

static void end_answer(void *context, struct rpc_call *call, bool ok)
{
    UNUSED(context);
    UNUSED(ok);
    rpc_call_end(call);
}

static void answer(const struct mute *mute, struct rpc_call *call)
{
    struct arena arena = {0};
    struct buf bytes = {0};
    struct pb_shuffle_partition_chunk *message = wire_new(PB_SHUFFLE_PARTITION_CHUNK, &arena);
    message->payload.data = (uint8_t *)mute->rows.data;
    message->payload.len = mute->rows.n;
    wire_encode(message, &bytes);
    rpc_call_send(call, bytes.data, bytes.n, end_answer, NULL);
    buf_deinit(&bytes);
    arena_deinit(&arena);
}

static void take_question(void *context, struct rpc_call *call)
{
    struct mute *mute = context;
    pthread_mutex_lock(&mute->lock);
    bool speaks = mute->speaks;
    bool is_kept = !speaks && !mute->is_closing;
    if (is_kept) {
        ASSERT(mute->n_questions < QUESTIONS_MAX);
        rpc_call_on_gone(call, note_gone, mute); /* before anybody else can end the call */
        mute->questions[mute->n_questions++] = call;
        pthread_cond_broadcast(&mute->changed);
    }
    pthread_mutex_unlock(&mute->lock);
    if (speaks) {
        answer(mute, call);
    } else if (!is_kept) {
        rpc_call_end(call);
    }
}

/* Answers all that it was asked, and from now on at once. */
static void mute_speak(struct mute *mute)
{
    pthread_mutex_lock(&mute->lock);
    uint32_t n = mute->n_questions;
    mute->speaks = true;
    mute->n_questions = 0;
    pthread_mutex_unlock(&mute->lock);
    for (uint32_t i = 0; i < n; i++) {
        answer(mute, mute->questions[i]);
    }
}

static void mute_open(struct mute *mute)
{
    static const struct rpc_method method = {.path = EXCHANGE_FETCH_PATH, .handler = take_question};
    struct rpc_server_options options = {.listen = "127.0.0.1:0", .methods = &method, .n_methods = 1, .context = mute};
    struct error e = {0};
    pthread_condattr_t attributes;
    *mute = (struct mute){0};
    pthread_mutex_init(&mute->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&mute->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    CHECK_ERR(rpc_server_open(&options, &mute->server, &e), ERR_OK);
}

static void mutes_open(struct mute *mutes, uint32_t n, struct peer *p)
{
    for (uint32_t i = 0; i < n; i++) {
        mute_open(&mutes[i]);
        peer_register_at(p, arena_format(&p->arena, "w%u", i + 1), "i1", rpc_server_address(mutes[i].server));
    }
}

static void mute_close(struct mute *mute)
{
    pthread_mutex_lock(&mute->lock);
    mute->is_closing = true;
    uint32_t n = mute->n_questions;
    pthread_mutex_unlock(&mute->lock);
    for (uint32_t i = 0; i < n; i++) {
        rpc_call_end(mute->questions[i]);
    }
    rpc_server_close(mute->server, 0);
    pthread_cond_destroy(&mute->changed);
    pthread_mutex_destroy(&mute->lock);
    buf_deinit(&mute->rows);
}

static void mutes_close(struct mute *mutes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        mute_close(&mutes[i]);
    }
}

/* Waits until the number, which is one of the worker's, has become this. */
static void mute_await(struct mute *mute, const uint32_t *number, uint32_t wanted)
{
    int64_t until_ms = clock_mono_ms() + PATIENCE_MS;
    struct timespec until = {.tv_sec = (time_t)(until_ms / 1000), .tv_nsec = (until_ms % 1000) * 1000000};
    int error = 0;
    pthread_mutex_lock(&mute->lock);
    while (*number < wanted && error != ETIMEDOUT) {
        error = pthread_cond_timedwait(&mute->changed, &mute->lock, &until);
    }
    uint32_t reached = *number;
    pthread_mutex_unlock(&mute->lock);
    CHECK_UINT(reached, wanted);
}

static struct ipc_tally numbers(struct buf *out)
{
    struct ArrowSchema schema = {0};
    struct ArrowArray array = {0};
    generate_numbers(1, 3, &schema, &array);
    struct ipc_tally tally = stream_write(&schema, &array, 1, false, out);
    array.release(&array);
    schema.release(&schema);
    return tally;
}

/* Plans the next query as that worker, which keeps its rows; without one, w1 sends them along. */
static void plan(struct peer *p, struct mute *mute, const char *worker_id)
{
    struct buf stream = {0};
    struct ipc_tally tally = numbers(&stream);
    const struct pb_task_assignment *task = peer_take(p, worker_id, "plan");
    CHECK_STR(peer_report_rows(p, worker_id, task, mute == NULL ? &stream : NULL, &tally), "");
    if (mute != NULL && mute->rows.n == 0) {
        buf_append(&mute->rows, stream.data, stream.n);
    }
    buf_deinit(&stream);
}

/* A query whose rows are in the store, or lie on that worker. */
static const char *query(struct peer *p, struct mute *mute, const char *worker_id)
{
    struct pb_submit_query_request *request = peer_message(p, PB_SUBMIT_QUERY_REQUEST);
    struct pb_submit_query_response *response = NULL;
    request->sql = arena_strdup(&p->arena, "select 1 as x");
    CHECK_ERR(peer_call(p, "ControlPlane/SubmitQuery", request, PB_SUBMIT_QUERY_RESPONSE, &response), ERR_OK);
    plan(p, mute, worker_id);
    CHECK_INT(peer_status(p, response->query_id, 10000)->state, JOB_HAS_SUCCEEDED);
    return response->query_id;
}

static struct rpc_stream *fetch(struct peer *p, const char *job_id)
{
    struct pb_fetch_query_results_request *request = peer_message(p, PB_FETCH_QUERY_RESULTS_REQUEST);
    struct rpc_stream *stream = NULL;
    struct buf bytes = {0};
    request->query_id = arena_strdup(&p->arena, job_id);
    wire_encode(request, &bytes);
    struct rpc_request call = {.path = "/capstan.v1.ControlPlane/FetchQueryResults", .bytes = bytes.data, .n = bytes.n};
    CHECK_ERR(rpc_stream_open(p->channel, &call, &stream, &p->e), ERR_OK);
    buf_deinit(&bytes);
    return stream;
}

static void fetch_all(struct peer *p, const char *job_id, struct rpc_stream **out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        out[i] = fetch(p, job_id);
    }
}

static void close_all(struct rpc_stream **streams, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        rpc_stream_close(streams[i]);
    }
}

/* What of them there is at this moment: a number of the worker's. */
static uint32_t mute_look(struct mute *mute, const uint32_t *number)
{
    pthread_mutex_lock(&mute->lock);
    uint32_t n = *number;
    pthread_mutex_unlock(&mute->lock);
    return n;
}

/* So many silent workers that all clerks wait for one of them, and as many fetches again. */
TEST(rows_in_the_store_do_not_wait_for_those_who_wait_for_a_worker)
{
    enum { MUTES = FETCHERS / FETCHERS_AT_ONE, EACH = 2 * FETCHERS_AT_ONE };
    struct peer p;
    struct mute mutes[MUTES];
    struct rpc_stream *waiting[MUTES][EACH];
    peer_init(&p);
    mutes_open(mutes, MUTES, &p);
    const char *stored = query(&p, NULL, "w1");
    for (uint32_t i = 0; i < MUTES; i++) {
        fetch_all(&p, query(&p, &mutes[i], arena_format(&p.arena, "w%u", i + 1)), waiting[i], EACH);
    }
    for (uint32_t i = 0; i < MUTES; i++) {
        mute_await(&mutes[i], &mutes[i].n_questions, FETCHERS_AT_ONE);
    }
    CHECK(strlen(peer_results(&p, stored, 0)) > 0);
    for (uint32_t i = 0; i < MUTES; i++) {
        CHECK_UINT(mute_look(&mutes[i], &mutes[i].n_gone), 0); /* nobody had to give up for that */
        close_all(waiting[i], EACH);
    }
    peer_deinit(&p);
    mutes_close(mutes, MUTES);
}

/* More than there are clerks ask for rows of a worker that says nothing, among them tasks whose result such rows are. */
TEST(rows_of_other_workers_do_not_wait_for_those_who_wait_for_a_silent_one)
{
    struct peer p;
    struct mute mutes[2];
    struct rpc_stream *waiting[2 * FETCHERS];
    struct buf tree = {0};
    peer_init(&p);
    mutes_open(mutes, 2, &p);
    mute_speak(&mutes[1]);
    const char *there = query(&p, &mutes[1], "w2");
    buf_text(&tree, "{\"tasks\":[");
    for (uint32_t i = 0; i < 2 * FETCHERS; i++) {
        buf_format(&tree, "%s{\"name\":\"t%u\",\"executor\":\"sql\",\"inputs\":{\"sql\":\"select 1 as x\"}}",
                   i == 0 ? "" : ",", i);
    }
    buf_text(&tree, "]}");
    const char *job = peer_submit(&p, tree.data);
    for (uint32_t i = 0; i < 2 * FETCHERS; i++) {
        plan(&p, &mutes[0], "w1");
    }
    fetch_all(&p, query(&p, &mutes[0], "w1"), waiting, ARRAY_LEN(waiting));
    mute_await(&mutes[0], &mutes[0].n_questions, FETCHERS_AT_ONE);
    for (int i = 0; i < 5; i++) {
        CHECK(strlen(peer_results(&p, there, 0)) > 0);
    }
    CHECK_UINT(mute_look(&mutes[0], &mutes[0].n_questions), FETCHERS_AT_ONE);
    CHECK_UINT(mute_look(&mutes[0], &mutes[0].n_gone), 0);
    mute_speak(&mutes[0]); /* and the tasks have their results */
    CHECK_INT(peer_status(&p, job, 30000)->state, JOB_HAS_SUCCEEDED);
    close_all(waiting, ARRAY_LEN(waiting));
    buf_deinit(&tree);
    peer_deinit(&p);
    mutes_close(mutes, 2);
}

TEST(a_worker_that_speaks_again_is_asked_by_all_who_stood_in_line_and_are_still_there)
{
    struct peer p;
    struct mute mute;
    struct rpc_stream *waiting[3 * FETCHERS];
    struct buf chunk = {0};
    bool is_end = false;
    peer_init(&p);
    mutes_open(&mute, 1, &p);
    fetch_all(&p, query(&p, &mute, "w1"), waiting, ARRAY_LEN(waiting));
    mute_await(&mute, &mute.n_questions, FETCHERS_AT_ONE);
    for (uint32_t i = 0; i < ARRAY_LEN(waiting); i += 2) {
        rpc_stream_close(waiting[i]);
    }
    mute_speak(&mute);
    for (uint32_t i = 1; i < ARRAY_LEN(waiting); i += 2) {
        CHECK(rpc_stream_wait(waiting[i], PATIENCE_MS));
        CHECK_ERR(rpc_stream_next(waiting[i], &chunk, &is_end, NULL, &p.e), ERR_OK);
        CHECK(!is_end);
        CHECK(chunk.n >= mute.rows.n);
        rpc_stream_close(waiting[i]);
    }
    buf_deinit(&chunk);
    peer_deinit(&p);
    mutes_close(&mute, 1);
}

TEST(a_coordinator_that_stops_answers_those_who_stand_in_line)
{
    struct peer p;
    struct mute mute;
    struct rpc_stream *waiting[2 * FETCHERS];
    struct buf chunk = {0};
    bool is_end = false;
    peer_init(&p);
    mutes_open(&mute, 1, &p);
    fetch_all(&p, query(&p, &mute, "w1"), waiting, ARRAY_LEN(waiting));
    mute_await(&mute, &mute.n_questions, FETCHERS_AT_ONE);
    service_stop(p.service);
    p.service = NULL;
    for (uint32_t i = 0; i < ARRAY_LEN(waiting); i++) {
        CHECK(rpc_stream_next(waiting[i], &chunk, &is_end, NULL, &p.e) != ERR_OK);
        rpc_stream_close(waiting[i]);
    }
    buf_deinit(&chunk);
    peer_deinit(&p);
    mutes_close(&mute, 1);
}

TEST(a_client_that_goes_frees_the_clerk_who_waits_for_a_worker)
{
    struct peer p;
    struct mute mute;
    peer_init(&p);
    mutes_open(&mute, 1, &p);
    const char *remote = query(&p, &mute, "w1");
    struct rpc_stream *stays = fetch(&p, remote);
    mute_await(&mute, &mute.n_questions, 1);
    CHECK(!rpc_stream_wait(stays, 1500)); /* so its time is over well before that of the next */
    struct rpc_stream *goes = fetch(&p, remote);
    mute_await(&mute, &mute.n_questions, 2);
    rpc_stream_close(goes);
    mute_await(&mute, &mute.n_gone, 1);
    pthread_mutex_lock(&mute.lock);
    CHECK(!mute.is_gone[0]);
    CHECK(mute.is_gone[1]);
    pthread_mutex_unlock(&mute.lock);
    rpc_stream_close(stays);
    peer_deinit(&p);
    mutes_close(&mute, 1);
}

/* Who is next in line gets the place of one who has waited long enough. */
TEST(a_worker_that_says_nothing_is_left_for_a_while_and_asked_again)
{
    struct peer p;
    struct mute mute;
    struct rpc_stream *waiting[FETCHERS_AT_ONE + 1];
    peer_init(&p);
    mutes_open(&mute, 1, &p);
    const char *remote = query(&p, &mute, "w1");
    fetch_all(&p, remote, waiting, ARRAY_LEN(waiting));
    mute_await(&mute, &mute.n_gone, FETCHERS_AT_ONE);
    mute_await(&mute, &mute.n_questions, 2 * FETCHERS_AT_ONE); /* one by a fetch that had to wait, one once more */
    for (uint32_t i = 0; i < ARRAY_LEN(waiting); i++) {
        CHECK(!rpc_stream_wait(waiting[i], 0)); /* nobody has been told anything */
        rpc_stream_close(waiting[i]);
    }
    peer_deinit(&p);
    mutes_close(&mute, 1);
}
