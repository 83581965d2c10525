#include "exchange/chunk.h"

#include <string.h>

#include "wire/message.h"

#define TAG_PAYLOAD 0x0a /* field 1, with a length */

size_t chunk_head(size_t n, uint8_t out[CHUNK_HEAD_BYTES_MAX])
{
    uint8_t head[CHUNK_HEAD_BYTES_MAX];
    size_t used = 0;
    head[used++] = TAG_PAYLOAD;
    for (; n >= 0x80; n >>= 7) {
        head[used++] = (uint8_t)(n | 0x80);
    }
    head[used++] = (uint8_t)n;
    memcpy(out + CHUNK_HEAD_BYTES_MAX - used, head, used);
    return used;
}

size_t chunk_plain_head(const uint8_t *bytes, size_t n_first, size_t n)
{
    uint64_t length = 0;
    if (n_first < 2 || bytes[0] != TAG_PAYLOAD) {
        return 0;
    }
    for (size_t i = 1; i < n_first && i < 6; i++) {
        length |= (uint64_t)(bytes[i] & 0x7f) << (7 * (i - 1));
        if (bytes[i] < 0x80) {
            return length == n - i - 1 ? i + 1 : 0;
        }
    }
    return 0;
}

enum err chunk_payload(const uint8_t *bytes, size_t n, struct arena *arena, const uint8_t **out, size_t *out_n,
                       struct error *e)
{
    size_t head = chunk_plain_head(bytes, n, n);
    struct pb_shuffle_partition_chunk *chunk = NULL;
    if (head > 0) {
        *out = bytes + head;
        *out_n = n - head;
        return ERR_OK;
    }
    enum err err = wire_decode(PB_SHUFFLE_PARTITION_CHUNK, bytes, n, arena, &chunk, e);
    if (err == ERR_OK) {
        *out = chunk->payload.data;
        *out_n = chunk->payload.len;
    }
    return err;
}
