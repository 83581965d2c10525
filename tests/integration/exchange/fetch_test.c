/*
 * fetch_test.c - partitions over real sockets: whole, in order, within the window, and what happens when peers fail.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "exchange/schema.h"
#include "integration/exchange/peer.h"
#include "integration/rpc/proxy.h"
#include "test.h"
#include "unit/exchange/generate.h"
#include "wire/message.h"

#define PLENTY ((uint64_t)1 << 40)
#define MIB ((uint64_t)1024 * 1024)

static int64_t sum_below(int64_t n)
{
    return n * (n - 1) / 2;
}

static enum err read_all(const struct exchange_source *sources, uint32_t n,
                         const struct exchange_fetch_options *options, struct peer_sum *out,
                         struct exchange_fetch_counts *out_counts, struct error *e)
{
    struct exchange_fetch *fetch = NULL;
    CHECK_ERR(exchange_fetch_open(sources, n, options, &fetch, e), ERR_OK);
    enum err err = peer_read(fetch, false, out, e);
    if (out_counts != NULL) {
        *out_counts = exchange_fetch_counts(fetch);
    }
    exchange_fetch_close(fetch);
    return err;
}

struct told {
    _Atomic uint64_t chunks;
    _Atomic uint64_t nonsense;
};

static void note_chunk(void *context, int64_t us)
{
    struct told *told = context;
    told->chunks++;
    told->nonsense += us < 0;
}

/* Ten map outputs on three workers, one of which is this process; each has 100,000 numbers that follow on. */
static void check_many_sources(uint64_t memory_bytes, bool is_ordered)
{
    struct peer peers[3];
    struct exchange_source sources[10];
    struct exchange_channels *channels = peer_channels();
    struct peer_sum sum;
    struct exchange_fetch_counts counts;
    struct told told = {0};
    struct error e = {0};
    exchange_channels_watch(channels, note_chunk, &told);
    for (int i = 0; i < 3; i++) {
        peer_open(&peers[i], memory_bytes);
    }
    for (uint32_t i = 0; i < 10; i++) {
        sources[i] = peer_write(&peers[i % 3], i, i * INT64_C(100000), 100000, 1, 0);
        sources[i].is_local = i % 3 == 0;
    }
    struct exchange_fetch_options options = {
        .store = peers[0].folder.store, .channels = channels, .window_bytes = MIB / 4, .is_ordered = is_ordered};
    CHECK_ERR(read_all(sources, 10, &options, &sum, &counts, &e), ERR_OK);
    CHECK_INT(sum.rows, 1000000);
    CHECK_INT(sum.sum, sum_below(1000000));
    CHECK(!is_ordered || sum.is_ordered);
    CHECK_UINT(counts.rows, 1000000);
    CHECK(counts.local_bytes > 3 * 800000);
    CHECK(counts.remote_bytes > 5 * 800000);
    CHECK(told.chunks >= 6); /* the sources elsewhere */
    CHECK_UINT(told.nonsense, 0);
    for (int i = 0; i < 3; i++) {
        peer_close(&peers[i]);
    }
    exchange_channels_close(channels);
}

TEST(many_sources_are_read_from_memory_as_they_come)
{
    check_many_sources(PLENTY, false);
}

TEST(many_sources_are_read_from_memory_in_order)
{
    check_many_sources(PLENTY, true);
}

TEST(many_sources_are_read_from_files_as_they_come)
{
    check_many_sources(0, false);
}

TEST(many_sources_are_read_from_files_in_order)
{
    check_many_sources(0, true);
}

