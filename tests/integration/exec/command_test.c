#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "exec/tail.h"
#include "fixture.h"

TEST(a_command_gives_its_exit_code_and_its_output)
{
    struct fixture f = fixture_open(NULL);
    expect_success(fixture_run(&f, "command", "{\"argv\":[\"sh\",\"-c\",\"echo out; echo err >&2\"]}"),
                   "{\"exit_code\":0,\"stdout\":\"out\\n\",\"stderr\":\"err\\n\"}");
    expect_success(fixture_run(&f, "command", "{\"argv\":[\"true\"]}"),
                   "{\"exit_code\":0,\"stdout\":\"\",\"stderr\":\"\"}");
    fixture_close(&f);
}

TEST(output_that_is_json_is_given_as_json_too)
{
    struct fixture f = fixture_open(NULL);
    expect_success(fixture_run(&f, "command", "{\"argv\":[\"printf\",\" {\\\"rows\\\": 3}\\\\n\"]}"),
                   "{\"exit_code\":0,\"stdout\":\" {\\\"rows\\\": 3}\\n\",\"stderr\":\"\",\"json\":{\"rows\": 3}}");
    fixture_close(&f);
}

TEST(arguments_are_not_seen_by_a_shell)
{
    struct fixture f = fixture_open(NULL);
    expect_success(fixture_run(&f, "command", "{\"argv\":[\"printf\",\"%s|\",\"$HOME\",\"a b\",\"*\",\"\"]}"),
                   "{\"exit_code\":0,\"stdout\":\"$HOME|a b|*||\",\"stderr\":\"\"}");
    fixture_close(&f);
}

TEST(an_exit_code_other_than_zero_is_a_failure_with_the_last_line_of_stderr)
{
    struct fixture f = fixture_open(NULL);
    struct exec_outcome out = fixture_run(
        &f, "command", "{\"argv\":[\"sh\",\"-c\",\"echo first >&2; echo '  the last ' >&2; echo >&2; exit 3\"]}");
    CHECK_STR(out.result.data, "{\"exit_code\":3,\"stdout\":\"\",\"stderr\":\"first\\n  the last \\n\\n\"}");
    expect_failure(out, "exit code 3: the last", false);
    expect_failure(fixture_run(&f, "command", "{\"argv\":[\"false\"]}"), "exit code 1", false);
    fixture_close(&f);
}

TEST(an_exit_code_that_the_task_lists_is_not_tried_again)
{
    struct fixture f = fixture_open(NULL);
    const char *inputs = "{\"argv\":[\"sh\",\"-c\",\"exit 65\"],\"no_retry_exit_codes\":[64,65]}";
    expect_failure(fixture_run(&f, "command", inputs), "exit code 65", true);
    inputs = "{\"argv\":[\"sh\",\"-c\",\"exit 66\"],\"no_retry_exit_codes\":[64,65]}";
    expect_failure(fixture_run(&f, "command", inputs), "exit code 66", false);
    fixture_close(&f);
}

TEST(a_command_that_is_killed_names_the_signal)
{
    struct fixture f = fixture_open(NULL);
    struct exec_outcome out = fixture_run(&f, "command", "{\"argv\":[\"sh\",\"-c\",\"kill -9 $$\"]}");
    CHECK_STR(out.result.data, "{\"exit_code\":137,\"signal\":\"SIGKILL\",\"stdout\":\"\",\"stderr\":\"\"}");
    expect_failure(out, "killed by signal 9 (SIGKILL)", false);
    fixture_close(&f);
}

TEST(a_program_that_cannot_be_run_is_said_so_and_not_tried_again)
{
    struct fixture f = fixture_open(NULL);
    expect_failure(fixture_run(&f, "command", "{\"argv\":[\"no-such-program\"]}"),
                   "cannot run 'no-such-program': there is no such program in PATH", true);
    expect_failure(fixture_run(&f, "command", "{\"argv\":[\"/no/such/program\"]}"),
                   "cannot run '/no/such/program': No such file or directory", true);
    expect_failure(fixture_run(&f, "command", "{\"argv\":[\"/etc/passwd\"]}"),
                   "cannot run '/etc/passwd': Permission denied", true);
    expect_failure(fixture_run(&f, "command", "{\"argv\":[\"/\"]}"), "cannot run '/': Permission denied", true);
    expect_failure(fixture_run(&f, "command", "{\"argv\":[\"true\"],\"env\":{\"PATH\":\"\"}}"),
                   "cannot run 'true': there is no such program in PATH", true);
    CHECK_INT(count_children(), 1); /* the guard */
    fixture_close(&f);
    CHECK_INT(count_children(), 0);
}

