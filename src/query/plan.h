/*
 * plan.h - a query's plan as a small tree: nodes, expressions, types and constants.
 *
 * The tree is DuckDB's optimized logical plan, read from its JSON (plan_read.h) and put into one form, so that whoever
 * walks it has few cases:
 *
 * - A column has no name, only a position. An EXPRESSION_REF with index i means column i of the node's child; in a join's
 *   conditions, of that side's child; in a join's `residual`, of the left child's columns followed by all of the right's.
 * - Every node knows the types of its output columns (`columns`).
 * - Projection maps are always written out, RIGHT SEMI and RIGHT ANTI joins are turned round, arguments that DuckDB
 *   erases when it binds a function are put back as constants, names of arguments are in `names`.
 * - A DELIM_GET knows its join, a CTE_REF its CTE, by an id that is unique in the plan. Ids rather than pointers, so that
 *   a copy of a node needs no repair.
 *
 * What the tree cannot express makes the whole plan `unsupported`, with the reason for people; such a query runs as one
 * task. There is never a half-read plan.
 *
 * Whoever cuts a plan into stages builds new trees from copies of nodes: NODE_INPUT stands for the rows of another stage,
 * EXPRESSION_TEMPLATE for SQL that DuckDB's plans do not contain, a scan's `split` for the part that one task reads.
 *
 * Ownership: everything lies in the arena that the plan was read into, and lives as long. Nodes may share children,
 * expressions and types; so whoever changes something copies it first (plan_node_copy).
 * Threads: a tree that nobody changes may be read by several.
 */
#ifndef CAPSTAN_QUERY_PLAN_H
#define CAPSTAN_QUERY_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/check.h"
#include "query/write.h"

/* Types. */

/* How a constant of a type is held: the member of the union in struct constant. */
enum constant_form {
    FORM_NONE, /* there are no constants of this type */
    FORM_BOOLEAN,
    FORM_INTEGER,
    FORM_NUMBER,
    FORM_TEXT,
    FORM_INTERVAL,
    FORM_ITEMS,
};

/*
 * X(symbol, id in the plan's JSON, name in SQL or NULL for a type that cannot be written, form of its constants)
 *
 * The names of nested types are written by type_write, as are DECIMAL's digits and ENUM's values.
 */
