#include "integration/exchange/peer.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "test.h"

void peer_start(struct peer *peer)
{
    struct error e = {0};
    struct rpc_method method = {.path = EXCHANGE_FETCH_PATH, .handler = exchange_serve};
    peer->server = exchange_server_open(peer->folder.store, 2);
    struct rpc_server_options options = {
        .listen = peer->address, .methods = &method, .n_methods = 1, .context = peer->server, .pollers = 1};
    CHECK_ERR(rpc_server_open(&options, &peer->rpc, &e), ERR_OK);
    snprintf(peer->address, sizeof(peer->address), "%s", rpc_server_address(peer->rpc));
}

void peer_stop(struct peer *peer)
{
    rpc_server_close(peer->rpc, 0);
    exchange_server_close(peer->server);
    peer->rpc = NULL;
    peer->server = NULL;
}

void peer_open(struct peer *peer, uint64_t memory_bytes)
{
    *peer = (struct peer){.address = "127.0.0.1:0"};
    folder_open(&peer->folder, memory_bytes);
    peer_start(peer);
}

void peer_close(struct peer *peer)
{
    if (peer->rpc != NULL) {
        peer_stop(peer);
    }
    folder_close(&peer->folder);
}

struct exchange_source peer_write(struct peer *peer, uint32_t task, int64_t first, int64_t rows, uint32_t n,
                                  uint32_t partition)
{
    struct ipc_tally *tallies = mem_calloc(n, sizeof(*tallies));
    struct exchange_source source = {
        .key = folder_key("job", task, 1), .partition = partition, .address = peer->address};
    folder_write(&peer->folder, &source.key, first, rows, n, tallies);
    source.tally = tallies[partition];
    mem_free(tallies);
    return source;
}

/* Waits until nothing more comes in: until what is held has not changed for a while. */
static void let_it_fill(struct exchange_fetch *fetch)
{
    uint64_t before = UINT64_MAX;
    uint64_t now = exchange_fetch_counts(fetch).held_bytes;
    while (now != before) {
        poll(NULL, 0, 20);
        before = now;
        now = exchange_fetch_counts(fetch).held_bytes;
    }
}

enum err peer_read(struct exchange_fetch *fetch, bool is_slow, struct peer_sum *out, struct error *e)
{
    *out = (struct peer_sum){.last = -1, .is_ordered = true};
    for (;;) {
        struct ArrowArray array = {0};
        if (is_slow) {
            let_it_fill(fetch);
        }
        enum err err = exchange_fetch_next(fetch, &array, e);
        if (err != ERR_OK || array.release == NULL) {
            return err;
        }
        const int64_t *numbers = array.children[0]->buffers[1];
        for (int64_t i = 0; i < array.length; i++) {
            out->is_ordered = out->is_ordered && numbers[i] > out->last;
            out->last = numbers[i];
            out->sum += numbers[i];
        }
        out->rows += array.length;
        array.release(&array);
    }
}

struct exchange_channels *peer_channels(void)
{
    return exchange_channels_open(&(struct rpc_channel_options){0});
}
