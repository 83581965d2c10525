/*
 * num.h - numbers from text, whatever the locale.
 *
 * Ownership: nothing is owned. Threads: any.
 */
#ifndef CAPSTAN_BASE_NUM_H
#define CAPSTAN_BASE_NUM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"

/*
 * Reads `text`, which must be one JSON number from its first to its last character: an optional minus, digits
 * without a needless leading zero, an optional fraction, an optional exponent. The result is the nearest double.
 * Returns false, and leaves `out` untouched, for anything else: NULL, blanks, a plus in front, hexadecimal, "inf",
 * "nan", or a number too large for a double. A number too small becomes zero.
 */
MUST_USE bool num_parse(const char *text, double *out);

/* Reads a whole number: an optional minus and digits, nothing else, that fits. Leaves `out` untouched on failure. */
MUST_USE bool num_parse_int(const char *text, int64_t *out);

#endif