/* The store is that of the reader, which has none of the rows itself. */
TEST(what_a_task_waits_for_rows_of_others_is_counted_where_it_runs)
{
    struct peer peers[2];
    struct exchange_channels *channels = peer_channels();
    struct peer_sum sum;
    struct error e = {0};
    peer_open(&peers[0], PLENTY);
    peer_open(&peers[1], PLENTY);
    struct exchange_source source = peer_write(&peers[1], 0, 0, 100000, 1, 0);
    struct exchange_fetch_options options = {.store = peers[0].folder.store, .channels = channels};
    int64_t began_us = clock_mono_us();
    CHECK_ERR(read_all(&source, 1, &options, &sum, NULL, &e), ERR_OK);
    CHECK_INT(sum.rows, 100000);
    uint64_t taking_us = exchange_store_work_us(peers[0].folder.store, EXCHANGE_TAKING);
    CHECK(taking_us > 0);
    CHECK(taking_us <= (uint64_t)(clock_mono_us() - began_us));
    CHECK_UINT(exchange_store_work_us(peers[1].folder.store, EXCHANGE_TAKING), 0);
    peer_close(&peers[0]);
    peer_close(&peers[1]);
    exchange_channels_close(channels);
}

TEST(a_partition_in_the_middle_is_read_alone)
{
    struct peer peer;
    struct exchange_channels *channels = peer_channels();
    struct peer_sum sum;
    struct error e = {0};
    peer_open(&peer, 0);
    struct exchange_source source = peer_write(&peer, 0, 0, 30000, 3, 1);
    struct exchange_fetch_options options = {.channels = channels};
    CHECK_ERR(read_all(&source, 1, &options, &sum, NULL, &e), ERR_OK);
    CHECK_INT(sum.rows, 10000);
    CHECK_INT(sum.last, 29998);
    peer_close(&peer);
    exchange_channels_close(channels);
}

TEST(a_slow_reader_holds_no_more_than_its_window)
{
    for (int is_ordered = 0; is_ordered < 2; is_ordered++) {
        struct peer peer;
        struct exchange_source sources[6];
        struct exchange_channels *channels = peer_channels();
        struct exchange_fetch *fetch = NULL;
        struct peer_sum sum;
        struct error e = {0};
        peer_open(&peer, PLENTY);
        for (uint32_t i = 0; i < 6; i++) {
            sources[i] = peer_write(&peer, i, i * INT64_C(100000), 100000, 1, 0);
        }
        struct exchange_fetch_options options = {
            .channels = channels, .window_bytes = 150000, .threads = 6, .is_ordered = is_ordered != 0};
        CHECK_ERR(exchange_fetch_open(sources, 6, &options, &fetch, &e), ERR_OK);
        CHECK_ERR(peer_read(fetch, true, &sum, &e), ERR_OK);
        CHECK_INT(sum.sum, sum_below(600000));
        uint64_t most = exchange_fetch_counts(fetch).held_bytes_max;
        CHECK(most > 80000);
        CHECK(most <= 150000 + 50000 * (uint64_t)is_ordered); /* and one message, for the source whose turn it is */
        CHECK_UINT(exchange_fetch_counts(fetch).held_bytes, 0);
        exchange_fetch_close(fetch);
        peer_close(&peer);
        exchange_channels_close(channels);
    }
}

TEST(a_message_larger_than_the_window_is_let_in_alone)
{
    struct peer peer;
    struct exchange_channels *channels = peer_channels();
    struct exchange_fetch_counts counts;
    struct peer_sum sum;
    struct error e = {0};
    peer_open(&peer, PLENTY);
    struct exchange_source sources[2] = {peer_write(&peer, 0, 0, 50000, 1, 0),
                                         peer_write(&peer, 1, 50000, 50000, 1, 0)};
    struct exchange_fetch_options options = {.channels = channels, .window_bytes = 1};
    CHECK_ERR(read_all(sources, 2, &options, &sum, &counts, &e), ERR_OK);
    CHECK_INT(sum.sum, sum_below(100000));
    CHECK(counts.held_bytes_max < 50000);
    peer_close(&peer);
    exchange_channels_close(channels);
}

