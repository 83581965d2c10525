#define _DEFAULT_SOURCE /* mkdtemp */
#include "fixture.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "test.h"

void pause_ms(int ms)
{
    poll(NULL, 0, ms);
}

struct fixture fixture_open(const struct exec_options *options)
{
    struct fixture f = {.folder = "/tmp/capstan-exec-XXXXXX"};
    CHECK(mkdtemp(f.folder) != NULL);
    struct exec_options own = {0};
    if (options != NULL) {
        own = *options;
    }
    own.work_dir = f.folder;
    f.set = executor_set_new();
    CHECK_ERR(executor_set_add(f.set, executor_command(&own), NULL), ERR_OK);
    CHECK_ERR(executor_set_add(f.set, executor_http(&own), NULL), ERR_OK);
    CHECK_ERR(executor_set_add(f.set, executor_sleep(), NULL), ERR_OK);
    return f;
}

void fixture_close(struct fixture *f)
{
    executor_set_free(f->set);
    DIR *folder = opendir(f->folder);
    CHECK(folder != NULL);
    const struct dirent *entry = NULL;
    while ((entry = readdir(folder)) != NULL) {
        unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
    CHECK_INT(rmdir(f->folder), 0);
}

struct exec_task task_with(const char *inputs)
{
    return (struct exec_task){.job_id = "job-1",
                              .stage = 3,
                              .task = 7,
                              .attempt = 2,
                              .name = "extract",
                              .inputs = inputs,
                              .n_inputs = strlen(inputs),
                              .idempotency_key = "key-of-the-attempt",
                              .task_key = "key-of-the-task",
                              .kill_grace_ms = 5000};
}

struct exec_outcome fixture_run_task(const struct fixture *f, const char *executor, const struct exec_task *task)
{
    struct exec_stop *stop = exec_stop_new();
    struct exec_outcome out = {0};
    exec_run(f->set, executor, task, stop, &out);
    exec_stop_free(stop);
    return out;
}

struct exec_outcome fixture_run(const struct fixture *f, const char *executor, const char *inputs)
{
    struct exec_task task = task_with(inputs);
    return fixture_run_task(f, executor, &task);
}

struct background {
    const struct fixture *f;
    const char *executor;
    const struct exec_task *task;
    struct exec_stop *stop;
    struct exec_outcome out;
    atomic_bool has_ended;
};

static void *run_in_background(void *argument)
{
    struct background *b = argument;
    exec_run(b->f->set, b->executor, b->task, b->stop, &b->out);
    atomic_store(&b->has_ended, true);
    return NULL;
}

struct exec_outcome fixture_stop(const struct fixture *f, const char *executor, const struct exec_task *task,
                                 enum stop_reason reason, bool (*is_time)(const struct fixture *), int64_t *out_took_ms)
{
    struct background b = {.f = f, .executor = executor, .task = task, .stop = exec_stop_new()};
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, run_in_background, &b), 0);
    while (!is_time(f) && !atomic_load(&b.has_ended)) {
        pause_ms(1);
    }
    bool was_early = atomic_load(&b.has_ended);
    int64_t start_ms = clock_mono_ms();
    exec_stop_fire(b.stop, reason);
    pthread_join(thread, NULL);
    *out_took_ms = clock_mono_ms() - start_ms;
    exec_stop_free(b.stop);
    if (was_early) {
        print_error("it ended by itself: %s\n", b.out.message.data);
    }
    CHECK(!was_early);
    return b.out;
}

void expect_success(struct exec_outcome out, const char *result)
{
    CHECK_STR(out.is_success ? NULL : out.message.data, NULL);
    CHECK_STR(out.result.data, result);
    exec_outcome_deinit(&out);
}

void expect_failure(struct exec_outcome out, const char *message, bool not_retryable)
{
    CHECK(!out.is_success);
    CHECK_STR(out.message.data, message);
    CHECK_INT(out.not_retryable, not_retryable);
    exec_outcome_deinit(&out);
}

bool has_file(const struct fixture *f, const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", f->folder, name);
    return access(path, F_OK) == 0;
}

long number_in_file(const struct fixture *f, const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", f->folder, name);
    FILE *file = fopen(path, "r");
    long number = -1;
    char line[64];
    if (file != NULL && fgets(line, sizeof(line), file) != NULL && strchr(line, '\n') != NULL) {
        number = strtol(line, NULL, 10);
    }
    if (file != NULL) {
        fclose(file);
    }
    return number;
}

/* State and parent of a process; false if there is none. */
static bool look_at(const char *pid, char *out_state, long *out_parent)
{
    char path[300];
    char line[1024] = "";
    snprintf(path, sizeof(path), "/proc/%s/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return false;
    }
    bool is_there = fgets(line, sizeof(line), file) != NULL;
    fclose(file);
    const char *end = strrchr(line, ')'); /* of the name, which may hold anything */
    if (!is_there || end == NULL) {
        return false;
    }
    *out_state = end[2];
    *out_parent = strtol(end + 4, NULL, 10);
    return true;
}

bool is_alive(pid_t pid)
{
    char text[16];
    char state = 0;
    long parent = 0;
    snprintf(text, sizeof(text), "%ld", (long)pid);
    return look_at(text, &state, &parent) && state != 'Z' && state != 'X';
}

bool is_gone_soon(pid_t pid)
{
    int64_t end_ms = clock_mono_ms() + 10000;
    while (is_alive(pid) && clock_mono_ms() < end_ms) {
        pause_ms(1);
    }
    return !is_alive(pid);
}

int count_children(void)
{
    DIR *processes = opendir("/proc");
    CHECK(processes != NULL);
    int count = 0;
    const struct dirent *entry = NULL;
    while ((entry = readdir(processes)) != NULL) {
        char state = 0;
        long parent = 0;
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && look_at(entry->d_name, &state, &parent)) {
            count += parent == (long)getpid() ? 1 : 0;
        }
    }
    closedir(processes);
    return count;
}

int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    int count = 0;
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

void fill_in(const char *pattern, const char *value, char *out, size_t n)
{
    size_t used = 0;
    for (const char *p = pattern; *p != '\0'; p++) {
        int written = snprintf(out + used, n - used, "%.*s", *p == '@' ? (int)strlen(value) : 1, *p == '@' ? value : p);
        used += (size_t)written;
        CHECK(used < n);
    }
}

void plugin_path(const char *name, char *out, size_t n)
{
    char self[512];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    CHECK(length > 0);
    self[length] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(self, '/');
        CHECK(slash != NULL);
        *slash = '\0';
    }
    snprintf(out, n, "%s/plugins/%s.so", self, name);
}
