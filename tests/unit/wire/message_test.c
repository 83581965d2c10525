/* What wire_decode lets pass, and what it makes of it. tests/unit/wire/malformed_test.c has what it refuses. */
#include "../test.h"

#include <string.h>

#include "base/limits.h"
#include "bytes.h"
#include "wire/message.h"

struct fixture {
    struct arena arena;
    struct buf bytes;
    struct error e;
};

/* Decodes what the notation stands for; fails the test if that is refused. */
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

static enum err refusal(struct fixture *f, enum pb_kind kind, const char *notation)
{
    void *message = NULL;
    buf_reset(&f->bytes);
    bytes_append(&f->bytes, notation);
    return wire_decode(kind, f->bytes.data, f->bytes.n, &f->arena, &message, &f->e);
}

static void end(struct fixture *f)
{
    arena_deinit(&f->arena);
    buf_deinit(&f->bytes);
}

#define TOKEN "'0123456789abcdef'"
#define WORKER "0a{'w1'} 12{'i1'} "
#define POLL "0a{'w1'} 22{'i1'} "
#define LEASED "0a{'job'} 10 02 18 03 20 01 2a{" TOKEN "} "

TEST(a_request_is_read_field_by_field)
{
    struct fixture f = {0};
    const struct pb_report_task_status_request *m = decode(
        &f, PB_REPORT_TASK_STATUS_REQUEST,
        WORKER "1a{ 0a{ " LEASED "} 10 04 1a{'it broke'} 20 01 2a{'[1]'} 32{ 0a{'job'} 20 07 } 38 05 40 80 08 }");

    CHECK_STR(m->worker_id, "w1");
    CHECK_STR(m->incarnation, "i1");
    CHECK_UINT(m->n_reports, 1);
    const struct pb_task_report *report = m->reports[0];
    CHECK_STR(report->ref->query_id, "job");
    CHECK_UINT(report->ref->stage_id, 2);
    CHECK_UINT(report->ref->task_id, 3);
    CHECK_UINT(report->ref->attempt, 1);
    CHECK_UINT(report->ref->lease_token.len, 16);
    CHECK_MEM(report->ref->lease_token.data, "0123456789abcdef", 16);
    CHECK_INT(report->state, CAPSTAN__V1__TASK_STATE__TASK_STATE_FAILED);
    CHECK_STR(report->message, "it broke");
    CHECK(report->not_retryable);
    CHECK_UINT(report->result_json.len, 3);
    CHECK_MEM(report->result_json.data, "[1]", 3);
    CHECK_UINT(report->n_fetch_failed, 1);
    CHECK_UINT(report->fetch_failed[0]->attempt, 7);
    CHECK_UINT(report->rows, 5);
    CHECK_UINT(report->bytes, 1024);
    end(&f);
}

TEST(a_decoded_message_does_not_point_to_the_bytes)
{
    struct fixture f = {0};
    const struct pb_get_task_request *m = decode(&f, PB_GET_TASK_REQUEST, POLL "10 05");

    memset(f.bytes.data, 'x', f.bytes.n);

    CHECK_STR(m->worker_id, "w1");
    CHECK_UINT(m->capacity, 5);
    end(&f);
}

TEST(what_is_absent_has_its_default)
{
    struct fixture f = {0};
    const struct pb_submit_tasks_request *m = decode(&f, PB_SUBMIT_TASKS_REQUEST, "12{'{}'}");
    const struct pb_event *event = decode(&f, PB_EVENT, "");

    CHECK_STR(m->job_id, "");
    CHECK_STR(m->idempotency_key, "");
    CHECK(event->ref == NULL);
    CHECK_STR(event->details, "");
    end(&f);
}

TEST(no_bytes_at_all_are_an_empty_message)
{
    struct arena arena = {0};
    struct pb_get_leader_request *m = NULL;

    CHECK_ERR(wire_decode(PB_GET_LEADER_REQUEST, NULL, 0, &arena, &m, NULL), ERR_OK);
    CHECK(m != NULL);
    arena_deinit(&arena);
}

