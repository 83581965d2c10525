#include "broken.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "content.h"
#include "store/engine.h"

struct broken {
    struct store store;
    struct store *inner;
    const char *fault;
};

#define FAULT_TABLE(X)                                                                                                 \
    X(drops_the_last_row, "rows_of_every_kind")                                                                        \
    X(drops_an_attempt, "random_histories")                                                                            \
    X(ignores_the_fence, "a_fence_must_fit")                                                                           \
    X(commits_in_halves, "a_batch_with_one_bad_row")                                                                   \
    X(sweeps_at_the_end, "a_queued_task_is_swept")                                                                     \
    X(sweeps_nothing, "random_histories")                                                                              \
    X(removes_any_lease, "a_lease_that_was_taken_anew")                                                                \
    X(makes_empty_texts_null, "an_empty_text")                                                                         \
    X(cuts_long_texts, "texts_may_be_as_long")                                                                         \
    X(loses_the_highest_bit, "numbers_may_lie")                                                                        \
    X(forgets_a_node_at_load, "a_core_loaded")                                                                         \
    X(skips_a_row_between_pages, "pages_of_jobs_are_filtered")                                                         \
    X(prunes_what_is_young, "only_jobs_that_ended")                                                                    \
    X(never_says_more, "jobs_are_pruned_in_steps")                                                                     \
    X(takes_the_leadership_by_force, "one_leads")                                                                      \
    X(starts_epochs_anew, "an_epoch_is_never")                                                                         \
    X(keeps_keys_for_ever, "a_job_is_found_by_its_idempotency_key")                                                    \
    X(cuts_payloads, "payloads_are_bytes")                                                                             \
    X(mixes_up_payloads, "several_payloads")                                                                           \
    X(makes_empty_results_none, "results_of_tasks_are_found")                                                          \
    X(skips_a_result, "results_of_a_tree")                                                                             \
    X(knows_a_job_once, "known_jobs_are_told")                                                                         \
    X(forgets_the_names_of_tasks, "pages_of_tasks_have_the_names")                                                     \
    X(keeps_the_inbox, "what_is_left_in_the_inbox")                                                                    \
    X(never_goes_down, "a_schema_goes_down")

/* clang-format off */
const struct fault broken_faults[] = {
#define FAULT(name, noticed_by) {#name, noticed_by},
    FAULT_TABLE(FAULT)
#undef FAULT
    {NULL, NULL},
};

#define FAULT(name, noticed_by) static const char name[] = #name;
FAULT_TABLE(FAULT)
#undef FAULT
/* clang-format on */

static struct broken *of(struct store *store)
{
    return CONTAINER_OF(store, struct broken, store);
}

static bool has(const struct broken *b, const char *fault)
{
    return strcmp(b->fault, fault) == 0;
}

/* ---- writing ---- */

/* A batch taken to pieces: every row a list of its own. */
struct pieces {
    struct arena arena;
    const struct row **rows;
    uint32_t n;
};

static void take_apart(struct pieces *pieces, const struct batch *batch)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        for (const struct row *row = batch->rows[i]; row != NULL; row = row->next) {
            n++;
        }
    }
    pieces->rows = arena_alloc(&pieces->arena, (n + 1) * sizeof(const struct row *));
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        for (const struct row *row = batch->rows[i]; row != NULL; row = row->next) {
            struct row *copy = arena_copy(&pieces->arena, row, row_size(row->kind));
            copy->next = NULL;
            pieces->rows[pieces->n++] = copy;
        }
    }
}

static void drop_kind(struct pieces *pieces, enum row_kind kind, bool at_most_one)
{
    uint32_t kept = 0;
    bool dropped = false;
    for (uint32_t i = 0; i < pieces->n; i++) {
        if (pieces->rows[i]->kind == kind && !(dropped && at_most_one)) {
            dropped = true;
        } else {
            pieces->rows[kept++] = pieces->rows[i];
        }
    }
    pieces->n = kept;
}