#define TYPE_TABLE(X)                                                                                                  \
    X(TYPE_NULL, "NULL", "\"NULL\"", FORM_NONE)                                                                        \
    X(TYPE_BOOLEAN, "BOOLEAN", "BOOLEAN", FORM_BOOLEAN)                                                                \
    X(TYPE_TINYINT, "TINYINT", "TINYINT", FORM_INTEGER)                                                                \
    X(TYPE_SMALLINT, "SMALLINT", "SMALLINT", FORM_INTEGER)                                                             \
    X(TYPE_INTEGER, "INTEGER", "INTEGER", FORM_INTEGER)                                                                \
    X(TYPE_BIGINT, "BIGINT", "BIGINT", FORM_INTEGER)                                                                   \
    X(TYPE_HUGEINT, "HUGEINT", "HUGEINT", FORM_INTEGER)                                                                \
    X(TYPE_UTINYINT, "UTINYINT", "UTINYINT", FORM_INTEGER)                                                             \
    X(TYPE_USMALLINT, "USMALLINT", "USMALLINT", FORM_INTEGER)                                                          \
    X(TYPE_UINTEGER, "UINTEGER", "UINTEGER", FORM_INTEGER)                                                             \
    X(TYPE_UBIGINT, "UBIGINT", "UBIGINT", FORM_INTEGER)                                                                \
    X(TYPE_UHUGEINT, "UHUGEINT", "UHUGEINT", FORM_INTEGER)                                                             \
    X(TYPE_DECIMAL, "DECIMAL", "DECIMAL", FORM_INTEGER)                                                                \
    X(TYPE_FLOAT, "FLOAT", "FLOAT", FORM_NUMBER)                                                                       \
    X(TYPE_DOUBLE, "DOUBLE", "DOUBLE", FORM_NUMBER)                                                                    \
    X(TYPE_VARCHAR, "VARCHAR", "VARCHAR", FORM_TEXT)                                                                   \
    X(TYPE_BLOB, "BLOB", "BLOB", FORM_TEXT)                                                                            \
    X(TYPE_BIT, "BIT", "BIT", FORM_NONE)                                                                               \
    X(TYPE_BIGNUM, "BIGNUM", "BIGNUM", FORM_NONE)                                                                      \
    X(TYPE_UUID, "UUID", "UUID", FORM_INTEGER)                                                                         \
    X(TYPE_DATE, "DATE", "DATE", FORM_INTEGER)                                                                         \
    X(TYPE_TIME, "TIME", "TIME", FORM_INTEGER)                                                                         \
    X(TYPE_TIME_NS, "TIME_NS", "TIME_NS", FORM_INTEGER)                                                                \
    X(TYPE_TIME_TZ, "TIME WITH TIME ZONE", "TIME WITH TIME ZONE", FORM_INTEGER)                                        \
    X(TYPE_TIMESTAMP, "TIMESTAMP", "TIMESTAMP", FORM_INTEGER)                                                          \
    X(TYPE_TIMESTAMP_S, "TIMESTAMP_S", "TIMESTAMP_S", FORM_INTEGER)                                                    \
    X(TYPE_TIMESTAMP_MS, "TIMESTAMP_MS", "TIMESTAMP_MS", FORM_INTEGER)                                                 \
    X(TYPE_TIMESTAMP_NS, "TIMESTAMP_NS", "TIMESTAMP_NS", FORM_INTEGER)                                                 \
    X(TYPE_TIMESTAMP_TZ, "TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH TIME ZONE", FORM_INTEGER)                         \
    X(TYPE_INTERVAL, "INTERVAL", "INTERVAL", FORM_INTERVAL)                                                            \
    X(TYPE_ENUM, "ENUM", "ENUM", FORM_INTEGER)                                                                         \
    X(TYPE_LIST, "LIST", "LIST", FORM_ITEMS)                                                                           \
    X(TYPE_ARRAY, "ARRAY", "ARRAY", FORM_ITEMS)                                                                        \
    X(TYPE_STRUCT, "STRUCT", "STRUCT", FORM_ITEMS)                                                                     \
    X(TYPE_MAP, "MAP", "MAP", FORM_ITEMS)                                                                              \
    X(TYPE_UNION, "UNION", "UNION", FORM_ITEMS)                                                                        \
    X(TYPE_STRING_LITERAL, "STRING_LITERAL", "VARCHAR", FORM_TEXT)                                                     \
    X(TYPE_INTEGER_LITERAL, "INTEGER_LITERAL", "INTEGER", FORM_INTEGER)                                                \
    X(TYPE_OTHER, "", NULL, FORM_NONE)

/* clang-format off */
enum type_id {
#define X(symbol, json_id, sql_name, form) symbol,
    TYPE_TABLE(X)
#undef X
};
/* clang-format on */

/* A field of a STRUCT or a member of a UNION (without its tag). A STRUCT made by row() has fields without names: "". */
struct type_field {
    const char *name;
    const struct type *type;
};

struct type {
    enum type_id id;
    bool is_json;                    /* a VARCHAR that is called JSON */
    uint8_t width;                   /* DECIMAL */
    uint8_t scale;                   /* DECIMAL */
    uint32_t size;                   /* ARRAY: how many elements */
    const struct type *child;        /* LIST, ARRAY: of the elements; MAP: STRUCT(key, value) */
    uint32_t n_fields;               /* STRUCT, UNION; ENUM: how many values */
    const struct type_field *fields; /* STRUCT, UNION; ENUM: `name` is the value and `type` NULL */
};

/* The types that have no parameters, to be pointed at from anywhere. Not for DECIMAL, ENUM and nested ones. */
const struct type *type_plain(enum type_id id);

