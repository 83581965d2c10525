/*
 * tpch.h - the tables of TPC-H with values of our own making, and its 22 queries: what `capstan bench sql` runs.
 *
 * Generator and queries are the same files that the tests use; the build puts their texts into the program.
 *
 * Ownership: what is handed out lives in the arena given. Threads: any.
 */
#ifndef CAPSTAN_MAIN_TPCH_H
#define CAPSTAN_MAIN_TPCH_H

#include <stdint.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"

struct duck_connection;

/* The texts; made by tools/embed-tpch.sh. */
extern const char tpch_generator[];
extern const char tpch_queries_text[];

struct tpch_query {
    const char *name; /* "q01" */
    const char *sql;  /* without a semicolon */
};

/* All queries, in their order. */
uint32_t tpch_queries(struct arena *arena, struct tpch_query **out_queries);

struct tpch_table {
    const char *name;
    const char *files; /* a glob inside the folder */
};

#define TPCH_TABLES 8
extern const struct tpch_table tpch_tables[TPCH_TABLES];

/*
 * Makes the tables as Parquet files in a subfolder of `folder`, unless it is there already from an earlier time. Scale 1
 * has about 6 million lines. `out_folder` is where they are. ERR_PRECONDITION if the subfolder was made by another
 * version of the generator.
 */
MUST_USE enum err tpch_make(const char *folder, double scale, struct arena *arena, const char **out_folder,
                            struct error *e);

/* Makes the tables known as views. */
MUST_USE enum err tpch_create_views(struct duck_connection *connection, const char *folder, struct error *e);

#endif
