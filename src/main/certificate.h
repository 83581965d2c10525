/*
 * certificate.h - a certificate of one's own for a moment: for a private cluster on this machine that is to use TLS.
 *
 * It is made by the program openssl, for 127.0.0.1, and vouches for itself.
 *
 * Ownership: texts live in the arena. Threads: any.
 */
#ifndef CAPSTAN_MAIN_CERTIFICATE_H
#define CAPSTAN_MAIN_CERTIFICATE_H

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"

struct certificate {
    const char *cert_file;
    const char *key_file;
    const char *cert_pem; /* also what to trust */
};

/* Makes it in the folder. ERR_UNAVAILABLE if openssl is not there or fails. */
MUST_USE enum err certificate_make(struct arena *arena, const char *folder, struct certificate *out, struct error *e);

#endif
