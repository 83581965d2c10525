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
 * The loop never waits for the store. A command about a job that the core does not know waits aside until the finder has
 * looked for it (finder.h); everything else goes on.
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

/* What clients may put into one flight: requests, and tasks of new jobs, of which so many cost as much as a request. */
#define FLIGHT_WEIGHT_MAX 1024
#define TASKS_PER_WEIGHT 4
#define TASKS_WEIGHED_MAX ((uint64_t)TASKS_PER_WEIGHT * FLIGHT_WEIGHT_MAX) /* more make no difference */

/*
 * For what a request names, if that keeps changing while somebody looks. A look that finds what the commit under way will
 * change counts little: the next one comes soon.
 */
#define LOOKS_MAX 16
#define LOOK_WEIGHT 64

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
    struct turns sought;   /* requests that name jobs which somebody has to look for */
    struct search *search; /* that the finder has; NULL: none */
    int64_t clock_offset_ms;
    int64_t wake_at_mono_ms;
    uint64_t n_commands;
    uint64_t seed[2]; /* new for every turn; the core never draws the same from it twice */
};

/* ---- answers ---- */

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
    struct row **end = l->gathering->fx.rows_end;
    core_step(l->core, &in, command, &l->gathering->fx);
    l->n_commands++;
    if (l->search != NULL) {
        search_watch(l->search, end == NULL ? l->gathering->fx.rows : *end);
    }
}

static void tick(struct loop *l)
{
    struct command command = {.kind = CMD_TICK};
    step(l, &command);
    l->wake_at_mono_ms = l->gathering->fx.wake_at_ms - l->clock_offset_ms;
}

/* ---- requests ---- */

/* An entry of the inbox that cannot become a job. Answered like a read, when the flight is durable. */
static void take_discard(struct flight *flight, struct request *request)
{
    flight_carry_inbox_done(flight, request->inbox_id);
    list_push_back(&flight->reads, &request->in_list);
}

