/*
 * args.c - how our connections behave: the arguments that gRPC calls channel arguments, with the reason for each.
 */
#include <limits.h>

#include <grpc/compression.h>

#include "rpc/rpc_internal.h"

#define METADATA_BYTES_MAX (64 * 1024)
#define KEEPALIVE_MS 5000 /* silent for this long: ask whether the peer is there */
#define KEEPALIVE_TIMEOUT_MS                                                                                           \
    5000 /* no answer for this long: it is not; a frozen one is noticed after ten seconds in all */
#define RECONNECT_MS_MIN 100
#define RECONNECT_MS_MAX 2000 /* a server that is back is found again within about this time */
#define CONNECT_TIMEOUT_MS 5000
#define RESOLVE_MS_MIN 2000
#define LOOKAHEAD_BYTES (1024 * 1024)
#define FRAME_BYTES_MAX (256 * 1024)

static void add_int(struct rpc__args *args, const char *key, int value)
{
    ASSERT(args->n < ARRAY_LEN(args->items));
    args->items[args->n++] = (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value};
}

size_t rpc__message_bytes_max(size_t wanted)
{
    return wanted == 0 ? RPC__MESSAGE_BYTES_MAX : wanted > INT_MAX ? INT_MAX : wanted;
}

static void add_common(struct rpc__args *args, size_t message_bytes_max)
{
    add_int(args, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, (int)rpc__message_bytes_max(message_bytes_max));
    add_int(args, GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1); /* the receiver decides */
    add_int(args, GRPC_ARG_MAX_METADATA_SIZE, METADATA_BYTES_MAX);
    add_int(args, GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS);
    add_int(args, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS);
    add_int(args, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    add_int(args, GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    /* A small message could be compressed so well that it fills the memory here, and large data is compressed already. */
    add_int(args, GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
    add_int(args, GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    add_int(args, GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
    /* Fixed windows: enough for a fast link, a bound for what a slow reader makes the sender keep, and no probing. */
    add_int(args, GRPC_ARG_HTTP2_BDP_PROBE, 0);
    add_int(args, GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, LOOKAHEAD_BYTES);
    add_int(args, GRPC_ARG_HTTP2_MAX_FRAME_SIZE, FRAME_BYTES_MAX);
    /* Nobody looks at these statistics, and each call pays for them. */
    add_int(args, GRPC_ARG_ENABLE_CHANNELZ, 0);
}

void rpc__args_server(struct rpc__args *args, size_t message_bytes_max)
{
    *args = (struct rpc__args){0};
    add_common(args, message_bytes_max);
    add_int(args, GRPC_ARG_ALLOW_REUSEPORT, 0); /* a taken port is an error, not a place to share */
    /* Clients of other make ping more often than ours; that is no reason to hang up on them. */
    add_int(args, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
    add_int(args, GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    add_int(args, GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, CONNECT_TIMEOUT_MS);
}

void rpc__args_client(struct rpc__args *args, size_t message_bytes_max)
{
    *args = (struct rpc__args){0};
    add_common(args, message_bytes_max);
    add_int(args, GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, RECONNECT_MS_MIN);
    add_int(args, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, RECONNECT_MS_MAX);
    add_int(args, GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, CONNECT_TIMEOUT_MS); /* in truth how long one attempt may take */
    add_int(args, GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, RESOLVE_MS_MIN);
    add_int(args, GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1); /* DNS says where, not how */
    add_int(args, GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);         /* each channel is a connection of its own */
    add_int(args, GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    add_int(args, GRPC_ARG_ENABLE_RETRIES, 0); /* callers know what may be repeated */
}
