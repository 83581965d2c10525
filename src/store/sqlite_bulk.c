/*
 * Many rows by one statement. The virtual table `bulk` has as rows whatever list of items is at hand, and as columns c0,
 * c1, ... what a function makes of each item: "INSERT INTO tasks (...) SELECT c0, ... FROM bulk" writes them all. That
 * spares each row the start and the end of a statement.
 *
 * The table exists in every connection of the store and is of use only while sqlite__bulk runs a statement.
 */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "store/sqlite_internal.h"

struct bulk_table {
    sqlite3_vtab base;
    struct sqlite *s;
};

struct bulk_cursor {
    sqlite3_vtab_cursor base;
    const struct sqlite_bulk *bulk;
    struct sqlite *s;
    uint32_t at;
};

static struct bulk_cursor *cursor_of(sqlite3_vtab_cursor *base)
{
    return (struct bulk_cursor *)(void *)base;
}

static int connect(sqlite3 *db, void *context, int argc, const char *const *argv, sqlite3_vtab **out, char **out_error)
{
    UNUSED(argc);
    UNUSED(argv);
    UNUSED(out_error);
    struct buf text = {0};
    for (int i = 0; i < SQLITE_BULK_COLUMNS; i++) {
        buf_format(&text, "%sc%d", i == 0 ? "CREATE TABLE bulk (" : ", ", i);
    }
    buf_char(&text, ')');
    int rc = sqlite3_declare_vtab(db, text.data);
    buf_deinit(&text);
    if (rc == SQLITE_OK) {
        struct bulk_table *table = mem_calloc(1, sizeof *table);
        table->s = context;
        *out = &table->base;
    }
    return rc;
}

static int disconnect(sqlite3_vtab *base)
{
    mem_free(base);
    return SQLITE_OK;
}

/* There is one way to read it, from end to end. Cheap enough for it never to be the inner loop of two. */
static int choose_plan(sqlite3_vtab *base, sqlite3_index_info *info)
{
    UNUSED(base);
    info->estimatedCost = 10;
    info->estimatedRows = 10;
    return SQLITE_OK;
}

static int open_cursor(sqlite3_vtab *base, sqlite3_vtab_cursor **out)
{
    struct bulk_cursor *cursor = mem_calloc(1, sizeof *cursor);
    cursor->s = ((struct bulk_table *)(void *)base)->s;
    cursor->bulk = &cursor->s->bulk;
    *out = &cursor->base;
    return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *base)
{
    mem_free(base);
    return SQLITE_OK;
}

static int start(sqlite3_vtab_cursor *base, int number, const char *name, int argc, sqlite3_value **argv)
{
    UNUSED(number);
    UNUSED(name);
    UNUSED(argc);
    UNUSED(argv);
    cursor_of(base)->at = 0;
    return SQLITE_OK;
}

static int next(sqlite3_vtab_cursor *base)
{
    cursor_of(base)->at++;
    return SQLITE_OK;
}

static int is_at_end(sqlite3_vtab_cursor *base)
{
    const struct bulk_cursor *cursor = cursor_of(base);
    return cursor->at >= cursor->bulk->n;
}

/* SQLite would take any bytes as a text. The other stores do not, and what one takes, all take. */
static void refuse_text(sqlite3_context *context, const struct table *table, int number)
{
    char *message = sqlite3_mprintf("%s is not UTF-8", table == NULL ? "a text" : table->columns[number].name);
    sqlite3_result_error(context, message, -1);
    sqlite3_result_error_code(context, SQLITE_MISMATCH);
    sqlite3_free(message);
}

static int column(sqlite3_vtab_cursor *base, sqlite3_context *context, int number)
{
    const struct bulk_cursor *cursor = cursor_of(base);
    const struct sqlite_bulk *bulk = cursor->bulk;
    struct value value = bulk->value(bulk->items[cursor->at], (uint32_t)number, bulk->table, &cursor->s->arena);
    switch (value.type) {
    case VALUE_IS_NULL:
        sqlite3_result_null(context);
        break;
    case VALUE_IS_INT:
        sqlite3_result_int64(context, value.number);
        break;
    case VALUE_IS_TEXT:
        if (utf8_is_valid(value.bytes, value.n)) {
            sqlite3_result_text64(context, value.bytes, value.n, SQLITE_STATIC, SQLITE_UTF8);
        } else {
            refuse_text(context, bulk->table, number);
        }
        break;
    case VALUE_IS_BYTES:
        /* A null pointer would be a NULL. */
        sqlite3_result_blob64(context, value.n == 0 ? "" : value.bytes, value.n, SQLITE_STATIC);
        break;
    }
    return SQLITE_OK;
}

static int rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *out)
{
    *out = cursor_of(base)->at;
    return SQLITE_OK;
}

/* Without xCreate it exists by its name alone, and nobody can make another. */
static const sqlite3_module module = {
    .xConnect = connect,
    .xBestIndex = choose_plan,
    .xDisconnect = disconnect,
    .xOpen = open_cursor,
    .xClose = close_cursor,
    .xFilter = start,
    .xNext = next,
    .xEof = is_at_end,
    .xColumn = column,
    .xRowid = rowid,
};

int sqlite__bulk_init(struct sqlite *s)
{
    return sqlite3_create_module(s->db, "bulk", &module, s);
}

enum err sqlite__bulk_run(struct sqlite *s, const struct sqlite_bulk *bulk, sqlite3_stmt *stmt, struct error *e)
{
    s->bulk = *bulk;
    enum err err = sqlite__run(s, stmt, e);
    s->bulk = (struct sqlite_bulk){0};
    return err;
}
