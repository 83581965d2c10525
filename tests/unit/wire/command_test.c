/* Decoded requests become commands of the core. */
#include "../test.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/sha256.h"
#include "bytes.h"
#include "wire/command.h"

struct fixture {
    struct arena arena;
    struct buf bytes;
    struct error e;
};

static void *decode(struct fixture *f, enum pb_kind kind, const char *notation)
{
    void *message = NULL;
    buf_reset(&f->bytes);
    bytes_append(&f->bytes, notation);
    enum err err = wire_decode(kind, f->bytes.data, f->bytes.n, &f->arena, &message, &f->e);
    if (err != ERR_OK) {
        print_error("%s\n", f->e.message);
    }
    CHECK_ERR(err, ERR_OK);
    return message;
}

static void end(struct fixture *f)
{
    arena_deinit(&f->arena);
    buf_deinit(&f->bytes);
}

#define TOKEN "'0123456789abcdef'"
#define WORKER "0a{'w1'} 12{'i1'} "
#define LEASED "0a{'job'} 10 02 18 03 20 01 2a{" TOKEN "} "

/* Attempts. */

TEST(a_token_is_read_from_the_more_significant_byte_on)
{
    struct fixture f = {0};
    const struct pb_attempt_ref *m =
        decode(&f, PB_ATTEMPT_REF, "0a{'job'} 10 02 18 03 20 04 2a{ 00 01 02 03 04 05 06 07 f8 f9 fa fb fc fd fe ff }");
    struct attempt_ref ref = {0};

    CHECK_ERR(wire_ref(m, &ref, &f.e), ERR_OK);

    CHECK_STR(ref.task.job_id, "job");
    CHECK_UINT(ref.task.stage, 2);
    CHECK_UINT(ref.task.task, 3);
    CHECK_UINT(ref.attempt, 4);
    CHECK_UINT(ref.token.bits[0], UINT64_C(0x0001020304050607));
    CHECK_UINT(ref.token.bits[1], UINT64_C(0xf8f9fafbfcfdfeff));
    const struct pb_attempt_ref *back = wire_ref_message(&ref, &f.arena);
    CHECK_STR(back->query_id, "job");
    CHECK_UINT(back->stage_id, 2);
    CHECK_UINT(back->task_id, 3);
    CHECK_UINT(back->attempt, 4);
    CHECK_UINT(back->lease_token.len, 16);
    CHECK_MEM(back->lease_token.data, m->lease_token.data, 16);
    end(&f);
}

TEST(no_token_is_no_bytes)
{
    struct fixture f = {0};
    struct attempt_ref ref = {.token = {{1, 2}}};

    CHECK_ERR(wire_ref(decode(&f, PB_ATTEMPT_REF, "0a{'job'}"), &ref, &f.e), ERR_OK);
    CHECK(lease_token_is_none(ref.token));
    CHECK_UINT(wire_ref_message(&ref, &f.arena)->lease_token.len, 0);
    end(&f);
}

TEST(a_reference_that_was_made_without_decoding_is_looked_at_as_well)
{
    struct fixture f = {0};
    struct attempt_ref ref = {.attempt = 77};
    uint8_t three[3] = {1, 2, 3};
    struct pb_attempt_ref *m = wire_new(PB_ATTEMPT_REF, &f.arena);

    m->stage_id = UINT64_C(1) << 32;
    CHECK_ERR(wire_ref(m, &ref, &f.e), ERR_INVALID);
    CHECK_STR(f.e.message, "stage_id: must be at most 4294967295, got 4294967296");
    m->stage_id = 0;
    m->task_id = UINT64_MAX;
    CHECK_ERR(wire_ref(m, &ref, &f.e), ERR_INVALID);
    CHECK_STR(f.e.message, "task_id: must be at most 4294967295, got 18446744073709551615");
    m->task_id = 0;
    m->lease_token = (ProtobufCBinaryData){sizeof(three), three};
    CHECK_ERR(wire_ref(m, &ref, &f.e), ERR_INVALID);
    CHECK_STR(f.e.message, "lease_token: must be 16 bytes, got 3");
    CHECK_ERR(wire_ref(NULL, &ref, &f.e), ERR_INVALID);
    CHECK_STR(f.e.message, "ref: is missing");
    CHECK_UINT(ref.attempt, 77);
    end(&f);
}

