/*
 * turns.h - a queue in which everybody gets a turn, however much others have put into it.
 *
 * What waits is ordered by who sent it. Taking goes round: one thing from each client in turn, and of a client one thing
 * from each of its connections in turn. What came over one connection keeps its order. So somebody with a thousand things
 * in the queue, over a hundred connections, costs somebody with one thing a wait of one turn, not of a thousand.
 *
 * A push and a take cost the same however many clients wait.
 *
 * Ownership: a queue that turns_init has made is the caller's, who also owns what is in it. Threads: one at a time.
 */
#ifndef CAPSTAN_COORDINATOR_TURNS_H
#define CAPSTAN_COORDINATOR_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"

/* Who sent something. Any numbers, as long as they are the same for the same; all zero: the coordinator itself. */
struct sender {
    uint64_t client;     /* whose calls count together: a token, or without tokens a host */
    uint64_t connection; /* one of its connections */
};

#define SENDER_SELF ((struct sender){0, 0})

struct turns {
    struct map clients; /* those that have something in the queue, here and below */
    struct map connections;
    struct list ring;   /* of clients, the next one first */
    struct list spares; /* records to be used again */
    uint32_t n_spares;
};

void turns_init(struct turns *turns);
void turns_deinit(struct turns *turns); /* when it is empty */

/* `item` must not be in any list; it is in one until it is taken. */
void turns_push(struct turns *turns, struct sender sender, struct list *item);

/* The next one, which is in no list any more; NULL: there is none. */
struct list *turns_take(struct turns *turns);

static inline bool turns_is_empty(const struct turns *turns)
{
    return list_is_empty(&turns->ring);
}

#endif
