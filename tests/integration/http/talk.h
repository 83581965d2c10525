/*
 * talk.h - HTTP by hand, over a real socket, for tests: the bytes of a request go out as they are written.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_HTTP_TALK_H
#define CAPSTAN_TESTS_INTEGRATION_HTTP_TALK_H

#include <stddef.h>

#include "base/buf.h"

/* A connection to HOST:PORT on loopback. `room` bytes for what arrives and is not read; 0: what the system gives. */
int talk_dial(const char *address, int room);

/* The same from another address of this machine, such as 127.0.0.2. */
int talk_dial_from(const char *own, const char *address, int room);

void talk_send(int fd, const void *bytes, size_t n);

/* Reads what there is, at least one byte; 0 at the end, or if nothing comes for a long time. */
size_t talk_read(int fd, struct buf *into);

/* Sends the bytes and reads until the server closes; the answer ends with a NUL. */
void talk_bytes(const char *address, const char *bytes, size_t n, struct buf *answer);

/* Sends a request with "Connection: close", and these further headers (lines that end in \r\n) and this body. */
void talk(const char *address, const char *line, const char *headers, const char *body, struct buf *answer);

int talk_status(const struct buf *answer);
/* What follows the head; a chunked body is put together, in place: to be asked once. */
const char *talk_body(struct buf *answer);

#endif
