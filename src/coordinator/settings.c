#include "coordinator/settings.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/num.h"

struct setting {
    const char *name;
    size_t offset;
    int64_t def;
    int64_t lo;
    int64_t hi;
};

static const struct setting own[] = {
#define SETTING(name, def, lo, hi, help) {#name, offsetof(struct settings, name), def, lo, hi},
    SETTINGS_TABLE(SETTING)
#undef SETTING
};

#define N_OWN (sizeof own / sizeof *own)

static int64_t *field(struct settings *settings, const struct setting *setting)
{
    return (int64_t *)(void *)((char *)settings + setting->offset);
}

struct settings settings_default(void)
{
    struct settings settings = {.core = core_config_default()};
    for (size_t i = 0; i < N_OWN; i++) {
        *field(&settings, &own[i]) = own[i].def;
    }
    return settings;
}

static enum err set_own(struct settings *settings, const struct setting *setting, int64_t value, struct error *e)
{
    if (value < setting->lo || value > setting->hi) {
        return error_set(e, ERR_INVALID, "%s: must be from %" PRId64 " to %" PRId64 ", got %" PRId64, setting->name,
                         setting->lo, setting->hi, value);
    }
    *field(settings, setting) = value;
    return ERR_OK;
}

enum err settings_set(struct settings *settings, const char *assignment, struct error *e)
{
    const char *equals = strchr(assignment, '=');
    char name[64];
    int64_t value;
    if (equals == NULL || equals == assignment || (size_t)(equals - assignment) >= sizeof name) {
        error_set(e, ERR_INVALID, "'%.80s' is no setting", assignment);
        error_hint(e, "write --set name=value, such as --set lease_ms=30000");
        return ERR_INVALID;
    }
    memcpy(name, assignment, (size_t)(equals - assignment));
    name[equals - assignment] = '\0';
    if (!num_parse_int(equals + 1, &value)) {
        return error_set(e, ERR_INVALID, "%s: '%.80s' is not a whole number", name, equals + 1);
    }
    for (size_t i = 0; i < N_OWN; i++) {
        if (strcmp(own[i].name, name) == 0) {
            return set_own(settings, &own[i], value, e);
        }
    }
    return core_config_set(&settings->core, name, value, e);
}

enum err settings_check(const struct settings *settings, struct error *e)
{
    return core_config_check(&settings->core, e);
}

void settings_list(struct buf *out)
{
#define LIST(name, def, lo, hi, help) buf_format(out, "%-34s %" PRId64 "\n", #name, (int64_t)(def));
    CORE_CONFIG_TABLE(LIST)
    SETTINGS_TABLE(LIST)
#undef LIST
}
