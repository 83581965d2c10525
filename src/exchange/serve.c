/*
 * serve.c - one struct per call that is being answered. It is always in one place: with the transport, which holds a
 * chunk and calls on_sent; in the queue of the threads that read files; or with a thread that is making a chunk.
 */
#include "exchange/serve.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/list.h"
#include "base/mem.h"
#include "exchange/chunk.h"
#include "exchange/thread.h"
#include "wire/message.h"

#define LENT_BYTES_MIN ((size_t)64 * 1024) /* what is shorter is put together with what follows */

struct exchange_server {
    struct exchange_store *store;
    _Atomic uint64_t bytes;
    pthread_t *threads;
    uint32_t n_threads;
    pthread_mutex_t lock; /* for all below */
    pthread_cond_t changed;
    struct list queue;
    bool is_closing;
};

struct answer {
    struct exchange_server *server;
    struct rpc_call *call;
    struct exchange_reader *reader;
    struct list link;
    uint8_t *chunk; /* room for a head and a payload */
};

static void step(struct answer *answer);

static void answer_free(struct answer *answer)
{
    exchange_reader_close(answer->reader);
    mem_free(answer->chunk);
    mem_free(answer);
}

static void on_sent(void *context, struct rpc_call *call, bool ok)
{
    struct answer *answer = context;
    if (ok) {
        step(answer);
    } else {
        answer_free(answer);
        rpc_call_end(call);
    }
}

static void enqueue(struct answer *answer)
{
    struct exchange_server *server = answer->server;
    pthread_mutex_lock(&server->lock);
    list_push_back(&server->queue, &answer->link);
    pthread_cond_signal(&server->changed);
    pthread_mutex_unlock(&server->lock);
}

static void let_go(void *block)
{
    block_unref(block);
}

/* Sends what lies in memory as it is. False if it is too little, or not there. */
static bool send_lent(struct answer *answer)
{
    uint8_t head[CHUNK_HEAD_BYTES_MAX];
    struct rpc_lent body = {.let_go = let_go};
    const uint8_t *bytes = NULL;
    body.owner = exchange_reader_lend(answer->reader, LENT_BYTES_MIN, EXCHANGE_CHUNK_BYTES, &bytes, &body.n);
    if (body.owner == NULL) {
        return false;
    }
    body.bytes = bytes;
    size_t n_head = chunk_head(body.n, head);
    atomic_fetch_add(&answer->server->bytes, body.n);
    rpc_call_send_lent(answer->call, head + CHUNK_HEAD_BYTES_MAX - n_head, n_head, &body, on_sent, answer);
    return true;
}

/* Makes the next chunk and sends it, or ends the call. */
static void send_next(struct answer *answer, bool may_block)
{
    struct rpc_call *call = answer->call;
    struct error e = {0};
    size_t n = 0;
    if (send_lent(answer)) {
        return;
    }
    if (answer->chunk == NULL) {
        answer->chunk = mem_alloc(CHUNK_HEAD_BYTES_MAX + EXCHANGE_CHUNK_BYTES);
    }
    uint8_t *payload = answer->chunk + CHUNK_HEAD_BYTES_MAX;
    if (exchange_reader_read(answer->reader, may_block, payload, EXCHANGE_CHUNK_BYTES, &n, &e) != ERR_OK) {
        answer_free(answer);
        rpc_call_fail(call, &e, NULL);
    } else if (n > 0) {
        size_t head = chunk_head(n, answer->chunk);
        atomic_fetch_add(&answer->server->bytes, n);
        rpc_call_send(call, payload - head, head + n, on_sent, answer);
    } else if (!exchange_reader_is_ready(answer->reader)) { /* it has gone to the file just now */
        enqueue(answer);
    } else {
        answer_free(answer);
        rpc_call_end(call);
    }
}

static void step(struct answer *answer)
{
    if (exchange_reader_is_ready(answer->reader)) {
        send_next(answer, false);
    } else {
        enqueue(answer);
    }
}

static void *read_files(void *context)
{
    struct exchange_server *server = context;
    pthread_mutex_lock(&server->lock);
    for (;;) {
        struct list *first = list_first(&server->queue);
        if (first != NULL) {
            list_remove(first);
            pthread_mutex_unlock(&server->lock);
            send_next(CONTAINER_OF(first, struct answer, link), true);
            pthread_mutex_lock(&server->lock);
        } else if (server->is_closing) {
            break;
        } else {
            pthread_cond_wait(&server->changed, &server->lock);
        }
    }
    pthread_mutex_unlock(&server->lock);
    return NULL;
}

void exchange_serve(void *context, struct rpc_call *call)
{
    struct exchange_server *server = context;
    struct pb_fetch_shuffle_partition_request *request = NULL;
    struct exchange_reader *reader = NULL;
    struct exchange_key key;
    struct arena arena = {0};
    struct error e = {0};
    size_t n = 0;
    const void *bytes = rpc_call_bytes(call, &n);
    enum err err = wire_decode(PB_FETCH_SHUFFLE_PARTITION_REQUEST, bytes, n, &arena, &request, &e);
    if (err == ERR_OK && !exchange_key_make(request->query_id, (uint32_t)request->stage_id, (uint32_t)request->map_task,
                                            request->attempt, &key)) {
        err = error_set(&e, ERR_NOT_FOUND, EXCHANGE_NOT_REGISTERED);
    }
    if (err == ERR_OK) {
        err = exchange_reader_open(server->store, &key, request->reduce_partition, request->offset, &reader, &e);
    }
    arena_deinit(&arena);
    if (err != ERR_OK) {
        rpc_call_fail(call, &e, NULL);
        return;
    }
    struct answer *answer = mem_calloc(1, sizeof(*answer));
    answer->server = server;
    answer->call = call;
    answer->reader = reader;
    exchange_reader_stop_at(reader, LENT_BYTES_MIN);
    step(answer);
}

struct exchange_server *exchange_server_open(struct exchange_store *store, uint32_t threads)
{
    struct exchange_server *server = mem_calloc(1, sizeof(*server));
    server->store = store;
    list_init(&server->queue);
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->changed, NULL);
    server->n_threads = threads == 0 ? 1 : threads;
    server->threads = mem_calloc(server->n_threads, sizeof(*server->threads));
    for (uint32_t i = 0; i < server->n_threads; i++) {
        exchange__thread_start(&server->threads[i], read_files, server);
    }
    return server;
}

void exchange_server_close(struct exchange_server *server)
{
    if (server == NULL) {
        return;
    }
    pthread_mutex_lock(&server->lock);
    server->is_closing = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
    for (uint32_t i = 0; i < server->n_threads; i++) {
        pthread_join(server->threads[i], NULL);
    }
    ASSERT(list_is_empty(&server->queue));
    pthread_mutex_destroy(&server->lock);
    pthread_cond_destroy(&server->changed);
    mem_free(server->threads);
    mem_free(server);
}

uint64_t exchange_server_bytes(const struct exchange_server *server)
{
    return atomic_load(&server->bytes);
}
