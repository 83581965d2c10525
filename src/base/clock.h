/*
 * clock.h - the machine's clocks, for those who do I/O. The core never reads one: it is told the time.
 *
 * Ownership: nothing is owned. Threads: any.
 */
#ifndef CAPSTAN_BASE_CLOCK_H
#define CAPSTAN_BASE_CLOCK_H

#include <stdint.h>

/* Only grows, from an arbitrary start; stands for durations and deadlines. */
int64_t clock_mono_ms(void);
int64_t clock_mono_us(void);

/* Milliseconds since 1970 by this machine's date; for people to read, never to decide by. */
int64_t clock_wall_ms(void);

#endif
