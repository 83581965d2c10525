#include "service/guarded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/sha256.h"
#include "coordinator/auth.h"
#include "store/store.h"
#include "test.h"

#define CALL_MS 30000

const char *const guarded_scopes[GUARDED_SCOPES] = {"read", "submit", "worker", "admin"};

/* The tokens are called as their scopes: "read-token" and so on. */
static void write_tokens(const struct guarded *g, const char *without)
{
    FILE *file = fopen(g->tokens, "w");
    CHECK(file != NULL);
    for (size_t i = 0; i < ARRAY_LEN(guarded_scopes); i++) {
        char token[32];
        uint8_t digest[SHA256_BYTES];
        char hex[2 * SHA256_BYTES + 1];
        if (without != NULL && strcmp(guarded_scopes[i], without) == 0) {
            continue;
        }
        snprintf(token, sizeof token, "%s-token", guarded_scopes[i]);
        sha256_once(token, strlen(token), digest);
        hex_encode(digest, sizeof digest, hex);
        fprintf(file, "%s %s-name %s\n", hex, guarded_scopes[i], guarded_scopes[i]);
    }
    CHECK_INT(fclose(file), 0);
}

void guarded_take_out(const struct guarded *g, const char *scope)
{
    write_tokens(g, scope);
}

void guarded_init(struct guarded *g, const struct service_tls *tls)
{
    guarded_init_with(g, tls, settings_default());
}

void guarded_init_with(struct guarded *g, const struct service_tls *tls, struct settings settings)
{
    struct store *store = NULL;
    *g = (struct guarded){.folder = "/tmp/capstan-guarded-XXXXXX"};
    log_setup(LOG_NONE, false);
    CHECK(mkdtemp(g->folder) != NULL);
    snprintf(g->url, sizeof g->url, "sqlite:%s/state.db", g->folder);
    snprintf(g->tokens, sizeof g->tokens, "%s/tokens", g->folder);
    write_tokens(g, NULL);
    CHECK_ERR(auth_open(g->tokens, &g->auth, &g->e), ERR_OK);
    CHECK_ERR(store_open(g->url, &store, &g->e), ERR_OK);
    CHECK_ERR(store_migrate(store, STORE_NEWEST, &g->e), ERR_OK);
    store_close(store);
    struct service_options options = {.store_url = g->url,
                                      .node_id = "n1",
                                      .listen = "127.0.0.1:0",
                                      .http = tls == NULL || tls->client_ca_pem == NULL ? "127.0.0.1:0" : NULL,
                                      .settings = settings,
                                      .auth = g->auth,
                                      .tls = tls != NULL ? *tls : (struct service_tls){0}};
    CHECK_ERR(service_start(&options, &g->service, &g->e), ERR_OK);
}

void guarded_remove_folder(const char *folder)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_INT(system(command), 0);
}

void guarded_deinit(struct guarded *g)
{
    service_stop(g->service);
    auth_close(g->auth);
    guarded_remove_folder(g->folder);
}

enum err guarded_call(struct guarded *g, const char *path, enum pb_kind kind, struct rpc_channel_options options)
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
