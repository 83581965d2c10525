/*
 * proc.h - worker processes: they register, heartbeat, poll, pretend to work, and report.
 *
 * A worker is a name; a process is one incarnation of it. Several processes of one worker can live at the same time.
 *
 * Ownership: the sim owns all of them. Threads: one.
 */
#ifndef CAPSTAN_SIM_PROC_H
#define CAPSTAN_SIM_PROC_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/names.h"
#include "sim/net.h"
#include "sim/world.h"

struct sim;

#define MAX_SLOTS 8
#define MAX_WRITTEN 4 /* attempts of a map task whose files somebody may still have */

enum slot_state { SLOT_FREE, SLOT_RUNNING, SLOT_REGISTERING, SLOT_REPORTING };

/* An attempt in the hands of a process. */
struct slot {
    enum slot_state state;
    uint32_t generation;
    uint32_t def; /* stage_def */
    struct ref ref;
    struct report report; /* SLOT_REGISTERING, SLOT_REPORTING: what it will say, or says */
    bool is_inline;
    int64_t sent_at_ms;
    uint32_t n_sources;
    struct source_told sources[MAX_SOURCES];
};

struct proc {
    bool is_alive;
    bool is_registered;
    bool ignores_orders; /* a zombie that does not exit when told */
    bool is_leaving;
    uint32_t worker;
    struct traits traits; /* as it says */
    uint32_t lacking_ops; /* said, but not so */
    uint32_t n_slots;
    struct slot slots[MAX_SLOTS];
    int64_t stalled_until_ms;
    int64_t registered_sent_ms;
    uint32_t poll_rpc; /* 0: none open */
    uint32_t poll_capacity;
    int64_t poll_until_ms;
    uint32_t next_rpc;
    uint32_t file_epoch; /* grows when its files are lost */
    uint64_t held[(MAX_JOBS + 63) / 64];
    struct report said[4]; /* its last final reports, to be repeated */
    uint32_t n_said;
};

struct worker {
    uint32_t proc; /* the newest process; NO_INDEX: none yet */
    bool is_start_due;
};

/* Files of one map attempt. */
struct written {
    uint32_t attempt;
    uint32_t proc;
    uint32_t epoch;
};

struct workers {
    struct worker workers[MAX_WORKERS];
    struct proc procs[MAX_PROCS];
    uint32_t n_procs;
    struct written written[MAX_TASKS][MAX_WRITTEN];
    uint32_t n_written[MAX_TASKS];
};

void procs_reset(struct sim *sim);

void proc_start(struct sim *sim, uint32_t worker); /* EVENT_PROC_START: a new process under this name */
void proc_kill(struct sim *sim, uint32_t proc);
void proc_register(struct sim *sim, uint32_t proc);

void proc_timer(struct sim *sim, uint32_t proc);                        /* EVENT_PROC_TIMER */
void proc_task_done(struct sim *sim, uint32_t proc, uint32_t slot_gen); /* EVENT_TASK_DONE */
void proc_receive(struct sim *sim, uint32_t m);                         /* an answer arrives */

/* Sends one report, true or not. */
void proc_send_report(struct sim *sim, uint32_t proc, const struct report *report);

/* A random living process, NO_INDEX if there is none. */
uint32_t proc_random(struct sim *sim);

#endif
