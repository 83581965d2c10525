/*
 * foreign.c - SQL of others, which may read, and change nothing but what is gone with its connection.
 *
 * Whoever looked at such SQL before may have parted it into statements, and these into words, in another way than DuckDB
 * does. So what counts is what DuckDB itself takes it for: the kinds of its statements, and a transaction in which it refuses
 * to change any database but that of the connection's temporary objects. Two things escape that transaction: secrets,
 * which are made by a CREATE, and whatever EXPLAIN ANALYZE runs, which DuckDB does not tell.
 */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "duck/duck_internal.h"

/* ---- statements, as DuckDB parts them ---- */

enum err duck__extract(struct duck_connection *connection, const char *sql, duckdb_extracted_statements *out,
                       idx_t *out_n, struct error *e)
{
    *out_n = duck__api.extract_statements(connection->connection, sql, out);
    if (*out_n > 0) {
        return ERR_OK;
    }
    const char *text = duck__api.extract_statements_error(*out);
    return text != NULL ? duck__fail(connection, e, text)
                        : error_set(e, ERR_INVALID, "there is no statement in the SQL");
}

uint64_t duck_statements(struct duck_connection *connection, const char *sql)
{
    duckdb_extracted_statements statements = NULL;
    idx_t n = duck__api.extract_statements(connection->connection, sql, &statements);
    duck__api.destroy_extracted(&statements);
    return n;
}

enum err duck__execute(struct duck_connection *connection, duckdb_prepared_statement statement, struct error *e)
{
    duckdb_result result = {0};
    enum err err = ERR_OK;
    if (duck__api.execute_prepared(statement, &result) != DuckDBSuccess) {
        err = duck__fail(connection, e, duck__api.result_error(&result));
    }
    duck__api.destroy_result(&result);
    return err;
}

/* ---- the transaction ---- */

/* Without duck__begin: an interrupt that has come is for the statement that these are around. */
static enum err run_plain(struct duck_connection *connection, const char *sql, struct error *e)
{
    duckdb_result result = {0};
    enum err err = ERR_OK;
    if (duck__api.query(connection->connection, sql, &result) != DuckDBSuccess) {
        err = duck__fail(connection, e, duck__api.result_error(&result));
    }
    duck__api.destroy_result(&result);
    return err;
}

enum err duck__begin_reading(struct duck_connection *connection, struct error *e)
{
    return run_plain(connection, "BEGIN TRANSACTION READ ONLY", e);
}

void duck__end_reading(struct duck_connection *connection)
{
    if (run_plain(connection, "COMMIT", NULL) != ERR_OK) { /* after an error there is nothing to keep */
        enum err err = run_plain(connection, "ROLLBACK", NULL);
        UNUSED(err); /* it may be over already */
    }
}

/* ---- what may be run in it ---- */

static enum err refuse(idx_t i, struct error *e)
{
    return error_set(e, ERR_INVALID, "statement %" PRIu64 " of the SQL does not only read", (uint64_t)i + 1);
}

/* A secret is everybody's. Unlike all else that is created, it says how that went. */
static bool is_secret(duckdb_prepared_statement statement)
{
    const char *name = duck__api.prepared_statement_column_name(statement, 0);
    bool is_secret = name == NULL || strcmp(name, "Count") != 0;
    duck__api.free((void *)(uintptr_t)name);
    return is_secret;
}

enum err duck__check_before(duckdb_prepared_statement statement, idx_t i, struct error *e)
{
    bool is_right =
        duck__api.prepared_statement_type(statement) == DUCKDB_STATEMENT_TYPE_CREATE && !is_secret(statement);
    return is_right ? ERR_OK : refuse(i, e);
}

/* Behind white space and comments. */
static const char *skip_blanks(const char *p)
{
    for (;;) {
        const char *end = strncmp(p, "/*", 2) == 0 ? strstr(p + 2, "*/") : NULL;
        if (strncmp(p, "--", 2) == 0) {
            p += strcspn(p, "\r\n");
        } else if (end != NULL) {
            p = end + 2;
        } else if (*p != '\0' && strchr(" \t\r\n", *p) != NULL) {
            p++;
        } else {
            return p;
        }
    }
}

/* Goes behind the word, if it is here. */
static bool take_word(const char **p, const char *word)
{
    size_t n = strlen(word);
    bool is_here = strncasecmp(*p, word, n) == 0 && strchr("( \t\r\n/-", (*p)[n]) != NULL;
    *p = is_here ? skip_blanks(*p + n) : *p;
    return is_here;
}

