/*
 * store_test.c - outputs in memory and in files: who sees them, where they are, and that nothing is left behind.
 */
#include "../test.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "exchange/fetch.h"
#include "exchange/schema.h"
#include "folder.h"
#include "generate.h"

#define PLENTY ((uint64_t)1 << 40)

/* Reads a partition through the local shortcut and adds up its numbers; checks that they are those modulo n. */
static enum err sum_local(struct folder *folder, const struct exchange_key *key, uint32_t partition, uint32_t n,
                          const struct ipc_tally *tally, int64_t *out_sum, struct error *e)
{
    struct exchange_fetch *fetch = NULL;
    struct exchange_source source = {.key = *key, .partition = partition, .is_local = true, .tally = *tally};
    struct exchange_fetch_options options = {.store = folder->store};
    int64_t sum = 0;
    enum err err = exchange_fetch_open(&source, 1, &options, &fetch, e);
    while (err == ERR_OK) {
        struct ArrowArray array = {0};
        err = exchange_fetch_next(fetch, &array, e);
        if (err != ERR_OK || array.release == NULL) {
            break;
        }
        const int64_t *numbers = array.children[0]->buffers[1];
        for (int64_t i = 0; i < array.length; i++) {
            ASSERT(numbers[i] % n == partition);
            sum += numbers[i];
        }
        array.release(&array);
    }
    exchange_fetch_close(fetch);
    *out_sum = sum;
    return err;
}

static int64_t expected_sum(int64_t rows, uint32_t partition, uint32_t n)
{
    int64_t sum = 0;
    for (int64_t i = partition; i < rows; i += n) {
        sum += i;
    }
    return sum;
}

static void check_round_trip(uint64_t memory_bytes, int64_t rows, uint32_t n)
{
    struct folder folder;
    struct ipc_tally tallies[64];
    struct error e = {0};
    struct exchange_key key = folder_key("job", 0, 1);
    folder_open(&folder, memory_bytes);
    folder_write(&folder, &key, 0, rows, n, tallies);
    CHECK(exchange_store_memory_bytes(folder.store) <= memory_bytes);
    for (uint32_t p = 0; p < n; p++) {
        int64_t sum = 0;
        CHECK_ERR(sum_local(&folder, &key, p, n, &tallies[p], &sum, &e), ERR_OK);
        CHECK_INT(sum, expected_sum(rows, p, n));
    }
    folder_close(&folder);
}

TEST(an_output_can_be_read_from_memory)
{
    check_round_trip(PLENTY, 100000, 4);
    check_round_trip(PLENTY, 0, 3);
    check_round_trip(PLENTY, 1, 5);
}

TEST(an_output_can_be_read_from_files_when_there_is_no_memory)
{
    check_round_trip(0, 100000, 4);
    check_round_trip(0, 0, 3);
}

TEST(an_output_can_be_read_when_only_a_part_has_gone_to_files)
{
    check_round_trip(300000, 100000, 4);
    check_round_trip(100000, 100000, 64);
}

TEST(with_plenty_of_memory_there_is_no_file)
{
    struct folder folder;
    struct ipc_tally tallies[4];
    struct exchange_key key = folder_key("job", 0, 1);
    folder_open(&folder, PLENTY);
    folder_write(&folder, &key, 0, 50000, 4, tallies);
    CHECK_UINT(folder_files(folder.shuffle), 0);
    CHECK(exchange_store_memory_bytes(folder.store) > 400000);
    folder_close(&folder);
}

TEST(the_output_with_the_most_memory_is_spilled_first)
{
    struct folder folder;
    struct ipc_tally tallies[1];
    struct exchange_key small = folder_key("job", 0, 1);
    struct exchange_key large = folder_key("job", 1, 1);
    struct exchange_key more = folder_key("job", 2, 1);
    folder_open(&folder, 1100000);
    folder_write(&folder, &small, 0, 20000, 1, tallies);
    folder_write(&folder, &large, 0, 100000, 1, tallies);
    CHECK_UINT(folder_files(folder.shuffle), 0);
    folder_write(&folder, &more, 0, 30000, 1, tallies);
    CHECK_UINT(folder_files(folder.shuffle), 1);
    char path[200];
    snprintf(path, sizeof(path), "%s/job.1.1.1.arrows", folder.shuffle);
    CHECK_INT(access(path, F_OK), 0);
    folder_close(&folder);
}

