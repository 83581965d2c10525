/* What a worker keeps for others: serving it, and when it goes. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "exchange/fetch.h"
#include "exchange/folder.h"
#include "exchange/schema.h"
#include "exchange/serve.h"
#include "integration/worker/acts.h"
#include "integration/worker/hands.h"
#include "worker/worker_internal.h"

#define ROWS 1000
#define PARTITIONS 3

struct scene {
    struct stage stage;
    struct folder folder;
};

static struct scene scene_set(uint64_t memory_bytes)
{
    struct scene scene = {.stage = stage_set(0)};
    folder_open(&scene.folder, memory_bytes);
    return scene;
}

static void scene_start(struct scene *scene)
{
    stage_start(&scene->stage, (struct worker_options){.listen = "127.0.0.1:0", .store = scene->folder.store});
    CHECK(script_wait(scene->stage.script, has_beats, 1));
}

static void scene_clear(struct scene *scene)
{
    stage_clear(&scene->stage);
    folder_close(&scene->folder);
}

/* Rows of one partition, as another worker gets them. */
static enum err fetch_rows(const struct scene *scene, const struct exchange_key *key, uint32_t partition,
                           const struct ipc_tally *tally, int64_t *out_rows)
{
    struct exchange_channels *channels = exchange_channels_open(&(struct rpc_channel_options){0});
    struct exchange_source source = {
        .key = *key, .partition = partition, .address = worker_address(scene->stage.worker), .tally = *tally};
    struct exchange_fetch_options options = {.channels = channels};
    struct exchange_fetch *fetch = NULL;
    struct ArrowArray array = {0};
    CHECK_ERR(exchange_fetch_open(&source, 1, &options, &fetch, NULL), ERR_OK);
    enum err err = ERR_OK;
    bool has_more = true;
    *out_rows = 0;
    while (has_more && (err = exchange_fetch_next(fetch, &array, NULL)) == ERR_OK) {
        has_more = array.release != NULL;
        *out_rows += has_more ? array.length : 0;
        if (has_more) {
            array.release(&array);
        }
    }
    exchange_fetch_close(fetch);
    CHECK(err != ERR_OK || exchange_channels_bytes(channels) == tally->bytes);
    exchange_channels_close(channels);
    return err;
}

static bool has_sent_bytes(struct worker *worker)
{
    struct worker_stats stats;
    worker_stats(worker, &stats);
    return stats.shuffle_sent_bytes > 0;
}

static void check_served(uint64_t memory_bytes)
{
    struct scene scene = scene_set(memory_bytes);
    struct exchange_key key = folder_key("job", 1, 1);
    struct exchange_key other = folder_key("job", 1, 2);
    struct ipc_tally tallies[PARTITIONS];
    int64_t rows = 0, all = 0;
    scene_start(&scene);
    folder_write(&scene.folder, &key, 0, ROWS, PARTITIONS, tallies);
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        CHECK_ERR(fetch_rows(&scene, &key, i, &tallies[i], &rows), ERR_OK);
        CHECK_INT(rows, tallies[i].rows);
        all += rows;
    }
    CHECK_INT(all, ROWS);
    CHECK_ERR(fetch_rows(&scene, &other, 0, &tallies[0], &rows), ERR_NOT_FOUND);
    CHECK(has_sent_bytes(scene.stage.worker));
    scene_clear(&scene);
}

TEST(a_finished_output_is_served_at_the_workers_address)
{
    check_served(100000000);
}

TEST(an_output_that_has_gone_to_a_file_is_served_too)
{
    check_served(0);
}

TEST(a_worker_without_a_store_says_that_nothing_is_registered)
{
    struct scene scene = scene_set(0);
    struct exchange_key key = folder_key("job", 1, 1);
    struct ipc_tally tally = {.bytes = 1};
    int64_t rows = 0;
    stage_start(&scene.stage, (struct worker_options){.listen = "127.0.0.1:0"});
    CHECK_ERR(fetch_rows(&scene, &key, 0, &tally, &rows), ERR_NOT_FOUND);
    scene_clear(&scene);
}

/* Looks every few milliseconds, since files have no way to tell. */
static bool wait_for_files(const char *folder, uint32_t n)
{
    int64_t until_ms = clock_mono_ms() + SCRIPT_PATIENCE_MS;
    while (folder_files(folder) != n && clock_mono_ms() < until_ms) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return folder_files(folder) == n;
}

