/*
 * sql_test.c - `capstan sql` and `capstan results` as people call them, against a small coordinator with a real DuckDB.
 */
#define _GNU_SOURCE /* F_SETPIPE_SZ, pipe2 */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/verbs.h"
#include "exchange/ipc.h"
#include "integration/cli/warehouse.h"
#include "test.h"

#define WORDS_MAX 24
#define VERBS_MAX 32

/* SIGINT is for the thread that waits for it, and for no poller of any server. */
__attribute__((constructor)) static void leave_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* What one call of the program said. */
struct said {
    int code;
    struct buf out;
    struct buf err;
};

static void said_reset(struct said *said)
{
    buf_deinit(&said->out);
    buf_deinit(&said->err);
}

static void read_back(FILE *file, struct buf *out)
{
    char chunk[4096];
    size_t n = 0;
    rewind(file);
    buf_append(out, NULL, 0);
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0) {
        buf_append(out, chunk, n);
    }
    fclose(file);
}

static struct verb_table all_verbs(void)
{
    static const struct verb *verbs[VERBS_MAX];
    ASSERT(cli_verb_count <= VERBS_MAX);
    for (uint32_t i = 0; i < cli_verb_count; i++) {
        verbs[i] = &cli_verbs[i];
    }
    return (struct verb_table){.verbs = verbs, .n_verbs = cli_verb_count};
}

/* Calls the program with the words, which end with NULL; its stdout is `out`. */
static void call_to(const struct warehouse *w, struct said *said, FILE *out, const char *const *words)
{
    char *argv[WORDS_MAX + 4] = {(char *)"capstan"};
    int argc = 1;
    struct verb_table table = all_verbs();
    struct cli cli;
    struct error e = {0};
    for (; *words != NULL; words++) {
        argv[argc++] = (char *)*words;
    }
    argv[argc++] = (char *)"--server";
    argv[argc++] = (char *)warehouse_address(w);
    struct cli_input input = {.table = &table, .argc = argc, .argv = argv};
    *said = (struct said){0};
    enum err err = cli_parse(&input, &cli, &e);
    cli.out = out;
    cli.err = tmpfile();
    cli.out_is_terminal = cli.err_is_terminal = false;
    said->code = err == ERR_OK ? cli.verb->run(&cli) : cli_fail(&cli, &e);
    read_back(cli.err, &said->err);
    cli_deinit(&cli);
}

static void call(const struct warehouse *w, struct said *said, const char *const *words)
{
    FILE *out = tmpfile();
    call_to(w, said, out, words);
    read_back(out, &said->out);
}

#define CALL(w, said, ...) call((w), (said), (const char *const[]){__VA_ARGS__, NULL})

static void check_output(const char *format, const char *sql, const char *expected)
{
    struct warehouse w = {0};
    struct said said;
    warehouse_open(&w);
    CALL(&w, &said, "sql", sql, "-o", format);
    CHECK_STR(said.err.data, "");
    CHECK_INT(said.code, 0);
    CHECK_STR(said.out.data, expected);
    said_reset(&said);
    warehouse_close(&w);
}

TEST(a_table_has_names_types_aligned_cells_and_a_count)
{
    check_output("table", "SELECT * FROM (VALUES (1, 'a'), (-20, NULL), (300, 'x' || chr(27))) t(number, \"täxt\")",
                 " number  täxt\n"
                 "INTEGER  VARCHAR\n"
                 "-------  -------\n"
                 "      1  a\n"
                 "    -20  NULL\n"
                 "    300  x\\x1b\n"
                 "(3 rows)\n");
    check_output("table", "SELECT 1 AS a, 2 AS a WHERE false",
                 "      a        a\nINTEGER  INTEGER\n-------  -------\n(0 rows)\n");
    check_output("table", "SELECT 'x' AS v", "v\nVARCHAR\n-------\nx\n(1 row)\n");
}

TEST(csv_is_quoted_where_it_must_be_and_tells_null_from_empty)
{
    check_output("csv",
                 "SELECT * FROM (VALUES ('a,b', 1.50), ('say \"x\"', NULL), ('', 0), ('l' || chr(10) || 'm', 2)) "
                 "t(\"a,b\", n)",
                 "\"a,b\",n\n\"a,b\",1.50\n\"say \"\"x\"\"\",\n\"\",0.00\n\"l\nm\",2.00\n");
    check_output("csv", "SELECT 1 AS a, 2 AS a WHERE false", "a,a\n");
}

