/*
 * The store on PostgreSQL: the connection, and how statements run on it.
 *
 * libpq is used without blocking, so that a server that has gone silent cannot hold a call for ever: every wait ends after
 * the call's `silence_ms`, and the connection is closed then. It is made anew by the next call.
 *
 * The settings of the session (session_settings) are part of the design. A commit is durable when it is acknowledged,
 * whatever the server's default is. And no statement may depend on what the planner happens to know about a table:
 * task_leases is empty whenever nothing runs, so a plan that was made then would read the whole table for every row of
 * the next large batch. All our statements go along an index, so everything else is ruled out.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/migration.h"
#include "store/postgres_internal.h"

#define TEXT_OID 25
#define BIGINT_OID 20
#define BYTEA_OID 17
#define TEXT_ARRAY_OID 1009
#define BIGINT_ARRAY_OID 1016
#define BYTEA_ARRAY_OID 1001

static const char session_settings[] = "SET client_encoding = 'UTF8';"
                                       "SET synchronous_commit = on;"
                                       "SET default_transaction_isolation = 'read committed';"
                                       "SET default_transaction_deferrable = off;"
                                       "SET statement_timeout = 60000;"
                                       "SET lock_timeout = 10000;"
                                       "SET idle_in_transaction_session_timeout = 30000;"
                                       "SET search_path = capstan, pg_catalog;"
                                       "SET client_min_messages = error;"
                                       "SET plan_cache_mode = force_generic_plan;"
                                       "SET enable_seqscan = off;"
                                       "SET enable_bitmapscan = off;"
                                       "SET enable_hashjoin = off;"
                                       "SET enable_mergejoin = off;"
                                       "SET enable_material = off;"
                                       "SET enable_sort = off;"
                                       "SET max_parallel_workers_per_gather = 0;"
                                       "SET jit = off";

/* ---- errors ---- */

/* The first row that is a prefix of an SQLSTATE says what it means; all others mean ERR_UNAVAILABLE. */
static const struct {
    const char *prefix;
    enum err code;
} meanings[] = {
    {"CPFEN", ERR_FENCED},                            /* raised by capstan.fence */
    {"22", ERR_INVALID},                              /* data exceptions */
    {"23", ERR_INVALID},                              /* constraints */
    {"54", ERR_INVALID},                              /* too large for an index, too many columns */
    {"3F000", ERR_PRECONDITION},                      /* no schema capstan */
    {"42P01", ERR_PRECONDITION},                      /* no such table */
    {"42703", ERR_PRECONDITION},                      /* no such column */
    {"42883", ERR_PRECONDITION},                      /* no such function */
    {"42501", ERR_DENIED},       {"55P03", ERR_BUSY}, /* lock_timeout */
};

static enum err meaning_of(const char *sqlstate)
{
    for (size_t i = 0; sqlstate != NULL && i < ARRAY_LEN(meanings); i++) {
        if (strncmp(sqlstate, meanings[i].prefix, strlen(meanings[i].prefix)) == 0) {
            return meanings[i].code;
        }
    }
    return ERR_UNAVAILABLE;
}

/* Without the newline at its end. */
static int text_length(const char *text)
{
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == '\n') {
        n--;
    }
    return n > 400 ? 400 : (int)n;
}

/* libpq writes several lines, with tabs; a message is one. */
static void make_one_line(struct error *e)
{
    for (char *p = e == NULL ? NULL : e->message; p != NULL && *p != '\0'; p++) {
        *p = *p == '\n' || *p == '\t' || *p == '\r' ? ' ' : *p;
    }
}

enum err postgres__lost(struct postgres *pg, struct error *e)
{
    const char *text = pg->conn == NULL ? "" : PQerrorMessage(pg->conn);
    enum err err =
        error_set(e, ERR_UNAVAILABLE, "the connection to the database is lost: %.*s", text_length(text), text);
    make_one_line(e);
    postgres__disconnect(pg);
    return err;
}

