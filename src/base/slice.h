/*
 * slice.h - how long the calling thread wants to run before others have a turn.
 *
 * Threads that compute for long and threads that answer calls share a machine's cores. By default they get the same slices of
 * time, some milliseconds, and one that was woken may wait for the rest of another's slice. A thread that asks for long slices
 * is interrupted by those that have not: they are served at once, and what it does takes no longer. Nothing happens on kernels
 * before Linux 6.12, which know one length for all.
 *
 * Threads: each for itself. Threads that it makes have the same.
 */
#ifndef CAPSTAN_BASE_SLICE_H
#define CAPSTAN_BASE_SLICE_H

#include <stdint.h>

/* Asks for slices of so many microseconds (100 to 100,000; 0: the usual). Returns what it was, 0 if it is not known. */
uint64_t slice_set(uint64_t us);

#endif
