/*
 * pair.h - the tables of tests/data on two clusters (exec/sql_cluster.h): one keeps what stages write in memory, the other
 * has no memory for it, so that everything goes to files.
 *
 * Ownership: a test opens and closes it. Threads: one.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_SQL_PAIR_H
#define CAPSTAN_TESTS_INTEGRATION_SQL_PAIR_H

#include "exec/sql_cluster.h"

#define PAIR_WAYS 8

struct pair {
    struct cluster clusters[2]; /* with memory, without */
    struct buf tables;          /* the data sets, as a member of a query's inputs */
};

/* One way to run a query: broadcast none or all, 2 or 5 partitions, with memory or without. */
struct pair_way {
    bool is_broadcast;
    uint32_t partitions;
    bool is_spilled;
};

void pair_open(struct pair *pair);
void pair_close(struct pair *pair);

/* Way 0 to PAIR_WAYS - 1, and how it is called. */
struct pair_way pair_way_of(uint32_t number);
const char *pair_way_name(uint32_t number);

/*
 * The rows of the query in one piece. `out_sql` is what pair_compare is to run: the query, or, if its result cannot be made
 * a table again with the same types, one that turns the values into texts.
 */
enum err pair_whole(struct pair *pair, const char *sql, struct table *out, struct buf *out_sql, struct error *e);

/*
 * Runs the query in that way and compares. False if a task fails or the rows are others; then `why` says what. `out_stages`
 * is how many stages the job had, with the planning: one if that has run the query itself.
 */
bool pair_compare(struct pair *pair, const char *sql, uint32_t way, const struct table *expected,
                  enum table_order order, uint32_t *out_stages, struct buf *why);

/* What an environment variable says, or `otherwise`. */
uint64_t pair_number(const char *name, uint64_t otherwise);

#endif
