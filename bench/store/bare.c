#include "bare.h"

#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

#define COLUMNS_MAX 32
#define TABLES (ROW_META + 1) /* by kind; the last one is `payloads` */

struct bare {
    sqlite3 *lite;
    sqlite3_stmt *statements[OP_KINDS][TABLES];
    PGconn *pg;
    bool is_prepared[OP_KINDS][TABLES];
};

/* One statement of PostgreSQL with its arrays. */
struct call {
    enum op_kind what;
    const struct table *table;
    uint32_t n_params;
    struct buf params[COLUMNS_MAX];
};

struct call_list {
    struct call *calls;
    uint32_t n;
};

struct bare_script {
    const struct script *script;
    struct call_list *lists; /* PostgreSQL: one per transaction */
};

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "bench-store: %s: %s\n", what, why);
    exit(1);
}

/* ---- statements ---- */

/* Whether a column is a parameter; of a row that goes, the key and the token are. */
static bool is_sent(const struct table *table, enum op_kind what, uint32_t i)
{
    const struct column *column = &table->columns[i];
    if (what == OP_GONE) {
        return column->role == ROLE_KEY || column->kind == COLUMN_TOKEN;
    }
    return what == OP_NEW || column->role != ROLE_FIXED;
}

static bool is_key(const struct table *table, enum op_kind what, uint32_t i)
{
    return table->columns[i].role == ROLE_KEY || (what == OP_GONE && is_sent(table, what, i));
}

static void lite_sql(struct buf *sql, const struct table *table, enum op_kind what)
{
    const char *separator = "";
    if (what == OP_NEW) {
        buf_format(sql, "INSERT INTO %s VALUES (", table->name);
        for (uint32_t i = 0; i < table->n_columns; i++) {
            buf_format(sql, "%s?%u", i == 0 ? "" : ", ", i + 1);
        }
        buf_char(sql, ')');
        return;
    }
    buf_format(sql, what == OP_GONE ? "DELETE FROM %s" : "UPDATE %s SET ", table->name);
    for (uint32_t i = 0; i < table->n_columns && what == OP_CHANGED; i++) {
        if (table->columns[i].role == ROLE_CHANGES) {
            buf_format(sql, "%s%s = ?%u", separator, table->columns[i].name, i + 1);
            separator = ", ";
        }
    }
    separator = " WHERE ";
    for (uint32_t i = 0; i < table->n_columns; i++) {
        if (is_key(table, what, i)) {
            buf_format(sql, "%s%s = ?%u", separator, table->columns[i].name, i + 1);
            separator = " AND ";
        }
    }
}

static void pg_arrays(struct buf *sql, const struct table *table, enum op_kind what)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < table->n_columns; i++) {
        if (is_sent(table, what, i)) {
            enum value_type type = column_type(&table->columns[i]);
            buf_format(sql, "%sunnest($%u::%s[]) AS c%u", n == 0 ? "SELECT " : ", ", n + 1,
                       type == VALUE_IS_INT    ? "bigint"
                       : type == VALUE_IS_TEXT ? "text"
                                               : "bytea",
                       i);
            n++;
        }
    }
}

/*
 * Rows that exist are found one by one along the key, by a subquery that the planner cannot turn around. A plain join would
 * be planned anew whenever the server has looked at task_leases while that was empty, and then compare every lease with
 * every row of the batch: the bare engine would look slow, and we fast.
 */