TEST(only_the_exact_key_of_a_finished_attempt_is_found)
{
    struct folder folder;
    struct ipc_tally tally;
    struct error e = {0};
    struct exchange_reader *reader = NULL;
    struct exchange_output *open = NULL;
    struct exchange_key key = folder_key("job", 3, 2);
    struct exchange_key wrong[] = {folder_key("job", 3, 1), folder_key("job", 2, 2), folder_key("jo", 3, 2),
                                   folder_key("job", 3, 3)};
    struct exchange_key unfinished = folder_key("job", 4, 1);
    folder_open(&folder, PLENTY);
    folder_write(&folder, &key, 0, 10, 1, &tally);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        CHECK_ERR(exchange_reader_open(folder.store, &wrong[i], 0, 0, &reader, &e), ERR_NOT_FOUND);
        CHECK_STR(e.message, "map output not registered for requested attempt");
    }
    CHECK_ERR(exchange_output_open(folder.store, &unfinished, EXCHANGE_KIND_SHUFFLE, 1, &open, &e), ERR_OK);
    CHECK_ERR(exchange_reader_open(folder.store, &unfinished, 0, 0, &reader, &e), ERR_NOT_FOUND);
    exchange_output_close(open, false);
    CHECK_ERR(exchange_reader_open(folder.store, &key, 1, 0, &reader, &e), ERR_INVALID);
    CHECK_ERR(exchange_reader_open(folder.store, &key, 0, tally.bytes + 1, &reader, &e), ERR_INVALID);
    CHECK_ERR(exchange_reader_open(folder.store, &key, 0, tally.bytes, &reader, &e), ERR_OK);
    exchange_reader_close(reader);
    CHECK_ERR(exchange_output_open(folder.store, &key, EXCHANGE_KIND_SHUFFLE, 1, &open, &e), ERR_EXISTS);
    folder_close(&folder);
}

TEST(reading_can_begin_at_any_byte)
{
    for (uint64_t memory = 0; memory < 2; memory++) {
        struct folder folder;
        struct ipc_tally tally;
        struct exchange_key key = folder_key("job", 0, 1);
        struct exchange_reader *reader = NULL;
        size_t n = 0;
        folder_open(&folder, memory * PLENTY);
        folder_write(&folder, &key, 0, 300, 1, &tally);
        uint8_t *whole = mem_alloc((size_t)tally.bytes + 10);
        uint8_t *part = mem_alloc((size_t)tally.bytes + 10);
        CHECK_ERR(exchange_reader_open(folder.store, &key, 0, 0, &reader, NULL), ERR_OK);
        CHECK_ERR(exchange_reader_read(reader, true, whole, (size_t)tally.bytes + 10, &n, NULL), ERR_OK);
        CHECK_UINT(n, tally.bytes);
        exchange_reader_close(reader);
        for (uint64_t at = 0; at <= tally.bytes; at += 7) {
            CHECK_ERR(exchange_reader_open(folder.store, &key, 0, at, &reader, NULL), ERR_OK);
            CHECK_ERR(exchange_reader_read(reader, true, part, (size_t)tally.bytes, &n, NULL), ERR_OK);
            CHECK_UINT(n, tally.bytes - at);
            CHECK_MEM(part, whole + at, n);
            exchange_reader_close(reader);
        }
        mem_free(whole);
        mem_free(part);
        folder_close(&folder);
    }
}

TEST(a_writer_that_is_closed_early_leaves_nothing)
{
    struct folder folder;
    struct ArrowSchema schema;
    struct ArrowArray batch;
    struct exchange_writer *writer = NULL;
    struct error e = {0};
    folder_open(&folder, 0);
    generate_numbers(0, 100000, &schema, &batch);
    struct exchange_writer_options options = {
        .store = folder.store, .key = folder_key("job", 0, 1), .scatter = {.mode = SCATTER_ONE, .n_partitions = 1}};
    CHECK_ERR(exchange_writer_open(&options, &schema, &writer, &e), ERR_OK);
    CHECK_ERR(exchange_writer_append(writer, &batch, &e), ERR_OK);
    CHECK_UINT(folder_files(folder.shuffle), 1);
    exchange_writer_close(writer);
    CHECK_UINT(folder_files(folder.shuffle), 0);
    CHECK_UINT(exchange_store_memory_bytes(folder.store), 0);
    CHECK_UINT(exchange_store_file_bytes(folder.store), 0);
    batch.release(&batch);
    schema.release(&schema);
    folder_close(&folder);
}

