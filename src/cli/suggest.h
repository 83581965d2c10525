/*
 * suggest.h - what a person probably meant: the nearest of the words that exist.
 *
 * Ownership: nothing is owned. Threads: any.
 */
#ifndef CAPSTAN_CLI_SUGGEST_H
#define CAPSTAN_CLI_SUGGEST_H

#include <stdint.h>

/* Keeps the candidate that is nearest to `wanted`. Starts zero-initialised but for `wanted`. */
struct suggestion {
    const char *wanted;
    const char *best; /* NULL: nothing is near enough */
    uint32_t distance;
};

/* Counts letters that must be changed, added, dropped or swapped with their neighbour. A candidate that begins with what
 * was written is near, too. */
void suggestion_try(struct suggestion *suggestion, const char *candidate);

#endif
