/*
 * files.c - names of files, and what a new process does with those of an old one.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "exchange/store_internal.h"

#define ENDING ".arrows"
#define PART_ENDING ".part"

char *store__path(const struct exchange_output *output, bool is_part)
{
    const struct exchange_key *key = &output->key;
    bool is_result = output->kind == EXCHANGE_KIND_RESULT;
    struct buf path = {0};
    buf_format(&path, "%s/%s.%" PRIu32 ".%" PRIu32 ".%" PRIu32 "%s",
               is_result ? output->store->result_folder : output->store->shuffle_folder, key->job, key->stage,
               key->task, key->attempt, is_result && is_part ? PART_ENDING : ENDING);
    return path.data;
}

static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name);
    size_t m = strlen(ending);
    return n > m && strcmp(name + n - m, ending) == 0;
}

/* Takes ".NUMBER" off the end of the name. */
static bool take_number(char *name, uint32_t *out)
{
    char *dot = strrchr(name, '.');
    if (dot == NULL || dot[1] < '0' || dot[1] > '9') {
        return false;
    }
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(dot + 1, &end, 10);
    if (*end != '\0' || errno != 0 || value > UINT32_MAX) {
        return false;
    }
    *out = (uint32_t)value;
    *dot = '\0';
    return true;
}

static bool parse_name(const char *name, struct exchange_key *out)
{
    uint32_t numbers[3];
    char *copy = mem_strdup(name);
    copy[strlen(copy) - strlen(ENDING)] = '\0';
    bool is_ok = take_number(copy, &numbers[2]) && take_number(copy, &numbers[1]) && take_number(copy, &numbers[0]) &&
                 exchange_key_make(copy, numbers[0], numbers[1], numbers[2], out);
    mem_free(copy);
    return is_ok;
}

static void add_result(struct exchange_store *store, const char *path, const char *name)
{
    struct exchange_key key;
    struct stat info;
    if (!parse_name(name, &key) || stat(path, &info) != 0) {
        return;
    }
    struct exchange_output *output = store__output_new(store, &key, EXCHANGE_KIND_RESULT, 1);
    struct store__partition *partition = &output->partitions[0];
    uint64_t bytes = (uint64_t)info.st_size;
    partition->pieces = mem_grow(NULL, &partition->cap, 1, sizeof(*partition->pieces));
    partition->pieces[partition->n++] = (struct store__piece){.n = bytes};
    partition->bytes = bytes;
    output->file_bytes = bytes;
    output->has_file = true;
    output->is_finished = true;
    output->finished_wall_ms = (int64_t)info.st_mtim.tv_sec * 1000 + info.st_mtim.tv_nsec / 1000000;
    atomic_fetch_add(&store->file_bytes, bytes);
    enum err err = store__add(store, output, NULL);
    ASSERT(err == ERR_OK); /* names of files are unique */
    store__output_unref(output);
}

/* Files that are not named as ours are let alone. */
static enum err scan_folder(struct exchange_store *store, const char *folder, bool are_results, struct error *e)
{
    DIR *entries = opendir(folder);
    if (entries == NULL) {
        return error_set(e, ERR_UNAVAILABLE, "the folder %s cannot be read: %s", folder, strerror(errno));
    }
    for (struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        bool is_whole = ends_with(entry->d_name, ENDING);
        struct buf path = {0};
        buf_format(&path, "%s/%s", folder, entry->d_name);
        if (are_results && is_whole) {
            add_result(store, path.data, entry->d_name);
        } else if (is_whole || (are_results && ends_with(entry->d_name, PART_ENDING))) {
            (void)unlink(path.data); /* one that stays is tried again at the next start */
        }
        buf_deinit(&path);
    }
    closedir(entries);
    return ERR_OK;
}

enum err store__scan(struct exchange_store *store, struct error *e)
{
    enum err err = scan_folder(store, store->shuffle_folder, false, e);
    return err == ERR_OK ? scan_folder(store, store->result_folder, true, e) : err;
}
