/*
 * planner_views.c - named data sets as views of the planner's DuckDB.
 *
 * Making a view opens the files behind it, so a view stays when its query is planned: the next query that names the data
 * set finds it. A view goes when a request no longer has its data set, or has it with another source. If the columns of
 * the files have changed since, DuckDB says so when it binds the view; then all are made anew (planner__forget_views).
 *
 * Views of stand-ins last for one query only, as the stand-ins do.
 */
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "duck/excerpt.h"
#include "query/plan_read.h"
#include "query/plan_sql.h"
#include "query/planner_internal.h"
#include "query/sql_text.h"

struct planner_view {
    char *name;
    char *source; /* the FROM item */
    bool is_kept; /* after this query */
};

static void note_table(void *context, const char *name)
{
    struct planning *p = context;
    for (uint32_t i = 0; i < p->n_tables; i++) {
        p->is_used[i] = p->is_used[i] || name == NULL || strcasecmp(p->tables[i].name, name) == 0;
    }
}

enum err planner__write_source(struct buf *sql, const struct planner_table *table, bool *out_has_stand_in,
                               struct error *e)
{
    static const struct {
        const char *name;
        const char *function;
    } formats[] = {
        [SOURCE_PARQUET] = {"parquet", "read_parquet"},
        [SOURCE_CSV] = {"csv", "read_csv"},
        [SOURCE_JSON] = {"json", "read_json"},
    };
    enum source_format format = SOURCE_PARQUET;
    if (table->format == NULL || table->format[0] == '\0') {
        (void)plan_sql_format(table->source, &format);
    } else {
        size_t i = 0;
        while (i < ARRAY_LEN(formats) && strcmp(formats[i].name, table->format) != 0) {
            i++;
        }
        if (i == ARRAY_LEN(formats)) {
            return error_set(e, ERR_INVALID, "the data set '%s' has the unknown format '%s'", table->name,
                             table->format);
        }
        format = (enum source_format)i;
    }
    buf_format(sql, "%s(", formats[format].function);
    sql_write_text(sql, table->source, strlen(table->source));
    buf_char(sql, ')');
    *out_has_stand_in = format != SOURCE_PARQUET;
    return ERR_OK;
}

static void drop_view(struct planner *planner, uint32_t i)
{
    struct planner_view *view = &planner->views[i];
    struct buf sql = {0};
    buf_text(&sql, "DROP VIEW IF EXISTS memory.main.");
    sql_write_name(&sql, view->name);
    enum err err = duck_run(planner->connection, sql.data, NULL);
    UNUSED(err); /* the next query that uses the name replaces the view */
    buf_deinit(&sql);
    mem_free(view->name);
    mem_free(view->source);
    planner->views[i] = planner->views[--planner->n_views];
}

/*
 * Whether the view is that of a data set of the request: its name must mean nothing to others, nor something else to this
 * one, by whatever way a statement may come to it.
 */
static bool is_asked_for(const struct planning *p, const struct planner_view *view)
{
    bool is_asked_for = false;
    for (uint32_t i = 0; !is_asked_for && i < p->n_tables; i++) {
        struct buf source = {0};
        bool has_stand_in = false;
        is_asked_for = strcasecmp(p->tables[i].name, view->name) == 0 &&
                       planner__write_source(&source, &p->tables[i], &has_stand_in, NULL) == ERR_OK &&
                       source.data != NULL && strcmp(source.data, view->source) == 0;
        buf_deinit(&source);
    }
    return is_asked_for;
}

/* The view of that name, if it is there. */
static const struct planner_view *find_view(const struct planner *planner, const char *name)
{
    for (uint32_t i = 0; i < planner->n_views; i++) {
        if (strcasecmp(planner->views[i].name, name) == 0) {
            return &planner->views[i];
        }
    }
    return NULL;
}

static enum err make_view(struct planning *p, const char *name, const struct buf *source, bool has_stand_in,
                          struct error *e)
{
    struct planner *planner = p->planner;
    struct buf sql = {0};
    buf_text(&sql, "CREATE OR REPLACE VIEW memory.main.");
    sql_write_name(&sql, name);
    buf_text(&sql, " AS SELECT * FROM ");
    if (has_stand_in) {
        buf_text(&sql, PLAN_STAND_IN "(");
        sql_write_text(&sql, source->data, source->n);
        buf_char(&sql, ')');
    } else {
        buf_text(&sql, source->data);
    }
    enum err err = duck_run(planner->connection, sql.data, e);
    duck_excerpt_drop(e); /* of the view's own statement */
    if (err == ERR_OK) {
        planner->views = mem_grow(planner->views, &planner->cap_views, planner->n_views + 1, sizeof *planner->views);
        planner->views[planner->n_views++] = (struct planner_view){
            .name = mem_strdup(name), .source = mem_strdup(source->data), .is_kept = !has_stand_in};
    }
    buf_deinit(&sql);
    return err;
}

static enum err create_view(struct planning *p, const struct planner_table *table, struct error *e)
{
    struct planner *planner = p->planner;
    struct buf source = {0};
    bool has_stand_in = false;
    enum err err = planner__write_source(&source, table, &has_stand_in, e);
    const struct planner_view *view = err == ERR_OK ? find_view(planner, table->name) : NULL;
    if (view != NULL && source.data != NULL && strcmp(view->source, source.data) == 0) {
        p->has_old_views = p->has_old_views || view->is_kept;
        buf_deinit(&source);
        return ERR_OK;
    }
    if (view != NULL) {
        drop_view(planner, (uint32_t)(view - planner->views));
    }
    if (err == ERR_OK && has_stand_in) {
        err = duck_add_source(planner->connection, source.data, source.data, STAND_IN_ROWS, e);
    }
    if (err == ERR_OK) {
        err = make_view(p, table->name, &source, has_stand_in, e);
    }
    buf_deinit(&source);
    return err;
}

enum err planner__create_views(struct planning *p, struct error *e)
{
    struct planner *planner = p->planner;
    enum err err = ERR_OK;
    for (uint32_t i = planner->n_views; i-- > 0;) {
        if (!is_asked_for(p, &planner->views[i])) {
            drop_view(planner, i);
        }
    }
    plan_sql_tables(p->parsed, note_table, p);
    for (uint32_t i = 0; err == ERR_OK && i < p->n_tables; i++) {
        if (p->is_used[i]) {
            err = create_view(p, &p->tables[i], e);
        }
    }
    return err;
}

void planner__drop_views(struct planner *planner)
{
    for (uint32_t i = planner->n_views; i-- > 0;) {
        if (!planner->views[i].is_kept) {
            drop_view(planner, i);
        }
    }
}

void planner__forget_views(struct planner *planner)
{
    while (planner->n_views > 0) {
        drop_view(planner, planner->n_views - 1);
    }
}
