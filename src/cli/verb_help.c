#include <string.h>

#include "base/json.h"
#include "cli/help.h"
#include "cli/suggest.h"
#include "cli/verbs.h"
#include "cli/version.h"

static void write_json(struct buf *out, const struct verb_table *table)
{
    buf_text(out, "{\"verbs\":[");
    for (uint32_t i = 0; i < table->n_verbs; i++) {
        buf_text(out, i > 0 ? ",{\"name\":" : "{\"name\":");
        json_write_text(out, table->verbs[i]->name);
        buf_text(out, ",\"summary\":");
        json_write_text(out, table->verbs[i]->summary);
        buf_char(out, '}');
    }
    buf_text(out, "]}\n");
}

static int unknown_topic(struct cli *cli)
{
    struct suggestion near = {.wanted = cli->args[0]};
    for (uint32_t i = 0; i < cli->table->n_verbs; i++) {
        suggestion_try(&near, cli->table->verbs[i]->name);
    }
    suggestion_try(&near, "settings");
    const char *hint = "'capstan help' lists all";
    if (near.best != NULL) {
        hint = arena_format(&cli->arena, "did you mean '%s'? 'capstan help' lists all", near.best);
    }
    return cli_fail_with(cli, ERR_INVALID, hint, "unknown verb '%s'", cli->args[0]);
}

/* The whole program, in the form that was asked for. */
static void write_all(struct cli *cli, struct buf *out)
{
    if (cli_flag(cli, "markdown")) {
        reference_markdown(out, cli->table);
    } else if (cli_flag(cli, "man")) {
        reference_man(out, cli->table);
    } else if (cli->wants_json) {
        write_json(out, cli->table);
    } else {
        help_all(out, cli->table);
    }
}

int verb_help(struct cli *cli)
{
    struct buf text = {0};
    const struct verb *verb = cli->n_args > 0 ? verb_find(cli->table, cli->args[0]) : NULL;
    if (cli->n_args == 0) {
        write_all(cli, &text);
    } else if (verb != NULL) {
        help_verb(&text, verb);
    } else if (strcmp(cli->args[0], "settings") == 0) {
        help_settings(&text, cli->table);
    } else {
        return unknown_topic(cli);
    }
    fputs(text.data, cli->out);
    buf_deinit(&text);
    return EXIT_DONE;
}

int verb_completion(struct cli *cli)
{
    struct buf text = {0};
    completion_bash(&text, cli->table);
    fputs(text.data, cli->out);
    buf_deinit(&text);
    return EXIT_DONE;
}

int verb_version(struct cli *cli)
{
    fputs(cli->wants_json ? "{\"version\":\"" CAPSTAN_VERSION "\"}\n" : "capstan " CAPSTAN_VERSION "\n", cli->out);
    return EXIT_DONE;
}
