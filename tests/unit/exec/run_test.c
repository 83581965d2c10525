#include "../test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "exec/executor.h"

/* An executor whose behaviour is a function of the test. */
struct fake {
    struct executor base;
    void (*act)(struct exec_stop *stop, struct exec_outcome *out);
    uint32_t *closed;
};

static void run_fake(struct executor *base, const struct exec_task *task, struct exec_stop *stop,
                     struct exec_outcome *out)
{
    UNUSED(task);
    CONTAINER_OF(base, struct fake, base)->act(stop, out);
}

static void close_fake(struct executor *base)
{
    struct fake *fake = CONTAINER_OF(base, struct fake, base);
    if (fake->closed != NULL) {
        (*fake->closed)++;
    }
    mem_free(fake);
}

static struct executor *fake_new(const char *name, void (*act)(struct exec_stop *, struct exec_outcome *))
{
    struct fake *fake = mem_calloc(1, sizeof(*fake));
    fake->base = (struct executor){.name = name, .run = run_fake, .close = close_fake};
    fake->act = act;
    return &fake->base;
}

/* Runs the act with a time limit (0: none) and the stop fired for the reason beforehand (STOP_NONE: not at all). */
static struct exec_outcome run(void (*act)(struct exec_stop *, struct exec_outcome *), uint32_t timeout_ms,
                               enum stop_reason reason)
{
    struct executor_set *set = executor_set_new();
    CHECK_ERR(executor_set_add(set, fake_new("fake", act), NULL), ERR_OK);
    struct exec_stop *stop = exec_stop_new();
    if (reason != STOP_NONE) {
        exec_stop_fire(stop, reason);
    }
    struct exec_task task = {.inputs = "{}", .n_inputs = 2, .timeout_ms = timeout_ms};
    struct exec_outcome out = {0};
    exec_run(set, "fake", &task, stop, &out);
    exec_stop_free(stop);
    executor_set_free(set);
    return out;
}

static void succeed(struct exec_stop *stop, struct exec_outcome *out)
{
    UNUSED(stop);
    buf_text(&out->result, "1");
    out->is_success = true;
}

static void wait_for_stop(struct exec_stop *stop, struct exec_outcome *out)
{
    if (exec_stop_wait(stop, 60000)) {
        exec_fail(out, true, "was told to stop");
    }
}

static void wait_for_stop_and_succeed(struct exec_stop *stop, struct exec_outcome *out)
{
    exec_stop_wait(stop, 60000);
    succeed(stop, out);
}

static void answer_too_much(struct exec_stop *stop, struct exec_outcome *out)
{
    UNUSED(stop);
    char block[1024];
    memset(block, '1', sizeof(block));
    while (out->result.n <= LIMIT_INLINE_RESULT_BYTES) {
        buf_append(&out->result, block, sizeof(block));
    }
    out->is_success = true;
}

static void cancel_itself(struct exec_stop *stop, struct exec_outcome *out)
{
    exec_stop_fire(stop, STOP_CANCELED);
    exec_fail(out, true, "whatever");
}

TEST(an_executor_that_is_not_there_is_a_failure_that_another_worker_may_mend)
{
    struct executor_set *set = executor_set_new();
    struct exec_stop *stop = exec_stop_new();
    struct exec_task task = {.inputs = "{}", .n_inputs = 2};
    struct exec_outcome out = {0};
    exec_run(set, "docker", &task, stop, &out);
    CHECK(!out.is_success);
    CHECK(!out.not_retryable);
    CHECK_STR(out.message.data, "executor 'docker' is not available on this worker");
    exec_outcome_deinit(&out);
    exec_stop_free(stop);
    executor_set_free(set);
}

TEST(a_set_finds_executors_by_name_and_closes_them)
{
    struct executor_set *set = executor_set_new();
    uint32_t closed = 0;
    struct executor *a = fake_new("a", succeed);
    CONTAINER_OF(a, struct fake, base)->closed = &closed;
    CHECK_ERR(executor_set_add(set, a, NULL), ERR_OK);
    CHECK_ERR(executor_set_add(set, executor_sleep(), NULL), ERR_OK);
    CHECK_UINT(executor_set_count(set), 2);
    CHECK(executor_set_at(set, 0) == a);
    CHECK(executor_set_find(set, "a") == a);
    CHECK_STR(executor_set_find(set, "sleep")->name, "sleep");
    CHECK(executor_set_find(set, "b") == NULL);
    executor_set_free(set);
    executor_set_free(NULL);
    CHECK_UINT(closed, 1);
}

