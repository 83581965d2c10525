/*
 * Who may call what, over real gRPC: every method with every kind of token, and certificates. The table below says what is
 * expected of each method; one that is new in SERVICE_TABLE and not here fails the test.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sha256.h"
#include "coordinator/auth.h"
#include "coordinator/service_internal.h"
#include "store/store.h"
#include "test.h"

#define CALL_MS 30000

/* ---- a coordinator with tokens or certificates ---- */

struct guarded {
    char folder[64];
    char url[96];
    char tokens[96];
    struct auth *auth;
    struct service *service;
    struct error e;
};

static const char *const scope_names[] = {"read", "submit", "worker", "admin"};

/* The tokens are called as their scopes: "read-token" and so on. */
static void write_tokens(const struct guarded *g)
{
    FILE *file = fopen(g->tokens, "w");
    CHECK(file != NULL);
    for (size_t i = 0; i < ARRAY_LEN(scope_names); i++) {
        char token[32];
        uint8_t digest[SHA256_BYTES];
        char hex[2 * SHA256_BYTES + 1];
        snprintf(token, sizeof token, "%s-token", scope_names[i]);
        sha256_once(token, strlen(token), digest);
        hex_encode(digest, sizeof digest, hex);
        fprintf(file, "%s %s-name %s\n", hex, scope_names[i], scope_names[i]);
    }
    CHECK_INT(fclose(file), 0);
}

static void guarded_init(struct guarded *g, const struct service_tls *tls)
{
    struct store *store = NULL;
    *g = (struct guarded){.folder = "/tmp/capstan-guarded-XXXXXX"};
    log_setup(LOG_NONE, false);
    CHECK(mkdtemp(g->folder) != NULL);
    snprintf(g->url, sizeof g->url, "sqlite:%s/state.db", g->folder);
    snprintf(g->tokens, sizeof g->tokens, "%s/tokens", g->folder);
    write_tokens(g);
    CHECK_ERR(auth_open(g->tokens, &g->auth, &g->e), ERR_OK);
    CHECK_ERR(store_open(g->url, &store, &g->e), ERR_OK);
    CHECK_ERR(store_migrate(store, STORE_NEWEST, &g->e), ERR_OK);
    store_close(store);
    struct service_options options = {.store_url = g->url,
                                      .node_id = "n1",
                                      .listen = "127.0.0.1:0",
                                      .settings = settings_default(),
                                      .auth = g->auth,
                                      .tls = tls != NULL ? *tls : (struct service_tls){0}};
    CHECK_ERR(service_start(&options, &g->service, &g->e), ERR_OK);
}

static void remove_folder(const char *folder)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_INT(system(command), 0);
}

static void guarded_deinit(struct guarded *g)
{
    service_stop(g->service);
    auth_close(g->auth);
    remove_folder(g->folder);
}

/*
 * Sends a message with nothing in it, over a connection of its own, and says how the first answer went. Streams and single
 * answers look alike from here. What comes of the call is not the subject, only whether it was let in.
 */
static enum err call_once(struct guarded *g, const char *path, enum pb_kind kind, struct rpc_channel_options options)
{
    struct rpc_channel *channel = NULL;
    struct rpc_stream *stream = NULL;
    struct arena arena = {0};
    struct buf bytes = {0};
    struct buf answer = {0};
    bool is_end = false;
    wire_encode(wire_new(kind, &arena), &bytes);
    options.target = service_address(g->service);
    struct rpc_request request = {.path = path, .bytes = bytes.data, .n = bytes.n, .timeout_ms = CALL_MS};
    g->e = (struct error){0};
    enum err err = rpc_channel_open(&options, &channel, &g->e);
    if (err == ERR_OK) {
        err = rpc_stream_open(channel, &request, &stream, &g->e);
    }
    if (err == ERR_OK) {
        err = rpc_stream_next(stream, &answer, &is_end, NULL, &g->e);
    }
    rpc_stream_close(stream);
    rpc_channel_close(channel);
    buf_deinit(&bytes);
    buf_deinit(&answer);
    arena_deinit(&arena);
    return err;
}

/* ---- the matrix ---- */

/* Who is let in: n nobody in particular (no token), r read, s submit, w worker, a admin. */
static const struct {
    const char *method;
    const char *allowed;
} matrix[] = {
    {"SubmitQuery", "sa"},
    {"SubmitTasks", "sa"},
    {"GetQueryStatus", "rswa"},
    {"CancelQuery", "sa"},
    {"RetryJob", "sa"},
    {"FetchQueryResults", "rswa"},
    {"ListJobs", "rswa"},
    {"ListTasks", "rswa"},
    {"WhyPending", "rswa"},
    {"WatchEvents", "rswa"},
    {"GetTask", "wa"},
    {"ReportTaskStatus", "wa"},
    {"RegisterQueryResults", "wa"},
    {"RegisterMapOutput", "wa"},
    {"RegisterWorker", "wa"},
    {"Heartbeat", "wa"},
    {"DeregisterWorker", "wa"},
    {"GetLeader", "nrswa"},
    {"ListNodes", "rswa"},
    {"SetNode", "a"},
    {"GetSnapshot", "rswa"},
    {"PutTable", "sa"},
    {"ListTables", "rswa"},
    {"DeleteTable", "sa"},
};

