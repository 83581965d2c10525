/*
 * What a leader reads: all live state, one job, payloads, data sets, the inbox.
 *
 * A load is one read-only transaction with one snapshot, a COPY in binary per table, which is the fastest way to get many
 * rows out of PostgreSQL. The rows of live jobs are found job by job along the tables' keys, so that the history does not
 * matter.
 */
#include <string.h>

#include "store/postgres_internal.h"

/* Where rows go. */
struct sink {
    store_row_fn *fn;
    void *context;
    uint32_t n_rows;
};

/* ---- loads ---- */

/* It may take its time, as long as rows keep coming. */
static const char begin_load[] = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0";

/* A message of a binary COPY that is being taken apart. */
struct message {
    const char *at;
    size_t left;
};

static bool take(struct message *message, void *out, size_t n)
{
    if (message->left < n) {
        return false;
    }
    memcpy(out, message->at, n);
    message->at += n;
    message->left -= n;
    return true;
}

static bool take_u32(struct message *message, uint32_t *out)
{
    bool is_there = take(message, out, sizeof *out);
    *out = is_there ? __builtin_bswap32(*out) : 0;
    return is_there;
}

static bool take_value(struct message *message, enum value_type type, struct value *out)
{
    uint32_t n;
    *out = (struct value){.type = VALUE_IS_NULL};
    if (!take_u32(message, &n)) {
        return false;
    }
    if (n == UINT32_MAX) {
        return true;
    }
    out->type = type;
    if (type == VALUE_IS_INT) {
        uint64_t bits = 0;
        bool is_there = n == sizeof bits && take(message, &bits, sizeof bits);
        out->number = (int64_t)__builtin_bswap64(bits);
        return is_there;
    }
    if (message->left < n) {
        return false;
    }
    out->bytes = message->at;
    out->n = n;
    message->at += n;
    message->left -= n;
    return true;
}

static enum err damaged(struct error *e)
{
    return error_set(e, ERR_DATA_LOSS, "the database sends rows in a form that it should not");
}

/* The stream begins with a header: a signature of 11 bytes, flags, the length of an extension. */
static bool skip_header(struct message *message)
{
    static const char signature[11] = {'P', 'G', 'C', 'O', 'P', 'Y', '\n', '\377', '\r', '\n', '\0'};
    char found[sizeof signature];
    uint32_t flags, n;
    if (!take(message, found, sizeof found) || memcmp(found, signature, sizeof found) != 0 ||
        !take_u32(message, &flags) || !take_u32(message, &n) || message->left < n) {
        return false;
    }
    message->at += n;
    message->left -= n;
    return true;
}

/* One message has one row, or the end: a number of columns of -1. */
static enum err give_row(struct postgres *pg, struct message *message, const struct table *table, struct sink *sink,
                         struct error *e)
{
    uint16_t n_columns;
    arena_reset(&pg->arena);
    if (!take(message, &n_columns, sizeof n_columns)) {
        return damaged(e);
    }
    if (n_columns == UINT16_MAX) {
        return ERR_OK;
    }
    struct row *row = table_row(table, &pg->arena);
    for (uint32_t i = 0; i < table->n_columns; i++) {
        const struct column *column = &table->columns[i];
        struct value value;
        if (!column_is_read(column)) {
            continue;
        }
        enum err err = take_value(message, column_type(column), &value)
                           ? table_set_from(row, column, value, &pg->arena, &pg->memo, e)
                           : damaged(e);
        if (err != ERR_OK) {
            return err;
        }
    }
    sink->fn(sink->context, row);
    sink->n_rows++;
    return ERR_OK;
}

