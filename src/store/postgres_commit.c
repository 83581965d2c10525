/*
 * Commits: one pipeline of prepared statements, whose number depends on which tables a batch touches and not on how many
 * rows it has. Everything is sent before the first answer is read.
 *
 *   BEGIN, fence, sweeps, removals, new rows, changed rows, payloads, data sets, inbox, COMMIT
 *
 * The fence is a function that fails with an SQLSTATE of its own: then the server skips the rest of the pipeline. So it
 * does after any other error, and nothing is committed.
 *
 * What says that it is new is inserted as it is, without ON CONFLICT, which looks first whether it is there. Only a batch
 * that is applied a second time, or a job in the place of one that is being removed, finds something there; then nothing
 * was committed, and the batch is sent again with statements that expect it.
 *
 * Rows come as one array per column. unnest in the select list walks them side by side. Rows that exist are found by a
 * subquery for each of them (LATERAL with a LIMIT, which the planner cannot turn around) and then addressed by ctid:
 * nobody else writes these tables, as the fence sees to that.
 */
#include <string.h>

#include "base/planted.h"
#include "store/postgres_internal.h"

enum statement {
    ST_BEGIN,
    ST_FENCE,
    ST_SWEEP_TASKS,
    ST_SWEEP_LEASES,
    ST_SWEEP_MAP_OUTPUTS,
    ST_SWEEP_ATTEMPTS,
    ST_LEASE_GONE_BY_TOKEN,
    ST_PAYLOADS,
    ST_DATA_SETS_GONE,
    ST_DATA_SETS,
    ST_INBOX_DONE,
    ST_COMMIT,
    ST_FIXED_COUNT,
    ST_GONE = ST_FIXED_COUNT, /* + row kind; so are the next three */
    ST_NEW = ST_GONE + ROW_META,
    ST_CHANGED = ST_NEW + ROW_META,
    ST_FRESH = ST_CHANGED + ROW_META,
    ST_COUNT = ST_FRESH + ROW_META,
};

/* The numbers are those of enum task_state and enum attempt_outcome. */
#define SWEPT(table, condition)                                                                                        \
    "(SELECT l.at, u.at_ms FROM (SELECT unnest($1::text[]) AS job_id, unnest($2::bigint[]) AS at_ms) u, "              \
    "LATERAL (SELECT x.ctid AS at FROM capstan." table " x WHERE x.job_id = u.job_id" condition " OFFSET 0) l) k"

static const char *const texts[ST_FIXED_COUNT] = {
    [ST_BEGIN] = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
    [ST_FENCE] = "SELECT capstan.fence($1::bigint, $2::bytea)",
    [ST_SWEEP_TASKS] = "UPDATE capstan.tasks t SET outcome = CASE t.state WHEN 1 THEN 4 ELSE t.outcome END, state = 4, "
                       "finished_at_ms = k.at_ms, lease_expires_at_ms = 0 FROM " SWEPT(
                           "tasks", " AND x.state < 2") " WHERE t.ctid = k.at",
    [ST_SWEEP_LEASES] = "DELETE FROM capstan.task_leases t USING " SWEPT("task_leases", "") " WHERE t.ctid = k.at",
    [ST_SWEEP_MAP_OUTPUTS] = "DELETE FROM capstan.map_outputs t USING " SWEPT("map_outputs", "") " WHERE t.ctid = k.at",
    [ST_SWEEP_ATTEMPTS] = "UPDATE capstan.execution_idempotency t SET status = 4, changed_at_ms = k.at_ms "
                          "FROM " SWEPT("execution_idempotency", " AND x.status = 1") " WHERE t.ctid = k.at",
    [ST_LEASE_GONE_BY_TOKEN] =
        "DELETE FROM capstan.task_leases t USING (SELECT l.at FROM (SELECT unnest($1::text[]) AS c0, "
        "unnest($2::bigint[]) AS c1, unnest($3::bigint[]) AS c2, unnest($4::bytea[]) AS c3) u, LATERAL (SELECT x.ctid AS at "
        "FROM capstan.task_leases x WHERE x.job_id = u.c0 AND x.stage = u.c1 AND x.task = u.c2 AND x.lease_token = u.c3 "
        "LIMIT 1) l) k WHERE t.ctid = k.at",
    [ST_PAYLOADS] =
        "INSERT INTO capstan.payloads (job_id, digest, bytes) SELECT unnest($1::text[]), unnest($2::bytea[]), "
        "unnest($3::bytea[]) ON CONFLICT (job_id, digest) DO NOTHING",
    [ST_DATA_SETS_GONE] = "DELETE FROM capstan.data_sets WHERE name = ANY ($1::text[])",
    /* The last word on each name; the removals are part of it. */
    [ST_DATA_SETS] = "INSERT INTO capstan.data_sets (name, source, format) SELECT u.name, u.source, u.format FROM "
                     "(SELECT DISTINCT ON (a.name) a.name, a.source, a.format FROM (SELECT unnest($1::text[]) AS name, "
                     "unnest($2::text[]) AS source, unnest($3::text[]) AS format, unnest($4::bigint[]) AS place) a "
                     "ORDER BY a.name, a.place DESC) u WHERE u.source IS NOT NULL",
    [ST_INBOX_DONE] = "DELETE FROM capstan.inbox WHERE id = ANY ($1::bigint[])",
    [ST_COMMIT] = "COMMIT",
};

