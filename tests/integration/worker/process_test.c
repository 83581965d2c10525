/* A worker as a process: stopped and continued, not listened to, idle, and at full speed. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "integration/worker/child.h"
#include "integration/worker/hands.h"

#define QUEUED CAPSTAN__V1__TASK_STATE__TASK_STATE_QUEUED
#define SUCCEEDED CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED

/* Sanitizers multiply what a worker uses. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IDLE_PERCENT_MAX 5
#else
#define IDLE_PERCENT_MAX 1
#endif

/* A number from the environment, for longer runs by hand. */
static uint32_t number(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : (uint32_t)strtoul(text, NULL, 10);
}

TEST(a_worker_that_was_stopped_beyond_its_lease_loses_its_attempt_and_goes_on)
{
    struct script *s = script_start(NULL);
    s->orphan_ms = 500; /* its own absence is not the silence of a coordinator */
    struct child child = child_start(s->address, 2);
    script_add(s, &(struct script_task){.task = 1, .executor = "block"});
    script_add(s, &(struct script_task){.task = 2, .executor = "block", .exclusive = true});
    CHECK(script_wait_beat(s, names_exactly, 2));
    CHECK_INT(kill(child.pid, SIGSTOP), 0);
    uint32_t beats = script_beats(s);
    CHECK(!script_wait_ms(s, has_beats, beats + 10, 1500));
    SCRIPT_SET(s, mood, MOOD_FORGETFUL); /* by now it has been given up */
    SCRIPT_SET(s, refusal, "stale attempt");
    CHECK_INT(kill(child.pid, SIGCONT), 0);
    CHECK(script_wait(s, has_registered, 2));
    CHECK(script_wait_beat(s, names_exactly, 1)); /* the exclusive one stopped by itself */
    CHECK(script_wait(s, names_task, 1));
    script_order_stop(s, 1, 1, false, false);
    CHECK(script_wait_beat(s, names_nothing, 0));
    SCRIPT_SET(s, refusal, NULL);
    script_add(s, &(struct script_task){.task = 3, .executor = "noop"});
    CHECK(script_wait(s, has_final, 2)); /* before it, the exclusive one was given back, too late */
    CHECK_INT(script_last_report(s, 2).state, QUEUED);
    CHECK_UINT(script_count_reports(s, 3, SUCCEEDED), 1);
    CHECK_INT(child_end(&child), 0);
    script_stop(s);
}

/* Writes to the pipe until it takes no more; then it is one that waits, as it was. Returns how many bytes it holds. */
static size_t fill_pipe(int writer)
{
    static const char zeros[4096];
    size_t sum = 0;
    ssize_t n = 0;
    CHECK_INT(fcntl(writer, F_SETFL, O_NONBLOCK), 0);
    while ((n = write(writer, zeros, sizeof zeros)) > 0) {
        sum += (size_t)n;
    }
    CHECK_INT(fcntl(writer, F_SETFL, 0), 0);
    return sum;
}

/* Reads lines until one has the words. */
static bool is_told(int reader, const char *words)
{
    struct buf text = {0};
    char chunk[4096];
    struct pollfd fd = {.fd = reader, .events = POLLIN};
    ssize_t n = 0;
    bool is_there = false;
    while (!is_there && poll(&fd, 1, SCRIPT_PATIENCE_MS) == 1 && (n = read(reader, chunk, sizeof chunk)) > 0) {
        buf_append(&text, chunk, (size_t)n);
        is_there = strstr(text.data, words) != NULL;
    }
    buf_deinit(&text);
    return is_there;
}

TEST(a_worker_whose_log_nobody_reads_goes_on)
{
    int ends[2];
    CHECK_INT(pipe(ends), 0);
    CHECK_INT(fcntl(ends[0], F_SETFD, FD_CLOEXEC), 0);
    size_t n_full = fill_pipe(ends[1]);
    struct script *s = script_start(NULL);
    s->beat_reason = "not the leader any more"; /* a line for each heartbeat, from the thread that sends them */
    struct child child = child_start_logging(s->address, 2, ends[1]);
    close(ends[1]);
    CHECK(script_wait(s, has_beats, 20));
    SCRIPT_SET(s, beat_reason, NULL);
    script_add(s, &(struct script_task){.task = 1, .executor = "noop"});
    CHECK(script_wait(s, has_final, 1));
    CHECK_UINT(script_count_reports(s, 1, SUCCEEDED), 1);
    for (char chunk[4096]; n_full > 0;) {
        ssize_t n = read(ends[0], chunk, n_full < sizeof chunk ? n_full : sizeof chunk);
        CHECK(n > 0);
        CHECK(memchr(chunk, '\n', (size_t)n) == NULL); /* nothing of the worker's was there */
        n_full -= (size_t)n;
    }
    SCRIPT_SET(s, beat_reason, "not the leader any more");
    CHECK(is_told(ends[0], " lines of the log were dropped"));
    CHECK_INT(child_end(&child), 0);
    close(ends[0]);
    script_stop(s);
}

TEST(an_idle_worker_uses_next_to_nothing)
{
    struct script *s = script_start(NULL);
    s->beat_ms = 3000;
    s->lease_ms = 15000;
    struct child child = child_start(s->address, 256);
    script_add_many(s, "noop", 0, 5000); /* it has worked before */
    CHECK(script_wait(s, has_final, 5000));
    CHECK(script_wait(s, has_beats, 1));
    uint32_t seconds = number("CAPSTAN_TEST_IDLE_S", 3);
    int64_t allowed_ms = IDLE_PERCENT_MAX * 10 * seconds + 10; /* and one tick of the kernel's clock */
    int64_t used_ms = INT64_MAX;
    for (int round = 0; round < 3 && used_ms > allowed_ms;
         round++) { /* a busy machine makes the same work take longer */
        int64_t before_ms = child_cpu_ms(&child);
        CHECK(!script_wait_ms(s, has_final, 5001, seconds * 1000));
        used_ms = child_cpu_ms(&child) - before_ms;
    }
    int64_t kib = child_private_kib(&child);
    /* Sanitizers have memory of their own: how much a worker may have is checked by tests/e2e/load.test.js. */
    print_message("%.2f %% CPU, %lld KiB private\n", (double)used_ms / 10.0 / seconds, (long long)kib);
    CHECK(used_ms <= allowed_ms);
    CHECK_INT(child_end(&child), 0);
    script_stop(s);
}

TEST(a_worker_process_works_through_a_long_queue)
{
    uint32_t n = number("CAPSTAN_TEST_TASKS", 50000);
    struct script *s = script_start(NULL);
    s->beat_ms = 3000;
    s->lease_ms = 15000;
    struct child child = child_start(s->address, 256);
    CHECK(script_wait(s, has_open_poll, 256));
    int64_t before_ms = child_cpu_ms(&child);
    int64_t since_us = clock_mono_us();
    script_add_many(s, "noop", 0, n);
    CHECK(script_wait_ms(s, has_final, n, 300000));
    int64_t took_us = clock_mono_us() - since_us;
    int64_t used_ms = child_cpu_ms(&child) - before_ms;
    print_message("%u tasks, %.0f tasks/s, %.2f us of the worker's CPU time per task; %u polls, %u batches\n", n,
                  n * 1e6 / (double)took_us, (double)used_ms * 1000.0 / n, script_facts(s).n_polls,
                  script_facts(s).n_batches);
    CHECK(script_facts(s).n_batches < n / 4);
    CHECK_INT(child_end(&child), 0);
    script_stop(s);
}
