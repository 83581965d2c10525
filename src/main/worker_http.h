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

/*
 * GET /healthz: 200 while the process is well, be it registered or looking for a coordinator; 503 while it drains.
 *   {"status":"ok"|"draining","registered":BOOL,"slots":N,"busy":N,"leader":"HOST:PORT"|null}
 *   `leader` is null unless the last heartbeat was accepted; `registered` is false when none was for a whole lease. A
 *   worker without a coordinator is not restarted for it, as that would mend nothing: watch `registered` instead.
 * GET /metrics: for Prometheus.
 */
MUST_USE enum err worker_http_open(struct worker *worker, const char *listen, struct http_server **out,
                                   struct error *e);

#endif
