/* Registration, polls, execution, reports. */
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "integration/worker/hands.h"

#define SUCCEEDED CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED
#define FAILED CAPSTAN__V1__TASK_STATE__TASK_STATE_FAILED
#define RUNNING CAPSTAN__V1__TASK_STATE__TASK_STATE_RUNNING

TEST(a_worker_registers_with_what_it_is_and_then_sends_heartbeats_in_time)
{
    struct stage stage = stage_set(0);
    stage_start(&stage, (struct worker_options){.slots = 3, .token = "secret", .listen = "127.0.0.1:0"});
    CHECK(script_wait(stage.script, has_beats, 6));
    struct script *s = stage.script;
    pthread_mutex_lock(&s->mutex);
    int64_t took_ms = s->beats[5].at_ms - s->beats[0].at_ms;
    pthread_mutex_unlock(&s->mutex);
    CHECK_UINT(script_facts(s).n_registered, 1);
    CHECK(took_ms >= 450);
    CHECK(took_ms < 10000);
    CHECK_UINT(strlen(script_facts(s).incarnation), 32);
    CHECK_STR(script_facts(s).executors, "noop,block,stubborn,big,fail,poison");
    CHECK_STR(script_facts(s).token, "Bearer secret");
    CHECK_STR(script_facts(s).worker_address, worker_address(stage.worker));
    CHECK(strncmp(script_facts(s).worker_address, "127.0.0.1:", 10) == 0);
    stage_clear(&stage);
}

TEST(a_task_is_run_and_reported_with_its_result)
{
    struct stage stage = stage_set(2);
    atomic_store(&stage.hands->gate, 1);
    script_add(stage.script, &(struct script_task){.task = 7, .executor = "block"});
    CHECK(script_wait(stage.script, has_final, 1));
    struct script_report report = script_last_report(stage.script, 7);
    CHECK_INT(report.state, SUCCEEDED);
    CHECK_UINT(report.attempt, 1);
    CHECK_UINT(report.result_bytes, strlen("{\"ok\":true}"));
    CHECK(script_wait_beat(stage.script, names_nothing, 0));
    stage_clear(&stage);
}

TEST(a_failure_is_reported_with_its_message_and_whether_to_retry)
{
    struct stage stage = stage_set(2);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "fail"});
    script_add(stage.script, &(struct script_task){.task = 2, .executor = "nobody"});
    script_add(stage.script, &(struct script_task){.task = 3, .executor = "noop", .op = "frobnicate"});
    CHECK(script_wait(stage.script, has_final, 3));
    CHECK_INT(script_last_report(stage.script, 1).state, FAILED);
    CHECK_STR(script_last_report(stage.script, 1).message, "it failed");
    CHECK_INT(script_last_report(stage.script, 2).state, FAILED);
    CHECK_STR(script_last_report(stage.script, 3).message,
              "custom physical operator 'frobnicate' is not registered on worker");
    CHECK_UINT(atomic_load(&stage.hands->runs[3]), 0);
    stage_clear(&stage);
}

TEST(an_operator_that_the_worker_has_is_no_obstacle)
{
    struct stage stage = stage_set(0);
    stage_start(&stage, (struct worker_options){.ops = (const char *[]){"other", "frobnicate"}, .n_ops = 2});
    script_add(stage.script, &(struct script_task){.task = 3, .executor = "noop", .op = "frobnicate"});
    CHECK(script_wait(stage.script, has_final, 1));
    CHECK_INT(script_last_report(stage.script, 3).state, SUCCEEDED);
    stage_clear(&stage);
}

TEST(a_time_limit_ends_the_attempt_as_failed)
{
    struct stage stage = stage_set(2);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "block", .timeout_ms = 50});
    CHECK(script_wait(stage.script, has_final, 1));
    CHECK_INT(script_last_report(stage.script, 1).state, FAILED);
    CHECK_STR(script_last_report(stage.script, 1).message, "timed out after 50 ms");
    stage_clear(&stage);
}

TEST(a_second_assignment_of_the_same_attempt_is_ignored)
{
    struct stage stage = stage_set(4);
    script_add(stage.script, &(struct script_task){.task = 5, .executor = "block"});
    CHECK(hands_wait_running(stage.hands, 1));
    script_add(stage.script, &(struct script_task){.task = 5, .executor = "block"});
    script_add(stage.script, &(struct script_task){.task = 6, .executor = "block"});
    CHECK(hands_wait_running(stage.hands, 2));
    atomic_store(&stage.hands->gate, 1);
    CHECK(script_wait(stage.script, has_final, 2));
    CHECK(script_wait_beat(stage.script, names_nothing, 0));
    CHECK_UINT(script_count_reports(stage.script, 5, SUCCEEDED), 1);
    CHECK_UINT(atomic_load(&stage.hands->runs[5]), 1);
    stage_clear(&stage);
}

