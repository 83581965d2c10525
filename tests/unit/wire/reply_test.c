/* What the core answers becomes messages that the other end takes. */
#include "../test.h"

#include <string.h>

#include "base/limits.h"
#include "base/sha256.h"
#include "core/idempotency.h"
#include "wire/reply.h"

struct fixture {
    struct arena arena;
    struct buf bytes;
    struct error e;
};

/* What the other end reads. Fails the test if it refuses. */
static void *carried(struct fixture *f, enum pb_kind kind, const void *message)
{
    void *received = NULL;
    buf_reset(&f->bytes);
    wire_encode(message, &f->bytes);
    enum err err = wire_decode(kind, f->bytes.data, f->bytes.n, &f->arena, &received, &f->e);
    if (err != ERR_OK) {
        print_error("%s\n", f->e.message);
    }
    CHECK_ERR(err, ERR_OK);
    return received;
}

static void end(struct fixture *f)
{
    arena_deinit(&f->arena);
    buf_deinit(&f->bytes);
}

#define AN_ATTEMPT                                                                                                     \
    {                                                                                                                  \
        .task = {.job_id = "job", .stage = 2, .task = 3}, .attempt = 4, .token = {                                     \
            {0x0102030405060708, 0x090a0b0c0d0e0f10}                                                                   \
        }                                                                                                              \
    }

static const struct attempt_ref an_attempt = AN_ATTEMPT;

TEST(a_registration_is_answered_with_periods)
{
    struct fixture f = {0};
    struct reply reply = {.kind = REPLY_REGISTER};
    reply.u.registered.heartbeat_interval_ms = 3000;
    reply.u.registered.lease_ms = INT64_MAX;

    const struct pb_register_worker_response *m =
        carried(&f, PB_REGISTER_WORKER_RESPONSE, wire_register_reply(&reply, &f.arena));

    CHECK_UINT(m->heartbeat_interval_ms, 3000);
    CHECK_UINT(m->lease_ms, UINT32_MAX);
    end(&f);
}

TEST(a_heartbeat_is_answered_with_stop_orders)
{
    struct fixture f = {0};
    static const char *const ended[] = {"j1", "j2"};
    struct reply reply = {.kind = REPLY_HEARTBEAT};
    reply.u.heartbeat.accepted = true;
    reply.u.heartbeat.drain = true;
    reply.u.heartbeat.stop = &an_attempt;
    reply.u.heartbeat.n_stop = 1;
    reply.u.heartbeat.ended_jobs = ended;
    reply.u.heartbeat.n_ended_jobs = 2;
    reply.u.heartbeat.outputs_needed = 5;
    reply.u.heartbeat.failed_jobs = &ended[1];
    reply.u.heartbeat.n_failed_jobs = 1;

    const struct pb_heartbeat_response *m = carried(&f, PB_HEARTBEAT_RESPONSE, wire_heartbeat_reply(&reply, &f.arena));

    CHECK(m->accepted);
    CHECK(m->drain);
    CHECK_STR(m->reason, "");
    CHECK_UINT(m->n_stop, 1);
    CHECK_STR(m->stop[0]->query_id, "job");
    CHECK_UINT(m->stop[0]->stage_id, 2);
    CHECK_UINT(m->stop[0]->lease_token.len, 16);
    CHECK_UINT(m->n_ended_jobs, 2);
    CHECK_STR(m->ended_jobs[1], "j2");
    CHECK_UINT(m->outputs_needed, 5);
    CHECK_UINT(m->n_failed_jobs, 1);
    CHECK_STR(m->failed_jobs[0], "j2");
    end(&f);
}

TEST(a_refused_heartbeat_says_why)
{
    struct fixture f = {0};
    struct reply reply = {.kind = REPLY_HEARTBEAT};
    reply.u.heartbeat.refusal = REFUSE_SUPERSEDED;

    const struct pb_heartbeat_response *m = carried(&f, PB_HEARTBEAT_RESPONSE, wire_heartbeat_reply(&reply, &f.arena));

    CHECK(!m->accepted);
    CHECK_STR(m->reason, "superseded by a newer process with the same worker_id");
    end(&f);
}

static const char *const two_ops[] = {"a", "b"};

static const struct partition two_partitions[] = {{.bytes = 10, .rows = 1, .batches = 2, .checksum = 3}, {.bytes = 20}};