TEST(sources_without_rows_still_say_what_the_columns_are)
{
    struct peer peer;
    struct exchange_channels *channels = peer_channels();
    struct exchange_fetch *fetch = NULL;
    struct ArrowSchema schema;
    struct ArrowArray array = {0};
    struct error e = {0};
    peer_open(&peer, PLENTY);
    struct exchange_source sources[2] = {peer_write(&peer, 0, 0, 0, 4, 2), peer_write(&peer, 1, 0, 0, 4, 2)};
    for (int is_local = 0; is_local < 2; is_local++) {
        sources[0].is_local = is_local != 0;
        struct exchange_fetch_options options = {.channels = channels, .store = peer.folder.store};
        CHECK_ERR(exchange_fetch_open(sources, 2, &options, &fetch, &e), ERR_OK);
        CHECK_ERR(exchange_fetch_schema(fetch, &schema, &e), ERR_OK);
        CHECK_INT(schema.n_children, 1);
        CHECK_STR(schema.children[0]->name, "x");
        schema.release(&schema);
        CHECK_ERR(exchange_fetch_next(fetch, &array, &e), ERR_OK);
        CHECK(array.release == NULL);
        exchange_fetch_close(fetch);
    }
    peer_close(&peer);
    exchange_channels_close(channels);
}

TEST(no_sources_at_all_are_an_empty_stream_if_the_columns_are_given)
{
    struct exchange_fetch *fetch = NULL;
    struct ArrowSchema schema;
    struct ArrowSchema copy;
    struct ArrowArray array = {0};
    struct error e = {0};
    struct exchange_fetch_options options = {0};
    CHECK_ERR(exchange_fetch_open(NULL, 0, &options, &fetch, &e), ERR_INVALID);
    generate_flat_schema("u", &schema);
    options.schema = &schema;
    CHECK_ERR(exchange_fetch_open(NULL, 0, &options, &fetch, &e), ERR_OK);
    CHECK_ERR(exchange_fetch_schema(fetch, &copy, &e), ERR_OK);
    CHECK(schema_is_equal(&schema, &copy));
    CHECK_ERR(exchange_fetch_next(fetch, &array, &e), ERR_OK);
    CHECK(array.release == NULL);
    exchange_fetch_close(fetch);
    schema.release(&schema);
    copy.release(&copy);
}

/* ---- failing ---- */

TEST(an_attempt_that_is_not_registered_fails_the_fetch_by_its_key)
{
    struct peer peer;
    struct exchange_channels *channels = peer_channels();
    struct exchange_fetch *fetch = NULL;
    struct exchange_key failed[4];
    struct peer_sum sum;
    for (int is_local = 0; is_local < 2; is_local++) {
        struct error e = {0};
        peer_open(&peer, PLENTY);
        struct exchange_source sources[2] = {peer_write(&peer, 0, 0, 1000, 1, 0), peer_write(&peer, 1, 0, 1000, 1, 0)};
        sources[1].key.attempt = 7;
        sources[1].is_local = is_local != 0;
        struct exchange_fetch_options options = {.channels = channels, .store = peer.folder.store};
        CHECK_ERR(exchange_fetch_open(sources, 2, &options, &fetch, &e), ERR_OK);
        CHECK_ERR(peer_read(fetch, false, &sum, &e), ERR_NOT_FOUND);
        CHECK(strstr(e.message, "fetch_failed: partition 0 of job stage 1 task 1 attempt 7 from ") == e.message);
        CHECK(strstr(e.message, "map output not registered for requested attempt") != NULL);
        CHECK_UINT(exchange_fetch_failed(fetch, failed, 4), 1);
        CHECK_UINT(failed[0].task, 1);
        CHECK_UINT(failed[0].attempt, 7);
        exchange_fetch_close(fetch);
        peer_close(&peer);
    }
    exchange_channels_close(channels);
}

TEST(a_worker_that_is_gone_fails_the_fetch_with_all_that_it_had)
{
    struct peer peers[2];
    struct exchange_channels *channels = peer_channels();
    struct exchange_fetch *fetch = NULL;
    struct exchange_key failed[10];
    struct peer_sum sum;
    struct error e = {0};
    peer_open(&peers[0], PLENTY);
    peer_open(&peers[1], PLENTY);
    struct exchange_source sources[5];
    for (uint32_t i = 0; i < 5; i++) {
        sources[i] = peer_write(&peers[i % 2], i, 0, 1000, 1, 0);
    }
    peer_stop(&peers[1]);
    struct exchange_fetch_options options = {.channels = channels, .retries = 1};
    CHECK_ERR(exchange_fetch_open(sources, 5, &options, &fetch, &e), ERR_OK);
    CHECK_ERR(peer_read(fetch, false, &sum, &e), ERR_UNAVAILABLE);
    CHECK(strstr(e.message, "fetch_failed: ") == e.message);
    CHECK_UINT(exchange_fetch_failed(fetch, failed, 10), 2);
    CHECK_UINT(failed[0].task % 2, 1);
    CHECK_UINT(failed[1].task % 2, 1);
    exchange_fetch_close(fetch);
    peer_close(&peers[0]);
    peer_close(&peers[1]);
    exchange_channels_close(channels);
}

