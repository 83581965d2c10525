/*
 * operator_apply.c - an operator at work: asked for its columns, or behind a stream of rows.
 *
 * An applied operator is a stream again. It pulls a batch from its input, lets the operator process it, and keeps what that
 * emits in a queue, from which its reader is served; only when the queue is empty it pulls the next one. So at most what
 * one call emits is kept, and nothing runs that nobody reads.
 *
 * An operator is trusted not to crash, but not to count right: what it announces and emits is checked as far as that is
 * possible without looking at the rows themselves.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "exchange/layout.h"
#include "exchange/schema.h"
#include "exec/executor.h"
#include "exec/operator_internal.h"

/* What the host's functions work on: an instance, with the call that is under way, if any. */
struct capstan_operator_run {
    const struct capstan_operator *op;
    void *instance;
    struct ArrowSchema schema; /* of what it emits */
    struct layout *layout;     /* the same; NULL: nothing may be emitted yet */
    struct ArrowArray *queue;  /* what was emitted: `next` to `n` - 1 */
    uint32_t next;
    uint32_t n;
    uint32_t cap;
    const struct exec_stop *stop; /* NULL: it is never stopped */
    bool has_set_error;           /* it has said itself that it fails */
    enum capstan_failure kind;    /* with `e` set: it has failed */
    struct error e;
};

struct applied {
    struct capstan_operator_run run;
    struct ArrowArrayStream input;
    bool is_finished;
    int code; /* not 0: what get_next returns from now on; the message is in run.e */
};

static void release_array(struct ArrowArray *array)
{
    if (array->release != NULL) {
        array->release(array);
    }
}

/* ---- what is emitted ---- */

/* The first length that is needed of what is inside, and of the offsets: the end of the array's rows. */
static bool has_rows(const struct ArrowArray *array, const struct layout *layout, int64_t *out_end)
{
    return array->length >= 0 && array->offset >= 0 && !__builtin_add_overflow(array->offset, array->length, out_end) &&
           array->n_buffers == layout_buffers(layout->kind) && array->n_children == layout->n_children &&
           (array->dictionary != NULL) == (layout->dictionary != NULL);
}

/* How long a child must be; -1 if the offsets make no sense. */
static int64_t child_length(const struct ArrowArray *array, const struct layout *layout, int64_t end)
{
    int64_t length = end;
    if (layout->kind == LAYOUT_FIXED_LIST) {
        return __builtin_mul_overflow(end, (int64_t)layout->width, &length) ? -1 : length;
    }
    if (array->length > 0 && layout->kind == LAYOUT_LIST) {
        return ((const int32_t *)array->buffers[1])[end];
    }
    if (array->length > 0 && layout->kind == LAYOUT_LIST64) {
        return ((const int64_t *)array->buffers[1])[end];
    }
    return layout->kind == LAYOUT_LIST || layout->kind == LAYOUT_LIST64 ? 0 : length;
}

/* Whether the buffers are there that rows need. What texts point into may be missing if all are empty. */
static bool has_buffers(const struct ArrowArray *array, const struct layout *layout)
{
    uint32_t n = layout_buffers(layout->kind);
    if (n > 0 && array->buffers == NULL) {
        return false;
    }
    if (layout->kind != LAYOUT_NULL && layout->kind != LAYOUT_UNION && array->null_count > 0 &&
        array->buffers[0] == NULL) {
        return false;
    }
    bool is_empty = array->length == 0 || (layout->kind == LAYOUT_FIXED && layout->width == 0);
    uint32_t values = layout->kind == LAYOUT_UNION ? 0 : 1;
    return is_empty || values >= n || array->buffers[values] != NULL;
}

/* Whether an array has the form of its column, with all that is inside it. */
static bool fits(const struct ArrowArray *array, const struct layout *layout)
{
    int64_t end = 0;
    if (array == NULL || array->release == NULL || !has_rows(array, layout, &end) || !has_buffers(array, layout)) {
        return false;
    }
    int64_t needed = layout->n_children > 0 ? child_length(array, layout, end) : 0;
    for (uint32_t i = 0; i < layout->n_children; i++) {
        if (needed < 0 || !fits(array->children[i], &layout->children[i]) || array->children[i]->length < needed) {
            return false;
        }
    }
    return layout->dictionary == NULL || fits(array->dictionary, layout->dictionary);
}

/* Only the first failure of a call counts: what follows it is a consequence. */
PRINTF_LIKE(3, 4)
static void fail(struct capstan_operator_run *run, enum capstan_failure kind, const char *fmt, ...)
{
    if (run->e.code != ERR_OK) {
        return;
    }
    char text[sizeof(run->e.message)];
    va_list values;
    va_start(values, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, values);
    va_end(values);
    run->kind = kind;
    error_set(&run->e, kind == CAPSTAN_RETRY ? ERR_UNAVAILABLE : ERR_INVALID, "operator '%s': %s", run->op->name, text);
}

