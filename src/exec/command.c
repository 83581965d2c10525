/*
 * command.c - the executor `command`: runs a program and takes what it writes.
 *
 * One thread per command, in one poll: on the program's two outputs, on its end, and on the stop. The text for its stdin
 * lies in a file in memory, which the program reads as it likes: so no pipe can fill up while both sides wait.
 *
 * The program's end is the end: what is left of its process group is killed then, and what the pipes hold is read without
 * waiting. So a child that keeps a pipe open holds up nobody.
 */
#define _GNU_SOURCE /* pipe2, memfd_create */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "exec/command_internal.h"

#define READ_BYTES ((size_t)32 * 1024)

/* What is read from a pipe after the program's end: as much as it may have left there, and not what others still write. */
#define REST_BYTES_MAX ((size_t)1024 * 1024)

/* Between SIGTERM and SIGKILL when somebody waits for the end, who was promised 2 s. */
#define URGENT_GRACE_MS 1000

/* How often a waiting command looks whether its stop has become urgent. */
#define GRACE_TICK_MS 50

/* How often it looks whether it may run for longer, if its time is limited from outside. */
#define LIMIT_TICK_MS 100

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum file { FILE_STDIN, FILE_STDOUT, FILE_STDERR, FILE_COUNT };

/* The descriptors of one run. Those of the child are closed once it has started. */
struct files {
    int child[FILE_COUNT];
    int pipes[2]; /* our ends of stdout and stderr; -1: at its end */
};

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

static void close_files(struct files *files)
{
    for (int i = 0; i < FILE_COUNT; i++) {
        close_fd(&files->child[i]);
    }
    close_fd(&files->pipes[0]);
    close_fd(&files->pipes[1]);
}

/* Moves a descriptor out of the way of 0, 1 and 2, which a worker may have closed. False if there is none or no room. */
static bool move_up(int *fd)
{
    if (*fd < 0 || *fd > 2) {
        return *fd >= 0;
    }
    int moved = fcntl(*fd, F_DUPFD_CLOEXEC, 3);
    close_fd(fd);
    *fd = moved;
    return moved >= 0;
}

/* A file in memory that holds the text, or nothing to read at all. */
static int open_stdin(const struct command *command)
{
    if (command->stdin_text == NULL) {
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    int fd = memfd_create("stdin", MFD_CLOEXEC);
    size_t done = 0;
    while (fd >= 0 && done < command->n_stdin) {
        ssize_t n = write(fd, command->stdin_text + done, command->n_stdin - done);
        if (n < 0 && errno != EINTR) {
            close_fd(&fd);
        }
        done += n > 0 ? (size_t)n : 0;
    }
    if (fd >= 0 && lseek(fd, 0, SEEK_SET) != 0) {
        close_fd(&fd);
    }
    return fd;
}

static bool open_files(const struct command *command, struct files *files)
{
    *files = (struct files){.child = {-1, -1, -1}, .pipes = {-1, -1}};
    bool is_good = true;
    files->child[FILE_STDIN] = open_stdin(command);
    for (int i = 0; i < 2 && is_good; i++) {
        int ends[2] = {-1, -1};
        is_good = pipe2(ends, O_CLOEXEC) == 0;
        files->pipes[i] = ends[0];
        files->child[FILE_STDOUT + i] = ends[1];
        is_good = is_good && move_up(&files->pipes[i]) && fcntl(files->pipes[i], F_SETFL, O_NONBLOCK) == 0;
    }
    for (int i = 0; i < FILE_COUNT && is_good; i++) {
        is_good = move_up(&files->child[i]);
    }
    return is_good;
}

/* Reads what is there, at most about `max` bytes; closes the pipe at its end. Returns how much there was. */
static size_t read_pipe(int *fd, struct tail *tail, size_t max)
{
    char bytes[READ_BYTES];
    size_t total = 0;
    while (*fd >= 0 && total < max) {
        ssize_t n = read(*fd, bytes, sizeof(bytes));
        if (n > 0) {
            tail_append(tail, bytes, (size_t)n);
            total += (size_t)n;
        } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
            close_fd(fd);
        } else if (errno == EAGAIN) {
            break;
        }
    }
    return total;
}

/* A program that writes more than it may is not asked to stop, for it would go on writing meanwhile. */
static void check_output(const struct process *process, uint64_t max, struct command_output *output)
{
    if (max > 0 && output->n_bytes > max && !output->is_too_much) {
        output->is_too_much = true;
        process_signal(process, SIGKILL);
    }
}

/* How a run that was stopped comes to its end. */
struct ending {
    bool is_asked;  /* SIGTERM was sent */
    bool is_killed; /* SIGKILL was sent */
    int64_t since_ms;
};

