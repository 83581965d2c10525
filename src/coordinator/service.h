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

struct service;

struct service_options {
    const char *store_url;
    const char *node_id;
    const char *listen;    /* HOST:PORT; port 0: any free one */
    const char *advertise; /* where others find it; NULL: where it listens */
    const char *warehouse; /* where CREATE TABLE ... AS makes its tables; NULL: nowhere */
    struct settings settings;
    bool must_lead; /* role `leader` */
};

/* The schema must be up to date. ERR_UNAVAILABLE if the address is taken, ERR_INVALID for nonsense in the options. */
MUST_USE enum err service_start(const struct service_options *options, struct service **out, struct error *e);

/* Answers what can be answered, hands the leadership back, ends all threads. NULL ok. */
void service_stop(struct service *service);

/* HOST:PORT with the real port. */
const char *service_address(const struct service *service);

/* With must_lead: true once another was found to lead; `e` (may be NULL) says who. */
bool service_gave_up(struct service *service, struct error *e);

struct coordinator_stats service_stats(struct service *service);

#endif
