#include "test.h"

#include <stdio.h>
#include <string.h>

#include "fixture.h"

/* A fixture that has the plug-in, too. */
static struct fixture fixture_with(const char *name)
{
    struct fixture f = fixture_open(NULL);
    char path[600];
    plugin_path(name, path, sizeof(path));
    struct executor *executor = NULL;
    struct error e = {0};
    if (executor_plugin(path, &executor, &e) != ERR_OK) {
        print_error("%s\n", e.message);
    }
    CHECK(executor != NULL);
    CHECK_STR(executor->name, name);
    CHECK_ERR(executor_set_add(f.set, executor, &e), ERR_OK);
    return f;
}

TEST(a_plugin_runs_tasks)
{
    struct fixture f = fixture_with("wordcount");
    expect_success(fixture_run(&f, "wordcount", "{\"text\":\"two words\\n\"}"),
                   "{\"lines\":1,\"words\":2,\"bytes\":10}");
    expect_success(fixture_run(&f, "wordcount", "{ \"results\" : {\"text\": [\"a}\"]} , \"text\" : \"\" }"),
                   "{\"lines\":0,\"words\":0,\"bytes\":0}");
    expect_success(fixture_run(&f, "wordcount", "{\"text\":\"\\u00e9 \\ud83d\\ude00\\t\\\\\\\"\\n\\n\"}"),
                   "{\"lines\":2,\"words\":3,\"bytes\":12}");
    expect_success(fixture_run(&f, "command", "{\"argv\":[\"sh\",\"-c\",\"seq 1 100000 >numbers\"]}"),
                   "{\"exit_code\":0,\"stdout\":\"\",\"stderr\":\"\"}");
    char inputs[256];
    snprintf(inputs, sizeof(inputs), "{\"file\":\"%s/numbers\"}", f.folder);
    expect_success(fixture_run(&f, "wordcount", inputs), "{\"lines\":100000,\"words\":100000,\"bytes\":588895}");
    fixture_close(&f);
}

TEST(a_plugin_says_what_is_wrong_with_its_inputs)
{
    struct fixture f = fixture_with("wordcount");
    expect_failure(fixture_run(&f, "wordcount", "{}"), "inputs must have a text `text` or the path of a file `file`",
                   true);
    expect_failure(fixture_run(&f, "wordcount", "{\"text\":1}"),
                   "inputs must have a text `text` or the path of a file `file`", true);
    expect_failure(fixture_run(&f, "wordcount", "{\"file\":\"/no/such\"}"),
                   "inputs.file: /no/such: No such file or directory", true);
    expect_failure(fixture_run(&f, "wordcount", "[]"), "inputs must be an object", true);
    fixture_close(&f);
}

TEST(a_plugin_is_told_all_about_its_task)
{
    struct fixture f = fixture_with("probe");
    struct exec_task task = task_with("{\"do\":\"tell\"}");
    task.timeout_ms = 60000;
    expect_success(fixture_run_task(&f, "probe", &task),
                   "{\"job\":\"job-1\",\"name\":\"extract\",\"attempt\":2,\"stage\":3,\"task\":7,\"key\":"
                   "\"key-of-the-attempt\",\"task_key\":\"key-of-the-task\",\"timeout_ms\":60000,\"n_inputs\":13,"
                   "\"context\":4711,\"sizes\":1}");
    fixture_close(&f);
}

TEST(a_plugin_that_says_nothing_has_succeeded)
{
    struct fixture f = fixture_with("probe");
    expect_success(fixture_run(&f, "probe", "{}"), NULL);
    fixture_close(&f);
}

TEST(a_plugin_can_fail_for_now_and_for_good)
{
    struct fixture f = fixture_with("probe");
    expect_failure(fixture_run(&f, "probe", "{\"do\":\"fail\"}"), "for now", false);
    struct exec_outcome out = fixture_run(&f, "probe", "{\"do\":\"fail for good\"}");
    CHECK_UINT(out.result.n, 0);
    expect_failure(out, "for good\xef\xbf\xbd", true);
    fixture_close(&f);
}

TEST(a_result_of_a_plugin_that_is_no_json_or_too_large_is_a_failure)
{
    struct fixture f = fixture_with("probe");
    struct exec_outcome out = fixture_run(&f, "probe", "{\"do\":\"nonsense\"}");
    CHECK_UINT(out.result.n, 0);
    expect_failure(out, "plug-in 'probe': the result is not valid JSON, or too deep", true);
    out = fixture_run(&f, "probe", "{\"do\":\"much\"}");
    CHECK_UINT(out.result.n, 0);
    expect_failure(out, "the result has 1048577 bytes, 1048576 are allowed", true);
    fixture_close(&f);
}