/* DECIMAL(width, scale). */
const struct type *type_decimal(struct arena *arena, uint8_t width, uint8_t scale);

/* The id for the text in a plan's JSON; TYPE_OTHER if it is none that we know. */
enum type_id type_id_of(const char *json_id);

/* How constants of the type are held. */
enum constant_form type_form(enum type_id id);

/* Whether two types are the same in SQL. */
bool type_equal(const struct type *a, const struct type *b);

/* Whether SQL has a name for it. Not so for structs without field names, wherever they are inside, and for TYPE_OTHER. */
bool type_has_sql(const struct type *type);

/* Appends the type in SQL. It must have one. */
void type_write(struct buf *sql, const struct type *type);

/* Whether it is a whole number or DECIMAL, and its decimal digits then. The outputs may be NULL. */
bool type_is_exact_number(const struct type *type, uint8_t *out_width, uint8_t *out_scale);

/* Constants. */

/* 128 bits, two's complement. */
struct wide_int {
    int64_t upper;
    uint64_t lower;
};

struct constant_text {
    const char *bytes; /* NUL-terminated, but may contain NULs as well; a BLOB's in DuckDB's notation, with \xHH */
    size_t n;
};

struct constant_interval {
    int32_t months;
    int32_t days;
    int64_t micros;
};

/*
 * The items of a nested value: a LIST's, ARRAY's elements; a STRUCT's fields in the order of the type; a MAP's entries,
 * each a STRUCT(key, value); for a UNION the one member that is set, and `tag` says which.
 */
struct constant_items {
    const struct constant *items;
    uint32_t n;
    uint32_t tag;
};

struct constant {
    const struct type *type;
    bool is_null;
    /* By type_form(type->id), unless is_null. */
    union {
        bool boolean;
        struct wide_int
            integer; /* DECIMAL: unscaled; DATE: days; ENUM: index; TIME…: in the type's unit, as in DuckDB */
        double number;
        struct constant_text text;
        struct constant_interval interval;
        struct constant_items items;
    } as;
};

/* Appends the constant in SQL, such that it has exactly its type. False, with text appended or not, if SQL cannot. */
MUST_USE bool constant_write(struct buf *sql, const struct constant *constant);

bool constant_equal(const struct constant *a, const struct constant *b);

/* Appends `text` in single quotes; a NUL inside becomes chr(0). */
void sql_write_text(struct buf *sql, const char *bytes, size_t n);

/* Appends `name` in double quotes. */
void sql_write_name(struct buf *sql, const char *name);

/* Expressions. */

enum comparison {
    COMPARE_EQUAL,
    COMPARE_NOT_EQUAL,
    COMPARE_LESS,
    COMPARE_GREATER,
    COMPARE_LESS_OR_EQUAL,
    COMPARE_GREATER_OR_EQUAL,
    COMPARE_DISTINCT,     /* IS DISTINCT FROM */
    COMPARE_NOT_DISTINCT, /* IS NOT DISTINCT FROM */
    N_COMPARISONS,
};

/* The operator in SQL. */
const char *comparison_sql(enum comparison comparison);

/* The comparison with its sides exchanged. */
enum comparison comparison_flip(enum comparison comparison);

/* All kinds, and what their `args` are. */
enum expression_kind {
    EXPRESSION_REF,        /* column `index` of the input */
    EXPRESSION_CONSTANT,   /* `constant` */
    EXPRESSION_COMPARISON, /* left, right; `comparison` */
    EXPRESSION_AND,        /* two or more */
    EXPRESSION_OR,         /* two or more */
    EXPRESSION_BETWEEN,    /* input, lower, upper; `between` */
    EXPRESSION_CAST,       /* child; `is_try` */
    EXPRESSION_CASE,       /* when, then, when, then, …, else */
    EXPRESSION_OPERATOR,   /* by `operator` */
    EXPRESSION_FUNCTION,   /* arguments; `function` */
    EXPRESSION_LAMBDA,     /* body, then captures (over the outer input); an argument of a FUNCTION; `lambda` */
    EXPRESSION_UNNEST,     /* child; only in an UNNEST node, or below a projection's top */
    EXPRESSION_AGGREGATE,  /* arguments; `aggregate` */
    EXPRESSION_WINDOW,     /* arguments; `window` */
    EXPRESSION_TEMPLATE,   /* what `sql` refers to; made by the cutter only */
    N_EXPRESSION_KINDS,
};