TEST(two_executors_of_one_name_are_refused)
{
    struct executor_set *set = executor_set_new();
    struct error e = {0};
    CHECK_ERR(executor_set_add(set, fake_new("a", succeed), &e), ERR_OK);
    struct executor *second = fake_new("a", succeed);
    CHECK_ERR(executor_set_add(set, second, &e), ERR_EXISTS);
    CHECK_STR(e.message, "there are two executors 'a'");
    executor_close(second);
    executor_close(NULL);
    CHECK_UINT(executor_set_count(set), 1);
    executor_set_free(set);
}

TEST(a_success_passes_through)
{
    struct exec_outcome out = run(succeed, 60000, STOP_NONE);
    CHECK(out.is_success);
    CHECK_STR(out.result.data, "1");
    exec_outcome_deinit(&out);
}

TEST(a_run_that_takes_too_long_has_timed_out)
{
    int64_t start_us = clock_mono_us();
    struct exec_outcome out = run(wait_for_stop, 20, STOP_NONE);
    CHECK(clock_mono_us() - start_us >= 20000);
    CHECK(!out.is_success);
    CHECK(!out.not_retryable);
    CHECK_STR(out.message.data, "timed out after 20 ms");
    exec_outcome_deinit(&out);
}

TEST(a_success_after_the_time_is_over_is_none)
{
    struct exec_outcome out = run(wait_for_stop_and_succeed, 10, STOP_NONE);
    CHECK(!out.is_success);
    CHECK_STR(out.message.data, "timed out after 10 ms");
    CHECK_UINT(out.result.n, 0);
    exec_outcome_deinit(&out);
}

TEST(what_is_stopped_before_it_begins_is_not_run)
{
    struct exec_outcome out = run(succeed, 0, STOP_SHUTDOWN);
    CHECK(!out.is_success);
    CHECK_STR(out.message.data, "stopped: the worker shuts down");
    exec_outcome_deinit(&out);
}

TEST(what_the_worker_stops_says_so_and_may_be_tried_again)
{
    struct exec_outcome out = run(cancel_itself, 0, STOP_NONE);
    CHECK(!out.is_success);
    CHECK(!out.not_retryable);
    CHECK_STR(out.message.data, "stopped: canceled");
    exec_outcome_deinit(&out);
}

TEST(a_result_over_the_limit_is_a_failure)
{
    struct exec_outcome out = run(answer_too_much, 0, STOP_NONE);
    CHECK(!out.is_success);
    CHECK(out.not_retryable);
    CHECK_STR(out.message.data, "the result has 1049600 bytes, 1048576 are allowed");
    CHECK_UINT(out.result.n, 0);
    exec_outcome_deinit(&out);
}

TEST(a_message_is_cut_and_made_utf8)
{
    char text[2 * LIMIT_MESSAGE_BYTES + 1];
    memset(text, 'x', sizeof(text) - 1);
    text[0] = '\xff';
    text[sizeof(text) - 1] = '\0';
    struct exec_outcome out = {.is_success = true};
    exec_fail(&out, true, "%s", text);
    CHECK(!out.is_success);
    CHECK(out.not_retryable);
    CHECK_UINT(out.message.n, LIMIT_MESSAGE_BYTES);
    CHECK_MEM(out.message.data, "\xef\xbf\xbdx", 4);
    exec_fail(&out, false, "%s", "short");
    CHECK_STR(out.message.data, "short");
    exec_outcome_deinit(&out);
}

/* Many limits at a time, long and short ones in turn, with runs that end before, at and after them. */

#define THREADS 8
#define ROUNDS 100

static void *run_many(void *argument)
{
    struct executor_set *set = argument;
    size_t wrong = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct exec_stop *stop = exec_stop_new();
        bool is_short = i % 4 == 0;
        struct exec_task task = {.inputs = is_short ? "{\"ms\":60000}" : "{\"ms\":0}",
                                 .n_inputs = is_short ? 12 : 8,
                                 .timeout_ms = is_short ? 1 + i % 7 : 60000};
        struct exec_outcome out = {0};
        exec_run(set, "sleep", &task, stop, &out);
        char expected[64];
        snprintf(expected, sizeof(expected), "timed out after %u ms", (unsigned)task.timeout_ms);
        bool is_right = is_short ? !out.is_success && strcmp(out.message.data, expected) == 0 : out.is_success;
        wrong += is_right ? 0 : 1;
        exec_outcome_deinit(&out);
        exec_stop_free(stop);
    }
    return wrong == 0 ? NULL : argument;
}

TEST(many_time_limits_are_kept_at_the_same_time)
{
    struct executor_set *set = executor_set_new();
    CHECK_ERR(executor_set_add(set, executor_sleep(), NULL), ERR_OK);
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        CHECK_INT(pthread_create(&threads[i], NULL, run_many, set), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        CHECK_INT(pthread_join(threads[i], &wrong), 0);
        CHECK(wrong == NULL);
    }
    executor_set_free(set);
}
