/*
 * leader.h - the coordinator of a simulated cluster: the real core, driven as the real coordinator drives it.
 *
 * Requests gather in an inbox; a batch steps them all and ends with CMD_TICK. Its effects are committed in one go,
 * which takes simulated time, while the next batch gathers in the other effects. Answers leave after the commit.
 *
 * There is one leader at a time. It may crash at any moment; the next one loads what was committed.
 *
 * Ownership: the leader owns its core and its effects. Threads: one.
 */
#ifndef CAPSTAN_SIM_LEADER_H
#define CAPSTAN_SIM_LEADER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/core.h"
#include "core/effects.h"
#include "sim/check.h"

struct sim;

#define MAX_INBOX 4096
#define MAX_PROBES 16

struct batch {
    struct effects fx;
    uint64_t row_base;    /* rows of all batches before it */
    struct reply *walked; /* the last reply whose immediacy was looked at; NULL: none */
    struct fetch_probe probes[MAX_PROBES];
    uint32_t n_probes;
};

enum crash_mode {
    CRASH_BEFORE_COMMIT, /* the batch on its way is lost */
    CRASH_DURING_COMMIT, /* nobody knows: it is lost or stored, and no answer leaves */
    CRASH_AFTER_COMMIT,  /* the next batch is stored, its answers are lost */
};

#define MAX_GAPS 32

/* The leader did not step for a while; `total_ms` is what it slept through so far. */
struct gap {
    int64_t until_ms; /* leader time */
    int64_t total_ms;
};

struct leader {
    struct core *core; /* NULL while there is none */
    uint32_t number;   /* of the leader, grows */
    struct batch batch[2];
    uint32_t gathering; /* index of the batch that steps go to; the other one is being committed */
    bool is_committing;
    bool is_step_due;
    bool dies_after_commit;
    uint32_t inbox[MAX_INBOX];
    uint32_t n_inbox;
    uint32_t first_held; /* messages at the leader */
    int64_t clock_offset_ms;
    int64_t now_max_ms;        /* newest time that the core was told */
    int64_t past_now_max_ms;   /* the same of the leader before */
    struct gap gaps[MAX_GAPS]; /* a ring */
    uint32_t n_gaps;
    int64_t stalled_until_ms;
    int64_t next_tick_ms; /* simulated time */
    int64_t slow_commit_ms;
    uint32_t steps_to_check;
    struct effects scratch; /* for rehearsals */
    struct arena arena;     /* for one command */
};

/* The leader's time `at_ms` without what it slept through until then: the clock by which workers are silent. */
int64_t leader_attended_ms(const struct leader *leader, int64_t at_ms);

void leader_reset(struct sim *sim);
void leader_deinit(struct leader *leader);

/* A request arrives. */
void leader_receive(struct sim *sim, uint32_t m);

void leader_start(struct sim *sim);               /* EVENT_LEADER_UP */
void leader_step(struct sim *sim);                /* EVENT_LEADER_STEP */
void leader_tick(struct sim *sim, int64_t at_ms); /* EVENT_LEADER_TICK */
void leader_commit_done(struct sim *sim);         /* EVENT_COMMIT_DONE */
void leader_crash(struct sim *sim, enum crash_mode mode);

/* Checks that a core loaded from the committed rows and the pending ones equals the present one. */
void leader_rehearse(struct sim *sim);

#endif
