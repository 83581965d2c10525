#include "picture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

#define PAGE_ROWS 7 /* small, so that there are several pages */

void picture_deinit(struct picture *p)
{
    mem_free(p->entries);
    arena_deinit(&p->arena);
    *p = (struct picture){0};
}

/* ---- entries ---- */

static struct value keep_value(struct picture *p, struct value value)
{
    if (value.type == VALUE_IS_TEXT || value.type == VALUE_IS_BYTES) {
        char *copy = arena_alloc(&p->arena, value.n + 1);
        if (value.n > 0) {
            memcpy(copy, value.bytes, value.n);
        }
        copy[value.n] = '\0';
        value.bytes = copy;
    }
    return value;
}

static void add_entry(struct picture *p, struct entry entry)
{
    struct value *values = arena_alloc(&p->arena, entry.n_values * sizeof *values);
    for (uint32_t i = 0; i < entry.n_values; i++) {
        values[i] = keep_value(p, entry.values[i]);
    }
    entry.where = arena_strdup(&p->arena, entry.where);
    entry.values = values;
    p->entries = mem_grow(p->entries, &p->cap, p->n + 1, sizeof *p->entries);
    p->entries[p->n++] = entry;
}

void picture_add_row(struct picture *p, const char *where, const struct row *row)
{
    struct value values[64];
    if (row->kind == ROW_META) {
        values[0] = (struct value){.type = VALUE_IS_INT,
                                   .number = (int64_t)((const struct row_meta *)(const void *)row)->last_event_seq};
        add_entry(p, (struct entry){.where = where, .table = "meta", .values = values, .n_values = 1});
        return;
    }
    const struct table *table = table_of(row->kind);
    CHECK(table != NULL);
    for (uint32_t i = 0; i < table->n_columns; i++) {
        bool is_read_back = column_is_read(&table->columns[i]);
        values[i] = is_read_back ? table_get(row, &table->columns[i], &p->arena) : (struct value){0};
    }
    add_entry(
        p, (struct entry){
               .where = where, .table = table->name, .columns = table, .values = values, .n_values = table->n_columns});
}

/* ---- loads ---- */

struct load {
    struct picture *picture;
    const char *where;
    int last_rank;
    uint32_t n_meta;
    uint32_t n_nodes;
};

/* Jobs, then stages, then tasks, then the rest; nodes and the number of the last event at any place. */
static int load_rank(enum row_kind kind)
{
    switch (kind) {
    case ROW_JOB:
        return 1;
    case ROW_STAGE:
        return 2;
    case ROW_TASK:
        return 3;
    case ROW_LEASE:
    case ROW_MAP_OUTPUT:
    case ROW_RESULT:
        return 4;
    case ROW_NODE:
    case ROW_META:
        return 0;
    case ROW_JOB_SWEEP:
    case ROW_LEASE_GONE:
    case ROW_MAP_OUTPUT_GONE:
    case ROW_RESULT_GONE:
    case ROW_NODE_GONE:
    case ROW_ATTEMPT:
    case ROW_EVENT:
        break;
    }
    fail_msg("a row of kind %d must not be loaded", (int)kind);
    return 0;
}

static void take_row(void *context, const struct row *row)
{
    struct load *load = context;
    int rank = load_rank(row->kind);
    if (rank > 0) {
        CHECK(rank >= load->last_rank);
        load->last_rank = rank;
    }
    load->n_meta += row->kind == ROW_META;
    load->n_nodes += row->kind == ROW_NODE;
    picture_add_row(load->picture, load->where, row);
}

void picture_load(struct picture *p, struct subject *s)
{
    struct load load = {.picture = p, .where = "load"};
    CHECK_OK(s, store_load(s->store, take_row, &load, &s->e));
    CHECK_UINT(load.n_meta, 1);
}

void picture_load_job(struct picture *p, struct subject *s, const char *job_id)
{
    struct load load = {.picture = p};
    load.where = arena_format(&p->arena, "load of job %s", job_id);
    enum err err = store_load_job(s->store, job_id, take_row, &load, &s->e);
    if (err != ERR_NOT_FOUND) {
        CHECK_OK(s, err);
        CHECK(load.last_rank > 0);
    }
    CHECK_UINT(load.n_meta, 0); /* they are the cluster's, not the job's */
    CHECK_UINT(load.n_nodes, 0);
}

/* ---- pages ---- */

static void take_page(struct picture *p, const char *where, const struct page *page, uint32_t limit)
{
    CHECK(page->n_rows <= limit);
    for (uint32_t i = 0; i < page->n_rows; i++) {
        picture_add_row(p, where, page->rows[i]);
    }
}