/* Gives all rows of `query`, which selects the table's columns, to the sink. Uses the arena for each of them. */
static enum err stream(struct postgres *pg, const char *query, const struct table *table, struct sink *sink,
                       struct error *e)
{
    bool is_first = true;
    enum err err = postgres__copy_start(pg, query, e);
    while (err == ERR_OK) {
        struct message message;
        char *data = NULL;
        err = postgres__copy_next(pg, &data, &message.left, e);
        if (err != ERR_OK || data == NULL) {
            return err;
        }
        message.at = data;
        if (is_first && !skip_header(&message)) {
            err = damaged(e);
        }
        /* The end may come with the header, or the header alone. */
        if (err == ERR_OK && !(is_first && message.left == 0)) {
            err = give_row(pg, &message, table, sink, e);
        }
        is_first = false;
        PQfreemem(data);
    }
    return err;
}

/*
 * How to find the rows of live jobs in a table. With fewer rows than there are live jobs: take each row and look whether
 * its job lives. With fewer pages than live jobs: read all of it beside all live jobs. Otherwise most of it is history: look
 * up each live job.
 */
static const struct load_plan {
    const char *settings;
    const char *from; /* for the table's name */
} by_row = {"SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = off; SET LOCAL enable_nestloop = on",
            " FROM (SELECT * FROM capstan.%s OFFSET 0) t, "
            "LATERAL (SELECT 1 FROM capstan.jobs x WHERE x.job_id = t.job_id AND x.state < 2 LIMIT 1) j"},
  by_scan = {"SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on; SET LOCAL enable_nestloop = off; "
             "SET LOCAL work_mem = '256MB'",
             " FROM capstan.%s t JOIN (SELECT job_id FROM capstan.jobs WHERE state < 2) j ON t.job_id = j.job_id"},
  by_key = {"SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_nestloop = on",
            " FROM (SELECT job_id FROM capstan.jobs WHERE state < 2 OFFSET 0) j, "
            "LATERAL (SELECT * FROM capstan.%s x WHERE x.job_id = j.job_id OFFSET 0) t"};

/* A page has no more rows than that: they have three texts and some numbers at the least. */
#define ROWS_PER_PAGE 100

static enum err choose_plan(struct postgres *pg, const struct table *table, uint32_t n_jobs,
                            const struct load_plan **out, struct error *e)
{
    PGresult *result = NULL;
    struct buf sql = {0};
    buf_format(&sql, "SELECT pg_relation_size('capstan.%s') / 8192", table->name);
    enum err err = postgres__query(pg, sql.data, NULL, &result, e);
    buf_deinit(&sql);
    if (err == ERR_OK) {
        int64_t n_pages = postgres__int_at(result, 0, 0);
        *out = n_pages < (int64_t)n_jobs / ROWS_PER_PAGE ? &by_row : n_pages < (int64_t)n_jobs ? &by_scan : &by_key;
        PQclear(result);
    }
    return err;
}

/* The rows of live jobs. */
static enum err load_part(struct postgres *pg, enum row_kind kind, uint32_t n_jobs, struct sink *sink, struct error *e)
{
    const struct table *table = table_of(kind);
    const struct load_plan *plan = &by_key;
    struct buf sql = {0};
    enum err err = choose_plan(pg, table, n_jobs, &plan, e);
    if (err == ERR_OK) {
        err = postgres__script(pg, plan->settings, e);
    }
    if (err != ERR_OK) {
        return err;
    }
    buf_text(&sql, "SELECT ");
    postgres__write_columns(&sql, table, "t");
    const char *name = strstr(plan->from, "%s");
    buf_append(&sql, plan->from, (size_t)(name - plan->from));
    buf_text(&sql, table->name);
    buf_text(&sql, name + strlen("%s"));
    err = stream(pg, sql.data, table, sink, e);
    buf_deinit(&sql);
    return err;
}

/* All rows that the filter lets through. */
static enum err load_whole(struct postgres *pg, enum row_kind kind, const char *filter, struct sink *sink,
                           struct error *e)
{
    const struct table *table = table_of(kind);
    struct buf sql = {0};
    buf_text(&sql, "SELECT ");
    postgres__write_columns(&sql, table, "t");
    buf_format(&sql, " FROM capstan.%s t WHERE %s", table->name, filter);
    enum err err = stream(pg, sql.data, table, sink, e);
    buf_deinit(&sql);
    return err;
}