enum err postgres__failed(struct postgres *pg, const PGresult *result, struct error *e)
{
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *primary = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (sqlstate == NULL || PQstatus(pg->conn) != CONNECTION_OK) {
        return postgres__lost(pg, e);
    }
    enum err code = meaning_of(sqlstate);
    pg->is_duplicate = strcmp(sqlstate, "23505") == 0;
    error_set(e, code, "the database says: %s (%s)", primary == NULL ? "an error" : primary, sqlstate);
    if (code == ERR_PRECONDITION) {
        error_hint(e, "bring the schema up to date: capstan store migrate");
    } else if (code == ERR_UNAVAILABLE) {
        postgres__disconnect(pg);
    }
    return code;
}

/* ---- waiting ---- */

/* Waits until the socket is ready. False if it is not within silence_ms. */
static bool wait_socket(struct postgres *pg, short events)
{
    int64_t deadline_ms = clock_mono_ms() + pg->silence_ms;
    struct pollfd socket = {.fd = PQsocket(pg->conn), .events = events};
    for (;;) {
        int64_t left_ms = deadline_ms - clock_mono_ms();
        int rc = left_ms <= 0 ? 0 : poll(&socket, 1, (int)left_ms);
        if (rc >= 0 || errno != EINTR) {
            return rc > 0;
        }
    }
}

static enum err silent(struct postgres *pg, struct error *e)
{
    enum err err =
        error_set(e, ERR_UNAVAILABLE, "the database has not answered for %lld ms", (long long)pg->silence_ms);
    postgres__disconnect(pg);
    return err;
}

enum err postgres__result(struct postgres *pg, PGresult **out, struct error *e)
{
    for (;;) {
        int unsent = PQflush(pg->conn);
        if (unsent < 0) {
            return postgres__lost(pg, e);
        }
        if (unsent == 0 && !PQisBusy(pg->conn)) {
            break;
        }
        if (!wait_socket(pg, unsent > 0 ? POLLIN | POLLOUT : POLLIN)) {
            return silent(pg, e);
        }
        if (PQconsumeInput(pg->conn) == 0) {
            return postgres__lost(pg, e);
        }
    }
    *out = PQgetResult(pg->conn);
    return ERR_OK;
}

/* ---- connecting ---- */

void postgres__disconnect(struct postgres *pg)
{
    PQfinish(pg->conn);
    pg->conn = NULL;
    pg->is_schema_checked = false;
    pg->is_leader_known = false;
    pg->is_prepared = false;
    pg->is_listening = false;
    memset(pg->knows, 0, sizeof pg->knows);
}

/* libpq would print what a server says in passing. All that matters comes back as an error, too. */
static void ignore_notice(void *context, const char *text)
{
    UNUSED(context);
    UNUSED(text);
}

/* Without blocking for longer than silence_ms at a time; libpq's own connect_timeout would not count here. */
static enum err connect_now(struct postgres *pg, struct error *e)
{
    /* What comes before the URL are defaults, which it can override; what comes after it cannot be changed. */
    static const char *const keywords[] = {"fallback_application_name",
                                           "target_session_attrs",
                                           "tcp_user_timeout",
                                           "keepalives_idle",
                                           "keepalives_interval",
                                           "keepalives_count",
                                           "dbname",
                                           "client_encoding",
                                           NULL};
    const char *const values[] = {"capstan", "read-write", "15000", "5", "3", "3", pg->url, "UTF8", NULL};
    PostgresPollingStatusType status = PGRES_POLLING_WRITING;
    pg->conn = PQconnectStartParams(keywords, values, 1);
    if (pg->conn == NULL || PQstatus(pg->conn) == CONNECTION_BAD) {
        status = PGRES_POLLING_FAILED;
    }
    if (pg->conn != NULL) {
        PQsetNoticeProcessor(pg->conn, ignore_notice, NULL);
    }
    while (status != PGRES_POLLING_OK && status != PGRES_POLLING_FAILED) {
        if (!wait_socket(pg, status == PGRES_POLLING_READING ? POLLIN : POLLOUT)) {
            return silent(pg, e);
        }
        status = PQconnectPoll(pg->conn);
    }
    if (status == PGRES_POLLING_FAILED) {
        const char *text = pg->conn == NULL ? "" : PQerrorMessage(pg->conn);
        error_set(e, ERR_UNAVAILABLE, "cannot connect to the database: %.*s", text_length(text), text);
        make_one_line(e);
        postgres__disconnect(pg);
        return ERR_UNAVAILABLE;
    }
    return ERR_OK;
}

