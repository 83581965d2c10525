/*
 * The loop: the one thread that owns the core.
 *
 * It steps requests as they arrive, into the flight that gathers. When no flight is with the writer, the gathering one
 * goes; what happens meanwhile goes into the other. Answers leave when the flight that they belong to has come back
 * durable, in order. Reads wait like answers: they may have seen what is not durable yet.
 */
#include <string.h>

#include "base/mem.h"
#include "coordinator/coordinator_internal.h"

struct loop {
    struct coordinator *c;
    struct core *core; /* NULL: this process does not lead */
    struct flight flights[2];
    struct flight *gathering;
    struct flight *flying; /* with the writer; NULL: none */
    struct list waiting;   /* requests whose reply has not come out of the core, or has not left */
    struct store *reader;  /* for ended jobs; NULL: not connected */
    int64_t clock_offset_ms;
    int64_t wake_at_mono_ms;
    uint64_t n_commands;
    uint64_t seed[2]; /* new for every turn; the core never draws the same from it twice */
};

/* ---- flights ---- */

static void flight_clear(struct flight *flight)
{
    effects_reset(&flight->fx);
    flight->n_payloads = 0;
    flight->n_inbox_done = 0;
    flight->since_ms = 0;
    ASSERT(list_is_empty(&flight->reads));
}

static bool flight_writes(const struct flight *flight)
{
    return flight->fx.rows != NULL || flight->n_payloads > 0 || flight->n_inbox_done > 0;
}

static bool flight_is_empty(const struct flight *flight)
{
    return !flight_writes(flight) && flight->fx.replies == NULL && flight->fx.children == NULL &&
           list_is_empty(&flight->reads);
}

static void finish(struct request *request, const struct reply *reply, enum err err)
{
    list_remove(&request->in_list);
    request->answer(request, reply, err);
    request_free(request);
}

static void finish_all(struct list *requests, enum err err)
{
    for (struct list *first; (first = list_first(requests)) != NULL;) {
        finish(CONTAINER_OF(first, struct request, in_list), NULL, err);
    }
}

/* ---- stepping ---- */

static struct core_input input(struct loop *l)
{
    struct core_input in = {.now_ms = coordinator__mono_ms() + l->clock_offset_ms, .seed = {l->seed[0], l->seed[1]}};
    const struct flight *oldest = l->flying != NULL ? l->flying : l->gathering;
    in.pending_since_ms = oldest->since_ms;
    return in;
}

static void step(struct loop *l, const struct command *command)
{
    struct core_input in = input(l);
    if (l->gathering->since_ms == 0) {
        l->gathering->since_ms = in.now_ms;
    }
    core_step(l->core, &in, command, &l->gathering->fx);
    l->n_commands++;
}

static void tick(struct loop *l)
{
    struct command command = {.kind = CMD_TICK};
    step(l, &command);
    l->wake_at_mono_ms = l->gathering->fx.wake_at_ms - l->clock_offset_ms;
}

/* ---- jobs that ended long ago ---- */

struct bringing {
    struct loop *l;
    bool is_ended;
};

static void bring_row(void *context, const struct row *row)
{
    struct bringing *bringing = context;
    if (row->kind == ROW_JOB) {
        const struct row_job *job = (const struct row_job *)(const void *)row;
        bringing->is_ended = job_state_is_terminal(job->state);
    }
    /* A job that is not ended there but unknown here has just ended; that is not durable yet. */
    if (bringing->is_ended) {
        struct command command = {.kind = CMD_LOAD, .u.load = row};
        step(bringing->l, &command);
    }
}

static void bring_job(struct loop *l, const char *job_id)
{
    struct bringing bringing = {.l = l};
    if (job_id == NULL || core_has_job(l->core, job_id)) {
        return;
    }
    if (l->reader == NULL && store_open(l->c->options.store_url, &l->reader, NULL) != ERR_OK) {
        l->reader = NULL;
        return;
    }
    enum err err = store_load_job(l->reader, job_id, bring_row, &bringing, NULL);
    if (err != ERR_OK && err != ERR_NOT_FOUND) {
        store_close(l->reader);
        l->reader = NULL;
    }
    if (bringing.is_ended && core_has_job(l->core, job_id)) {
        struct command command = {.kind = CMD_LOADED_JOB, .u.loaded_job = job_id};
        step(l, &command);
    }
}