static enum err load_meta(struct postgres *pg, struct sink *sink, struct error *e)
{
    PGresult *result = NULL;
    enum err err = postgres__query(pg, "SELECT max(seq) FROM capstan.task_events", NULL, &result, e);
    if (err == ERR_OK) {
        struct row_meta meta = {.row = {.kind = ROW_META}, .last_event_seq = (uint64_t)postgres__int_at(result, 0, 0)};
        sink->fn(sink->context, &meta.row);
        PQclear(result);
    }
    return err;
}

enum err postgres__load(struct store *store, store_row_fn *fn, void *context, struct error *e)
{
    static const enum row_kind parts[] = {ROW_STAGE, ROW_TASK, ROW_LEASE, ROW_MAP_OUTPUT, ROW_RESULT};
    struct postgres *pg = postgres__of(store);
    struct sink sink = {.fn = fn, .context = context};
    enum err err = postgres__begin(pg, POSTGRES_SILENCE_MS, true, e);
    if (err == ERR_OK) {
        err = postgres__script(pg, begin_load, e);
    }
    if (err == ERR_OK) {
        err = load_whole(pg, ROW_JOB, "t.state < 2", &sink, e);
    }
    uint32_t n_jobs = sink.n_rows;
    for (size_t i = 0; i < ARRAY_LEN(parts) && err == ERR_OK && n_jobs > 0; i++) {
        err = load_part(pg, parts[i], n_jobs, &sink, e);
    }
    if (err == ERR_OK) {
        err = load_whole(pg, ROW_NODE, "true", &sink, e);
    }
    if (err == ERR_OK) {
        err = load_meta(pg, &sink, e);
    }
    return postgres__end(pg, err, e);
}

static enum err load_job_table(struct postgres *pg, enum row_kind kind, const char *job_id, struct sink *sink,
                               struct error *e)
{
    struct buf filter = {0};
    char *literal = PQescapeLiteral(pg->conn, job_id, strlen(job_id)); /* COPY takes no parameters */
    if (literal == NULL) {
        return error_set(e, ERR_NOT_FOUND, "there is no such job"); /* its id is not even a text */
    }
    buf_format(&filter, "t.job_id = %s%s", literal, kind == ROW_JOB ? " AND t.kind >= 0" : "");
    enum err err = load_whole(pg, kind, filter.data, sink, e);
    buf_deinit(&filter);
    PQfreemem(literal);
    return err;
}

enum err postgres__load_job(struct store *store, const char *job_id, store_row_fn *fn, void *context, struct error *e)
{
    static const enum row_kind order[] = {ROW_JOB, ROW_STAGE, ROW_TASK, ROW_LEASE, ROW_MAP_OUTPUT, ROW_RESULT};
    struct postgres *pg = postgres__of(store);
    struct sink sink = {.fn = fn, .context = context};
    enum err err = postgres__begin(pg, POSTGRES_LEADER_SILENCE_MS, true, e);
    if (err == ERR_OK) {
        err = postgres__script(pg, begin_load, e);
    }
    for (size_t i = 0; i < ARRAY_LEN(order) && err == ERR_OK; i++) {
        err = load_job_table(pg, order[i], job_id, &sink, e);
        if (err == ERR_OK && sink.n_rows == 0) {
            err = error_set(e, ERR_NOT_FOUND, "there is no job %s", job_id);
        }
    }
    return postgres__end(pg, err, e);
}

/* ---- single things ---- */

