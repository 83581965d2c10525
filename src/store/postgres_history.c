/*
 * Pages of history, by key: every query starts at the key where the page before ended and reads one row more than a page,
 * to know whether there is another.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "store/postgres_internal.h"

/* A query that is being put together. */
struct page_query {
    const struct table *table;
    struct buf filter; /* " AND ..." */
    struct postgres_params params;
    uint32_t limit;
};

static void page_init(struct page_query *page, enum row_kind kind, uint32_t limit)
{
    *page = (struct page_query){.table = table_of(kind), .limit = limit};
    buf_text(&page->filter, "");
}

static void page_filter_int(struct page_query *page, const char *filter, int64_t number)
{
    postgres__param_int(&page->params, number);
    buf_format(&page->filter, " AND %s $%d", filter, page->params.n);
}

static void page_filter_text(struct page_query *page, const char *filter, const char *text)
{
    postgres__param_text(&page->params, text);
    buf_format(&page->filter, " AND %s $%d", filter, page->params.n);
}

static void write_select(struct buf *sql, const struct page_query *page)
{
    buf_text(sql, "SELECT ");
    postgres__write_columns(sql, page->table, "t");
    if (page->table->kind == ROW_TASK) {
        buf_text(sql, ", (SELECT s.name FROM capstan.stages s WHERE s.job_id = t.job_id AND s.stage = t.stage)");
    }
    buf_format(sql, " FROM capstan.%s t WHERE true%s", page->table->name, page->filter.data);
}

/* The whole query. Jobs of any state are put together from one page per state, as the index has the state in front. */
static void write_query(struct buf *sql, struct page_query *page, const char *order, bool of_any_state)
{
    postgres__param_int(&page->params, (int64_t)page->limit + 1);
    int limit = page->params.n;
    if (of_any_state) {
        buf_text(sql, "SELECT * FROM (");
        for (int state = JOB_QUEUED; state <= JOB_CANCELED; state++) {
            buf_text(sql, state == JOB_QUEUED ? "(" : " UNION ALL (");
            write_select(sql, page);
            buf_format(sql, " AND t.state = %d ORDER BY %s LIMIT $%d)", state, order, limit);
        }
        buf_text(sql, ") t");
    } else {
        write_select(sql, page);
    }
    buf_format(sql, " ORDER BY %s LIMIT $%d", order, limit);
}

/* How a page is ordered and put together. */
struct page_form {
    const char *order;
    bool of_any_state;
};

/* The last column of a page of tasks. */
static const char *const *read_names(const PGresult *result, uint32_t n, struct arena *arena)
{
    const char **names = arena_alloc(arena, n * sizeof *names);
    for (uint32_t i = 0; i < n; i++) {
        names[i] = postgres__text_at(result, (int)i, PQnfields(result) - 1, arena);
    }
    return names;
}

/* Runs the query and frees it. Says whether there is more than the page has. */
static enum err page_read(struct page_query *page, struct postgres *pg, struct page_form form, struct arena *arena,
                          struct page *out, bool *out_more, struct error *e)
{
    PGresult *result = NULL;
    struct buf sql = {0};
    write_query(&sql, page, form.order, form.of_any_state);
    enum err err = postgres__begin(pg, POSTGRES_HISTORY_SILENCE_MS, true, e);
    if (err == ERR_OK) {
        err = postgres__query(pg, sql.data, &page->params, &result, e);
    }
    buf_deinit(&sql);
    buf_deinit(&page->filter);
    if (err != ERR_OK) {
        return err;
    }
    uint32_t n = (uint32_t)PQntuples(result);
    bool more = n > page->limit;
    n = more ? page->limit : n;
    const struct row **rows = arena_alloc(arena, n * sizeof *rows);
    for (uint32_t i = 0; i < n && err == ERR_OK; i++) {
        struct row *row = NULL;
        err = postgres__row_at(result, (int)i, page->table, arena, &row, e);
        rows[i] = row;
    }
    const char *const *names = page->table->kind == ROW_TASK ? read_names(result, n, arena) : NULL;
    PQclear(result);
    if (err == ERR_OK) {
        *out = (struct page){.rows = rows, .n_rows = n, .names = names};
        *out_more = more && n > 0;
    }
    return err;
}

/* Reads the number before the colon; `*rest` is what follows it. */
static bool read_place(const char *after, int64_t *out_number, const char **rest)
{
    char *end;
    if (*after != '-' && (*after < '0' || *after > '9')) {
        return false;
    }
    errno = 0;
    *out_number = strtoll(after, &end, 10);
    *rest = end + 1;
    return *end == ':' && errno == 0;
}

static enum err wrong_place(struct error *e)
{
    return error_set(e, ERR_INVALID, "this is not where a page of this list can start");
}

