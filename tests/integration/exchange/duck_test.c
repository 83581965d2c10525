/*
 * duck_test.c - rows of DuckDB, of all its types, through store and network, and into DuckDB again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "integration/exchange/peer.h"
#include "integration/exchange/sql.h"
#include "test.h"

#define PLENTY ((uint64_t)1 << 40)

/* One column for each type, with NULLs; `i` is the key. */
static const char *const all_types =
    "create type mood as enum ('sad', 'ok', 'happy', 'ünlucky');"
    "create table src as select i,"
    " case when i % 7 = 0 then null else i % 2 = 0 end as c_bool,"
    " case when i % 5 = 0 then null else (i % 100 - 50)::tinyint end as c_tinyint,"
    " (i % 30000)::smallint as c_smallint, (i * 3)::integer as c_integer, -i as c_bigint,"
    " (i::hugeint * 1000000007 * 1000000007 * 1000000007) as c_hugeint,"
    " (i % 255)::utinyint as c_utinyint, (i % 65535)::usmallint as c_usmallint, i::uinteger as c_uinteger,"
    " ('18446744073709551615'::ubigint - i::ubigint) as c_ubigint,"
    " ('340282366920938463463374607431768211455'::uhugeint - i::uhugeint) as c_uhugeint,"
    " (i / 3.0)::float as c_float,"
    " case when i = 3 then 'nan'::double when i = 4 then 'inf'::double else i / 7.0 end as c_double,"
    " (i % 100)::decimal(4, 1) as c_decimal4, (i / 10)::decimal(9, 2) as c_decimal9,"
    " (i / 10)::decimal(18, 3) as c_decimal18, (i / 10)::decimal(38, 5) as c_decimal38,"
    " case when i % 3 = 0 then null else 'täxt ' || i end as c_varchar, repeat('long ', (i % 50)::int) as c_long,"
    " encode('blob' || i) as c_blob, (i % 1000)::int::bit as c_bit,"
    " date '1970-01-01' + i::int as c_date, time '00:00:01' + to_seconds(i % 80000) as c_time,"
    " (time '00:00:01' + to_seconds(i % 80000))::timetz as c_timetz,"
    " timestamp '2020-01-01' + to_seconds(i) as c_timestamp,"
    " (timestamp '2020-01-01' + to_seconds(i))::timestamp_s as c_timestamp_s,"
    " (timestamp '2020-01-01' + to_seconds(i))::timestamp_ms as c_timestamp_ms,"
    " (timestamp '2020-01-01' + to_seconds(i))::timestamp_ns as c_timestamp_ns,"
    " (timestamp '2020-01-01' + to_seconds(i))::timestamptz as c_timestamptz,"
    " to_months((i % 30)::int) + to_days((i % 40)::int) + to_microseconds(i) as c_interval,"
    " ('00000000-0000-0000-0000-' || lpad(i::varchar, 12, '0'))::uuid as c_uuid,"
    " (['sad', 'ok', 'happy', 'ünlucky'])[1 + i % 4]::mood as c_enum,"
    " case when i % 11 = 0 then null else range(i % 5) end as c_list,"
    " [['a' || i, null], [], null] as c_nested,"
    " {'a': i, 'b': case when i % 2 = 0 then 'x' || i end, 'c': {'d': [i, null]}} as c_struct,"
    " case when i % 4 = 0 then null else map {'k' || i: i, 'l': null} end as c_map,"
    " case when i % 2 = 0 then union_value(num := i) else union_value(str := 's' || i)::union(num bigint, str varchar) end as "
    "c_union,"
    " [i, null, i + 2]::bigint[3] as c_array,"
    " [{'m': map {i: [i]}, 'e': (['sad', 'ok'])[1 + i % 2]::mood}] as c_deep,"
    " null as c_null, ('{\"a\":' || i || '}')::json as c_json"
    " from range(20000) t(i)";

struct duckling {
    struct duck *duck;
    struct duck_connection *connection;
};

static void must(enum err err, const struct error *e)
{
    if (err != ERR_OK) {
        print_error("%s\n", e->message);
    }
    CHECK_ERR(err, ERR_OK);
}

