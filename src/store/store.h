/*
 * store.h - the durable state behind the scheduler, whatever engine keeps it.
 *
 * A store is one connection to a database that holds the tables of the scheduler: `sqlite:PATH` on one machine,
 * `postgres://...` for a cluster, `memory:` for tests. The leader's store thread commits batches; history reads use
 * stores of their own, so that they never hold up a commit.
 *
 * A batch is committed whole or not at all, in one transaction that first checks the fence: the epoch and token of the
 * leader that made it. The answers of store_commit are all that a leader may act on:
 *   ERR_OK           everything in the batch is durable
 *   ERR_FENCED       another leader has taken over; nothing was written, and nothing ever will be under this fence
 *   ERR_UNAVAILABLE  the database did not say; the batch may or may not be durable. The leader drops its memory
 *   ERR_INVALID      the database refuses the content of a row; nothing was written
 *
 * Times are milliseconds since 1970. Where leadership is concerned they are the database's, never this machine's.
 *
 * Ownership: store_open's caller owns the store. Rows handed to callbacks live until the callback returns; pages live in
 * the caller's arena. Threads: one at a time per store, but for store_interrupt.
 */
#ifndef CAPSTAN_STORE_STORE_H
#define CAPSTAN_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "core/ids.h"
#include "core/rows.h"

struct store;

/*
 * Opens `sqlite:PATH`, `postgres://...` (or postgresql://...) or `memory:NAME`. Does not touch the schema. ERR_INVALID
 * for a URL that is none of these, ERR_UNAVAILABLE if the database cannot be reached.
 */
MUST_USE enum err store_open(const char *url, struct store **out_store, struct error *e);
void store_close(struct store *store); /* NULL ok */

/* The URL for people and logs: without a password. In the arena. */
const char *store_url_text(const char *url, struct arena *arena);

/* ---- schema ---- */

struct migration_status {
    uint32_t current; /* version of the schema in the database; 0: empty */
    uint32_t newest;  /* that this program knows */
    bool is_too_new;  /* the database is ahead of this program: nothing but the status works */
};

MUST_USE enum err store_schema(struct store *store, struct migration_status *out, struct error *e);

/*
 * Brings the schema to `version` (STORE_NEWEST: the newest), one numbered step per transaction, under a lock that keeps
 * out everybody else who tries. ERR_PRECONDITION if the database is newer than this program.
 */
#define STORE_NEWEST UINT32_MAX
MUST_USE enum err store_migrate(struct store *store, uint32_t version, struct error *e);

/* ---- leadership ---- */

struct fence {
    uint64_t epoch;
    struct lease_token token;
};

struct leader {
    struct fence fence;
    const char *node_id; /* in the caller's arena */
    const char *address;
    int64_t expires_in_ms; /* from the moment of the answer, by the database's clock; not above 0: it has run out */
    int64_t now_ms;        /* the database's clock */
};

struct leader_claim {
    const char *node_id;
    const char *address;
    int64_t ttl_ms;
    struct lease_token token; /* unpredictable; becomes the fence's */
};

/*
 * Takes the leadership if nobody has it or its time has run out; the epoch grows by one. ERR_BUSY with the present leader
 * in `out` if somebody has it, also if that is this store itself. On SQLite the lock file of the process is the election: a second process gets ERR_BUSY.
 */
MUST_USE enum err store_lead(struct store *store, const struct leader_claim *claim, struct arena *arena,
                             struct leader *out, struct error *e);
/* Another `ttl_ms` from now, by the database's clock. ERR_FENCED if it was lost. */
MUST_USE enum err store_renew(struct store *store, const struct fence *fence, int64_t ttl_ms, int64_t *out_now_ms,
                              struct error *e);
/* Hands it back, so that the next can take it at once. Not an error if it was lost. */
MUST_USE enum err store_resign(struct store *store, const struct fence *fence, struct error *e);
/* Who leads. ERR_NOT_FOUND if nobody ever did or the last one resigned. */
MUST_USE enum err store_leader(struct store *store, struct arena *arena, struct leader *out, struct error *e);

/* ---- writing ---- */

/* Bytes that belong to a job, under their digest: inputs, fragments, results. */
struct payload {
    const char *job_id;
    struct digest digest;
    const void *bytes;
    size_t n_bytes;
};

