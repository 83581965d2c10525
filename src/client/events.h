/*
 * events.h - what happened, oldest first, and what happens: WatchEvents as one row of events.
 *
 * Events have numbers that only grow, so a stream that broke goes on where it ended; so does one whose coordinator leads no
 * more. What has brought something and broke is taken up again; the search for a server has its own patience.
 *
 * Ownership: events_open's caller owns it; the job's id is the caller's and must live as long. Threads: one at a time.
 */
#ifndef CAPSTAN_CLIENT_EVENTS_H
#define CAPSTAN_CLIENT_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "client/client.h"

struct events;

struct events_request {
    const char *job_id; /* "": all jobs and nodes */
    uint64_t after_seq;
    bool follows;        /* never ends by itself */
    int64_t patience_ms; /* for the first one; 0: the client's */
};

/* Nothing is asked yet. The caller's arena is not used. */
struct events *events_open(const struct client_caller *caller, const struct events_request *request);
void events_close(struct events *events); /* NULL ok */

/* The next event, which lives until the next call; NULL: there is none, which cannot be if it follows. */
MUST_USE enum err events_next(struct events *events, const struct pb_event **out, struct error *e);

/* Whether the event is about the job itself. Such events travel without a stage, a task and an attempt. */
bool event_is_of_whole_job(const struct pb_event *event);

/* Whether the event says that the job itself has ended, or that it was retried, which undoes an end before it. */
bool event_is_end_of_job(const struct pb_event *event);
bool event_is_retry_of_job(const struct pb_event *event);

#endif
