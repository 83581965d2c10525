#include "integration/postgres/server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DONE "@done"

__attribute__((format(printf, 1, 2))) static _Noreturn void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("server.c: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

/* The script lies beside this file. */
static const char *script(void)
{
    static char path[512];
    const char *slash = strrchr(__FILE__, '/');
    snprintf(path, sizeof path, "%.*s/server.sh", slash == NULL ? 1 : (int)(slash - __FILE__),
             slash == NULL ? "." : __FILE__);
    return path;
}

/* ---- processes ---- */

struct process {
    pid_t pid;
    int in;  /* to write to */
    int out; /* to read from */
};

static struct process start_process(const char *const argv[], bool is_silent)
{
    int in[2], out[2];
    if (pipe(in) != 0 || pipe(out) != 0) {
        die("cannot make a pipe: %s", strerror(errno));
    }
    fcntl(in[1], F_SETFD, FD_CLOEXEC);
    fcntl(out[0], F_SETFD, FD_CLOEXEC);
    pid_t pid = fork();
    if (pid < 0) {
        die("cannot fork: %s", strerror(errno));
    }
    if (pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        close(in[0]);
        close(out[1]);
        int nowhere = is_silent ? open("/dev/null", O_WRONLY) : -1;
        if (nowhere >= 0) {
            dup2(nowhere, STDERR_FILENO);
        }
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    return (struct process){pid, in[1], out[0]};
}

/* All that it prints, as a string. */
static char *read_all(int fd)
{
    size_t n = 0, cap = 4096;
    char *text = malloc(cap);
    for (;;) {
        if (text == NULL) {
            die("no memory");
        }
        ssize_t got = read(fd, text + n, cap - n - 1);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            text[n] = '\0';
            return text;
        }
        n += (size_t)got;
        if (n + 1 == cap) {
            cap *= 2;
            text = realloc(text, cap);
        }
    }
}

static int wait_for(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            die("cannot wait: %s", strerror(errno));
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* Runs it to its end. The output goes to `*out`, or nowhere. */
static int run(const char *const argv[], bool is_silent, char **out)
{
    struct process process = start_process(argv, is_silent);
    close(process.in);
    char *text = read_all(process.out);
    close(process.out);
    if (out != NULL) {
        *out = text;
    } else {
        free(text);
    }
    return wait_for(process.pid);
}

/* ---- the server ---- */

static void call_script(const char *verb, const char *dir, const char *setting, char **out)
{
    const char *argv[] = {"sh", script(), verb, dir, setting, NULL};
    if (run(argv, false, out) != 0) {
        die("server.sh %s %s failed", verb, dir);
    }
}

void server_start(struct server *server, const char *setting)
{
    char *url = NULL;
    snprintf(server->dir, sizeof server->dir, "/tmp/capstan-pg-XXXXXX");
    if (mkdtemp(server->dir) == NULL) {
        die("cannot make a temporary folder: %s", strerror(errno));
    }
    call_script("start", server->dir, setting, &url);
    snprintf(server->url, sizeof server->url, "%.*s", (int)strcspn(url, "\n"), url);
    free(url);
}

void server_stop(const struct server *server)
{
    call_script("stop", server->dir, NULL, NULL);
}

void server_restart(const struct server *server)
{
    call_script("restart", server->dir, NULL, NULL);
}

void server_kill(const struct server *server)
{
    call_script("kill", server->dir, NULL, NULL);
}

void server_remove(const struct server *server)
{
    call_script("remove", server->dir, NULL, NULL);
}

/* ---- psql ---- */

#define PSQL "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-P", "null=<null>"

char *server_sql(const struct server *server, const char *sql)
{
    char *text = NULL;
    const char *argv[] = {PSQL, "-d", server->url, "-c", sql, NULL};
    if (run(argv, false, &text) != 0) {
        die("psql failed on: %s", sql);
    }
    return text;
}

long long server_number(const struct server *server, const char *sql)
{
    char *text = server_sql(server, sql);
    long long number = strtoll(text, NULL, 10);
    free(text);
    return number;
}

int server_try(const struct server *server, const char *sql)
{
    const char *argv[] = {PSQL, "-d", server->url, "-c", sql, NULL};
    return run(argv, true, NULL);
}

struct server server_database(const struct server *server, const char *name)
{
    char sql[128];
    struct server made = *server;
    snprintf(sql, sizeof sql, "CREATE DATABASE %s", name);
    free(server_sql(server, sql));
    snprintf(made.url, sizeof made.url, "postgres://postgres@/%s?host=%s&port=5432", name, server->dir);
    return made;
}

void server_session_open(struct server_session *session, const struct server *server)
{
    const char *argv[] = {PSQL, "-d", server->url, NULL};
    struct process process = start_process(argv, false);
    *session = (struct server_session){process.pid, process.in, process.out};
    server_session_run(session, "SELECT 1");
}

void server_session_run(struct server_session *session, const char *sql)
{
    char text[4096];
    size_t n = 0;
    int length = snprintf(text, sizeof text, "%s;\n\\echo " DONE "\n", sql);
    if (length < 0 || (size_t)length >= sizeof text || write(session->in, text, (size_t)length) != length) {
        die("cannot send to psql: %s", sql);
    }
    do {
        ssize_t got = read(session->out, text + n, sizeof text - n - 1);
        if (got <= 0) {
            die("psql ended at: %s", sql);
        }
        n += (size_t)got;
        text[n] = '\0';
    } while (strstr(text, DONE) == NULL);
}

void server_session_close(struct server_session *session)
{
    close(session->in);
    close(session->out);
    kill(session->pid, SIGTERM);
    wait_for(session->pid);
}
