/*
 * parse.c - from the words of a command line to a struct cli.
 *
 * The words are read first, because one of them may name the settings file. Then the sources are applied from the
 * weakest to the strongest; a stronger one replaces all that a weaker one said about an option.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/config.h"
#include "cli/suggest.h"
#include "cli/value.h"

/* A flag as it was found on the command line. */
struct word {
    uint32_t option;
    const char *text;
};

struct parser {
    struct cli *cli;
    char *const *environment;
    struct word *words;
    uint32_t n_words;
    uint32_t cap_words;
    uint32_t cap_args;
};

static const char *variable(char *const *environment, const char *name)
{
    size_t n = strlen(name);
    for (char *const *p = environment; p != NULL && *p != NULL; p++) {
        if (strncmp(*p, name, n) == 0 && (*p)[n] == '=') {
            return *p + n + 1;
        }
    }
    return NULL;
}

static enum err apply(struct cli *cli, uint32_t i, const char *text, enum value_source source, struct error *e)
{
    struct option_value *value = &cli->values[i];
    int64_t number = 0;
    enum err err = option_check(value->option, text, &number, e);
    if (err != ERR_OK) {
        return err;
    }
    if (source != value->source || !value->option->is_repeated) {
        value->n = 0;
    }
    value->texts = mem_grow(value->texts, &value->cap, value->n + 1, sizeof *value->texts);
    value->texts[value->n++] = arena_strdup(&cli->arena, text);
    value->number = number;
    value->source = source;
    return ERR_OK;
}

static enum err unknown_verb(const struct verb_table *table, const char *name, struct error *e)
{
    struct suggestion near = {.wanted = name};
    if (name[0] == '-') {
        error_set(e, ERR_INVALID, "unknown flag '%s' before the verb", name);
        error_hint(e, "flags follow the verb: capstan jobs --server HOST:PORT; 'capstan help' lists the verbs");
        return ERR_INVALID;
    }
    for (uint32_t i = 0; i < table->n_verbs; i++) {
        suggestion_try(&near, table->verbs[i]->name);
    }
    error_set(e, ERR_INVALID, "unknown verb '%s'", name);
    if (near.best != NULL) {
        error_hint(e, "did you mean '%s'? 'capstan help' lists all", near.best);
    } else {
        error_hint(e, "'capstan help' lists all");
    }
    return ERR_INVALID;
}

static enum err unknown_flag(const struct verb *verb, const char *flag, struct error *e)
{
    char bare[64];
    size_t n = strcspn(flag, "=");
    const char *name = strncmp(flag, "--", 2) == 0 ? flag + 2 : flag + 1;
    size_t bare_n = n - (size_t)(name - flag);
    error_set(e, ERR_INVALID, "%s: unknown flag '%.*s'", verb->name, (int)(n < 200 ? n : 200), flag);
    error_hint(e, "'capstan %s --help' lists all", verb->name);
    if (bare_n >= sizeof bare) {
        return ERR_INVALID;
    }
    memcpy(bare, name, bare_n);
    bare[bare_n] = '\0';
    struct suggestion near = {.wanted = bare};
    for (uint32_t i = 0; i < verb_option_count(verb); i++) {
        suggestion_try(&near, verb_option_at(verb, i)->name);
    }
    if (near.best != NULL) {
        error_hint(e, "did you mean --%s? 'capstan %s --help' lists all", near.best, verb->name);
    }
    return ERR_INVALID;
}

/* Finds the option of "--name", "--name=value", "-o" or "-ovalue"; `out_text` is what is attached, or NULL. */
static int find_option(const struct verb *verb, const char *word, const char **out_text)
{
    char name[64];
    *out_text = NULL;
    if (word[1] != '-') {
        for (uint32_t i = 0; i < verb_option_count(verb); i++) {
            if (verb_option_at(verb, i)->letter == word[1]) {
                *out_text = word[2] != '\0' ? word + 2 : NULL;
                return (int)i;
            }
        }
        return -1;
    }
    size_t n = strcspn(word + 2, "=");
    if (n == 0 || n >= sizeof name) {
        return -1;
    }
    memcpy(name, word + 2, n);
    name[n] = '\0';
    *out_text = word[2 + n] == '=' ? word + 2 + n + 1 : NULL;
    return verb_option_find(verb, name);
}

