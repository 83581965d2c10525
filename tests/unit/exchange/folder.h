/*
 * folder.h - a store in a folder of its own, for tests.
 *
 * Ownership: a test opens and closes it, which removes the folder. Threads: one.
 */
#ifndef CAPSTAN_TESTS_UNIT_EXCHANGE_FOLDER_H
#define CAPSTAN_TESTS_UNIT_EXCHANGE_FOLDER_H

#include <stdint.h>

#include "exchange/writer.h"

struct folder {
    char path[64];
    char shuffle[80];
    char results[80];
    struct exchange_store *store;
};

void folder_open(struct folder *folder, uint64_t memory_bytes);
void folder_reopen(struct folder *folder, uint64_t memory_bytes); /* as a new process would; the store must be closed */
void folder_close(struct folder *folder);
uint32_t folder_files(const char *path);

struct exchange_key folder_key(const char *job, uint32_t task, uint32_t attempt);

/* Writes numbers from `first` on, `rows` in all, into `n` partitions by number modulo n, and finishes. */
void folder_write(struct folder *folder, const struct exchange_key *key, int64_t first, int64_t rows, uint32_t n,
                  struct ipc_tally *out_tallies);

/* The same, with every step's error passed on; the writer is closed. */
enum err folder_try_write(struct folder *folder, const struct exchange_key *key, int64_t first, int64_t rows,
                          uint32_t n, struct ipc_tally *out_tallies, struct error *e);

#endif