static void duckling_open(struct duckling *duckling)
{
    struct error e = {0};
    struct duck_options options = {.threads = 2};
    must(duck_open(&options, &duckling->duck, &e), &e);
    must(duck_connect(duckling->duck, &duckling->connection, &e), &e);
    must(duck_run(duckling->connection, "set timezone = 'UTC'", &e), &e);
}

static void duckling_close(struct duckling *duckling)
{
    duck_disconnect(duckling->connection);
    duck_close(duckling->duck);
}

struct columns {
    char names[64][64];
    uint32_t n;
};

static enum err take_column(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    UNUSED(n);
    UNUSED(e);
    struct columns *columns = context;
    snprintf(columns->names[columns->n++], 64, "%s", values[0].bytes);
    return ERR_OK;
}

/* Every column of `back`, as text, is that of `src` in the row with the same key. */
static void check_same(struct duck_connection *connection)
{
    struct columns columns = {0};
    struct error e = {0};
    char query[1000];
    int64_t number = 0;
    must(duck_rows(connection, "select column_name from (describe src)", NULL, 0, take_column, &columns, &e), &e);
    CHECK(columns.n > 40);
    must(sql_number(connection, "select count(*) from back", &number, &e), &e);
    CHECK_INT(number, 20000);
    for (uint32_t i = 0; i < columns.n; i++) {
        const char *name = columns.names[i];
        snprintf(query, sizeof(query),
                 "select count(*) from src join back using (i) where src.%s::varchar is distinct from back.%s::varchar",
                 name, name);
        must(sql_number(connection, query, &number, &e), &e);
        if (number != 0) {
            print_error("column %s differs in %d rows\n", name, (int)number);
        }
        CHECK_INT(number, 0);
        if (strcmp(name, "c_enum") == 0 || strcmp(name, "c_deep") == 0) {
            continue; /* DuckDB reads a dictionary as VARCHAR */
        }
        snprintf(query, sizeof(query),
                 "select (typeof((select any_value(%s) from src)) is distinct from typeof((select any_value(%s) from "
                 "back)))::bigint",
                 name, name);
        must(sql_number(connection, query, &number, &e), &e);
        if (number != 0) {
            print_error("column %s has another type\n", name);
        }
        CHECK_INT(number, 0);
    }
}

static void check_all_types(uint64_t memory_bytes, bool is_local, bool is_compressed)
{
    struct duckling duckling;
    struct peer peer;
    struct exchange_channels *channels = peer_channels();
    struct ipc_tally tallies[5];
    struct exchange_source sources[5];
    struct error e = {0};
    duckling_open(&duckling);
    peer_open(&peer, memory_bytes);
    must(duck_run(duckling.connection, all_types, &e), &e);
    struct exchange_writer_options options = {.store = peer.folder.store,
                                              .key = folder_key("job", 0, 1),
                                              .scatter = {.mode = SCATTER_COLUMN, .n_partitions = 5, .column = 0},
                                              .is_compressed = is_compressed};
    must(sql_write(duckling.connection, "select ((hash(i) >> 32) % 5)::integer, * from src", &options, tallies, &e),
         &e);
    for (uint32_t i = 0; i < 5; i++) {
        sources[i] = (struct exchange_source){
            .key = options.key, .partition = i, .address = peer.address, .is_local = is_local, .tally = tallies[i]};
        CHECK(tallies[i].rows > 3500);
    }
    struct exchange_fetch_options fetch = {.store = peer.folder.store, .channels = channels};
    must(sql_read(duckling.connection, "arrived", sources, 5, &fetch, &e), &e);
    must(duck_run(duckling.connection, "create table back as select * from arrived", &e), &e);
    duck_unregister(duckling.connection, "arrived");
    check_same(duckling.connection);
    peer_close(&peer);
    exchange_channels_close(channels);
    duckling_close(&duckling);
}

TEST(all_types_of_duckdb_pass_through_memory_on_the_same_worker)
{
    check_all_types(PLENTY, true, false);
}

TEST(all_types_of_duckdb_pass_through_memory_and_network)
{
    check_all_types(PLENTY, false, false);
}

TEST(all_types_of_duckdb_pass_through_files_and_network)
{
    check_all_types(0, false, false);
}

TEST(all_types_of_duckdb_pass_through_files_compressed)
{
    check_all_types(0, true, true);
}

