/*
 * store.c - the table of outputs and their lives.
 *
 * An output is in the table from the moment its writer opens it, so that dropping a job reaches it; it can be read once
 * it is finished. Everybody who uses it holds a reference. Dropping takes it out of the table and removes its file and
 * memory at once: readers that are at it fail, as if the worker had gone.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "exchange/store_internal.h"

#define KEPT_SHARE 4 /* of the store's memory, blocks that are gone are kept up to this part */

bool exchange_key_make(const char *job, uint32_t stage, uint32_t task, uint32_t attempt, struct exchange_key *out)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strlen(job);
    if (n == 0 || n > LIMIT_ID_BYTES || strspn(job, allowed) != n) {
        return false;
    }
    *out = (struct exchange_key){.stage = stage, .task = task, .attempt = attempt};
    memcpy(out->job, job, n + 1);
    return true;
}

/* ---- the table ---- */

static uint64_t hash_of(const struct exchange_store *store, const struct exchange_key *key)
{
    return siphash(&store->hash_key, key, sizeof(*key)); /* keys are zero behind the name */
}

static bool has_key(const void *value, const void *key)
{
    const struct exchange_output *output = value;
    return memcmp(&output->key, key, sizeof(output->key)) == 0;
}

/* ---- jobs ---- */

static uint64_t job_hash(const struct exchange_store *store, const char *id)
{
    return siphash(&store->hash_key, id, strlen(id));
}

static bool has_id(const void *value, const void *id)
{
    return strcmp(((const struct store__job *)value)->id, id) == 0;
}

static struct store__job *find_job_locked(const struct exchange_store *store, const char *id)
{
    return map_get(&store->jobs, job_hash(store, id), has_id, id);
}

static void enter_job_locked(struct exchange_output *output)
{
    struct exchange_store *store = output->store;
    struct store__job *job = find_job_locked(store, output->key.job);
    if (job == NULL) {
        job = mem_calloc(1, sizeof(*job));
        memcpy(job->id, output->key.job, sizeof(job->id));
        list_init(&job->outputs);
        list_push_back(&store->in_jobs, &job->link);
        map_put(&store->jobs, job_hash(store, job->id), job);
    }
    output->job = job;
    list_push_back(&job->outputs, &output->in_job);
    if (output->kind == EXCHANGE_KIND_SHUFFLE && job->n_maps++ == 0) {
        store->n_mapped_jobs++;
    }
}

/* Frees the job if that was its last output. */
static void leave_job_locked(struct exchange_output *output)
{
    struct store__job *job = output->job;
    if (job == NULL) {
        return;
    }
    output->job = NULL;
    list_remove(&output->in_job);
    if (output->kind == EXCHANGE_KIND_SHUFFLE && --job->n_maps == 0) {
        output->store->n_mapped_jobs--;
    }
    if (list_is_empty(&job->outputs)) {
        map_take_value(&output->store->jobs, job_hash(output->store, job->id), job);
        list_remove(&job->link);
        mem_free(job);
    }
}

/* ---- outputs in the table ---- */

struct exchange_output *store__find(struct exchange_store *store, const struct exchange_key *key)
{
    pthread_mutex_lock(&store->lock);
    struct exchange_output *output = map_get(&store->outputs, hash_of(store, key), has_key, key);
    if (output != NULL) {
        store__output_ref(output);
    }
    pthread_mutex_unlock(&store->lock);
    return output;
}

enum err store__add(struct exchange_store *store, struct exchange_output *output, struct error *e)
{
    const struct exchange_key *key = &output->key;
    uint64_t hash = hash_of(store, key);
    pthread_mutex_lock(&store->lock);
    bool exists = map_get(&store->outputs, hash, has_key, key) != NULL;
    if (!exists) {
        map_put(&store->outputs, hash, output);
        list_push_back(&store->list, &output->link);
        enter_job_locked(output);
        output->number = ++store->last_number;
        store__output_ref(output);
    }
    pthread_mutex_unlock(&store->lock);
    return !exists ? ERR_OK
                   : error_set(e, ERR_EXISTS,
                               "the output of %s stage %" PRIu32 " task %" PRIu32 " attempt %" PRIu32 " exists",
                               key->job, key->stage, key->task, key->attempt);
}

static bool take_out(struct exchange_output *output)
{
    struct exchange_store *store = output->store;
    pthread_mutex_lock(&store->lock);
    bool was_in = map_take_value(&store->outputs, hash_of(store, &output->key), output) != NULL;
    list_remove(&output->link);
    leave_job_locked(output);
    pthread_mutex_unlock(&store->lock);
    return was_in;
}

