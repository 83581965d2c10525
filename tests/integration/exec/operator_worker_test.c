/*
 * A worker that is linked from the archive, as users do it (examples/operator-worker), in a real cluster.
 */
#define _DEFAULT_SOURCE /* mkdtemp */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "fixture.h"
#include "test.h"

/*
 * Programs that users link know nothing of what the thread sanitizer must be told about gRPC (see rpc/sanitizers.c): a
 * cluster of them is shown in the other builds.
 */
#ifdef __SANITIZE_THREAD__
#define HAS_CLUSTERS false
#else
#define HAS_CLUSTERS true
#endif

#define WAIT_MS 60000
#define ARGS_MAX 16

extern char **environ;

/* Path of build/VARIANT/bin/NAME. */
static void program_path(const char *name, char *out, size_t n)
{
    char plugin[600];
    plugin_path("x", plugin, sizeof(plugin));
    size_t tail = strlen("/plugins/x.so");
    CHECK(snprintf(out, n, "%.*s/bin/%s", (int)(strlen(plugin) - tail), plugin, name) < (int)n);
}

struct process {
    pid_t pid;
    int output; /* its stdout, and its stderr too if that is wanted */
};

/* Starts it with an environment that has nothing of Capstan's, tied to this process. */
static struct process start(const char *program, bool with_stderr, char *const *args)
{
    char path[700];
    char *argv[ARGS_MAX] = {path};
    int ends[2];
    program_path(program, path, sizeof(path));
    for (size_t i = 0; args[i] != NULL; i++) {
        CHECK(i + 2 < ARGS_MAX);
        argv[i + 1] = args[i];
    }
    CHECK_INT(pipe(ends), 0);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        static char *const environment[] = {"LANG=C.UTF-8", "PATH=/usr/bin:/bin", NULL};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent && dup2(ends[1], 1) == 1 && (!with_stderr || dup2(ends[1], 2) == 2)) {
            close(ends[0]);
            close(ends[1]);
            execve(path, argv, environment);
        }
        _exit(127);
    }
    close(ends[1]);
    CHECK(pid > 0);
    return (struct process){.pid = pid, .output = ends[0]};
}

/* Reads until the line ends, or to the end of all. */
static void read_output(const struct process *process, bool only_a_line, struct buf *out)
{
    int64_t until_ms = clock_mono_ms() + WAIT_MS;
    char bytes[512];
    buf_reset(out);
    buf_text(out, "");
    while (!only_a_line || out->n == 0 || out->data[out->n - 1] != '\n') {
        int64_t left_ms = until_ms - clock_mono_ms();
        struct pollfd fd = {.fd = process->output, .events = POLLIN};
        CHECK(left_ms > 0);
        if (poll(&fd, 1, (int)left_ms) <= 0) {
            continue;
        }
        ssize_t n = read(process->output, bytes, sizeof(bytes));
        if (n <= 0) {
            return;
        }
        buf_append(out, bytes, (size_t)n);
    }
}

