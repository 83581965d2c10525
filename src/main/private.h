/*
 * private.h - a cluster of one's own for a moment: `capstan up` in a temporary folder on a free port, for demo and bench.
 *
 * It knows nothing of the caller's environment and settings files, and ends with the caller, however that ends.
 *
 * Ownership: texts live in the arena that private_start was given. Threads: the main thread, before it makes others: the
 * child is tied to the thread that started it.
 */
#ifndef CAPSTAN_MAIN_PRIVATE_H
#define CAPSTAN_MAIN_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "main/certificate.h"
#include "main/member.h"

struct private_options {
    uint32_t workers;
    uint32_t slots;
    const char *store;               /* NULL: SQLite in the folder */
    bool has_tls;                    /* with a certificate that is made for it */
    bool is_open;                    /* it asks for no token */
    bool has_metrics;                /* its workers serve theirs */
    const char *shuffle_compression; /* NULL: as `up` has it */
    const char *const *settings;
    uint32_t n_settings;
};

struct private_cluster {
    struct member up;
    const char *folder;
    const char *store;
    const char *address;  /* NULL: it is not ready */
    const char **metrics; /* HOST:PORT where each of its workers serves them, on request */
    uint32_t n_metrics;
    int64_t metrics_read;   /* so much of its log has been searched for them */
    const char *token;      /* which it asks for: other users of the machine have no business there; NULL: none */
    const char *token_file; /* the same in a file */
    struct certificate certificate; /* of a cluster with TLS; else all NULL */
};

/*
 * Starts it and waits until it is ready. If it is not, the error has the end of its log. private_stop must be called in
 * any case.
 */
MUST_USE enum err private_start(struct arena *arena, const struct private_options *options, struct private_cluster *out,
                                struct error *e);

/* Makes Parquet files known to it under a name, which `source`, a path or glob, is from then on in SQL. */
MUST_USE enum err private_put_table(const struct private_cluster *cluster, const char *name, const char *source,
                                    struct error *e);

/*
 * Reads on in its log, from where the last call stopped, and adds what whole lines there say of addresses at which its workers
 * serve metrics, to `cluster->metrics`. Returns how many there are now: `max` at most.
 */
uint32_t private_read_metrics(struct arena *arena, struct private_cluster *cluster, uint32_t max);

/* Ends all its processes; the folder stays. */
void private_stop(struct private_cluster *cluster);

/* Removes the folder. */
void private_remove(struct private_cluster *cluster);

/* The environment without what belongs to Capstan, in the arena. */
char *const *private_environment(struct arena *arena);

#endif