TEST(a_script_without_a_first_line_is_not_given_to_a_shell)
{
    struct fixture f = fixture_open(NULL);
    expect_success(
        fixture_run(&f, "command", "{\"argv\":[\"sh\",\"-c\",\"echo echo hello >script; chmod +x script\"]}"),
        "{\"exit_code\":0,\"stdout\":\"\",\"stderr\":\"\"}");
    expect_failure(fixture_run(&f, "command", "{\"argv\":[\"./script\"]}"), "cannot run './script': Exec format error",
                   true);
    fixture_close(&f);
}

TEST(bad_inputs_of_a_command_are_named)
{
    struct fixture f = fixture_open(NULL);
    const char *const pairs[][2] = {
        {"{}", "inputs.argv must be a list of texts: the program and its arguments"},
        {"{\"argv\":[]}", "inputs.argv must be a list of texts: the program and its arguments"},
        {"{\"argv\":\"ls\"}", "inputs.argv must be a list of texts: the program and its arguments"},
        {"{\"argv\":[\"ls\",1]}", "inputs.argv[1] must be a text without the character NUL"},
        {"{\"argv\":[\"ls\",\"a\\u0000b\"]}", "inputs.argv[1] must be a text without the character NUL"},
        {"{\"argv\":[\"\"]}", "inputs.argv[0], the program, must not be empty"},
        {"{\"argv\":[\"ls\"],\"env\":[]}", "inputs.env must be an object: the variables and their texts"},
        {"{\"argv\":[\"ls\"],\"env\":{\"A\":1}}", "inputs.env.A must be a text without the character NUL"},
        {"{\"argv\":[\"ls\"],\"env\":{\"A=B\":\"\"}}", "inputs.env: 'A=B' is no name of a variable"},
        {"{\"argv\":[\"ls\"],\"env\":{\"\":\"\"}}", "inputs.env: '' is no name of a variable"},
        {"{\"argv\":[\"ls\"],\"env\":{\"CAPSTAN_JOB_ID\":\"\"}}", "inputs.env.CAPSTAN_JOB_ID is set by Capstan itself"},
        {"{\"argv\":[\"ls\"],\"cwd\":1}", "inputs.cwd must be a text"},
        {"{\"argv\":[\"ls\"],\"cwd\":\"a\\u0000\"}", "inputs.cwd must not contain the character NUL"},
        {"{\"argv\":[\"ls\"],\"cwd\":\"/no/such\"}",
         "cannot enter the folder '/no/such' (inputs.cwd): No such file or directory"},
        {"{\"argv\":[\"ls\"],\"stdin\":{}}", "inputs.stdin must be a text"},
        {"{\"argv\":[\"ls\"],\"no_retry_exit_codes\":3}",
         "inputs.no_retry_exit_codes must be a list of numbers from 0 to 255"},
        {"{\"argv\":[\"ls\"],\"no_retry_exit_codes\":[256]}",
         "inputs.no_retry_exit_codes must be a list of numbers from 0 to 255"},
        {"[]", "inputs must be an object"},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        expect_failure(fixture_run(&f, "command", pairs[i][0]), pairs[i][1], true);
    }
    fixture_close(&f);
}

TEST(a_worker_whose_folder_is_gone_may_not_be_the_only_one)
{
    struct fixture f = fixture_open(NULL);
    CHECK_INT(rmdir(f.folder), 0);
    struct exec_outcome out = fixture_run(&f, "command", "{\"argv\":[\"true\"]}");
    CHECK_INT(mkdir(f.folder, 0700), 0);
    CHECK_MEM(out.message.data, "cannot enter the worker's folder '/tmp/", 39);
    CHECK(!out.not_retryable);
    exec_outcome_deinit(&out);
    fixture_close(&f);
}

TEST(a_command_runs_in_the_workers_folder_or_where_it_says)
{
    struct fixture f = fixture_open(NULL);
    char expected[256];
    snprintf(expected, sizeof(expected), "{\"exit_code\":0,\"stdout\":\"%s\\n\",\"stderr\":\"\"}", f.folder);
    expect_success(fixture_run(&f, "command", "{\"argv\":[\"pwd\"]}"), expected);
    expect_success(fixture_run(&f, "command", "{\"argv\":[\"pwd\"],\"cwd\":\"/usr\"}"),
                   "{\"exit_code\":0,\"stdout\":\"/usr\\n\",\"stderr\":\"\"}");
    expect_success(fixture_run(&f, "command", "{\"argv\":[\"pwd\"],\"cwd\":\"..\"}"),
                   "{\"exit_code\":0,\"stdout\":\"/tmp\\n\",\"stderr\":\"\"}");
    fixture_close(&f);
}

