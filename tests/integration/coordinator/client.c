#include "integration/coordinator/client.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "integration/coordinator/clocks.h"
#include "integration/coordinator/content.h"

struct call {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool is_done;
    struct client_answer answer;
};

static void copy_tasks(struct client_answer *answer, const struct reply *reply)
{
    for (const struct assignment *a = reply->u.tasks.first; a != NULL && answer->n_tasks < CLIENT_TASKS_MAX;
         a = a->next) {
        struct client_task *task = &answer->tasks[answer->n_tasks++];
        snprintf(task->job_id, sizeof task->job_id, "%s", a->ref.task.job_id);
        task->stage = a->ref.task.stage;
        task->task = a->ref.task.task;
        task->attempt = a->ref.attempt;
        task->token = a->ref.token;
    }
}

static void read_reply(struct client_answer *answer, const struct reply *reply)
{
    switch (reply->kind) {
    case REPLY_ERROR:
        answer->err = reply->code;
        break;
    case REPLY_SUBMIT:
    case REPLY_JOB:
        answer->state = reply->u.job.state;
        answer->existed = reply->u.job.existed;
        break;
    case REPLY_TASKS:
        copy_tasks(answer, reply);
        break;
    case REPLY_REPORT:
        answer->refusal = reply->u.report.outcomes[0];
        break;
    case REPLY_REGISTER:
    case REPLY_HEARTBEAT:
    case REPLY_ACCEPT:
    case REPLY_DONE:
        break;
    }
}

static void on_answer(struct request *request, const struct reply *reply, enum err err)
{
    struct call *call = request->context;
    pthread_mutex_lock(&call->lock);
    if (call->answer.err == ERR_OK) {
        call->answer.err = err;
    }
    if (reply != NULL) {
        read_reply(&call->answer, reply);
    }
    call->is_done = true;
    pthread_cond_signal(&call->answered);
    pthread_mutex_unlock(&call->lock);
}

static struct client_answer wait_for(struct coordinator *c, struct request *request, struct call *call)
{
    coordinator_send(c, request);
    pthread_mutex_lock(&call->lock);
    while (!call->is_done) {
        pthread_cond_wait(&call->answered, &call->lock);
    }
    pthread_mutex_unlock(&call->lock);
    pthread_cond_destroy(&call->answered);
    pthread_mutex_destroy(&call->lock);
    return call->answer;
}

static struct request *begin(struct call *call, enum command_kind kind)
{
    *call = (struct call){.is_done = false};
    pthread_mutex_init(&call->lock, NULL);
    pthread_cond_init(&call->answered, NULL);
    struct request *request = request_new(on_answer, call);
    request->command.kind = kind;
    return request;
}

static const struct task_spec *add_inputs(struct request *request, const char *job_id, uint32_t n_tasks)
{
    struct task_spec *tasks = arena_alloc(&request->arena, n_tasks * sizeof *tasks);
    struct payload *payloads = arena_alloc(&request->arena, n_tasks * sizeof *payloads);
    for (uint32_t i = 0; i < n_tasks; i++) {
        struct content input = content_input(&request->arena, job_id, i);
        tasks[i] = (struct task_spec){.inputs = input.digest, .inputs_bytes = input.n};
        payloads[i] = (struct payload){.job_id = arena_strdup(&request->arena, job_id),
                                       .digest = input.digest,
                                       .bytes = input.bytes,
                                       .n_bytes = input.n};
    }
    request->payloads = payloads;
    request->n_payloads = n_tasks;
    return tasks;
}

struct client_answer client_submit(struct coordinator *c, const char *job_id, uint32_t n_tasks)
{
    static const struct requirement need = {.executor = "noop"};
    struct call call;
    struct request *request = begin(&call, CMD_SUBMIT);
    struct stage_spec stage = {.need = &need, .n_tasks = n_tasks, .backoff_ms = -1};
    if (n_tasks <= CLIENT_TASKS_MAX) {
        stage.tasks = add_inputs(request, job_id, n_tasks);
    }
    request->command.u.submit = (struct cmd_submit){
        .job_id = arena_strdup(&request->arena, job_id),
        .kind = JOB_KIND_TREE,
        .priority = 2,
        .stages = arena_copy(&request->arena, &stage, sizeof stage),
        .n_stages = 1,
    };
    return wait_for(c, request, &call);
}

