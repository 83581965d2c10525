/* Reading: rows are copied under the lock and handed out without it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "store/memory_internal.h"

/* ---- reading rows ---- */

struct picture {
    struct arena *arena;
    const struct row **rows;
    uint32_t n;
    uint32_t cap;
    const char *next;         /* pages: where the next one starts */
    const char *const *names; /* pages of tasks */
    enum err err;
    struct error *e;
};

static void add_row(struct picture *p, const struct row *row)
{
    p->rows = mem_grow(p->rows, &p->cap, p->n + 1, sizeof(const struct row *));
    p->rows[p->n++] = row;
}

static void add_record(struct picture *p, enum row_kind kind, const struct record *record)
{
    const struct table *table = table_of(kind);
    struct row *row = table_row(table, p->arena);
    for (uint32_t i = 0; i < table->n_columns && p->err == ERR_OK; i++) {
        p->err = table_set(row, &table->columns[i], record->values[i], p->arena, p->e);
    }
    add_row(p, row);
}

/* Hands the page over to the arena. */
static enum err finish_page(struct picture *p, struct page *out)
{
    if (p->err == ERR_OK) {
        *out = (struct page){.rows = arena_copy(p->arena, p->rows, p->n * sizeof(const struct row *)),
                             .n_rows = p->n,
                             .next = p->next,
                             .names = p->names};
    }
    mem_free(p->rows);
    return memory__leave(p->err);
}

/* Called without the lock: the rows are copies. */
static enum err hand_out(struct picture *p, store_row_fn *fn, void *context)
{
    for (uint32_t i = 0; i < p->n && p->err == ERR_OK; i++) {
        fn(context, p->rows[i]);
    }
    mem_free(p->rows);
    arena_deinit(p->arena);
    return p->err;
}

/* The parts of a job, in the order in which they are loaded. */
static const enum row_kind parts[] = {ROW_STAGE, ROW_TASK, ROW_LEASE, ROW_MAP_OUTPUT, ROW_RESULT};

static void add_parts(struct picture *p, const struct database *db, enum row_kind kind, const struct value *job_id)
{
    const struct memory_table *table = &db->tables[kind];
    for (uint32_t i = memory_table_from(table, job_id, 1); memory_table_at(table, i, job_id, 1); i++) {
        add_record(p, kind, table->by_key.items[i]);
    }
}

enum err memory__load(struct store *store, store_row_fn *fn, void *context, struct error *e)
{
    struct arena arena = {0};
    struct picture p = {.arena = &arena, .e = e};
    struct row_meta meta = {.row = {.kind = ROW_META}};
    struct database *db;
    enum err err = memory__enter(store, &db, e);
    if (err != ERR_OK) {
        return err;
    }
    const struct memory_order *jobs = &db->tables[ROW_JOB].by_key;
    const struct memory_order *nodes = &db->tables[ROW_NODE].by_key;
    const struct memory_order *events = &db->tables[ROW_EVENT].by_key;
    for (uint32_t i = 0; i < jobs->n; i++) {
        if (memory__job_is_open(jobs->items[i])) {
            add_record(&p, ROW_JOB, jobs->items[i]);
        }
    }
    for (size_t part = 0; part < ARRAY_LEN(parts); part++) {
        for (uint32_t i = 0; i < jobs->n; i++) {
            if (memory__job_is_open(jobs->items[i])) {
                add_parts(&p, db, parts[part], &jobs->items[i]->values[0]);
            }
        }
    }
    for (uint32_t i = 0; i < nodes->n; i++) {
        add_record(&p, ROW_NODE, nodes->items[i]);
    }
    meta.last_event_seq = events->n == 0 ? 0 : (uint64_t)events->items[events->n - 1]->values[0].number;
    add_row(&p, &meta.row);
    (void)memory__leave(ERR_OK);
    return hand_out(&p, fn, context);
}

enum err memory__load_job(struct store *store, const char *job_id, store_row_fn *fn, void *context, struct error *e)
{
    struct arena arena = {0};
    struct picture p = {.arena = &arena, .e = e};
    struct value key = memory__text(job_id);
    struct database *db;
    enum err err = memory__enter(store, &db, e);
    if (err != ERR_OK) {
        return err;
    }
    const struct record *job = memory_table_find(&db->tables[ROW_JOB], &key);
    if (job == NULL) {
        return memory__leave(error_set(e, ERR_NOT_FOUND, "there is no such job"));
    }
    add_record(&p, ROW_JOB, job);
    for (size_t part = 0; part < ARRAY_LEN(parts); part++) {
        add_parts(&p, db, parts[part], &key);
    }
    (void)memory__leave(ERR_OK);
    return hand_out(&p, fn, context);
}

