/*
 * The loop: the one thread that owns the core.
 *
 * It steps requests as they arrive, into the flight that gathers. When no flight is with the writer, the gathering one
 * goes; what happens meanwhile goes into the other. Answers leave when the flight that they belong to has come back
 * durable, in order. Reads wait like answers: they may have seen what is not durable yet.
 *
 * Of what clients ask for, a flight takes only so much, in turns (turns.h); the rest waits for the next one. So a client
 * that sends a lot makes others wait for two flights, not for all that it has sent. What workers send is taken at once.
 *
 * A database that refuses what is in a batch (ERR_INVALID) ends the term, too, for the core has taken the step already.
 * Whoever was in that batch is a suspect: after the next election they are taken again, one per batch. The one that is
 * refused alone is answered so; the others never notice more than a pause.
 */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/planted.h"
#include "coordinator/await.h"
#include "coordinator/coordinator_internal.h"

#define KEY_KEPT_MS 86400000 /* how long a client's idempotency key means the same job */

/* What clients may put into one flight: requests, and tasks of new jobs, of which so many cost as much as a request. */
#define FLIGHT_WEIGHT_MAX 1024
#define TASKS_PER_WEIGHT 4

struct loop {
    struct coordinator *c;
    struct core *core; /* NULL: this process does not lead */
    struct flight flights[2];
    struct flight *gathering;
    struct flight *flying;   /* with the writer; NULL: none */
    struct flight *stranded; /* of a term that ended while the writer had it; not to be touched before the next */
    struct list waiting;     /* requests whose reply has not come out of the core, or has not left */
    struct list inbound;     /* requests that have arrived and were not taken yet */
    struct list suspects;    /* commands of a batch that the database refused, to be tried one by one */
    struct await await;
    uint64_t term;
    bool is_blind;        /* the store did not answer a look for a job in this turn */
    bool is_torn;         /* it broke off in the middle of a job, of which the core now has a part */
    struct store *reader; /* for ended jobs; NULL: not connected */
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
    flight->n_data_sets = 0;
    flight->n_carried = 0;
    flight->weight = 0;
    flight->since_ms = 0;
    ASSERT(list_is_empty(&flight->reads));
}

static bool flight_writes(const struct flight *flight)
{
    return flight->fx.rows != NULL || flight->n_payloads > 0 || flight->n_inbox_done > 0 || flight->n_data_sets > 0;
}

static bool flight_is_empty(const struct flight *flight)
{
    return !flight_writes(flight) && flight->fx.replies == NULL && flight->fx.children == NULL &&
           flight->fx.child_ends == NULL && list_is_empty(&flight->reads);
}

