#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "exec/executor.h"
#include "fixture.h"

#define BEGUN_MS 2000 /* a time limit that a shell has begun its work and set its traps in, on a busy machine, too */

static bool has_started(const struct fixture *f)
{
    return number_in_file(f, "pid") > 0;
}

TEST(a_command_that_takes_too_long_is_ended_with_its_children)
{
    struct fixture f = fixture_open(NULL);
    struct exec_task task = task_with("{\"argv\":[\"sh\",\"-c\",\"echo begun; sleep 1000 & echo $! >pid; wait\"]}");
    task.timeout_ms = BEGUN_MS;
    task.kill_grace_ms = 600000;
    int64_t start_ms = clock_mono_ms();
    struct exec_outcome out = fixture_run_task(&f, "command", &task);
    int64_t took_ms = clock_mono_ms() - start_ms;
    CHECK(took_ms >= BEGUN_MS);
    CHECK(took_ms < 60000); /* it obeyed SIGTERM, so nobody waited for the end of the grace */
    CHECK(!is_alive((pid_t)number_in_file(&f, "pid")));
    CHECK_STR(out.result.data, "{\"exit_code\":143,\"signal\":\"SIGTERM\",\"stdout\":\"begun\\n\",\"stderr\":\"\"}");
    expect_failure(out, "timed out after 2000 ms", false);
    CHECK_INT(count_children(), 1);
    fixture_close(&f);
}

TEST(a_command_that_ignores_the_time_limit_is_killed_after_the_grace)
{
    struct fixture f = fixture_open(NULL);
    struct exec_task task = task_with("{\"argv\":[\"sh\",\"-c\",\"trap '' TERM; echo $$ >pid; sleep 1000\"]}");
    task.timeout_ms = BEGUN_MS;
    task.kill_grace_ms = 400;
    int64_t start_ms = clock_mono_ms();
    struct exec_outcome out = fixture_run_task(&f, "command", &task);
    CHECK(clock_mono_ms() - start_ms >= BEGUN_MS + 400);
    CHECK_STR(out.result.data, "{\"exit_code\":137,\"signal\":\"SIGKILL\",\"stdout\":\"\",\"stderr\":\"\"}");
    CHECK(!is_alive((pid_t)number_in_file(&f, "pid")));
    expect_failure(out, "timed out after 2000 ms", false);
    fixture_close(&f);
}

TEST(a_command_that_ends_well_when_it_is_stopped_has_failed_all_the_same)
{
    struct fixture f = fixture_open(NULL);
    struct exec_task task =
        task_with("{\"argv\":[\"sh\",\"-c\",\"trap 'echo bye; exit 0' TERM; sleep 1000 & echo $$ >pid; wait\"]}");
    int64_t took_ms = 0;
    struct exec_outcome out = fixture_stop(&f, "command", &task, STOP_SHUTDOWN, has_started, &took_ms);
    CHECK_STR(out.result.data, "{\"exit_code\":0,\"stdout\":\"bye\\n\",\"stderr\":\"\"}");
    expect_failure(out, "stopped: the worker shuts down", false);
    fixture_close(&f);
}

/*
 * The promise of a cancel: within two seconds, whatever the command thinks of it. What a busy machine adds is not counted;
 * the usual grace would be five.
 */
static void check_ends_within_two_seconds(enum stop_reason reason, const char *message)
{
    struct fixture f = fixture_open(NULL);
    struct exec_task task =
        task_with("{\"argv\":[\"sh\",\"-c\",\"trap '' TERM; (trap '' TERM; sleep 1000) & echo $! >pid; sleep 1000\"]}");
    int64_t took_ms = 0;
    struct exec_outcome out = fixture_stop(&f, "command", &task, reason, has_started, &took_ms);
    CHECK(took_ms < 4000);
    CHECK(!is_alive((pid_t)number_in_file(&f, "pid")));
    expect_failure(out, message, false);
    CHECK_INT(count_children(), 1);
    fixture_close(&f);
}

TEST(a_canceled_command_is_gone_within_two_seconds)
{
    check_ends_within_two_seconds(STOP_CANCELED, "stopped: canceled");
}

