/*
 * message.h - the messages of proto/capstan.proto: bytes to structs and back, checked.
 *
 * The structs are those that protoc-c generates, under shorter names (struct pb_get_task_request for
 * capstan.v1.GetTaskRequest). Whatever comes from a peer, requests and answers alike, passes through wire_decode, which
 * looks at the bytes before anything is allocated: well-formed, every text UTF-8 without NUL, every length, count, id,
 * name and number as rules.c has it. Errors name the field: "reports[3].ref.lease_token: must be 16 bytes, got 3".
 *
 * A decoded message's texts are never NULL; messages inside it are NULL if they are absent and may be. A few values are
 * not refused when they are over their limit but cut (messages that workers report) or clamped (wait_ms, page limits).
 *
 * Ownership: decoded messages live in the caller's arena. Threads: any.
 */
#ifndef CAPSTAN_WIRE_MESSAGE_H
#define CAPSTAN_WIRE_MESSAGE_H

#include <capstan.pb-c.h> /* generated into build/; the only way to protobuf-c for others */
#include <pb.h>           /* generated: struct pb_... names, and enum pb_kind with one PB_... per message */
#include <stddef.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"

/*
 * Reads one message of the kind (PB_GET_TASK_REQUEST, ...) and writes it to `out_message`, which is a `struct pb_... **`.
 * ERR_INVALID for bytes that are none, or values that are not allowed; ERR_EXHAUSTED for texts, lists and messages that
 * are longer than limits.h allows. Fields that are not in the protocol are skipped; wire_encode writes them again.
 * `bytes` may be NULL if `n` is zero; nothing points to them afterwards.
 */
MUST_USE enum err wire_decode(enum pb_kind kind, const void *bytes, size_t n, struct arena *arena, void *out_message,
                              struct error *e);

/* A message of the kind with all defaults, in the arena. */
void *wire_new(enum pb_kind kind, struct arena *arena);

/*
 * Copies every text and all bytes of the message, and of those inside it, into the arena, so that it outlives what it was
 * made of. The messages themselves, and arrays of numbers, must lie in that arena already.
 */
void wire_own(void *message, struct arena *arena);

/* Appends the message's bytes. `message` is any struct pb_... */
void wire_encode(const void *message, struct buf *out);

#endif