TEST(heartbeats_name_the_jobs_that_are_held_and_what_has_ended_is_dropped)
{
    struct scene scene = scene_set(0);
    struct script *s = scene.stage.script;
    struct exchange_key mine = folder_key("mine", 1, 1), ended = folder_key("ended", 1, 1);
    struct ipc_tally tallies[PARTITIONS];
    int64_t rows = 0;
    folder_write(&scene.folder, &mine, 0, ROWS, PARTITIONS, tallies);
    folder_write(&scene.folder, &ended, 0, ROWS, PARTITIONS, tallies);
    CHECK_UINT(folder_files(scene.folder.shuffle), 2);
    scene_start(&scene);
    CHECK(script_wait_beat(s, holds_jobs, 2));
    SCRIPT_SET(s, ended_job, "ended");
    CHECK(wait_for_files(scene.folder.shuffle, 1));
    CHECK(script_wait_beat(s, holds_jobs, 1));
    CHECK_ERR(fetch_rows(&scene, &ended, 0, &tallies[0], &rows), ERR_NOT_FOUND);
    CHECK_ERR(fetch_rows(&scene, &mine, 0, &tallies[0], &rows), ERR_OK);
    scene_clear(&scene);
}

#define HOARDED 9000 /* jobs */

/* An executor that has something of many jobs, and names each several times. */
struct hoarder {
    struct executor base;
    atomic_llong busy_us; /* how long its names took when it was last asked, in processor time; 0: not asked */
};

static int64_t busy_us(void)
{
    struct timespec spent;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return (int64_t)spent.tv_sec * 1000000 + spent.tv_nsec / 1000;
}

static void name_many(struct executor *executor, exec_job_fn *fn, void *context)
{
    struct hoarder *hoarder = CONTAINER_OF(executor, struct hoarder, base);
    int64_t since_us = busy_us();
    for (int i = 0; i < 10 * HOARDED; i++) {
        char job[32];
        snprintf(job, sizeof job, "job-%d", i % HOARDED);
        fn(context, job);
    }
    atomic_store(&hoarder->busy_us, busy_us() - since_us + 1);
}

/* If each were compared with all the others, it would take seconds. */
TEST(many_jobs_of_executors_do_not_hold_heartbeats_up)
{
    struct scene scene = scene_set(0);
    struct hoarder hoarder = {.base = {.name = "hoarder", .each_job = name_many}};
    struct exchange_key key = folder_key("job-7", 1, 1);
    struct ipc_tally tallies[PARTITIONS];
    folder_write(&scene.folder, &key, 0, ROWS, PARTITIONS, tallies);
    CHECK_ERR(executor_set_add(scene.stage.hands->set, &hoarder.base, NULL), ERR_OK);
    scene_start(&scene);
    CHECK(script_wait_beat(scene.stage.script, holds_jobs, HOARDED));
    CHECK(atomic_load(&hoarder.busy_us) > 0);
    CHECK(atomic_load(&hoarder.busy_us) < 1000000);
    scene_clear(&scene);
}

/* A result that is large enough to have a file. */
static void write_result_as(struct folder *folder, const struct exchange_key *key)
{
    struct exchange_output *output = NULL;
    struct block *block = block_new(LIMIT_INLINE_RESULT_BYTES + 1);
    struct ipc_tally tally = {.bytes = block->n};
    memset(block->bytes, 'x', block->n);
    CHECK_ERR(exchange_output_open(folder->store, key, EXCHANGE_KIND_RESULT, 1, &output, NULL), ERR_OK);
    CHECK_ERR(exchange_output_append(output, 0, block, false, NULL), ERR_OK);
    CHECK_ERR(exchange_output_finish(output, &tally, NULL), ERR_OK);
    exchange_output_close(output, false);
}

static void write_result(struct folder *folder, uint32_t task)
{
    struct exchange_key key = folder_key("job", task, 1);
    write_result_as(folder, &key);
}

TEST(results_are_removed_when_they_are_as_old_as_the_coordinator_says)
{
    struct scene scene = scene_set(100000000);
    write_result(&scene.folder, 1);
    CHECK_UINT(folder_files(scene.folder.results), 1);
    SCRIPT_SET(scene.stage.script, result_ttl_ms, 200);
    scene_start(&scene);
    CHECK(wait_for_files(scene.folder.results, 0));
    write_result(&scene.folder, 2);
    CHECK(wait_for_files(scene.folder.results, 0));
    scene_clear(&scene);
}