TEST(the_workers_folder_may_be_given_from_where_it_stands_and_made_later)
{
    struct fixture f = fixture_open(NULL);
    char before[1024];
    CHECK(getcwd(before, sizeof(before)) != NULL);
    CHECK_INT(chdir(f.folder), 0);
    struct exec_options options = {.work_dir = "./later"};
    struct executor_set *set = executor_set_new();
    CHECK_ERR(executor_set_add(set, executor_command(&options), NULL), ERR_OK);
    CHECK_INT(mkdir("later", 0700), 0);
    CHECK_INT(chdir(before), 0);
    struct fixture there = {.set = set};
    char expected[256];
    snprintf(expected, sizeof(expected), "{\"exit_code\":0,\"stdout\":\"%s/later %s/later\\n\",\"stderr\":\"\"}",
             f.folder, f.folder);
    expect_success(fixture_run(&there, "command", "{\"argv\":[\"sh\",\"-c\",\"echo $PWD $HOME\"]}"), expected);
    executor_set_free(set);
    char path[256];
    snprintf(path, sizeof(path), "%s/later", f.folder);
    CHECK_INT(rmdir(path), 0);
    fixture_close(&f);
}

TEST(the_environment_of_a_command_is_clean)
{
    CHECK_INT(setenv("SECRET_OF_THE_WORKER", "1", 1), 0);
    CHECK_INT(setenv("PASSED", "on", 1), 0);
    const char *const pass[] = {"PASSED", "NOT_SET_ANYWHERE"};
    struct exec_options options = {.pass_env = pass, .n_pass_env = 2};
    struct fixture f = fixture_open(&options);
    char expected[1024];
    snprintf(expected, sizeof(expected),
             "{\"exit_code\":0,\"stdout\":\"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\\n"
             "HOME=%s\\nLANG=C.UTF-8\\nPASSED=on\\n"
             "CAPSTAN_IDEMPOTENCY_KEY=key-of-the-attempt\\nCAPSTAN_TASK_KEY=key-of-the-task\\n"
             "CAPSTAN_JOB_ID=job-1\\nCAPSTAN_TASK_NAME=extract\\nCAPSTAN_ATTEMPT=2\\n\",\"stderr\":\"\"}",
             f.folder);
    expect_success(fixture_run(&f, "command", "{\"argv\":[\"env\"]}"), expected);
    snprintf(expected, sizeof(expected),
             "{\"exit_code\":0,\"stdout\":\"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\\n"
             "HOME=%s\\nPASSED=off\\nA=\\nLANG=de\\n"
             "CAPSTAN_IDEMPOTENCY_KEY=key-of-the-attempt\\nCAPSTAN_TASK_KEY=key-of-the-task\\n"
             "CAPSTAN_JOB_ID=job-1\\nCAPSTAN_TASK_NAME=extract\\nCAPSTAN_ATTEMPT=2\\n\",\"stderr\":\"\"}",
             f.folder);
    expect_success(
        fixture_run(&f, "command", "{\"argv\":[\"env\"],\"env\":{\"PASSED\":\"off\",\"A\":\"\",\"LANG\":\"de\"}}"),
        expected);
    fixture_close(&f);
}

TEST(a_command_inherits_three_descriptors_and_no_more)
{
    struct fixture f = fixture_open(NULL);
    int leak = open("/dev/null", O_RDONLY); /* without O_CLOEXEC, as a careless library would */
    CHECK(leak > 2);
    int high = fcntl(leak, F_DUPFD, 900);
    CHECK(high >= 900);
    /* ls itself opens the folder that it lists, as number 3. */
    expect_success(fixture_run(&f, "command", "{\"argv\":[\"ls\",\"/proc/self/fd\"]}"),
                   "{\"exit_code\":0,\"stdout\":\"0\\n1\\n2\\n3\\n\",\"stderr\":\"\"}");
    close(leak);
    close(high);
    fixture_close(&f);
}

