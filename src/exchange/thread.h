/*
 * thread.h - a thread that gets no signals: those are for the program's own.
 *
 * Ownership: the caller joins it. Threads: any.
 */
#ifndef CAPSTAN_EXCHANGE_THREAD_H
#define CAPSTAN_EXCHANGE_THREAD_H

#include <pthread.h>

/* Aborts if there are no more threads to be had: this process cannot do without. */
void exchange__thread_start(pthread_t *out, void *(*run)(void *context), void *context);

#endif
