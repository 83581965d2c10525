/*
 * config.h - settings from a file, for --config.
 *
 *     server = 10.0.0.1:7400,10.0.0.2:7400    before any section: for every verb that has the flag
 *     [worker]                                for one verb
 *     slots = 8
 *     label = ml                              a key that may be repeated stands on several lines
 *     no-auth = true
 *     # comments and ; comments have lines of their own
 *
 * Keys are the names of flags without the dashes. A value may stand in double quotes to keep blanks at its ends; nothing
 * is escaped in it. The bytes are foreign: at most CONFIG_BYTES_MAX of UTF-8 without NUL and other control characters.
 * Errors begin with "FILE:LINE: ".
 *
 * Ownership: nothing is owned; what the callback gets lives until it returns. Threads: any.
 */
#ifndef CAPSTAN_CLI_CONFIG_H
#define CAPSTAN_CLI_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"

#define CONFIG_BYTES_MAX ((size_t)256 * 1024)
#define CONFIG_WORD_BYTES_MAX 64

struct config_line {
    uint32_t number;
    const char *section; /* "": before any */
    const char *key;     /* NULL: the line begins the section */
    const char *value;
};

/* An error that it returns ends the reading; "FILE:LINE: " is put before its message. */
typedef enum err config_fn(void *context, const struct config_line *line, struct error *e);

/* Hands every line that says something to `fn`, in order. ERR_INVALID for text that is none. */
MUST_USE enum err config_parse(const char *file, const char *bytes, size_t n, config_fn *fn, void *context,
                               struct error *e);

#endif
