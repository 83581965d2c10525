/*
 * member.h - one child process of `capstan up`: this same program with another verb.
 *
 * A member ends with its parent, whatever ends that (PR_SET_PDEATHSIG), and is in a process group of its own, so that
 * Ctrl-C at the terminal reaches the parent alone, which then ends its members in order. What it writes comes through a
 * pipe and is passed on with the member's title before each line.
 *
 * Ownership: member_init takes the arguments over as they are (an arena's); member_deinit frees the rest. Threads: one.
 */
#ifndef CAPSTAN_MAIN_MEMBER_H
#define CAPSTAN_MAIN_MEMBER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"

struct member {
    const char *title; /* "coordinator", "worker 1" */
    char *const *argv; /* [0] is the program's name, [1] the verb; NULL-terminated */
    char *const *environment;
    bool is_prefixed;     /* its output comes through the pipe; else it writes to the parent's stderr itself */
    int death_signal;     /* what it gets when its parent dies without a word */
    const char *log_path; /* its stderr goes to the end of this file instead; NULL: it does not */
    pid_t pid;            /* 0: it does not run */
    int output;           /* the pipe's end; -1: none */
    struct buf line;      /* what came after the last line end */
    int64_t began_ms;
    int64_t restart_at_ms; /* 0: it is not to be started again */
    int64_t pause_ms;      /* before the next restart */
};

void member_init(struct member *member, const char *title, char *const *argv, char *const *environment);
void member_deinit(struct member *member); /* it must not run any more */

/* Starts it. ERR_UNAVAILABLE if there can be no further process. */
MUST_USE enum err member_start(struct member *member, struct error *e);

/* It has ended: plans the restart, after a pause that grows unless it had run for a while. */
void member_ended(struct member *member, int64_t now_ms);

/* Passes on what it has written, whole lines only; the rest, too, when it has closed its end. */
void member_pass_on(struct member *member, bool has_colors);

/* Sends the signal if it runs. */
void member_signal(const struct member *member, int number);

#endif