TEST(dropping_a_job_removes_its_outputs_at_once_and_no_others)
{
    struct folder folder;
    struct ipc_tally tallies[3];
    struct error e = {0};
    struct exchange_key mine = folder_key("mine", 0, 1);
    struct exchange_key other = folder_key("other", 0, 1);
    int64_t sum = 0;
    uint32_t n = 0;
    folder_open(&folder, 0);
    folder_write(&folder, &mine, 0, 1000, 3, tallies);
    folder_write(&folder, &other, 0, 1000, 3, tallies);
    char **jobs = exchange_store_jobs(folder.store, 10, &n);
    CHECK_UINT(n, 2);
    CHECK_UINT(exchange_store_mapped_jobs(folder.store), 2);
    CHECK_STR(jobs[0], "mine");
    CHECK_STR(jobs[1], "other");
    mem_free(jobs[0]);
    mem_free(jobs[1]);
    mem_free((void *)jobs);
    exchange_store_end_job(folder.store, "mine", false, EXCHANGE_ALL_NUMBERS);
    CHECK_UINT(folder_files(folder.shuffle), 1);
    CHECK_UINT(exchange_store_mapped_jobs(folder.store), 1);
    CHECK_ERR(sum_local(&folder, &mine, 0, 3, &tallies[0], &sum, &e), ERR_NOT_FOUND);
    CHECK_ERR(sum_local(&folder, &other, 0, 3, &tallies[0], &sum, &e), ERR_OK);
    folder_close(&folder);
}

/* A result that is large enough to have a file. */
static struct exchange_key write_large_result(struct folder *folder, const char *job, uint32_t task)
{
    struct exchange_key key = folder_key(job, task, 1);
    struct exchange_output *output = NULL;
    struct block *block = block_new(LIMIT_INLINE_RESULT_BYTES + 1);
    struct ipc_tally tally = {.bytes = block->n};
    memset(block->bytes, 'x', block->n);
    CHECK_ERR(exchange_output_open(folder->store, &key, EXCHANGE_KIND_RESULT, 1, &output, NULL), ERR_OK);
    CHECK_ERR(exchange_output_append(output, 0, block, false, NULL), ERR_OK);
    CHECK_ERR(exchange_output_finish(output, &tally, NULL), ERR_OK);
    exchange_output_close(output, false);
    return key;
}

static void check_waits_for(struct folder *folder, const char *job)
{
    uint32_t n = 0;
    char **jobs = exchange_store_jobs(folder->store, 10, &n);
    CHECK_UINT(n, job == NULL ? 0 : 1);
    CHECK(job == NULL || strcmp(jobs[0], job) == 0);
    for (uint32_t i = 0; i < n; i++) {
        mem_free(jobs[i]);
    }
    mem_free((void *)jobs);
}

TEST(results_go_with_their_job_only_if_it_has_failed)
{
    struct folder folder;
    folder_open(&folder, PLENTY);
    write_large_result(&folder, "good", 1);
    check_waits_for(&folder, "good");
    exchange_store_end_job(folder.store, "good", false, EXCHANGE_ALL_NUMBERS);
    check_waits_for(&folder, NULL);
    CHECK_UINT(folder_files(folder.results), 1);
    write_large_result(&folder, "bad", 1);
    check_waits_for(&folder, "bad");
    exchange_store_close(folder.store);
    folder_reopen(&folder, PLENTY); /* a new process has to ask for both */
    exchange_store_end_job(folder.store, "good", false, EXCHANGE_ALL_NUMBERS);
    check_waits_for(&folder, "bad");
    exchange_store_end_job(folder.store, "bad", true, EXCHANGE_ALL_NUMBERS);
    check_waits_for(&folder, NULL);
    CHECK_UINT(folder_files(folder.results), 1);
    folder_close(&folder);
}

