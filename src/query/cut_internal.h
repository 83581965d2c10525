/*
 * cut_internal.h - what the files of the cutter share. cut.h explains the idea.
 *
 * Ownership: all lies in the cutter's arena. Threads: one per cutter.
 */
#ifndef CAPSTAN_QUERY_CUT_INTERNAL_H
#define CAPSTAN_QUERY_CUT_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "query/aggregate.h"
#include "query/cut.h"
#include "query/join.h"

enum spread { SPREAD_ANY, SPREAD_HASH, SPREAD_SINGLE, SPREAD_REPLICATED };

/* Columns of a fragment's output on whose values rows are spread. A fragment may have several such sets. */
struct key_set {
    const struct key_set *next;
    uint32_t n;
    uint32_t *columns; /* in the order in which they were hashed */
};

/* By which columns a side of a join that is large is compared with the other, for equality. */
struct join_keys {
    uint32_t n;
    const uint32_t *large; /* NULL: not all are plain columns */
    const uint32_t *other; /* likewise */
    const enum comparison *comparisons;
};

/* See physical_choice. It stays with a fragment as long as nothing in it relies on how the join's rows were spread. */
struct fragment_choice {
    uint32_t small;
    uint32_t large;
    double bytes_max; /* of the small side, for it to be broadcast */
    bool is_likely;   /* by the estimates it will be */
    bool keeps_keys;  /* rows with equal keys are together either way: the large side is read in ranges of its key */
    bool drops_large; /* a row of the large side that has no partner yields nothing; then the rest is set, too */
    bool is_large_left;
    struct plan_node *join; /* both its children are NODE_INPUTs */
    struct join_keys keys;
    double large_rows;
    double large_rows_max;
};

struct key_ranges; /* cut_range.c */

struct fragment {
    struct plan_node *node;
    enum spread spread;
    const struct key_set *keys;      /* SPREAD_HASH only, and then never empty */
    bool reads_partitions;           /* one task per partition */
    bool has_splits;                 /* one task per split; never both */
    const struct key_ranges *ranges; /* or NULL; what the splits are: spread by these, not by a hash, and so for good */
    double rows;                     /* an estimate; negative: unknown */
    double rows_max;                 /* it cannot be more; may be INFINITY */
    const struct fragment_choice *choice; /* or NULL */
};

/* A NODE_INPUT that the cutter has made. */
struct stage_read {
    const char *name;
    uint32_t stage;
    bool is_whole;
};

/* A scan that is shared out among tasks. */
struct split_scan_entry {
    struct scan *scan;
    uint32_t n_splits;
    struct physical_split *splits;
    const char *condition; /* of a lead: one for all rows, instead of that for rows of a split (cut_range.c) */
    bool is_follower;      /* it has no splits */
};

/* A CTE, or the key side of a delim join: a stage that is read more than once. */
struct shared_rows {
    uint32_t id;
    struct fragment shape;   /* a first reader; others get a NODE_INPUT of their own */
    const struct join *join; /* of a delim join, for its keys */
    uint32_t n_gets;         /* of a delim join: how many nodes read its distinct keys */
    bool is_here;            /* of a delim join that stays one: there is no stage */
    bool has_distinct;       /* the next is set */
    struct fragment distinct;
};

struct shared_list {
    struct shared_rows *items;
    uint32_t n;
    uint32_t cap;
};

struct cutter {
    const struct cut_options *options;
    struct arena *arena;
    struct error *e;
    uint32_t partitions;
    uint64_t task_bytes_max; /* of files that one task should read */
    uint64_t split_bytes;
    double broadcast_bytes;
    uint64_t largest_scan_bytes; /* of its files */
    const struct join_rules *join_rules;
    const struct aggregate_rule *aggregate_rules;
    const struct plan_node *final_order; /* the ORDER BY of the result, if that is all that is above it; or NULL */
    struct physical_stage *stages;       /* these arrays are on the heap */
    uint32_t n_stages;
    uint32_t cap_stages;
    struct stage_read *reads;
    uint32_t n_reads;
    uint32_t cap_reads;
    struct split_scan_entry *scans;
    uint32_t n_scans;
    uint32_t cap_scans;
    struct shared_list ctes;
    struct shared_list delims;
    uint32_t n_delim_tries; /* to keep delim joins where their rows are; each cuts a side once more */
};

/* A node's rule. Returns ERR_PRECONDITION, with the reason, for what cannot be cut. */
typedef enum err cut_rule_fn(struct cutter *c, struct plan_node *node, struct fragment *out);

/* Cuts what is below the node and the node itself, by the table of rules. */
MUST_USE enum err cut__node(struct cutter *c, struct plan_node *node, struct fragment *out);

/* Whether the test wants the wrong rule for such nodes. Those without children are wrong in their own ways. */
bool cut__is_planted(const struct cutter *c, enum node_kind kind);