TEST(a_command_gets_its_files_even_if_the_worker_has_closed_its_own)
{
    struct fixture f = fixture_open(NULL);
    int saved[3];
    for (int i = 0; i < 3; i++) {
        saved[i] = fcntl(i, F_DUPFD_CLOEXEC, 100);
        close(i);
    }
    struct exec_outcome out =
        fixture_run(&f, "command", "{\"argv\":[\"sh\",\"-c\",\"cat; echo err >&2\"],\"stdin\":\"in\"}");
    for (int i = 0; i < 3; i++) {
        dup2(saved[i], i);
        close(saved[i]);
    }
    expect_success(out, "{\"exit_code\":0,\"stdout\":\"in\",\"stderr\":\"err\\n\"}");
    fixture_close(&f);
}

TEST(a_command_begins_with_default_signals_none_of_them_blocked)
{
    struct fixture f = fixture_open(NULL);
    sigset_t blocked;
    sigset_t before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGUSR1);
    CHECK_INT(pthread_sigmask(SIG_BLOCK, &blocked, &before), 0);
    struct sigaction ignore = {.sa_flags = 0};
    struct sigaction old;
    ignore.sa_handler = SIG_IGN;
    CHECK_INT(sigaction(SIGPIPE, &ignore, &old), 0);
    struct exec_outcome out =
        fixture_run(&f, "command", "{\"argv\":[\"sed\",\"-n\",\"/^Sig[BIC]/p\",\"/proc/self/status\"]}");
    CHECK_INT(sigaction(SIGPIPE, &old, NULL), 0);
    sigset_t after;
    CHECK_INT(pthread_sigmask(SIG_SETMASK, &before, &after), 0);
    CHECK_INT(sigismember(&after, SIGTERM), 1); /* the worker's own mask is as it was */
    expect_success(out, "{\"exit_code\":0,\"stdout\":\"SigBlk:\\t0000000000000000\\nSigIgn:\\t"
                        "0000000000000000\\nSigCgt:\\t0000000000000000\\n\",\"stderr\":\"\"}");
    fixture_close(&f);
}

TEST(a_command_leads_a_session_of_its_own)
{
    struct fixture f = fixture_open(NULL);
    struct exec_outcome out = fixture_run(
        &f, "command",
        "{\"argv\":[\"sh\",\"-c\",\"set -- $(cat /proc/$$/stat); test $5 = $$ && test $6 = $$ && echo yes\"]}");
    expect_success(out, "{\"exit_code\":0,\"stdout\":\"yes\\n\",\"stderr\":\"\"}");
    fixture_close(&f);
}

/* The member of the result, which must be a text of that length; the caller frees the tree. */
static const char *text_of(const struct exec_outcome *out, const char *name, size_t *out_n, struct json **out_root)
{
    CHECK_ERR(json_parse(out->result.data, out->result.n, out_root, NULL), ERR_OK);
    const char *text = json_text(json_get(*out_root, name), out_n);
    CHECK(text != NULL);
    return text;
}

TEST(of_much_output_the_end_is_kept)
{
    struct fixture f = fixture_open(NULL);
    /* Ten megabytes, in lines of 16 bytes that count. */
    struct exec_outcome out = fixture_run(
        &f, "command", "{\"argv\":[\"awk\",\"BEGIN { for (i = 0; i < 655360; i++) printf \\\"%015d\\\\n\\\", i }\"]}");
    CHECK(out.is_success);
    struct json *root = NULL;
    size_t n = 0;
    const char *text = text_of(&out, "stdout", &n, &root);
    CHECK_UINT(n, TAIL_BYTES);
    CHECK_MEM(text, "000000000651264\n", 16);
    CHECK_MEM(text + n - 16, "000000000655359\n", 16);
    uint64_t cut = 0;
    CHECK(json_uint(json_get(root, "stdout_cut_bytes"), &cut));
    CHECK_UINT(cut, 10485760 - TAIL_BYTES);
    CHECK(json_get(root, "stderr_cut_bytes") == NULL);
    json_free(root);
    exec_outcome_deinit(&out);
    fixture_close(&f);
}

TEST(output_that_is_no_utf8_is_mended)
{
    struct fixture f = fixture_open(NULL);
    expect_success(fixture_run(&f, "command", "{\"argv\":[\"printf\",\"a\\\\377b\\\\000c\"]}"),
                   "{\"exit_code\":0,\"stdout\":\"a\xef\xbf\xbd"
                   "b\\u0000c\",\"stderr\":\"\"}");
    fixture_close(&f);
}