/* ---- statements out of tables ---- */

static const char *array_type(const struct column *column)
{
    enum value_type type = column_type(column);
    return type == VALUE_IS_INT ? "bigint[]" : type == VALUE_IS_TEXT ? "text[]" : "bytea[]";
}

static bool is_sent(const struct column *column, enum statement base)
{
    return base == ST_NEW || column->role == ROLE_KEY || (base == ST_CHANGED && column->role == ROLE_CHANGES);
}

/* "unnest($1::text[]) AS job_id, ..." for the columns that this kind of statement gets. */
static void write_unnest(struct buf *sql, const struct table *table, enum statement base)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < table->n_columns; i++) {
        if (is_sent(&table->columns[i], base)) {
            buf_format(sql, "%sunnest($%u::%s) AS c%u", n == 0 ? "" : ", ", n + 1, array_type(&table->columns[i]), i);
            n++;
        }
    }
}

/* "name<between>prefixN<separator>..." for the columns of a role. */
struct list_form {
    const char *before;
    const char *separator;
    const char *value; /* NULL: only names; "c": the column of unnest; "excluded": that of the row refused */
};

static void write_list(struct buf *sql, const struct table *table, enum column_role role, struct list_form form)
{
    const char *separator = form.before;
    for (uint32_t i = 0; i < table->n_columns; i++) {
        const char *name = table->columns[i].name;
        if (table->columns[i].role != role) {
            continue;
        }
        if (form.value == NULL) {
            buf_format(sql, "%s%s", separator, name);
        } else if (strcmp(form.value, "excluded") == 0) {
            buf_format(sql, "%s%s = excluded.%s", separator, name, name);
        } else if (role == ROLE_KEY) {
            buf_format(sql, "%sx.%s = u.c%u", separator, name, i);
        } else {
            buf_format(sql, "%s%s = k.c%u", separator, name, i);
        }
        separator = form.separator;
    }
}

static bool has_changes(const struct table *table)
{
    for (uint32_t i = 0; i < table->n_columns; i++) {
        if (table->columns[i].role == ROLE_CHANGES) {
            return true;
        }
    }
    return false;
}

/* A job in the place of one whose removal had begun: nothing of that is left. */
static void write_revival(struct buf *sql, const struct table *table)
{
    for (uint32_t i = 0; i < table->n_columns; i++) {
        const char *name = table->columns[i].name;
        if (table->columns[i].role != ROLE_FIXED) {
            continue;
        }
        buf_format(sql, ", %s = CASE WHEN o.kind >= 0 THEN o.%s ELSE ", name, name);
        buf_format(sql, strcmp(name, "kind") == 0 ? "capstan.clear_job(o.job_id, excluded.%s) END" : "excluded.%s END",
                   name);
    }
}

