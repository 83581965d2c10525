/*
 * folder.h - the data folder of a worker: its own, locked, and clean at the start.
 *
 * Ownership: the descriptor is the caller's until it is given back. Threads: any.
 */
#ifndef CAPSTAN_WORKER_FOLDER_H
#define CAPSTAN_WORKER_FOLDER_H

#include "base/check.h"
#include "base/err.h"

/* Subfolders of the data folder. The first three are emptied at every start; results survive a restart. */
#define WORKER_DIR_WORK "work"
#define WORKER_DIR_TMP "tmp"
#define WORKER_DIR_SHUFFLE "shuffle"
#define WORKER_DIR_RESULTS "results"

/*
 * Takes the folder: makes it if it is not there, with mode 0700, locks it, and makes or empties its subfolders. ERR_BUSY if
 * another worker has it, ERR_UNAVAILABLE if it cannot be used. Before anything in it is opened.
 */
MUST_USE enum err worker_folder_take(const char *path, int *out_fd, struct error *e);

/* After all in it is closed. -1 is fine. */
void worker_folder_give_back(int fd);

#endif
