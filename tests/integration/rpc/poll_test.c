/* Calls that wait: many at one time, and what happens when their client does not. */
#include <string.h>
#include <time.h>

#include "integration/rpc/loop.h"

#define MANY 2000

static void *answer_all(void *context)
{
    struct loop *loop = context;
    for (int i = 0; i < MANY; i++) {
        rpc_call_reply(loop_take(loop), "work", 4);
    }
    return NULL;
}

TEST(two_thousand_calls_wait_on_one_poller_and_another_thread_answers_them)
{
    struct loop loop;
    loop_open(&loop);
    struct rpc_stream **polls = mem_calloc(MANY, sizeof(struct rpc_stream *));
    for (int i = 0; i < MANY; i++) { /* a stream's opening does not wait */
        CHECK_ERR(rpc_stream_open(loop.channel, &(struct rpc_request){.path = "/t/Hold"}, &polls[i], &loop.e), ERR_OK);
    }
    CHECK(loop_await(&loop, &loop.n_held, MANY));
    struct buf out = {0};
    CHECK_ERR(loop_call(&loop, "/t/Echo", "x", 1, &out), ERR_OK); /* they are in nobody's way */
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, answer_all, &loop), 0);
    for (int i = 0; i < MANY; i++) {
        bool ended = false;
        CHECK_ERR(rpc_stream_next(polls[i], &out, &ended, NULL, &loop.e), ERR_OK);
        CHECK(!ended);
        CHECK_STR(out.data, "work");
        CHECK_ERR(rpc_stream_next(polls[i], &out, &ended, NULL, &loop.e), ERR_OK);
        CHECK(ended);
        rpc_stream_close(polls[i]);
    }
    pthread_join(thread, NULL);
    CHECK_UINT(loop_read(&loop, &loop.n_gone), 0);
    mem_free((void *)polls);
    buf_deinit(&out);
    loop_close(&loop);
}

TEST(a_client_that_goes_away_is_reported_once)
{
    struct loop loop;
    loop_open(&loop);
    struct rpc_stream *poll = NULL;
    CHECK_ERR(rpc_stream_open(loop.channel, &(struct rpc_request){.path = "/t/Hold"}, &poll, &loop.e), ERR_OK);
    CHECK(loop_await(&loop, &loop.n_held, 1));
    CHECK(!rpc_call_is_gone(loop.held[0]));
    rpc_stream_close(poll);
    CHECK(loop_await(&loop, &loop.n_gone, 1));
    CHECK(rpc_call_is_gone(loop.held[0]));
    CHECK(!loop_await_ms(&loop, &loop.n_gone, 2, 50));
    loop_close(&loop); /* which ends the call */
    CHECK_UINT(loop.n_gone, 1);
}

static void count_late(void *context, struct rpc_call *call)
{
    struct loop *loop = context;
    UNUSED(call);
    pthread_mutex_lock(&loop->lock);
    loop->n_sent++; /* a counter that nobody else uses here */
    pthread_cond_broadcast(&loop->changed);
    pthread_mutex_unlock(&loop->lock);
}

static void hold_only(void *context, struct rpc_call *call)
{
    struct loop *loop = context;
    pthread_mutex_lock(&loop->lock);
    loop->held[loop->n_held++] = call;
    pthread_cond_broadcast(&loop->changed);
    pthread_mutex_unlock(&loop->lock);
}

