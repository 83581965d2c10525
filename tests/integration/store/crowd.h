/*
 * crowd.h - many at once: threads or processes that start at the same moment, each with a store of its own.
 *
 * A member's function gets an open store and answers with a number; it must not CHECK. Its store is closed when it
 * returns, in a crowd of processes by the end of the process.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_STORE_CROWD_H
#define CAPSTAN_TESTS_INTEGRATION_STORE_CROWD_H

#include <stdint.h>

#include "subject.h"

#define CROWD_MAX 16

struct member {
    uint32_t index;
    struct store *store;
    struct arena arena;
    struct error e;
};

typedef int member_fn(struct member *m);

/* Ends the test if a member could not open its store. Answers are 0 to 99. */
void crowd_of_threads(struct subject *s, uint32_t n, member_fn *fn, int *out_answers);

/*
 * The same with processes. A member that has answered keeps its store open until all of the others have, too; then it
 * ends without closing it. The subject must have no store open meanwhile.
 */
void crowd_of_processes(struct subject *s, uint32_t n, member_fn *fn, int *out_answers);

#endif
