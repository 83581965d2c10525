/*
 * worker_http.h - what a worker serves over HTTP: its health and its metrics.
 *
 * Ownership: worker_http_open's caller owns it and closes it before the worker. Threads: any.
 */
#ifndef CAPSTAN_MAIN_WORKER_HTTP_H
#define CAPSTAN_MAIN_WORKER_HTTP_H

#include "base/check.h"
#include "base/err.h"

struct http_server;
struct worker;
struct worker_parts;

/* What is looked at for each answer. Everything outlives the server; the struct does, too. */
struct worker_http {
    struct worker *worker;
    struct worker_parts *parts;
    const char *folder; /* where its data is */
};

/*
 * GET /healthz: 200 while the process is well, be it registered or looking for a coordinator; 503 while it drains. A worker
 * that lacks an operator which it requires does not come so far: it refuses to start.
 *   {"status":"ok"|"draining","registered":BOOL,"slots":N,"busy":N,"leader":"HOST:PORT"|null}
 *   `leader` is null unless the last heartbeat was accepted; `registered` is false when none was for a whole lease. A
 *   worker without a coordinator is not restarted for it, as that would mend nothing: watch `registered` instead.
 * GET /metrics: for Prometheus.
 */
MUST_USE enum err worker_http_open(const struct worker_http *context, const char *listen, struct http_server **out,
                                   struct error *e);

#endif
