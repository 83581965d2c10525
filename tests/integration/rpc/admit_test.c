/* Calls that are looked at before their message is read. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/rpc.h"
#include "test.h"

static atomic_uint n_served;
static const char note_text[] = "known";

static void say_note(void *context, struct rpc_call *call)
{
    const char *note = rpc_call_note(call);
    UNUSED(context);
    atomic_fetch_add(&n_served, 1);
    rpc_call_reply(call, note == NULL ? "" : note, note == NULL ? 0 : strlen(note));
}

static enum err admit(void *context, uint32_t method, struct rpc_call *call, const void **out_note, struct error *e)
{
    const char *token = rpc_call_metadata(call, RPC_TOKEN_KEY);
    UNUSED(context);
    if (method == 1) {
        return ERR_OK; /* everybody, and nothing is noted */
    }
    if (token == NULL || strcmp(token, "Bearer good") != 0) {
        error_set(e, ERR_DENIED, "not you");
        error_hint(e, "ask somebody");
        return ERR_DENIED;
    }
    *out_note = note_text;
    return ERR_OK;
}

static enum err call(struct rpc_server *server, const char *path, const char *token, size_t n_bytes, struct buf *answer,
                     struct error *e)
{
    struct rpc_channel_options options = {.target = rpc_server_address(server), .token = token};
    struct rpc_channel *channel = NULL;
    void *bytes = calloc(1, n_bytes + 1);
    struct rpc_request request = {
        .path = path, .bytes = bytes, .n = n_bytes, .timeout_ms = 30000, .wait_for_ready = true};
    CHECK_ERR(rpc_channel_open(&options, &channel, e), ERR_OK);
    buf_reset(answer);
    enum err err = rpc_unary(channel, &request, answer, NULL, e);
    buf_text(answer, "");
    rpc_channel_close(channel);
    free(bytes);
    return err;
}

TEST(a_call_that_is_not_let_in_never_reaches_its_handler_whatever_it_sends)
{
    /* The numbers are those of this table, not of the order in which the server keeps it. */
    static const struct rpc_method methods[] = {{"/t/Some", say_note}, {"/t/Any", say_note}};
    struct rpc_server_options options = {
        .listen = "127.0.0.1:0", .methods = methods, .n_methods = 2, .admit = admit, .message_bytes_max = 1000};
    struct rpc_server *server = NULL;
    struct buf answer = {0};
    struct error e = {0};
    atomic_store(&n_served, 0);
    CHECK_ERR(rpc_server_open(&options, &server, &e), ERR_OK);
    CHECK_ERR(call(server, "/t/Some", NULL, 10, &answer, &e), ERR_DENIED);
    CHECK_STR(e.message, "not you");
    CHECK_STR(e.hint, "ask somebody");
    CHECK_ERR(call(server, "/t/Some", "bad", 10, &answer, &e), ERR_DENIED);
    CHECK_ERR(call(server, "/t/Some", "bad", 50000000, &answer, &e), ERR_DENIED); /* not "too large": it is not read */
    CHECK_UINT(atomic_load(&n_served), 0);
    CHECK_ERR(call(server, "/t/Some", "good", 10, &answer, &e), ERR_OK);
    CHECK_STR(answer.data, "known");
    CHECK_ERR(call(server, "/t/Some", "good", 2000, &answer, &e), ERR_EXHAUSTED);
    CHECK_ERR(call(server, "/t/Any", NULL, 10, &answer, &e), ERR_OK);
    CHECK_STR(answer.data, "");
    CHECK_UINT(atomic_load(&n_served), 2);
    buf_deinit(&answer);
    rpc_server_close(server, 0);
}
