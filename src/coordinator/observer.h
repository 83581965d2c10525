/*
 * observer.h - a copy of the leader's state, for reads, without a database.
 *
 * One thread follows: it asks the given coordinators for the leader, takes a snapshot (GetSnapshot) and then the changed
 * rows of every batch (WatchEvents with `rows`), into a store in memory. Clerks answer history from that store as a
 * leader's clerks do from theirs, and all other reads from a picture: a core loaded from it, made anew when it is asked
 * for and something has changed.
 *
 * A gap, another leader or rows that make no sense mean a new snapshot, which is built beside the copy and takes its place
 * when it is whole; until then, and while no leader can be reached, answers come from the copy as it is. Every answer
 * tells how old it is: the time since the copy was last known to be complete.
 *
 * Of what has ended the copy holds only so much (feed.h); the oldest goes first.
 *
 * An observer trusts whom it follows: what that says about the state is checked for its form, not for its sense.
 *
 * Ownership: the service owns it. Threads: any.
 */
#ifndef CAPSTAN_COORDINATOR_OBSERVER_H
#define CAPSTAN_COORDINATOR_OBSERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "coordinator/coordinator.h"
#include "rpc/rpc.h"

struct exchange;
struct observer;
struct service;
struct service_options;

/* ERR_INVALID unless `follow` is HOST:PORT or several with commas between. Texts are copied. Does not connect yet. */
MUST_USE enum err observer_new(struct service *service, const struct service_options *options, struct observer **out,
                               struct error *e);

/* The store that holds the copy, for clerks. */
const char *observer_store_url(const struct observer *observer);

/* Begins to follow. The service's clerks and streams must be there. */
void observer_start(struct observer *observer);

/* Ends the following, and lets nobody wait any more. */
void observer_wind_up(struct observer *observer);

/* NULL ok. When no store of it is open any more. */
void observer_free(struct observer *observer);

/* ERR_UNAVAILABLE while there has never been a copy. */
MUST_USE enum err observer_check(struct observer *observer, struct error *e);

/* A read, as coordinator_send takes it. */
void observer_send(struct observer *observer, struct request *request);

/*
 * A client may ask for a job that the leader has just told it about and that this copy does not have yet. If so, and the
 * copy is not old anyway, keeps the exchange until it has, or for a second, and then has it served. False: serve it now.
 */
bool observer_hold(struct observer *observer, struct exchange *exchange, const char *job_id,
                   void (*handler)(struct exchange *exchange));

/* Where the leader is, as far as is known. */
struct leader_news observer_leader(struct observer *observer);

/* How old the copy is, or what was taken from it when it was complete at `as_of_mono_ms` (0: just now). */
int64_t observer_staleness_ms(struct observer *observer, int64_t as_of_mono_ms);

#endif
