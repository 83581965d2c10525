/*
 * sqlite_internal.h - the store on SQLite: what its files share.
 *
 * sqlite.c opens and closes; sqlite_statement.c holds all SQL but that of the migrations, prepared when it is first
 * needed; sqlite_bulk.c runs statements over many rows; sqlite_schema.c, sqlite_leader.c, sqlite_commit.c, sqlite_read.c, sqlite_lookup.c, sqlite_prune.c and
 * sqlite_copy.c are one part of store.h each. Functions that return `enum err` leave no statement running and no transaction open unless they say so.
 */
#ifndef CAPSTAN_STORE_SQLITE_INTERNAL_H
#define CAPSTAN_STORE_SQLITE_INTERNAL_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "store/codec.h"
#include "store/engine.h"
#include "store/net.h"
#include "store/table.h"
#include "store/wake.h"

enum sqlite_statement {
    SQL_BEGIN_READ,
    SQL_BEGIN_WRITE,
    SQL_COMMIT,
    SQL_ROLLBACK,
    SQL_LEADER,
    SQL_LEADER_FENCE,
    SQL_LEADER_TAKE,
    SQL_LEADER_RENEW,
    SQL_LEADER_RESIGN,
    SQL_SWEEP_TASKS,
    SQL_SWEEP_LEASES,
    SQL_SWEEP_MAP_OUTPUTS,
    SQL_SWEEP_ATTEMPTS,
    SQL_LEASE_GONE,
    SQL_PAYLOAD_PUT,
    SQL_DATA_SET_PUT,
    SQL_DATA_SET_GONE,
    SQL_INBOX_DONE,
    SQL_LOAD_JOBS, /* the six of a load, in the order of core/rows.h */
    SQL_LOAD_STAGES,
    SQL_LOAD_TASKS,
    SQL_LOAD_LEASES,
    SQL_LOAD_MAP_OUTPUTS,
    SQL_LOAD_RESULTS,
    SQL_LOAD_NODES,
    SQL_LAST_EVENT,
    SQL_JOB, /* the same for one job */
    SQL_JOB_STAGES,
    SQL_JOB_TASKS,
    SQL_JOB_LEASES,
    SQL_JOB_MAP_OUTPUTS,
    SQL_JOB_RESULTS,
    SQL_FIND_KEY,
    SQL_PAYLOAD,
    SQL_DATA_SETS,
    SQL_INBOX,
    SQL_PAGE_JOBS, /* four in a row: + 1 with a state, + 2 with a name */
    SQL_PAGE_JOBS_OF_STATE,
    SQL_PAGE_JOBS_OF_NAME,
    SQL_PAGE_JOBS_OF_BOTH,
    SQL_PAGE_TASKS, /* + 1 with a state */
    SQL_PAGE_TASKS_OF_STATE,
    SQL_PAGE_EVENTS, /* + 1 of a job */
    SQL_PAGE_EVENTS_OF_JOB,
    SQL_FIRST_EVENT,
    SQL_PRUNE_FIND_EVENTS,
    SQL_PRUNE_EVENTS,
    SQL_PRUNE_FIND_JOBS,
    SQL_PRUNE_HIDE,
    SQL_PRUNE_PAYLOADS, /* seven in a row: all that belongs to a job */
    SQL_PRUNE_ATTEMPTS,
    SQL_PRUNE_RESULTS,
    SQL_PRUNE_MAP_OUTPUTS,
    SQL_PRUNE_LEASES,
    SQL_PRUNE_TASKS,
    SQL_PRUNE_STAGES,
    SQL_PRUNE_JOB,
    SQL_KNOWN_JOB,
    SQL_TASK_RESULT,
    SQL_TASK_RESULTS,
    SQL_SUMMARY,
    SQL_EPOCH,
    SQL_COUNT
};

/* What a batch does to rows of a table, in this order. New rows are inserted by one of two statements. */
enum sqlite_deed { ROWS_GONE, ROWS_NEW, ROWS_CHANGED, ROWS_NEW_OR_NOT, SQLITE_DEEDS };

/* More than any table has. */
#define SQLITE_BULK_COLUMNS 26

/* Column `column` of an item. Texts and bytes must stay where they are until the statement has run. */
typedef struct value sqlite_value_fn(const void *item, uint32_t column, const struct table *table, struct arena *arena);

/* What the virtual table `bulk` shows. */
struct sqlite_bulk {
    const void *const *items;
    uint32_t n;
    sqlite_value_fn *value;
    const struct table *table; /* for the function, and for messages; NULL: none */
};

struct sqlite_list {
    const void **items;
    uint32_t n;
    uint32_t cap;
};

