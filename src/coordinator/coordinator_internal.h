/*
 * coordinator_internal.h - what the threads share, and how they talk.
 *
 * All fields below `lock` are guarded by it. The threads pass whole things back and forth: the writer hands a loaded
 * core to the loop, the loop hands a flight (a batch with everything that waits for it) to the writer and gets it back,
 * and likewise a search to the finder.
 * A term of leadership begins when the writer hands over a core and ends when the loop lets go of it; the writer commits
 * nothing more before it has been elected again.
 */
#ifndef CAPSTAN_COORDINATOR_COORDINATOR_INTERNAL_H
#define CAPSTAN_COORDINATOR_COORDINATOR_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "coordinator/coordinator.h"
#include "coordinator/finder.h"

/* One batch on its way: effects, what else goes into the transaction, and the reads that saw it. */
struct flight {
    struct effects fx;
    struct list reads;  /* of struct request.in_list: answered when it is durable */
    uint32_t n_carried; /* commands and data sets in it */
    uint32_t weight;    /* of what clients asked for in it */
    uint64_t ended;     /* jobs that had ended when it took off (core_residency) */
    struct payload *payloads;
    uint32_t n_payloads;
    uint32_t cap_payloads;
    struct data_set *data_sets;
    uint32_t n_data_sets;
    uint32_t cap_data_sets;
    uint64_t *inbox_done;
    uint32_t n_inbox_done;
    uint32_t cap_inbox_done;
    int64_t since_ms; /* leader time of its first step; 0: empty */
};

struct coordinator {
    struct coordinator_options options;
    pthread_t loop;
    pthread_t writer;
    pthread_t keeper;
    pthread_t finder;

    pthread_mutex_t lock;
    pthread_cond_t loop_wakes;
    pthread_cond_t writer_wakes;
    pthread_cond_t keeper_wakes;
    pthread_cond_t finder_wakes;
    struct list inbound;  /* requests that the loop has not seen, of workers and of this process itself */
    struct turns clients; /* those of clients, which the loop takes in turn, as many as fit into a flight */
    bool is_stopping;
    bool has_ended; /* the loop takes no more requests */
    bool is_joined; /* both threads are gone */
    bool has_given_up;
    struct error gave_up_why;
    bool is_wanted;          /* the loop wants the leadership of this term kept */
    struct flight *outbound; /* for the writer to commit */
    struct core *elected;    /* for the loop to take */
    struct fence fence;
    int64_t clock_offset_ms;        /* database's clock minus the monotonic one */
    int64_t deadline_mono_ms;       /* until when the leadership is sure, by the monotonic clock */
    int64_t renewed_mono_ms;        /* when it was renewed the last time */
    int64_t writer_renewed_mono_ms; /* and when by the writer */
    bool is_committed;              /* the flight in `outbound` is durable */
    bool is_lost;                   /* the leadership of this term is lost */
    enum err lost_err;              /* and why */
    uint64_t ended_landed;          /* jobs whose end is durable, of this term */
    struct search *asked;           /* for the finder to take */
    struct search *found;           /* for the loop to take; there is never more than one search */
    struct leader_news leader;
    struct coordinator_stats stats;
    struct list leaving; /* of struct leaving.in_list, the oldest first */

    /* For the loop, without the lock. */
    atomic_int_least64_t leaving_since_ms; /* of the oldest in `leaving`; 0: there is none */
    int64_t landing_since_ms;              /* when the first step of the flight was taken that lands just now */
};

/* What of a flight goes into a transaction. `rows` is fx.rows, which the batch points to. */
static inline struct batch flight_batch(const struct flight *flight, const struct row *const *rows)
{
    return (struct batch){
        .rows = rows,
        .n_rows = *rows == NULL ? 0 : 1,
        .payloads = flight->payloads,
        .n_payloads = flight->n_payloads,
        .data_sets = flight->data_sets,
        .n_data_sets = flight->n_data_sets,
        .inbox_done = flight->inbox_done,
        .n_inbox_done = flight->n_inbox_done,
    };
}

void flight_clear(struct flight *flight);
/* Whether there is anything to commit. */
bool flight_writes(const struct flight *flight);
bool flight_is_empty(const struct flight *flight);

/* Puts in what the request brings besides its command, as far as the core has taken it; copies. */
void flight_carry(struct flight *flight, const struct request *request, const struct reply *reply);
void flight_carry_inbox_done(struct flight *flight, uint64_t inbox_id);
void flight_carry_data_set(struct flight *flight, const struct data_set *from);

/* Calls the answer and frees the request, unless it is kept. */
void coordinator__answer(struct request *request, const struct reply *reply, enum err err);

/* The time of the oldest step whose effects have not left, if `flight_since_ms` is that of the oldest flight; 0: none. */
int64_t coordinator__pending_since(struct coordinator *coordinator, int64_t flight_since_ms);

void coordinator__seed(uint64_t seed[2]);

void *coordinator__loop(void *coordinator);
void *coordinator__writer(void *coordinator);
void *coordinator__keeper(void *coordinator);
void *coordinator__finder(void *coordinator);

/* Whether the leadership is a lock on a file (SQLite), which its holder has as long as it lives. */
bool coordinator__is_file(const struct coordinator *coordinator);

/* Whether the leadership's time has run out. A lock on a file has none. The lock is held. */
bool coordinator__is_late(const struct coordinator *coordinator);

/* The leadership was renewed by a call that began then. The lock is held. */
void coordinator__renewed(struct coordinator *coordinator, int64_t asked_mono_ms);

/* Waits for the condition or until the monotonic time. The lock is held. */
void coordinator__wait(struct coordinator *coordinator, pthread_cond_t *condition, int64_t until_mono_ms);

#endif
