/*
 * keys.h - the files that say whom a coordinator trusts: tokens and certificates. They are read at the start, and again
 * when they have changed, so that a certificate can be renewed and a token withdrawn without a restart.
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

enum key_file { KEY_TOKENS, KEY_CERT, KEY_KEY, KEY_CLIENT_CA, KEY_FILES };

struct keys {
    const char *paths[KEY_FILES]; /* NULL: there is none */
    struct stat seen[KEY_FILES];  /* as they were when they were last read, with success or not */
    struct auth *auth;            /* NULL: there are no tokens */
    struct buf pems[KEY_FILES];   /* of the certificates */
};

/* Reads the files that --auth-tokens and --tls-... name. ERR_INVALID, ERR_NOT_FOUND with what is wrong with which. */
MUST_USE enum err keys_open(struct cli *cli, struct keys *keys, struct error *e);
void keys_close(struct keys *keys);

/* The certificates that were read last. */
struct service_tls keys_tls(const struct keys *keys);

/* Looks whether files have changed, and gives what is new to the service. What is wrong with them is logged, once. */
void keys_look(struct keys *keys, struct service *service);

#endif