TEST(a_byte_that_is_flipped_in_a_file_fails_the_fetch_before_its_row_is_seen)
{
    struct peer peer;
    struct exchange_channels *channels = peer_channels();
    struct exchange_fetch *fetch = NULL;
    struct exchange_key failed[4];
    struct peer_sum sum;
    struct error e = {0};
    char path[200];
    uint8_t byte = 0;
    peer_open(&peer, 0);
    struct exchange_source source = peer_write(&peer, 0, 0, 100000, 1, 0);
    snprintf(path, sizeof(path), "%s/job.1.0.1.arrows", peer.folder.shuffle);
    int fd = open(path, O_RDWR);
    CHECK_INT(pread(fd, &byte, 1, 500000), 1);
    byte ^= 1;
    CHECK_INT(pwrite(fd, &byte, 1, 500000), 1);
    close(fd);
    struct exchange_fetch_options options = {.channels = channels};
    CHECK_ERR(exchange_fetch_open(&source, 1, &options, &fetch, &e), ERR_OK);
    CHECK_ERR(peer_read(fetch, false, &sum, &e), ERR_DATA_LOSS);
    CHECK_INT(sum.sum, sum_below(sum.rows)); /* what came before it is right */
    CHECK_UINT(exchange_fetch_failed(fetch, failed, 4), 1);
    exchange_fetch_close(fetch);
    peer_close(&peer);
    exchange_channels_close(channels);
}

TEST(map_outputs_with_other_columns_are_refused)
{
    struct peer peer;
    struct exchange_channels *channels = peer_channels();
    struct ArrowSchema schema;
    struct ArrowArray batch;
    struct exchange_writer *writer = NULL;
    struct ipc_tally tally;
    struct peer_sum sum;
    struct prng prng;
    struct error e = {0};
    peer_open(&peer, PLENTY);
    prng_init(&prng, 1);
    generate_flat_schema("u", &schema);
    generate_array(&prng, &schema, 10, false, &batch);
    struct exchange_writer_options options = {.store = peer.folder.store,
                                              .key = folder_key("job", 1, 1),
                                              .scatter = {.mode = SCATTER_ONE, .n_partitions = 1}};
    CHECK_ERR(exchange_writer_open(&options, &schema, &writer, &e), ERR_OK);
    CHECK_ERR(exchange_writer_append(writer, &batch, &e), ERR_OK);
    CHECK_ERR(exchange_writer_finish(writer, &tally, &e), ERR_OK);
    exchange_writer_close(writer);
    struct exchange_source sources[2] = {
        peer_write(&peer, 0, 0, 1000, 1, 0),
        {.key = options.key, .address = peer.address, .tally = tally},
    };
    struct exchange_fetch_options fetch = {.channels = channels, .is_ordered = true, .threads = 1};
    CHECK_ERR(read_all(sources, 2, &fetch, &sum, NULL, &e), ERR_DATA_LOSS);
    CHECK(strstr(e.message, "its columns are not those of the other map outputs") != NULL);
    batch.release(&batch);
    schema.release(&schema);
    peer_close(&peer);
    exchange_channels_close(channels);
}

/* ---- broken connections ---- */

