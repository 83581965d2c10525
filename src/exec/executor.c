#include "exec/executor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "exec/exec_internal.h"
#include "exec/watchdog.h"

void exec_outcome_deinit(struct exec_outcome *out)
{
    buf_deinit(&out->message);
    buf_deinit(&out->result);
    buf_deinit(&out->output.ipc);
    mem_free(out->output.partitions);
    buf_deinit(&out->plan);
    buf_deinit(&out->table_name);
    buf_deinit(&out->table_files);
    mem_free(out->lost);
    *out = (struct exec_outcome){0};
}

/* Twice as long as a message may be, so that what is cut here is cut again where a character ends. */
#define MESSAGE_ROOM ((size_t)2 * LIMIT_MESSAGE_BYTES)

void exec_fail(struct exec_outcome *out, bool not_retryable, const char *fmt, ...)
{
    char text[MESSAGE_ROOM];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    ASSERT(n >= 0);

    struct buf clean = {0};
    exec__append_utf8(&clean, text, strlen(text));
    out->is_success = false;
    out->not_retryable = not_retryable;
    buf_reset(&out->message);
    buf_append(&out->message, clean.data, utf8_clip(clean.data, clean.n, LIMIT_MESSAGE_BYTES));
    buf_deinit(&clean);
}

void executor_close(struct executor *executor)
{
    if (executor != NULL && executor->close != NULL) {
        executor->close(executor);
    }
}

struct executor_set {
    struct executor **list;
    uint32_t count;
    uint32_t cap;
    struct watchdog *watchdog;
};

struct executor_set *executor_set_new(void)
{
    struct executor_set *set = mem_calloc(1, sizeof(*set));
    set->watchdog = watchdog_new();
    return set;
}

void executor_set_free(struct executor_set *set)
{
    if (set == NULL) {
        return;
    }
    watchdog_free(set->watchdog);
    for (uint32_t i = 0; i < set->count; i++) {
        executor_close(set->list[i]);
    }
    mem_free(set->list);
    mem_free(set);
}

enum err executor_set_add(struct executor_set *set, struct executor *executor, struct error *e)
{
    if (executor_set_find(set, executor->name) != NULL) {
        return error_set(e, ERR_EXISTS, "there are two executors '%s'", executor->name);
    }
    if (set->count >= LIMIT_EXECUTORS_PER_WORKER) {
        return error_set(e, ERR_EXHAUSTED, "a worker has at most %d executors", LIMIT_EXECUTORS_PER_WORKER);
    }
    set->list = mem_grow(set->list, &set->cap, set->count + 1, sizeof(struct executor *));
    set->list[set->count++] = executor;
    return ERR_OK;
}

/* There are a handful of them, so looking at each is the fastest way. */
struct executor *executor_set_find(const struct executor_set *set, const char *name)
{
    for (uint32_t i = 0; i < set->count; i++) {
        if (strcmp(set->list[i]->name, name) == 0) {
            return set->list[i];
        }
    }
    return NULL;
}

void executor_set_drop_job(const struct executor_set *set, const char *job_id)
{
    for (uint32_t i = 0; i < set->count; i++) {
        if (set->list[i]->drop_job != NULL) {
            set->list[i]->drop_job(set->list[i], job_id);
        }
    }
}

void executor_set_each_job(const struct executor_set *set, exec_job_fn *fn, void *context)
{
    for (uint32_t i = 0; i < set->count; i++) {
        if (set->list[i]->each_job != NULL) {
            set->list[i]->each_job(set->list[i], fn, context);
        }
    }
}

uint32_t executor_set_count(const struct executor_set *set)
{
    return set->count;
}

struct executor *executor_set_at(const struct executor_set *set, uint32_t i)
{
    ASSERT(i < set->count);
    return set->list[i];
}

/* What a person reads about an attempt that the worker itself has stopped. */
static const char *stop_text(enum stop_reason reason)
{
    static const char *const texts[] = {
        [STOP_NONE] = "stopped",
        [STOP_TIMEOUT] = "stopped: the time is over",
        [STOP_CANCELED] = "stopped: canceled",
        [STOP_LEASE_LOST] = "stopped: the lease was lost",
        [STOP_SHUTDOWN] = "stopped: the worker shuts down",
    };
    return texts[reason];
}

/* Of a success that comes too late. What lies on this worker stays, and so does its kind, by which that is known. */
static void drop_results(struct exec_outcome *out)
{
    buf_reset(&out->result);
    buf_reset(&out->plan);
    buf_deinit(&out->output.ipc);
    mem_free(out->output.partitions);
    out->output = (struct exec_output){.kind = out->output.kind};
}

/* The last word about a run, after the executor's own. */
static void settle(const struct exec_task *task, const struct exec_stop *stop, struct exec_outcome *out)
{
    enum stop_reason reason = exec_stop_reason(stop);
    if (reason == STOP_TIMEOUT) {
        if (out->is_success) {
            drop_results(out);
        }
        exec_fail(out, false, "timed out after %" PRIu32 " ms", task->timeout_ms);
    } else if (reason != STOP_NONE && !out->is_success) {
        exec_fail(out, false, "%s", stop_text(reason));
    } else if (out->result.n > LIMIT_INLINE_RESULT_BYTES) {
        size_t n = out->result.n;
        buf_reset(&out->result);
        exec_fail(out, true, "the result has %zu bytes, %d are allowed", n, LIMIT_INLINE_RESULT_BYTES);
    }
}

void exec_run(const struct executor_set *set, const char *executor, const struct exec_task *task,
              struct exec_stop *stop, struct exec_outcome *out)
{
    struct executor *found = executor_set_find(set, executor);
    if (found == NULL) {
        exec_fail(out, false, "executor '%s' is not available on this worker", executor);
        return;
    }
    struct watchdog_limit limit;
    bool is_limited = task->timeout_ms > 0;
    if (is_limited && watchdog_arm(set->watchdog, &limit, stop, task->timeout_ms) != ERR_OK) {
        exec_fail(out, false, "cannot start a thread to keep the time limit");
        return;
    }
    if (exec_stop_reason(stop) == STOP_NONE) {
        found->run(found, task, stop, out);
    } else {
        exec_fail(out, false, "stopped before it began");
    }
    if (is_limited) {
        watchdog_disarm(set->watchdog, &limit);
    }
    settle(task, stop, out);
}