static enum err connect_and_set(struct postgres *pg, struct error *e)
{
    enum err err = connect_now(pg, e);
    if (err != ERR_OK) {
        return err;
    }
    const char *encoding = PQparameterStatus(pg->conn, "server_encoding");
    if (encoding == NULL || strcmp(encoding, "UTF8") != 0) {
        error_set(e, ERR_PRECONDITION, "the database's encoding is %s, not UTF8",
                  encoding == NULL ? "unknown" : encoding);
        error_hint(e, "create it with: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0");
        postgres__disconnect(pg);
        return ERR_PRECONDITION;
    }
    if (PQsetnonblocking(pg->conn, 1) != 0) {
        return postgres__lost(pg, e);
    }
    err = postgres__script(pg, session_settings, e);
    if (err != ERR_OK) {
        postgres__disconnect(pg);
    }
    return err;
}

/* Whether the connection stands, as far as one can tell without asking: a server that went away has closed it. */
static bool is_connected(struct postgres *pg)
{
    if (pg->conn == NULL || PQstatus(pg->conn) != CONNECTION_OK) {
        return false;
    }
    /* Its last words may come before the end. */
    struct pollfd socket = {.fd = PQsocket(pg->conn), .events = POLLIN};
    while (poll(&socket, 1, 0) > 0) {
        if (PQconsumeInput(pg->conn) == 0) {
            return false;
        }
    }
    return PQtransactionStatus(pg->conn) == PQTRANS_IDLE;
}

enum err postgres__no_schema(struct error *e)
{
    error_set(e, ERR_PRECONDITION, "the database has no schema of this program yet");
    error_hint(e, "make it: capstan store migrate");
    return ERR_PRECONDITION;
}

static enum err check_schema(struct postgres *pg, struct error *e)
{
    uint32_t version;
    uint32_t newest = migration_newest("postgres");
    enum err err = postgres__schema_version(pg, &version, e);
    if (err != ERR_OK) {
        return err;
    }
    if (version == 0) {
        return postgres__no_schema(e);
    }
    if (version != newest) {
        /* For the time of an upgrade: another coordinator is of the release that the schema is of. */
        error_set(e, ERR_UNAVAILABLE, "the database's schema is version %u, this program's is %u", version, newest);
        error_hint(e, version > newest ? "use a newer capstan" : "bring it up to date: capstan store migrate");
        return ERR_UNAVAILABLE;
    }
    pg->is_schema_checked = true;
    return ERR_OK;
}

enum err postgres__begin(struct postgres *pg, int64_t silence_ms, bool needs_schema, struct error *e)
{
    enum err err = ERR_OK;
    arena_reset(&pg->arena);
    if (!is_connected(pg)) {
        postgres__disconnect(pg);
        pg->silence_ms = POSTGRES_LEADER_SILENCE_MS; /* connecting is quick, or fails */
        err = connect_and_set(pg, e);
    }
    pg->silence_ms = silence_ms;
    if (err == ERR_OK && needs_schema && !pg->is_schema_checked) {
        err = check_schema(pg, e);
    }
    return err;
}

/* ---- statements ---- */

static void add_param(struct postgres_params *params, Oid type, const void *value, size_t n)
{
    ASSERT(params->n < POSTGRES_PARAMS_MAX);
    ASSERT(n <= INT32_MAX);
    params->types[params->n] = type;
    params->values[params->n] = value;
    params->lengths[params->n] = (int)n;
    params->formats[params->n] = 1;
    params->n++;
}

void postgres__param_text(struct postgres_params *params, const char *text)
{
    add_param(params, TEXT_OID, text, text == NULL ? 0 : strlen(text));
}