/* Rows that are new (`is_fresh`: for sure, so that nothing has to be looked up first). */
static void write_new(struct buf *sql, const struct table *table, bool is_fresh)
{
    buf_format(sql, "INSERT INTO capstan.%s AS o ", table->name);
    for (uint32_t i = 0; i < table->n_columns; i++) {
        buf_format(sql, "%s%s", i == 0 ? "(" : ", ", table->columns[i].name);
    }
    buf_text(sql, ") SELECT ");
    write_unnest(sql, table, ST_NEW);
    if (is_fresh) {
        return;
    }
    write_list(sql, table, ROLE_KEY, (struct list_form){" ON CONFLICT (", ", ", NULL});
    buf_text(sql, has_changes(table) ? ") DO UPDATE" : ") DO NOTHING");
    write_list(sql, table, ROLE_CHANGES, (struct list_form){" SET ", ", ", "excluded"});
    if (table->kind == ROW_JOB) {
        write_revival(sql, table);
    }
}

/* The places of the rows with these keys, as k. */
static void write_places(struct buf *sql, const struct table *table, enum statement base)
{
    buf_text(sql, "(SELECT u.*, l.at FROM (SELECT ");
    write_unnest(sql, table, base);
    buf_format(sql, ") u, LATERAL (SELECT x.ctid AS at FROM capstan.%s x", table->name);
    write_list(sql, table, ROLE_KEY, (struct list_form){" WHERE ", " AND ", "c"});
    buf_text(sql, " LIMIT 1) l) k WHERE t.ctid = k.at");
}

static void write_changed(struct buf *sql, const struct table *table)
{
    buf_format(sql, "UPDATE capstan.%s t", table->name);
    write_list(sql, table, ROLE_CHANGES, (struct list_form){" SET ", ", ", "c"});
    buf_text(sql, " FROM ");
    write_places(sql, table, ST_CHANGED);
}

static void write_gone(struct buf *sql, const struct table *table)
{
    buf_format(sql, "DELETE FROM capstan.%s t USING ", table->name);
    write_places(sql, table, ST_GONE);
}

/* False if there is no such statement. */
static bool write_statement(struct buf *sql, uint32_t which)
{
    buf_reset(sql);
    if (which < ST_FIXED_COUNT) {
        buf_text(sql, texts[which]);
        return true;
    }
    const struct table *table = table_of((enum row_kind)((which - ST_FIXED_COUNT) % ROW_META));
    bool is_fresh = which >= ST_FRESH;
    if (table == NULL || (!is_fresh && which >= ST_CHANGED && !has_changes(table))) {
        return false;
    }
    if (which >= ST_CHANGED && !is_fresh) {
        write_changed(sql, table);
    } else if (which >= ST_NEW) {
        write_new(sql, table, is_fresh);
    } else {
        write_gone(sql, table);
    }
    return true;
}

/* ---- pipelines ---- */

/* Static names save a lookup by content on every use. */
static const char *name_of(uint32_t which, char name[16])
{
    name[0] = 'c';
    name[1] = 'a';
    name[2] = 'p';
    name[3] = (char)('0' + which / 100);
    name[4] = (char)('0' + which / 10 % 10);
    name[5] = (char)('0' + which % 10);
    name[6] = '\0';
    return name;
}

/* The first failure of the pipeline, if there is one. */
static enum err read_pipeline(struct postgres *pg, uint32_t n, struct error *e)
{
    enum err failure = ERR_OK;
    for (uint32_t i = 0; i < n; i++) {
        PGresult *result = NULL;
        PGresult *end = NULL;
        enum err err = postgres__result(pg, &result, e);
        if (err == ERR_OK && result == NULL) {
            err = postgres__lost(pg, e);
        }
        if (err == ERR_OK && failure == ERR_OK && PQresultStatus(result) == PGRES_FATAL_ERROR) {
            failure = postgres__failed(pg, result, e);
            err = pg->conn == NULL ? failure : ERR_OK;
        }
        PQclear(result);
        if (err == ERR_OK) {
            err = postgres__result(pg, &end, e);
            PQclear(end);
        }
        if (err != ERR_OK) {
            return failure != ERR_OK ? failure : err;
        }
    }
    return failure;
}

/* Ends a pipeline of `n` statements and says how it went. */
static enum err finish_pipeline(struct postgres *pg, uint32_t n, struct error *e)
{
    PGresult *sync = NULL;
    if (PQpipelineSync(pg->conn) == 0) {
        return postgres__lost(pg, e);
    }
    enum err err = read_pipeline(pg, n, e);
    if (pg->conn == NULL) {
        return err;
    }
    enum err rest = postgres__result(pg, &sync, err == ERR_OK ? e : NULL);
    bool is_sync = rest == ERR_OK && PQresultStatus(sync) == PGRES_PIPELINE_SYNC;
    PQclear(sync);
    if (rest == ERR_OK && (!is_sync || PQexitPipelineMode(pg->conn) == 0)) {
        rest = postgres__lost(pg, err == ERR_OK ? e : NULL);
    }
    return err != ERR_OK ? err : rest;
}

