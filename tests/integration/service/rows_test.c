/*
 * Rows that lie on a worker which takes the question and says nothing: whom that holds up, and for how long. The test plays
 * that worker.
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
#define QUESTIONS_MAX 32
#define FETCHERS 4 /* as service.c has it */

/* A worker that is asked for rows. */
struct mute {
    struct rpc_server *server;
    pthread_mutex_t lock; /* for all below */
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

static void take_question(void *context, struct rpc_call *call)
{
    struct mute *mute = context;
    pthread_mutex_lock(&mute->lock);
    ASSERT(mute->n_questions < QUESTIONS_MAX);
    mute->questions[mute->n_questions++] = call;
    pthread_cond_broadcast(&mute->changed);
    pthread_mutex_unlock(&mute->lock);
    rpc_call_on_gone(call, note_gone, mute);
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

static void mute_close(struct mute *mute)
{
    for (uint32_t i = 0; i < mute->n_questions; i++) {
        rpc_call_end(mute->questions[i]);
    }
    rpc_server_close(mute->server, 0);
    pthread_cond_destroy(&mute->changed);
    pthread_mutex_destroy(&mute->lock);
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

/* A query whose rows are in the store, or are said to lie on the worker. */
static const char *query(struct peer *p, bool is_inline)
{
    struct pb_submit_query_request *request = peer_message(p, PB_SUBMIT_QUERY_REQUEST);
    struct pb_submit_query_response *response = NULL;
    struct ArrowSchema schema = {0};
    struct ArrowArray array = {0};
    struct buf stream = {0};
    request->sql = arena_strdup(&p->arena, "select 1 as x");
    CHECK_ERR(peer_call(p, "ControlPlane/SubmitQuery", request, PB_SUBMIT_QUERY_RESPONSE, &response), ERR_OK);
    generate_numbers(1, 3, &schema, &array);
    struct ipc_tally tally = stream_write(&schema, &array, 1, false, &stream);
    array.release(&array);
    schema.release(&schema);
    CHECK_STR(peer_report_rows(p, "w1", peer_take(p, "w1", "plan"), is_inline ? &stream : NULL, &tally), "");
    buf_deinit(&stream);
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

/* As many as there are clerks who wait for workers, and as many again. */
TEST(rows_in_the_store_do_not_wait_for_those_who_wait_for_a_worker)
{
    struct peer p;
    struct mute mute;
    struct rpc_stream *waiting[2 * FETCHERS];
    peer_init(&p);
    mute_open(&mute);
    peer_register_at(&p, "w1", "i1", rpc_server_address(mute.server));
    const char *stored = query(&p, true);
    const char *remote = query(&p, false);
    for (uint32_t i = 0; i < ARRAY_LEN(waiting); i++) {
        waiting[i] = fetch(&p, remote);
    }
    mute_await(&mute, &mute.n_questions, FETCHERS);
    CHECK(strlen(peer_results(&p, stored, 0)) > 0);
    pthread_mutex_lock(&mute.lock);
    CHECK_UINT(mute.n_gone, 0); /* nobody had to give up for that */
    pthread_mutex_unlock(&mute.lock);
    for (uint32_t i = 0; i < ARRAY_LEN(waiting); i++) {
        rpc_stream_close(waiting[i]);
    }
    peer_deinit(&p);
    mute_close(&mute);
}

TEST(a_client_that_goes_frees_the_clerk_who_waits_for_a_worker)
{
    struct peer p;
    struct mute mute;
    peer_init(&p);
    mute_open(&mute);
    peer_register_at(&p, "w1", "i1", rpc_server_address(mute.server));
    const char *remote = query(&p, false);
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
    mute_close(&mute);
}

/* The client whose turn it is next is served by the clerk who has waited long enough. */
TEST(a_worker_that_says_nothing_is_left_for_a_while_and_asked_again)
{
    struct peer p;
    struct mute mute;
    struct rpc_stream *waiting[FETCHERS + 1];
    peer_init(&p);
    mute_open(&mute);
    peer_register_at(&p, "w1", "i1", rpc_server_address(mute.server));
    const char *remote = query(&p, false);
    for (uint32_t i = 0; i < ARRAY_LEN(waiting); i++) {
        waiting[i] = fetch(&p, remote);
    }
    mute_await(&mute, &mute.n_gone, FETCHERS);
    mute_await(&mute, &mute.n_questions, 2 * FETCHERS); /* one by a fetch that had to wait, three once more */
    for (uint32_t i = 0; i < ARRAY_LEN(waiting); i++) {
        CHECK(!rpc_stream_wait(waiting[i], 0)); /* nobody has been told anything */
        rpc_stream_close(waiting[i]);
    }
    peer_deinit(&p);
    mute_close(&mute);
}
