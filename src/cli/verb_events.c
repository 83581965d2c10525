/*
 * verb_events.c - what happened, oldest first; with --follow also what happens from now on, until Ctrl-C.
 *
 * Events have numbers that only grow, so a stream that broke goes on where it ended.
 */
#include <inttypes.h>

#include "cli/client.h"
#include "cli/interrupt.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "client/events.h"
#include "wire/json_shape.h"

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

int verb_events(struct cli *cli)
{
    struct interrupt *interrupt = interrupt_begin();
    struct events_request request = {.job_id = cli->n_args > 0 ? cli->args[0] : "",
                                     .after_seq = (uint64_t)cli_number(cli, "after"),
                                     .follows = cli_flag(cli, "follow")};
    struct client_caller caller;
    struct events *events = NULL;
    const struct pb_event *event = NULL;
    struct error e = {0};
    cli->cancel = interrupt_cancel(interrupt);
    enum err err = cli_caller(cli, &caller, &e);
    if (err == ERR_OK) {
        events = events_open(&caller, &request);
        err = cli_hint(events_next(events, &event, &e), &e);
    }
    while (err == ERR_OK && event != NULL) {
        print_event(cli, event);
        err = events_next(events, &event, &e);
    }
    events_close(events);
    bool is_interrupted = interrupt_is_on(interrupt);
    cli->cancel = NULL;
    interrupt_end(interrupt);
    if (is_interrupted) {
        return EXIT_INTERRUPTED;
    }
    return err == ERR_OK ? EXIT_DONE : cli_fail(cli, &e);
}
