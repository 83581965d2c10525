/* One table of settings serves defaults, ranges and setting by name; the check of the whole is below it. */
#include "core/config.h"

#include <stdbool.h>
#include <string.h>

struct setting {
    const char *name;
    size_t offset;
    int64_t initial, smallest, largest;
};

static const struct setting settings[] = {
#define CORE_CONFIG_ROW(name, def, lo, hi, help) {#name, offsetof(struct core_config, name), def, lo, hi},
    CORE_CONFIG_TABLE(CORE_CONFIG_ROW)
#undef CORE_CONFIG_ROW
};

static int64_t *value_of(struct core_config *config, const struct setting *setting)
{
    return (int64_t *)(void *)((char *)config + setting->offset);
}

struct core_config core_config_default(void)
{
    struct core_config config;
    for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
        *value_of(&config, &settings[i]) = settings[i].initial;
    }
    return config;
}

enum err core_config_set(struct core_config *config, const char *name, int64_t value, struct error *e)
{
    for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
        const struct setting *setting = &settings[i];
        if (strcmp(setting->name, name) != 0) {
            continue;
        }
        if (value < setting->smallest || value > setting->largest) {
            return error_set(e, ERR_INVALID, "%s must be between %lld and %lld, not %lld", name,
                             (long long)setting->smallest, (long long)setting->largest, (long long)value);
        }
        *value_of(config, setting) = value;
        return ERR_OK;
    }
    return error_set(e, ERR_INVALID, "unknown setting '%s'", name);
}

/* Adds a line to the message; what does not fit is cut off. */
static void complain(struct error *e, bool *any, const char *line)
{
    if (e != NULL && *any) {
        struct error before = *e;
        error_set(e, ERR_INVALID, "%s\n%s", before.message, line);
    } else {
        error_set(e, ERR_INVALID, "%s", line);
    }
    *any = true;
}

enum err core_config_check(const struct core_config *config, struct error *e)
{
    bool any = false;
    struct core_config copy = *config;
    for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
        struct error one;
        if (core_config_set(&copy, settings[i].name, *value_of(&copy, &settings[i]), &one) != ERR_OK) {
            complain(e, &any, one.message);
        }
    }
    if (config->lease_ms / 3 < config->heartbeat_interval_ms) {
        complain(e, &any, "lease_ms must be at least three times heartbeat_interval_ms");
    }
    if (config->worker_liveness_timeout_ms < config->lease_ms) {
        complain(e, &any, "worker_liveness_timeout_ms must not be below lease_ms");
    }
    if (config->node_dead_ms <= config->node_stale_ms) {
        complain(e, &any, "node_dead_ms must be above node_stale_ms");
    }
    return any ? ERR_INVALID : ERR_OK;
}