/* ---- outputs ---- */

struct exchange_output *store__output_new(struct exchange_store *store, const struct exchange_key *key,
                                          enum exchange_kind kind, uint32_t n_partitions)
{
    struct exchange_output *output = mem_calloc(1, sizeof(*output));
    output->store = store;
    output->key = *key;
    output->kind = kind;
    output->n_partitions = n_partitions;
    output->inline_bytes_max = LIMIT_INLINE_RESULT_BYTES;
    output->partitions = mem_calloc(n_partitions, sizeof(*output->partitions));
    atomic_init(&output->refs, 1);
    pthread_mutex_init(&output->lock, NULL);
    pthread_cond_init(&output->quiet, NULL);
    return output;
}

struct exchange_output *store__output_ref(struct exchange_output *output)
{
    atomic_fetch_add_explicit(&output->refs, 1, memory_order_relaxed);
    return output;
}

/* Gives the memory back. Under the lock, or when nobody else has it. */
static void free_pieces(struct exchange_output *output)
{
    for (uint32_t i = 0; i < output->n_partitions; i++) {
        struct store__partition *partition = &output->partitions[i];
        for (uint32_t k = 0; k < partition->n; k++) {
            block_unref(partition->pieces[k].block);
        }
        mem_free(partition->pieces);
        *partition = (struct store__partition){0};
    }
    atomic_fetch_sub(&output->store->memory_bytes, atomic_exchange(&output->memory_bytes, 0));
}

