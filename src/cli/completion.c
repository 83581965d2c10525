/*
 * completion.c - the script with which bash completes verbs, actions, flags and their values.
 *
 * All that it knows comes from the tables, so it says the same as --help. It runs no capstan and asks no server.
 */
#include <string.h>

#include "cli/help.h"

static const char script_head[] =
    "# bash completion for capstan, made by 'capstan completion bash'.\n"
    "# Load it with: source <(capstan completion bash)\n"
    "_capstan() {\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}\n"
    "    local flags='' actions='' files='' choices='' kind=''\n"
    "    COMPREPLY=()\n"
    "    if [[ $COMP_CWORD -eq 1 ]]; then\n";

static const char script_tail[] = "    case $kind in\n"
                                  "    choice) COMPREPLY=($(compgen -W \"$choices\" -- \"$word\")); return ;;\n"
                                  "    file) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n"
                                  "    folder) COMPREPLY=($(compgen -d -- \"$word\")); return ;;\n"
                                  "    value) return ;;\n"
                                  "    esac\n"
                                  "    if [[ $word == -* ]]; then\n"
                                  "        COMPREPLY=($(compgen -W \"$flags\" -- \"$word\"))\n"
                                  "    elif [[ -n $actions && $COMP_CWORD -eq 2 ]]; then\n"
                                  "        COMPREPLY=($(compgen -W \"$actions\" -- \"$word\"))\n"
                                  "    elif [[ -n $files ]]; then\n"
                                  "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
                                  "    fi\n"
                                  "}\n"
                                  "complete -o filenames -F _capstan capstan\n";

/* "a|b" as "a b". */
static void write_words(struct buf *out, const char *choices)
{
    for (const char *p = choices; *p != '\0'; p++) {
        buf_char(out, *p == '|' ? ' ' : *p);
    }
}

static void write_flag_names(struct buf *out, const struct option *option, const char *between)
{
    if (option->letter != 0) {
        buf_format(out, "-%c%s", option->letter, between);
    }
    buf_format(out, "--%s", option->name);
}

static void write_value_case(struct buf *out, const struct option *option)
{
    buf_text(out, "        ");
    write_flag_names(out, option, " | ");
    if (option->kind == OPTION_CHOICE) {
        buf_text(out, ") kind=choice choices='");
        write_words(out, option->argument);
        buf_text(out, "' ;;\n");
    } else {
        bool is_file = option->kind == OPTION_FILE;
        buf_format(out, ") kind=%s ;;\n", is_file ? "file" : option->kind == OPTION_FOLDER ? "folder" : "value");
    }
}

static void write_verb(struct buf *out, const struct verb *verb)
{
    buf_format(out, "    %s)\n        flags='", verb->name);
    for (uint32_t i = 0; i < verb_option_count(verb); i++) {
        buf_text(out, i > 0 ? " " : "");
        write_flag_names(out, verb_option_at(verb, i), " ");
    }
    buf_text(out, "'\n");
    if (verb->actions != NULL) {
        buf_text(out, "        actions='");
        write_words(out, verb->actions);
        buf_text(out, "'\n");
    }
    if (verb->takes_files) {
        buf_text(out, "        files=yes\n");
    }
    buf_text(out, "        case $before in\n");
    for (uint32_t i = 0; i < verb_option_count(verb); i++) {
        if (verb_option_at(verb, i)->kind != OPTION_FLAG) {
            write_value_case(out, verb_option_at(verb, i));
        }
    }
    buf_text(out, "        esac\n        ;;\n");
}

void completion_bash(struct buf *out, const struct verb_table *table)
{
    buf_text(out, script_head);
    buf_text(out, "        COMPREPLY=($(compgen -W '");
    for (uint32_t i = 0; i < table->n_verbs; i++) {
        buf_format(out, "%s%s", i > 0 ? " " : "", table->verbs[i]->name);
    }
    buf_text(out, "' -- \"$word\"))\n        return\n    fi\n    case $verb in\n");
    for (uint32_t i = 0; i < table->n_verbs; i++) {
        write_verb(out, table->verbs[i]);
    }
    buf_text(out, "    esac\n");
    buf_text(out, script_tail);
}
