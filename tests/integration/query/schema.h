/*
 * schema.h - which columns tables have, for the generator of queries.
 *
 * Ownership: schema_close ends what schema_open made. Threads: those of the connection.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_QUERY_SCHEMA_H
#define CAPSTAN_TESTS_INTEGRATION_QUERY_SCHEMA_H

#include "duck/duck.h"
#include "query/generator.h"
#include "query/planner.h"

/* Asks the connection, which knows the tables by their names; these are the caller's. */
struct schema schema_open(struct duck_connection *connection, const struct planner_table *tables, uint32_t n);
void schema_close(struct schema *schema);

#endif