TEST(a_plugin_that_takes_too_long_has_timed_out_whether_it_hears_of_it_or_not)
{
    struct fixture f = fixture_with("probe");
    struct exec_task task = task_with("{\"do\":\"obey\"}");
    task.timeout_ms = 50;
    expect_failure(fixture_run_task(&f, "probe", &task), "timed out after 50 ms", false);
    task = task_with("{\"do\":\"deaf\"}");
    task.timeout_ms = 50;
    expect_failure(fixture_run_task(&f, "probe", &task), "timed out after 50 ms", false);
    fixture_close(&f);
}

static bool is_time_at_once(const struct fixture *f)
{
    UNUSED(f);
    return true;
}

TEST(a_plugin_that_listens_is_stopped)
{
    struct fixture f = fixture_with("probe");
    struct exec_task task = task_with("{\"do\":\"obey\"}");
    int64_t took_ms = 0;
    struct exec_outcome out = fixture_stop(&f, "probe", &task, STOP_CANCELED, is_time_at_once, &took_ms);
    CHECK(took_ms < 15000);
    expect_failure(out, "stopped: canceled", false);
    fixture_close(&f);
}

struct progress {
    double fraction;
    uint64_t rows;
    uint64_t bytes;
    int calls;
};

static void note_progress(void *context, double fraction, uint64_t rows, uint64_t bytes)
{
    struct progress *progress = context;
    *progress = (struct progress){.fraction = fraction, .rows = rows, .bytes = bytes, .calls = progress->calls + 1};
}

TEST(a_plugin_tells_how_far_it_is)
{
    struct fixture f = fixture_with("probe");
    struct progress progress = {0};
    struct exec_task task = task_with("{\"do\":\"progress\"}");
    struct exec_outcome out = fixture_run_task(&f, "probe", &task); /* nobody listens */
    exec_outcome_deinit(&out);
    task.on_progress = note_progress;
    task.progress_context = &progress;
    out = fixture_run_task(&f, "probe", &task);
    CHECK_UINT(out.rows, 4);
    CHECK_UINT(out.bytes, 40);
    exec_outcome_deinit(&out);
    CHECK_INT(progress.calls, 2);
    CHECK(progress.fraction == 1);
    CHECK_UINT(progress.rows, 4);
    CHECK_UINT(progress.bytes, 40);
    fixture_close(&f);
}

static void check_refused(const char *path, enum err expected, const char *message)
{
    struct executor *executor = NULL;
    struct error e = {0};
    CHECK_ERR(executor_plugin(path, &executor, &e), expected);
    CHECK(executor == NULL);
    char text[1400];
    fill_in(message, path, text, sizeof(text));
    CHECK_STR(e.message, text);
    CHECK_ERR(executor_plugin(path, &executor, NULL), expected);
}

static void check_plugin_refused(const char *name, enum err expected, const char *message)
{
    char path[600];
    plugin_path(name, path, sizeof(path));
    check_refused(path, expected, message);
}

TEST(what_is_no_plugin_is_refused_with_a_reason)
{
    check_refused("/no/such/plugin.so", ERR_NOT_FOUND, "plug-in @: No such file or directory");
    check_refused("plugin.so", ERR_NOT_FOUND, "plug-in @: No such file or directory");
    check_refused("/etc/passwd", ERR_INVALID, "plug-in @ cannot be loaded: /etc/passwd: invalid ELF header");
    check_plugin_refused("stranger", ERR_PRECONDITION, "@ is no plug-in: it has no function capstan_executor_v1");
    check_plugin_refused("newer", ERR_INVALID, "@ needs version 2 of the plug-in interface, this worker has 1");
    check_plugin_refused("misnamed", ERR_INVALID, "@: 'no name' is no name for an executor");
    check_plugin_refused("unwilling", ERR_INVALID, "@: executor 'unwilling' cannot be used: there is no device");
}

TEST(a_plugin_that_is_loaded_twice_is_refused)
{
    struct fixture f = fixture_with("probe");
    char path[600];
    plugin_path("probe", path, sizeof(path));
    struct executor *second = NULL;
    struct error e = {0};
    CHECK_ERR(executor_plugin(path, &second, &e), ERR_OK);
    CHECK_ERR(executor_set_add(f.set, second, &e), ERR_EXISTS);
    CHECK_STR(e.message, "there are two executors 'probe'");
    executor_close(second);
    struct exec_outcome out = fixture_run(&f, "probe", "{\"do\":\"fail\"}");
    expect_failure(out, "for now", false); /* the first one works as before */
    fixture_close(&f);
}