static void finish(struct request *request, const struct reply *reply, enum err err)
{
    list_remove(&request->in_list);
    coordinator__answer(request, reply, err);
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
    struct core_input in = {.now_ms = clock_mono_ms() + l->clock_offset_ms, .seed = {l->seed[0], l->seed[1]}};
    const struct flight *oldest = l->flying != NULL ? l->flying : l->gathering;
    in.pending_since_ms = coordinator__pending_since(l->c, oldest->since_ms);
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

/* The store could not say. The rest of this turn does not ask again, so that many do not wait one after the other. */
static enum err lose_reader(struct loop *l)
{
    store_close(l->reader);
    l->reader = NULL;
    l->is_blind = true;
    return ERR_UNAVAILABLE;
}

static enum err open_reader(struct loop *l)
{
    if (l->is_blind) {
        return ERR_UNAVAILABLE;
    }
    if (l->reader == NULL && store_open(l->c->options.store_url, &l->reader, NULL) != ERR_OK) {
        l->reader = NULL;
        return lose_reader(l);
    }
    return ERR_OK;
}

/*
 * Has the core know the job if there is one. ERR_UNAVAILABLE if the store could not say: whoever asks must not be taken
 * for somebody who names a new job then.
 */
static enum err bring_job(struct loop *l, const char *job_id)
{
    struct bringing bringing = {.l = l};
    if (job_id == NULL || core_has_job(l->core, job_id)) {
        return ERR_OK;
    }
    enum err err = open_reader(l);
    if (err != ERR_OK) {
        return err;
    }
    err = store_load_job(l->reader, job_id, bring_row, &bringing, NULL);
    if (err != ERR_OK && err != ERR_NOT_FOUND) {
        l->is_torn = bringing.is_ended;
        return lose_reader(l);
    }
    if (bringing.is_ended && core_has_job(l->core, job_id)) {
        struct command command = {.kind = CMD_LOADED_JOB, .u.loaded_job = job_id};
        step(l, &command);
    }
    return ERR_OK;
}

/* A submit may name a job that ended long ago, unless somebody has looked and nothing can have slipped by since. */
static enum err bring_submitted(struct loop *l, struct request *request)
{
    const struct cmd_submit *submit = &request->command.u.submit;
    const char *by_key = NULL;
    if (request->unknown.term == l->term && core_residency(l->core).forgotten <= request->unknown.ended) {
        return ERR_OK;
    }
    enum err err = bring_job(l, submit->job_id);
    if (err != ERR_OK || submit->idempotency_key == NULL || core_job_by_key(l->core, submit->idempotency_key) != NULL) {
        return err;
    }
    err = open_reader(l);
    if (err == ERR_OK) {
        err = store_find_key(l->reader, submit->idempotency_key, clock_mono_ms() + l->clock_offset_ms - KEY_KEPT_MS,
                             &request->arena, &by_key, NULL);
        if (err == ERR_NOT_FOUND) {
            return ERR_OK;
        }
        err = err == ERR_OK ? bring_job(l, by_key) : lose_reader(l);
    }
    return err;
}

static enum err bring_jobs(struct loop *l, struct request *request)
{
    const struct command *command = &request->command;
    enum err err = ERR_OK;
    switch (command->kind) {
    case CMD_SUBMIT:
        return bring_submitted(l, request);
    case CMD_REPORT:
        for (uint32_t i = 0; i < command->u.report.n_reports && err == ERR_OK; i++) {
            const struct task_report *reports = command->u.report.reports;
            /* Reports about one job often follow each other; one that is unknown need not be looked for again. */
            if (i == 0 || strcmp(reports[i].ref.task.job_id, reports[i - 1].ref.task.job_id) != 0) {
                err = bring_job(l, reports[i].ref.task.job_id);
            }
        }
        return err;
    case CMD_MAP_OUTPUT:
        return bring_job(l, command->u.map_output.ref.task.job_id);
    case CMD_RESULTS:
        return bring_job(l, command->u.results.ref.task.job_id);
    case CMD_CANCEL:
        return bring_job(l, command->u.cancel.job_id);
    case CMD_RETRY:
        return bring_job(l, command->u.retry.job_id);
    case CMD_REGISTER:
    case CMD_HEARTBEAT:
    case CMD_DEREGISTER:
    case CMD_GET_TASK:
    case CMD_SET_NODE:
    case CMD_CHILD_DONE:
    case CMD_CHILD_FAILED:
    case CMD_TICK:
    case CMD_LOAD:
    case CMD_LOADED:
    case CMD_LOADED_JOB:
        break;
    }
    return ERR_OK;
}

/* ---- requests ---- */

/* Whether the core has taken what this payload belongs to. What it refused is not worth keeping. */
static bool is_taken(const struct reply *reply, uint32_t i)
{
    switch (reply->kind) {
    case REPLY_SUBMIT:
        return !reply->u.job.existed;
    case REPLY_REPORT:
        i %= reply->u.report.n_outcomes;
        return reply->u.report.outcomes[i] == REFUSE_NONE && !reply->u.report.repeated[i];
    case REPLY_ACCEPT:
        return reply->u.accept == REFUSE_NONE;
    case REPLY_ERROR:
    case REPLY_REGISTER:
    case REPLY_HEARTBEAT:
    case REPLY_TASKS:
    case REPLY_JOB:
    case REPLY_DONE:
        return false;
    }
    return false;
}

static void carry_inbox_done(struct flight *flight, uint64_t inbox_id)
{
    flight->inbox_done =
        mem_grow(flight->inbox_done, &flight->cap_inbox_done, flight->n_inbox_done + 1, sizeof *flight->inbox_done);
    flight->inbox_done[flight->n_inbox_done++] = inbox_id;
}

static void carry_data_set(struct flight *flight, const struct data_set *from)
{
    flight->data_sets =
        mem_grow(flight->data_sets, &flight->cap_data_sets, flight->n_data_sets + 1, sizeof *flight->data_sets);
    struct data_set *to = &flight->data_sets[flight->n_data_sets++];
    to->name = arena_strdup(&flight->fx.arena, from->name);
    to->source = arena_strdup(&flight->fx.arena, from->source);
    to->format = arena_strdup(&flight->fx.arena, from->format);
}

/* Data sets that accepted reports bring. */
static void carry_made(struct flight *flight, const struct request *request, const struct reply *reply)
{
    for (uint32_t i = 0; request->made != NULL && i < request->command.u.report.n_reports; i++) {
        if (request->made[i].name != NULL && is_taken(reply, i)) {
            carry_data_set(flight, &request->made[i]);
        }
    }
}

static void carry_payloads(struct flight *flight, const struct request *request, const struct reply *reply)
{
    for (uint32_t i = 0; i < request->n_payloads; i++) {
        if (request->payloads[i].bytes == NULL || !is_taken(reply, i)) {
            continue;
        }
        flight->payloads =
            mem_grow(flight->payloads, &flight->cap_payloads, flight->n_payloads + 1, sizeof *flight->payloads);
        struct payload *to = &flight->payloads[flight->n_payloads++];
        *to = request->payloads[i]; /* the request may be gone before the commit, so the flight gets a copy */
        to->job_id = arena_strdup(&flight->fx.arena, to->job_id);
        to->bytes = arena_copy(&flight->fx.arena, to->bytes, to->n_bytes);
    }
    if (request->inbox_id != 0 && (reply->kind != REPLY_ERROR || reply->code == ERR_EXISTS)) {
        carry_inbox_done(flight, request->inbox_id);
    }
}

/* An entry of the inbox that cannot become a job. Answered like a read, when the flight is durable. */
static void take_discard(struct flight *flight, struct request *request)
{
    carry_inbox_done(flight, request->inbox_id);
    list_push_back(&flight->reads, &request->in_list);
}

/* A write that the core knows nothing of: it is answered like a read, when the flight is durable. */
static void take_data_set(struct flight *flight, struct request *request)
{
    carry_data_set(flight, &request->data_set);
    flight->n_carried++;
    list_push_back(&flight->reads, &request->in_list);
}

static void take_read(struct loop *l, struct request *request)
{
    struct job_status status;
    bool waits = request->await_job != NULL && core_job_status(l->core, request->await_job, &status) == ERR_OK &&
                 !job_state_is_terminal(status.state) && clock_mono_ms() < request->await_until_mono_ms;
    if (waits) {
        await_add(&l->await, request);
        return;
    }
    request->read(l->core, request);
    list_push_back(&l->gathering->reads, &request->in_list);
}

static void step_down(struct loop *l, enum err why);

static void take_command(struct loop *l, struct request *request)
{
    enum err err = bring_jobs(l, request);
    if (err != ERR_OK) {
        coordinator__answer(request, NULL, err);
        if (l->is_torn) {
            step_down(l, err); /* the core cannot forget the part; the next one will know nothing of it */
        }
        return;
    }
    list_push_back(&l->waiting, &request->in_list);
    request->command.reply_to = (uint64_t)(uintptr_t)request;
    request->flight = l->gathering;
    l->gathering->n_carried++;
    struct reply **end = l->gathering->fx.replies_end;
    step(l, &request->command);
    if (request->n_payloads > 0 || request->inbox_id != 0) {
        const struct reply *reply = end == NULL ? l->gathering->fx.replies : *end;
        ASSERT(reply != NULL && reply->to == request->command.reply_to); /* only polls are answered later */
        carry_payloads(l->gathering, request, reply);
        carry_made(l->gathering, request, reply);
    }
}

static void take_request(struct loop *l, struct request *request)
{
    if (l->core == NULL) {
        finish(request, NULL, ERR_PRECONDITION);
    } else if (request->read != NULL) {
        take_read(l, request);
    } else if (request->data_set.name != NULL) {
        take_data_set(l->gathering, request);
    } else if (request->is_discard) {
        take_discard(l->gathering, request);
    } else {
        take_command(l, request);
    }
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

static void refuse_child(struct loop *l, const struct attempt_ref *ref)
{
    struct command command = {.kind = CMD_CHILD_FAILED,
                              .u.child_failed = {.ref = *ref, .message = "this coordinator runs no child jobs"}};
    step(l, &command);
}

static void tend_children(struct loop *l, const struct flight *flight)
{
    const struct coordinator_options *options = &l->c->options;
    for (const struct child_start *start = flight->fx.children; start != NULL; start = start->next) {
        if (options->on_child != NULL) {
            options->on_child(options->context, start);
        } else {
            refuse_child(l, &start->ref);
        }
    }
    for (const struct child_end *end = flight->fx.child_ends; end != NULL; end = end->next) {
        if (options->on_child_end != NULL) {
            options->on_child_end(options->context, end);
        } else {
            refuse_child(l, &end->ref);
        }
    }
}

/* Those who wait for a job that has now ended for good look at it. */
static void wake_awaiting(struct loop *l, const struct flight *flight)
{
    struct list woken;
    list_init(&woken);
    if (await_next_mono_ms(&l->await) == INT64_MAX) {
        return;
    }
    for (const struct row *row = flight->fx.rows; row != NULL; row = row->next) {
        const struct row_job *job = (const struct row_job *)(const void *)row;
        if (row->kind == ROW_JOB && job_state_is_terminal(job->state)) {
            await_take_job(&l->await, job->job_id, &woken);
        }
    }
    for (struct list *first; (first = list_first(&woken)) != NULL;) {
        struct request *request = CONTAINER_OF(first, struct request, in_list);
        list_remove(first);
        request->await_job = NULL;
        take_read(l, request);
    }
}

/* The flight is durable, or wrote nothing: everything in it may leave. */
static void land(struct loop *l, struct flight *flight)
{
    l->c->landing_since_ms = flight->since_ms;
    if (flight->fx.rows != NULL && l->c->options.on_durable != NULL) {
        l->c->options.on_durable(l->c->options.context, flight->fx.rows);
    }
    if (l->c->options.on_batch != NULL && flight_writes(flight)) {
        const struct row *rows = flight->fx.rows;
        struct batch batch = flight_batch(flight, &rows);
        l->c->options.on_batch(l->c->options.context, &batch);
    }
    for (struct reply *reply = flight->fx.replies; reply != NULL; reply = reply->next) {
        deliver(reply);
    }
    for (struct list *first; (first = list_first(&flight->reads)) != NULL;) {
        finish(CONTAINER_OF(first, struct request, in_list), NULL, ERR_OK);
    }
    wake_awaiting(l, flight);
    tend_children(l, flight);
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
        for (struct reply *reply = PLANTED(ack_before_commit) ? flight->fx.replies : NULL; reply; reply = reply->next) {
            deliver(reply);
        }
        l->flying = flight;
        flight->ended = core_residency(l->core).ended;
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
    if (l->stranded != NULL) {
        flight_clear(l->stranded);
        l->stranded = NULL;
    }
    l->core = core;
    l->clock_offset_ms = clock_offset_ms;
    say_role(l, true, "elected");
    step(l, &command);
    tick(l);
}

/*
 * The database refused the batch that was flying. A command that was alone in it is to blame and answered so; several
 * are suspects and will be tried again one by one.
 */
static void sort_suspects(struct loop *l, const struct flight *refused)
{
    LIST_EACH_SAFE(at, next, &l->waiting) {
        struct request *request = CONTAINER_OF(at, struct request, in_list);
        if (request->flight != refused || request->command.kind == CMD_GET_TASK) {
            continue;
        }
        if (refused->n_carried == 1) {
            finish(request, NULL, ERR_INVALID);
        } else {
            list_remove(at);
            list_push_back(&l->suspects, at);
        }
    }
    LIST_EACH_SAFE(at, next, &refused->reads) {
        struct request *request = CONTAINER_OF(at, struct request, in_list);
        if (request->data_set.name == NULL) {
            continue;
        }
        if (refused->n_carried == 1) {
            finish(request, NULL, ERR_INVALID);
        } else {
            list_remove(at);
            list_push_back(&l->suspects, at);
        }
    }
}

/*
 * Drops the core and everything that waits for it. What was with the writer may be durable or not: nobody is told. A
 * writer that still has a flight is not waited for, since a database that hangs can take its time; the flight stays as
 * it is until that writer has come back and won another election.
 */
static void step_down(struct loop *l, enum err why)
{
    struct coordinator *c = l->c;
    struct list awaiting;
    pthread_mutex_lock(&c->lock);
    l->stranded = l->flying != NULL && !c->is_committed && !c->is_lost ? l->flying : NULL;
    c->outbound = NULL;
    c->is_wanted = false;
    c->stats.stepped_down++;
    pthread_cond_signal(&c->writer_wakes);
    pthread_mutex_unlock(&c->lock);
    core_free(l->core);
    l->core = NULL;
    if (why == ERR_INVALID && l->flying != NULL) {
        sort_suspects(l, l->flying);
    } else {
        finish_all(&l->suspects, ERR_PRECONDITION);
    }
    l->flying = NULL;
    l->is_torn = false;
    list_init(&awaiting);
    await_take_all(&l->await, &awaiting);
    finish_all(&awaiting, ERR_PRECONDITION);
    for (int i = 0; i < 2; i++) {
        finish_all(&l->flights[i].reads, ERR_PRECONDITION);
        if (&l->flights[i] != l->stranded) {
            flight_clear(&l->flights[i]);
        }
    }
    finish_all(&l->waiting, ERR_PRECONDITION);
    say_role(l, false, err_text(why));
}

static void land_flying(struct loop *l)
{
    struct flight *flight = l->flying;
    l->flying = NULL;
    pthread_mutex_lock(&l->c->lock);
    l->c->ended_landed = flight->ended;
    pthread_mutex_unlock(&l->c->lock);
    land(l, flight);
}

/* Takes what has arrived; while there are suspects, only the next of them, and only alone. True if anything was. */
static bool take_arrivals(struct loop *l)
{
    if (l->core != NULL && !list_is_empty(&l->suspects)) {
        if (l->flying != NULL || !flight_is_empty(l->gathering)) {
            return false;
        }
        struct list *first = list_first(&l->suspects);
        list_remove(first);
        take_request(l, CONTAINER_OF(first, struct request, in_list));
        return true;
    }
    bool any = !list_is_empty(&l->inbound);
    for (struct list *first; (first = list_first(&l->inbound)) != NULL;) {
        list_remove(first);
        take_request(l, CONTAINER_OF(first, struct request, in_list));
    }
    return any;
}

static void take_due(struct loop *l)
{
    struct list due;
    list_init(&due);
    await_take_due(&l->await, clock_mono_ms(), &due);
    for (struct list *first; (first = list_first(&due)) != NULL;) {
        list_remove(first);
        take_read(l, CONTAINER_OF(first, struct request, in_list));
    }
}

/* Suspects wait for this process to lead again; if another leads, that may be never. The lock is held. */
static bool are_forsaken(const struct loop *l)
{
    const struct leader_news *leader = &l->c->leader;
    return l->core == NULL && !list_is_empty(&l->suspects) && leader->address[0] != '\0' && !leader->is_self;
}

/* One look at everything that may have happened. Called without the lock. */
static void turn(struct loop *l)
{
    struct coordinator *c = l->c;
    coordinator__seed(l->seed);
    pthread_mutex_lock(&c->lock);
    struct core *elected = c->elected;
    c->elected = NULL;
    bool committed = l->flying != NULL && c->is_committed;
    bool late = l->core != NULL && coordinator__is_late(c);
    bool lost = c->is_lost;
    enum err lost_err = c->lost_err;
    int64_t clock_offset_ms = c->clock_offset_ms;
    bool is_forsaken = are_forsaken(l);
    c->stats.commands = l->n_commands;
    l->term = c->stats.elected;
    pthread_mutex_unlock(&c->lock);
    if (is_forsaken) {
        finish_all(&l->suspects, ERR_PRECONDITION);
    }
    if (elected != NULL) {
        take_over(l, elected, clock_offset_ms);
    } else if (l->core != NULL && (lost || late)) {
        step_down(l, lost ? lost_err : ERR_DEADLINE);
    } else if (committed) {
        land_flying(l);
    }
    l->is_blind = false;
    bool any = take_arrivals(l);
    if (l->core != NULL && (any || clock_mono_ms() >= l->wake_at_mono_ms)) {
        tick(l);
    }
    if (l->core != NULL) {
        take_due(l);
        deliver_immediate(l->gathering);
        take_off(l);
        if (flight_is_empty(l->gathering)) {
            l->gathering->weight = 0; /* what was taken waits for something else, or has been answered */
        }
    }
}

static int64_t next_wake_mono_ms(const struct loop *l)
{
    int64_t await_ms = await_next_mono_ms(&l->await);
    return await_ms < l->wake_at_mono_ms ? await_ms : l->wake_at_mono_ms;
}

/* Whether clients may put more into the flight that gathers. Without a core they are told so, all at once. */
static bool has_room(const struct loop *l)
{
    return l->core == NULL || l->gathering->weight < FLIGHT_WEIGHT_MAX;
}

/* Requests that arrive while suspects are tried wait outside: they are no news then. */
static bool has_news(struct loop *l)
{
    const struct coordinator *c = l->c;
    bool is_trying = l->core != NULL && !list_is_empty(&l->suspects);
    bool has_arrivals = !list_is_empty(&c->inbound) || (!turns_is_empty(&c->clients) && has_room(l));
    return (has_arrivals && !is_trying) || c->elected != NULL || c->is_stopping ||
           (l->flying != NULL && c->is_committed) || (l->core != NULL && c->is_lost) ||
           (is_trying && l->flying == NULL) || are_forsaken(l);
}

static uint32_t weight_of(const struct request *request)
{
    bool is_new_job = request->read == NULL && request->command.kind == CMD_SUBMIT;
    return 1 + (is_new_job ? request->command.u.submit.n_stages / TASKS_PER_WEIGHT : 0);
}

/* Takes what has arrived; of clients no more than there is room for, unless all of it is wanted. The lock is held. */
static void take_inbound(struct loop *l, bool is_all)
{
    struct coordinator *c = l->c;
    struct list *first;
    while ((first = list_first(&c->inbound)) != NULL) {
        list_remove(first);
        list_push_back(&l->inbound, first);
    }
    while ((is_all || has_room(l)) && (first = turns_take(&c->clients)) != NULL) {
        l->gathering->weight += weight_of(CONTAINER_OF(first, struct request, in_list));
        list_push_back(&l->inbound, first);
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
    bool landed = l->flying != NULL && c->is_committed;
    pthread_mutex_unlock(&c->lock);
    if (landed) {
        land_flying(l);
    }
}

/* A flight that is stranded with the writer can be freed when that is through with it. */
static void await_writer(struct loop *l)
{
    struct coordinator *c = l->c;
    pthread_mutex_lock(&c->lock);
    while (l->stranded != NULL && !c->is_committed && !c->is_lost) {
        pthread_cond_wait(&c->loop_wakes, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
}

/* Lets what was begun become durable before the leadership is handed back. */
static void wind_up(struct loop *l)
{
    pthread_mutex_lock(&l->c->lock);
    take_inbound(l, true);
    l->c->has_ended = true;
    pthread_mutex_unlock(&l->c->lock);
    finish_all(&l->inbound, ERR_PRECONDITION);
    if (l->core != NULL) {
        await_flight(l);
        step_down(l, ERR_CANCELED);
    }
    await_writer(l);
    finish_all(&l->suspects, ERR_PRECONDITION);
    await_deinit(&l->await);
    store_close(l->reader);
    for (int i = 0; i < 2; i++) {
        effects_deinit(&l->flights[i].fx);
        mem_free(l->flights[i].payloads);
        mem_free(l->flights[i].data_sets);
        mem_free(l->flights[i].inbox_done);
    }
}

void *coordinator__loop(void *coordinator)
{
    struct coordinator *c = coordinator;
    struct loop l = {.c = c, .gathering = NULL};
    bool stopping = false;
    l.gathering = &l.flights[0];
    list_init(&l.waiting);
    list_init(&l.inbound);
    list_init(&l.suspects);
    list_init(&l.flights[0].reads);
    list_init(&l.flights[1].reads);
    while (!stopping) {
        pthread_mutex_lock(&c->lock);
        while (!has_news(&l) && !(l.core != NULL && clock_mono_ms() >= next_wake_mono_ms(&l))) {
            coordinator__wait(c, &c->loop_wakes, l.core != NULL ? next_wake_mono_ms(&l) : clock_mono_ms() + 10000);
        }
        take_inbound(&l, false);
        stopping = c->is_stopping;
        pthread_mutex_unlock(&c->lock);
        turn(&l);
    }
    wind_up(&l);
    return NULL;
}
