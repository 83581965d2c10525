/*
 * wake.h - a wait that another thread can end.
 *
 * Ownership: the caller's plain memory, which holds one descriptor between wake_init and wake_deinit. Threads: wake_up from
 * any thread meanwhile, the others one at a time.
 */
#ifndef CAPSTAN_STORE_WAKE_H
#define CAPSTAN_STORE_WAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"

struct wake {
    int fd;
};

/* ERR_UNAVAILABLE if there are no more descriptors; then there is nothing to end. */
MUST_USE enum err wake_init(struct wake *wake, struct error *e);
void wake_deinit(struct wake *wake);

/* Ends the wait that is under way, or else the next one. */
void wake_up(const struct wake *wake);

/*
 * Waits until wake_up is called, `fd` (-1: none) can be read or is broken, or the time is over. True only if it was `fd`.
 */
bool wake_wait(const struct wake *wake, int fd, int64_t timeout_ms);

#endif
