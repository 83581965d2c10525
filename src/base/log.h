/*
 * log.h - one line per event that is worth a person's attention, on stderr.
 *
 * Only the programs log: main, cli, coordinator, worker. Libraries report through `enum err` and never log. A line is
 * written whole, with one write. Never log a token, nor what belongs to a user (inputs, results, output, SQL) above
 * LOG_DEBUG.
 *
 * Nothing here waits for a reader: a pipe, a socket or a terminal that is full (Ctrl-S, a pager) must not hold up the
 * thread that has something to say, such as the one of the heartbeats. A line that does not fit is dropped and counted,
 * and the next that fits follows a line that tells how many were.
 *
 *     2026-11-15T12:00:00.123Z info  leader: leads under epoch 3
 *     {"at":"2026-11-15T12:00:00.123Z","level":"info","event":"leader","message":"leads under epoch 3"}
 *
 * Ownership: the settings are the process's. Threads: any, after log_setup.
 */
#ifndef CAPSTAN_BASE_LOG_H
#define CAPSTAN_BASE_LOG_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/check.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_NONE };

/* Lines below `least` are dropped. Until this is called: LOG_INFO, for people. */
void log_setup(enum log_level least, bool as_json);

/* "debug", "info", "warn", "error" or "none"; false if it is none of these. */
bool log_level_from_name(const char *name, enum log_level *out);

bool log_wants(enum log_level level);

/* `event` is a short stable word for machines, the rest a sentence for people. Control characters are escaped. */
void log_line(enum log_level level, const char *event, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Writes a line that was put together elsewhere, its end included, by the same rule: it is dropped if it does not fit. */
void log_pass_on(const struct buf *line);

#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)

#endif
