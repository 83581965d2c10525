/* Ways to leave. */
#include "base/clock.h"
#include "integration/worker/hands.h"

#define SUCCEEDED CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED
#define QUEUED CAPSTAN__V1__TASK_STATE__TASK_STATE_QUEUED

TEST(a_draining_worker_finishes_what_runs_takes_nothing_new_and_says_goodbye)
{
    struct stage stage = stage_set(2);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "block"});
    CHECK(hands_wait_running(stage.hands, 1));
    CHECK(script_wait(stage.script, has_open_poll, 1));
    worker_drain(stage.worker);
    CHECK(script_wait(stage.script, has_open_poll, 0));
    CHECK(script_wait(stage.script, has_leaving_beat, 0));
    script_add(stage.script, &(struct script_task){.task = 2, .executor = "noop"});
    worker_drain(stage.worker);
    CHECK(script_wait_beat(stage.script, names_exactly, 1));
    CHECK_UINT(script_facts(stage.script).n_deregistered, 0);
    atomic_store(&stage.hands->gate, 1);
    CHECK_INT(worker_wait(stage.worker), 0);
    CHECK_UINT(script_facts(stage.script).n_deregistered, 1);
    CHECK_UINT(script_count_reports(stage.script, 1, SUCCEEDED), 1);
    CHECK_UINT(atomic_load(&stage.hands->runs[2]), 0);
    stage_clear(&stage);
}

TEST(what_a_draining_worker_cannot_finish_in_time_is_given_back)
{
    struct stage stage = stage_set(0);
    SCRIPT_SET(stage.script, drain_ms, 300);
    stage_start(&stage, (struct worker_options){.slots = 2});
    script_add_many(stage.script, "block", 1, 2);
    CHECK(hands_wait_running(stage.hands, 2));
    worker_drain(stage.worker);
    CHECK_INT(worker_wait(stage.worker), 0);
    CHECK_INT(atomic_load(&stage.hands->reasons[1]), STOP_SHUTDOWN);
    CHECK_UINT(script_count_reports(stage.script, 1, QUEUED), 1);
    CHECK_UINT(script_count_reports(stage.script, 2, QUEUED), 1);
    CHECK_UINT(script_facts(stage.script).n_final, 2);
    CHECK_UINT(script_facts(stage.script).n_deregistered, 1);
    stage_clear(&stage);
}

TEST(a_draining_worker_waits_until_its_reports_are_answered)
{
    struct stage stage = stage_set(2);
    SCRIPT_SET(stage.script, hold_reports, true);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "noop"});
    CHECK(script_wait(stage.script, has_final, 1));
    worker_drain(stage.worker);
    CHECK(script_wait_beat(stage.script, names_exactly, 1));
    CHECK(script_wait_beat(stage.script, names_exactly, 1));
    CHECK(!script_wait_ms(stage.script, has_deregistered, 1, 0));
    script_release_reports(stage.script);
    CHECK_INT(worker_wait(stage.worker), 0);
    CHECK_UINT(script_facts(stage.script).n_deregistered, 1);
    stage_clear(&stage);
}

TEST(a_draining_worker_waits_while_its_outputs_are_needed)
{
    struct stage stage = stage_set(2);
    SCRIPT_SET(stage.script, outputs_needed, 2);
    worker_drain(stage.worker);
    CHECK(script_wait(stage.script, has_leaving_beat, 0));
    uint32_t beats = script_beats(stage.script);
    CHECK(script_wait(stage.script, has_beats, beats + 4));
    CHECK(!script_wait_ms(stage.script, has_deregistered, 1, 0));
    SCRIPT_SET(stage.script, outputs_needed, 0);
    CHECK_INT(worker_wait(stage.worker), 0);
    stage_clear(&stage);
}

TEST(outputs_keep_a_draining_worker_no_longer_than_the_drain_time)
{
    struct stage stage = stage_set(0);
    SCRIPT_SET(stage.script, drain_ms, 300);
    SCRIPT_SET(stage.script, outputs_needed, 1);
    stage_start(&stage, (struct worker_options){.slots = 2});
    CHECK(script_wait(stage.script, has_beats, 1));
    worker_drain(stage.worker);
    CHECK_INT(worker_wait(stage.worker), 0);
    CHECK_UINT(script_facts(stage.script).n_deregistered, 1);
    stage_clear(&stage);
}

TEST(a_second_signal_stops_at_once_and_gives_everything_back)
{
    struct stage stage = stage_set(2);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "block"});
    CHECK(hands_wait_running(stage.hands, 1));
    worker_drain(stage.worker);
    int64_t since_ms = clock_mono_ms();
    worker_stop_now(stage.worker);
    CHECK_INT(worker_wait(stage.worker), 0);
    CHECK(clock_mono_ms() - since_ms < 15000); /* it would have been waited for for 20 s */
    CHECK_INT(atomic_load(&stage.hands->reasons[1]), STOP_SHUTDOWN);
    CHECK_UINT(script_facts(stage.script).n_deregistered, 1);
    stage_clear(&stage);
}

TEST(an_executor_that_does_not_stop_makes_the_worker_end_with_1)
{
    struct stage stage = stage_set(0);
    SCRIPT_SET(stage.script, kill_grace_ms, 100);
    stage_start(&stage, (struct worker_options){.slots = 2});
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "stubborn"});
    CHECK(hands_wait_running(stage.hands, 1));
    worker_stop_now(stage.worker);
    CHECK_INT(worker_wait(stage.worker), 1);
    struct worker_stats stats;
    worker_stats(stage.worker, &stats);
    CHECK_UINT(stats.busy, 1);
    stage_clear(&stage);
}

TEST(a_worker_that_never_found_a_coordinator_can_be_stopped)
{
    struct stage stage = stage_set(0);
    script_set_mood(stage.script, MOOD_SILENT);
    stage_start(&stage, (struct worker_options){.slots = 2});
    worker_drain(stage.worker);
    CHECK_INT(worker_wait(stage.worker), 0);
    stage_clear(&stage);
}

TEST(a_worker_drained_by_the_coordinator_goes_on_when_that_is_over)
{
    struct stage stage = stage_set(2);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "block"});
    CHECK(hands_wait_running(stage.hands, 1));
    SCRIPT_SET(stage.script, drain, true);
    CHECK(script_wait(stage.script, has_open_poll, 0));
    CHECK_INT(atomic_load(&stage.hands->running), 1);
    struct worker_stats stats;
    worker_stats(stage.worker, &stats);
    CHECK(stats.is_draining);
    SCRIPT_SET(stage.script, drain, false);
    CHECK(script_wait(stage.script, has_open_poll, 1));
    script_add(stage.script, &(struct script_task){.task = 2, .executor = "noop"});
    CHECK(script_wait(stage.script, has_final, 1));
    stage_clear(&stage);
}
