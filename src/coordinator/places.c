#include "coordinator/places.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"

/* An address of which a place is taken. */
struct spot {
    struct list in_spots;
    char *address;
    uint32_t n_taken;
    struct turns line; /* empty, unless all are taken */
};

struct places {
    uint32_t n_each;
    pthread_mutex_t lock; /* for all below */
    struct list spots;    /* as many as there are workers for which somebody waits: few */
};

struct places *places_new(uint32_t n_of_each_address)
{
    struct places *places = mem_calloc(1, sizeof *places);
    places->n_each = n_of_each_address;
    pthread_mutex_init(&places->lock, NULL);
    list_init(&places->spots);
    return places;
}

void places_free(struct places *places)
{
    if (places != NULL) {
        ASSERT(list_is_empty(&places->spots));
        pthread_mutex_destroy(&places->lock);
        mem_free(places);
    }
}

static struct spot *find(struct places *places, const char *address)
{
    LIST_EACH(node, &places->spots) {
        struct spot *spot = CONTAINER_OF(node, struct spot, in_spots);
        if (strcmp(spot->address, address) == 0) {
            return spot;
        }
    }
    return NULL;
}

static struct spot *spot_new(struct places *places, const char *address)
{
    struct spot *spot = mem_calloc(1, sizeof *spot);
    spot->address = mem_strdup(address);
    turns_init(&spot->line);
    list_push_back(&places->spots, &spot->in_spots);
    return spot;
}

static void spot_free(struct spot *spot)
{
    list_remove(&spot->in_spots);
    turns_deinit(&spot->line);
    mem_free(spot->address);
    mem_free(spot);
}

bool places_take(struct places *places, const char *address, struct sender sender, struct list *item)
{
    pthread_mutex_lock(&places->lock);
    struct spot *spot = find(places, address);
    if (spot == NULL) {
        spot = spot_new(places, address);
    }
    bool is_free = spot->n_taken < places->n_each;
    if (is_free) {
        spot->n_taken++;
    } else if (item != NULL) {
        turns_push(&spot->line, sender, item);
    }
    pthread_mutex_unlock(&places->lock);
    return is_free;
}

struct list *places_give(struct places *places, const char *address)
{
    pthread_mutex_lock(&places->lock);
    struct spot *spot = find(places, address);
    ASSERT(spot != NULL);
    struct list *next = turns_take(&spot->line);
    if (next == NULL && --spot->n_taken == 0) {
        spot_free(spot);
    }
    pthread_mutex_unlock(&places->lock);
    return next;
}
