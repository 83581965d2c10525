/*
 * bytes.h - messages of the protocol written down by hand, also those that no library would write.
 *
 *   0a ff          bytes in hexadecimal
 *   'text'         bytes of a text
 *   { ... }        the same with their length in front, as a protobuf number
 *   3*( ... )      three times
 *
 * Ownership: the caller ends the buffer.
 */
#ifndef CAPSTAN_TESTS_UNIT_WIRE_BYTES_H
#define CAPSTAN_TESTS_UNIT_WIRE_BYTES_H

#include "base/buf.h"

/* Appends what `notation` stands for. A mistake in it fails the test. */
void bytes_append(struct buf *out, const char *notation);

#endif
