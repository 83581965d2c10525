#include "main/member.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/cli.h"

#define PAUSE_MS_MIN 250
#define PAUSE_MS_MAX 10000
#define STEADY_MS 30000 /* after this long the pause starts small again */
#define LINE_BYTES_MAX 16384

void member_init(struct member *member, const char *title, char *const *argv, char *const *environment)
{
    *member = (struct member){.title = title,
                              .argv = argv,
                              .environment = environment,
                              .death_signal = SIGTERM,
                              .output = -1,
                              .pause_ms = PAUSE_MS_MIN};
}

void member_deinit(struct member *member)
{
    if (member->output >= 0) {
        close(member->output);
    }
    buf_deinit(&member->line);
}

/*
 * What the child does before it becomes the program. The parent may have threads, so only calls that are safe in a signal
 * handler are made here.
 */
static _Noreturn void become(const struct member *member, pid_t parent, int output)
{
    sigset_t none;
    sigemptyset(&none);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, member->death_signal);
    if (getppid() != parent) {
        _exit(EXIT_UNREACHABLE); /* it died before the call above */
    }
    (void)signal(SIGPIPE, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0) {
        (void)dup2(null, STDIN_FILENO);
    }
    (void)dup2(output >= 0 ? output : STDERR_FILENO, STDOUT_FILENO);
    int log = member->log_path == NULL ? output : open(member->log_path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (log >= 0) {
        (void)dup2(log, STDERR_FILENO);
    }
    (void)execve("/proc/self/exe", member->argv, member->environment);
    _exit(127);
}

enum err member_start(struct member *member, struct error *e)
{
    int ends[2] = {-1, -1};
    if (member->is_prefixed && pipe(ends) != 0) {
        return error_set(e, ERR_UNAVAILABLE, "cannot make a pipe: %s", strerror(errno));
    }
    if (ends[0] >= 0) {
        (void)fcntl(ends[0], F_SETFD, FD_CLOEXEC);
        (void)fcntl(ends[1], F_SETFD, FD_CLOEXEC);
        (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    }
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        become(member, parent, ends[1]);
    }
    if (ends[1] >= 0) {
        close(ends[1]);
    }
    if (pid < 0) {
        if (ends[0] >= 0) {
            close(ends[0]);
        }
        return error_set(e, ERR_UNAVAILABLE, "cannot start a process: %s", strerror(errno));
    }
    if (member->output >= 0) {
        close(member->output);
    }
    member->pid = pid;
    member->output = ends[0];
    member->began_ms = clock_mono_ms();
    member->restart_at_ms = 0;
    return ERR_OK;
}

void member_ended(struct member *member, int64_t now_ms)
{
    member->pid = 0;
    if (now_ms - member->began_ms >= STEADY_MS) {
        member->pause_ms = PAUSE_MS_MIN;
    }
    member->restart_at_ms = now_ms + member->pause_ms;
    member->pause_ms = member->pause_ms * 2 < PAUSE_MS_MAX ? member->pause_ms * 2 : PAUSE_MS_MAX;
}

/* Never waits for whoever reads them: a parent that does cannot look after its members. */
static void write_lines(struct member *member, bool is_all, bool has_colors)
{
    size_t at = 0;
    while (at < member->line.n) {
        const char *start = member->line.data + at;
        const char *end = memchr(start, '\n', member->line.n - at);
        if (end == NULL && !is_all && member->line.n - at < LINE_BYTES_MAX) {
            break;
        }
        size_t n = end == NULL ? member->line.n - at : (size_t)(end - start);
        struct buf out = {0};
        buf_format(&out, "%s%-11s |%s ", color_start(has_colors, COLOR_DIM), member->title,
                   color_end(has_colors, COLOR_DIM));
        buf_append(&out, start, n);
        buf_char(&out, '\n');
        log_pass_on(&out);
        buf_deinit(&out);
        at += n + (end == NULL ? 0 : 1);
    }
    struct buf rest = {0};
    buf_append(&rest, member->line.data == NULL ? "" : member->line.data + at, member->line.n - at);
    buf_deinit(&member->line);
    member->line = rest;
}

void member_pass_on(struct member *member, bool has_colors)
{
    char chunk[8192];
    ssize_t n = 0;
    if (member->output < 0) {
        return;
    }
    while ((n = read(member->output, chunk, sizeof chunk)) > 0) {
        buf_append(&member->line, chunk, (size_t)n);
        write_lines(member, false, has_colors);
    }
    if (n == 0) {
        write_lines(member, true, has_colors);
        close(member->output);
        member->output = -1;
    }
}

void member_signal(const struct member *member, int number)
{
    if (member->pid > 0) {
        (void)kill(member->pid, number);
    }
}
