/*
 * world_internal.h - what world.c and world_jobs.c share.
 *
 * Ownership: as in world.h. Threads: one.
 */
#ifndef CAPSTAN_SIM_WORLD_INTERNAL_H
#define CAPSTAN_SIM_WORLD_INTERNAL_H

#include "base/prng.h"
#include "sim/world.h"

/* Draws the clients' jobs: shapes, behaviour, and when their clients do what. */
void world__make_jobs(struct world *world, struct prng *prng);

#endif
