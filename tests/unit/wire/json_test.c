#include "../test.h"

#include <string.h>

#include "base/json.h"
#include "wire/json_shape.h"

/* The text is one line of JSON, and is this. */
static void check_json(struct buf *out, const char *expected)
{
    struct json *root = NULL;
    CHECK_STR(out->data, expected);
    CHECK_ERR(json_parse(out->data, out->n, &root, NULL), ERR_OK);
    CHECK(memchr(out->data, '\n', out->n) == NULL);
    json_free(root);
    buf_deinit(out);
}

static struct pb_attempt_ref ref_of(const char *job, uint64_t stage, uint64_t task, uint32_t attempt)
{
    struct pb_attempt_ref ref = CAPSTAN__V1__ATTEMPT_REF__INIT;
    ref.query_id = (char *)(uintptr_t)job;
    ref.stage_id = stage;
    ref.task_id = task;
    ref.attempt = attempt;
    ref.lease_token.data = (uint8_t *)(uintptr_t) "secret";
    ref.lease_token.len = 6;
    return ref;
}

static struct pb_query_status sample_job(void)
{
    struct pb_query_status job = CAPSTAN__V1__QUERY_STATUS__INIT;
    job.query_id = (char *)(uintptr_t) "j-1";
    job.state = CAPSTAN__V1__QUERY_STATE__QUERY_STATE_RUNNING;
    job.kind = (char *)(uintptr_t) "tree";
    job.name = (char *)(uintptr_t) "night\"ly";
    job.submitted_at_ms = 1700000000000;
    job.started_at_ms = 1700000000001;
    return job;
}

TEST(a_job_has_its_stages_and_null_for_what_is_not_yet)
{
    struct pb_stage_status first = CAPSTAN__V1__STAGE_STATUS__INIT;
    struct pb_stage_status second = CAPSTAN__V1__STAGE_STATUS__INIT;
    uint64_t parents[] = {0, 7};
    first.name = (char *)(uintptr_t) "extract";
    first.tasks = 1;
    first.succeeded = 1;
    first.rows = UINT64_MAX;
    second.stage_id = 1;
    second.parents = parents;
    second.n_parents = 2;
    second.tasks = 12;
    second.queued = 1;
    second.running = 2;
    second.failed = 4;
    second.canceled = 5;
    second.skipped = 6;
    second.bytes = 9;
    first.fraction = 1;
    second.fraction = 0.25;
    struct pb_stage_status *stages[] = {&first, &second};
    struct pb_query_status job = sample_job();
    job.stages = stages;
    job.n_stages = 2;
    struct buf out = {0};
    wire_json_job(&out, &job);
    check_json(
        &out,
        "{\"job_id\":\"j-1\",\"state\":\"running\",\"kind\":\"tree\",\"name\":\"night\\\"ly\","
        "\"submitted_at_ms\":1700000000000,\"started_at_ms\":1700000000001,\"finished_at_ms\":null,"
        "\"message\":null,\"stages\":[{\"stage\":0,\"name\":\"extract\",\"parents\":[],\"tasks\":1,\"queued\":0,"
        "\"running\":0,\"succeeded\":1,\"failed\":0,\"canceled\":0,\"skipped\":0,\"rows\":18446744073709551615,"
        "\"bytes\":0,\"fraction\":1},{\"stage\":1,\"name\":null,\"parents\":[0,7],\"tasks\":12,\"queued\":1,\"running\":2,"
        "\"succeeded\":0,\"failed\":4,\"canceled\":5,\"skipped\":6,\"rows\":0,\"bytes\":9,"
        "\"fraction\":0.25}]}");
}