static void check_rows(struct capstan_operator_run *run, const struct ArrowArray *rows)
{
    if (run->layout == NULL) {
        fail(run, CAPSTAN_NO_RETRY, "it emitted rows in create()");
        return;
    }
    if (rows->release == NULL) {
        fail(run, CAPSTAN_NO_RETRY, "it emitted an array that was released already");
        return;
    }
    if (rows->n_children != run->layout->n_children) {
        fail(run, CAPSTAN_NO_RETRY, "it emitted %lld columns, but announced %u", (long long)rows->n_children,
             (unsigned)run->layout->n_children);
        return;
    }
    int64_t end = 0;
    bool is_good = has_rows(rows, run->layout, &end) && has_buffers(rows, run->layout);
    if (!is_good || (rows->null_count != 0 && rows->buffers[0] != NULL)) {
        fail(run, CAPSTAN_NO_RETRY, "it emitted an array that is no batch of rows: a struct, of which no row is NULL");
        return;
    }
    for (uint32_t i = 0; i < run->layout->n_children; i++) {
        if (!fits(rows->children[i], &run->layout->children[i]) || rows->children[i]->length < end) {
            fail(run, CAPSTAN_NO_RETRY,
                 "it emitted %lld rows whose column '%.100s' does not fit its type or is shorter",
                 (long long)rows->length, run->schema.children[i]->name);
            return;
        }
    }
}

/* ---- the host ---- */

static void host_emit(struct capstan_operator_run *run, struct ArrowArray *rows)
{
    if (run->e.code == ERR_OK) {
        check_rows(run, rows);
    }
    if (run->e.code != ERR_OK || rows->length == 0) {
        release_array(rows);
        rows->release = NULL;
        return;
    }
    run->queue = mem_grow(run->queue, &run->cap, run->n + 1, sizeof(run->queue[0]));
    run->queue[run->n++] = *rows;
    rows->release = NULL;
}

static void host_set_error(struct capstan_operator_run *run, enum capstan_failure kind, const char *message, size_t n)
{
    int shown = n < sizeof(run->e.message) ? (int)n : (int)sizeof(run->e.message) - 1;
    run->has_set_error = true;
    fail(run, kind, "%.*s", shown, message);
}

static int host_is_stopped(const struct capstan_operator_run *run)
{
    return run->stop != NULL && exec_stop_reason(run->stop) != STOP_NONE;
}

static const struct capstan_operator_host host = {
    .size = sizeof(host),
    .emit = host_emit,
    .set_error = host_set_error,
    .is_stopped = host_is_stopped,
};

/* ---- instances ---- */

static enum err find(const struct operators *operators, const char *name, const struct capstan_operator **out,
                     struct error *e)
{
    *out = operator__find(&operators->list, name);
    if (*out == NULL) {
        error_set(e, ERR_NOT_FOUND, "custom physical operator '%s' is not registered on worker", name);
        error_hint(e, "workers load operators with --plugin, or have them linked in");
        return ERR_NOT_FOUND;
    }
    return ERR_OK;
}

/* So that operators may rely on JSON. */
static enum err check_config(const char *name, const char *config_json, struct error *e)
{
    struct json *root = NULL;
    struct error why = {0};
    enum err err = json_parse(config_json, strlen(config_json), &root, &why);
    if (err != ERR_OK) {
        error_set(e, ERR_INVALID, "operator '%s': its configuration is no JSON: %s", name, why.message);
    } else if (json_kind_of(root) != JSON_OBJECT) {
        err = error_set(e, ERR_INVALID, "operator '%s': its configuration must be a JSON object", name);
    }
    json_free(root);
    return err;
}

/* What create() has announced becomes a copy of ours, and the layout that emitted rows are checked with. */
static enum err take_schema(struct capstan_operator_run *run, const struct ArrowSchema *announced, struct error *e)
{
    uint32_t n_dictionaries = 0;
    struct error why = {0};
    enum err err = layout_new(announced, &run->layout, &n_dictionaries, &why);
    if (err != ERR_OK) {
        return error_set(e, ERR_INVALID, "operator '%s' announces columns that cannot be used: %s", run->op->name,
                         why.message);
    }
    if (run->layout->n_children == 0) {
        return error_set(e, ERR_INVALID, "operator '%s' announces no columns", run->op->name);
    }
    schema_copy(announced, &run->schema);
    return ERR_OK;
}

static void close_run(struct capstan_operator_run *run)
{
    for (; run->next < run->n; run->next++) {
        release_array(&run->queue[run->next]);
    }
    mem_free(run->queue);
    run->queue = NULL;
    if (run->op->destroy != NULL) {
        run->op->destroy(run->instance);
    }
    schema_release(&run->schema);
    layout_free(run->layout);
}