void store__output_unref(struct exchange_output *output)
{
    if (output == NULL || atomic_fetch_sub_explicit(&output->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    free_pieces(output);
    mem_free(output->partitions);
    pthread_mutex_destroy(&output->lock);
    pthread_cond_destroy(&output->quiet);
    mem_free(output);
}

/* Whichever name it has: a result gets its right one before it is finished. */
static void unlink_file(const struct exchange_output *output)
{
    for (int is_part = 0; is_part <= (output->kind == EXCHANGE_KIND_RESULT ? 1 : 0); is_part++) {
        char *path = store__path(output, is_part == 1);
        (void)unlink(path); /* there may be none */
        mem_free(path);
    }
}

static void remove_file(struct exchange_output *output)
{
    unlink_file(output);
    atomic_fetch_sub(&output->store->file_bytes, output->file_bytes);
    output->file_bytes = 0;
    output->has_file = false;
}

void store__drop(struct exchange_output *output)
{
    bool was_in = take_out(output);
    pthread_mutex_lock(&output->lock);
    bool is_first = !output->is_dropped;
    output->is_dropped = true;
    while (output->is_spilling) { /* it sees that its work is for nothing */
        pthread_cond_wait(&output->quiet, &output->lock);
    }
    if (is_first) {
        free_pieces(output);
        remove_file(output);
    }
    pthread_mutex_unlock(&output->lock);
    if (was_in) {
        store__output_unref(output);
    }
}

enum err exchange_output_open(struct exchange_store *store, const struct exchange_key *key, enum exchange_kind kind,
                              uint32_t n_partitions, struct exchange_output **out, struct error *e)
{
    ASSERT(n_partitions > 0);
    ASSERT(kind == EXCHANGE_KIND_SHUFFLE || n_partitions == 1);
    struct exchange_output *output = store__output_new(store, key, kind, n_partitions);
    enum err err = store__add(store, output, e);
    if (err != ERR_OK) {
        store__output_unref(output);
        return err;
    }
    *out = output;
    return ERR_OK;
}

void exchange_output_limit(struct exchange_output *output, uint64_t inline_bytes_max)
{
    ASSERT(inline_bytes_max <= LIMIT_INLINE_RESULT_BYTES);
    output->inline_bytes_max = inline_bytes_max;
}

static enum err dropped(const struct exchange_output *output, struct error *e)
{
    return error_set(e, ERR_CANCELED, "the job %s has ended, and its output is not wanted any more", output->key.job);
}

enum err exchange_output_append(struct exchange_output *output, uint32_t partition, struct block *piece, bool is_shared,
                                struct error *e)
{
    struct exchange_store *store = output->store;
    struct store__partition *to = &output->partitions[partition];
    ASSERT(partition < output->n_partitions);
    pthread_mutex_lock(&output->lock);
    ASSERT(!output->is_finished);
    if (output->is_dropped) {
        pthread_mutex_unlock(&output->lock);
        block_unref(piece);
        return dropped(output, e);
    }
    to->pieces = mem_grow(to->pieces, &to->cap, to->n + 1, sizeof(*to->pieces));
    to->pieces[to->n++] =
        (struct store__piece){.block = piece, .start = to->bytes, .n = piece->n, .is_shared = is_shared};
    to->bytes += piece->n;
    bool is_large = output->kind == EXCHANGE_KIND_RESULT && to->bytes > output->inline_bytes_max;
    if (!is_shared) { /* counted before another thread can take it to a file */
        atomic_fetch_add(&output->memory_bytes, piece->n);
        atomic_fetch_add(&store->memory_bytes, piece->n);
    }
    pthread_mutex_unlock(&output->lock);
    enum err err = is_large ? store__spill(output, e) : ERR_OK;
    return err == ERR_OK ? store__make_room(store, e) : err;
}

/* A result that has a file is in it as a whole, and gets its right name. */
static enum err finish_result(struct exchange_output *output, struct error *e)
{
    output->finished_wall_ms = clock_wall_ms();
    pthread_mutex_lock(&output->lock);
    bool has_file = output->has_file; /* only we spill it */
    pthread_mutex_unlock(&output->lock);
    if (!has_file) {
        return ERR_OK;
    }
    enum err err = store__spill(output, e);
    char *part = store__path(output, true);
    char *path = store__path(output, false);
    if (err == ERR_OK && rename(part, path) != 0) {
        err = error_set(e, ERR_UNAVAILABLE, "the result file %s cannot be renamed", part);
    }
    mem_free(part);
    mem_free(path);
    return err;
}

enum err exchange_output_finish(struct exchange_output *output, const struct ipc_tally *tallies, struct error *e)
{
    enum err err = ERR_OK;
    if (output->kind == EXCHANGE_KIND_RESULT) {
        err = finish_result(output, e);
    }
    pthread_mutex_lock(&output->lock);
    if (output->is_dropped) {
        unlink_file(output); /* if that was between the two names of its file, it is no news that it was not renamed */
        err = dropped(output, e);
    }
    for (uint32_t i = 0; i < output->n_partitions && err == ERR_OK; i++) {
        ASSERT(tallies[i].bytes == output->partitions[i].bytes);
    }
    output->is_finished = err == ERR_OK;
    pthread_mutex_unlock(&output->lock);
    return err;
}

void exchange_output_close(struct exchange_output *output, bool is_dropped)
{
    if (output == NULL) {
        return;
    }
    pthread_mutex_lock(&output->lock);
    bool is_kept = output->is_finished && !is_dropped;
    pthread_mutex_unlock(&output->lock);
    if (!is_kept) {
        store__drop(output);
    }
    store__output_unref(output);
}

/* ---- the store ---- */

enum err exchange_store_open(const struct exchange_store_options *options, struct exchange_store **out, struct error *e)
{
    struct exchange_store *store = mem_calloc(1, sizeof(*store));
    store->shuffle_folder = mem_strdup(options->shuffle_folder);
    store->result_folder = mem_strdup(options->result_folder);
    atomic_init(&store->memory_bytes_max, options->memory_bytes_max);
    block_keep_at_most(options->memory_bytes_max / KEPT_SHARE);
    random_bytes(&store->hash_key, sizeof(store->hash_key));
    pthread_mutex_init(&store->lock, NULL);
    list_init(&store->list);
    list_init(&store->settled);
    list_init(&store->in_jobs);
    enum err err = store__scan(store, e);
    if (err != ERR_OK) {
        exchange_store_close(store);
        return err;
    }
    *out = store;
    return ERR_OK;
}

void exchange_store_note_work(struct exchange_store *store, enum exchange_work work, int64_t us)
{
    if (store != NULL && us > 0) {
        atomic_fetch_add(&store->work_us[work], (uint64_t)us);
    }
}

uint64_t exchange_store_work_us(struct exchange_store *store, enum exchange_work work)
{
    return atomic_load(&store->work_us[work]);
}

uint64_t exchange_store_number(struct exchange_store *store)
{
    pthread_mutex_lock(&store->lock);
    uint64_t number = store->last_number;
    pthread_mutex_unlock(&store->lock);
    return number;
}

/* Outputs, each with a reference. */
struct chosen {
    struct exchange_output **items;
    uint32_t n;
    uint32_t cap;
};

static void choose(struct chosen *chosen, struct exchange_output *output)
{
    chosen->items = mem_grow((void *)chosen->items, &chosen->cap, chosen->n + 1, sizeof(struct exchange_output *));
    chosen->items[chosen->n++] = store__output_ref(output);
}

static void choose_results(struct chosen *chosen, const struct list *list)
{
    LIST_EACH(node, list) {
        struct exchange_output *output = CONTAINER_OF(node, struct exchange_output, link);
        if (output->kind == EXCHANGE_KIND_RESULT) {
            choose(chosen, output);
        }
    }
}

static void close_all(const struct list *list)
{
    while (!list_is_empty(list)) {
        struct exchange_output *output = CONTAINER_OF(list_first(list), struct exchange_output, link);
        store__output_ref(output);
        if (output->kind == EXCHANGE_KIND_SHUFFLE) {
            store__drop(output); /* its file, too */
        } else if (take_out(output)) {
            store__output_unref(output);
        }
        store__output_unref(output);
    }
}

void exchange_store_close(struct exchange_store *store)
{
    if (store == NULL) {
        return;
    }
    close_all(&store->list);
    close_all(&store->settled);
    map_deinit(&store->outputs);
    map_deinit(&store->jobs);
    pthread_mutex_destroy(&store->lock);
    mem_free(store->shuffle_folder);
    mem_free(store->result_folder);
    mem_free(store);
}

void exchange_store_set_memory(struct exchange_store *store, uint64_t memory_bytes_max)
{
    atomic_store(&store->memory_bytes_max, memory_bytes_max);
}

uint64_t exchange_store_memory_bytes(struct exchange_store *store)
{
    return atomic_load(&store->memory_bytes);
}

uint64_t exchange_store_file_bytes(struct exchange_store *store)
{
    return atomic_load(&store->file_bytes);
}

void exchange_store_end_job(struct exchange_store *store, const char *job_id, bool has_failed, uint64_t number)
{
    struct chosen drops = {0};
    struct chosen settles = {0};
    pthread_mutex_lock(&store->lock);
    const struct store__job *job = find_job_locked(store, job_id);
    for (struct list *at = job == NULL ? NULL : list_first(&job->outputs); at != NULL;
         at = list_next(&job->outputs, at)) {
        struct exchange_output *output = CONTAINER_OF(at, struct exchange_output, in_job);
        if (output->number <= number) {
            choose(output->kind == EXCHANGE_KIND_SHUFFLE || has_failed ? &drops : &settles, output);
        }
    }
    for (uint32_t i = 0; i < settles.n; i++) { /* from now on nobody waits for the end of their job */
        leave_job_locked(settles.items[i]);
        list_remove(&settles.items[i]->link);
        list_push_back(&store->settled, &settles.items[i]->link);
    }
    pthread_mutex_unlock(&store->lock);
    for (uint32_t i = 0; i < drops.n; i++) {
        store__drop(drops.items[i]);
        store__output_unref(drops.items[i]);
    }
    for (uint32_t i = 0; i < settles.n; i++) {
        store__output_unref(settles.items[i]);
    }
    mem_free((void *)drops.items);
    mem_free((void *)settles.items);
}

void exchange_store_drop(struct exchange_store *store, const struct exchange_key *key)
{
    struct exchange_output *output = store__find(store, key);
    if (output != NULL) {
        store__drop(output);
        store__output_unref(output);
    }
}

uint32_t exchange_store_drop_results(struct exchange_store *store, int64_t wall_ms)
{
    struct chosen results = {0};
    uint32_t n_dropped = 0;
    pthread_mutex_lock(&store->lock);
    choose_results(&results, &store->settled);
    choose_results(&results, &store->list);
    pthread_mutex_unlock(&store->lock);
    for (uint32_t i = 0; i < results.n; i++) {
        struct exchange_output *output = results.items[i];
        pthread_mutex_lock(&output->lock);
        bool is_old = output->is_finished && output->finished_wall_ms < wall_ms;
        pthread_mutex_unlock(&output->lock);
        if (is_old) {
            store__drop(output);
            n_dropped++;
        }
        store__output_unref(output);
    }
    mem_free((void *)results.items);
    return n_dropped;
}

uint32_t exchange_store_mapped_jobs(struct exchange_store *store)
{
    pthread_mutex_lock(&store->lock);
    uint32_t n = store->n_mapped_jobs;
    pthread_mutex_unlock(&store->lock);
    return n;
}

char **exchange_store_jobs(struct exchange_store *store, uint32_t max, uint32_t *out_n)
{
    uint32_t n = 0;
    pthread_mutex_lock(&store->lock);
    uint32_t n_max = store->jobs.count < max ? (uint32_t)store->jobs.count : max;
    char **jobs = mem_alloc(n_max * sizeof(char *));
    for (struct list *at = list_first(&store->in_jobs); n < n_max; at = list_next(&store->in_jobs, at)) {
        jobs[n++] = mem_strdup(CONTAINER_OF(at, struct store__job, link)->id);
    }
    pthread_mutex_unlock(&store->lock);
    *out_n = n;
    return jobs;
}