/* Registration. */

static struct cmd_register registered(struct fixture *f, const char *capabilities_json)
{
    struct pb_register_worker_request *m =
        decode(f, PB_REGISTER_WORKER_REQUEST,
               WORKER "1a{'h:1'} 20 04 2a{'sql'} 2a{'http'} 2a{'sql'} 2a{'command'} 3a{'b'} 3a{'a'} 3a{'b'} 42{'1.2'}");
    struct cmd_register command = {0};
    m->capabilities_json = arena_strdup(&f->arena, capabilities_json);
    enum err err = wire_register(m, &f->arena, &command, &f->e);
    if (err != ERR_OK) {
        print_error("%s\n", f->e.message);
    }
    CHECK_ERR(err, ERR_OK);
    return command;
}

TEST(a_worker_offers_each_thing_once_and_in_order)
{
    struct fixture f = {0};
    struct cmd_register c = registered(&f, "");

    CHECK_STR(c.worker_id, "w1");
    CHECK_STR(c.incarnation, "i1");
    CHECK_STR(c.address, "h:1");
    CHECK_UINT(c.slots, 4);
    CHECK_STR(c.version, "1.2");
    CHECK_UINT(c.offer.executors.count, 3);
    CHECK_STR(c.offer.executors.items[0], "command");
    CHECK_STR(c.offer.executors.items[1], "http");
    CHECK_STR(c.offer.executors.items[2], "sql");
    CHECK_UINT(c.offer.ops.count, 2);
    CHECK_STR(c.offer.ops.items[0], "a");
    CHECK_STR(c.offer.ops.items[1], "b");
    CHECK_UINT(c.offer.capabilities.count, 0);
    CHECK(c.offer.engine == NULL);
    end(&f);
}

TEST(capabilities_are_read_from_json_and_sorted)
{
    struct fixture f = {0};
    struct cmd_register c = registered(&f, "{\"labels\": [\"ml\", \"big\"], \"gpu\": \"nvidia\", \"cpu_cores\": 8.5, "
                                           "\"ssd\": true, \"arm\": false, \"none\": [], \"engine\": \"duckdb 1\"}");
    const struct capability *items = c.offer.capabilities.items;

    CHECK_UINT(c.offer.capabilities.count, 7);
    CHECK_STR(items[0].key, "arm");
    CHECK_INT(items[0].kind, VALUE_BOOL);
    CHECK(items[0].number < 0.5);
    CHECK_STR(items[1].key, "cpu_cores");
    CHECK_INT(items[1].kind, VALUE_NUMBER);
    CHECK(items[1].number > 8.4 && items[1].number < 8.6);
    CHECK_STR(items[2].key, "engine");
    CHECK_STR(items[3].key, "gpu");
    CHECK_INT(items[3].kind, VALUE_TEXT);
    CHECK_STR(items[3].text, "nvidia");
    CHECK_STR(items[4].key, "labels");
    CHECK_INT(items[4].kind, VALUE_LIST);
    CHECK_UINT(items[4].n_items, 2);
    CHECK_STR(items[4].items[0], "ml");
    CHECK_STR(items[4].items[1], "big");
    CHECK_STR(items[5].key, "none");
    CHECK_UINT(items[5].n_items, 0);
    CHECK_STR(items[6].key, "ssd");
    CHECK(items[6].number > 0.5);
    CHECK_STR(c.offer.engine, "duckdb 1");
    end(&f);
}

TEST(an_engine_is_a_text)
{
    struct fixture f = {0};

    CHECK(registered(&f, "{\"engine\": 3}").offer.engine == NULL);
    CHECK(registered(&f, "{}").offer.engine == NULL);
    end(&f);
}

