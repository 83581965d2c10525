#include "../test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static int run_nothing(struct cli *cli)
{
    (void)cli;
    return 0;
}

static const struct option boat_options[] = {
    {"name", 'n', false, OPTION_TEXT, "NAME", NULL, 0, 0, "a name"},
    {"oars", 0, false, OPTION_NUMBER, "N", "2", 1, 8, "a number"},
    {"wait", 0, false, OPTION_DURATION, "TIME", "1s", 0, 10000, "a duration"},
    {"load", 0, false, OPTION_SIZE, "SIZE", NULL, 1, 0, "a size"},
    {"port", 0, false, OPTION_ADDRESS, "HOST:PORT", NULL, 0, 0, "an address"},
    {"label", 'l', true, OPTION_TEXT, "L", NULL, 0, 0, "labels"},
    {"set", 0, true, OPTION_PAIR, "K=V", NULL, 0, 0, "pairs"},
    {"sail", 's', false, OPTION_FLAG, NULL, NULL, 0, 0, "a flag"},
    {"rig", 0, false, OPTION_CHOICE, "sloop|ketch", "sloop", 0, 0, "a choice"},
};
static const struct verb boat = {.name = "boat",
                                 .usage = "launch|sink [NAME]",
                                 .summary = "s",
                                 .help = "h",
                                 .example = "e",
                                 .actions = "launch|sink",
                                 .args_min = 1,
                                 .args_max = 2,
                                 .options = boat_options,
                                 .n_options = ARRAY_LEN(boat_options),
                                 .run = run_nothing};
static const struct verb list = {.name = "list",
                                 .usage = "",
                                 .summary = "s",
                                 .help = "h",
                                 .example = "e",
                                 .groups = VERB_CLIENT,
                                 .run = run_nothing};
static const struct verb *const verbs[] = {&boat, &list};
static const struct verb_table table = {.verbs = verbs, .n_verbs = 2};

#define WORDS_MAX 24

/* Parses "capstan" and the words of `line`, which are separated by blanks. */
static enum err parse(const char *line, char *const *environment, struct cli *cli, struct error *e)
{
    static char copy[1024];
    char *argv[WORDS_MAX] = {(char *)"capstan"};
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *p = copy; *p != '\0' && argc < WORDS_MAX;) {
        argv[argc++] = p;
        p += strcspn(p, " ");
        if (*p == ' ') {
            *p++ = '\0';
        }
    }
    struct cli_input input = {.table = &table, .argc = argc, .argv = argv, .environment = environment};
    return cli_parse(&input, cli, e);
}

static void check_refused(const char *line, const char *message, const char *hint)
{
    struct cli cli;
    struct error e = {0};
    CHECK_ERR(parse(line, NULL, &cli, &e), ERR_INVALID);
    CHECK_STR(e.message, message);
    if (hint != NULL) {
        CHECK_STR(e.hint, hint);
    }
    cli_deinit(&cli);
}

TEST(flags_can_be_written_in_every_usual_way)
{
    struct cli cli;
    uint32_t n = 0;

    CHECK_ERR(parse("boat --name=Ann launch --oars 4 -lred -l blue --wait=250ms --load 2KB --sail --set a=1 x", NULL,
                    &cli, NULL),
              ERR_OK);
    CHECK_STR(cli_text(&cli, "name"), "Ann");
    CHECK_INT(cli_number(&cli, "oars"), 4);
    CHECK_INT(cli_number(&cli, "wait"), 250);
    CHECK_INT(cli_number(&cli, "load"), 2000);
    CHECK(cli_flag(&cli, "sail"));
    CHECK_STR(cli_list(&cli, "label", &n)[1], "blue");
    CHECK_UINT(n, 2);
    CHECK_UINT(cli.n_args, 2);
    CHECK_STR(cli.args[0], "launch");
    CHECK_STR(cli.args[1], "x");
    CHECK_STR(cli_text(&cli, "rig"), "sloop");
    CHECK(!cli_is_given(&cli, "rig"));
    CHECK(cli_is_given(&cli, "oars"));
    CHECK_STR(cli_text(&cli, "port"), NULL);
    CHECK_STR(cli_text_or(&cli, "port", "none"), "none");
    cli_deinit(&cli);
}

TEST(after_two_dashes_everything_is_an_argument)
{
    struct cli cli;

    CHECK_ERR(parse("boat sink -- --name", NULL, &cli, NULL), ERR_OK);
    CHECK_STR(cli.args[1], "--name");
    CHECK_STR(cli_text(&cli, "name"), NULL);
    cli_deinit(&cli);
}

