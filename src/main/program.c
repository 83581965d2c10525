/*
 * program.c - one run of the program: finds the verb, reads its options, runs it.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/help.h"
#include "cli/value.h"
#include "main/program.h"
#include "main/verbs.h"

extern char **environ;

static void set_up_log(struct cli *cli)
{
    enum log_level level = LOG_INFO;
    bool is_known = log_level_from_name(cli_text(cli, "log-level"), &level);
    ASSERT(is_known);
    log_setup(level, cli->wants_json || strcmp(cli_text(cli, "log-format"), "json") == 0);
}

/* `up` makes a token if it is given none. */
static bool has_tokens(struct cli *cli)
{
    return verb_option_find(cli->verb, "auth-tokens") >= 0 &&
           (cli_text(cli, "auth-tokens") != NULL || strcmp(cli->verb->name, "up") == 0);
}

/* What switches tokens off is for this machine alone. */
static enum err check_no_auth(struct cli *cli, struct error *e)
{
    if (verb_option_find(cli->verb, "no-auth") < 0 || !cli_flag(cli, "no-auth") ||
        verb_option_find(cli->verb, "listen") < 0) {
        return ERR_OK;
    }
    const char *http = verb_option_find(cli->verb, "http") >= 0 ? cli_text(cli, "http") : NULL;
    bool is_own = address_is_loopback(cli_text(cli, "listen"));
    if (!is_own || (http != NULL && !address_is_loopback(http))) {
        error_set(e, ERR_INVALID, "--no-auth is for addresses of this machine only, not for %s",
                  is_own ? http : cli_text(cli, "listen"));
        error_hint(e, "leave it out, or listen on 127.0.0.1");
        return ERR_INVALID;
    }
    if (cli_text(cli, "auth-tokens") != NULL) {
        return error_set(e, ERR_INVALID, "--no-auth and --auth-tokens contradict each other");
    }
    return ERR_OK;
}

/* The one place that keeps every process that listens from being open to other machines by accident. */
static enum err check_one(struct cli *cli, const char *option, bool can_tls, struct error *e)
{
    if (verb_option_find(cli->verb, option) < 0 || cli_text(cli, option) == NULL) {
        return ERR_OK;
    }
    struct listen_rule rule = {.address = cli_text(cli, option),
                               .can_tls = can_tls,
                               .has_tls = can_tls && cli_text(cli, "tls-cert") != NULL,
                               .needs_tokens = verb_option_find(cli->verb, "auth-tokens") >= 0,
                               .has_tokens = has_tokens(cli),
                               .is_insecure = cli_flag(cli, "insecure")};
    return address_check_listen(&rule, e);
}

/* What others are told must be something that they can connect to. */
static enum err check_advertise(struct cli *cli, struct error *e)
{
    if (verb_option_find(cli->verb, "advertise") < 0) {
        return ERR_OK;
    }
    struct advertise_rule rule = {.listen = cli_text(cli, "listen"),
                                  .advertise = cli_text(cli, "advertise"),
                                  .may_lack_port = strcmp(cli->verb->name, "coordinator") != 0};
    return address_check_advertise(&rule, e);
}

static enum err check_listen(struct cli *cli, struct error *e)
{
    enum err err = check_one(cli, "listen", verb_option_find(cli->verb, "tls-cert") >= 0, e);
    if (err == ERR_OK) {
        err = check_no_auth(cli, e);
    }
    if (err == ERR_OK) {
        err = check_advertise(cli, e);
    }
    /* A worker's health and metrics go without TLS; the API of a coordinator has that of its other door. */
    return err == ERR_OK ? check_one(cli, "http", verb_option_find(cli->verb, "auth-tokens") >= 0, e) : err;
}

static int print_help(struct cli *cli)
{
    struct buf text = {0};
    help_verb(&text, cli->verb);
    fputs(text.data, cli->out);
    buf_deinit(&text);
    return EXIT_DONE;
}

static int run(struct cli *cli)
{
    struct error e = {0};
    if (cli->wants_help) {
        return print_help(cli);
    }
    if ((cli->verb->groups & VERB_LOGS) != 0) {
        set_up_log(cli);
    }
    if (check_listen(cli, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    return cli->verb->run(cli);
}

int program_run(int argc, char *const *argv)
{
    struct verb_table table = verbs_all();
    struct cli_input input = {.table = &table, .argc = argc, .argv = argv, .environment = environ};
    struct cli cli;
    struct error e = {0};
    int code = cli_parse(&input, &cli, &e) == ERR_OK ? run(&cli) : cli_fail(&cli, &e);
    if (fflush(stdout) != 0 && code == EXIT_DONE) {
        fputs("capstan: the output could not be written\n", stderr);
        code = EXIT_JOB_FAILED;
    }
    cli_deinit(&cli);
    return code;
}
