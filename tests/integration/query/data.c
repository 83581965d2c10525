#define _DEFAULT_SOURCE /* mkdtemp */
#include "query/data.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "test.h"

#define TEST_PARQUET_KEY "0123456789112345" /* of secret.parquet; fallback.sql says it, too */

static struct arena arena;
static char folder[] = "/tmp/capstan-query-XXXXXX";
static struct test_data data;
static uint32_t ugly_rows = 20000;
static pid_t owner;

static void remove_folder(void)
{
    if (getpid() == owner) {
        pid_t child = fork();
        if (child == 0) {
            (void)execlp("rm", "rm", "-rf", folder, (char *)NULL);
            _exit(1);
        }
        (void)waitpid(child, NULL, 0);
        arena_deinit(&arena);
    }
}

char *test_read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    struct buf text = {0};
    char piece[4096];
    size_t n = 0;
    while ((n = fread(piece, 1, sizeof(piece), file)) > 0) {
        buf_append(&text, piece, n);
    }
    buf_text(&text, "");
    (void)fclose(file);
    char *copy = arena_strdup(&arena, text.data);
    buf_deinit(&text);
    return copy;
}

static void run(struct duck_connection *connection, const char *sql)
{
    struct error e = {0};
    enum err err = duck_run(connection, sql, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
}

static const char *generate(struct duck_connection *connection, const char *name, const char *settings)
{
    const char *path = arena_format(&arena, "%s/%s", folder, name);
    CHECK_INT(mkdir(path, 0700), 0);
    run(connection, arena_format(&arena, "SET VARIABLE folder = '%s'; %s", path, settings));
    run(connection, test_read_file(arena_format(&arena, "tests/data/generate-%s.sql", name)));
    return path;
}

/*
 * Files of which nobody can read a share, for fallback.sql: encrypted, a database, one with a column of our own, some with the
 * column of their folders; and one with a GEOMETRY and a VARIANT.
 */
static void make_odd_files(struct duck_connection *connection)
{
    const char *ugly = data.ugly;
    run(connection, "SET force_mbedtls_unsafe = true; PRAGMA add_parquet_key('key', '" TEST_PARQUET_KEY "')");
    run(connection, arena_format(&arena,
                                 "COPY (FROM dims) TO '%s/secret.parquet' (FORMAT parquet, "
                                 "ENCRYPTION_CONFIG {footer_key: 'key'})",
                                 ugly));
    run(connection,
        arena_format(&arena, "ATTACH '%s/local.duckdb' AS local; CREATE TABLE local.t AS FROM dims; DETACH local",
                     ugly));
    run(connection,
        arena_format(&arena, "COPY (SELECT k, k + 1 AS file_row_number FROM dims) TO '%s/numbered.parquet'", ugly));
    run(connection, arena_format(&arena,
                                 "COPY (SELECT cls, k FROM dims) TO '%s/by-class' (FORMAT parquet, PARTITION_BY (cls), "
                                 "WRITE_PARTITION_COLUMNS true)",
                                 ugly));
}

static void name_tables(void)
{
    static const struct {
        const char *name;
        const char *file;
        bool is_ugly;
    } names[] = {
        {"region", "region.parquet", false},     {"nation", "nation.parquet", false},
        {"supplier", "supplier.parquet", false}, {"customer", "customer.parquet", false},
        {"part", "part.parquet", false},         {"partsupp", "partsupp.parquet", false},
        {"orders", "orders-*.parquet", false},   {"lineitem", "lineitem-*.parquet", false},
        {"facts", "facts-*.parquet", true},      {"dims", "dims-*.parquet", true},
        {"none", "none.parquet", true},          {"one", "one.parquet", true},
        {"drift", "drift-*.parquet", true},
    };
    struct planner_table *tables = arena_zalloc(&arena, ARRAY_LEN(names) * sizeof(*tables));
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        tables[i].name = names[i].name;
        tables[i].source = arena_format(&arena, "%s/%s", names[i].is_ugly ? data.ugly : data.tpch, names[i].file);
    }
    data.tables = tables;
    data.n_tables = ARRAY_LEN(names);
}

void test_data_rows(uint32_t rows)
{
    CHECK(data.tables == NULL || ugly_rows == rows);
    ugly_rows = rows;
}