TEST(the_worst_output_is_still_a_result_within_the_limit)
{
    struct fixture f = fixture_open(NULL);
    struct exec_outcome out = fixture_run(
        &f, "command", "{\"argv\":[\"sh\",\"-c\",\"head -c 100000 /dev/zero; head -c 100000 /dev/zero >&2\"]}");
    CHECK(out.is_success);
    struct json *root = NULL;
    CHECK_ERR(json_parse(out.result.data, out.result.n, &root, NULL), ERR_OK);
    json_free(root);
    exec_outcome_deinit(&out);
    fixture_close(&f);
}

/* Inputs with a megabyte of stdin, less what the rest takes. */
static struct buf inputs_with_stdin(const char *argv, size_t n)
{
    struct buf inputs = {0};
    buf_format(&inputs, "{\"argv\":%s,\"stdin\":\"", argv);
    for (size_t i = 0; i < n; i++) {
        buf_char(&inputs, (char)('a' + i % 26));
    }
    buf_text(&inputs, "\"}");
    return inputs;
}

TEST(a_megabyte_of_stdin_arrives)
{
    struct fixture f = fixture_open(NULL);
    struct buf inputs = inputs_with_stdin("[\"sh\",\"-c\",\"tee copy | wc -c; cat copy >&2; cat copy\"]", 1048576);
    struct exec_outcome out = fixture_run(&f, "command", inputs.data);
    CHECK(out.is_success);
    struct json *root = NULL;
    size_t n = 0;
    const char *text = text_of(&out, "stderr", &n, &root);
    CHECK_UINT(n, TAIL_BYTES);
    CHECK_INT(text[n - 1], 'a' + 1048575 % 26);
    json_free(root);
    exec_outcome_deinit(&out);
    buf_deinit(&inputs);
    fixture_close(&f);
}

TEST(stdin_that_nobody_reads_harms_nobody)
{
    struct fixture f = fixture_open(NULL);
    struct buf inputs = inputs_with_stdin("[\"true\"]", 1048576);
    expect_success(fixture_run(&f, "command", inputs.data), "{\"exit_code\":0,\"stdout\":\"\",\"stderr\":\"\"}");
    buf_deinit(&inputs);
    fixture_close(&f);
}

TEST(without_stdin_there_is_nothing_to_read)
{
    struct fixture f = fixture_open(NULL);
    expect_success(fixture_run(&f, "command", "{\"argv\":[\"cat\"]}"),
                   "{\"exit_code\":0,\"stdout\":\"\",\"stderr\":\"\"}");
    expect_success(fixture_run(&f, "command", "{\"argv\":[\"cat\"],\"stdin\":\"\"}"),
                   "{\"exit_code\":0,\"stdout\":\"\",\"stderr\":\"\"}");
    expect_success(fixture_run(&f, "command", "{\"argv\":[\"cat\"],\"stdin\":\"a\\u0000b\"}"),
                   "{\"exit_code\":0,\"stdout\":\"a\\u0000b\",\"stderr\":\"\"}");
    fixture_close(&f);
}

TEST(arguments_beyond_what_the_system_takes_are_said_so)
{
    struct fixture f = fixture_open(NULL);
    struct buf inputs = {0};
    buf_text(&inputs, "{\"argv\":[\"true\",\"");
    for (size_t i = 0; i < 200000; i++) {
        buf_char(&inputs, 'x');
    }
    buf_text(&inputs, "\"]}");
    expect_failure(fixture_run(&f, "command", inputs.data), "cannot run 'true': Argument list too long", true);
    buf_deinit(&inputs);
    fixture_close(&f);
}

TEST(what_a_command_leaves_running_ends_with_it)
{
    struct fixture f = fixture_open(NULL);
    int64_t start_ms = clock_mono_ms();
    struct exec_outcome out =
        fixture_run(&f, "command", "{\"argv\":[\"sh\",\"-c\",\"sleep 1000 & echo $! >pid; trap '' TERM; echo done\"]}");
    CHECK(clock_mono_ms() - start_ms < 60000); /* the child holds the pipe, and keeps nobody waiting */
    pid_t child = (pid_t)number_in_file(&f, "pid");
    CHECK(child > 0);
    CHECK(!is_alive(child));
    expect_success(out, "{\"exit_code\":0,\"stdout\":\"done\\n\",\"stderr\":\"\"}");
    fixture_close(&f);
}

