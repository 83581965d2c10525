/*
 * keys.h - the files that say whom a coordinator or a worker trusts, and what it presents to others: tokens and
 * certificates. They are read at the start, and again when they have changed, so that a certificate can be renewed and a
 * token withdrawn without a restart.
 *
 * Ownership: the caller's, from zero-initialised memory; keys_close takes what there is. Threads: one.
 */
#ifndef CAPSTAN_MAIN_KEYS_H
#define CAPSTAN_MAIN_KEYS_H

#include <sys/stat.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "coordinator/auth.h"
#include "coordinator/service.h"

enum key_file { KEY_TOKENS, KEY_CERT, KEY_KEY, KEY_CLIENT_CA, KEY_CA, KEY_FILES };

struct keys {
    const char *paths[KEY_FILES];  /* NULL: there is none */
    struct stat seen[KEY_FILES];   /* as they were when they were last read, with success or not */
    struct auth *auth;             /* NULL: there are no tokens */
    struct buf pems[KEY_FILES];    /* of the certificates, as they were at the start */
    struct rpc_identity *identity; /* for those that it calls; NULL: without TLS */
};

/* Has whoever listens do so with new certificates. ERR_INVALID if that cannot be: the old ones stay. */
typedef enum err keys_listen_fn(void *listener, const struct service_tls *tls, struct error *e);

/*
 * Reads the files that --auth-tokens and --tls-... name, those of them that the verb has. ERR_INVALID, ERR_NOT_FOUND with
 * what is wrong with which.
 */
MUST_USE enum err keys_open(struct cli *cli, struct keys *keys, struct error *e);
void keys_close(struct keys *keys); /* when nobody uses the identity any more */

/* The certificates to listen with at the start. */
struct service_tls keys_tls(const struct keys *keys);

/*
 * Looks whether files have changed, and gives what is new to the identity and to the listener. What is wrong with them is
 * logged, once, and leaves all as it was. True if the tokens were read again.
 */
bool keys_look(struct keys *keys, keys_listen_fn *listen, void *listener);

#endif
