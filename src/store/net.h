/*
 * net.h - what a batch says about each row, once.
 *
 * The rows of a batch are to be applied in order, later ones over earlier ones, but a statement that writes many rows may
 * name each of them once. So all that a batch says about one row is gathered in a cell. Engines that write many rows by
 * one statement use it.
 *
 * Ownership: everything lives in the arena and points into the rows; a zero-initialised `struct net` is ready to be filled,
 * again and again, and keeps the slots of its maps. Threads: one at a time.
 */
#ifndef CAPSTAN_STORE_NET_H
#define CAPSTAN_STORE_NET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/map.h"
#include "store/store.h"

/* A job or a node that rows of the batch belong to. */
struct net_owner {
    const char *name;
    struct net_owner *next;
    struct net_cell *cells, **cells_end; /* in the order of their first mention */
    bool is_swept;
    int64_t swept_at_ms;
    struct net_owner *next_swept;
};

/* What the whole batch does to one row. */
struct net_cell {
    struct net_cell *next; /* of the same kind, in the order of their first mention */
    struct net_cell *next_of_owner;
    struct net_owner *owner; /* events: NULL */
    enum row_kind kind;
    uint32_t key[3];
    bool is_gone;              /* it is removed; otherwise it is written, unless `changes` is NULL */
    const struct row *fixed;   /* not NULL: it may be new, and this has its key and fixed columns */
    const struct row *changes; /* this has the others */
};

struct net_cells {
    struct net_cell *first;
    struct net_cell **end;
};

/* A lease to remove if it has this token. */
struct net_lease_gone {
    const struct row_lease_gone *row;
    struct net_lease_gone *next;
};

/*
 * A batch, netted out. To have the effect of all its rows in order, do this in order: the sweeps, the removals of leases
 * by token, all removals, all rows that may be new, all other rows.
 */
struct net {
    struct arena *arena;
    struct map owner_map;
    struct map cells;
    struct net_owner *owners, **owners_end;
    uint32_t n_owners;
    struct net_owner *last_owner;
    const struct row *last_event;
    struct net_cells kinds[ROW_META + 1];
    struct net_owner *swept, **swept_end;
    struct net_lease_gone *leases_gone, **leases_gone_end;
};

/* Nets out the rows of a batch. What it held before is forgotten. */
void net_fill(struct net *net, const struct batch *batch, struct arena *arena);
void net_deinit(struct net *net);

#endif