TEST(the_last_of_a_flag_wins_unless_it_can_be_repeated)
{
    struct cli cli;

    CHECK_ERR(parse("boat sink --oars 3 --oars 5 --sail --sail=false", NULL, &cli, NULL), ERR_OK);
    CHECK_INT(cli_number(&cli, "oars"), 5);
    CHECK(!cli_flag(&cli, "sail"));
    cli_deinit(&cli);
}

TEST(what_is_wrong_is_said_with_what_was_probably_meant)
{
    check_refused("baot launch", "unknown verb 'baot'", "did you mean 'boat'? 'capstan help' lists all");
    check_refused("elephant", "unknown verb 'elephant'", "'capstan help' lists all");
    check_refused("--server x list", "unknown flag '--server' before the verb", NULL);
    check_refused("boat launch --nmae x", "boat: unknown flag '--nmae'",
                  "did you mean --name? 'capstan boat --help' lists all");
    check_refused("boat launch --nmae=x", "boat: unknown flag '--nmae'", NULL);
    check_refused("boat launch -z", "boat: unknown flag '-z'", NULL);
    check_refused("boat --", "boat: an argument is missing", NULL);
}

TEST(arguments_are_counted_and_the_action_is_known)
{
    check_refused("boat", "boat: an argument is missing", "usage: capstan boat launch|sink [NAME]");
    check_refused("boat lanch", "boat: 'lanch' is none of launch|sink", "did you mean 'launch'?");
    check_refused("boat sink a b", "boat: unexpected argument 'b'", "usage: capstan boat launch|sink [NAME]");
    check_refused("list x", "list: unexpected argument 'x'", NULL);
}

TEST(values_are_checked_strictly)
{
    check_refused("boat sink --oars 4x", "boat: --oars: '4x' is not a whole number",
                  "'capstan boat --help' explains it");
    check_refused("boat sink --oars 9", "boat: --oars: 9 is out of range: from 1 to 8", NULL);
    check_refused("boat sink --wait 5", "boat: --wait: '5' is not a duration such as 250ms, 60s, 5m, 2h or 7d", NULL);
    check_refused("boat sink --wait 11s", "boat: --wait: 11s is too large", NULL);
    check_refused("boat sink --load 0", "boat: --load: 0 is too small", NULL);
    check_refused("boat sink --port nowhere", "boat: --port: 'nowhere' is not an address of the form HOST:PORT", NULL);
    check_refused("boat sink --set a", "boat: --set: 'a' is not of the form name=value", NULL);
    check_refused("boat sink --rig barge", "boat: --rig: 'barge' is none of sloop|ketch", NULL);
    check_refused("boat sink --sail=maybe", "boat: --sail: 'maybe' is neither true nor false", NULL);
    check_refused("boat sink --name", "boat: --name needs a value: NAME", NULL);
    check_refused("boat sink --name --sail", "boat: --name needs a value: NAME", NULL);
    check_refused("boat sink --name=", "boat: --name: the value is empty", NULL);
    check_refused("list --server a:1,,b:2", "list: --server: '' is not an address of the form HOST:PORT", NULL);
}

TEST(help_is_found_before_anything_is_checked)
{
    struct cli cli;

    CHECK_ERR(parse("boat --oars many --help", NULL, &cli, NULL), ERR_OK);
    CHECK(cli.wants_help);
    cli_deinit(&cli);
    CHECK_ERR(parse("boat launch -- --help", NULL, &cli, NULL), ERR_OK);
    CHECK(!cli.wants_help);
    cli_deinit(&cli);
}

TEST(variables_are_flags_in_capitals)
{
    char *environment[] = {(char *)"CAPSTAN_OARS=6",
                           (char *)"CAPSTAN_LABEL=a,b,c",
                           (char *)"CAPSTAN_SAIL=yes",
                           (char *)"CAPSTAN_NAME=",
                           (char *)"OARS=1",
                           (char *)"CAPSTAN_UNKNOWN=1",
                           NULL};
    struct cli cli;
    uint32_t n = 0;

    CHECK_ERR(parse("boat sink", environment, &cli, NULL), ERR_OK);
    CHECK_INT(cli_number(&cli, "oars"), 6);
    CHECK_STR(cli_list(&cli, "label", &n)[2], "c");
    CHECK_UINT(n, 3);
    CHECK(cli_flag(&cli, "sail"));
    CHECK_STR(cli_text(&cli, "name"), NULL);
    CHECK(cli_is_given(&cli, "oars"));
    CHECK(!cli_is_specific(&cli, "oars"));
    cli_deinit(&cli);
}

TEST(a_variable_that_is_wrong_is_named)
{
    char *environment[] = {(char *)"CAPSTAN_OARS=many", NULL};
    struct cli cli;
    struct error e = {0};

    CHECK_ERR(parse("boat sink", environment, &cli, &e), ERR_INVALID);
    CHECK_STR(e.message, "CAPSTAN_OARS: 'many' is not a whole number");
    cli_deinit(&cli);
}