TEST(json_has_columns_with_types_and_rows)
{
    check_output("json", "SELECT 1 AS a, 'x\"' AS b, [1, NULL] AS a, 9007199254740993 AS c",
                 "{\"columns\":[{\"name\":\"a\",\"type\":\"INTEGER\"},{\"name\":\"b\",\"type\":\"VARCHAR\"},"
                 "{\"name\":\"a\",\"type\":\"INTEGER[]\"},{\"name\":\"c\",\"type\":\"BIGINT\"}],"
                 "\"rows\":[[1,\"x\\\"\",[1,null],\"9007199254740993\"]]}\n");
    check_output("json", "SELECT 1 AS a WHERE false",
                 "{\"columns\":[{\"name\":\"a\",\"type\":\"INTEGER\"}],\"rows\":[]}\n");
}

TEST(jsonl_has_an_object_for_each_row_with_names_that_differ)
{
    check_output("jsonl", "SELECT i AS a, NULL::DATE AS A, true AS a FROM range(2) t(i)",
                 "{\"a\":0,\"A_1\":null,\"a_2\":true}\n{\"a\":1,\"A_1\":null,\"a_2\":true}\n");
    check_output("jsonl", "SELECT 1 AS a WHERE false", "");
}

/* Enough for a table to stop holding its rows, and for many chunks. */
#define MANY 30000

TEST(a_long_result_is_streamed_and_survives_connections_that_break)
{
    struct warehouse w = {.break_after = 50000};
    struct said said;
    char line[64];
    warehouse_open(&w);
    static const char texts[] = "SELECT i, 'text ' || i AS t FROM range(30000) r(i)";
    CALL(&w, &said, "sql", texts, "-o", "csv");
    CHECK_STR(said.err.data, "");
    CHECK_INT(said.code, 0);
    CHECK(atomic_load(&w.fetches) > 5);
    const char *p = said.out.data;
    CHECK(strncmp(p, "i,t\n", 4) == 0);
    p += 4;
    for (int i = 0; i < MANY; i++) {
        int n = snprintf(line, sizeof line, "%d,text %d\n", i, i);
        CHECK(strncmp(p, line, (size_t)n) == 0);
        p += n;
    }
    CHECK_STR(p, "");
    said_reset(&said);

    /* Widths are those of the first rows; what is wider later is printed all the same. */
    CALL(&w, &said, "sql", "SELECT i, CASE WHEN i = 29999 THEN 'rather long' END AS t FROM range(30000) r(i)");
    CHECK_INT(said.code, 0);
    CHECK(strstr(said.out.data, "\n  9999  NULL\n") != NULL);
    CHECK(strstr(said.out.data, "\n 29999  rather long\n(30,000 rows)\n") != NULL);
    said_reset(&said);
    warehouse_close(&w);
}

TEST(a_result_that_ends_in_the_middle_is_an_error_and_leaves_no_file)
{
    struct warehouse w = {.ends_early = true};
    struct said said;
    char folder[] = "/tmp/capstan-cli-XXXXXX";
    char path[64];
    struct stat there;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    warehouse_open(&w);
    CALL(&w, &said, "sql", "SELECT 1 AS a", "-o", "csv", "--out", path);
    CHECK_INT(said.code, 1);
    CHECK(strstr(said.err.data, "ends in the middle") != NULL);
    CHECK(stat(path, &there) != 0);
    CHECK_INT(rmdir(folder), 0); /* nothing is left in it */
    said_reset(&said);
    warehouse_close(&w);
}

static void read_file(const char *path, struct buf *out)
{
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    read_back(file, out);
}

TEST(files_appear_under_their_name_and_hold_the_rows)
{
    static const char sql[] = "SELECT i AS a, i * 2 AS a, 'x' AS b FROM range(5000) t(i)";
    struct warehouse w = {0};
    struct said said;
    char folder[] = "/tmp/capstan-cli-XXXXXX";
    char arrow[64];
    char parquet[64];
    struct buf bytes = {0};
    CHECK(mkdtemp(folder) != NULL);
    snprintf(arrow, sizeof arrow, "%s/rows.arrow", folder);
    snprintf(parquet, sizeof parquet, "%s/it's.parquet", folder);
    warehouse_open(&w);
    CALL(&w, &said, "sql", sql, "-o", "arrow", "--out", arrow);
    CHECK_STR(said.err.data, "");
    CHECK_INT(said.code, 0);
    CHECK_STR(said.out.data, "");
    read_file(arrow, &bytes);
    CHECK_UINT(bytes.n, w.result.n);
    CHECK_MEM(bytes.data, w.result.data, bytes.n);
    said_reset(&said);

    CALL(&w, &said, "sql", sql, "-o", "parquet", "--out", parquet);
    CHECK_STR(said.err.data, "");
    CHECK_INT(said.code, 0);
    said_reset(&said);
    struct buf query = {0};
    buf_format(&query,
               "SELECT count(*) AS n, sum(a)::BIGINT AS s, sum(a_1)::BIGINT AS t, min(b) AS b FROM '%s/it''s.parquet'",
               folder);
    CALL(&w, &said, "sql", query.data, "-o", "csv");
    CHECK_STR(said.out.data, "n,s,t,b\n5000,12497500,24995000,x\n");
    said_reset(&said);

    CHECK_INT(unlink(arrow), 0);
    CHECK_INT(unlink(parquet), 0);
    CHECK_INT(rmdir(folder), 0);
    buf_deinit(&bytes);
    buf_deinit(&query);
    warehouse_close(&w);
}

