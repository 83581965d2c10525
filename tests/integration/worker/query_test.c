/* What queries add to an attempt: fragments, sources, outputs, plans, lost inputs, progress. */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "integration/worker/acts.h"
#include "worker/fragment.h"

#define SUCCEEDED CAPSTAN__V1__TASK_STATE__TASK_STATE_SUCCEEDED
#define FAILED CAPSTAN__V1__TASK_STATE__TASK_STATE_FAILED
#define QUEUED CAPSTAN__V1__TASK_STATE__TASK_STATE_QUEUED

struct play {
    struct stage stage;
    struct acts acts;
    struct arena arena;
};

static struct play *play_open(uint32_t slots)
{
    struct play *play = mem_calloc(1, sizeof *play);
    play->stage = stage_set(0);
    acts_add(&play->acts, play->stage.hands);
    stage_start(&play->stage, (struct worker_options){.slots = slots});
    CHECK(script_wait(play->stage.script, has_open_poll, slots));
    return play;
}

static void play_close(struct play *play)
{
    stage_clear(&play->stage);
    arena_deinit(&play->arena);
    mem_free(play);
}

static struct pb_task_report *play_report(struct play *play)
{
    return script_full_report(play->stage.script, &play->arena);
}

static void check_bytes(ProtobufCBinaryData bytes, const char *expected)
{
    CHECK_UINT(bytes.len, strlen(expected));
    CHECK_MEM(bytes.data, expected, bytes.len);
}

static uint32_t fragments_sent(struct script *s)
{
    pthread_mutex_lock(&s->mutex);
    uint32_t n = s->n_fragments_sent;
    pthread_mutex_unlock(&s->mutex);
    return n;
}

/* ---- fragments ---- */

TEST(a_fragment_is_sent_once_and_every_task_gets_it)
{
    struct play *play = play_open(4);
    struct script *s = play->stage.script;
    for (uint32_t task = 1; task <= 4; task++) {
        script_add(s, &(struct script_task){.task = task, .executor = "echo", .fragment = "{\"a\":1}"});
        CHECK(script_wait(s, has_final, task));
        check_bytes(play_report(play)->result_json, "{\"a\":1}");
        CHECK(script_wait(s, has_known, 1));
    }
    CHECK_UINT(fragments_sent(s), 1);
    script_add(s, &(struct script_task){.task = 5, .executor = "echo", .fragment = "{\"b\":2}"});
    CHECK(script_wait(s, has_final, 5));
    check_bytes(play_report(play)->result_json, "{\"b\":2}");
    CHECK_UINT(fragments_sent(s), 2);
    CHECK(script_wait(s, has_known, 2));
    play_close(play);
}

TEST(tasks_behind_the_one_that_brings_the_fragment_have_it)
{
    struct play *play = play_open(4);
    struct script *s = play->stage.script;
    struct script_task tasks[4];
    for (uint32_t i = 0; i < 4; i++) {
        tasks[i] = (struct script_task){.task = i + 1, .executor = "echo", .fragment = "{\"a\":1}"};
    }
    script_add_all(s, tasks, 4);
    CHECK(script_wait(s, has_final, 4));
    for (uint32_t task = 1; task <= 4; task++) {
        CHECK_UINT(script_count_reports(s, task, SUCCEEDED), 1);
    }
    CHECK_UINT(fragments_sent(s), 1);
    play_close(play);
}

TEST(a_fragment_that_is_not_here_sends_the_attempt_back_untouched)
{
    struct play *play = play_open(2);
    struct script *s = play->stage.script;
    script_add(s, &(struct script_task){.task = 1, .executor = "echo", .fragment = "{\"a\":1}", .is_bare = true});
    CHECK(script_wait(s, has_final, 1));
    CHECK_INT(script_last_report(s, 1).state, QUEUED);
    CHECK(script_wait(s, has_open_poll, 2));
    CHECK(script_wait(s, has_known, 0));
    script_add(s, &(struct script_task){.task = 1, .attempt = 2, .executor = "echo", .fragment = "{\"a\":1}"});
    CHECK(script_wait(s, has_final, 2));
    CHECK_INT(script_last_report(s, 1).state, SUCCEEDED);
    CHECK_UINT(script_last_report(s, 1).attempt, 2);
    struct worker_stats stats;
    worker_stats(play->stage.worker, &stats);
    CHECK_UINT(stats.released_total, 1);
    CHECK_UINT(stats.succeeded_total, 1);
    play_close(play);
}