/* Waits for its end; returns the exit code, or -1 after a signal. */
static int end(struct process *process)
{
    int status = 0;
    pid_t ended = 0;
    int64_t until_ms = clock_mono_ms() + WAIT_MS;
    while ((ended = waitpid(process->pid, &status, WNOHANG)) == 0 && clock_mono_ms() < until_ms) {
        pause_ms(2);
    }
    if (ended == 0) {
        kill(process->pid, SIGKILL);
        waitpid(process->pid, &status, 0);
    }
    close(process->output);
    CHECK_INT(ended, process->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Runs it to its end. */
static int run(const char *program, struct buf *out, char *const *args)
{
    struct process process = start(program, true, args);
    read_output(&process, false, out);
    return end(&process);
}

static void remove_folder(const char *folder)
{
    char *const args[] = {"rm", "-rf", (char *)folder, NULL};
    pid_t pid = fork();
    if (pid == 0) {
        execve("/bin/rm", args, environ);
        _exit(127);
    }
    int status = 0;
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(status, 0);
}

struct cluster {
    char folder[64];
    char address[64];
    struct process up;
    struct buf text;
};

static struct cluster cluster_open(void)
{
    struct cluster c = {.folder = "/tmp/capstan-operator-XXXXXX"};
    char data[100];
    struct json *root = NULL;
    CHECK(mkdtemp(c.folder) != NULL);
    snprintf(data, sizeof(data), "--data=%s/up", c.folder);
    c.up = start("capstan", false,
                 (char *const[]){"up", "--json", "--no-auth", "--workers=0", "--listen=127.0.0.1:0",
                                 "--log-level=error", data, NULL});
    read_output(&c.up, true, &c.text);
    CHECK_ERR(json_parse(c.text.data, c.text.n, &root, NULL), ERR_OK);
    const char *address = json_text(json_get(root, "address"), NULL);
    CHECK(address != NULL);
    snprintf(c.address, sizeof(c.address), "%s", address);
    json_free(root);
    return c;
}

static void cluster_close(struct cluster *c)
{
    kill(c->up.pid, SIGTERM);
    CHECK_INT(end(&c->up), 0);
    remove_folder(c->folder);
    buf_deinit(&c->text);
}

/* The names of the healthy workers with that operator, with spaces between them. */
static const char *workers_with(struct cluster *c, const char *op)
{
    struct buf out = {0};
    struct json *root = NULL;
    int code = run("capstan", &out,
                   (char *const[]){"nodes", "--json", "--server", c->address, "--operator", (char *)op, NULL});
    if (code != 0) {
        print_error("%s\n", out.data);
    }
    CHECK_INT(code, 0);
    CHECK_ERR(json_parse(out.data, out.n, &root, NULL), ERR_OK);
    const struct json *nodes = json_get(root, "nodes");
    CHECK_INT(json_kind_of(nodes), JSON_ARRAY);
    buf_reset(&c->text);
    buf_text(&c->text, "");
    for (size_t i = 0; i < json_count(nodes); i++) {
        buf_format(&c->text, "%s%s", i > 0 ? " " : "", json_text(json_get(json_at(nodes, i), "worker_id"), NULL));
    }
    json_free(root);
    buf_deinit(&out);
    return c->text.data;
}

static void wait_for_worker(struct cluster *c, const char *op, const char *worker)
{
    int64_t until_ms = clock_mono_ms() + WAIT_MS;
    while (strcmp(workers_with(c, op), worker) != 0) {
        CHECK(clock_mono_ms() < until_ms);
        pause_ms(20);
    }
}

TEST(a_worker_of_ones_own_offers_its_operator)
{
    if (!HAS_CLUSTERS) {
        return;
    }
    struct cluster c = cluster_open();
    char data[100];
    snprintf(data, sizeof(data), "%s/worker", c.folder);
    CHECK_STR(workers_with(&c, "add_five"), "");
    struct process worker =
        start("operator-worker", false,
              (char *const[]){"--join", c.address, "--slots", "2", "--id", "own", "--log-level=error", "--require-ops",
                              "add_five", "--data", data, NULL});
    wait_for_worker(&c, "add_five", "own");
    CHECK_STR(workers_with(&c, "add_six"), "");
    kill(worker.pid, SIGTERM);
    CHECK_INT(end(&worker), 0);
    cluster_close(&c);
}

TEST(a_worker_of_ones_own_has_the_options_of_a_worker)
{
    struct buf out = {0};
    CHECK_INT(run("operator-worker", &out, (char *const[]){"--help", NULL}), 0);
    CHECK(strstr(out.data, "capstan worker") != NULL);
    CHECK(strstr(out.data, "--require-ops") != NULL);
    CHECK_INT(run("operator-worker", &out, (char *const[]){"--no-such-flag", NULL}), 2);
    CHECK(strstr(out.data, "worker: unknown flag '--no-such-flag'") != NULL);
    CHECK_INT(run("operator-worker", &out, (char *const[]){"jobs", NULL}), 2); /* it is a worker, nothing else */
    CHECK(strstr(out.data, "worker: unexpected argument 'jobs'") != NULL);
    buf_deinit(&out);
}

TEST(a_worker_of_ones_own_does_not_start_without_what_is_required)
{
    struct buf out = {0};
    char folder[] = "/tmp/capstan-operator-XXXXXX";
    char plugin[600];
    CHECK(mkdtemp(folder) != NULL);
    CHECK_INT(
        run("operator-worker", &out,
            (char *const[]){"--join", "127.0.0.1:9", "--data", folder, "--require-ops", "add_five,add_six", NULL}),
        2);
    CHECK(strstr(out.data, "add_six") != NULL);
    plugin_path("add_five", plugin, sizeof(plugin));
    CHECK_INT(run("operator-worker", &out,
                  (char *const[]){"--join", "127.0.0.1:9", "--data", folder, "--plugin", plugin, NULL}),
              2);
    CHECK(strstr(out.data, "there are two operators 'add_five'") != NULL);
    remove_folder(folder);
    buf_deinit(&out);
}
