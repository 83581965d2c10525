/* Stop orders, leases of exclusive attempts, and life without a coordinator. */
#include "base/clock.h"
#include "integration/worker/hands.h"

#define QUEUED CAPSTAN__V1__TASK_STATE__TASK_STATE_QUEUED
#define RUNNING CAPSTAN__V1__TASK_STATE__TASK_STATE_RUNNING
#define SUCCEEDED CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED

static bool tells_running(const struct script *script, int64_t task)
{
    for (uint32_t i = 0; i < script->n_reports; i++) {
        if (script->reports[i].task == (uint32_t)task && script->reports[i].state == RUNNING) {
            return true;
        }
    }
    return false;
}

TEST(a_stop_order_ends_exactly_the_attempt_that_it_names)
{
    struct stage stage = stage_set(4);
    script_add_many(stage.script, "block", 1, 3);
    CHECK(hands_wait_running(stage.hands, 3));
    script_order_stop(stage.script, 2, 1, false, false);
    CHECK(hands_wait_reason(stage.hands, 2, STOP_CANCELED));
    CHECK(script_wait_beat(stage.script, names_exactly, 2));
    CHECK(!script_wait_ms(stage.script, names_task, 2, 0));
    script_order_stop(stage.script, 1, 1, false, true);  /* somebody else's token */
    script_order_stop(stage.script, 3, 2, false, false); /* another attempt */
    CHECK(script_wait_beat(stage.script, names_exactly, 2));
    atomic_store(&stage.hands->gate, 1);
    CHECK(script_wait(stage.script, has_final, 2));
    CHECK(script_wait_beat(stage.script, names_nothing, 0));
    CHECK_UINT(script_count_reports(stage.script, 1, SUCCEEDED), 1);
    CHECK_UINT(script_count_reports(stage.script, 3, SUCCEEDED), 1);
    CHECK_INT(script_last_report(stage.script, 2).state, 0); /* nothing was said about it */
    stage_clear(&stage);
}

TEST(a_stopped_attempt_is_named_until_its_executor_has_come_back)
{
    struct stage stage = stage_set(2);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "stubborn"});
    CHECK(hands_wait_running(stage.hands, 1));
    script_order_stop(stage.script, 1, 1, false, false);
    CHECK(script_wait_beat(stage.script, names_task, 1));
    CHECK(script_wait_beat(stage.script, names_task, 1));
    atomic_store(&stage.hands->gate, 1);
    CHECK(script_wait_beat(stage.script, names_nothing, 0));
    CHECK_INT(script_last_report(stage.script, 1).state, 0);
    stage_clear(&stage);
}

TEST(an_outcome_that_waits_to_be_reported_is_dropped_by_a_stop_order)
{
    struct stage stage = stage_set(2);
    SCRIPT_SET(stage.script, hold_reports, true);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "noop"});
    CHECK(script_wait(stage.script, has_final, 1)); /* on its way */
    script_add(stage.script, &(struct script_task){.task = 2, .executor = "noop"});
    CHECK(script_wait_beat(stage.script, names_exactly, 2)); /* waits behind it */
    script_order_stop(stage.script, 2, 1, false, false);
    CHECK(script_wait_beat(stage.script, names_exactly, 1));
    script_release_reports(stage.script);
    CHECK(script_wait_beat(stage.script, names_nothing, 0));
    CHECK_INT(script_last_report(stage.script, 2).state, 0);
    stage_clear(&stage);
}

TEST(an_exclusive_attempt_is_stopped_at_its_lease_when_nothing_renews_it_and_others_go_on)
{
    struct stage stage = stage_set(4);
    script_add(stage.script,
               &(struct script_task){.task = 1, .executor = "block", .exclusive = true, .lease_ms = 3000});
    script_add(stage.script, &(struct script_task){.task = 2, .executor = "block"});
    CHECK(hands_wait_running(stage.hands, 2));
    CHECK(script_wait_beat(stage.script, names_exactly, 2));
    int64_t since_ms = clock_mono_ms();
    script_set_mood(stage.script, MOOD_SILENT);
    CHECK(hands_wait_reason(stage.hands, 1, STOP_LEASE_LOST));
    int64_t took_ms = clock_mono_ms() - since_ms;
    CHECK(took_ms <= 6000); /* the lease is 3 s and began before the silence; an orphan would live for a minute */
    CHECK(took_ms >= 1000);
    CHECK_INT(atomic_load(&stage.hands->running), 1);
    stage_clear(&stage);
}

TEST(an_exclusive_attempt_that_lost_its_lease_is_given_back_when_the_coordinator_is_back)
{
    struct stage stage = stage_set(4);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "block", .exclusive = true});
    CHECK(hands_wait_running(stage.hands, 1));
    script_set_mood(stage.script, MOOD_SILENT);
    CHECK(hands_wait_reason(stage.hands, 1, STOP_LEASE_LOST));
    CHECK(hands_wait_running(stage.hands, 0));
    script_set_mood(stage.script, MOOD_LEAD);
    CHECK(script_wait(stage.script, has_final, 1));
    CHECK_UINT(script_count_reports(stage.script, 1, QUEUED), 1);
    CHECK(script_wait_beat(stage.script, names_nothing, 0));
    struct worker_stats stats;
    worker_stats(stage.worker, &stats);
    CHECK_UINT(stats.released_total, 1);
    CHECK_UINT(stats.stopped_total, 0);
    stage_clear(&stage);
}