TEST(a_fragment_that_is_not_what_its_digest_says_fails_the_attempt_and_is_not_kept)
{
    struct play *play = play_open(2);
    struct script *s = play->stage.script;
    script_add(s, &(struct script_task){.task = 1, .executor = "echo", .fragment = "{\"a\":1}", .is_damaged = true});
    CHECK(script_wait(s, has_final, 1));
    CHECK_INT(script_last_report(s, 1).state, FAILED);
    CHECK(!script_last_report(s, 1).not_retryable);
    CHECK_STR(script_last_report(s, 1).message, "the fragment is not what its digest says: it was damaged on its way");
    CHECK(script_wait_beat(s, names_nothing, 0));
    CHECK(script_wait(s, has_known, 0));
    play_close(play);
}

static void run_fragment(struct play *play, uint32_t task, bool is_bare, int state)
{
    struct script *s = play->stage.script;
    struct script_task given = {.task = task, .executor = "echo", .is_bare = is_bare};
    given.fragment = arena_format(&play->arena, "{\"fragment\":%u}", task % 1000);
    uint64_t n_final = script_facts(s).n_final;
    script_add(s, &given);
    CHECK(script_wait(s, has_final, (int64_t)n_final + 1));
    CHECK_INT(script_last_report(s, task).state, state);
}

TEST(of_many_fragments_those_used_last_are_kept_and_named)
{
    struct play *play = play_open(1);
    struct script *s = play->stage.script;
    for (uint32_t i = 1; i <= FRAGMENTS_MAX; i++) {
        run_fragment(play, i, false, SUCCEEDED);
    }
    run_fragment(play, 1001, false, SUCCEEDED); /* the first is used again, so the second is the oldest now */
    CHECK_UINT(fragments_sent(s), FRAGMENTS_MAX);
    run_fragment(play, FRAGMENTS_MAX + 1, false, SUCCEEDED);
    CHECK_UINT(fragments_sent(s), FRAGMENTS_MAX + 1);
    CHECK(script_wait(s, has_known, FRAGMENTS_MAX));
    run_fragment(play, 2001, true, SUCCEEDED);
    run_fragment(play, 2002, true, QUEUED);
    run_fragment(play, 2003, true, SUCCEEDED);
    play_close(play);
}

TEST(a_fragment_that_is_in_use_is_not_dropped)
{
    struct fragments fragments;
    uint8_t digest[SHA256_BYTES] = {0};
    char *big = mem_calloc(1, FRAGMENT_BYTES_MAX / 2);
    fragments_init(&fragments);
    struct fragment *used = fragments_put(&fragments, digest, "used", 4);
    for (uint8_t i = 1; i <= 3; i++) {
        digest[0] = i;
        fragment_give_back(fragments_put(&fragments, digest, big, FRAGMENT_BYTES_MAX / 2));
        CHECK(fragments.bytes <= FRAGMENT_BYTES_MAX);
    }
    digest[0] = 0;
    struct fragment *again = fragments_take(&fragments, digest);
    CHECK(again == used);
    CHECK_STR(used->text, "used");
    digest[0] = 1;
    CHECK(fragments_take(&fragments, digest) == NULL);
    digest[0] = 3;
    struct fragment *newest = fragments_take(&fragments, digest);
    CHECK(newest != NULL);
    fragment_give_back(newest);
    fragment_give_back(again);
    fragment_give_back(used);
    fragments_deinit(&fragments);
    mem_free(big);
}

/* ---- sources ---- */

TEST(an_executor_is_told_what_to_read_and_where)
{
    struct play *play = play_open(1);
    static const struct exec_partition partitions[] = {{3, 100, 10, 1, UINT64_MAX}, {4, 50, 5, 2, 7}};
    const struct exec_source sources[] = {{1, 0, 2, "w1", "10.0.0.1:7", partitions, 2},
                                          {1, 7, 1, "w2", "10.0.0.2:7", partitions, 1},
                                          {2, 0, 1, "w1", "10.0.0.1:7", NULL, 0}};
    script_add(play->stage.script,
               &(struct script_task){.task = 1, .executor = "sources", .sources = sources, .n_sources = 3});
    CHECK(script_wait(play->stage.script, has_final, 1));
    check_bytes(play_report(play)->result_json,
                "\"1.0.2 w1 10.0.0.1:7 [3 100 10 1 ffffffffffffffff] [4 50 5 2 7]; "
                "1.7.1 w2 10.0.0.2:7 [3 100 10 1 ffffffffffffffff]; 2.0.1 w1 10.0.0.1:7\"");
    play_close(play);
}

/* ---- reports ---- */

TEST(a_map_output_is_reported_with_its_success)
{
    struct play *play = play_open(1);
    script_add(play->stage.script, &(struct script_task){.task = 1, .executor = "map"});
    CHECK(script_wait(play->stage.script, has_final, 1));
    const struct pb_task_report *report = play_report(play);
    CHECK_INT(report->state, SUCCEEDED);
    CHECK_UINT(report->n_map_output, 2);
    CHECK_UINT(report->map_output[0]->checksum, UINT64_MAX);
    CHECK_UINT(report->map_output[1]->reduce_partition, 1);
    CHECK_UINT(report->map_output[1]->bytes, 200);
    CHECK_UINT(report->map_output[1]->rows, 20);
    CHECK_UINT(report->map_output[1]->batches, 2);
    CHECK_UINT(report->rows, 30);
    CHECK_UINT(report->bytes, 300);
    CHECK(report->query_results == NULL);
    play_close(play);
}