static enum err prepare_all(struct postgres *pg, struct error *e)
{
    struct buf sql = {0};
    char name[16];
    uint32_t n = 0;
    bool is_sent_well = PQenterPipelineMode(pg->conn) == 1;
    for (uint32_t i = 0; i < ST_COUNT && is_sent_well; i++) {
        if (write_statement(&sql, i)) {
            is_sent_well = PQsendPrepare(pg->conn, name_of(i, name), sql.data, 0, NULL) == 1;
            n++;
        }
    }
    buf_deinit(&sql);
    enum err err = is_sent_well ? finish_pipeline(pg, n, e) : postgres__lost(pg, e);
    if (err != ERR_OK) {
        postgres__disconnect(pg); /* some are prepared, some are not */
        return err;
    }
    pg->is_prepared = true;
    return ERR_OK;
}

/* ---- sending ---- */

/* A commit under way. */
struct commit {
    struct postgres *pg;
    uint32_t n_sent;
    bool is_careful; /* rows that say that they are new may be there already */
    bool is_broken;  /* the connection refused to take more */
};

static void send_params(struct commit *c, uint32_t which, const struct postgres_params *params)
{
    char name[16];
    if (!c->is_broken && PQsendQueryPrepared(c->pg->conn, name_of(which, name), params->n, params->values,
                                             params->lengths, params->formats, 1) == 0) {
        c->is_broken = true;
    }
    c->n_sent++;
}

static void send_plain(struct commit *c, enum statement which)
{
    static const struct postgres_params none;
    send_params(c, which, &none);
}

/* Sends the arrays that are filled, if there is anything in them, and empties them. */
static void send_arrays(struct commit *c, uint32_t which)
{
    struct postgres_arrays *arrays = &c->pg->arrays;
    struct postgres_params params = {0};
    if (arrays->n_rows == 0) {
        return;
    }
    postgres__arrays_finish(arrays);
    for (uint32_t i = 0; i < arrays->n; i++) {
        params.values[i] = arrays->at[i].data;
        params.lengths[i] = (int)arrays->at[i].n;
        params.formats[i] = 1;
    }
    params.n = (int)arrays->n;
    send_params(c, which, &params);
    postgres__arrays_start(arrays, arrays->types, arrays->n);
}

/* One row of the arrays is complete. */
static void end_row(struct commit *c, uint32_t which)
{
    c->pg->arrays.n_rows++;
    if (c->pg->arrays.n_bytes >= POSTGRES_STATEMENT_BYTES) {
        send_arrays(c, which);
    }
}

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

static void send_sweeps(struct commit *c)
{
    static const enum value_type types[] = {VALUE_IS_TEXT, VALUE_IS_INT};
    static const enum statement statements[] = {ST_SWEEP_TASKS, ST_SWEEP_LEASES, ST_SWEEP_MAP_OUTPUTS,
                                                ST_SWEEP_ATTEMPTS};
    struct postgres_arrays *arrays = &c->pg->arrays;
    for (size_t i = 0; i < ARRAY_LEN(statements); i++) {
        postgres__arrays_start(arrays, types, ARRAY_LEN(types));
        for (const struct net_owner *o = c->pg->net.swept; o != NULL; o = o->next_swept) {
            postgres__arrays_put(arrays, 0, text_value(o->name));
            postgres__arrays_put(arrays, 1, int_value(o->swept_at_ms));
            end_row(c, statements[i]);
        }
        send_arrays(c, statements[i]);
    }
}

