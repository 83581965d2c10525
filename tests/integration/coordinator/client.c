#include "integration/coordinator/client.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

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

struct client_answer client_submit(struct coordinator *c, const char *job_id, uint32_t n_tasks)
{
    static const struct requirement need = {.executor = "noop"};
    struct stage_spec stage = {.need = &need, .n_tasks = n_tasks, .backoff_ms = -1};
    struct call call;
    struct request *request = begin(&call, CMD_SUBMIT);
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
    struct task_report report = {
        .ref = {.task = {arena_strdup(&request->arena, task->job_id), task->stage, task->task},
                .attempt = task->attempt,
                .token = task->token},
        .state = TASK_SUCCEEDED,
    };
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

bool client_await_leader(struct coordinator *c, int64_t ms)
{
    for (int64_t waited_ms = 0; waited_ms < ms && coordinator_epoch(c) == 0; waited_ms += 2) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return coordinator_epoch(c) != 0;
}