enum operator_kind {
    OPERATOR_NOT,
    OPERATOR_IS_NULL,
    OPERATOR_IS_NOT_NULL,
    OPERATOR_IN, /* args[0] IN (the others) */
    OPERATOR_NOT_IN,
    OPERATOR_COALESCE,
    OPERATOR_NULLIF,
    OPERATOR_TRY,
    N_OPERATORS,
};

/* Whether the bounds belong to the range. */
struct between {
    bool has_lower;
    bool has_upper;
};

struct function_call {
    const char *name;
    const char *const *names; /* NULL, or one per argument: its name (`name := value`) or NULL */
};

/*
 * A lambda's body refers to its parameters as REF 0 … n_parameters-1, in the order in which they are declared, and to
 * captures as REF n_parameters and so on.
 */
struct lambda {
    uint32_t n_parameters;
};

struct order_key {
    struct expression *expression;
    bool is_descending;
    bool has_nulls_first;
};

struct aggregate_call {
    const char *name; /* "count_star" is count(*) */
    bool is_distinct;
    struct expression *filter; /* or NULL */
    uint32_t n_orders;
    struct order_key *orders;
};

enum frame_unit { FRAME_ROWS, FRAME_RANGE, FRAME_GROUPS };

enum bound_kind {
    BOUND_UNBOUNDED_PRECEDING,
    BOUND_UNBOUNDED_FOLLOWING,
    BOUND_CURRENT_ROW,
    BOUND_PRECEDING, /* `offset` PRECEDING */
    BOUND_FOLLOWING,
};

struct frame_bound {
    enum bound_kind kind;
    struct expression *offset;
};

enum frame_exclusion { EXCLUDE_NOTHING, EXCLUDE_CURRENT_ROW, EXCLUDE_GROUP, EXCLUDE_TIES };

struct window_call {
    const char *name; /* in SQL, such as "row_number"; "count_star" is count(*) */
    bool is_distinct;
    bool has_ignore_nulls;
    bool is_row_id; /* the binder's own row number, for a correlated subquery: any numbers will do that differ */
    struct expression *filter;
    uint32_t n_argument_orders; /* ORDER BY inside the call */
    struct order_key *argument_orders;
    uint32_t n_partitions;
    struct expression **partitions;
    uint32_t n_orders;
    struct order_key *orders;
    enum frame_unit unit;
    struct frame_bound start;
    struct frame_bound end;
    enum frame_exclusion exclusion;
};

struct expression {
    enum expression_kind kind;
    const struct type *type;
    uint32_t n_args;
    struct expression **args;
    union {
        uint32_t index;
        const struct constant *constant;
        enum comparison comparison;
        struct between between;
        bool is_try;
        enum operator_kind operator;
        struct function_call function;
        struct lambda lambda;
        struct aggregate_call *aggregate;
        struct window_call *window;
        /*
         * SQL in which @0 … @9 stand for an argument, @* for all of them with commas between, and @@ for one @. It
         * must bind as tightly as a call or a pair of brackets does.
         */
        const char *sql;
    } as;
};

/* Called with the place of an expression, so that it can be replaced. Returns false to go no deeper there. */
typedef bool expression_visit_fn(struct expression **slot, void *context);

/* Calls `visit` for the expression and all inside it, outer before inner: arguments, filters, orders, partitions, offsets. */
void expression_visit(struct expression **slot, expression_visit_fn *visit, void *context);

/* A copy, down to the leaves; types, constants and texts are shared. */
struct expression *expression_copy(struct arena *arena, const struct expression *expression);

