#include "store/migration.h"

#include <stddef.h>
#include <string.h>

static const struct migration none[] = {{0}};
static const struct migration *further = none;

void migration_extend(const struct migration *more)
{
    further = more == NULL ? none : more;
}

const struct migration *migration_find(const char *dialect, uint32_t version)
{
    const struct migration *const tables[] = {migrations, further};
    for (size_t i = 0; i < 2; i++) {
        for (const struct migration *m = tables[i]; m->version != 0; m++) {
            if (m->version == version && strcmp(m->dialect, dialect) == 0) {
                return m;
            }
        }
    }
    return NULL;
}

uint32_t migration_newest(const char *dialect)
{
    uint32_t newest = 0;
    while (migration_find(dialect, newest + 1) != NULL) {
        newest++;
    }
    return newest;
}
