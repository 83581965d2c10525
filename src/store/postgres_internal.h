/*
 * postgres_internal.h - the store on PostgreSQL: what its files share.
 *
 * postgres.c holds the connection: how it is made, how a statement runs, what an error means. postgres_schema.c,
 * postgres_leader.c, postgres_commit.c, postgres_read.c, postgres_lookup.c, postgres_history.c, postgres_prune.c and
 * postgres_copy.c are one part of store.h each; postgres_array.c writes values as binary arrays.
 *
 * Every call starts with postgres__begin, which connects again if need be. A call that fails with ERR_UNAVAILABLE has
 * closed the connection. Values travel in binary in both directions.
 */
#ifndef CAPSTAN_STORE_POSTGRES_INTERNAL_H
#define CAPSTAN_STORE_POSTGRES_INTERNAL_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "store/codec.h"
#include "store/engine.h"
#include "store/net.h"
#include "store/table.h"
#include "store/wake.h"

/* How long the server may keep silent before the connection is given up. */
#define POSTGRES_SILENCE_MS 70000           /* a little more than statement_timeout */
#define POSTGRES_HISTORY_SILENCE_MS 10000   /* pages that somebody waits for, who could ask another coordinator */
#define POSTGRES_LEADER_SILENCE_MS 5000     /* calls about leadership, and short reads that somebody waits for */
#define POSTGRES_PATIENT_SILENCE_MS 3600000 /* migrations */

/* A statement's parameters are cut into several statements above this size; PostgreSQL takes 1 GiB at most. */
#define POSTGRES_STATEMENT_BYTES ((size_t)16 * 1024 * 1024)

#define POSTGRES_PARAMS_MAX 32

/* ---- arrays (postgres_array.c) ---- */

/* One parameter that is an array: the values of one column. */
struct postgres_array {
    char *data; /* in the form of array_recv */
    size_t n;
    size_t cap;
};

struct postgres_arrays {
    struct postgres_array at[POSTGRES_PARAMS_MAX];
    enum value_type types[POSTGRES_PARAMS_MAX];
    uint32_t n;      /* arrays in use */
    uint32_t n_rows; /* values in each */
    size_t n_bytes;  /* in all of them */
};

/* Empties them, for columns of these types. */
void postgres__arrays_start(struct postgres_arrays *arrays, const enum value_type *types, uint32_t n);
/* The next value of column `column`. The caller counts n_rows. */
void postgres__arrays_put(struct postgres_arrays *arrays, uint32_t column, struct value value);
/* Writes the headers; after that the arrays can be sent. */
void postgres__arrays_finish(struct postgres_arrays *arrays);
void postgres__arrays_deinit(struct postgres_arrays *arrays);

/* ---- the connection (postgres.c) ---- */

/* Statements that are asked so often that each connection prepares them when it first needs them. */
enum postgres_question {
    ASK_PAYLOAD,
    ASK_PAYLOADS,
    ASK_RESULTS,
    ASK_TASK_RESULTS,
    ASK_KNOWN_JOBS,
    ASK_FIND_KEY,
    ASK_ONCE, /* not one of these */
};

struct postgres {
    struct store store;
    char *url;
    PGconn *conn; /* NULL: not connected */
    int64_t silence_ms;
    bool is_schema_checked;
    bool is_leader_known; /* there is a leader's row to look at, of whatever version */
    bool is_prepared;     /* the statements of commits */
    bool has_led;         /* through this store a leadership was taken */
    bool is_duplicate;    /* the last error was that a unique key is taken */
    bool knows[ASK_ONCE]; /* questions that are prepared */
    bool wants_news;      /* store_listen was called */
    bool is_listening;    /* and this connection knows */
    struct wake wake;
    struct spec_memo memo;
    struct arena arena; /* of the call under way */
    struct postgres_arrays arrays;
    struct net net;  /* of the commit under way */
    struct buf copy; /* of a copy under way: what was not sent yet */
    uint32_t copy_columns;
};