/* ---- polls ---- */

TEST(a_full_worker_keeps_a_poll_open_for_stop_orders_and_asks_again_when_a_slot_is_free)
{
    struct stage stage = stage_set(2);
    script_add_many(stage.script, "block", 1, 2);
    CHECK(hands_wait_running(stage.hands, 2));
    CHECK(script_wait(stage.script, has_open_poll, 0));
    script_order_stop(stage.script, 1, 1, true, false);
    CHECK(hands_wait_reason(stage.hands, 1, STOP_CANCELED));
    CHECK(script_wait(stage.script, has_open_poll, 1));
    script_add(stage.script, &(struct script_task){.task = 3, .executor = "block"});
    CHECK(hands_wait_running(stage.hands, 2));
    CHECK(script_wait(stage.script, has_open_poll, 0));
    script_order_stop(stage.script, 3, 1, false, false); /* the poll that is open learns nothing of it */
    CHECK(hands_wait_reason(stage.hands, 3, STOP_CANCELED));
    CHECK(script_wait(stage.script, has_open_poll, 1));
    stage_clear(&stage);
}

TEST(a_worker_whose_answers_are_too_large_asks_for_fewer_tasks)
{
    struct stage stage = stage_set(0);
    SCRIPT_SET(stage.script, capacity_max, 40);
    stage_start(&stage, (struct worker_options){.slots = 256});
    CHECK(script_wait(stage.script, has_open_poll_for, 20));
    script_add_many(stage.script, "noop", 0, 100);
    CHECK(script_wait(stage.script, has_final, 100));
    stage_clear(&stage);
}

TEST(slots_that_get_free_together_make_a_few_polls_not_one_each)
{
    struct stage stage = stage_set(200);
    script_add_many(stage.script, "block", 1, 200);
    CHECK(hands_wait_running(stage.hands, 200));
    CHECK(script_wait(stage.script, has_open_poll, 0));
    struct worker_stats before, after;
    worker_stats(stage.worker, &before);
    atomic_store(&stage.hands->gate, 1);
    CHECK(script_wait(stage.script, has_final, 200));
    CHECK(script_wait_beat(stage.script, names_nothing, 0));
    worker_stats(stage.worker, &after);
    CHECK(after.polls_total - before.polls_total < 20);
    /* However it came about, the open poll asks for at least half of what there is. */
    CHECK(script_wait(stage.script, has_open_poll_for, 100));
    stage_clear(&stage);
}

TEST(a_worker_never_has_more_than_its_slots)
{
    struct stage stage = stage_set(3);
    script_add_many(stage.script, "block", 1, 10);
    CHECK(hands_wait_running(stage.hands, 3));
    CHECK(script_wait(stage.script, has_open_poll, 0));
    struct worker_stats stats;
    worker_stats(stage.worker, &stats);
    CHECK_UINT(stats.busy, 3);
    CHECK(!script_wait_ms(stage.script, has_given, 4, 0));
    atomic_store(&stage.hands->gate, 1);
    CHECK(script_wait(stage.script, has_final, 10));
    stage_clear(&stage);
}

TEST(twenty_thousand_tasks_are_each_executed_once_and_reported_once)
{
    enum { N = 20000 };
    struct stage stage = stage_set(256);
    int64_t since_us = clock_mono_us();
    script_add_many(stage.script, "noop", 0, N);
    CHECK(script_wait_ms(stage.script, has_final, N, 120000));
    int64_t took_us = clock_mono_us() - since_us;
    for (uint32_t i = 0; i < N; i++) {
        CHECK_UINT(atomic_load(&stage.hands->runs[i]), 1);
    }
    CHECK(script_wait_beat(stage.script, names_nothing, 0));
    struct script *s = stage.script;
    pthread_mutex_lock(&s->mutex);
    static uint32_t seen[N];
    memset(seen, 0, sizeof seen);
    for (uint32_t i = 0; i < s->n_reports; i++) {
        seen[s->reports[i].task] += s->reports[i].state == SUCCEEDED;
    }
    pthread_mutex_unlock(&s->mutex);
    uint32_t n_batches = script_facts(s).n_batches;
    for (uint32_t i = 0; i < N; i++) {
        CHECK_UINT(seen[i], 1);
    }
    struct worker_stats stats;
    worker_stats(stage.worker, &stats);
    CHECK_UINT(stats.succeeded_total, N);
    CHECK_UINT(stats.unreported, 0);
    CHECK(n_batches < N / 4); /* a call for each would be as many as tasks */
    print_message("%.0f tasks/s, %u batches of reports, %llu polls, %u threads\n", N * 1e6 / (double)took_us, n_batches,
                  (unsigned long long)stats.polls_total, stats.threads);
    stage_clear(&stage);
}

