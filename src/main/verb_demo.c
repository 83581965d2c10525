/*
 * verb_demo.c - a cluster, a tree of tasks, its results: what Capstan does, in a few seconds.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "main/private.h"
#include "main/verbs.h"

#define DEMO_WORKERS 2
#define DEMO_SLOTS 2

/*
 * extract ─► double_0, double_1, double_2 ─┐
 * flaky (fails once, is tried again) ──────┴─► sum
 *
 * The %s is the name of a file, as JSON text without its quotes, that the first attempt of `flaky` leaves behind.
 */
static const char tree_format[] =
    "{\"name\": \"demo\", \"tasks\": [\n"
    "  {\"name\": \"extract\", \"executor\": \"command\",\n"
    "   \"inputs\": {\"argv\": [\"echo\", \"{\\\"rows\\\": [3, 5, 8]}\"]}},\n"
    "  {\"name\": \"double_0\", \"executor\": \"command\", \"depends_on\": [\"extract\"],\n"
    "   \"inputs\": {\"argv\": [\"sh\", \"-c\", \"sleep 0.6; echo $((2 * ${results.extract.json.rows[0]}))\"]}},\n"
    "  {\"name\": \"double_1\", \"executor\": \"command\", \"depends_on\": [\"extract\"],\n"
    "   \"inputs\": {\"argv\": [\"sh\", \"-c\", \"sleep 0.9; echo $((2 * ${results.extract.json.rows[1]}))\"]}},\n"
    "  {\"name\": \"double_2\", \"executor\": \"command\", \"depends_on\": [\"extract\"],\n"
    "   \"inputs\": {\"argv\": [\"sh\", \"-c\", \"sleep 1.2; echo $((2 * ${results.extract.json.rows[2]}))\"]}},\n"
    "  {\"name\": \"flaky\", \"executor\": \"command\", \"retry\": {\"max_attempts\": 3, \"backoff_ms\": 250},\n"
    "   \"inputs\": {\"argv\": [\"sh\", \"-c\", \"test -e \\\"$0\\\" || { touch \\\"$0\\\"; echo bad luck >&2; exit 1; }; "
    "echo better luck\", \"%s\"]}},\n"
    "  {\"name\": \"sum\", \"executor\": \"command\", \"depends_on\": [\"double_0\", \"double_1\", \"double_2\", \"flaky\"],\n"
    "   \"inputs\": {\"argv\": [\"sh\", \"-c\", \"echo $((${results.double_0.json} + ${results.double_1.json} + "
    "${results.double_2.json}))\"]}}\n"
    "]}\n";

static enum err write_tree(struct cli *cli, const char *folder, const char **out_path, struct error *e)
{
    const char *path = arena_format(&cli->arena, "%s/demo.json", folder);
    struct buf mark = {0};
    enum err err = ERR_OK;
    json_write_text(&mark, arena_format(&cli->arena, "%s/flaky-was-here", folder));
    char *bare = arena_copy(&cli->arena, mark.data + 1, mark.n - 1);
    bare[mark.n - 2] = '\0';
    FILE *file = fopen(path, "we");
    if (file == NULL || fprintf(file, tree_format, bare) < 0) {
        err = error_set(e, ERR_UNAVAILABLE, "cannot write %s", path);
    }
    if (file != NULL && fclose(file) != 0) {
        err = error_set(e, ERR_UNAVAILABLE, "cannot write %s", path);
    }
    *out_path = path;
    buf_deinit(&mark);
    return err;
}

/* Calls `capstan run` as a person would. */
static int run_tree(struct cli *cli, const struct private_cluster *cluster, const char *path)
{
    char *argv[] = {"capstan", "run", (char *)path, "--server", (char *)cluster->address, "--json"};
    struct cli_input input = {.table = cli->table,
                              .argc = cli->wants_json ? 6 : 5,
                              .argv = argv,
                              .environment = private_environment(&cli->arena)};
    struct cli inner;
    struct error e = {0};
    int code = cli_parse(&input, &inner, &e) == ERR_OK ? verb_run(&inner) : cli_fail(&inner, &e);
    cli_deinit(&inner);
    return code;
}

static int show(struct cli *cli, const struct private_cluster *cluster, int64_t began_ms)
{
    const char *path = NULL;
    struct error e = {0};
    struct buf line = {0};
    buf_format(&line, "A coordinator and %d workers are up after ", DEMO_WORKERS);
    text_duration(&line, clock_mono_ms() - began_ms);
    buf_text(&line, ". This tree of tasks runs on them:\nthree tasks wait for one, one fails and is tried again, "
                    "one adds up what the others found.\n\n");
    fputs(line.data, cli->err);
    buf_deinit(&line);
    if (write_tree(cli, cluster->folder, &path, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    return run_tree(cli, cluster, path);
}

static void print_end(struct cli *cli, const struct private_cluster *cluster, int code, int64_t began_ms)
{
    struct buf line = {0};
    buf_text(&line, code == EXIT_DONE ? "\nDone, and everything is stopped again, after " : "\nStopped after ");
    text_duration(&line, clock_mono_ms() - began_ms);
    buf_text(&line, ".\n");
    if (cli_flag(cli, "keep")) {
        buf_format(&line, "Its folder is kept: %s\n", cluster->folder);
    } else {
        buf_text(&line, "Now start one that stays: capstan up\n");
    }
    fputs(line.data, cli->err);
    buf_deinit(&line);
}

/* Signals wait while the cluster starts and stops, so that it is always stopped; `run` takes them in between. */
int verb_demo(struct cli *cli)
{
    struct private_options options = {.workers = DEMO_WORKERS, .slots = DEMO_SLOTS};
    struct private_cluster cluster;
    struct error e = {0};
    int64_t began_ms = clock_mono_ms();
    sigset_t signals;
    int code = EXIT_DONE;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    if (private_start(&cli->arena, &options, &cluster, &e) == ERR_OK) {
        code = show(cli, &cluster, began_ms);
    } else {
        code = cli_fail(cli, &e);
    }
    fflush(cli->out);
    private_stop(&cluster);
    if (cluster.address != NULL) {
        print_end(cli, &cluster, code, began_ms);
    }
    if (!cli_flag(cli, "keep")) {
        private_remove(&cluster);
    }
    return code;
}
