/*
 * physical.h - a query as stages: what runs, on which splits or partitions, and where its rows go.
 *
 * The cutter (cut.h) makes one, clients may send one, workers run it. As text it is JSON:
 *
 *   { "stages": [
 *     { "id": 0, "sql": "select k, sum(v) s from read_parquet({{split}}) group by k",
 *       "splits": [ {"file": "a.parquet"}, {"file": "b.parquet", "first_row": 0, "last_row": 122879} ],
 *       "output": { "exchange": "hash", "keys": ["k"], "partitions": 4 } },
 *     { "id": 1, "inputs": { "m": 0 }, "sql": "select k, sum(s) s from m group by k",
 *       "output": { "exchange": "result" } } ] }
 *
 * Tasks. A stage runs one task per split, or per chain of splits that say "and_next"; without splits one per partition of the inputs that it reads by partition;
 * without those, one. Inputs are tables called as the plan says. How an input is read follows from its stage's exchange:
 *
 *   hash       by partition: (hash(keys) >> 32) % partitions, keys being SQL over the stage's columns
 *   range      by partition, in the order of the keys, such as "c0 DESC NULLS LAST"; `bounds` names an input of the stage
 *              with one row and one column, the list of the partitions' upper ends as sort keys
 *              (physical_write_sort_key). Without it, stages are added that find these (physical_range.c)
 *   forward    by partition: task t writes partition t % partitions, so rows that are together stay together
 *   broadcast  as a whole, by every task
 *   gather     as a whole, by the one task that there is
 *   result     not at all: these rows are the query's result, in the order of the tasks. Exactly one stage has it
 *
 * An input {"stage": 0, "read": "all"} is read as a whole whatever the exchange.
 *
 * A query fails if a file changes while it runs. For that, splits may say what their file was like, with "file_bytes" and
 * "file_mtime_ms"; files that the SQL names itself are in a comment at its end (physical_files.c).
 *
 * Beside its stages a plan may have "partition_bytes", what one task should read: when sizes are known, partitions that
 * have less become one task's (refine.h); and "tail_bytes" (tail.h).
 *
 * Placeholders in a stage's SQL, outside of quotes and comments: {{task}} the number of the task; {{split}} the split's
 * file in quotes; {{rows:x}} whether row number x of the file belongs to the split; {{file_index}} the file's number in
 * the whole scan. With several scans in one stage they are {{split:1}}, {{rows:1:x}}, {{file_index:1}}, and a split says
 * which "scan" it is for; in its task the other scans yield no rows. read_parquet({{split}}, …) also does without
 * {{rows:x}}. physical_task_sql fills in all of these.
 *
 * Ownership: everything lies in the arena that it was read or cut into. Threads: a plan that nobody changes may be read
 * by several.
 */
#ifndef CAPSTAN_QUERY_PHYSICAL_H
#define CAPSTAN_QUERY_PHYSICAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"

enum exchange {
    EXCHANGE_RESULT,
    EXCHANGE_HASH,
    EXCHANGE_RANGE,
    EXCHANGE_FORWARD,
    EXCHANGE_BROADCAST,
    EXCHANGE_GATHER,
    N_EXCHANGES,
};

/* A stage that an input names may be missing from a plan that was not checked; there is no such stage here. */
#define PHYSICAL_NO_STAGE UINT32_MAX

struct physical_input {
    const char *name;
    uint32_t stage;   /* position in `stages` */
    bool is_whole;    /* every task reads all of it, not its partition */
    bool is_repeated; /* the SQL names it more than once, so it has to be kept */
};

/* Rows `first_row` to `last_row` of a file, or all of them. */
struct physical_split {
    const char *file;
    uint32_t scan;       /* which of the stage's scans it is for */
    uint32_t file_index; /* position of the file in the whole scan */
    bool has_rows;
    bool is_empty;     /* read no row, only the columns */
    bool is_continued; /* "and_next": the task reads the next split as well, which is for the same scan */
    uint64_t first_row;
    uint64_t last_row;
    uint64_t rows; /* about how many; 0: unknown */
    uint64_t bytes;
    bool has_identity; /* the next two are known: a file that changed since fails the query */
    uint64_t file_bytes;
    int64_t file_mtime_ms;
};

/* A file as it was when the query was planned. */
struct physical_file {
    const char *path;
    uint64_t bytes;
    int64_t mtime_ms;
};

struct physical_output {
    enum exchange exchange;
    uint32_t partitions; /* of hash, range and forward; else 0 */
    uint32_t n_keys;     /* of hash and range; else 0 */
    const char **keys;
    const char *bounds; /* of range; else NULL */
};

/* An operator of the user's own, after the SQL. */
struct physical_custom {
    const char *op; /* NULL: none */
    const char *config_json;
};