/* Sends the signal that is due. Returns how long poll may wait, -1 for ever. */
static int press(const struct process *process, const struct exec_task *task, const struct exec_stop *stop,
                 struct ending *ending)
{
    if (exec_stop_reason(stop) == STOP_NONE || ending->is_killed) {
        return -1;
    }
    int64_t now_ms = clock_mono_ms();
    if (!ending->is_asked) {
        process_signal(process, SIGTERM);
        process_signal(process, SIGCONT); /* a program that is halted would never hear of it */
        ending->is_asked = true;
        ending->since_ms = now_ms;
    }
    int64_t grace_ms = task->kill_grace_ms;
    if (exec_stop_is_urgent(stop) && grace_ms > URGENT_GRACE_MS) {
        grace_ms = URGENT_GRACE_MS;
    }
    int64_t left_ms = ending->since_ms + grace_ms - now_ms;
    if (left_ms <= 0) {
        process_signal(process, SIGKILL);
        ending->is_killed = true;
        return -1;
    }
    return left_ms < GRACE_TICK_MS ? (int)left_ms : GRACE_TICK_MS;
}

/* Tells the guard how long the program may run, if that has changed. Returns how long poll may wait. */
static int pass_limit_on(const struct process *process, const struct exec_stop *stop, int64_t *told_ms, int wait_ms)
{
    int64_t limit_ms = exec_stop_limit(stop);
    if (limit_ms != *told_ms) {
        process_move_limit(process, limit_ms);
        *told_ms = limit_ms;
    }
    return limit_ms != 0 && (wait_ms < 0 || wait_ms > LIMIT_TICK_MS) ? LIMIT_TICK_MS : wait_ms;
}

/* Serves the program until it has ended. `output_max` 0: it may write as much as it likes. */
static void attend(struct process *process, const struct exec_task *task, struct exec_stop *stop, int stop_fd,
                   uint64_t output_max, struct files *files, struct command_output *output)
{
    struct ending ending = {0};
    bool has_ended = false;
    int64_t told_ms = 0;
    while (!has_ended) {
        int wait_ms = pass_limit_on(process, stop, &told_ms, press(process, task, stop, &ending));
        struct pollfd wait[] = {
            {.fd = process->fd, .events = POLLIN},
            {.fd = files->pipes[0], .events = POLLIN},
            {.fd = files->pipes[1], .events = POLLIN},
            {.fd = ending.is_asked ? -1 : stop_fd, .events = POLLIN},
        };
        if (poll(wait, ARRAY_LEN(wait), wait_ms) <= 0) {
            continue;
        }
        has_ended = wait[0].revents != 0;
        for (int i = 0; i < 2; i++) {
            if (wait[1 + i].revents != 0) {
                output->n_bytes += read_pipe(&files->pipes[i], &output->streams[i], READ_BYTES);
            }
        }
        check_output(process, output_max, output);
    }
    output->was_stopped = ending.is_asked;
    output->exit = process_end(process);
    for (int i = 0; i < 2; i++) {
        output->n_bytes += read_pipe(&files->pipes[i], &output->streams[i], REST_BYTES_MAX);
    }
    output->is_too_much = output_max > 0 && output->n_bytes > output_max;
}

/* Errors of exec that say something about the program, and not about this worker at this moment. */
static bool is_about_program(int code)
{
    static const int codes[] = {ENOENT,       ENOTDIR, EACCES, EPERM,  ENOEXEC, ELOOP,
                                ENAMETOOLONG, EISDIR,  E2BIG,  EINVAL, ELIBBAD};
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        if (code == codes[i]) {
            return true;
        }
    }
    return false;
}

static void explain(const struct command_executor *executor, const struct command *command,
                    const struct process_failure *failure, struct exec_outcome *out)
{
    char room[128];
    const char *why = strerror_r(failure->code, room, sizeof(room));
    bool is_about = is_about_program(failure->code);
    switch (failure->step) {
    case STEP_EXEC:
        if (failure->code == ENOENT && strchr(command->argv[0], '/') == NULL) {
            exec_fail(out, true, "cannot run '%s': there is no such program in PATH", command->argv[0]);
        } else {
            exec_fail(out, is_about, "cannot run '%s': %s", command->argv[0], why);
        }
        break;
    case STEP_CWD:
        exec_fail(out, is_about, "cannot enter the folder '%s' (inputs.cwd): %s", command->cwd, why);
        break;
    case STEP_WORK_DIR:
        exec_fail(out, false, "cannot enter the worker's folder '%s': %s", executor->work_dir, why);
        break;
    case STEP_START:
    case STEP_GUARD:
    case STEP_FILES:
    case STEP_LIMITS:
        exec_fail(out, false, "cannot start a process: %s", why);
        break;
    }
}

