/* Refusals, tokens that are withdrawn, and certificates, over real gRPC and HTTP. Who may call what is in matrix_test.c. */
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "coordinator/auth.h"
#include "http/talk.h"
#include "service/guarded.h"
#include "test.h"

TEST(a_refusal_says_what_is_missing_and_what_to_do)
{
    struct guarded g;
    guarded_init(&g, NULL);
    CHECK_ERR(guarded_call(&g, "/capstan.v1.ControlPlane/CancelQuery", PB_CANCEL_QUERY_REQUEST,
                           (struct rpc_channel_options){.token = "read-token"}),
              ERR_DENIED);
    CHECK_STR(g.e.message, "the token 'read-name' does not allow this: it needs the scope submit");
    CHECK_ERR(guarded_call(&g, "/capstan.v1.Cluster/ListNodes", PB_LIST_NODES_REQUEST, (struct rpc_channel_options){0}),
              ERR_UNAUTHENTICATED);
    CHECK(strstr(g.e.hint, "CAPSTAN_TOKEN") != NULL);
    guarded_deinit(&g);
}

TEST(a_token_that_is_taken_out_of_the_file_is_refused_from_then_on)
{
    struct guarded g;
    struct rpc_channel_options admin = {.token = "admin-token"};
    guarded_init(&g, NULL);
    CHECK(guarded_call(&g, "/capstan.v1.Cluster/ListNodes", PB_LIST_NODES_REQUEST, admin) != ERR_UNAUTHENTICATED);
    CHECK_INT(truncate(g.tokens, 0), 0);
    CHECK_ERR(auth_reload(g.auth, &g.e), ERR_OK);
    CHECK_ERR(guarded_call(&g, "/capstan.v1.Cluster/ListNodes", PB_LIST_NODES_REQUEST, admin), ERR_UNAUTHENTICATED);
    guarded_deinit(&g);
}

/* A stream of events that has nothing to tell. */
/* There is an event to begin with. */
static struct rpc_stream *follow(struct guarded *g, struct rpc_channel *channel)
{
    struct arena arena = {0};
    struct buf bytes = {0};
    struct rpc_stream *stream = NULL;
    struct pb_watch_events_request *message = wire_new(PB_WATCH_EVENTS_REQUEST, &arena);
    message->follow = true;
    wire_encode(message, &bytes);
    struct rpc_request request = {
        .path = "/capstan.v1.ControlPlane/WatchEvents", .bytes = bytes.data, .n = bytes.n, .timeout_ms = 60000};
    CHECK_ERR(rpc_stream_open(channel, &request, &stream, &g->e), ERR_OK);
    bool is_end = false;
    buf_reset(&bytes);
    CHECK_ERR(rpc_stream_next(stream, &bytes, &is_end, NULL, &g->e), ERR_OK); /* it has begun */
    CHECK(!is_end);
    buf_deinit(&bytes);
    arena_deinit(&arena);
    return stream;
}

/* It leads: else there is nothing to follow. */
static void await_leader(struct guarded *g, struct rpc_channel_options options)
{
    int64_t until_ms = clock_mono_ms() + 30000;
    while (guarded_call(g, "/capstan.v1.Cluster/ListNodes", PB_LIST_NODES_REQUEST, options) != ERR_OK) {
        CHECK(clock_mono_ms() < until_ms);
    }
}

/* What is sent before the end does not matter. */
static enum err read_to_end(struct guarded *g, struct rpc_stream *stream)
{
    struct buf bytes = {0};
    bool is_end = false;
    enum err err = ERR_OK;
    while (err == ERR_OK && !is_end) {
        buf_reset(&bytes);
        err = rpc_stream_next(stream, &bytes, &is_end, NULL, &g->e);
    }
    buf_deinit(&bytes);
    return err;
}

TEST(a_token_that_is_withdrawn_ends_the_streams_that_it_has_opened)
{
    static const char request[] =
        "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer read-token\r\n\r\n";
    struct guarded g;
    struct rpc_channel *channel = NULL;
    struct rpc_channel *kept_channel = NULL;
    struct buf answer = {0};
    guarded_init(&g, NULL);
    struct rpc_channel_options read = {.token = "read-token", .target = service_address(g.service)};
    struct rpc_channel_options submit = {.token = "submit-token", .target = service_address(g.service)};
    await_leader(&g, read);
    talk(service_http_address(g.service), "POST /v1/jobs",
         "Authorization: Bearer submit-token\r\nContent-Type: application/json\r\n",
         "{\"tasks\":[{\"name\":\"a\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0}}]}", &answer);
    CHECK_INT(talk_status(&answer), 200);
    CHECK_ERR(rpc_channel_open(&read, &channel, &g.e), ERR_OK);
    CHECK_ERR(rpc_channel_open(&submit, &kept_channel, &g.e), ERR_OK);
    struct rpc_stream *stream = follow(&g, channel);
    struct rpc_stream *kept = follow(&g, kept_channel);
    int http = talk_dial(service_http_address(g.service), 0);
    talk_send(http, request, sizeof request - 1);
    CHECK(talk_read(http, &answer) > 0); /* it has begun, and rests */
    guarded_take_out(&g, "read");
    CHECK_ERR(auth_reload(g.auth, &g.e), ERR_OK);
    service_tokens_changed(g.service);
    CHECK_ERR(read_to_end(&g, stream), ERR_UNAUTHENTICATED);
    CHECK_STR(g.e.message, "the token 'read-name' was withdrawn, or does not allow this any more");
    while (talk_read(http, &answer) > 0) {
    }
    buf_text(&answer, "");
    CHECK(strstr(answer.data, "event: end") != NULL);
    CHECK(strstr(answer.data, "was withdrawn") != NULL);
    /* Others go on: to the end of the leadership, which says something else. */
    service_stop(g.service);
    g.service = NULL;
    CHECK_ERR(read_to_end(&g, kept), ERR_PRECONDITION);
    close(http);
    rpc_stream_close(stream);
    rpc_stream_close(kept);
    rpc_channel_close(channel);
    rpc_channel_close(kept_channel);
    buf_deinit(&answer);
    guarded_deinit(&g);
}