void picture_jobs(struct picture *p, struct subject *s, struct job_query query)
{
    const struct row_job *last = NULL;
    do {
        struct page page = {0};
        CHECK_OK(s, store_jobs(s->store, &query, &p->arena, &page, &s->e));
        take_page(p, "jobs", &page, query.limit);
        for (uint32_t i = 0; i < page.n_rows; i++) {
            const struct row_job *job = (const struct row_job *)(const void *)page.rows[i];
            CHECK_INT(page.rows[i]->kind, ROW_JOB);
            CHECK(last == NULL || job->submitted_at_ms <= last->submitted_at_ms); /* the newest first */
            last = job;
        }
        query.after = page.next;
    } while (query.after != NULL);
}

void picture_tasks(struct picture *p, struct subject *s, struct task_query query)
{
    const struct row_task *last = NULL;
    const char *where = arena_format(&p->arena, "tasks of %s", query.job_id);
    do {
        struct page page = {0};
        CHECK_OK(s, store_tasks(s->store, &query, &p->arena, &page, &s->e));
        take_page(p, where, &page, query.limit);
        for (uint32_t i = 0; i < page.n_rows; i++) {
            const struct row_task *task = (const struct row_task *)(const void *)page.rows[i];
            CHECK_INT(page.rows[i]->kind, ROW_TASK);
            CHECK(last == NULL || task->ref.stage > last->ref.stage ||
                  (task->ref.stage == last->ref.stage && task->ref.task > last->ref.task));
            last = task;
        }
        query.after = page.next;
    } while (query.after != NULL);
}

void picture_events(struct picture *p, struct subject *s, struct event_query query)
{
    struct page page;
    uint64_t pruned_seq = 0;
    do {
        page = (struct page){0};
        CHECK_OK(s, store_events(s->store, &query, &p->arena, &page, &pruned_seq, &s->e));
        take_page(p, "events", &page, query.limit);
        for (uint32_t i = 0; i < page.n_rows; i++) {
            const struct row_event *event = (const struct row_event *)(const void *)page.rows[i];
            CHECK_INT(page.rows[i]->kind, ROW_EVENT);
            CHECK(event->seq > query.after_seq);
            query.after_seq = event->seq;
        }
        CHECK(page.n_rows > 0 || page.next == NULL); /* else this would never end */
    } while (page.next != NULL);
    struct value pruned = {.type = VALUE_IS_INT, .number = (int64_t)pruned_seq};
    add_entry(p, (struct entry){.where = "events", .table = "pruned up to", .values = &pruned, .n_values = 1});
}

static struct value text_value(const char *text)
{
    return text == NULL ? (struct value){.type = VALUE_IS_NULL}
                        : (struct value){.type = VALUE_IS_TEXT, .bytes = text, .n = strlen(text)};
}

void picture_data_sets(struct picture *p, struct subject *s)
{
    const struct data_set *sets = NULL;
    uint32_t n = 0;
    CHECK_OK(s, store_data_sets(s->store, &p->arena, &sets, &n, &s->e));
    for (uint32_t i = 0; i < n; i++) {
        struct value values[] = {text_value(sets[i].name), text_value(sets[i].source), text_value(sets[i].format)};
        add_entry(p, (struct entry){.where = "data sets", .table = "data_sets", .values = values, .n_values = 3});
    }
}

void picture_payload(struct picture *p, struct subject *s, const char *job_id, struct digest digest)
{
    const void *bytes = NULL;
    size_t n = 0;
    enum err err = store_payload(s->store, job_id, &digest, &p->arena, &bytes, &n, &s->e);
    if (err == ERR_NOT_FOUND) {
        return;
    }
    CHECK_OK(s, err);
    struct value values[] = {text_value(job_id),
                             {.type = VALUE_IS_BYTES, .bytes = digest.bytes, .n = sizeof digest.bytes},
                             {.type = VALUE_IS_BYTES, .bytes = bytes, .n = n}};
    add_entry(p, (struct entry){.where = "payloads", .table = "payloads", .values = values, .n_values = 3});
}

void picture_all(struct picture *p, struct subject *s, const char *const *job_ids, uint32_t n_jobs)
{
    picture_load(p, s);
    picture_jobs(p, s, (struct job_query){.state = -1, .limit = PAGE_ROWS});
    picture_events(p, s, (struct event_query){.limit = PAGE_ROWS});
    picture_data_sets(p, s);
    for (uint32_t i = 0; i < n_jobs; i++) {
        picture_load_job(p, s, job_ids[i]);
        picture_tasks(p, s, (struct task_query){.job_id = job_ids[i], .state = -1, .limit = PAGE_ROWS});
        picture_events(p, s, (struct event_query){.job_id = job_ids[i], .limit = PAGE_ROWS});
    }
}