const struct test_data *test_data(void)
{
    if (data.tables != NULL) {
        return &data;
    }
    struct duck *duck = NULL;
    struct duck_connection *connection = NULL;
    struct error e = {0};
    owner = getpid();
    CHECK(mkdtemp(folder) != NULL);
    CHECK_INT(atexit(remove_folder), 0);
    CHECK_ERR(duck_open(&(struct duck_options){.threads = 2}, &duck, &e), ERR_OK);
    CHECK_ERR(duck_connect(duck, &connection, &e), ERR_OK);
    data.tpch = generate(connection, "tpch", "SET VARIABLE scale = 0.01; SET VARIABLE row_group = 4096;");
    data.ugly = generate(connection, "ugly", arena_format(&arena, "SET VARIABLE rows = %" PRIu32 ";", ugly_rows));
    make_odd_files(connection);
    name_tables();
    duck_disconnect(connection);
    duck_close(duck);
    return &data;
}

void test_create_views(struct duck_connection *connection)
{
    const struct test_data *known = test_data();
    for (uint32_t i = 0; i < known->n_tables; i++) {
        run(connection, arena_format(&arena, "CREATE TEMP VIEW %s AS SELECT * FROM read_parquet('%s')",
                                     known->tables[i].name, known->tables[i].source));
    }
}

/* The text with every {ugly} filled in, and without the semicolon at its end. */
static const char *fill_in(const char *sql, size_t n)
{
    struct buf text = {0};
    while (n > 0 && (sql[n - 1] == '\n' || sql[n - 1] == ';' || sql[n - 1] == ' ')) {
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        if (n - i >= 6 && strncmp(sql + i, "{ugly}", 6) == 0) {
            buf_text(&text, data.ugly);
            i += 5;
        } else {
            buf_char(&text, sql[i]);
        }
    }
    const char *copy = arena_strdup(&arena, text.data);
    buf_deinit(&text);
    return copy;
}

const char *test_fill_in(const char *sql)
{
    (void)test_data();
    return fill_in(sql, strlen(sql));
}

/* The text of "-- fails: TEXT", if that is the line; NULL if not. */
static const char *read_fails(const char *line)
{
    static const char mark[] = "-- fails: ";
    size_t n = strcspn(line, "\n");
    if (strncmp(line, mark, strlen(mark)) != 0) {
        return NULL;
    }
    return arena_format(&arena, "%.*s", (int)(n - strlen(mark)), line + strlen(mark));
}

enum table_order test_query_order(const struct test_query *query)
{
    if (query->is_volatile) {
        return query->is_counted ? COUNT_ONLY : TYPES_ONLY;
    }
    return query->is_ordered ? ORDER_MATTERS : ORDER_IS_FREE;
}

bool test_has_rows(const struct test_query *query, const struct table *result)
{
    bool is_chance = query->is_volatile && !query->is_counted;
    bool is_right = is_chance || (result->n_rows == 0) == query->is_empty;
    if (!is_right) {
        print_error("%s: %s\n", query->name,
                    query->is_empty ? "it is marked as empty, but has rows"
                                    : "it has no rows, so comparing says nothing");
    }
    return is_right;
}

/* "-- name: NAME [ordered] [volatile [counted]] [empty] [fileless]", then the query up to the next such line, before which may be "-- fails: TEXT". */
const struct test_query *test_queries(const char *file, uint32_t *out_n)
{
    static const char mark[] = "\n-- name: ";
    (void)test_data();
    const char *text = test_read_file(arena_format(&arena, "tests/data/sql/%s", file));
    struct test_query *queries = arena_alloc(&arena, 1000 * sizeof(*queries));
    uint32_t n = 0;
    for (const char *p = strstr(text, mark); p != NULL && n < 1000; n++) {
        const char *name = p + strlen(mark);
        const char *line_end = strchr(name, '\n');
        const char *next = strstr(line_end, mark);
        size_t name_n = strcspn(name, " \n");
        char *line = arena_copy(&arena, name, (size_t)(line_end - name) + 1);
        line[line_end - name] = '\0';
        queries[n] = (struct test_query){
            .is_ordered = strstr(line, " ordered") != NULL,
            .is_volatile = strstr(line, " volatile") != NULL,
            .is_counted = strstr(line, " counted") != NULL,
            .is_empty = strstr(line, " empty") != NULL,
            .is_fileless = strstr(line, " fileless") != NULL,
            .fails = read_fails(line_end + 1),
            .sql = fill_in(line_end + 1, next != NULL ? (size_t)(next - line_end - 1) : strlen(line_end + 1)),
        };
        line[name_n] = '\0';
        queries[n].name = line;
        p = next;
    }
    *out_n = n;
    return queries;
}
