#include "cli/watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/limits.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/progress.h"
#include "client/events.h"
#include "client/job.h"

#define TICK_MS 100
#define PATIENCE_MS 60000    /* with a coordinator that was there before */
#define LAST_EVENTS_MS 1000  /* how long to wait for the end to show in the events, too */
#define PAUSE_MS 200         /* before a broken stream is opened again */
#define LINES_TASKS_MAX 1000 /* more tasks than this are not told one by one */
#define SUMMARY_EVERY_MS 5000

struct watch {
    struct cli *cli;
    const struct watch_request *request;
    struct client_options options;
    struct rpc_cancel *cancel; /* ends both calls */
    int64_t began_ms;
    int64_t summary_ms; /* when the last summary line was printed */

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    struct progress progress;
    struct buf lines; /* to be printed */
    bool is_done;     /* the status thread has an answer */
    bool is_over;     /* everybody goes home */
    struct arena arena;
    struct pb_query_status *status;
    struct error error; /* code not ERR_OK: there is no status */
};

static bool is_over(struct watch *w)
{
    pthread_mutex_lock(&w->mutex);
    bool over = w->is_over;
    pthread_mutex_unlock(&w->mutex);
    return over;
}

/* Waits until something changes or the time is up. The mutex is held. */
static void wait_for_change(struct watch *w, int64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + ms % 1000 * 1000000;
    until.tv_sec += (time_t)(ms / 1000 + ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_cond_timedwait(&w->changed, &w->mutex, &until);
}

/* ---- the status thread ---- */

/* The wait for the end. Whoever fires the cancel has made up its mind: then there is nothing to be said. */
static void ask_status(struct watch *w, struct client *client)
{
    struct client_caller caller = {.client = client, .cancel = w->cancel, .arena = &w->arena};
    struct pb_query_status *status = NULL;
    struct error e = {0};
    enum err err = client_await(&caller, w->request->job_id, &(struct client_wait){0}, &status, &e);
    pthread_mutex_lock(&w->mutex);
    w->status = status;
    w->error = e;
    w->error.code = err;
    pthread_mutex_unlock(&w->mutex);
}

static void *follow_status(void *context)
{
    struct watch *w = context;
    struct client *client = NULL;
    struct error e = {0};
    enum err err = client_open(&w->options, &client, &e);
    if (err == ERR_OK) {
        ask_status(w, client);
    }
    pthread_mutex_lock(&w->mutex);
    if (err != ERR_OK) {
        w->error = e;
    }
    w->is_done = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
    client_close(client);
    return NULL;
}

/* ---- the events thread ---- */

static void take_event(struct watch *w, const struct pb_event *event)
{
    pthread_mutex_lock(&w->mutex);
    bool tells_all = w->progress.n_tasks <= LINES_TASKS_MAX || event->type[0] == 'f';
    bool wants_lines = !w->cli->err_is_terminal && tells_all;
    progress_event(&w->progress, event, clock_mono_ms(), wants_lines ? &w->lines : NULL);
    if (w->progress.has_ended) {
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->mutex);
}

/* Reads events until none can be had or the watch is over. */
static void read_events(struct watch *w, struct client *client)
{
    struct client_caller caller = {.client = client, .cancel = w->cancel};
    struct events_request request = {.job_id = w->request->job_id, .follows = true, .patience_ms = PATIENCE_MS};
    pthread_mutex_lock(&w->mutex);
    request.after_seq = w->progress.last_seq;
    pthread_mutex_unlock(&w->mutex);
    struct events *events = events_open(&caller, &request);
    while (!is_over(w)) {
        const struct pb_event *event = NULL;
        if (events_next(events, &event, &(struct error){0}) != ERR_OK) {
            break;
        }
        take_event(w, event);
    }
    events_close(events);
}

static void *follow_events(void *context)
{
    struct watch *w = context;
    struct client *client = NULL;
    if (client_open(&w->options, &client, NULL) == ERR_OK) {
        while (!is_over(w)) {
            read_events(w, client);
            pthread_mutex_lock(&w->mutex);
            if (!w->is_over) {
                wait_for_change(w, PAUSE_MS);
            }
            pthread_mutex_unlock(&w->mutex);
        }
    }
    client_close(client);
    return NULL;
}

/* ---- showing it ---- */

/* The mutex is held; only texts are made here. */
static void make_picture(struct watch *w, bool is_last, struct buf *out)
{
    int64_t now_ms = clock_mono_ms();
    if (w->cli->err_is_terminal) {
        struct terminal_size size = cli_terminal_size(w->cli);
        struct progress_view view = {.columns = size.columns,
                                     .lines = size.lines > 4 ? size.lines - 1 : 3,
                                     .now_ms = now_ms,
                                     .elapsed_ms = now_ms - w->began_ms,
                                     .has_colors = w->cli->has_colors_err};
        progress_draw(&w->progress, &view, out);
        return;
    }
    buf_append(out, w->lines.data, w->lines.n);
    buf_reset(&w->lines);
    bool is_large = w->progress.n_tasks > LINES_TASKS_MAX;
    if (is_last || (is_large && now_ms - w->summary_ms >= SUMMARY_EVERY_MS)) {
        progress_summary(&w->progress, now_ms - w->began_ms, out);
        buf_char(out, '\n');
        w->summary_ms = now_ms;
    }
}

static void show(struct watch *w, bool is_last)
{
    struct buf picture = {0};
    if (w->request->is_quiet) {
        return;
    }
    pthread_mutex_lock(&w->mutex);
    make_picture(w, is_last, &picture);
    pthread_mutex_unlock(&w->mutex);
    if (picture.n > 0) {
        fwrite(picture.data, 1, picture.n, w->cli->err);
        fflush(w->cli->err);
    }
    buf_deinit(&picture);
}

/* Until the job's end is known, or Ctrl-C. True if it was Ctrl-C. */
static bool wait_for_end(struct watch *w)
{
    int64_t last_ms = 0;
    for (;;) {
        pthread_mutex_lock(&w->mutex);
        if (!w->is_done) {
            wait_for_change(w, TICK_MS);
        }
        bool is_done = w->is_done;
        bool is_complete = w->progress.has_ended || w->request->is_quiet || w->error.code != ERR_OK;
        pthread_mutex_unlock(&w->mutex);
        if (interrupt_is_on(w->request->interrupt)) {
            return true;
        }
        if (is_done) {
            last_ms = last_ms == 0 ? clock_mono_ms() : last_ms;
            if (is_complete || clock_mono_ms() - last_ms > LAST_EVENTS_MS) {
                return false;
            }
            pthread_mutex_lock(&w->mutex);
            wait_for_change(w, TICK_MS);
            pthread_mutex_unlock(&w->mutex);
        }
        show(w, false);
    }
}

static void watch_init(struct watch *w)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&w->mutex, NULL);
    w->cancel = rpc_cancel_new();
    w->began_ms = clock_mono_ms();
    w->summary_ms = w->began_ms;
    progress_init(&w->progress, w->request->names, w->request->n_tasks);
}