/* ---- comparing ---- */

static int compare_values(const struct value *a, const struct value *b)
{
    if (a->type != b->type) {
        return (int)a->type - (int)b->type;
    }
    if (a->type == VALUE_IS_NULL) {
        return 0;
    }
    if (a->type == VALUE_IS_INT) {
        return (a->number > b->number) - (a->number < b->number);
    }
    int order = memcmp(a->bytes, b->bytes, a->n < b->n ? a->n : b->n);
    return order != 0 ? order : (a->n > b->n) - (a->n < b->n);
}

static int compare_entries(const void *left, const void *right)
{
    const struct entry *a = left;
    const struct entry *b = right;
    int order = strcmp(a->where, b->where);
    order = order != 0 ? order : strcmp(a->table, b->table);
    for (uint32_t i = 0; order == 0 && i < a->n_values; i++) {
        order = compare_values(&a->values[i], &b->values[i]);
    }
    return order;
}

static void write_value(struct buf *buf, const struct value *value)
{
    const unsigned char *bytes = value->bytes;
    if (value->type == VALUE_IS_NULL) {
        buf_text(buf, "NULL");
    } else if (value->type == VALUE_IS_INT) {
        buf_format(buf, "%" PRId64, value->number);
    } else {
        buf_format(buf, "%s of %zu \"", value->type == VALUE_IS_TEXT ? "text" : "bytes", value->n);
        for (size_t i = 0; i < value->n && i < 200; i++) {
            bool plain = value->type == VALUE_IS_TEXT && bytes[i] >= 0x20 && bytes[i] < 0x7f;
            buf_format(buf, plain ? "%c" : "\\x%02x", bytes[i]);
        }
        buf_text(buf, value->n > 200 ? "\"..." : "\"");
    }
}

static const char *describe(const struct entry *entry, struct arena *arena)
{
    struct buf buf = {0};
    buf_format(&buf, "%s, table %s:", entry->where, entry->table);
    for (uint32_t i = 0; i < entry->n_values; i++) {
        buf_format(&buf, " %s=", entry->columns == NULL ? "value" : entry->columns->columns[i].name);
        write_value(&buf, &entry->values[i]);
    }
    const char *text = arena_strdup(arena, buf.data);
    buf_deinit(&buf);
    return text;
}

static void sort(struct picture *p)
{
    if (p->n > 0) {
        qsort(p->entries, p->n, sizeof *p->entries, compare_entries);
    }
}

const char *picture_diff(struct picture *actual, struct picture *expected, struct arena *arena)
{
    sort(actual);
    sort(expected);
    uint32_t i = 0;
    while (i < actual->n && i < expected->n && compare_entries(&actual->entries[i], &expected->entries[i]) == 0) {
        i++;
    }
    if (i == actual->n && i == expected->n) {
        return NULL;
    }
    return arena_format(arena, "is       %s\n  expected %s",
                        i < actual->n ? describe(&actual->entries[i], arena) : "nothing more",
                        i < expected->n ? describe(&expected->entries[i], arena) : "nothing more");
}

void picture_check(struct picture *actual, struct picture *expected, const char *file, int line)
{
    struct arena arena = {0};
    const char *diff = picture_diff(actual, expected, &arena);
    if (diff != NULL) {
        fprintf(stderr, "the contents differ:\n  %s\n", diff);
    }
    arena_deinit(&arena);
    test_check(diff == NULL, "the store holds what was written", file, line);
}

/* ---- looking at one ---- */

uint32_t picture_count(const struct picture *p, const char *table)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        n += strcmp(p->entries[i].table, table) == 0;
    }
    return n;
}

const struct entry *picture_only(const struct picture *p, const char *table)
{
    CHECK_UINT(picture_count(p, table), 1);
    uint32_t i = 0;
    while (strcmp(p->entries[i].table, table) != 0) {
        i++;
    }
    return &p->entries[i];
}

static const struct value *value_of(const struct entry *entry, const char *column)
{
    for (uint32_t i = 0; entry->columns != NULL && i < entry->n_values; i++) {
        if (strcmp(entry->columns->columns[i].name, column) == 0) {
            return &entry->values[i];
        }
    }
    CHECK_STR("no such column", column);
    return NULL;
}

int64_t entry_number(const struct entry *entry, const char *column)
{
    return value_of(entry, column)->number;
}

const char *entry_text(const struct entry *entry, const char *column)
{
    const struct value *value = value_of(entry, column);
    return value->type == VALUE_IS_NULL ? NULL : value->bytes;
}