TEST(what_is_asked_reaches_the_coordinator)
{
    struct warehouse w = {0};
    struct said said;
    warehouse_open(&w);
    CALL(&w, &said, "sql", "SELECT 1", "--param", "5", "--param", "a text", "--param", "\"a=b\"", "--param", "null",
         "--set", "partitions=4", "--set", "forced=yes", "--set", "broadcast_bytes=64KB", "--priority", "0",
         "--detach");
    CHECK_STR(said.err.data, "");
    CHECK_INT(said.code, 0);
    CHECK(strncmp(said.out.data, w.job_id, strlen(w.job_id)) == 0);
    CHECK_STR(w.params.data, "[5,\"a text\",\"a=b\",null]");
    CHECK_STR(w.options.data, "{\"partitions\":4,\"forced\":true,\"broadcast_bytes\":64000}");
    CHECK(w.has_priority);
    CHECK_UINT(w.priority, 0);
    said_reset(&said);

    CALL(&w, &said, "sql", "SELECT 1", "-p", "day=2026-11-15", "-p", "n=[1]", "--detach", "--json");
    CHECK_STR(w.params.data, "{\"day\":\"2026-11-15\",\"n\":[1]}");
    CHECK(!w.has_priority);
    CHECK(strstr(said.out.data, "{\"job_id\":\"") == said.out.data);
    said_reset(&said);
    warehouse_close(&w);
}

static void check_refused(const char *const *words, const char *message)
{
    struct warehouse w = {0};
    struct said said;
    warehouse_open(&w);
    call(&w, &said, words);
    CHECK_INT(said.code, 2);
    if (strstr(said.err.data, message) == NULL) {
        print_error("'%s' is not in:\n%s", message, said.err.data);
    }
    CHECK(strstr(said.err.data, message) != NULL);
    CHECK_UINT(atomic_load(&w.submits), 0);
    said_reset(&said);
    warehouse_close(&w);
}

#define REFUSED(message, ...) check_refused((const char *const[]){"sql", __VA_ARGS__, NULL}, (message))

TEST(what_cannot_be_right_is_refused_before_anything_is_sent)
{
    REFUSED("the SQL is empty", " ; ");
    REFUSED("give one of them", "SELECT 1", "-f", "x.sql");
    REFUSED("cannot open /nowhere/x.sql", "-f", "/nowhere/x.sql");
    REFUSED("-o parquet needs a file", "SELECT 1", "-o", "parquet");
    REFUSED("--out /nowhere/x: No such file", "SELECT 1", "--out", "/nowhere/x");
    REFUSED("--out /tmp: this is a folder", "SELECT 1", "--out", "/tmp");
    REFUSED("--out /dev/null: this is no file", "SELECT 1", "-o", "parquet", "--out", "/dev/null");
    REFUSED("--explain does not run the query", "SELECT 1", "--explain", "--analyze");
    REFUSED("--explain prints text", "SELECT 1", "--explain", "-o", "csv");
    REFUSED("with --detach", "SELECT 1", "--detach", "-o", "csv");
    REFUSED("either all have a name or none has", "SELECT 1", "--param", "a=1", "--param", "2");
    REFUSED("--param a is given twice", "SELECT 1", "--param", "a=1", "--param", "a=2");
    REFUSED("did you mean partitions", "SELECT 1", "--set", "partition=3");
    REFUSED("--set forced:", "SELECT 1", "--set", "forced=maybe");
    REFUSED("--priority", "SELECT 1", "--priority", "4");
}

