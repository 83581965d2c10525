/*
 * What a copy is made into: one transaction with a COPY in binary per table. Until it is committed nobody sees any of it,
 * and it holds the lock on the leader's table, so that nobody can lead meanwhile.
 */
#include <string.h>

#include "store/migration.h"
#include "store/postgres_internal.h"

/* What is gathered before it is sent. */
#define PIECE_BYTES ((size_t)256 * 1024)

static const char begin_sql[] = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL statement_timeout = 0; "
                                "SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL enable_seqscan = on";

/* The next leader's epoch goes beyond both. */
static const char epoch_sql[] =
    "INSERT INTO capstan.cluster_leader AS c (id, node_id, address, token, epoch, backend_pid, expires_at) "
    "VALUES (1, '', '', ''::bytea, $1, 0, to_timestamp(0)) "
    "ON CONFLICT (id) DO UPDATE SET epoch = greatest(c.epoch, excluded.epoch)";

static const char sequence_sql[] =
    "SELECT setval('capstan.inbox_id_seq', max(id)) FROM capstan.inbox HAVING max(id) > 0";

/* An empty database gets its schema; any other than this program's is left alone. */
static enum err ensure_schema(struct store *store, struct error *e)
{
    struct migration_status status = {0};
    enum err err = postgres__schema(store, &status, e);
    if (err == ERR_OK && status.current == 0) {
        return postgres__migrate(store, STORE_NEWEST, e);
    }
    if (err == ERR_OK && status.current != status.newest) {
        err = error_set(e, ERR_PRECONDITION, "the target's schema is version %u, this program's is %u", status.current,
                        status.newest);
        error_hint(e, status.is_too_new ? "use a newer capstan" : "bring it up to date: capstan store migrate");
    }
    return err;
}

static enum err check_nobody_leads(struct postgres *pg, struct error *e)
{
    PGresult *result = NULL;
    enum err err = postgres__query(pg,
                                   "SELECT node_id FROM capstan.cluster_leader "
                                   "WHERE token <> ''::bytea AND expires_at > clock_timestamp()",
                                   NULL, &result, e);
    if (err == ERR_OK && PQntuples(result) > 0) {
        err = error_set(e, ERR_BUSY, "%s leads in the target", PQgetvalue(result, 0, 0));
        error_hint(e, "stop its coordinators, or name another database");
    }
    PQclear(result);
    return err;
}

static enum err check_empty(struct postgres *pg, const struct copy_table *table, struct error *e)
{
    PGresult *result = NULL;
    struct buf sql = {0};
    buf_format(&sql, "SELECT 1 FROM capstan.%s LIMIT 1", table->name);
    enum err err = postgres__query(pg, sql.data, NULL, &result, e);
    buf_deinit(&sql);
    if (err == ERR_OK && PQntuples(result) > 0) {
        err = error_set(e, ERR_PRECONDITION, "the target is not empty: there are rows in %s", table->name);
        error_hint(e, "name an empty database, or empty this one with: capstan store rollback --to 0");
    }
    PQclear(result);
    return err;
}

static enum err begin(struct store *store, const struct copy_table *tables, uint32_t n, struct error *e)
{
    struct postgres *pg = postgres__of(store);
    enum err err = ensure_schema(store, e);
    if (err == ERR_OK) {
        err = postgres__begin(pg, POSTGRES_PATIENT_SILENCE_MS, true, e);
    }
    if (err == ERR_OK) {
        err = postgres__script(pg, begin_sql, e);
    }
    if (err == ERR_OK) {
        err = postgres__run(pg, "LOCK TABLE capstan.cluster_leader IN ACCESS EXCLUSIVE MODE", NULL, e);
    }
    if (err == ERR_OK) {
        err = check_nobody_leads(pg, e);
    }
    for (uint32_t i = 0; i < n && err == ERR_OK; i++) {
        err = check_empty(pg, &tables[i], e);
    }
    return err == ERR_OK ? ERR_OK : postgres__end(pg, err, e);
}

/* ---- a table ---- */