TEST(what_was_written_after_the_end_of_a_job_is_not_meant)
{
    struct folder folder;
    struct ipc_tally tallies[3];
    folder_open(&folder, 0);
    write_large_result(&folder, "job", 1);
    struct exchange_key old = folder_key("job", 2, 1), retried = folder_key("job", 2, 2);
    folder_write(&folder, &old, 0, 1000, 3, tallies);
    uint64_t number = exchange_store_number(folder.store);
    write_large_result(&folder, "job", 3);
    folder_write(&folder, &retried, 0, 1000, 3, tallies);
    exchange_store_end_job(folder.store, "job", true, number);
    CHECK_UINT(folder_files(folder.results), 1);
    CHECK_UINT(folder_files(folder.shuffle), 1);
    check_waits_for(&folder, "job");
    folder_close(&folder);
}

#define MANY 30000

/* Small ones, in memory: of one job, or each of its own. */
static void write_many_results(struct folder *folder, bool is_one_job)
{
    for (uint32_t i = 0; i < MANY; i++) {
        char job[32];
        snprintf(job, sizeof(job), "job-%u", is_one_job ? 0 : i);
        struct exchange_key key = folder_key(job, i, 1);
        struct exchange_output *output = NULL;
        CHECK_ERR(exchange_output_open(folder->store, &key, EXCHANGE_KIND_RESULT, 1, &output, NULL), ERR_OK);
        CHECK_ERR(exchange_output_finish(output, &(struct ipc_tally){0}, NULL), ERR_OK);
        exchange_output_close(output, false);
    }
}

/* Processor time of this thread, so that it does not matter what else the machine does. */
static int64_t busy_ms(void)
{
    struct timespec spent;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return (int64_t)spent.tv_sec * 1000 + spent.tv_nsec / 1000000;
}

/* If each looked at all results, they would take many times as long. */
TEST(ends_of_jobs_do_not_cost_more_with_many_results)
{
    struct folder folder;
    folder_open(&folder, PLENTY);
    write_many_results(&folder, false);
    int64_t since_ms = busy_ms();
    for (uint32_t i = 0; i < MANY; i++) {
        char job[32];
        snprintf(job, sizeof(job), "job-%u", i);
        exchange_store_end_job(folder.store, job, false, EXCHANGE_ALL_NUMBERS);
    }
    CHECK(busy_ms() - since_ms < 2000);
    check_waits_for(&folder, NULL);
    CHECK_UINT(exchange_store_drop_results(folder.store, clock_wall_ms() + 60000), MANY);
    folder_close(&folder);
}

TEST(heartbeats_do_not_cost_more_with_many_results_of_ended_jobs)
{
    struct folder folder;
    folder_open(&folder, PLENTY);
    write_many_results(&folder, true);
    check_waits_for(&folder, "job-0");
    exchange_store_end_job(folder.store, "job-0", false, EXCHANGE_ALL_NUMBERS);
    int64_t since_ms = busy_ms();
    for (int i = 0; i < 2000; i++) {
        check_waits_for(&folder, NULL);
    }
    CHECK(busy_ms() - since_ms < 2000);
    folder_close(&folder);
}

TEST(one_output_is_dropped_by_its_key)
{
    struct folder folder;
    folder_open(&folder, PLENTY);
    struct exchange_key gone = write_large_result(&folder, "job", 1);
    write_large_result(&folder, "job", 2);
    exchange_store_drop(folder.store, &gone);
    exchange_store_drop(folder.store, &gone);
    CHECK_UINT(folder_files(folder.results), 1);
    folder_close(&folder);
}

TEST(who_writes_for_a_dropped_job_is_told)
{
    struct folder folder;
    struct ArrowSchema schema;
    struct ArrowArray batch;
    struct exchange_writer *writer = NULL;
    struct ipc_tally tally;
    struct error e = {0};
    folder_open(&folder, 0);
    generate_numbers(0, 100000, &schema, &batch);
    struct exchange_writer_options options = {
        .store = folder.store, .key = folder_key("job", 0, 1), .scatter = {.mode = SCATTER_ONE, .n_partitions = 1}};
    CHECK_ERR(exchange_writer_open(&options, &schema, &writer, &e), ERR_OK);
    CHECK_ERR(exchange_writer_append(writer, &batch, &e), ERR_OK);
    exchange_store_end_job(folder.store, "job", false, EXCHANGE_ALL_NUMBERS);
    CHECK_UINT(folder_files(folder.shuffle), 0);
    CHECK_ERR(exchange_writer_append(writer, &batch, &e), ERR_CANCELED);
    CHECK_ERR(exchange_writer_finish(writer, &tally, &e), ERR_CANCELED);
    exchange_writer_close(writer);
    CHECK_UINT(folder_files(folder.shuffle), 0);
    batch.release(&batch);
    schema.release(&schema);
    folder_close(&folder);
}

