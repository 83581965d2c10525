/*
 * plan_sql.h - changes to a parsed statement: constants for parameters, other tables for files.
 *
 * The statement is the JSON that DuckDB's json_serialize_sql() writes and json_deserialize_sql() reads. It is written
 * again with the changes; what is not changed is copied as it is, since DuckDB wants all of its fields back.
 *
 * Ownership: text is appended to the caller's buffer. Threads: any.
 */
#ifndef CAPSTAN_QUERY_PLAN_SQL_H
#define CAPSTAN_QUERY_PLAN_SQL_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"

/*
 * Asked for every file that DuckDB cannot write into a plan, as SELECT * FROM it in the same JSON. Returns true and
 * appends the argument of the stand-in, or false to leave the file as it is.
 */
typedef bool plan_sql_stand_in_fn(void *context, const char *select_json, struct buf *out_argument);

/* What becomes of custom(…) in a FROM. The calls are counted, from 0, as plan_sql_customs counts them. */
enum plan_sql_custom_form {
    CUSTOM_STAYS,
    CUSTOM_IS_STAND_IN, /* the stand-in PLAN_CUSTOM_NAME with the number behind it */
    CUSTOM_IS_TABLE,    /* the table of that name */
};
#define PLAN_CUSTOM_NAME "capstan_custom_"

/* Whether there is a data set of that name. */
typedef bool plan_sql_is_set_fn(void *context, const char *name);

struct plan_sql_changes {
    const struct json *params;      /* an array or an object; NULL: none */
    plan_sql_is_set_fn *is_set;     /* NULL: schemas stay */
    const char *sets_are_in;        /* temp or memory: what main.NAME becomes, and memory.NAME, and so on */
    plan_sql_stand_in_fn *stand_in; /* NULL: files stay */
    void *context;
    enum plan_sql_custom_form customs;
};

/* What came of it. */
struct plan_sql_outcome {
    bool has_params;
    bool has_sets; /* some by names with a schema, which were replaced */
    bool has_stand_ins;
    uint32_t n_customs; /* calls that were replaced */
};

/* Writes the statement again. ERR_INVALID if a parameter has no value, or one that SQL does not take. */
MUST_USE enum err plan_sql_rewrite(const struct json *statement, const struct plan_sql_changes *changes,
                                   struct buf *out, struct plan_sql_outcome *out_outcome, struct error *e);

/* ERR_INVALID if there is a value for a parameter that is not in the statement; `params` as above. */
MUST_USE enum err plan_sql_check_params(const struct json *statement, const struct json *params, struct error *e);

/*
 * Calls `table` with the name of each table without a schema, or in DuckDB's own one, that the statement reads, often more
 * than once; with NULL if a function in it reads tables by names that nobody knows before.
 */
typedef void plan_sql_table_fn(void *context, const char *name);
void plan_sql_tables(const struct json *statement, plan_sql_table_fn *table, void *context);

/* Appends the node as it is. Parameters must have been replaced. */
void plan_sql_copy(struct buf *out, const struct json *node);

/* Whether a FROM item is a call of custom(…). */
bool plan_sql_is_custom(const struct json *table);

/* A call of custom('op', (SELECT …), config := '{…}'). Texts are valid during the call only. */
struct plan_sql_custom {
    const char *op;
    const char *config_json;
    const struct buf *statement; /* the SELECT as a statement of its own, with the CTEs around it that it reads */
};
typedef enum err plan_sql_custom_fn(void *context, const struct plan_sql_custom *custom, struct error *e);

/*
 * Calls `custom` for each call that is not inside of another one, until it fails. ERR_INVALID if one has wrong arguments.
 * Parameters must have been replaced.
 */
MUST_USE enum err plan_sql_customs(const struct json *statement, plan_sql_custom_fn *custom, void *context,
                                   struct error *e);

/* How a file is read. */
enum source_format { SOURCE_PARQUET, SOURCE_CSV, SOURCE_JSON };

/* By its ending; false if that says nothing. */
bool plan_sql_format(const char *path, enum source_format *out);

#endif
