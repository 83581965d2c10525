/*
 * gate.h - who calls, and how much of it may be open at one time.
 *
 * A client is whoever shows the same token; without one, whoever calls from the same host. Its calls that have not been
 * answered are counted, and the bytes of their requests: beyond a limit more of them are refused at once, so that one client
 * cannot fill the memory, and all clients together cannot take the room that workers need. Workers do not pass here: what
 * they have open is bounded by their slots.
 *
 * Over HTTP a call holds a connection, of which there are not many. So those that may last (streams, calls that wait) are
 * counted once more: one client gets a part of the connections for them, and all of them together leave some for short calls.
 *
 * Ownership: gate_new's caller frees it. Threads: any.
 */
#ifndef CAPSTAN_COORDINATOR_GATE_H
#define CAPSTAN_COORDINATOR_GATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "coordinator/turns.h"

struct gate;

struct gate_limits {
    uint64_t calls;     /* of one client */
    uint64_t bytes;     /* of one client's requests; a client with nothing open may have one of any size */
    uint64_t calls_all; /* of all clients together */
    uint64_t held;      /* connections of HTTP for what lasts, of one client */
    uint64_t held_all;  /* likewise, of all clients together */
};

struct gate *gate_new(struct gate_limits limits);
void gate_free(struct gate *gate); /* NULL ok; when everybody has left */

/*
 * Who calls. `token` is the name of the token, "": none was needed; `peer` the address of the other end with its port, as
 * rpc_call_peer has it.
 */
struct sender gate_sender(const struct gate *gate, const char *token, const char *peer);

/*
 * Counts a call in. If there is no room it is not counted, and `e` names the limit and what to do: ERR_EXHAUSTED if there
 * are too many calls, ERR_BUSY, which means that it can be sent again in a moment, if there are too many bytes.
 */
MUST_USE enum err gate_enter(struct gate *gate, struct sender sender, size_t n_bytes, struct error *e);

/* Counts it out, with the same values. */
void gate_leave(struct gate *gate, struct sender sender, size_t n_bytes);

/* Counts a call that has entered as one that may hold a connection for long. ERR_EXHAUSTED: there is no room for it. */
MUST_USE enum err gate_hold(struct gate *gate, struct sender sender, struct error *e);

/* Counts it out as such, before it leaves. */
void gate_release(struct gate *gate, struct sender sender);

#endif
