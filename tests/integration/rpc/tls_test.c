/* Certificates, made here with the openssl command. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "integration/rpc/loop.h"

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
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    for (size_t n = fread(bytes, 1, sizeof(bytes), file); n > 0; n = fread(bytes, 1, sizeof(bytes), file)) {
        buf_append(out, bytes, n);
    }
    fclose(file);
}

static void certs_init(struct certs *certs)
{
    *certs = (struct certs){.folder = "/tmp/capstan-tls-XXXXXX"};
    CHECK(mkdtemp(certs->folder) != NULL);
    char command[2048];
    snprintf(command, sizeof(command),
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
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", certs->folder);
    CHECK_INT(system(command), 0);
    buf_deinit(&certs->ca);
    buf_deinit(&certs->server);
    buf_deinit(&certs->server_key);
    buf_deinit(&certs->client);
    buf_deinit(&certs->client_key);
}

static void open_tls(struct loop *loop, const struct certs *certs, bool wants_client_cert)
{
    *loop = (struct loop){0};
    struct rpc_server_options options = loop_options(loop);
    options.tls_cert_pem = certs->server.data;
    options.tls_key_pem = certs->server_key.data;
    options.tls_client_ca_pem = wants_client_cert ? certs->ca.data : NULL;
    loop_open_with(loop, &options); /* the loop's own channel is without TLS */
}

/* One call over a connection of its own. */
static enum err call_once(struct loop *loop, struct rpc_channel_options options)
{
    struct rpc_channel *channel = NULL;
    struct buf out = {0};
    options.target = rpc_server_address(loop->server);
    enum err err = rpc_channel_open(&options, &channel, &loop->e);
    if (err == ERR_OK) {
        struct rpc_request request = {.path = "/t/Echo", .bytes = "x", .n = 1, .timeout_ms = 10000};
        err = rpc_unary(channel, &request, &out, NULL, &loop->e);
    }
    rpc_channel_close(channel);
    buf_deinit(&out);
    return err;
}

TEST(a_server_with_a_certificate_is_believed_by_who_trusts_its_ca_and_by_nobody_else)
{
    struct certs certs;
    struct certs other;
    struct loop loop;
    certs_init(&certs);
    certs_init(&other);
    open_tls(&loop, &certs, false);
    CHECK_ERR(call_once(&loop, (struct rpc_channel_options){.tls = true, .tls_ca_pem = certs.ca.data}), ERR_OK);
    CHECK_ERR(call_once(&loop, (struct rpc_channel_options){.tls = true, .tls_ca_pem = other.ca.data}),
              ERR_UNAVAILABLE);
    CHECK_ERR(call_once(&loop, (struct rpc_channel_options){.tls = true}), ERR_UNAVAILABLE); /* the system's */
    CHECK_ERR(call_once(&loop, (struct rpc_channel_options){0}), ERR_UNAVAILABLE);           /* without TLS */
    loop_close(&loop);
    certs_deinit(&certs);
    certs_deinit(&other);
}

TEST(a_token_travels_over_tls)
{
    struct certs certs;
    struct loop loop;
    certs_init(&certs);
    open_tls(&loop, &certs, false);
    struct rpc_channel *channel = NULL;
    struct rpc_channel_options options = {
        .target = rpc_server_address(loop.server), .tls = true, .tls_ca_pem = certs.ca.data, .token = "t0ken"};
    CHECK_ERR(rpc_channel_open(&options, &channel, &loop.e), ERR_OK);
    struct buf out = {0};
    CHECK_ERR(rpc_unary(channel, &(struct rpc_request){.path = "/t/Token"}, &out, NULL, &loop.e), ERR_OK);
    CHECK_STR(out.data, "Bearer t0ken");
    buf_deinit(&out);
    rpc_channel_close(channel);
    loop_close(&loop);
    certs_deinit(&certs);
}

