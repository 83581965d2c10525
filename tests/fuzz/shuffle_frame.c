/*
 * shuffle_frame.c - what a reader of a shuffle gets from a peer: chunks, and in them messages with checksums.
 *
 * The input is a row of chunks, each with its length in two bytes in front. Promises: a payload lies inside its chunk or
 * the arena, and is what src/wire reads; with checksums asked for, whatever rows come out are in a message whose
 * checksum is right, so that a bit that is flipped in it afterwards is refused.
 */
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/mem.h"
#include "exchange/chunk.h"
#include "exchange/ipc.h"
#include "fuzz/fuzz.h"
#include "wire/message.h"

/* Both ways to read a chunk agree. */
static void check_payload(const uint8_t *chunk, size_t n, const uint8_t *payload, size_t n_payload)
{
    struct arena arena = {0};
    struct pb_shuffle_partition_chunk *message = NULL;
    enum err err = wire_decode(PB_SHUFFLE_PARTITION_CHUNK, chunk, n, &arena, &message, NULL);
    ASSERT(err == ERR_OK);
    ASSERT(message->payload.len == n_payload);
    ASSERT(n_payload == 0 || memcmp(message->payload.data, payload, n_payload) == 0);
    arena_deinit(&arena);
}

/* A message that was taken, with a bit flipped, is taken no more. The schema stands in front of it. */
static void check_flip(const struct block *schema, const struct block *message)
{
    struct ipc_reader *reader = ipc_reader_new(&(struct ipc_reader_options){.needs_checksums = true});
    struct ArrowArray batch = {0};
    struct block *copy = block_new(schema->n);
    memcpy(copy->bytes, schema->bytes, schema->n);
    enum err err = ipc_reader_message(reader, copy, 0, copy->n, &batch, NULL);
    ASSERT(err == ERR_OK);
    block_unref(copy);
    copy = block_new(message->n);
    memcpy(copy->bytes, message->bytes, message->n);
    copy->bytes[message->n / 2] ^= 4;
    err = ipc_reader_message(reader, copy, 0, copy->n, &batch, NULL);
    ASSERT(err != ERR_OK);
    block_unref(copy);
    ipc_reader_free(reader);
}

struct reading {
    struct ipc_reader *reader;
    struct ipc_assembler assembler;
    struct block *schema;
};

static enum err take_message(struct reading *r, struct block *message, struct error *e)
{
    struct ArrowArray batch = {0};
    enum err err = ipc_reader_message(r->reader, message, 0, message->n, &batch, e);
    if (err == ERR_OK && r->schema == NULL) {
        r->schema = block_ref(message);
    } else if (err == ERR_OK && batch.release != NULL) {
        check_flip(r->schema, message);
        batch.release(&batch);
    }
    block_unref(message);
    return err;
}

static enum err take_payload(struct reading *r, const uint8_t *bytes, size_t n, size_t whole, struct error *e)
{
    enum err err = ERR_OK;
    while (err == ERR_OK && (n > 0 || r->assembler.wants > 0)) {
        struct block *message = NULL;
        size_t taken = 0;
        if (r->assembler.wants > whole) {
            return error_set(e, ERR_DATA_LOSS, "too long");
        }
        if (r->assembler.wants > 0) {
            ipc_assembler_admit(&r->assembler);
        }
        err = ipc_assembler_feed(&r->assembler, bytes, n, &taken, &message, e);
        bytes += taken;
        n -= taken;
        if (err == ERR_OK && message != NULL) {
            err = take_message(r, message, e);
        }
    }
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct reading r = {.reader = ipc_reader_new(&(struct ipc_reader_options){.needs_checksums = true})};
    struct arena arena = {0};
    struct error e = {0};
    enum err err = ERR_OK;
    size_t whole = n;
    while (err == ERR_OK && n >= 2) {
        const uint8_t *payload = NULL;
        size_t n_payload = 0;
        size_t length = bytes[0] | (size_t)bytes[1] << 8;
        length = length > n - 2 ? n - 2 : length;
        uint8_t *chunk = mem_copy(bytes + 2, length);
        bytes += 2 + length;
        n -= 2 + length;
        err = chunk_payload(chunk, length, &arena, &payload, &n_payload, &e);
        if (err == ERR_OK) {
            check_payload(chunk, length, payload, n_payload);
            err = take_payload(&r, payload, n_payload, whole, &e);
        }
        mem_free(chunk);
    }
    ASSERT(err == ERR_OK || e.message[0] != '\0');
    block_unref(r.schema);
    ipc_assembler_deinit(&r.assembler);
    ipc_reader_free(r.reader);
    arena_deinit(&arena);
    return 0;
}