static const struct source a_source = {
    .ref = {.job_id = "job", .stage = 1, .task = 7},
    .attempt = 2,
    .worker_id = "w2",
    .address = "h:1",
    .first_partition = 4,
    .n_partitions = 2,
    .partitions = two_partitions,
};

static const struct assignment an_assignment = {
    .ref = AN_ATTEMPT,
    .name = "extract",
    .executor = "command",
    .ops = {two_ops, 2},
    .idempotency_key = {{0xab, 0xcd}},
    .lease_ms = 15000,
    .timeout_ms = 60000,
    .exclusive = true,
    .sources = &a_source,
    .n_sources = 1,
};

/* What a worker gets to see of the assignment. */
static const struct pb_task_assignment *assigned(struct fixture *f, const struct assignment *assignment)
{
    struct reply reply = {.kind = REPLY_TASKS};
    reply.u.tasks.first = assignment;
    reply.u.tasks.n_tasks = 1;
    const struct pb_get_task_response *m = carried(f, PB_GET_TASK_RESPONSE, wire_tasks_reply(&reply, &f->arena));
    CHECK_UINT(m->n_tasks, 1);
    return m->tasks[0];
}

TEST(an_assignment_carries_all_that_a_worker_needs)
{
    struct fixture f = {0};
    struct digest digest = task_key(an_attempt.task);
    char key[2 * sizeof(digest.bytes) + 1];
    hex_encode(digest.bytes, sizeof(digest.bytes), key);

    const struct pb_task_assignment *task = assigned(&f, &an_assignment);

    CHECK_STR(task->query_id, "job");
    CHECK_UINT(task->stage_id, 2);
    CHECK_UINT(task->task_id, 3);
    CHECK_UINT(task->attempt, 4);
    CHECK_UINT(task->lease_token.len, 16);
    CHECK_MEM(task->lease_token.data, "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10", 16);
    CHECK_UINT(task->lease_ms, 15000);
    CHECK_STR(task->executor, "command");
    CHECK_UINT(task->n_required_custom_ops, 2);
    CHECK_STR(task->required_custom_ops[1], "b");
    CHECK_STR(task->idempotency_key, "abcd000000000000000000000000000000000000000000000000000000000000");
    CHECK_STR(task->task_key, key);
    CHECK_UINT(task->timeout_ms, 60000);
    CHECK_STR(task->name, "extract");
    CHECK(task->exclusive);
    CHECK_UINT(task->plan_fragment_json.len, 0);
    end(&f);
}

TEST(an_assignment_says_where_to_read)
{
    struct fixture f = {0};

    const struct pb_task_assignment *task = assigned(&f, &an_assignment);

    CHECK_UINT(task->n_sources, 1);
    const struct pb_map_output_location *source = task->sources[0];
    CHECK_STR(source->ref->query_id, "job");
    CHECK_UINT(source->ref->stage_id, 1);
    CHECK_UINT(source->ref->task_id, 7);
    CHECK_UINT(source->ref->attempt, 2);
    CHECK_UINT(source->ref->lease_token.len, 0);
    CHECK_STR(source->address, "h:1");
    CHECK_STR(source->worker_id, "w2");
    CHECK_UINT(source->n_partitions, 2);
    CHECK_UINT(source->partitions[0]->reduce_partition, 4);
    CHECK_UINT(source->partitions[0]->bytes, 10);
    CHECK_UINT(source->partitions[0]->rows, 1);
    CHECK_UINT(source->partitions[0]->batches, 2);
    CHECK_UINT(source->partitions[0]->checksum, 3);
    CHECK_UINT(source->partitions[1]->reduce_partition, 5);
    CHECK_UINT(source->partitions[1]->bytes, 20);
    end(&f);
}

TEST(assignments_keep_their_order)
{
    struct fixture f = {0};
    struct assignment second = {.ref = an_attempt};
    struct assignment first = an_assignment;
    first.next = &second;
    struct reply reply = {.kind = REPLY_TASKS};
    reply.u.tasks.first = &first;
    reply.u.tasks.n_tasks = 2;
    reply.u.tasks.stop = &an_attempt;
    reply.u.tasks.n_stop = 1;
    reply.u.tasks.waited_ms = 250;

    const struct pb_get_task_response *m = carried(&f, PB_GET_TASK_RESPONSE, wire_tasks_reply(&reply, &f.arena));

    CHECK_UINT(m->n_tasks, 2);
    CHECK_STR(m->tasks[0]->name, "extract");
    CHECK_STR(m->tasks[1]->name, "");
    CHECK_STR(m->tasks[1]->executor, "");
    CHECK_STR(m->tasks[0]->task_key, m->tasks[1]->task_key);
    CHECK_UINT(m->n_stop, 1);
    CHECK_UINT(m->stop[0]->lease_token.len, 16);
    CHECK_UINT(m->waited_ms, 250);
    end(&f);
}

