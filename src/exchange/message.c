/*
 * message.c - the message around a header: marker, length, metadata, padding, body; and its checksum.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/limits.h"
#include "base/mem.h"
#include "exchange/ipc_internal.h"

#define MARKER UINT32_C(0xffffffff)
#define CHECKSUM_KEY "capstan:xxh3"
#define CHECKSUM_DIGITS ((size_t)16)

/* Fields of the table Message. */
enum { SLOT_VERSION, SLOT_HEADER_TYPE, SLOT_HEADER, SLOT_BODY_BYTES, SLOT_METADATA };

void ipc__tally_add(struct ipc_tally *tally, uint64_t bytes, uint64_t checksum)
{
    const uint64_t link[3] = {tally->checksum, bytes, checksum};
    tally->checksum = XXH64(link, sizeof(link), 0);
    tally->bytes += bytes;
}

void ipc__draft_begin(struct ipc__draft *draft, uint8_t header_type, uint64_t body_bytes)
{
    static const uint8_t message_sizes[] = {2, 1, 4, 8, 4};
    static const uint8_t pair_sizes[] = {4, 4};
    buf_reset(&draft->meta);
    draft->w = flat_begin(&draft->meta);
    struct flat_writer *w = &draft->w;
    draft->message = flat_put_table(w, message_sizes, ARRAY_LEN(message_sizes));
    flat_link(w, 0, draft->message);
    flat_set(w, draft->message, SLOT_VERSION, IPC__VERSION_5);
    flat_set(w, draft->message, SLOT_HEADER_TYPE, header_type);
    flat_set(w, draft->message, SLOT_BODY_BYTES, body_bytes);
    size_t pairs = flat_put_links(w, 1);
    flat_link(w, flat_slot(w, draft->message, SLOT_METADATA), pairs);
    size_t pair = flat_put_table(w, pair_sizes, ARRAY_LEN(pair_sizes));
    flat_link(w, pairs + 4, pair);
    size_t key = flat_put_text(w, CHECKSUM_KEY, strlen(CHECKSUM_KEY));
    flat_link(w, flat_slot(w, pair, 0), key);
    size_t value = flat_put_text(w, "0000000000000000", CHECKSUM_DIGITS);
    flat_link(w, flat_slot(w, pair, 1), value);
    draft->checksum = value + 4;
}

void ipc__draft_header(struct ipc__draft *draft, size_t header)
{
    flat_link(&draft->w, flat_slot(&draft->w, draft->message, SLOT_HEADER), header);
}