TEST(a_list_of_jobs_says_where_to_go_on)
{
    struct pb_query_status job = sample_job();
    struct pb_query_status other = CAPSTAN__V1__QUERY_STATUS__INIT;
    other.query_id = (char *)(uintptr_t) "j-2";
    other.state = CAPSTAN__V1__QUERY_STATE__QUERY_STATE_FAILED;
    other.kind = (char *)(uintptr_t) "query";
    other.finished_at_ms = 5;
    other.message = (char *)(uintptr_t) "two\nlines";
    struct pb_query_status *list[] = {&job, &other};
    struct pb_list_jobs_response jobs = CAPSTAN__V1__LIST_JOBS_RESPONSE__INIT;
    struct buf out = {0};
    wire_json_jobs(&out, &jobs);
    check_json(&out, "{\"jobs\":[],\"next\":null}");
    jobs.jobs = list;
    jobs.n_jobs = 2;
    jobs.next = (char *)(uintptr_t) "j-2";
    wire_json_jobs(&out, &jobs);
    check_json(&out,
               "{\"jobs\":[{\"job_id\":\"j-1\",\"state\":\"running\",\"kind\":\"tree\",\"name\":\"night\\\"ly\","
               "\"submitted_at_ms\":1700000000000,\"started_at_ms\":1700000000001,\"finished_at_ms\":null,"
               "\"message\":null},{\"job_id\":\"j-2\",\"state\":\"failed\",\"kind\":\"query\",\"name\":null,"
               "\"submitted_at_ms\":null,\"started_at_ms\":null,\"finished_at_ms\":5,\"message\":\"two\\nlines\"}],"
               "\"next\":\"j-2\"}");
}

static void check_result(const char *json, size_t n, const char *expected)
{
    struct pb_task_status task = CAPSTAN__V1__TASK_STATUS__INIT;
    struct pb_attempt_ref ref = ref_of("j-1", 2, 0, 3);
    struct buf wanted = {0};
    struct buf out = {0};
    task.ref = &ref;
    task.name = (char *)(uintptr_t) "count";
    task.state = CAPSTAN__V1__TASK_STATE__TASK_STATE_SKIPPED;
    task.worker_id = (char *)(uintptr_t) "w1";
    task.failures = 2;
    task.started_at_ms = 10;
    task.result_json.data = (uint8_t *)(uintptr_t)json;
    task.result_json.len = n;
    struct pb_task_status *list[] = {&task};
    struct pb_list_tasks_response tasks = CAPSTAN__V1__LIST_TASKS_RESPONSE__INIT;
    tasks.tasks = list;
    tasks.n_tasks = 1;
    wire_json_tasks(&out, &tasks);
    buf_format(
        &wanted,
        "{\"tasks\":[{\"job_id\":\"j-1\",\"name\":\"count\",\"stage\":2,\"task\":0,\"attempt\":3,\"state\":\"skipped\","
        "\"worker_id\":\"w1\",\"message\":null,\"started_at_ms\":10,\"finished_at_ms\":null,\"failures\":2,\"rows\":0,"
        "\"bytes\":0,\"result\":%s}],\"next\":null}",
        expected);
    check_json(&out, wanted.data);
    buf_deinit(&wanted);
}

TEST(a_task_has_its_result_as_json_and_never_its_token)
{
    check_result("{ \"rows\":\n [ {\"n\": 42} ] }", 26, "{\"rows\":[{\"n\":42}]}");
    check_result(NULL, 0, "null");
    check_result("{broken", 7, "\"{broken\"");
    check_result("\xff", 1, "null");
}

TEST(a_task_that_never_ran_has_no_attempt)
{
    struct pb_task_status task = CAPSTAN__V1__TASK_STATUS__INIT;
    struct buf out = {0};
    wire_json_task(&out, &task);
    check_json(&out,
               "{\"job_id\":null,\"name\":null,\"stage\":null,\"task\":null,\"attempt\":null,\"state\":\"unknown\","
               "\"worker_id\":null,\"message\":null,\"started_at_ms\":null,\"finished_at_ms\":null,\"failures\":0,"
               "\"rows\":0,\"bytes\":0,\"result\":null}");
}

TEST(answers_to_a_submit_and_to_a_cancel_are_short)
{
    struct buf out = {0};
    wire_json_submitted(&out, "j-1", CAPSTAN__V1__QUERY_STATE__QUERY_STATE_QUEUED, true);
    check_json(&out, "{\"job_id\":\"j-1\",\"state\":\"queued\",\"existed\":true}");
    wire_json_job_state(&out, "j-1", CAPSTAN__V1__QUERY_STATE__QUERY_STATE_CANCELED);
    check_json(&out, "{\"job_id\":\"j-1\",\"state\":\"canceled\"}");
}