/* Rules in files of their own. */
enum err cut__join(struct cutter *c, struct plan_node *node, struct fragment *out);
enum err cut__aggregate(struct cutter *c, struct plan_node *node, struct fragment *out);
enum err cut__order(struct cutter *c, struct plan_node *node, struct fragment *out);
enum err cut__cte(struct cutter *c, struct plan_node *node, struct fragment *out);
enum err cut__cte_ref(struct cutter *c, struct plan_node *node, struct fragment *out);
enum err cut__recursive_cte(struct cutter *c, struct plan_node *node, struct fragment *out);
enum err cut__delim_get(struct cutter *c, struct plan_node *node, struct fragment *out);
enum err cut__custom(struct cutter *c, struct plan_node *node, struct fragment *out);

/*
 * Makes the key side of a delim join, which is cut already, a stage, and cuts the other side. Writes what the join is to
 * work on; afterwards it is an ordinary join.
 */
MUST_USE enum err cut__delim_sides(struct cutter *c, struct plan_node *node, const struct fragment *keys,
                                   struct fragment *out_left, struct fragment *out_right);

/*
 * The same, but the join remains a delim join, so both sides have to end up in one fragment. Rows are in ranges of the key
 * number `key`.
 */
MUST_USE enum err cut__delim_sides_here(struct cutter *c, struct plan_node *node, const struct fragment *keys,
                                        uint32_t key, struct fragment *out_left, struct fragment *out_right);

/* The delim join as a plain one with the same rows (cut_delim.c); NULL if it is not that simple. */
struct plan_node *cut__without_delim(struct cutter *c, const struct plan_node *node);

/* How many nodes below this one read the distinct keys of the delim join. */
uint32_t cut__count_gets(struct plan_node *node, uint32_t delim_id);

/* Where the cutter is, so that it can return there if something was not worth it. */
struct cut_mark {
    uint32_t n_stages;
    uint32_t n_reads;
    uint32_t n_scans;
    uint32_t n_ctes;
    uint32_t n_delims;
    struct shared_rows *ctes;
    struct shared_rows *delims;
    struct split_scan_entry *scans;
    struct scan_split *splits; /* what the cutter had written into them */
};

struct cut_mark cut__mark(const struct cutter *c);
void cut__return_to(struct cutter *c, const struct cut_mark *mark);

/* Whether no key is volatile. One that is would be another when the rows have moved, so they must all go to one task. */
bool cut__are_fixed(struct expression *const *keys, uint32_t n);

/* Exchanges: each ends the fragment as a stage, unless it is as wanted already. Keys to shuffle by must be fixed. */
MUST_USE enum err cut__shuffle(struct cutter *c, const struct fragment *f, struct expression *const *keys, uint32_t n,
                               struct fragment *out);
MUST_USE enum err cut__broadcast(struct cutter *c, const struct fragment *f, struct fragment *out);
MUST_USE enum err cut__gather(struct cutter *c, const struct fragment *f, struct fragment *out);
/* To as many tasks as there are partitions, with rows that are together staying so. */
MUST_USE enum err cut__forward(struct cutter *c, const struct fragment *f, struct fragment *out);
/* From one task, or from all of them, to many, of which only one has the rows. */
MUST_USE enum err cut__spread(struct cutter *c, const struct fragment *f, struct fragment *out);

/*
 * Thins out rows that cut__shuffle has just spread by the large keys: only those whose keys are among the values of `other`
 * are wanted. If one stage has these, and may have as little as bytes_max, there is a sieve in between then (cut_sieve.c).
 */
MUST_USE enum err cut__sieve(struct cutter *c, struct fragment *large, const struct join_keys *keys,
                             const struct plan_node *other, double bytes_max);

/* The fragment's tasks have to stay as they are: takes its choice away, and thins out the large side instead, if it can. */
MUST_USE enum err cut__settle_choice(struct cutter *c, struct fragment *f);

/*
 * Whether rows with equal values of the columns are at the same task, where they are read: if they are not, but could be,
 * both sides become so, or the one that is not yet.
 */
bool cut__meet(struct cutter *c, struct fragment *left, uint32_t left_column, struct fragment *right,
               uint32_t right_column);

/* The same for rows of one fragment, by one of the keys, if it is worth it for so many groups (negative: unknown). */
bool cut__could_be_together(struct cutter *c, struct fragment *f, struct expression *const *keys, uint32_t n,
                            double n_groups);

/* By which of the keys the fragment's tasks are ranges, or can be, and then are; -1: by none. */
int cut__find_range(struct cutter *c, struct fragment *f, struct expression *const *keys, uint32_t n);

/* Which columns of its source the scan looks at. */
bool *cut__columns_read(struct cutter *c, const struct scan *scan);

