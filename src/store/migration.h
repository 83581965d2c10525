/*
 * migration.h - the numbered steps of the schema, compiled in from the files in migrations/.
 *
 * Step n takes a schema of version n - 1 to n (`up`) or back (`down`). The files are NNNN-name.DIALECT.up.sql and
 * .down.sql; the build makes the table below out of them.
 */
#ifndef CAPSTAN_STORE_MIGRATION_H
#define CAPSTAN_STORE_MIGRATION_H

#include <stdint.h>

struct migration {
    uint32_t version;
    const char *name;
    const char *dialect; /* "sqlite" or "postgres" */
    const char *up;
    const char *down;
};

/* Ends with a version of 0. Ordered by dialect, then version. */
extern const struct migration migrations[];

/* NULL if there is none. */
const struct migration *migration_find(const char *dialect, uint32_t version);
uint32_t migration_newest(const char *dialect);

/*
 * For tests: from now on the steps of `more`, which ends like the table above, count as well; NULL: no others any more. They
 * are the caller's. Only while no other thread uses a store.
 */
void migration_extend(const struct migration *more);

#endif
