/* public_stream.c - the public interface, what comes in pieces: rows, results as a text, events. */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "client/events.h"
#include "client/job.h"
#include "client/public_internal.h"
#include "client/results.h"
#include "client/rows.h"
#include "exchange/columns.h"
#include "exchange/schema.h"

/* ---- rows ---- */

struct row_stream {
    struct rows *rows;
    char *job_id;
    struct error error;
};

static int stream_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    struct row_stream *s = stream->private_data;
    const struct ArrowSchema *schema = NULL;
    if (rows_schema(s->rows, &schema, &s->error) != ERR_OK) {
        return EIO;
    }
    schema_copy(schema, out);
    return 0;
}

static int stream_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    struct row_stream *s = stream->private_data;
    struct ArrowArray batch = {0};
    if (rows_next(s->rows, &batch, &s->error) != ERR_OK) {
        return EIO;
    }
    *out = batch;
    return 0;
}

static const char *stream_error(struct ArrowArrayStream *stream)
{
    const struct row_stream *s = stream->private_data;
    return s->error.code == ERR_OK ? NULL : s->error.message;
}

static void stream_release(struct ArrowArrayStream *stream)
{
    struct row_stream *s = stream->private_data;
    rows_close(s->rows);
    mem_free(s->job_id);
    mem_free(s);
    stream->release = NULL;
}

enum capstan_code capstan_results_arrow(struct capstan_client *client, const char *job_id, struct ArrowArrayStream *out,
                                        struct capstan_error *e)
{
    struct arena arena = {0};
    struct client_caller caller = public__caller(client, &arena);
    struct row_stream *s = mem_calloc(1, sizeof *s);
    struct ArrowArrayStream stream = {.get_schema = stream_schema,
                                      .get_next = stream_next,
                                      .get_last_error = stream_error,
                                      .release = stream_release,
                                      .private_data = s};
    const struct ArrowSchema *schema = NULL;
    struct error why = {0};
    s->job_id = mem_strdup(job_id);
    s->rows = rows_open(&caller, s->job_id, NULL, NULL);
    enum err err = rows_schema(s->rows, &schema, &why); /* so that what is wrong is said here, with its code */
    if (err == ERR_OK) {
        *out = stream;
    } else {
        stream_release(&stream);
    }
    return public__end(&arena, err, &why, e);
}

/* ---- results as a text ---- */

static enum err read_bytes(const struct client_caller *caller, const char *job_id, struct buf *out, struct error *e)
{
    struct results *results = results_open(caller, job_id);
    struct results_chunk chunk = {0};
    bool is_end = false;
    enum err err = results_next(results, &chunk, &is_end, e);
    while (err == ERR_OK && !is_end) {
        buf_append(out, chunk.bytes, chunk.n);
        err = results_next(results, &chunk, &is_end, e);
    }
    results_close(results);
    return err;
}

static enum err read_rows(struct rows *rows, struct columns *columns, struct buf *out, struct error *e)
{
    const struct ArrowSchema *schema = NULL;
    enum err err = rows_schema(rows, &schema, e);
    bool is_first = true;
    if (err == ERR_OK) {
        err = columns_init(columns, schema, e);
    }
    if (err != ERR_OK) {
        return err;
    }
    columns_json_head(columns, out);
    for (;;) {
        struct ArrowArray batch = {0};
        err = rows_next(rows, &batch, e);
        if (err != ERR_OK || batch.release == NULL) {
            break;
        }
        for (int64_t i = 0; i < batch.length; i++) {
            buf_text(out, is_first ? "" : ",");
            columns_json_row(columns, &batch, i, out);
            is_first = false;
        }
        batch.release(&batch);
    }
    buf_text(out, COLUMNS_JSON_END);
    return err;
}

