#include "client/results.h"

#include "base/arena.h"
#include "base/mem.h"

/* Connections in a row that break before they bring a byte, after which it is no accident any more. */
#define FRUITLESS_MAX 5

struct results {
    struct client_caller caller;
    const char *job_id;
    struct client_stream *stream; /* NULL: to be opened */
    uint64_t offset;              /* bytes that came */
    uint32_t fruitless;
    struct arena arena; /* of the chunk */
};

struct results *results_open(const struct client_caller *caller, const char *job_id)
{
    struct results *results = mem_calloc(1, sizeof *results);
    results->caller = *caller;
    results->job_id = job_id;
    return results;
}

void results_close(struct results *results)
{
    if (results != NULL) {
        client_stream_close(results->stream);
        arena_deinit(&results->arena);
        mem_free(results);
    }
}

static void open_stream(struct results *results)
{
    struct pb_fetch_query_results_request *request = wire_new(PB_FETCH_QUERY_RESULTS_REQUEST, &results->arena);
    request->query_id = (char *)results->job_id;
    request->offset = results->offset;
    struct client_call call = {.path = "/capstan.v1.ControlPlane/FetchQueryResults",
                               .message = request,
                               .answer = PB_QUERY_RESULTS_CHUNK,
                               .cancel = results->caller.cancel};
    client_stream_open(results->caller.client, &call, &results->stream);
}

enum err results_next(struct results *results, struct results_chunk *out, bool *out_end, struct error *e)
{
    for (;;) {
        struct pb_query_results_chunk *chunk = NULL;
        bool is_new = results->stream == NULL;
        bool is_end = false;
        arena_reset(&results->arena);
        if (is_new) {
            open_stream(results);
        }
        enum err err = client_stream_next(results->stream, &results->arena, &chunk, &is_end, e);
        if (err == ERR_OK) {
            *out = is_end ? (struct results_chunk){0} : (struct results_chunk){chunk->payload.data, chunk->payload.len};
            *out_end = is_end;
            results->offset += out->n;
            results->fruitless = out->n > 0 ? 0 : results->fruitless;
            return ERR_OK;
        }
        client_stream_close(results->stream);
        results->stream = NULL;
        /* A stream that has not begun has tried all servers as long as there was patience. */
        if (is_new || !client_may_resume(err) || ++results->fruitless > FRUITLESS_MAX) {
            return err;
        }
    }
}
