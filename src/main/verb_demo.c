/*
 * verb_demo.c - a cluster, a tree of tasks, a query over files, their results: what Capstan does, in a few seconds.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "main/demo_sales.h"
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

/* Calls a verb as a person would. `argv` is NULL-terminated and has room for one more. */
static int run_verb(struct cli *cli, char **argv)
{
    struct cli_input input = {.table = cli->table, .argv = argv, .environment = private_environment(&cli->arena)};
    struct cli inner;
    struct error e = {0};
    while (argv[input.argc] != NULL) {
        input.argc++;
    }
    int code = cli_parse(&input, &inner, &e) == ERR_OK ? inner.verb->run(&inner) : cli_fail(&inner, &e);
    fflush(inner.out);
    cli_deinit(&inner);
    return code;
}

static void say(struct cli *cli, const char *before, int64_t ms, const char *after)
{
    struct buf line = {0};
    buf_text(&line, before);
    text_duration(&line, ms);
    buf_text(&line, after);
    fputs(line.data, cli->err);
    buf_deinit(&line);
}

static int show_tree(struct cli *cli, const struct private_cluster *cluster)
{
    const char *path = NULL;
    struct error e = {0};
    if (write_tree(cli, cluster->folder, &path, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    char *argv[] = {"capstan",
                    "run",
                    (char *)path,
                    "--server",
                    (char *)cluster->address,
                    "--token-file",
                    (char *)cluster->token_file,
                    NULL,
                    NULL};
    argv[7] = cli->wants_json ? "--json" : NULL;
    return run_verb(cli, argv);
}

static enum err make_tables(struct cli *cli, const struct private_cluster *cluster, struct error *e)
{
    enum err err = demo_sales_make(cluster->folder, e);
    if (err == ERR_OK) {
        err = private_put_table(cluster, "customers",
                                arena_format(&cli->arena, "%s/customers.parquet", cluster->folder), e);
    }
    if (err == ERR_OK) {
        err = private_put_table(cluster, "sales", arena_format(&cli->arena, "%s/sales-*.parquet", cluster->folder), e);
    }
    return err;
}

static int show_query(struct cli *cli, const struct private_cluster *cluster)
{
    struct error e = {0};
    int64_t began_ms = clock_mono_ms();
    if (make_tables(cli, cluster, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    say(cli, "\nTwo tables in five Parquet files are written after ", clock_mono_ms() - began_ms,
        ". This query reads them on both workers,\nwhich send each other the rows that belong together:\n\n");
    fprintf(cli->err, "%s\n\n", demo_sales_query);
    began_ms = clock_mono_ms();
    char *argv[] = {"capstan",
                    "sql",
                    (char *)demo_sales_query,
                    "--server",
                    (char *)cluster->address,
                    "--token-file",
                    (char *)cluster->token_file,
                    "--output",
                    NULL,
                    "--analyze",
                    NULL};
    argv[8] = cli->wants_json ? "json" : "table";
    int code = run_verb(cli, argv);
    if (code == EXIT_DONE) {
        say(cli, "\nThe query took ", clock_mono_ms() - began_ms, ".\n");
    }
    return code;
}

static int show(struct cli *cli, const struct private_cluster *cluster, int64_t began_ms)
{
    fprintf(cli->err, "A coordinator and %d workers are up after ", DEMO_WORKERS);
    say(cli, "", clock_mono_ms() - began_ms,
        ". This tree of tasks runs on them:\nthree tasks wait for one, one fails and is tried again, "
        "one adds up what the others found.\n\n");
    int code = show_tree(cli, cluster);
    return code == EXIT_DONE ? show_query(cli, cluster) : code;
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
    /* The tables are small, and left alone Capstan would ask one worker and send the customers to everybody. */
    static const char *const settings[] = {"single_task_bytes=0", "broadcast_bytes=0"};
    struct private_options options = {
        .workers = DEMO_WORKERS, .slots = DEMO_SLOTS, .settings = settings, .n_settings = ARRAY_LEN(settings)};
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