/* Reads the flag at *at, and moves *at over its value if that is a word of its own. */
static enum err read_flag(struct parser *p, const struct cli_input *input, int *at, struct error *e)
{
    const struct verb *verb = p->cli->verb;
    const char *word = input->argv[*at];
    const char *text = NULL;
    int i = find_option(verb, word, &text);
    if (i < 0) {
        return unknown_flag(verb, word, e);
    }
    const struct option *option = verb_option_at(verb, (uint32_t)i);
    if (option->kind == OPTION_FLAG) {
        text = text == NULL ? "true" : text;
    } else if (text == NULL) {
        const char *next = *at + 1 < input->argc ? input->argv[*at + 1] : NULL;
        if (next == NULL || strncmp(next, "--", 2) == 0) {
            error_set(e, ERR_INVALID, "%s: --%s needs a value: %s", verb->name, option->name, option->argument);
            error_hint(e, "'capstan %s --help' explains it", verb->name);
            return ERR_INVALID;
        }
        text = next;
        *at += 1;
    }
    p->words = mem_grow(p->words, &p->cap_words, p->n_words + 1, sizeof *p->words);
    p->words[p->n_words++] = (struct word){(uint32_t)i, text};
    return ERR_OK;
}

static void add_argument(struct parser *p, const char *text)
{
    p->cli->args = mem_grow(p->cli->args, &p->cap_args, p->cli->n_args + 1, sizeof *p->cli->args);
    p->cli->args[p->cli->n_args++] = arena_strdup(&p->cli->arena, text);
}

static enum err read_words(struct parser *p, const struct cli_input *input, struct error *e)
{
    bool flags_are_over = false;
    for (int i = 2; i < input->argc; i++) {
        const char *word = input->argv[i];
        if (!flags_are_over && strcmp(word, "--") == 0) {
            flags_are_over = true;
        } else if (!flags_are_over && word[0] == '-' && word[1] != '\0') {
            enum err err = read_flag(p, input, &i, e);
            if (err != ERR_OK) {
                return err;
            }
        } else {
            add_argument(p, word);
        }
    }
    return ERR_OK;
}

static enum err check_action(const struct cli *cli, struct error *e)
{
    const struct verb *verb = cli->verb;
    struct suggestion near = {.wanted = cli->args[0]};
    char action[64];
    for (const char *p = verb->actions;; p++) {
        size_t n = strcspn(p, "|");
        ASSERT(n < sizeof action);
        memcpy(action, p, n);
        action[n] = '\0';
        if (strcmp(action, cli->args[0]) == 0) {
            return ERR_OK;
        }
        suggestion_try(&near, arena_strdup((struct arena *)&cli->arena, action));
        p += n;
        if (*p == '\0') {
            break;
        }
    }
    error_set(e, ERR_INVALID, "%s: '%s' is none of %s", verb->name, cli->args[0], verb->actions);
    if (near.best != NULL) {
        error_hint(e, "did you mean '%s'?", near.best);
    } else {
        error_hint(e, "'capstan %s --help' explains them", verb->name);
    }
    return ERR_INVALID;
}

/* A coordinator would refuse it, too, but by the name that the field has on the wire. */
static enum err check_job(const struct cli *cli, struct error *e)
{
    struct error why = {0};
    if (value_job_id(cli->args[0], &why) == ERR_OK) {
        return ERR_OK;
    }
    error_set(e, ERR_INVALID, "%s: '%.100s' is no job id: %s", cli->verb->name, cli->args[0], why.message);
    error_hint(e, "'capstan jobs' lists jobs with their ids");
    return ERR_INVALID;
}

static enum err check_arguments(const struct cli *cli, struct error *e)
{
    const struct verb *verb = cli->verb;
    if (verb->actions != NULL && cli->n_args > 0) {
        enum err err = check_action(cli, e);
        if (err != ERR_OK) {
            return err;
        }
    }
    if (cli->n_args >= verb->args_min && cli->n_args <= verb->args_max) {
        return verb->takes_job && cli->n_args > 0 ? check_job(cli, e) : ERR_OK;
    }
    if (cli->n_args > verb->args_max) {
        error_set(e, ERR_INVALID, "%s: unexpected argument '%s'", verb->name, cli->args[verb->args_max]);
    } else {
        error_set(e, ERR_INVALID, "%s: an argument is missing", verb->name);
    }
    error_hint(e, "usage: capstan %s%s%s", verb->name, verb->usage[0] != '\0' ? " " : "", verb->usage);
    return ERR_INVALID;
}

/* ---- the settings file ---- */

struct file_context {
    struct cli *cli;
    const struct verb *section; /* NULL: before any */
    bool *seen;                 /* by place of the option: set by this very section */
};