enum err memory__find_key(struct store *store, const char *idempotency_key, int64_t not_before_ms, struct arena *arena,
                          const char **out_job_id, struct error *e)
{
    struct database *db;
    enum err err = memory__enter(store, &db, e);
    if (err != ERR_OK) {
        return err;
    }
    uint32_t key_column = memory__column(ROW_JOB, "idempotency_key");
    const struct memory_order *jobs = &db->tables[ROW_JOB].by_key;
    const struct record *found = NULL;
    for (uint32_t i = 0; i < jobs->n; i++) {
        int64_t at_ms = memory__number(jobs->items[i], ROW_JOB, "submitted_at_ms");
        if (memory__text_is(&jobs->items[i]->values[key_column], idempotency_key) && at_ms >= not_before_ms &&
            (found == NULL || at_ms > memory__number(found, ROW_JOB, "submitted_at_ms"))) {
            found = jobs->items[i];
        }
    }
    if (found == NULL) {
        return memory__leave(error_set(e, ERR_NOT_FOUND, "no job has this idempotency key"));
    }
    *out_job_id = arena_strdup(arena, found->values[0].bytes);
    return memory__leave(ERR_OK);
}
/* ---- payloads, data sets, inbox ---- */

enum err memory__payload(struct store *store, const char *job_id, const struct digest *digest, struct arena *arena,
                         const void **out_bytes, size_t *out_n, struct error *e)
{
    struct value key[] = {memory__text(job_id), memory__bytes(digest, sizeof *digest)};
    struct database *db;
    enum err err = memory__enter(store, &db, e);
    if (err != ERR_OK) {
        return err;
    }
    const struct record *record = memory_table_find(&db->tables[TABLE_PAYLOADS], key);
    if (record == NULL) {
        return memory__leave(error_set(e, ERR_NOT_FOUND, "there is no such payload"));
    }
    *out_bytes = arena_copy(arena, record->values[2].bytes, record->values[2].n);
    *out_n = record->values[2].n;
    return memory__leave(ERR_OK);
}

enum err memory__data_sets(struct store *store, struct arena *arena, const struct data_set **out, uint32_t *out_n,
                           struct error *e)
{
    struct database *db;
    enum err err = memory__enter(store, &db, e);
    if (err != ERR_OK) {
        return err;
    }
    const struct memory_order *order = &db->tables[TABLE_DATA_SETS].by_key;
    struct data_set *sets = arena_zalloc(arena, order->n * sizeof *sets);
    for (uint32_t i = 0; i < order->n; i++) {
        sets[i].name = arena_strdup(arena, order->items[i]->values[0].bytes);
        sets[i].source = arena_strdup(arena, order->items[i]->values[1].bytes);
        sets[i].format = arena_strdup(arena, order->items[i]->values[2].bytes);
    }
    *out = sets;
    *out_n = order->n;
    return memory__leave(ERR_OK);
}

enum err memory__inbox(struct store *store, const struct inbox_query *query, struct arena *arena,
                       const struct inbox_entry **out, uint32_t *out_n, struct error *e)
{
    struct database *db;
    enum err err = memory__enter(store, &db, e);
    if (err != ERR_OK) {
        return err;
    }
    const struct memory_order *order = &db->tables[TABLE_INBOX].by_key;
    uint32_t from = 0;
    while (from < order->n && (uint64_t)order->items[from]->values[0].number <= query->after_id) {
        from++;
    }
    uint32_t n = order->n - from < query->limit ? order->n - from : query->limit;
    struct inbox_entry *entries = arena_zalloc(arena, n * sizeof *entries);
    for (uint32_t i = 0; i < n; i++) {
        const struct value *values = order->items[from + i]->values;
        entries[i] = (struct inbox_entry){
            .id = (uint64_t)values[0].number,
            .job_id = arena_strdup(arena, values[1].bytes),
            .tree = arena_copy(arena, values[2].bytes, values[2].n),
            .n_bytes = values[2].n,
        };
    }
    *out = entries;
    *out_n = n;
    return memory__leave(ERR_OK);
}
/* ---- history ---- */

/* Newest first; jobs of the same millisecond by their ids. */
static int compare_age(const struct record *a, const struct record *b)
{
    uint32_t column = memory__column(ROW_JOB, "submitted_at_ms");
    int order = memory_compare(&b->values[column], &a->values[column]);
    return order != 0 ? order : memory_compare(&b->values[0], &a->values[0]);
}

static int compare_age_of(const void *a, const void *b)
{
    return compare_age(*(const struct record *const *)a, *(const struct record *const *)b);
}

/* A cursor is the age and the id of the last job of the page before: "1700000000000/the-id". */
static enum err read_job_cursor(const char *after, int64_t *out_at_ms, const char **out_job_id, struct error *e)
{
    char *end;
    long long at_ms = strtoll(after, &end, 10);
    if (end == after || *end != '/') {
        return error_set(e, ERR_INVALID, "this is not where a page ended");
    }
    *out_at_ms = at_ms;
    *out_job_id = end + 1;
    return ERR_OK;
}