TEST(a_source_that_is_lost_is_an_error_of_the_query_that_reads_it)
{
    struct duckling duckling;
    struct peer peer;
    struct exchange_channels *channels = peer_channels();
    struct error e = {0};
    int64_t number = 0;
    duckling_open(&duckling);
    peer_open(&peer, PLENTY);
    struct exchange_source sources[2] = {peer_write(&peer, 0, 0, 100000, 1, 0), peer_write(&peer, 1, 0, 1000, 1, 0)};
    sources[1].key.attempt = 9;
    struct exchange_fetch_options fetch = {.channels = channels, .is_ordered = true, .threads = 1};
    must(sql_read(duckling.connection, "arrived", sources, 2, &fetch, &e), &e);
    CHECK(sql_number(duckling.connection, "select count(*) from arrived", &number, &e) != ERR_OK);
    CHECK(strstr(e.message, "fetch_failed: partition 0 of job stage 1 task 1 attempt 9") != NULL);
    duck_unregister(duckling.connection, "arrived");
    peer_close(&peer);
    exchange_channels_close(channels);
    duckling_close(&duckling);
}

/* A shuffle as a query does one: two workers, P partitions, each reader reads its partition from both. */
static void check_large(int64_t rows, uint64_t memory_bytes, uint32_t n)
{
    struct duckling duckling;
    struct peer peers[2];
    struct exchange_channels *channels = peer_channels();
    struct ipc_tally tallies[2][16];
    struct error e = {0};
    char query[600];
    int64_t total_rows = 0;
    long long half = rows / 2;
    int64_t number = 0;
    duckling_open(&duckling);
    for (uint32_t w = 0; w < 2; w++) {
        peer_open(&peers[w], memory_bytes);
        struct exchange_writer_options options = {.store = peers[w].folder.store,
                                                  .key = folder_key("job", w, 1),
                                                  .scatter = {.mode = SCATTER_COLUMN, .n_partitions = n, .column = 4}};
        snprintf(query, sizeof(query),
                 "select i, i * 7 as a, (i %% 1000)::integer as b, i / 3.0 as c, ((hash(i) >> 32) %% %u)::integer "
                 "from range(%lld, %lld) t(i)",
                 n, half * w, half * (w + 1));
        must(sql_write(duckling.connection, query, &options, tallies[w], &e), &e);
    }
    must(duck_run(duckling.connection, "create table back (i bigint, a bigint, b integer, c double)", &e), &e);
    for (uint32_t p = 0; p < n; p++) {
        struct exchange_source sources[2];
        for (uint32_t w = 0; w < 2; w++) {
            sources[w] = (struct exchange_source){.key = folder_key("job", w, 1),
                                                  .partition = p,
                                                  .address = peers[w].address,
                                                  .is_local = w == 0,
                                                  .tally = tallies[w][p]};
            total_rows += (int64_t)tallies[w][p].rows;
        }
        struct exchange_fetch_options fetch = {.store = peers[0].folder.store, .channels = channels};
        must(sql_read(duckling.connection, "arrived", sources, 2, &fetch, &e), &e);
        snprintf(
            query, sizeof(query),
            "insert into back select i, a, b, c from arrived where (hash(i) >> 32) %% %u = %u or error('wrong') is null",
            n, p);
        must(duck_run(duckling.connection, query, &e), &e);
        duck_unregister(duckling.connection, "arrived");
    }
    CHECK_INT(total_rows, rows);
    snprintf(query, sizeof(query),
             "select count(*) from back full join (select i, i * 7 as a, (i %% 1000)::integer as b, i / 3.0 as c "
             "from range(%lld) t(i)) src using (i, a, b, c) where back.i is null or src.i is null",
             (long long)rows);
    must(sql_number(duckling.connection, query, &number, &e), &e);
    CHECK_INT(number, 0);
    must(sql_number(duckling.connection, "select count(*) from back", &number, &e), &e);
    CHECK_INT(number, rows);
    for (uint32_t w = 0; w < 2; w++) {
        peer_close(&peers[w]);
    }
    exchange_channels_close(channels);
    duckling_close(&duckling);
}

TEST(six_million_rows_are_shuffled_between_two_workers_without_a_wrong_one)
{
    check_large(6000000, PLENTY, 4);
}

TEST(a_million_rows_are_shuffled_through_files_without_a_wrong_one)
{
    check_large(1000000, 0, 16);
}
