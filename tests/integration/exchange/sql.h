/*
 * sql.h - rows from DuckDB into a store, and from stores back into DuckDB.
 *
 * Ownership and threads: as those of the functions that it calls.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_EXCHANGE_SQL_H
#define CAPSTAN_TESTS_INTEGRATION_EXCHANGE_SQL_H

#include "duck/duck.h"
#include "exchange/fetch.h"
#include "exchange/writer.h"

/* Runs the query and writes its rows. `options` has the store, the key and how they are scattered. */
enum err sql_write(struct duck_connection *connection, const char *query, const struct exchange_writer_options *options,
                   struct ipc_tally *out_tallies, struct error *e);

/* Makes the sources a table called `name`. */
enum err sql_read(struct duck_connection *connection, const char *name, const struct exchange_source *sources,
                  uint32_t n, const struct exchange_fetch_options *options, struct error *e);

/* The one value of the one row of a query, a BIGINT. */
enum err sql_number(struct duck_connection *connection, const char *query, int64_t *out, struct error *e);

#endif
