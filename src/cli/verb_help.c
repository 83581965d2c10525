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

int verb_help(struct cli *cli)
{
    struct buf text = {0};
    if (cli->n_args == 0 && cli->wants_json) {
        write_json(&text, cli->table);
    } else if (cli->n_args == 0) {
        help_all(&text, cli->table);
    } else {
        const struct verb *verb = verb_find(cli->table, cli->args[0]);
        if (verb == NULL) {
            struct suggestion near = {.wanted = cli->args[0]};
            for (uint32_t i = 0; i < cli->table->n_verbs; i++) {
                suggestion_try(&near, cli->table->verbs[i]->name);
            }
            const char *hint = "'capstan help' lists all";
            if (near.best != NULL) {
                hint = arena_format(&cli->arena, "did you mean '%s'? 'capstan help' lists all", near.best);
            }
            return cli_fail_with(cli, ERR_INVALID, hint, "unknown verb '%s'", cli->args[0]);
        }
        help_verb(&text, verb);
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