/*
 * What EXPLAIN explains; NULL if it cannot be seen. Before it are only words, blanks and brackets; nobody takes these for
 * anything else as long as there is no quote among them, nor a comment in a comment.
 */
static const char *behind_explain(const char *sql, bool has_options)
{
    const char *p = skip_blanks(sql);
    bool is_explain = take_word(&p, "EXPLAIN");
    (void)take_word(&p, "ANALYZE");
    const char *end = has_options && *p == '(' ? strchr(p, ')') : NULL;
    p = end != NULL ? end + 1 : p;
    size_t n_comments = 0;
    bool is_plain = is_explain && (end != NULL) == has_options;
    for (const char *c = sql; c < p && is_plain; c++) {
        n_comments += strncmp(c, "/*", 2) == 0 ? 1 : 0;
        n_comments -= strncmp(c, "*/", 2) == 0 ? 1 : 0;
        is_plain = strchr("'\"$", *c) == NULL && n_comments <= 1;
    }
    return is_plain ? p : NULL;
}

static bool is_one_select(struct duck_connection *connection, const char *sql)
{
    duckdb_extracted_statements statements = NULL;
    duckdb_prepared_statement statement = NULL;
    bool is_one =
        duck__api.extract_statements(connection->connection, sql, &statements) == 1 &&
        duck__api.prepare_extracted_statement(connection->connection, statements, 0, &statement) == DuckDBSuccess &&
        duck__api.prepared_statement_type(statement) == DUCKDB_STATEMENT_TYPE_SELECT;
    duck__api.destroy_prepare(&statement);
    duck__api.destroy_extracted(&statements);
    return is_one;
}

enum err duck__check_last(struct duck_connection *connection, duckdb_prepared_statement statement, const char *sql,
                          idx_t n, struct error *e)
{
    duckdb_statement_type type = duck__api.prepared_statement_type(statement);
    bool is_right = type == DUCKDB_STATEMENT_TYPE_SELECT;
    for (int i = 0; i < 2 && !is_right && type == DUCKDB_STATEMENT_TYPE_EXPLAIN && n == 1; i++) {
        const char *explained = behind_explain(sql, i == 0);
        is_right = explained != NULL && is_one_select(connection, explained);
    }
    return is_right ? ERR_OK : refuse(n - 1, e);
}

static enum err run_views(struct duck_connection *connection, const char *sql, struct error *e)
{
    duckdb_extracted_statements statements = NULL;
    duckdb_prepared_statement statement = NULL;
    idx_t n = 0;
    enum err err = duck__extract(connection, sql, &statements, &n, e);
    for (idx_t i = 0; i < n && err == ERR_OK; i++) {
        if (duck__api.prepare_extracted_statement(connection->connection, statements, i, &statement) != DuckDBSuccess) {
            err = duck__fail(connection, e, duck__api.prepare_error(statement));
        } else {
            err = duck__check_before(statement, i, e);
        }
        if (err == ERR_OK) {
            err = duck__execute(connection, statement, e);
        }
        duck__api.destroy_prepare(&statement);
    }
    duck__api.destroy_extracted(&statements);
    return err;
}

enum err duck_run_views(struct duck_connection *connection, const char *sql, struct error *e)
{
    duck__begin(connection);
    enum err err = duck__begin_reading(connection, e);
    if (err == ERR_OK) {
        err = run_views(connection, sql, e);
        duck__end_reading(connection);
    }
    return err;
}

enum err duck__write_copy(struct buf *out, struct duck_connection *connection, const char *select, const char *to,
                          struct error *e)
{
    /* A text that is a statement by itself cannot end the brackets around it; and there may be more behind these. */
    buf_format(out, "COPY (%s\n) TO %s", select, to); /* the SQL may end in a comment */
    if (duck_statements(connection, select) == 1 && duck_statements(connection, out->data) == 1) {
        return ERR_OK;
    }
    duckdb_extracted_statements statements = NULL; /* the message is about the larger text, as if it had been run */
    idx_t n = 0;
    enum err err = duck__extract(connection, out->data, &statements, &n, e);
    duck__api.destroy_extracted(&statements);
    return err != ERR_OK ? err : error_set(e, ERR_INVALID, "the rows of one SELECT are expected");
}
