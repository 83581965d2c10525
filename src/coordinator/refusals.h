/*
 * refusals.h - what is logged of calls that are not let in: enough to notice that somebody tries, never so much that it
 * fills a disk, and no token.
 *
 * Ownership: a zero-initialised struct is valid. Threads: any.
 */
#ifndef CAPSTAN_COORDINATOR_REFUSALS_H
#define CAPSTAN_COORDINATOR_REFUSALS_H

#include <stdatomic.h>
#include <stdint.h>

struct refusals {
    atomic_int_fast64_t next_mono_ms; /* when there may be another line */
    atomic_uint_fast64_t n_untold;    /* refusals since the last one */
};

/* Logs who was refused what, and why, unless there was a line within the last second: then it is counted for the next. */
void refusals_tell(struct refusals *refusals, const char *peer, const char *what, const char *why);

#endif