TEST(fields_of_a_newer_peer_are_skipped_and_kept)
{
    struct fixture f = {0};
    struct buf again = {0};
    const struct pb_get_task_request *m =
        decode(&f, PB_GET_TASK_REQUEST, POLL "10 05 f8 07 96 01 fa 07{ ff 00 } fd 07 01 02 03 04 f9 07 8*(09)");

    CHECK_UINT(m->capacity, 5);
    CHECK_UINT(m->base.n_unknown_fields, 4);
    wire_encode(m, &again);
    CHECK_UINT(again.n, f.bytes.n);
    buf_deinit(&again);
    end(&f);
}

TEST(numbers_at_the_edge_pass)
{
    struct fixture f = {0};
    const struct pb_attempt_ref *ref =
        decode(&f, PB_ATTEMPT_REF, "10 ff ff ff ff 0f 18 ff ff ff ff 0f 20 ff ff ff ff 0f");
    const struct pb_map_output_partition *partition =
        decode(&f, PB_MAP_OUTPUT_PARTITION, "08 8f 4e 10 ff ff ff ff ff ff ff 0f 28 ff ff ff ff ff ff ff ff ff 01");

    CHECK_UINT(ref->stage_id, UINT32_MAX);
    CHECK_UINT(ref->task_id, UINT32_MAX);
    CHECK_UINT(ref->attempt, UINT32_MAX);
    CHECK_UINT(partition->reduce_partition, 9999);
    CHECK_UINT(partition->bytes, LIMIT_QUANTITY);
    CHECK_UINT(partition->checksum, UINT64_MAX);
    end(&f);
}

TEST(a_number_may_be_written_longer_than_it_has_to_be)
{
    struct fixture f = {0};
    const struct pb_get_task_request *m = decode(&f, PB_GET_TASK_REQUEST, POLL "10 85 80 80 80 80 80 80 80 80 00");

    CHECK_UINT(m->capacity, 5);
    end(&f);
}

TEST(texts_of_all_of_unicode_pass)
{
    struct fixture f = {0};
    const struct pb_cancel_query_request *m =
        decode(&f, PB_CANCEL_QUERY_REQUEST, "0a{'job'} 12{'k' c3 bc ' ' e2 82 ac ' ' f0 9f 9a 80}");

    CHECK_STR(m->reason, "k\xc3\xbc \xe2\x82\xac \xf0\x9f\x9a\x80");
    end(&f);
}

TEST(ids_and_names_as_long_as_allowed_pass)
{
    struct fixture f = {0};
    const struct pb_retry_job_request *retry = decode(&f, PB_RETRY_JOB_REQUEST, "0a{ 97*('j') '._-' } 12{ 100*('t') }");
    const struct pb_get_task_request *poll = decode(&f, PB_GET_TASK_REQUEST, "0a{ 95*('w') '.:@_-' } 22{'1'} 10 e8 07");

    CHECK_UINT(strlen(retry->query_id), 100);
    CHECK_UINT(strlen(retry->from_task), 100);
    CHECK_UINT(strlen(poll->worker_id), 100);
    CHECK_UINT(poll->capacity, 1000);
    end(&f);
}

