/*
 * fetch.h - the input of a task: partitions of many map outputs, as one stream of Arrow arrays.
 *
 * Several sources are read at the same time, each by a thread; what they hold together stays within a window. A broken
 * connection is resumed where it broke, a few times; then the stream fails and names the map outputs that could not be
 * read. Sources on this worker are read from the store, without network and, from memory, without a copy.
 *
 * No row is handed out that is not as it was written: every message has its checksum (ipc.h), which is checked before
 * its rows are seen. At the end of each source, bytes, rows, batches and checksum must be those that were registered; so
 * a stream that ends well is complete.
 *
 * The window counts messages from the moment memory is taken for them until their array is handed out. One message is
 * always let in, however large. Besides it, each thread has a chunk of at most 1 MiB.
 *
 * Ownership: counted; the opener holds one reference, a stream another. Arrays belong to the receiver.
 * Threads: next, schema and streams by one at a time; cancel, failures and counts by any.
 */
#ifndef CAPSTAN_EXCHANGE_FETCH_H
#define CAPSTAN_EXCHANGE_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "capstan/arrow.h"
#include "exchange/channels.h"
#include "exchange/store.h"

struct exchange_source {
    struct exchange_key key;
    uint32_t partition;
    const char *address;    /* HOST:PORT of its worker */
    bool is_local;          /* that worker is this process: read from the store */
    struct ipc_tally tally; /* as it was registered */
};

struct exchange_fetch_options {
    struct exchange_store *store;       /* for local sources, and told how long it took; NULL if there are none ok */
    struct exchange_channels *channels; /* for others */
    uint64_t window_bytes;              /* 0: 64 MiB */
    uint32_t threads;                   /* sources read at the same time; 0: 4 */
    uint32_t retries;                   /* of a broken connection, in a row without progress; 0: 3 */
    bool is_ordered;                    /* rows in the order of the sources; else as they come */
    const struct ArrowSchema *schema;   /* what the stream has if there are no sources; else may be NULL */
};

struct exchange_fetch;

/* Begins to read. Everything in `sources` is copied. ERR_INVALID for no sources without a schema. */
MUST_USE enum err exchange_fetch_open(const struct exchange_source *sources, uint32_t n,
                                      const struct exchange_fetch_options *options, struct exchange_fetch **out,
                                      struct error *e);

/* Lets go of it; the last one ends what is under way. NULL ok. */
void exchange_fetch_close(struct exchange_fetch *fetch);

/* Ends it: next fails with ERR_CANCELED. */
void exchange_fetch_cancel(struct exchange_fetch *fetch);

/* A copy of the schema; waits until it is known. Errors as exchange_fetch_next. */
MUST_USE enum err exchange_fetch_schema(struct exchange_fetch *fetch, struct ArrowSchema *out, struct error *e);

/*
 * The next rows; at the end, `out->release` is NULL. ERR_CANCELED; ERR_UNAVAILABLE, ERR_NOT_FOUND, ERR_DATA_LOSS and
 * others if a source could not be read, with a message that begins with "fetch_failed" and names it.
 */
MUST_USE enum err exchange_fetch_next(struct exchange_fetch *fetch, struct ArrowArray *out, struct error *e);

/* The map outputs that could not be read, `max` at most, each once. Returns how many. */
uint32_t exchange_fetch_failed(struct exchange_fetch *fetch, struct exchange_key *out, uint32_t max);

/* The same as a stream of the C data interface, which holds a reference of its own. */
void exchange_fetch_stream(struct exchange_fetch *fetch, struct ArrowArrayStream *out);

struct exchange_fetch_counts {
    uint64_t remote_bytes; /* read from other workers */
    uint64_t local_bytes;
    uint64_t rows;
    uint64_t held_bytes; /* at the moment, and at most */
    uint64_t held_bytes_max;
    uint32_t resumed; /* broken connections that were taken up again */
};
struct exchange_fetch_counts exchange_fetch_counts(struct exchange_fetch *fetch);

#endif