TEST(a_server_that_wants_client_certificates_takes_only_those_of_its_ca)
{
    struct certs certs;
    struct certs other;
    struct loop loop;
    certs_init(&certs);
    certs_init(&other);
    open_tls(&loop, &certs, true);
    struct rpc_channel_options options = {.tls = true,
                                          .tls_ca_pem = certs.ca.data,
                                          .tls_cert_pem = certs.client.data,
                                          .tls_key_pem = certs.client_key.data};
    CHECK_ERR(call_once(&loop, options), ERR_OK);
    CHECK_ERR(call_once(&loop, (struct rpc_channel_options){.tls = true, .tls_ca_pem = certs.ca.data}),
              ERR_UNAVAILABLE);
    options.tls_cert_pem = other.client.data;
    options.tls_key_pem = other.client_key.data;
    CHECK_ERR(call_once(&loop, options), ERR_UNAVAILABLE);
    loop_close(&loop);
    certs_deinit(&certs);
    certs_deinit(&other);
}

TEST(certificates_that_cannot_be_used_are_refused_at_the_start)
{
    struct certs certs;
    struct loop loop = {0};
    struct rpc_server *server = NULL;
    struct rpc_channel *channel = NULL;
    certs_init(&certs);
    const struct {
        const char *cert;
        const char *key;
        const char *ca;
    } wrong[] = {
        {certs.server.data, NULL, NULL},
        {NULL, certs.server_key.data, NULL},
        {NULL, NULL, certs.ca.data},
        {certs.server.data, certs.client_key.data, NULL}, /* somebody else's key */
        {"cert.pem", "key.pem", NULL},                    /* paths are no certificates */
        {certs.server.data, "nonsense", NULL},
        {certs.server.data, certs.server_key.data, "nonsense"},
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct rpc_server_options options = loop_options(&loop);
        options.tls_cert_pem = wrong[i].cert;
        options.tls_key_pem = wrong[i].key;
        options.tls_client_ca_pem = wrong[i].ca;
        CHECK_ERR(rpc_server_open(&options, &server, &loop.e), ERR_INVALID);
        CHECK(server == NULL);
        if (wrong[i].ca == NULL) {
            struct rpc_channel_options client = {
                .target = "h:1", .tls = true, .tls_cert_pem = wrong[i].cert, .tls_key_pem = wrong[i].key};
            CHECK_ERR(rpc_channel_open(&client, &channel, &loop.e), ERR_INVALID);
        }
    }
    struct rpc_channel_options client = {.target = "h:1", .tls = true, .tls_ca_pem = "ca.pem"};
    CHECK_ERR(rpc_channel_open(&client, &channel, &loop.e), ERR_INVALID);
    certs_deinit(&certs);
}

TEST(certificates_can_be_replaced_while_the_server_runs)
{
    struct certs first;
    struct certs second;
    struct loop loop;
    certs_init(&first);
    certs_init(&second);
    open_tls(&loop, &first, false);
    struct rpc_channel_options trusts_first = {.tls = true, .tls_ca_pem = first.ca.data};
    struct rpc_channel_options trusts_second = {.tls = true, .tls_ca_pem = second.ca.data};
    CHECK_ERR(call_once(&loop, trusts_first), ERR_OK);
    CHECK_ERR(rpc_server_reload_tls(loop.server, first.server.data, second.server_key.data, NULL, &loop.e),
              ERR_INVALID);
    CHECK_ERR(call_once(&loop, trusts_first), ERR_OK); /* the old ones stay */
    CHECK_ERR(rpc_server_reload_tls(loop.server, second.server.data, second.server_key.data, NULL, &loop.e), ERR_OK);
    CHECK_ERR(call_once(&loop, trusts_second), ERR_OK);
    CHECK_ERR(call_once(&loop, trusts_first), ERR_UNAVAILABLE);
    CHECK_ERR(rpc_server_reload_tls(loop.server, second.server.data, second.server_key.data, second.ca.data, &loop.e),
              ERR_INVALID);
    loop_close(&loop);

    loop_open(&loop);
    CHECK_ERR(rpc_server_reload_tls(loop.server, first.server.data, first.server_key.data, NULL, &loop.e),
              ERR_PRECONDITION);
    loop_close(&loop);
    certs_deinit(&first);
    certs_deinit(&second);
}

static struct rpc_identity_pems identity_of(const struct certs *certs)
{
    return (struct rpc_identity_pems){.ca = certs->ca.data, .cert = certs->client.data, .key = certs->client_key.data};
}