TEST(reasons_name_the_task_that_waits)
{
    struct pb_attempt_ref ref = ref_of("j-1", 1, 4, 0);
    struct pb_pending_reason reason = CAPSTAN__V1__PENDING_REASON__INIT;
    struct pb_pending_reason whole = CAPSTAN__V1__PENDING_REASON__INIT;
    struct pb_pending_reason *list[] = {&reason, &whole};
    struct pb_why_pending_response why = CAPSTAN__V1__WHY_PENDING_RESPONSE__INIT;
    struct buf out = {0};
    reason.ref = &ref;
    reason.reason = (char *)(uintptr_t) "no live worker has executor 'docker'";
    reason.tasks = 3;
    why.reasons = list;
    why.n_reasons = 2;
    wire_json_why(&out, "j-1", &why);
    check_json(&out,
               "{\"job_id\":\"j-1\",\"reasons\":[{\"stage\":1,\"task\":4,\"attempt\":null,\"reason\":\"no live worker "
               "has executor 'docker'\",\"tasks\":3},{\"stage\":null,\"task\":null,\"attempt\":null,\"reason\":null,"
               "\"tasks\":0}]}");
}

TEST(events_of_tasks_jobs_and_nodes_have_one_shape)
{
    struct pb_attempt_ref ref = ref_of("j-1", 0, 1, 2);
    struct pb_event event = CAPSTAN__V1__EVENT__INIT;
    struct buf out = {0};
    event.seq = 9;
    event.at_ms = 11;
    event.type = (char *)(uintptr_t) "failed";
    event.ref = &ref;
    event.worker_id = (char *)(uintptr_t) "w1";
    event.details = (char *)(uintptr_t) "{\"message\": \"exit code 1\"}";
    wire_json_event(&out, &event);
    check_json(&out,
               "{\"seq\":9,\"at_ms\":11,\"type\":\"failed\",\"job_id\":\"j-1\",\"stage\":0,\"task\":1,\"attempt\":2,"
               "\"worker_id\":\"w1\",\"details\":{\"message\":\"exit code 1\"}}");
    ref = ref_of("j-1", UINT32_MAX, UINT32_MAX, 0);
    event.details = (char *)(uintptr_t) "plain";
    event.resync = true;
    wire_json_event(&out, &event);
    check_json(
        &out, "{\"seq\":9,\"at_ms\":11,\"type\":\"failed\",\"job_id\":\"j-1\",\"stage\":null,\"task\":null,\"attempt\":"
              "null,\"worker_id\":\"w1\",\"details\":\"plain\",\"resync\":true}");
    ref = ref_of("j-1", 0, 0, 0);
    event.details = (char *)(uintptr_t) "";
    event.resync = false;
    wire_json_event(&out, &event); /* the job failed */
    check_json(
        &out, "{\"seq\":9,\"at_ms\":11,\"type\":\"failed\",\"job_id\":\"j-1\",\"stage\":null,\"task\":null,\"attempt\":"
              "null,\"worker_id\":\"w1\",\"details\":null}");
    event.type = (char *)(uintptr_t) "skipped";
    wire_json_event(&out, &event); /* its first task never ran */
    check_json(
        &out, "{\"seq\":9,\"at_ms\":11,\"type\":\"skipped\",\"job_id\":\"j-1\",\"stage\":0,\"task\":0,\"attempt\":null,"
              "\"worker_id\":\"w1\",\"details\":null}");
    event = (struct pb_event)CAPSTAN__V1__EVENT__INIT;
    event.type = (char *)(uintptr_t) "joined";
    wire_json_event(&out, &event);
    check_json(&out,
               "{\"seq\":0,\"at_ms\":null,\"type\":\"joined\",\"job_id\":null,\"stage\":null,\"task\":null,\"attempt\":"
               "null,\"worker_id\":null,\"details\":null}");
}

