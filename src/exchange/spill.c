/*
 * spill.c - from memory to files.
 *
 * One thread at a time spills an output. It takes references of the pieces under the output's lock, writes them without
 * any lock, and then says where they are. Readers meanwhile find them in memory. If the writing fails, the file is cut
 * back to what it was, and the pieces stay where they are.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "exchange/store_internal.h"

/* A piece on its way. */
struct moving {
    uint32_t partition;
    uint32_t piece;
    struct block *block;
    uint64_t at;
};

struct load {
    struct moving *items;
    uint32_t n;
    uint32_t cap;
    uint64_t bytes;
    uint64_t counted_bytes; /* of those that count as memory */
};

/* Under the output's lock. */
static void pick_up(struct exchange_output *output, struct load *load)
{
    for (uint32_t p = 0; p < output->n_partitions; p++) {
        struct store__partition *partition = &output->partitions[p];
        for (uint32_t i = 0; i < partition->n; i++) {
            struct store__piece *piece = &partition->pieces[i];
            if (piece->block == NULL || (piece->is_shared && output->kind == EXCHANGE_KIND_SHUFFLE)) {
                continue;
            }
            load->items = mem_grow(load->items, &load->cap, load->n + 1, sizeof(*load->items));
            load->items[load->n++] = (struct moving){
                .partition = p, .piece = i, .block = block_ref(piece->block), .at = output->file_bytes + load->bytes};
            load->bytes += piece->n;
            load->counted_bytes += piece->is_shared ? 0 : piece->n;
        }
    }
}

/* Under the output's lock: the pieces are in the file now. */
static void put_down(struct exchange_output *output, const struct load *load)
{
    for (uint32_t i = 0; i < load->n; i++) {
        const struct moving *moving = &load->items[i];
        struct store__piece *piece = &output->partitions[moving->partition].pieces[moving->piece];
        block_unref(piece->block);
        piece->block = NULL;
        piece->at = moving->at;
    }
    output->file_bytes += load->bytes;
    atomic_fetch_add(&output->store->file_bytes, load->bytes);
    atomic_fetch_sub(&output->memory_bytes, load->counted_bytes);
    atomic_fetch_sub(&output->store->memory_bytes, load->counted_bytes);
}

static bool write_all(int fd, const uint8_t *bytes, size_t n, uint64_t at)
{
    while (n > 0) {
        ssize_t done = pwrite(fd, bytes, n, (off_t)at);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return false;
        }
        at += (uint64_t)done;
        bytes += done;
        n -= (size_t)done;
    }
    return true;
}

static bool write_load(int fd, const struct load *load)
{
    bool is_ok = true;
    for (uint32_t i = 0; i < load->n && is_ok; i++) {
        const struct moving *moving = &load->items[i];
        is_ok = write_all(fd, moving->block->bytes, moving->block->n, moving->at);
    }
    return is_ok;
}

/* Writes the load behind what the file has, without a lock. */
static enum err write_file(struct exchange_output *output, const struct load *load, struct error *e)
{
    uint64_t start = load->items[0].at;
    char *path = store__path(output, true);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    bool is_ok = fd >= 0 && write_load(fd, load);
    int reason = errno;
    if (!is_ok && fd >= 0) {
        (void)(ftruncate(fd, (off_t)start) == 0); /* else the rest is removed with the file */
    }
    if (!is_ok && fd >= 0 && start == 0) {
        (void)unlink(path);
    }
    if (fd >= 0 && close(fd) != 0 && is_ok) {
        is_ok = false;
        reason = errno;
    }
    enum err err = ERR_OK;
    if (!is_ok) {
        bool is_full = reason == ENOSPC || reason == EDQUOT || reason == EFBIG;
        err =
            error_set(e, is_full ? ERR_EXHAUSTED : ERR_UNAVAILABLE, "%s cannot be written: %s", path, strerror(reason));
        error_hint(e, is_full ? "make room there, or give the worker more memory for shuffles"
                              : "look at the worker's data folder");
    }
    mem_free(path);
    return err;
}

enum err store__spill(struct exchange_output *output, struct error *e)
{
    struct load load = {0};
    enum err err = ERR_OK;
    pthread_mutex_lock(&output->lock);
    while (output->is_spilling) {
        pthread_cond_wait(&output->quiet, &output->lock);
    }
    if (!output->is_dropped) {
        pick_up(output, &load);
    }
    output->is_spilling = load.n > 0;
    pthread_mutex_unlock(&output->lock);
    if (load.n == 0) {
        return ERR_OK;
    }
    err = write_file(output, &load, e);
    pthread_mutex_lock(&output->lock);
    output->is_spilling = false;
    output->has_file = output->has_file || err == ERR_OK;
    if (err == ERR_OK && !output->is_dropped) {
        put_down(output, &load);
    }
    pthread_cond_broadcast(&output->quiet); /* who dropped it now removes the file */
    pthread_mutex_unlock(&output->lock);
    for (uint32_t i = 0; i < load.n; i++) {
        block_unref(load.items[i].block);
    }
    mem_free(load.items);
    return err;
}

/*
 * The map output with the most memory, the oldest among equals; NULL: there is none with any. With a reference. Results
 * are small until their own writers spill them.
 */
static struct exchange_output *largest(struct exchange_store *store)
{
    struct exchange_output *found = NULL;
    uint64_t most = 0;
    pthread_mutex_lock(&store->lock);
    LIST_EACH(node, &store->list) {
        struct exchange_output *output = CONTAINER_OF(node, struct exchange_output, link);
        uint64_t bytes = atomic_load(&output->memory_bytes);
        if (bytes > most && output->kind == EXCHANGE_KIND_SHUFFLE) {
            most = bytes;
            found = output;
        }
    }
    if (found != NULL) {
        store__output_ref(found);
    }
    pthread_mutex_unlock(&store->lock);
    return found;
}

enum err store__make_room(struct exchange_store *store, struct error *e)
{
    enum err err = ERR_OK;
    while (err == ERR_OK && atomic_load(&store->memory_bytes) > atomic_load(&store->memory_bytes_max)) {
        struct exchange_output *output = largest(store);
        if (output == NULL) { /* others are at it */
            break;
        }
        err = store__spill(output, e);
        store__output_unref(output);
    }
    return err;
}