static enum err echo_over(struct loop *loop, struct rpc_channel *channel)
{
    struct buf out = {0};
    struct rpc_request request = {.path = "/t/Echo", .bytes = "x", .n = 1, .timeout_ms = 10000};
    enum err err = rpc_unary(channel, &request, &out, NULL, &loop->e);
    buf_deinit(&out);
    return err;
}

/* The server's certificate and the authority of its clients become those of `certs`, for new connections. */
static void move_server(struct loop *loop, const struct certs *certs)
{
    CHECK_ERR(rpc_server_reload_tls(loop->server, certs->server.data, certs->server_key.data, certs->ca.data, &loop->e),
              ERR_OK);
}

TEST(a_channel_presents_and_trusts_what_its_identity_is_at_the_moment)
{
    struct certs first;
    struct certs second;
    struct loop loop;
    struct rpc_identity *identity = NULL;
    struct rpc_channel *channel = NULL;
    certs_init(&first);
    certs_init(&second);
    open_tls(&loop, &first, true);
    struct rpc_identity_pems pems = identity_of(&first);
    CHECK_ERR(rpc_identity_open(&pems, &identity, &loop.e), ERR_OK);
    struct rpc_channel_options options = {.target = rpc_server_address(loop.server), .tls = true, .identity = identity};
    CHECK_ERR(rpc_channel_open(&options, &channel, &loop.e), ERR_OK);
    CHECK_ERR(echo_over(&loop, channel), ERR_OK);

    move_server(&loop, &second);
    CHECK_ERR(echo_over(&loop, channel), ERR_OK); /* the connection that is there goes on */
    CHECK_ERR(rpc_identity_replace(identity, &pems, &loop.e), ERR_OK);
    CHECK_ERR(echo_over(&loop, channel), ERR_OK); /* nothing was new, so the same connection */
    pems = identity_of(&second);
    CHECK_ERR(rpc_identity_replace(identity, &pems, &loop.e), ERR_OK);
    CHECK_ERR(echo_over(&loop, channel), ERR_OK); /* a new one, where the old identity is nobody any more */

    pems = identity_of(&first);
    CHECK_ERR(rpc_identity_replace(identity, &pems, &loop.e), ERR_OK);
    CHECK_ERR(echo_over(&loop, channel), ERR_UNAVAILABLE);
    pems.ca = second.ca.data; /* now it trusts the server, but is not trusted by it */
    CHECK_ERR(rpc_identity_replace(identity, &pems, &loop.e), ERR_OK);
    CHECK_ERR(echo_over(&loop, channel), ERR_UNAVAILABLE);
    move_server(&loop, &first);
    pems = identity_of(&first);
    CHECK_ERR(rpc_identity_replace(identity, &pems, &loop.e), ERR_OK);
    CHECK_ERR(echo_over(&loop, channel), ERR_OK);
    rpc_channel_close(channel);
    rpc_identity_close(identity);
    loop_close(&loop);
    certs_deinit(&first);
    certs_deinit(&second);
}

TEST(calls_that_are_under_way_end_where_they_are_when_the_identity_changes)
{
    struct certs first;
    struct certs second;
    struct loop loop;
    struct rpc_identity *identity = NULL;
    struct rpc_channel *channel = NULL;
    certs_init(&first);
    certs_init(&second);
    open_tls(&loop, &first, true);
    struct rpc_identity_pems pems = identity_of(&first);
    CHECK_ERR(rpc_identity_open(&pems, &identity, &loop.e), ERR_OK);
    struct rpc_channel_options options = {.target = rpc_server_address(loop.server), .tls = true, .identity = identity};
    CHECK_ERR(rpc_channel_open(&options, &channel, &loop.e), ERR_OK);
    struct loop_caller callers[2];
    for (uint32_t i = 0; i < 2; i++) { /* one over the first identity, one over the second */
        callers[i] = (struct loop_caller){.loop = &loop,
                                          .channel = channel,
                                          .request = {.path = "/t/Hold", .bytes = "y", .n = 1, .timeout_ms = 20000}};
        loop_caller_start(&callers[i]);
        CHECK(loop_await(&loop, &loop.n_held, i + 1));
        if (i == 0) {
            move_server(&loop, &second);
            pems = identity_of(&second);
            CHECK_ERR(rpc_identity_replace(identity, &pems, &loop.e), ERR_OK);
        }
    }
    CHECK_ERR(echo_over(&loop, channel), ERR_OK);
    for (uint32_t i = 0; i < 2; i++) {
        rpc_call_reply(loop_take(&loop), "z", 1);
    }
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_ERR(loop_caller_join(&callers[i]), ERR_OK);
        buf_deinit(&callers[i].out);
    }
    rpc_channel_close(channel);
    rpc_identity_close(identity);
    loop_close(&loop);
    certs_deinit(&first);
    certs_deinit(&second);
}

