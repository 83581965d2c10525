/*
 * write.h - statements that write: COPY (query) TO 'folder' (…), and CREATE TABLE name AS query.
 *
 * DuckDB's parser gives away nothing but SELECTs, so these two are read from their text, and everything else about them is
 * DuckDB's: the query inside is planned like any other. What is not understood is an error that says what is; no such
 * statement is ever run by DuckDB as it stands, since it would write straight into its target.
 *
 * Ownership: texts lie in the arena. Threads: any.
 */
#ifndef CAPSTAN_QUERY_WRITE_H
#define CAPSTAN_QUERY_WRITE_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"

/* What a statement writes. */
struct query_write {
    const char *sql;     /* the query inside; NULL: the statement does not write */
    const char *to;      /* the folder, an absolute path without a slash at its end */
    const char *format;  /* "parquet", "csv" or "json" */
    const char *options; /* further options of COPY, as SQL; "" if none */
    const char *table;   /* the data set that it becomes; NULL: none */
};

/*
 * Looks whether a statement that is no plain SELECT writes. `warehouse` is the folder of tables that are created; NULL or "": none is set.
 * ERR_INVALID, with what is supported, for one that writes otherwise, changes anything, or is several.
 */
MUST_USE enum err query_write_read(const char *sql, const char *warehouse, struct arena *arena, struct query_write *out,
                                   struct error *e);

/* Whether the SQL only reads, by how it starts: one statement, with definitions of temporary views before it. */
bool query_only_reads(const char *sql, struct arena *arena);

/* Whether the statement is an EXPLAIN. */
bool query_explains(const char *sql);

#endif