TEST(reports_are_answered_one_by_one)
{
    struct fixture f = {0};
    enum refusal outcomes[] = {REFUSE_NONE, REFUSE_STALE_ATTEMPT, REFUSE_NONE};
    struct reply reply = {.kind = REPLY_REPORT};
    reply.u.report.outcomes = outcomes;
    reply.u.report.n_outcomes = 3;

    const struct pb_report_task_status_response *m =
        carried(&f, PB_REPORT_TASK_STATUS_RESPONSE, wire_report_reply(&reply, &f.arena));

    CHECK_UINT(m->n_outcomes, 3);
    CHECK(m->outcomes[0]->accepted);
    CHECK_STR(m->outcomes[0]->reason, "");
    CHECK(!m->outcomes[1]->accepted);
    CHECK_STR(m->outcomes[1]->reason, "stale attempt");
    CHECK(m->outcomes[2]->accepted);
    end(&f);
}

TEST(outputs_are_accepted_or_refused_with_a_reason)
{
    struct fixture f = {0};
    struct reply yes = {.kind = REPLY_ACCEPT};
    struct reply no = {.kind = REPLY_ACCEPT};
    no.u.accept = REFUSE_BAD_OUTPUT;

    const struct pb_register_map_output_response *output =
        carried(&f, PB_REGISTER_MAP_OUTPUT_RESPONSE, wire_map_output_reply(&no, &f.arena));
    const struct pb_register_query_results_response *results =
        carried(&f, PB_REGISTER_QUERY_RESULTS_RESPONSE, wire_results_reply(&yes, &f.arena));

    CHECK(!output->accepted);
    CHECK_STR(output->reason, "output does not fit the stage");
    CHECK(results->accepted);
    CHECK_STR(results->reason, "");
    end(&f);
}

TEST(clients_are_told_the_state_of_their_job)
{
    struct fixture f = {0};
    struct reply submit = {.kind = REPLY_SUBMIT};
    submit.u.job.job_id = "j1";
    submit.u.job.state = JOB_RUNNING;
    submit.u.job.existed = true;
    struct reply job = {.kind = REPLY_JOB};
    job.u.job.job_id = "j2";
    job.u.job.state = JOB_CANCELED;

    const struct pb_submit_query_response *query =
        carried(&f, PB_SUBMIT_QUERY_RESPONSE, wire_submit_query_reply(&submit, &f.arena));
    const struct pb_submit_tasks_response *tasks =
        carried(&f, PB_SUBMIT_TASKS_RESPONSE, wire_submit_tasks_reply(&submit, &f.arena));
    const struct pb_cancel_query_response *cancel =
        carried(&f, PB_CANCEL_QUERY_RESPONSE, wire_cancel_reply(&job, &f.arena));
    const struct pb_retry_job_response *retry = carried(&f, PB_RETRY_JOB_RESPONSE, wire_retry_reply(&job, &f.arena));

    CHECK_STR(query->query_id, "j1");
    CHECK_INT(query->state, CAPSTAN__V1__QUERY_STATE__QUERY_STATE_RUNNING);
    CHECK(query->existed);
    CHECK_STR(tasks->job_id, "j1");
    CHECK_INT(tasks->state, CAPSTAN__V1__QUERY_STATE__QUERY_STATE_RUNNING);
    CHECK(tasks->existed);
    CHECK_STR(cancel->query_id, "j2");
    CHECK_INT(cancel->state, CAPSTAN__V1__QUERY_STATE__QUERY_STATE_CANCELED);
    CHECK_STR(retry->query_id, "j2");
    CHECK_INT(retry->state, CAPSTAN__V1__QUERY_STATE__QUERY_STATE_CANCELED);
    end(&f);
}

