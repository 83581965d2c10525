/*
 * reference.c - all that can be configured, as a page of Markdown: every verb, flag, variable, key and setting.
 *
 * The tables that parse are the only source. What they do not hold, the order of the sources, the form of the file and
 * variables without a flag, stands here once. docs/configuration.md is this output; a test compares the two.
 */
#include <inttypes.h>
#include <string.h>

#include "cli/help.h"
#include "cli/text.h"

const struct variable_info reference_variables[] = {
    {"CAPSTAN_TOKEN",
     "the token itself; of all ways to name a file with it, only the flag `--token-file` wins over this"},
    {"CAPSTAN_DUCKDB", "the file libduckdb.so, if it is neither beside the program nor where it was installed"},
    {"XDG_CONFIG_HOME",
     "`capstan up` leaves its token under it, in `capstan/tokens`, and commands look there; else `HOME/.config`"},
    {"HOME", "see XDG_CONFIG_HOME"},
    {"TMPDIR", "where `demo` and `bench` make the folders of their private clusters; else `/tmp`"},
    {"NO_COLOR", "anything but empty: no colours"},
    {"TERM", "`dumb` or not set: no colours, and no progress that is drawn anew in its place"},
    {"GRPC_VERBOSITY", "what gRPC itself logs; without it, nothing"},
    {"PGPASSFILE", "with the other variables of libpq: how a coordinator logs in to PostgreSQL"},
};

const uint32_t reference_variable_count = ARRAY_LEN(reference_variables);

/* Text for a cell of a table: a bar would end it. */
static void write_cell(struct buf *out, const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '|') {
            buf_char(out, '\\');
        }
        buf_char(out, *p == '\n' ? ' ' : *p);
    }
}

static void write_limit(struct buf *out, const struct option *option, int64_t limit)
{
    if (option->kind == OPTION_DURATION) {
        text_duration(out, limit);
    } else if (option->kind == OPTION_SIZE) {
        text_size(out, (uint64_t)limit);
    } else {
        text_count(out, (uint64_t)limit);
    }
}

static void write_range(struct buf *out, const struct option *option)
{
    static const char *const kinds[] = {
        [OPTION_NUMBER] = "a number", [OPTION_DURATION] = "a time", [OPTION_SIZE] = "a size"};
    buf_text(out, kinds[option->kind]);
    if (option->max != 0) {
        buf_text(out, " from ");
        write_limit(out, option, option->min);
        buf_text(out, " to ");
        write_limit(out, option, option->max);
    } else if (option->min > 0) {
        buf_text(out, ", at least ");
        write_limit(out, option, option->min);
    }
}

void reference_values(struct buf *out, const struct option *option)
{
    switch (option->kind) {
    case OPTION_FLAG:
        buf_text(out, "true or false");
        break;
    case OPTION_NUMBER:
    case OPTION_DURATION:
    case OPTION_SIZE:
        write_range(out, option);
        break;
    case OPTION_CHOICE:
        for (const char *p = option->argument; *p != '\0'; p++) {
            *p == '|' ? buf_text(out, ", ") : buf_char(out, *p);
        }
        break;
    case OPTION_ID:
        buf_text(out, "letters, digits, '.', '_', '-'");
        break;
    case OPTION_FILE:
        buf_text(out, "a file");
        break;
    case OPTION_FOLDER:
        buf_text(out, "a folder");
        break;
    case OPTION_TEXT:
    case OPTION_ADDRESS:
    case OPTION_ADDRESSES:
    case OPTION_PAIR:
        buf_text(out, option->argument);
        break;
    }
    buf_text(out, option->is_repeated ? "; repeated" : "");
}

static void write_code(struct buf *out, const char *text)
{
    if (text != NULL) {
        buf_char(out, '`');
        write_cell(out, text);
        buf_char(out, '`');
    }
}

