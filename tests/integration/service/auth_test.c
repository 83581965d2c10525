/* Refusals, tokens that are withdrawn, and certificates, over real gRPC and HTTP. Who may call what is in matrix_test.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/auth.h"
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