TEST(a_new_process_removes_shuffle_files_and_half_results_and_finds_results)
{
    struct folder folder;
    struct ArrowSchema schema;
    struct ArrowArray batch;
    struct exchange_writer *writer = NULL;
    struct exchange_reader *reader = NULL;
    struct ipc_tally tally;
    struct error e = {0};
    char path[200];
    size_t n = 0;
    folder_open(&folder, PLENTY);
    generate_numbers(0, 400000, &schema, &batch);
    struct exchange_key key = folder_key("a.job-1", 7, 2);
    struct exchange_writer_options options = {.store = folder.store,
                                              .key = key,
                                              .kind = EXCHANGE_KIND_RESULT,
                                              .scatter = {.mode = SCATTER_ONE, .n_partitions = 1}};
    CHECK_ERR(exchange_writer_open(&options, &schema, &writer, &e), ERR_OK);
    CHECK_ERR(exchange_writer_append(writer, &batch, &e), ERR_OK);
    snprintf(path, sizeof(path), "%s/a.job-1.1.7.2.part", folder.results);
    CHECK_INT(access(path, F_OK), 0);
    CHECK_ERR(exchange_writer_finish(writer, &tally, &e), ERR_OK);
    CHECK(access(path, F_OK) != 0);
    exchange_writer_close(writer);
    exchange_store_end_job(folder.store, "a.job-1", false, EXCHANGE_ALL_NUMBERS); /* its results stay */
    exchange_store_close(folder.store);
    static const char *const old[] = {"shuffle/x.0.0.1.arrows", "results/x.0.0.1.part", "shuffle/keep.txt"};
    for (size_t i = 0; i < ARRAY_LEN(old); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder.path, old[i]);
        close(open(path, O_CREAT | O_WRONLY, 0600));
    }
    folder_reopen(&folder, PLENTY);
    CHECK_UINT(folder_files(folder.shuffle), 1); /* it is not ours */
    CHECK_UINT(folder_files(folder.results), 1);
    uint8_t *bytes = mem_alloc((size_t)tally.bytes + 1);
    CHECK_ERR(exchange_reader_open(folder.store, &key, 0, 0, &reader, &e), ERR_OK);
    CHECK_ERR(exchange_reader_read(reader, true, bytes, (size_t)tally.bytes + 1, &n, &e), ERR_OK);
    CHECK_UINT(n, tally.bytes);
    exchange_reader_close(reader);
    mem_free(bytes);
    CHECK_UINT(exchange_store_drop_results(folder.store, clock_wall_ms() - 60000), 0);
    CHECK_UINT(exchange_store_drop_results(folder.store, clock_wall_ms() + 60000), 1);
    CHECK_UINT(folder_files(folder.results), 0);
    CHECK_UINT(exchange_store_file_bytes(folder.store), 0);
    batch.release(&batch);
    schema.release(&schema);
    folder_close(&folder);
}

TEST(a_small_result_can_be_taken_along)
{
    struct folder folder;
    struct ArrowSchema schema;
    struct ArrowArray batch;
    struct exchange_writer *writer = NULL;
    struct ipc_tally tally;
    struct error e = {0};
    struct buf bytes = {0};
    folder_open(&folder, 0);
    generate_numbers(0, 10, &schema, &batch);
    struct exchange_writer_options options = {.store = folder.store,
                                              .key = folder_key("job", 0, 1),
                                              .kind = EXCHANGE_KIND_RESULT,
                                              .scatter = {.mode = SCATTER_ONE, .n_partitions = 1}};
    CHECK_ERR(exchange_writer_open(&options, &schema, &writer, &e), ERR_OK);
    CHECK_ERR(exchange_writer_append(writer, &batch, &e), ERR_OK);
    CHECK_ERR(exchange_writer_finish(writer, &tally, &e), ERR_OK);
    CHECK_ERR(exchange_writer_take(writer, &bytes, &e), ERR_OK);
    CHECK_UINT(bytes.n, tally.bytes);
    exchange_writer_close(writer);
    CHECK_UINT(folder_files(folder.results), 0);
    CHECK_UINT(exchange_store_memory_bytes(folder.store), 0);
    CHECK_UINT(exchange_store_work_us(folder.store, EXCHANGE_WRITING), 0); /* no task reads it */
    buf_deinit(&bytes);
    batch.release(&batch);
    schema.release(&schema);
    folder_close(&folder);
}

