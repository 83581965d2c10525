/*
 * guarded.h - a coordinator that asks for tokens, and maybe certificates, for tests.
 *
 * There is a token for each scope, called as it: "read-token", and the name of that token is "read-name".
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_SERVICE_GUARDED_H
#define CAPSTAN_TESTS_INTEGRATION_SERVICE_GUARDED_H

#include "coordinator/service.h"
#include "rpc/rpc.h"
#include "wire/message.h"

#define GUARDED_SCOPES 4

struct guarded {
    char folder[64];
    char url[96];
    char tokens[96]; /* the file */
    struct auth *auth;
    struct service *service;
    struct error e; /* of the last call */
};

extern const char *const guarded_scopes[GUARDED_SCOPES];

/* With an HTTP API, unless clients must present certificates. `tls` may be NULL. It need not lead yet. */
void guarded_init(struct guarded *g, const struct service_tls *tls);
void guarded_init_with(struct guarded *g, const struct service_tls *tls, struct settings settings);
void guarded_deinit(struct guarded *g);

/* Takes the token of a scope out of the file; whoever has read it does not know yet. */
void guarded_take_out(const struct guarded *g, const char *scope);

void guarded_remove_folder(const char *folder);

/*
 * Sends a message with nothing in it, over a connection of its own, and says how the first answer went. Streams and single
 * answers look alike from here.
 */
enum err guarded_call(struct guarded *g, const char *path, enum pb_kind kind, struct rpc_channel_options options);

#endif