TEST(who_asks_late_whether_the_client_is_gone_is_told_too)
{
    static const struct rpc_method methods[] = {{"/t/HoldOnly", hold_only}};
    struct loop loop = {0};
    struct rpc_server_options options = loop_options(&loop);
    options.methods = methods;
    options.n_methods = 1;
    loop_open_with(&loop, &options);
    struct buf out = {0};
    struct rpc_request request = {.path = "/t/HoldOnly", .timeout_ms = 50};
    CHECK_ERR(rpc_unary(loop.channel, &request, &out, NULL, &loop.e), ERR_DEADLINE);
    CHECK(loop_await(&loop, &loop.n_held, 1));
    struct rpc_call *call = loop_take(&loop);
    while (!rpc_call_is_gone(call)) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    pthread_mutex_lock(&loop.lock); /* it is not called inside, or this would hang */
    rpc_call_on_gone(call, count_late, &loop);
    pthread_mutex_unlock(&loop.lock);
    CHECK(loop_await(&loop, &loop.n_sent, 1));
    rpc_call_reply(call, "", 0);
    buf_deinit(&out);
    loop_close(&loop);
    CHECK_UINT(loop.n_sent, 1);
}

TEST(a_call_can_be_ended_from_inside_the_report_that_its_client_is_gone)
{
    struct loop loop;
    loop_open(&loop);
    loop.ends_when_gone = true;
    struct buf out = {0};
    struct rpc_request request = {.path = "/t/Hold", .timeout_ms = 1};
    for (uint32_t i = 0; i < 20; i++) {
        request.timeout_ms = 1 + i;
        CHECK_ERR(rpc_unary(loop.channel, &request, &out, NULL, &loop.e), ERR_DEADLINE);
    }
    buf_deinit(&out);
    while (loop_read(&loop, &loop.n_held) > 0) { /* some came so late that they were gone when they came */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    loop_close(&loop);
}

/*
 * The race: clients give up while another thread answers. `waiter` is freed as soon as the end has returned, so a report
 * that comes later, or one that an end does not wait for, is found by the sanitizers.
 */
struct waiter {
    struct waiter *next;
    struct rpc_call *call;
    uint64_t n_gone;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct waiter *first;
    bool stop;
    uint64_t n_arrived;
    uint64_t n_gone_max; /* of one call */
    uint64_t n_gone;
    uint64_t n_answered;
    pthread_cond_t arrived;
} race = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .arrived = PTHREAD_COND_INITIALIZER};

static void waiter_gone(void *context, struct rpc_call *call)
{
    struct waiter *waiter = context;
    ASSERT(waiter->call == call);
    waiter->n_gone++;
}

static void await_race(uint64_t n)
{
    pthread_mutex_lock(&race.lock);
    while (race.n_arrived <= n) {
        pthread_cond_wait(&race.arrived, &race.lock);
    }
    pthread_mutex_unlock(&race.lock);
}

static void wait_in_race(void *context, struct rpc_call *call)
{
    UNUSED(context);
    struct waiter *waiter = mem_calloc(1, sizeof(*waiter));
    waiter->call = call;
    rpc_call_on_gone(call, waiter_gone, waiter);
    pthread_mutex_lock(&race.lock);
    waiter->next = race.first;
    race.first = waiter;
    race.n_arrived++;
    pthread_cond_signal(&race.changed);
    pthread_cond_signal(&race.arrived);
    pthread_mutex_unlock(&race.lock);
}

static void end_in_race(struct waiter *waiter, uint64_t i)
{
    struct error e = {.code = ERR_BUSY};
    if (i % 3 == 0) {
        rpc_call_fail(waiter->call, &e, NULL);
    } else {
        rpc_call_reply(waiter->call, "x", 1);
    }
    race.n_gone += waiter->n_gone;
    race.n_gone_max = waiter->n_gone > race.n_gone_max ? waiter->n_gone : race.n_gone_max;
    race.n_answered++;
    mem_free(waiter);
}

static void *answer_race(void *context)
{
    UNUSED(context);
    pthread_mutex_lock(&race.lock);
    while (!race.stop || race.first != NULL) {
        struct waiter *waiter = race.first;
        if (waiter == NULL) {
            pthread_cond_wait(&race.changed, &race.lock);
            continue;
        }
        race.first = waiter->next;
        pthread_mutex_unlock(&race.lock);
        if (race.n_answered % 2 == 0) { /* half of them meet a client that has just given up */
            nanosleep(&(struct timespec){.tv_nsec = (long)(race.n_answered % 50) * 10000}, NULL);
        }
        end_in_race(waiter, race.n_answered);
        pthread_mutex_lock(&race.lock);
    }
    pthread_mutex_unlock(&race.lock);
    return NULL;
}