static void watch_deinit(struct watch *w)
{
    progress_deinit(&w->progress);
    buf_deinit(&w->lines);
    rpc_cancel_free(w->cancel);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
    arena_deinit(&w->arena);
}

/* The status in an arena that outlives the watch. */
static enum err keep_status(struct watch *w, struct watch_result *out, struct error *e)
{
    struct buf bytes = {0};
    struct pb_query_status *status = NULL;
    wire_encode(w->status, &bytes);
    enum err err = wire_decode(PB_QUERY_STATUS, bytes.data, bytes.n, &w->cli->arena, &status, e);
    if (err == ERR_OK) {
        out->status = status;
    }
    buf_deinit(&bytes);
    return err;
}

enum err watch_job(struct cli *cli, const struct watch_request *request, struct watch_result *out, struct error *e)
{
    struct watch w = {.cli = cli, .request = request};
    struct watch_result result = {0};
    pthread_t status_thread;
    pthread_t events_thread;
    enum err err = cli_client_options(cli, &w.options, e);
    if (err != ERR_OK) {
        return err;
    }
    watch_init(&w);
    int failed = pthread_create(&status_thread, NULL, follow_status, &w);
    ASSERT(failed == 0);
    if (!request->is_quiet) {
        failed = pthread_create(&events_thread, NULL, follow_events, &w);
        ASSERT(failed == 0);
    }
    result.is_interrupted = wait_for_end(&w);
    pthread_mutex_lock(&w.mutex);
    w.is_over = true;
    pthread_cond_broadcast(&w.changed);
    pthread_mutex_unlock(&w.mutex);
    rpc_cancel_fire(w.cancel);
    pthread_join(status_thread, NULL);
    if (!request->is_quiet) {
        pthread_join(events_thread, NULL);
    }
    show(&w, true);
    result.elapsed_ms = clock_mono_ms() - w.began_ms;
    if (!result.is_interrupted && w.error.code != ERR_OK) {
        *e = w.error;
        err = w.error.code;
    } else if (!result.is_interrupted) {
        err = keep_status(&w, &result, e);
    }
    if (err == ERR_OK) {
        *out = result;
    }
    watch_deinit(&w);
    return err;
}
