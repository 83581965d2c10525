/*
 * auth.h - who may call what: tokens and their scopes.
 *
 * A file of tokens has one line each: the token's SHA-256 in hex, a name, and scopes with commas between (read, submit,
 * worker, admin); empty lines and lines that begin with # are left out. admin may do everything, submit and worker may
 * also read. A token is looked for by its digest, compared in constant time, and never logged; its name is.
 *
 * Ownership: auth_open's caller closes it. Threads: any.
 */
#ifndef CAPSTAN_COORDINATOR_AUTH_H
#define CAPSTAN_COORDINATOR_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"

/* What a call needs. A set of scopes is these or-ed. */
enum scope {
    SCOPE_NONE = 0, /* anybody: health, the leader's address */
    SCOPE_READ = 1,
    SCOPE_SUBMIT = 2,
    SCOPE_WORKER = 4,
    SCOPE_ADMIN = 8,
};

struct auth;

/*
 * What a caller has shown, as long as there is the auth that it was shown to. A token that is taken out of the file, or gets
 * other scopes or another name, changes what its pass allows: so whoever goes on for long can look again.
 */
struct auth_pass;
const char *auth_pass_name(const struct auth_pass *pass); /* of the token; "": none was needed */
bool auth_pass_allows(const struct auth_pass *pass, unsigned scopes);

/* Reads the file. ERR_NOT_FOUND, ERR_INVALID with the number of the line and what is wrong with it. */
MUST_USE enum err auth_open(const char *path, struct auth **out, struct error *e);
void auth_close(struct auth *auth); /* NULL ok */

/* Reads the file again if it has changed. What cannot be read leaves the tokens as they are. */
MUST_USE enum err auth_reload(struct auth *auth, struct error *e);

/*
 * Whether whoever sends this header ("Bearer TOKEN"; NULL: none) may do what needs one of `scopes`. Without `auth` (NULL)
 * everybody may. ERR_UNAUTHENTICATED if the token is missing or unknown, ERR_DENIED if it is for something else; the
 * message names the scope that is needed, never the token. `out_pass` (may be NULL) is never NULL afterwards.
 */
MUST_USE enum err auth_check(struct auth *auth, const char *authorization, unsigned scopes,
                             const struct auth_pass **out_pass, struct error *e);

#endif
