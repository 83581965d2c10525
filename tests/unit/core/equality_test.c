/*
 * equality_test.c - core_equal is what proves recovery, so it must see every durable difference: each case changes one
 * field of one stored row, loads a core from that, and wants it to differ from the core that wrote the rows. Fields that
 * follow from others are left out: a job's inline bytes from its results, an output's address from its node.
 */
#include <string.h>

#include "cluster.h"

/* One changed field: of the row of that kind about that task (or that worker). */
struct change {
    const char *what;
    enum row_kind kind;
    void (*apply)(struct row *row);
    uint32_t stage;
    uint32_t task;
};

#define CHANGE(name, type, statement)                                                                                  \
    static void change_##name(struct row *row)                                                                         \
    {                                                                                                                  \
        struct type *r = (struct type *)(void *)row;                                                                   \
        statement;                                                                                                     \
    }

static struct partition CHANGED_PARTITIONS[2] = {{.bytes = 1, .rows = 1, .batches = 1, .checksum = 1},
                                                 {.bytes = 2, .rows = 2, .batches = 1, .checksum = 2}};
static const uint64_t CHANGED_RECOVERIES[1] = {99};
static const char *const CHANGED_NODES[1] = {"w9"};
static const struct offer CHANGED_OFFER = {.executors = {CHANGED_NODES, 1}};

CHANGE(job_priority, row_job, r->priority = 0)
CHANGE(job_name, row_job, r->name = "other")
CHANGE(job_key, row_job, r->idempotency_key = "other")
CHANGE(job_content, row_job, r->content.bytes[3]++)
CHANGE(job_submitted, row_job, r->submitted_at_ms--)
CHANGE(job_started, row_job, r->started_at_ms++)
CHANGE(stage_recovered, row_stage, (r->recovered = CHANGED_RECOVERIES, r->n_recovered = 1))
CHANGE(task_inputs, row_task, r->inputs.bytes[0]++)
CHANGE(task_attempt, row_task, r->attempt++)
CHANGE(task_failures, row_task, r->failures++)
CHANGE(task_token, row_task, r->token.bits[0]++)
CHANGE(task_failed_on, row_task, r->failed_on = ((struct string_list){CHANGED_NODES, 1}))
CHANGE(task_ready_at, row_task, r->ready_at_ms -= 5)
CHANGE(task_rows, row_task, r->rows++)
CHANGE(task_bytes, row_task, r->bytes++)
CHANGE(task_outcome, row_task, r->outcome = OUTCOME_LOST)
CHANGE(output_partitions, row_map_output, r->partitions = CHANGED_PARTITIONS)
CHANGE(output_worker, row_map_output, r->worker_id = "w2")
CHANGE(output_incarnation, row_map_output, r->incarnation = "other")
CHANGE(result_bytes, row_result, r->bytes++)
CHANGE(result_rows, row_result, r->rows++)
CHANGE(result_inline, row_result, r->is_inline = false)
CHANGE(node_incarnation, row_node, r->incarnation = "other")
CHANGE(node_past, row_node, r->past_incarnations[0] = "other")
CHANGE(node_address, row_node, r->address = "elsewhere:1")
CHANGE(node_version, row_node, r->version = "2.0")
CHANGE(node_slots, row_node, r->slots++)
CHANGE(node_offer, row_node, r->offer = &CHANGED_OFFER)
CHANGE(node_draining, row_node, r->draining = true)
CHANGE(node_failures, row_node, r->failures++)
CHANGE(node_blacklisted, row_node, r->blacklisted_until_ms = INT64_MAX)
CHANGE(node_status, row_node, r->status = NODE_DEAD)
CHANGE(node_live, row_node, r->is_live = false)

/* Query "q": 0/0 is mapped, 0/1 runs, 0/2 is in backoff, 0/3 was released; 1/0 has a result, 3/0 only rows. */
static const struct change CHANGES[] = {
    {"job priority", ROW_JOB, change_job_priority, 0, 0},
    {"job name", ROW_JOB, change_job_name, 0, 0},
    {"job idempotency key", ROW_JOB, change_job_key, 0, 0},
    {"job content", ROW_JOB, change_job_content, 0, 0},
    {"job submitted_at", ROW_JOB, change_job_submitted, 0, 0},
    {"job started_at", ROW_JOB, change_job_started, 0, 0},
    {"stage recoveries", ROW_STAGE, change_stage_recovered, 0, 0},
    {"task inputs", ROW_TASK, change_task_inputs, 0, 3},
    {"task attempt", ROW_TASK, change_task_attempt, 0, 3},
    {"task failures", ROW_TASK, change_task_failures, 0, 2},
    {"task token", ROW_TASK, change_task_token, 1, 0},
    {"task failed_on", ROW_TASK, change_task_failed_on, 0, 3},
    {"task ready_at", ROW_TASK, change_task_ready_at, 0, 2},
    {"task rows", ROW_TASK, change_task_rows, 3, 0},
    {"task bytes", ROW_TASK, change_task_bytes, 3, 0},
    {"task outcome", ROW_TASK, change_task_outcome, 0, 2},
    {"output partitions", ROW_MAP_OUTPUT, change_output_partitions, 0, 0},
    {"output worker", ROW_MAP_OUTPUT, change_output_worker, 0, 0},
    {"output incarnation", ROW_MAP_OUTPUT, change_output_incarnation, 0, 0},
    {"result bytes", ROW_RESULT, change_result_bytes, 1, 0},
    {"result rows", ROW_RESULT, change_result_rows, 1, 0},
    {"result inline", ROW_RESULT, change_result_inline, 1, 0},
    {"node incarnation", ROW_NODE, change_node_incarnation, 0, 0},
    {"node past incarnation", ROW_NODE, change_node_past, 0, 0},
    {"node address", ROW_NODE, change_node_address, 0, 0},
    {"node version", ROW_NODE, change_node_version, 0, 0},
    {"node slots", ROW_NODE, change_node_slots, 0, 0},
    {"node offer", ROW_NODE, change_node_offer, 0, 0},
    {"node draining", ROW_NODE, change_node_draining, 0, 0},
    {"node failures", ROW_NODE, change_node_failures, 0, 0},
    {"node blacklisting", ROW_NODE, change_node_blacklisted, 0, 0},
    {"node status", ROW_NODE, change_node_status, 0, 0},
    {"node liveness", ROW_NODE, change_node_live, 0, 0},
};