TEST(nodes_have_their_capabilities_as_json)
{
    char *executors[] = {(char *)(uintptr_t) "command", (char *)(uintptr_t) "http"};
    struct pb_node node = CAPSTAN__V1__NODE__INIT;
    struct pb_node bare = CAPSTAN__V1__NODE__INIT;
    struct pb_node *list[] = {&node, &bare};
    struct pb_list_nodes_response nodes = CAPSTAN__V1__LIST_NODES_RESPONSE__INIT;
    struct buf out = {0};
    node.worker_id = (char *)(uintptr_t) "w1";
    node.address = (char *)(uintptr_t) "127.0.0.1:7500";
    node.status = (char *)(uintptr_t) "healthy";
    node.blacklisted = true;
    node.slots = 4;
    node.running_tasks = 1;
    node.last_seen_ms = 77;
    node.executor_types = executors;
    node.n_executor_types = 2;
    node.capabilities_json = (char *)(uintptr_t) "{\"cpu_cores\": 8}";
    nodes.nodes = list;
    nodes.n_nodes = 2;
    wire_json_nodes(&out, &nodes);
    check_json(&out, "{\"nodes\":[{\"worker_id\":\"w1\",\"address\":\"127.0.0.1:7500\",\"status\":\"healthy\","
                     "\"blacklisted\":true,\"draining\":false,\"slots\":4,\"running_tasks\":1,\"failures\":0,"
                     "\"last_seen_ms\":77,\"executor_types\":[\"command\",\"http\"],\"capabilities\":{\"cpu_cores\":8},"
                     "\"custom_operator_capabilities\":[],\"version\":null},{\"worker_id\":null,\"address\":null,"
                     "\"status\":null,\"blacklisted\":false,\"draining\":false,\"slots\":0,\"running_tasks\":0,"
                     "\"failures\":0,\"last_seen_ms\":null,\"executor_types\":[],\"capabilities\":{},"
                     "\"custom_operator_capabilities\":[],\"version\":null}]}");
}

TEST(leader_and_tables_are_plain)
{
    struct pb_get_leader_response leader = CAPSTAN__V1__GET_LEADER_RESPONSE__INIT;
    struct pb_table table = CAPSTAN__V1__TABLE__INIT;
    struct pb_table *list[] = {&table};
    struct pb_list_tables_response tables = CAPSTAN__V1__LIST_TABLES_RESPONSE__INIT;
    struct buf out = {0};
    leader.node_id = (char *)(uintptr_t) "n1";
    leader.address = (char *)(uintptr_t) "127.0.0.1:7400";
    leader.epoch = 12;
    leader.role = (char *)(uintptr_t) "leader";
    wire_json_leader(&out, &leader);
    check_json(
        &out,
        "{\"node_id\":\"n1\",\"address\":\"127.0.0.1:7400\",\"epoch\":12,\"role\":\"leader\",\"staleness_ms\":0}");
    table.name = (char *)(uintptr_t) "trips";
    table.source = (char *)(uintptr_t) "data/*.parquet";
    table.format = (char *)(uintptr_t) "parquet";
    tables.tables = list;
    tables.n_tables = 1;
    wire_json_tables(&out, &tables);
    check_json(&out, "{\"tables\":[{\"name\":\"trips\",\"source\":\"data/*.parquet\",\"format\":\"parquet\"}]}");
}

TEST(an_error_has_code_message_detail_and_hint)
{
    struct error e = {0};
    struct buf out = {0};
    error_set(&e, ERR_INVALID, "line one\nline \"two\"\nline three");
    error_hint(&e, "try again");
    wire_json_error(&out, &e);
    check_json(&out, "{\"error\":{\"code\":\"invalid_argument\",\"message\":\"line one\",\"detail\":"
                     "\"line \\\"two\\\"\\nline three\",\"hint\":\"try again\"}}");
    e = (struct error){.code = ERR_NOT_FOUND};
    wire_json_error(&out, &e);
    check_json(
        &out,
        "{\"error\":{\"code\":\"not_found\",\"message\":\"there is no such thing\",\"detail\":null,\"hint\":null}}");
}

TEST(states_that_nobody_knows_are_called_so)
{
    CHECK_STR(wire_query_state_name(CAPSTAN__V1__QUERY_STATE__QUERY_STATE_SUCCEEDED), "succeeded");
    CHECK_STR(wire_query_state_name((Capstan__V1__QueryState)99), "unknown");
    CHECK_STR(wire_task_state_name(CAPSTAN__V1__TASK_STATE__TASK_STATE_CANCELED), "canceled");
    CHECK_STR(wire_task_state_name((Capstan__V1__TaskState)-1), "unknown");
}