TEST(results_stay_when_their_job_has_ended_and_are_not_named_any_more)
{
    struct scene scene = scene_set(100000000);
    struct script *s = scene.stage.script;
    write_result(&scene.folder, 1);
    scene_start(&scene);
    CHECK(script_wait_beat(s, holds_jobs, 1));
    SCRIPT_SET(s, ended_job, "job");
    CHECK(script_wait_beat(s, holds_jobs, 0));
    CHECK_UINT(folder_files(scene.folder.results), 1);
    scene_clear(&scene);
}

TEST(results_go_with_a_job_that_has_failed)
{
    struct scene scene = scene_set(100000000);
    struct script *s = scene.stage.script;
    write_result(&scene.folder, 1);
    SCRIPT_SET(s, ended_job_has_failed, true);
    SCRIPT_SET(s, ended_job, "job");
    scene_start(&scene);
    CHECK(wait_for_files(scene.folder.results, 0));
    scene_clear(&scene);
}

static void close_worker(struct scene *scene)
{
    worker_close(scene->stage.worker);
    scene->stage.worker = NULL;
}

/* Of the script's job: what the attempt is meant to have left here, beside another's. */
static void check_discarded(const char *executor, const char *refusal, uint32_t timeout_ms, uint32_t n_left)
{
    struct scene scene = scene_set(100000000);
    struct script *s = scene.stage.script;
    struct acts acts;
    acts_add(&acts, scene.stage.hands);
    struct exchange_key mine, other;
    CHECK(exchange_key_make("job-1", 0, 4, 1, &mine));
    CHECK(exchange_key_make("job-1", 0, 5, 1, &other));
    write_result_as(&scene.folder, &mine);
    write_result_as(&scene.folder, &other);
    SCRIPT_SET(s, refusal, refusal);
    SCRIPT_SET(s, poison, "poison");
    stage_start(&scene.stage,
                (struct worker_options){.slots = 1, .listen = "127.0.0.1:0", .store = scene.folder.store});
    script_add(s, &(struct script_task){.task = 4, .attempt = 1, .executor = executor, .timeout_ms = timeout_ms});
    CHECK(script_wait(s, has_final, 1));
    CHECK(script_wait_beat(s, names_nothing, 0));
    close_worker(&scene); /* what is to be removed has been when it returns */
    CHECK_UINT(folder_files(scene.folder.results), n_left);
    struct exchange_reader *reader = NULL;
    CHECK_ERR(exchange_reader_open(scene.folder.store, &other, 0, 0, &reader, NULL), ERR_OK);
    exchange_reader_close(reader);
    scene_clear(&scene);
}

TEST(what_an_attempt_has_left_goes_if_its_report_is_refused)
{
    check_discarded("plan", "stale attempt", 0, 1);
}

TEST(what_an_attempt_has_left_goes_if_no_leader_can_take_its_report)
{
    check_discarded("poisoned", NULL, 0, 1);
}

TEST(what_an_attempt_has_left_goes_if_it_was_too_late)
{
    check_discarded("late", NULL, 50, 1);
}

TEST(what_an_attempt_has_left_stays_if_it_counts)
{
    check_discarded("plan", NULL, 0, 2);
}

/*
 * The leader falls silent, so nobody says what becomes of the result, or whether a map output is still needed. Returns
 * whether the worker has left in a part of the drain time.
 */
static bool leaves_early(bool has_map)
{
    struct scene scene = scene_set(100000000);
    struct script *s = scene.stage.script;
    struct exchange_key map = folder_key("job", 7, 1);
    struct ipc_tally tallies[PARTITIONS];
    struct worker_stats stats = {0};
    write_result(&scene.folder, 1);
    if (has_map) {
        folder_write(&scene.folder, &map, 0, ROWS, PARTITIONS, tallies);
    }
    SCRIPT_SET(s, drain_ms, has_map ? 2000 : SCRIPT_PATIENCE_MS);
    scene_start(&scene);
    CHECK(script_wait_beat(s, holds_jobs, 1));
    script_set_mood(s, MOOD_SILENT);
    while (stats.missed_beats_total == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        worker_stats(scene.stage.worker, &stats);
    }
    int64_t since_ms = clock_mono_ms();
    worker_drain(scene.stage.worker);
    CHECK_INT(worker_wait(scene.stage.worker), 0);
    bool is_early = clock_mono_ms() - since_ms < (has_map ? 2000 : SCRIPT_PATIENCE_MS / 2);
    scene_clear(&scene);
    return is_early;
}

TEST(a_draining_worker_does_not_wait_for_results_when_no_coordinator_is_there)
{
    CHECK(leaves_early(false));
}

TEST(a_draining_worker_keeps_map_outputs_for_the_drain_time_when_no_coordinator_is_there)
{
    CHECK(!leaves_early(true));
}

