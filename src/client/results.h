/*
 * results.h - the result of a job as it arrives: the bytes of FetchQueryResults, chunk by chunk.
 *
 * When the connection breaks, the fetch goes on at the byte where it stopped, for as long as a coordinator can be found
 * and brings something new.
 *
 * Ownership: results_open's caller owns it; the job's id is the caller's and must live as long. Threads: one at a time.
 */
#ifndef CAPSTAN_CLIENT_RESULTS_H
#define CAPSTAN_CLIENT_RESULTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "client/client.h"

struct results;

struct results_chunk {
    const uint8_t *bytes;
    size_t n;
};

/* Nothing is fetched yet. The caller's arena is not used. */
struct results *results_open(const struct client_caller *caller, const char *job_id);
void results_close(struct results *results); /* NULL ok */

/* The next chunk, which lives until the next call; with `out_end` there is none. */
MUST_USE enum err results_next(struct results *results, struct results_chunk *out, bool *out_end, struct error *e);

#endif