/* Into what a scan of so many bytes should be split. */
struct split_sizes cut__scan_sizes(const struct cutter *c, uint64_t bytes);

/* The NODE_INPUT or scan whose column has all values that the node's column can have; NULL if there is none. */
const struct plan_node *cut__find_source(const struct plan_node *node, uint32_t *column);

/* What a stage's rows go through at its end. */
struct close_request {
    enum exchange exchange;
    struct expression *const *keys;
    uint32_t n_keys;
    const struct order_key *orders; /* of a range exchange, instead of keys */
    uint32_t n_orders;
    const char *bounds;               /* of a range exchange: the name of a NODE_INPUT that need not be in the tree */
    const struct plan *result;        /* of the last stage, or of what an operator reads: for the columns' names */
    const struct plan_custom *custom; /* the operator behind it; or NULL */
};

/* Ends a fragment as a stage. */
MUST_USE enum err cut__close(struct cutter *c, const struct fragment *f, const struct close_request *request,
                             uint32_t *out_stage);

/* The query as it was written, in one task: for what cannot be cut, or is too small. */
struct physical_plan *cut__single(const struct plan *plan, const struct cut_options *options, const char *reason,
                                  struct arena *arena);

/* Gives the stage, which has nothing yet, the files that the tree reads by name. */
void cut__name_files(struct plan_node *root, const struct cut_options *options, struct arena *arena,
                     struct physical_stage *stage);

/* Says behind the SQL of the result what its columns are called (physical_write_names). */
void cut__write_names(struct buf *sql, const struct plan *plan);

/* Makes the last stage of a query one that writes its rows to files, and the stage behind it that publishes them. */
void cut__write_stage(struct physical_stage *stage, const struct query_write *write);
struct physical_stage cut__publish_stage(uint32_t id, uint32_t writers, const struct query_write *write,
                                         struct arena *arena);

/* A NODE_INPUT that reads a stage with these columns. */
struct plan_node *cut__read(struct cutter *c, uint32_t stage, const struct plan_node *shape, bool is_whole);

/* The stage that a NODE_INPUT reads. */
uint32_t cut__stage_of(const struct cutter *c, const struct plan_node *input);

/* Whether a NODE_INPUT reads all of its stage. */
bool cut__is_whole(const struct cutter *c, const struct plan_node *input);

/* Whether the rows are at one task, or at all. */
static inline bool cut__is_one(const struct fragment *f)
{
    return f->spread == SPREAD_SINGLE || f->spread == SPREAD_REPLICATED;
}

/* Bytes of the fragment's rows by the estimate (INFINITY if unknown), and at most. */
double cut__bytes(const struct fragment *f);
double cut__bytes_max(const struct fragment *f);

/* How many times of DuckDB's estimate the fragment's is; what is above it is taken to be off by as much. */
double cut__correction(const struct fragment *f);

/* Bytes of one row with these columns, about. */
double cut__row_bytes(const struct plan_node *node);

/* One key set more in front of `next`. `columns` is copied. */
const struct key_set *cut__key_set(struct cutter *c, const uint32_t *columns, uint32_t n, const struct key_set *next);

/* The key sets with other positions: column i is now map[i], or gone if that is PLAN_NO_COLUMN. NULL if none is left. */
const struct key_set *cut__remap_keys(struct cutter *c, const struct key_set *keys, const uint32_t *map, uint32_t n);

/* For each of `n` input columns where the output has it, the first time; PLAN_NO_COLUMN if not. `map` is output → input. */
uint32_t *cut__invert(struct cutter *c, const uint32_t *map, uint32_t n_map, uint32_t n);

/* Makes the fragment hash(keys), or any if there are no keys. */
void cut__set_hashed(struct fragment *f, const struct key_set *keys);

/* Whether rows with equal values of the expressions are at the same task: some key set is made of these only. */
bool cut__is_together(const struct fragment *f, struct expression *const *keys, uint32_t n);

/* Column positions of expressions that are all plain columns; NULL if one is not. */
uint32_t *cut__ref_columns(struct cutter *c, struct expression *const *expressions, uint32_t n);

/* REF 0 … REF n-1 of the node. */
struct expression **cut__refs(struct cutter *c, const struct plan_node *node, uint32_t n);

/* What a stage does, and whether it does the same each time (cut_describe.c). */
bool cut__is_deterministic(struct plan_node *node);
bool cut__is_node_deterministic(struct plan_node *node); /* the node alone, without what is below it */
void cut__describe(struct buf *out, const struct plan_node *node);

/* Which of the inputs `names`, if empty, leave the node without rows. Writes one flag per name. */
void cut__empty_if(const struct plan_node *node, const char *const *names, uint32_t n, bool *out_flags);

/* A size, or a number of rows, that decides about something (cut_options.shrink). */
double cut__size(const struct cutter *c, double size);

#endif
