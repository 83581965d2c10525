/*
 * utf8.h - is this UTF-8, and where may it be cut.
 *
 * Ownership: nothing is owned. Threads: any.
 */
#ifndef CAPSTAN_BASE_UTF8_H
#define CAPSTAN_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the `n` bytes are well-formed UTF-8 (no overlong forms, no surrogates, at most U+10FFFF). NUL is allowed. */
bool utf8_is_valid(const char *s, size_t n);

/*
 * Length of the longest prefix of the `n` bytes at `s` that has at most `max` bytes and does not end inside a
 * character. Bytes that are no UTF-8 count as characters of one byte each.
 */
size_t utf8_clip(const char *s, size_t n, size_t max);

#endif