struct changed_load {
    struct core *core;
    struct core_input input;
    struct effects fx;
    const struct change *change; /* NULL: none */
    uint32_t n_changed;
};

static struct task_ref ref_of(const struct row *row)
{
    switch ((int)row->kind) {
    case ROW_STAGE:
        return at("q", ((const struct row_stage *)(const void *)row)->stage, 0);
    case ROW_TASK:
        return ((const struct row_task *)(const void *)row)->ref;
    case ROW_MAP_OUTPUT:
        return ((const struct row_map_output *)(const void *)row)->ref;
    case ROW_RESULT:
        return ((const struct row_result *)(const void *)row)->ref;
    case ROW_NODE: /* w1 only */
        return at("", strcmp(((const struct row_node *)(const void *)row)->worker_id, "w1") == 0 ? 0 : 1, 0);
    default:
        return at("q", 0, 0);
    }
}

static void load_changed(void *context, const struct row *row)
{
    struct changed_load *load = context;
    union {
        struct row row;
        struct row_job job;
        struct row_stage stage;
        struct row_task task;
        struct row_lease lease;
        struct row_map_output output;
        struct row_result result;
        struct row_node node;
    } copy;
    static const size_t sizes[] = {
        [ROW_JOB] = sizeof(struct row_job),       [ROW_STAGE] = sizeof(struct row_stage),
        [ROW_TASK] = sizeof(struct row_task),     [ROW_MAP_OUTPUT] = sizeof(struct row_map_output),
        [ROW_RESULT] = sizeof(struct row_result), [ROW_NODE] = sizeof(struct row_node),
    };
    const struct change *change = load->change;
    struct task_ref ref = ref_of(row);
    struct command command = {.kind = CMD_LOAD, .u = {.load = row}};
    if (change != NULL && row->kind == change->kind && ref.stage == change->stage && ref.task == change->task) {
        memcpy(&copy, row, sizes[row->kind]);
        change->apply(&copy.row);
        command.u.load = &copy.row;
        load->n_changed++;
    }
    core_step(load->core, &load->input, &command, &load->fx);
}

static bool is_equal_after(struct cluster *c, const struct change *change)
{
    struct changed_load load = {.core = core_new(&c->config, 3), .change = change};
    load.input = (struct core_input){.now_ms = c->now_ms, .seed = {8, 9}};
    row_store_load(&c->store, false, load_changed, &load);
    struct command loaded = {.kind = CMD_LOADED};
    core_step(load.core, &load.input, &loaded, &load.fx);
    CHECK_UINT(load.n_changed, change != NULL);
    char why[200] = "";
    bool equal = core_equal(c->core, load.core, why, sizeof(why));
    CHECK(equal == (why[0] == '\0'));
    core_free(load.core);
    effects_deinit(&load.fx);
    return equal;
}

TEST(equality_sees_every_durable_field)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    worker_restarts(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(4, 2), RESULT_STAGE(1), QUERY_STAGE(2, AFTER(READS(0))), QUERY_STAGE(1)};
    struct cmd_submit request = submit_request("q", JOB_KIND_QUERY, stages, 4);
    request.name = "name";
    request.idempotency_key = "key";
    submit_ok(&c, &request);
    worker_maps(&c, "w1", at("q", 0, 0), 2);
    worker_takes_task(&c, "w1", at("q", 0, 1));
    CHECK_INT(worker_fails(&c, "w2", worker_takes_task(&c, "w2", at("q", 0, 2)), "boom"), REFUSE_NONE);
    const struct assignment *last = worker_takes_task(&c, "w2", at("q", 0, 3));
    const struct assignment *final = worker_takes_task(&c, "w2", at("q", 1, 0));
    CHECK_INT(worker_registers_result(&c, "w2", final, 77, true), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w2", final), REFUSE_NONE);
    struct task_report plain = report_on(worker_takes_task(&c, "w2", at("q", 3, 0)), TASK_SUCCEEDED);
    plain.rows = 7;
    plain.bytes = 70;
    CHECK_INT(worker_reports(&c, "w2", &plain), REFUSE_NONE);
    CHECK_INT(worker_releases(&c, "w2", last), REFUSE_NONE);

    CHECK(is_equal_after(&c, NULL));
    uint32_t missed = 0;
    for (size_t i = 0; i < ARRAY_LEN(CHANGES); i++) {
        if (is_equal_after(&c, &CHANGES[i])) {
            print_error("core_equal does not see a change of: %s\n", CHANGES[i].what);
            missed++;
        }
    }
    CHECK_UINT(missed, 0);
    cluster_finish(&c);
}
