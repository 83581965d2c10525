/* Finding the leader, losing it, being forgotten, being replaced. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "integration/worker/hands.h"

#define SUCCEEDED CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED

TEST(a_worker_follows_the_address_that_a_standby_names)
{
    struct stage stage = stage_set(0);
    struct script *standby = script_start(NULL);
    SCRIPT_SET(standby, mood, MOOD_FOLLOW);
    script_name_leader(standby, stage.script->address);
    stage_start(&stage, (struct worker_options){.join = (const char *[]){standby->address}, .n_join = 1});
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "noop"});
    CHECK(script_wait(stage.script, has_final, 1));
    CHECK_UINT(script_facts(standby).n_registered, 0);
    struct worker_stats stats;
    worker_stats(stage.worker, &stats);
    CHECK_STR(stats.leader, stage.script->address);
    stage_clear(&stage);
    script_stop(standby);
}

TEST(a_worker_follows_the_leader_that_a_heartbeat_names)
{
    struct stage stage = stage_set(2);
    struct script *next = script_start(NULL);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "block"});
    CHECK(hands_wait_running(stage.hands, 1));
    pthread_mutex_lock(&stage.script->mutex);
    snprintf(stage.script->leader, sizeof stage.script->leader, "%s", next->address);
    stage.script->beat_reason = "not the leader any more";
    pthread_mutex_unlock(&stage.script->mutex);
    CHECK(script_wait_beat(next, names_task, 1));
    atomic_store(&stage.hands->gate, 1);
    CHECK(script_wait(next, has_final, 1));
    CHECK(!script_wait_ms(stage.script, has_final, 1, 0));
    stage_clear(&stage);
    script_stop(next);
}

TEST(a_worker_tries_the_other_coordinators_when_one_does_not_answer)
{
    struct stage stage = stage_set(0);
    struct script *other = script_start(NULL);
    struct script *gone = script_start(NULL);
    char address[256];
    snprintf(address, sizeof address, "%s", gone->address);
    script_stop(gone);
    stage_start(&stage, (struct worker_options){
                            .join = (const char *[]){address, other->address, stage.script->address}, .n_join = 3});
    CHECK(script_wait(other, has_beats, 2));
    script_set_mood(other, MOOD_SILENT); /* it hangs: nothing is refused, nothing answered */
    CHECK(script_wait(stage.script, has_beats, 2));
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "noop"});
    CHECK(script_wait(stage.script, has_final, 1));
    stage_clear(&stage);
    script_stop(other);
}

TEST(a_worker_whose_coordinator_is_silent_is_not_registered_any_more_after_a_lease)
{
    struct stage stage = stage_set(0);
    struct worker_stats stats;
    SCRIPT_SET(stage.script, lease_ms, 3000);
    stage_start(&stage, (struct worker_options){.slots = 2});
    CHECK(script_wait(stage.script, has_beats, 3));
    do {
        worker_stats(stage.worker, &stats);
    } while (!stats.is_accepted);
    CHECK(stats.is_registered);
    CHECK_STR(stats.leader, stage.script->address);
    script_set_mood(stage.script, MOOD_SILENT);
    int64_t since_ms = clock_mono_ms();
    do {
        worker_stats(stage.worker, &stats);
    } while (stats.is_registered && clock_mono_ms() - since_ms < SCRIPT_PATIENCE_MS);
    CHECK(!stats.is_registered);
    CHECK(!stats.is_accepted);
    CHECK(clock_mono_ms() - since_ms >= 1000); /* the lease is 3 s, and the last heartbeat is less old than that */
    script_set_mood(stage.script, MOOD_LEAD);
    CHECK(script_wait(stage.script, has_beats, script_beats(stage.script) + 2));
    since_ms = clock_mono_ms();
    do {
        worker_stats(stage.worker, &stats);
    } while (!(stats.is_registered && stats.is_accepted) && clock_mono_ms() - since_ms < SCRIPT_PATIENCE_MS);
    CHECK(stats.is_registered && stats.is_accepted);
    stage_clear(&stage);
}