static void send_leases_gone(struct commit *c)
{
    static const enum value_type types[] = {VALUE_IS_TEXT, VALUE_IS_INT, VALUE_IS_INT, VALUE_IS_BYTES};
    struct postgres_arrays *arrays = &c->pg->arrays;
    postgres__arrays_start(arrays, types, ARRAY_LEN(types));
    for (const struct net_lease_gone *g = c->pg->net.leases_gone; g != NULL; g = g->next) {
        postgres__arrays_put(arrays, 0, text_value(g->row->ref.job_id));
        postgres__arrays_put(arrays, 1, int_value(g->row->ref.stage));
        postgres__arrays_put(arrays, 2, int_value(g->row->ref.task));
        postgres__arrays_put(arrays, 3, bytes_value(&g->row->token, sizeof g->row->token));
        end_row(c, ST_LEASE_GONE_BY_TOKEN);
    }
    send_arrays(c, ST_LEASE_GONE_BY_TOKEN);
}

static void send_gone(struct commit *c, const struct table *table)
{
    static const enum value_type types[] = {VALUE_IS_TEXT, VALUE_IS_INT, VALUE_IS_INT, VALUE_IS_INT};
    struct postgres_arrays *arrays = &c->pg->arrays;
    uint32_t n_keys = 0;
    while (n_keys < table->n_columns && table->columns[n_keys].role == ROLE_KEY) {
        n_keys++;
    }
    uint32_t which = ST_GONE + (uint32_t)table->kind;
    postgres__arrays_start(arrays, types, n_keys);
    for (const struct net_cell *cell = c->pg->net.kinds[table->kind].first; cell != NULL; cell = cell->next) {
        if (!cell->is_gone) {
            continue;
        }
        postgres__arrays_put(arrays, 0, text_value(cell->owner->name));
        for (uint32_t i = 1; i < n_keys; i++) {
            postgres__arrays_put(arrays, i, int_value(cell->key[i - 1]));
        }
        end_row(c, which);
    }
    send_arrays(c, which);
}

/* Rows of the other tables replace each other without saying so. */
static bool says_what_is_new(const struct table *table)
{
    return table->new_offset >= 0 || table->kind == ROW_ATTEMPT || table->kind == ROW_EVENT;
}

/* Rows that may be new (ST_NEW), or all others (ST_CHANGED). */
static void send_rows(struct commit *c, const struct table *table, enum statement base)
{
    struct postgres_arrays *arrays = &c->pg->arrays;
    enum value_type types[POSTGRES_PARAMS_MAX];
    uint32_t columns[POSTGRES_PARAMS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < table->n_columns; i++) {
        if (is_sent(&table->columns[i], base)) {
            types[n] = column_type(&table->columns[i]);
            columns[n++] = i;
        }
    }
    bool is_fresh = base == ST_NEW && !c->is_careful && says_what_is_new(table);
    uint32_t which = (is_fresh ? (uint32_t)ST_FRESH : (uint32_t)base) + (uint32_t)table->kind;
    postgres__arrays_start(arrays, types, n);
    for (const struct net_cell *cell = c->pg->net.kinds[table->kind].first; cell != NULL; cell = cell->next) {
        if (cell->changes == NULL || (cell->fixed != NULL) != (base == ST_NEW)) {
            continue;
        }
        for (uint32_t i = 0; i < n; i++) {
            const struct column *column = &table->columns[columns[i]];
            const struct row *row = column->role == ROLE_FIXED ? cell->fixed : cell->changes;
            postgres__arrays_put(arrays, i, table_get(row, column, &c->pg->arena));
        }
        end_row(c, which);
    }
    send_arrays(c, which);
}

static void send_all_rows(struct commit *c)
{
    static const enum row_kind order[] = {ROW_JOB,    ROW_STAGE, ROW_TASK,    ROW_LEASE, ROW_MAP_OUTPUT,
                                          ROW_RESULT, ROW_NODE,  ROW_ATTEMPT, ROW_EVENT};
    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        if (c->pg->net.kinds[order[i]].first != NULL) {
            const struct table *table = table_of(order[i]);
            send_gone(c, table);
            send_rows(c, table, ST_NEW);
            send_rows(c, table, ST_CHANGED);
        }
    }
}

static void send_payloads(struct commit *c, const struct batch *batch)
{
    static const enum value_type types[] = {VALUE_IS_TEXT, VALUE_IS_BYTES, VALUE_IS_BYTES};
    struct postgres_arrays *arrays = &c->pg->arrays;
    postgres__arrays_start(arrays, types, ARRAY_LEN(types));
    for (uint32_t i = 0; i < batch->n_payloads; i++) {
        const struct payload *payload = &batch->payloads[i];
        postgres__arrays_put(arrays, 0, text_value(payload->job_id));
        postgres__arrays_put(arrays, 1, bytes_value(&payload->digest, sizeof payload->digest));
        postgres__arrays_put(arrays, 2, bytes_value(payload->bytes, payload->n_bytes));
        end_row(c, ST_PAYLOADS);
    }
    send_arrays(c, ST_PAYLOADS);
}

