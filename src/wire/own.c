#include <string.h>

#include "wire/message.h"

static void own_text(char **text, struct arena *arena)
{
    if (*text != NULL && *text != protobuf_c_empty_string) {
        *text = arena_strdup(arena, *text);
    }
}

static void own_bytes(ProtobufCBinaryData *bytes, struct arena *arena)
{
    if (bytes->len > 0) {
        bytes->data = arena_copy(arena, bytes->data, bytes->len);
    }
}

/* The values of one field: `n` of them, the first at `at`. Depth is that of the protocol, a handful. */
static void own_values(const ProtobufCFieldDescriptor *field, char *at, size_t n, struct arena *arena)
{
    for (size_t i = 0; i < n; i++) {
        if (field->type == PROTOBUF_C_TYPE_STRING) {
            own_text((char **)(void *)at + i, arena);
        } else if (field->type == PROTOBUF_C_TYPE_BYTES) {
            own_bytes((ProtobufCBinaryData *)(void *)at + i, arena);
        } else if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
            void *inner = *((void **)(void *)at + i);
            if (inner != NULL) {
                wire_own(inner, arena);
            }
        } else {
            return;
        }
    }
}

/* The array of a repeated field may be somebody else's as well: a copy takes its place. */
static char *own_array(const ProtobufCFieldDescriptor *field, char *at, size_t n, struct arena *arena)
{
    size_t size = sizeof(void *); /* of a text or message; numbers have 8 bytes at most, and are not borrowed */
    char *array;
    memcpy(&array, at, sizeof array);
    if (field->type == PROTOBUF_C_TYPE_BYTES) {
        size = sizeof(ProtobufCBinaryData);
    } else if (field->type != PROTOBUF_C_TYPE_STRING && field->type != PROTOBUF_C_TYPE_MESSAGE) {
        return array;
    }
    array = arena_copy(arena, array, n * size);
    memcpy(at, &array, sizeof array);
    return array;
}

void wire_own(void *message, struct arena *arena)
{
    const ProtobufCMessageDescriptor *descriptor = ((const ProtobufCMessage *)message)->descriptor;
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        char *at = (char *)message + field->offset;
        size_t n = 1;
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            memcpy(&n, (const char *)message + field->quantifier_offset, sizeof n);
            at = own_array(field, at, n, arena);
        }
        own_values(field, at, n, arena);
    }
}