TEST(a_reply_of_another_kind_is_a_programmers_error)
{
    struct fixture f = {0};
    struct reply reply = {.kind = REPLY_ERROR};

    CHECK_ABORTS(wire_report_reply(&reply, &f.arena));
    CHECK_ABORTS(wire_tasks_reply(&reply, &f.arena));
    end(&f);
}

TEST(a_job_looks_the_same_from_memory_and_from_the_store)
{
    struct fixture f = {0};
    struct job_status status = {.job_id = "j",
                                .name = "nightly",
                                .kind = JOB_KIND_TREE,
                                .state = JOB_FAILED,
                                .submitted_at_ms = 1,
                                .started_at_ms = 2,
                                .finished_at_ms = 3,
                                .message = "it broke"};
    struct row_job row = {.job_id = "j",
                          .name = "nightly",
                          .kind = JOB_KIND_TREE,
                          .state = JOB_FAILED,
                          .submitted_at_ms = 1,
                          .started_at_ms = 2,
                          .finished_at_ms = 3,
                          .message = "it broke"};
    struct buf other = {0};

    const struct pb_query_status *m = carried(&f, PB_QUERY_STATUS, wire_job_status(&status, &f.arena));
    wire_encode(wire_job_row(&row, &f.arena), &other);

    CHECK_UINT(other.n, f.bytes.n);
    CHECK_MEM(other.data, f.bytes.data, other.n);
    CHECK_STR(m->query_id, "j");
    CHECK_STR(m->name, "nightly");
    CHECK_STR(m->kind, "tree");
    CHECK_INT(m->state, CAPSTAN__V1__QUERY_STATE__QUERY_STATE_FAILED);
    CHECK_UINT(m->submitted_at_ms, 1);
    CHECK_UINT(m->started_at_ms, 2);
    CHECK_UINT(m->finished_at_ms, 3);
    CHECK_STR(m->message, "it broke");
    buf_deinit(&other);
    end(&f);
}

TEST(a_text_that_the_other_end_would_refuse_is_cut)
{
    struct fixture f = {0};
    struct buf text = {0};
    for (size_t i = 0; i < LIMIT_TEXT_BYTES / 3 + 1; i++) {
        buf_text(&text, "\xe2\x82\xac");
    }
    struct job_status status = {.job_id = "j", .message = text.data};

    const struct pb_query_status *m = carried(&f, PB_QUERY_STATUS, wire_job_status(&status, &f.arena));

    CHECK_UINT(strlen(m->message), LIMIT_TEXT_BYTES / 3 * 3);
    CHECK_STR(m->name, "");
    CHECK_STR(m->kind, "query");
    buf_deinit(&text);
    end(&f);
}

TEST(a_stage_counts_its_tasks)
{
    struct fixture f = {0};
    struct stage_status status = {.name = "load", .n_tasks = 21, .counts = {1, 2, 3, 4, 5, 6}, .rows = 7, .bytes = 8};

    const struct pb_stage_status *m = carried(&f, PB_STAGE_STATUS, wire_stage(9, &status, &f.arena));

    CHECK_UINT(m->stage_id, 9);
    CHECK_STR(m->name, "load");
    CHECK_UINT(m->tasks, 21);
    CHECK_UINT(m->queued, 1);
    CHECK_UINT(m->running, 2);
    CHECK_UINT(m->succeeded, 3);
    CHECK_UINT(m->failed, 4);
    CHECK_UINT(m->canceled, 5);
    CHECK_UINT(m->skipped, 6);
    CHECK_UINT(m->rows, 7);
    CHECK_UINT(m->bytes, 8);
    end(&f);
}

TEST(a_task_is_shown_without_its_token)
{
    struct fixture f = {0};
    struct row_task row = {.ref = an_attempt.task,
                           .attempt = 4,
                           .token = an_attempt.token,
                           .state = TASK_SKIPPED,
                           .worker_id = "w1",
                           .message = "m",
                           .started_at_ms = 1,
                           .finished_at_ms = -1,
                           .failures = 2,
                           .rows = 3,
                           .bytes = 4};

    const struct pb_task_status *m = carried(&f, PB_TASK_STATUS, wire_task_row(&row, "load", &f.arena));

    CHECK_STR(m->ref->query_id, "job");
    CHECK_UINT(m->ref->stage_id, 2);
    CHECK_UINT(m->ref->task_id, 3);
    CHECK_UINT(m->ref->attempt, 4);
    CHECK_UINT(m->ref->lease_token.len, 0);
    CHECK_STR(m->name, "load");
    CHECK_INT(m->state, CAPSTAN__V1__TASK_STATE__TASK_STATE_SKIPPED);
    CHECK_STR(m->worker_id, "w1");
    CHECK_STR(m->message, "m");
    CHECK_UINT(m->started_at_ms, 1);
    CHECK_UINT(m->finished_at_ms, 0);
    CHECK_UINT(m->failures, 2);
    CHECK_UINT(m->rows, 3);
    CHECK_UINT(m->bytes, 4);
    row.worker_id = NULL;
    CHECK_STR(((struct pb_task_status *)carried(&f, PB_TASK_STATUS, wire_task_row(&row, NULL, &f.arena)))->name, "");
    end(&f);
}