static void send_data_sets(struct commit *c, const struct batch *batch)
{
    static const enum value_type types[] = {VALUE_IS_TEXT, VALUE_IS_TEXT, VALUE_IS_TEXT, VALUE_IS_INT};
    struct postgres_arrays *arrays = &c->pg->arrays;
    postgres__arrays_start(arrays, types, 1);
    for (uint32_t i = 0; i < batch->n_data_sets; i++) {
        postgres__arrays_put(arrays, 0, text_value(batch->data_sets[i].name));
        arrays->n_rows++;
    }
    send_arrays(c, ST_DATA_SETS_GONE);
    postgres__arrays_start(arrays, types, ARRAY_LEN(types));
    for (uint32_t i = 0; i < batch->n_data_sets; i++) {
        postgres__arrays_put(arrays, 0, text_value(batch->data_sets[i].name));
        postgres__arrays_put(arrays, 1, text_value(batch->data_sets[i].source));
        postgres__arrays_put(arrays, 2, text_value(batch->data_sets[i].format));
        postgres__arrays_put(arrays, 3, int_value(i));
        arrays->n_rows++;
    }
    send_arrays(c, ST_DATA_SETS);
}

static void send_inbox_done(struct commit *c, const struct batch *batch)
{
    static const enum value_type types[] = {VALUE_IS_INT};
    struct postgres_arrays *arrays = &c->pg->arrays;
    postgres__arrays_start(arrays, types, ARRAY_LEN(types));
    for (uint32_t i = 0; i < batch->n_inbox_done; i++) {
        postgres__arrays_put(arrays, 0, int_value((int64_t)batch->inbox_done[i]));
        end_row(c, ST_INBOX_DONE);
    }
    send_arrays(c, ST_INBOX_DONE);
}

static enum err run_pipeline(struct postgres *pg, const struct fence *fence, const struct batch *batch, bool is_careful,
                             struct error *e)
{
    struct commit c = {.pg = pg, .is_careful = is_careful};
    struct postgres_params params = {0};
    if (PQenterPipelineMode(pg->conn) == 0) {
        return postgres__lost(pg, e);
    }
    postgres__param_fence(&params, fence);
    send_plain(&c, ST_BEGIN);
    if (!PLANTED(skip_fence)) {
        send_params(&c, ST_FENCE, &params);
    }
    send_sweeps(&c);
    send_leases_gone(&c);
    send_all_rows(&c);
    send_payloads(&c, batch);
    send_data_sets(&c, batch);
    send_inbox_done(&c, batch);
    send_plain(&c, ST_COMMIT);
    return c.is_broken ? postgres__lost(pg, e) : finish_pipeline(pg, c.n_sent, e);
}

enum err postgres__commit(struct store *store, const struct fence *fence, const struct batch *batch, struct error *e)
{
    struct postgres *pg = postgres__of(store);
    enum err err = postgres__begin(pg, POSTGRES_SILENCE_MS, true, e);
    if (err == ERR_OK && !pg->is_prepared) {
        err = prepare_all(pg, e);
    }
    if (err == ERR_OK) {
        net_fill(&pg->net, batch, &pg->arena);
        pg->is_duplicate = false;
        err = run_pipeline(pg, fence, batch, false, e);
        if (err != ERR_OK) {
            err = postgres__end(pg, err, e);
        }
        if (err == ERR_INVALID && pg->is_duplicate && pg->conn != NULL) {
            err = run_pipeline(pg, fence, batch, true, e);
            err = err != ERR_OK ? postgres__end(pg, err, e) : ERR_OK;
        }
    }
    if (err != ERR_OK && err != ERR_FENCED && err != ERR_INVALID && err != ERR_UNAVAILABLE) {
        postgres__disconnect(pg);
        err = error_set(e, ERR_UNAVAILABLE, "%s", e == NULL ? "" : e->message);
    }
    return err;
}
