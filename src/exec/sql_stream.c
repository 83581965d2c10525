/*
 * sql_stream.c - Arrow streams that remember why they failed, and how much they have yielded.
 */
#include <errno.h>

#include "exec/sql_internal.h"

/* Keeps the first failure only: later ones follow from it. */
static int note(struct sql_tap *tap, int failure)
{
    if (failure != 0 && tap->error.code == ERR_OK) {
        const char *text = tap->inner.get_last_error(&tap->inner);
        enum err code = failure == EINVAL ? ERR_INVALID : (failure == ECANCELED ? ERR_CANCELED : ERR_UNAVAILABLE);
        error_set(&tap->error, code, "%s", text != NULL ? text : "the stream failed and does not say why");
    }
    return failure;
}

static int tap_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    struct sql_tap *tap = stream->private_data;
    return note(tap, tap->inner.get_schema(&tap->inner, out));
}

static int tap_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    struct sql_tap *tap = stream->private_data;
    int failure = note(tap, tap->inner.get_next(&tap->inner, out));
    if (failure == 0 && out->release != NULL && tap->rows_in != NULL) {
        atomic_fetch_add(tap->rows_in, (uint64_t)out->length);
    }
    return failure;
}

static const char *tap_error(struct ArrowArrayStream *stream)
{
    const struct sql_tap *tap = stream->private_data;
    return tap->error.code == ERR_OK ? NULL : tap->error.message;
}

static void tap_release(struct ArrowArrayStream *stream)
{
    struct sql_tap *tap = stream->private_data;
    stream->release = NULL;
    if (tap->inner.release != NULL) {
        tap->inner.release(&tap->inner);
    }
}

void sql__tap(struct sql_tap *tap, struct ArrowArrayStream *out)
{
    *out = (struct ArrowArrayStream){.get_schema = tap_schema,
                                     .get_next = tap_next,
                                     .get_last_error = tap_error,
                                     .release = tap_release,
                                     .private_data = tap};
}

static int rows_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    struct sql_rows *rows = stream->private_data;
    return duck_result_schema(rows->result, out, &rows->error) == ERR_OK ? 0 : EIO;
}

static int rows_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    struct sql_rows *rows = stream->private_data;
    *out = (struct ArrowArray){0};
    return duck_result_next(rows->result, out, &rows->error) == ERR_OK ? 0 : EIO;
}

static const char *rows_error(struct ArrowArrayStream *stream)
{
    const struct sql_rows *rows = stream->private_data;
    return rows->error.code == ERR_OK ? NULL : rows->error.message;
}

static void rows_release(struct ArrowArrayStream *stream)
{
    struct sql_rows *rows = stream->private_data;
    stream->release = NULL;
    duck_result_close(rows->result);
    rows->result = NULL;
}

void sql__rows_stream(struct sql_rows *rows, struct ArrowArrayStream *out)
{
    *out = (struct ArrowArrayStream){.get_schema = rows_schema,
                                     .get_next = rows_next,
                                     .get_last_error = rows_error,
                                     .release = rows_release,
                                     .private_data = rows};
}