/* ---- certificates ---- */

struct certs {
    char folder[64];
    struct buf ca;
    struct buf server;
    struct buf server_key;
    struct buf client;
    struct buf client_key;
};

static void read_file(const char *folder, const char *name, struct buf *out)
{
    char path[128];
    char bytes[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    for (size_t n = fread(bytes, 1, sizeof bytes, file); n > 0; n = fread(bytes, 1, sizeof bytes, file)) {
        buf_append(out, bytes, n);
    }
    fclose(file);
}

static void certs_init(struct certs *certs)
{
    char command[2048];
    *certs = (struct certs){.folder = "/tmp/capstan-certs-XXXXXX"};
    CHECK(mkdtemp(certs->folder) != NULL);
    snprintf(command, sizeof command,
             "cd %s && exec >/dev/null 2>&1 && "
             "new='openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes' && "
             "$new -x509 -keyout ca.key -out ca.pem -days 2 -subj /CN=test-ca && "
             "for who in server client; do "
             "  $new -keyout $who.key -out $who.csr -subj /CN=$who && "
             "  printf 'subjectAltName=IP:127.0.0.1,DNS:localhost' >$who.ext && "
             "  openssl x509 -req -in $who.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile $who.ext"
             "    -out $who.pem || exit 1; "
             "done",
             certs->folder);
    CHECK_INT(system(command), 0);
    read_file(certs->folder, "ca.pem", &certs->ca);
    read_file(certs->folder, "server.pem", &certs->server);
    read_file(certs->folder, "server.key", &certs->server_key);
    read_file(certs->folder, "client.pem", &certs->client);
    read_file(certs->folder, "client.key", &certs->client_key);
}

static void certs_deinit(struct certs *certs)
{
    guarded_remove_folder(certs->folder);
    buf_deinit(&certs->ca);
    buf_deinit(&certs->server);
    buf_deinit(&certs->server_key);
    buf_deinit(&certs->client);
    buf_deinit(&certs->client_key);
}

static struct service_tls server_of(const struct certs *certs, const struct certs *clients)
{
    return (struct service_tls){.cert_pem = certs->server.data,
                                .key_pem = certs->server_key.data,
                                .client_ca_pem = clients != NULL ? clients->ca.data : NULL};
}

/* GetLeader needs no token, so what fails is the connection. */
static enum err connect_once(struct guarded *g, const struct certs *trusted, const struct certs *own)
{
    struct rpc_channel_options options = {.tls = trusted != NULL,
                                          .tls_ca_pem = trusted != NULL ? trusted->ca.data : NULL,
                                          .tls_cert_pem = own != NULL ? own->client.data : NULL,
                                          .tls_key_pem = own != NULL ? own->client_key.data : NULL};
    return guarded_call(g, "/capstan.v1.Cluster/GetLeader", PB_GET_LEADER_REQUEST, options);
}

TEST(with_certificates_only_who_trusts_them_is_served_and_tokens_are_asked_for_as_well)
{
    struct guarded g;
    struct certs certs;
    struct certs other;
    certs_init(&certs);
    certs_init(&other);
    struct service_tls tls = server_of(&certs, NULL);
    guarded_init(&g, &tls);
    CHECK_ERR(connect_once(&g, &certs, NULL), ERR_OK);
    CHECK_ERR(connect_once(&g, &other, NULL), ERR_UNAVAILABLE);
    CHECK_ERR(connect_once(&g, NULL, NULL), ERR_UNAVAILABLE); /* plain text */
    struct rpc_channel_options options = {.tls = true, .tls_ca_pem = certs.ca.data};
    CHECK_ERR(guarded_call(&g, "/capstan.v1.ControlPlane/SubmitTasks", PB_SUBMIT_TASKS_REQUEST, options),
              ERR_UNAUTHENTICATED);
    options.token = "worker-token";
    CHECK_ERR(guarded_call(&g, "/capstan.v1.ControlPlane/SubmitTasks", PB_SUBMIT_TASKS_REQUEST, options), ERR_DENIED);
    guarded_deinit(&g);
    certs_deinit(&certs);
    certs_deinit(&other);
}

TEST(clients_that_must_present_a_certificate_need_one_of_the_right_authority)
{
    struct guarded g;
    struct certs certs;
    struct certs other;
    certs_init(&certs);
    certs_init(&other);
    struct service_tls tls = server_of(&certs, &certs);
    guarded_init(&g, &tls);
    CHECK_ERR(connect_once(&g, &certs, &certs), ERR_OK);
    CHECK_ERR(connect_once(&g, &certs, &other), ERR_UNAVAILABLE);
    CHECK_ERR(connect_once(&g, &certs, NULL), ERR_UNAVAILABLE);
    guarded_deinit(&g);
    certs_deinit(&certs);
    certs_deinit(&other);
}

TEST(certificates_are_replaced_while_it_runs_and_bad_ones_are_not_taken)
{
    struct guarded g;
    struct certs certs;
    struct certs next;
    certs_init(&certs);
    certs_init(&next);
    struct service_tls tls = server_of(&certs, NULL);
    guarded_init(&g, &tls);
    CHECK_ERR(connect_once(&g, &next, NULL), ERR_UNAVAILABLE);
    struct service_tls bad = {.cert_pem = next.server.data, .key_pem = certs.server_key.data};
    CHECK_ERR(service_reload_tls(g.service, &bad, &g.e), ERR_INVALID);
    CHECK_ERR(connect_once(&g, &certs, NULL), ERR_OK);
    struct service_tls good = server_of(&next, NULL);
    CHECK_ERR(service_reload_tls(g.service, &good, &g.e), ERR_OK);
    CHECK_ERR(connect_once(&g, &next, NULL), ERR_OK);
    CHECK_ERR(connect_once(&g, &certs, NULL), ERR_UNAVAILABLE);
    guarded_deinit(&g);
    certs_deinit(&certs);
    certs_deinit(&next);
}

/* ---- HTTP over TLS ---- */

#define RELOADS 12 /* more than daemons with old certificates are kept */

struct secure {
    gnutls_session_t session;
    gnutls_certificate_credentials_t credentials;
    int fd;
};

/* Whose certificate it is does not matter here. */
static void secure_open(struct secure *s, const char *address)
{
    CHECK_INT(gnutls_certificate_allocate_credentials(&s->credentials), 0);
    CHECK_INT(gnutls_init(&s->session, GNUTLS_CLIENT), 0);
    CHECK_INT(gnutls_set_default_priority(s->session), 0);
    CHECK_INT(gnutls_credentials_set(s->session, GNUTLS_CRD_CERTIFICATE, s->credentials), 0);
    s->fd = talk_dial(address, 0);
    gnutls_transport_set_int(s->session, s->fd);
    CHECK_INT(gnutls_handshake(s->session), 0);
}

static void secure_close(struct secure *s)
{
    gnutls_deinit(s->session);
    gnutls_certificate_free_credentials(s->credentials);
    close(s->fd);
}

/* Reads until there is nothing more; true if the last that came was the end of the connection. */
static bool secure_ends(struct secure *s)
{
    char bytes[4096];
    ssize_t n;
    do {
        n = gnutls_record_recv(s->session, bytes, sizeof bytes);
    } while (n > 0);
    return n != GNUTLS_E_AGAIN;
}

static void secure_follow(struct secure *s, const char *address)
{
    static const char follow[] =
        "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer read-token\r\n\r\n";
    char bytes[4096];
    secure_open(s, address);
    CHECK(gnutls_record_send(s->session, follow, sizeof follow - 1) == (ssize_t)sizeof follow - 1);
    ssize_t n = gnutls_record_recv(s->session, bytes, sizeof bytes - 1);
    CHECK(n > 0);
    bytes[n] = '\0';
    CHECK(strstr(bytes, "200 OK") != NULL);
}

TEST(certificates_are_replaced_however_often_whoever_still_reads_a_stream)
{
    struct guarded g;
    struct certs certs[2];
    struct secure streams[RELOADS];
    certs_init(&certs[0]);
    certs_init(&certs[1]);
    struct service_tls tls = server_of(&certs[0], NULL);
    guarded_init(&g, &tls);
    await_leader(&g, (struct rpc_channel_options){.tls = true, .tls_ca_pem = certs[0].ca.data, .token = "read-token"});
    for (int i = 0; i < RELOADS; i++) {
        struct service_tls next = server_of(&certs[(i + 1) % 2], NULL);
        secure_follow(&streams[i], service_http_address(g.service));
        CHECK_ERR(service_reload_tls(g.service, &next, &g.e), ERR_OK);
        CHECK_ERR(connect_once(&g, &certs[(i + 1) % 2], NULL), ERR_OK);
    }
    CHECK(secure_ends(&streams[0])); /* the oldest had to go */
    struct secure fresh;
    secure_follow(&fresh, service_http_address(g.service));
    secure_close(&fresh);
    for (int i = 0; i < RELOADS; i++) {
        secure_close(&streams[i]);
    }
    guarded_deinit(&g);
    certs_deinit(&certs[0]);
    certs_deinit(&certs[1]);
}
