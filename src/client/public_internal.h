/* public_internal.h - what the files of the public interface (capstan/client.h) share. */
#ifndef CAPSTAN_CLIENT_PUBLIC_INTERNAL_H
#define CAPSTAN_CLIENT_PUBLIC_INTERNAL_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "capstan/client.h"
#include "client/client.h"

struct capstan_client {
    struct client *client;
    struct rpc_cancel *cancel;
};

/* The caller of one call, with an arena of its own. */
struct client_caller public__caller(struct capstan_client *client, struct arena *arena);

/* Hands an error over; `to` may be NULL. Returns its code. */
enum capstan_code public__fail(const struct error *from, struct capstan_error *to);

/* Ends a call: frees the arena, hands over the error if there is one. */
enum capstan_code public__end(struct arena *arena, enum err err, const struct error *from, struct capstan_error *to);

/* Takes the text out of the buffer, for capstan_free. */
char *public__take_text(struct buf *text);

/* A struct of the caller's, whose first member is its size, as this version knows it: missing members are zero. */
void public__read_struct(void *to, size_t known, const void *from);

#endif
