/*
 * plan_read_internal.h - what the files that read plans share.
 *
 * Errors stick to the reader: the first one counts, and every function that returns a pointer returns NULL from then on.
 * So a caller looks at what it got, or goes on with things that do not depend on it.
 */
#ifndef CAPSTAN_QUERY_PLAN_READ_INTERNAL_H
#define CAPSTAN_QUERY_PLAN_READ_INTERNAL_H

#include "base/json.h"
#include "base/limits.h"
#include "query/plan.h"

/* How DuckDB's binder names a column. Only needed below table functions, whose inputs come unresolved. */
struct binding {
    uint64_t table;
    uint64_t column;
};

/* A node with the names of its columns; as many as the node has columns. */
struct relation {
    struct plan_node *node;
    struct binding *bindings;
};

struct plan_reader {
    struct arena *arena;
    struct error *e;
    enum err err;
    uint32_t depth;
    uint32_t n_items;
    uint32_t n_delims; /* ids given so far */
    /* The delim joins whose other side is being read, innermost last. */
    uint32_t open_delims[LIMIT_PLAN_DEPTH];
    uint32_t n_open_delims;
    const struct json *source_types; /* of the scan that is being read */
};

/*
 * What an expression refers to. A reference to column i becomes map[i], or stays i if there is no map; `n` is how many
 * there are. Unresolved names are looked up in `relation`, if there is one.
 */
struct input {
    uint32_t n;
    const uint32_t *map;
    const struct relation *relation;
};

/* Fails with ERR_PRECONDITION, and ERR_INVALID. Both return NULL. */
void *plan__unsupported(struct plan_reader *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
void *plan__malformed(struct plan_reader *r, const char *what);

/* Goes one deeper and counts an item; false if there are too many. Every true is paired with plan__leave. */
bool plan__enter(struct plan_reader *r);
void plan__leave(struct plan_reader *r);

/* Members of an object. Texts are copied into the arena. Failing: ERR_INVALID. */
const char *plan__text(struct plan_reader *r, const struct json *object, const char *key);
uint32_t plan__u32(struct plan_reader *r, const struct json *object, const char *key);
uint64_t plan__u64(struct plan_reader *r, const struct json *object, const char *key);

/* An array of numbers below `limit`; `*out_n` of them. */
uint32_t *plan__positions(struct plan_reader *r, const struct json *array, uint32_t limit, uint32_t *out_n);

/* Types and constants. */
const struct type *plan__type(struct plan_reader *r, const struct json *json);
const struct type **plan__types(struct plan_reader *r, const struct json *array, uint32_t *out_n);
const struct constant *plan__constant(struct plan_reader *r, const struct json *json);
const struct constant *plan__text_constant(struct plan_reader *r, const char *bytes, size_t n);
const struct constant *plan__list_constant(struct plan_reader *r, const struct constant *items, uint32_t n,
                                           const struct type *child);

/* Expressions. */
struct expression *plan__new_expression(struct plan_reader *r, enum expression_kind kind, const struct type *type,
                                        uint32_t n_args);
struct expression *plan__constant_expression(struct plan_reader *r, const struct constant *constant);
struct expression *plan__expression(struct plan_reader *r, const struct json *json, const struct input *input);
/* NULL for null, without an error. */
struct expression *plan__optional_expression(struct plan_reader *r, const struct json *json, const struct input *input);
struct expression **plan__expressions(struct plan_reader *r, const struct json *array, const struct input *input,
                                      uint32_t *out_n);
struct order_key *plan__orders(struct plan_reader *r, const struct json *array, const struct input *input,
                               uint32_t *out_n);
bool plan__comparison(struct plan_reader *r, const char *name, enum comparison *out);

/* Calls: functions, aggregates and windows. `expression` has its kind and type. */
bool plan__function(struct plan_reader *r, const struct json *json, const struct input *input,
                    struct expression *expression);
bool plan__aggregate(struct plan_reader *r, const struct json *json, const struct input *input,
                     struct expression *expression);
bool plan__window(struct plan_reader *r, const struct json *json, const struct input *input,
                  struct expression *expression);

/* Nodes: fill `node`, whose children are read, and name its columns. */
bool plan__scan(struct plan_reader *r, const struct json *json, const struct relation *children, struct relation *self);
bool plan__join(struct plan_reader *r, const struct json *json, const struct relation *children, struct relation *self);

/* Helpers for nodes. */
void plan__set_columns(struct plan_reader *r, struct relation *self, uint32_t n);
struct input plan__input(const struct relation *relation);
/* All positions from 0 on if the array is empty. */
uint32_t *plan__map(struct plan_reader *r, const struct json *array, uint32_t n_columns, uint32_t *out_n);

#endif
