/*
 * cli.h - one call of the program: what was asked, and how to answer.
 *
 * A verb gets a struct cli with every option read and checked. Where several say something, the flag wins over the
 * environment (CAPSTAN_<FLAG>), the environment over the settings file, and that over the default. Asking for an option
 * that the verb's table does not have is a programmer's error.
 *
 * Results go to `out`, everything else to `err`. Errors are "capstan: what went wrong" and "  hint: what to do".
 *
 * Ownership: cli_parse fills in the caller's struct, which cli_deinit ends; texts live until then. Threads: one.
 */
#ifndef CAPSTAN_CLI_CLI_H
#define CAPSTAN_CLI_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"
#include "cli/verb.h"

#define EXIT_DONE 0
#define EXIT_JOB_FAILED 1
#define EXIT_USAGE 2
#define EXIT_UNREACHABLE 3
#define EXIT_REFUSED 4
#define EXIT_INTERRUPTED 130

enum value_source { SOURCE_NONE, SOURCE_DEFAULT, SOURCE_FILE, SOURCE_ENVIRONMENT, SOURCE_FLAG };

struct option_value {
    const struct option *option;
    enum value_source source;
    const char **texts;
    uint32_t n;
    uint32_t cap;
    int64_t number; /* of the last text */
};

struct client;
struct rpc_cancel;

struct cli {
    const struct verb_table *table;
    const struct verb *verb;
    struct option_value *values; /* in the order of verb_option_at */
    uint32_t n_values;
    const char **args; /* what is no flag */
    uint32_t n_args;
    bool wants_help;
    bool wants_json;
    FILE *out;
    FILE *err;
    bool out_is_terminal;
    bool err_is_terminal; /* on which a picture can be drawn anew: TERM=dumb is none */
    bool has_colors_out;  /* a terminal, and neither NO_COLOR nor TERM=dumb */
    bool has_colors_err;
    struct arena arena; /* lives as long as this */
    struct client *client;
    struct rpc_cancel *cancel; /* ends calls of the client; NULL: nothing does */
};

/* What cli_parse looks at. `environment` is NULL-terminated, of the form NAME=VALUE. */
struct cli_input {
    const struct verb_table *table;
    int argc;
    char *const *argv; /* [0] is the program, [1] the verb */
    char *const *environment;
};

/*
 * Reads the verb, its arguments and all options. ERR_INVALID with a hint for anything wrong; `cli` must be ended in any
 * case. With --help somewhere, the rest is not looked at and `wants_help` is set. Output goes to stdout and stderr.
 */
MUST_USE enum err cli_parse(const struct cli_input *input, struct cli *cli, struct error *e);
void cli_deinit(struct cli *cli);

/* ---- options ---- */

bool cli_flag(const struct cli *cli, const char *name);
const char *cli_text(const struct cli *cli, const char *name); /* NULL: neither given nor a default */
const char *cli_text_or(const struct cli *cli, const char *name, const char *fallback);
int64_t cli_number(const struct cli *cli, const char *name);   /* number, ms of a duration, bytes; 0: not given */
bool cli_is_given(const struct cli *cli, const char *name);    /* by anything but a default */
bool cli_is_specific(const struct cli *cli, const char *name); /* by a flag on the command line */
/* All texts of an option that may be repeated. */
const char *const *cli_list(const struct cli *cli, const char *name, uint32_t *out_n);

/* ---- output ---- */

/* Prints the error and returns its exit code. */
int cli_fail(struct cli *cli, const struct error *e);
/* The same with a text of the caller's; `hint` may be NULL. */
int cli_fail_with(struct cli *cli, enum err code, const char *hint, const char *fmt, ...) PRINTF_LIKE(4, 5);

/* Writes the error as people see it: every line cleaned, further lines indented. */
void cli_write_error(struct buf *out, const struct error *e);

/* Prints the whole buffer and a line end to `out`. */
void cli_print(struct cli *cli, const struct buf *text);

/* "\033[32m" or "", for text that goes to `out` or `err`. */
enum color { COLOR_NONE, COLOR_BOLD, COLOR_DIM, COLOR_GREEN, COLOR_RED, COLOR_YELLOW, COLOR_CYAN };
const char *color_start(bool has_colors, enum color color);
const char *color_end(bool has_colors, enum color color);

/* Columns and lines of the terminal at stderr; 80 and 24 if it does not say. */
struct terminal_size {
    uint32_t columns;
    uint32_t lines;
};
struct terminal_size cli_terminal_size(const struct cli *cli);

/* Columns that a table on `out` may have; 0: no limit, because it is no terminal. */
size_t cli_table_width(const struct cli *cli);

/*
 * Reads a whole file, or stdin for "-", of at most `max` bytes. The text is NUL-terminated in the cli's arena.
 */
MUST_USE enum err cli_read_file(struct cli *cli, const char *path, size_t max, const char **out_text, size_t *out_n,
                                struct error *e);

#endif
