#define _GNU_SOURCE /* clone */
#include "exec/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "exec/child.h"

#define STACK_BYTES ((size_t)64 * 1024)

/* How long process_end waits for killed processes to disappear. Only one that hangs in the kernel takes that long. */
#define GONE_MS_MAX 500

#define EXIT_UNKNOWN 255

/* The child's memory: it lies in pages that parent and child share however the child was made. */
struct birth {
    const struct process_plan *plan;
    int guard_fd;
    struct process_failure failure;
    _Alignas(16) unsigned char stack[STACK_BYTES];
};

CHILD_SIDE static void give_up(struct birth *birth, enum process_step step)
{
    birth->failure = (struct process_failure){.step = step, .code = errno};
    _exit(127);
}

CHILD_SIDE static bool tell_guard(int fd, int64_t until_ms)
{
    struct guard_message message = {.kind = GUARD_ADD, .group = getpid(), .until_ms = until_ms};
    return send(fd, &message, sizeof(message), MSG_NOSIGNAL) == sizeof(message);
}

/* The files are numbered 3 or more, so none of them is overwritten before it is used. */
CHILD_SIDE static bool place_files(const int files[3])
{
    for (int i = 0; i < 3; i++) {
        if (dup2(files[i], i) < 0) {
            return false;
        }
    }
    child_close_from(3);
    return true;
}

/* As execvp looks for a program, but never with a shell. Leaves the most telling error in errno. */
CHILD_SIDE static void become_program(const struct process_plan *plan)
{
    int telling = ENOENT;
    for (const char *const *path = plan->paths; *path != NULL; path++) {
        execve(*path, plan->argv, plan->environment);
        if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) {
            return;
        }
        telling = errno == EACCES ? EACCES : telling;
    }
    errno = telling;
}

CHILD_SIDE static bool set_limits(const struct process_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_limits; i++) {
        const struct process_limit *limit = &plan->limits[i];
        struct rlimit now;
        if (getrlimit((__rlimit_resource_t)limit->resource, &now) != 0) {
            return false;
        }
        now.rlim_max = limit->hard < now.rlim_max ? limit->hard : now.rlim_max;
        now.rlim_cur = limit->soft < now.rlim_max ? limit->soft : now.rlim_max;
        if (setrlimit((__rlimit_resource_t)limit->resource, &now) != 0) {
            return false;
        }
    }
    return true;
}

