#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "exec/command_internal.h"

#define CPU_GRACE_SECONDS 1 /* between SIGXCPU, which a program may handle, and SIGKILL */
#define SIGNAL_EXIT_CODE 128

static const char *const members[] = {
#define X(symbol, member, option) member,
    COMMAND_LIMITS_TABLE(X)
#undef X
};

/* The limits that the system keeps for us. */
static const struct {
    enum command_limit limit;
    int resource;
    uint64_t grace;
} kept[] = {
    {COMMAND_CPU, RLIMIT_CPU, CPU_GRACE_SECONDS},
    {COMMAND_MEMORY, RLIMIT_DATA, 0}, /* not of addresses, of which many programs reserve far more than they use */
    {COMMAND_FILES, RLIMIT_NOFILE, 0},
    {COMMAND_FILE_SIZE, RLIMIT_FSIZE, 0},
};

static int find_member(const char *name)
{
    for (int i = 0; i < COMMAND_LIMITS; i++) {
        if (strcmp(members[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

bool command__read_limits(const struct command_limits *most, const struct json *inputs, struct command_limits *out,
                          struct exec_outcome *failed)
{
    const struct json *limits = json_get(inputs, "limits");
    size_t cursor = 0;
    const char *name = NULL;
    const struct json *value = NULL;
    *out = *most;
    if (limits != NULL && json_kind_of(limits) != JSON_OBJECT) {
        exec_fail(failed, true, "inputs.limits must be an object, such as {\"cpu_seconds\": 60}");
        return false;
    }
    while (json_next(limits, &cursor, &name, &value)) {
        int limit = find_member(name);
        int64_t wanted = 0;
        if (limit < 0) {
            exec_fail(failed, true, "inputs.limits: there is no limit '%s'", name);
            return false;
        }
        if (!json_int(value, &wanted) || wanted < 1) {
            exec_fail(failed, true, "inputs.limits.%s must be a whole number from 1 on", name);
            return false;
        }
        if (out->max[limit] == 0 || (uint64_t)wanted < out->max[limit]) {
            out->max[limit] = (uint64_t)wanted;
        }
    }
    return true;
}

uint32_t command__process_limits(const struct command_limits *limits, struct process_limit out[COMMAND_LIMITS])
{
    uint32_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        uint64_t max = limits->max[kept[i].limit];
        if (max > 0) {
            out[n++] = (struct process_limit){.resource = kept[i].resource, .soft = max, .hard = max + kept[i].grace};
        }
    }
    return n;
}

/* Whether it ended by that signal, itself or, as a shell tells it, a program that it ran. */
static bool ended_by(struct process_exit ended, int signal)
{
    return ended.code == (ended.is_signaled ? signal : SIGNAL_EXIT_CODE + signal);
}

bool command__judge_limits(const struct command_limits *limits, const struct command_output *output,
                           struct exec_outcome *out)
{
    const uint64_t *max = limits->max;
    if (output->is_too_much) {
        exec_fail(out, true, "stopped at its limit of %" PRIu64 " bytes of output", max[COMMAND_OUTPUT]);
    } else if (max[COMMAND_CPU] > 0 && ended_by(output->exit, SIGXCPU)) {
        exec_fail(out, true, "stopped at its limit of %" PRIu64 " s of processor time", max[COMMAND_CPU]);
    } else if (max[COMMAND_FILE_SIZE] > 0 && ended_by(output->exit, SIGXFSZ)) {
        exec_fail(out, true, "stopped at its limit of %" PRIu64 " bytes for one file", max[COMMAND_FILE_SIZE]);
    } else {
        return false;
    }
    return true;
}

void command__tell_limits(const struct command_limits *limits, struct buf *out)
{
    uint64_t memory = limits->max[COMMAND_MEMORY];
    uint64_t files = limits->max[COMMAND_FILES];
    if (memory > 0) {
        buf_format(out, " (it had at most %" PRIu64 " bytes of memory", memory);
    }
    if (files > 0) {
        buf_format(out, "%s%" PRIu64 " open files", memory > 0 ? " and " : " (it had at most ", files);
    }
    buf_text(out, memory > 0 || files > 0 ? ")" : "");
}
