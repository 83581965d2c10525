/*
 * feed.h - what observers follow: the changes of every batch, as JSON, for a while.
 *
 * The loop appends each batch when it has become durable; followers read at their own pace and hold nothing but a
 * position. What is kept is bounded: whoever falls behind, or asks for what is not there any more, is told to take a
 * snapshot (Event.resync). A feed begins when the first snapshot is asked for and ends a while after the last follower has
 * gone, so a leader without observers pays nothing. Each beginning has a number of its own; positions mean nothing in
 * another, nor under another leader.
 *
 * A snapshot says at which position it was begun. It may hold rows that are newer than that: they come once more, which
 * does no harm, and a follower whose position has reached `head` of the first message has one consistent picture.
 *
 * A batch that is too large to be written on the loop's thread without being noticed breaks the feed: all take a snapshot,
 * which others read from the store.
 *
 * Ownership: the service owns it. Threads: any; feed_append on the loop's.
 */
#ifndef CAPSTAN_COORDINATOR_FEED_H
#define CAPSTAN_COORDINATOR_FEED_H

#include <stdint.h>

#include "store/store.h"

struct exchange;
struct feed;
struct service;

/* How often a follower hears from the leader, at least: that nothing has changed. */
#define FEED_BEAT_MS 500

/* How much of what has ended a snapshot brings, and an observer keeps. */
#define FEED_ENDED_JOBS 5000
#define FEED_TASKS 500000
#define FEED_RESULT_BYTES ((uint64_t)256 * 1024 * 1024)
#define FEED_EVENTS 20000

struct feed *feed_new(struct service *service);
void feed_append(struct feed *feed, const struct batch *batch);
void feed_elected(struct feed *feed); /* before the first batch of a term */
void feed_demoted(struct feed *feed); /* ends those who follow, and the feed */
void feed_close(struct feed *feed);   /* likewise, for good */
void feed_free(struct feed *feed);    /* NULL ok */

/* Begins the feed if need be, and says where it is. To be called before a snapshot is read, feed_leave after it. */
struct feed_place {
    uint64_t feed;
    uint64_t position;
};

struct feed_place feed_enter(struct feed *feed);
void feed_leave(struct feed *feed);

/* Serves WatchEvents with `rows`. */
void feed_follow(struct feed *feed, struct exchange *exchange);

#endif
