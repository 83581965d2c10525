/*
 * independent_test.c - what is written here is Arrow: apache-arrow, in JavaScript, reads it. read.mjs knows the values.
 */
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "duck/duck.h"
#include "exchange/schema.h"
#include "integration/exchange/sql.h"
#include "test.h"
#include "unit/exchange/folder.h"

extern char **environ;

static const char *const query =
    "select i,"
    " case when i % 7 = 0 then null else i % 2 = 0 end as c_bool,"
    " case when i % 5 = 0 then null else (i % 100 - 50)::tinyint end as c_tinyint,"
    " (i % 65535)::usmallint as c_usmallint, (i * 3)::integer as c_integer,"
    " ('18446744073709551615'::ubigint - i::ubigint) as c_ubigint, i::float as c_float, i::double / 8 as c_double,"
    " i::decimal(18, 3) as c_decimal,"
    " case when i % 3 = 0 then null else 'täxt ' || i end as c_varchar, encode('blob' || i) as c_blob,"
    " date '1970-01-01' + i::int as c_date,"
    " (timestamp '2020-01-01' + to_seconds(i))::timestamptz as c_timestamptz,"
    " (['sad', 'ok', 'happy'])[1 + i % 3]::enum('sad', 'ok', 'happy') as c_enum,"
    " case when i % 11 = 0 then null else range(i % 5) end as c_list,"
    " {'a': i, 'b': case when i % 2 = 0 then 'x' || i end} as c_struct,"
    " case when i % 4 = 0 then null else map {'k' || i: i} end as c_map,"
    " [i, null, i + 2]::bigint[3] as c_array, null as c_null,"
    " ('00000000-0000-0000-0000-' || lpad(i::varchar, 12, '0'))::uuid as c_uuid"
    " from range(100000) t(i)";

/* A union of int32 and large text for "+us", and plain columns for the rest, named as their formats. */
static void generate_columns(const char *const *formats, uint32_t n, struct ArrowSchema *out)
{
    static const char *const members[] = {"i", "U"};
    struct schema_parts root = {.format = mem_strdup("+s"), .name = mem_strdup(""), .n_children = n};
    schema_make(out, &root);
    for (uint32_t i = 0; i < n; i++) {
        bool is_union = formats[i][0] == '+';
        struct schema_parts parts = {.format = mem_strdup(formats[i]),
                                     .name = mem_strdup(formats[i]),
                                     .flags = ARROW_FLAG_NULLABLE,
                                     .n_children = is_union ? 2 : 0};
        schema_make(out->children[i], &parts);
        for (uint32_t k = 0; k < 2 && is_union; k++) {
            struct schema_parts member = {.format = mem_strdup(members[k]), .name = mem_strdup(members[k])};
            schema_make(out->children[i]->children[k], &member);
        }
    }
}

/* A partition of the store as a file. */
static void write_file(struct folder *folder, const struct exchange_key *key, const struct ipc_tally *tally,
                       const char *path)
{
    struct exchange_reader *reader = NULL;
    struct error e = {0};
    size_t n = 0;
    uint8_t *bytes = mem_alloc((size_t)tally->bytes);
    CHECK_ERR(exchange_reader_open(folder->store, key, 0, 0, &reader, &e), ERR_OK);
    CHECK_ERR(exchange_reader_read(reader, true, bytes, (size_t)tally->bytes, &n, &e), ERR_OK);
    exchange_reader_close(reader);
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    CHECK_UINT(fwrite(bytes, 1, n, file), tally->bytes);
    fclose(file);
    mem_free(bytes);
}

