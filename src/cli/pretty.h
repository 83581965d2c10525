/*
 * pretty.h - JSON laid out anew, piece by piece as it arrives: indented for people or on one line for machines.
 *
 * Results can be of any size, so nothing but the depth is kept. The text is the coordinator's and taken to be JSON; what
 * is none comes out as something that is none, too.
 *
 * Ownership: a plain value that owns nothing. Threads: one at a time per value.
 */
#ifndef CAPSTAN_CLI_PRETTY_H
#define CAPSTAN_CLI_PRETTY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Zero-initialised but for `indents`, it is ready for the first byte. */
struct pretty {
    bool indents; /* else everything goes on one line */
    bool in_text;
    bool after_backslash;
    bool after_open; /* the last that came was { or [ */
    uint32_t depth;
};

/* Appends the new form of the `n` bytes. */
void pretty_feed(struct pretty *pretty, const char *bytes, size_t n, struct buf *out);

#endif
