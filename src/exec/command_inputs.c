#include <stdio.h>
#include <string.h>

#include "exec/command_internal.h"

#define EXIT_CODE_MAX 255

/* The variables that the worker itself sets. */
static const char *const own_names[] = {"CAPSTAN_IDEMPOTENCY_KEY", "CAPSTAN_TASK_KEY", "CAPSTAN_JOB_ID",
                                        "CAPSTAN_TASK_NAME", "CAPSTAN_ATTEMPT"};

struct reader {
    const struct command_executor *executor;
    const struct exec_task *task;
    const struct json *inputs;
    struct arena *arena;
    struct command *command;
    struct exec_outcome *out;
};

static bool read_argv(const struct reader *r)
{
    const struct json *argv = json_get(r->inputs, "argv");
    size_t n = json_count(argv);
    if (json_kind_of(argv) != JSON_ARRAY || n == 0) {
        exec_fail(r->out, true, "inputs.argv must be a list of texts: the program and its arguments");
        return false;
    }
    r->command->argv = arena_zalloc(r->arena, (n + 1) * sizeof(char *));
    for (size_t i = 0; i < n; i++) {
        if (!exec__is_c_string(json_at(argv, i))) {
            exec_fail(r->out, true, "inputs.argv[%zu] must be a text without the character NUL", i);
            return false;
        }
        r->command->argv[i] = arena_strdup(r->arena, json_text(json_at(argv, i), NULL));
    }
    if (r->command->argv[0][0] == '\0') {
        exec_fail(r->out, true, "inputs.argv[0], the program, must not be empty");
        return false;
    }
    return true;
}

static bool is_own(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(own_names); i++) {
        if (strcmp(name, own_names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool check_variable(const struct reader *r, const char *name, const struct json *value)
{
    if (name[0] == '\0' || strchr(name, '=') != NULL) {
        exec_fail(r->out, true, "inputs.env: '%s' is no name of a variable", name);
        return false;
    }
    if (is_own(name)) {
        exec_fail(r->out, true, "inputs.env.%s is set by Capstan itself", name);
        return false;
    }
    if (!exec__is_c_string(value)) {
        exec_fail(r->out, true, "inputs.env.%s must be a text without the character NUL", name);
        return false;
    }
    return true;
}

static char *pair(struct arena *arena, const char *name, const char *value)
{
    size_t n = strlen(name) + strlen(value) + 2;
    char *text = arena_alloc(arena, n);
    snprintf(text, n, "%s=%s", name, value);
    return text;
}

static bool has_name(const char *variable, const char *name)
{
    size_t n = strlen(name);
    return strncmp(variable, name, n) == 0 && variable[n] == '=';
}

/* What the worker gives to all, except what the task replaces. */
static size_t copy_common(const struct reader *r, const struct json *env, char **list)
{
    size_t n = 0;
    for (uint32_t i = 0; i < r->executor->n_environment; i++) {
        char *variable = r->executor->environment[i];
        size_t cursor = 0;
        const char *name = NULL;
        const struct json *value = NULL;
        bool is_replaced = false;
        while (!is_replaced && json_next(env, &cursor, &name, &value)) {
            is_replaced = has_name(variable, name);
        }
        for (size_t k = 0; k < ARRAY_LEN(own_names) && !is_replaced; k++) {
            is_replaced = has_name(variable, own_names[k]);
        }
        if (!is_replaced) {
            list[n++] = variable;
        }
    }
    return n;
}

static bool read_environment(const struct reader *r)
{
    const struct json *env = json_get(r->inputs, "env");
    if (env != NULL && json_kind_of(env) != JSON_OBJECT) {
        exec_fail(r->out, true, "inputs.env must be an object: the variables and their texts");
        return false;
    }
    size_t most = r->executor->n_environment + json_count(env) + ARRAY_LEN(own_names);
    char **list = arena_zalloc(r->arena, (most + 1) * sizeof(char *));
    size_t n = copy_common(r, env, list);
    size_t cursor = 0;
    const char *name = NULL;
    const struct json *value = NULL;
    while (json_next(env, &cursor, &name, &value)) {
        if (!check_variable(r, name, value)) {
            return false;
        }
        list[n++] = pair(r->arena, name, json_text(value, NULL));
    }
    char attempt[16];
    snprintf(attempt, sizeof(attempt), "%u", (unsigned)r->task->attempt);
    const char *const own_values[] = {r->task->idempotency_key, r->task->task_key, r->task->job_id, r->task->name,
                                      attempt};
    for (size_t i = 0; i < ARRAY_LEN(own_names); i++) {
        list[n++] = pair(r->arena, own_names[i], own_values[i] != NULL ? own_values[i] : "");
    }
    r->command->environment = list;
    return true;
}

static const char *path_of(char *const *environment)
{
    for (; *environment != NULL; environment++) {
        if (has_name(*environment, "PATH")) {
            return *environment + strlen("PATH=");
        }
    }
    return "";
}

/* Where the program may be: as named if there is a slash in it, else in each folder of PATH. */
static void list_paths(const struct reader *r)
{
    const char *program = r->command->argv[0];
    const char *path = path_of(r->command->environment);
    size_t folders = 1;
    for (const char *p = path; *p != '\0'; p++) {
        folders += *p == ':' ? 1 : 0;
    }
    r->command->paths = arena_zalloc(r->arena, (folders + 1) * sizeof(char *));
    if (strchr(program, '/') != NULL) {
        r->command->paths[0] = program;
        return;
    }
    size_t count = 0;
    for (size_t i = 0; i < folders; i++) {
        size_t n = strcspn(path, ":");
        if (n > 0) { /* an empty folder would mean the current one, which nobody wants by accident */
            size_t room = n + strlen(program) + 2;
            char *text = arena_alloc(r->arena, room);
            snprintf(text, room, "%.*s/%s", (int)n, path, program);
            r->command->paths[count++] = text;
        }
        path += n + 1;
    }
}

static bool read_exit_codes(const struct reader *r)
{
    const struct json *codes = json_get(r->inputs, "no_retry_exit_codes");
    bool is_good = codes == NULL || json_kind_of(codes) == JSON_ARRAY;
    for (size_t i = 0; i < json_count(codes) && is_good; i++) {
        int64_t code = -1;
        is_good = json_int(json_at(codes, i), &code) && code >= 0 && code <= EXIT_CODE_MAX;
    }
    if (!is_good) {
        exec_fail(r->out, true, "inputs.no_retry_exit_codes must be a list of numbers from 0 to %d", EXIT_CODE_MAX);
        return false;
    }
    r->command->no_retry_exit_codes = codes;
    return true;
}

static bool read_stdin(const struct reader *r)
{
    const struct json *text = json_get(r->inputs, "stdin");
    if (text != NULL && json_kind_of(text) != JSON_TEXT) {
        exec_fail(r->out, true, "inputs.stdin must be a text");
        return false;
    }
    r->command->stdin_text = json_text(text, &r->command->n_stdin);
    return true;
}

bool command__read(const struct command_executor *executor, const struct exec_task *task, const struct json *inputs,
                   struct arena *arena, struct command *command, struct exec_outcome *out)
{
    struct reader r = {
        .executor = executor, .task = task, .inputs = inputs, .arena = arena, .command = command, .out = out};
    *command = (struct command){0};
    if (!read_argv(&r) || !read_environment(&r) || !exec__text_member(inputs, "cwd", &command->cwd, out) ||
        !read_stdin(&r) || !read_exit_codes(&r) ||
        !command__read_limits(&executor->limits, inputs, &command->limits, out)) {
        return false;
    }
    list_paths(&r);
    return true;
}
