/*
 * clerk.h - threads for what must not hold up the loop or the pollers: long texts, and looks into the store.
 *
 * An office has a few clerks and one queue, in which those who sent something have their turn one after the other. Each
 * clerk has a connection to the store of its own, opened when it is first needed and again after it broke.
 *
 * Ownership: office_new's caller owns the office. Threads: office_send from any.
 */
#ifndef CAPSTAN_COORDINATOR_CLERK_H
#define CAPSTAN_COORDINATOR_CLERK_H

#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "coordinator/turns.h"
#include "store/store.h"

struct office;
struct clerk;

typedef void clerk_fn(struct clerk *clerk, void *context);

struct office *office_new(const char *store_url, uint32_t n_clerks);

/* Does what is still in the queue, then ends the threads. NULL ok. */
void office_free(struct office *office);

/* Has `fn` called by a clerk, when it is the sender's turn. */
void office_send(struct office *office, struct sender sender, clerk_fn *fn, void *context);

/*
 * The clerk's store. ERR_UNAVAILABLE if it cannot be reached; for a moment after that at once, so that a queue of errands
 * does not wait for a silent database one after the other. Only inside a clerk_fn.
 */
MUST_USE enum err clerk_store(struct clerk *clerk, struct store **out, struct error *e);

/* To be told how a call of the store went: a broken connection is dropped, so that the next call gets a new one. */
enum err clerk_note(struct clerk *clerk, enum err err);

#endif