struct sqlite {
    struct store store;
    sqlite3 *db;
    struct wake wake;
    struct spec_memo memo;
    bool is_listening;
    int lock_fd;                          /* of the lock file while this store leads; -1 */
    uint64_t epoch;                       /* in which it leads */
    bool is_current;                      /* the schema has been seen to be what this program knows */
    struct arena arena;                   /* of the batch at hand */
    struct net net;                       /* that batch */
    const struct table *tables[ROW_META]; /* NULL: the kind has none */
    struct sqlite_list lists[ROW_META][SQLITE_DEEDS];
    struct sqlite_list list; /* of anything else */
    struct sqlite_bulk bulk; /* of the statement that runs */
    sqlite3_stmt *row_statements[ROW_META][SQLITE_DEEDS];
    sqlite3_stmt *statements[SQL_COUNT];
};

/* ---- sqlite.c ---- */

struct sqlite *sqlite__of(struct store *store);

/*
 * What a result code of SQLite means: ERR_INVALID if it refuses a value, ERR_DATA_LOSS if the file is damaged, else
 * ERR_UNAVAILABLE. The message is SQLite's.
 */
MUST_USE enum err sqlite__error(struct sqlite *s, int rc, struct error *e);

/* Milliseconds since 1970 by the system's clock, which is this database's. */
int64_t sqlite__now_ms(void);

/* A transaction: of reads, which sees one state; or of writes, one at a time over all processes. */
MUST_USE enum err sqlite__begin_read(struct sqlite *s, struct error *e);
MUST_USE enum err sqlite__begin_write(struct sqlite *s, struct error *e);
MUST_USE enum err sqlite__commit(struct sqlite *s, struct error *e); /* rolls back if it fails */
void sqlite__rollback(struct sqlite *s);                             /* also if there is nothing to roll back */

/* Commits if `err` is ERR_OK, else rolls back and returns it. */
MUST_USE enum err sqlite__finish(struct sqlite *s, enum err err, struct error *e);

/* ---- sqlite_vfs.c ---- */

/* Opens the file, which is made if it is not there, with a log that is written in large pieces. As sqlite3_open_v2. */
MUST_USE int sqlite__open_file(const char *path, sqlite3 **out);

/* ---- sqlite_statement.c ---- */

/* The statement, reset, prepared if this is its first use. */
MUST_USE enum err sqlite__statement(struct sqlite *s, enum sqlite_statement which, sqlite3_stmt **out, struct error *e);

/* The statement that does this to all rows of `bulk`, which are rows of the table; ROWS_CHANGED: to one, as parameters. */
MUST_USE enum err sqlite__row_statement(struct sqlite *s, const struct table *table, enum sqlite_deed deed,
                                        sqlite3_stmt **out, struct error *e);

void sqlite__finalize_all(struct sqlite *s);

/* Runs a statement that returns no rows, and resets it. */
MUST_USE enum err sqlite__run(struct sqlite *s, sqlite3_stmt *stmt, struct error *e);

/* Steps: ERR_OK and a row, or ERR_OK and no row (`out_row` false) and the statement reset. */
MUST_USE enum err sqlite__next(struct sqlite *s, sqlite3_stmt *stmt, bool *out_row, struct error *e);

/* Binding cannot fail but for what a value is too long for, which the step then meets as a NULL where none may be. */
void sqlite__bind_text(sqlite3_stmt *stmt, int at, const char *text);
void sqlite__bind_bytes(sqlite3_stmt *stmt, int at, const void *bytes, size_t n);
void sqlite__bind_token(sqlite3_stmt *stmt, int at, const struct lease_token *token);

/* Copies of a column of the current row. NULL for NULL. */
const char *sqlite__text(sqlite3_stmt *stmt, int at, struct arena *arena);
const void *sqlite__bytes(sqlite3_stmt *stmt, int at, struct arena *arena, size_t *out_n);

/* ---- sqlite_bulk.c ---- */

/* Makes `bulk` known to the connection. A result code of SQLite. */
MUST_USE int sqlite__bulk_init(struct sqlite *s);

/* Runs a statement that reads `bulk`. */
MUST_USE enum err sqlite__bulk_run(struct sqlite *s, const struct sqlite_bulk *bulk, sqlite3_stmt *stmt,
                                   struct error *e);

/* ---- sqlite_read.c ---- */

/* A column of the current row, where it lies. */
struct value sqlite__value(sqlite3_stmt *stmt, int at);

/* The statement, once the schema is known to be there. */
MUST_USE enum err sqlite__open_read(struct sqlite *s, enum sqlite_statement which, sqlite3_stmt **out, struct error *e);

/* Makes room for item `n` of an array in the arena, which doubles as it grows. Returns the array. */
void *sqlite__append(struct arena *arena, void *items, uint32_t n, size_t size);

/* ---- sqlite_schema.c ---- */

