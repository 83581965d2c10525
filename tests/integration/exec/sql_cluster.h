/*
 * sql_cluster.h - two workers as far as SQL goes, and who tells them what to run.
 *
 * Each has a store, a server over a real socket and an executor of its own, so that what one writes the other fetches as
 * it would between two machines. cluster_run does what a coordinator does: plans, adds the stages that are due, runs
 * their tasks in turn on both workers, plans again where choices are open, and puts the results together.
 *
 * Ownership: a test opens and closes it. Threads: one.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_EXEC_SQL_CLUSTER_H
#define CAPSTAN_TESTS_INTEGRATION_EXEC_SQL_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "exchange/channels.h"
#include "exchange/serve.h"
#include "exec/executor.h"
#include "exec/operator.h"
#include "query/physical.h"
#include "query/table.h"
#include "unit/exchange/folder.h"

#define CLUSTER_WORKERS 2
#define CLUSTER_STAGES_MAX 64

struct cluster_worker {
    char id[16];
    char address[64];
    struct folder folder;
    struct exchange_server *server;
    struct rpc_server *rpc;
    struct exchange_channels *channels;
    struct executor_set *set;
};

/* What one task of a stage of the job has left. */
struct cluster_output {
    uint32_t worker;
    uint32_t attempt;
    struct exec_outcome outcome;
};

struct cluster_stage {
    uint32_t n_tasks;
    struct cluster_output *outputs;
};

/* Mistakes that a coordinator could make, made on purpose: comparisons must show them. */
enum cluster_mistake {
    CLUSTER_MISTAKE_NONE,
    CLUSTER_MISTAKE_OUTPUT, /* of several tasks of a stage, what the last one has written is not read */
    CLUSTER_MISTAKE_ORDER,  /* what the tasks of the result have written is read from the last one to the first */
};

/* A query that is under way: its plan and the outputs by stage of the job. */
struct cluster_job {
    char id[32];
    struct buf plan; /* as text: what tasks get */
    struct arena arena;
    struct physical_plan *read;
    struct cluster_stage stages[CLUSTER_STAGES_MAX];
    uint32_t n_stages;
    uint32_t n_refined;   /* second plannings */
    uint32_t answered_by; /* the stage of the job that ran all that was left while planning again; 0: none */
    uint32_t n_workers;   /* that get tasks, from the first on; 0: all */
    enum cluster_mistake mistake;
    struct buf *failure; /* gets the words of a task that fails; NULL: that ends the test */
};

struct cluster {
    char folder[64]; /* for files of the test's own, removed at the end */
    struct cluster_worker workers[CLUSTER_WORKERS];
    struct operators *operators; /* NULL: none */
    struct duck *duck;           /* what results are compared with */
    struct duck_connection *connection;
    uint32_t n_jobs;
};

struct cluster_options {
    uint64_t shuffle_bytes; /* of memory; 0: everything spills */
    uint64_t memory_bytes;  /* of DuckDB's; 0: 500 MB */
    const char *plugin;     /* with operators; NULL: none */
    const char *notes_folder;
    int64_t settled_ms; /* so old are files that DuckDB may remember; 0: as usual */
};

void cluster_open(struct cluster *cluster, const struct cluster_options *options);
void cluster_close(struct cluster *cluster);

/* Takes a worker's server down, so that nobody can read what it has. */
void cluster_stop_server(struct cluster *cluster, uint32_t worker);

/* Runs SQL on the connection that results are compared with. "@" in it is the cluster's folder. */
void cluster_sql(struct cluster *cluster, const char *sql);

/* Inputs of a planning task for the query, with more members, such as "\"explain\":true". "@" is filled in. */
void cluster_inputs(const struct cluster *cluster, const char *sql, const char *members, struct buf *out);

/* A new job, without stages. */
void cluster_begin(struct cluster *cluster, struct cluster_job *job);
void cluster_end(struct cluster_job *job);

/* Runs the planning task, stage 0 of the job, on worker 0. Its plan, if it has one, becomes the job's. */
const struct exec_outcome *cluster_plan(struct cluster *cluster, struct cluster_job *job, const char *inputs);

/* Goes on with a plan that the test has made itself. */
void cluster_use_plan(struct cluster_job *job, const char *text);

/* Runs one task of a stage of the plan, as the stage of the job that it is. `out` is the caller's. */
void cluster_run_task(struct cluster *cluster, struct cluster_job *job, uint32_t stage, uint32_t job_stage,
                      uint32_t task, uint32_t worker, struct exec_stop *stop, struct exec_outcome *out);

/*
 * Runs all tasks of the stages that are due, and a second planning if one is needed. True if a stage was run, all went
 * well, and the second planning has not run the rest itself.
 */
bool cluster_step(struct cluster *cluster, struct cluster_job *job);

/* The rows of the job's result, which must be there. */
void cluster_result(struct cluster *cluster, struct cluster_job *job, struct table *out);

/* Runs a plan that the test has made itself; the first value of its result must be `expected`. */
void cluster_check_plan(struct cluster *cluster, const char *text, const char *expected);

/* Runs the query to its end, and compares with what DuckDB makes of it in one piece. Returns the number of stages. */
uint32_t cluster_compare(struct cluster *cluster, const char *sql, const char *members, enum table_order order,
                         uint32_t *out_refined);

#endif
