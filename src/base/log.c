#include "base/log.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"

#define LINE_BYTES_MAX 4096

static atomic_int least_level = LOG_INFO;
static atomic_bool is_json;

static const char *const level_names[] = {"debug", "info", "warn", "error", "none"};

void log_setup(enum log_level least, bool as_json)
{
    atomic_store(&least_level, (int)least);
    atomic_store(&is_json, as_json);
}

bool log_level_from_name(const char *name, enum log_level *out)
{
    for (int i = 0; i <= LOG_NONE; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *out = (enum log_level)i;
            return true;
        }
    }
    return false;
}

bool log_wants(enum log_level level)
{
    return (int)level >= atomic_load(&least_level);
}

static void write_time(struct buf *line)
{
    int64_t now_ms = clock_wall_ms();
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm utc;
    char text[32];
    gmtime_r(&seconds, &utc);
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    buf_append(line, text, n);
    buf_format(line, ".%03dZ", (int)(now_ms % 1000));
}

/* One line stays one line, whatever is in it. */
static void write_plain(struct buf *line, const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        if (c < 0x20 || c == 0x7f) {
            buf_format(line, "\\x%02x", c);
        } else {
            buf_char(line, *p);
        }
    }
}

static void compose(struct buf *line, enum log_level level, const char *event, const char *message)
{
    if (atomic_load(&is_json)) {
        buf_text(line, "{\"at\":\"");
        write_time(line);
        buf_format(line, "\",\"level\":\"%s\",\"event\":", level_names[level]);
        json_write_text(line, event);
        buf_text(line, ",\"message\":");
        json_write_text(line, message);
        buf_text(line, "}\n");
    } else {
        write_time(line);
        buf_format(line, " %-5s %s: ", level_names[level], event);
        write_plain(line, message);
        buf_char(line, '\n');
    }
}

/* ---- stderr, which nobody may read ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of the two below; held for moments, nothing here blocks */
static uint64_t n_dropped;                                /* lines that no later line has told of yet */
static bool is_cut;                                       /* the last of them is there in part, without its end */

/* One that cannot be opened again, because it is another user's: as good as it can be had without that. */
static ssize_t write_if_writable(const char *data, size_t n)
{
    struct pollfd err = {.fd = STDERR_FILENO, .events = POLLOUT};
    size_t done = 0;
    while (done < n && poll(&err, 1, 0) == 1 && (err.revents & POLLOUT) != 0) {
        size_t left = n - done;
        /* A pipe that is writable takes as much as this. */
        ssize_t put = write(STDERR_FILENO, data + done, left < PIPE_BUF ? left : PIPE_BUF);
        if (put <= 0) {
            break;
        }
        done += (size_t)put;
    }
    return done > 0 ? (ssize_t)done : -1;
}

/*
 * How much of it stderr took without waiting for a reader; -1: nothing. O_NONBLOCK would belong to all processes that
 * share the open file, so a pipe or a terminal is opened again, for this line. Files always take it.
 */
static ssize_t write_now(const char *data, size_t n)
{
    struct stat is;
    if (fstat(STDERR_FILENO, &is) != 0) {
        return -1;
    }
    if (S_ISSOCK(is.st_mode)) {
        return send(STDERR_FILENO, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (!S_ISFIFO(is.st_mode) && !S_ISCHR(is.st_mode)) {
        return write(STDERR_FILENO, data, n);
    }
    int own = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own < 0) {
        return write_if_writable(data, n);
    }
    ssize_t put = write(own, data, n);
    close(own);
    return put;
}

/* Writes all of it and returns true, or counts one more line that is lost. */
static bool put_locked(const struct buf *line)
{
    ssize_t put = write_now(line->data, line->n);
    if (put == (ssize_t)line->n) {
        is_cut = false;
        return true;
    }
    n_dropped++;
    is_cut = is_cut || put > 0;
    return false;
}

static void tell_dropped_locked(void)
{
    char message[96];
    struct buf line = {0};
    uint64_t n = n_dropped;
    snprintf(message, sizeof message, "%" PRIu64 " lines of the log were dropped: nobody read them", n);
    if (is_cut) {
        buf_char(&line, '\n');
    }
    compose(&line, LOG_WARN, "log", message);
    n_dropped = put_locked(&line) ? 0 : n;
    buf_deinit(&line);
}

void log_pass_on(const struct buf *line)
{
    pthread_mutex_lock(&mutex);
    if (n_dropped > 0) {
        tell_dropped_locked();
    }
    if (n_dropped > 0) {
        n_dropped++;
    } else {
        (void)put_locked(line);
    }
    pthread_mutex_unlock(&mutex);
}

void log_line(enum log_level level, const char *event, const char *fmt, ...)
{
    if (!log_wants(level)) {
        return;
    }
    char message[LINE_BYTES_MAX];
    va_list values;
    va_start(values, fmt);
    vsnprintf(message, sizeof message, fmt, values);
    va_end(values);
    struct buf line = {0};
    compose(&line, level, event, message);
    log_pass_on(&line);
    buf_deinit(&line);
}