struct bad_capabilities {
    const char *json;
    enum err err;
    const char *message;
};

static const struct bad_capabilities bad_capabilities[] = {
    {"{", ERR_INVALID, NULL},
    {"{} {}", ERR_INVALID, NULL},
    {"{\"a\": NaN}", ERR_INVALID, NULL},
    {"{\"a\": 1, \"a\": 2}", ERR_INVALID, NULL},
    {"[]", ERR_INVALID, "capabilities_json: must be an object"},
    {"null", ERR_INVALID, "capabilities_json: must be an object"},
    {"\"gpu\"", ERR_INVALID, "capabilities_json: must be an object"},
    {"{\"a\": null}", ERR_INVALID, "capabilities_json: a: must be a text, a number, a boolean or a list of texts"},
    {"{\"a\": {}}", ERR_INVALID, "capabilities_json: a: must be a text, a number, a boolean or a list of texts"},
    {"{\"a\": [1]}", ERR_INVALID, "capabilities_json: a: a list must consist of texts"},
    {"{\"a\": [\"x\", [\"y\"]]}", ERR_INVALID, "capabilities_json: a: a list must consist of texts"},
    {"{\"a\": \"x\\u0000y\"}", ERR_INVALID, "capabilities_json: a: must not contain a NUL"},
    {"{\"a\": [\"\\u0000\"]}", ERR_INVALID, "capabilities_json: a: must not contain a NUL"},
    {"{\"\": 1}", ERR_INVALID, "capabilities_json: a name must not be empty"},
};

static void check_bad_capabilities(const char *json, enum err expected, const char *message)
{
    struct fixture f = {0};
    struct cmd_register command = {.slots = 99};
    struct pb_register_worker_request *m = decode(&f, PB_REGISTER_WORKER_REQUEST, WORKER);
    m->capabilities_json = arena_strdup(&f.arena, json);

    CHECK_ERR(wire_register(m, &f.arena, &command, &f.e), expected);
    CHECK(strncmp(f.e.message, "capabilities_json: ", 19) == 0);
    if (message != NULL) {
        CHECK_STR(f.e.message, message);
    }
    CHECK_UINT(command.slots, 99);
    CHECK_ERR(wire_register(m, &f.arena, &command, NULL), expected);
    end(&f);
}

TEST(capabilities_that_are_none_are_refused)
{
    for (size_t i = 0; i < ARRAY_LEN(bad_capabilities); i++) {
        check_bad_capabilities(bad_capabilities[i].json, bad_capabilities[i].err, bad_capabilities[i].message);
    }
}

/* {"k0":1,"k1":1,...}, or with `form` for the members. */
static void many_members(struct buf *out, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        buf_format(out, "%c\"k%u\":1", i == 0 ? '{' : ',', i);
    }
    buf_char(out, '}');
}

TEST(capabilities_have_limits)
{
    struct buf text = {0};
    struct fixture f = {0};
    many_members(&text, LIMIT_CAPABILITIES);
    CHECK_UINT(registered(&f, text.data).offer.capabilities.count, LIMIT_CAPABILITIES);
    end(&f);

    buf_reset(&text);
    many_members(&text, LIMIT_CAPABILITIES + 1);
    check_bad_capabilities(text.data, ERR_EXHAUSTED, "capabilities_json: must have at most 128 members, got 129");

    buf_reset(&text);
    buf_format(&text, "{\"%0101d\": 1}", 0);
    check_bad_capabilities(text.data, ERR_EXHAUSTED, "capabilities_json: a name must be at most 100 bytes, got 101");

    buf_reset(&text);
    buf_format(&text, "{\"a\": \"%0257d\"}", 0);
    check_bad_capabilities(text.data, ERR_EXHAUSTED, "capabilities_json: a: a text must be at most 256 bytes, got 257");

    buf_reset(&text);
    buf_text(&text, "{\"a\": [\"0\"");
    for (unsigned i = 0; i < LIMIT_CAPABILITIES; i++) {
        buf_text(&text, ",\"x\"");
    }
    buf_text(&text, "]}");
    check_bad_capabilities(text.data, ERR_EXHAUSTED,
                           "capabilities_json: a: a list must have at most 128 elements, got 129");
    buf_deinit(&text);
}