enum capstan_code capstan_results_json(struct capstan_client *client, const char *job_id, char **out, size_t *out_n,
                                       struct capstan_error *e)
{
    struct arena arena = {0};
    struct buf text = {0};
    struct error why = {0};
    struct pb_query_status *status = NULL;
    struct client_caller caller = public__caller(client, &arena);
    enum err err = client_job_status(&caller, job_id, 0, &status, &why);
    if (err == ERR_OK && strcmp(status->kind, "query") == 0) {
        struct columns columns = {0};
        struct rows *rows = rows_open(&caller, job_id, NULL, NULL);
        err = read_rows(rows, &columns, &text, &why);
        columns_deinit(&columns);
        rows_close(rows);
    } else if (err == ERR_OK) {
        err = read_bytes(&caller, job_id, &text, &why);
    }
    if (err == ERR_OK) {
        if (out_n != NULL) {
            *out_n = text.n;
        }
        *out = public__take_text(&text);
    } else {
        buf_deinit(&text);
    }
    return public__end(&arena, err, &why, e);
}

/* ---- events ---- */

#define END_PATIENCE_MS 60000 /* with coordinators that have just brought an event */

struct capstan_events {
    struct capstan_client *client;
    struct events *events;
    const struct pb_event *untold; /* of which it could not be found out whether it is the end; NULL: none */
    char *job_id;
};

enum capstan_code capstan_events_open(struct capstan_client *client, const struct capstan_events_request *request,
                                      struct capstan_events **out, struct capstan_error *e)
{
    struct capstan_events_request given;
    struct client_caller caller = public__caller(client, NULL);
    public__read_struct(&given, sizeof given, request);
    struct capstan_events *events = mem_calloc(1, sizeof *events);
    events->client = client;
    events->job_id = mem_strdup(given.job_id != NULL ? given.job_id : "");
    struct events_request wanted = {
        .job_id = events->job_id, .after_seq = given.after_seq, .follows = given.follow != 0};
    events->events = events_open(&caller, &wanted);
    *out = events;
    UNUSED(e); /* what is wrong is said with the first event */
    return CAPSTAN_OK;
}

void capstan_events_close(struct capstan_events *events)
{
    if (events != NULL) {
        events_close(events->events);
        mem_free(events->job_id);
        mem_free(events);
    }
}

/* Whether the job that was asked for ended with `event` and nobody has retried it: the events behind it would say so. */
static enum err find_end(struct capstan_events *events, const struct pb_event *event, bool *out, struct error *e)
{
    if (events->job_id[0] == '\0' || !event_is_end_of_job(event)) {
        *out = false;
        return ERR_OK;
    }
    struct client_caller caller = public__caller(events->client, NULL);
    struct events_request behind = {.job_id = events->job_id, .after_seq = event->seq, .patience_ms = END_PATIENCE_MS};
    struct events *later = events_open(&caller, &behind);
    const struct pb_event *next = NULL;
    enum err err = ERR_OK;
    do {
        err = events_next(later, &next, e);
    } while (err == ERR_OK && next != NULL && !event_is_retry_of_job(next));
    if (err == ERR_OK) {
        *out = next == NULL;
    }
    events_close(later);
    return err;
}

enum capstan_code capstan_events_next(struct capstan_events *events, struct capstan_event *out, int *out_has,
                                      struct capstan_error *e)
{
    static const struct pb_attempt_ref nobody = CAPSTAN__V1__ATTEMPT_REF__INIT;
    const struct pb_event *event = events->untold;
    struct arena arena = {0};
    struct error why = {0};
    bool is_end = false;
    enum err err = event != NULL ? ERR_OK : events_next(events->events, &event, &why);
    if (err == ERR_OK && event != NULL) {
        err = find_end(events, event, &is_end, &why);
        events->untold = err != ERR_OK ? event : NULL;
    }
    if (err != ERR_OK) {
        return public__end(&arena, err, &why, e);
    }
    *out_has = event != NULL;
    if (event != NULL) {
        const struct pb_attempt_ref *ref = event->ref != NULL ? event->ref : &nobody;
        *out = (struct capstan_event){
            .seq = event->seq,
            .at_ms = event->at_ms,
            .type = event->type,
            .job_id = ref->query_id,
            .stage = ref->stage_id,
            .task = ref->task_id,
            .attempt = ref->attempt,
            .worker_id = event->worker_id,
            .details = event->details,
            .is_end = is_end,
            .resync = event->resync != 0,
        };
    }
    return CAPSTAN_OK;
}