void postgres__param_int(struct postgres_params *params, int64_t number)
{
    uint64_t bits = __builtin_bswap64((uint64_t)number);
    uint8_t *at = params->numbers[params->n];
    memcpy(at, &bits, sizeof bits);
    add_param(params, BIGINT_OID, at, sizeof bits);
}

void postgres__param_bytes(struct postgres_params *params, const void *bytes, size_t n)
{
    add_param(params, BYTEA_OID, bytes == NULL ? "" : bytes, n);
}

void postgres__param_array(struct postgres_params *params, const struct postgres_arrays *arrays, uint32_t column)
{
    enum value_type type = arrays->types[column];
    Oid oid = type == VALUE_IS_INT ? BIGINT_ARRAY_OID : type == VALUE_IS_TEXT ? TEXT_ARRAY_OID : BYTEA_ARRAY_OID;
    add_param(params, oid, arrays->at[column].data, arrays->at[column].n);
}

static bool is_success(const PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

/* Waits for all results of what was sent. Keeps the first. */
static enum err collect(struct postgres *pg, PGresult **out, struct error *e)
{
    PGresult *first = NULL;
    PGresult *next = NULL;
    enum err err = ERR_OK;
    for (;;) {
        err = postgres__result(pg, &next, e);
        if (err != ERR_OK || next == NULL) {
            break;
        }
        if (first == NULL || (is_success(first) && !is_success(next))) {
            PQclear(first);
            first = next;
        } else {
            PQclear(next);
        }
    }
    if (err == ERR_OK && (first == NULL || !is_success(first))) {
        err = first == NULL ? postgres__lost(pg, e) : postgres__failed(pg, first, e);
    }
    if (err != ERR_OK) {
        PQclear(first);
        return err;
    }
    *out = first;
    return ERR_OK;
}

enum err postgres__query(struct postgres *pg, const char *sql, const struct postgres_params *params, PGresult **out,
                         struct error *e)
{
    static const struct postgres_params none;
    const struct postgres_params *p = params == NULL ? &none : params;
    if (PQsendQueryParams(pg->conn, sql, p->n, p->types, p->values, p->lengths, p->formats, 1) == 0) {
        return postgres__lost(pg, e);
    }
    return collect(pg, out, e);
}

enum err postgres__run(struct postgres *pg, const char *sql, const struct postgres_params *params, struct error *e)
{
    PGresult *result = NULL;
    enum err err = postgres__query(pg, sql, params, &result, e);
    PQclear(result);
    return err;
}

enum err postgres__script(struct postgres *pg, const char *sql, struct error *e)
{
    PGresult *result = NULL;
    enum err err = PQsendQuery(pg->conn, sql) == 0 ? postgres__lost(pg, e) : collect(pg, &result, e);
    PQclear(result);
    return err;
}

static enum err prepare_question(struct postgres *pg, const char *name, const char *sql,
                                 const struct postgres_params *params, struct error *e)
{
    PGresult *result = NULL;
    enum err err = PQsendPrepare(pg->conn, name, sql, params->n, params->types) == 0 ? postgres__lost(pg, e)
                                                                                     : collect(pg, &result, e);
    PQclear(result);
    return err;
}

enum err postgres__ask(struct postgres *pg, enum postgres_question question, const char *sql,
                       const struct postgres_params *params, PGresult **out, struct error *e)
{
    static const char *const names[ASK_ONCE] = {"ask0", "ask1", "ask2", "ask3", "ask4", "ask5"};
    enum err err = postgres__begin(pg, POSTGRES_LEADER_SILENCE_MS, true, e);
    if (err != ERR_OK || question == ASK_ONCE) {
        return err != ERR_OK ? err : postgres__query(pg, sql, params, out, e);
    }
    if (!pg->knows[question]) {
        err = prepare_question(pg, names[question], sql, params, e);
        pg->knows[question] = err == ERR_OK;
    }
    if (err != ERR_OK) {
        return err;
    }
    if (PQsendQueryPrepared(pg->conn, names[question], params->n, params->values, params->lengths, params->formats,
                            1) == 0) {
        return postgres__lost(pg, e);
    }
    return collect(pg, out, e);
}

/* Throws away the rest of what a statement gives. */
static void drain(struct postgres *pg)
{
    PGresult *result = NULL;
    while (pg->conn != NULL && postgres__result(pg, &result, NULL) == ERR_OK && result != NULL) {
        PQclear(result);
    }
}

enum err postgres__copy_start(struct postgres *pg, const char *query, struct error *e)
{
    struct buf sql = {0};
    PGresult *result = NULL;
    buf_format(&sql, "COPY (%s) TO STDOUT (FORMAT binary)", query);
    int is_sent = PQsendQuery(pg->conn, sql.data);
    buf_deinit(&sql);
    enum err err = is_sent == 0 ? postgres__lost(pg, e) : postgres__result(pg, &result, e);
    if (err == ERR_OK && PQresultStatus(result) != PGRES_COPY_OUT) {
        err = result == NULL ? postgres__lost(pg, e) : postgres__failed(pg, result, e);
        drain(pg);
    }
    PQclear(result);
    return err;
}

enum err postgres__copy_next(struct postgres *pg, char **out_data, size_t *out_n, struct error *e)
{
    for (;;) {
        int n = PQgetCopyData(pg->conn, out_data, 1);
        if (n > 0) {
            *out_n = (size_t)n;
            return ERR_OK;
        }
        if (n < 0) {
            break;
        }
        if (!wait_socket(pg, POLLIN)) {
            return silent(pg, e);
        }
        if (PQconsumeInput(pg->conn) == 0) {
            return postgres__lost(pg, e);
        }
    }
    PGresult *result = NULL;
    *out_data = NULL;
    enum err err = collect(pg, &result, e);
    PQclear(result);
    return err;
}

enum err postgres__copy_in_start(struct postgres *pg, const char *sql, struct error *e)
{
    PGresult *result = NULL;
    enum err err = PQsendQuery(pg->conn, sql) == 0 ? postgres__lost(pg, e) : postgres__result(pg, &result, e);
    if (err == ERR_OK && PQresultStatus(result) != PGRES_COPY_IN) {
        err = result == NULL ? postgres__lost(pg, e) : postgres__failed(pg, result, e);
        drain(pg);
    }
    PQclear(result);
    return err;
}

/* All that was queued goes out before more is taken: libpq would keep any amount. */
static enum err flush(struct postgres *pg, struct error *e)
{
    for (;;) {
        int unsent = PQflush(pg->conn);
        if (unsent <= 0) {
            return unsent == 0 ? ERR_OK : postgres__lost(pg, e);
        }
        if (!wait_socket(pg, POLLIN | POLLOUT)) {
            return silent(pg, e);
        }
        if (PQconsumeInput(pg->conn) == 0) {
            return postgres__lost(pg, e);
        }
    }
}

enum err postgres__copy_in(struct postgres *pg, const char *data, size_t n, struct error *e)
{
    ASSERT(n <= INT32_MAX);
    return PQputCopyData(pg->conn, data, (int)n) == 1 ? flush(pg, e) : postgres__lost(pg, e);
}

enum err postgres__copy_in_end(struct postgres *pg, struct error *e)
{
    PGresult *result = NULL;
    enum err err = PQputCopyEnd(pg->conn, NULL) == 1 ? collect(pg, &result, e) : postgres__lost(pg, e);
    PQclear(result);
    return err;
}

enum err postgres__end(struct postgres *pg, enum err err, struct error *e)
{
    if (err == ERR_OK) {
        return postgres__run(pg, "COMMIT", NULL, e);
    }
    if (pg->conn != NULL && PQtransactionStatus(pg->conn) != PQTRANS_IDLE &&
        postgres__run(pg, "ROLLBACK", NULL, NULL) != ERR_OK) {
        postgres__disconnect(pg);
    }
    return err;
}

/* ---- results ---- */

int64_t postgres__int_at(const PGresult *result, int row, int column)
{
    uint64_t bits = 0;
    if (!PQgetisnull(result, row, column) && PQgetlength(result, row, column) == (int)sizeof bits) {
        memcpy(&bits, PQgetvalue(result, row, column), sizeof bits);
    }
    return (int64_t)__builtin_bswap64(bits);
}

struct value postgres__value_at(const PGresult *result, int row, int column, enum value_type type)
{
    if (PQgetisnull(result, row, column)) {
        return (struct value){.type = VALUE_IS_NULL};
    }
    if (type == VALUE_IS_INT) {
        return (struct value){.type = VALUE_IS_INT, .number = postgres__int_at(result, row, column)};
    }
    return (struct value){
        .type = type, .bytes = PQgetvalue(result, row, column), .n = (size_t)PQgetlength(result, row, column)};
}

const char *postgres__text_at(const PGresult *result, int row, int column, struct arena *arena)
{
    return PQgetisnull(result, row, column) ? NULL : arena_strdup(arena, PQgetvalue(result, row, column));
}

void postgres__write_columns(struct buf *sql, const struct table *table, const char *alias)
{
    const char *separator = "";
    for (uint32_t i = 0; i < table->n_columns; i++) {
        if (column_is_read(&table->columns[i])) {
            buf_format(sql, "%s%s.%s", separator, alias, table->columns[i].name);
            separator = ", ";
        }
    }
}

enum err postgres__row_at(const PGresult *result, int row, const struct table *table, struct arena *arena,
                          struct row **out, struct error *e)
{
    struct row *made = table_row(table, arena);
    int at = 0;
    for (uint32_t i = 0; i < table->n_columns; i++) {
        const struct column *column = &table->columns[i];
        if (!column_is_read(column)) {
            continue;
        }
        enum err err = table_set(made, column, postgres__value_at(result, row, at++, column_type(column)), arena, e);
        if (err != ERR_OK) {
            return err;
        }
    }
    *out = made;
    return ERR_OK;
}

/* ---- open and close ---- */

static void close_store(struct store *store)
{
    struct postgres *pg = postgres__of(store);
    postgres__disconnect(pg);
    postgres__arrays_deinit(&pg->arrays);
    net_deinit(&pg->net);
    arena_deinit(&pg->arena);
    wake_deinit(&pg->wake);
    spec_memo_deinit(&pg->memo);
    mem_free(pg->url);
    mem_free(pg);
}

static const struct engine engine = {
    .close = close_store,
    .schema = postgres__schema,
    .migrate = postgres__migrate,
    .lead = postgres__lead,
    .renew = postgres__renew,
    .resign = postgres__resign,
    .leader = postgres__leader,
    .commit = postgres__commit,
    .load = postgres__load,
    .load_job = postgres__load_job,
    .find_key = postgres__find_key,
    .payload = postgres__payload,
    .payloads = postgres__payloads,
    .results = postgres__results,
    .known_jobs = postgres__known_jobs,
    .data_sets = postgres__data_sets,
    .inbox = postgres__inbox,
    .listen = postgres__listen,
    .wait = postgres__wait,
    .interrupt = postgres__interrupt,
    .jobs = postgres__jobs,
    .tasks = postgres__tasks,
    .task_results = postgres__task_results,
    .events = postgres__events,
    .prune = postgres__prune,
    .summarize = postgres__summarize,
    .target = &postgres__copy_target,
};

enum err postgres_open(const char *url, struct store **out_store, struct error *e)
{
    char *complaint = NULL;
    PQconninfoOption *options = PQconninfoParse(url, &complaint);
    if (options == NULL) {
        /* The complaint may quote the URL, and with it a password. */
        PQfreemem(complaint);
        error_set(e, ERR_INVALID, "the store's URL is not one that PostgreSQL understands");
        error_hint(e, "use postgres://user@host/database");
        return ERR_INVALID;
    }
    PQconninfoFree(options);
    struct postgres *pg = mem_calloc(1, sizeof *pg);
    pg->store.engine = &engine;
    pg->url = mem_strdup(url);
    enum err err = wake_init(&pg->wake, e);
    if (err == ERR_OK) {
        err = postgres__begin(pg, POSTGRES_SILENCE_MS, false, e);
    }
    if (err != ERR_OK) {
        close_store(&pg->store);
        return err;
    }
    *out_store = &pg->store;
    return ERR_OK;
}