/*
 * Files instead of rows: a task writes its rows as one file into a folder beside `to` that belongs to the job, and yields
 * one row instead, the file's name and its number of rows (file VARCHAR, rows BIGINT). The stage that reads these rows
 * publishes them. JSON: "write": {"to": "/data/out", "format": "parquet", "options": "COMPRESSION zstd"}.
 */
struct physical_write {
    const char *to;      /* the folder that is there in the end, an absolute path; NULL: nothing is written */
    const char *format;  /* "parquet", "csv" or "json" */
    const char *options; /* further options of COPY as SQL, with commas between; "" if none */
};

/*
 * The end of a write: the one task of the stage, whose SQL yields the rows that the writers have left, makes the folder
 * with exactly these files appear as `to`, all at once, and yields one row, how many rows were written (rows BIGINT).
 * JSON: "publish": {"to": "/data/out", "table": "name"}.
 */
struct physical_publish {
    const char *to;    /* NULL: nothing is published */
    const char *table; /* the data set that it becomes; NULL: none */
};

/* Partitions `first` to `last`: what one task reads. */
struct physical_group {
    uint32_t first;
    uint32_t last;
};

/*
 * A choice that waits for an actual size: if stage `small` turns out to have at most `bytes_max`, this stage can read it
 * as a whole and take the SQL of stage `large` into its own, so that the rows of that need not move. Until then neither
 * `large` nor this stage may start (physical_is_waiting). See refine.h.
 */
struct physical_choice {
    bool is_open;
    uint32_t small;
    uint32_t large;
    uint64_t bytes_max;
};

/*
 * The end of the SQL of a stage with a choice that does nothing but leave out rows of `large` which its readers do not need:
 * if `small` is not small, they can read `large` itself. A comment, since earlier releases refuse members that they do not
 * know; for them it is a stage like any other.
 */
#define PHYSICAL_SIEVE " /* sieve */"

/*
 * What the SQL of a result ends with, so that workers need not have DuckDB bind it once more only to learn the names:
 * a comment, too, with all of them. Nothing is written if they cannot be in a comment. Reading returns how many there are, 0
 * if there is no such comment.
 */
void physical_write_names(struct buf *sql, const char *const *names, uint32_t n);
uint32_t physical_read_names(const char *sql, struct arena *arena, const char *const **out);

/* What the planner thinks, for people. Negative: unknown. */
struct physical_estimate {
    double rows;
    double bytes;
};

/* What one task should read, unless the plan says otherwise. */
#define PHYSICAL_PARTITION_BYTES UINT64_C(67108864)

/* The plan's stage is not in the job yet. */
#define PHYSICAL_NOT_ADDED UINT32_MAX

struct physical_stage {
    uint32_t id;        /* as in the text; elsewhere in these structs, stages are named by their position */
    uint32_t job_stage; /* "job_stage": which stage of the job it is already; PHYSICAL_NOT_ADDED: none */
    const char *sql;
    uint32_t n_inputs;
    struct physical_input *inputs;
    uint32_t n_splits;
    struct physical_split *splits;
    uint32_t n_files; /* that every task reads, beside its splits: one that changed since fails the query */
    struct physical_file *files;
    bool knows_files; /* these, and the splits, are all local files that the SQL reads; plans of others do not say */
    bool is_deterministic; /* it has the same rows, to the last digit, each time that it reads the same */
    struct physical_custom custom;
    struct physical_write write;
    struct physical_publish publish;
    struct physical_output output;
    uint32_t n_groups; /* 0: one task per partition */
    struct physical_group *groups;
    uint32_t n_empty_if; /* positions in `inputs`: if one of these has no rows, the stage has none */
    uint32_t *empty_if;
    struct physical_choice choice;
    struct physical_estimate estimate;
    const char *what; /* in words, a line per step; "" if nobody said */
};

struct physical_plan {
    uint32_t n_stages;
    struct physical_stage *stages; /* inputs come before their readers */
    const char *single_reason;     /* NULL, or why the query is one task */
    const char *engine;            /* "engine": NULL, or what the workers must have that run it (duck_engine) */
    uint64_t tail_bytes;      /* "tail_bytes": 0, or the last stages wait for the size of what they read (tail.h) */
    uint32_t first_job_stage; /* "first_job_stage": the id that the job gives to the first stage it adds */
    uint64_t partition_bytes; /* "partition_bytes": what a task should read when sizes are known; 0: the usual */
};

/* The name of an exchange, such as "hash". */
const char *exchange_name(enum exchange exchange);

/* Whether a stage with that exchange writes partitions, one of which each task of the next stage reads. */
bool exchange_is_partitioned(enum exchange exchange);