static void put_u32(struct buf *buf, uint32_t number)
{
    number = __builtin_bswap32(number);
    buf_append(buf, (const char *)&number, sizeof number);
}

static void put_u16(struct buf *buf, uint16_t number)
{
    number = __builtin_bswap16(number);
    buf_append(buf, (const char *)&number, sizeof number);
}

static enum err send_piece(struct postgres *pg, struct error *e)
{
    enum err err = postgres__copy_in(pg, pg->copy.data, pg->copy.n, e);
    buf_reset(&pg->copy);
    return err;
}

static enum err start(struct store *store, const struct copy_table *table, struct error *e)
{
    static const char header[] = "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0"; /* and the NUL of the string */
    struct postgres *pg = postgres__of(store);
    struct buf sql = {0};
    buf_format(&sql, "COPY capstan.%s", table->name);
    for (uint32_t i = 0; i < table->n_columns; i++) {
        buf_format(&sql, "%s%s", i == 0 ? " (" : ", ", table->columns[i]);
    }
    buf_text(&sql, ") FROM STDIN (FORMAT binary)");
    enum err err = postgres__copy_in_start(pg, sql.data, e);
    buf_deinit(&sql);
    buf_reset(&pg->copy);
    buf_append(&pg->copy, header, 19);
    pg->copy_columns = table->n_columns;
    return err;
}

static enum err row(void *context, const struct value *values, struct error *e)
{
    struct postgres *pg = postgres__of(context);
    put_u16(&pg->copy, (uint16_t)pg->copy_columns);
    for (uint32_t i = 0; i < pg->copy_columns; i++) {
        uint64_t number = __builtin_bswap64((uint64_t)values[i].number);
        switch (values[i].type) {
        case VALUE_IS_NULL:
            put_u32(&pg->copy, UINT32_MAX);
            break;
        case VALUE_IS_INT:
            put_u32(&pg->copy, sizeof number);
            buf_append(&pg->copy, (const char *)&number, sizeof number);
            break;
        case VALUE_IS_TEXT:
        case VALUE_IS_BYTES:
            put_u32(&pg->copy, (uint32_t)values[i].n);
            buf_append(&pg->copy, values[i].bytes, values[i].n);
            break;
        }
    }
    return pg->copy.n >= PIECE_BYTES ? send_piece(pg, e) : ERR_OK;
}

static enum err finish(struct store *store, struct error *e)
{
    struct postgres *pg = postgres__of(store);
    put_u16(&pg->copy, UINT16_MAX);
    enum err err = send_piece(pg, e);
    return err != ERR_OK ? err : postgres__copy_in_end(pg, e);
}

static enum err count(struct store *store, const struct copy_table *table, uint64_t *out, struct error *e)
{
    struct postgres *pg = postgres__of(store);
    PGresult *result = NULL;
    struct buf sql = {0};
    buf_format(&sql, "SELECT count(*) FROM capstan.%s", table->name);
    enum err err = postgres__query(pg, sql.data, NULL, &result, e);
    buf_deinit(&sql);
    if (err == ERR_OK) {
        *out = (uint64_t)postgres__int_at(result, 0, 0);
        PQclear(result);
    }
    return err;
}

static enum err end(struct store *store, uint64_t epoch, enum err err, struct error *e)
{
    struct postgres *pg = postgres__of(store);
    struct postgres_params params = {0};
    postgres__param_int(&params, (int64_t)epoch);
    if (err == ERR_OK && epoch > 0) {
        err = postgres__run(pg, epoch_sql, &params, e);
    }
    if (err == ERR_OK) {
        err = postgres__run(pg, sequence_sql, NULL, e);
    }
    /* In the middle of a COPY no statement would be understood: the connection ends, and the transaction with it. */
    if (err != ERR_OK && pg->conn != NULL && PQtransactionStatus(pg->conn) == PQTRANS_ACTIVE) {
        postgres__disconnect(pg);
    }
    buf_deinit(&pg->copy);
    return postgres__end(pg, err, e);
}

const struct copy_target postgres__copy_target =
    {.begin = begin, .start = start, .row = row, .finish = finish, .count = count, .end = end};
