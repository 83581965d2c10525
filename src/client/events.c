#include "client/events.h"

#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/mem.h"

#define FOLLOW_PATIENCE_MS 60000 /* with coordinators that were there before */
#define PAUSE_MS 100             /* before a stream that its server has ended is opened again */

struct events {
    struct client_caller caller;
    struct events_request request;
    struct client_stream *stream; /* NULL: to be opened */
    bool is_fruitful;             /* this stream has brought something */
    bool is_resumed;              /* there was a stream before this one */
    struct arena arena;           /* of the event */
};

struct events *events_open(const struct client_caller *caller, const struct events_request *request)
{
    struct events *events = mem_calloc(1, sizeof *events);
    events->caller = *caller;
    events->request = *request;
    return events;
}

void events_close(struct events *events)
{
    if (events != NULL) {
        client_stream_close(events->stream);
        arena_deinit(&events->arena);
        mem_free(events);
    }
}

static void open_stream(struct events *events)
{
    const struct events_request *asked = &events->request;
    struct pb_watch_events_request *request = wire_new(PB_WATCH_EVENTS_REQUEST, &events->arena);
    request->query_id = (char *)asked->job_id;
    request->after_seq = asked->after_seq;
    request->follow = asked->follows ? 1 : 0;
    struct client_call call = {.path = "/capstan.v1.ControlPlane/WatchEvents",
                               .message = request,
                               .answer = PB_EVENT,
                               .patience_ms = events->is_resumed ? FOLLOW_PATIENCE_MS : asked->patience_ms,
                               .cancel = events->caller.cancel};
    events->is_fruitful = false;
    client_stream_open(events->caller.client, &call, &events->stream);
}

static void close_stream(struct events *events)
{
    client_stream_close(events->stream);
    events->stream = NULL;
    events->is_resumed = true;
}

enum err events_next(struct events *events, const struct pb_event **out, struct error *e)
{
    for (;;) {
        struct pb_event *event = NULL;
        bool is_end = false;
        arena_reset(&events->arena);
        if (events->stream == NULL) {
            open_stream(events);
        }
        enum err err = client_stream_next(events->stream, &events->arena, &event, &is_end, e);
        if (err == ERR_OK && (!is_end || !events->request.follows)) {
            *out = event;
            if (event != NULL && event->seq > events->request.after_seq) {
                events->request.after_seq = event->seq;
            }
            events->is_fruitful = true;
            return ERR_OK;
        }
        if (err != ERR_OK && !(events->is_fruitful && client_may_resume(err))) {
            return err;
        }
        close_stream(events);
        if (err == ERR_OK) {
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
        }
    }
}

static bool is_one_of(const char *type, const char *const *types, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(type, types[i]) == 0) {
            return true;
        }
    }
    return false;
}

bool event_is_of_whole_job(const struct pb_event *event)
{
    static const char *const types[] = {"created", "completed", "failed", "cancelled", "retried"};
    return event->ref != NULL && event->ref->attempt == 0 && is_one_of(event->type, types, ARRAY_LEN(types));
}

bool event_is_end_of_job(const struct pb_event *event)
{
    static const char *const types[] = {"completed", "failed", "cancelled"};
    return event_is_of_whole_job(event) && is_one_of(event->type, types, ARRAY_LEN(types));
}

bool event_is_retry_of_job(const struct pb_event *event)
{
    return event_is_of_whole_job(event) && strcmp(event->type, "retried") == 0;
}
