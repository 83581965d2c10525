/*
 * broken.h - stores with a fault, to show that the contract notices.
 *
 * CAPSTAN_BROKEN_STORE names a fault. Every store that a subject opens is then wrapped in one that passes all calls on
 * but has this fault. selftest.c runs the suite so, once per fault.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_STORE_BROKEN_H
#define CAPSTAN_TESTS_INTEGRATION_STORE_BROKEN_H

#include "store/store.h"

/* The store itself if no fault is asked for. The wrapper owns it and closes it. */
struct store *broken_wrap(struct store *store);

struct fault {
    const char *name;
    const char *noticed_by; /* part of the name of a test that must fail */
};

/* Ends with a name of NULL. */
extern const struct fault broken_faults[];

#endif
