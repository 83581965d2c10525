/*
 * runner.h - runs a physical plan with real DuckDB, inside this process, task by task.
 *
 * Each task is run by itself; what it writes is a table, of which each reader gets to see only what the exchange gives it.
 * So a rule that puts rows at the wrong task shows in the result. The plan goes through its text form before.
 *
 * Ownership: runner_open's caller closes it. Threads: one at a time.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_QUERY_RUNNER_H
#define CAPSTAN_TESTS_INTEGRATION_QUERY_RUNNER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "duck/duck.h"
#include "query/cut.h"
#include "query/planner.h"
#include "query/table.h"

struct runner {
    struct duck *duck;
    struct duck_connection *connection;
    struct planner *planner;
    const struct planner_table *tables;
    uint32_t n_tables;
    const char *params_json; /* of the queries; NULL: none */
};

/* Mistakes that a cutter or a scheduler could make, made on purpose: comparisons must show them. */
enum run_mistake {
    MISTAKE_NONE,
    MISTAKE_SPLIT,     /* a task of a scan is forgotten */
    MISTAKE_SCATTER,   /* rows go to partitions by their number, not by their keys */
    MISTAKE_AGGREGATE, /* what was summed up in parts is not summed up in the end */
    MISTAKE_SHARE,     /* each task reads all partitions, not its share */
};

struct run_options {
    struct cut_options cut; /* without the catalog */
    bool is_refined;        /* the plan is refined whenever a stage has ended */
    uint64_t refine_bytes;  /* of partitions that one task should read then; 0: leave it */
    enum run_mistake mistake;
};

/* What was run. */
struct run_facts {
    bool is_single;
    char reason[512]; /* why, if so */
    bool is_ordered;  /* the query says how its rows are ordered */
    uint32_t n_stages;
    uint32_t n_splits_max;  /* of one stage that reads files */
    uint32_t n_readers_max; /* tasks of such a stage; one may have several splits */
    uint32_t n_tasks_max;   /* of any stage */
    uint32_t n_choices;     /* that were made for a broadcast */
    uint32_t n_sieves;      /* stages that left out rows before these moved */
    uint32_t n_sieves_out;  /* such stages that were not worth it, and gone */
    uint32_t n_ranged;      /* stages whose tasks read ranges of keys */
    uint32_t n_empty_scans; /* stages that were made empty: they read no file */
    uint32_t n_empty_tasks; /* and one task takes the place of several that would read others' rows */
    uint32_t n_grouped;     /* stages with fewer tasks than partitions */
    uint32_t n_operator_tasks;
    bool is_published; /* the result went through files */
};

enum err runner_open(struct runner *runner, struct error *e);
void runner_close(struct runner *runner);

/* Runs the query in one piece, as somebody would who has DuckDB only; run_whole does without an optimizer that errs. */
enum err run_plain(struct runner *runner, const char *sql, struct table *out, struct error *e);

/* Runs the query in one piece. */
enum err run_whole(struct runner *runner, const char *sql, struct table *out, struct error *e);

/* Cuts the query and runs its stages. */
enum err run_cut(struct runner *runner, const char *sql, const struct run_options *options, struct table *out,
                 struct run_facts *out_facts, struct error *e);

/* Cuts the query only: is_single, reason, n_stages and n_tasks_max are filled in, as they are before anything has run. */
enum err run_plan(struct runner *runner, const char *sql, const struct cut_options *options,
                  struct run_facts *out_facts, struct error *e);

/* Cuts the query only; what `--explain` shows is appended. */
enum err run_explain(struct runner *runner, const char *sql, const struct cut_options *options, struct buf *out,
                     struct error *e);

#endif
