/* observer_internal.h - what the files of the observer share: the one who follows, and those who read. */
#ifndef CAPSTAN_COORDINATOR_OBSERVER_INTERNAL_H
#define CAPSTAN_COORDINATOR_OBSERVER_INTERNAL_H

#include <pthread.h>

#include "base/limits.h"
#include "coordinator/await.h"
#include "coordinator/observer.h"
#include "coordinator/service_internal.h"

#define OBSERVER_TARGETS_MAX 64

/* A store in memory, which this process leads all by itself. */
struct copy {
    char name[64];
    struct store *store;
    struct fence fence;
};

struct observer {
    struct service *service;
    char targets[OBSERVER_TARGETS_MAX][LIMIT_ADDRESS_BYTES + 1];
    uint32_t n_targets;
    struct rpc_channel_options channel; /* all but the target */
    struct rpc_cancel *cancel;          /* fired when it stops, and only then: nobody resets it */
    int64_t silence_ms;                 /* a leader that says nothing for so long is given up */
    pthread_t follower;
    pthread_t timer;
    bool is_started;
    char url[80];
    struct copy copy; /* the one that answers; only the follower writes to it */

    pthread_mutex_t lock;
    pthread_cond_t wakes;
    bool is_stopping;
    bool is_ready;
    struct leader_news leader;
    int64_t started_mono_ms;
    int64_t complete_mono_ms; /* when the copy was last known to be complete */
    int64_t leader_offset_ms; /* the leader's clock minus the monotonic one */
    uint64_t version;         /* grows with every change of the copy */
    struct await await;

    pthread_mutex_t picture_lock;
    struct core *picture; /* NULL: none yet */
    uint64_t picture_version;
    int64_t picture_complete_mono_ms;
    int64_t picture_again_mono_ms; /* not before this, or making pictures would be all that it does */
};

/* The follower's thread, until `is_stopping`. */
void *observer__follow(void *observer);

/* The copy has changed: wakes those who wait for the end of jobs that are among these rows; NULL: for any. */
void observer__changed(struct observer *observer, const struct row *rows);

MUST_USE enum err copy_open(struct copy *copy, const char *name, struct error *e);
void copy_close(struct copy *copy); /* and forgets it */

#endif
