/*
 * folder.h - folders that the processes keep their things in.
 *
 * Ownership: nothing is owned. Threads: any.
 */
#ifndef CAPSTAN_MAIN_FOLDER_H
#define CAPSTAN_MAIN_FOLDER_H

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"

/* Makes the folder and those above it, for this user only. One that is there stays as it is. */
MUST_USE enum err folder_make(const char *path, struct error *e);

/* A new empty folder for temporary things, in $TMPDIR or /tmp. Its name lives in the arena. */
MUST_USE enum err folder_make_temporary(struct arena *arena, const char **out_path, struct error *e);

/* Removes the folder with all that is in it. What cannot be removed stays. Symbolic links are not followed. */
void folder_remove(const char *path);

/*
 * Takes FOLDER/up.lock for as long as the process lives. ERR_BUSY with the other's process id if somebody has it.
 */
MUST_USE enum err folder_lock(const char *path, struct error *e);

#endif