static void pg_sql(struct buf *sql, const struct table *table, enum op_kind what)
{
    const char *separator = " SET ";
    if (what == OP_NEW) {
        buf_format(sql, "INSERT INTO capstan.%s ", table->name);
        pg_arrays(sql, table, what);
        return;
    }
    buf_format(sql, what == OP_GONE ? "DELETE FROM capstan.%s t" : "UPDATE capstan.%s t", table->name);
    for (uint32_t i = 0; i < table->n_columns && what == OP_CHANGED; i++) {
        if (table->columns[i].role == ROLE_CHANGES) {
            buf_format(sql, "%s%s = k.c%u", separator, table->columns[i].name, i);
            separator = ", ";
        }
    }
    buf_text(sql, what == OP_GONE ? " USING (" : " FROM (");
    buf_text(sql, "SELECT u.*, l.at FROM (");
    pg_arrays(sql, table, what);
    buf_format(sql, ") u, LATERAL (SELECT x.ctid AS at FROM capstan.%s x", table->name);
    separator = " WHERE ";
    for (uint32_t i = 0; i < table->n_columns; i++) {
        if (is_key(table, what, i)) {
            buf_format(sql, "%sx.%s = u.c%u", separator, table->columns[i].name, i);
            separator = " AND ";
        }
    }
    buf_text(sql, " LIMIT 1) l) k WHERE t.ctid = k.at");
}

/* ---- opening ---- */

struct bare *bare_open(const char *url)
{
    struct bare *bare = mem_calloc(1, sizeof *bare);
    if (strncmp(url, "sqlite:", strlen("sqlite:")) == 0) {
        if (sqlite3_open(url + strlen("sqlite:"), &bare->lite) != SQLITE_OK) {
            die(url, sqlite3_errmsg(bare->lite));
        }
        bare_run(bare, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536; "
                       "PRAGMA wal_autocheckpoint = 8000");
        return bare;
    }
    bare->pg = PQconnectdb(url);
    if (PQstatus(bare->pg) != CONNECTION_OK) {
        die(url, PQerrorMessage(bare->pg));
    }
    /* Else a plan that was made while a table was empty would be kept, and be very wrong later. */
    bare_run(bare, "SET synchronous_commit = on; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; "
                   "SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; "
                   "SET enable_material = off; SET jit = off; SET client_min_messages = error");
    return bare;
}

void bare_close(struct bare *bare)
{
    for (int what = 0; what < OP_KINDS; what++) {
        for (int kind = 0; kind < TABLES; kind++) {
            sqlite3_finalize(bare->statements[what][kind]);
        }
    }
    sqlite3_close(bare->lite);
    PQfinish(bare->pg);
    mem_free(bare);
}

void bare_run(struct bare *bare, const char *sql)
{
    if (bare->lite != NULL) {
        if (sqlite3_exec(bare->lite, sql, NULL, NULL, NULL) != SQLITE_OK) {
            die(sql, sqlite3_errmsg(bare->lite));
        }
        return;
    }
    PGresult *result = PQexec(bare->pg, sql);
    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK) {
        die(sql, PQerrorMessage(bare->pg));
    }
    PQclear(result);
}

static int take_number(void *out, int n, char **values, char **names)
{
    (void)n;
    (void)names;
    *(long long *)out = values[0] == NULL ? 0 : strtoll(values[0], NULL, 10);
    return 0;
}

long long bare_number(struct bare *bare, const char *sql)
{
    long long number = 0;
    if (bare->lite != NULL) {
        if (sqlite3_exec(bare->lite, sql, take_number, &number, NULL) != SQLITE_OK) {
            die(sql, sqlite3_errmsg(bare->lite));
        }
        return number;
    }
    PGresult *result = PQexec(bare->pg, sql);
    if (PQresultStatus(result) != PGRES_TUPLES_OK) {
        die(sql, PQerrorMessage(bare->pg));
    }
    number = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return number;
}

/* ---- preparing ---- */

static void put_u32(struct buf *buf, uint32_t number)
{
    number = __builtin_bswap32(number);
    buf_append(buf, &number, sizeof number);
}

static void put_value(struct buf *buf, const struct value *value)
{
    uint64_t number = __builtin_bswap64((uint64_t)value->number);
    if (value->type == VALUE_IS_NULL) {
        put_u32(buf, UINT32_MAX);
    } else if (value->type == VALUE_IS_INT) {
        put_u32(buf, sizeof number);
        buf_append(buf, &number, sizeof number);
    } else {
        put_u32(buf, (uint32_t)value->n);
        buf_append(buf, value->bytes, value->n);
    }
}