static void write_option(struct buf *out, const struct option *option)
{
    char variable[OPTION_VARIABLE_BYTES];
    struct buf values = {0};
    option_variable(option, variable);
    reference_values(&values, option);
    buf_format(out, "| `--%s`", option->name);
    if (option->letter != 0) {
        buf_format(out, ", `-%c`", option->letter);
    }
    bool is_flag_only = strcmp(option->name, "help") == 0;
    buf_text(out, " | ");
    write_code(out, is_flag_only ? NULL : variable);
    buf_text(out, " | ");
    write_cell(out, values.data);
    buf_text(out, " | ");
    write_code(out, option->fallback);
    buf_text(out, " | ");
    write_cell(out, option->help);
    buf_text(out, " |\n");
    buf_deinit(&values);
}

static void write_options(struct buf *out, const struct option *options, uint32_t n)
{
    if (n == 0) {
        return;
    }
    buf_text(out, "| flag | variable | value | default | meaning |\n| --- | --- | --- | --- | --- |\n");
    for (uint32_t i = 0; i < n; i++) {
        write_option(out, &options[i]);
    }
    buf_char(out, '\n');
}

static void write_group(struct buf *out, const char *title, unsigned group)
{
    uint32_t n = 0;
    const struct option *options = verb_group_options(group, &n);
    buf_format(out, "### %s\n\n", title);
    write_options(out, options, n);
}

static void write_verb(struct buf *out, const struct verb *verb)
{
    buf_format(out, "### capstan %s\n\n```\ncapstan %s%s%s\n```\n\n%s\n\n", verb->name, verb->name,
               verb->usage[0] != '\0' ? " " : "", verb->usage, verb->help);
    write_options(out, verb->options, verb->n_options);
    buf_text(out, verb->n_options > 0 ? "Besides: " : "Flags: ");
    if ((verb->groups & VERB_CLIENT) != 0) {
        buf_text(out, "[clients](#flags-of-clients), ");
    }
    if ((verb->groups & (VERB_CLIENT | VERB_CREDENTIALS)) != 0) {
        buf_text(out, "[credentials](#flags-for-credentials), ");
    }
    if ((verb->groups & VERB_LOGS) != 0) {
        buf_text(out, "[logs](#flags-for-logs), ");
    }
    buf_text(out, "[every verb](#flags-of-every-verb).\n\n");
}

static void write_settings(struct buf *out, const struct setting_info *settings, uint32_t n)
{
    buf_text(out, "| name | default | from | to | meaning |\n| --- | ---: | ---: | ---: | --- |\n");
    for (uint32_t i = 0; i < n; i++) {
        const struct setting_info *setting = &settings[i];
        buf_format(out, "| `%s` | %s | ", setting->name, setting->fallback == NULL ? "" : setting->fallback);
        if (setting->max == 0) {
            buf_text(out, "false | true | ");
        } else {
            buf_format(out, "%" PRId64 " | %" PRId64 " | ", setting->min, setting->max);
        }
        write_cell(out, setting->help);
        buf_text(out, " |\n");
    }
    buf_char(out, '\n');
}

