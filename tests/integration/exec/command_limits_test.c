/* What commands may use: limits of the worker, of the task, and what is said when one is reached. Real programs. */
#include <string.h>

#include "exec/fixture.h"
#include "test.h"

static struct fixture limited(struct command_limits limits)
{
    struct exec_options options = {.command_limits = limits};
    return fixture_open(&options);
}

TEST(a_command_has_the_limits_of_its_worker_and_a_task_can_only_make_them_narrower)
{
    struct fixture f = limited((struct command_limits){.max = {[COMMAND_CPU] = 10,
                                                               [COMMAND_MEMORY] = 64 * 1024 * 1024,
                                                               [COMMAND_FILES] = 64,
                                                               [COMMAND_FILE_SIZE] = 1024 * 1024}});
    const char *all = "ulimit -t; ulimit -d; ulimit -n; ulimit -f";
    char inputs[512];
    fill_in("{\"argv\":[\"sh\",\"-c\",\"@\"]}", all, inputs, sizeof inputs);
    expect_success(fixture_run(&f, "command", inputs),
                   "{\"exit_code\":0,\"stdout\":\"10\\n65536\\n64\\n2048\\n\",\"stderr\":\"\"}");
    fill_in("{\"argv\":[\"sh\",\"-c\",\"@\"],\"limits\":{\"cpu_seconds\":5,\"memory_bytes\":1073741824,"
            "\"open_files\":32,\"file_bytes\":512}}",
            all, inputs, sizeof inputs);
    expect_success(fixture_run(&f, "command", inputs),
                   "{\"exit_code\":0,\"stdout\":\"5\\n65536\\n32\\n1\\n\",\"stderr\":\"\"}");
    fixture_close(&f);
}

TEST(without_limits_a_command_has_those_of_its_worker_process)
{
    struct fixture f = fixture_open(NULL);
    expect_success(fixture_run(&f, "command", "{\"argv\":[\"sh\",\"-c\",\"ulimit -t\"]}"),
                   "{\"exit_code\":0,\"stdout\":\"unlimited\\n\",\"stderr\":\"\"}");
    fixture_close(&f);
}

TEST(a_command_that_uses_up_its_processor_time_is_stopped_and_not_tried_again)
{
    struct fixture f = fixture_open(NULL);
    const char *direct = "{\"argv\":[\"sh\",\"-c\",\"while :; do :; done\"],\"limits\":{\"cpu_seconds\":1}}";
    const char *below =
        "{\"argv\":[\"sh\",\"-c\",\"sh -c 'while :; do :; done'; exit $?\"],\"limits\":{\"cpu_seconds\":1}}";
    expect_failure(fixture_run(&f, "command", direct), "stopped at its limit of 1 s of processor time", true);
    expect_failure(fixture_run(&f, "command", below), "stopped at its limit of 1 s of processor time", true);
    fixture_close(&f);
}

TEST(a_command_that_wants_more_memory_than_it_may_have_is_told_no_and_the_message_says_how_much_it_had)
{
    struct fixture f = fixture_open(NULL);
    const char *inputs = "{\"argv\":[\"sh\",\"-c\",\"head -c 300000000 /dev/zero | tail -c 299999999 >/dev/null\"],"
                         "\"limits\":{\"memory_bytes\":33554432}}";
    struct exec_outcome out = fixture_run(&f, "command", inputs);
    CHECK(!out.is_success);
    CHECK(!out.not_retryable);
    CHECK(strstr(out.message.data, "exit code 1: tail: ") == out.message.data);
    CHECK(strstr(out.message.data, " (it had at most 33554432 bytes of memory)") != NULL);
    exec_outcome_deinit(&out);
    fixture_close(&f);
}

TEST(a_command_that_writes_a_file_larger_than_it_may_is_stopped)
{
    struct fixture f = fixture_open(NULL);
    const char *inputs = "{\"argv\":[\"dd\",\"if=/dev/zero\",\"of=big\",\"bs=1000\",\"count=100\"],"
                         "\"limits\":{\"file_bytes\":10000}}";
    expect_failure(fixture_run(&f, "command", inputs), "stopped at its limit of 10000 bytes for one file", true);
    fixture_close(&f);
}

TEST(a_command_that_writes_more_than_it_may_is_stopped_and_what_it_wrote_is_kept)
{
    struct fixture f = limited((struct command_limits){.max = {[COMMAND_OUTPUT] = 100000}});
    struct exec_outcome out = fixture_run(&f, "command", "{\"argv\":[\"yes\"]}");
    CHECK_STR(out.message.data, "stopped at its limit of 100000 bytes of output");
    CHECK(out.not_retryable);
    CHECK(strstr(out.result.data, "\"stdout\":\"y\\ny\\n") != NULL);
    exec_outcome_deinit(&out);
    /* One that is through before anybody looks is over its limit as well, also when it writes to both. */
    expect_failure(fixture_run(&f, "command",
                               "{\"argv\":[\"sh\",\"-c\",\"head -c 30 /dev/zero; head -c 31 /dev/zero >&2\"],"
                               "\"limits\":{\"output_bytes\":60}}"),
                   "stopped at its limit of 60 bytes of output", true);
    out = fixture_run(&f, "command", "{\"argv\":[\"head\",\"-c\",\"100000\",\"/dev/zero\"]}");
    CHECK(out.is_success); /* just as much as it may */
    exec_outcome_deinit(&out);
    fixture_close(&f);
}

TEST(limits_that_make_no_sense_are_named)
{
    struct fixture f = fixture_open(NULL);
    const char *const pairs[][2] = {
        {"{\"argv\":[\"ls\"],\"limits\":3}", "inputs.limits must be an object, such as {\"cpu_seconds\": 60}"},
        {"{\"argv\":[\"ls\"],\"limits\":{\"cpu\":3}}", "inputs.limits: there is no limit 'cpu'"},
        {"{\"argv\":[\"ls\"],\"limits\":{\"cpu_seconds\":0}}",
         "inputs.limits.cpu_seconds must be a whole number from 1 on"},
        {"{\"argv\":[\"ls\"],\"limits\":{\"memory_bytes\":\"1GB\"}}",
         "inputs.limits.memory_bytes must be a whole number from 1 on"},
        {"{\"argv\":[\"ls\"],\"limits\":{\"open_files\":-1}}",
         "inputs.limits.open_files must be a whole number from 1 on"},
        {"{\"argv\":[\"ls\"],\"limits\":{\"open_files\":null}}",
         "inputs.limits.open_files must be a whole number from 1 on"},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        expect_failure(fixture_run(&f, "command", pairs[i][0]), pairs[i][1], true);
    }
    fixture_close(&f);
}

TEST(a_folder_that_is_none_and_names_that_are_none_are_refused)
{
    struct fixture f = fixture_open(NULL);
    expect_failure(fixture_run(&f, "command", "{\"argv\":[\"ls\"],\"cwd\":\"/dev/null\"}"),
                   "cannot enter the folder '/dev/null' (inputs.cwd): Not a directory", true);
    struct exec_outcome out = fixture_run(&f, "command", "{\"argv\":[\"env\"],\"env\":{\"A\\u0000B\":\"x\"}}");
    CHECK(!out.is_success);
    CHECK(out.not_retryable);
    exec_outcome_deinit(&out);
    fixture_close(&f);
}
