/*
 * guard.h - a small process that ends the commands of a worker when the worker dies, or is too late to do it.
 *
 * A worker that is killed cannot end its commands, and the coordinator gives their tasks to others: without the guard
 * they would run twice. PR_SET_PDEATHSIG would not do: it follows the thread that forked, not the process, and is not
 * inherited, so that the children of a command would live on.
 *
 * The guard is a fork of the worker in a session of its own, with all signals blocked and nothing open but one end of a
 * socket. Each command says its process group on the socket itself, before it becomes the program, and the worker takes
 * the group back before it reaps the command: so the guard, which reads the messages in order, knows every group that may
 * live and none whose number could belong to somebody else. When the worker is gone, it kills all groups and ends.
 *
 * A worker that is halted, or that the machine does not let run, lives and cannot end anything. So a command that must
 * not run beyond a certain time (an exclusive task, beyond its lease) has a limit that the guard knows from its start on
 * and that the worker moves as long as it may. The guard kills the group at that time, whatever the worker does.
 *
 * If the guard itself is killed, the next command starts another, which is told the groups that live.
 *
 * Ownership: the guard of a worker belongs to its executor `command`. Threads: any.
 */
#ifndef CAPSTAN_EXEC_GUARD_H
#define CAPSTAN_EXEC_GUARD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Groups at the same time. More than a worker has slots. */
#define GUARD_GROUPS_MAX 4096

struct guard;

/* What is sent on the socket, whole. */
struct guard_message {
    int32_t kind; /* enum guard_kind */
    int32_t group;
    int64_t until_ms; /* GUARD_ADD, GUARD_UNTIL: when it is killed, in monotonic milliseconds; 0: never */
};

enum guard_kind { GUARD_ADD = 1, GUARD_UNTIL, GUARD_DROP, GUARD_END };

struct guard *guard_new(void);
/* No group is left. NULL ok. */
void guard_free(struct guard *guard);

/*
 * Begins the start of a command. Returns the socket on which the command tells its group (GUARD_ADD), or -1 with errno
 * set if there is no guard to be had. The guard stays the same until guard_started, which must follow in either case.
 */
int guard_starts(struct guard *guard);

/* Ends the start of a command. `group` is 0 if there is none; `until_ms` is what it has told the guard. */
void guard_started(struct guard *guard, pid_t group, int64_t until_ms);

/* The group may run until then, in monotonic milliseconds. Does not block. */
void guard_move(struct guard *guard, pid_t group, int64_t until_ms);

/* The group is dead, and its leader not reaped yet. */
void guard_drop(struct guard *guard, pid_t group);

/* For tests: the process. 0: there is none. */
pid_t guard_pid(struct guard *guard);

#endif
