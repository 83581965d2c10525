/*
 * content.h - the bytes that tasks get and give in these tests. Whoever knows the names can make them again, so that what a
 * store gives back is compared byte for byte with what went in, whichever process that was.
 *
 * They begin with the names, go on with all kinds of bytes, NUL among them, and are mostly short and sometimes some 60 KB.
 *
 * Ownership: the bytes live in the arena. Threads: any.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_COORDINATOR_CONTENT_H
#define CAPSTAN_TESTS_INTEGRATION_COORDINATOR_CONTENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "core/ids.h"

struct content {
    const void *bytes;
    uint32_t n;
    struct digest digest;
};

/* What the task gets. */
struct content content_input(struct arena *arena, const char *job_id, uint32_t task);
/* What this attempt of it gives. */
struct content content_result(struct arena *arena, const char *job_id, uint32_t task, uint32_t attempt);

/* The source of a data set in its versions, which count from 1. NULL: in this version it is removed. */
const char *content_source(struct arena *arena, const char *name, uint32_t version);

#endif
