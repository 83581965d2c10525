/*
 * clocks.h - another date for this process, and the monotonic clock.
 *
 * clocks.c stands in for the C library's time(), gettimeofday() and clock_gettime(), for everything in this program and
 * the libraries that it uses. Only what tells the date is shifted; monotonic clocks are left alone, as an operator who
 * sets a wrong date leaves them alone.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_COORDINATOR_CLOCKS_H
#define CAPSTAN_TESTS_INTEGRATION_COORDINATOR_CLOCKS_H

#include <stdint.h>

/* From now on this process believes that it is so much later. Before it has threads. */
void clocks_shift(int64_t seconds);

int64_t clocks_mono_ms(void);
/* What this process takes for the date: milliseconds since 1970. */
int64_t clocks_date_ms(void);

void clocks_pause(int64_t ms);

#endif