TEST(an_event_is_about_an_attempt_a_job_or_a_node)
{
    struct fixture f = {0};
    struct row_event attempt = {.seq = 5,
                                .at_ms = 6,
                                .type = EVENT_ASSIGNED,
                                .ref = an_attempt.task,
                                .attempt = 4,
                                .worker_id = "w1",
                                .message = "a \"b\"\n"};
    struct row_event job = {.type = EVENT_CREATED, .ref = {"job", EVENT_WHOLE_JOB, EVENT_WHOLE_JOB}};
    struct row_event node = {.type = EVENT_LOST, .worker_id = "w1"};

    const struct pb_event *m = carried(&f, PB_EVENT, wire_event_row(&attempt, &f.arena));
    CHECK_UINT(m->seq, 5);
    CHECK_UINT(m->at_ms, 6);
    CHECK_STR(m->type, "assigned");
    CHECK_STR(m->ref->query_id, "job");
    CHECK_UINT(m->ref->stage_id, 2);
    CHECK_UINT(m->ref->attempt, 4);
    CHECK_STR(m->worker_id, "w1");
    CHECK_STR(m->details, "{\"message\":\"a \\\"b\\\"\\n\"}");
    m = carried(&f, PB_EVENT, wire_event_row(&job, &f.arena));
    CHECK_STR(m->ref->query_id, "job");
    CHECK_UINT(m->ref->stage_id, 0);
    CHECK_UINT(m->ref->task_id, 0);
    CHECK_UINT(m->ref->attempt, 0);
    CHECK_STR(m->details, "");
    m = carried(&f, PB_EVENT, wire_event_row(&node, &f.arena));
    CHECK(m->ref == NULL);
    CHECK_STR(m->type, "lost");
    end(&f);
}

TEST(a_node_shows_what_it_offers)
{
    struct fixture f = {0};
    static const char *const labels[] = {"ml", "big"};
    static const char *const executors[] = {"command", "sql"};
    static const struct capability capabilities[] = {
        {.key = "arm", .kind = VALUE_BOOL},
        {.key = "cpu_cores", .kind = VALUE_NUMBER, .number = 8},
        {.key = "gpu", .kind = VALUE_TEXT, .text = "nv\"idia"},
        {.key = "labels", .kind = VALUE_LIST, .items = labels, .n_items = 2},
        {.key = "ssd", .kind = VALUE_BOOL, .number = 1},
    };
    struct offer offer = {.executors = {executors, 2}, .ops = {labels, 2}, .capabilities = {capabilities, 5}};
    struct node_info node = {.worker_id = "w1",
                             .address = "h:1",
                             .version = "1.2",
                             .status = NODE_STALE,
                             .blacklisted = true,
                             .draining = true,
                             .slots = 4,
                             .running = 3,
                             .failures = 2,
                             .last_seen_ms = 9,
                             .offer = &offer};

    const struct pb_node *m = carried(&f, PB_NODE, wire_node(&node, &f.arena));

    CHECK_STR(m->worker_id, "w1");
    CHECK_STR(m->address, "h:1");
    CHECK_STR(m->version, "1.2");
    CHECK_STR(m->status, "stale");
    CHECK(m->blacklisted);
    CHECK(m->draining);
    CHECK_UINT(m->slots, 4);
    CHECK_UINT(m->running_tasks, 3);
    CHECK_UINT(m->failures, 2);
    CHECK_UINT(m->last_seen_ms, 9);
    CHECK_UINT(m->n_executor_types, 2);
    CHECK_STR(m->executor_types[1], "sql");
    CHECK_UINT(m->n_custom_operator_capabilities, 2);
    CHECK_STR(m->capabilities_json,
              "{\"arm\":false,\"cpu_cores\":8,\"gpu\":\"nv\\\"idia\",\"labels\":[\"ml\",\"big\"],\"ssd\":true}");
    end(&f);
}