TEST(a_connection_that_breaks_is_resumed_where_it_broke)
{
    struct peer peer;
    struct proxy proxy;
    struct exchange_channels *channels = peer_channels();
    struct exchange_fetch *fetch = NULL;
    struct exchange_fetch_counts counts;
    struct ArrowArray array = {0};
    struct peer_sum sum;
    struct error e = {0};
    peer_open(&peer, PLENTY);
    proxy_open(&proxy, peer.address);
    struct exchange_source source = peer_write(&peer, 0, 0, 2000000, 1, 0);
    source.address = proxy.address;
    /* The window is small and nobody reads, so that most of it is still to come when the connection breaks. */
    struct exchange_fetch_options options = {.channels = channels, .window_bytes = 100000, .retries = 20};
    CHECK_ERR(exchange_fetch_open(&source, 1, &options, &fetch, &e), ERR_OK);
    CHECK_ERR(exchange_fetch_next(fetch, &array, &e), ERR_OK);
    int64_t rows = array.length;
    array.release(&array);
    atomic_store(&proxy.cut, true);
    while (atomic_load(&proxy.cut)) {
        sched_yield();
    }
    CHECK_ERR(peer_read(fetch, false, &sum, &e), ERR_OK);
    CHECK_INT(sum.rows + rows, 2000000);
    CHECK_INT(sum.sum + sum_below(rows), sum_below(2000000));
    CHECK(sum.is_ordered);
    counts = exchange_fetch_counts(fetch);
    CHECK(counts.resumed > 0);
    CHECK_UINT(counts.remote_bytes, source.tally.bytes); /* nothing came twice */
    exchange_fetch_close(fetch);
    proxy_close(&proxy);
    peer_close(&peer);
    exchange_channels_close(channels);
}

struct restarting {
    struct peer *peer;
    struct exchange_fetch *fetch;
};

static void *restart(void *context)
{
    struct restarting *restarting = context;
    while (exchange_fetch_counts(restarting->fetch).resumed == 0) {
        sched_yield();
    }
    peer_start(restarting->peer);
    return NULL;
}

TEST(a_server_that_comes_back_is_read_on)
{
    struct peer peer;
    struct exchange_channels *channels = peer_channels();
    struct exchange_fetch *fetch = NULL;
    struct ArrowArray array = {0};
    struct peer_sum sum;
    struct error e = {0};
    pthread_t thread;
    peer_open(&peer, 0);
    struct exchange_source source = peer_write(&peer, 0, 0, 2000000, 1, 0);
    struct exchange_fetch_options options = {.channels = channels, .window_bytes = 100000, .retries = 20};
    CHECK_ERR(exchange_fetch_open(&source, 1, &options, &fetch, &e), ERR_OK);
    CHECK_ERR(exchange_fetch_next(fetch, &array, &e), ERR_OK);
    int64_t rows = array.length;
    array.release(&array);
    peer_stop(&peer);
    struct restarting restarting = {.peer = &peer, .fetch = fetch};
    CHECK_INT(pthread_create(&thread, NULL, restart, &restarting), 0);
    CHECK_ERR(peer_read(fetch, false, &sum, &e), ERR_OK);
    pthread_join(thread, NULL);
    CHECK_INT(sum.rows + rows, 2000000);
    CHECK_INT(sum.sum + sum_below(rows), sum_below(2000000));
    exchange_fetch_close(fetch);
    peer_close(&peer);
    exchange_channels_close(channels);
}

/* gRPC's channel would go on failing for as long as nobody waits for its connection. */
TEST(a_worker_that_was_away_is_read_by_the_next_fetch)
{
    struct peer peer;
    struct exchange_channels *channels = peer_channels();
    struct peer_sum sum;
    struct error e = {0};
    peer_open(&peer, PLENTY);
    struct exchange_source source = peer_write(&peer, 0, 0, 1000, 1, 0);
    for (int round = 0; round < 3; round++) {
        struct exchange_fetch *fetch = NULL;
        bool is_away = round == 1;
        if (is_away) {
            peer_stop(&peer);
        }
        struct exchange_fetch_options options = {.channels = channels, .retries = is_away ? 3 : 1};
        CHECK_ERR(exchange_fetch_open(&source, 1, &options, &fetch, &e), ERR_OK);
        CHECK_ERR(peer_read(fetch, false, &sum, &e), is_away ? ERR_UNAVAILABLE : ERR_OK);
        exchange_fetch_close(fetch);
        if (is_away) {
            peer_start(&peer);
        }
    }
    CHECK_INT(sum.rows, 1000);
    peer_close(&peer);
    exchange_channels_close(channels);
}