TEST(an_identity_that_cannot_be_used_leaves_the_one_before)
{
    struct certs certs;
    struct certs other;
    struct loop loop;
    struct rpc_identity *identity = NULL;
    struct rpc_identity *none = NULL;
    struct rpc_channel *channel = NULL;
    certs_init(&certs);
    certs_init(&other);
    open_tls(&loop, &certs, true);
    struct rpc_identity_pems good = identity_of(&certs);
    CHECK_ERR(rpc_identity_open(&good, &identity, &loop.e), ERR_OK);
    struct rpc_channel_options options = {.target = rpc_server_address(loop.server), .tls = true, .identity = identity};
    CHECK_ERR(rpc_channel_open(&options, &channel, &loop.e), ERR_OK);
    const struct rpc_identity_pems wrong[] = {
        {.ca = certs.ca.data, .cert = other.client.data, .key = certs.client_key.data},
        {.ca = certs.ca.data, .cert = certs.client.data, .key = ""},
        {.ca = certs.ca.data, .cert = certs.client.data},
        {.ca = "", .cert = certs.client.data, .key = certs.client_key.data},
        {.ca = certs.client_key.data, .cert = certs.client.data, .key = certs.client_key.data},
        {.ca = "-----BEGIN CERTIFICATE-----\nbm90aGluZw==\n-----END CERTIFICATE-----\n"},
        {.ca = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        CHECK_ERR(rpc_identity_replace(identity, &wrong[i], &loop.e), ERR_INVALID);
        CHECK_ERR(rpc_identity_open(&wrong[i], &none, &loop.e), ERR_INVALID);
        CHECK(none == NULL);
        CHECK_ERR(echo_over(&loop, channel), ERR_OK);
    }
    rpc_channel_close(channel);
    CHECK_ERR(rpc_channel_open(&options, &channel, &loop.e), ERR_OK);
    CHECK_ERR(echo_over(&loop, channel), ERR_OK); /* over a connection of its own */
    rpc_channel_close(channel);
    rpc_identity_close(identity);
    loop_close(&loop);
    certs_deinit(&certs);
    certs_deinit(&other);
}

TEST(a_file_of_authorities_of_which_the_end_is_missing_is_not_taken_for_a_shorter_one)
{
    struct certs certs;
    struct certs other;
    struct error e = {0};
    struct rpc_identity *identity = NULL;
    certs_init(&certs);
    certs_init(&other);
    struct buf both = {0};
    buf_text(&both, certs.ca.data);
    size_t first = both.n;
    buf_text(&both, other.ca.data);
    struct rpc_identity_pems pems = {.ca = both.data};
    CHECK_ERR(rpc_identity_open(&pems, &identity, &e), ERR_OK);
    size_t begin = strlen("-----BEGIN CERTIFICATE-----");
    for (size_t n = both.n - 2; n > 0; n--) { /* the last character is the end of the line */
        char after = both.data[n];
        both.data[n] = '\0';
        bool has_first_only = n >= first - 1 && n < first + begin; /* nothing shows that there was to be another */
        CHECK_ERR(rpc_identity_replace(identity, &pems, &e), has_first_only ? ERR_OK : ERR_INVALID);
        both.data[n] = after;
    }
    rpc_identity_close(identity);
    buf_deinit(&both);
    certs_deinit(&certs);
    certs_deinit(&other);
}
