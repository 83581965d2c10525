/*
 * verb_events.c - what happened, oldest first; with --follow also what happens from now on, until Ctrl-C.
 *
 * Events have numbers that only grow, so a stream that broke goes on where it ended.
 */
#include <inttypes.h>

#include "cli/client.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "wire/json_shape.h"

#define FOLLOW_PATIENCE_MS 60000

static void print_event(struct cli *cli, const struct pb_event *event)
{
    struct buf line = {0};
    if (cli->wants_json) {
        wire_json_event(&line, event);
    } else {
        text_time(&line, event->at_ms);
        buf_text(&line, "  ");
        size_t start = line.n;
        text_clean(&line, event->type);
        buf_format(&line, "%*s", (int)(line.n - start < 12 ? 12 - (line.n - start) : 1), "");
        if (event->ref != NULL && event->ref->query_id[0] != '\0') {
            text_clean(&line, event->ref->query_id);
            if (!event_is_of_whole_job(event)) {
                buf_format(&line, " %" PRIu64 ".%" PRIu64 " attempt %" PRIu32, event->ref->stage_id,
                           event->ref->task_id, event->ref->attempt);
            }
        }
        if (event->worker_id[0] != '\0') {
            buf_text(&line, "  ");
            text_clean(&line, event->worker_id);
        }
        if (event->details[0] != '\0' && event->details[1] != '}') {
            buf_text(&line, "  ");
            text_clean(&line, event->details);
        }
    }
    cli_print(cli, &line);
    fflush(cli->out);
    buf_deinit(&line);
}

struct reader {
    struct cli *cli;
    struct client *client;
    uint64_t after_seq;
    bool follows;
};

/* One stream, to its end or its first error. */
static enum err read_stream(struct reader *r, struct error *e)
{
    struct arena arena = {0};
    struct client_stream *stream = NULL;
    struct pb_watch_events_request *request = wire_new(PB_WATCH_EVENTS_REQUEST, &arena);
    bool is_end = false;
    enum err err = ERR_OK;
    request->query_id = (char *)(r->cli->n_args > 0 ? r->cli->args[0] : "");
    request->after_seq = r->after_seq;
    request->follow = r->follows ? 1 : 0;
    struct client_call call = {.path = "/capstan.v1.ControlPlane/WatchEvents",
                               .message = request,
                               .answer = PB_EVENT,
                               .patience_ms = r->after_seq > 0 && r->follows ? FOLLOW_PATIENCE_MS : 0,
                               .cancel = r->cli->cancel};
    client_stream_open(r->client, &call, &stream);
    while (err == ERR_OK && !is_end) {
        struct pb_event *event = NULL;
        arena_reset(&arena);
        err = client_stream_next(stream, &arena, &event, &is_end, e);
        if (err == ERR_OK && !is_end) {
            print_event(r->cli, event);
            r->after_seq = event->seq > r->after_seq ? event->seq : r->after_seq;
        }
    }
    client_stream_close(stream);
    arena_deinit(&arena);
    return err;
}

int verb_events(struct cli *cli)
{
    struct reader r = {.cli = cli, .after_seq = (uint64_t)cli_number(cli, "after"), .follows = cli_flag(cli, "follow")};
    struct interrupt *interrupt = interrupt_begin();
    struct error e = {0};
    uint64_t before = 0;
    enum err err = ERR_OK;
    cli->cancel = interrupt_cancel(interrupt);
    err = cli_client(cli, &r.client, &e);
    while (err == ERR_OK) {
        before = r.after_seq;
        err = read_stream(&r, &e);
        /* A stream that gave something and then broke is taken up again; the search for a server has its own patience. */
        bool is_broken = err == ERR_UNAVAILABLE || err == ERR_FENCED || err == ERR_PRECONDITION;
        if (r.follows && is_broken && r.after_seq > before) {
            err = ERR_OK;
        } else if (err == ERR_OK && !r.follows) {
            break;
        }
    }
    bool is_interrupted = interrupt_is_on(interrupt);
    cli->cancel = NULL;
    interrupt_end(interrupt);
    if (is_interrupted) {
        return EXIT_INTERRUPTED;
    }
    return err == ERR_OK ? EXIT_DONE : cli_fail(cli, &e);
}