/* ---- reports ---- */

TEST(an_attempt_is_named_until_its_report_has_been_answered)
{
    struct stage stage = stage_set(2);
    SCRIPT_SET(stage.script, hold_reports, true);
    script_add(stage.script, &(struct script_task){.task = 4, .executor = "noop"});
    CHECK(script_wait(stage.script, has_final, 1));
    uint32_t beats = script_beats(stage.script);
    CHECK(script_wait(stage.script, has_beats, beats + 4));
    CHECK(script_wait_beat(stage.script, names_task, 4));
    script_release_reports(stage.script);
    CHECK(script_wait_beat(stage.script, names_nothing, 0));
    CHECK_UINT(script_count_reports(stage.script, 4, SUCCEEDED), 1);
    stage_clear(&stage);
}

TEST(a_report_whose_answer_was_lost_is_sent_again)
{
    struct stage stage = stage_set(2);
    SCRIPT_SET(stage.script, lose_reports, 3);
    script_add(stage.script, &(struct script_task){.task = 4, .executor = "noop"});
    CHECK(script_wait(stage.script, has_final, 4));
    CHECK(script_wait_beat(stage.script, names_nothing, 0));
    CHECK_UINT(script_count_reports(stage.script, 4, SUCCEEDED), 4);
    CHECK_UINT(atomic_load(&stage.hands->runs[4]), 1);
    stage_clear(&stage);
}

TEST(a_refused_report_is_dropped)
{
    struct stage stage = stage_set(2);
    SCRIPT_SET(stage.script, refusal, "stale attempt");
    script_add(stage.script, &(struct script_task){.task = 4, .executor = "noop"});
    CHECK(script_wait(stage.script, has_final, 1));
    CHECK(script_wait_beat(stage.script, names_nothing, 0));
    uint32_t beats = script_beats(stage.script);
    CHECK(script_wait(stage.script, has_beats, beats + 3));
    CHECK_UINT(script_count_reports(stage.script, 4, SUCCEEDED), 1);
    struct worker_stats stats;
    worker_stats(stage.worker, &stats);
    CHECK_UINT(stats.refused_total, 1);
    stage_clear(&stage);
}

TEST(a_report_from_an_unknown_worker_is_repeated_after_registering)
{
    struct stage stage = stage_set(2);
    SCRIPT_SET(stage.script, refusal, "unknown worker: register first");
    script_add(stage.script, &(struct script_task){.task = 4, .executor = "noop"});
    CHECK(script_wait(stage.script, has_registered, 2));
    SCRIPT_SET(stage.script, refusal, NULL);
    CHECK(script_wait(stage.script, has_final, 2));
    CHECK(script_wait_beat(stage.script, names_nothing, 0));
    CHECK(script_count_reports(stage.script, 4, SUCCEEDED) >= 2);
    stage_clear(&stage);
}

static bool await_unreported(struct worker *worker, uint32_t n)
{
    int64_t until_ms = clock_mono_ms() + SCRIPT_PATIENCE_MS;
    struct worker_stats stats;
    worker_stats(worker, &stats);
    while (stats.unreported != n && clock_mono_ms() < until_ms) {
        poll(NULL, 0, 5); /* without it, the worker would wait for its own mutex */
        worker_stats(worker, &stats);
    }
    return stats.unreported == n;
}

TEST(reports_that_wait_go_together_in_one_call)
{
    struct stage stage = stage_set(8);
    SCRIPT_SET(stage.script, hold_reports, true);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "noop"});
    CHECK(script_wait(stage.script, has_final, 1));
    script_add_many(stage.script, "noop", 2, 5);
    CHECK(await_unreported(stage.worker, 6));
    script_release_reports(stage.script);
    CHECK(script_wait(stage.script, has_final, 6));
    CHECK(script_wait_beat(stage.script, names_nothing, 0));
    for (uint32_t task = 2; task <= 6; task++) {
        CHECK_UINT(script_last_report(stage.script, task).batch, 2);
    }
    CHECK_UINT(script_facts(stage.script).n_batches, 2);
    stage_clear(&stage);
}

TEST(a_worker_whose_reports_wait_takes_no_more_than_a_heartbeat_can_name)
{
    struct stage stage = stage_set(8);
    SCRIPT_SET(stage.script, hold_reports, true);
    script_add_many(stage.script, "noop", 0, LIMIT_SLOTS + 1000);
    CHECK(await_unreported(stage.worker, LIMIT_SLOTS));
    uint32_t beats = script_beats(stage.script);
    CHECK(script_wait(stage.script, has_beats, beats + 2));
    struct script *s = stage.script;
    pthread_mutex_lock(&s->mutex);
    CHECK_UINT(s->beats[s->n_beats - 1].n_running, LIMIT_SLOTS);
    CHECK_UINT(s->n_given, LIMIT_SLOTS);
    pthread_mutex_unlock(&s->mutex);
    script_release_reports(stage.script);
    CHECK(script_wait(stage.script, has_final, LIMIT_SLOTS + 1000));
    CHECK(script_wait_beat(stage.script, names_nothing, 0));
    stage_clear(&stage);
}

