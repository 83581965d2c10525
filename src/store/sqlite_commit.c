/*
 * A batch: one transaction, the fence first, then what the batch says about each row (net.h): new rows of a table by one
 * statement, changed ones by one each. This is the path that decides how many tasks per second the store can take.
 *
 * Rows of one job go one after the other, and jobs in the order of their ids, for so they lie in the tables: what a
 * batch has to say about hundreds of jobs then touches each page once, while the processor still has it at hand.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "store/sqlite_internal.h"

static struct value text_value(const char *text)
{
    return text == NULL ? (struct value){.type = VALUE_IS_NULL}
                        : (struct value){.type = VALUE_IS_TEXT, .bytes = text, .n = strlen(text)};
}

static struct value int_value(int64_t number)
{
    return (struct value){.type = VALUE_IS_INT, .number = number};
}

static struct value bytes_value(const void *bytes, size_t n)
{
    return (struct value){.type = VALUE_IS_BYTES, .bytes = bytes, .n = n};
}

/* ---- lists of what is to be done ---- */

static void list_add(struct sqlite_list *list, const void *item)
{
    list->items = mem_grow(list->items, &list->cap, list->n + 1, sizeof *list->items);
    list->items[list->n++] = item;
}

void sqlite__free_lists(struct sqlite *s)
{
    for (size_t kind = 0; kind < ROW_META; kind++) {
        for (size_t deed = 0; deed < SQLITE_DEEDS; deed++) {
            mem_free(s->lists[kind][deed].items);
        }
    }
    mem_free(s->list.items);
    net_deinit(&s->net);
}

static void add_cell(struct sqlite *s, const struct net_cell *cell)
{
    if (cell->is_gone) {
        list_add(&s->lists[cell->kind][ROWS_GONE], cell);
    } else if (cell->changes != NULL) {
        list_add(&s->lists[cell->kind][cell->fixed != NULL ? ROWS_NEW : ROWS_CHANGED], cell);
    }
}

static int compare_owners(const void *a, const void *b)
{
    const struct net_owner *x = *(const void *const *)a, *y = *(const void *const *)b;
    return strcmp(x->name, y->name);
}

static void fill_lists(struct sqlite *s)
{
    for (size_t kind = 0; kind < ROW_META; kind++) {
        for (size_t deed = 0; deed < SQLITE_DEEDS; deed++) {
            s->lists[kind][deed].n = 0;
        }
    }
    s->list.n = 0;
    for (const struct net_owner *owner = s->net.owners; owner != NULL; owner = owner->next) {
        list_add(&s->list, owner);
    }
    if (s->list.n > 1) {
        qsort(s->list.items, s->list.n, sizeof *s->list.items, compare_owners);
    }
    for (uint32_t i = 0; i < s->list.n; i++) {
        const struct net_owner *owner = s->list.items[i];
        for (const struct net_cell *cell = owner->cells; cell != NULL; cell = cell->next_of_owner) {
            add_cell(s, cell);
        }
    }
    for (const struct net_cell *cell = s->net.kinds[ROW_EVENT].first; cell != NULL; cell = cell->next) {
        add_cell(s, cell);
    }
}

/* ---- rows ---- */

static struct value gone_value(const void *item, uint32_t column, const struct table *table, struct arena *arena)
{
    const struct net_cell *cell = item;
    UNUSED(table);
    UNUSED(arena);
    return column == 0 ? text_value(cell->owner->name) : int_value(cell->key[column - 1]);
}

static struct value row_value(const void *item, uint32_t column, const struct table *table, struct arena *arena)
{
    const struct net_cell *cell = item;
    const struct column *described = &table->columns[column];
    return table_get(described->role == ROLE_FIXED ? cell->fixed : cell->changes, described, arena);
}

static enum err put_list(struct sqlite *s, const struct table *table, enum sqlite_deed deed,
                         const struct sqlite_list *list, struct error *e)
{
    sqlite3_stmt *stmt;
    struct sqlite_bulk bulk = {list->items, list->n, deed == ROWS_GONE ? gone_value : row_value, table};
    enum err err = sqlite__row_statement(s, table, deed, &stmt, e);
    return err != ERR_OK ? err : sqlite__bulk_run(s, &bulk, stmt, e);
}

static void bind_value(sqlite3_stmt *stmt, int at, struct value value)
{
    switch (value.type) {
    case VALUE_IS_NULL:
        sqlite3_bind_null(stmt, at);
        break;
    case VALUE_IS_INT:
        sqlite3_bind_int64(stmt, at, value.number);
        break;
    case VALUE_IS_TEXT:
        sqlite3_bind_text64(stmt, at, value.bytes, value.n, SQLITE_STATIC, SQLITE_UTF8);
        break;
    case VALUE_IS_BYTES:
        sqlite3_bind_blob64(stmt, at, value.bytes, value.n, SQLITE_STATIC);
        break;
    }
}

