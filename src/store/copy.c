/*
 * Copies a whole store: table by table, row by row, value by value. Nothing here knows what rows mean, so nothing is
 * forgotten that a table has; the tables themselves are those of table.h and the three that have no rows of the core.
 */
#include <string.h>

#include "store/engine.h"

#define PROGRESS_ROWS 10000

static const enum row_kind kinds[] = {ROW_JOB,    ROW_STAGE, ROW_TASK,    ROW_LEASE, ROW_MAP_OUTPUT,
                                      ROW_RESULT, ROW_NODE,  ROW_ATTEMPT, ROW_EVENT};

static const struct copy_table others[] = {
    {.name = "payloads",
     .n_columns = 3,
     .columns = {"job_id", "digest", "bytes"},
     .types = {VALUE_IS_TEXT, VALUE_IS_BYTES, VALUE_IS_BYTES},
     .is_of_jobs = true},
    {.name = "data_sets",
     .n_columns = 3,
     .columns = {"name", "source", "format"},
     .types = {VALUE_IS_TEXT, VALUE_IS_TEXT, VALUE_IS_TEXT}},
    {.name = "inbox",
     .n_columns = 3,
     .columns = {"id", "job_id", "tree"},
     .types = {VALUE_IS_INT, VALUE_IS_TEXT, VALUE_IS_BYTES}},
};

#define N_TABLES (ARRAY_LEN(kinds) + ARRAY_LEN(others))

_Static_assert(N_TABLES <= STORE_COPY_TABLES_MAX, "a report has room for all tables");

struct copy {
    struct store *from;
    struct store *to;
    store_progress_fn *progress;
    void *context;
    struct copy_table tables[N_TABLES];
    struct copy_report report;
    uint64_t n_rows; /* of the table under way */
    const char *table;
};

/* Events outlive their jobs. */
static void describe(struct copy_table *out, const struct table *table)
{
    ASSERT(table->n_columns <= ARRAY_LEN(out->columns));
    *out = (struct copy_table){.name = table->name, .n_columns = table->n_columns};
    for (uint32_t i = 0; i < table->n_columns; i++) {
        out->columns[i] = table->columns[i].name;
        out->types[i] = column_type(&table->columns[i]);
    }
    out->is_of_jobs = table->kind != ROW_EVENT && strcmp(table->columns[0].name, "job_id") == 0;
}

static enum err pass_row(void *context, const struct value *values, struct error *e)
{
    struct copy *copy = context;
    copy->n_rows++;
    if (copy->n_rows % PROGRESS_ROWS == 0 && copy->progress != NULL) {
        copy->progress(copy->context, copy->table, copy->n_rows);
    }
    return copy->to->engine->target->row(copy->to, values, e);
}

static enum err copy_table(struct copy *copy, const struct copy_table *table, struct error *e)
{
    const struct copy_target *target = copy->to->engine->target;
    copy->n_rows = 0;
    copy->table = table->name;
    enum err err = target->start(copy->to, table, e);
    if (err == ERR_OK) {
        err = copy->from->engine->source->rows(copy->from, table, pass_row, copy, e);
    }
    if (err == ERR_OK) {
        err = target->finish(copy->to, e);
    }
    if (err == ERR_OK && copy->progress != NULL) {
        copy->progress(copy->context, table->name, copy->n_rows);
    }
    return err;
}

/* Each side counts for itself. */
static enum err compare_counts(struct copy *copy, const struct copy_table *table, struct error *e)
{
    uint64_t there = 0;
    uint64_t here = 0;
    enum err err = copy->from->engine->source->count(copy->from, table, &there, e);
    if (err == ERR_OK) {
        err = copy->to->engine->target->count(copy->to, table, &here, e);
    }
    if (err == ERR_OK && there != here) {
        err = error_set(e, ERR_DATA_LOSS, "table %s has %llu rows in the source and %llu in the copy", table->name,
                        (unsigned long long)there, (unsigned long long)here);
    }
    if (err == ERR_OK) {
        copy->report.tables[copy->report.n_tables].table = table->name;
        copy->report.tables[copy->report.n_tables].n_rows = here;
        copy->report.n_tables++;
    }
    return err;
}

static enum err copy_all(struct copy *copy, struct error *e)
{
    enum err err = ERR_OK;
    for (size_t i = 0; i < N_TABLES && err == ERR_OK; i++) {
        err = copy_table(copy, &copy->tables[i], e);
    }
    for (size_t i = 0; i < N_TABLES && err == ERR_OK; i++) {
        err = compare_counts(copy, &copy->tables[i], e);
    }
    return err;
}

enum err store_copy(struct store *from, struct store *to, store_progress_fn *progress, void *context,
                    struct copy_report *out, struct error *e)
{
    struct copy copy = {.from = from, .to = to, .progress = progress, .context = context};
    const struct copy_source *source = from->engine->source;
    const struct copy_target *target = to->engine->target;
    if (source == NULL || target == NULL) {
        enum err err = error_set(e, ERR_INVALID, "a store can only be copied from sqlite: to postgres://");
        error_hint(e, "a file of SQLite can be copied as a file while no coordinator uses it");
        return err;
    }
    for (size_t i = 0; i < N_TABLES; i++) {
        if (i < ARRAY_LEN(kinds)) {
            describe(&copy.tables[i], table_of(kinds[i]));
        } else {
            copy.tables[i] = others[i - ARRAY_LEN(kinds)];
        }
    }
    enum err err = source->begin(from, &copy.report.epoch, e);
    if (err != ERR_OK) {
        return err;
    }
    err = target->begin(to, copy.tables, N_TABLES, e);
    if (err == ERR_OK) {
        err = target->end(to, copy.report.epoch, copy_all(&copy, e), e);
    }
    source->end(from);
    if (err == ERR_OK) {
        *out = copy.report;
    }
    return err;
}
