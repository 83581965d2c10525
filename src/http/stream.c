/* Requests whose answer comes later: suspended connections, and streams that their readers pull. */
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "http/http_internal.h"

#define BLOCK_BYTES ((size_t)64 * 1024) /* that libmicrohttpd asks for at a time */

/* ---- suspending ---- */

void http__busy(struct http_request *request, int change)
{
    request->daemon->n_busy += (uint32_t)change;
    request->server->n_busy += (uint32_t)change;
    if (change < 0) {
        pthread_cond_broadcast(&request->server->changed);
    }
}

/* The lock is held, and a callback of the connection runs. */
static void suspend(struct http_request *request)
{
    request->is_suspended = true;
    http__busy(request, 1);
    MHD_suspend_connection(request->connection);
}

/* The lock is held. */
static void wake(struct http_request *request)
{
    if (request->is_suspended) {
        request->is_suspended = false;
        http__busy(request, -1);
        MHD_resume_connection(request->connection);
    }
}

/* The owner lets go; true if the request is the caller's to free. The lock is held. */
static bool let_go(struct http_request *request)
{
    request->is_held = false;
    request->server->n_held--;
    pthread_cond_broadcast(&request->server->changed);
    if (request->is_stream) {
        list_remove(&request->in_streams);
    }
    return request->is_completed;
}

void http_request_defer(struct http_request *request)
{
    struct http_server *server = request->server;
    pthread_mutex_lock(&server->lock);
    request->is_deferred = true;
    request->is_held = true;
    server->n_held++;
    suspend(request);
    pthread_mutex_unlock(&server->lock);
}

void http_request_answer(struct http_request *request, struct http_answer *answer)
{
    struct http_server *server = request->server;
    pthread_mutex_lock(&server->lock);
    ASSERT(!request->is_stream);
    request->answer = *answer;
    answer->body = (struct buf){0};
    request->is_ready = true;
    bool is_last = let_go(request);
    ASSERT(!is_last); /* what is suspended cannot complete */
    wake(request);
    pthread_mutex_unlock(&server->lock);
}

/* ---- streams ---- */

void http_stream_begin(struct http_request *request, int status, const char *type, const char *pulse)
{
    struct http_server *server = request->server;
    pthread_mutex_lock(&server->lock);
    request->answer.status = status;
    request->answer.type = type;
    request->pulse = pulse;
    request->is_stream = true;
    request->is_ready = true;
    list_push_back(&server->streams, &request->in_streams);
    wake(request);
    pthread_mutex_unlock(&server->lock);
}

void http_stream_send(struct http_request *request, struct buf *chunk, http_sent_fn *sent, void *context)
{
    struct http_server *server = request->server;
    pthread_mutex_lock(&server->lock);
    ASSERT(request->sent == NULL);
    bool is_gone = request->is_completed;
    if (!is_gone) {
        if (request->taken == request->chunk.n) {
            buf_deinit(&request->chunk);
            request->chunk = *chunk;
            request->taken = 0;
            *chunk = (struct buf){0};
        } else {
            buf_append(&request->chunk, chunk->data, chunk->n); /* behind a pulse */
        }
        request->sent = sent;
        request->sent_context = context;
        wake(request);
    }
    pthread_mutex_unlock(&server->lock);
    buf_deinit(chunk);
    if (is_gone) {
        sent(context, false);
    }
}

void http_stream_end(struct http_request *request, bool ok)
{
    struct http_server *server = request->server;
    pthread_mutex_lock(&server->lock);
    while (request->is_telling && !pthread_equal(request->teller, pthread_self())) {
        pthread_cond_wait(&server->changed, &server->lock);
    }
    request->sent = NULL;
    request->gone = NULL;
    request->has_ended = true;
    request->is_broken = !ok;
    bool is_last = let_go(request) && !request->is_telling;
    if (is_last) {
        http__request_free(request); /* with the lock: a close waits for it, and then there is no server */
    } else if (!request->is_completed) {
        wake(request);
    }
    pthread_mutex_unlock(&server->lock);
}

void http_request_on_gone(struct http_request *request, http_gone_fn *fn, void *context)
{
    struct http_server *server = request->server;
    pthread_mutex_lock(&server->lock);
    request->gone = fn;
    request->gone_context = context;
    pthread_mutex_unlock(&server->lock);
}

