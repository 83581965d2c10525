/* Passes the calls of store.h on to the engine that the URL names. */
#include "store/store.h"

#include <string.h>

#include "store/engine.h"

static const struct scheme {
    const char *prefix;
    enum err (*open)(const char *url, struct store **out_store, struct error *e);
} schemes[] = {
    {"sqlite:", sqlite_open},
    {"postgres://", postgres_open},
    {"postgresql://", postgres_open},
    {"memory:", memory_open},
};

enum err store_open(const char *url, struct store **out_store, struct error *e)
{
    for (size_t i = 0; i < ARRAY_LEN(schemes); i++) {
        if (strncmp(url, schemes[i].prefix, strlen(schemes[i].prefix)) == 0) {
            return schemes[i].open(url, out_store, e);
        }
    }
    /* The URL may hold a password, so it is not repeated. */
    enum err err = error_set(e, ERR_INVALID, "the store's URL is neither sqlite: nor postgres://");
    error_hint(e, "use sqlite:PATH or postgres://user@host/database");
    return err;
}

void store_close(struct store *store)
{
    if (store != NULL) {
        store->engine->close(store);
    }
}

enum err store_schema(struct store *store, struct migration_status *out, struct error *e)
{
    return store->engine->schema(store, out, e);
}

enum err store_migrate(struct store *store, uint32_t version, struct error *e)
{
    return store->engine->migrate(store, version, e);
}

enum err store_lead(struct store *store, const struct leader_claim *claim, struct arena *arena, struct leader *out,
                    struct error *e)
{
    return store->engine->lead(store, claim, arena, out, e);
}

enum err store_renew(struct store *store, const struct fence *fence, int64_t ttl_ms, int64_t *out_now_ms,
                     struct error *e)
{
    return store->engine->renew(store, fence, ttl_ms, out_now_ms, e);
}

enum err store_resign(struct store *store, const struct fence *fence, struct error *e)
{
    return store->engine->resign(store, fence, e);
}

enum err store_leader(struct store *store, struct arena *arena, struct leader *out, struct error *e)
{
    return store->engine->leader(store, arena, out, e);
}

enum err store_commit(struct store *store, const struct fence *fence, const struct batch *batch, struct error *e)
{
    return store->engine->commit(store, fence, batch, e);
}

enum err store_load(struct store *store, store_row_fn *fn, void *context, struct error *e)
{
    return store->engine->load(store, fn, context, e);
}

enum err store_load_job(struct store *store, const char *job_id, store_row_fn *fn, void *context, struct error *e)
{
    return store->engine->load_job(store, job_id, fn, context, e);
}

enum err store_find_key(struct store *store, const char *idempotency_key, int64_t not_before_ms, struct arena *arena,
                        const char **out_job_id, struct error *e)
{
    return store->engine->find_key(store, idempotency_key, not_before_ms, arena, out_job_id, e);
}

enum err store_payload(struct store *store, const char *job_id, const struct digest *digest, struct arena *arena,
                       const void **out_bytes, size_t *out_n, struct error *e)
{
    return store->engine->payload(store, job_id, digest, arena, out_bytes, out_n, e);
}

enum err store_data_sets(struct store *store, struct arena *arena, const struct data_set **out, uint32_t *out_n,
                         struct error *e)
{
    return store->engine->data_sets(store, arena, out, out_n, e);
}

enum err store_inbox(struct store *store, uint32_t limit, struct arena *arena, const struct inbox_entry **out,
                     uint32_t *out_n, struct error *e)
{
    return store->engine->inbox(store, limit, arena, out, out_n, e);
}

enum err store_jobs(struct store *store, const struct job_query *query, struct arena *arena, struct page *out,
                    struct error *e)
{
    return store->engine->jobs(store, query, arena, out, e);
}

enum err store_tasks(struct store *store, const struct task_query *query, struct arena *arena, struct page *out,
                     struct error *e)
{
    return store->engine->tasks(store, query, arena, out, e);
}

enum err store_events(struct store *store, const struct event_query *query, struct arena *arena, struct page *out,
                      uint64_t *out_pruned_seq, struct error *e)
{
    return store->engine->events(store, query, arena, out, out_pruned_seq, e);
}

enum err store_prune(struct store *store, const struct fence *fence, int64_t before_ms, uint32_t limit, bool *out_more,
                     struct error *e)
{
    return store->engine->prune(store, fence, before_ms, limit, out_more, e);
}