/* Whether the stage is marked as one that only leaves out rows (PHYSICAL_SIEVE). */
bool physical_is_sieve(const struct physical_stage *stage);

/* The splits that a task reads: returns how many, and the first of them. Of a stage with splits. */
uint32_t physical_task_splits(const struct physical_stage *stage, uint32_t task, const struct physical_split **out);

/* What a task reads of files, about. */
uint64_t physical_task_bytes(const struct physical_stage *stage, uint32_t task);

/* How many tasks the stage has. */
uint32_t physical_tasks(const struct physical_plan *plan, uint32_t stage);

/* Whether the stage must not start, because a choice about it, or about the plan's tail, is open. */
bool physical_is_waiting(const struct physical_plan *plan, uint32_t stage);

/*
 * Whether the stage is to be added to the job now: it is not there, no choice about it is open, and all that it reads is
 * there or due as well. Stages are added in the order of the plan; the i-th of them becomes stage `first_job_stage` + i of
 * the job. If a choice is open, one more follows: a planning task that reads what the choices wait for
 * (physical_choice.small, each once, in the order of the stages that have the choices) and brings the plan to go on with.
 */
bool physical_is_due(const struct physical_plan *plan, uint32_t stage);

/* Notes the stages that are due as added: gives each its `job_stage`. */
void physical_mark_added(struct physical_plan *plan);

/*
 * The stages that open choices wait for and that are added or due, each once, in that order. Returns how many: at least
 * one, if a choice is open.
 */
uint32_t physical_awaited(const struct physical_plan *plan, struct arena *arena, uint32_t **out_stages);

/*
 * The different stages that a stage reads, in the order of its inputs: the order in which its tasks get their sources.
 * `out_whole` says for each whether tasks get all partitions of it, because an input reads all of it or the stage has
 * groups; else task i gets partition i, and there are as many tasks as partitions. Returns how many.
 */
uint32_t physical_parents(const struct physical_plan *plan, uint32_t stage, struct arena *arena, uint32_t **out_stages,
                          bool **out_whole);

/* The operators that a worker must have to run the stage: at most one. NULL if none. */
const char *physical_required_op(const struct physical_stage *stage);

/* How the names of the files end that such a stage writes, such as "parquet" or "csv.gz". */
const char *physical_write_ending(const struct physical_write *write);

/* Appends the plan as JSON, as in interfaces. */
void physical_write(struct buf *out, const struct physical_plan *plan);

/*
 * Reads and checks a plan. It is foreign bytes: everything in it is looked at. ERR_INVALID if something is wrong; then
 * all errors are in `errors`, a line each (up to LIMIT_PLAN_ERRORS), and the first in `e`. `errors` may be NULL.
 */
MUST_USE enum err physical_read(const char *text, size_t n, struct arena *arena, struct physical_plan **out_plan,
                                struct buf *errors, struct error *e);

/*
 * The same for a plan that a client wrote: the SQL of each stage must also be one statement that only reads, perhaps behind
 * temporary views, since workers keep what others do for whoever comes next; and its placeholders must be right.
 */
MUST_USE enum err physical_read_foreign(const char *text, size_t n, struct arena *arena,
                                        struct physical_plan **out_plan, struct buf *errors, struct error *e);

/*
 * Appends what task `task` of the stage runs: placeholders filled in, and, if the exchange has partitions, one more column
 * in the end, an INTEGER: which partition the row belongs to. ERR_INVALID if the placeholders are wrong.
 */
MUST_USE enum err physical_task_sql(struct buf *sql, const struct physical_plan *plan, uint32_t stage, uint32_t task,
                                    struct error *e);

/*
 * Appends a SELECT of all columns of the FROM item `from` and the column that says which partition a row belongs to.
 * physical_task_sql has it already, unless the stage has an operator of the user's own: then the operator's rows are what
 * is scattered.
 */
void physical_scatter_sql(struct buf *sql, const struct physical_stage *stage, uint32_t task, const char *from);

/* The name of that column. */
#define PHYSICAL_PARTITION_COLUMN "capstan_partition"

/* Appends a BLOB in SQL that sorts as the keys do, each of which may end in an order such as DESC NULLS LAST. */
void physical_write_sort_key(struct buf *sql, const char *const *keys, uint32_t n);

/*
 * Where the last statement of the SQL starts. Only stages of a query that is not cut may have several (they have no
 * partitions then); those before the last prepare it, and have no result.
 */
size_t physical_last_statement(const char *sql);

/* The length of the SQL without names of a result, semicolons and white space in its end. */
size_t physical_trimmed(const char *sql);

/* The partitions of its inputs that a task reads (those that are read by partition). */
struct physical_group physical_task_group(const struct physical_plan *plan, uint32_t stage, uint32_t task);

#endif