bool http_request_is_gone(struct http_request *request)
{
    struct http_server *server = request->server;
    pthread_mutex_lock(&server->lock);
    bool is_gone = request->is_completed;
    pthread_mutex_unlock(&server->lock);
    return is_gone;
}

/* Copies what there is of the chunk. The lock is held. */
static size_t take(struct http_request *request, char *to, size_t room)
{
    size_t left = request->chunk.n - request->taken;
    size_t n = left < room ? left : room;
    if (n > 0) {
        memcpy(to, request->chunk.data + request->taken, n);
        request->taken += n;
    }
    return n;
}

/* Fills the block from chunk after chunk, as long as the owner has the next one at hand. The lock is held. */
static size_t fill(struct http_request *request, char *block, size_t room)
{
    size_t n = 0;
    for (;;) {
        n += take(request, block + n, room - n);
        if (request->taken < request->chunk.n || request->sent == NULL) {
            return n;
        }
        http_sent_fn *sent = request->sent;
        request->sent = NULL;
        pthread_mutex_unlock(&request->server->lock);
        sent(request->sent_context, true);
        pthread_mutex_lock(&request->server->lock);
    }
}

static ssize_t read_stream(void *context, uint64_t at, char *block, size_t room)
{
    struct http_request *request = context;
    struct http_server *server = request->server;
    UNUSED(at);
    pthread_mutex_lock(&server->lock);
    ssize_t n = (ssize_t)fill(request, block, room);
    if (n == 0 && request->has_ended) {
        n = request->is_broken ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
    } else if (n == 0 && (server->is_closing || request->daemon->is_ending)) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (n == 0) {
        suspend(request);
    }
    pthread_mutex_unlock(&server->lock);
    return n;
}

void http__streams_break(struct http__daemon *daemon)
{
    LIST_EACH(at, &daemon->server->streams) {
        struct http_request *request = CONTAINER_OF(at, struct http_request, in_streams);
        if (request->daemon == daemon) {
            wake(request);
        }
    }
}

struct MHD_Response *http__stream_response(struct http_request *request)
{
    return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, request, NULL);
}

void http__completed(struct http_request *request)
{
    struct http_server *server = request->server;
    pthread_mutex_lock(&server->lock);
    request->is_completed = true;
    bool is_held = request->is_held;
    http_sent_fn *sent = request->sent;
    http_gone_fn *gone = sent == NULL ? request->gone : NULL;
    request->sent = NULL;
    request->gone = NULL;
    request->is_telling = is_held && gone != NULL;
    request->teller = pthread_self();
    pthread_mutex_unlock(&server->lock);
    if (!is_held) {
        http__request_free(request);
    } else if (sent != NULL) {
        sent(request->sent_context, false); /* the owner ends it, now or later, and frees it by that */
    } else if (gone != NULL) {
        gone(request->gone_context);
        pthread_mutex_lock(&server->lock);
        request->is_telling = false;
        bool is_last = !request->is_held;
        pthread_cond_broadcast(&server->changed);
        pthread_mutex_unlock(&server->lock);
        if (is_last) {
            http__request_free(request);
        }
    }
}

/* ---- the pulse ---- */

/* The lock is held. */
static void beat(struct http_server *server)
{
    LIST_EACH(at, &server->streams) {
        struct http_request *request = CONTAINER_OF(at, struct http_request, in_streams);
        if (request->pulse != NULL && request->is_suspended) {
            buf_reset(&request->chunk);
            request->taken = 0;
            buf_text(&request->chunk, request->pulse);
            wake(request);
        }
    }
}

void *http__pulse(void *context)
{
    struct http_server *server = context;
    pthread_mutex_lock(&server->lock);
    while (!server->is_closing) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += server->pulse_ms / 1000;
        until.tv_nsec += (long)(server->pulse_ms % 1000) * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        int error = 0;
        while (!server->is_closing && error == 0) {
            error = pthread_cond_timedwait(&server->changed, &server->lock, &until);
        }
        if (!server->is_closing) {
            beat(server);
        }
    }
    pthread_mutex_unlock(&server->lock);
    return NULL;
}