static void bring_jobs(struct loop *l, struct request *request)
{
    const struct command *command = &request->command;
    const char *by_key = NULL;
    switch (command->kind) {
    case CMD_SUBMIT:
        bring_job(l, command->u.submit.job_id);
        if (command->u.submit.idempotency_key != NULL && l->reader != NULL &&
            core_job_by_key(l->core, command->u.submit.idempotency_key) == NULL &&
            store_find_key(l->reader, command->u.submit.idempotency_key,
                           coordinator__mono_ms() + l->clock_offset_ms - 86400000, &request->arena, &by_key,
                           NULL) == ERR_OK) {
            bring_job(l, by_key);
        }
        break;
    case CMD_REPORT:
        for (uint32_t i = 0; i < command->u.report.n_reports; i++) {
            bring_job(l, command->u.report.reports[i].ref.task.job_id);
        }
        break;
    case CMD_MAP_OUTPUT:
        bring_job(l, command->u.map_output.ref.task.job_id);
        break;
    case CMD_RESULTS:
        bring_job(l, command->u.results.ref.task.job_id);
        break;
    case CMD_CANCEL:
        bring_job(l, command->u.cancel.job_id);
        break;
    case CMD_RETRY:
        bring_job(l, command->u.retry.job_id);
        break;
    case CMD_REGISTER:
    case CMD_HEARTBEAT:
    case CMD_DEREGISTER:
    case CMD_GET_TASK:
    case CMD_SET_NODE:
    case CMD_CHILD_FAILED:
    case CMD_TICK:
    case CMD_LOAD:
    case CMD_LOADED:
    case CMD_LOADED_JOB:
        break;
    }
}

/* ---- requests ---- */

static void carry_payloads(struct flight *flight, const struct request *request)
{
    for (uint32_t i = 0; i < request->n_payloads; i++) {
        flight->payloads =
            mem_grow(flight->payloads, &flight->cap_payloads, flight->n_payloads + 1, sizeof *flight->payloads);
        struct payload *to = &flight->payloads[flight->n_payloads++];
        *to = request->payloads[i]; /* the request may be gone before the commit, so the flight gets a copy */
        to->job_id = arena_strdup(&flight->fx.arena, to->job_id);
        to->bytes = arena_copy(&flight->fx.arena, to->bytes, to->n_bytes);
    }
    if (request->inbox_id != 0) {
        flight->inbox_done =
            mem_grow(flight->inbox_done, &flight->cap_inbox_done, flight->n_inbox_done + 1, sizeof *flight->inbox_done);
        flight->inbox_done[flight->n_inbox_done++] = request->inbox_id;
    }
}

static void take_request(struct loop *l, struct request *request)
{
    if (l->core == NULL) {
        finish(request, NULL, ERR_PRECONDITION);
        return;
    }
    if (request->read != NULL) {
        request->read(l->core, request);
        list_push_back(&l->gathering->reads, &request->in_list);
        return;
    }
    bring_jobs(l, request);
    list_push_back(&l->waiting, &request->in_list);
    request->command.reply_to = (uint64_t)(uintptr_t)request;
    carry_payloads(l->gathering, request);
    step(l, &request->command);
}

static void deliver(struct reply *reply)
{
    if (reply->to != 0) {
        struct request *request = (struct request *)(uintptr_t)reply->to;
        reply->to = 0; /* answered */
        finish(request, reply, ERR_OK);
    }
}

/* Answers that depend on nothing new need not wait for the commit. */
static void deliver_immediate(struct flight *flight)
{
    for (struct reply *reply = flight->fx.replies; reply != NULL; reply = reply->next) {
        if (reply->immediate) {
            deliver(reply);
        }
    }
}

/* Nobody here can run a job of its own for a task yet. */
static void refuse_children(struct loop *l, const struct flight *flight)
{
    for (const struct child_start *start = flight->fx.children; start != NULL; start = start->next) {
        struct command command = {
            .kind = CMD_CHILD_FAILED,
            .u.child_failed = {.ref = start->ref, .message = "this coordinator runs no child jobs"}};
        step(l, &command);
    }
}

/* The flight is durable, or wrote nothing: everything in it may leave. */
static void land(struct loop *l, struct flight *flight)
{
    for (struct reply *reply = flight->fx.replies; reply != NULL; reply = reply->next) {
        deliver(reply);
    }
    for (struct list *first; (first = list_first(&flight->reads)) != NULL;) {
        finish(CONTAINER_OF(first, struct request, in_list), NULL, ERR_OK);
    }
    refuse_children(l, flight);
    flight_clear(flight);
}

static void take_off(struct loop *l)
{
    struct coordinator *c = l->c;
    while (l->flying == NULL && !flight_is_empty(l->gathering)) {
        struct flight *flight = l->gathering;
        l->gathering = flight == &l->flights[0] ? &l->flights[1] : &l->flights[0];
        if (!flight_writes(flight)) {
            land(l, flight);
            continue;
        }
        l->flying = flight;
        pthread_mutex_lock(&c->lock);
        c->outbound = flight;
        c->is_committed = false;
        pthread_cond_signal(&c->writer_wakes);
        pthread_mutex_unlock(&c->lock);
    }
}

/* ---- the term ---- */

static void say_role(struct loop *l, bool leads, const char *why)
{
    if (l->c->options.on_role != NULL) {
        l->c->options.on_role(l->c->options.context, leads, why);
    }
}

static void take_over(struct loop *l, struct core *core, int64_t clock_offset_ms)
{
    struct command command = {.kind = CMD_LOADED};
    l->core = core;
    l->clock_offset_ms = clock_offset_ms;
    say_role(l, true, "elected");
    step(l, &command);
    tick(l);
}

/*
 * Drops the core and everything that waits for it. What was with the writer may be durable or not: nobody is told. The
 * writer must have its hands off the flight: it has answered, or is waited for here.
 */
