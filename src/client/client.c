#include "client/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"

#define CALL_MS_MAX 30000   /* for an answer that needs no waiting */
#define CONNECTED_MS 6000   /* a try that lasted longer had a connection: making one takes five seconds at most */
#define ELECTION_PATIENCE 3 /* where somebody answers that nobody leads, the patience is so many times as long */
#define PAUSE_MS_MIN 25
#define PAUSE_MS_MAX 500

/* How a coordinator that neither leads nor knows who does begins its refusal. */
#define NOT_LEADING "this coordinator does not lead"

struct server {
    char address[CLIENT_ADDRESS_BYTES];
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
    int64_t patience_ms;
    int64_t deadline_ms;
    int64_t pause_ms;
    uint32_t tried;      /* servers since the last pause */
    uint32_t n_restarts; /* because somebody who was there has gone */
    bool is_election;    /* somebody has said that it does not lead */
    struct error last;
    bool is_answered;                /* `last` is what a coordinator said; from then on, no failure of the network is */
    char from[CLIENT_ADDRESS_BYTES]; /* which one */
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

bool client_server_at(const char *list, uint32_t i, char out[CLIENT_ADDRESS_BYTES])
{
    const char *p = list;
    size_t n = strcspn(p, ",");
    for (; i > 0 && p[n] != '\0'; i--) {
        p += n + 1;
        n = strcspn(p, ",");
    }
    if (i > 0 || n >= CLIENT_ADDRESS_BYTES) {
        return false;
    }
    memcpy(out, p, n);
    out[n] = '\0';
    return true;
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
    char address[CLIENT_ADDRESS_BYTES];
    for (uint32_t i = 0; client_server_at(options->servers, i, address); i++) {
        /* Half of the room stays free for leaders that are learned. */
        if (i >= CLIENT_SERVERS_MAX / 2) {
            err = error_set(e, ERR_INVALID, "too many servers: at most %d", CLIENT_SERVERS_MAX / 2);
            goto out;
        }
        err = rpc_address_check(address, e);
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
    if (rpc_address_check(leader, NULL) != ERR_OK) {
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
    snprintf(client->servers[client->current].address, CLIENT_ADDRESS_BYTES, "%s", leader);
    return true;
}

static void search_begin(const struct client *client, const struct client_call *call, struct search *out)
{
    int64_t patience_ms = call->patience_ms > 0 ? call->patience_ms : client->options.patience_ms;
    *out = (struct search){
        .patience_ms = patience_ms, .deadline_ms = clock_mono_ms() + patience_ms, .pause_ms = PAUSE_MS_MIN};
}

/*
 * A try that began then has failed. If it had a connection for a while, the time was spent waiting for an answer, not
 * looking for a server: the search begins now, and whoever froze has not used up the patience for the others. This
 * happens once per server at most, so that it ends; but a stream that broke may have been silent for hours (`is_quiet`).
 */
static void search_restart(const struct client *client, struct search *search, int64_t began_ms, bool is_quiet)
{
    int64_t now_ms = clock_mono_ms();
    if (now_ms - began_ms > CONNECTED_MS && (is_quiet || search->n_restarts < client->n_servers)) {
        search->n_restarts++;
        search->deadline_ms = now_ms + search->patience_ms;
        search->pause_ms = PAUSE_MS_MIN;
        search->tried = 0;
    }
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

/* It is the next server's turn, which is not the one that was asked just now if there is another. */
static void move_on(struct client *client)
{
    uint32_t failed = client->current;
    client->turn = (client->turn + 1) % client->n_servers;
    if (client->turn == failed) {
        client->turn = (client->turn + 1) % client->n_servers;
    }
    client->current = client->turn;
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
    bool is_away = problem->code == ERR_UNAVAILABLE || problem->code == ERR_BUSY || problem->code == ERR_FENCED ||
                   problem->code == ERR_DEADLINE || was_dropped;
    bool leads_not = problem->code == ERR_PRECONDITION &&
                     (leader[0] != '\0' || strncmp(problem->message, NOT_LEADING, strlen(NOT_LEADING)) == 0);
    int64_t now_ms = clock_mono_ms();
    if (!is_away && !leads_not) {
        *e = *problem;
        return problem->code;
    }
    remember(client, search, problem, trailer->is_answered);
    if (leads_not && !search->is_election) {
        /* The cluster is there and has to elect a leader, which may take it longer than finding a server does. */
        search->is_election = true;
        search->patience_ms *= ELECTION_PATIENCE;
        search->deadline_ms = now_ms + search->patience_ms;
    }
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
        move_on(client);
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
        int64_t began_ms = clock_mono_ms();
        err = rpc_unary(server->channel, &rpc, &answer, &trailer, &problem);
        if (err == ERR_OK) {
            err = wire_decode(call->answer, answer.data, answer.n, arena, out_answer, e);
            break;
        }
        problem.code = err;
        search_restart(client, &search, began_ms, false);
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
        int64_t began_ms = clock_mono_ms();
        enum err err = try_next(s, &is_end, &trailer, &problem);
        if (err == ERR_OK) {
            s->has_begun = true;
            *out_end = is_end;
            return is_end ? ERR_OK : wire_decode(s->call.answer, s->bytes.data, s->bytes.n, arena, out_message, e);
        }
        problem.code = err;
        if (s->has_begun) {
            if (client_may_resume(err)) {
                move_on(s->client); /* one that is frozen would cost the next stream its time, too */
            }
            *e = problem;
            return err;
        }
        rpc_stream_close(s->stream);
        s->stream = NULL;
        search_restart(s->client, &s->search, began_ms, !trailer.is_answered);
        err = search_next(s->client, &s->search, &problem, &trailer, e);
        if (err != ERR_OK) {
            return err;
        }
    }
}

bool client_may_resume(enum err err)
{
    return err == ERR_UNAVAILABLE || err == ERR_BUSY || err == ERR_FENCED || err == ERR_PRECONDITION ||
           err == ERR_CANCELED || err == ERR_DEADLINE;
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
