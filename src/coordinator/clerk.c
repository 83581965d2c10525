#include "coordinator/clerk.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/mem.h"

#define RETRY_MS 500

struct errand {
    struct list in_turns;
    clerk_fn *fn;
    void *context;
};

struct clerk {
    struct office *office;
    struct store *store; /* NULL: not connected */
    int64_t retry_at_mono_ms;
    struct error e; /* why it is not */
    pthread_t thread;
};

struct office {
    char *store_url;
    pthread_mutex_t lock;
    pthread_cond_t wakes;
    struct turns errands;
    bool is_closing;
    uint32_t n_clerks;
    uint32_t n_idle;
    struct clerk clerks[];
};

static struct errand *next_errand(struct office *office)
{
    pthread_mutex_lock(&office->lock);
    office->n_idle++;
    while (turns_is_empty(&office->errands) && !office->is_closing) {
        pthread_cond_wait(&office->wakes, &office->lock);
    }
    office->n_idle--;
    struct list *first = turns_take(&office->errands);
    pthread_mutex_unlock(&office->lock);
    return first != NULL ? CONTAINER_OF(first, struct errand, in_turns) : NULL;
}

static void *work(void *context)
{
    struct clerk *clerk = context;
    for (struct errand *errand; (errand = next_errand(clerk->office)) != NULL;) {
        errand->fn(clerk, errand->context);
        mem_free(errand);
    }
    store_close(clerk->store);
    return NULL;
}

struct office *office_new(const char *store_url, uint32_t n_clerks)
{
    struct office *office = mem_calloc(1, sizeof *office + n_clerks * sizeof *office->clerks);
    office->store_url = mem_strdup(store_url);
    office->n_clerks = n_clerks;
    turns_init(&office->errands);
    int error = pthread_mutex_init(&office->lock, NULL);
    error |= pthread_cond_init(&office->wakes, NULL);
    for (uint32_t i = 0; i < n_clerks; i++) {
        office->clerks[i].office = office;
        error |= pthread_create(&office->clerks[i].thread, NULL, work, &office->clerks[i]);
    }
    ASSERT(error == 0);
    return office;
}

void office_free(struct office *office)
{
    if (office == NULL) {
        return;
    }
    pthread_mutex_lock(&office->lock);
    office->is_closing = true;
    pthread_cond_broadcast(&office->wakes);
    pthread_mutex_unlock(&office->lock);
    for (uint32_t i = 0; i < office->n_clerks; i++) {
        pthread_join(office->clerks[i].thread, NULL);
    }
    turns_deinit(&office->errands);
    pthread_cond_destroy(&office->wakes);
    pthread_mutex_destroy(&office->lock);
    mem_free(office->store_url);
    mem_free(office);
}

void office_send(struct office *office, struct sender sender, clerk_fn *fn, void *context)
{
    struct errand *errand = mem_alloc(sizeof *errand);
    *errand = (struct errand){.fn = fn, .context = context};
    pthread_mutex_lock(&office->lock);
    turns_push(&office->errands, sender, &errand->in_turns);
    if (office->n_idle > 0) {
        pthread_cond_signal(&office->wakes);
    }
    pthread_mutex_unlock(&office->lock);
}

enum err clerk_store(struct clerk *clerk, struct store **out, struct error *e)
{
    if (clerk->store == NULL && clock_mono_ms() >= clerk->retry_at_mono_ms) {
        clerk->e = (struct error){0};
        enum err err = store_open(clerk->office->store_url, &clerk->store, &clerk->e);
        if (err != ERR_OK) {
            clerk->e.code = err;
            clerk->store = NULL;
            clerk->retry_at_mono_ms = clock_mono_ms() + RETRY_MS;
        }
    }
    if (clerk->store == NULL) {
        if (e != NULL) {
            *e = clerk->e;
        }
        return clerk->e.code;
    }
    *out = clerk->store;
    return ERR_OK;
}

enum err clerk_note(struct clerk *clerk, enum err err)
{
    if (err == ERR_UNAVAILABLE || err == ERR_INTERNAL) {
        store_close(clerk->store);
        clerk->store = NULL;
    }
    return err;
}