/* A write that the core knows nothing of: it is answered like a read, when the flight is durable. */
static void take_data_set(struct flight *flight, struct request *request)
{
    flight_carry_data_set(flight, &request->data_set);
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

static void take_known(struct loop *l, struct request *request)
{
    list_push_back(&l->waiting, &request->in_list);
    request->command.reply_to = (uint64_t)(uintptr_t)request;
    request->flight = l->gathering;
    l->gathering->n_carried++;
    struct reply **end = l->gathering->fx.replies_end;
    step(l, &request->command);
    if (request->n_payloads > 0 || request->inbox_id != 0) {
        const struct reply *reply = end == NULL ? l->gathering->fx.replies : *end;
        ASSERT(reply != NULL && reply->to == request->command.reply_to); /* only polls are answered later */
        flight_carry(l->gathering, request, reply);
    }
}

/* A job may have ended long ago, unless somebody has looked and nothing can have slipped by since. */
static void take_command(struct loop *l, struct request *request)
{
    bool is_sure = request->unknown.term == l->term && core_residency(l->core).forgotten <= request->unknown.ended;
    if (is_sure || !search_is_needed(l->core, &request->command)) {
        take_known(l, request);
    } else if (request->n_looks >= LOOKS_MAX * LOOK_WEIGHT) {
        coordinator__answer(request, NULL, ERR_UNAVAILABLE);
    } else {
        turns_push(&l->sought, request->sender, &request->in_list);
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

/* ---- how much is taken at a time ---- */

/* Whether clients may put more into the flight that gathers. Without a core they are told so, all at once. */
static bool has_room(const struct loop *l)
{
    return l->core == NULL || l->gathering->weight < FLIGHT_WEIGHT_MAX;
}

static uint32_t weight_of(const struct request *request)
{
    const struct cmd_submit *submit = &request->command.u.submit;
    bool is_new_job = request->read == NULL && request->command.kind == CMD_SUBMIT;
    uint64_t n_tasks = 0;
    for (uint32_t i = 0; is_new_job && i < submit->n_stages && n_tasks < TASKS_WEIGHED_MAX; i++) {
        n_tasks += submit->stages[i].n_tasks;
    }
    uint64_t weight = 1 + n_tasks / TASKS_PER_WEIGHT;
    return weight < FLIGHT_WEIGHT_MAX ? (uint32_t)weight : FLIGHT_WEIGHT_MAX;
}

/* ---- jobs that ended long ago ---- */

static bool is_trying(const struct loop *l)
{
    return l->core != NULL && !list_is_empty(&l->suspects);
}

/* To be taken once more: a suspect among the suspects, the others when those are through. */
static void take_later(struct loop *l, struct request *request)
{
    list_push_back(request->is_suspect ? &l->suspects : &l->inbound, &request->in_list);
}

static void finish_sought(struct loop *l, enum err err)
{
    for (struct list *first; (first = turns_take(&l->sought)) != NULL;) {
        finish(CONTAINER_OF(first, struct request, in_list), NULL, err);
    }
}

/*
 * What has ended and left the memory before it was durable is not in the store yet. Whoever looks for that waits until it
 * is.
 */
static bool is_on_its_way(const struct loop *l, const struct search *search)
{
    return core_residency(l->core).forgotten > search->sight.ended &&
           (search_is_named(search, l->gathering->fx.rows) ||
            (l->flying != NULL && search_is_named(search, l->flying->fx.rows)));
}

/* Has the finder look for what the next request names, if there is room for what it wants then. */
static void ask_finder(struct loop *l)
{
    struct coordinator *c = l->c;
    struct list early;
    list_init(&early);
    for (struct list *first; l->search == NULL && has_room(l) && (first = turns_take(&l->sought)) != NULL;) {
        struct request *request = CONTAINER_OF(first, struct request, in_list);
        if (!search_is_needed(l->core, &request->command)) {
            take_later(l, request); /* somebody else has asked for the same, or submitted it */
            continue;
        }
        struct search *search =
            search_new(l->core, request, coordinator_sight(c), clock_mono_ms() + l->clock_offset_ms);
        if (is_on_its_way(l, search)) {
            list_push_back(&early, first);
            search_free(search);
            continue;
        }
        l->search = search;
        pthread_mutex_lock(&c->lock);
        c->asked = search;
        pthread_cond_signal(&c->finder_wakes);
        pthread_mutex_unlock(&c->lock);
    }
    for (struct list *first; (first = list_first(&early)) != NULL;) {
        list_remove(first);
        turns_push(&l->sought, CONTAINER_OF(first, struct request, in_list)->sender, first);
    }
}

static void bring_job(struct loop *l, const struct found_job *job)
{
    struct command command = {.kind = CMD_LOAD};
    if (core_has_job(l->core, job->job_id)) {
        return; /* it was named twice */
    }
    for (const struct row *row = job->rows; row != NULL; row = row->next) {
        command.u.load = row;
        step(l, &command);
    }
    command = (struct command){.kind = CMD_LOADED_JOB, .u.loaded_job = job->job_id};
    step(l, &command);
}

/* Whether the job of the submit's key, which was known when the search began and so not looked for, has left the memory. */
static bool has_lost_key(const struct loop *l, const struct search *search)
{
    const struct command *command = &search->request->command;
    const char *key = command->kind == CMD_SUBMIT ? command->u.submit.idempotency_key : NULL;
    return key != NULL && search->key == NULL && core_job_by_key(l->core, key) == NULL;
}

/* The finder is back. */
static void take_found(struct loop *l, struct search *search)
{
    struct request *request = search->request;
    l->search = NULL;
    if (request == NULL) {
        search_free(search); /* for another term: what it found may be true no more */
        return;
    }
    request->n_looks += search->is_live && l->flying != NULL ? 1 : LOOK_WEIGHT;
    if (search->err != ERR_OK) {
        coordinator__answer(request, NULL, ERR_UNAVAILABLE);
        if (search->err == ERR_UNAVAILABLE || search->err == ERR_DEADLINE) {
            finish_sought(l, ERR_UNAVAILABLE); /* so that many do not wait for a silent store one after the other */
        }
    } else if (search->is_stale || search->is_live || has_lost_key(l, search)) {
        take_later(l, request);
    } else {
        for (const struct found_job *job = search->jobs; job != NULL; job = job->next) {
            bring_job(l, job);
        }
        request->unknown = search->sight;
        if (request->is_suspect || is_trying(l)) {
            take_later(l, request);
        } else {
            l->gathering->weight += weight_of(request); /* what it weighed when it came was for an earlier flight */
            take_known(l, request);
        }
    }
    search_free(search);
}

/* ---- landing ---- */

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

static void step_down(struct loop *l, enum err why);

static bool is_late(struct loop *l)
{
    pthread_mutex_lock(&l->c->lock);
    bool late = coordinator__is_late(l->c);
    pthread_mutex_unlock(&l->c->lock);
    return late;
}

static void take_off(struct loop *l)
{
    struct coordinator *c = l->c;
    while (l->flying == NULL && !flight_is_empty(l->gathering)) {
        struct flight *flight = l->gathering;
        l->gathering = flight == &l->flights[0] ? &l->flights[1] : &l->flights[0];
        if (!flight_writes(flight)) {
            if (is_late(l)) { /* no commit tells, and another may lead by now */
                step_down(l, ERR_DEADLINE);
                return;
            }
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
            request->is_suspect = true;
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
            request->is_suspect = true;
            list_remove(at);
            list_push_back(&l->suspects, at);
        }
    }
}

/* Nobody waits for what is looked for any more, but suspects that another one's refusal has interrupted stay suspects. */
static void drop_sought(struct loop *l, bool keeps_suspects)
{
    struct request *request = l->search != NULL ? l->search->request : NULL;
    if (request != NULL) {
        l->search->request = NULL;
        turns_push(&l->sought, request->sender, &request->in_list);
    }
    for (struct list *first; (first = turns_take(&l->sought)) != NULL;) {
        request = CONTAINER_OF(first, struct request, in_list);
        if (keeps_suspects && request->is_suspect) {
            list_push_back(&l->suspects, first);
        } else {
            finish(request, NULL, ERR_PRECONDITION);
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
    drop_sought(l, why == ERR_INVALID);
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
    if (is_trying(l)) {
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
    struct search *found = c->found;
    c->found = NULL;
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
    if (found != NULL) {
        take_found(l, found);
    }
    bool any = take_arrivals(l) || found != NULL;
    if (l->core != NULL && (any || clock_mono_ms() >= l->wake_at_mono_ms)) {
        tick(l);
    }
    if (l->core != NULL) {
        ask_finder(l);
        take_due(l);
        deliver_immediate(l->gathering);
        take_off(l);
    }
    if (l->core != NULL) {
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

/* Requests that arrive while suspects are tried wait outside: they are no news then. */
static bool has_news(struct loop *l)
{
    const struct coordinator *c = l->c;
    bool trying = is_trying(l);
    bool has_arrivals =
        !list_is_empty(&l->inbound) || !list_is_empty(&c->inbound) || (!turns_is_empty(&c->clients) && has_room(l));
    return (has_arrivals && !trying) || c->elected != NULL || c->found != NULL || c->is_stopping ||
           (l->flying != NULL && c->is_committed) || (l->core != NULL && c->is_lost) || (trying && l->flying == NULL) ||
           are_forsaken(l);
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
    turns_deinit(&l->sought);
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
    turns_init(&l.sought);
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