static enum err unknown_key(const struct file_context *c, const struct config_line *line, struct error *e)
{
    const struct verb_table *table = c->cli->table;
    struct suggestion near = {.wanted = line->key};
    for (uint32_t v = 0; v < table->n_verbs; v++) {
        if (c->section == NULL || c->section == table->verbs[v]) {
            for (uint32_t i = 0; i < verb_option_count(table->verbs[v]); i++) {
                suggestion_try(&near, verb_option_at(table->verbs[v], i)->name);
            }
        }
    }
    if (c->section != NULL) {
        error_set(e, ERR_INVALID, "unknown key '%s' in section [%s]", line->key, line->section);
    } else {
        error_set(e, ERR_INVALID, "unknown key '%s': no verb has such a flag", line->key);
    }
    if (near.best != NULL) {
        error_hint(e, "did you mean '%s'?", near.best);
    }
    return ERR_INVALID;
}

/* Before any section a key is meant for every verb that knows it, and must be right for the first that does. */
static const struct option *option_for_key(const struct file_context *c, const struct config_line *line)
{
    const struct verb_table *table = c->cli->table;
    for (uint32_t v = 0; v < table->n_verbs; v++) {
        int i = verb_option_find(table->verbs[v], line->key);
        if ((c->section == NULL || c->section == table->verbs[v]) && i >= 0) {
            return verb_option_at(table->verbs[v], (uint32_t)i);
        }
    }
    return NULL;
}

static enum err begin_section(struct file_context *c, const struct config_line *line, struct error *e)
{
    struct suggestion near = {.wanted = line->section};
    memset(c->seen, 0, c->cli->n_values * sizeof *c->seen);
    c->section = verb_find(c->cli->table, line->section);
    if (c->section != NULL) {
        return ERR_OK;
    }
    for (uint32_t i = 0; i < c->cli->table->n_verbs; i++) {
        suggestion_try(&near, c->cli->table->verbs[i]->name);
    }
    error_set(e, ERR_INVALID, "unknown section [%s]: sections are called as verbs", line->section);
    if (near.best != NULL) {
        error_hint(e, "did you mean [%s]?", near.best);
    }
    return ERR_INVALID;
}

static enum err apply_line(void *context, const struct config_line *line, struct error *e)
{
    struct file_context *c = context;
    struct error problem = {0};
    int64_t number = 0;
    if (line->key == NULL) {
        return begin_section(c, line, e);
    }
    const struct option *option = option_for_key(c, line);
    if (option == NULL || strcmp(option->name, "help") == 0 || strcmp(option->name, "config") == 0) {
        return unknown_key(c, line, e);
    }
    if (option_check(option, line->value, &number, &problem) != ERR_OK) {
        return error_set(e, ERR_INVALID, "%s: %s", line->key, problem.message);
    }
    int i = verb_option_find(c->cli->verb, line->key);
    if (i < 0 || (c->section != NULL && c->section != c->cli->verb)) {
        return ERR_OK; /* right, and meant for others */
    }
    struct option_value *value = &c->cli->values[i];
    if (c->seen[i] && !option->is_repeated) {
        return error_set(e, ERR_INVALID, "'%s' is set twice", line->key);
    }
    if (!c->seen[i]) {
        value->n = 0; /* what a section says replaces what stands before all sections */
    }
    c->seen[i] = true;
    return apply(c->cli, (uint32_t)i, line->value, SOURCE_FILE, e);
}

static enum err apply_file(struct cli *cli, const char *path, struct error *e)
{
    const char *text = NULL;
    size_t n = 0;
    enum err err = cli_read_file(cli, path, CONFIG_BYTES_MAX, &text, &n, e);
    if (err != ERR_OK) {
        return err;
    }
    struct file_context context = {.cli = cli};
    context.seen = arena_zalloc(&cli->arena, cli->n_values * sizeof *context.seen);
    return config_parse(path, text, n, apply_line, &context, e);
}

/* ---- sources, from weak to strong ---- */

static enum err apply_defaults(struct cli *cli, struct error *e)
{
    for (uint32_t i = 0; i < cli->n_values; i++) {
        const char *text = cli->values[i].option->fallback;
        if (text != NULL) {
            enum err err = apply(cli, i, text, SOURCE_DEFAULT, e);
            ASSERT(err == ERR_OK);
        }
    }
    return ERR_OK;
}

/* In a variable, an option that may be repeated has its values separated by commas. */
static enum err apply_variable(struct cli *cli, uint32_t i, const char *text, struct error *e)
{
    if (!cli->values[i].option->is_repeated) {
        return apply(cli, i, text, SOURCE_ENVIRONMENT, e);
    }
    enum err err = ERR_OK;
    char *copy = arena_strdup(&cli->arena, text);
    while (err == ERR_OK && *copy != '\0') {
        size_t n = strcspn(copy, ",");
        char *rest = copy + n + (copy[n] == ',' ? 1 : 0);
        copy[n] = '\0';
        err = apply(cli, i, copy, SOURCE_ENVIRONMENT, e);
        copy = rest;
    }
    return err;
}