TEST(addresses_are_a_host_and_a_port)
{
    struct fixture f = {0};

    decode(&f, PB_REGISTER_WORKER_REQUEST, WORKER);
    decode(&f, PB_REGISTER_WORKER_REQUEST, WORKER "1a{'worker-1.example.org:7401'}");
    decode(&f, PB_REGISTER_WORKER_REQUEST, WORKER "1a{'127.0.0.1:1'}");
    decode(&f, PB_REGISTER_WORKER_REQUEST, WORKER "1a{'[::1]:65535'}");
    decode(&f, PB_REGISTER_WORKER_REQUEST, WORKER "1a{'[fe80::1%25]:80'}");
    CHECK_ERR(refusal(&f, PB_REGISTER_WORKER_REQUEST, WORKER "1a{'[]:80'}"), ERR_INVALID);
    CHECK_ERR(refusal(&f, PB_REGISTER_WORKER_REQUEST, WORKER "1a{'[::1:80'}"), ERR_INVALID);
    CHECK_ERR(refusal(&f, PB_REGISTER_WORKER_REQUEST, WORKER "1a{'[::1]80'}"), ERR_INVALID);
    CHECK_ERR(refusal(&f, PB_REGISTER_WORKER_REQUEST, WORKER "1a{'[:' 00 ':1]:80'}"), ERR_INVALID);
    end(&f);
}

TEST(a_table_has_a_format_or_leaves_it_open)
{
    struct fixture f = {0};

    decode(&f, PB_PUT_TABLE_REQUEST, "0a{ 0a{'_t1'} 12{'a.csv'} }");
    decode(&f, PB_PUT_TABLE_REQUEST, "0a{ 0a{ 63*('t') } 12{ 4096*('a') } 1a{'parquet'} }");
    decode(&f, PB_PUT_TABLE_REQUEST, "0a{ 0a{'T'} 12{'a'} 1a{'csv'} }");
    decode(&f, PB_PUT_TABLE_REQUEST, "0a{ 0a{'T'} 12{'a'} 1a{'json'} }");
    CHECK_ERR(refusal(&f, PB_PUT_TABLE_REQUEST, "0a{ 0a{'T'} 12{'a'} 1a{'JSON'} }"), ERR_INVALID);
    CHECK_ERR(refusal(&f, PB_PUT_TABLE_REQUEST, "0a{ 0a{'T'} 12{'a'} 1a{'csvx'} }"), ERR_INVALID);
    end(&f);
}

TEST(numbers_may_come_packed_or_one_by_one)
{
    struct fixture f = {0};
    const struct pb_stage_status *packed = decode(&f, PB_STAGE_STATUS, "1a{ 01 ac 02 } 1a{ 03 }");
    const struct pb_stage_status *single = decode(&f, PB_STAGE_STATUS, "18 01 18 ac 02 18 03");
    const struct pb_stage_status *both = decode(&f, PB_STAGE_STATUS, "1a{} 18 01 1a{ ac 02 03 }");

    CHECK_UINT(packed->n_parents, 3);
    CHECK_UINT(packed->parents[1], 300);
    CHECK_UINT(single->n_parents, 3);
    CHECK_UINT(single->parents[1], 300);
    CHECK_UINT(both->n_parents, 3);
    CHECK_UINT(both->parents[2], 3);
    end(&f);
}

TEST(a_longer_wait_is_clamped)
{
    struct fixture f = {0};
    const struct pb_get_task_request *poll = decode(&f, PB_GET_TASK_REQUEST, POLL "18 ff ff ff ff 0f");
    const struct pb_get_task_request *just = decode(&f, PB_GET_TASK_REQUEST, POLL "18 e0 d4 03");
    const struct pb_get_query_status_request *status = decode(&f, PB_GET_QUERY_STATUS_REQUEST, "0a{'j'} 10 e1 d4 03");

    CHECK_UINT(poll->wait_ms, LIMIT_WAIT_MS);
    CHECK_UINT(just->wait_ms, LIMIT_WAIT_MS);
    CHECK_UINT(status->wait_ms, LIMIT_WAIT_MS);
    CHECK_ERR(refusal(&f, PB_GET_TASK_REQUEST, POLL "18 80 80 80 80 10"), ERR_INVALID);
    end(&f);
}

