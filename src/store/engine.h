/*
 * engine.h - what an engine provides; store.c passes every call of store.h on to it.
 *
 * An engine embeds `struct store` as its first member. Open functions get the URL as store_open got it. For store_copy an
 * engine is a source, a target or neither.
 */
#ifndef CAPSTAN_STORE_ENGINE_H
#define CAPSTAN_STORE_ENGINE_H

#include "store/store.h"
#include "store/table.h"

/* A table as store_copy sees it: names and types of columns, all of them or all but such as have a default. */
struct copy_table {
    const char *name;
    uint32_t n_columns;
    const char *columns[32];
    enum value_type types[32];
    bool is_of_jobs; /* its rows go with their job, by job_id */
};

/* One row; the values live until it returns. */
typedef enum err copy_row_fn(void *context, const struct value *values, struct error *e);

/*
 * What a copy is made from: begin locks everybody out who could write and takes one picture, of which count and rows tell;
 * end undoes that.
 */
struct copy_source {
    enum err (*begin)(struct store *store, uint64_t *out_epoch, struct error *e);
    enum err (*count)(struct store *store, const struct copy_table *table, uint64_t *out, struct error *e);
    enum err (*rows)(struct store *store, const struct copy_table *table, copy_row_fn *fn, void *context,
                     struct error *e);
    void (*end)(struct store *store);
};

/*
 * What a copy is made into: begin makes the schema if there is none, opens a transaction and makes sure that nobody leads
 * and all tables are empty; between start and finish of a table its rows come; end commits if `err` is ERR_OK, else it
 * leaves nothing and returns `err`.
 */
struct copy_target {
    enum err (*begin)(struct store *store, const struct copy_table *tables, uint32_t n, struct error *e);
    enum err (*start)(struct store *store, const struct copy_table *table, struct error *e);
    copy_row_fn *row; /* the context is the store */
    enum err (*finish)(struct store *store, struct error *e);
    enum err (*count)(struct store *store, const struct copy_table *table, uint64_t *out, struct error *e);
    enum err (*end)(struct store *store, uint64_t epoch, enum err err, struct error *e);
};

struct engine {
    void (*close)(struct store *store);
    enum err (*schema)(struct store *store, struct migration_status *out, struct error *e);
    enum err (*migrate)(struct store *store, uint32_t version, struct error *e);
    enum err (*lead)(struct store *store, const struct leader_claim *claim, struct arena *arena, struct leader *out,
                     struct error *e);
    enum err (*renew)(struct store *store, const struct fence *fence, int64_t ttl_ms, int64_t *out_now_ms,
                      struct error *e);
    enum err (*resign)(struct store *store, const struct fence *fence, struct error *e);
    enum err (*leader)(struct store *store, struct arena *arena, struct leader *out, struct error *e);
    enum err (*commit)(struct store *store, const struct fence *fence, const struct batch *batch, struct error *e);
    enum err (*load)(struct store *store, store_row_fn *fn, void *context, struct error *e);
    enum err (*load_job)(struct store *store, const char *job_id, store_row_fn *fn, void *context, struct error *e);
    enum err (*find_key)(struct store *store, const char *idempotency_key, int64_t not_before_ms, struct arena *arena,
                         const char **out_job_id, struct error *e);
    enum err (*payload)(struct store *store, const char *job_id, const struct digest *digest, struct arena *arena,
                        const void **out_bytes, size_t *out_n, struct error *e);
    enum err (*payloads)(struct store *store, const char *job_id, const struct digest *digests, uint32_t n,
                         struct arena *arena, struct found_bytes *out, struct error *e);
    enum err (*results)(struct store *store, const char *job_id, const uint32_t *stages, uint32_t n,
                        struct arena *arena, struct task_result *out, struct error *e);
    enum err (*known_jobs)(struct store *store, const char *const *job_ids, uint32_t n, bool *out_known,
                           struct error *e);
    enum err (*data_sets)(struct store *store, struct arena *arena, const struct data_set **out, uint32_t *out_n,
                          struct error *e);
    enum err (*inbox)(struct store *store, const struct inbox_query *query, struct arena *arena,
                      const struct inbox_entry **out, uint32_t *out_n, struct error *e);
    enum err (*listen)(struct store *store, struct error *e);
    enum err (*wait)(struct store *store, int64_t timeout_ms, bool *out_woken, struct error *e);
    void (*interrupt)(struct store *store);
    enum err (*jobs)(struct store *store, const struct job_query *query, struct arena *arena, struct page *out,
                     struct error *e);
    enum err (*tasks)(struct store *store, const struct task_query *query, struct arena *arena, struct page *out,
                      struct error *e);
    enum err (*task_results)(struct store *store, const char *job_id, int64_t after_stage, uint32_t limit,
                             struct arena *arena, const struct task_result **out, uint32_t *out_n, struct error *e);
    enum err (*events)(struct store *store, const struct event_query *query, struct arena *arena, struct page *out,
                       uint64_t *out_pruned_seq, struct error *e);
    enum err (*prune)(struct store *store, const struct fence *fence, int64_t before_ms, uint32_t limit, bool *out_more,
                      struct error *e);
    enum err (*summarize)(struct store *store, struct store_summary *out, struct error *e);
    const struct copy_source *source; /* NULL: nothing can be copied from it */
    const struct copy_target *target; /* NULL: nothing can be copied into it */
};

struct store {
    const struct engine *engine;
};

MUST_USE enum err sqlite_open(const char *url, struct store **out_store, struct error *e);
MUST_USE enum err postgres_open(const char *url, struct store **out_store, struct error *e);
MUST_USE enum err memory_open(const char *url, struct store **out_store, struct error *e);

#endif
