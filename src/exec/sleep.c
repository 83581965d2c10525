/*
 * sleep.c - the executor `sleep`: waits, and answers nothing. For tests, demos and benchmarks.
 *
 * Benchmarks run it tens of thousands of times in a second with {"ms":0}, so inputs of that plain form are read without a
 * tree, and not waiting takes no descriptor and no lock.
 */
#include <inttypes.h>
#include <string.h>

#include "exec/exec_internal.h"

#define SLEEP_MS_MAX INT64_C(1000000000000) /* 31 years: keeps all sums of times far from their ends */
#define PLAIN_DIGITS_MAX 12                 /* any such number is below SLEEP_MS_MAX */

/* If `token` comes next, after blanks, the place after it; else NULL. The text ends with a NUL, which is no token. */
static const char *skip(const char *p, const char *token)
{
    while (*p == ' ') {
        p++;
    }
    size_t n = strlen(token);
    return strncmp(p, token, n) == 0 ? p + n : NULL;
}

/* Reads {"ms": 123}, with or without blanks. False for anything else, be it right or wrong. */
static bool read_plain(const struct exec_task *task, int64_t *out_ms)
{
    const char *p = skip(task->inputs, "{");
    p = p == NULL ? NULL : skip(p, "\"ms\"");
    p = p == NULL ? NULL : skip(p, ":");
    p = p == NULL ? NULL : skip(p, "");
    if (p == NULL) {
        return false;
    }
    const char *digits = p;
    int64_t ms = 0;
    while (*p >= '0' && *p <= '9' && p - digits < PLAIN_DIGITS_MAX) {
        ms = ms * 10 + (*p++ - '0');
    }
    bool is_number = p > digits && (*digits != '0' || p - digits == 1);
    p = is_number ? skip(p, "}") : NULL;
    if (p == NULL || p != task->inputs + task->n_inputs) {
        return false;
    }
    *out_ms = ms;
    return true;
}

static bool read_tree(const struct exec_task *task, int64_t *out_ms, struct exec_outcome *out)
{
    struct json *inputs = NULL;
    if (!exec__read_inputs(task, out, &inputs)) {
        return false;
    }
    int64_t ms = -1;
    bool is_good = json_int(json_get(inputs, "ms"), &ms) && ms >= 0 && ms <= SLEEP_MS_MAX;
    if (is_good) {
        *out_ms = ms;
    } else {
        exec_fail(out, true, "inputs.ms must be a whole number of milliseconds from 0 to %" PRId64, SLEEP_MS_MAX);
    }
    json_free(inputs);
    return is_good;
}

static void run_sleep(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                      struct exec_outcome *out)
{
    UNUSED(executor);
    int64_t ms = 0;
    if (!read_plain(task, &ms) && !read_tree(task, &ms, out)) {
        return;
    }
    if (ms > 0 && exec_stop_wait(stop, ms)) {
        exec_fail(out, false, "stopped");
        return;
    }
    out->is_success = true;
}

struct executor *executor_sleep(void)
{
    static struct executor sleeper = {.name = "sleep", .run = run_sleep, .close = NULL};
    return &sleeper;
}