TEST(one_report_that_a_coordinator_cannot_take_does_not_hold_up_the_others)
{
    struct stage stage = stage_set(8);
    SCRIPT_SET(stage.script, poison, "poison");
    SCRIPT_SET(stage.script, hold_reports, true); /* so that the next batch holds several */
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "noop"});
    CHECK(script_wait(stage.script, has_final, 1));
    script_add_many(stage.script, "noop", 2, 2);
    script_add(stage.script, &(struct script_task){.task = 4, .executor = "poison"});
    script_add_many(stage.script, "noop", 5, 2);
    CHECK(script_wait_beat(stage.script, names_exactly, 6));
    script_release_reports(stage.script);
    CHECK(script_wait(stage.script, has_final, 6));
    CHECK(script_wait_beat(stage.script, names_nothing, 0));
    for (uint32_t task = 1; task <= 6; task++) {
        CHECK_UINT(script_count_reports(stage.script, task, task == 4 ? FAILED : SUCCEEDED), 1);
    }
    CHECK(strstr(script_last_report(stage.script, 4).message, "the coordinator refused the outcome") != NULL);
    CHECK(script_last_report(stage.script, 4).not_retryable);
    stage_clear(&stage);
}

TEST(that_an_attempt_runs_is_told_once_and_only_of_long_ones)
{
    struct stage stage = stage_set(4);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "noop"});
    script_add(stage.script, &(struct script_task){.task = 2, .executor = "block"});
    CHECK(script_wait(stage.script, has_batches, 2));
    uint32_t beats = script_beats(stage.script);
    CHECK(script_wait(stage.script, has_beats, beats + 3));
    CHECK_UINT(script_count_reports(stage.script, 2, RUNNING), 1);
    CHECK_UINT(script_count_reports(stage.script, 1, RUNNING), 0);
    atomic_store(&stage.hands->gate, 1);
    CHECK(script_wait(stage.script, has_final, 2));
    stage_clear(&stage);
}

/* ---- heartbeats ---- */

#define GAP_MS_MAX 400 /* between heartbeats that are due every 100 ms */
#define ROUNDS 5       /* until one goes well: on a busy machine everybody waits now and then */

static int64_t longest_gap_ms(struct script *s, uint32_t from)
{
    int64_t longest = 0;
    pthread_mutex_lock(&s->mutex);
    for (uint32_t i = from + 1; i < s->n_beats; i++) {
        int64_t gap = s->beats[i].at_ms - s->beats[i - 1].at_ms;
        longest = gap > longest ? gap : longest;
    }
    pthread_mutex_unlock(&s->mutex);
    return longest;
}

TEST(heartbeats_come_in_time_while_every_slot_is_blocked)
{
    struct stage stage = stage_set(64);
    script_add_many(stage.script, "stubborn", 1, 64);
    CHECK(hands_wait_running(stage.hands, 64));
    int64_t gap_ms = INT64_MAX;
    for (uint32_t round = 0; round < ROUNDS && gap_ms >= GAP_MS_MAX; round++) {
        uint32_t beats = script_beats(stage.script);
        CHECK(script_wait(stage.script, has_beats, beats + 10));
        gap_ms = longest_gap_ms(stage.script, beats);
    }
    CHECK(gap_ms < GAP_MS_MAX);
    CHECK(script_wait_ms(stage.script, names_exactly, 64, 0));
    stage_clear(&stage);
}

TEST(heartbeats_come_in_time_while_fifty_megabytes_of_results_are_reported)
{
    struct stage stage = stage_set(50);
    int64_t gap_ms = INT64_MAX;
    for (uint32_t round = 0; round < ROUNDS && gap_ms >= GAP_MS_MAX; round++) {
        SCRIPT_SET(stage.script, hold_reports, true);
        script_add_many(stage.script, "big", 1 + 50 * round, 50);
        CHECK(script_wait_beat(stage.script, names_exactly, 50));
        uint32_t beats = script_beats(stage.script);
        script_release_reports(stage.script);
        CHECK(script_wait_ms(stage.script, has_final, 50 * (round + 1), 60000));
        CHECK(script_wait(stage.script, has_beats, beats + 3));
        CHECK(script_wait_beat(stage.script, names_nothing, 0));
        gap_ms = longest_gap_ms(stage.script, beats);
    }
    CHECK(gap_ms < GAP_MS_MAX);
    CHECK(script_wait_ms(stage.script, has_batches, 11, 0));
    stage_clear(&stage);
}
