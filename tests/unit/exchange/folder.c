#include "folder.h"

#include "../test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"
#include "exchange/schema.h"

#define BATCH_ROWS 1000

void folder_reopen(struct folder *folder, uint64_t memory_bytes)
{
    struct error e = {0};
    struct exchange_store_options options = {
        .shuffle_folder = folder->shuffle, .result_folder = folder->results, .memory_bytes_max = memory_bytes};
    CHECK_ERR(exchange_store_open(&options, &folder->store, &e), ERR_OK);
}

void folder_open(struct folder *folder, uint64_t memory_bytes)
{
    snprintf(folder->path, sizeof(folder->path), "/tmp/capstan-exchange-XXXXXX");
    CHECK(mkdtemp(folder->path) != NULL);
    snprintf(folder->shuffle, sizeof(folder->shuffle), "%s/shuffle", folder->path);
    snprintf(folder->results, sizeof(folder->results), "%s/results", folder->path);
    CHECK_INT(mkdir(folder->shuffle, 0700), 0);
    CHECK_INT(mkdir(folder->results, 0700), 0);
    folder_reopen(folder, memory_bytes);
}

/* Visits the files of a folder, and removes them if asked to. */
static uint32_t visit(const char *path, bool is_removed)
{
    uint32_t n = 0;
    DIR *entries = opendir(path);
    CHECK(entries != NULL);
    ASSERT(entries != NULL);
    for (struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        char file[400];
        if (entry->d_name[0] == '.' && (entry->d_name[1] == '\0' || strcmp(entry->d_name, "..") == 0)) {
            continue;
        }
        n++;
        snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        if (is_removed) {
            unlink(file);
        }
    }
    closedir(entries);
    return n;
}

uint32_t folder_files(const char *path)
{
    return visit(path, false);
}

void folder_close(struct folder *folder)
{
    exchange_store_close(folder->store);
    visit(folder->shuffle, true);
    visit(folder->results, true);
    rmdir(folder->shuffle);
    rmdir(folder->results);
    rmdir(folder->path);
}

struct exchange_key folder_key(const char *job, uint32_t task, uint32_t attempt)
{
    struct exchange_key key;
    CHECK(exchange_key_make(job, 1, task, attempt, &key));
    return key;
}

/* Numbers in column 0, their partitions in column 1. */
static void make_schema(struct ArrowSchema *out)
{
    struct schema_parts root = {.format = mem_strdup("+s"), .name = mem_strdup(""), .n_children = 2};
    struct schema_parts number = {.format = mem_strdup("l"), .name = mem_strdup("x")};
    struct schema_parts partition = {.format = mem_strdup("I"), .name = mem_strdup("p")};
    schema_make(out, &root);
    schema_make(out->children[0], &number);
    schema_make(out->children[1], &partition);
}

static enum err append_some(struct exchange_writer *writer, int64_t first, int64_t rows, uint32_t n, struct error *e)
{
    int64_t numbers[BATCH_ROWS];
    uint32_t partitions[BATCH_ROWS];
    const void *number_buffers[] = {NULL, numbers};
    const void *partition_buffers[] = {NULL, partitions};
    const void *no_buffers[] = {NULL};
    struct ArrowArray columns[] = {{.length = rows, .n_buffers = 2, .buffers = number_buffers},
                                   {.length = rows, .n_buffers = 2, .buffers = partition_buffers}};
    struct ArrowArray *children[] = {&columns[0], &columns[1]};
    struct ArrowArray batch = {
        .length = rows, .n_buffers = 1, .buffers = no_buffers, .n_children = 2, .children = children};
    for (int64_t i = 0; i < rows; i++) {
        numbers[i] = first + i;
        partitions[i] = (uint32_t)((first + i) % n);
    }
    return exchange_writer_append(writer, &batch, e);
}

enum err folder_try_write(struct folder *folder, const struct exchange_key *key, int64_t first, int64_t rows,
                          uint32_t n, struct ipc_tally *out_tallies, struct error *e)
{
    struct exchange_writer *writer = NULL;
    struct ArrowSchema schema;
    struct exchange_writer_options options = {
        .store = folder->store,
        .key = *key,
        .scatter = {.mode = SCATTER_COLUMN, .n_partitions = n, .column = 1, .rows_max = 5000}};
    make_schema(&schema);
    enum err err = exchange_writer_open(&options, &schema, &writer, e);
    for (int64_t done = 0; done < rows && err == ERR_OK; done += BATCH_ROWS) {
        int64_t left = rows - done;
        err = append_some(writer, first + done, left < BATCH_ROWS ? left : BATCH_ROWS, n, e);
    }
    if (err == ERR_OK) {
        err = exchange_writer_finish(writer, out_tallies, e);
    }
    exchange_writer_close(writer);
    schema.release(&schema);
    return err;
}

void folder_write(struct folder *folder, const struct exchange_key *key, int64_t first, int64_t rows, uint32_t n,
                  struct ipc_tally *out_tallies)
{
    struct error e = {0};
    enum err err = folder_try_write(folder, key, first, rows, n, out_tallies, &e);
    if (err != ERR_OK) {
        print_error("%s\n", e.message);
    }
    CHECK_ERR(err, ERR_OK);
}
