/*
 * exec_internal.h - what the executors share: reading inputs, writing results.
 *
 * Ownership: what is returned from a tree of inputs belongs to the tree. Threads: any.
 */
#ifndef CAPSTAN_EXEC_EXEC_INTERNAL_H
#define CAPSTAN_EXEC_EXEC_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/json.h"
#include "base/limits.h"
#include "exec/executor.h"

/*
 * How deep the JSON may be that a program or a server answers with. It ends up inside the inputs of other tasks, a few
 * levels down, where LIMIT_JSON_DEPTH holds for the whole.
 */
#define EXEC_JSON_DEPTH_MAX (LIMIT_JSON_DEPTH - 8)

/*
 * Reads the task's inputs, which must be an object. False with a failed outcome if they are not. The caller ends the tree
 * with json_free.
 */
MUST_USE bool exec__read_inputs(const struct exec_task *task, struct exec_outcome *out, struct json **out_root);

/* Finds a member, also one that is null. False if there is none. */
bool exec__find(const struct json *object, const char *key, const struct json **out_value);

/*
 * The member as a text without NUL; `out_text` stays as it is if the member is absent or null. False with a failed outcome
 * (not retryable, names inputs.KEY) if it is anything else.
 */
MUST_USE bool exec__text_member(const struct json *inputs, const char *key, const char **out_text,
                                struct exec_outcome *out);

/* Whether the text is free of NULs, so that a C string holds all of it. */
bool exec__is_c_string(const struct json *node);

/* Appends the bytes; each byte that is part of no UTF-8 character becomes U+FFFD. */
void exec__append_utf8(struct buf *buf, const char *bytes, size_t n);

/* Appends the bytes as a JSON text, repaired in the same way. */
void exec__write_text(struct buf *buf, const char *bytes, size_t n);

/* Appends the tree as JSON, without white space. */
void exec__write_tree(struct buf *buf, const struct json *node);

struct exec_span {
    const char *data;
    size_t n;
};

/* Whether the bytes are one JSON value, not too deep to be passed on; if so, where it is without white space around it. */
bool exec__is_json(const char *bytes, size_t n, struct exec_span *out_value);

#endif