static inline struct postgres *postgres__of(struct store *store)
{
    return (struct postgres *)(void *)store;
}

/*
 * Starts a call: connects if there is no connection or the server closed it. `needs_schema`: ERR_PRECONDITION unless the
 * schema is the one that this program knows.
 */
MUST_USE enum err postgres__begin(struct postgres *pg, int64_t silence_ms, bool needs_schema, struct error *e);
void postgres__disconnect(struct postgres *pg);

/* The parameters of one statement. */
struct postgres_params {
    int n;
    Oid types[POSTGRES_PARAMS_MAX];
    const char *values[POSTGRES_PARAMS_MAX];
    int lengths[POSTGRES_PARAMS_MAX];
    int formats[POSTGRES_PARAMS_MAX];
    uint8_t numbers[POSTGRES_PARAMS_MAX][8];
};

/* Each adds one parameter. Texts and bytes must live until the statement has run. */
void postgres__param_text(struct postgres_params *params, const char *text);
void postgres__param_int(struct postgres_params *params, int64_t number);
void postgres__param_bytes(struct postgres_params *params, const void *bytes, size_t n);
/* The array of that column, once the arrays are finished. */
void postgres__param_array(struct postgres_params *params, const struct postgres_arrays *arrays, uint32_t column);

/*
 * Runs one statement and waits for it; `params` NULL: there are none. The caller clears the result. ERR_BUSY: a lock was
 * not to be had within lock_timeout. After an error inside a transaction the caller ends it (postgres__end).
 */
MUST_USE enum err postgres__query(struct postgres *pg, const char *sql, const struct postgres_params *params,
                                  PGresult **out, struct error *e);
/* The same, without a result. */
MUST_USE enum err postgres__run(struct postgres *pg, const char *sql, const struct postgres_params *params,
                                struct error *e);
/* Several statements at once, separated by semicolons, without parameters. */
MUST_USE enum err postgres__script(struct postgres *pg, const char *sql, struct error *e);
/* Ends a transaction: commits if `err` is ERR_OK, else rolls back and returns `err`. */
MUST_USE enum err postgres__end(struct postgres *pg, enum err err, struct error *e);

/* Begins a call and runs one statement, which must always be the same for the same question. */
MUST_USE enum err postgres__ask(struct postgres *pg, enum postgres_question question, const char *sql,
                                const struct postgres_params *params, PGresult **out, struct error *e);

/* Sends rows to COPY ... FROM STDIN (FORMAT binary): the whole stream in pieces, then its end. */
MUST_USE enum err postgres__copy_in_start(struct postgres *pg, const char *sql, struct error *e);
MUST_USE enum err postgres__copy_in(struct postgres *pg, const char *data, size_t n, struct error *e);
MUST_USE enum err postgres__copy_in_end(struct postgres *pg, struct error *e);

/* Gives the rows of a query without parameters one by one, each as the message of a binary COPY, NULL at the end. */
MUST_USE enum err postgres__copy_start(struct postgres *pg, const char *query, struct error *e);
/* The caller frees it with PQfreemem. */
MUST_USE enum err postgres__copy_next(struct postgres *pg, char **out_data, size_t *out_n, struct error *e);

/* Waits for the next result of the connection; NULL as PQgetResult. For pipelines. */
MUST_USE enum err postgres__result(struct postgres *pg, PGresult **out, struct error *e);
/* The error that a result holds, whose primary message goes to `e`. Closes the connection if that is what it takes. */
enum err postgres__failed(struct postgres *pg, const PGresult *result, struct error *e);
/* The connection broke, or broke off. Closes it. */
enum err postgres__lost(struct postgres *pg, struct error *e);

/* ---- results ---- */

int64_t postgres__int_at(const PGresult *result, int row, int column);
struct value postgres__value_at(const PGresult *result, int row, int column, enum value_type type);
/* A copy; NULL for NULL. */
const char *postgres__text_at(const PGresult *result, int row, int column, struct arena *arena);