static void write_stream(struct folder *folder, uint32_t task, bool is_compressed)
{
    struct duck *duck = NULL;
    struct duck_connection *connection = NULL;
    struct ipc_tally tally;
    struct error e = {0};
    struct duck_options duck_options = {.threads = 1};
    CHECK_ERR(duck_open(&duck_options, &duck, &e), ERR_OK);
    CHECK_ERR(duck_connect(duck, &connection, &e), ERR_OK);
    CHECK_ERR(duck_run(connection, "set timezone = 'UTC'", &e), ERR_OK);
    struct exchange_writer_options options = {.store = folder->store,
                                              .key = folder_key("job", task, 1),
                                              .kind = EXCHANGE_KIND_RESULT,
                                              .scatter = {.mode = SCATTER_ONE,
                                                          .n_partitions = 1,
                                                          .bytes_max = (size_t)1 << 30,
                                                          .held_bytes_max = (size_t)1 << 30},
                                              .is_compressed = is_compressed};
    enum err err = sql_write(connection, query, &options, &tally, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
    CHECK_UINT(tally.rows, 100000);
    duck_disconnect(connection);
    duck_close(duck);
}

/* Layouts that DuckDB does not make, or not as it is set here: bits, nulls, 64-bit offsets, fixed bytes, unions. */
static void write_others(struct folder *folder, uint32_t task)
{
    static const char *const formats[] = {"b", "n", "U", "w:3", "+us:0,1", "tin"};
    static uint8_t bits[125], fixed[3000], types[1000], validity[125];
    static int64_t offsets[1001];
    static int32_t numbers[1000], parts[1000][4];
    static char text[4000];
    struct ArrowSchema schema;
    struct ArrowArray columns[6] = {{0}};
    struct ArrowArray members[2] = {{0}};
    struct ArrowArray *children[6];
    struct ArrowArray *union_children[] = {&members[0], &members[1]};
    const void *none[] = {NULL};
    const void *buffers[6][3] = {{NULL, bits},      {NULL},  {NULL, offsets, text},
                                 {validity, fixed}, {types}, {NULL, parts}};
    const void *member_buffers[2][3] = {{NULL, numbers}, {NULL, offsets, text}};
    for (int i = 0; i < 1000; i++) {
        bits[i / 8] = (uint8_t)(bits[i / 8] | (i % 3 == 0) << (i % 8));
        validity[i / 8] = (uint8_t)(validity[i / 8] | (i % 5 != 0) << (i % 8));
        memset(fixed + 3 * (size_t)i, i % 256, 3);
        types[i] = (uint8_t)(i % 2);
        numbers[i] = i * 10;
        parts[i][0] = i;
        parts[i][1] = i + 1;
        parts[i][2] = i + 2; /* the low half of the nanoseconds */
        offsets[i + 1] = offsets[i] + i % 4;
        memset(text + offsets[i], 'a' + i % 26, (size_t)(i % 4));
    }
    generate_columns(formats, 6, &schema);
    for (int i = 0; i < 6; i++) {
        columns[i] = (struct ArrowArray){.length = 1000, .buffers = buffers[i], .n_buffers = 2};
        children[i] = &columns[i];
    }
    columns[1].n_buffers = 0;
    columns[1].null_count = 1000;
    columns[2].n_buffers = 3;
    columns[3].null_count = 200;
    columns[4].n_buffers = 1;
    columns[4].n_children = 2;
    columns[4].children = union_children;
    for (int i = 0; i < 2; i++) {
        members[i] = (struct ArrowArray){.length = 1000, .buffers = member_buffers[i], .n_buffers = 2 + i};
    }
    struct ArrowArray batch = {.length = 1000, .n_buffers = 1, .buffers = none, .n_children = 6, .children = children};
    struct ipc_tally tally;
    struct exchange_writer *writer = NULL;
    struct error e = {0};
    struct exchange_writer_options options = {.store = folder->store,
                                              .key = folder_key("others", task, 1),
                                              .scatter = {.mode = SCATTER_ONE, .n_partitions = 1}};
    CHECK_ERR(exchange_writer_open(&options, &schema, &writer, &e), ERR_OK);
    CHECK_ERR(exchange_writer_append(writer, &batch, &e), ERR_OK);
    CHECK_ERR(exchange_writer_finish(writer, &tally, &e), ERR_OK);
    exchange_writer_close(writer);
    schema.release(&schema);
    char path[200];
    snprintf(path, sizeof(path), "%s/others.arrows", folder->results);
    write_file(folder, &options.key, &tally, path);
}

TEST(apache_arrow_reads_what_is_written_plain_and_compressed)
{
    struct folder folder;
    char plain[200];
    char packed[200];
    char others[200];
    int status = 0;
    folder_open(&folder, 0);
    write_stream(&folder, 0, false);
    write_stream(&folder, 1, true);
    write_others(&folder, 2);
    snprintf(plain, sizeof(plain), "%s/job.1.0.1.arrows", folder.results);
    snprintf(packed, sizeof(packed), "%s/job.1.1.1.arrows", folder.results);
    snprintf(others, sizeof(others), "%s/others.arrows", folder.results);
    /* Not a fork, for which DuckDB's allocator takes more locks than the thread sanitizer can count. */
    char *const arguments[] = {"read.sh", plain, packed, others, NULL};
    pid_t child = 0;
    CHECK_INT(posix_spawn(&child, "tests/integration/exchange/read.sh", NULL, NULL, arguments, environ), 0);
    CHECK_INT(waitpid(child, &status, 0), child);
    folder_close(&folder);
    CHECK_INT(status, 0); /* read.sh has said what is wrong */
}
