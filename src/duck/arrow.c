/*
 * arrow.c - Arrow streams as tables.
 *
 * DuckDB makes a view for a stream, in the catalog that all connections of an instance share. So it gets a name that no
 * other stream has, and the name that was asked for becomes a temporary view upon it, which only this connection sees.
 */
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "duck/duck_internal.h"

static void write_name(struct buf *sql, const char *name)
{
    buf_char(sql, '"');
    for (const char *p = name; *p != '\0'; p++) {
        if (*p == '"') {
            buf_char(sql, '"');
        }
        buf_char(sql, *p);
    }
    buf_char(sql, '"');
}

static char *new_view_name(struct duck *duck)
{
    struct buf name = {0};
    (void)pthread_mutex_lock(&duck->mutex);
    buf_format(&name, "capstan_stream_%" PRIu64, duck->n_registered++);
    (void)pthread_mutex_unlock(&duck->mutex);
    return name.data;
}

static void release_stream(struct ArrowArrayStream *stream)
{
    if (stream->release != NULL) {
        stream->release(stream);
        stream->release = NULL;
    }
}

static void drop_view(struct duck_connection *connection, const char *what, const char *name)
{
    struct buf sql = {0};
    buf_format(&sql, "DROP %s IF EXISTS ", what);
    write_name(&sql, name);
    enum err err = duck_run(connection, sql.data, NULL);
    UNUSED(err); /* nobody could do anything about a view that cannot be dropped */
    buf_deinit(&sql);
}

static void free_table(struct duck_table *table)
{
    release_stream(&table->stream);
    mem_free(table->name);
    mem_free(table->view);
    mem_free(table);
}

/* Makes the table that the connection sees, out of DuckDB's view of the stream. */
static enum err make_visible(struct duck_connection *connection, struct duck_table *table, bool is_kept,
                             struct error *e)
{
    struct buf sql = {0};
    buf_text(&sql, is_kept ? "CREATE TEMP TABLE " : "CREATE TEMP VIEW ");
    write_name(&sql, table->name);
    buf_text(&sql, " AS SELECT * FROM memory.main.");
    write_name(&sql, table->view);
    enum err err = duck_run(connection, sql.data, e);
    buf_deinit(&sql);
    return err;
}

enum err duck_register(struct duck_connection *connection, const char *name, struct ArrowArrayStream *stream,
                       bool is_kept, struct error *e)
{
    struct duck_table *table = mem_calloc(1, sizeof(*table));
    table->name = mem_strdup(name);
    table->view = new_view_name(connection->duck);
    table->stream = *stream;
    stream->release = NULL;
    enum err err = ERR_OK;
    if (duck__api.arrow_scan(connection->connection, table->view, (duckdb_arrow_stream)&table->stream) !=
        DuckDBSuccess) {
        const char *text = table->stream.release != NULL ? table->stream.get_last_error(&table->stream) : NULL;
        err = error_set(e, ERR_INVALID, "DuckDB cannot read the Arrow stream '%s': %s", name,
                        text != NULL ? text : "its schema is refused");
    } else {
        err = make_visible(connection, table, is_kept, e);
    }
    if (err != ERR_OK) {
        drop_view(connection, "VIEW", table->view);
        free_table(table);
        return err;
    }
    if (is_kept) {
        drop_view(connection, "VIEW", table->view);
        release_stream(&table->stream);
        mem_free(table->view);
        table->view = NULL;
    }
    table->next = connection->tables;
    connection->tables = table;
    return ERR_OK;
}

void duck_unregister(struct duck_connection *connection, const char *name)
{
    struct duck_table **link = &connection->tables;
    while (*link != NULL && strcmp((*link)->name, name) != 0) {
        link = &(*link)->next;
    }
    struct duck_table *table = *link;
    if (table == NULL) {
        return;
    }
    *link = table->next;
    drop_view(connection, table->view == NULL ? "TABLE" : "VIEW", table->name);
    if (table->view != NULL) {
        drop_view(connection, "VIEW", table->view);
    }
    free_table(table);
}
