#include "main/tpch.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/random.h"
#include "base/sha256.h"
#include "duck/duck.h"
#include "main/folder.h"
#include "query/plan.h"

#define ROW_GROUP_ROWS 122880
#define QUERIES_MAX 64
#define MAKING_THREADS 2
#define MARK "made-by" /* a file in the folder: the digest of the generator */

const struct tpch_table tpch_tables[TPCH_TABLES] = {
    {"region", "region.parquet"},   {"nation", "nation.parquet"},       {"supplier", "supplier.parquet"},
    {"part", "part.parquet"},       {"customer", "customer.parquet"},   {"partsupp", "partsupp.parquet"},
    {"orders", "orders-*.parquet"}, {"lineitem", "lineitem-*.parquet"},
};

/* ---- queries ---- */

/* "-- name: NAME [ordered]", then the query up to the next such line. */
uint32_t tpch_queries(struct arena *arena, struct tpch_query **out_queries)
{
    static const char mark[] = "\n-- name: ";
    struct tpch_query *queries = arena_alloc(arena, QUERIES_MAX * sizeof *queries);
    uint32_t n = 0;
    for (const char *p = strstr(tpch_queries_text, mark); p != NULL && n < QUERIES_MAX; n++) {
        const char *name = p + strlen(mark);
        const char *sql = strchr(name, '\n') + 1;
        const char *next = strstr(sql - 1, mark);
        const char *end = next != NULL ? next : sql + strlen(sql);
        while (end > sql && strchr("\n; ", end[-1]) != NULL) {
            end--;
        }
        queries[n] = (struct tpch_query){.name = arena_format(arena, "%.*s", (int)strcspn(name, " \n"), name),
                                         .sql = arena_format(arena, "%.*s", (int)(end - sql), sql)};
        p = next;
    }
    *out_queries = queries;
    return n;
}

/* ---- data ---- */

static void digest(char out[2 * SHA256_BYTES + 1])
{
    uint8_t bytes[SHA256_BYTES];
    sha256_once(tpch_generator, strlen(tpch_generator), bytes);
    hex_encode(bytes, sizeof bytes, out);
}

/* Whether the folder is whole. ERR_PRECONDITION if it is not what would be made now. */
static enum err is_made(const char *folder, struct arena *arena, bool *out_made, struct error *e)
{
    char mine[2 * SHA256_BYTES + 1];
    char theirs[2 * SHA256_BYTES + 1] = "";
    FILE *file = NULL;
    *out_made = access(folder, F_OK) == 0;
    if (!*out_made) {
        return ERR_OK;
    }
    digest(mine);
    file = fopen(arena_format(arena, "%s/" MARK, folder), "re");
    bool is_read = file != NULL && fgets(theirs, sizeof theirs, file) != NULL;
    if (file != NULL) {
        (void)fclose(file);
    }
    if (is_read && strcmp(mine, theirs) == 0) {
        return ERR_OK;
    }
    error_set(e, ERR_PRECONDITION, "%s was not made by this version's generator", folder);
    error_hint(e, "remove it, or choose another folder with --data");
    return ERR_PRECONDITION;
}

static enum err leave_mark(const char *folder, struct arena *arena, struct error *e)
{
    char text[2 * SHA256_BYTES + 1];
    const char *path = arena_format(arena, "%s/" MARK, folder);
    FILE *file = fopen(path, "we");
    digest(text);
    bool is_written = file != NULL && fputs(text, file) >= 0;
    if (file != NULL && fclose(file) != 0) {
        is_written = false;
    }
    return is_written ? ERR_OK : error_set(e, ERR_UNAVAILABLE, "cannot write %s", path);
}

static enum err generate(const char *folder, double scale, struct error *e)
{
    struct duck_options options = {.threads = MAKING_THREADS, .temp_folder = folder};
    struct duck *duck = NULL;
    struct duck_connection *connection = NULL;
    struct buf sql = {0};
    buf_text(&sql, "SET VARIABLE folder = ");
    sql_write_text(&sql, folder, strlen(folder));
    buf_format(&sql, "; SET VARIABLE scale = %.6f; SET VARIABLE row_group = %d;", scale, ROW_GROUP_ROWS);
    enum err err = duck_open(&options, &duck, e);
    if (err == ERR_OK) {
        err = duck_connect(duck, &connection, e);
    }
    if (err == ERR_OK) {
        err = duck_run(connection, sql.data, e);
    }
    if (err == ERR_OK) {
        err = duck_run(connection, tpch_generator, e);
    }
    duck_disconnect(connection);
    duck_close(duck);
    buf_deinit(&sql);
    return err;
}

/* It is made under another name and gets its own when it is whole, so that what is there can be relied on. */
enum err tpch_make(const char *folder, double scale, struct arena *arena, const char **out_folder, struct error *e)
{
    char unique[UUID_TEXT_BYTES];
    const char *path = arena_format(arena, "%s/tpch-%g", folder, scale);
    bool is_there = false;
    enum err err = is_made(path, arena, &is_there, e);
    *out_folder = path;
    if (err != ERR_OK || is_there) {
        return err;
    }
    random_uuid7(unique);
    const char *making = arena_format(arena, "%s.%s", path, unique);
    err = folder_make(making, e);
    if (err == ERR_OK) {
        err = generate(making, scale, e);
    }
    if (err == ERR_OK) {
        err = leave_mark(making, arena, e);
    }
    if (err == ERR_OK && rename(making, path) != 0) {
        err = error_set(e, ERR_UNAVAILABLE, "cannot rename %s to %s", making, path);
    }
    if (err != ERR_OK) {
        folder_remove(making);
    }
    return err;
}

enum err tpch_create_views(struct duck_connection *connection, const char *folder, struct error *e)
{
    struct arena arena = {0};
    struct buf sql = {0};
    for (uint32_t i = 0; i < TPCH_TABLES; i++) {
        const char *files = arena_format(&arena, "%s/%s", folder, tpch_tables[i].files);
        buf_format(&sql, "CREATE VIEW %s AS FROM read_parquet(", tpch_tables[i].name);
        sql_write_text(&sql, files, strlen(files));
        buf_text(&sql, ");\n");
    }
    enum err err = duck_run(connection, sql.data, e);
    buf_deinit(&sql);
    arena_deinit(&arena);
    return err;
}