enum err postgres__jobs(struct store *store, const struct job_query *query, struct arena *arena, struct page *out,
                        struct error *e)
{
    struct page_query page;
    int64_t submitted_at_ms = 0;
    const char *job_id = NULL;
    bool more;
    if (query->after != NULL && !read_place(query->after, &submitted_at_ms, &job_id)) {
        return wrong_place(e);
    }
    page_init(&page, ROW_JOB, query->limit);
    buf_text(&page.filter, " AND t.kind >= 0"); /* else its removal has begun */
    if (query->state >= 0) {
        page_filter_int(&page, "t.state =", query->state);
    }
    if (query->name != NULL) {
        page_filter_text(&page, "t.name =", query->name);
    }
    if (query->after != NULL) {
        postgres__param_int(&page.params, submitted_at_ms);
        postgres__param_text(&page.params, job_id);
        buf_format(&page.filter, " AND (t.submitted_at_ms, t.job_id) < ($%d, $%d)", page.params.n - 1, page.params.n);
    }
    struct page_form form = {"t.submitted_at_ms DESC, t.job_id DESC", query->state < 0};
    enum err err = page_read(&page, postgres__of(store), form, arena, out, &more, e);
    if (err == ERR_OK && more) {
        const struct row_job *last = (const struct row_job *)(const void *)out->rows[out->n_rows - 1];
        out->next = arena_format(arena, "%" PRId64 ":%s", last->submitted_at_ms, last->job_id);
    }
    return err;
}

enum err postgres__tasks(struct store *store, const struct task_query *query, struct arena *arena, struct page *out,
                         struct error *e)
{
    struct page_query page;
    int64_t stage = 0;
    int64_t task = 0;
    const char *rest = NULL;
    bool more;
    if (query->after != NULL) {
        char *end = NULL;
        if (!read_place(query->after, &stage, &rest) || *rest < '0' || *rest > '9') {
            return wrong_place(e);
        }
        errno = 0;
        task = strtoll(rest, &end, 10);
        if (*end != '\0' || errno != 0) {
            return wrong_place(e);
        }
    }
    page_init(&page, ROW_TASK, query->limit);
    page_filter_text(&page, "t.job_id =", query->job_id);
    if (query->state >= 0) {
        page_filter_int(&page, "t.state =", query->state);
    }
    if (query->after != NULL) {
        postgres__param_int(&page.params, stage);
        postgres__param_int(&page.params, task);
        buf_format(&page.filter, " AND (t.stage, t.task) > ($%d, $%d)", page.params.n - 1, page.params.n);
    }
    enum err err =
        page_read(&page, postgres__of(store), (struct page_form){"t.stage, t.task", false}, arena, out, &more, e);
    if (err == ERR_OK && more) {
        const struct row_task *last = (const struct row_task *)(const void *)out->rows[out->n_rows - 1];
        out->next = arena_format(arena, "%u:%u", last->ref.stage, last->ref.task);
    }
    return err;
}

/* Asked for after the page, so that a gap in the page that pruning left is never overlooked. */
static enum err read_pruned(struct postgres *pg, uint64_t *out, struct error *e)
{
    PGresult *result = NULL;
    enum err err = postgres__query(pg, "SELECT min(seq) FROM capstan.task_events", NULL, &result, e);
    if (err == ERR_OK) {
        int64_t first = postgres__int_at(result, 0, 0);
        *out = first == 0 ? 0 : (uint64_t)first - 1;
        PQclear(result);
    }
    return err;
}

enum err postgres__events(struct store *store, const struct event_query *query, struct arena *arena, struct page *out,
                          uint64_t *out_pruned_seq, struct error *e)
{
    struct postgres *pg = postgres__of(store);
    struct page_query page;
    struct page found;
    uint64_t pruned_seq;
    bool more;
    page_init(&page, ROW_EVENT, query->limit);
    /* Numbers end where the column's type does. */
    page_filter_int(&page, "t.seq >", query->after_seq > INT64_MAX ? INT64_MAX : (int64_t)query->after_seq);
    if (query->job_id != NULL) {
        page_filter_text(&page, "t.job_id =", query->job_id);
    }
    enum err err = page_read(&page, pg, (struct page_form){"t.seq", false}, arena, &found, &more, e);
    if (err == ERR_OK) {
        err = read_pruned(pg, &pruned_seq, e);
    }
    if (err != ERR_OK) {
        return err;
    }
    if (more) {
        const struct row_event *last = (const struct row_event *)(const void *)found.rows[found.n_rows - 1];
        found.next = arena_format(arena, "%" PRIu64, last->seq);
    }
    *out = found;
    *out_pruned_seq = pruned_seq;
    return ERR_OK;
}
