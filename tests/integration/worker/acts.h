/*
 * acts.h - executors that do what those of queries do, as far as the worker can tell, one for each thing that it must pass on.
 *
 *   echo      its result is its inputs
 *   sources   its result is what it was told to read
 *   map       leaves a map output of two partitions
 *   rows      leaves five rows, whose bytes are "rows"
 *   plan      leaves the plan {"stages":[]} and a row
 *   poisoned  leaves a row, and the message "poison"
 *   lost      fails because two map outputs could not be read
 *   late      leaves a map output and a plan, but only when it is stopped
 *   progress  tells how far it is, then waits for the gate of the hands; with the inputs "mad" it tells nonsense
 *
 * Ownership: acts_add before the worker starts; the acts live as long as the hands. Threads: any.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_WORKER_ACTS_H
#define CAPSTAN_TESTS_INTEGRATION_WORKER_ACTS_H

#include "integration/worker/hands.h"

struct acts {
    struct executor executors[9];
    struct hands *hands;
};

void acts_add(struct acts *acts, struct hands *hands);

#endif
