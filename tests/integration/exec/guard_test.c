#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "exec/guard.h"
#include "fixture.h"

/* A command with a child, both of which write down who they are and ignore what can be ignored. */
static const char stubborn[] =
    "{\"argv\":[\"sh\",\"-c\",\"trap '' TERM HUP INT; (trap '' TERM HUP INT; exec sleep 1000) & "
    "echo $! >child; echo $$ >parent; wait\"]}";

/* A worker in a process of its own: it starts the command on a thread that ends soon, and never comes back. */
static void *run_stubborn(void *f)
{
    struct exec_outcome out = fixture_run(f, "command", stubborn);
    exec_outcome_deinit(&out);
    return NULL;
}

static pid_t start_worker(const struct fixture *f)
{
    pid_t worker = fork();
    if (worker == 0) {
        struct exec_options options = {.work_dir = f->folder};
        struct fixture own = *f;
        own.set = executor_set_new();
        if (executor_set_add(own.set, executor_command(&options), NULL) != ERR_OK) {
            _exit(1);
        }
        pthread_t thread;
        if (pthread_create(&thread, NULL, run_stubborn, &own) != 0) {
            _exit(1);
        }
        pthread_join(thread, NULL);
        _exit(1);
    }
    CHECK(worker > 0);
    return worker;
}

static void wait_for_files(const struct fixture *f)
{
    while (number_in_file(f, "child") <= 0 || number_in_file(f, "parent") <= 0) {
        pause_ms(1);
    }
}

/* Ends the worker by the signal, and sees that all that it ran is gone. */
static void check_ends_with_worker(int signal)
{
    struct fixture f = fixture_open(NULL);
    pid_t worker = start_worker(&f);
    wait_for_files(&f);
    CHECK(is_alive((pid_t)number_in_file(&f, "parent")));
    CHECK(is_alive((pid_t)number_in_file(&f, "child")));
    CHECK_INT(kill(worker, signal), 0);
    CHECK_INT(waitpid(worker, NULL, 0), worker);
    CHECK(is_gone_soon((pid_t)number_in_file(&f, "parent")));
    CHECK(is_gone_soon((pid_t)number_in_file(&f, "child")));
    fixture_close(&f);
}

TEST(commands_and_their_children_die_with_a_worker_that_is_killed)
{
    check_ends_with_worker(SIGKILL);
}

TEST(commands_die_with_a_worker_that_crashes)
{
    check_ends_with_worker(SIGABRT);
}

/* As a terminal does when somebody presses Ctrl-C, or a shell when it ends. */
TEST(the_guard_is_not_hit_by_signals_to_the_workers_group)
{
    struct fixture f = fixture_open(NULL);
    struct guard *guard = guard_new();
    pid_t pid = guard_pid(guard);
    CHECK(pid > 0);
    while (getpgid(pid) == getpgid(0)) {
        pause_ms(1);
    }
    const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1};
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        CHECK_INT(kill(pid, signals[i]), 0);
    }
    CHECK(guard_starts(guard) >= 0);
    guard_started(guard, 0, 0);
    CHECK_INT(guard_pid(guard), pid);
    guard_free(guard);
    CHECK(!is_alive(pid));
    guard_free(NULL);
    fixture_close(&f);
}

/* A process in a group of its own that does nothing. */
static pid_t start_idler(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
        for (;;) {
            pause();
        }
    }
    setpgid(pid, pid);
    return pid;
}

TEST(a_guard_that_was_killed_is_replaced_and_the_new_one_knows_what_runs)
{
    int outcome[2];
    CHECK_INT(pipe(outcome), 0);
    pid_t idler = start_idler();
    CHECK(idler > 0);
    pid_t worker = fork();
    if (worker == 0) {
        struct guard *guard = guard_new();
        guard_starts(guard);
        guard_started(guard, idler, 0); /* the first guard is never told: what the second knows is from the worker */
        pid_t first = guard_pid(guard);
        kill(first, SIGKILL);
        bool is_replaced = false;
        while (!is_replaced) {
            guard_starts(guard);
            guard_started(guard, 0, 0);
            is_replaced = guard_pid(guard) != first && guard_pid(guard) > 0;
        }
        ssize_t n = write(outcome[1], "1", 1);
        kill(getpid(), SIGKILL);
        _exit(n == 1 ? 1 : 2);
    }
    char byte = 0;
    CHECK_INT(read(outcome[0], &byte, 1), 1);
    CHECK_INT(waitpid(worker, NULL, 0), worker);
    int status = 0;
    CHECK_INT(waitpid(idler, &status, 0), idler);
    CHECK(WIFSIGNALED(status));
    CHECK_INT(WTERMSIG(status), SIGKILL);
    close(outcome[0]);
    close(outcome[1]);
}

/* As a command tells the guard that it is there. */
static void tell_of(int fd, pid_t group, int64_t until_ms)
{
    struct guard_message message = {.kind = GUARD_ADD, .group = group, .until_ms = until_ms};
    if (send(fd, &message, sizeof(message), 0) != sizeof(message)) {
        _exit(1);
    }
}