static enum err apply_environment(struct parser *p, struct error *e)
{
    char name[OPTION_VARIABLE_BYTES];
    for (uint32_t i = 0; i < p->cli->n_values; i++) {
        const struct option *option = p->cli->values[i].option;
        option_variable(option, name);
        const char *text = variable(p->environment, name);
        if (text == NULL || text[0] == '\0' || strcmp(option->name, "help") == 0) {
            continue;
        }
        struct error problem = {0};
        enum err err = apply_variable(p->cli, i, text, &problem);
        if (err != ERR_OK) {
            error_set(e, err, "%s: %s", name, problem.message);
            error_hint(e, "the environment sets --%s of 'capstan %s' with it", option->name, p->cli->verb->name);
            return err;
        }
    }
    return ERR_OK;
}

static enum err apply_flags(struct parser *p, struct error *e)
{
    for (uint32_t i = 0; i < p->n_words; i++) {
        struct error problem = {0};
        enum err err = apply(p->cli, p->words[i].option, p->words[i].text, SOURCE_FLAG, &problem);
        if (err != ERR_OK) {
            const struct option *option = p->cli->values[p->words[i].option].option;
            error_set(e, err, "%s: --%s: %s", p->cli->verb->name, option->name, problem.message);
            error_hint(e, "'capstan %s --help' explains it", p->cli->verb->name);
            return err;
        }
    }
    return ERR_OK;
}

static const char *config_path(const struct parser *p)
{
    const char *path = variable(p->environment, "CAPSTAN_CONFIG");
    for (uint32_t i = 0; i < p->n_words; i++) {
        if (strcmp(p->cli->values[p->words[i].option].option->name, "config") == 0) {
            path = p->words[i].text;
        }
    }
    return path != NULL && path[0] != '\0' ? path : NULL;
}

static void set_output(struct cli *cli, char *const *environment)
{
    const char *no_color = variable(environment, "NO_COLOR");
    const char *term = variable(environment, "TERM");
    bool can_draw = term != NULL && strcmp(term, "dumb") != 0;
    bool wants_colors = (no_color == NULL || no_color[0] == '\0') && can_draw;
    cli->out = stdout;
    cli->err = stderr;
    cli->out_is_terminal = isatty(STDOUT_FILENO) == 1;
    cli->err_is_terminal = isatty(STDERR_FILENO) == 1 && can_draw;
    cli->has_colors_out = cli->out_is_terminal && wants_colors;
    cli->has_colors_err = cli->err_is_terminal && wants_colors;
}

static bool asks_for_help(const struct cli_input *input)
{
    for (int i = 2; i < input->argc && strcmp(input->argv[i], "--") != 0; i++) {
        if (strcmp(input->argv[i], "--help") == 0 || strcmp(input->argv[i], "-h") == 0) {
            return true;
        }
    }
    return false;
}

static enum err apply_sources(struct parser *p, struct error *e)
{
    enum err err = apply_defaults(p->cli, e);
    const char *path = config_path(p);
    if (err == ERR_OK && path != NULL) {
        err = apply_file(p->cli, path, e);
    }
    if (err == ERR_OK) {
        err = apply_environment(p, e);
    }
    return err == ERR_OK ? apply_flags(p, e) : err;
}

enum err cli_parse(const struct cli_input *input, struct cli *cli, struct error *e)
{
    *cli = (struct cli){.table = input->table};
    set_output(cli, input->environment);
    const char *name = input->argc > 1 ? input->argv[1] : "help";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        name = "help";
    } else if (strcmp(name, "--version") == 0) {
        name = "version";
    }
    cli->verb = verb_find(input->table, name);
    if (cli->verb == NULL) {
        return unknown_verb(input->table, name, e);
    }
    cli->n_values = verb_option_count(cli->verb);
    cli->values = mem_calloc(cli->n_values, sizeof *cli->values);
    for (uint32_t i = 0; i < cli->n_values; i++) {
        cli->values[i].option = verb_option_at(cli->verb, i);
    }
    if (asks_for_help(input)) {
        cli->wants_help = true;
        return ERR_OK;
    }
    struct parser parser = {.cli = cli, .environment = input->environment};
    enum err err = read_words(&parser, input, e);
    if (err == ERR_OK) {
        err = check_arguments(cli, e);
    }
    if (err == ERR_OK) {
        err = apply_sources(&parser, e);
    }
    cli->wants_json = err == ERR_OK && cli_flag(cli, "json");
    mem_free(parser.words);
    return err;
}