/* The other calls of workers. */

TEST(a_heartbeat_names_what_runs)
{
    struct fixture f = {0};
    struct cmd_heartbeat c = {0};
    const struct pb_heartbeat_request *m =
        decode(&f, PB_HEARTBEAT_REQUEST,
               "0a{'w1'} 2a{'i1'} 22{'b'} 22{'a'} 32{" LEASED "} 39 00 00 00 00 00 00 e0 3f 4a{'j1'} 4a{'j2'} 50 01");

    CHECK_ERR(wire_heartbeat(m, &f.arena, &c, &f.e), ERR_OK);

    CHECK_STR(c.worker_id, "w1");
    CHECK_STR(c.incarnation, "i1");
    CHECK_UINT(c.n_running, 1);
    CHECK_STR(c.running[0].task.job_id, "job");
    CHECK_UINT(c.running[0].token.bits[0], UINT64_C(0x3031323334353637));
    CHECK_UINT(c.ops.count, 2);
    CHECK_STR(c.ops.items[0], "a");
    CHECK_UINT(c.n_held_jobs, 2);
    CHECK_STR(c.held_jobs[1], "j2");
    CHECK(c.load > 0.49 && c.load < 0.51);
    CHECK(c.is_leaving);
    end(&f);
}

TEST(a_heartbeat_of_an_idle_worker_names_nothing)
{
    struct fixture f = {0};
    struct cmd_heartbeat c = {.n_running = 9};

    CHECK_ERR(wire_heartbeat(decode(&f, PB_HEARTBEAT_REQUEST, "0a{'w1'} 2a{'i1'}"), &f.arena, &c, &f.e), ERR_OK);
    CHECK_UINT(c.n_running, 0);
    CHECK(c.running == NULL);
    CHECK_UINT(c.ops.count, 0);
    CHECK(!c.is_leaving);
    end(&f);
}

TEST(a_heartbeat_says_which_attempt_is_wrong)
{
    struct fixture f = {0};
    struct cmd_heartbeat c = {0};
    struct pb_heartbeat_request *m = decode(&f, PB_HEARTBEAT_REQUEST, "0a{'w1'} 2a{'i1'} 2*( 32{" LEASED "} )");
    m->running[1]->stage_id = UINT64_MAX;

    CHECK_ERR(wire_heartbeat(m, &f.arena, &c, &f.e), ERR_INVALID);
    CHECK_STR(f.e.message, "running[1].stage_id: must be at most 4294967295, got 18446744073709551615");
    end(&f);
}

TEST(a_poll_and_a_farewell_are_taken_as_they_are)
{
    struct fixture f = {0};
    struct cmd_get_task poll = {0};
    struct cmd_deregister farewell = {0};

    CHECK_ERR(wire_get_task(decode(&f, PB_GET_TASK_REQUEST, "0a{'w1'} 10 07 18 e8 07 22{'i1'}"), &f.arena, &poll, &f.e),
              ERR_OK);
    CHECK_ERR(wire_deregister(decode(&f, PB_DEREGISTER_WORKER_REQUEST, WORKER), &f.arena, &farewell, &f.e), ERR_OK);

    CHECK_STR(poll.worker_id, "w1");
    CHECK_STR(poll.incarnation, "i1");
    CHECK_UINT(poll.capacity, 7);
    CHECK_UINT(poll.wait_ms, 1000);
    CHECK_STR(farewell.worker_id, "w1");
    CHECK_STR(farewell.incarnation, "i1");
    end(&f);
}

