/* Starting and stopping the services, and the way of a call: bytes, message, request, answer. */
#include "coordinator/service.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "coordinator/api.h"
#include "coordinator/board.h"
#include "coordinator/feed.h"
#include "coordinator/observer.h"
#include "coordinator/places.h"
#include "coordinator/service_internal.h"
#include "exchange/channels.h"

#define CLOSE_GRACE_MS 1000
#define TAKERS 2
#define READERS 2
#define RELAYS 4
#define FETCHERS 8
#define FETCHERS_AT_ONE 2                    /* so many may wait for one worker: several silent ones leave some free */
#define CALLS_MAX 50000                      /* open at one time: polls, calls that wait, streams */
#define CLIENT_CALLS_MAX (CALLS_MAX / 5 * 4) /* of those that clients may have: the rest is for workers */

/*
 * A request costs several times its length until it is answered. Together the large ones get so much, and more are asked
 * to come again; small ones always pass, or workers would be taken for dead because others submit a lot.
 */
#define LARGE_BYTES (64 * 1024)
#define LARGE_BYTES_OPEN_MAX ((size_t)4 * LIMIT_WIRE_BYTES)

/* ---- the way of a call ---- */

enum err service__admit(struct service *service, const char *authorization, enum scope scope, const char *what,
                        const char *peer, const struct auth_pass **out_pass, struct error *e)
{
    enum err err = auth_check(service->auth, authorization, scope, out_pass, e);
    if (err != ERR_OK) {
        refusals_tell(&service->refusals, peer, what, e->message);
    }
    return err;
}

/*
 * ERR_BUSY, which clients and workers take for a reason to try again, if there is no room for a request of this size.
 * ERR_EXHAUSTED, which means "wait for your answers", if the client has too many calls open already.
 */
