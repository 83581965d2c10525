#include "script.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/sha256.h"
#include "core/core.h"

static const char *const executors[] = {"command", "sleep"};
static const struct requirement need = {.executor = "command"};
static const struct requirement need_sleep = {.executor = "sleep"};

static const struct column payload_columns[] = {{"job_id", COLUMN_TEXT, ROLE_KEY, 0},
                                                {"digest", COLUMN_DIGEST, ROLE_KEY, 0},
                                                {"bytes", COLUMN_PARTITIONS, ROLE_FIXED, 0}}; /* bytes, too */
static const struct table payload_table = {.name = "payloads",
                                           .kind = ROW_META,
                                           .new_offset = -1,
                                           .columns = payload_columns,
                                           .n_columns = ARRAY_LEN(payload_columns)};

struct recorder {
    struct core *core;
    struct effects fx;
    struct arena *arena;
    int64_t now_ms;
    uint64_t seed;
    enum script_shape shape;
    struct op *payloads; /* of the transaction that is being recorded */
    uint32_t n_payloads;
};

const struct table *script_table(enum row_kind kind)
{
    return kind == ROW_META ? &payload_table : table_of(kind);
}

const char *script_input(struct arena *arena, const char *job_id)
{
    return arena_format(arena, "{\"input\":\"%-52.52s\"}", job_id);
}

const char *script_job_id(struct arena *arena, uint64_t number)
{
    uint64_t mixed = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return arena_format(arena, "%08" PRIx64 "-%04" PRIx64 "-7%03" PRIx64 "-%04" PRIx64 "-%012" PRIx64, number >> 16,
                        number & 0xffff, mixed & 0xfff, (mixed >> 12) & 0xffff, (mixed >> 16) & 0xffffffffffff);
}

static void step(struct recorder *r, const struct command *command)
{
    struct core_input input = {.now_ms = r->now_ms, .seed = {++r->seed, r->seed * 7919}};
    core_step(r->core, &input, command, &r->fx);
}

static void tick(struct recorder *r)
{
    step(r, &(struct command){.kind = CMD_TICK});
    r->now_ms++;
}

static void join(struct recorder *r)
{
    step(r, &(struct command){.kind = CMD_REGISTER,
                              .u.reg = {.worker_id = "worker-1",
                                        .incarnation = "i1",
                                        .address = "127.0.0.1:1",
                                        .slots = 8,
                                        .offer = {.executors = {executors, ARRAY_LEN(executors)}},
                                        .version = "1"}});
    tick(r);
}

/* ---- rows to values ---- */

static struct value keep(struct arena *arena, struct value value)
{
    if (value.type >= VALUE_IS_TEXT) {
        char *bytes = arena_alloc(arena, value.n + 1);
        if (value.n > 0) {
            memcpy(bytes, value.bytes, value.n);
        }
        bytes[value.n] = '\0';
        value.bytes = bytes;
    }
    return value;
}

static struct op op_of_lease_gone(struct recorder *r, const struct row *row)
{
    const struct row_lease_gone *gone = (const struct row_lease_gone *)(const void *)row;
    struct row_lease lease = {.row = {.kind = ROW_LEASE}, .ref = gone->ref, .token = gone->token};
    const struct table *table = table_of(ROW_LEASE);
    struct value *values = arena_zalloc(r->arena, table->n_columns * sizeof *values);
    for (uint32_t i = 0; i < table->n_columns; i++) {
        if (table->columns[i].role == ROLE_KEY || table->columns[i].kind == COLUMN_TOKEN) {
            values[i] = keep(r->arena, table_get(&lease.row, &table->columns[i], r->arena));
        }
    }
    return (struct op){OP_GONE, table, values};
}

static struct op op_of(struct recorder *r, const struct row *row)
{
    const struct table *table = table_of(row->kind);
    if (row->kind == ROW_LEASE_GONE) {
        return op_of_lease_gone(r, row);
    }
    if (table == NULL) {
        fprintf(stderr, "bench-store: a lifecycle has a row of kind %d, which the bare engines do not know\n",
                row->kind);
        exit(1);
    }
    struct op op = {table_row_is_new(table, row) ? OP_NEW : OP_CHANGED, table, NULL};
    struct value *values = arena_zalloc(r->arena, table->n_columns * sizeof *values);
    for (uint32_t i = 0; i < table->n_columns; i++) {
        if (op.what == OP_NEW || table->columns[i].role != ROLE_FIXED) {
            values[i] = keep(r->arena, table_get(row, &table->columns[i], r->arena));
        }
    }
    op.values = values;
    return op;
}

/* Events are numbered over all scripts, as over all leaders. */
static uint64_t last_event_seq;

static void load_meta(struct recorder *r)
{
    struct row_meta meta = {.row = {.kind = ROW_META}, .last_event_seq = last_event_seq};
    step(r, &(struct command){.kind = CMD_LOAD, .u.load = &meta.row});
    step(r, &(struct command){.kind = CMD_LOADED});
}

/* What the steps since the last call have written. */
static struct transaction take_rows(struct recorder *r)
{
    uint32_t n = 0;
    for (const struct row *row = r->fx.rows; row != NULL; row = row->next) {
        n++;
    }
    struct op *ops = arena_alloc(r->arena, ((size_t)n + r->n_payloads) * sizeof *ops);
    uint32_t at = 0;
    for (const struct row *row = r->fx.rows; row != NULL; row = row->next) {
        ops[at++] = op_of(r, row);
        if (row->kind == ROW_EVENT) {
            last_event_seq = ((const struct row_event *)(const void *)row)->seq;
        }
    }
    for (uint32_t i = 0; i < r->n_payloads; i++) {
        ops[at++] = r->payloads[i];
    }
    r->n_payloads = 0;
    effects_reset(&r->fx);
    return (struct transaction){ops, at};
}

