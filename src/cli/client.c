#include "cli/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/tokens.h"
#include "cli/value.h"

#define CALL_MS_MAX 30000 /* for an answer that needs no waiting */
#define PAUSE_MS_MIN 25
#define PAUSE_MS_MAX 500
#define FILE_BYTES_MAX ((size_t)64 * 1024)

/* How a coordinator that neither leads nor knows who does begins its refusal. */
#define NOT_LEADING "this coordinator does not lead"

struct server {
    char address[VALUE_ADDRESS_BYTES];
    struct rpc_channel *channel; /* NULL: not opened yet */
};

struct client {
    struct client_options options;
    struct server servers[CLIENT_SERVERS_MAX];
    uint32_t n_servers;
    uint32_t current; /* the one that is asked */
    uint32_t turn;    /* the one that was last asked because it was its turn, not because somebody named it */
};

/* The search for a server that answers one call. */
struct search {
    int64_t deadline_ms;
    int64_t pause_ms;
    uint32_t tried; /* servers since the last pause */
    struct error last;
    bool is_answered;               /* `last` is what a coordinator said; from then on, no failure of the network is */
    char from[VALUE_ADDRESS_BYTES]; /* which one */
};

struct client_stream {
    struct client *client;
    struct client_call call;
    struct search search;
    struct buf request;
    struct buf bytes;
    struct rpc_stream *stream; /* NULL: not opened yet */
    bool has_begun;            /* a message came */
};

static char *copy_text(const char *text)
{
    return mem_strdup(text);
}

enum err client_open(const struct client_options *options, struct client **out, struct error *e)
{
    struct client *client = mem_calloc(1, sizeof *client);
    enum err err = ERR_OK;
    client->options = (struct client_options){
        .servers = copy_text(options->servers),
        .token = copy_text(options->token),
        .tls = options->tls,
        .tls_ca_pem = copy_text(options->tls_ca_pem),
        .tls_cert_pem = copy_text(options->tls_cert_pem),
        .tls_key_pem = copy_text(options->tls_key_pem),
        .patience_ms = options->patience_ms,
    };
    char address[VALUE_ADDRESS_BYTES];
    for (uint32_t i = 0; value_list_at(options->servers, i, address, sizeof address); i++) {
        /* Half of the room stays free for leaders that are learned. */
        if (i >= CLIENT_SERVERS_MAX / 2) {
            err = error_set(e, ERR_INVALID, "too many servers: at most %d", CLIENT_SERVERS_MAX / 2);
            goto out;
        }
        err = value_address(address, e);
        if (err != ERR_OK) {
            goto out;
        }
        memcpy(client->servers[client->n_servers++].address, address, sizeof address);
    }
    *out = client;
    client = NULL;
out:
    client_close(client);
    return err;
}

void client_close(struct client *client)
{
    if (client == NULL) {
        return;
    }
    for (uint32_t i = 0; i < client->n_servers; i++) {
        rpc_channel_close(client->servers[i].channel);
    }
    mem_free((char *)client->options.servers);
    mem_free((char *)client->options.token);
    mem_free((char *)client->options.tls_ca_pem);
    mem_free((char *)client->options.tls_cert_pem);
    mem_free((char *)client->options.tls_key_pem);
    mem_free(client);
}

const char *client_server(const struct client *client)
{
    return client->servers[client->current].address;
}

static enum err open_channel(struct client *client, struct server *server, struct error *e)
{
    if (server->channel != NULL) {
        return ERR_OK;
    }
    struct rpc_channel_options options = {
        .target = server->address,
        .token = client->options.token,
        .tls = client->options.tls,
        .tls_ca_pem = client->options.tls_ca_pem,
        .tls_cert_pem = client->options.tls_cert_pem,
        .tls_key_pem = client->options.tls_key_pem,
    };
    return rpc_channel_open(&options, &server->channel, e);
}