MUST_USE enum err sqlite__schema(struct store *store, struct migration_status *out, struct error *e);
MUST_USE enum err sqlite__migrate(struct store *store, uint32_t version, struct error *e);

/* ERR_PRECONDITION unless the schema is the one that this program knows. Looks once. */
MUST_USE enum err sqlite__need_schema(struct sqlite *s, struct error *e);

/* ---- sqlite_leader.c ---- */

MUST_USE enum err sqlite__lead(struct store *store, const struct leader_claim *claim, struct arena *arena,
                               struct leader *out, struct error *e);
MUST_USE enum err sqlite__renew(struct store *store, const struct fence *fence, int64_t ttl_ms, int64_t *out_now_ms,
                                struct error *e);
MUST_USE enum err sqlite__resign(struct store *store, const struct fence *fence, struct error *e);
MUST_USE enum err sqlite__leader(struct store *store, struct arena *arena, struct leader *out, struct error *e);

/* Begins a write transaction if `fence` is the leader's. ERR_FENCED if not. */
MUST_USE enum err sqlite__begin_fenced(struct sqlite *s, const struct fence *fence, struct error *e);

/* Takes the lock file; ERR_BUSY if another store has it. `out_taken` false: it was this store's already. */
MUST_USE enum err sqlite__lock(struct sqlite *s, bool *out_taken, struct error *e);
/* Lets go of the lock file, if this store holds it. */
void sqlite__unlock(struct sqlite *s);

/* ---- sqlite_commit.c, sqlite_read.c, sqlite_lookup.c, sqlite_copy.c, sqlite_prune.c ---- */

/* What commits keep from one to the next. */
void sqlite__free_lists(struct sqlite *s);
MUST_USE enum err sqlite__commit_batch(struct store *store, const struct fence *fence, const struct batch *batch,
                                       struct error *e);

MUST_USE enum err sqlite__load(struct store *store, store_row_fn *fn, void *context, struct error *e);
MUST_USE enum err sqlite__load_job(struct store *store, const char *job_id, store_row_fn *fn, void *context,
                                   struct error *e);
MUST_USE enum err sqlite__find_key(struct store *store, const char *idempotency_key, int64_t not_before_ms,
                                   struct arena *arena, const char **out_job_id, struct error *e);
MUST_USE enum err sqlite__payload(struct store *store, const char *job_id, const struct digest *digest,
                                  struct arena *arena, const void **out_bytes, size_t *out_n, struct error *e);
MUST_USE enum err sqlite__data_sets(struct store *store, struct arena *arena, const struct data_set **out,
                                    uint32_t *out_n, struct error *e);
MUST_USE enum err sqlite__inbox(struct store *store, const struct inbox_query *query, struct arena *arena,
                                const struct inbox_entry **out, uint32_t *out_n, struct error *e);
MUST_USE enum err sqlite__payloads(struct store *store, const char *job_id, const struct digest *digests, uint32_t n,
                                   struct arena *arena, struct found_bytes *out, struct error *e);
MUST_USE enum err sqlite__results(struct store *store, const char *job_id, const uint32_t *stages, uint32_t n,
                                  struct arena *arena, struct task_result *out, struct error *e);
MUST_USE enum err sqlite__task_results(struct store *store, const char *job_id, int64_t after_stage, uint32_t limit,
                                       struct arena *arena, const struct task_result **out, uint32_t *out_n,
                                       struct error *e);
MUST_USE enum err sqlite__known_jobs(struct store *store, const char *const *job_ids, uint32_t n, bool *out_known,
                                     struct error *e);
MUST_USE enum err sqlite__listen(struct store *store, struct error *e);
MUST_USE enum err sqlite__wait(struct store *store, int64_t timeout_ms, bool *out_woken, struct error *e);
void sqlite__interrupt(struct store *store);
MUST_USE enum err sqlite__summarize(struct store *store, struct store_summary *out, struct error *e);
extern const struct copy_source sqlite__copy_source;

MUST_USE enum err sqlite__jobs(struct store *store, const struct job_query *query, struct arena *arena,
                               struct page *out, struct error *e);
MUST_USE enum err sqlite__tasks(struct store *store, const struct task_query *query, struct arena *arena,
                                struct page *out, struct error *e);
MUST_USE enum err sqlite__events(struct store *store, const struct event_query *query, struct arena *arena,
                                 struct page *out, uint64_t *out_pruned_seq, struct error *e);

/* Removes all that is left of a job, inside a transaction. */
MUST_USE enum err sqlite__remove_job(struct sqlite *s, const char *job_id, struct error *e);

MUST_USE enum err sqlite__prune(struct store *store, const struct fence *fence, int64_t before_ms, uint32_t limit,
                                bool *out_more, struct error *e);

#endif