/* ---- a group ---- */

/* A row of `payloads` for this transaction, and what a task says about it. */
static struct task_spec add_input(struct recorder *r, const char *job_id, const char *text)
{
    struct task_spec task = {.inputs_bytes = (uint32_t)strlen(text)};
    struct value *values = arena_zalloc(r->arena, payload_table.n_columns * sizeof *values);
    sha256_once(text, task.inputs_bytes, task.inputs.bytes);
    values[0] = (struct value){.type = VALUE_IS_TEXT, .bytes = job_id, .n = strlen(job_id)};
    values[1] = (struct value){.type = VALUE_IS_BYTES, .bytes = &task.inputs, .n = sizeof task.inputs};
    values[1] = keep(r->arena, values[1]);
    values[2] = (struct value){.type = VALUE_IS_BYTES, .bytes = text, .n = task.inputs_bytes};
    r->payloads[r->n_payloads++] = (struct op){OP_NEW, &payload_table, values};
    return task;
}

static void submit(struct recorder *r, const char *job_id)
{
    struct task_spec task;
    struct stage_spec stage = {.name = "task", .need = &need, .n_tasks = 1, .backoff_ms = -1};
    if (r->shape == SCRIPT_INPUTS) {
        task = add_input(r, job_id, script_input(r->arena, job_id));
        stage.tasks = &task;
    }
    step(r, &(struct command){
                .kind = CMD_SUBMIT,
                .u.submit = {.job_id = job_id, .kind = JOB_KIND_TREE, .priority = 2, .stages = &stage, .n_stages = 1}});
}

/* As bench_write_tree of src/main has it. */
static void submit_tree(struct recorder *r, const char *job_id, uint32_t width)
{
    struct stage_spec *stages = arena_zalloc(r->arena, width * sizeof *stages);
    struct task_spec task = add_input(r, job_id, "{\"ms\":0}");
    for (uint32_t i = 0; i < width; i++) {
        stages[i] = (struct stage_spec){.name = arena_format(r->arena, "t%u", i),
                                        .need = &need_sleep,
                                        .tasks = &task,
                                        .n_tasks = 1,
                                        .backoff_ms = -1};
    }
    step(r, &(struct command){.kind = CMD_SUBMIT,
                              .u.submit = {.job_id = job_id,
                                           .kind = JOB_KIND_TREE,
                                           .name = "bench",
                                           .priority = 2,
                                           .stages = stages,
                                           .n_stages = width}});
}

static void record_group(struct recorder *r, uint32_t width, uint64_t first, struct transaction *out)
{
    struct attempt_ref *refs = mem_calloc(width, sizeof *refs);
    uint32_t n = 0;
    for (uint32_t i = 0; i < width && r->shape != SCRIPT_TREE; i++) {
        submit(r, script_job_id(r->arena, first + i));
    }
    if (r->shape == SCRIPT_TREE) {
        submit_tree(r, script_job_id(r->arena, first), width);
    }
    tick(r);
    out[0] = take_rows(r);
    step(r, &(struct command){.kind = CMD_GET_TASK,
                              .u.get_task = {.worker_id = "worker-1", .incarnation = "i1", .capacity = width}});
    tick(r);
    for (const struct reply *reply = r->fx.replies; reply != NULL; reply = reply->next) {
        for (const struct assignment *a = reply->kind == REPLY_TASKS ? reply->u.tasks.first : NULL; a != NULL;
             a = a->next) {
            refs[n] = a->ref;
            refs[n++].task.job_id = arena_strdup(r->arena, a->ref.task.job_id);
        }
    }
    ASSERT(n == width);
    out[1] = take_rows(r);
    for (uint32_t i = 0; i < width; i++) {
        struct task_report report = {.ref = refs[i], .state = TASK_SUCCEEDED};
        step(r, &(struct command){
                    .kind = CMD_REPORT,
                    .u.report = {.worker_id = "worker-1", .incarnation = "i1", .reports = &report, .n_reports = 1}});
    }
    tick(r);
    out[2] = take_rows(r);
    mem_free(refs);
}

void script_init(struct script *script, enum script_shape shape, uint32_t n_groups, uint32_t width, uint64_t first)
{
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_worker = 100000;
    config.max_concurrent_tasks_per_query = 1000000;
    *script = (struct script){.n = n_groups * GROUP_TRANSACTIONS};
    script->transactions = mem_calloc(script->n, sizeof *script->transactions);
    struct recorder r = {.core = core_new(&config, 1),
                         .arena = &script->arena,
                         .now_ms = INT64_C(1700000000000),
                         .seed = first << 20,
                         .shape = shape,
                         .payloads = mem_calloc(width, sizeof *r.payloads)};
    load_meta(&r);
    join(&r);
    struct transaction ignored = take_rows(&r); /* the worker's own */
    (void)ignored;
    for (uint32_t i = 0; i < n_groups; i++) {
        record_group(&r, width, first + (uint64_t)i * width, script->transactions + (size_t)i * GROUP_TRANSACTIONS);
    }
    mem_free(r.payloads);
    core_free(r.core);
    effects_deinit(&r.fx);
}

void script_deinit(struct script *script)
{
    mem_free(script->transactions);
    arena_deinit(&script->arena);
}