static const struct {
    const char *method;
    const char *path;
    enum pb_kind kind;
} methods[] = {
#define ROW(service, method, kind, scope) {#method, "/capstan.v1." #service "/" #method, kind},
    SERVICE_TABLE(ROW)
#undef ROW
};

static const char *allowed_for(const char *method)
{
    for (size_t i = 0; i < ARRAY_LEN(matrix); i++) {
        if (strcmp(matrix[i].method, method) == 0) {
            return matrix[i].allowed;
        }
    }
    return NULL;
}

TEST(every_method_lets_in_exactly_the_tokens_that_are_meant_for_it)
{
    struct guarded g;
    guarded_init(&g, NULL);
    CHECK_INT(ARRAY_LEN(methods), ARRAY_LEN(matrix));
    for (size_t m = 0; m < ARRAY_LEN(methods); m++) {
        const char *allowed = allowed_for(methods[m].method);
        CHECK_STR(allowed == NULL ? methods[m].method : "", ""); /* a method that nobody has thought of */
        for (size_t s = 0; s <= ARRAY_LEN(scope_names); s++) {
            char token[32] = "";
            char who = s == 0 ? 'n' : scope_names[s - 1][0];
            snprintf(token, sizeof token, "%s-token", s == 0 ? "" : scope_names[s - 1]);
            enum err err = call_once(&g, methods[m].path, methods[m].kind,
                                     (struct rpc_channel_options){.token = s == 0 ? NULL : token});
            bool is_in = err != ERR_UNAUTHENTICATED && err != ERR_DENIED;
            char seen[96];
            char expected[96];
            snprintf(seen, sizeof seen, "%s by %c: %s", methods[m].method, who, is_in ? "in" : err_name(err));
            snprintf(expected, sizeof expected, "%s by %c: %s", methods[m].method, who,
                     strchr(allowed, who) != NULL ? "in"
                     : s == 0                     ? err_name(ERR_UNAUTHENTICATED)
                                                  : err_name(ERR_DENIED));
            CHECK_STR(seen, expected);
        }
        CHECK_ERR(strchr(allowed, 'n') != NULL ? ERR_UNAUTHENTICATED
                                               : call_once(&g, methods[m].path, methods[m].kind,
                                                           (struct rpc_channel_options){.token = "admin-token2"}),
                  ERR_UNAUTHENTICATED);
    }
    guarded_deinit(&g);
}

TEST(a_refusal_says_what_is_missing_and_what_to_do)
{
    struct guarded g;
    guarded_init(&g, NULL);
    CHECK_ERR(call_once(&g, "/capstan.v1.ControlPlane/CancelQuery", PB_CANCEL_QUERY_REQUEST,
                        (struct rpc_channel_options){.token = "read-token"}),
              ERR_DENIED);
    CHECK_STR(g.e.message, "the token 'read-name' does not allow this: it needs the scope submit");
    CHECK_ERR(call_once(&g, "/capstan.v1.Cluster/ListNodes", PB_LIST_NODES_REQUEST, (struct rpc_channel_options){0}),
              ERR_UNAUTHENTICATED);
    CHECK(strstr(g.e.hint, "CAPSTAN_TOKEN") != NULL);
    guarded_deinit(&g);
}

TEST(a_token_that_is_taken_out_of_the_file_is_refused_from_then_on)
{
    struct guarded g;
    struct rpc_channel_options admin = {.token = "admin-token"};
    guarded_init(&g, NULL);
    CHECK(call_once(&g, "/capstan.v1.Cluster/ListNodes", PB_LIST_NODES_REQUEST, admin) != ERR_UNAUTHENTICATED);
    CHECK_INT(truncate(g.tokens, 0), 0);
    CHECK_ERR(auth_reload(g.auth, &g.e), ERR_OK);
    CHECK_ERR(call_once(&g, "/capstan.v1.Cluster/ListNodes", PB_LIST_NODES_REQUEST, admin), ERR_UNAUTHENTICATED);
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
    remove_folder(certs->folder);
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
    return call_once(g, "/capstan.v1.Cluster/GetLeader", PB_GET_LEADER_REQUEST, options);
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
    CHECK_ERR(call_once(&g, "/capstan.v1.ControlPlane/SubmitTasks", PB_SUBMIT_TASKS_REQUEST, options),
              ERR_UNAUTHENTICATED);
    options.token = "worker-token";
    CHECK_ERR(call_once(&g, "/capstan.v1.ControlPlane/SubmitTasks", PB_SUBMIT_TASKS_REQUEST, options), ERR_DENIED);
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
