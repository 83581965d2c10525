/*
 * service.h - a coordinator that others can call: the gRPC services in front of the loop.
 *
 * Every call is decoded and checked by src/wire on a poller thread, becomes a request to the loop or an errand for a
 * clerk, and is answered when what it tells of is durable. This process answers reads and writes only while it leads;
 * otherwise it says where the leader is.
 *
 * Ownership: service_start's caller owns it. Threads: any.
 */
#ifndef CAPSTAN_COORDINATOR_SERVICE_H
#define CAPSTAN_COORDINATOR_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "coordinator/coordinator.h"
#include "coordinator/settings.h"
#include "rpc/rpc.h"

struct auth;
struct service;

/* Certificates in PEM form. All NULL: no TLS. */
struct service_tls {
    const char *cert_pem;
    const char *key_pem;
    const char *client_ca_pem; /* not NULL: clients must present a certificate */
};

struct patience;

struct service_options {
    const char *store_url;
    const char *node_id;
    const char *listen;            /* HOST:PORT; port 0: any free one */
    const char *advertise;         /* where others find it; NULL: where it listens */
    const char *http;              /* HOST:PORT of the HTTP API; port 0: any free one; NULL: none */
    const char *const *http_names; /* further names under which that is called; outlive the service */
    uint32_t n_http_names;
    const char *warehouse; /* where CREATE TABLE ... AS makes its tables; NULL: nowhere */
    struct settings settings;
    struct auth *auth; /* who may call what; NULL: everybody everything. Outlives the service */
    struct service_tls tls;
    struct rpc_channel_options to_workers; /* how to fetch rows from them: all but the target */
    bool must_lead;                        /* role `leader` */
    const char
        *follow; /* role `observer`: HOST:PORT[,...] of coordinators, called as workers are; then there is no store */
    int64_t silence_ms;              /* an observer gives up a leader that says nothing for so long; 0: 3 s */
    const struct patience *patience; /* with those who read snapshots; copied; NULL: PATIENCE_FULL */
};

/* The schema must be up to date. ERR_UNAVAILABLE if the address is taken, ERR_INVALID for nonsense in the options. */
MUST_USE enum err service_start(const struct service_options *options, struct service **out, struct error *e);

/* Answers what can be answered, hands the leadership back, ends all threads. NULL ok. */
void service_stop(struct service *service);

/* Replaces the certificates of a service with TLS, gRPC and HTTP, for connections made from now on. As rpc_server_reload_tls. */
MUST_USE enum err service_reload_tls(struct service *service, const struct service_tls *tls, struct error *e);

/* The tokens were read again: ends streams that rest and whose token does not allow them any more; others look themselves. */
void service_tokens_changed(struct service *service);

/* HOST:PORT with the real port. */
const char *service_address(const struct service *service);
const char *service_http_address(const struct service *service); /* NULL: none */

/* With must_lead: true once another was found to lead; `e` (may be NULL) says who. */
bool service_gave_up(struct service *service, struct error *e);

struct coordinator_stats service_stats(struct service *service);

#endif
