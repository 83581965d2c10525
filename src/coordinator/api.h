/*
 * api.h - the HTTP API: a second door to the services.
 *
 * Ownership: api_start's caller owns it and stops it while the clerks still work. Threads: any.
 */
#ifndef CAPSTAN_COORDINATOR_API_H
#define CAPSTAN_COORDINATOR_API_H

#include <stdint.h>

#include "base/check.h"
#include "base/err.h"

struct api;
struct service;

/* Of HTTP. What may last gets an eighth of them for one client, and half of them for all clients together (gate.h). */
#define API_CONNECTIONS_MAX 2048

struct api_options {
    const char *listen;       /* HOST:PORT; port 0: any free one */
    const char *advertise;    /* whose host is a name of this machine, too */
    const char *const *names; /* further names under which it is called; outlive the API */
    uint32_t n_names;
    const char *tls_cert_pem; /* all three NULL: no TLS */
    const char *tls_key_pem;
    const char *tls_client_ca_pem; /* not NULL: clients must present a certificate */
};

/* ERR_UNAVAILABLE if the address is taken, ERR_INVALID if it is none. */
MUST_USE enum err api_start(struct service *service, const struct api_options *options, struct api **out,
                            struct error *e);
void api_stop(struct api *api); /* NULL ok */

/* Replaces the certificates, as http_server_reload_tls. */
MUST_USE enum err api_reload_tls(struct api *api, const char *cert_pem, const char *key_pem, const char *client_ca_pem,
                                 struct error *e);

/* HOST:PORT with the real port. */
const char *api_address(const struct api *api);

#endif
