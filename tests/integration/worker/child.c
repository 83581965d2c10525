#include "integration/worker/child.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/worker/hands.h"

#define JOIN_VARIABLE "CAPSTAN_TEST_WORKER_JOIN"
#define SLOTS_VARIABLE "CAPSTAN_TEST_WORKER_SLOTS"

extern char **environ;

/* Before main: if the variable is there, this process is a child, and never gets to main. */
__attribute__((constructor)) static void be_a_worker(void)
{
    const char *join = getenv(JOIN_VARIABLE);
    const char *slots = getenv(SLOTS_VARIABLE);
    if (join == NULL || slots == NULL) {
        return;
    }
    struct hands *hands = hands_new();
    struct worker_options options = {.join = &join,
                                     .n_join = 1,
                                     .worker_id = "child",
                                     .slots = (uint32_t)strtoul(slots, NULL, 10),
                                     .executors = hands->set,
                                     .version = "test"};
    struct worker *worker = NULL;
    struct error e = {0};
    if (worker_start(&options, &worker, &e) != ERR_OK) {
        fprintf(stderr, "%s\n", e.message);
        _exit(9);
    }
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    worker_stop_now(worker);
    int exit_code = worker_wait(worker);
    worker_close(worker);
    hands_free(hands);
    exit(exit_code);
}

struct child child_start(const char *join, uint32_t slots)
{
    return child_start_logging(join, slots, -1);
}

struct child child_start_logging(const char *join, uint32_t slots, int log)
{
    int ends[2];
    CHECK_INT(pipe(ends), 0);
    CHECK_INT(fcntl(ends[1], F_SETFD, FD_CLOEXEC), 0);
    char text[16];
    snprintf(text, sizeof text, "%u", slots);
    setenv(JOIN_VARIABLE, join, 1);
    setenv(SLOTS_VARIABLE, text, 1);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    if (log >= 0) {
        posix_spawn_file_actions_adddup2(&actions, log, STDERR_FILENO);
    }
    struct child child = {.input = ends[1]};
    char *arguments[] = {(char *)"worker", NULL};
    int failed = posix_spawn(&child.pid, "/proc/self/exe", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    unsetenv(JOIN_VARIABLE);
    unsetenv(SLOTS_VARIABLE);
    close(ends[0]);
    CHECK_INT(failed, 0);
    return child;
}

int child_end(struct child *child)
{
    int status = 0;
    close(child->input);
    while (waitpid(child->pid, &status, 0) < 0) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The text of /proc/PID/NAME. */
static void read_about(const struct child *child, const char *name, char *out, size_t n)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)child->pid, name);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    size_t got = fread(out, 1, n - 1, file);
    out[got] = '\0';
    fclose(file);
}

#define USER_TIME_FIELD 14 /* of the text of stat, counted from 1; the time in the kernel follows it */

int64_t child_cpu_ms(const struct child *child)
{
    char text[1024];
    read_about(child, "stat", text, sizeof text);
    char *at = strrchr(text, ')');
    for (int field = 3; at != NULL && field <= USER_TIME_FIELD; field++) {
        at = strchr(at + 1, ' ');
    }
    CHECK(at != NULL);
    int64_t user = at == NULL ? 0 : strtoll(at, &at, 10);
    int64_t kernel = at == NULL ? 0 : strtoll(at, NULL, 10);
    return (user + kernel) * 1000 / sysconf(_SC_CLK_TCK);
}

int64_t child_private_kib(const struct child *child)
{
    char text[4096];
    int64_t sum = 0;
    read_about(child, "smaps_rollup", text, sizeof text);
    for (const char *at = text; (at = strstr(at, "Private_")) != NULL; at++) {
        const char *colon = strchr(at, ':');
        sum += colon == NULL ? 0 : strtoll(colon + 1, NULL, 10);
    }
    return sum;
}