/* Whether they are the same expression over the same input, down to the types. */
bool expression_equal(const struct expression *a, const struct expression *b);

/* Whether a function inside may give another value each time: random(), uuid(), … */
bool expression_is_volatile(const struct expression *expression);

/* Whether there is an expression of that kind inside, or it is one. */
bool expression_contains(const struct expression *expression, enum expression_kind kind);

/*
 * A copy in which column i has become column map[i]. Every column that occurs must be in the map (which has `n`), and
 * its entry must not be PLAN_NO_COLUMN. A lambda's own parameters stay.
 */
#define PLAN_NO_COLUMN UINT32_MAX
struct expression *expression_remap(struct arena *arena, const struct expression *expression, const uint32_t *map,
                                    uint32_t n);

/* Column `index`. */
struct expression *expression_ref(struct arena *arena, uint32_t index, const struct type *type);

/* SQL of the cutter's own, with arguments; see the field `sql`. `args` is copied, `sql` is not. */
struct expression *expression_template(struct arena *arena, const char *sql, const struct type *type,
                                       struct expression *const *args, uint32_t n_args);

/* Nodes. */

/* All kinds, with the number of children. */
enum node_kind {
    NODE_SCAN,          /* 0: Parquet, CSV or JSON files, or a table function; `scan` */
    NODE_CALL,          /* 1: a table function called for each row of the child; `call` */
    NODE_INPUT,         /* 0: rows of another stage; made by the cutter only; `input` */
    NODE_VALUES,        /* 0: rows of expressions that refer to nothing; `values` */
    NODE_DUMMY,         /* 0: one row with the column 1 */
    NODE_EMPTY,         /* 0: no rows */
    NODE_FILTER,        /* 1: rows for which all `filter.expressions`, which may be none, are true */
    NODE_PROJECTION,    /* 1: `projection` */
    NODE_AGGREGATE,     /* 1: groups, then aggregates, then GROUPING() columns; `aggregate` */
    NODE_WINDOW,        /* 1: the child's columns, then `projection.expressions` */
    NODE_UNNEST,        /* 1: the child's columns, then `projection.expressions` */
    NODE_ORDER,         /* 1: `order` */
    NODE_TOP_N,         /* 1: `order` with `limit` */
    NODE_LIMIT,         /* 1: `limit` */
    NODE_DISTINCT,      /* 1: `distinct` */
    NODE_SAMPLE,        /* 1: `sample` */
    NODE_UNION,         /* 2 or more: `is_all` */
    NODE_EXCEPT,        /* 2: `is_all` */
    NODE_INTERSECT,     /* 2: `is_all` */
    NODE_JOIN,          /* 2: `join` */
    NODE_CROSS,         /* 2: all pairs */
    NODE_POSITIONAL,    /* 2: first with first, second with second, … */
    NODE_DELIM_GET,     /* 0: the distinct keys of a delim join; `delim_get` */
    NODE_CTE,           /* 2: definition, body; outputs the body's columns; `cte` */
    NODE_RECURSIVE_CTE, /* 2: anchor, recursive part; outputs all rows; `recursive` */
    NODE_CTE_REF,       /* 0: `cte_ref` */
    NODE_CUSTOM,        /* 1: what an operator of the user's own makes of the child's rows; `custom` */
    N_NODE_KINDS,
};

/* Scans. */

enum scan_source {
    SCAN_PARQUET,  /* `files` */
    SCAN_STAND_IN, /* `from`: CSV or JSON files; the planner saw a stand-in with their columns */
    SCAN_FUNCTION, /* `from`: a table function with constant arguments, such as range(10) */
};

/* What a column of a scan is, besides a column of the file. */
enum scan_virtual {
    VIRTUAL_NONE,
    VIRTUAL_FILENAME,
    VIRTUAL_FILE_ROW_NUMBER,
    VIRTUAL_FILE_INDEX,
    VIRTUAL_EMPTY, /* no value is wanted, only the rows: NULL */
};