/* A named data set. `source` NULL removes it. */
struct data_set {
    const char *name;
    const char *source;
    const char *format;
};

/*
 * A row that is new under a key that exists changes what may change and leaves the rest, so that a batch can be applied
 * twice. The exception is a job whose removal has begun (store_prune): it is gone, and its id is free.
 */
struct batch {
    const struct row *const *rows; /* heads of lists of rows, in order */
    uint32_t n_rows;               /* lists, not rows */
    const struct payload *payloads;
    uint32_t n_payloads;
    const struct data_set *data_sets;
    uint32_t n_data_sets;
    const uint64_t *inbox_done; /* ids of inbox entries that became jobs in this batch */
    uint32_t n_inbox_done;
};

MUST_USE enum err store_commit(struct store *store, const struct fence *fence, const struct batch *batch,
                               struct error *e);

/* ---- reading state ---- */

typedef void store_row_fn(void *context, const struct row *row);

/* All that a new leader must know, in the order that core/rows.h asks for, as one consistent picture. */
MUST_USE enum err store_load(struct store *store, store_row_fn *fn, void *context, struct error *e);
/* The same for one job, ended or not. ERR_NOT_FOUND if there is none. */
MUST_USE enum err store_load_job(struct store *store, const char *job_id, store_row_fn *fn, void *context,
                                 struct error *e);
/* The job with this idempotency key that is not older than `not_before_ms`; ERR_NOT_FOUND if there is none. */
MUST_USE enum err store_find_key(struct store *store, const char *idempotency_key, int64_t not_before_ms,
                                 struct arena *arena, const char **out_job_id, struct error *e);
MUST_USE enum err store_payload(struct store *store, const char *job_id, const struct digest *digest,
                                struct arena *arena, const void **out_bytes, size_t *out_n, struct error *e);

/* Bytes that were looked for; `bytes` is not NULL if they were found, even if there are none. */
struct found_bytes {
    const void *bytes;
    size_t n_bytes;
};

/* Several payloads of one job at once, in the order of the digests. Those that are not there are left without bytes. */
MUST_USE enum err store_payloads(struct store *store, const char *job_id, const struct digest *digests, uint32_t n,
                                 struct arena *arena, struct found_bytes *out, struct error *e);

/* The outcome of a task of a tree, which is the only one of its stage. */
struct task_result {
    uint32_t stage;
    const char *name; /* of the stage; NULL: it has none */
    enum task_state state;
    bool is_found;             /* there is such a task */
    struct found_bytes result; /* none: it has no result, or none that lies in the store */
};

/* For several stages of one job at once, in their order: what became of each one's first task. */
MUST_USE enum err store_results(struct store *store, const char *job_id, const uint32_t *stages, uint32_t n,
                                struct arena *arena, struct task_result *out, struct error *e);

/* Which of these ids belong to a job, ended or not. */
MUST_USE enum err store_known_jobs(struct store *store, const char *const *job_ids, uint32_t n, bool *out_known,
                                   struct error *e);

MUST_USE enum err store_data_sets(struct store *store, struct arena *arena, const struct data_set **out,
                                  uint32_t *out_n, struct error *e);

struct inbox_entry {
    uint64_t id;
    const char *job_id;
    const void *tree; /* JSON */
    size_t n_bytes;
};

struct inbox_query {
    uint64_t after_id; /* 0: from the beginning */
    uint32_t limit;
};

/* The oldest entries. They stay until a batch names them as done; that batch is fenced, so each is done once. */
MUST_USE enum err store_inbox(struct store *store, const struct inbox_query *query, struct arena *arena,
                              const struct inbox_entry **out, uint32_t *out_n, struct error *e);

/*
 * Asks to be woken when something is left in the inbox. PostgreSQL notifies; with the other engines nothing ever wakes, and
 * store_wait is a plain wait. A store that listens should do nothing else.
 */
MUST_USE enum err store_listen(struct store *store, struct error *e);
/*
 * Waits until something was left in the inbox since the last call (`*out_woken`), the time is over or store_interrupt is
 * called. A connection that was lost meanwhile is made anew and counts as a reason to look. ERR_UNAVAILABLE if that fails;
 * ERR_PRECONDITION without store_listen.
 */
