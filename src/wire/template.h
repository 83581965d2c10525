/*
 * template.h - values that are put into a task's inputs: results of other tasks, and parameters of a run.
 *
 *     ${results.NAME.rows[0].id}      the result of the task NAME, or a part of it
 *     ${params.NAME}                  what `capstan run --param NAME=VALUE` gave
 *     $${                             the two characters ${
 *
 * A path is a name and then any of .name, [index] and ["any key"] (with \" and \\ inside the quotes). Templates are
 * looked for in text values, never in keys. A text that is one template and nothing else becomes the value itself, of
 * whatever kind. Inside a longer text a value takes its text form: a text stands for itself, anything else is written as
 * JSON without blanks, so a number is its digits, true is `true`, null is `null`. What is put in is not looked at again.
 * Any other use of the dollar, `${HOME}` for instance, is left alone.
 *
 * Ownership: everything is the caller's. Threads: any.
 */
#ifndef CAPSTAN_WIRE_TEMPLATE_H
#define CAPSTAN_WIRE_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"

/* The result of one task that the inputs' task depends on: JSON that was checked when it came in. */
struct template_result {
    const char *name;
    const char *json;
    size_t n; /* 0: null, because the task failed, was skipped or has no result */
};

/*
 * Appends the inputs that an executor gets: `inputs`, as wire_read_tree made them, with every ${results...} replaced,
 * and, if there are results, a member "results" with all of them by name. Without results and templates they are copied
 * as they are.
 *
 * ERR_INVALID with the path if a path does not exist or the outcome is nested too deeply (LIMIT_JSON_DEPTH), both of
 * which trying again does not mend; ERR_EXHAUSTED with the sizes if it is more than `bytes_max` bytes. `out` is
 * untouched then.
 */
MUST_USE enum err wire_fill_inputs(const char *inputs, size_t n, const struct template_result *results,
                                   uint32_t n_results, size_t bytes_max, struct buf *out, struct error *e);

struct template_param {
    const char *name;
    const char *value;
    bool is_json; /* the value is JSON; else it is a text, even if it looks like a number */
};

/*
 * Appends the text of a task tree with every ${params...} in it replaced, in any text of the tree; a tree without any is
 * copied as it is. A value is taken literally: should it contain `${`, this is escaped where it is put into inputs.
 * Escapes and ${results...} stay for wire_read_tree and wire_fill_inputs, and so does a text that is not JSON. ERR_INVALID
 * if a value is said to be JSON and is not, or a parameter is missing, and ERR_EXHAUSTED if the tree becomes larger than
 * LIMIT_TREE_BYTES; `out` is untouched then. Reads the tree as a whole, unlike wire_read_tree.
 */
MUST_USE enum err wire_fill_params(const char *tree, size_t n, const struct template_param *params, uint32_t n_params,
                                   struct buf *out, struct error *e);

#endif