TEST(a_server_that_does_not_come_back_fails_the_fetch)
{
    struct peer peer;
    struct exchange_channels *channels = peer_channels();
    struct exchange_fetch *fetch = NULL;
    struct exchange_key failed[2];
    struct ArrowArray array = {0};
    struct peer_sum sum;
    struct error e = {0};
    peer_open(&peer, PLENTY);
    struct exchange_source source = peer_write(&peer, 0, 0, 2000000, 1, 0);
    struct exchange_fetch_options options = {.channels = channels, .window_bytes = 100000, .retries = 1};
    CHECK_ERR(exchange_fetch_open(&source, 1, &options, &fetch, &e), ERR_OK);
    CHECK_ERR(exchange_fetch_next(fetch, &array, &e), ERR_OK);
    array.release(&array);
    peer_stop(&peer);
    CHECK_ERR(peer_read(fetch, false, &sum, &e), ERR_UNAVAILABLE);
    CHECK_UINT(exchange_fetch_failed(fetch, failed, 2), 1);
    exchange_fetch_close(fetch);
    peer_close(&peer);
    exchange_channels_close(channels);
}

TEST(a_job_that_is_dropped_while_it_is_read_fails_its_readers)
{
    for (uint64_t memory = 0; memory < 2; memory++) {
        struct peer peer;
        struct exchange_channels *channels = peer_channels();
        struct exchange_fetch *fetch = NULL;
        struct ArrowArray array = {0};
        struct peer_sum sum;
        struct error e = {0};
        peer_open(&peer, memory * PLENTY);
        struct exchange_source source = peer_write(&peer, 0, 0, 2000000, 1, 0);
        struct exchange_fetch_options options = {.channels = channels, .window_bytes = 100000};
        CHECK_ERR(exchange_fetch_open(&source, 1, &options, &fetch, &e), ERR_OK);
        CHECK_ERR(exchange_fetch_next(fetch, &array, &e), ERR_OK);
        array.release(&array);
        exchange_store_end_job(peer.folder.store, "job", false, EXCHANGE_ALL_NUMBERS);
        CHECK_UINT(folder_files(peer.folder.shuffle), 0);
        CHECK_ERR(peer_read(fetch, false, &sum, &e), ERR_NOT_FOUND);
        exchange_fetch_close(fetch);
        peer_close(&peer);
        exchange_channels_close(channels);
    }
}

static void *cancel(void *context)
{
    exchange_fetch_cancel(context);
    return NULL;
}

TEST(a_fetch_can_be_canceled_while_it_waits)
{
    struct peer peer;
    struct proxy proxy;
    struct exchange_channels *channels = peer_channels();
    struct exchange_fetch *fetch = NULL;
    struct exchange_key failed[1];
    struct peer_sum sum;
    struct error e = {0};
    pthread_t thread;
    peer_open(&peer, PLENTY);
    proxy_open(&proxy, peer.address);
    atomic_store(&proxy.is_silent, true);
    struct exchange_source source = peer_write(&peer, 0, 0, 1000, 1, 0);
    source.address = proxy.address;
    struct exchange_fetch_options options = {.channels = channels};
    CHECK_ERR(exchange_fetch_open(&source, 1, &options, &fetch, &e), ERR_OK);
    CHECK_INT(pthread_create(&thread, NULL, cancel, fetch), 0);
    CHECK_ERR(peer_read(fetch, false, &sum, &e), ERR_CANCELED);
    pthread_join(thread, NULL);
    CHECK_UINT(exchange_fetch_failed(fetch, failed, 1), 0);
    exchange_fetch_close(fetch);
    proxy_close(&proxy);
    peer_close(&peer);
    exchange_channels_close(channels);
}