/* An executor that keeps the thread that removes things busy, with the end of the first job, until that is to end. */
struct blocker {
    struct executor base;
    _Atomic(struct worker *) worker; /* NULL: it has not been told yet */
    atomic_int n_dropped;
};

static bool is_shuffle_closed(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    bool is_closed = worker->is_shuffle_closed;
    pthread_mutex_unlock(&worker->mutex);
    return is_closed;
}

static void block_first(struct executor *executor, const char *job_id)
{
    struct blocker *blocker = CONTAINER_OF(executor, struct blocker, base);
    bool is_first = atomic_fetch_add(&blocker->n_dropped, 1) == 0;
    int64_t until_ms = clock_mono_ms() + SCRIPT_PATIENCE_MS;
    (void)job_id;
    while (is_first && clock_mono_ms() < until_ms &&
           (atomic_load(&blocker->worker) == NULL || !is_shuffle_closed(atomic_load(&blocker->worker)))) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

TEST(what_is_to_be_removed_when_a_worker_ends_is_removed)
{
    struct scene scene = scene_set(100000000);
    struct script *s = scene.stage.script;
    struct blocker blocker = {.base = {.name = "blocker", .drop_job = block_first}};
    struct acts acts;
    struct exchange_key mine, first = folder_key("first", 1, 1), second = folder_key("second", 1, 1);
    acts_add(&acts, scene.stage.hands);
    CHECK_ERR(executor_set_add(scene.stage.hands->set, &blocker.base, NULL), ERR_OK);
    CHECK(exchange_key_make("job-1", 0, 4, 1, &mine));
    write_result_as(&scene.folder, &mine);
    write_result_as(&scene.folder, &first);
    write_result_as(&scene.folder, &second);
    SCRIPT_SET(s, refusal, "stale attempt");
    SCRIPT_SET(s, ended_job_has_failed, true);
    SCRIPT_SET(s, ended_job, "first");
    scene_start(&scene);
    atomic_store(&blocker.worker, scene.stage.worker);
    CHECK(wait_for_files(scene.folder.results, 2));
    SCRIPT_SET(s, ended_job, "second");
    script_add(s, &(struct script_task){.task = 4, .attempt = 1, .executor = "plan"});
    CHECK(script_wait(s, has_final, 1));
    CHECK(script_wait_beat(s, names_nothing, 0));
    CHECK_UINT(folder_files(scene.folder.results), 2);
    close_worker(&scene);
    CHECK_UINT(folder_files(scene.folder.results), 0);
    scene_clear(&scene);
}

TEST(results_that_are_younger_stay_also_when_the_worker_has_left)
{
    struct scene scene = scene_set(100000000);
    struct exchange_key map = folder_key("job", 7, 1);
    struct ipc_tally tallies[PARTITIONS];
    int64_t rows = 0;
    folder_write(&scene.folder, &map, 0, ROWS, PARTITIONS, tallies);
    write_result(&scene.folder, 1);
    SCRIPT_SET(scene.stage.script, outputs_needed, 1);
    scene_start(&scene);
    worker_drain(scene.stage.worker);
    CHECK(script_wait_beat(scene.stage.script, has_leaving_beat, 0));
    CHECK_ERR(fetch_rows(&scene, &map, 0, &tallies[0], &rows), ERR_OK); /* somebody needs it, so it is served */
    SCRIPT_SET(scene.stage.script, outputs_needed, 0);
    CHECK_INT(worker_wait(scene.stage.worker), 0);
    worker_close(scene.stage.worker);
    scene.stage.worker = NULL;
    exchange_store_close(scene.folder.store);
    CHECK_UINT(folder_files(scene.folder.shuffle), 0);
    CHECK_UINT(folder_files(scene.folder.results), 1);
    folder_reopen(&scene.folder, 100000000);
    scene_clear(&scene);
}

TEST(the_coordinator_can_set_how_much_of_outputs_stays_in_memory)
{
    struct scene scene = scene_set(100000000);
    struct exchange_key key = folder_key("job", 1, 1);
    struct ipc_tally tallies[PARTITIONS];
    SCRIPT_SET(scene.stage.script, shuffle_memory_bytes, 1);
    scene_start(&scene);
    folder_write(&scene.folder, &key, 0, ROWS, PARTITIONS, tallies);
    CHECK_UINT(folder_files(scene.folder.shuffle), 1);
    CHECK(exchange_store_memory_bytes(scene.folder.store) <= 1);
    scene_clear(&scene);
}
