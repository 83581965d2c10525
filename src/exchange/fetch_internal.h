/*
 * fetch_internal.h - what the files of the fetch client share.
 *
 * Ownership and threads: said at each function.
 */
#ifndef CAPSTAN_EXCHANGE_FETCH_INTERNAL_H
#define CAPSTAN_EXCHANGE_FETCH_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "exchange/fetch.h"

/* An array that waits to be handed out. */
struct fetch__item {
    struct list link;
    struct ArrowArray array;
    uint64_t bytes;
};

struct fetch__source {
    struct exchange_source is;
    char *address;
    struct list ready; /* ordered: its items; under the lock */
    bool is_done;      /* under the lock: all of it is ready or has been handed out */
};

/* What reading one source on this worker needs; only the consumer touches it. */
struct fetch__local {
    struct exchange_reader *reader; /* NULL: none is being read */
    struct ipc_reader *ipc;
    struct ipc_assembler assembler;
    uint8_t *chunk;
    size_t n_chunk;
    size_t taken;
};

struct exchange_fetch {
    struct exchange_fetch_options options;
    struct fetch__source *sources; /* those worth reading */
    uint32_t n_sources;
    atomic_uint refs;
    pthread_t *threads;
    uint32_t n_threads;
    struct rpc_cancel *cancel;
    struct fetch__local local;
    char last_error[4200];

    pthread_mutex_t lock; /* for all below */
    pthread_cond_t changed;
    uint32_t next_remote; /* the first source that no thread has taken */
    uint32_t current;     /* ordered: the source whose rows are being handed out */
    uint32_t next_local;  /* unordered: no local source before this one is open */
    uint32_t n_done;      /* sources */
    struct list ready;    /* unordered: the items of all */
    struct ArrowSchema schema;
    bool has_failed;
    struct error failure;
    struct exchange_key *failed;
    uint32_t n_failed;
    struct exchange_fetch_counts counts;
};

/* ---- fetch.c ---- */

/*
 * Notes why it cannot go on, and ends everything else. Only the first reason counts. `source` is NULL if it is none's
 * fault. Not under the lock.
 */
void fetch__fail(struct exchange_fetch *fetch, const struct fetch__source *source, const struct error *e);

/* The first schema becomes that of the stream; others must be equal. Not under the lock. */
MUST_USE enum err fetch__check_schema(struct exchange_fetch *fetch, const struct ArrowSchema *schema, struct error *e);

/* Whether a source that has ended is what was registered. */
MUST_USE enum err fetch__check_end(const struct fetch__source *source, const struct ipc_reader *ipc, struct error *e);

/* Whatever is wrong with a message, to a reader it means that the map output is lost: a flipped bit can look as anything. */
MUST_USE enum err fetch__damaged(enum err err, struct error *e);

/* Where a source's items wait. */
struct list *fetch__ready(struct exchange_fetch *fetch, struct fetch__source *source);

/* ---- fetch_remote.c ---- */

/* What a thread does: reads one source after the other. */
void *fetch__run(void *fetch);

/* ---- fetch_local.c ---- */

/*
 * The next rows of a source on this worker. At its end, `out->release` is NULL and everything is closed. With
 * `schema_only`, stops when the schema is known.
 */
MUST_USE enum err fetch__local_next(struct exchange_fetch *fetch, const struct fetch__source *source, bool schema_only,
                                    struct ArrowArray *out, struct error *e);
void fetch__local_close(struct fetch__local *local);

#endif
