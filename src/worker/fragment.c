#include "worker/fragment.h"

#include <string.h>

#include "base/mem.h"

void fragments_init(struct fragments *fragments)
{
    *fragments = (struct fragments){0};
    pthread_mutex_init(&fragments->mutex, NULL);
    list_init(&fragments->all);
}

void fragments_deinit(struct fragments *fragments)
{
    LIST_EACH_SAFE(at, next, &fragments->all) {
        struct fragment *fragment = CONTAINER_OF(at, struct fragment, in_all);
        ASSERT(fragment->users == 0);
        list_remove(at);
        mem_free(fragment);
    }
    pthread_mutex_destroy(&fragments->mutex);
}

static struct fragment *find_locked(struct fragments *fragments, const uint8_t digest[SHA256_BYTES])
{
    LIST_EACH(at, &fragments->all) {
        struct fragment *fragment = CONTAINER_OF(at, struct fragment, in_all);
        if (memcmp(fragment->digest, digest, SHA256_BYTES) == 0) {
            return fragment;
        }
    }
    return NULL;
}

static struct fragment *use_locked(struct fragments *fragments, struct fragment *fragment)
{
    fragment->users++;
    list_remove(&fragment->in_all);
    list_push_front(&fragments->all, &fragment->in_all);
    return fragment;
}

/* Takes out what is too much: the least recently used that nobody uses. The caller frees them. */
static void trim_locked(struct fragments *fragments, struct list *garbage)
{
    struct list *before = NULL;
    for (struct list *at = fragments->all.prev; at != &fragments->all; at = before) {
        struct fragment *fragment = CONTAINER_OF(at, struct fragment, in_all);
        before = at->prev;
        if (fragments->n <= FRAGMENTS_MAX && fragments->bytes <= FRAGMENT_BYTES_MAX) {
            break;
        }
        if (fragment->users == 0) {
            list_remove(at);
            list_push_back(garbage, at);
            fragments->n--;
            fragments->bytes -= fragment->n;
        }
    }
}

static void free_all(struct list *garbage)
{
    for (struct list *first; (first = list_first(garbage)) != NULL;) {
        list_remove(first);
        mem_free(CONTAINER_OF(first, struct fragment, in_all));
    }
}

struct fragment *fragments_take(struct fragments *fragments, const uint8_t digest[SHA256_BYTES])
{
    pthread_mutex_lock(&fragments->mutex);
    struct fragment *fragment = find_locked(fragments, digest);
    if (fragment != NULL) {
        use_locked(fragments, fragment);
    }
    pthread_mutex_unlock(&fragments->mutex);
    return fragment;
}

struct fragment *fragments_put(struct fragments *fragments, const uint8_t digest[SHA256_BYTES], const void *text,
                               size_t n)
{
    struct fragment *fresh = mem_alloc(sizeof *fresh + n + 1);
    *fresh = (struct fragment){.home = fragments, .n = n};
    memcpy(fresh->digest, digest, SHA256_BYTES);
    memcpy(fresh->text, text, n);
    fresh->text[n] = '\0';
    struct list garbage;
    list_init(&garbage);
    pthread_mutex_lock(&fragments->mutex);
    struct fragment *fragment = find_locked(fragments, digest);
    if (fragment == NULL) {
        fragment = fresh;
        fresh = NULL;
        list_init(&fragment->in_all);
        fragments->n++;
        fragments->bytes += n;
    }
    use_locked(fragments, fragment);
    trim_locked(fragments, &garbage);
    pthread_mutex_unlock(&fragments->mutex);
    mem_free(fresh);
    free_all(&garbage);
    return fragment;
}

void fragment_give_back(struct fragment *fragment)
{
    if (fragment == NULL) {
        return;
    }
    struct fragments *fragments = fragment->home;
    struct list garbage;
    list_init(&garbage);
    pthread_mutex_lock(&fragments->mutex);
    ASSERT(fragment->users > 0);
    fragment->users--;
    trim_locked(fragments, &garbage);
    pthread_mutex_unlock(&fragments->mutex);
    free_all(&garbage);
}

uint32_t fragments_known(struct fragments *fragments, struct arena *arena, uint8_t **out_digests)
{
    uint32_t n = 0;
    pthread_mutex_lock(&fragments->mutex);
    uint32_t n_max = fragments->n < FRAGMENTS_MAX ? fragments->n : FRAGMENTS_MAX;
    uint8_t *digests = n_max == 0 ? NULL : arena_alloc(arena, (size_t)n_max * SHA256_BYTES);
    LIST_EACH(at, &fragments->all) {
        if (n == n_max) {
            break;
        }
        memcpy(digests + (size_t)n++ * SHA256_BYTES, CONTAINER_OF(at, struct fragment, in_all)->digest, SHA256_BYTES);
    }
    pthread_mutex_unlock(&fragments->mutex);
    *out_digests = digests;
    return n;
}
