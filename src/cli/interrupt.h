/*
 * interrupt.h - Ctrl-C for verbs that have something to put in order before they leave.
 *
 * A thread of its own takes SIGINT and SIGTERM. The first one sets the mark and ends the calls that are under way; the
 * second one ends the process at once with EXIT_INTERRUPTED. Who waits for the reader of stdout is in no call: before rows
 * are written there, interrupt_hurry.
 *
 * Ownership: interrupt_begin makes what interrupt_end frees. Threads: begin before any other thread is made, so that all
 * leave the signals to this one; interrupt_is_on from any.
 */
#ifndef CAPSTAN_CLI_INTERRUPT_H
#define CAPSTAN_CLI_INTERRUPT_H

#include <stdbool.h>

struct interrupt;
struct rpc_cancel;

struct interrupt *interrupt_begin(void);
void interrupt_end(struct interrupt *interrupt); /* NULL ok */

bool interrupt_is_on(const struct interrupt *interrupt); /* NULL ok: false */

/* Nothing has to be put in order any more: from now on the first signal ends the process, too. False: one has come. */
bool interrupt_hurry(struct interrupt *interrupt);

/* For the calls that the first signal ends. Reset it to make further calls. Lives as long as the interrupt. */
struct rpc_cancel *interrupt_cancel(struct interrupt *interrupt);

#endif