static void step_down(struct loop *l, enum err why)
{
    struct coordinator *c = l->c;
    pthread_mutex_lock(&c->lock);
    while (l->flying != NULL && !c->is_committed && !c->is_lost) {
        pthread_cond_wait(&c->loop_wakes, &c->lock); /* the deadline has passed: a commit's own time-out ends this */
    }
    c->outbound = NULL;
    c->is_wanted = false;
    c->stats.stepped_down++;
    pthread_cond_signal(&c->writer_wakes);
    pthread_mutex_unlock(&c->lock);
    core_free(l->core);
    l->core = NULL;
    l->flying = NULL;
    enum err answer = why == ERR_INVALID ? ERR_INVALID : ERR_PRECONDITION;
    for (int i = 0; i < 2; i++) {
        finish_all(&l->flights[i].reads, answer);
        flight_clear(&l->flights[i]);
    }
    finish_all(&l->waiting, answer);
    say_role(l, false, err_text(why));
}

/* One look at everything that may have happened. Called without the lock. */
static void turn(struct loop *l, struct list *inbound)
{
    struct coordinator *c = l->c;
    coordinator__seed(l->seed);
    pthread_mutex_lock(&c->lock);
    struct core *elected = c->elected;
    c->elected = NULL;
    bool committed = l->flying != NULL && c->is_committed;
    bool late = l->core != NULL && coordinator__mono_ms() >= c->deadline_mono_ms;
    bool lost = c->is_lost;
    enum err lost_err = c->lost_err;
    int64_t clock_offset_ms = c->clock_offset_ms;
    c->stats.commands = l->n_commands;
    pthread_mutex_unlock(&c->lock);
    if (elected != NULL) {
        take_over(l, elected, clock_offset_ms);
    } else if (l->core != NULL && (lost || late)) {
        step_down(l, lost ? lost_err : ERR_DEADLINE);
    } else if (committed) {
        struct flight *flight = l->flying;
        l->flying = NULL;
        land(l, flight);
    }
    bool any = !list_is_empty(inbound);
    for (struct list *first; (first = list_first(inbound)) != NULL;) {
        list_remove(first);
        take_request(l, CONTAINER_OF(first, struct request, in_list));
    }
    if (l->core != NULL && (any || coordinator__mono_ms() >= l->wake_at_mono_ms)) {
        tick(l);
    }
    if (l->core != NULL) {
        deliver_immediate(l->gathering);
        take_off(l);
    }
}

static bool has_news(struct loop *l)
{
    const struct coordinator *c = l->c;
    return !list_is_empty(&c->inbound) || c->elected != NULL || c->is_stopping ||
           (l->flying != NULL && c->is_committed) || (l->core != NULL && c->is_lost);
}

static void take_inbound(struct coordinator *c, struct list *out)
{
    list_init(out);
    for (struct list *first; (first = list_first(&c->inbound)) != NULL;) {
        list_remove(first);
        list_push_back(out, first);
    }
}

/* The flight that is with the writer may still land; its answers go out. */
static void await_flight(struct loop *l)
{
    struct coordinator *c = l->c;
    pthread_mutex_lock(&c->lock);
    while (l->flying != NULL && !c->is_committed && !c->is_lost) {
        pthread_cond_wait(&c->loop_wakes, &c->lock);
    }
    struct flight *landed = l->flying != NULL && c->is_committed ? l->flying : NULL;
    pthread_mutex_unlock(&c->lock);
    if (landed != NULL) {
        l->flying = NULL;
        land(l, landed);
    }
}

/* Lets what was begun become durable before the leadership is handed back. */
static void wind_up(struct loop *l)
{
    struct list inbound;
    pthread_mutex_lock(&l->c->lock);
    take_inbound(l->c, &inbound);
    pthread_mutex_unlock(&l->c->lock);
    finish_all(&inbound, ERR_PRECONDITION);
    if (l->core != NULL) {
        await_flight(l);
        step_down(l, ERR_CANCELED);
    }
    store_close(l->reader);
    for (int i = 0; i < 2; i++) {
        effects_deinit(&l->flights[i].fx);
        mem_free(l->flights[i].payloads);
        mem_free(l->flights[i].inbox_done);
    }
}

void *coordinator__loop(void *coordinator)
{
    struct coordinator *c = coordinator;
    struct loop l = {.c = c, .gathering = NULL};
    struct list inbound;
    bool stopping = false;
    l.gathering = &l.flights[0];
    list_init(&l.waiting);
    list_init(&l.flights[0].reads);
    list_init(&l.flights[1].reads);
    while (!stopping) {
        pthread_mutex_lock(&c->lock);
        while (!has_news(&l) && !(l.core != NULL && coordinator__mono_ms() >= l.wake_at_mono_ms)) {
            coordinator__wait(c, &c->loop_wakes, l.core != NULL ? l.wake_at_mono_ms : coordinator__mono_ms() + 10000);
        }
        take_inbound(c, &inbound);
        stopping = c->is_stopping;
        pthread_mutex_unlock(&c->lock);
        turn(&l, &inbound);
    }
    wind_up(&l);
    return NULL;
}