static void move_to_end(struct pieces *pieces, enum row_kind kind)
{
    uint32_t n = 0;
    const struct row **rows = arena_alloc(&pieces->arena, (pieces->n + 1) * sizeof(const struct row *));
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < pieces->n; i++) {
            if ((pieces->rows[i]->kind == kind) == (pass == 1)) {
                rows[n++] = pieces->rows[i];
            }
        }
    }
    pieces->rows = rows;
}

/* Whatever lease of the task came before in the batch goes. */
static void forge_tokens(struct pieces *pieces)
{
    for (uint32_t i = 0; i < pieces->n; i++) {
        for (uint32_t k = 0; k < i && pieces->rows[i]->kind == ROW_LEASE_GONE; k++) {
            struct row_lease_gone *gone = (struct row_lease_gone *)(uintptr_t)pieces->rows[i];
            if (pieces->rows[k]->kind == ROW_LEASE) {
                gone->token = ((const struct row_lease *)(const void *)pieces->rows[k])->token;
            }
        }
    }
}

static void edit(const struct broken *b, struct pieces *pieces)
{
    if (has(b, drops_the_last_row) && pieces->n > 3) {
        pieces->n--;
    } else if (has(b, drops_an_attempt) && pieces->n > 20) {
        drop_kind(pieces, ROW_ATTEMPT, true);
    } else if (has(b, sweeps_at_the_end)) {
        move_to_end(pieces, ROW_JOB_SWEEP);
    } else if (has(b, sweeps_nothing)) {
        drop_kind(pieces, ROW_JOB_SWEEP, false);
    } else if (has(b, removes_any_lease)) {
        forge_tokens(pieces);
    }
}

static enum err broken_commit(struct store *store, const struct fence *fence, const struct batch *batch,
                              struct error *e)
{
    struct broken *b = of(store);
    struct pieces pieces = {0};
    struct batch changed = *batch;
    struct fence used = *fence;
    struct leader leader;
    enum err err = ERR_OK;
    take_apart(&pieces, batch);
    edit(b, &pieces);
    if (has(b, keeps_the_inbox)) {
        changed.n_inbox_done = 0;
    }
    if (has(b, ignores_the_fence) && store_leader(b->inner, &pieces.arena, &leader, e) == ERR_OK) {
        used = leader.fence;
    }
    changed.rows = pieces.rows;
    if (has(b, commits_in_halves)) {
        struct batch half = {.rows = pieces.rows, .n_rows = pieces.n / 2};
        err = store_commit(b->inner, &used, &half, e);
        changed.rows += pieces.n / 2;
        pieces.n -= pieces.n / 2;
    }
    changed.n_rows = pieces.n;
    if (err == ERR_OK) {
        err = store_commit(b->inner, &used, &changed, e);
    }
    arena_deinit(&pieces.arena);
    return err;
}

static enum err broken_prune(struct store *store, const struct fence *fence, int64_t before_ms, uint32_t limit,
                             bool *out_more, struct error *e)
{
    struct broken *b = of(store);
    bool too_much = has(b, prunes_what_is_young) && before_ms < INT64_MAX;
    enum err err = store_prune(b->inner, fence, before_ms + (too_much ? 1 : 0), limit, out_more, e);
    *out_more = *out_more && !has(b, never_says_more);
    return err;
}

/* ---- reading ---- */

struct passing {
    const struct broken *b;
    store_row_fn *fn;
    void *context;
    uint32_t n_nodes;
};

static void damage_job(const struct broken *b, struct row_job *job)
{
    if (has(b, makes_empty_texts_null) && job->message != NULL && job->message[0] == '\0') {
        job->message = NULL;
    }
    if (has(b, cuts_long_texts) && job->message != NULL && strlen(job->message) > 65535) {
        job->message += strlen(job->message) - 65535;
    }
    if (has(b, loses_the_highest_bit)) {
        job->inline_bytes &= INT64_MAX;
    }
}

static void pass_row(void *context, const struct row *row)
{
    struct passing *passing = context;
    if (row->kind == ROW_JOB) {
        struct row_job job = *(const struct row_job *)(const void *)row;
        damage_job(passing->b, &job);
        passing->fn(passing->context, &job.row);
        return;
    }
    if (row->kind == ROW_NODE && has(passing->b, forgets_a_node_at_load) && passing->n_nodes++ == 1) {
        return;
    }
    passing->fn(passing->context, row);
}

