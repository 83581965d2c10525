/*
 * await.h - requests that wait for the end of a job, by job and by time.
 *
 * Ownership: the list holds requests, whose owner is the loop. Threads: the loop only.
 */
#ifndef CAPSTAN_COORDINATOR_AWAIT_H
#define CAPSTAN_COORDINATOR_AWAIT_H

#include "base/heap.h"
#include "base/map.h"
#include "coordinator/request.h"

struct await {
    struct map jobs; /* of struct await_job */
    struct heap timers;
};

void await_add(struct await *await, struct request *request);

/* Takes all out that wait for this job, onto the end of `out` (by in_list). */
void await_take_job(struct await *await, const char *job_id, struct list *out);

/* Takes all out whose time has come. */
void await_take_due(struct await *await, int64_t now_mono_ms, struct list *out);

/* Takes all out. */
void await_take_all(struct await *await, struct list *out);

/* When the next one's time comes; INT64_MAX: there is none. */
int64_t await_next_mono_ms(const struct await *await);

void await_deinit(struct await *await); /* it must be empty */

#endif