/* Reads on until so many rows have come in all, or none does. */
static enum err read_rows(struct exchange_fetch *fetch, int64_t rows, int64_t *out_sum, struct error *e)
{
    enum err err = ERR_OK;
    while (rows > 0 && err == ERR_OK) {
        struct ArrowArray array = {0};
        err = exchange_fetch_next(fetch, &array, e);
        if (err == ERR_OK) {
            CHECK(array.release != NULL);
            const int64_t *numbers = array.children[0]->buffers[1];
            for (int64_t i = 0; i < array.length; i++) {
                *out_sum += numbers[i];
            }
            rows -= array.length;
            array.release(&array);
        }
    }
    return err;
}

TEST(a_worker_that_is_silent_does_not_keep_others_from_being_read)
{
    struct peer peers[2];
    struct proxy proxy;
    struct exchange_channels *channels = peer_channels();
    struct exchange_fetch *fetch = NULL;
    struct ArrowArray array = {0};
    struct error e = {0};
    int64_t sum = 0;
    pthread_t thread;
    peer_open(&peers[0], PLENTY);
    peer_open(&peers[1], PLENTY);
    proxy_open(&proxy, peers[0].address);
    atomic_store(&proxy.is_silent, true); /* connections are made, and nothing comes over them */
    struct exchange_source sources[2] = {peer_write(&peers[0], 0, 0, 1000, 1, 0),
                                         peer_write(&peers[1], 1, 1000, 1000, 1, 0)};
    sources[0].address = proxy.address;
    struct exchange_fetch_options options = {.channels = channels};
    CHECK_ERR(exchange_fetch_open(sources, 2, &options, &fetch, &e), ERR_OK);
    CHECK_ERR(read_rows(fetch, 1000, &sum, &e), ERR_OK);
    CHECK_INT(sum, sum_below(2000) - sum_below(1000)); /* all of the second, while the first is waited for */
    CHECK_INT(pthread_create(&thread, NULL, cancel, fetch), 0);
    CHECK_ERR(exchange_fetch_next(fetch, &array, &e), ERR_CANCELED);
    pthread_join(thread, NULL);
    exchange_fetch_close(fetch);
    proxy_close(&proxy);
    peer_close(&peers[0]);
    peer_close(&peers[1]);
    exchange_channels_close(channels);
}

TEST(a_fetch_can_be_closed_at_any_moment)
{
    struct peer peer;
    struct exchange_channels *channels = peer_channels();
    peer_open(&peer, 0);
    struct exchange_source sources[3];
    for (uint32_t i = 0; i < 3; i++) {
        sources[i] = peer_write(&peer, i, 0, 200000, 1, 0);
    }
    for (int i = 0; i < 30; i++) {
        struct exchange_fetch *fetch = NULL;
        struct error e = {0};
        struct exchange_fetch_options options = {.channels = channels, .window_bytes = 100000};
        CHECK_ERR(exchange_fetch_open(sources, 3, &options, &fetch, &e), ERR_OK);
        for (int k = 0; k < i; k++) {
            struct ArrowArray array = {0};
            CHECK_ERR(exchange_fetch_next(fetch, &array, &e), ERR_OK);
            array.release(&array);
        }
        exchange_fetch_close(fetch);
    }
    peer_close(&peer);
    exchange_channels_close(channels);
}

TEST(a_stream_of_the_c_interface_holds_what_it_reads_from)
{
    struct peer peer;
    struct exchange_channels *channels = peer_channels();
    struct exchange_fetch *fetch = NULL;
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    struct ArrowArray array = {0};
    struct error e = {0};
    int64_t rows = 0;
    peer_open(&peer, PLENTY);
    struct exchange_source sources[2] = {peer_write(&peer, 0, 0, 1000, 1, 0), peer_write(&peer, 1, 0, 1000, 1, 0)};
    sources[1].key.attempt = 5; /* is not there */
    struct exchange_fetch_options options = {.channels = channels, .is_ordered = true, .threads = 1};
    CHECK_ERR(exchange_fetch_open(sources, 1, &options, &fetch, &e), ERR_OK);
    exchange_fetch_stream(fetch, &stream);
    exchange_fetch_close(fetch);
    CHECK_INT(stream.get_schema(&stream, &schema), 0);
    schema.release(&schema);
    for (;;) {
        CHECK_INT(stream.get_next(&stream, &array), 0);
        if (array.release == NULL) {
            break;
        }
        rows += array.length;
        array.release(&array);
    }
    CHECK_INT(rows, 1000);
    CHECK(stream.get_last_error(&stream) == NULL);
    stream.release(&stream);
    CHECK_ERR(exchange_fetch_open(&sources[1], 1, &options, &fetch, &e), ERR_OK);
    exchange_fetch_stream(fetch, &stream);
    CHECK(stream.get_next(&stream, &array) != 0);
    CHECK(strstr(stream.get_last_error(&stream), "fetch_failed") != NULL);
    stream.release(&stream);
    exchange_fetch_close(fetch);
    peer_close(&peer);
    exchange_channels_close(channels);
}