TEST(a_query_that_fails_says_why_and_exits_with_1)
{
    struct warehouse w = {0};
    struct said said;
    warehouse_open(&w);
    CALL(&w, &said, "sql", "SELECT nonsense FROM nowhere");
    CHECK_INT(said.code, 1);
    CHECK_STR(said.out.data, "");
    CHECK(strstr(said.err.data, "nowhere") != NULL);
    said_reset(&said);
    warehouse_close(&w);
}

TEST(ctrl_c_cancels_the_query_on_the_cluster)
{
    struct warehouse w = {.runs_for_ever = true, .interrupts_caller = true};
    struct said said;
    warehouse_open(&w);
    CALL(&w, &said, "sql", "SELECT 1");
    CHECK_INT(said.code, 130);
    CHECK_UINT(atomic_load(&w.cancels), 1);
    CHECK(strstr(said.err.data, "interrupted; job") != NULL);
    CHECK_STR(said.out.data, "");
    said_reset(&said);
    warehouse_close(&w);
}

#define CHILD_VARIABLE "CAPSTAN_TEST_CLI_CHILD"
#define PATIENCE_MS 60000

/* Before main: if the variable is there, this process is the program with these arguments, and never gets to main. */
__attribute__((constructor)) static void be_the_program(int argc, char **argv)
{
    struct verb_table table = all_verbs();
    struct cli_input input = {.table = &table, .argc = argc, .argv = argv};
    struct cli cli;
    struct error e = {0};
    if (getenv(CHILD_VARIABLE) == NULL) {
        return;
    }
    if (cli_parse(&input, &cli, &e) != ERR_OK) {
        fprintf(stderr, "%s\n", e.message);
        _exit(99);
    }
    int code = cli.verb->run(&cli);
    cli_deinit(&cli);
    exit(code);
}