static bool is_after(const struct record *job, int64_t at_ms, const char *job_id)
{
    int64_t age = memory__number(job, ROW_JOB, "submitted_at_ms");
    return age != at_ms ? age < at_ms : strcmp(job->values[0].bytes, job_id) < 0;
}

static bool job_matches(const struct record *job, const struct job_query *query)
{
    const struct value *name = &job->values[memory__column(ROW_JOB, "name")];
    return (query->state < 0 || memory__number(job, ROW_JOB, "state") == query->state) &&
           (query->name == NULL || memory__text_is(name, query->name));
}

enum err memory__jobs(struct store *store, const struct job_query *query, struct arena *arena, struct page *out,
                      struct error *e)
{
    struct picture p = {.arena = arena, .e = e};
    const struct record *last = NULL;
    const char *next = NULL;
    int64_t at_ms = 0;
    const char *job_id = NULL;
    struct database *db;
    if (query->after != NULL && read_job_cursor(query->after, &at_ms, &job_id, e) != ERR_OK) {
        return ERR_INVALID;
    }
    enum err err = memory__enter(store, &db, e);
    if (err != ERR_OK) {
        return err;
    }
    const struct memory_order *jobs = &db->tables[ROW_JOB].by_key;
    struct record **by_age = mem_copy(jobs->items, jobs->n * sizeof *by_age);
    qsort(by_age, jobs->n, sizeof *by_age, compare_age_of);
    for (uint32_t i = 0; i < jobs->n; i++) {
        if (!job_matches(by_age[i], query) || (job_id != NULL && !is_after(by_age[i], at_ms, job_id))) {
            continue;
        }
        if (p.n == query->limit) {
            next = last == NULL
                       ? query->after
                       : arena_format(arena, "%" PRId64 "/%s", memory__number(last, ROW_JOB, "submitted_at_ms"),
                                      (const char *)last->values[0].bytes);
            break;
        }
        last = by_age[i];
        add_record(&p, ROW_JOB, last);
    }
    mem_free(by_age);
    p.next = next;
    return finish_page(&p, out);
}

enum err memory__tasks(struct store *store, const struct task_query *query, struct arena *arena, struct page *out,
                       struct error *e)
{
    struct picture p = {.arena = arena, .e = e};
    struct value key[] = {memory__text(query->job_id), memory__int(0), memory__int(0)};
    struct database *db;
    const char *next = NULL;
    const char **names = NULL;
    uint32_t cap_names = 0;
    if (query->after != NULL) {
        char *end;
        key[1].number = strtoll(query->after, &end, 10);
        key[2].number = *end == '/' ? strtoll(end + 1, &end, 10) : -1;
        if (*end != '\0' || key[2].number < 0) {
            return error_set(e, ERR_INVALID, "this is not where a page ended");
        }
    }
    enum err err = memory__enter(store, &db, e);
    if (err != ERR_OK) {
        return err;
    }
    const struct memory_table *tasks = &db->tables[ROW_TASK];
    for (uint32_t i = memory_table_from(tasks, key, 3); memory_table_at(tasks, i, key, 1); i++) {
        const struct record *task = tasks->by_key.items[i];
        if (query->state >= 0 && memory__number(task, ROW_TASK, "state") != query->state) {
            continue;
        }
        if (p.n == query->limit) { /* a cursor is the first task of the next page */
            next = arena_format(arena, "%" PRId64 "/%" PRId64, task->values[1].number, task->values[2].number);
            break;
        }
        names = mem_grow(names, &cap_names, p.n + 1, sizeof(const char *));
        names[p.n] = memory__stage_name(db, task, arena);
        add_record(&p, ROW_TASK, task);
    }
    p.next = next;
    p.names = arena_copy(arena, names, p.n * sizeof(const char *));
    mem_free(names);
    return finish_page(&p, out);
}

enum err memory__events(struct store *store, const struct event_query *query, struct arena *arena, struct page *out,
                        uint64_t *out_pruned_seq, struct error *e)
{
    struct picture p = {.arena = arena, .e = e};
    struct database *db;
    const char *next = NULL;
    enum err err = memory__enter(store, &db, e);
    if (err != ERR_OK) {
        return err;
    }
    uint32_t job_column = memory__column(ROW_EVENT, "job_id");
    const struct memory_order *events = &db->tables[ROW_EVENT].by_key;
    for (uint32_t i = 0; i < events->n; i++) {
        const struct value *values = events->items[i]->values;
        if ((uint64_t)values[0].number <= query->after_seq ||
            (query->job_id != NULL && !memory__text_is(&values[job_column], query->job_id))) {
            continue;
        }
        if (p.n == query->limit) {
            next = arena_format(arena, "%" PRId64, events->items[i - 1]->values[0].number);
            break;
        }
        add_record(&p, ROW_EVENT, events->items[i]);
    }
    *out_pruned_seq = events->n == 0 ? 0 : (uint64_t)events->items[0]->values[0].number - 1;
    p.next = next;
    return finish_page(&p, out);
}
