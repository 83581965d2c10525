/*
 * pair.h - the tables of tests/data on two clusters (exec/sql_cluster.h): one keeps what stages write in memory, the other
 * has no memory for it, so that everything goes to files.
 *
 * The largest tables are written anew, into larger files, so that several tasks share them also where nothing is forced.
 *
 * Ownership: a test opens and closes it. Threads: one.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_SQL_PAIR_H
#define CAPSTAN_TESTS_INTEGRATION_SQL_PAIR_H

#include "exec/sql_cluster.h"
#include "query/planner.h"

#define PAIR_WAYS 10

struct pair {
    struct cluster clusters[2]; /* with memory, without */
    struct buf tables;          /* the data sets, as a member of a query's inputs */
    struct arena arena;
    struct planner_table *known; /* the same for the planner */
    struct planner *planner;     /* which says whether a query orders its rows */
    enum cluster_mistake mistake;
};

/*
 * One way to run a query. Eight are forced: broadcast none or all, 2 or 5 partitions, with memory or without. Two are as in a
 * cluster that is in use, where no input counts as so small that it is one task's work.
 */
struct pair_way {
    const char *name;
    bool is_forced;
    bool is_spilled;
    const char *options; /* members of the query's options, each behind a comma */
};

/* What a run was like. */
struct pair_run {
    uint32_t n_stages;    /* of the job, with the planning: one if that has run the query itself */
    uint32_t n_tasks_max; /* of a stage */
    bool has_tail;        /* the last stages have become one task */
    uint64_t moved_rows;  /* that stages wrote for others */
    bool has_failed;      /* there are no rows to compare */
    uint32_t n_files;     /* that both workers had of its outputs at its end */
};

void pair_open(struct pair *pair);
void pair_close(struct pair *pair);

/* Way 0 to PAIR_WAYS - 1. */
const struct pair_way *pair_way_of(uint32_t number);

/*
 * The rows of the query in one piece. `out_sql` is what pair_compare is to run: the query, or, if its result cannot be made
 * a table again with the same types, one that turns the values into texts.
 */
enum err pair_whole(struct pair *pair, const char *sql, struct table *out, struct buf *out_sql, struct error *e);

/* How the rows of the query are to be compared: its plan says whether it orders them. */
enum table_order pair_order(struct pair *pair, const char *sql);

/* Runs the query in that way and compares. False if a task fails or the rows are others; then `why` says what. */
bool pair_compare(struct pair *pair, const char *sql, const struct pair_way *way, const struct table *expected,
                  enum table_order order, struct pair_run *out_run, struct buf *why);

/* What an environment variable says, or `otherwise`. */
uint64_t pair_number(const char *name, uint64_t otherwise);

#endif
