#include "integration/postgres/lifecycles.h"

static const char *const executors[] = {"command"};
static const struct requirement need = {.executor = "command"};

static void step(struct lifecycles *l, const struct command *command)
{
    struct core_input input = {.now_ms = l->now_ms, .seed = {++l->seed, l->seed * 7919}};
    core_step(l->core, &input, command, &l->fx);
}

/* What the steps since the last call have written becomes durable. */
static void commit(struct lifecycles *l)
{
    step(l, &(struct command){.kind = CMD_TICK});
    l->now_ms++;
    const struct row *rows = l->fx.rows;
    struct batch batch = {.rows = &rows, .n_rows = 1};
    CHECK(rows != NULL);
    CHECK_CALL(l->f, store_commit(l->f->store, &l->f->fence, &batch, &l->f->e), ERR_OK);
    effects_reset(&l->fx);
}

void lifecycles_begin(struct lifecycles *l, struct fixture *f)
{
    struct core_config config = core_config_default();
    struct row_meta meta = {.row = {.kind = ROW_META}};
    config.max_concurrent_tasks_per_worker = 100000;
    config.max_concurrent_tasks_per_query = 1000000;
    *l = (struct lifecycles){.f = f, .core = core_new(&config, 1), .now_ms = INT64_C(1700000000000)};
    step(l, &(struct command){.kind = CMD_LOAD, .u.load = &meta.row});
    step(l, &(struct command){.kind = CMD_LOADED});
    step(l, &(struct command){.kind = CMD_REGISTER,
                              .u.reg = {.worker_id = "worker-1",
                                        .incarnation = "i1",
                                        .address = "127.0.0.1:1",
                                        .slots = 8,
                                        .offer = {.executors = {executors, 1}},
                                        .version = "1"}});
    commit(l);
}

void lifecycles_end(struct lifecycles *l)
{
    core_free(l->core);
    effects_deinit(&l->fx);
    arena_deinit(&l->arena);
}

/* Ids as long as those that the coordinator makes, which grow as those do. */
void lifecycles_submit(struct lifecycles *l, uint32_t width)
{
    struct stage_spec stage = {.name = "task", .need = &need, .n_tasks = 1, .backoff_ms = -1};
    arena_reset(&l->arena);
    for (uint32_t i = 0; i < width; i++) {
        const char *job_id =
            arena_format(&l->arena, "019a0000-0000-7000-8000-%012llx", (unsigned long long)++l->n_jobs);
        step(l, &(struct command){
                    .kind = CMD_SUBMIT,
                    .u.submit = {
                        .job_id = job_id, .kind = JOB_KIND_TREE, .priority = 2, .stages = &stage, .n_stages = 1}});
    }
    commit(l);
}

void lifecycles_assign(struct lifecycles *l, uint32_t width)
{
    l->refs = arena_alloc(&l->arena, width * sizeof *l->refs);
    l->n_refs = 0;
    step(l, &(struct command){.kind = CMD_GET_TASK,
                              .u.get_task = {.worker_id = "worker-1", .incarnation = "i1", .capacity = width}});
    step(l, &(struct command){.kind = CMD_TICK});
    for (const struct reply *reply = l->fx.replies; reply != NULL; reply = reply->next) {
        for (const struct assignment *a = reply->kind == REPLY_TASKS ? reply->u.tasks.first : NULL; a != NULL;
             a = a->next) {
            l->refs[l->n_refs] = a->ref;
            l->refs[l->n_refs++].task.job_id = arena_strdup(&l->arena, a->ref.task.job_id);
        }
    }
    CHECK_UINT(l->n_refs, width);
    commit(l);
}

void lifecycles_finish(struct lifecycles *l)
{
    for (uint32_t i = 0; i < l->n_refs; i++) {
        struct task_report report = {.ref = l->refs[i], .state = TASK_SUCCEEDED};
        step(l, &(struct command){
                    .kind = CMD_REPORT,
                    .u.report = {.worker_id = "worker-1", .incarnation = "i1", .reports = &report, .n_reports = 1}});
    }
    commit(l);
}