/* Makes the named leader the current server. False if it is no address or there is no room for it. */
static bool follow(struct client *client, const char *leader)
{
    if (value_address(leader, NULL) != ERR_OK) {
        return false;
    }
    for (uint32_t i = 0; i < client->n_servers; i++) {
        if (strcmp(client->servers[i].address, leader) == 0) {
            client->current = i;
            return true;
        }
    }
    if (client->n_servers == CLIENT_SERVERS_MAX) {
        return false;
    }
    client->current = client->n_servers++;
    snprintf(client->servers[client->current].address, VALUE_ADDRESS_BYTES, "%s", leader);
    return true;
}

static void search_begin(const struct client *client, const struct client_call *call, struct search *out)
{
    int64_t patience_ms = call->patience_ms > 0 ? call->patience_ms : client->options.patience_ms;
    *out = (struct search){.deadline_ms = clock_mono_ms() + patience_ms, .pause_ms = PAUSE_MS_MIN};
}

static void wait_ms(int64_t ms)
{
    struct timespec time = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&time, &time) != 0 && errno == EINTR) {
    }
}

static enum err give_up(const struct client *client, const struct search *search, struct error *e)
{
    const char *servers = client->options.servers;
    if (search->last.code == ERR_PRECONDITION) {
        error_set(e, ERR_UNAVAILABLE, "no coordinator leads at the moment (asked %s)", servers);
        error_hint(e, "is its store reachable? 'capstan leader' tells when there is one");
    } else if (search->is_answered) {
        error_set(e, ERR_UNAVAILABLE, "the coordinator at %s answers, but cannot serve this at the moment: %s",
                  search->from, search->last.message);
        error_hint(e, "%s",
                   search->last.hint[0] != '\0' ? search->last.hint
                                                : "is its store reachable? its log says more; --timeout waits longer");
    } else {
        error_set(e, ERR_UNAVAILABLE, "cannot reach a coordinator at %s: %s", servers, search->last.message);
        error_hint(e, "%s",
                   client->options.tls ? "does it use TLS? if not, leave out --tls, --tls-ca and --tls-cert"
                                       : "start one with 'capstan up', or say where it is with --server HOST:PORT");
    }
    return ERR_UNAVAILABLE;
}

/* What a coordinator said is worth more to a person than that another one is not there. */
static void remember(const struct client *client, struct search *search, const struct error *problem, bool is_answered)
{
    if (is_answered || !search->is_answered) {
        search->last = *problem;
        search->is_answered = is_answered;
        snprintf(search->from, sizeof search->from, "%s", client_server(client));
    }
}

/*
 * Looks at a failure. ERR_OK: try again, with the server that is current now. Servers are tried one after the other
 * without a pause; after a whole round there is one, which grows.
 */
static enum err search_next(struct client *client, struct search *search, const struct error *problem,
                            const struct rpc_trailer *trailer, struct error *e)
{
    const char *leader = trailer->leader;
    /* A server that stops cancels the calls that it holds. After a cancel of our own, the next try fails with the plain
     * text of the code, before it is sent. */
    bool was_dropped = problem->code == ERR_CANCELED && strcmp(problem->message, err_text(ERR_CANCELED)) != 0;
    bool is_away =
        problem->code == ERR_UNAVAILABLE || problem->code == ERR_BUSY || problem->code == ERR_FENCED || was_dropped;
    bool leads_not = problem->code == ERR_PRECONDITION &&
                     (leader[0] != '\0' || strncmp(problem->message, NOT_LEADING, strlen(NOT_LEADING)) == 0);
    int64_t now_ms = clock_mono_ms();
    if (!is_away && !leads_not) {
        *e = *problem;
        return problem->code;
    }
    remember(client, search, problem, trailer->is_answered);
    if (now_ms >= search->deadline_ms) {
        return give_up(client, search, e);
    }
    search->tried++;
    if (leads_not && leader[0] != '\0' && follow(client, leader)) {
        /* A leader that has just died is named for a while: do not run in circles. */
        if (search->tried <= client->n_servers) {
            return ERR_OK;
        }
    } else {
        client->turn = (client->turn + 1) % client->n_servers;
        client->current = client->turn;
        if (search->tried < client->n_servers) {
            return ERR_OK;
        }
    }
    search->tried = 0;
    int64_t left_ms = search->deadline_ms - now_ms;
    wait_ms(search->pause_ms < left_ms ? search->pause_ms : left_ms);
    search->pause_ms = search->pause_ms * 2 < PAUSE_MS_MAX ? search->pause_ms * 2 : PAUSE_MS_MAX;
    return ERR_OK;
}