TEST(an_answer_and_a_client_that_gives_up_may_meet_at_any_moment)
{
    static const struct rpc_method methods[] = {{"/t/Wait", wait_in_race}};
    struct loop loop = {0};
    struct rpc_server_options options = loop_options(&loop);
    options.methods = methods;
    options.n_methods = 1;
    loop_open_with(&loop, &options);
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, answer_race, NULL), 0);
    struct rpc_stream *polls[8] = {0};
    for (uint64_t i = 0; i < 3000; i++) {
        struct rpc_stream **poll = &polls[i % ARRAY_LEN(polls)];
        rpc_stream_close(*poll);
        *poll = NULL;
        CHECK_ERR(rpc_stream_open(loop.channel, &(struct rpc_request){.path = "/t/Wait"}, poll, &loop.e), ERR_OK);
        await_race(i); /* until it is at the server, so that it is closed while somebody answers */
    }
    for (size_t i = 0; i < ARRAY_LEN(polls); i++) {
        rpc_stream_close(polls[i]);
    }
    rpc_channel_close(loop.channel);
    loop.channel = NULL;
    rpc_server_close(loop.server, 10000); /* no handler is called after this */
    loop.server = NULL;
    pthread_mutex_lock(&race.lock);
    race.stop = true;
    pthread_cond_signal(&race.changed);
    pthread_mutex_unlock(&race.lock);
    pthread_join(thread, NULL);
    print_message("%llu answered, %llu of them gone\n", (unsigned long long)race.n_answered,
                  (unsigned long long)race.n_gone);
    CHECK_UINT(race.n_answered, 3000);
    CHECK(race.n_gone > 0);
    CHECK(race.n_gone < race.n_answered);
    CHECK_UINT(race.n_gone_max, 1);
    loop_close(&loop);
}

/* An end waits for a report that is running. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_running;
    bool may_return;
    atomic_bool has_returned;
} slow = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void gone_slowly(void *context, struct rpc_call *call)
{
    UNUSED(context);
    UNUSED(call);
    pthread_mutex_lock(&slow.lock);
    slow.is_running = true;
    pthread_cond_broadcast(&slow.changed);
    while (!slow.may_return) {
        pthread_cond_wait(&slow.changed, &slow.lock);
    }
    pthread_mutex_unlock(&slow.lock);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* so that an end that does not wait is ahead */
    atomic_store(&slow.has_returned, true);
}

static void hold_slowly(void *context, struct rpc_call *call)
{
    rpc_call_on_gone(call, gone_slowly, context);
    hold_only(context, call);
}

TEST(an_end_waits_for_a_report_that_is_running)
{
    static const struct rpc_method methods[] = {{"/t/Slow", hold_slowly}};
    struct loop loop = {0};
    struct rpc_server_options options = loop_options(&loop);
    options.methods = methods;
    options.n_methods = 1;
    loop_open_with(&loop, &options);
    struct buf out = {0};
    struct rpc_request request = {.path = "/t/Slow", .timeout_ms = 50};
    CHECK_ERR(rpc_unary(loop.channel, &request, &out, NULL, &loop.e), ERR_DEADLINE);
    pthread_mutex_lock(&slow.lock);
    while (!slow.is_running) {
        pthread_cond_wait(&slow.changed, &slow.lock);
    }
    slow.may_return = true;
    pthread_cond_broadcast(&slow.changed);
    pthread_mutex_unlock(&slow.lock);
    rpc_call_reply(loop_take(&loop), "", 0);
    CHECK(atomic_load(&slow.has_returned));
    buf_deinit(&out);
    loop_close(&loop);
}
