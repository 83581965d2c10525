/*
 * engine.h - what an engine provides; store.c passes every call of store.h on to it.
 *
 * An engine embeds `struct store` as its first member. Open functions get the URL as store_open got it.
 */
#ifndef CAPSTAN_STORE_ENGINE_H
#define CAPSTAN_STORE_ENGINE_H

#include "store/store.h"

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
    enum err (*data_sets)(struct store *store, struct arena *arena, const struct data_set **out, uint32_t *out_n,
                          struct error *e);
    enum err (*inbox)(struct store *store, uint32_t limit, struct arena *arena, const struct inbox_entry **out,
                      uint32_t *out_n, struct error *e);
    enum err (*jobs)(struct store *store, const struct job_query *query, struct arena *arena, struct page *out,
                     struct error *e);
    enum err (*tasks)(struct store *store, const struct task_query *query, struct arena *arena, struct page *out,
                      struct error *e);
    enum err (*events)(struct store *store, const struct event_query *query, struct arena *arena, struct page *out,
                       uint64_t *out_pruned_seq, struct error *e);
    enum err (*prune)(struct store *store, const struct fence *fence, int64_t before_ms, uint32_t limit, bool *out_more,
                      struct error *e);
};

struct store {
    const struct engine *engine;
};

MUST_USE enum err sqlite_open(const char *url, struct store **out_store, struct error *e);
MUST_USE enum err postgres_open(const char *url, struct store **out_store, struct error *e);
MUST_USE enum err memory_open(const char *url, struct store **out_store, struct error *e);

#endif