/* "alias.column, ..." of all columns that are read back. */
void postgres__write_columns(struct buf *sql, const struct table *table, const char *alias);
/* The row that was selected with postgres__write_columns. */
MUST_USE enum err postgres__row_at(const PGresult *result, int row, const struct table *table, struct arena *arena,
                                   struct row **out, struct error *e);

/* ---- parts of store.h ---- */

enum err postgres__schema(struct store *store, struct migration_status *out, struct error *e);
enum err postgres__migrate(struct store *store, uint32_t version, struct error *e);
/* Says that there is none. */
enum err postgres__no_schema(struct error *e);
/* The version in the database, for a connection that stands. */
MUST_USE enum err postgres__schema_version(struct postgres *pg, uint32_t *out, struct error *e);

enum err postgres__lead(struct store *store, const struct leader_claim *claim, struct arena *arena, struct leader *out,
                        struct error *e);
enum err postgres__renew(struct store *store, const struct fence *fence, int64_t ttl_ms, int64_t *out_now_ms,
                         struct error *e);
enum err postgres__resign(struct store *store, const struct fence *fence, struct error *e);
enum err postgres__leader(struct store *store, struct arena *arena, struct leader *out, struct error *e);
/* Adds epoch and token. */
void postgres__param_fence(struct postgres_params *params, const struct fence *fence);

enum err postgres__commit(struct store *store, const struct fence *fence, const struct batch *batch, struct error *e);

enum err postgres__load(struct store *store, store_row_fn *fn, void *context, struct error *e);
enum err postgres__load_job(struct store *store, const char *job_id, store_row_fn *fn, void *context, struct error *e);
enum err postgres__find_key(struct store *store, const char *idempotency_key, int64_t not_before_ms,
                            struct arena *arena, const char **out_job_id, struct error *e);
enum err postgres__payload(struct store *store, const char *job_id, const struct digest *digest, struct arena *arena,
                           const void **out_bytes, size_t *out_n, struct error *e);
enum err postgres__data_sets(struct store *store, struct arena *arena, const struct data_set **out, uint32_t *out_n,
                             struct error *e);
enum err postgres__inbox(struct store *store, const struct inbox_query *query, struct arena *arena,
                         const struct inbox_entry **out, uint32_t *out_n, struct error *e);

enum err postgres__payloads(struct store *store, const char *job_id, const struct digest *digests, uint32_t n,
                            struct arena *arena, struct found_bytes *out, struct error *e);
enum err postgres__results(struct store *store, const char *job_id, const uint32_t *stages, uint32_t n,
                           struct arena *arena, struct task_result *out, struct error *e);
enum err postgres__task_results(struct store *store, const char *job_id, int64_t after_stage, uint32_t limit,
                                struct arena *arena, const struct task_result **out, uint32_t *out_n, struct error *e);
enum err postgres__known_jobs(struct store *store, const char *const *job_ids, uint32_t n, bool *out_known,
                              struct error *e);
enum err postgres__listen(struct store *store, struct error *e);
enum err postgres__wait(struct store *store, int64_t timeout_ms, bool *out_woken, struct error *e);
void postgres__interrupt(struct store *store);
enum err postgres__summarize(struct store *store, struct store_summary *out, struct error *e);
extern const struct copy_target postgres__copy_target;

enum err postgres__jobs(struct store *store, const struct job_query *query, struct arena *arena, struct page *out,
                        struct error *e);
enum err postgres__tasks(struct store *store, const struct task_query *query, struct arena *arena, struct page *out,
                         struct error *e);
enum err postgres__events(struct store *store, const struct event_query *query, struct arena *arena, struct page *out,
                          uint64_t *out_pruned_seq, struct error *e);
enum err postgres__prune(struct store *store, const struct fence *fence, int64_t before_ms, uint32_t limit,
                         bool *out_more, struct error *e);

#endif