CHILD_SIDE static int child_main(void *argument)
{
    struct birth *birth = argument;
    const struct process_plan *plan = birth->plan;
    setsid();
    if (!tell_guard(birth->guard_fd, plan->until_ms)) {
        give_up(birth, STEP_GUARD);
    }
    child_reset_signals();
    if (!place_files(plan->files)) {
        give_up(birth, STEP_FILES);
    }
    if (plan->work_dir != NULL && chdir(plan->work_dir) != 0) {
        give_up(birth, STEP_WORK_DIR);
    }
    if (plan->cwd != NULL && chdir(plan->cwd) != 0) {
        give_up(birth, STEP_CWD);
    }
    if (!set_limits(plan)) {
        give_up(birth, STEP_LIMITS);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    become_program(plan);
    give_up(birth, STEP_EXEC);
    return 127;
}

/*
 * The thread waits in clone until the child has become a program or ended, so birth->failure is final when it returns.
 * Signals are blocked meanwhile: a handler that ran in the child would run on our memory.
 */
static pid_t give_birth(struct birth *birth, int *out_fd)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = clone(child_main, birth->stack + STACK_BYTES, CHILD_CLONE_FLAGS | CLONE_PIDFD | SIGCHLD, birth, out_fd);
    if (pid < 0) {
        birth->failure = (struct process_failure){.step = STEP_START, .code = errno};
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid;
}

static void reap(pid_t pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

bool process_start(const struct process_plan *plan, struct process *out, struct process_failure *out_failure)
{
    void *pages = mmap(NULL, sizeof(struct birth), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        *out_failure = (struct process_failure){.step = STEP_START, .code = errno};
        return false;
    }
    struct birth *birth = pages;
    birth->plan = plan;
    birth->guard_fd = guard_starts(plan->guard);
    pid_t pid = -1;
    int fd = -1;
    if (birth->guard_fd < 0) {
        birth->failure = (struct process_failure){.step = STEP_GUARD, .code = errno};
    } else {
        pid = give_birth(birth, &fd);
    }
    guard_started(plan->guard, pid > 0 ? pid : 0, plan->until_ms);
    struct process_failure failure = birth->failure;
    munmap(pages, sizeof(struct birth));
    if (failure.code == 0) {
        *out = (struct process){.guard = plan->guard, .pid = pid, .fd = fd};
        return true;
    }
    if (pid > 0) {
        guard_drop(plan->guard, pid);
        reap(pid);
        close(fd);
    }
    *out_failure = failure;
    return false;
}

void process_move_limit(const struct process *process, int64_t until_ms)
{
    guard_move(process->guard, process->pid, until_ms);
}

void process_signal(const struct process *process, int signal)
{
    kill(-process->pid, signal);
}

/* Whether processes whose parents have died become ours: as the first process of a container, for instance. */
static bool inherits_orphans(void)
{
    int is_reaper = 0;
    return getpid() == 1 || (prctl(PR_GET_CHILD_SUBREAPER, &is_reaper) == 0 && is_reaper != 0);
}

/* Whether /proc/NAME is a process of the group that is more than a zombie. */
static bool is_living_member(const char *name, pid_t group)
{
    char path[300];
    char line[512];
    snprintf(path, sizeof(path), "/proc/%s/stat", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);
    if (fd >= 0) {
        close(fd);
    }
    if (n <= 0) {
        return false;
    }
    line[n] = '\0';
    const char *end = strrchr(line, ')'); /* of the program's name, which may hold anything */
    if (end == NULL || end + 4 >= line + n || end[2] == 'Z' || end[2] == 'X') {
        return false;
    }
    char *after = NULL;
    (void)strtol(end + 4, &after, 10); /* the parent */
    return strtol(after, NULL, 10) == group;
}

/* Looks at all processes, since the system has no list of a group's. */
static bool has_living_member(pid_t group)
{
    DIR *processes = opendir("/proc");
    const struct dirent *entry = NULL;
    bool is_found = false;
    while (processes != NULL && !is_found && (entry = readdir(processes)) != NULL) {
        is_found = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && is_living_member(entry->d_name, group);
    }
    if (processes != NULL) {
        closedir(processes);
    }
    return is_found;
}

/*
 * Waits until no process of the group lives. Nearly always there is none, and the first question says so. The leader is
 * reaped, so the number may be taken by a new process once the group is empty: asking with signal 0 does it no harm, and
 * the time is bounded. Zombies that are not ours are left to whoever is to reap them, which may take its time.
 */
static void wait_until_gone(pid_t group)
{
    int64_t end_ms = clock_mono_ms() + GONE_MS_MAX;
    int pause_ms = 1;
    while (kill(-group, 0) == 0 && clock_mono_ms() < end_ms) {
        if (inherits_orphans() && waitpid(-group, NULL, WNOHANG) > 0) {
            continue;
        }
        poll(NULL, 0, pause_ms);
        pause_ms = pause_ms < 16 ? pause_ms * 2 : pause_ms;
        if (!inherits_orphans() && !has_living_member(group)) {
            return;
        }
    }
}

/* The order matters: as long as the leader is not reaped, the number of the group cannot be anybody else's. */
struct process_exit process_end(struct process *process)
{
    siginfo_t info = {.si_code = CLD_EXITED, .si_status = EXIT_UNKNOWN}; /* if somebody else has reaped it */
    while (waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
    }
    kill(-process->pid, SIGKILL);
    guard_drop(process->guard, process->pid);
    reap(process->pid);
    close(process->fd);
    wait_until_gone(process->pid);
    return (struct process_exit){.is_signaled = info.si_code != CLD_EXITED, .code = info.si_status};
}