struct scan_column {
    enum scan_virtual is_virtual;
    uint32_t index;  /* of a column of the file, in `names` and `types`, unless it is virtual */
    uint32_t n_path; /* fields to extract from a STRUCT, outermost first */
    const char **path;
    const struct type *type; /* after that */
};

struct scan_option {
    const char *name;
    const struct constant *value;
};

/*
 * What a task reads of the whole. All texts go into the SQL as they are; NULL means: everything, as in the plan.
 * Only for SCAN_PARQUET, except that `from` also goes for SCAN_STAND_IN.
 */
struct scan_split {
    const char *files;      /* instead of the list of files, such as {{split}} */
    const char *from;       /* instead of the whole FROM item */
    const char *where;      /* one more condition; the scan's alias is written as @, such as @.file_row_number */
    const char *filename;   /* instead of the virtual column filename; NULL: as DuckDB says */
    const char *file_index; /* instead of the virtual column file_index */
    const char *range;      /* NULL, or the column of whose values a task reads a range, for people */
    uint64_t cardinality;   /* what DuckDB is told to be the number of rows before conditions; 0: nothing */
};

/* What a task's share of a scan with union_by_name calls the number of a row in its file. */
#define SCAN_BY_NAME_ROW "capstan_row"

/* What a share of a scan calls the name of a row's file, which is a column like others then. */
#define SCAN_SHARE_FILE "capstan_file"

/* A file of CSV or JSON. */
struct scan_file {
    const char *path;
    uint64_t bytes;
    int64_t mtime_ms;
};

struct scan {
    enum scan_source source;
    uint32_t table_index; /* unique among the scans of a plan */
    const char *function; /* read_parquet, range, … */
    uint32_t n_names;
    const char **names;        /* of all columns of the source */
    const struct type **types; /* likewise; TYPE_OTHER if it is not known, and nobody reads the column */
    uint32_t n_columns;
    const struct scan_column *columns; /* the output */
    uint32_t n_filters;
    struct expression **filters; /* all must hold; over `names`: REF i is column i of the source, not of the output */
    uint32_t n_virtual_filters;
    struct expression **virtual_filters; /* the same over virtual columns: REF i means enum scan_virtual i */
    uint32_t n_files;
    const char **files;         /* SCAN_PARQUET: expanded and pruned by DuckDB */
    bool has_hive_partitioning; /* SCAN_PARQUET, and so on for the next three */
    bool has_union_by_name;
    bool has_binary_as_string;
    bool has_nan;                /* statistics of its files may leave NaN out */
    bool has_file_row_number;    /* as an ordinary column, called file_row_number */
    const char *filename_column; /* as an ordinary column with that name; NULL if not asked for */
    const char *mixed_column; /* NULL, or one with a condition, and of another type in some files (split_types_load) */
    const bool *is_recast;    /* NULL, or by name: it is read, and of another type in some files (likewise) */
    bool has_kinds;           /* its files differ in their columns, or in the places or types of these (likewise) */
    bool is_retyped;         /* its files, read together, have other types than the plan, or lack a column (likewise) */
    const char *hive_column; /* NULL, or one of folders that is read, and is in the files, too (likewise) */
    const char *from;        /* SCAN_STAND_IN, SCAN_FUNCTION */
    bool has_ordinality;     /* SCAN_FUNCTION: WITH ORDINALITY */
    const char *shared_call; /* SCAN_STAND_IN: NULL, or the files can be shared out (split_others_load) */
    uint32_t n_other_files;  /* SCAN_STAND_IN: 0 if it is not known which they are */
    const struct scan_file *other_files;
    struct scan_split split; /* set by the cutter */
};

/*
 * Folders of a path that are called name=value, as DuckDB sees them: returns the name of the next one, which has `out_n` bytes,
 * and moves on behind that folder; NULL: there are no more.
 */
const char *scan_next_folder(const char **path, size_t *out_n);