TEST(a_report_carries_the_digest_of_its_result)
{
    struct fixture f = {0};
    struct cmd_report c = {0};
    const struct wire_bytes *results = NULL;
    struct digest expected;
    struct digest none = {{0}};
    sha256_once("{\"rows\": 3}", 11, expected.bytes);
    const struct pb_report_task_status_request *m =
        decode(&f, PB_REPORT_TASK_STATUS_REQUEST,
               WORKER "1a{ 0a{" LEASED "} 10 03 2a{'{\"rows\": 3}'} 38 09 40 0a } "
                      "1a{ 0a{" LEASED "} 10 04 1a{'broken'} 20 01 32{ 0a{'job'} 10 01 18 05 20 02 } } "
                      "1a{ 0a{" LEASED "} 10 01 } 1a{ 0a{" LEASED "} 10 02 }");

    CHECK_ERR(wire_report(m, &f.arena, &c, &results, &f.e), ERR_OK);

    CHECK_STR(c.worker_id, "w1");
    CHECK_STR(c.incarnation, "i1");
    CHECK_UINT(c.n_reports, 4);
    CHECK_INT(c.reports[0].state, TASK_SUCCEEDED);
    CHECK_MEM(c.reports[0].result.bytes, expected.bytes, sizeof(expected.bytes));
    CHECK_UINT(c.reports[0].result_bytes, 11);
    CHECK_UINT(c.reports[0].rows, 9);
    CHECK_UINT(c.reports[0].bytes, 10);
    CHECK(c.reports[0].message == NULL);
    CHECK(c.reports[0].fetch_failed == NULL);
    CHECK_UINT(results[0].n, 11);
    CHECK_MEM(results[0].data, "{\"rows\": 3}", 11);
    CHECK_INT(c.reports[1].state, TASK_FAILED);
    CHECK_STR(c.reports[1].message, "broken");
    CHECK(c.reports[1].not_retryable);
    CHECK_UINT(c.reports[1].n_fetch_failed, 1);
    CHECK_UINT(c.reports[1].fetch_failed[0].task.stage, 1);
    CHECK_UINT(c.reports[1].fetch_failed[0].task.task, 5);
    CHECK_UINT(c.reports[1].fetch_failed[0].attempt, 2);
    CHECK_MEM(c.reports[1].result.bytes, none.bytes, sizeof(none.bytes));
    CHECK_UINT(c.reports[1].result_bytes, 0);
    CHECK_UINT(results[1].n, 0);
    CHECK(results[1].data == NULL);
    CHECK_INT(c.reports[2].state, TASK_QUEUED);
    CHECK_INT(c.reports[3].state, TASK_RUNNING);
    end(&f);
}

struct bad_report {
    const char *rest;
    const char *message;
};

static const struct bad_report bad_reports[] = {
    {"", "reports[1].state: must be RUNNING, SUCCEEDED, FAILED, or QUEUED for a release"},
    {"10 05", "reports[1].state: must be RUNNING, SUCCEEDED, FAILED, or QUEUED for a release"},
    {"10 06", "reports[1].state: must be RUNNING, SUCCEEDED, FAILED, or QUEUED for a release"},
    {"10 03 2a{'{'}", NULL},
    {"10 03 2a{'{} {}'}", NULL},
    {"10 03 2a{'{\"a\": 1, \"a\": 2}'}", NULL},
    {"10 03 2a{'NaN'}", NULL},
    {"10 03 2a{'\"' ff '\"'}", NULL},
    {"10 03 2a{'1' 00}", NULL},
    {"10 03 2a{' '}", NULL},
    {"10 03 2a{ 65*('[') 65*(']') }", NULL},
};

