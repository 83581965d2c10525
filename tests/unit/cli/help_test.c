#include "../test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/help.h"
#include "cli/verbs.h"

static const struct verb_table *all(void)
{
    static const struct verb *verbs[64];
    static struct verb_table table;
    for (uint32_t i = 0; i < cli_verb_count; i++) {
        verbs[i] = &cli_verbs[i];
    }
    table = (struct verb_table){.verbs = verbs, .n_verbs = cli_verb_count};
    return &table;
}

TEST(every_verb_has_a_help_with_an_example_of_itself)
{
    for (uint32_t i = 0; i < cli_verb_count; i++) {
        const struct verb *verb = &cli_verbs[i];
        struct buf out = {0};
        char own[64];
        help_verb(&out, verb);
        snprintf(own, sizeof own, "capstan %s", verb->name);
        CHECK(strstr(out.data, "\nexample:\n  ") != NULL);
        CHECK(strstr(strstr(out.data, "\nexample:\n"), own) != NULL);
        CHECK(strstr(out.data, "--json") != NULL);
        CHECK(strstr(out.data, "--config") != NULL);
        CHECK(strlen(verb->summary) < 70);
        buf_deinit(&out);
    }
}

TEST(every_default_is_a_value_that_its_own_option_takes)
{
    for (uint32_t i = 0; i < cli_verb_count; i++) {
        const struct verb *verb = &cli_verbs[i];
        for (uint32_t j = 0; j < verb_option_count(verb); j++) {
            const struct option *option = verb_option_at(verb, j);
            int64_t number = 0;
            CHECK(option->kind == OPTION_FLAG || option->argument != NULL);
            CHECK(option->fallback == NULL || option_check(option, option->fallback, &number, NULL) == ERR_OK);
            CHECK_INT(verb_option_find(verb, option->name), (int64_t)j); /* no name is there twice */
        }
    }
}

TEST(help_of_a_verb_is_pinned)
{
    static const struct option options[] = {
        {"limit", 'n', false, OPTION_NUMBER, "N", "20", 1, 1000, "at most so many"},
        {"label", 0, true, OPTION_TEXT, "LABEL", NULL, 0, 0, "only these"},
    };
    static const struct verb verb = {.name = "look",
                                     .usage = "[WHERE]",
                                     .summary = "look around",
                                     .help = "Looks around.",
                                     .example = "capstan look\ncapstan look up",
                                     .options = options,
                                     .n_options = 2};
    struct buf out = {0};
    help_verb(&out, &verb);
    CHECK_STR(out.data,
              "usage: capstan look [WHERE]\n"
              "\n"
              "Looks around.\n"
              "\n"
              "flags:\n"
              "  -n, --limit N  at most so many (default 20)\n"
              "  --label LABEL  only these; can be repeated\n"
              "  --json         print JSON for machines, on one line\n"
              "  --config FILE  read settings from this file; flags and environment win\n"
              "  -h, --help     print this text\n"
              "\n"
              "Every flag can also be a variable (CAPSTAN_LOG_LEVEL for --log-level) or a line of the file that\n"
              "--config names. The flag wins over the variable, the variable over the file.\n"
              "\n"
              "example:\n"
              "  capstan look\n"
              "  capstan look up\n");
    buf_deinit(&out);
}

TEST(the_manual_leaves_nothing_for_its_formatter_to_misread)
{
    static const struct option options[] = {
        {"path", 'p', false, OPTION_TEXT, "A|B", "x-y", 0, 0, "'quoted' and \\n, with - and `code`"},
    };
    static const struct verb verb = {.name = "look",
                                     .usage = "",
                                     .summary = "look around",
                                     .help = ".begins with a dot",
                                     .example = "capstan look",
                                     .options = options,
                                     .n_options = 1};
    static const struct verb *const verbs[] = {&verb};
    struct verb_table table = {.verbs = verbs, .n_verbs = 1};
    struct buf out = {0};
    reference_man(&out, &table);
    CHECK(strstr(out.data, "\n\\&.begins with a dot\n") != NULL);
    CHECK(strstr(out.data, ".TP\n\\fB\\-p\\fR, \\fB\\-\\-path\\fR \\fIA|B\\fR\n"
                           "\\&\\(aqquoted\\(aq and \\en, with \\- and code (default x\\-y)\n") != NULL);
    buf_reset(&out);
    reference_markdown(&out, &table);
    CHECK(strstr(out.data, "| `--path`, `-p` | `CAPSTAN_PATH` | A\\|B | `x-y` | 'quoted' and \\n") != NULL);
    buf_deinit(&out);
}

TEST(the_list_of_verbs_has_all_of_them)
{
    struct buf out = {0};
    help_all(&out, all());
    for (uint32_t i = 0; i < cli_verb_count; i++) {
        CHECK(strstr(out.data, cli_verbs[i].summary) != NULL);
    }
    buf_deinit(&out);
}

/* Runs bash with the completion script and `commands` after it; what it prints. */
static const char *bash(const char *commands)
{
    static char output[4096];
    char path[] = "/tmp/capstan-completion-XXXXXX";
    char line[128];
    struct buf script = {0};
    completion_bash(&script, all());
    buf_text(&script, commands);
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK_INT(write(fd, script.data, script.n), (int64_t)script.n);
    close(fd);
    snprintf(line, sizeof line, "bash -n %s && bash %s 2>&1", path, path);
    FILE *pipe = popen(line, "r");
    CHECK(pipe != NULL);
    size_t n = fread(output, 1, sizeof output - 1, pipe);
    output[n] = '\0';
    CHECK_INT(pclose(pipe), 0);
    unlink(path);
    buf_deinit(&script);
    return output;
}

/* What is offered when the last of the words is being typed. */
static const char *completed(const char *words, int count)
{
    static char commands[512];
    snprintf(commands, sizeof commands, "COMP_WORDS=(%s)\nCOMP_CWORD=%d\n_capstan\necho \"${COMPREPLY[@]}\"\n", words,
             count - 1);
    return bash(commands);
}

TEST(the_shell_completes_verbs_actions_flags_and_values)
{
    CHECK_STR(completed("capstan jo", 2), "jobs job\n");
    CHECK_STR(completed("capstan node ''", 3), "drain undrain clear\n");
    CHECK_STR(completed("capstan jobs --st", 3), "--state\n");
    CHECK_STR(completed("capstan jobs --state f", 4), "failed\n");
    CHECK_STR(completed("capstan table add --format p", 5), "parquet\n");
    CHECK_STR(completed("capstan jobs --limit 3", 4), "\n"); /* a number is nothing to complete */
    CHECK_STR(completed("capstan run /dev/nul", 3), "/dev/null\n");
    CHECK_STR(completed("capstan nonsense --x", 3), "\n");
}
