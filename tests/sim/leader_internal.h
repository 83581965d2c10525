/*
 * leader_internal.h - what leader.c, leader_command.c and leader_reply.c share.
 *
 * Ownership: as in leader.h. Threads: one.
 */
#ifndef CAPSTAN_SIM_LEADER_INTERNAL_H
#define CAPSTAN_SIM_LEADER_INTERNAL_H

#include <stdint.h>

#include "core/command.h"
#include "core/effects.h"
#include "sim/net.h"

struct sim;

#define MESSAGE_BYTES 96

/* Memory that one command points into. */
struct command_room {
    struct attempt_ref refs[MAX_REFS];
    struct task_report reports[MAX_REPORTS];
    struct attempt_ref fetches[MAX_REPORTS][MAX_FETCH];
    struct partition partitions[MAX_PARTITIONS];
    const char *held[MAX_JOBS];
    struct attempt_ref parent;
    char messages[MAX_REPORTS][MESSAGE_BYTES];
};

/* Writes the request as a command that points into `room` and the leader's arena. */
void leader__command(struct sim *sim, uint32_t m, struct command_room *room, struct command *out);

/* What map attempt wrote which numbers: the same function for whoever asks. */
struct partition leader__partition(const struct ref *ref, uint32_t partition);

struct attempt_ref leader__attempt_ref(const struct ref *ref);

/* The child job of this attempt has ended: somebody is told what it brought, or that it brought nothing. */
void leader__read_child(struct sim *sim, struct ref ref, enum job_state state);

/* Turns a reply into a message and sends it to whoever asked. The request is freed. */
void leader__send_reply(struct sim *sim, const struct reply *reply);

/* Takes the request out of the list of those at the leader. */
void leader__unlink(struct sim *sim, uint32_t m);

#endif
