/*
 * tokens.h - tokens that `capstan up` leaves for the command line of the same user.
 *
 * Each lies in a file of its own, called as the address of the coordinator, in the folder capstan/tokens of the user's
 * configuration ($XDG_CONFIG_HOME, else ~/.config). Only the user can read it. So several of them on one machine, each at
 * its own address, do not disturb each other, and a token is sent only by commands that name its address. The file is locked
 * as long as that coordinator's `up` lives: one that was left behind by a crash is nobody's token any more, and is not sent
 * to whoever has the address now.
 *
 * Ownership: texts live in the arena that is given. Threads: any.
 */
#ifndef CAPSTAN_CLIENT_TOKENS_H
#define CAPSTAN_CLIENT_TOKENS_H

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"

/* Random hex digits: more bits than anybody can try. */
#define TOKEN_DIGITS 64

/* Where the token for this address lies, or would. ERR_PRECONDITION if this user has no folder for it. */
MUST_USE enum err token_path(struct arena *arena, const char *address, const char **out, struct error *e);

/*
 * Writes `text` and a line end into a file that only this user can read, in place of one that is there. It appears as a
 * whole. With `out_lock` it is locked until that descriptor is closed. ERR_INVALID with the reason of the system.
 */
MUST_USE enum err token_write(struct arena *arena, const char *path, const char *text, int *out_lock, struct error *e);

/* Makes the folders of that path, readable by this user only. Those that are there stay as they are. */
MUST_USE enum err token_make_folder(struct arena *arena, const char *path, struct error *e);

/*
 * The token of the first of these addresses (HOST:PORT,HOST:PORT...) that has one which is in use; `out` is NULL
 * if none has.
 * ERR_INVALID for a file that others could have read.
 */
MUST_USE enum err token_find(struct arena *arena, const char *addresses, const char **out, struct error *e);

#endif