/* A table function that is called for each row of its child: FROM child, LATERAL function(arguments). */
struct table_call {
    const char *function;
    uint32_t n_arguments; /* the first columns of the child */
    bool has_ordinality;
    uint32_t n_names;
    const char **names; /* of all columns of the function */
    uint32_t n_columns;
    const uint32_t *columns; /* output: these of the function, in `names` */
    uint32_t n_passed;
    const uint32_t *passed; /* and then these of the child */
};

struct stage_input {
    const char *name; /* of the table that the worker makes of the stage's rows; its columns are c0, c1, … */
};

struct values {
    uint32_t n_rows;
    struct expression ***rows; /* each with as many expressions as the node has columns */
};

struct filter {
    uint32_t n_expressions;
    struct expression **expressions;
    uint32_t *map; /* output column i is the child's column map[i] */
};

struct projection {
    uint32_t n_expressions;
    struct expression **expressions;
};

/* Some of the groups, by position. */
struct group_set {
    uint32_t n;
    uint32_t *groups;
};

struct aggregate {
    uint32_t n_groups;
    struct expression **groups;
    uint32_t n_aggregates;
    struct expression **aggregates; /* EXPRESSION_AGGREGATE, or a template */
    uint32_t n_sets;
    struct group_set *sets; /* none or one: plain GROUP BY all groups */
    uint32_t n_groupings;
    struct group_set *groupings; /* GROUPING(…) columns */
};

enum limit_kind { LIMIT_BY_NOTHING, LIMIT_BY_ROWS, LIMIT_BY_PERCENT };

struct limit_value {
    enum limit_kind kind;
    uint64_t rows;
    double percent;
};

struct limit {
    struct limit_value count;
    struct limit_value offset;
};

struct order {
    uint32_t n_keys;
    struct order_key *keys;
    uint32_t *map;      /* NODE_ORDER: output column i is the child's column map[i]; NODE_TOP_N: NULL, all columns */
    struct limit limit; /* NODE_TOP_N */
};

struct distinct {
    bool is_on; /* DISTINCT ON (targets), else all columns */
    uint32_t n_targets;
    struct expression **targets; /* always set: all columns if not is_on */
    uint32_t n_orders;
    struct order_key *orders; /* which row of a group is taken */
};

enum sample_method { SAMPLE_SYSTEM, SAMPLE_BERNOULLI, SAMPLE_RESERVOIR };

struct sample {
    enum sample_method method;
    bool is_percent;
    double percent;
    uint64_t rows;
    int64_t seed; /* -1: none */
};

enum join_type { JOIN_INNER, JOIN_LEFT, JOIN_RIGHT, JOIN_FULL, JOIN_SEMI, JOIN_ANTI, JOIN_MARK, JOIN_SINGLE };

struct join_condition {
    struct expression *left;  /* over the left child */
    struct expression *right; /* over the right child */
    enum comparison comparison;
};

/*
 * Output: the left child's columns by left_map, then for MARK one BOOLEAN, for SEMI and ANTI nothing, else the right
 * child's columns by right_map.
 */
struct join {
    enum join_type type;
    bool is_asof;
    uint32_t n_conditions;
    struct join_condition *conditions; /* all must hold */
    struct expression *residual;       /* and this, over the left child's columns, then all of the right's; or NULL */
    uint32_t n_left;
    uint32_t *left_map;
    uint32_t n_right;
    uint32_t *right_map;
    /*
     * A delim join: the distinct values of `keys`, expressions over the child `delim_side`, are what the DELIM_GETs with
     * the same id inside the other child yield.
     */
    bool is_delim;
    uint32_t delim_id;
    uint32_t delim_side; /* 0 or 1 */
    uint32_t n_keys;
    struct expression **keys;
};

struct delim_get {
    uint32_t delim_id;
};

struct cte {
    uint32_t id;
};

struct recursive_cte {
    uint32_t id;
    bool is_union_all;
};

struct cte_ref {
    uint32_t id;
};

/*
 * custom('name', (SELECT …), config := '{…}') in a FROM: C code over Arrow batches. The operator sees the rows of each task
 * by themselves, in an order that nobody has promised: with rows spread over several tasks it works on a part of them.
 */
