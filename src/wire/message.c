/*
 * message.c - decoding in three steps: look at the bytes (scan.c), let protobuf-c read them into the arena, then cut and
 * clamp what is to be cut and clamped, and look at what belongs together.
 */
#include "wire/message.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "wire/message_internal.h"

static void *arena_take(void *arena, size_t size)
{
    return arena_alloc(arena, size);
}

static void arena_keep(void *arena, void *p)
{
    UNUSED(arena);
    UNUSED(p);
}

static void *member(void *message, size_t offset)
{
    return (char *)message + offset;
}

static void trim_text(char *text, size_t max)
{
    size_t n = strlen(text);
    if (n > max) {
        text[utf8_clip(text, n, max)] = '\0';
    }
}

static void trim_message(void *message, enum pb_kind kind);

/* Only texts, messages, 32-bit numbers and lists of messages are ever trimmed, or have something inside that is. */
static void trim_field(void *message, const ProtobufCFieldDescriptor *field, const struct rule *rule)
{
    void *at = member(message, field->offset);
    if (rule->type == RULE_MESSAGE && rule->count_max > 0) {
        size_t n = *(size_t *)member(message, field->quantifier_offset);
        void **elements = *(void ***)at;
        for (size_t i = 0; i < n; i++) {
            trim_message(elements[i], rule->sub);
        }
    } else if (rule->type == RULE_MESSAGE) {
        if (*(void **)at != NULL) {
            trim_message(*(void **)at, rule->sub);
        }
    } else if (rule->is_trimmed && rule->type == RULE_TEXT) {
        trim_text(*(char **)at, (size_t)rule->max);
    } else if (rule->is_trimmed) {
        uint32_t *number = at;
        *number = *number < rule->max ? *number : (uint32_t)rule->max;
    }
}

/* As deep as the protocol nests messages; wire__scan has looked at that. */
static void trim_message(void *message, enum pb_kind kind)
{
    const struct message_rules *rules = wire__rules(kind);
    for (uint32_t i = 0; i < rules->n_fields; i++) {
        trim_field(message, &pb_descriptors[kind]->fields[i], &rules->fields[i]);
    }
}

enum err wire_decode(enum pb_kind kind, const void *bytes, size_t n, struct arena *arena, void *out_message,
                     struct error *e)
{
    bool needs_trim = false;
    enum err err = wire__scan(kind, bytes, n, &needs_trim, e);
    if (err != ERR_OK) {
        return err;
    }
    ProtobufCAllocator allocator = {.alloc = arena_take, .free = arena_keep, .allocator_data = arena};
    ProtobufCMessage *message = protobuf_c_message_unpack(pb_descriptors[kind], &allocator, n, bytes);
    if (message == NULL) {
        return error_set(e, ERR_INTERNAL, "%s: cannot be read although nothing is wrong with it",
                         pb_descriptors[kind]->short_name);
    }
    if (needs_trim) {
        trim_message(message, kind);
    }
    rule_check_fn *check = wire__rules(kind)->check;
    err = check == NULL ? ERR_OK : check(message, e);
    if (err == ERR_OK) {
        memcpy(out_message, &message, sizeof(message)); /* the caller's pointer has a type of its own */
    }
    return err;
}

void *wire_new(enum pb_kind kind, struct arena *arena)
{
    ASSERT((unsigned)kind < PB_KIND_COUNT);
    const ProtobufCMessageDescriptor *type = pb_descriptors[kind];
    ProtobufCMessage *message = arena_alloc(arena, type->sizeof_message);
    type->message_init(message);
    return message;
}

/* Packing into one piece of memory takes half the time of appending value by value. */
void wire_encode(const void *message, struct buf *out)
{
    uint8_t small[4096];
    size_t n = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = n <= sizeof(small) ? small : mem_alloc(n);
    protobuf_c_message_pack(message, bytes);
    buf_append(out, bytes, n);
    if (bytes != small) {
        mem_free(bytes);
    }
}
