#include "integration/coordinator/content.h"

#include <string.h>

#include "base/prng.h"
#include "base/sha256.h"

#define SHORT_MAX 300
#define LONG_MAX 60000
#define LONG_EVERY 48   /* one of so many is long */
#define REMOVED_EVERY 4 /* one version of so many removes the data set */

static struct content make(struct arena *arena, const char *names)
{
    struct prng prng;
    struct content content = {.bytes = NULL};
    size_t n_names = strlen(names) + 1;
    uint64_t seed;
    sha256_once(names, n_names, content.digest.bytes);
    memcpy(&seed, content.digest.bytes, sizeof seed);
    prng_init(&prng, seed);
    bool is_long = prng_range(&prng, 1, LONG_EVERY) == 1;
    size_t n = n_names + (size_t)prng_range(&prng, 0, is_long ? LONG_MAX : SHORT_MAX);
    unsigned char *bytes = arena_alloc(arena, n);
    memcpy(bytes, names, n_names);
    for (size_t i = n_names; i < n; i++) {
        bytes[i] = (unsigned char)prng_range(&prng, 0, 255);
    }
    content.bytes = bytes;
    content.n = (uint32_t)n;
    sha256_once(bytes, n, content.digest.bytes);
    return content;
}

struct content content_input(struct arena *arena, const char *job_id, uint32_t task)
{
    return make(arena, arena_format(arena, "input of %s, %u", job_id, task));
}

struct content content_result(struct arena *arena, const char *job_id, uint32_t task, uint32_t attempt)
{
    return make(arena, arena_format(arena, "result of %s, %u, %u", job_id, task, attempt));
}

const char *content_source(struct arena *arena, const char *name, uint32_t version)
{
    return version % REMOVED_EVERY == 0 ? NULL : arena_format(arena, "/data/%s/%u.parquet", name, version);
}
