/*
 * unparse_internal.h - what the files that write SQL share.
 *
 * As in reading, the first error sticks to the unparser; a writer returns false from then on, and the text so far is of
 * no use.
 */
#ifndef CAPSTAN_QUERY_UNPARSE_INTERNAL_H
#define CAPSTAN_QUERY_UNPARSE_INTERNAL_H

#include "query/plan.h"
#include "query/unparse.h"

/* A CTE or the key side of a delim join, whose text stands in the WITH. */
struct unparse_name {
    uint32_t id;
    bool is_delim;
    const struct plan_node *delim_join; /* for is_delim */
    char text[16];
};

struct unparser {
    struct error *e;
    enum err err;
    uint32_t n_aliases;
    struct buf with; /* what stands between WITH and the SELECT */
    bool is_recursive;
    bool is_below_join;         /* a join's filters may get here: they do not get into entries of the WITH */
    bool is_in_recursion;       /* where no entries can be made */
    struct unparse_name *names; /* those known at this place */
    uint32_t n_names;
    uint32_t names_cap;
    const struct plan_node *named; /* the node whose columns are called as in `columns`; NULL: none */
    const struct plan_column *columns;
};

/* How references are written. The first one fits a node with one child. */
struct columns;
typedef bool column_fn(struct unparser *u, struct buf *sql, const struct columns *columns, uint32_t index);

struct columns {
    column_fn *write;
    const char *table; /* NULL: none */
    uint32_t n;        /* columns of `table`; those after it belong to `second` */
    const char *second;
    const struct scan *scan;
    const struct expression *lambda; /* its parameters come first, then its captures, over `outer` */
    uint32_t lambda_id;
    const struct columns *outer;
};

/* Columns of one derived table, or of two. */
struct columns unparse__one(const char *table, uint32_t n);
struct columns unparse__two(const char *table, uint32_t n, const char *second);

/* One FROM item: its text, with the alias at its end, and the alias. To be ended with buf_deinit(&from). */
struct side {
    struct buf from;
    char alias[16];
    uint32_t n_columns;
};

/* Fails with ERR_PRECONDITION; false. */
bool unparse__unsupported(struct unparser *u, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* A new name with that first letter. */
void unparse__alias(struct unparser *u, char letter, char out[16]);

/* The node as a FROM item. */
bool unparse__side(struct unparser *u, struct plan_node *node, struct side *out);

/* Appends " AS c<i>", or the result's own name. */
void unparse__as(struct unparser *u, struct buf *sql, const struct plan_node *node, uint32_t i);

/* Appends "SELECT " or ", ", whichever comes before column i. */
void unparse__separate(struct buf *sql, uint32_t i);

/* Appends columns of a side by a map (NULL: all, in order), as output columns `first` and so on. */
void unparse__mapped(struct unparser *u, struct buf *sql, const struct plan_node *node, const char *alias,
                     const uint32_t *map, uint32_t n, uint32_t first);

/* Makes a name known until the caller sets n_names back. */
struct unparse_name *unparse__name(struct unparser *u, uint32_t id, char letter);

bool unparse__expression(struct unparser *u, struct buf *sql, const struct expression *expression,
                         const struct columns *columns);
/* Expressions with commas between. */
bool unparse__list(struct unparser *u, struct buf *sql, struct expression *const *expressions, uint32_t n,
                   const struct columns *columns);
/* " ORDER BY …", or nothing. A constant would be read as a position, and orders nothing: it is left out. */
bool unparse__order_by(struct unparser *u, struct buf *sql, const struct order_key *keys, uint32_t n,
                       const struct columns *columns);

bool unparse__node(struct unparser *u, struct buf *sql, struct plan_node *node);
/* The node as the text of a MATERIALIZED entry of the WITH, which the caller adds. */
bool unparse__entry(struct unparser *u, struct buf *text, struct plan_node *node);
bool unparse__scan(struct unparser *u, struct buf *sql, struct plan_node *node);
bool unparse__custom(struct unparser *u, struct buf *sql, struct plan_node *node);
bool unparse__join(struct unparser *u, struct buf *sql, struct plan_node *node);

#endif