TEST(a_larger_page_is_clamped)
{
    struct fixture f = {0};
    const struct pb_list_jobs_request *jobs = decode(&f, PB_LIST_JOBS_REQUEST, "10 ff ff ff ff 0f");
    const struct pb_list_tasks_request *tasks = decode(&f, PB_LIST_TASKS_REQUEST, "0a{'j'} 18 e7 07");

    CHECK_UINT(jobs->limit, LIMIT_PAGE);
    CHECK_UINT(tasks->limit, 999);
    end(&f);
}

TEST(a_long_message_is_cut_between_two_characters)
{
    struct fixture f = {0};
    const struct pb_report_task_status_request *m = decode(
        &f, PB_REPORT_TASK_STATUS_REQUEST,
        WORKER "1a{ 0a{" LEASED "} 10 04 1a{'short'} } 1a{ 0a{" LEASED "} 10 04 1a{ 4095*('m') 9*( e2 82 ac ) } }");
    const struct pb_cancel_query_request *cancel = decode(&f, PB_CANCEL_QUERY_REQUEST, "0a{'j'} 12{ 5000*('r') }");
    const struct pb_cancel_query_request *just = decode(&f, PB_CANCEL_QUERY_REQUEST, "0a{'j'} 12{ 4096*('r') }");

    CHECK_STR(m->reports[0]->message, "short");
    CHECK_UINT(strlen(m->reports[1]->message), 4095);
    CHECK_UINT(strlen(cancel->reason), LIMIT_MESSAGE_BYTES);
    CHECK_UINT(strlen(just->reason), LIMIT_MESSAGE_BYTES);
    end(&f);
}

TEST(a_query_is_sql_or_a_plan)
{
    struct fixture f = {0};

    decode(&f, PB_SUBMIT_QUERY_REQUEST, "1a{'select 1'}");
    decode(&f, PB_SUBMIT_QUERY_REQUEST, "12{'{}'}");
    CHECK_ERR(refusal(&f, PB_SUBMIT_QUERY_REQUEST, "1a{'select 1'} 12{'{}'}"), ERR_INVALID);
    CHECK_STR(f.e.message, "sql, physical_plan_json: exactly one of them must be given");
    CHECK_ERR(refusal(&f, PB_SUBMIT_QUERY_REQUEST, "0a{'id'}"), ERR_INVALID);
    CHECK_STR(f.e.message, "sql, physical_plan_json: exactly one of them must be given");
    end(&f);
}

TEST(a_priority_counts_only_if_it_is_set)
{
    struct fixture f = {0};

    decode(&f, PB_SUBMIT_QUERY_REQUEST, "1a{'select 1'} 20 09");
    decode(&f, PB_SUBMIT_QUERY_REQUEST, "1a{'select 1'} 20 03 28 01");
    CHECK_ERR(refusal(&f, PB_SUBMIT_QUERY_REQUEST, "1a{'select 1'} 20 04 28 01"), ERR_INVALID);
    CHECK_STR(f.e.message, "priority: must be at most 3, got 4");
    CHECK_STR(f.e.hint, "0 is urgent, 1 high, 2 normal, 3 low");
    end(&f);
}

TEST(a_limit_comes_with_advice)
{
    struct fixture f = {0};

    CHECK_ERR(refusal(&f, PB_GET_TASK_REQUEST, POLL "10 e9 07"), ERR_INVALID);
    CHECK_STR(f.e.hint, "ask for fewer, and ask again");
    CHECK_ERR(refusal(&f, PB_REPORT_TASK_STATUS_REQUEST, WORKER "1a{ 0a{" LEASED "} 2a{ 1048577*('1') } }"),
              ERR_EXHAUSTED);
    CHECK_STR(f.e.hint, "keep larger results on the worker and send only where they are");
    CHECK_ERR(refusal(&f, PB_REPORT_TASK_STATUS_REQUEST, WORKER "10001*( 1a{ 0a{" LEASED "} 10 03 } )"), ERR_EXHAUSTED);
    CHECK_STR(f.e.hint, "send it in several requests");
    end(&f);
}

