#include <string.h>

#include "exec/exec_internal.h"

bool exec__read_inputs(const struct exec_task *task, struct exec_outcome *out, struct json **out_root)
{
    struct json *root = NULL;
    struct error e = {0};
    if (json_parse(task->inputs, task->n_inputs, &root, &e) != ERR_OK) {
        exec_fail(out, true, "inputs are not valid JSON: %s", e.message);
        return false;
    }
    if (json_kind_of(root) != JSON_OBJECT) {
        exec_fail(out, true, "inputs must be an object");
        json_free(root);
        return false;
    }
    *out_root = root;
    return true;
}

bool exec__find(const struct json *object, const char *key, const struct json **out_value)
{
    const struct json *value = json_get(object, key);
    if (value != NULL) {
        *out_value = value;
        return true;
    }
    size_t cursor = 0;
    const char *name = NULL;
    while (json_next(object, &cursor, &name, &value)) {
        if (strcmp(name, key) == 0) {
            *out_value = value;
            return true;
        }
    }
    return false;
}

bool exec__is_c_string(const struct json *node)
{
    size_t n = 0;
    const char *text = json_text(node, &n);
    return text != NULL && strlen(text) == n;
}

bool exec__text_member(const struct json *inputs, const char *key, const char **out_text, struct exec_outcome *out)
{
    const struct json *node = json_get(inputs, key);
    if (node == NULL) {
        return true;
    }
    if (json_kind_of(node) != JSON_TEXT) {
        exec_fail(out, true, "inputs.%s must be a text", key);
        return false;
    }
    if (!exec__is_c_string(node)) {
        exec_fail(out, true, "inputs.%s must not contain the character NUL", key);
        return false;
    }
    *out_text = json_text(node, NULL);
    return true;
}
