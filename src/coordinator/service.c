/* Starting and stopping the services, and the way of a call: bytes, message, request, answer. */
#include "coordinator/service.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "coordinator/service_internal.h"
#include "exchange/channels.h"

#define CLOSE_GRACE_MS 1000
#define TAKERS 2
#define READERS 2
#define RELAYS 4
#define CALLS_MAX 50000 /* open at one time: polls, calls that wait, streams */

/*
 * A request costs several times its length until it is answered. Together the large ones get so much, and more are asked
 * to come again; small ones always pass, or workers would be taken for dead because others submit a lot.
 */
#define LARGE_BYTES (64 * 1024)
#define LARGE_BYTES_OPEN_MAX ((size_t)4 * LIMIT_WIRE_BYTES)

/* ---- the way of a call ---- */

/* ERR_BUSY, which clients and workers take for a reason to try again, if there is no room for a request of this size. */
static enum err admit(struct exchange *exchange, size_t n, struct error *e)
{
    struct service *service = exchange->service;
    if (n < LARGE_BYTES) {
        return ERR_OK;
    }
    exchange->weight = n;
    if (atomic_fetch_add(&service->bytes_open, n) + n <= LARGE_BYTES_OPEN_MAX) {
        return ERR_OK;
    }
    error_set(e, ERR_BUSY, "too many large requests are being served at this moment");
    error_hint(e, "try again in a moment");
    return ERR_BUSY;
}