TEST(a_message_of_more_than_64_mib_is_not_looked_at)
{
    struct arena arena = {0};
    struct error e = {0};
    void *message = NULL;

    CHECK_ERR(wire_decode(PB_SUBMIT_TASKS_REQUEST, "", (size_t)LIMIT_WIRE_BYTES + 1, &arena, &message, &e),
              ERR_EXHAUSTED);
    CHECK_STR(e.message, "SubmitTasksRequest: must be at most 67108864 bytes, got 67108865");
    CHECK(message == NULL);
}

TEST(a_tree_as_large_as_allowed_passes)
{
    struct fixture f = {0};
    bytes_append(&f.bytes, "0a{ 100*('j') } 1a{ 512*('k') } 12 80 80 fc 1f");
    struct buf tree = {0};
    buf_append(&tree, f.bytes.data, f.bytes.n);
    for (size_t i = 0; i < LIMIT_TREE_BYTES / 64; i++) {
        buf_append(&tree, "                                                                ", 64);
    }
    const struct pb_submit_tasks_request *m = NULL;

    CHECK_ERR(wire_decode(PB_SUBMIT_TASKS_REQUEST, tree.data, tree.n, &f.arena, &m, &f.e), ERR_OK);
    CHECK_UINT(m->tree_json.len, LIMIT_TREE_BYTES);
    buf_deinit(&tree);
    end(&f);
}

TEST(a_new_message_has_all_defaults_and_encodes_to_nothing)
{
    struct arena arena = {0};
    for (unsigned kind = 0; kind < PB_KIND_COUNT; kind++) {
        struct buf bytes = {0};
        const ProtobufCMessage *m = wire_new((enum pb_kind)kind, &arena);
        CHECK(m->descriptor == pb_descriptors[kind]);
        wire_encode(m, &bytes);
        CHECK_UINT(bytes.n, 0);
        buf_deinit(&bytes);
    }
    arena_deinit(&arena);
}

TEST(encoding_appends)
{
    struct fixture f = {0};
    struct buf out = {0};
    const struct pb_get_task_request *m = decode(&f, PB_GET_TASK_REQUEST, POLL "10 05");
    buf_text(&out, "before");

    wire_encode(m, &out);

    CHECK_UINT(out.n, 6 + 10);
    CHECK_MEM(out.data, "before\x0a\x02w1\x10\x05\x22\x02i1", 16);
    buf_deinit(&out);
    end(&f);
}

TEST(what_was_decoded_encodes_to_the_same_meaning)
{
    struct fixture f = {0};
    struct buf first = {0};
    struct buf second = {0};
    void *again = NULL;
    const void *m = decode(&f, PB_HEARTBEAT_REQUEST,
                           "39 00 00 00 00 00 00 e0 3f 2a{'i1'} 0a{'w1'} 2*( 32{" LEASED "} ) 4a{'j1'} 4a{'j2'} "
                           "42{ 0a{ 0a{'j'} } 11 00 00 00 00 00 00 00 80 } 50 02 5a{'new'}");

    wire_encode(m, &first);
    CHECK_ERR(wire_decode(PB_HEARTBEAT_REQUEST, first.data, first.n, &f.arena, &again, NULL), ERR_OK);
    wire_encode(again, &second);

    CHECK_UINT(first.n, second.n);
    CHECK_MEM(first.data, second.data, first.n);
    buf_deinit(&first);
    buf_deinit(&second);
    end(&f);
}

TEST(a_message_larger_than_the_stack_can_hold_is_encoded_too)
{
    struct fixture f = {0};
    struct buf out = {0};
    const void *m = decode(&f, PB_REPORT_TASK_STATUS_REQUEST, WORKER "1000*( 1a{ 0a{" LEASED "} 10 03 } )");

    wire_encode(m, &out);

    CHECK_UINT(out.n, f.bytes.n);
    CHECK_MEM(out.data, f.bytes.data, out.n);
    buf_deinit(&out);
    end(&f);
}