/* How long one try may take: a server that accepts and says nothing must not use up the patience of a long wait. */
static int64_t try_ms(const struct client_call *call)
{
    return call->wait_ms + CALL_MS_MAX;
}

enum err client_call(struct client *client, const struct client_call *call, struct arena *arena, void *out_answer,
                     struct error *e)
{
    struct buf request = {0};
    struct buf answer = {0};
    struct search search;
    struct error discarded;
    enum err err = ERR_OK;
    e = e == NULL ? &discarded : e;
    search_begin(client, call, &search);
    wire_encode(call->message, &request);
    for (;;) {
        struct rpc_trailer trailer = {0};
        struct error problem = {0};
        struct server *server = &client->servers[client->current];
        struct rpc_request rpc = {.path = call->path,
                                  .bytes = request.data,
                                  .n = request.n,
                                  .timeout_ms = try_ms(call),
                                  .cancel = call->cancel};
        err = open_channel(client, server, e);
        if (err != ERR_OK) {
            break;
        }
        buf_reset(&answer);
        err = rpc_unary(server->channel, &rpc, &answer, &trailer, &problem);
        if (err == ERR_OK) {
            err = wire_decode(call->answer, answer.data, answer.n, arena, out_answer, e);
            break;
        }
        problem.code = err;
        err = search_next(client, &search, &problem, &trailer, e);
        if (err != ERR_OK) {
            break;
        }
    }
    buf_deinit(&request);
    buf_deinit(&answer);
    return err;
}

void client_stream_open(struct client *client, const struct client_call *call, struct client_stream **out)
{
    struct client_stream *stream = mem_calloc(1, sizeof *stream);
    stream->client = client;
    stream->call = *call;
    wire_encode(call->message, &stream->request);
    search_begin(client, call, &stream->search);
    *out = stream;
}

static enum err try_next(struct client_stream *s, bool *out_end, struct rpc_trailer *trailer, struct error *e)
{
    if (s->stream == NULL) {
        struct server *server = &s->client->servers[s->client->current];
        struct rpc_request rpc = {.path = s->call.path,
                                  .bytes = s->request.data,
                                  .n = s->request.n,
                                  .timeout_ms = s->call.wait_ms,
                                  .cancel = s->call.cancel};
        enum err err = open_channel(s->client, server, e);
        if (err == ERR_OK) {
            err = rpc_stream_open(server->channel, &rpc, &s->stream, e);
        }
        if (err != ERR_OK) {
            return err;
        }
    }
    return rpc_stream_next(s->stream, &s->bytes, out_end, trailer, e);
}

enum err client_stream_next(struct client_stream *s, struct arena *arena, void *out_message, bool *out_end,
                            struct error *e)
{
    for (;;) {
        struct rpc_trailer trailer = {0};
        struct error problem = {0};
        bool is_end = false;
        enum err err = try_next(s, &is_end, &trailer, &problem);
        if (err == ERR_OK) {
            s->has_begun = true;
            *out_end = is_end;
            return is_end ? ERR_OK : wire_decode(s->call.answer, s->bytes.data, s->bytes.n, arena, out_message, e);
        }
        problem.code = err;
        if (s->has_begun) {
            *e = problem;
            return err;
        }
        rpc_stream_close(s->stream);
        s->stream = NULL;
        err = search_next(s->client, &s->search, &problem, &trailer, e);
        if (err != ERR_OK) {
            return err;
        }
    }
}

void client_stream_close(struct client_stream *stream)
{
    if (stream != NULL) {
        rpc_stream_close(stream->stream);
        buf_deinit(&stream->request);
        buf_deinit(&stream->bytes);
        mem_free(stream);
    }
}

/* ---- with the options of a command line ---- */

static enum err read_text(struct cli *cli, const char *option, const char **out, struct error *e)
{
    const char *path = cli_text(cli, option);
    size_t n = 0;
    return path == NULL ? ERR_OK : cli_read_file(cli, path, FILE_BYTES_MAX, out, &n, e);
}