/* On success, close_run ends it. */
static enum err open_run(struct capstan_operator_run *run, const char *config_json, const struct ArrowSchema *input,
                         struct error *e)
{
    const char *config = config_json != NULL ? config_json : "{}";
    enum err err = check_config(run->op->name, config, e);
    if (err != ERR_OK) {
        return err;
    }
    struct ArrowSchema announced = {0};
    run->instance = run->op->create(config, input, &announced, &host, run);
    if (run->e.code != ERR_OK) {
        err = error_set(e, run->e.code, "%s", run->e.message);
        if (!run->has_set_error) {
            close_run(run); /* it knows of no failure, and has an instance */
        }
    } else {
        err = take_schema(run, announced.release != NULL ? &announced : input, e);
        if (err != ERR_OK) {
            close_run(run);
        }
    }
    schema_release(&announced);
    return err;
}

enum err operators_schema(const struct operators *operators, const char *name, const char *config_json,
                          const struct ArrowSchema *input, struct ArrowSchema *out, struct error *e)
{
    struct capstan_operator_run run = {0};
    enum err err = find(operators, name, &run.op, e);
    if (err == ERR_OK) {
        err = open_run(&run, config_json, input, e);
    }
    if (err == ERR_OK) {
        *out = run.schema;
        run.schema.release = NULL;
        close_run(&run);
    }
    return err;
}

/* ---- the stream ---- */

static int stream_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    const struct applied *applied = stream->private_data;
    schema_copy(&applied->run.schema, out);
    return 0;
}

/* Takes the next batch through the operator. If something fails, `code` says so from then on. */
static void step(struct applied *applied)
{
    struct capstan_operator_run *run = &applied->run;
    struct ArrowArray rows = {0};
    int code = applied->input.get_next(&applied->input, &rows);
    if (code != 0) {
        const char *why = applied->input.get_last_error(&applied->input);
        error_set(&run->e, ERR_INTERNAL, "%s", why != NULL ? why : strerror(code));
        applied->code = code;
        return;
    }
    if (rows.release == NULL) {
        applied->is_finished = true;
        if (run->op->finish != NULL) {
            run->op->finish(run->instance, &host, run);
        }
    } else if (rows.length > 0) {
        run->op->process(run->instance, &rows, &host, run);
    }
    release_array(&rows);
    if (run->e.code != ERR_OK) {
        applied->code = run->kind == CAPSTAN_RETRY ? EIO : EINVAL;
    }
}

static int stream_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    struct applied *applied = stream->private_data;
    struct capstan_operator_run *run = &applied->run;
    while (applied->code == 0 && run->next == run->n && !applied->is_finished) {
        run->next = 0;
        run->n = 0;
        step(applied);
    }
    if (applied->code != 0) {
        return applied->code;
    }
    if (run->next < run->n) {
        *out = run->queue[run->next++];
    } else {
        *out = (struct ArrowArray){0};
    }
    return 0;
}

static const char *stream_error(struct ArrowArrayStream *stream)
{
    const struct applied *applied = stream->private_data;
    return applied->code != 0 ? applied->run.e.message : NULL;
}

static void release_stream(struct ArrowArrayStream *stream)
{
    if (stream->release != NULL) {
        stream->release(stream);
        stream->release = NULL;
    }
}

static void stream_release(struct ArrowArrayStream *stream)
{
    struct applied *applied = stream->private_data;
    close_run(&applied->run);
    release_stream(&applied->input);
    mem_free(applied);
    stream->private_data = NULL;
    stream->release = NULL;
}

static enum err open_applied(struct applied *applied, const char *config_json, struct error *e)
{
    struct ArrowSchema schema = {0};
    int code = applied->input.get_schema(&applied->input, &schema);
    if (code != 0) {
        const char *why = applied->input.get_last_error(&applied->input);
        return error_set(e, ERR_INTERNAL, "%s", why != NULL ? why : strerror(code));
    }
    enum err err = open_run(&applied->run, config_json, &schema, e);
    schema_release(&schema);
    return err;
}

enum err operators_apply(const struct operators *operators, const char *name, const char *config_json,
                         struct ArrowArrayStream *input, struct ArrowArrayStream *out, struct error *e)
{
    const struct capstan_operator *op = NULL;
    enum err err = find(operators, name, &op, e);
    if (err != ERR_OK) {
        release_stream(input);
        return err;
    }
    struct applied *applied = mem_calloc(1, sizeof(*applied));
    applied->run.op = op;
    applied->input = *input;
    input->release = NULL;
    err = open_applied(applied, config_json, e);
    if (err != ERR_OK) {
        release_stream(&applied->input);
        mem_free(applied);
        return err;
    }
    *out = (struct ArrowArrayStream){.get_schema = stream_schema,
                                     .get_next = stream_next,
                                     .get_last_error = stream_error,
                                     .release = stream_release,
                                     .private_data = applied};
    return ERR_OK;
}

void operators_watch(struct ArrowArrayStream *applied, const struct exec_stop *stop)
{
    ASSERT(applied->get_next == stream_next);
    struct applied *own = applied->private_data;
    own->run.stop = stop;
}