TEST(rows_for_the_client_are_reported_with_their_bytes)
{
    struct play *play = play_open(1);
    script_add(play->stage.script, &(struct script_task){.task = 1, .executor = "rows"});
    CHECK(script_wait(play->stage.script, has_final, 1));
    const struct pb_task_report *report = play_report(play);
    CHECK_INT(report->state, SUCCEEDED);
    CHECK(report->query_results != NULL);
    check_bytes(report->query_results->ipc_payload, "rows");
    CHECK_UINT(report->query_results->rows, 5);
    CHECK_UINT(report->query_results->bytes, 4);
    CHECK_UINT(report->n_map_output, 0);
    play_close(play);
}

TEST(a_plan_is_reported_and_so_are_rows_that_stay_here)
{
    struct play *play = play_open(1);
    script_add(play->stage.script, &(struct script_task){.task = 1, .executor = "plan"});
    CHECK(script_wait(play->stage.script, has_final, 1));
    const struct pb_task_report *report = play_report(play);
    check_bytes(report->plan_json, "{\"stages\":[]}");
    CHECK(report->query_results != NULL);
    CHECK_UINT(report->query_results->ipc_payload.len, 0);
    CHECK_UINT(report->query_results->bytes, 3000000);
    play_close(play);
}

TEST(map_outputs_that_could_not_be_read_are_named)
{
    struct play *play = play_open(1);
    script_add(play->stage.script, &(struct script_task){.task = 1, .executor = "lost"});
    CHECK(script_wait(play->stage.script, has_final, 1));
    const struct pb_task_report *report = play_report(play);
    CHECK_INT(report->state, FAILED);
    CHECK_STR(report->message, "fetch_failed: two of them");
    CHECK_UINT(report->n_fetch_failed, 2);
    CHECK_STR(report->fetch_failed[1]->query_id, report->ref->query_id);
    CHECK_UINT(report->fetch_failed[1]->stage_id, 4);
    CHECK_UINT(report->fetch_failed[1]->task_id, 5);
    CHECK_UINT(report->fetch_failed[1]->attempt, 6);
    play_close(play);
}

TEST(what_a_run_leaves_when_its_time_is_over_does_not_count)
{
    struct play *play = play_open(1);
    script_add(play->stage.script, &(struct script_task){.task = 1, .executor = "late", .timeout_ms = 30});
    CHECK(script_wait(play->stage.script, has_final, 1));
    CHECK_STR(script_last_report(play->stage.script, 1).message, "timed out after 30 ms");
    CHECK_UINT(play->stage.script->full.n, 0); /* neither an output nor a plan */
    play_close(play);
}

/* ---- progress ---- */

static struct script_progress progress_of(struct script *s, uint32_t task)
{
    struct script_progress found = {0};
    pthread_mutex_lock(&s->mutex);
    for (uint32_t i = 0; i < s->n_progress; i++) {
        found = s->progress[i].task == task ? s->progress[i] : found;
    }
    pthread_mutex_unlock(&s->mutex);
    return found;
}

TEST(heartbeats_say_how_far_attempts_are)
{
    struct play *play = play_open(3);
    struct script *s = play->stage.script;
    script_add(s, &(struct script_task){.task = 1, .executor = "progress"});
    script_add(s, &(struct script_task){.task = 2, .executor = "block"});
    CHECK(hands_wait_running(play->stage.hands, 1));
    CHECK(script_wait(s, has_progress, 1));
    CHECK(script_wait_beat(s, names_exactly, 2));
    CHECK_UINT(s->n_progress, 1);
    CHECK(progress_of(s, 1).fraction == 0.25);
    CHECK_UINT(progress_of(s, 1).rows, 10);
    CHECK_UINT(progress_of(s, 1).bytes, 100);
    play_close(play);
}

TEST(nonsense_about_progress_does_not_spoil_a_heartbeat)
{
    struct play *play = play_open(1);
    struct script *s = play->stage.script;
    script_add(s, &(struct script_task){.task = 1, .executor = "progress", .inputs = "\"mad\""});
    CHECK(script_wait(s, has_progress, 1));
    CHECK(script_wait_beat(s, names_exactly, 1));
    CHECK(progress_of(s, 1).fraction == 0);
    CHECK_UINT(progress_of(s, 1).rows, LIMIT_QUANTITY);
    CHECK_UINT(progress_of(s, 1).bytes, LIMIT_QUANTITY);
    play_close(play);
}