MUST_USE enum err store_wait(struct store *store, int64_t timeout_ms, bool *out_woken, struct error *e);
/* Ends a store_wait that is under way, or else the next one. From any thread, while the store is open. */
void store_interrupt(struct store *store);

/* ---- history: pages by key, never by offset ---- */

struct job_query {
    int state;        /* enum job_state, or -1: any */
    const char *name; /* NULL: any */
    uint32_t limit;
    const char *after; /* `next` of the page before; NULL: from the newest on */
};

struct task_query {
    const char *job_id;
    int state; /* enum task_state, or -1: any */
    uint32_t limit;
    const char *after;
};

struct event_query {
    const char *job_id; /* NULL: all */
    uint64_t after_seq;
    uint32_t limit;
};

/* Rows of one kind: struct row_job, struct row_task or struct row_event. `next` NULL: there are no more. */
struct page {
    const struct row *const *rows;
    uint32_t n_rows;
    const char *next;
    const char *const *names; /* tasks: of their stages, one per row, NULL for none; else NULL */
};

MUST_USE enum err store_jobs(struct store *store, const struct job_query *query, struct arena *arena, struct page *out,
                             struct error *e);
MUST_USE enum err store_tasks(struct store *store, const struct task_query *query, struct arena *arena,
                              struct page *out, struct error *e);
/*
 * The results of a tree in the order of its tasks: of at most `limit` stages behind `after_stage` (-1: from the first on),
 * each one's first task. All bytes of a page are in memory at once, so `limit` is to be small. `*out_n` below `limit`:
 * there are no more.
 */
MUST_USE enum err store_task_results(struct store *store, const char *job_id, int64_t after_stage, uint32_t limit,
                                     struct arena *arena, const struct task_result **out, uint32_t *out_n,
                                     struct error *e);
/* Also says up to which number events have been pruned. */
MUST_USE enum err store_events(struct store *store, const struct event_query *query, struct arena *arena,
                               struct page *out, uint64_t *out_pruned_seq, struct error *e);

/* ---- upkeep ---- */

/*
 * Removes ended jobs, with all that belongs to them, and events that are older than `before_ms`: at most `limit` jobs and
 * `limit` events in one small transaction. Says whether there is more to do. A job that is too large for one such step
 * goes in several; from the first on nobody sees it.
 */
MUST_USE enum err store_prune(struct store *store, const struct fence *fence, int64_t before_ms, uint32_t limit,
                              bool *out_more, struct error *e);

/* What can be told at a glance, for people. Jobs are counted up to STORE_SUMMARY_MAX of each state. */
#define STORE_SUMMARY_MAX 100000
struct store_summary {
    uint64_t queued_jobs;
    uint64_t running_jobs;
    uint64_t nodes;
    uint64_t inbox;
    uint64_t last_event_seq;
    uint64_t bytes; /* that the database takes; 0: nobody knows */
};

MUST_USE enum err store_summarize(struct store *store, struct store_summary *out, struct error *e);

/* ---- copies ---- */

#define STORE_COPY_TABLES_MAX 16

/* What was copied, table by table. */
struct copy_report {
    struct {
        const char *table;
        uint64_t n_rows;
    } tables[STORE_COPY_TABLES_MAX];
    uint32_t n_tables;
    uint64_t epoch; /* that the next leader of the copy will go beyond */
};

/* Called now and then: so many rows of a table are on their way. */
typedef void store_progress_fn(void *context, const char *table, uint64_t n_rows);

/*
 * Copies a stopped embedded store, all of it, into an empty PostgreSQL database, whose schema it makes. Both stay open and
 * locked for the time it takes: no coordinator can lead either. All rows arrive in one transaction, and are counted on both
 * sides before it is committed: a copy that fails or is killed leaves the target as empty as it was. The source is left
 * unchanged.
 *
 * ERR_INVALID unless `from` is sqlite: and `to` is postgres://. ERR_BUSY if a coordinator uses `from` or leads in `to`.
 * ERR_PRECONDITION if either schema is not the one that this program knows (a `to` without any is migrated) or `to` is not
 * empty. ERR_DATA_LOSS if the numbers of rows differ in the end. `progress` may be NULL.
 */
MUST_USE enum err store_copy(struct store *from, struct store *to, store_progress_fn *progress, void *context,
                             struct copy_report *out, struct error *e);

#endif
