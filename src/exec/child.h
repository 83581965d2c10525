/*
 * child.h - what a process does between its birth and the program that it becomes.
 *
 * A worker has many threads, and a child is born with a copy of whatever they were doing: locks that nobody will open,
 * half-changed memory. So the functions here, and whatever else is marked CHILD_SIDE, call only what a signal handler may
 * call, allocate nothing, and end with exec or _exit. The sanitizers are kept out of them, for the child may run on the
 * memory of its parent.
 *
 * Ownership: nothing is owned. Threads: the one of the child.
 */
#ifndef CAPSTAN_EXEC_CHILD_H
#define CAPSTAN_EXEC_CHILD_H

#define CHILD_SIDE __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

/*
 * A fork without the handlers that libraries register for it. The thread sanitizer needs to see a fork, and a child that
 * shares its parent's memory is beyond it.
 */
#ifdef __SANITIZE_THREAD__
#define CHILD_FORK() fork()
#define CHILD_CLONE_FLAGS CLONE_VFORK
#else
#define CHILD_FORK() _Fork()
#define CHILD_CLONE_FLAGS (CLONE_VM | CLONE_VFORK)
#endif

/* Closes all descriptors from `first` on. */
void child_close_from(int first);

/* Keeps two descriptors, as 0 and 1, and closes all others. `b` may be -1. */
void child_keep_two(int a, int b);

/* Gives every signal its default effect. */
void child_reset_signals(void);

#endif