TEST(an_exclusive_attempt_whose_executor_comes_back_after_the_lease_is_given_back_whatever_it_returns)
{
    struct stage stage = stage_set(1);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "stubborn", .exclusive = true});
    CHECK(hands_wait_running(stage.hands, 1));
    script_set_mood(stage.script, MOOD_SILENT);
    struct worker_stats stats;
    int64_t until_ms = clock_mono_ms() + 700; /* longer than its lease */
    do {
        worker_stats(stage.worker, &stats);
    } while (clock_mono_ms() < until_ms);
    CHECK_UINT(stats.busy, 1); /* its executor does not come back, so nothing is said yet */
    script_set_mood(stage.script, MOOD_LEAD);
    CHECK(script_wait_beat(stage.script, names_task, 1));
    CHECK_INT(script_last_report(stage.script, 1).state, 0);
    atomic_store(&stage.hands->gate, 1);
    CHECK(script_wait(stage.script, has_final, 1));
    CHECK_UINT(script_count_reports(stage.script, 1, QUEUED), 1);
    CHECK_UINT(script_count_reports(stage.script, 1, SUCCEEDED), 0); /* it had no lease any more */
    stage_clear(&stage);
}

TEST(that_an_attempt_runs_is_not_told_when_it_has_lost_its_lease_before_anybody_could_hear_it)
{
    struct stage stage = stage_set(4);
    script_add(stage.script,
               &(struct script_task){.task = 1, .executor = "block", .exclusive = true, .lease_ms = 2500});
    script_add(stage.script, &(struct script_task){.task = 2, .executor = "block"});
    CHECK(hands_wait_running(stage.hands, 2));
    script_set_mood(stage.script, MOOD_SILENT); /* before they are old enough to be told */
    CHECK(hands_wait_reason(stage.hands, 1, STOP_LEASE_LOST));
    CHECK(hands_wait_running(stage.hands, 1));
    script_set_mood(stage.script, MOOD_LEAD);
    CHECK(script_wait(stage.script, has_final, 1));
    CHECK_UINT(script_count_reports(stage.script, 1, RUNNING), 0);
    CHECK_UINT(script_count_reports(stage.script, 1, QUEUED), 1);
    CHECK(script_wait(stage.script, tells_running, 2)); /* the other still runs, and that is said */
    stage_clear(&stage);
}

TEST(an_exclusive_attempt_lives_for_many_leases_as_long_as_heartbeats_are_accepted)
{
    struct stage stage = stage_set(4);
    script_add(stage.script,
               &(struct script_task){.task = 1, .executor = "block", .exclusive = true, .lease_ms = 2000});
    CHECK(hands_wait_running(stage.hands, 1));
    int64_t until_ms = clock_mono_ms() + 6000; /* three leases */
    while (clock_mono_ms() < until_ms) {
        CHECK(script_wait(stage.script, has_beats, script_beats(stage.script) + 1));
    }
    CHECK_INT(atomic_load(&stage.hands->running), 1);
    atomic_store(&stage.hands->gate, 1);
    CHECK(script_wait(stage.script, has_final, 1));
    CHECK_INT(script_last_report(stage.script, 1).state, SUCCEEDED);
    stage_clear(&stage);
}

TEST(a_heartbeat_that_is_not_accepted_renews_nothing)
{
    struct stage stage = stage_set(4);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "block", .exclusive = true});
    CHECK(hands_wait_running(stage.hands, 1));
    SCRIPT_SET(stage.script, beat_reason, "not the leader any more");
    CHECK(hands_wait_reason(stage.hands, 1, STOP_LEASE_LOST));
    stage_clear(&stage);
}

TEST(the_lease_of_a_task_that_a_poll_waited_for_is_as_young_as_the_answer)
{
    struct stage stage = stage_set(4);
    uint32_t beats = script_beats(stage.script);
    CHECK(script_wait(stage.script, has_beats, beats + 20)); /* the poll is older than a lease now */
    script_add(stage.script,
               &(struct script_task){.task = 1, .executor = "block", .exclusive = true, .lease_ms = 1500});
    CHECK(hands_wait_running(stage.hands, 1));
    beats = script_beats(stage.script);
    CHECK(script_wait(stage.script, has_beats, beats + 3));
    CHECK_INT(atomic_load(&stage.hands->running), 1);
    stage_clear(&stage);
}

TEST(without_any_coordinator_everything_is_stopped_when_the_time_is_up)
{
    struct stage stage = stage_set(0);
    SCRIPT_SET(stage.script, orphan_ms, 700);
    stage_start(&stage, (struct worker_options){.slots = 2});
    script_add_many(stage.script, "block", 1, 2);
    CHECK(hands_wait_running(stage.hands, 2));
    int64_t since_ms = clock_mono_ms();
    script_set_mood(stage.script, MOOD_SILENT);
    CHECK(hands_wait_reason(stage.hands, 1, STOP_LEASE_LOST));
    CHECK(hands_wait_reason(stage.hands, 2, STOP_LEASE_LOST));
    CHECK(clock_mono_ms() - since_ms >= 700);
    SCRIPT_SET(stage.script, orphan_ms, 60000); /* what comes now has time */
    script_set_mood(stage.script, MOOD_LEAD);
    script_add(stage.script, &(struct script_task){.task = 3, .executor = "noop"});
    CHECK(script_wait(stage.script, has_final, 1)); /* and it is as good as new */
    CHECK_UINT(script_count_reports(stage.script, 3, SUCCEEDED), 1);
    stage_clear(&stage);
}