struct client_answer client_register(struct coordinator *c, const char *worker_id, const char *incarnation)
{
    static const char *const executors[] = {"noop"};
    struct call call;
    struct request *request = begin(&call, CMD_REGISTER);
    request->command.u.reg = (struct cmd_register){
        .worker_id = arena_strdup(&request->arena, worker_id),
        .incarnation = arena_strdup(&request->arena, incarnation),
        .address = "127.0.0.1:1",
        .slots = 8,
        .offer = {.executors = {executors, 1}},
        .version = "test",
    };
    return wait_for(c, request, &call);
}

struct client_answer client_poll(struct coordinator *c, const char *worker_id, const char *incarnation,
                                 uint32_t capacity)
{
    struct call call;
    struct request *request = begin(&call, CMD_GET_TASK);
    request->command.u.get_task = (struct cmd_get_task){
        .worker_id = arena_strdup(&request->arena, worker_id),
        .incarnation = arena_strdup(&request->arena, incarnation),
        .capacity = capacity,
        .wait_ms = 10,
    };
    return wait_for(c, request, &call);
}

struct client_answer client_succeed(struct coordinator *c, const char *worker_id, const char *incarnation,
                                    const struct client_task *task)
{
    struct call call;
    struct request *request = begin(&call, CMD_REPORT);
    struct content result = content_result(&request->arena, task->job_id, task->task, task->attempt);
    struct payload payload = {.job_id = arena_strdup(&request->arena, task->job_id),
                              .digest = result.digest,
                              .bytes = result.bytes,
                              .n_bytes = result.n};
    struct task_report report = {
        .ref = {.task = {arena_strdup(&request->arena, task->job_id), task->stage, task->task},
                .attempt = task->attempt,
                .token = task->token},
        .state = TASK_SUCCEEDED,
        .result = result.digest,
        .result_bytes = result.n,
    };
    request->payloads = arena_copy(&request->arena, &payload, sizeof payload);
    request->n_payloads = 1;
    request->command.u.report = (struct cmd_report){
        .worker_id = arena_strdup(&request->arena, worker_id),
        .incarnation = arena_strdup(&request->arena, incarnation),
        .reports = arena_copy(&request->arena, &report, sizeof report),
        .n_reports = 1,
    };
    return wait_for(c, request, &call);
}

struct client_answer client_cancel(struct coordinator *c, const char *job_id)
{
    struct call call;
    struct request *request = begin(&call, CMD_CANCEL);
    request->command.u.cancel.job_id = arena_strdup(&request->arena, job_id);
    return wait_for(c, request, &call);
}

struct client_answer client_data_set(struct coordinator *c, const char *name, const char *source)
{
    struct call call;
    struct request *request = begin(&call, CMD_TICK); /* the name makes it a data set */
    request->data_set = (struct data_set){.name = arena_strdup(&request->arena, name),
                                          .source = arena_strdup(&request->arena, source),
                                          .format = "parquet"};
    return wait_for(c, request, &call);
}

/* ---- reads ---- */

static void read_status(const struct core *core, struct request *request)
{
    struct call *call = request->context;
    struct job_status status;
    call->answer.err = core_job_status(core, request->command.u.cancel.job_id, &status);
    if (call->answer.err == ERR_OK) {
        call->answer.state = status.state;
    }
}

struct client_answer client_status(struct coordinator *c, const char *job_id)
{
    struct call call;
    struct request *request = begin(&call, CMD_CANCEL);
    request->read = read_status;
    request->command.u.cancel.job_id = arena_strdup(&request->arena, job_id);
    return wait_for(c, request, &call);
}

/* The answer may come long after the look, so it is not waited for: the last of both frees this. */
struct glance {
    atomic_uint n_users;
    atomic_bool is_over;
    bool is_known;
    char job_id[40];
};