static enum err put_changed(struct sqlite *s, const struct table *table, const struct sqlite_list *list,
                            struct error *e)
{
    sqlite3_stmt *stmt;
    enum err err = sqlite__row_statement(s, table, ROWS_CHANGED, &stmt, e);
    for (uint32_t i = 0; i < list->n && err == ERR_OK; i++) {
        const struct net_cell *cell = list->items[i];
        for (uint32_t c = 0; c < table->n_columns; c++) {
            const struct column *column = &table->columns[c];
            if (column->role == ROLE_FIXED) {
                continue;
            }
            struct value value = table_get(cell->changes, column, &s->arena);
            if (value.type == VALUE_IS_TEXT && !utf8_is_valid(value.bytes, value.n)) {
                return error_set(e, ERR_INVALID, "%s is not UTF-8", column->name);
            }
            bind_value(stmt, (int)c + 1, value);
        }
        err = sqlite__run(s, stmt, e);
    }
    return err;
}

/*
 * A new job may come in the place of an old one of its id that is being removed, and is not written then. What is left of
 * the old one goes now, so that its id is free.
 */
static enum err put_jobs_carefully(struct sqlite *s, const struct sqlite_list *list, struct error *e)
{
    const struct table *table = s->tables[ROW_JOB];
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < list->n && err == ERR_OK; i++) {
        const struct net_cell *cell = list->items[i];
        const struct sqlite_list one = {&list->items[i], 1, 1};
        err = put_list(s, table, ROWS_NEW_OR_NOT, &one, e);
        if (err == ERR_OK && sqlite3_changes64(s->db) == 0) {
            err = sqlite__remove_job(s, cell->owner->name, e);
            err = err == ERR_OK ? put_list(s, table, ROWS_NEW_OR_NOT, &one, e) : err;
        }
    }
    return err;
}

static enum err put_new(struct sqlite *s, enum row_kind kind, bool is_careful, struct error *e)
{
    const struct sqlite_list *list = &s->lists[kind][ROWS_NEW];
    if (kind == ROW_JOB && is_careful) {
        return put_jobs_carefully(s, list, e);
    }
    /* Nodes come again and again, and say nothing about being new. */
    return put_list(s, s->tables[kind], is_careful || kind == ROW_NODE ? ROWS_NEW_OR_NOT : ROWS_NEW, list, e);
}

static enum err put_rows(struct sqlite *s, bool is_careful, struct error *e)
{
    static const enum row_kind order[] = {ROW_JOB,    ROW_STAGE, ROW_TASK,    ROW_LEASE, ROW_MAP_OUTPUT,
                                          ROW_RESULT, ROW_NODE,  ROW_ATTEMPT, ROW_EVENT};
    enum err err = ERR_OK;
    for (size_t i = 0; i < ARRAY_LEN(order) && err == ERR_OK; i++) {
        enum row_kind kind = order[i];
        const struct sqlite_list *lists = s->lists[kind];
        if (lists[ROWS_GONE].n > 0) {
            err = put_list(s, s->tables[kind], ROWS_GONE, &lists[ROWS_GONE], e);
        }
        if (err == ERR_OK && lists[ROWS_NEW].n > 0) {
            err = put_new(s, kind, is_careful, e);
        }
        if (err == ERR_OK && lists[ROWS_CHANGED].n > 0) {
            err = put_changed(s, s->tables[kind], &lists[ROWS_CHANGED], e);
        }
    }
    return err;
}

static enum err sweep(struct sqlite *s, const struct net_owner *job, struct error *e)
{
    static const enum sqlite_statement steps[] = {SQL_SWEEP_TASKS, SQL_SWEEP_LEASES, SQL_SWEEP_MAP_OUTPUTS,
                                                  SQL_SWEEP_ATTEMPTS};
    enum err err = ERR_OK;
    for (size_t i = 0; i < ARRAY_LEN(steps) && err == ERR_OK; i++) {
        sqlite3_stmt *stmt;
        err = sqlite__statement(s, steps[i], &stmt, e);
        if (err == ERR_OK) {
            sqlite__bind_text(stmt, 1, job->name);
            if (sqlite3_bind_parameter_count(stmt) > 1) {
                sqlite3_bind_int64(stmt, 2, job->swept_at_ms);
            }
            err = sqlite__run(s, stmt, e);
        }
    }
    return err;
}

static enum err put_sweeps(struct sqlite *s, struct error *e)
{
    enum err err = ERR_OK;
    for (const struct net_owner *job = s->net.swept; job != NULL && err == ERR_OK; job = job->next_swept) {
        err = sweep(s, job, e);
    }
    return err;
}