/* Its stdout is a pipe of one page. */
static pid_t start_child(const struct warehouse *w, const char *verb, const char *what, int *out_reader)
{
    char *argv[] = {(char *)"capstan",
                    (char *)verb,
                    (char *)what,
                    (char *)"-o",
                    (char *)"csv",
                    (char *)"--server",
                    (char *)warehouse_address(w),
                    NULL};
    posix_spawn_file_actions_t actions;
    int ends[2];
    pid_t child = 0;
    CHECK_INT(pipe2(ends, O_CLOEXEC), 0);
    CHECK(fcntl(ends[1], F_SETPIPE_SZ, 4096) >= 0);
    CHECK_INT(setenv(CHILD_VARIABLE, "1", 1), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    CHECK_INT(posix_spawn(&child, "/proc/self/exe", &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    CHECK_INT(unsetenv(CHILD_VARIABLE), 0);
    close(ends[1]);
    *out_reader = ends[0];
    return child;
}

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

/* Then whoever has filled it is still in the call that did, since rows are written in large pieces. */
static bool wait_until_full(int pipe)
{
    int n = 0;
    for (int64_t until_ms = clock_mono_ms() + PATIENCE_MS; n < 4096 && clock_mono_ms() < until_ms; pause_briefly()) {
        CHECK_INT(ioctl(pipe, FIONREAD, &n), 0);
    }
    return n == 4096;
}

/* How it ended, as waitpid tells; -1: it did not in time, and was killed. */
static int wait_for_child(pid_t child)
{
    int status = 0;
    for (int64_t until_ms = clock_mono_ms() + PATIENCE_MS; clock_mono_ms() < until_ms; pause_briefly()) {
        if (waitpid(child, &status, WNOHANG) == child) {
            return status;
        }
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return -1;
}

#define MANY_ROWS "SELECT i FROM range(1000000) t(i)"

/* How the child ends that gets SIGTERM while it writes rows that nobody reads. */
static int end_writing(const struct warehouse *w, const char *verb, const char *what)
{
    int reader = -1;
    pid_t child = start_child(w, verb, what, &reader);
    CHECK(wait_until_full(reader));
    kill(child, SIGTERM);
    int status = wait_for_child(child);
    close(reader);
    return status;
}

TEST(the_first_signal_ends_results_whose_reader_has_stopped)
{
    struct warehouse w = {0};
    struct said said;
    warehouse_open(&w);
    CALL(&w, &said, "sql", MANY_ROWS, "--id", "my-job", "--detach");
    said_reset(&said);
    int status = end_writing(&w, "results", "my-job");
    CHECK(status != -1 && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    warehouse_close(&w);
}

TEST(the_first_signal_ends_a_query_that_has_ended_and_whose_reader_has_stopped)
{
    struct warehouse w = {0};
    warehouse_open(&w);
    int status = end_writing(&w, "sql", MANY_ROWS);
    CHECK(status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 130);
    CHECK_UINT(atomic_load(&w.cancels), 0);
    warehouse_close(&w);
}

TEST(a_reader_that_goes_away_ends_it_quietly)
{
    static const char *const words[] = {"sql", "SELECT i FROM range(100000) t(i)", "-o", "csv", NULL};
    struct warehouse w = {0};
    struct said said;
    int ends[2];
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    CHECK_INT(pipe(ends), 0);
    close(ends[0]);
    FILE *out = fdopen(ends[1], "wb");
    warehouse_open(&w);
    call_to(&w, &said, out, words);
    CHECK_INT(said.code, 1);
    CHECK_STR(said.err.data, "");
    said_reset(&said);
    warehouse_close(&w);
    fclose(out);
    (void)signal(SIGPIPE, before);
}

TEST(explain_prints_the_tree_or_the_plan)
{
    struct warehouse w = {0};
    struct said said;
    warehouse_open(&w);
    CALL(&w, &said, "sql", "SELECT 1", "--explain");
    CHECK_INT(said.code, 0);
    CHECK(w.explains);
    CHECK_STR(said.out.data, "stage 0: 1 task; result\n    scan t\n");
    said_reset(&said);
    CALL(&w, &said, "sql", "SELECT 1", "--explain", "-o", "json");
    CHECK_STR(said.out.data, "{\"stages\":[]}\n");
    said_reset(&said);
    CALL(&w, &said, "sql", "SELECT 1", "--explain", "--json");
    CHECK_STR(said.out.data, "{\"stages\":[]}\n");
    said_reset(&said);
    warehouse_close(&w);
}

TEST(analyze_shows_what_each_stage_took)
{
    static const char expected[] = "stage 1: 1 task, 2,000 rows, 4.0 KB, 50 ms; result\n"
                                   "    sort\n"
                                   "    m\n"
                                   "        stage 0: 3 tasks, 1,000 rows, 2.0 KB, 600 ms, skew 3.0; hash\n"
                                   "            scan t\n"
                                   "            filter\n";
    struct warehouse w = {0};
    struct said said;
    struct json *root = NULL;
    warehouse_open(&w);
    CALL(&w, &said, "sql", "SELECT 1", "--analyze");
    CHECK_STR(said.err.data, "");
    CHECK_INT(said.code, 0);
    CHECK_UINT(atomic_load(&w.fetches), 0); /* rows are not wanted */
    CHECK(strstr(said.out.data, "took 500 ms, plan 10 ms\n") != NULL);
    CHECK_STR(strchr(said.out.data, '\n') + 1, expected);
    said_reset(&said);

    CALL(&w, &said, "sql", "SELECT 1 AS a", "--analyze", "-o", "csv");
    CHECK_STR(said.out.data, "a\n1\n");
    CHECK_STR(strchr(said.err.data, '\n') + 1, expected);
    said_reset(&said);

    CALL(&w, &said, "sql", "SELECT 1 AS a", "--analyze", "--json");
    CHECK_ERR(json_parse(said.out.data, said.out.n, &root, NULL), ERR_OK);
    const struct json *first = json_at(json_get(root, "stages"), 0);
    CHECK(json_number(json_get(first, "skew")) == 3);
    CHECK(json_number(json_get(first, "rows")) == 1000);
    json_free(root);
    said_reset(&said);
    warehouse_close(&w);
}

TEST(results_prints_the_rows_of_a_query_in_any_format)
{
    struct warehouse w = {0};
    struct said said;
    warehouse_open(&w);
    CALL(&w, &said, "sql", "SELECT 7 AS a", "--id", "my-job", "--detach");
    CHECK_STR(said.out.data, "my-job\n");
    said_reset(&said);
    CALL(&w, &said, "results", "my-job", "-o", "csv");
    CHECK_STR(said.out.data, "a\n7\n");
    said_reset(&said);
    CALL(&w, &said, "results", "my-job");
    CHECK(strstr(said.out.data, "(1 row)") != NULL);
    said_reset(&said);
    CALL(&w, &said, "results", "my-job", "--json");
    CHECK(strstr(said.out.data, "{\"columns\":[") == said.out.data);
    said_reset(&said);

    w.is_tree = true;
    CALL(&w, &said, "results", "my-job", "-o", "csv");
    CHECK_INT(said.code, 2);
    CHECK(strstr(said.err.data, "task tree") != NULL);
    said_reset(&said);
    warehouse_close(&w);
}