static void drop_glance(struct glance *glance)
{
    if (atomic_fetch_sub(&glance->n_users, 1) == 1) {
        mem_free(glance);
    }
}

static void read_glance(const struct core *core, struct request *request)
{
    struct glance *glance = request->context;
    glance->is_known = core_has_job(core, glance->job_id);
    atomic_store(&glance->is_over, true);
}

static void on_glance_answered(struct request *request, const struct reply *reply, enum err err)
{
    struct glance *glance = request->context;
    (void)reply;
    (void)err;
    atomic_store(&glance->is_over, true); /* nobody looked if this process does not lead */
    drop_glance(glance);
}

bool client_knows(struct coordinator *c, const char *job_id)
{
    struct glance *glance = mem_calloc(1, sizeof *glance);
    struct request *request = request_new(on_glance_answered, glance);
    atomic_store(&glance->n_users, 2);
    snprintf(glance->job_id, sizeof glance->job_id, "%s", job_id);
    request->read = read_glance;
    coordinator_send(c, request);
    while (!atomic_load(&glance->is_over)) {
        clocks_pause(1);
    }
    bool is_known = glance->is_known;
    drop_glance(glance);
    return is_known;
}

/* ---- memory and store ---- */

struct loading {
    struct core *core;
    struct effects fx;
    struct core_input input;
};

static void load_row(void *context, const struct row *row)
{
    struct loading *loading = context;
    struct command command = {.kind = CMD_LOAD, .u.load = row};
    core_step(loading->core, &loading->input, &command, &loading->fx);
    effects_reset(&loading->fx);
}

struct core *client_load(struct store *store)
{
    struct core_config config = core_config_default();
    struct command command = {.kind = CMD_LOADED};
    struct loading loading = {.core = core_new(&config, 7), .input = {.now_ms = clocks_date_ms()}};
    enum err err = store_load(store, load_row, &loading, NULL);
    core_step(loading.core, &loading.input, &command, &loading.fx);
    effects_deinit(&loading.fx);
    if (err != ERR_OK) {
        core_free(loading.core);
        return NULL;
    }
    return loading.core;
}

struct comparison {
    struct call call;
    const char *url;
    struct client_difference *difference;
};

/* On the loop thread: the core cannot change while the store is read. */
static void read_compare(const struct core *core, struct request *request)
{
    struct comparison *comparison = CONTAINER_OF(request->context, struct comparison, call);
    struct store *store = NULL;
    struct core *loaded = store_open(comparison->url, &store, NULL) == ERR_OK ? client_load(store) : NULL;
    if (loaded == NULL) {
        comparison->call.answer.err = ERR_UNAVAILABLE;
    } else {
        core_check(core);
        core_check(loaded);
        char *why = comparison->difference->text;
        size_t why_size = sizeof comparison->difference->text;
        bool is_equal = core_equal(core, loaded, why, why_size) && core_equal(loaded, core, why, why_size);
        comparison->call.answer.err = is_equal ? ERR_OK : ERR_DATA_LOSS;
    }
    core_free(loaded);
    store_close(store);
}

static void read_nothing(const struct core *core, struct request *request)
{
    (void)core;
    (void)request;
}

enum err client_compare(struct coordinator *c, const char *url, struct client_difference *out)
{
    struct comparison comparison = {.url = url, .difference = out};
    struct request *request = begin(&comparison.call, CMD_TICK);
    request->read = read_nothing; /* answered when all that the core has done is durable */
    enum err err = wait_for(c, request, &comparison.call).err;
    if (err != ERR_OK) {
        return err;
    }
    request = begin(&comparison.call, CMD_TICK);
    request->read = read_compare;
    return wait_for(c, request, &comparison.call).err;
}

bool client_await_leader(struct coordinator *c, int64_t ms)
{
    for (int64_t waited_ms = 0; waited_ms < ms && coordinator_epoch(c) == 0; waited_ms += 2) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return coordinator_epoch(c) != 0;
}