/* By task and token, which no single statement for all of them finds by the key alone. */
static enum err put_leases_gone(struct sqlite *s, struct error *e)
{
    sqlite3_stmt *stmt;
    enum err err = sqlite__statement(s, SQL_LEASE_GONE, &stmt, e);
    for (const struct net_lease_gone *gone = s->net.leases_gone; gone != NULL && err == ERR_OK; gone = gone->next) {
        sqlite__bind_text(stmt, 1, gone->row->ref.job_id);
        sqlite3_bind_int64(stmt, 2, gone->row->ref.stage);
        sqlite3_bind_int64(stmt, 3, gone->row->ref.task);
        sqlite__bind_token(stmt, 4, &gone->row->token);
        err = sqlite__run(s, stmt, e);
    }
    return err;
}

/* ---- everything else ---- */

static struct value payload_value(const void *item, uint32_t column, const struct table *table, struct arena *arena)
{
    const struct payload *payload = item;
    UNUSED(table);
    UNUSED(arena);
    switch (column) {
    case 0:
        return text_value(payload->job_id);
    case 1:
        return bytes_value(payload->digest.bytes, sizeof payload->digest.bytes);
    default:
        return bytes_value(payload->bytes, payload->n_bytes);
    }
}

static enum err put_payloads(struct sqlite *s, const struct batch *batch, struct error *e)
{
    sqlite3_stmt *stmt;
    s->list.n = 0;
    for (uint32_t i = 0; i < batch->n_payloads; i++) {
        list_add(&s->list, &batch->payloads[i]);
    }
    struct sqlite_bulk bulk = {s->list.items, s->list.n, payload_value, NULL};
    enum err err = bulk.n == 0 ? ERR_OK : sqlite__statement(s, SQL_PAYLOAD_PUT, &stmt, e);
    return bulk.n == 0 || err != ERR_OK ? err : sqlite__bulk_run(s, &bulk, stmt, e);
}

static bool is_text(const char *text)
{
    return text == NULL || utf8_is_valid(text, strlen(text));
}

static enum err put_data_set(struct sqlite *s, const struct data_set *set, struct error *e)
{
    sqlite3_stmt *stmt;
    if (!is_text(set->name) || !is_text(set->source) || !is_text(set->format)) {
        return error_set(e, ERR_INVALID, "a text of a data set is not UTF-8");
    }
    enum err err = sqlite__statement(s, set->source == NULL ? SQL_DATA_SET_GONE : SQL_DATA_SET_PUT, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    sqlite__bind_text(stmt, 1, set->name);
    if (set->source != NULL) {
        sqlite__bind_text(stmt, 2, set->source);
        sqlite__bind_text(stmt, 3, set->format);
    }
    return sqlite__run(s, stmt, e);
}

static enum err end_inbox_entry(struct sqlite *s, uint64_t id, struct error *e)
{
    sqlite3_stmt *stmt;
    enum err err = sqlite__statement(s, SQL_INBOX_DONE, &stmt, e);
    if (err != ERR_OK) {
        return err;
    }
    sqlite3_bind_int64(stmt, 1, (int64_t)id);
    return sqlite__run(s, stmt, e);
}

static enum err put_batch(struct sqlite *s, const struct batch *batch, bool is_careful, struct error *e)
{
    enum err err = put_sweeps(s, e);
    if (err == ERR_OK) {
        err = put_leases_gone(s, e);
    }
    if (err == ERR_OK) {
        err = put_rows(s, is_careful, e);
    }
    if (err == ERR_OK) {
        err = put_payloads(s, batch, e);
    }
    for (uint32_t i = 0; i < batch->n_data_sets && err == ERR_OK; i++) {
        err = put_data_set(s, &batch->data_sets[i], e);
    }
    for (uint32_t i = 0; i < batch->n_inbox_done && err == ERR_OK; i++) {
        err = end_inbox_entry(s, batch->inbox_done[i], e);
    }
    return err;
}

static enum err try_batch(struct sqlite *s, const struct fence *fence, const struct batch *batch, bool is_careful,
                          struct error *e)
{
    enum err err = sqlite__begin_fenced(s, fence, e);
    return err != ERR_OK ? err : sqlite__finish(s, put_batch(s, batch, is_careful, e), e);
}

/*
 * What says that it is new is inserted as it is. Only a batch that is applied a second time, or a job in the place of one
 * that is being removed, finds something there; then all is rolled back, and the batch is put with statements that expect
 * it. If the batch is refused for another reason, it is so again.
 */
enum err sqlite__commit_batch(struct store *store, const struct fence *fence, const struct batch *batch,
                              struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    net_fill(&s->net, batch, &s->arena);
    fill_lists(s);
    enum err err = try_batch(s, fence, batch, false, e);
    if (err == ERR_INVALID) {
        err = try_batch(s, fence, batch, true, e);
    }
    arena_reset(&s->arena);
    /* A damaged file is one more reason for which nothing is certain. */
    if (err == ERR_DATA_LOSS && e != NULL) {
        e->code = ERR_UNAVAILABLE;
    }
    return err == ERR_DATA_LOSS ? ERR_UNAVAILABLE : err;
}
