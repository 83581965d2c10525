/*
 * client.h - clients that submit jobs, again and again until they are answered, cancel them and retry them.
 *
 * Ownership: the sim owns them. Threads: one.
 */
#ifndef CAPSTAN_SIM_CLIENT_H
#define CAPSTAN_SIM_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/names.h"

struct sim;

struct client {
    bool is_answered; /* its submit was */
    bool is_submitted;
};

struct clients {
    struct client clients[MAX_JOBS];
};

void clients_reset(struct sim *sim);
void client_act(struct sim *sim, uint32_t job, uint32_t action); /* EVENT_CLIENT */
void client_receive(struct sim *sim, uint32_t m);                /* an answer arrives */

/* Sends CMD_SET_NODE. */
void client_set_node(struct sim *sim, uint32_t worker, int draining, bool clear_blacklist); /* draining -1: as it is */

/* Cancels or retries a random job, children included. False if there is none. */
bool client_meddle(struct sim *sim);

/* True if every submit that was sent has been answered. */
bool clients_are_done(const struct sim *sim);

#endif
