#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/client.h"
#include "cli/text.h"

static const struct option_value *find(const struct cli *cli, const char *name)
{
    int i = verb_option_find(cli->verb, name);
    ASSERT(i >= 0);
    return &cli->values[i];
}

bool cli_flag(const struct cli *cli, const char *name)
{
    const struct option_value *value = find(cli, name);
    ASSERT(value->option->kind == OPTION_FLAG);
    return value->number != 0;
}

const char *cli_text(const struct cli *cli, const char *name)
{
    const struct option_value *value = find(cli, name);
    return value->n > 0 ? value->texts[value->n - 1] : NULL;
}

const char *cli_text_or(const struct cli *cli, const char *name, const char *fallback)
{
    const char *text = cli_text(cli, name);
    return text != NULL ? text : fallback;
}

int64_t cli_number(const struct cli *cli, const char *name)
{
    const struct option_value *value = find(cli, name);
    ASSERT(value->option->kind == OPTION_NUMBER || value->option->kind == OPTION_DURATION ||
           value->option->kind == OPTION_SIZE);
    return value->number;
}

bool cli_is_given(const struct cli *cli, const char *name)
{
    return find(cli, name)->source > SOURCE_DEFAULT;
}

bool cli_is_specific(const struct cli *cli, const char *name)
{
    return find(cli, name)->source == SOURCE_FLAG;
}

const char *const *cli_list(const struct cli *cli, const char *name, uint32_t *out_n)
{
    const struct option_value *value = find(cli, name);
    ASSERT(value->option->is_repeated);
    *out_n = value->n;
    return value->texts;
}

void cli_deinit(struct cli *cli)
{
    client_close(cli->client);
    for (uint32_t i = 0; i < cli->n_values; i++) {
        mem_free(cli->values[i].texts);
    }
    mem_free(cli->values);
    mem_free(cli->args);
    arena_deinit(&cli->arena);
    *cli = (struct cli){0};
}

void cli_write_error(struct buf *out, const struct error *e)
{
    const char *text = e->message[0] != '\0' ? e->message : err_text(e->code);
    const char *lead = "capstan: ";
    while (*text != '\0') {
        char line[sizeof e->message];
        size_t n = strcspn(text, "\n");
        memcpy(line, text, n);
        line[n] = '\0';
        buf_text(out, lead);
        text_clean(out, line);
        buf_char(out, '\n');
        lead = "  ";
        text += n + (text[n] == '\n' ? 1 : 0);
    }
    if (e->hint[0] != '\0') {
        buf_text(out, "  hint: ");
        text_clean(out, e->hint);
        buf_char(out, '\n');
    }
}

int cli_fail(struct cli *cli, const struct error *e)
{
    struct buf text = {0};
    cli_write_error(&text, e);
    fflush(cli->out);
    fputs(text.data, cli->err);
    fflush(cli->err);
    buf_deinit(&text);
    return err_exit(e->code);
}

int cli_fail_with(struct cli *cli, enum err code, const char *hint, const char *fmt, ...)
{
    struct error e = {0};
    char message[sizeof e.message];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    error_set(&e, code, "%s", message);
    if (hint != NULL) {
        error_hint(&e, "%s", hint);
    }
    return cli_fail(cli, &e);
}

void cli_print(struct cli *cli, const struct buf *text)
{
    fwrite(text->data, 1, text->n, cli->out);
    fputc('\n', cli->out);
}

const char *color_start(bool has_colors, enum color color)
{
    static const char *const codes[] = {"", "\033[1m", "\033[2m", "\033[32m", "\033[31m", "\033[33m", "\033[36m"};
    return has_colors ? codes[color] : "";
}

const char *color_end(bool has_colors, enum color color)
{
    return has_colors && color != COLOR_NONE ? "\033[0m" : "";
}

static struct terminal_size size_of(FILE *stream)
{
    struct winsize size = {0};
    struct terminal_size out = {80, 24};
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
        out.columns = size.ws_col;
        out.lines = size.ws_row;
    }
    return out;
}

struct terminal_size cli_terminal_size(const struct cli *cli)
{
    return size_of(cli->err);
}

size_t cli_table_width(const struct cli *cli)
{
    return cli->out_is_terminal ? size_of(cli->out).columns : 0;
}

static enum err read_all(FILE *file, const char *path, size_t max, struct buf *out, struct error *e)
{
    char chunk[65536];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0) {
        if (n > max - out->n) {
            return error_set(e, ERR_INVALID, "%s is too long: at most %zu bytes are allowed", path, max);
        }
        buf_append(out, chunk, n);
    }
    if (ferror(file) != 0) {
        return error_set(e, ERR_INVALID, "cannot read %s: %s", path, strerror(errno));
    }
    return ERR_OK;
}

enum err cli_read_file(struct cli *cli, const char *path, size_t max, const char **out_text, size_t *out_n,
                       struct error *e)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "rbe");
    struct buf text = {0};
    enum err err = ERR_OK;
    if (file == NULL) {
        return error_set(e, ERR_INVALID, "cannot open %s: %s", path, strerror(errno));
    }
    buf_append(&text, NULL, 0);
    err = read_all(file, is_stdin ? "the standard input" : path, max, &text, e);
    if (err == ERR_OK) {
        *out_text = arena_copy(&cli->arena, text.data, text.n + 1);
        *out_n = text.n;
    }
    if (!is_stdin) {
        fclose(file);
    }
    buf_deinit(&text);
    return err;
}