TEST(a_group_that_was_taken_back_is_left_alone)
{
    pid_t idler = start_idler();
    pid_t worker = fork();
    if (worker == 0) {
        struct guard *guard = guard_new();
        tell_of(guard_starts(guard), idler, 0);
        guard_started(guard, idler, 0);
        guard_drop(guard, idler);
        kill(getpid(), SIGKILL);
    }
    CHECK_INT(waitpid(worker, NULL, 0), worker);
    /* There is no event to wait for; a guard that kills does so in the same moment. */
    pause_ms(100);
    CHECK_INT(waitpid(idler, NULL, WNOHANG), 0);
    kill(idler, SIGKILL);
    CHECK_INT(waitpid(idler, NULL, 0), idler);
}

/* A worker that halts itself as soon as it has started a group that may run for `ms`, or has been moved to that. */
static pid_t start_halting_worker(pid_t idler, int64_t ms, bool is_moved)
{
    pid_t worker = fork();
    if (worker == 0) {
        struct guard *guard = guard_new();
        int64_t until_ms = clock_mono_ms() + (is_moved ? 3600000 : ms);
        tell_of(guard_starts(guard), idler, until_ms);
        guard_started(guard, idler, until_ms);
        if (is_moved) {
            guard_move(guard, idler, clock_mono_ms() + ms);
        }
        kill(getpid(), SIGSTOP);
        _exit(1);
    }
    return worker;
}

/* Sees that the group is killed though its worker neither lives nor dies, and not before the time is over. */
static void check_limit(bool is_moved)
{
    pid_t idler = start_idler();
    int64_t since_ms = clock_mono_ms();
    pid_t worker = start_halting_worker(idler, 300, is_moved);
    int status = 0;
    CHECK_INT(waitpid(worker, &status, WUNTRACED), worker);
    CHECK(WIFSTOPPED(status));
    CHECK_INT(waitpid(idler, &status, 0), idler);
    CHECK(WIFSIGNALED(status));
    CHECK(clock_mono_ms() - since_ms >= 300);
    CHECK_INT(waitpid(worker, NULL, WNOHANG), 0);
    kill(worker, SIGKILL);
    CHECK_INT(waitpid(worker, NULL, 0), worker);
}

TEST(a_group_is_killed_when_its_time_is_over_though_the_worker_is_halted)
{
    check_limit(false);
}

TEST(a_limit_that_was_moved_counts)
{
    check_limit(true);
}

TEST(a_guard_that_replaces_another_knows_the_limits)
{
    pid_t idler = start_idler();
    pid_t worker = fork();
    if (worker == 0) {
        struct guard *guard = guard_new();
        guard_starts(guard);
        guard_started(guard, idler, clock_mono_ms() + 300); /* the first guard is never told */
        pid_t first = guard_pid(guard);
        kill(first, SIGKILL);
        while (guard_pid(guard) == first || guard_pid(guard) <= 0) {
            guard_starts(guard);
            guard_started(guard, 0, 0);
        }
        kill(getpid(), SIGSTOP);
        _exit(1);
    }
    int status = 0;
    CHECK_INT(waitpid(idler, &status, 0), idler);
    CHECK(WIFSIGNALED(status));
    CHECK_INT(waitpid(worker, NULL, WNOHANG), 0);
    kill(worker, SIGKILL);
    CHECK_INT(waitpid(worker, NULL, 0), worker);
}

TEST(a_process_that_the_worker_forks_does_not_keep_the_guard_from_its_duty)
{
    struct fixture f = fixture_open(NULL);
    int hold[2];
    CHECK_INT(pipe(hold), 0);
    pid_t worker = fork();
    if (worker == 0) {
        close(hold[1]);
        struct exec_options options = {.work_dir = f.folder};
        struct fixture own = f;
        own.set = executor_set_new();
        if (executor_set_add(own.set, executor_command(&options), NULL) != ERR_OK) {
            _exit(1);
        }
        if (fork() == 0) {
            /* Holds a copy of the guard's socket until the test ends. */
            char byte = 0;
            _exit(read(hold[0], &byte, 1) == 0 ? 0 : 1);
        }
        run_stubborn(&own);
        _exit(1);
    }
    close(hold[0]);
    wait_for_files(&f);
    CHECK_INT(kill(worker, SIGKILL), 0);
    CHECK_INT(waitpid(worker, NULL, 0), worker);
    CHECK(is_gone_soon((pid_t)number_in_file(&f, "parent")));
    CHECK(is_gone_soon((pid_t)number_in_file(&f, "child")));
    close(hold[1]);
    fixture_close(&f);
}

/* The guard begins its work when its worker is dead already, more often than not. */
TEST(a_guard_that_comes_too_late_to_see_its_worker_does_its_duty)
{
    int hold[2];
    CHECK_INT(pipe(hold), 0);
    for (int round = 0; round < 20; round++) {
        pid_t idler = start_idler();
        pid_t worker = fork();
        if (worker == 0) {
            close(hold[1]);
            struct guard *guard = guard_new();
            tell_of(guard_starts(guard), idler, 0);
            if (fork() == 0) {
                char byte = 0;
                _exit(read(hold[0], &byte, 1) == 0 ? 0 : 1); /* holds a copy of the guard's socket */
            }
            kill(getpid(), SIGKILL);
        }
        CHECK_INT(waitpid(worker, NULL, 0), worker);
        CHECK(is_gone_soon(idler));
        CHECK_INT(waitpid(idler, NULL, 0), idler);
    }
    close(hold[0]);
    close(hold[1]);
}