TEST(a_report_that_is_wrong_is_named)
{
    for (size_t i = 0; i < ARRAY_LEN(bad_reports); i++) {
        struct fixture f = {0};
        struct cmd_report c = {.n_reports = 99};
        const struct wire_bytes *results = NULL;
        char notation[1024];
        snprintf(notation, sizeof(notation), WORKER "1a{ 0a{" LEASED "} 10 03 } 1a{ 0a{" LEASED "} %s }",
                 bad_reports[i].rest);
        const struct pb_report_task_status_request *m = decode(&f, PB_REPORT_TASK_STATUS_REQUEST, notation);

        CHECK_ERR(wire_report(m, &f.arena, &c, &results, &f.e), ERR_INVALID);
        if (bad_reports[i].message != NULL) {
            CHECK_STR(f.e.message, bad_reports[i].message);
        } else {
            CHECK(strncmp(f.e.message, "reports[1].result_json: ", 24) == 0);
        }
        CHECK_UINT(c.n_reports, 99);
        CHECK(results == NULL);
        CHECK_ERR(wire_report(m, &f.arena, &c, &results, NULL), ERR_INVALID);
        end(&f);
    }
}

TEST(a_report_without_decoding_is_looked_at_as_well)
{
    struct fixture f = {0};
    struct cmd_report c = {0};
    const struct wire_bytes *results = NULL;
    struct pb_report_task_status_request *m =
        decode(&f, PB_REPORT_TASK_STATUS_REQUEST, WORKER "1a{ 0a{" LEASED "} 10 04 32{ 0a{'job'} 20 02 } }");

    m->reports[0]->fetch_failed[0]->task_id = UINT64_MAX;
    CHECK_ERR(wire_report(m, &f.arena, &c, &results, &f.e), ERR_INVALID);
    CHECK_STR(f.e.message, "reports[0].fetch_failed[0].task_id: must be at most 4294967295, got 18446744073709551615");
    m->reports[0]->ref->stage_id = UINT64_MAX;
    CHECK_ERR(wire_report(m, &f.arena, &c, &results, &f.e), ERR_INVALID);
    CHECK_STR(f.e.message, "reports[0].ref.stage_id: must be at most 4294967295, got 18446744073709551615");
    m->reports[0]->ref = NULL;
    CHECK_ERR(wire_report(m, &f.arena, &c, &results, &f.e), ERR_INVALID);
    CHECK_STR(f.e.message, "reports[0].ref: is missing");
    end(&f);
}

/* Outputs. */

#define OUTPUT "0a{'job'} 10 02 18 03 20 01 32{" TOKEN "} 3a{'w1'} "

TEST(partitions_are_put_in_order)
{
    struct fixture f = {0};
    struct cmd_map_output c = {0};
    const struct pb_register_map_output_request *m = decode(
        &f, PB_REGISTER_MAP_OUTPUT_REQUEST, OUTPUT "2a{ 08 02 10 14 } 2a{ 10 0a 18 01 20 02 28 03 } 2a{ 08 01 10 0f }");

    CHECK_ERR(wire_map_output(m, &f.arena, &c, &f.e), ERR_OK);

    CHECK_STR(c.ref.task.job_id, "job");
    CHECK_UINT(c.ref.task.stage, 2);
    CHECK_UINT(c.ref.task.task, 3);
    CHECK_UINT(c.ref.attempt, 1);
    CHECK_UINT(c.ref.token.bits[1], UINT64_C(0x3839616263646566));
    CHECK_STR(c.worker_id, "w1");
    CHECK_UINT(c.n_partitions, 3);
    CHECK_UINT(c.partitions[0].bytes, 10);
    CHECK_UINT(c.partitions[0].rows, 1);
    CHECK_UINT(c.partitions[0].batches, 2);
    CHECK_UINT(c.partitions[0].checksum, 3);
    CHECK_UINT(c.partitions[1].bytes, 15);
    CHECK_UINT(c.partitions[2].bytes, 20);
    end(&f);
}

