/*
 * ipc_read.c - a stream of messages, one after the other, and how they are put together from pieces.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "exchange/ipc_internal.h"
#include "exchange/schema.h"

struct ipc_reader {
    struct ipc_reader_options options;
    bool is_trusted;
    struct ArrowSchema schema; /* its `release` is NULL until it has come */
    struct layout *layout;
    struct ipc__dictionary *dictionaries;
    uint32_t n_dictionaries;
    bool has_ended;
    struct ipc_tally tally;
};

struct ipc_reader *ipc_reader_new(const struct ipc_reader_options *options)
{
    struct ipc_reader *reader = mem_calloc(1, sizeof(*reader));
    reader->options = *options;
    return reader;
}

void ipc_reader_free(struct ipc_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    for (uint32_t i = 0; i < reader->n_dictionaries; i++) {
        block_unref(reader->dictionaries[i].block);
    }
    mem_free(reader->dictionaries);
    layout_free(reader->layout);
    schema_release(&reader->schema);
    mem_free(reader);
}

void ipc_reader_trust(struct ipc_reader *reader, bool is_trusted)
{
    reader->is_trusted = is_trusted;
}

const struct ArrowSchema *ipc_reader_schema(const struct ipc_reader *reader)
{
    return reader->schema.release == NULL ? NULL : &reader->schema;
}

bool ipc_reader_has_ended(const struct ipc_reader *reader)
{
    return reader->has_ended;
}

const struct ipc_tally *ipc_reader_tally(const struct ipc_reader *reader)
{
    return &reader->tally;
}

/* Notes which dictionary is for which part of the layout. */
static void find_dictionaries(struct ipc_reader *reader, const struct layout *layout)
{
    for (uint32_t i = 0; i < layout->n_children; i++) {
        find_dictionaries(reader, &layout->children[i]);
    }
    if (layout->dictionary != NULL) {
        reader->dictionaries[layout->dictionary_id].layout = layout->dictionary;
        find_dictionaries(reader, layout->dictionary);
    }
}