TEST(a_node_that_offers_nothing_has_an_empty_object)
{
    struct fixture f = {0};
    struct offer offer = {0};
    struct node_info node = {.worker_id = "w1", .status = NODE_DEAD, .offer = &offer};

    const struct pb_node *m = carried(&f, PB_NODE, wire_node(&node, &f.arena));

    CHECK_STR(m->capabilities_json, "{}");
    CHECK_STR(m->status, "dead");
    CHECK_STR(m->address, "");
    end(&f);
}

TEST(a_reason_names_the_first_task_that_waits)
{
    struct fixture f = {0};
    struct pending_reason reason = {.stage = 1, .task = 2, .n_tasks = 3, .reason = "waiting for stage 0"};

    const struct pb_pending_reason *m = carried(&f, PB_PENDING_REASON, wire_pending_reason("job", &reason, &f.arena));

    CHECK_STR(m->ref->query_id, "job");
    CHECK_UINT(m->ref->stage_id, 1);
    CHECK_UINT(m->ref->task_id, 2);
    CHECK_UINT(m->tasks, 3);
    CHECK_STR(m->reason, "waiting for stage 0");
    end(&f);
}

TEST(every_state_comes_back)
{
    for (unsigned i = 0; i <= JOB_CANCELED; i++) {
        enum job_state state = (enum job_state)i;
        enum job_state read = (enum job_state)99;
        enum job_state word = (enum job_state)99;
        CHECK(wire_job_state_read(wire_job_state(state), &read));
        CHECK_INT(read, state);
        CHECK_ERR(wire_job_state_word(job_state_name(state), &word, NULL), ERR_OK);
        CHECK_INT(word, state);
    }
    for (unsigned i = 0; i < TASK_STATE_COUNT; i++) {
        enum task_state state = (enum task_state)i;
        enum task_state read = (enum task_state)99;
        enum task_state word = (enum task_state)99;
        CHECK(wire_task_state_read(wire_task_state(state), &read));
        CHECK_INT(read, state);
        CHECK_ERR(wire_task_state_word(task_state_name(state), &word, NULL), ERR_OK);
        CHECK_INT(word, state);
    }
    CHECK_INT(wire_job_state(JOB_CANCELED), CAPSTAN__V1__QUERY_STATE__QUERY_STATE_CANCELED);
    CHECK_INT(wire_task_state(TASK_SKIPPED), CAPSTAN__V1__TASK_STATE__TASK_STATE_SKIPPED);
}

TEST(a_state_that_is_none_is_not_read)
{
    enum job_state job = JOB_FAILED;
    enum task_state task = TASK_FAILED;

    CHECK(!wire_job_state_read(CAPSTAN__V1__QUERY_STATE__QUERY_STATE_UNSPECIFIED, &job));
    CHECK(!wire_job_state_read((Capstan__V1__QueryState)6, &job));
    CHECK(!wire_task_state_read(CAPSTAN__V1__TASK_STATE__TASK_STATE_UNSPECIFIED, &task));
    CHECK(!wire_task_state_read((Capstan__V1__TaskState)7, &task));
    CHECK(!wire_task_state_read((Capstan__V1__TaskState)-1, &task));
    CHECK_INT(job, JOB_FAILED);
    CHECK_INT(task, TASK_FAILED);
}

TEST(a_word_that_is_no_state_is_answered_with_those_that_are)
{
    struct error e = {0};
    enum job_state job = JOB_FAILED;
    enum task_state task = TASK_FAILED;

    CHECK_ERR(wire_job_state_word("done", &job, &e), ERR_INVALID);
    CHECK_STR(e.message, "state: must be queued, running, succeeded, failed or canceled, got 'done'");
    CHECK_ERR(wire_task_state_word("FAILED", &task, &e), ERR_INVALID);
    CHECK_STR(e.message, "state: must be queued, running, succeeded, failed, canceled or skipped, got 'FAILED'");
    CHECK_INT(job, JOB_FAILED);
    CHECK_INT(task, TASK_FAILED);
}