TEST(a_worker_tells_the_address_that_it_is_to_be_found_at)
{
    struct stage stage = stage_set(0);
    stage_start(&stage,
                (struct worker_options){.slots = 1, .listen = "127.0.0.1:0", .advertise = "node1.example.org:0"});
    CHECK(script_wait(stage.script, has_registered, 1));
    const char *told = worker_address(stage.worker);
    CHECK(strncmp(told, "node1.example.org:", 18) == 0);
    CHECK(strcmp(told + 18, "0") != 0); /* the real port */
    CHECK_STR(script_facts(stage.script).worker_address, told);
    worker_close(stage.worker);
    stage_start(&stage,
                (struct worker_options){.slots = 1, .listen = "127.0.0.1:0", .advertise = "node1.example.org:81"});
    CHECK_STR(worker_address(stage.worker), "node1.example.org:81");
    stage_clear(&stage);
}

TEST(two_coordinators_that_name_each_other_are_not_asked_without_pause)
{
    struct stage stage = stage_set(0);
    struct script *other = script_start(NULL);
    SCRIPT_SET(stage.script, mood, MOOD_FOLLOW);
    SCRIPT_SET(other, mood, MOOD_FOLLOW);
    script_name_leader(stage.script, other->address);
    script_name_leader(other, stage.script->address);
    stage_start(&stage, (struct worker_options){0});
    struct worker_stats stats;
    int64_t until_ms = clock_mono_ms() + 1000;
    do {
        worker_stats(stage.worker, &stats);
        CHECK(!stats.is_registered);
    } while (clock_mono_ms() < until_ms);
    CHECK(stats.missed_beats_total < 50);
    script_set_mood(other, MOOD_LEAD);
    CHECK(script_wait(other, has_beats, 1));
    stage_clear(&stage);
    script_stop(other);
}

TEST(a_coordinator_that_restarts_finds_the_attempt_still_running_and_gets_its_report)
{
    struct stage stage = stage_set(2);
    char address[256];
    snprintf(address, sizeof address, "%s", stage.script->address);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "block"});
    CHECK(hands_wait_running(stage.hands, 1));
    script_stop(stage.script);
    stage.script = script_start(address);
    CHECK(script_wait_beat(stage.script, names_task, 1));
    CHECK_UINT(script_facts(stage.script).n_registered, 0);
    atomic_store(&stage.hands->gate, 1);
    CHECK(script_wait(stage.script, has_final, 1));
    CHECK_UINT(script_count_reports(stage.script, 1, SUCCEEDED), 1);
    CHECK(script_wait(stage.script, has_open_poll, 1));
    stage_clear(&stage);
}

TEST(an_attempt_that_finishes_while_no_coordinator_is_there_is_named_and_reported_to_the_next)
{
    struct stage stage = stage_set(2);
    char address[256];
    snprintf(address, sizeof address, "%s", stage.script->address);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "block"});
    CHECK(hands_wait_running(stage.hands, 1));
    script_stop(stage.script);
    atomic_store(&stage.hands->gate, 1);
    CHECK(hands_wait_running(stage.hands, 0));
    stage.script = script_start_holding(address);
    CHECK(script_wait(stage.script, names_task, 1));
    CHECK(script_wait(stage.script, has_final, 1));
    script_release_reports(stage.script);
    CHECK(script_wait_beat(stage.script, names_nothing, 0));
    stage_clear(&stage);
}

TEST(a_report_on_its_way_to_a_leader_that_hangs_goes_to_the_next_one)
{
    struct stage stage = stage_set(0);
    struct script *next = script_start(NULL);
    stage_start(&stage,
                (struct worker_options){.join = (const char *[]){stage.script->address, next->address}, .n_join = 2});
    SCRIPT_SET(stage.script, hold_reports, true);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "noop"});
    CHECK(script_wait(stage.script, has_final, 1));
    script_set_mood(stage.script, MOOD_SILENT);
    CHECK(script_wait(next, has_final, 1));
    CHECK(script_wait_beat(next, names_nothing, 0));
    CHECK_UINT(atomic_load(&stage.hands->runs[1]), 1);
    stage_clear(&stage);
    script_stop(next);
}

