/*
 * memory_internal.h - the store in memory: what its files share.
 *
 * memory.c has the databases, their schema and their leader; memory_write.c applies batches and prunes; memory_read.c
 * reads, memory_lookup.c several things at once.
 */
#ifndef CAPSTAN_STORE_MEMORY_INTERNAL_H
#define CAPSTAN_STORE_MEMORY_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "store/engine.h"
#include "store/memory_table.h"

#define MEMORY_COLUMNS_MAX 32

/* Tables of rows are found by the kind of row; three more are not described by table.h. */
enum { TABLE_PAYLOADS = ROW_META + 1, TABLE_DATA_SETS, TABLE_INBOX, TABLE_COUNT };

struct database {
    struct database *next;
    char *name;
    uint32_t n_open;
    uint32_t schema;
    bool has_clock;
    int64_t now_ms;
    bool has_leader;
    struct fence fence; /* the epoch stays when the leader goes */
    char *node_id;
    char *address;
    int64_t expires_at_ms;
    int64_t last_inbox_id;
    struct memory_table tables[TABLE_COUNT];
};

/*
 * Takes the one lock of all databases: batches are whole and pictures consistent because nobody else is there. Fails,
 * and does not take it, if the schema is not the newest.
 */
MUST_USE enum err memory__enter(struct store *store, struct database **out_db, struct error *e);
/* Gives the lock back and passes the result on. */
enum err memory__leave(enum err err);

bool memory__fence_holds(const struct database *db, const struct fence *fence);
enum err memory__fenced(struct error *e);

struct memory_limits;
void memory__trim(struct database *db, const struct memory_limits *limits); /* the lock is held */

uint32_t memory__column(enum row_kind kind, const char *name);
int64_t memory__number(const struct record *record, enum row_kind kind, const char *column);
bool memory__job_is_open(const struct record *job);

struct value memory__int(int64_t number);
struct value memory__text(const char *text);
struct value memory__bytes(const void *bytes, size_t n);
bool memory__text_is(const struct value *value, const char *text);

/* As engine.h has them. */
enum err memory__commit(struct store *store, const struct fence *fence, const struct batch *batch, struct error *e);
enum err memory__prune(struct store *store, const struct fence *fence, int64_t before_ms, uint32_t limit,
                       bool *out_more, struct error *e);
enum err memory__load(struct store *store, store_row_fn *fn, void *context, struct error *e);
enum err memory__load_job(struct store *store, const char *job_id, store_row_fn *fn, void *context, struct error *e);
enum err memory__find_key(struct store *store, const char *idempotency_key, int64_t not_before_ms, struct arena *arena,
                          const char **out_job_id, struct error *e);
enum err memory__payload(struct store *store, const char *job_id, const struct digest *digest, struct arena *arena,
                         const void **out_bytes, size_t *out_n, struct error *e);
enum err memory__data_sets(struct store *store, struct arena *arena, const struct data_set **out, uint32_t *out_n,
                           struct error *e);
enum err memory__inbox(struct store *store, const struct inbox_query *query, struct arena *arena,
                       const struct inbox_entry **out, uint32_t *out_n, struct error *e);
enum err memory__jobs(struct store *store, const struct job_query *query, struct arena *arena, struct page *out,
                      struct error *e);
enum err memory__tasks(struct store *store, const struct task_query *query, struct arena *arena, struct page *out,
                       struct error *e);
enum err memory__events(struct store *store, const struct event_query *query, struct arena *arena, struct page *out,
                        uint64_t *out_pruned_seq, struct error *e);

enum err memory__payloads(struct store *store, const char *job_id, const struct digest *digests, uint32_t n,
                          struct arena *arena, struct found_bytes *out, struct error *e);
enum err memory__results(struct store *store, const char *job_id, const uint32_t *stages, uint32_t n,
                         struct arena *arena, struct task_result *out, struct error *e);
enum err memory__task_results(struct store *store, const char *job_id, int64_t after_stage, uint32_t limit,
                              struct arena *arena, const struct task_result **out, uint32_t *out_n, struct error *e);
enum err memory__known_jobs(struct store *store, const char *const *job_ids, uint32_t n, bool *out_known,
                            struct error *e);
enum err memory__summarize(struct store *store, struct store_summary *out, struct error *e);

/* The name of a task's stage, copied; NULL if it has none. */
const char *memory__stage_name(const struct database *db, const struct record *task, struct arena *arena);

#endif