/* Writes the text into a file of its own, whose name it returns. */
static const char *file_with(const char *text)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/capstan-parse-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK_INT(write(fd, text, strlen(text)), (int64_t)strlen(text));
    close(fd);
    return path;
}

static enum err parse_with_file(const char *line, const char *text, char *const *environment, struct cli *cli,
                                struct error *e)
{
    char whole[512];
    const char *path = file_with(text);
    snprintf(whole, sizeof whole, "%s --config %s", line, path);
    enum err err = parse(whole, environment, cli, e);
    unlink(path);
    return err;
}

TEST(flag_wins_over_variable_over_file_over_default)
{
    static const char text[] = "oars = 3\nlabel = from-all\n[boat]\nwait = 3s\nlabel = x\nlabel = y\nrig = ketch\n"
                               "[list]\ntimeout = 1s\n";
    char *environment[] = {(char *)"CAPSTAN_OARS=6", (char *)"CAPSTAN_WAIT=6s", NULL};
    struct cli cli;
    uint32_t n = 0;

    CHECK_ERR(parse_with_file("boat sink --wait 9s", text, environment, &cli, NULL), ERR_OK);
    CHECK_INT(cli_number(&cli, "wait"), 9000);      /* flag */
    CHECK_INT(cli_number(&cli, "oars"), 6);         /* variable */
    CHECK_STR(cli_text(&cli, "rig"), "ketch");      /* file */
    CHECK_STR(cli_list(&cli, "label", &n)[0], "x"); /* its section, which replaces what stands before all */
    CHECK_UINT(n, 2);
    cli_deinit(&cli);
}

TEST(the_file_can_be_named_by_a_variable)
{
    char variable[128];
    char *environment[] = {variable, NULL};
    struct cli cli;
    const char *path = file_with("[boat]\noars = 7\n");
    snprintf(variable, sizeof variable, "CAPSTAN_CONFIG=%s", path);

    CHECK_ERR(parse("boat sink", environment, &cli, NULL), ERR_OK);
    CHECK_INT(cli_number(&cli, "oars"), 7);
    cli_deinit(&cli);
    unlink(path);
}

static void check_file_refused(const char *text, const char *message, const char *hint)
{
    struct cli cli;
    struct error e = {0};
    CHECK_ERR(parse_with_file("boat sink", text, NULL, &cli, &e), ERR_INVALID);
    const char *after_path = strchr(e.message, ':');
    CHECK_STR(after_path, message);
    CHECK_STR(e.hint, hint);
    cli_deinit(&cli);
}

TEST(a_wrong_file_is_refused_with_file_and_line)
{
    check_file_refused("[boat]\noar = 3\n", ":2: unknown key 'oar' in section [boat]", "did you mean 'oars'?");
    check_file_refused("oarz = 3\n", ":1: unknown key 'oarz': no verb has such a flag", "did you mean 'oars'?");
    check_file_refused("[boot]\n", ":1: unknown section [boot]: sections are called as verbs", "did you mean [boat]?");
    check_file_refused("[boat]\noars = x\n", ":2: oars: 'x' is not a whole number", "");
    check_file_refused("[boat]\noars = 3\noars = 4\n", ":3: 'oars' is set twice", "");
    check_file_refused("[list]\noars = 3\n", ":2: unknown key 'oars' in section [list]", "");
    check_file_refused("[list]\ntimeout = soon\n",
                       ":2: timeout: 'soon' is not a duration such as 250ms, 60s, 5m, 2h or 7d", "");
    check_file_refused("help = true\n", ":1: unknown key 'help': no verb has such a flag", "did you mean 'help'?");
}

TEST(a_file_that_is_not_there_is_an_error)
{
    struct cli cli;
    struct error e = {0};

    CHECK_ERR(parse("boat sink --config /nonexistent/x.ini", NULL, &cli, &e), ERR_INVALID);
    CHECK(strstr(e.message, "/nonexistent/x.ini") != NULL);
    cli_deinit(&cli);
}

TEST(an_error_is_printed_in_lines_with_the_hint_last)
{
    struct error e = {0};
    struct buf out = {0};
    error_set(&e, ERR_INVALID, "two things:\nfirst\x1b[31m\nsecond");
    error_hint(&e, "mend them");

    cli_write_error(&out, &e);

    CHECK_STR(out.data, "capstan: two things:\n  first\\x1b[31m\n  second\n  hint: mend them\n");
    buf_deinit(&out);
}

TEST(an_error_without_a_text_says_what_its_code_means)
{
    struct error e = {.code = ERR_DENIED};
    struct buf out = {0};

    cli_write_error(&out, &e);

    CHECK_STR(out.data, "capstan: this is not allowed\n");
    buf_deinit(&out);
}
