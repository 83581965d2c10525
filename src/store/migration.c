#include "store/migration.h"

#include <stddef.h>
#include <string.h>

const struct migration *migration_find(const char *dialect, uint32_t version)
{
    for (const struct migration *m = migrations; m->version != 0; m++) {
        if (m->version == version && strcmp(m->dialect, dialect) == 0) {
            return m;
        }
    }
    return NULL;
}

uint32_t migration_newest(const char *dialect)
{
    uint32_t newest = 0;
    for (const struct migration *m = migrations; m->version != 0; m++) {
        if (strcmp(m->dialect, dialect) == 0 && m->version > newest) {
            newest = m->version;
        }
    }
    return newest;
}
