/*
 * duck.h - DuckDB behind a dozen functions; nobody else knows its header.
 *
 * The library is opened at the first use (duck_open), so that a process that never touches SQL does not pay for it. It is
 * looked for in the file that CAPSTAN_DUCKDB names, and only there if that is set; else beside the program, in
 * ../lib/capstan and ../lib from there, in the folder where `./dev setup` puts it for programs under build/, and in
 * /usr/local/lib/capstan and /usr/lib/capstan.
 *
 * An instance is a database in memory with its own settings and threads; workers have one for fragments and a small one
 * for planning. A connection runs one statement at a time.
 *
 * Ownership: what is opened is closed by its opener: results before their connection, connections before their instance.
 * Arrow structs that are handed out belong to the receiver; a stream that is registered belongs to the connection.
 * Threads: an instance may be used by several. A connection and its result belong to one thread at a time, except that
 * duck_interrupt and duck_progress may be called from any thread as long as the connection is open. DuckDB calls a
 * registered stream from threads of its own, one at a time.
 */
#ifndef CAPSTAN_DUCK_DUCK_H
#define CAPSTAN_DUCK_DUCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "capstan/arrow.h"

struct duck;
struct duck_connection;
struct duck_result;

/* Zero or NULL leaves a setting as DuckDB has it. */
struct duck_options {
    uint64_t memory_bytes_max;
    uint32_t threads;
    const char *temp_folder;         /* where it spills to; NULL: it may not spill */
    const char *disabled_optimizers; /* names with commas between; a name that DuckDB does not know is an error */
    bool has_short_decimals;         /* results can be had with these: duck_result_shorten */
    bool keeps_metadata;             /* of Parquet files; wrong for one that is written again within a second */
    bool keeps_files;                /* as DuckDB does if nobody says anything; wrong likewise */
};

/*
 * What every worker of a query must have alike, because hashes and states of aggregates depend on it: DuckDB's version
 * and the architecture, such as "duckdb-v1.5.6-x86_64". Opens the library. The text lives for ever.
 */
MUST_USE enum err duck_engine(const char **out_engine, struct error *e);

/* ERR_UNAVAILABLE if the library is missing; the hint says what to do. ERR_INVALID for a setting that DuckDB refuses. */
MUST_USE enum err duck_open(const struct duck_options *options, struct duck **out, struct error *e);

/* NULL is fine. */
void duck_close(struct duck *duck);

MUST_USE enum err duck_connect(struct duck *duck, struct duck_connection **out, struct error *e);

/* NULL is fine. Registered streams that are still there are released. */
void duck_disconnect(struct duck_connection *connection);

/* Ends what the connection is running; it fails with ERR_CANCELED. Nothing happens if nothing runs. */
void duck_interrupt(struct duck_connection *connection);

/* How far the running statement is, 0 to 100; -1 while DuckDB does not know. */
double duck_progress(struct duck_connection *connection);

/*
 * Runs SQL, which may be several statements, and drops the result. Errors, here and below: ERR_INVALID for what the
 * user can mend (syntax, unknown names, casts, overflow), ERR_NOT_FOUND for a missing file, ERR_EXHAUSTED for memory or
 * disk, ERR_CANCELED after duck_interrupt, ERR_INTERNAL else; the message is DuckDB's. Now and then DuckDB loses the reason
 * of a failure (it says that it was interrupted): ERR_INTERNAL, so that it is worth another try.
 */
MUST_USE enum err duck_run(struct duck_connection *connection, const char *sql, struct error *e);

/*
 * Whether the statement has met a mistake in DuckDB: it would again. After that the instance refuses everything, which is told of
 * all statements that run in it, whatever they are (duck_is_lost).
 */
bool duck_has_failed(const struct error *e);
bool duck_is_lost(const struct error *e);

/* A text of `n` bytes, which may contain NULs, and is followed by one. `bytes` NULL: SQL's NULL. */
struct duck_text {
    const char *bytes;
    size_t n;
};

/* Called for each row. What it returns other than ERR_OK ends the query and is passed on. */
typedef enum err duck_row_fn(void *context, const struct duck_text *values, uint32_t n, struct error *e);

/*
 * Runs SQL for a small result, that of its last statement, and hands out its rows as texts, which are valid during the call only. Columns
 * must be VARCHAR, BOOLEAN, a whole number of up to 64 bits or DOUBLE; cast others. `args` are bound to $1, $2, … as
 * VARCHAR.
 */
MUST_USE enum err duck_rows(struct duck_connection *connection, const char *sql, const struct duck_text *args,
                            uint32_t n_args, duck_row_fn *row, void *context, struct error *e);

/*
 * Runs a statement as plainly as DuckDB can, and reads its rows only to count them: what a client of DuckDB's own waits for.
 * duck_query takes some milliseconds more for one that reads files.
 */
MUST_USE enum err duck_count(struct duck_connection *connection, const char *sql, uint64_t *out_rows, struct error *e);