TEST(a_worker_that_is_not_known_registers_again_as_the_same_process)
{
    struct stage stage = stage_set(2);
    char incarnation[64];
    snprintf(incarnation, sizeof incarnation, "%s", script_facts(stage.script).incarnation);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "block"});
    CHECK(hands_wait_running(stage.hands, 1));
    script_set_mood(stage.script, MOOD_FORGETFUL);
    CHECK(script_wait(stage.script, has_registered, 2));
    CHECK_STR(script_facts(stage.script).incarnation, incarnation);
    CHECK(script_wait_beat(stage.script, names_task, 1));
    CHECK(hands_wait_running(stage.hands, 1));
    stage_clear(&stage);
}

TEST(a_poll_that_is_told_so_makes_the_worker_register_again_at_once)
{
    struct stage stage = stage_set(0);
    SCRIPT_SET(stage.script, beat_ms, 30000); /* so that no heartbeat can be the one that is told */
    SCRIPT_SET(stage.script, lease_ms, 120000);
    stage_start(&stage, (struct worker_options){.slots = 1});
    CHECK(script_wait(stage.script, has_beats, 1));
    CHECK(script_wait(stage.script, has_open_poll, 1));
    script_set_mood(stage.script, MOOD_FORGETFUL);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "noop"}); /* not answered in this mood */
    pthread_mutex_lock(&stage.script->mutex);
    struct rpc_call *poll = stage.script->poll;
    stage.script->poll = NULL;
    pthread_mutex_unlock(&stage.script->mutex);
    struct error e = {0};
    error_set(&e, ERR_NOT_FOUND, "unknown worker: register first");
    rpc_call_fail(poll, &e, NULL);
    CHECK(script_wait_ms(stage.script, has_registered, 2, 20000));
    CHECK(script_wait(stage.script, has_final, 1));
    stage_clear(&stage);
}

TEST(a_superseded_worker_stops_everything_and_ends_with_1)
{
    struct stage stage = stage_set(2);
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "block"});
    CHECK(hands_wait_running(stage.hands, 1));
    SCRIPT_SET(stage.script, beat_reason, "superseded by a newer process with the same worker_id");
    CHECK_INT(worker_wait(stage.worker), 1);
    CHECK(hands_wait_running(stage.hands, 0));
    CHECK_INT(atomic_load(&stage.hands->reasons[1]), STOP_LEASE_LOST);
    CHECK_UINT(script_facts(stage.script).n_deregistered, 0);
    CHECK_UINT(script_facts(stage.script).n_final, 0);
    stage_clear(&stage);
}

TEST(a_worker_that_learns_from_a_poll_that_it_is_superseded_ends_too)
{
    struct stage stage = stage_set(2);
    SCRIPT_SET(stage.script, poll_reason, "superseded by a newer process with the same worker_id");
    script_add(stage.script, &(struct script_task){.task = 1, .executor = "noop"});
    CHECK_INT(worker_wait(stage.worker), 1);
    stage_clear(&stage);
}

TEST(a_worker_whose_credentials_are_refused_ends_with_4)
{
    struct stage stage = stage_set(0);
    SCRIPT_SET(stage.script, mood, MOOD_DENY);
    stage_start(&stage, (struct worker_options){.token = "wrong"});
    CHECK_INT(worker_wait(stage.worker), 4);
    stage_clear(&stage);
}

TEST(each_process_has_an_incarnation_of_its_own)
{
    struct stage stage = stage_set(1);
    char incarnation[64];
    snprintf(incarnation, sizeof incarnation, "%s", script_facts(stage.script).incarnation);
    worker_close(stage.worker);
    stage_start(&stage, (struct worker_options){.slots = 1});
    CHECK(script_wait(stage.script, has_registered, 2));
    CHECK(strcmp(script_facts(stage.script).incarnation, incarnation) != 0);
    stage_clear(&stage);
}