TEST(the_store_knows_how_long_tasks_wrote_for_others_and_took_from_others)
{
    struct folder folder;
    struct ipc_tally tallies[2];
    struct exchange_key key = folder_key("job", 0, 1);
    struct error e = {0};
    int64_t sum = 0;
    folder_open(&folder, 0);
    exchange_store_note_work(NULL, EXCHANGE_TAKING, 5);
    int64_t began_us = clock_mono_us();
    folder_write(&folder, &key, 0, 300000, 2, tallies);
    int64_t wrote_us = clock_mono_us() - began_us;
    CHECK(exchange_store_work_us(folder.store, EXCHANGE_WRITING) > 0);
    CHECK(exchange_store_work_us(folder.store, EXCHANGE_WRITING) <= (uint64_t)wrote_us);
    CHECK_UINT(exchange_store_work_us(folder.store, EXCHANGE_TAKING), 0);
    began_us = clock_mono_us();
    CHECK_ERR(sum_local(&folder, &key, 1, 2, &tallies[1], &sum, &e), ERR_OK);
    CHECK(exchange_store_work_us(folder.store, EXCHANGE_TAKING) > 0);
    CHECK(exchange_store_work_us(folder.store, EXCHANGE_TAKING) <= (uint64_t)(clock_mono_us() - began_us));
    folder_close(&folder);
}

/* In a child, because the limit cannot be taken back. */
static int write_with_little_disk(struct folder *folder)
{
    struct rlimit limit = {.rlim_cur = 200000, .rlim_max = 200000};
    struct ipc_tally tallies[2];
    struct error e = {0};
    struct exchange_key key = folder_key("job", 0, 1);
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
        return 1;
    }
    if (folder_try_write(folder, &key, 0, 100000, 2, tallies, &e) != ERR_EXHAUSTED) {
        return 2;
    }
    if (strstr(e.message, "cannot be written") == NULL || e.hint[0] == '\0') {
        return 3;
    }
    if (folder_files(folder->shuffle) != 0 || exchange_store_memory_bytes(folder->store) != 0) {
        return 4;
    }
    return folder_try_write(folder, &key, 0, 5000, 2, tallies, &e) == ERR_OK ? 0 : 5; /* less still fits */
}

