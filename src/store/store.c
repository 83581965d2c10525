/* Passes the calls of store.h on to the engine that the URL names. */
#include "store/store.h"

#include <string.h>

#include "base/buf.h"
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

/* Appends the parameters of a URL but for those that are secrets. */
static void write_parameters(struct buf *buf, const char *parameters)
{
    static const char *const secrets[] = {"password=", "sslpassword="};
    const char *separator = "?";
    while (*parameters != '\0') {
        size_t n = strcspn(parameters, "&");
        bool is_secret = false;
        for (size_t i = 0; i < ARRAY_LEN(secrets); i++) {
            is_secret = is_secret || strncmp(parameters, secrets[i], strlen(secrets[i])) == 0;
        }
        if (!is_secret) {
            buf_text(buf, separator);
            buf_append(buf, parameters, n);
            separator = "&";
        }
        parameters += n + (parameters[n] == '&' ? 1 : 0);
    }
}

const char *store_url_text(const char *url, struct arena *arena)
{
    struct buf buf = {0};
    const char *authority = strstr(url, "://");
    if (strncmp(url, "postgres", strlen("postgres")) != 0 || authority == NULL) {
        return arena_strdup(arena, url);
    }
    authority += strlen("://");
    size_t n_authority = strcspn(authority, "/?");
    size_t n_user = 0;
    for (size_t i = 0; i < n_authority; i++) {
        n_user = authority[i] == '@' ? i : n_user; /* the last one: what is before it is the user and the password */
    }
    buf_append(&buf, url, (size_t)(authority - url));
    for (size_t i = 0; i < n_user && authority[i] != ':'; i++) {
        buf_char(&buf, authority[i]);
    }
    const char *rest = authority + n_user;
    buf_append(&buf, rest, strcspn(rest, "?"));
    rest += strcspn(rest, "?");
    write_parameters(&buf, rest + (*rest == '?' ? 1 : 0));
    const char *text = arena_strdup(arena, buf.data);
    buf_deinit(&buf);
    return text;
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

enum err store_payloads(struct store *store, const char *job_id, const struct digest *digests, uint32_t n,
                        struct arena *arena, struct found_bytes *out, struct error *e)
{
    return n == 0 ? ERR_OK : store->engine->payloads(store, job_id, digests, n, arena, out, e);
}

enum err store_results(struct store *store, const char *job_id, const uint32_t *stages, uint32_t n, struct arena *arena,
                       struct task_result *out, struct error *e)
{
    return n == 0 ? ERR_OK : store->engine->results(store, job_id, stages, n, arena, out, e);
}

enum err store_known_jobs(struct store *store, const char *const *job_ids, uint32_t n, bool *out_known, struct error *e)
{
    return n == 0 ? ERR_OK : store->engine->known_jobs(store, job_ids, n, out_known, e);
}

enum err store_listen(struct store *store, struct error *e)
{
    return store->engine->listen(store, e);
}

enum err store_wait(struct store *store, int64_t timeout_ms, bool *out_woken, struct error *e)
{
    return store->engine->wait(store, timeout_ms, out_woken, e);
}

void store_interrupt(struct store *store)
{
    store->engine->interrupt(store);
}

enum err store_task_results(struct store *store, const char *job_id, int64_t after_stage, uint32_t limit,
                            struct arena *arena, const struct task_result **out, uint32_t *out_n, struct error *e)
{
    return store->engine->task_results(store, job_id, after_stage, limit, arena, out, out_n, e);
}

enum err store_summarize(struct store *store, struct store_summary *out, struct error *e)
{
    return store->engine->summarize(store, out, e);
}

enum err store_data_sets(struct store *store, struct arena *arena, const struct data_set **out, uint32_t *out_n,
                         struct error *e)
{
    return store->engine->data_sets(store, arena, out, out_n, e);
}

enum err store_inbox(struct store *store, const struct inbox_query *query, struct arena *arena,
                     const struct inbox_entry **out, uint32_t *out_n, struct error *e)
{
    return store->engine->inbox(store, query, arena, out, out_n, e);
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