/*
 * SQL of others, here and in duck_query and duck_pour, must read only, whatever whoever looked at it before took it for: it
 * is a SELECT, or an EXPLAIN of one by itself, behind statements that make what is gone with the connection, such as
 * temporary views. ERR_INVALID if DuckDB takes it for anything else. No result of the connection may be open.
 */

/* Runs such statements, without anything behind them. */
MUST_USE enum err duck_run_views(struct duck_connection *connection, const char *sql, struct error *e);

/* As duck_rows. */
MUST_USE enum err duck_read_rows(struct duck_connection *connection, const char *sql, duck_row_fn *row, void *context,
                                 struct error *e);

/* COPY (select) TO `to`, which is a file in quotes and options in brackets; one row, with the number of rows. */
MUST_USE enum err duck_copy(struct duck_connection *connection, const char *select, const char *to, duck_row_fn *row,
                            void *context, struct error *e);

/* How many statements DuckDB takes the SQL for; 0: none, or it cannot be parsed. */
uint64_t duck_statements(struct duck_connection *connection, const char *sql);

/* Runs SQL; the result of its last statement is read in pieces while DuckDB works. */
MUST_USE enum err duck_query(struct duck_connection *connection, const char *sql, struct duck_result **out,
                             struct error *e);

/* NULL is fine. Ends the query if it still runs. */
void duck_result_close(struct duck_result *result);

/*
 * Before the first row: DECIMALs of up to 18 digits come as Arrow's decimals of 32 or 64 bits, as DuckDB has them itself,
 * rather than of 128, which every reader knows. Nothing happens if the instance does not have them.
 */
void duck_result_shorten(struct duck_result *result);

/*
 * The result's columns, as a struct: format "+s", a child per column. All types survive the way back into DuckDB; those
 * that Arrow lacks are extensions (arrow.uuid, arrow.opaque). A BOOLEAN is Arrow's own Bool.
 */
MUST_USE enum err duck_result_schema(struct duck_result *result, struct ArrowSchema *out_schema, struct error *e);

/* The next rows, at most a few thousand. At the end, `out_array->release` is NULL. */
MUST_USE enum err duck_result_next(struct duck_result *result, struct ArrowArray *out_array, struct error *e);

/* Who takes the rows of a query as DuckDB makes them. An error ends the query, and is that of duck_pour. */
struct duck_sink {
    const char *const *names; /* of the columns, `n`; NULL: DuckDB is asked, which takes it a few milliseconds */
    uint32_t n;
    bool is_long;    /* the columns are as those of a result that is not shortened */
    bool is_watched; /* duck_progress is to tell how far it is */
    enum err (*open)(void *context, const struct ArrowSchema *schema, struct error *e);
    enum err (*take)(void *context, const struct ArrowArray *rows, struct error *e); /* valid during the call */
    void *context;
};

/*
 * Runs a SELECT, and gives its rows to the sink: once `open`, before all rows, then `take` for at most a few thousand at a
 * time, in their order, by threads of DuckDB's, but one at a time. The columns are as those of a shortened result, with
 * this difference: a VARCHAR or BLOB has two buffers, validity and 16 bytes for each value: its length, and if that is up
 * to 12 its bytes, else its first four bytes and a pointer to all. A value that is NULL may have anything there.
 *
 * Without `out_has_begun` DuckDB did not take the statement; duck_query says better why.
 */
MUST_USE enum err duck_pour(struct duck_connection *connection, const char *select, const struct duck_sink *sink,
                            bool *out_has_begun, struct error *e);

/* How a stream becomes a table. */
struct duck_input {
    const char *name;
    uint64_t rows;  /* about how many to expect; 0: unknown */
    bool is_chosen; /* its rows are some of many, so that a join with it leaves out most of the other side */
    bool is_kept;   /* all rows are read at once, into a temporary table that can be read often, and spills */
};

/*
 * Makes a stream's rows a table, visible on this connection only, with the stream's names for its columns. Unless it is
 * kept, it can be read once; reading it a second time is an error. An error of the stream is an error of the query that
 * reads it, or of this function if it is kept. The stream is the connection's from the call on, even if it fails:
 * `stream->release` is NULL afterwards.
 */
MUST_USE enum err duck_register(struct duck_connection *connection, const struct duck_input *input,
                                struct ArrowArrayStream *stream, struct error *e);

/* Drops the table and releases its stream. Nothing happens if there is none. */
void duck_unregister(struct duck_connection *connection, const char *name);

/*
 * Stand-ins, for planning: capstan_source('id') in SQL is a table with the columns of `from`, any FROM item that DuckDB
 * can bind, and an estimated number of rows, but yields no rows. For sources that DuckDB cannot write into a plan. It is
 * kept until duck_forget_sources. One connection of an instance at a time may use these.
 */
MUST_USE enum err duck_add_source(struct duck_connection *connection, const char *id, const char *from, uint64_t rows,
                                  struct error *e);
void duck_forget_sources(struct duck_connection *connection);

#endif
