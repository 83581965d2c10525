/*
 * manual.c - the manual page, capstan(1), from the same tables as --help.
 */
#include <inttypes.h>
#include <string.h>

#include "cli/help.h"
#include "cli/version.h"

/* Text as man(7) wants it: dashes stay dashes, backslashes themselves, and no line begins with a command by accident. */
static void write_roff(struct buf *out, const char *text)
{
    bool is_line_start = out->n == 0 || out->data[out->n - 1] == '\n';
    for (const char *p = text; *p != '\0'; p++) {
        if (is_line_start && (*p == '.' || *p == '\'')) {
            buf_text(out, "\\&");
        }
        if (*p == '\\') {
            buf_text(out, "\\e");
        } else if (*p == '-') {
            buf_text(out, "\\-");
        } else if (*p == '\'') {
            buf_text(out, "\\(aq");
        } else if (*p != '`') { /* marks code in Markdown */
            buf_char(out, *p);
        }
        is_line_start = *p == '\n';
    }
}

static void write_option(struct buf *out, const struct option *option)
{
    struct buf values = {0};
    buf_text(out, ".TP\n\\fB");
    if (option->letter != 0) {
        buf_format(out, "\\-%c\\fR, \\fB", option->letter);
    }
    buf_text(out, "\\-\\-");
    write_roff(out, option->name);
    buf_text(out, "\\fR");
    if (option->kind != OPTION_FLAG) {
        buf_text(out, " \\fI");
        write_roff(out, option->argument);
        buf_text(out, "\\fR");
    }
    buf_char(out, '\n');
    write_roff(out, option->help);
    bool has_range = option->kind == OPTION_NUMBER || option->kind == OPTION_DURATION || option->kind == OPTION_SIZE;
    if (has_range && (option->max != 0 || option->min > 0)) {
        reference_values(&values, option);
        buf_text(out, "; ");
        write_roff(out, values.data);
    } else if (option->is_repeated) {
        buf_text(out, "; can be repeated");
    }
    if (option->fallback != NULL) {
        buf_text(out, " (default ");
        write_roff(out, option->fallback);
        buf_char(out, ')');
    }
    buf_char(out, '\n');
    buf_deinit(&values);
}

static void write_group(struct buf *out, const char *title, unsigned group)
{
    uint32_t n = 0;
    const struct option *options = verb_group_options(group, &n);
    buf_format(out, ".SS \"%s\"\n", title);
    for (uint32_t i = 0; i < n; i++) {
        write_option(out, &options[i]);
    }
}

static void write_verb(struct buf *out, const struct verb *verb)
{
    buf_format(out, ".SS \"capstan %s\"\n.B capstan %s\n", verb->name, verb->name);
    write_roff(out, verb->usage);
    buf_text(out, "\n.PP\n");
    write_roff(out, verb->help);
    buf_char(out, '\n');
    for (uint32_t i = 0; i < verb->n_options; i++) {
        write_option(out, &verb->options[i]);
    }
    buf_text(out, ".PP\nExample:\n.PP\n.nf\n.RS 4\n");
    write_roff(out, verb->example);
    buf_text(out, "\n.RE\n.fi\n");
}

static void write_setting(struct buf *out, const struct setting_info *setting)
{
    buf_format(out, ".TP\n.B %s\n", setting->name);
    write_roff(out, setting->help);
    if (setting->max == 0) {
        buf_text(out, "; true or false");
    } else {
        buf_format(out, "; from %" PRId64 " to %" PRId64, setting->min, setting->max);
    }
    if (setting->fallback != NULL) {
        buf_format(out, " (default %s)", setting->fallback);
    }
    buf_char(out, '\n');
}

static const char head[] =
    ".TH CAPSTAN 1 \"\" \"Capstan " CAPSTAN_VERSION "\" \"User Commands\"\n"
    ".SH NAME\n"
    "capstan \\- task trees and SQL queries on a fleet of workers\n"
    ".SH SYNOPSIS\n"
    ".B capstan\n"
    ".I VERB\n"
    "[\\fIarguments\\fR] [\\fIflags\\fR]\n"
    ".SH DESCRIPTION\n"
    "Capstan runs trees of tasks and SQL queries on a fleet of workers. Coordinators keep its state in SQLite or PostgreSQL\n"
    "and hand tasks out, workers pull them and run them, and the other verbs ask coordinators.\n"
    ".PP\n"
    "Every flag can also be a variable (\\fBCAPSTAN_LOG_LEVEL\\fR for \\fB\\-\\-log\\-level\\fR) or a line of the file that\n"
    "\\fB\\-\\-config\\fR names (\\fBlog\\-level = debug\\fR, before all sections or in one that is called as the verb,\n"
    "such as \\fB[worker]\\fR). The flag wins over the variable, the variable over the file, the file over the default.\n"
    ".SH VERBS\n";

static const char files[] =
    ".SH FILES\n"
    ".TP\n"
    ".I /etc/capstan/capstan.conf\n"
    "what the units of systemd give to \\fB\\-\\-config\\fR\n"
    ".TP\n"
    ".I ~/.config/capstan/tokens/\n"
    "tokens that \\fBcapstan up\\fR leaves for the commands of the same user\n"
    ".SH \"EXIT STATUS\"\n"
    "0 done, 1 the job failed, 2 wrong usage or input, 3 no coordinator can be reached, 4 refused,\n"
    "130 interrupted.\n";

void reference_man(struct buf *out, const struct verb_table *table)
{
    buf_text(out, head);
    for (uint32_t i = 0; i < table->n_verbs; i++) {
        write_verb(out, table->verbs[i]);
    }
    buf_text(out, ".SH \"FLAGS THAT SEVERAL VERBS HAVE\"\n");
    write_group(out, "Of every verb", 0);
    write_group(out, "Of verbs that ask a coordinator", VERB_CLIENT);
    write_group(out, "Of those and of up, coordinator and worker", VERB_CREDENTIALS);
    write_group(out, "Of up, coordinator and worker", VERB_LOGS);
    buf_text(out, ".SH SETTINGS\nOf a coordinator, with \\fB\\-\\-set\\fR \\fINAME=VALUE\\fR:\n");
    for (uint32_t i = 0; i < table->n_settings; i++) {
        write_setting(out, &table->settings[i]);
    }
    buf_text(out, ".PP\nOf one query, with \\fB\\-\\-set\\fR of \\fBcapstan sql\\fR:\n");
    for (uint32_t i = 0; i < table->n_query_settings; i++) {
        write_setting(out, &table->query_settings[i]);
    }
    buf_text(out, ".SH ENVIRONMENT\nBesides those of the flags:\n");
    for (uint32_t i = 0; i < reference_variable_count; i++) {
        buf_format(out, ".TP\n.B %s\n", reference_variables[i].name);
        write_roff(out, reference_variables[i].help);
        buf_char(out, '\n');
    }
    buf_text(out, files);
}
