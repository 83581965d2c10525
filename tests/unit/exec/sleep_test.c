#include "../test.h"

#include <dirent.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "exec/executor.h"

static struct exec_outcome sleep_with(const char *inputs, struct exec_stop *stop)
{
    struct exec_task task = {.inputs = inputs, .n_inputs = strlen(inputs)};
    struct exec_outcome out = {0};
    struct executor *executor = executor_sleep();
    executor->run(executor, &task, stop, &out);
    return out;
}

static void check_sleeps(const char *inputs, int64_t least_ms)
{
    struct exec_stop *stop = exec_stop_new();
    int64_t start_us = clock_mono_us();
    struct exec_outcome out = sleep_with(inputs, stop);
    CHECK(clock_mono_us() - start_us >= least_ms * 1000);
    CHECK(out.is_success);
    CHECK_UINT(out.result.n, 0);
    CHECK(out.result.data == NULL);
    exec_outcome_deinit(&out);
    exec_stop_free(stop);
}

static void check_refuses(const char *inputs, const char *message)
{
    struct exec_stop *stop = exec_stop_new();
    struct exec_outcome out = sleep_with(inputs, stop);
    CHECK(!out.is_success);
    CHECK(out.not_retryable);
    CHECK_STR(out.message.data, message);
    exec_outcome_deinit(&out);
    exec_stop_free(stop);
}

TEST(sleep_waits_and_has_no_result)
{
    check_sleeps("{\"ms\":0}", 0);
    check_sleeps(" { \"ms\" : 15 } ", 15);
    check_sleeps("{\"ms\":15}", 15);
    check_sleeps("{\"results\":{\"a\":1},\"ms\":15}", 15);
    check_sleeps("{\"ms\":0,\"results\":{}}", 0);
    check_sleeps("{\n\t\"ms\": 0}\n", 0);
    check_sleeps("{\"\\u006ds\":0}", 0);
}

TEST(sleep_refuses_what_is_no_time)
{
    const char *message = "inputs.ms must be a whole number of milliseconds from 0 to 1000000000000";
    check_refuses("{}", message);
    check_refuses("{\"ms\":-1}", message);
    check_refuses("{\"ms\":1.5}", message);
    check_refuses("{\"ms\":\"1\"}", message);
    check_refuses("{\"ms\":null}", message);
    check_refuses("{\"ms\":1000000000001}", message);
    check_refuses("{\"ms\":99999999999999999999}", message);
    check_refuses("[1]", "inputs must be an object");
}

TEST(sleep_refuses_what_is_no_json)
{
    const char *const bad[] = {"",          "{\"ms\":01}",  "{\"ms\":1",  "{\"ms\":1}}",
                               "{\"ms\":}", "{\"ms\":1 2}", "{\"ms\":1,}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct exec_stop *stop = exec_stop_new();
        struct exec_outcome out = sleep_with(bad[i], stop);
        CHECK(!out.is_success);
        CHECK(out.not_retryable);
        CHECK_MEM(out.message.data, "inputs are not valid JSON: ", 27);
        exec_outcome_deinit(&out);
        exec_stop_free(stop);
    }
}

static void *fire(void *stop)
{
    exec_stop_fire(stop, STOP_CANCELED);
    return NULL;
}

TEST(sleep_ends_when_it_is_stopped)
{
    struct exec_stop *stop = exec_stop_new();
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, fire, stop), 0);
    int64_t start_ms = clock_mono_ms();
    struct exec_outcome out = sleep_with("{\"ms\":600000}", stop);
    CHECK(clock_mono_ms() - start_ms < 60000);
    CHECK(!out.is_success);
    CHECK_INT(pthread_join(thread, NULL), 0);
    exec_outcome_deinit(&out);
    exec_stop_free(stop);
}

static size_t open_descriptors(void)
{
    size_t n = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder) != NULL) {
        n++;
    }
    closedir(folder);
    return n;
}

TEST(sleep_opens_no_descriptor)
{
    struct exec_stop *stop = exec_stop_new();
    size_t before = open_descriptors();
    struct exec_outcome out = sleep_with("{\"ms\":1}", stop);
    CHECK_UINT(open_descriptors(), before);
    exec_outcome_deinit(&out);
    exec_stop_free(stop);
}