TEST(every_partition_is_given_once)
{
    struct fixture f = {0};
    struct cmd_map_output c = {.n_partitions = 99};

    CHECK_ERR(
        wire_map_output(decode(&f, PB_REGISTER_MAP_OUTPUT_REQUEST, OUTPUT "2a{} 2a{ 08 02 }"), &f.arena, &c, &f.e),
        ERR_INVALID);
    CHECK_STR(f.e.message, "partitions[1].reduce_partition: is 2, but only 2 partitions are given");
    CHECK_ERR(wire_map_output(decode(&f, PB_REGISTER_MAP_OUTPUT_REQUEST, OUTPUT "2a{} 2a{}"), &f.arena, &c, &f.e),
              ERR_INVALID);
    CHECK_STR(f.e.message, "partitions[1].reduce_partition: 0 is given twice");
    CHECK_UINT(c.n_partitions, 99);
    end(&f);
}

TEST(no_partitions_are_for_the_core_to_judge)
{
    struct fixture f = {0};
    struct cmd_map_output c = {.n_partitions = 99};

    CHECK_ERR(wire_map_output(decode(&f, PB_REGISTER_MAP_OUTPUT_REQUEST, OUTPUT), &f.arena, &c, &f.e), ERR_OK);
    CHECK_UINT(c.n_partitions, 0);
    end(&f);
}

TEST(results_come_along_or_stay_where_they_are)
{
    struct fixture f = {0};
    struct cmd_results c = {0};

    CHECK_ERR(wire_results(decode(&f, PB_REGISTER_QUERY_RESULTS_REQUEST, "0a{" LEASED "} 12{'12345'} 20 02 2a{'w1'}"),
                           &f.arena, &c, &f.e),
              ERR_OK);
    CHECK(c.rows.is_inline);
    CHECK_UINT(c.rows.bytes, 5);
    CHECK_UINT(c.rows.rows, 2);
    CHECK_STR(c.worker_id, "w1");
    CHECK_STR(c.ref.task.job_id, "job");
    CHECK_ERR(wire_results(decode(&f, PB_REGISTER_QUERY_RESULTS_REQUEST, "0a{" LEASED "} 18 80 08 2a{'w1'}"), &f.arena,
                           &c, &f.e),
              ERR_OK);
    CHECK(!c.rows.is_inline);
    CHECK_UINT(c.rows.bytes, 1024);
    CHECK_ERR(wire_results(decode(&f, PB_REGISTER_QUERY_RESULTS_REQUEST, "0a{" LEASED "} 12{'12345'} 18 04 2a{'w1'}"),
                           &f.arena, &c, &f.e),
              ERR_INVALID);
    CHECK_STR(f.e.message, "bytes: is 4, but ipc_payload has 5");
    end(&f);
}

/* What people ask for. */

TEST(an_empty_text_is_none)
{
    struct fixture f = {0};
    struct cmd_cancel cancel = {0};
    struct cmd_retry retry = {0};

    CHECK_ERR(wire_cancel(decode(&f, PB_CANCEL_QUERY_REQUEST, "0a{'j'}"), &f.arena, &cancel, &f.e), ERR_OK);
    CHECK_STR(cancel.job_id, "j");
    CHECK(cancel.reason == NULL);
    CHECK_ERR(wire_cancel(decode(&f, PB_CANCEL_QUERY_REQUEST, "0a{'j'} 12{'late'}"), &f.arena, &cancel, &f.e), ERR_OK);
    CHECK_STR(cancel.reason, "late");
    CHECK_ERR(wire_retry(decode(&f, PB_RETRY_JOB_REQUEST, "0a{'j'}"), &f.arena, &retry, &f.e), ERR_OK);
    CHECK_STR(retry.job_id, "j");
    CHECK(retry.from_task == NULL);
    CHECK(!retry.results_lost);
    CHECK_ERR(wire_retry(decode(&f, PB_RETRY_JOB_REQUEST, "0a{'j'} 12{'load'}"), &f.arena, &retry, &f.e), ERR_OK);
    CHECK_STR(retry.from_task, "load");
    end(&f);
}