static enum err broken_load(struct store *store, store_row_fn *fn, void *context, struct error *e)
{
    struct passing passing = {of(store), fn, context, 0};
    return store_load(of(store)->inner, pass_row, &passing, e);
}

static enum err broken_load_job(struct store *store, const char *job_id, store_row_fn *fn, void *context,
                                struct error *e)
{
    struct passing passing = {of(store), fn, context, 0};
    return store_load_job(of(store)->inner, job_id, pass_row, &passing, e);
}

static enum err broken_find_key(struct store *store, const char *idempotency_key, int64_t not_before_ms,
                                struct arena *arena, const char **out_job_id, struct error *e)
{
    int64_t since_ms = has(of(store), keeps_keys_for_ever) ? 0 : not_before_ms;
    return store_find_key(of(store)->inner, idempotency_key, since_ms, arena, out_job_id, e);
}

static enum err broken_payload(struct store *store, const char *job_id, const struct digest *digest,
                               struct arena *arena, const void **out_bytes, size_t *out_n, struct error *e)
{
    enum err err = store_payload(of(store)->inner, job_id, digest, arena, out_bytes, out_n, e);
    *out_n -= err == ERR_OK && has(of(store), cuts_payloads) && *out_n > 256 ? 1 : 0;
    return err;
}

static enum err broken_data_sets(struct store *store, struct arena *arena, const struct data_set **out, uint32_t *out_n,
                                 struct error *e)
{
    return store_data_sets(of(store)->inner, arena, out, out_n, e);
}

static enum err broken_inbox(struct store *store, const struct inbox_query *query, struct arena *arena,
                             const struct inbox_entry **out, uint32_t *out_n, struct error *e)
{
    return store_inbox(of(store)->inner, query, arena, out, out_n, e);
}

static enum err broken_jobs(struct store *store, const struct job_query *query, struct arena *arena, struct page *out,
                            struct error *e)
{
    enum err err = store_jobs(of(store)->inner, query, arena, out, e);
    if (err == ERR_OK && has(of(store), skips_a_row_between_pages) && out->next != NULL && out->n_rows > 1) {
        out->n_rows--;
    }
    return err;
}

static enum err broken_tasks(struct store *store, const struct task_query *query, struct arena *arena, struct page *out,
                             struct error *e)
{
    enum err err = store_tasks(of(store)->inner, query, arena, out, e);
    if (err == ERR_OK && has(of(store), forgets_the_names_of_tasks)) {
        out->names = arena_zalloc(arena, (out->n_rows + 1) * sizeof(const char *));
    }
    return err;
}

static enum err broken_events(struct store *store, const struct event_query *query, struct arena *arena,
                              struct page *out, uint64_t *out_pruned_seq, struct error *e)
{
    return store_events(of(store)->inner, query, arena, out, out_pruned_seq, e);
}

static enum err broken_payloads(struct store *store, const char *job_id, const struct digest *digests, uint32_t n,
                                struct arena *arena, struct found_bytes *out, struct error *e)
{
    enum err err = store_payloads(of(store)->inner, job_id, digests, n, arena, out, e);
    if (err == ERR_OK && has(of(store), mixes_up_payloads) && n > 1) {
        struct found_bytes first = out[0];
        out[0] = out[1];
        out[1] = first;
    }
    return err;
}

static enum err broken_results(struct store *store, const char *job_id, const uint32_t *stages, uint32_t n,
                               struct arena *arena, struct task_result *out, struct error *e)
{
    enum err err = store_results(of(store)->inner, job_id, stages, n, arena, out, e);
    for (uint32_t i = 0; i < n && err == ERR_OK && has(of(store), makes_empty_results_none); i++) {
        out[i].result.bytes = out[i].result.n_bytes == 0 ? NULL : out[i].result.bytes;
    }
    return err;
}

static enum err broken_task_results(struct store *store, const char *job_id, int64_t after_stage, uint32_t limit,
                                    struct arena *arena, const struct task_result **out, uint32_t *out_n,
                                    struct error *e)
{
    int64_t from = after_stage + (has(of(store), skips_a_result) && after_stage >= 0 ? 1 : 0);
    return store_task_results(of(store)->inner, job_id, from, limit, arena, out, out_n, e);
}