static void serve(struct service *service, struct rpc_call *rpc, enum pb_kind kind, exchange_fn *handler)
{
    struct error e = {0};
    struct request *request = request_new(NULL, NULL);
    struct exchange *exchange = arena_zalloc(&request->arena, sizeof *exchange);
    size_t n;
    const void *bytes = rpc_call_bytes(rpc, &n);
    request->context = exchange;
    request->is_kept = true;
    *exchange = (struct exchange){.service = service, .rpc = rpc, .request = request};
    void *message = NULL;
    enum err err = admit(exchange, n, &e);
    if (err == ERR_OK) {
        err = wire_decode(kind, bytes, n, &request->arena, &message, &e);
    }
    if (err == ERR_OK && atomic_load(&service->coordinator) == NULL) {
        err = error_set(&e, ERR_UNAVAILABLE, "this coordinator is just starting");
    }
    if (err != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    exchange->message = message;
    handler(exchange);
}

void exchange_send(struct exchange *exchange, answer_fn *answer)
{
    exchange->request->answer = answer;
    coordinator_send(atomic_load(&exchange->service->coordinator), exchange->request);
}

void exchange_reply(struct exchange *exchange, const void *message)
{
    struct buf bytes = {0};
    wire_encode(message, &bytes);
    rpc_call_reply(exchange->rpc, bytes.data, bytes.n);
    buf_deinit(&bytes);
    exchange_drop(exchange);
}

void exchange_fail(struct exchange *exchange, const struct error *e)
{
    struct leader_news news = {0};
    struct coordinator *coordinator = atomic_load(&exchange->service->coordinator);
    if (e->code == ERR_PRECONDITION && coordinator != NULL) {
        news = coordinator_leader(coordinator);
    }
    rpc_call_fail(exchange->rpc, e, news.address[0] != '\0' && !news.is_self ? news.address : NULL);
    exchange_drop(exchange);
}

static void say_not_leading(struct error *e)
{
    error_set(e, ERR_PRECONDITION, "this coordinator does not lead");
    error_hint(e, "the answer's metadata names the leader, if there is one");
}

bool exchange_needs_leader(struct exchange *exchange)
{
    struct error e = {0};
    if (coordinator_epoch(atomic_load(&exchange->service->coordinator)) != 0) {
        return true;
    }
    say_not_leading(&e);
    exchange_fail(exchange, &e);
    return false;
}

bool exchange_failed(struct exchange *exchange, const struct reply *reply, enum err err)
{
    struct error e = {0};
    if (reply == NULL && err == ERR_OK) {
        return false; /* a read */
    }
    if (reply == NULL && err == ERR_PRECONDITION) {
        say_not_leading(&e);
    } else if (reply == NULL && err == ERR_INVALID) {
        error_set(&e, ERR_INVALID, "the store refuses to keep this; nothing was changed");
    } else if (reply == NULL) {
        error_set(&e, err, "%s", err_text(err));
    } else if (reply->kind == REPLY_ERROR) {
        error_set(&e, reply->code, "%s", reply->message == NULL ? err_text(reply->code) : reply->message);
    } else {
        return false;
    }
    exchange_fail(exchange, &e);
    return true;
}

void exchange_drop(struct exchange *exchange)
{
    atomic_fetch_sub(&exchange->service->bytes_open, exchange->weight);
    request_free(exchange->request);
}

#define SERVE(service, method, kind)                                                                                   \
    static void on_##method(void *context, struct rpc_call *call)                                                      \
    {                                                                                                                  \
        serve(context, call, kind, service__##method);                                                                 \
    }
SERVICE_TABLE(SERVE)
#undef SERVE

static const struct rpc_method methods[] = {
#define METHOD(service, method, kind) {"/capstan.v1." #service "/" #method, on_##method},
    SERVICE_TABLE(METHOD)
#undef METHOD
};

/* ---- what the loop tells ---- */

static void on_role(void *context, bool leads, const char *why)
{
    struct service *service = context;
    struct inbox *inbox = atomic_load(&service->inbox);
    if (leads) {
        log_info("leader", "this coordinator leads: %s", why);
        if (inbox != NULL) {
            inbox_look(inbox); /* the leader before may have left something */
        }
    } else {
        cache_clear(service->cache);
        watch_demoted(service->watch);
        log_line(service->is_stopping ? LOG_INFO : LOG_WARN, "leader", "this coordinator does not lead any more: %s",
                 service->is_stopping ? "it stops" : why);
    }
}

static void on_store(void *context, const char *why)
{
    UNUSED(context);
    if (why != NULL) {
        log_warn("store", "the store does not answer; this coordinator does not lead until it does: %s", why);
    } else {
        log_info("store", "the store answers");
    }
}

static void on_durable(void *context, const struct row *rows)
{
    struct service *service = context;
    journal_durable(rows);
    watch_durable(service->watch, rows);
}

/* ---- starting and stopping ---- */

static enum err start_coordinator(struct service *service, const struct service_options *options, struct error *e)
{
    struct coordinator_options inner = {
        .store_url = options->store_url,
        .node_id = options->node_id,
        .address = service->address,
        .config = options->settings.core,
        .leader_ttl_ms = options->settings.leader_ttl_ms,
        .history_ttl_ms = options->settings.history_ttl_ms,
        .must_lead = options->must_lead,
        .on_role = on_role,
        .on_store = on_store,
        .on_durable = on_durable,
        .on_child = child_started,
        .on_child_end = child_ended,
        .context = service,
    };
    struct coordinator *coordinator;
    enum err err = coordinator_start(&inner, &coordinator, e);
    if (err == ERR_OK) {
        atomic_store(&service->coordinator, coordinator);
        atomic_store(&service->inbox, inbox_start(service));
    }
    return err;
}

enum err service_start(const struct service_options *options, struct service **out, struct error *e)
{
    enum err err = settings_check(&options->settings, e);
    if (err != ERR_OK) {
        return err;
    }
    struct service *service = mem_calloc(1, sizeof *service);
    service->settings = options->settings;
    service->store_url = mem_strdup(options->store_url);
    service->warehouse = mem_strdup(options->warehouse);
    service->cache = cache_new((size_t)options->settings.payload_cache_bytes);
    service->composers = office_new(options->store_url, 1);
    service->takers = office_new(options->store_url, TAKERS);
    service->readers = office_new(options->store_url, READERS);
    service->relays = office_new(options->store_url, RELAYS);
    service->channels = exchange_channels_open(&(struct rpc_channel_options){.target = NULL});
    service->closing = rpc_cancel_new();
    service->lost = lost_results_new();
    service->watch = watch_new(service);
    struct rpc_server_options server = {.listen = options->listen,
                                        .methods = methods,
                                        .n_methods = sizeof methods / sizeof *methods,
                                        .context = service,
                                        .pollers = 1,
                                        .message_bytes_max = LIMIT_WIRE_BYTES,
                                        .calls_max = CALLS_MAX};
    err = rpc_server_open(&server, &service->server, e);
    if (err == ERR_OK) {
        service->address =
            mem_strdup(options->advertise != NULL ? options->advertise : rpc_server_address(service->server));
        err = start_coordinator(service, options, e);
    }
    if (err != ERR_OK) {
        service_stop(service);
        return err;
    }
    *out = service;
    return ERR_OK;
}

/*
 * The loop goes first: it answers everybody who waits. Clerks may still send it requests then, which are answered at
 * once. The server waits for the last answers.
 */
void service_stop(struct service *service)
{
    if (service == NULL) {
        return;
    }
    struct coordinator *coordinator = atomic_load(&service->coordinator);
    atomic_store(&service->is_stopping, true);
    if (coordinator != NULL) {
        inbox_stop(atomic_load(&service->inbox));
        coordinator_wind_up(coordinator);
    }
    rpc_cancel_fire(service->closing);
    watch_close(service->watch);
    rpc_server_close(service->server, CLOSE_GRACE_MS);
    office_free(service->composers);
    office_free(service->takers);
    office_free(service->readers);
    office_free(service->relays);
    exchange_channels_close(service->channels);
    rpc_cancel_free(service->closing);
    lost_results_free(service->lost);
    coordinator_stop(coordinator);
    inbox_free(atomic_load(&service->inbox));
    watch_free(service->watch);
    cache_free(service->cache);
    mem_free(service->store_url);
    mem_free(service->address);
    mem_free(service->warehouse);
    mem_free(service);
}

const char *service_address(const struct service *service)
{
    return service->address;
}

bool service_gave_up(struct service *service, struct error *e)
{
    return coordinator_gave_up(atomic_load(&service->coordinator), e);
}

struct coordinator_stats service_stats(struct service *service)
{
    return coordinator_stats(atomic_load(&service->coordinator));
}