TEST(a_full_disk_is_a_clear_error_and_leaves_nothing_behind)
{
    struct folder folder;
    int status = 0;
    folder_open(&folder, 1000);
    pid_t child = fork();
    if (child == 0) {
        _exit(write_with_little_disk(&folder));
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
    folder_close(&folder);
}

/* ---- threads ---- */

struct crowd {
    struct folder folder;
    atomic_int wrong;
};

struct member {
    struct crowd *crowd;
    uint32_t number;
    pthread_t thread;
};

static void *write_and_read(void *context)
{
    struct member *member = context;
    struct crowd *crowd = member->crowd;
    for (uint32_t round = 0; round < 4; round++) {
        struct ipc_tally tallies[3];
        struct error e = {0};
        int64_t sum = 0;
        char job[20];
        snprintf(job, sizeof(job), "job%u", round % 2);
        struct exchange_key key;
        bool is_key = exchange_key_make(job, 1, member->number, round + 1, &key);
        enum err err = is_key ? folder_try_write(&crowd->folder, &key, 0, 20000, 3, tallies, &e) : ERR_INVALID;
        if (err == ERR_OK) {
            err = sum_local(&crowd->folder, &key, 1, 3, &tallies[1], &sum, &e);
        }
        bool is_right = err == ERR_OK && sum == expected_sum(20000, 1, 3);
        bool was_dropped = err == ERR_CANCELED || err == ERR_NOT_FOUND;
        if (!is_right && !was_dropped) {
            fprintf(stderr, "%s\n", e.message);
            atomic_fetch_add(&crowd->wrong, 1);
        }
    }
    return NULL;
}

TEST(many_write_read_spill_and_drop_at_the_same_time)
{
    static const uint64_t budgets[] = {0, 200000, PLENTY};
    for (size_t b = 0; b < ARRAY_LEN(budgets); b++) {
        struct crowd crowd = {.wrong = 0};
        struct member members[6];
        folder_open(&crowd.folder, budgets[b]);
        for (uint32_t i = 0; i < ARRAY_LEN(members); i++) {
            members[i] = (struct member){.crowd = &crowd, .number = i};
            CHECK_INT(pthread_create(&members[i].thread, NULL, write_and_read, &members[i]), 0);
        }
        for (int i = 0; i < 30; i++) {
            uint32_t n = 0;
            char **jobs = exchange_store_jobs(crowd.folder.store, 100, &n);
            CHECK(n <= 2);
            for (uint32_t k = 0; k < n; k++) {
                mem_free(jobs[k]);
            }
            mem_free((void *)jobs);
            exchange_store_end_job(crowd.folder.store, "job1", false, EXCHANGE_ALL_NUMBERS);
        }
        for (uint32_t i = 0; i < ARRAY_LEN(members); i++) {
            pthread_join(members[i].thread, NULL);
        }
        CHECK_INT(atomic_load(&crowd.wrong), 0);
        exchange_store_end_job(crowd.folder.store, "job0", false, EXCHANGE_ALL_NUMBERS);
        exchange_store_end_job(crowd.folder.store, "job1", false, EXCHANGE_ALL_NUMBERS);
        CHECK_UINT(folder_files(crowd.folder.shuffle), 0);
        CHECK_UINT(exchange_store_memory_bytes(crowd.folder.store), 0);
        CHECK_UINT(exchange_store_file_bytes(crowd.folder.store), 0);
        folder_close(&crowd.folder);
    }
}

/* ---- damage ---- */

TEST(each_flipped_byte_in_a_spilled_file_is_seen)
{
    struct folder folder;
    struct ipc_tally tally;
    char path[200];
    struct exchange_key key = folder_key("job", 0, 1);
    folder_open(&folder, 0);
    folder_write(&folder, &key, 0, 40, 1, &tally);
    snprintf(path, sizeof(path), "%s/job.1.0.1.arrows", folder.shuffle);
    int fd = open(path, O_RDWR);
    struct stat info;
    CHECK_INT(fstat(fd, &info), 0);
    CHECK(info.st_size > 300);
    for (off_t at = 0; at < info.st_size; at++) {
        uint8_t byte = 0;
        int64_t sum = 0;
        struct error e = {0};
        CHECK_INT(pread(fd, &byte, 1, at), 1);
        byte ^= 0x10;
        CHECK_INT(pwrite(fd, &byte, 1, at), 1);
        CHECK_ERR(sum_local(&folder, &key, 0, 1, &tally, &sum, &e), ERR_DATA_LOSS);
        CHECK_INT(sum, 0);
        CHECK(strstr(e.message, "fetch_failed: partition 0 of job stage 1 task 0 attempt 1") == e.message);
        byte ^= 0x10;
        CHECK_INT(pwrite(fd, &byte, 1, at), 1);
    }
    int64_t sum = 0;
    struct error e = {0};
    CHECK_ERR(sum_local(&folder, &key, 0, 1, &tally, &sum, &e), ERR_OK);
    CHECK_INT(ftruncate(fd, info.st_size - 1), 0);
    CHECK_ERR(sum_local(&folder, &key, 0, 1, &tally, &sum, &e), ERR_DATA_LOSS);
    close(fd);
    unlink(path);
    CHECK_ERR(sum_local(&folder, &key, 0, 1, &tally, &sum, &e), ERR_DATA_LOSS);
    folder_close(&folder);
}

TEST(an_output_that_is_not_as_registered_is_refused_at_its_end)
{
    struct folder folder;
    struct ipc_tally tally;
    struct error e = {0};
    int64_t sum = 0;
    struct exchange_key key = folder_key("job", 0, 1);
    folder_open(&folder, 0);
    folder_write(&folder, &key, 0, 4000, 1, &tally);
    struct ipc_tally wrong = tally;
    wrong.checksum ^= 1;
    CHECK_ERR(sum_local(&folder, &key, 0, 1, &wrong, &sum, &e), ERR_DATA_LOSS);
    wrong = tally;
    wrong.rows++;
    CHECK_ERR(sum_local(&folder, &key, 0, 1, &wrong, &sum, &e), ERR_DATA_LOSS);
    CHECK_ERR(sum_local(&folder, &key, 0, 1, &tally, &sum, &e), ERR_OK);
    folder_close(&folder);
}

#define LARGE_PIECES 4

/* Results that have files, each in pieces; whoever is told that the job has ended stops. */
static void *write_results(void *context)
{
    struct member *member = context;
    struct crowd *crowd = member->crowd;
    for (uint32_t round = 0; round < 40; round++) {
        struct exchange_key key = folder_key("job", member->number, round + 1);
        struct exchange_output *output = NULL;
        struct ipc_tally tally = {0};
        struct error e = {0};
        enum err err = exchange_output_open(crowd->folder.store, &key, EXCHANGE_KIND_RESULT, 1, &output, &e);
        for (int i = 0; i < LARGE_PIECES && err == ERR_OK; i++) {
            struct block *block = block_new(LIMIT_INLINE_RESULT_BYTES / 2);
            memset(block->bytes, 'x', block->n);
            tally.bytes += block->n;
            err = exchange_output_append(output, 0, block, false, &e);
        }
        if (err == ERR_OK) {
            err = exchange_output_finish(output, &tally, &e);
        }
        exchange_output_close(output, false);
        atomic_fetch_add(&crowd->wrong, err == ERR_OK || err == ERR_CANCELED ? 0 : 1);
    }
    return NULL;
}

TEST(results_whose_job_fails_while_they_are_written_leave_nothing)
{
    struct crowd crowd = {.wrong = 0};
    struct member members[4];
    folder_open(&crowd.folder, PLENTY);
    for (uint32_t i = 0; i < ARRAY_LEN(members); i++) {
        members[i] = (struct member){.crowd = &crowd, .number = i};
        CHECK_INT(pthread_create(&members[i].thread, NULL, write_results, &members[i]), 0);
    }
    for (int i = 0; i < 200; i++) {
        uint32_t n = 0;
        char **jobs = exchange_store_jobs(crowd.folder.store, 100, &n);
        CHECK(n <= 1);
        for (uint32_t k = 0; k < n; k++) {
            mem_free(jobs[k]);
        }
        mem_free((void *)jobs);
        exchange_store_end_job(crowd.folder.store, "job", true, EXCHANGE_ALL_NUMBERS);
    }
    for (uint32_t i = 0; i < ARRAY_LEN(members); i++) {
        pthread_join(members[i].thread, NULL);
    }
    CHECK_INT(atomic_load(&crowd.wrong), 0);
    exchange_store_end_job(crowd.folder.store, "job", true, EXCHANGE_ALL_NUMBERS);
    CHECK_UINT(folder_files(crowd.folder.results), 0);
    CHECK_UINT(exchange_store_memory_bytes(crowd.folder.store), 0);
    CHECK_UINT(exchange_store_file_bytes(crowd.folder.store), 0);
    folder_close(&crowd.folder);
}

/* What is dropped when a file is renamed the next time. */
static struct {
    struct exchange_store *store;
    struct exchange_key key;
} at_rename;

/* In place of the C library's, so that something can happen between the two names of a file. */
int rename(const char *from, const char *to)
{
    struct exchange_store *store = at_rename.store;
    if (store != NULL) {
        at_rename.store = NULL;
        exchange_store_drop(store, &at_rename.key);
    }
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

TEST(who_writes_a_result_that_is_dropped_while_its_file_is_renamed_is_told_so)
{
    struct folder folder;
    struct exchange_output *output = NULL;
    struct block *block = block_new(LIMIT_INLINE_RESULT_BYTES + 1);
    struct ipc_tally tally = {.bytes = block->n};
    struct error e = {0};
    memset(block->bytes, 'x', block->n);
    folder_open(&folder, PLENTY);
    at_rename.key = folder_key("job", 1, 1);
    CHECK_ERR(exchange_output_open(folder.store, &at_rename.key, EXCHANGE_KIND_RESULT, 1, &output, &e), ERR_OK);
    CHECK_ERR(exchange_output_append(output, 0, block, false, &e), ERR_OK);
    at_rename.store = folder.store;
    CHECK_ERR(exchange_output_finish(output, &tally, &e), ERR_CANCELED);
    CHECK_STR(e.message, "the job job has ended, and its output is not wanted any more");
    CHECK(at_rename.store == NULL);
    exchange_output_close(output, false);
    CHECK_UINT(folder_files(folder.results), 0);
    folder_close(&folder);
}