/* All rows of one table and kind of change in one call. */
static void fill_call(struct call *call, const struct transaction *t)
{
    uint32_t n_rows = 0;
    for (uint32_t k = 0; k < t->n_ops; k++) {
        n_rows += t->ops[k].what == call->what && t->ops[k].table == call->table;
    }
    for (uint32_t i = 0; i < call->table->n_columns; i++) {
        if (!is_sent(call->table, call->what, i)) {
            continue;
        }
        struct buf *buf = &call->params[call->n_params++];
        enum value_type type = column_type(&call->table->columns[i]);
        const uint32_t header[] = {1, 1, type == VALUE_IS_INT ? 20 : type == VALUE_IS_TEXT ? 25 : 17, n_rows, 1};
        for (size_t h = 0; h < ARRAY_LEN(header); h++) {
            put_u32(buf, header[h]);
        }
        for (uint32_t k = 0; k < t->n_ops; k++) {
            if (t->ops[k].what == call->what && t->ops[k].table == call->table) {
                put_value(buf, &t->ops[k].values[i]);
            }
        }
    }
}

static struct call_list calls_of(const struct transaction *t)
{
    struct call_list list = {.calls = mem_calloc(OP_KINDS * (size_t)TABLES, sizeof *list.calls)};
    for (int what = OP_KINDS - 1; what >= 0; what--) { /* removals first, as a lease may be taken anew */
        for (int kind = 0; kind < TABLES; kind++) {
            bool any = false;
            for (uint32_t k = 0; k < t->n_ops; k++) {
                any = any ||
                      (t->ops[k].what == (enum op_kind)what && t->ops[k].table == script_table((enum row_kind)kind));
            }
            if (any) {
                list.calls[list.n] =
                    (struct call){.what = (enum op_kind)what, .table = script_table((enum row_kind)kind)};
                fill_call(&list.calls[list.n++], t);
            }
        }
    }
    return list;
}

static void name_of(char name[8], enum op_kind what, enum row_kind kind)
{
    snprintf(name, 8, "b%d_%d", (int)what, (int)kind);
}

static void prepare_statement(struct bare *bare, const struct op *op)
{
    struct buf sql = {0};
    enum row_kind kind = op->table->kind;
    char name[8];
    if (bare->lite != NULL && bare->statements[op->what][kind] == NULL) {
        lite_sql(&sql, op->table, op->what);
        if (sqlite3_prepare_v3(bare->lite, sql.data, -1, SQLITE_PREPARE_PERSISTENT, &bare->statements[op->what][kind],
                               NULL) != SQLITE_OK) {
            die(sql.data, sqlite3_errmsg(bare->lite));
        }
    } else if (bare->pg != NULL && !bare->is_prepared[op->what][kind]) {
        pg_sql(&sql, op->table, op->what);
        name_of(name, op->what, kind);
        PGresult *result = PQprepare(bare->pg, name, sql.data, 0, NULL);
        if (PQresultStatus(result) != PGRES_COMMAND_OK) {
            die(sql.data, PQerrorMessage(bare->pg));
        }
        PQclear(result);
        bare->is_prepared[op->what][kind] = true;
    }
    buf_deinit(&sql);
}

struct bare_script *bare_prepare(struct bare *bare, const struct script *script)
{
    struct bare_script *made = mem_calloc(1, sizeof *made);
    made->script = script;
    for (uint32_t i = 0; i < script->n; i++) {
        for (uint32_t k = 0; k < script->transactions[i].n_ops; k++) {
            prepare_statement(bare, &script->transactions[i].ops[k]);
        }
    }
    if (bare->pg != NULL) {
        made->lists = mem_calloc(script->n, sizeof *made->lists);
        for (uint32_t i = 0; i < script->n; i++) {
            made->lists[i] = calls_of(&script->transactions[i]);
        }
    }
    return made;
}