enum err postgres__find_key(struct store *store, const char *idempotency_key, int64_t not_before_ms,
                            struct arena *arena, const char **out_job_id, struct error *e)
{
    PGresult *result = NULL;
    struct postgres_params params = {0};
    postgres__param_text(&params, idempotency_key);
    postgres__param_int(&params, not_before_ms);
    enum err err = postgres__ask(
        postgres__of(store), ASK_FIND_KEY,
        "SELECT job_id FROM capstan.jobs WHERE idempotency_key = $1 AND submitted_at_ms >= $2 AND kind >= 0 "
        "ORDER BY submitted_at_ms DESC LIMIT 1",
        &params, &result, e);
    if (err != ERR_OK) {
        return err;
    }
    if (PQntuples(result) == 0) {
        err = error_set(e, ERR_NOT_FOUND, "no job has this idempotency key");
    } else {
        *out_job_id = postgres__text_at(result, 0, 0, arena);
    }
    PQclear(result);
    return err;
}

enum err postgres__payload(struct store *store, const char *job_id, const struct digest *digest, struct arena *arena,
                           const void **out_bytes, size_t *out_n, struct error *e)
{
    PGresult *result = NULL;
    struct postgres_params params = {0};
    postgres__param_text(&params, job_id);
    postgres__param_bytes(&params, digest, sizeof *digest);
    enum err err =
        postgres__ask(postgres__of(store), ASK_PAYLOAD,
                      "SELECT bytes FROM capstan.payloads WHERE job_id = $1 AND digest = $2", &params, &result, e);
    if (err != ERR_OK) {
        return err;
    }
    if (PQntuples(result) == 0) {
        err = error_set(e, ERR_NOT_FOUND, "job %s has no such payload", job_id);
    } else {
        *out_n = (size_t)PQgetlength(result, 0, 0);
        *out_bytes = arena_copy(arena, PQgetvalue(result, 0, 0), *out_n);
    }
    PQclear(result);
    return err;
}

enum err postgres__data_sets(struct store *store, struct arena *arena, const struct data_set **out, uint32_t *out_n,
                             struct error *e)
{
    PGresult *result = NULL;
    enum err err = postgres__ask(postgres__of(store), ASK_ONCE,
                                 "SELECT name, source, format FROM capstan.data_sets ORDER BY name", NULL, &result, e);
    if (err != ERR_OK) {
        return err;
    }
    uint32_t n = (uint32_t)PQntuples(result);
    struct data_set *sets = arena_alloc(arena, n * sizeof *sets);
    for (uint32_t i = 0; i < n; i++) {
        sets[i] = (struct data_set){
            .name = postgres__text_at(result, (int)i, 0, arena),
            .source = postgres__text_at(result, (int)i, 1, arena),
            .format = postgres__text_at(result, (int)i, 2, arena),
        };
    }
    PQclear(result);
    *out = sets;
    *out_n = n;
    return ERR_OK;
}

enum err postgres__inbox(struct store *store, const struct inbox_query *query, struct arena *arena,
                         const struct inbox_entry **out, uint32_t *out_n, struct error *e)
{
    PGresult *result = NULL;
    struct postgres_params params = {0};
    postgres__param_int(&params, (int64_t)query->after_id);
    postgres__param_int(&params, query->limit);
    enum err err = postgres__ask(postgres__of(store), ASK_ONCE,
                                 "SELECT id, job_id, tree FROM capstan.inbox WHERE id > $1 ORDER BY id LIMIT $2",
                                 &params, &result, e);
    if (err != ERR_OK) {
        return err;
    }
    uint32_t n = (uint32_t)PQntuples(result);
    struct inbox_entry *entries = arena_alloc(arena, n * sizeof *entries);
    for (uint32_t i = 0; i < n; i++) {
        size_t n_bytes = (size_t)PQgetlength(result, (int)i, 2);
        entries[i] = (struct inbox_entry){
            .id = (uint64_t)postgres__int_at(result, (int)i, 0),
            .job_id = postgres__text_at(result, (int)i, 1, arena),
            .tree = arena_copy(arena, PQgetvalue(result, (int)i, 2), n_bytes),
            .n_bytes = n_bytes,
        };
    }
    PQclear(result);
    *out = entries;
    *out_n = n;
    return ERR_OK;
}