/* ---- the protocol ---- */

/* Asks for a partition as a client in another language would, and joins the chunks. */
static enum err ask(struct peer *peer, const struct exchange_source *source, uint64_t offset, struct buf *out,
                    size_t *out_longest)
{
    struct rpc_channel *channel = NULL;
    struct rpc_stream *stream = NULL;
    struct arena arena = {0};
    struct buf bytes = {0};
    struct error e = {0};
    bool is_end = false;
    CHECK_ERR(rpc_channel_open(&(struct rpc_channel_options){.target = peer->address}, &channel, &e), ERR_OK);
    struct pb_fetch_shuffle_partition_request *request = wire_new(PB_FETCH_SHUFFLE_PARTITION_REQUEST, &arena);
    request->query_id = (char *)source->key.job;
    request->stage_id = source->key.stage;
    request->map_task = source->key.task;
    request->attempt = source->key.attempt;
    request->reduce_partition = source->partition;
    request->offset = offset;
    wire_encode(request, &bytes);
    struct rpc_request call = {.path = EXCHANGE_FETCH_PATH, .bytes = bytes.data, .n = bytes.n, .timeout_ms = 20000};
    CHECK_ERR(rpc_stream_open(channel, &call, &stream, &e), ERR_OK);
    enum err err = ERR_OK;
    while (err == ERR_OK) {
        struct pb_shuffle_partition_chunk *chunk = NULL;
        err = rpc_stream_next(stream, &bytes, &is_end, NULL, &e);
        if (err != ERR_OK || is_end) {
            break;
        }
        CHECK_ERR(wire_decode(PB_SHUFFLE_PARTITION_CHUNK, bytes.data, bytes.n, &arena, &chunk, &e), ERR_OK);
        *out_longest = chunk->payload.len > *out_longest ? chunk->payload.len : *out_longest;
        buf_append(out, chunk->payload.data, chunk->payload.len);
    }
    rpc_stream_close(stream);
    rpc_channel_close(channel);
    arena_deinit(&arena);
    buf_deinit(&bytes);
    return err;
}

TEST(any_client_can_ask_for_a_partition_from_any_byte_on)
{
    struct peer peer;
    size_t longest = 0;
    struct buf whole = {0};
    struct buf rest = {0};
    peer_open(&peer, 1000000); /* some of it in memory, some in a file */
    struct exchange_source source = peer_write(&peer, 0, 0, 500000, 1, 0);
    CHECK_ERR(ask(&peer, &source, 0, &whole, &longest), ERR_OK);
    CHECK_UINT(whole.n, source.tally.bytes);
    CHECK(longest <= MIB);
    CHECK_ERR(ask(&peer, &source, 1234567, &rest, &longest), ERR_OK);
    CHECK_UINT(rest.n, whole.n - 1234567);
    CHECK_MEM(rest.data, whole.data + 1234567, rest.n);
    buf_reset(&rest);
    CHECK_ERR(ask(&peer, &source, whole.n, &rest, &longest), ERR_OK);
    CHECK_UINT(rest.n, 0);
    CHECK_ERR(ask(&peer, &source, whole.n + 1, &rest, &longest), ERR_INVALID);
    source.key.attempt = 2;
    CHECK_ERR(ask(&peer, &source, 0, &rest, &longest), ERR_NOT_FOUND);
    buf_deinit(&whole);
    buf_deinit(&rest);
    peer_close(&peer);
}
