#define _GNU_SOURCE /* _Fork, close_range, pidfd_open */
#include "exec/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "exec/child.h"

/* A group that lives. */
struct group {
    pid_t pid;
    int64_t until_ms; /* when it is killed; 0: never */
};

struct guard {
    pthread_rwlock_t process; /* guards `pid` and `fd`; held for reading while a command starts */
    pid_t pid;                /* 0: none */
    int fd;                   /* our end of the socket; -1: none */
    pthread_mutex_t mutex;    /* guards what follows; taken after `process` */
    struct group *groups;
    uint32_t count;
    uint32_t cap;
};

/* The guard's side: it may call what a signal handler may call, for it is the fork of a process with many threads. */

/* How long the guard waits for commands that were about to start when the worker died. */
#define LAST_WORDS_MS 1000

/* The longest that the guard waits at a time for the next limit. */
#define POLL_MS_MAX 60000

struct watch {
    struct group groups[GUARD_GROUPS_MAX];
    uint32_t count;
};

/* Where the group is; `count` if it is not there. */
CHILD_SIDE static uint32_t find_group(const struct group *groups, uint32_t count, pid_t pid)
{
    uint32_t i = 0;
    while (i < count && groups[i].pid != pid) {
        i++;
    }
    return i;
}

CHILD_SIDE static void take_message(struct watch *watch, const struct guard_message *message, bool is_alone)
{
    uint32_t i = find_group(watch->groups, watch->count, message->group);
    if (message->kind == GUARD_DROP && i < watch->count) {
        watch->groups[i] = watch->groups[--watch->count];
    } else if (message->kind == GUARD_UNTIL && i < watch->count) {
        watch->groups[i].until_ms = message->until_ms;
    } else if (message->kind == GUARD_ADD && is_alone) {
        kill(-message->group, SIGKILL);
    } else if (message->kind == GUARD_ADD && watch->count < GUARD_GROUPS_MAX) {
        watch->groups[watch->count++] = (struct group){.pid = message->group, .until_ms = message->until_ms};
    }
}

CHILD_SIDE static int64_t mono_ms(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Kills those whose time is over. Returns how long nothing has to be done, for poll. */
CHILD_SIDE static int kill_due(struct watch *watch)
{
    int64_t now_ms = mono_ms();
    int64_t next_ms = INT64_MAX;
    for (uint32_t i = 0; i < watch->count; i++) {
        struct group *group = &watch->groups[i];
        if (group->until_ms != 0 && group->until_ms <= now_ms) {
            kill(-group->pid, SIGKILL);
            group->until_ms = 0;
        }
        if (group->until_ms != 0 && group->until_ms < next_ms) {
            next_ms = group->until_ms;
        }
    }
    int64_t left_ms = next_ms == INT64_MAX ? -1 : next_ms - now_ms;
    return left_ms > POLL_MS_MAX ? POLL_MS_MAX : (int)left_ms;
}

/* Reads all messages that are there. False when there will be none any more. */
CHILD_SIDE static bool take_messages(struct watch *watch, int fd, bool is_alone)
{
    for (;;) {
        struct guard_message message = {0};
        ssize_t n = recv(fd, &message, sizeof(message), MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n != sizeof(message)) {
            return n < 0 && errno == EAGAIN;
        }
        if (message.kind == GUARD_END) {
            return false;
        }
        take_message(watch, &message, is_alone);
    }
}

/*
 * Waits for the worker's end, which shows on the socket and on the worker's descriptor. The socket alone would not do:
 * a process that the worker forked for reasons of its own may hold it open.
 */
CHILD_SIDE static void keep_watch(struct watch *watch, int fd, int worker, bool is_alone)
{
    struct pollfd wait[] = {{.fd = fd, .events = POLLIN}, {.fd = worker, .events = POLLIN}};
    bool is_open = take_messages(watch, fd, false);
    while (is_open && !is_alone) {
        poll(wait, 2, kill_due(watch));
        is_alone = wait[1].revents != 0;
        is_open = take_messages(watch, fd, false);
    }
    for (uint32_t i = 0; i < watch->count; i++) {
        kill(-watch->groups[i].pid, SIGKILL);
    }
    while (is_open && poll(wait, 1, LAST_WORDS_MS) > 0) {
        is_open = take_messages(watch, fd, true);
    }
}

CHILD_SIDE static void guard_main(int fd, pid_t worker_pid)
{
    static struct watch watch; /* the fork's own copy */
    watch.count = 0;
    setsid();
    prctl(PR_SET_NAME, "capstan-guard");
    int worker = pidfd_open(worker_pid, 0);
    /* If the worker has died already, the number may be somebody else's by now. Its commands may be there all the same. */
    bool is_alone = getppid() != worker_pid;
    if (chdir("/") != 0) {
        _exit(1);
    }
    child_keep_two(fd, worker);
    keep_watch(&watch, 0, worker < 0 ? -1 : 1, is_alone);
    _exit(0);
}

/* The worker's side. */

/* Sends whole or not at all; a guard that is gone is noticed at the next start. */
static void tell(const struct guard *guard, enum guard_kind kind, const struct group *group)
{
    struct guard_message message = {.kind = (int32_t)kind, .group = group->pid, .until_ms = group->until_ms};
    int flags = MSG_NOSIGNAL | (kind == GUARD_UNTIL ? MSG_DONTWAIT : 0);
    while (send(guard->fd, &message, sizeof(message), flags) < 0 && errno == EINTR) {
    }
}

/* With all signals blocked, which the guard inherits: nothing but SIGKILL ends it before its time. */
static pid_t fork_guard(const int pair[2])
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t worker = getpid();
    pid_t pid = CHILD_FORK();
    if (pid == 0) {
        guard_main(pair[1], worker);
    }
    int saved = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = saved;
    return pid;
}