static const char introduction[] =
    "# Configuration reference\n"
    "\n"
    "Made by `capstan help --markdown` from the tables that read the command line; `tools/reference.sh` writes it anew.\n"
    "The manual page, `capstan help --man`, has the same content.\n"
    "\n"
    "## Where a value comes from\n"
    "\n"
    "Every flag can be given in three ways. The flag wins over the variable, the variable over the file, the file over the\n"
    "default.\n"
    "\n"
    "| way | for `--log-level` |\n"
    "| --- | --- |\n"
    "| flag | `--log-level debug` or `--log-level=debug` |\n"
    "| variable | `CAPSTAN_LOG_LEVEL=debug`; values of a flag that can be repeated are separated by commas |\n"
    "| file, named by `--config FILE` or `CAPSTAN_CONFIG` | `log-level = debug`; a flag that can be repeated has a line for "
    "each value |\n"
    "\n"
    "The file has a section for each verb; what stands before all sections is for every verb that has the flag. `help` and\n"
    "`config` cannot stand in it. Unknown keys and sections are errors.\n"
    "\n"
    "```ini\n"
    "server = 10.0.0.1:7400,10.0.0.2:7400\n"
    "\n"
    "[worker]\n"
    "slots = 8\n"
    "label = ml\n"
    "label = gpu\n"
    "# a comment has a line of its own; quotes keep blanks at the ends of a value\n"
    "```\n"
    "\n"
    "Times are written with a unit (`250ms`, `60s`, `1.5m`, `2h`, `7d`), sizes in bytes or with one (`64KB`, `2GB` in powers\n"
    "of 1000, `64KiB`, `2GiB` in powers of 1024), truth as `true`, `yes`, `on`, `1` or `false`, `no`, `off`, `0`.\n"
    "\n"
    "## Settings of the coordinator\n"
    "\n"
    "`--set NAME=VALUE` of `coordinator`, `up` and `bench`, in the file `set = NAME=VALUE`. All coordinators of a cluster\n"
    "should have the same: those of the leader hold. Workers are told theirs by the leader. Values are whole numbers; names\n"
    "end in their unit.\n"
    "\n";

static const char rules[] =
    "Nonsense stops the start with all errors listed: `lease_ms` must be at least three times `heartbeat_interval_ms`,\n"
    "`worker_liveness_timeout_ms` not below `lease_ms`, `node_dead_ms` above `node_stale_ms`.\n"
    "\n"
    "## Settings of one query\n"
    "\n"
    "`--set NAME=VALUE` of `capstan sql`, `options` of `POST /v1/queries`. What is not given is as the coordinator has it.\n"
    "\n";

static const char task_variables[] =
    "Commands that tasks run get a clean environment: what their inputs say in `env`, what the worker passes on with\n"
    "`--pass-env`, and `CAPSTAN_JOB_ID`, `CAPSTAN_TASK_NAME`, `CAPSTAN_ATTEMPT`, `CAPSTAN_TASK_KEY` and\n"
    "`CAPSTAN_IDEMPOTENCY_KEY` ([executors.md](executors.md)).\n"
    "\n"
    "## Exit codes\n"
    "\n"
    "| code | |\n"
    "| ---: | --- |\n"
    "| 0 | done |\n"
    "| 1 | the job failed |\n"
    "| 2 | wrong usage or input |\n"
    "| 3 | no coordinator can be reached |\n"
    "| 4 | refused: the token, or what it is for |\n"
    "| 130 | interrupted; the job was canceled, unless `--detach` was given |\n"
    "\n"
    "## Flags that several verbs have\n"
    "\n";

void reference_markdown(struct buf *out, const struct verb_table *table)
{
    buf_text(out, introduction);
    write_settings(out, table->settings, table->n_settings);
    buf_text(out, rules);
    write_settings(out, table->query_settings, table->n_query_settings);
    buf_text(out, "## Variables that are no flags\n\n| variable | meaning |\n| --- | --- |\n");
    for (uint32_t i = 0; i < reference_variable_count; i++) {
        buf_format(out, "| `%s` | ", reference_variables[i].name);
        write_cell(out, reference_variables[i].help);
        buf_text(out, " |\n");
    }
    buf_char(out, '\n');
    buf_text(out, task_variables);
    write_group(out, "Flags of every verb", 0);
    write_group(out, "Flags of clients", VERB_CLIENT);
    write_group(out, "Flags for credentials", VERB_CREDENTIALS);
    write_group(out, "Flags for logs", VERB_LOGS);
    buf_text(out, "## Verbs\n\n");
    for (uint32_t i = 0; i < table->n_verbs; i++) {
        write_verb(out, table->verbs[i]);
    }
    while (out->n > 1 && out->data[out->n - 2] == '\n') {
        out->data[--out->n] = '\0'; /* one line end at the end is enough */
    }
}
