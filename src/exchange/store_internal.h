/*
 * store_internal.h - what the files of the store share: its table, outputs, pieces, and their way to disk.
 *
 * Ownership and threads: said at each function; those without a word own nothing and may be called from any thread.
 */
#ifndef CAPSTAN_EXCHANGE_STORE_INTERNAL_H
#define CAPSTAN_EXCHANGE_STORE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/map.h"
#include "base/siphash.h"
#include "exchange/store.h"

/* A message of a partition: in memory, or in the output's file. */
struct store__piece {
    struct block *block; /* NULL: it is in the file */
    uint64_t at;         /* there */
    uint64_t start;      /* in the partition */
    uint64_t n;
    bool is_shared;
};

struct store__partition {
    struct store__piece *pieces;
    uint32_t n;
    uint32_t cap;
    uint64_t bytes;
};

/* A job whose end is waited for: it is in the store's table as long as any output of it is here that goes with that end. */
struct store__job {
    char id[LIMIT_ID_BYTES + 1];
    struct list link;    /* in the store's jobs, oldest first */
    struct list outputs; /* oldest first */
    uint32_t n_maps;     /* of these */
};

struct exchange_output {
    struct exchange_store *store;
    struct exchange_key key;
    enum exchange_kind kind;
    uint32_t n_partitions;
    uint64_t number;        /* later outputs have larger ones; set under the store's lock before it can be found */
    struct list link;       /* in one of the store's lists; under the store's lock, as the next two */
    struct store__job *job; /* NULL: nothing is waited for, or it is not in the table */
    struct list in_job;
    atomic_uint refs; /* the table's, the writer's, each reader's, a spiller's */
    _Atomic uint64_t memory_bytes;
    int64_t finished_wall_ms;  /* of a result; set before it can be found */
    uint64_t inline_bytes_max; /* of a result: more goes to its file */

    pthread_mutex_t lock; /* for all below */
    pthread_cond_t quiet; /* nobody is spilling */
    struct store__partition *partitions;
    uint64_t file_bytes;
    bool has_file;
    bool is_spilling;
    bool is_finished;
    bool is_dropped; /* no more to be found; its file is removed by whoever sees that last */
};

struct exchange_store {
    char *shuffle_folder;
    char *result_folder;
    _Atomic uint64_t memory_bytes_max;
    struct siphash_key hash_key;
    _Atomic uint64_t memory_bytes;
    _Atomic uint64_t file_bytes;
    _Atomic uint64_t work_us[EXCHANGE_WORKS];

    pthread_mutex_t lock; /* for all below */
    struct map outputs;
    struct list list;    /* of those whose job may go on, oldest first */
    struct list settled; /* results whose job has ended well: only their age is looked at */
    struct map jobs;     /* of those in `list` */
    struct list in_jobs;
    uint32_t n_mapped_jobs; /* those with map outputs */
    uint64_t last_number;
};

/* ---- store.c ---- */

struct exchange_output *store__output_ref(struct exchange_output *output);
void store__output_unref(struct exchange_output *output); /* NULL ok */

/* The output with that key, with a reference for the caller; NULL: there is none. */
struct exchange_output *store__find(struct exchange_store *store, const struct exchange_key *key);

/* Takes it out of the table, frees its memory and removes its file. It may be gone already. */
void store__drop(struct exchange_output *output);

/* Puts an output into the table, which holds a reference from then on. ERR_EXISTS if its key is taken. */
MUST_USE enum err store__add(struct exchange_store *store, struct exchange_output *output, struct error *e);
struct exchange_output *store__output_new(struct exchange_store *store, const struct exchange_key *key,
                                          enum exchange_kind kind, uint32_t n_partitions);

/* ---- spill.c ---- */

/* While more than the budget is in memory, writes outputs to files. ERR_EXHAUSTED if the disk is full. */
MUST_USE enum err store__make_room(struct exchange_store *store, struct error *e);

/* Writes what an output has in memory to its file; shared pieces too, if it is a result. */
MUST_USE enum err store__spill(struct exchange_output *output, struct error *e);

/* ---- files.c ---- */

/* The path of an output's file. The caller frees it. */
char *store__path(const struct exchange_output *output, bool is_part);

/* Removes the shuffle files, and puts the results that are there into the table. */
MUST_USE enum err store__scan(struct exchange_store *store, struct error *e);

#endif