static int compare_ids(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Fields that share a dictionary would make one small message large many times over. */
static enum err check_ids(const int64_t *ids, uint32_t n, struct error *e)
{
    int64_t *sorted = mem_copy(ids, n * sizeof(*ids));
    enum err err = ERR_OK;
    qsort(sorted, n, sizeof(*sorted), compare_ids);
    for (uint32_t i = 1; i < n && err == ERR_OK; i++) {
        if (sorted[i] == sorted[i - 1]) {
            err = error_set(e, ERR_INVALID, "Arrow schema: two fields share dictionary %" PRId64, sorted[i]);
        }
    }
    mem_free(sorted);
    return err;
}

static enum err read_schema(struct ipc_reader *reader, const struct ipc__message *message, struct error *e)
{
    int64_t *ids = NULL;
    uint32_t n_ids = 0;
    uint32_t n_dictionaries = 0;
    struct ArrowSchema schema = {0};
    if (reader->schema.release != NULL) {
        return error_set(e, ERR_DATA_LOSS, "Arrow stream: it has a second schema");
    }
    enum err err = ipc__schema_get(&message->header, &schema, &ids, &n_ids, e);
    if (err != ERR_OK) {
        return err;
    }
    err = check_ids(ids, n_ids, e);
    if (err == ERR_OK) {
        err = layout_new(&schema, &reader->layout, &n_dictionaries, e);
    }
    if (err != ERR_OK) {
        schema_release(&schema);
        mem_free(ids);
        return err;
    }
    ASSERT(n_ids == n_dictionaries);
    reader->schema = schema;
    reader->n_dictionaries = n_ids;
    reader->dictionaries = mem_calloc(n_ids, sizeof(*reader->dictionaries));
    for (uint32_t i = 0; i < n_ids; i++) {
        reader->dictionaries[i].id = ids[i];
    }
    find_dictionaries(reader, reader->layout);
    mem_free(ids);
    return ERR_OK;
}

static struct ipc__batch batch_of(const struct ipc_reader *reader, struct block *block,
                                  const struct ipc__message *message)
{
    return (struct ipc__batch){.block = block,
                               .records = message->header,
                               .body = message->body,
                               .body_bytes = message->body_bytes,
                               .dictionaries = reader->dictionaries,
                               .n_dictionaries = reader->n_dictionaries,
                               .is_trusted = reader->is_trusted};
}

/* Checks the values once, and keeps the message for the batches that follow. */
static enum err read_dictionary(struct ipc_reader *reader, struct block *block, const struct ipc__message *message,
                                struct error *e)
{
    uint64_t id = 0;
    uint64_t is_delta = 0;
    bool is_there = false;
    struct ipc__batch batch = batch_of(reader, block, message);
    if (!flat_get(&message->header, 0, 8, 0, &id) || !flat_get(&message->header, 2, 1, 0, &is_delta) ||
        !flat_get_table(&message->header, 1, &batch.records, &is_there) || !is_there) {
        return error_set(e, ERR_DATA_LOSS, "Arrow dictionary: it is malformed");
    }
    if (is_delta != 0) {
        return error_set(e, ERR_INVALID, "Arrow dictionary: one that only adds to another is not supported");
    }
    for (uint32_t i = 0; i < reader->n_dictionaries; i++) {
        struct ipc__dictionary *dictionary = &reader->dictionaries[i];
        struct ArrowArray values = {0};
        if (dictionary->id != (int64_t)id) {
            continue;
        }
        enum err err = ipc__batch_get_values(&batch, dictionary->layout, &values, e);
        if (err != ERR_OK) {
            return err;
        }
        values.release(&values);
        block_unref(dictionary->block);
        dictionary->block = block_ref(block);
        dictionary->records = batch.records;
        dictionary->body = batch.body;
        dictionary->body_bytes = batch.body_bytes;
        return ERR_OK;
    }
    return error_set(e, ERR_DATA_LOSS, "Arrow dictionary: the schema has no field for it");
}

enum err ipc_reader_message(struct ipc_reader *reader, struct block *block, size_t at, size_t n,
                            struct ArrowArray *out_batch, struct error *e)
{
    struct ipc__message message;
    struct ArrowArray array = {0};
    ASSERT(at <= block->n);
    ASSERT(n <= block->n - at);
    if (reader->has_ended) {
        return error_set(e, ERR_DATA_LOSS, "Arrow stream: a message follows its end");
    }
    if (n < IPC__PREFIX_BYTES) {
        return error_set(e, ERR_DATA_LOSS, "Arrow message: it is cut off");
    }
    enum err err = ipc__message_open(block->bytes + at, n, reader->is_trusted, &message, e);
    if (err != ERR_OK) {
        return err;
    }
    if (reader->options.needs_checksums && !message.has_checksum) {
        return error_set(e, ERR_DATA_LOSS, "Arrow message: it has no checksum");
    }
    if (message.type != IPC__SCHEMA && reader->schema.release == NULL) {
        return error_set(e, ERR_DATA_LOSS, "Arrow stream: it does not begin with a schema");
    }
    if (message.is_end) {
        reader->has_ended = true;
        reader->tally.bytes += n;
        out_batch->release = NULL;
        return ERR_OK;
    }
    if (message.type == IPC__SCHEMA) {
        err = read_schema(reader, &message, e);
    } else if (message.type == IPC__DICTIONARY) {
        err = read_dictionary(reader, block, &message, e);
    } else if (message.type == IPC__RECORDS) {
        struct ipc__batch batch = batch_of(reader, block, &message);
        err = ipc__batch_get(&batch, reader->layout, &array, e);
    } else {
        err = error_set(e, ERR_INVALID, "Arrow stream: a message of type %u is not supported", message.type);
    }
    if (err == ERR_OK) {
        ipc__tally_add(&reader->tally, n, message.checksum);
        reader->tally.rows += (uint64_t)array.length;
        reader->tally.batches += message.type == IPC__RECORDS ? 1 : 0;
        *out_batch = array;
    }
    return err;
}

/* ---- bytes that come in pieces ---- */

void ipc_assembler_deinit(struct ipc_assembler *assembler)
{
    block_unref(assembler->message);
    mem_free(assembler->head);
    *assembler = (struct ipc_assembler){0};
}

bool ipc_assembler_is_empty(const struct ipc_assembler *assembler)
{
    return assembler->message == NULL && assembler->have == 0;
}

void ipc_assembler_admit(struct ipc_assembler *assembler)
{
    ASSERT(assembler->wants > 0);
    ASSERT(assembler->message == NULL);
    assembler->message = block_new((size_t)assembler->wants);
    memcpy(assembler->message->bytes, assembler->head, assembler->have);
    assembler->wants = 0;
}

/* Takes the head of a message, up to where its size is known. */
static enum err take_head(struct ipc_assembler *a, const uint8_t *bytes, size_t n, size_t *taken, struct error *e)
{
    for (;;) {
        uint64_t need = 0;
        bool is_known = false;
        enum err err = ipc_message_bytes(a->head, a->have, &need, &is_known, e);
        if (err != ERR_OK) {
            return err;
        }
        if (is_known) {
            a->wants = need;
            return ERR_OK;
        }
        size_t missing = (size_t)need - a->have;
        size_t some = missing < n - *taken ? missing : n - *taken;
        if (some == 0) {
            return ERR_OK;
        }
        if (a->have + some > a->head_cap) { /* what has come, not what is announced, decides how much is kept */
            a->head_cap = 2 * (a->have + some);
            a->head = mem_realloc(a->head, a->head_cap);
        }
        memcpy(a->head + a->have, bytes + *taken, some);
        a->have += some;
        *taken += some;
    }
}

enum err ipc_assembler_feed(struct ipc_assembler *a, const uint8_t *bytes, size_t n, size_t *out_taken,
                            struct block **out_message, struct error *e)
{
    size_t taken = 0;
    *out_message = NULL;
    if (a->message == NULL && a->wants == 0) {
        enum err err = take_head(a, bytes, n, &taken, e);
        if (err != ERR_OK) {
            return err;
        }
    }
    if (a->message != NULL) {
        size_t missing = a->message->n - a->have;
        size_t some = missing < n - taken ? missing : n - taken;
        if (some > 0) {
            memcpy(a->message->bytes + a->have, bytes + taken, some);
        }
        a->have += some;
        taken += some;
        if (a->have == a->message->n) {
            *out_message = a->message;
            a->message = NULL;
            a->have = 0;
        }
    }
    *out_taken = taken;
    return ERR_OK;
}
