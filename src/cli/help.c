#include "cli/help.h"

#include <inttypes.h>
#include <string.h>

#include "cli/version.h"

#define LINE_WIDTH 100

static void write_flag(struct buf *out, const struct option *option)
{
    if (option->letter != 0) {
        buf_format(out, "-%c, ", option->letter);
    }
    buf_format(out, "--%s", option->name);
    if (option->kind != OPTION_FLAG) {
        buf_format(out, " %s", option->argument);
    }
}

/* Breaks the text between words, with every further line indented. */
static void write_wrapped(struct buf *out, const char *text, size_t indent, size_t at)
{
    while (*text != '\0') {
        size_t n = strcspn(text, " ");
        if (at > indent && at + 1 + n > LINE_WIDTH) {
            buf_format(out, "\n%*s", (int)indent, "");
            at = indent;
        } else if (at > indent) {
            buf_char(out, ' ');
            at++;
        }
        buf_append(out, text, n);
        at += n;
        text += n + (text[n] == ' ' ? 1 : 0);
    }
    buf_char(out, '\n');
}

static size_t flag_width(const struct verb *verb)
{
    size_t widest = 0;
    struct buf flag = {0};
    for (uint32_t i = 0; i < verb_option_count(verb); i++) {
        buf_reset(&flag);
        write_flag(&flag, verb_option_at(verb, i));
        widest = flag.n > widest && flag.n <= 34 ? flag.n : widest;
    }
    buf_deinit(&flag);
    return widest;
}

static void write_option(struct buf *out, const struct option *option, size_t width)
{
    struct buf flag = {0};
    struct buf text = {0};
    write_flag(&flag, option);
    buf_text(&text, option->help);
    if (option->is_repeated) {
        buf_text(&text, "; can be repeated");
    }
    if (option->fallback != NULL) {
        buf_format(&text, " (default %s)", option->fallback);
    }
    buf_format(out, "  %-*s", (int)width, flag.data);
    if (flag.n > width) {
        buf_format(out, "\n  %*s", (int)width, "");
    }
    buf_text(out, "  ");
    write_wrapped(out, text.data, width + 4, width + 4);
    buf_deinit(&flag);
    buf_deinit(&text);
}

static void write_indented(struct buf *out, const char *lines)
{
    while (*lines != '\0') {
        size_t n = strcspn(lines, "\n");
        buf_text(out, "  ");
        buf_append(out, lines, n);
        buf_char(out, '\n');
        lines += n + (lines[n] == '\n' ? 1 : 0);
    }
}

void help_verb(struct buf *out, const struct verb *verb)
{
    size_t width = flag_width(verb);
    buf_format(out, "usage: capstan %s%s%s\n\n", verb->name, verb->usage[0] != '\0' ? " " : "", verb->usage);
    write_wrapped(out, verb->help, 0, 0);
    buf_text(out, "\nflags:\n");
    for (uint32_t i = 0; i < verb_option_count(verb); i++) {
        write_option(out, verb_option_at(verb, i), width);
    }
    buf_text(out, "\nEvery flag can also be a variable (CAPSTAN_LOG_LEVEL for --log-level) or a line of the file that\n"
                  "--config names. The flag wins over the variable, the variable over the file.\n\nexample:\n");
    write_indented(out, verb->example);
}

void help_settings(struct buf *out, const struct verb_table *table)
{
    size_t width = 0;
    for (uint32_t i = 0; i < table->n_settings; i++) {
        size_t n = strlen(table->settings[i].name);
        width = n > width ? n : width;
    }
    buf_text(out, "Settings of a coordinator, as in 'capstan coordinator --set lease_ms=20000':\n\n");
    for (uint32_t i = 0; i < table->n_settings; i++) {
        const struct setting_info *setting = &table->settings[i];
        struct buf text = {0};
        buf_format(&text, "%s; %" PRId64 " to %" PRId64 " (default %s)", setting->help, setting->min, setting->max,
                   setting->fallback);
        buf_format(out, "  %-*s  ", (int)width, setting->name);
        write_wrapped(out, text.data, width + 4, width + 4);
        buf_deinit(&text);
    }
}

void help_all(struct buf *out, const struct verb_table *table)
{
    size_t width = 0;
    for (uint32_t i = 0; i < table->n_verbs; i++) {
        size_t n = strlen(table->verbs[i]->name);
        width = n > width ? n : width;
    }
    buf_text(out, "Capstan " CAPSTAN_VERSION " runs trees of tasks on a fleet of workers.\n\n"
                  "usage: capstan VERB [arguments] [flags]\n\n");
    for (uint32_t i = 0; i < table->n_verbs; i++) {
        buf_format(out, "  %-*s  %s\n", (int)width, table->verbs[i]->name, table->verbs[i]->summary);
    }
    buf_text(out,
             "\n'capstan VERB --help' explains a verb and shows an example; 'capstan help settings' lists what --set "
             "takes.\n\nexample:\n"
             "  capstan up &\n"
             "  echo '{\"tasks\": [{\"name\": \"hello\", \"executor\": \"command\", \"inputs\": {\"argv\": "
             "[\"echo\", \"hello\"]}}]}' | capstan run -\n");
}
