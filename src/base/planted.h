/*
 * planted.h - bugs that tests must find, in processes that really run.
 *
 * PLANTED(name) is false, and costs nothing, in every build but the one with CAPSTAN_PLANTED_BUGS. There it is true if
 * the variable CAPSTAN_PLANTED_BUG has that name. tests/chaos/bugs.js lists them, with the property that each breaks.
 * The core has bugs of its own (BUG_TABLE in core/core.h), which the coordinator plants by the same variable.
 *
 * Ownership: nothing is owned. Threads: any.
 */
#ifndef CAPSTAN_BASE_PLANTED_H
#define CAPSTAN_BASE_PLANTED_H

#include <stdbool.h>

#ifdef CAPSTAN_PLANTED_BUGS

#include <stdlib.h>
#include <string.h>

static inline bool planted_is(const char *name)
{
    const char *wanted = getenv("CAPSTAN_PLANTED_BUG");
    return wanted != NULL && strcmp(wanted, name) == 0;
}

#define PLANTED(name) planted_is(#name)

#else

#define PLANTED(name) false

#endif

#endif