TEST(a_node_is_set_to_something)
{
    struct fixture f = {0};
    struct cmd_set_node c = {0};

    CHECK_ERR(wire_set_node(decode(&f, PB_SET_NODE_REQUEST, "0a{'w1'} 10 01 18 01 20 01"), &f.arena, &c, &f.e), ERR_OK);
    CHECK_STR(c.worker_id, "w1");
    CHECK(c.set_draining);
    CHECK(c.draining);
    CHECK(c.clear_blacklist);
    CHECK_ERR(wire_set_node(decode(&f, PB_SET_NODE_REQUEST, "0a{'w1'} 18 01"), &f.arena, &c, &f.e), ERR_INVALID);
    CHECK_STR(f.e.message, "set_draining, clear_blacklist: one of them must be set");
    end(&f);
}

static struct node_filter filter_of(struct fixture *f, const char *capability)
{
    struct node_filter filter = {0};
    struct pb_list_nodes_request *m = decode(f, PB_LIST_NODES_REQUEST, "");
    m->capability = arena_strdup(&f->arena, capability);
    CHECK_ERR(wire_node_filter(m, &f->arena, &filter, &f->e), ERR_OK);
    return filter;
}

TEST(nodes_are_filtered_by_what_they_offer)
{
    struct fixture f = {0};
    struct node_filter filter = {0};

    CHECK_ERR(wire_node_filter(decode(&f, PB_LIST_NODES_REQUEST, "0a{'sql'} 1a{'add_five'}"), &f.arena, &filter, &f.e),
              ERR_OK);
    CHECK_STR(filter.executor, "sql");
    CHECK_STR(filter.op, "add_five");
    CHECK(filter.capability == NULL);
    filter = filter_of(&f, "");
    CHECK(filter.executor == NULL);
    CHECK(filter.op == NULL);
    filter = filter_of(&f, "gpu=nvidia");
    CHECK_STR(filter.capability->key, "gpu");
    CHECK_INT(filter.capability->kind, VALUE_TEXT);
    CHECK_STR(filter.capability->text, "nvidia");
    filter = filter_of(&f, "cpu_cores=8");
    CHECK_INT(filter.capability->kind, VALUE_NUMBER);
    CHECK(filter.capability->number > 7.9 && filter.capability->number < 8.1);
    filter = filter_of(&f, "cpu_cores=>=8");
    CHECK_STR(filter.capability->text, ">=8");
    filter = filter_of(&f, "ssd=true");
    CHECK_INT(filter.capability->kind, VALUE_BOOL);
    filter = filter_of(&f, "version=\"8\"");
    CHECK_INT(filter.capability->kind, VALUE_TEXT);
    CHECK_STR(filter.capability->text, "8");
    filter = filter_of(&f, "x=null");
    CHECK_STR(filter.capability->text, "null");
    filter = filter_of(&f, "x=[\"a\"]");
    CHECK_STR(filter.capability->text, "[\"a\"]");
    filter = filter_of(&f, "empty=");
    CHECK_STR(filter.capability->text, "");
    end(&f);
}

TEST(a_filter_that_is_none_is_refused)
{
    struct fixture f = {0};
    struct node_filter filter = {.executor = "kept"};

    CHECK_ERR(wire_node_filter(decode(&f, PB_LIST_NODES_REQUEST, "12{'gpu'}"), &f.arena, &filter, &f.e), ERR_INVALID);
    CHECK_STR(f.e.message, "capability: must be KEY=VALUE");
    CHECK_STR(f.e.hint, "such as gpu=nvidia or cpu_cores=>=8");
    CHECK_ERR(wire_node_filter(decode(&f, PB_LIST_NODES_REQUEST, "12{'=8'}"), &f.arena, &filter, &f.e), ERR_INVALID);
    CHECK_ERR(wire_node_filter(decode(&f, PB_LIST_NODES_REQUEST, "12{'a=\"\\u0000\"'}"), &f.arena, &filter, &f.e),
              ERR_INVALID);
    CHECK_STR(f.e.message, "capability: this is no value that a node can have");
    CHECK_STR(filter.executor, "kept");
    end(&f);
}