/* What `up` has left for the servers of this command line; NULL if there is nothing. */
static enum err find_left_token(struct cli *cli, const char **out, struct error *e)
{
    static const char *const options[] = {"server", "join"};
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        if (verb_option_find(cli->verb, options[i]) >= 0 && cli_text(cli, options[i]) != NULL) {
            return token_find(&cli->arena, cli_text(cli, options[i]), out, e);
        }
    }
    return ERR_OK;
}

/*
 * The token is the first line of its file, or the variable itself; without either, the one that `up` has left for this
 * user. It is never printed.
 */
static enum err find_token(struct cli *cli, const char **out, struct error *e)
{
    const char *from_environment = getenv("CAPSTAN_TOKEN");
    const char *text = NULL;
    enum err err = ERR_OK;
    if (!cli_is_specific(cli, "token-file") && from_environment != NULL && from_environment[0] != '\0') {
        text = from_environment;
    } else if (cli_text(cli, "token-file") != NULL) {
        err = read_text(cli, "token-file", &text, e);
    } else {
        err = find_left_token(cli, &text, e);
    }
    if (err != ERR_OK || text == NULL) {
        return err;
    }
    size_t n = strcspn(text, "\r\n");
    char *token = arena_copy(&cli->arena, text, n + 1);
    token[n] = '\0';
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)token[i] <= ' ' || (unsigned char)token[i] >= 0x7f) {
            return error_set(e, ERR_INVALID, "the token has characters that a token cannot have");
        }
    }
    *out = n > 0 ? token : NULL;
    return ERR_OK;
}

enum err cli_credentials(struct cli *cli, struct client_options *out, struct error *e)
{
    struct client_options options = *out;
    enum err err = find_token(cli, &options.token, e);
    options.tls = cli_flag(cli, "tls") || cli_text(cli, "tls-ca") != NULL || cli_text(cli, "tls-cert") != NULL;
    if (err == ERR_OK) {
        err = read_text(cli, "tls-ca", &options.tls_ca_pem, e);
    }
    if (err == ERR_OK) {
        err = read_text(cli, "tls-cert", &options.tls_cert_pem, e);
    }
    if (err == ERR_OK) {
        err = read_text(cli, "tls-key", &options.tls_key_pem, e);
    }
    if (err == ERR_OK && (options.tls_cert_pem == NULL) != (options.tls_key_pem == NULL)) {
        err = error_set(e, ERR_INVALID, "--tls-cert and --tls-key belong together");
    }
    if (err == ERR_OK) {
        *out = options;
    }
    return err;
}

enum err cli_read_pem(struct cli *cli, const char *option, const char **out, struct error *e)
{
    return read_text(cli, option, out, e);
}

enum err cli_client_options(struct cli *cli, struct client_options *out, struct error *e)
{
    struct client_options options = {.servers = cli_text(cli, "server"), .patience_ms = cli_number(cli, "timeout")};
    enum err err = cli_credentials(cli, &options, e);
    if (err == ERR_OK) {
        *out = options;
    }
    return err;
}

enum err cli_client(struct cli *cli, struct client **out, struct error *e)
{
    if (cli->client == NULL) {
        struct client_options options;
        enum err err = cli_client_options(cli, &options, e);
        if (err == ERR_OK) {
            err = client_open(&options, &cli->client, e);
        }
        if (err != ERR_OK) {
            return err;
        }
    }
    *out = cli->client;
    return ERR_OK;
}

enum err cli_call(struct cli *cli, const char *path, enum pb_kind answer, const void *message, void *out_answer,
                  struct error *e)
{
    struct client *client = NULL;
    enum err err = cli_client(cli, &client, e);
    if (err != ERR_OK) {
        return err;
    }
    struct client_call call = {.path = path, .message = message, .answer = answer, .cancel = cli->cancel};
    err = client_call(client, &call, &cli->arena, out_answer, e);
    if (err == ERR_UNAUTHENTICATED && e->hint[0] == '\0') {
        error_hint(e, "set CAPSTAN_TOKEN, or name a file with the token: --token-file FILE");
    }
    return err;
}

void *cli_message(struct cli *cli, enum pb_kind kind)
{
    return wire_new(kind, &cli->arena);
}