TEST(a_command_whose_lease_is_lost_is_gone_within_two_seconds)
{
    check_ends_within_two_seconds(STOP_LEASE_LOST, "stopped: the lease was lost");
}

static struct exec_stop *shared_stop;
static const struct fixture *shared_fixture;
static atomic_bool is_over;

static void *cancel_when_it_was_asked(void *unused)
{
    UNUSED(unused);
    while (!has_file(shared_fixture, "asked") && !atomic_load(&is_over)) {
        pause_ms(1);
    }
    exec_stop_fire(shared_stop, STOP_CANCELED);
    return NULL;
}

TEST(a_cancel_shortens_the_grace_of_a_time_limit)
{
    struct fixture f = fixture_open(NULL);
    struct exec_task task =
        task_with("{\"argv\":[\"sh\",\"-c\",\"trap ': >asked' TERM; echo $$ >pid; while :; do sleep 0.05; done\"]}");
    task.timeout_ms = BEGUN_MS;
    task.kill_grace_ms = 600000;
    shared_stop = exec_stop_new();
    shared_fixture = &f;
    atomic_store(&is_over, false);
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, cancel_when_it_was_asked, NULL), 0);
    struct exec_outcome out = {0};
    int64_t start_ms = clock_mono_ms();
    exec_run(f.set, "command", &task, shared_stop, &out);
    int64_t took_ms = clock_mono_ms() - start_ms;
    atomic_store(&is_over, true);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK(has_file(&f, "asked"));
    CHECK(took_ms < 60000);
    expect_failure(out, "timed out after 2000 ms", false);
    exec_stop_free(shared_stop);
    fixture_close(&f);
}

TEST(a_command_that_is_halted_hears_of_its_stop)
{
    struct fixture f = fixture_open(NULL);
    struct exec_task task = task_with("{\"argv\":[\"sh\",\"-c\",\"echo $$ >pid; kill -STOP $$; exit 3\"]}");
    task.kill_grace_ms = 600000;
    task.timeout_ms = 200;
    struct exec_outcome out = fixture_run_task(&f, "command", &task);
    CHECK_MEM(out.result.data, "{\"exit_code\":143,\"signal\":\"SIGTERM\"", 34);
    expect_failure(out, "timed out after 200 ms", false);
    fixture_close(&f);
}

TEST(a_command_that_writes_without_end_can_be_stopped)
{
    struct fixture f = fixture_open(NULL);
    struct exec_task task = task_with("{\"argv\":[\"sh\",\"-c\",\"yes & echo $! >pid; exec yes >&2\"]}");
    int64_t took_ms = 0;
    struct exec_outcome out = fixture_stop(&f, "command", &task, STOP_CANCELED, has_started, &took_ms);
    CHECK(took_ms < 4000);
    CHECK(!is_alive((pid_t)number_in_file(&f, "pid")));
    expect_failure(out, "stopped: canceled", false);
    fixture_close(&f);
}

/* Stops at random moments from the very start on: nothing may be left, whatever was under way. */
static void *stop_soon(void *stop)
{
    pause_ms((int)((uintptr_t)stop / 64 % 8));
    exec_stop_fire(stop, STOP_CANCELED);
    return NULL;
}

TEST(a_stop_at_any_moment_leaves_nothing_behind)
{
    int descriptors = count_descriptors();
    struct fixture f = fixture_open(NULL);
    struct exec_task task = task_with("{\"argv\":[\"sh\",\"-c\",\"sleep 1000 & sleep 1000\"]}");
    struct exec_stop *stops[40];
    for (size_t i = 0; i < 40; i++) {
        stops[i] = exec_stop_new();
        pthread_t thread;
        CHECK_INT(pthread_create(&thread, NULL, stop_soon, stops[i]), 0);
        struct exec_outcome out = {0};
        exec_run(f.set, "command", &task, stops[i], &out);
        CHECK_INT(pthread_join(thread, NULL), 0);
        expect_failure(out, "stopped: canceled", false);
        CHECK_INT(count_children(), 1);
    }
    for (size_t i = 0; i < 40; i++) {
        exec_stop_free(stops[i]);
    }
    fixture_close(&f);
    CHECK_INT(count_descriptors(), descriptors);
}