struct plan_custom {
    const char *name; /* by which the query's SQL calls the operator's rows */
    const char *op;
    const char *config_json;
    const struct plan *input; /* what it reads */
};

struct custom_node {
    const struct plan_custom *custom;
    struct scan *scan; /* which of the operator's columns are read, and which rows: names, types, columns, filters */
};

struct plan_node {
    enum node_kind kind;
    uint32_t n_children;
    struct plan_node **children;
    uint32_t n_columns;
    const struct type **columns; /* types of the output */
    double rows_estimated;       /* by DuckDB; negative: unknown */
    union {
        struct scan *scan;
        struct table_call *call;
        struct stage_input input;
        struct values values;
        struct filter filter;
        struct projection projection; /* PROJECTION, WINDOW, UNNEST */
        struct aggregate *aggregate;
        struct order *order;
        struct limit *limit;
        struct distinct distinct;
        struct sample *sample;
        bool is_all;
        struct join *join;
        struct delim_get delim_get;
        struct cte cte;
        struct recursive_cte recursive;
        struct cte_ref cte_ref;
        struct custom_node custom;
    } as;
};

/* A column of the result, as the client sees it. */
struct plan_column {
    const char *name;
    const char *type; /* in SQL */
};

struct plan {
    struct plan_node *root;  /* NULL if unsupported */
    const char *unsupported; /* NULL, or why the query has to run as one task */
    const char *sql;         /* what that one task runs: statements, the last of which yields the result */
    uint32_t n_columns;
    struct plan_column *columns;
    uint32_t n_customs;
    struct plan_custom *customs; /* `sql` reads their rows from tables that are called so; see NODE_CUSTOM */
    struct query_write write;    /* what becomes of the result; `write.sql` NULL: it goes to the client */
    bool is_repeatable;          /* it depends on nothing but files, if on these (plan_repeat.h) */
    uint32_t n_sources;
    const char **sources; /* of the data sets that the statement names: paths and globs */
};

/* The kind in words, such as "filter", for messages and for --explain. */
const char *node_kind_name(enum node_kind kind);

/* Called for a node; returns false to leave out what is below it. */
typedef bool plan_visit_fn(struct plan_node *node, void *context);

/* Calls `visit` for the node and all below it, parents first, children from left to right. */
void plan_visit(struct plan_node *node, plan_visit_fn *visit, void *context);

/*
 * Calls `visit` for the node's own expressions and what is inside them, as expression_visit does. Those of a join's left
 * and right side and of its residual have different inputs; see struct join.
 */
void plan_node_visit_expressions(struct plan_node *node, expression_visit_fn *visit, void *context);

/*
 * A copy of the node and of what is its own (its struct behind `as`, its arrays of children and expressions), which can
 * then be changed; children and expressions themselves are shared.
 */
struct plan_node *plan_node_copy(struct arena *arena, const struct plan_node *node);

/* A copy of `node` with other children. */
struct plan_node *plan_node_with_children(struct arena *arena, const struct plan_node *node,
                                          struct plan_node *const *children, uint32_t n);

/* A copy of `node`, which has one child, with another one. */
struct plan_node *plan_node_with_child(struct arena *arena, const struct plan_node *node, struct plan_node *child);

/* New nodes. Arrays are copied; expressions, types and children are shared. */
struct plan_node *plan_input(struct arena *arena, const char *name, const struct type *const *columns,
                             uint32_t n_columns);
struct plan_node *plan_project(struct arena *arena, struct plan_node *child, struct expression *const *expressions,
                               uint32_t n);
struct plan_node *plan_filter(struct arena *arena, struct plan_node *child, struct expression *condition);

/* The child's columns, then `extra`. */
struct plan_node *plan_extend(struct arena *arena, struct plan_node *child, struct expression *const *extra,
                              uint32_t n);

/* Whether an expression of the node itself is volatile. */
bool plan_node_is_volatile(struct plan_node *node);

#endif