static void run_process(const struct command_executor *executor, const struct exec_task *task,
                        const struct command *command, struct exec_stop *stop, struct exec_outcome *out)
{
    struct files files;
    struct command_output output = {0};
    int stop_fd = exec_stop_fd(stop);
    if (!open_files(command, &files) || stop_fd < 0) {
        exec_fail(out, false, "cannot open the files of a process: %s", strerror(errno));
        close_files(&files);
        return;
    }
    struct process_plan plan = {.guard = executor->guard,
                                .until_ms = exec_stop_limit(stop),
                                .argv = command->argv,
                                .environment = command->environment,
                                .paths = command->paths,
                                .work_dir = executor->work_dir,
                                .cwd = command->cwd};
    memcpy(plan.files, files.child, sizeof(plan.files));
    struct process_limit limits[COMMAND_LIMITS];
    plan.n_limits = command__process_limits(&command->limits, limits);
    plan.limits = limits;
    struct process process;
    struct process_failure failure;
    if (process_start(&plan, &process, &failure)) {
        for (int i = 0; i < FILE_COUNT; i++) {
            close_fd(&files.child[i]);
        }
        attend(&process, task, stop, stop_fd, command->limits.max[COMMAND_OUTPUT], &files, &output);
        command__judge(command, &output, out);
    } else {
        explain(executor, command, &failure, out);
    }
    close_files(&files);
    tail_deinit(&output.streams[0]);
    tail_deinit(&output.streams[1]);
}

static void run_command(struct executor *base, const struct exec_task *task, struct exec_stop *stop,
                        struct exec_outcome *out)
{
    const struct command_executor *executor = CONTAINER_OF(base, struct command_executor, base);
    struct json *inputs = NULL;
    if (!exec__read_inputs(task, out, &inputs)) {
        return;
    }
    struct arena arena = {0};
    struct command command;
    if (command__read(executor, task, inputs, &arena, &command, out)) {
        run_process(executor, task, &command, stop, out);
    }
    arena_deinit(&arena);
    json_free(inputs);
}

static void close_command(struct executor *base)
{
    struct command_executor *executor = CONTAINER_OF(base, struct command_executor, base);
    guard_free(executor->guard);
    for (uint32_t i = 0; i < executor->n_environment; i++) {
        mem_free(executor->environment[i]);
    }
    mem_free(executor->environment);
    mem_free(executor->work_dir);
    mem_free(executor);
}

/* Adds a variable, or replaces the one of that name. */
static void set_variable(struct command_executor *executor, const char *name, const char *value)
{
    struct buf text = {0};
    buf_format(&text, "%s=%s", name, value);
    size_t n = strlen(name) + 1;
    uint32_t i = 0;
    while (i < executor->n_environment && strncmp(executor->environment[i], text.data, n) != 0) {
        i++;
    }
    if (i < executor->n_environment) {
        mem_free(executor->environment[i]);
    } else {
        executor->n_environment++;
    }
    executor->environment[i] = mem_strdup(text.data);
    buf_deinit(&text);
}

/* A copy, from the root on, also of a folder that is yet to be made: HOME must not depend on where a command runs. */
static char *absolute_path(const char *path)
{
    char here[PATH_MAX];
    if (path == NULL || path[0] == '/' || getcwd(here, sizeof(here)) == NULL) {
        return mem_strdup(path);
    }
    struct buf absolute = {0};
    buf_format(&absolute, "%s/%s", here, strncmp(path, "./", 2) == 0 ? path + 2 : path);
    char *copy = mem_strdup(absolute.data);
    buf_deinit(&absolute);
    return copy;
}

struct executor *executor_command(const struct exec_options *options)
{
    enum { DEFAULTS = 3 };
    struct command_executor *executor = mem_calloc(1, sizeof(*executor));
    executor->base = (struct executor){.name = "command", .run = run_command, .close = close_command};
    executor->work_dir = absolute_path(options->work_dir);
    executor->environment = mem_calloc((size_t)options->n_pass_env + DEFAULTS + 1, sizeof(char *));
    executor->limits = options->command_limits;
    set_variable(executor, "PATH", DEFAULT_PATH);
    set_variable(executor, "HOME", executor->work_dir != NULL ? executor->work_dir : "/");
    set_variable(executor, "LANG", "C.UTF-8");
    for (uint32_t i = 0; i < options->n_pass_env; i++) {
        const char *value = getenv(options->pass_env[i]);
        if (value != NULL) {
            set_variable(executor, options->pass_env[i], value);
        }
    }
    executor->guard = guard_new();
    return &executor->base;
}
