/*
 * plugin.c - executors that are loaded from shared objects (include/capstan/executor.h).
 */
#define _DEFAULT_SOURCE /* realpath */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "capstan/executor.h"
#include "exec/exec_internal.h"

#define ENTRY "capstan_executor_v1"

struct plugin {
    struct executor base;
    void *library;
    const struct capstan_executor *executor;
    void *context;
};

/* What the host's functions work on. */
struct capstan_run {
    const struct exec_task *task;
    struct exec_stop *stop;
    struct exec_outcome *out;
    bool has_failed;
};

static int host_is_stopped(const struct capstan_run *run)
{
    return exec_stop_reason(run->stop) != STOP_NONE;
}

static int host_wait(struct capstan_run *run, int64_t ms)
{
    return exec_stop_wait(run->stop, ms);
}

static void host_set_progress(struct capstan_run *run, double fraction, uint64_t rows, uint64_t bytes)
{
    run->out->rows = rows;
    run->out->bytes = bytes;
    if (run->task->on_progress != NULL) {
        double clamped = fraction >= 0 ? fraction : 0; /* NaN, too */
        run->task->on_progress(run->task->progress_context, clamped <= 1 ? clamped : 1, rows, bytes);
    }
}

/* One byte more than is allowed is enough for exec_run to see that it is too much. */
static void host_set_result(struct capstan_run *run, const char *json, size_t n)
{
    buf_reset(&run->out->result);
    buf_append(&run->out->result, json, n <= LIMIT_INLINE_RESULT_BYTES ? n : LIMIT_INLINE_RESULT_BYTES + 1);
}

static void host_set_error(struct capstan_run *run, enum capstan_failure kind, const char *message, size_t n)
{
    run->has_failed = true;
    int shown = n <= LIMIT_MESSAGE_BYTES ? (int)n : LIMIT_MESSAGE_BYTES;
    exec_fail(run->out, kind == CAPSTAN_NO_RETRY, "%.*s", shown, message);
}

static const struct capstan_host host = {
    .size = sizeof(host),
    .is_stopped = host_is_stopped,
    .wait = host_wait,
    .set_progress = host_set_progress,
    .set_result = host_set_result,
    .set_error = host_set_error,
};

/* A plug-in is trusted not to crash, but not to write JSON. */
static void check_result(const struct plugin *plugin, struct exec_outcome *out)
{
    struct exec_span value;
    if (out->result.n == 0 || out->result.n > LIMIT_INLINE_RESULT_BYTES) {
        return; /* exec_run says that it is too large */
    }
    if (!exec__is_json(out->result.data, out->result.n, &value)) {
        buf_reset(&out->result);
        exec_fail(out, true, "plug-in '%s': the result is not valid JSON, or too deep", plugin->base.name);
    }
}

static void run_plugin(struct executor *base, const struct exec_task *task, struct exec_stop *stop,
                       struct exec_outcome *out)
{
    const struct plugin *plugin = CONTAINER_OF(base, struct plugin, base);
    struct json *inputs = NULL;
    if (!exec__read_inputs(task, out, &inputs)) {
        return; /* plug-ins may rely on JSON */
    }
    json_free(inputs);
    struct capstan_run run = {.task = task, .stop = stop, .out = out};
    struct capstan_task public_task = {
        .size = sizeof(public_task),
        .job_id = task->job_id,
        .name = task->name,
        .inputs = task->inputs,
        .n_inputs = task->n_inputs,
        .idempotency_key = task->idempotency_key,
        .task_key = task->task_key,
        .stage = task->stage,
        .task = task->task,
        .attempt = task->attempt,
        .timeout_ms = task->timeout_ms,
    };
    plugin->executor->run(plugin->context, &public_task, &host, &run);
    if (run.has_failed) {
        buf_reset(&out->result);
        return;
    }
    out->is_success = true;
    check_result(plugin, out);
}

static void close_plugin(struct executor *base)
{
    struct plugin *plugin = CONTAINER_OF(base, struct plugin, base);
    if (plugin->executor->close != NULL) {
        plugin->executor->close(plugin->context);
    }
    dlclose(plugin->library);
    mem_free(plugin);
}

static bool is_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    static const char others[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789-";
    size_t n = strlen(name);
    return n > 0 && n <= LIMIT_NAME_BYTES && strspn(name, letters) > 0 && strspn(name, others) == n;
}

/* ISO C has no conversion from an object pointer to a function; POSIX promises that the bytes are the same. */
static const struct capstan_executor *call_entry(void *symbol)
{
    const struct capstan_executor *(*entry)(void) = NULL;
    memcpy(&entry, &symbol, sizeof(entry));
    return entry();
}

static enum err check(const struct capstan_executor *executor, const char *path, struct error *e)
{
    if (executor == NULL) {
        return error_set(e, ERR_INVALID, "%s: its " ENTRY "() returned nothing", path);
    }
    if (executor->abi > CAPSTAN_EXECUTOR_ABI) {
        error_set(e, ERR_INVALID, "%s needs version %u of the plug-in interface, this worker has %d", path,
                  (unsigned)executor->abi, CAPSTAN_EXECUTOR_ABI);
        error_hint(e, "update the worker, or compile the plug-in with this worker's capstan/executor.h");
        return ERR_INVALID;
    }
    if (executor->abi == 0 || executor->size < sizeof(*executor)) {
        return error_set(e, ERR_INVALID, "%s does not say its size and the version of the plug-in interface", path);
    }
    if (executor->name == NULL || !is_name(executor->name)) {
        return error_set(e, ERR_INVALID, "%s: '%s' is no name for an executor", path,
                         executor->name != NULL ? executor->name : "");
    }
    if (executor->run == NULL) {
        return error_set(e, ERR_INVALID, "%s: executor '%s' has no run()", path, executor->name);
    }
    return ERR_OK;
}

static enum err open_plugin(struct plugin *plugin, const char *path, struct error *e)
{
    void *symbol = dlsym(plugin->library, ENTRY);
    if (symbol == NULL) {
        return error_set(e, ERR_PRECONDITION, "%s is no plug-in: it has no function " ENTRY, path);
    }
    plugin->executor = call_entry(symbol);
    enum err err = check(plugin->executor, path, e);
    if (err != ERR_OK) {
        return err;
    }
    const char *why = plugin->executor->open != NULL ? plugin->executor->open(&plugin->context) : NULL;
    if (why != NULL) {
        return error_set(e, ERR_INVALID, "%s: executor '%s' cannot be used: %s", path, plugin->executor->name, why);
    }
    plugin->base = (struct executor){.name = plugin->executor->name, .run = run_plugin, .close = close_plugin};
    return ERR_OK;
}

enum err executor_plugin(const char *path, struct executor **out, struct error *e)
{
    /* From the root on: a name without a slash would be looked for among the system's libraries. */
    char absolute[PATH_MAX];
    if (realpath(path, absolute) == NULL) {
        return error_set(e, errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_INVALID, "plug-in %s: %s", path,
                         strerror(errno));
    }
    struct plugin *plugin = mem_calloc(1, sizeof(*plugin));
    plugin->library = dlopen(absolute, RTLD_NOW | RTLD_LOCAL);
    if (plugin->library == NULL) {
        const char *why = dlerror();
        mem_free(plugin);
        return error_set(e, ERR_INVALID, "plug-in %s cannot be loaded: %s", path,
                         why != NULL ? why : "no reason given");
    }
    enum err err = open_plugin(plugin, path, e);
    if (err != ERR_OK) {
        dlclose(plugin->library);
        mem_free(plugin);
        return err;
    }
    *out = &plugin->base;
    return ERR_OK;
}