struct block *ipc__draft_block(const struct ipc__draft *draft, size_t body_bytes, size_t *out_body)
{
    size_t head = (IPC__PREFIX_BYTES + draft->meta.n + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
    ASSERT(head <= LIMIT_ARROW_METADATA_BYTES);
    struct block *block = block_new(head + body_bytes);
    const uint32_t prefix[2] = {MARKER, (uint32_t)(head - IPC__PREFIX_BYTES)};
    memcpy(block->bytes, prefix, sizeof(prefix));
    memcpy(block->bytes + IPC__PREFIX_BYTES, draft->meta.data, draft->meta.n);
    memset(block->bytes + IPC__PREFIX_BYTES + draft->meta.n, 0, head - IPC__PREFIX_BYTES - draft->meta.n);
    *out_body = head;
    return block;
}

void ipc__draft_seal(const struct ipc__draft *draft, struct block *block, size_t body, struct ipc_tally *tally)
{
    char digits[CHECKSUM_DIGITS + 1];
    uint64_t seed = XXH3_64bits(block->bytes, body);
    uint64_t checksum = XXH3_64bits_withSeed(block->bytes + body, block->n - body, seed);
    snprintf(digits, sizeof(digits), "%016" PRIx64, checksum);
    memcpy(block->bytes + IPC__PREFIX_BYTES + draft->checksum, digits, CHECKSUM_DIGITS);
    ipc__tally_add(tally, block->n, checksum);
}

void ipc__draft_deinit(struct ipc__draft *draft)
{
    buf_deinit(&draft->meta);
}

/* ---- reading ---- */

static enum err damaged(struct error *e, const char *what)
{
    return error_set(e, ERR_DATA_LOSS, "Arrow message: %s", what);
}

/* The length of what is before the body; 0: it is the end of the stream. */
static enum err head_bytes(const uint8_t *bytes, size_t *out, struct error *e)
{
    uint32_t prefix[2];
    memcpy(prefix, bytes, sizeof(prefix));
    if (prefix[0] != MARKER) {
        return damaged(e, "it does not begin with the marker");
    }
    if (prefix[1] % 8 != 0) {
        return damaged(e, "its metadata is not a multiple of 8 bytes");
    }
    if (prefix[1] > LIMIT_ARROW_METADATA_BYTES) {
        return error_set(e, ERR_EXHAUSTED, "Arrow message: %" PRIu32 " bytes of metadata, at most %d are allowed",
                         prefix[1], LIMIT_ARROW_METADATA_BYTES);
    }
    *out = prefix[1] == 0 ? 0 : IPC__PREFIX_BYTES + prefix[1];
    return ERR_OK;
}

static enum err open_metadata(const uint8_t *bytes, size_t head, struct flat_table *out, uint64_t *out_body_bytes,
                              struct error *e)
{
    struct flat flat = {.bytes = bytes + IPC__PREFIX_BYTES, .n = head - IPC__PREFIX_BYTES};
    uint64_t version = 0;
    if (!flat_root(flat, out) || !flat_get(out, SLOT_VERSION, 2, 0, &version) ||
        !flat_get(out, SLOT_BODY_BYTES, 8, 0, out_body_bytes)) {
        return damaged(e, "its metadata is malformed");
    }
    if (version != IPC__VERSION_5) {
        return error_set(e, ERR_INVALID, "Arrow message: its version is %" PRIu64 ", and only %d is supported", version,
                         IPC__VERSION_5);
    }
    if (*out_body_bytes > LIMIT_ARROW_MESSAGE_BYTES) {
        return error_set(e, ERR_EXHAUSTED, "Arrow message: %" PRIu64 " bytes, at most %llu are allowed",
                         *out_body_bytes, LIMIT_ARROW_MESSAGE_BYTES);
    }
    return ERR_OK;
}

enum err ipc_message_bytes(const uint8_t *bytes, size_t n, uint64_t *out_bytes, bool *out_is_known, struct error *e)
{
    size_t head = 0;
    struct flat_table message;
    uint64_t body_bytes = 0;
    if (n < IPC__PREFIX_BYTES) {
        *out_bytes = IPC__PREFIX_BYTES;
        *out_is_known = false;
        return ERR_OK;
    }
    enum err err = head_bytes(bytes, &head, e);
    if (err != ERR_OK) {
        return err;
    }
    if (head == 0 || n < head) {
        *out_bytes = head == 0 ? IPC__END_BYTES : head;
        *out_is_known = head == 0;
        return ERR_OK;
    }
    err = open_metadata(bytes, head, &message, &body_bytes, e);
    if (err == ERR_OK) {
        *out_bytes = head + body_bytes;
        *out_is_known = true;
    }
    return err;
}

/* The digits of the checksum in a message's metadata; NULL: there are none. */
static enum err find_digits(const struct flat_table *message, const char **out, struct error *e)
{
    struct flat_list pairs = {0};
    *out = NULL;
    if (!flat_get_list(message, SLOT_METADATA, 4, &pairs)) {
        return damaged(e, "its metadata is malformed");
    }
    for (uint32_t i = 0; i < pairs.n && *out == NULL; i++) {
        struct flat_table pair;
        const char *key = NULL;
        const char *value = NULL;
        size_t n_key = 0;
        size_t n_value = 0;
        bool has_key = false;
        bool has_value = false;
        if (!flat_list_table(&pairs, i, &pair) || !flat_get_text(&pair, 0, &key, &n_key, &has_key) ||
            !flat_get_text(&pair, 1, &value, &n_value, &has_value)) {
            return damaged(e, "its metadata is malformed");
        }
        if (has_key && has_value && n_key == strlen(CHECKSUM_KEY) && memcmp(key, CHECKSUM_KEY, n_key) == 0 &&
            n_value == CHECKSUM_DIGITS) {
            *out = value;
        }
    }
    return ERR_OK;
}

/* Compares the digits with what the bytes yield; with no digits there is nothing to compare. */
static enum err check_sum(const uint8_t *bytes, size_t head, size_t n, const char *digits, uint64_t *out_checksum,
                          struct error *e)
{
    char expected[CHECKSUM_DIGITS + 1];
    uint8_t *zeroed = mem_copy(bytes, head);
    if (digits != NULL) {
        memset(zeroed + (digits - (const char *)bytes), '0', CHECKSUM_DIGITS);
    }
    uint64_t checksum = XXH3_64bits_withSeed(bytes + head, n - head, XXH3_64bits(zeroed, head));
    mem_free(zeroed);
    snprintf(expected, sizeof(expected), "%016" PRIx64, checksum);
    if (digits != NULL && memcmp(expected, digits, CHECKSUM_DIGITS) != 0) {
        return damaged(e, "its checksum is wrong");
    }
    *out_checksum = checksum;
    return ERR_OK;
}

static uint64_t read_digits(const char *digits)
{
    char text[CHECKSUM_DIGITS + 1] = {0};
    memcpy(text, digits, CHECKSUM_DIGITS);
    return strtoull(text, NULL, 16);
}

enum err ipc__message_open(const uint8_t *bytes, size_t n, bool is_trusted, struct ipc__message *out, struct error *e)
{
    struct ipc__message opened = {0};
    struct flat_table message;
    size_t head = 0;
    uint64_t body_bytes = 0;
    uint64_t type = 0;
    bool has_header = false;
    const char *digits = NULL;
    ASSERT(n >= IPC__PREFIX_BYTES);
    enum err err = head_bytes(bytes, &head, e);
    if (err == ERR_OK && head == 0) {
        *out = (struct ipc__message){.is_end = true, .has_checksum = true};
        return n == IPC__END_BYTES ? ERR_OK : damaged(e, "bytes follow the end of the stream");
    }
    if (err == ERR_OK && head > n) {
        return damaged(e, "it is cut off");
    }
    if (err == ERR_OK) {
        err = open_metadata(bytes, head, &message, &body_bytes, e);
    }
    if (err == ERR_OK && body_bytes != n - head) {
        err = damaged(e, "its length is wrong");
    }
    if (err == ERR_OK) {
        err = find_digits(&message, &digits, e);
    }
    if (err == ERR_OK && is_trusted && digits != NULL) {
        opened.checksum = read_digits(digits);
    } else if (err == ERR_OK) {
        err = check_sum(bytes, head, n, digits, &opened.checksum, e);
    }
    if (err != ERR_OK) {
        return err;
    }
    if (!flat_get(&message, SLOT_HEADER_TYPE, 1, 0, &type) ||
        !flat_get_table(&message, SLOT_HEADER, &opened.header, &has_header) || !has_header) {
        return damaged(e, "it has no header");
    }
    opened.type = (uint8_t)type;
    opened.body = bytes + head;
    opened.body_bytes = n - head;
    opened.has_checksum = digits != NULL;
    *out = opened;
    return ERR_OK;
}