void bare_script_free(struct bare_script *script)
{
    for (uint32_t i = 0; i < script->script->n && script->lists != NULL; i++) {
        for (uint32_t k = 0; k < script->lists[i].n; k++) {
            for (uint32_t p = 0; p < script->lists[i].calls[k].n_params; p++) {
                buf_deinit(&script->lists[i].calls[k].params[p]);
            }
        }
        mem_free(script->lists[i].calls);
    }
    mem_free(script->lists);
    mem_free(script);
}

/* ---- writing ---- */

static void lite_write(struct bare *bare, const struct transaction *t)
{
    bare_run(bare, "BEGIN IMMEDIATE");
    for (uint32_t k = 0; k < t->n_ops; k++) {
        const struct op *op = &t->ops[k];
        sqlite3_stmt *stmt = bare->statements[op->what][op->table->kind];
        for (uint32_t i = 0; i < op->table->n_columns; i++) {
            const struct value *v = &op->values[i];
            int at = (int)i + 1;
            if (!is_sent(op->table, op->what, i)) {
                continue;
            }
            if (v->type == VALUE_IS_NULL) {
                sqlite3_bind_null(stmt, at);
            } else if (v->type == VALUE_IS_INT) {
                sqlite3_bind_int64(stmt, at, v->number);
            } else if (v->type == VALUE_IS_TEXT) {
                sqlite3_bind_text64(stmt, at, v->bytes, v->n, SQLITE_STATIC, SQLITE_UTF8);
            } else {
                sqlite3_bind_blob64(stmt, at, v->bytes, v->n, SQLITE_STATIC);
            }
        }
        if (sqlite3_step(stmt) != SQLITE_DONE) {
            die(sqlite3_sql(stmt), sqlite3_errmsg(bare->lite));
        }
        sqlite3_reset(stmt);
    }
    bare_run(bare, "COMMIT");
}

static void pg_send(struct bare *bare, const struct call *call)
{
    char name[8];
    const char *values[COLUMNS_MAX];
    int lengths[COLUMNS_MAX];
    int formats[COLUMNS_MAX];
    for (uint32_t i = 0; i < call->n_params; i++) {
        values[i] = call->params[i].data;
        lengths[i] = (int)call->params[i].n;
        formats[i] = 1;
    }
    name_of(name, call->what, call->table->kind);
    PQsendQueryPrepared(bare->pg, name, (int)call->n_params, values, lengths, formats, 1);
}

static void pg_write(struct bare *bare, const struct call_list *list)
{
    PQenterPipelineMode(bare->pg);
    PQsendQueryParams(bare->pg, "BEGIN", 0, NULL, NULL, NULL, NULL, 1);
    for (uint32_t i = 0; i < list->n; i++) {
        pg_send(bare, &list->calls[i]);
    }
    PQsendQueryParams(bare->pg, "COMMIT", 0, NULL, NULL, NULL, NULL, 1);
    PQpipelineSync(bare->pg);
    for (uint32_t i = 0; i < list->n + 2; i++) {
        PGresult *result = PQgetResult(bare->pg);
        if (PQresultStatus(result) != PGRES_COMMAND_OK) {
            die("the bare PostgreSQL", PQerrorMessage(bare->pg));
        }
        PQclear(result);
        PQclear(PQgetResult(bare->pg));
    }
    PQclear(PQgetResult(bare->pg));
    PQexitPipelineMode(bare->pg);
}

void bare_write(struct bare *bare, const struct bare_script *script, uint32_t transaction)
{
    if (bare->lite != NULL) {
        lite_write(bare, &script->script->transactions[transaction]);
    } else {
        pg_write(bare, &script->lists[transaction]);
    }
}