TEST(a_child_that_leaves_the_session_keeps_the_pipe_but_nobody_waiting)
{
    struct fixture f = fixture_open(NULL);
    struct exec_outcome out = fixture_run(&f, "command",
                                          "{\"argv\":[\"sh\",\"-c\",\"setsid sh -c 'echo $$ >pid; exec sleep 1000' & "
                                          "until test -s pid; do sleep 0.01; done; echo done\"]}");
    pid_t child = (pid_t)number_in_file(&f, "pid");
    CHECK(child > 0);
    CHECK(is_alive(child)); /* it asked for that */
    kill(child, SIGKILL);
    expect_success(out, "{\"exit_code\":0,\"stdout\":\"done\\n\",\"stderr\":\"\"}");
    CHECK(is_gone_soon(child));
    fixture_close(&f);
}

TEST(a_command_leaves_no_zombie_and_no_descriptor)
{
    int descriptors = count_descriptors();
    struct fixture f = fixture_open(NULL);
    for (int i = 0; i < 20; i++) {
        struct exec_outcome out = fixture_run(&f, "command", "{\"argv\":[\"sh\",\"-c\",\"true & (true &) ; exit 1\"]}");
        CHECK_STR(out.message.data, "exit code 1");
        exec_outcome_deinit(&out);
    }
    CHECK_INT(count_children(), 1); /* the guard */
    fixture_close(&f);
    errno = 0;
    CHECK_INT(waitpid(-1, NULL, WNOHANG), -1);
    CHECK_INT(errno, ECHILD);
    CHECK_INT(count_descriptors(), descriptors);
}

/* As the first process of a container, for instance. */
TEST(a_worker_that_inherits_orphans_reaps_those_of_its_commands)
{
    struct fixture f = fixture_open(NULL);
    CHECK_INT(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    struct exec_outcome out =
        fixture_run(&f, "command", "{\"argv\":[\"sh\",\"-c\",\"sleep 1000 & (sleep 1000 & sleep 1000) & echo done\"]}");
    CHECK_INT(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    expect_success(out, "{\"exit_code\":0,\"stdout\":\"done\\n\",\"stderr\":\"\"}");
    CHECK_INT(count_children(), 1);
    fixture_close(&f);
}

TEST(a_worker_without_descriptors_fails_for_now_and_leaks_none)
{
    struct fixture f = fixture_open(NULL);
    int before = count_descriptors();
    struct rlimit limit;
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int failures = 0;
    bool is_enough = false;
    for (rlim_t spare = 0; !is_enough; spare++) {
        int next = dup(0);
        close(next);
        struct rlimit tight = {.rlim_cur = (rlim_t)next + spare, .rlim_max = limit.rlim_max};
        CHECK_INT(setrlimit(RLIMIT_NOFILE, &tight), 0);
        struct exec_outcome out = fixture_run(&f, "command", "{\"argv\":[\"true\"],\"stdin\":\"x\"}");
        CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
        is_enough = out.is_success;
        failures += is_enough ? 0 : 1;
        CHECK(is_enough || (!out.not_retryable && strstr(out.message.data, "Too many open files") != NULL));
        exec_outcome_deinit(&out);
    }
    CHECK(failures >= 7); /* at each of: the stop, stdin, two pipes of two ends, the process */
    CHECK_INT(count_descriptors(), before);
    CHECK_INT(count_children(), 1);
    fixture_close(&f);
}

#define CROWD 200

struct member {
    const struct fixture *f;
    int number;
    bool is_right;
};

static void *run_member(void *argument)
{
    struct member *member = argument;
    char inputs[256];
    char expected[128];
    snprintf(inputs, sizeof(inputs),
             "{\"argv\":[\"sh\",\"-c\",\"read x; echo $x; sleep 0.2; exit 0\"],\"stdin\":\"n%d\\n\"}", member->number);
    snprintf(expected, sizeof(expected), "{\"exit_code\":0,\"stdout\":\"n%d\\n\",\"stderr\":\"\"}", member->number);
    struct exec_outcome out = fixture_run(member->f, "command", inputs);
    member->is_right = out.is_success && strcmp(out.result.data, expected) == 0;
    exec_outcome_deinit(&out);
    return NULL;
}

TEST(two_hundred_commands_run_at_the_same_time)
{
    struct fixture f = fixture_open(NULL);
    static struct member members[CROWD];
    static pthread_t threads[CROWD];
    for (int i = 0; i < CROWD; i++) {
        members[i] = (struct member){.f = &f, .number = i};
        CHECK_INT(pthread_create(&threads[i], NULL, run_member, &members[i]), 0);
    }
    for (int i = 0; i < CROWD; i++) {
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    }
    for (int i = 0; i < CROWD; i++) {
        CHECK(members[i].is_right);
    }
    CHECK_INT(count_children(), 1);
    fixture_close(&f);
}