static enum err broken_known_jobs(struct store *store, const char *const *job_ids, uint32_t n, bool *out_known,
                                  struct error *e)
{
    enum err err = store_known_jobs(of(store)->inner, job_ids, n, out_known, e);
    for (uint32_t i = 1; i < n && err == ERR_OK && has(of(store), knows_a_job_once); i++) {
        out_known[i] = out_known[i] && strcmp(job_ids[i], job_ids[i - 1]) != 0;
    }
    return err;
}

static enum err broken_listen(struct store *store, struct error *e)
{
    return store_listen(of(store)->inner, e);
}

static enum err broken_wait(struct store *store, int64_t timeout_ms, bool *out_woken, struct error *e)
{
    return store_wait(of(store)->inner, timeout_ms, out_woken, e);
}

static void broken_interrupt(struct store *store)
{
    store_interrupt(of(store)->inner);
}

/* ---- the rest ---- */

static enum err broken_summarize(struct store *store, struct store_summary *out, struct error *e)
{
    return store_summarize(of(store)->inner, out, e);
}

static void broken_close(struct store *store)
{
    store_close(of(store)->inner);
    mem_free(of(store));
}

static enum err broken_schema(struct store *store, struct migration_status *out, struct error *e)
{
    return store_schema(of(store)->inner, out, e);
}

static enum err broken_migrate(struct store *store, uint32_t version, struct error *e)
{
    return has(of(store), never_goes_down) && version == 0 ? ERR_OK : store_migrate(of(store)->inner, version, e);
}

static enum err broken_lead(struct store *store, const struct leader_claim *claim, struct arena *arena,
                            struct leader *out, struct error *e)
{
    struct broken *b = of(store);
    enum err err = store_lead(b->inner, claim, arena, out, e);
    if (err == ERR_BUSY && has(b, takes_the_leadership_by_force)) {
        struct fence old = out->fence;
        err = store_resign(b->inner, &old, e);
        err = err == ERR_OK ? store_lead(b->inner, claim, arena, out, e) : err;
    }
    if (err == ERR_OK && has(b, starts_epochs_anew)) {
        out->fence.epoch = 1;
    }
    return err;
}

static enum err broken_renew(struct store *store, const struct fence *fence, int64_t ttl_ms, int64_t *out_now_ms,
                             struct error *e)
{
    return store_renew(of(store)->inner, fence, ttl_ms, out_now_ms, e);
}

static enum err broken_resign(struct store *store, const struct fence *fence, struct error *e)
{
    return store_resign(of(store)->inner, fence, e);
}

static enum err broken_leader(struct store *store, struct arena *arena, struct leader *out, struct error *e)
{
    return store_leader(of(store)->inner, arena, out, e);
}

static const struct engine broken_engine = {
    .close = broken_close,
    .schema = broken_schema,
    .migrate = broken_migrate,
    .lead = broken_lead,
    .renew = broken_renew,
    .resign = broken_resign,
    .leader = broken_leader,
    .commit = broken_commit,
    .load = broken_load,
    .load_job = broken_load_job,
    .find_key = broken_find_key,
    .payload = broken_payload,
    .payloads = broken_payloads,
    .results = broken_results,
    .known_jobs = broken_known_jobs,
    .data_sets = broken_data_sets,
    .inbox = broken_inbox,
    .listen = broken_listen,
    .wait = broken_wait,
    .interrupt = broken_interrupt,
    .jobs = broken_jobs,
    .tasks = broken_tasks,
    .task_results = broken_task_results,
    .events = broken_events,
    .prune = broken_prune,
    .summarize = broken_summarize,
};

struct store *broken_wrap(struct store *store)
{
    const char *fault = getenv("CAPSTAN_BROKEN_STORE");
    if (fault == NULL) {
        return store;
    }
    struct broken *broken = mem_calloc(1, sizeof *broken);
    *broken = (struct broken){{&broken_engine}, store, fault};
    return &broken->store;
}