/* The caller alone holds the guard. */
static void start_guard(struct guard *guard)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return;
    }
    pid_t pid = fork_guard(pair);
    int saved = errno;
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        errno = saved;
        return;
    }
    guard->pid = pid;
    guard->fd = pair[0];
    for (uint32_t i = 0; i < guard->count; i++) {
        tell(guard, GUARD_ADD, &guard->groups[i]);
    }
}

/* Waits for the process to end, and forgets it. The caller alone holds the guard. */
static void bury_guard(struct guard *guard)
{
    while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    close(guard->fd);
    guard->fd = -1;
    guard->pid = 0;
}

/* Only looks: as long as nobody has waited for it, its number belongs to nobody else. */
static bool is_alive(const struct guard *guard)
{
    siginfo_t info = {0};
    return guard->pid != 0 && waitid(P_PID, (id_t)guard->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0;
}

/* Starts a guard unless there is one. */
static void need_guard(struct guard *guard)
{
    pthread_rwlock_wrlock(&guard->process);
    if (!is_alive(guard)) {
        if (guard->pid != 0) {
            bury_guard(guard);
        }
        start_guard(guard);
    }
    pthread_rwlock_unlock(&guard->process);
}

struct guard *guard_new(void)
{
    struct guard *guard = mem_calloc(1, sizeof(*guard));
    pthread_rwlock_init(&guard->process, NULL);
    pthread_mutex_init(&guard->mutex, NULL);
    guard->fd = -1;
    need_guard(guard); /* now, while the worker is small; if it fails, the first command tries again */
    return guard;
}

void guard_free(struct guard *guard)
{
    if (guard == NULL) {
        return;
    }
    ASSERT(guard->count == 0);
    if (guard->pid != 0) {
        tell(guard, GUARD_END, &(struct group){0});
        bury_guard(guard);
    }
    mem_free(guard->groups);
    pthread_mutex_destroy(&guard->mutex);
    pthread_rwlock_destroy(&guard->process);
    mem_free(guard);
}

int guard_starts(struct guard *guard)
{
    pthread_rwlock_rdlock(&guard->process);
    if (!is_alive(guard)) {
        pthread_rwlock_unlock(&guard->process);
        need_guard(guard);
        pthread_rwlock_rdlock(&guard->process);
    }
    pthread_mutex_lock(&guard->mutex);
    bool is_full = guard->count >= GUARD_GROUPS_MAX;
    pthread_mutex_unlock(&guard->mutex);
    if (is_full) {
        errno = EAGAIN;
    }
    return is_full ? -1 : guard->fd;
}

void guard_started(struct guard *guard, pid_t group, int64_t until_ms)
{
    if (group != 0) {
        pthread_mutex_lock(&guard->mutex);
        guard->groups = mem_grow(guard->groups, &guard->cap, guard->count + 1, sizeof(*guard->groups));
        guard->groups[guard->count++] = (struct group){.pid = group, .until_ms = until_ms};
        pthread_mutex_unlock(&guard->mutex);
    }
    pthread_rwlock_unlock(&guard->process);
}

void guard_move(struct guard *guard, pid_t group, int64_t until_ms)
{
    pthread_rwlock_rdlock(&guard->process);
    pthread_mutex_lock(&guard->mutex);
    uint32_t i = find_group(guard->groups, guard->count, group);
    if (i < guard->count) {
        guard->groups[i].until_ms = until_ms; /* the next guard is told so, if this one is gone */
    }
    pthread_mutex_unlock(&guard->mutex);
    if (guard->fd >= 0) {
        tell(guard, GUARD_UNTIL, &(struct group){.pid = group, .until_ms = until_ms});
    }
    pthread_rwlock_unlock(&guard->process);
}

void guard_drop(struct guard *guard, pid_t group)
{
    pthread_rwlock_rdlock(&guard->process);
    pthread_mutex_lock(&guard->mutex);
    uint32_t i = find_group(guard->groups, guard->count, group);
    if (i < guard->count) {
        guard->groups[i] = guard->groups[--guard->count];
    }
    pthread_mutex_unlock(&guard->mutex);
    if (guard->fd >= 0) {
        tell(guard, GUARD_DROP, &(struct group){.pid = group});
    }
    pthread_rwlock_unlock(&guard->process);
}

pid_t guard_pid(struct guard *guard)
{
    pthread_rwlock_rdlock(&guard->process);
    pid_t pid = guard->pid;
    pthread_rwlock_unlock(&guard->process);
    return pid;
}