static enum err admit(struct exchange *exchange, const struct arrival *arrival, const struct method_rule *rule,
                      struct error *e)
{
    struct service *service = exchange->service;
    size_t n = arrival->n;
    if (rule->scope != SCOPE_WORKER) {
        struct sender sender = gate_sender(service->gate, auth_pass_name(arrival->pass), arrival->peer);
        exchange->request->sender = sender;
        exchange->n_bytes = n;
        enum err err = gate_enter(service->gate, sender, n, e);
        if (err != ERR_OK) {
            return err;
        }
        exchange->is_counted = true;
        err = arrival->is_lasting ? gate_hold(service->gate, sender, e) : ERR_OK;
        if (err != ERR_OK) {
            return err;
        }
        exchange->is_holding = arrival->is_lasting;
    }
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

/* An observer answers reads, from its copy, and says how old that is. */
static void tell_staleness(struct exchange *exchange)
{
    struct observer *observer = exchange->service->observer;
    if (observer != NULL && exchange->rpc != NULL) {
        rpc_call_staleness(exchange->rpc, observer_staleness_ms(observer, exchange->as_of_mono_ms));
    }
}

/* The one job that a question is about; NULL: there is none. */
static const char *job_asked_for(enum pb_kind kind, const void *message)
{
    const char *job_id =
        kind == PB_GET_QUERY_STATUS_REQUEST      ? ((const struct pb_get_query_status_request *)message)->query_id
        : kind == PB_LIST_TASKS_REQUEST          ? ((const struct pb_list_tasks_request *)message)->query_id
        : kind == PB_WHY_PENDING_REQUEST         ? ((const struct pb_why_pending_request *)message)->query_id
        : kind == PB_WATCH_EVENTS_REQUEST        ? ((const struct pb_watch_events_request *)message)->query_id
        : kind == PB_FETCH_QUERY_RESULTS_REQUEST ? ((const struct pb_fetch_query_results_request *)message)->query_id
                                                 : NULL;
    return job_id != NULL && job_id[0] != '\0' ? job_id : NULL;
}

static enum err check_observer(struct exchange *exchange, const struct method_rule *rule, struct error *e)
{
    tell_staleness(exchange); /* for streams; what is replied at once tells it anew */
    if (rule->scope != SCOPE_READ && rule->scope != SCOPE_NONE) {
        error_set(e, ERR_PRECONDITION, "this is an observer: it answers questions and changes nothing");
        error_hint(e, "the answer names the leader, if one is known");
        return ERR_PRECONDITION;
    }
    return rule->scope == SCOPE_NONE ? ERR_OK : observer_check(exchange->service->observer, e);
}

void service__serve(struct service *service, const struct arrival *arrival, const struct method_rule *rule)
{
    struct error e = {0};
    struct request *request = request_new(NULL, NULL);
    struct exchange *exchange = arena_zalloc(&request->arena, sizeof *exchange);
    request->context = exchange;
    request->is_kept = true;
    *exchange = (struct exchange){.service = service,
                                  .door = arrival->door,
                                  .rpc = arrival->rpc,
                                  .api = arrival->api,
                                  .request = request,
                                  .pass = arrival->pass,
                                  .scope = rule->scope};
    void *message = NULL;
    enum err err = admit(exchange, arrival, rule, &e);
    if (err == ERR_OK && service->observer != NULL) {
        err = check_observer(exchange, rule, &e);
    }
    if (err == ERR_OK) {
        err = wire_decode(rule->kind, arrival->bytes, arrival->n, &request->arena, &message, &e);
    }
    if (err == ERR_OK && service->observer == NULL && atomic_load(&service->coordinator) == NULL) {
        err = error_set(&e, ERR_UNAVAILABLE, "this coordinator is just starting");
    }
    if (err != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    exchange->message = message;
    const char *job_id = service->observer != NULL ? job_asked_for(rule->kind, message) : NULL;
    if (job_id == NULL || !observer_hold(service->observer, exchange, job_id, rule->handler)) {
        rule->handler(exchange);
    }
}

/* Ends the exchange of a call that has been ended. */
static void drop(struct exchange *exchange)
{
    atomic_fetch_sub(&exchange->service->bytes_open, exchange->weight);
    if (exchange->is_holding) {
        gate_release(exchange->service->gate, exchange->request->sender);
    }
    if (exchange->is_counted) {
        gate_leave(exchange->service->gate, exchange->request->sender, exchange->n_bytes);
    }
    request_free(exchange->request);
}

void exchange_send(struct exchange *exchange, answer_fn *answer)
{
    exchange->request->answer = answer;
    if (exchange->service->observer != NULL) {
        observer_send(exchange->service->observer, exchange->request);
        return;
    }
    coordinator_send(atomic_load(&exchange->service->coordinator), exchange->request);
}

void exchange_reply(struct exchange *exchange, const void *message)
{
    tell_staleness(exchange);
    exchange->door->reply(exchange, message);
    drop(exchange);
}

void exchange_fail(struct exchange *exchange, const struct error *e)
{
    struct leader_news news = {0};
    struct coordinator *coordinator = atomic_load(&exchange->service->coordinator);
    if (e->code == ERR_PRECONDITION && coordinator != NULL) {
        news = coordinator_leader(coordinator);
    } else if (e->code == ERR_PRECONDITION && exchange->service->observer != NULL) {
        news = observer_leader(exchange->service->observer);
    }
    exchange->door->fail(exchange, e, news.address[0] != '\0' && !news.is_self ? news.address : NULL);
    drop(exchange);
}

static void say_not_leading(struct error *e)
{
    error_set(e, ERR_PRECONDITION, "this coordinator does not lead");
    error_hint(e, "the answer names the leader, if there is one");
}

bool exchange_needs_leader(struct exchange *exchange)
{
    struct error e = {0};
    struct coordinator *coordinator = atomic_load(&exchange->service->coordinator);
    if (coordinator != NULL && coordinator_epoch(coordinator) != 0) {
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
        if (reply->code == ERR_EXHAUSTED) { /* the scheduler has one limit */
            error_hint(&e, "try again when jobs have ended; the limit is max_live_tasks of the coordinator");
        }
    } else {
        return false;
    }
    exchange_fail(exchange, &e);
    return true;
}

void exchange_stream(struct exchange *exchange, const void *message, rpc_sent_fn *sent, void *context)
{
    exchange->door->send(exchange, message, sent, context);
}

void exchange_rest(struct exchange *exchange)
{
    exchange->door->rest(exchange);
}

void exchange_end(struct exchange *exchange)
{
    exchange->door->end(exchange);
    drop(exchange);
}

void exchange_on_gone(struct exchange *exchange, rpc_gone_fn *fn, void *context)
{
    exchange->door->on_gone(exchange, fn, context);
}

bool exchange_is_gone(struct exchange *exchange)
{
    return exchange->door->is_gone(exchange);
}

enum err exchange_look_at_token(const struct exchange *exchange, struct error *e)
{
    if (auth_pass_allows(exchange->pass, exchange->scope)) {
        return ERR_OK;
    }
    error_set(e, ERR_UNAUTHENTICATED, "the token '%s' was withdrawn, or does not allow this any more",
              auth_pass_name(exchange->pass));
    error_hint(e, "call again with one that is in the coordinator's file of tokens");
    return ERR_UNAUTHENTICATED;
}

enum err exchange_look(struct exchange *exchange, struct error *e)
{
    return exchange_is_gone(exchange) ? error_set(e, ERR_CANCELED, "the client has gone")
                                      : exchange_look_at_token(exchange, e);
}

static const struct method_rule *const rules[] = {
#define RULE(service, method, kind, scope) &method_##method,
    SERVICE_TABLE(RULE)
#undef RULE
};

static enum err admit_call(void *context, uint32_t method, struct rpc_call *rpc, const void **out_pass, struct error *e)
{
    struct service *service = context;
    const struct method_rule *rule = rules[method];
    const struct auth_pass *pass = NULL;
    enum err err = service__admit(service, rpc_call_metadata(rpc, RPC_TOKEN_KEY), rule->scope, rule->name,
                                  rpc_call_peer(rpc), &pass, e);
    *out_pass = pass;
    return err;
}

static void serve_call(struct service *service, struct rpc_call *rpc, const struct method_rule *rule)
{
    struct arrival arrival = {.door = &door_grpc, .rpc = rpc, .pass = rpc_call_note(rpc), .peer = rpc_call_peer(rpc)};
    arrival.bytes = rpc_call_bytes(rpc, &arrival.n);
    service__serve(service, &arrival, rule);
}

#define SERVE(service, method, kind, scope)                                                                            \
    const struct method_rule method_##method = {#method, kind, scope, service__##method};                              \
    static void on_##method(void *context, struct rpc_call *call)                                                      \
    {                                                                                                                  \
        serve_call(context, call, &method_##method);                                                                   \
    }
SERVICE_TABLE(SERVE)
#undef SERVE

static const struct rpc_method methods[] = {
#define METHOD(service, method, kind, scope) {"/capstan.v1." #service "/" #method, on_##method},
    SERVICE_TABLE(METHOD)
#undef METHOD
};

/* ---- what the loop tells ---- */

static void on_role(void *context, bool leads, const char *why)
{
    struct service *service = context;
    struct inbox *inbox = atomic_load(&service->inbox);
    if (leads) {
        feed_elected(service->feed);
        log_info("leader", "this coordinator leads: %s", why);
        if (inbox != NULL) {
            inbox_look(inbox); /* the leader before may have left something */
        }
    } else {
        cache_clear(service->cache);
        watch_demoted(service->watch);
        feed_demoted(service->feed);
        log_line(service->is_stopping ? LOG_INFO : LOG_WARN, "leader", "this coordinator does not lead any more: %s",
                 service->is_stopping ? "it stops" : why);
    }
}

static void on_leader(void *context, const struct leader_news *leader)
{
    UNUSED(context);
    if (leader->is_self) {
        log_info("leader",
                 "this coordinator led before it was started, and waits until that has run out: epoch %" PRIu64,
                 leader->epoch);
        return;
    }
    log_info("leader", "this coordinator stands by: %s leads at %s, epoch %" PRIu64, leader->node_id, leader->address,
             leader->epoch);
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

static void on_prune(void *context, const char *why)
{
    UNUSED(context);
    if (why != NULL) {
        log_warn("store", "old jobs and events cannot be removed; they stay and will be tried again: %s", why);
    } else {
        log_info("store", "old jobs and events are removed again");
    }
}

static void on_schema(void *context, uint32_t before, uint32_t after)
{
    UNUSED(context);
    log_info("store", "the schema has been brought from version %u to %u", before, after);
}

static void on_durable(void *context, const struct row *rows)
{
    struct service *service = context;
    journal_durable(rows);
    metrics_durable(&service->metrics, rows);
    watch_durable(service->watch, rows);
}

static void on_batch(void *context, const struct batch *batch)
{
    struct service *service = context;
    feed_append(service->feed, batch);
}

static void on_commit(void *context, int64_t us, uint32_t n_commands)
{
    struct service *service = context;
    metric_observe(&service->metrics.commit_seconds, us > 0 ? (double)us / 1e6 : 0);
    metric_observe(&service->metrics.commit_batch_size, n_commands);
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
        .on_leader = on_leader,
        .on_store = on_store,
        .on_prune = on_prune,
        .on_schema = on_schema,
        .on_durable = on_durable,
        .on_commit = on_commit,
        .on_batch = on_batch,
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

static enum err start_http(struct service *service, const struct service_options *options, struct error *e)
{
    struct api_options http = {.listen = options->http,
                               .names = options->http_names,
                               .n_names = options->n_http_names,
                               .advertise = service->address,
                               .tls_cert_pem = options->tls.cert_pem,
                               .tls_key_pem = options->tls.key_pem,
                               .tls_client_ca_pem = options->tls.client_ca_pem};
    return api_start(service, &http, &service->api, e);
}

enum err service_start(const struct service_options *options, struct service **out, struct error *e)
{
    enum err err = settings_check(&options->settings, e);
    if (err != ERR_OK) {
        return err;
    }
    struct service *service = mem_calloc(1, sizeof *service);
    service->settings = options->settings;
    const char *store_url = options->store_url;
    if (options->follow != NULL) {
        err = observer_new(service, options, &service->observer, e);
        if (err != ERR_OK) {
            mem_free(service);
            return err;
        }
        store_url = observer_store_url(service->observer);
    }
    service->store_url = mem_strdup(store_url);
    service->warehouse = mem_strdup(options->warehouse);
    service->auth = options->auth;
    service->gate = gate_new((struct gate_limits){.calls = (uint64_t)options->settings.max_calls_per_client,
                                                  .bytes = (uint64_t)options->settings.max_bytes_per_client,
                                                  .calls_all = CLIENT_CALLS_MAX,
                                                  .held = API_CONNECTIONS_MAX / 8,
                                                  .held_all = API_CONNECTIONS_MAX / 2});
    service->cache = cache_new((size_t)options->settings.payload_cache_bytes);
    service->composers = office_new(store_url, 1);
    service->takers = office_new(store_url, TAKERS);
    service->readers = office_new(store_url, READERS);
    service->relays = office_new(store_url, RELAYS);
    service->fetchers = office_new(store_url, FETCHERS);
    service->places = places_new(FETCHERS_AT_ONE);
    service->copyists = office_new(store_url, 1);
    service->patience = options->patience != NULL ? *options->patience : PATIENCE_FULL;
    service->channels = exchange_channels_open(&options->to_workers);
    service->closing = rpc_cancel_new();
    service->lost = lost_results_new();
    service->board = board_new(options->settings.core.worker_liveness_timeout_ms);
    service->watch = watch_new(service);
    metrics_init(&service->metrics);
    service->feed = feed_new(service);
    struct rpc_server_options server = {.listen = options->listen,
                                        .methods = methods,
                                        .n_methods = sizeof methods / sizeof *methods,
                                        .admit = admit_call,
                                        .context = service,
                                        .pollers = 1,
                                        .message_bytes_max = LIMIT_WIRE_BYTES,
                                        .calls_max = CALLS_MAX,
                                        .tls_cert_pem = options->tls.cert_pem,
                                        .tls_key_pem = options->tls.key_pem,
                                        .tls_client_ca_pem = options->tls.client_ca_pem};
    err = rpc_server_open(&server, &service->server, e);
    if (err == ERR_OK) {
        service->address =
            mem_strdup(options->advertise != NULL ? options->advertise : rpc_server_address(service->server));
        if (service->observer != NULL) {
            observer_start(service->observer);
        } else {
            err = start_coordinator(service, options, e);
        }
    }
    if (err == ERR_OK && options->http != NULL) {
        err = start_http(service, options, e);
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
    if (service->observer != NULL) {
        observer_wind_up(service->observer);
    }
    rpc_cancel_fire(service->closing);
    watch_close(service->watch);
    api_stop(service->api);
    feed_close(service->feed);
    rpc_server_close(service->server, CLOSE_GRACE_MS);
    office_free(service->composers);
    office_free(service->takers);
    office_free(service->readers);
    office_free(service->relays);
    office_free(service->fetchers);
    places_free(service->places);
    office_free(service->copyists);
    exchange_channels_close(service->channels);
    rpc_cancel_free(service->closing);
    lost_results_free(service->lost);
    board_free(service->board);
    coordinator_stop(coordinator);
    inbox_free(atomic_load(&service->inbox));
    watch_free(service->watch);
    feed_free(service->feed);
    observer_free(service->observer);
    cache_free(service->cache);
    gate_free(service->gate);
    mem_free(service->store_url);
    mem_free(service->address);
    mem_free(service->warehouse);
    mem_free(service);
}

/* Each for itself: that one of the two cannot use them must not leave the other with certificates that run out. */
enum err service_reload_tls(struct service *service, const struct service_tls *tls, struct error *e)
{
    enum err err = rpc_server_reload_tls(service->server, tls->cert_pem, tls->key_pem, tls->client_ca_pem, e);
    if (service->api != NULL) {
        enum err http =
            api_reload_tls(service->api, tls->cert_pem, tls->key_pem, tls->client_ca_pem, err == ERR_OK ? e : NULL);
        err = err == ERR_OK ? http : err;
    }
    return err;
}

void service_tokens_changed(struct service *service)
{
    watch_tokens(service->watch);
}

const char *service_address(const struct service *service)
{
    return service->address;
}

const char *service_http_address(const struct service *service)
{
    return service->api == NULL ? NULL : api_address(service->api);
}

bool service_gave_up(struct service *service, struct error *e)
{
    struct coordinator *coordinator = atomic_load(&service->coordinator);
    return coordinator != NULL && coordinator_gave_up(coordinator, e);
}

struct coordinator_stats service_stats(struct service *service)
{
    struct coordinator *coordinator = atomic_load(&service->coordinator);
    return coordinator != NULL ? coordinator_stats(coordinator) : (struct coordinator_stats){0};
}
