#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
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
    if (atomic_load(&is_json)) {
        buf_text(&line, "{\"at\":\"");
        write_time(&line);
        buf_format(&line, "\",\"level\":\"%s\",\"event\":", level_names[level]);
        json_write_text(&line, event);
        buf_text(&line, ",\"message\":");
        json_write_text(&line, message);
        buf_text(&line, "}\n");
    } else {
        write_time(&line);
        buf_format(&line, " %-5s %s: ", level_names[level], event);
        write_plain(&line, message);
        buf_char(&line, '\n');
    }
    (void)!write(STDERR_FILENO, line.data, line.n); /* there is nobody to tell */
    buf_deinit(&line);
}
