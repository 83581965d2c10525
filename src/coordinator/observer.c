/* Reads from the copy: pictures, those who wait, and how old it all is. The following is in follow.c. */
#include "coordinator/observer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "coordinator/observer_internal.h"
#include "store/memory.h"

#define LOOK_MS 500     /* at the clock, at least so often */
#define UNKNOWN_MS 1000 /* how long a job that nobody knows here may be one that is just being told about */
#define FOREVER_MS ((int64_t)1000 * 365 * 86400000)
#define SILENCE_MS 3000

/* ---- the copy ---- */

enum err copy_open(struct copy *copy, const char *name, struct error *e)
{
    char url[80];
    struct leader leader;
    struct arena arena = {0};
    struct leader_claim claim = {.node_id = name, .address = name, .ttl_ms = FOREVER_MS, .token = {{1, 1}}};
    *copy = (struct copy){0};
    snprintf(copy->name, sizeof copy->name, "%s", name);
    snprintf(url, sizeof url, "memory:%s", name);
    enum err err = store_open(url, &copy->store, e);
    if (err == ERR_OK) {
        err = store_migrate(copy->store, STORE_NEWEST, e);
    }
    if (err == ERR_OK) {
        err = store_lead(copy->store, &claim, &arena, &leader, e);
    }
    if (err == ERR_OK) {
        copy->fence = leader.fence;
    } else {
        copy_close(copy);
    }
    arena_deinit(&arena);
    return err;
}

void copy_close(struct copy *copy)
{
    if (copy->store != NULL) {
        store_close(copy->store);
        memory_drop(copy->name);
        copy->store = NULL;
    }
}

/* ---- pictures ---- */

struct painting {
    struct core *core;
    struct core_input input;
    struct effects fx;
};

static void paint(void *context, const struct row *row)
{
    struct painting *painting = context;
    struct command command = {.kind = CMD_LOAD, .u.load = row};
    core_step(painting->core, &painting->input, &command, &painting->fx);
    effects_reset(&painting->fx);
}

/* Makes a new picture. The picture's lock is held. */
static enum err make_picture(struct observer *o, struct store *store, struct error *e)
{
    struct painting painting = {0};
    struct command loaded = {.kind = CMD_LOADED};
    int64_t begun_mono_ms = clock_mono_ms();
    random_bytes(painting.input.seed, sizeof painting.input.seed);
    pthread_mutex_lock(&o->lock);
    uint64_t version = o->version; /* before the load, which may see more */
    int64_t complete_mono_ms = o->complete_mono_ms;
    painting.input.now_ms = begun_mono_ms + o->leader_offset_ms;
    pthread_mutex_unlock(&o->lock);
    painting.core = core_new(&o->service->settings.core, painting.input.seed[0]);
    enum err err = store_load(store, paint, &painting, e);
    if (err == ERR_OK) {
        core_step(painting.core, &painting.input, &loaded, &painting.fx);
        core_free(o->picture);
        o->picture = painting.core;
        o->picture_version = version;
        o->picture_complete_mono_ms = complete_mono_ms;
        int64_t now_mono_ms = clock_mono_ms();
        o->picture_again_mono_ms = now_mono_ms + 3 * (now_mono_ms - begun_mono_ms);
    } else {
        core_free(painting.core);
    }
    effects_deinit(&painting.fx);
    return err;
}

/* Has a picture that is new enough, and has the job in it if there is one. The picture's lock is held. */
static enum err have_picture(struct observer *o, struct clerk *clerk, const char *about, struct error *e)
{
    struct store *store;
    pthread_mutex_lock(&o->lock);
    bool is_old = o->picture_version != o->version;
    pthread_mutex_unlock(&o->lock);
    bool may_be_old = clock_mono_ms() < o->picture_again_mono_ms;
    bool lacks_job = is_old && o->picture != NULL && about != NULL && !core_has_job(o->picture, about);
    if (o->picture != NULL && !lacks_job && (!is_old || may_be_old)) {
        return ERR_OK;
    }
    enum err err = clerk_store(clerk, &store, e);
    return err != ERR_OK ? err : clerk_note(clerk, make_picture(o, store, e));
}

/* When what is in the picture was complete; 0: it is as new as the copy. */
static int64_t picture_as_of(struct observer *o)
{
    pthread_mutex_lock(&o->lock);
    bool is_old = o->picture_version != o->version;
    pthread_mutex_unlock(&o->lock);
    return is_old ? o->picture_complete_mono_ms : 0;
}

/* ---- reads ---- */

static bool is_open_job(const struct observer *o, const char *job_id)
{
    int state = memory_job_state(o->copy.name, job_id);
    return state >= 0 && !job_state_is_terminal((enum job_state)state);
}

/* Lets the request wait for the end of its job, if it wants to and may. */
static bool waits(struct observer *o, struct request *request)
{
    const char *job_id = request->await_job;
    while (job_id != NULL && clock_mono_ms() < request->await_until_mono_ms) {
        pthread_mutex_lock(&o->lock);
        uint64_t version = o->version;
        pthread_mutex_unlock(&o->lock);
        if (!is_open_job(o, job_id)) {
            return false;
        }
        pthread_mutex_lock(&o->lock);
        bool is_stopping = o->is_stopping;
        bool is_same = o->version == version;
        if (is_same && !is_stopping) {
            await_add(&o->await, request);
            pthread_cond_broadcast(&o->wakes);
        }
        pthread_mutex_unlock(&o->lock);
        if (is_same || is_stopping) {
            return !is_stopping;
        }
    }
    return false;
}

static void take_request(struct clerk *clerk, void *context)
{
    struct request *request = context;
    struct exchange *exchange = exchange_of(request);
    struct observer *o = exchange->service->observer;
    const char *about = exchange->about;
    struct error e = {0};
    enum err err = ERR_OK;
    if (exchange->held != NULL) {
        exchange_fn *held = exchange->held;
        exchange->held = NULL;
        request->await_job = NULL;
        held(exchange);
        return;
    }
    if (waits(o, request)) {
        return;
    }
    exchange->about = NULL; /* what this exchange reads next may be about something else */
    /* Jobs that have ended are in no picture: whoever asks for them finds that they were not found, and looks further. */
    if (about == NULL || is_open_job(o, about)) {
        pthread_mutex_lock(&o->picture_lock);
        err = have_picture(o, clerk, about, &e);
        if (err == ERR_OK) {
            exchange->as_of_mono_ms = picture_as_of(o);
            request->read(o->picture, request);
        }
        pthread_mutex_unlock(&o->picture_lock);
    }
    request->answer(request, NULL, err);
}

void observer_send(struct observer *o, struct request *request)
{
    ASSERT(request->read != NULL && request->is_kept);
    office_send(o->service->readers, request->sender, take_request, request);
}

/* ---- those who wait ---- */

static void send_on(struct observer *o, struct list *woken)
{
    for (struct list *first; (first = list_first(woken)) != NULL;) {
        struct request *request = CONTAINER_OF(first, struct request, in_list);
        list_remove(first);
        office_send(o->service->readers, request->sender, take_request, request); /* who has to wait on does so */
    }
}

void observer__changed(struct observer *o, const struct row *rows)
{
    struct list woken;
    list_init(&woken);
    pthread_mutex_lock(&o->lock);
    o->version++;
    for (const struct row *row = rows; row != NULL; row = row->next) {
        const struct row_job *job = (const struct row_job *)(const void *)row;
        if (row->kind == ROW_JOB && (job->is_new || job_state_is_terminal(job->state))) {
            await_take_job(&o->await, job->job_id, &woken);
        }
    }
    if (rows == NULL) { /* anything may have changed: those who still have to wait come back */
        await_take_all(&o->await, &woken);
    }
    pthread_mutex_unlock(&o->lock);
    send_on(o, &woken);
}

bool observer_hold(struct observer *o, struct exchange *exchange, const char *job_id, exchange_fn *handler)
{
    struct request *request = exchange->request;
    pthread_mutex_lock(&o->lock);
    int64_t now_mono_ms = clock_mono_ms();
    bool is_held = !o->is_stopping && now_mono_ms - o->complete_mono_ms < UNKNOWN_MS;
    is_held = is_held && memory_job_state(o->copy.name, job_id) < 0;
    if (is_held) {
        exchange->held = handler;
        request->await_job = job_id;
        request->await_until_mono_ms = now_mono_ms + UNKNOWN_MS;
        await_add(&o->await, request);
        pthread_cond_broadcast(&o->wakes);
    }
    pthread_mutex_unlock(&o->lock);
    return is_held;
}

static void wait_until(struct observer *o, int64_t mono_ms)
{
    struct timespec until = {.tv_sec = (time_t)(mono_ms / 1000), .tv_nsec = (mono_ms % 1000) * 1000000};
    (void)pthread_cond_timedwait(&o->wakes, &o->lock, &until);
}

/* Ends waits whose time has come. */
static void *watch_time(void *context)
{
    struct observer *o = context;
    pthread_mutex_lock(&o->lock);
    while (!o->is_stopping) {
        struct list due;
        int64_t now_mono_ms = clock_mono_ms();
        int64_t next_mono_ms = await_next_mono_ms(&o->await);
        list_init(&due);
        if (now_mono_ms < next_mono_ms) {
            wait_until(o, next_mono_ms - now_mono_ms < LOOK_MS ? next_mono_ms : now_mono_ms + LOOK_MS);
            continue;
        }
        await_take_due(&o->await, now_mono_ms, &due);
        pthread_mutex_unlock(&o->lock);
        send_on(o, &due);
        pthread_mutex_lock(&o->lock);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* ---- what is told ---- */

enum err observer_check(struct observer *o, struct error *e)
{
    pthread_mutex_lock(&o->lock);
    bool is_ready = o->is_ready;
    pthread_mutex_unlock(&o->lock);
    if (!is_ready) {
        error_set(e, ERR_UNAVAILABLE, "this observer has not got a copy of the leader's state yet");
        error_hint(e, "it follows %s%s; is a coordinator there?", o->targets[0], o->n_targets > 1 ? " and others" : "");
    }
    return is_ready ? ERR_OK : ERR_UNAVAILABLE;
}

struct leader_news observer_leader(struct observer *o)
{
    pthread_mutex_lock(&o->lock);
    struct leader_news news = o->leader;
    pthread_mutex_unlock(&o->lock);
    return news;
}

int64_t observer_staleness_ms(struct observer *o, int64_t as_of_mono_ms)
{
    pthread_mutex_lock(&o->lock);
    int64_t complete_mono_ms = as_of_mono_ms != 0 ? as_of_mono_ms : o->complete_mono_ms;
    pthread_mutex_unlock(&o->lock);
    int64_t ms = clock_mono_ms() - complete_mono_ms;
    return ms > 0 ? ms : 0;
}

/* ---- starting and stopping ---- */

static enum err read_targets(struct observer *o, const char *follow, struct error *e)
{
    for (const char *at = follow; *at != '\0';) {
        size_t n = strcspn(at, ",");
        if (o->n_targets == OBSERVER_TARGETS_MAX || n > LIMIT_ADDRESS_BYTES) {
            return error_set(e, ERR_INVALID, "follow: at most %d addresses of %d bytes", OBSERVER_TARGETS_MAX,
                             LIMIT_ADDRESS_BYTES);
        }
        if (n > 0) {
            memcpy(o->targets[o->n_targets], at, n);
            o->targets[o->n_targets++][n] = '\0';
        }
        at += n + (at[n] == ',');
    }
    return o->n_targets > 0 ? ERR_OK : error_set(e, ERR_INVALID, "follow: is empty; give HOST:PORT of a coordinator");
}

static enum err check_targets(struct observer *o, struct error *e)
{
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < o->n_targets && err == ERR_OK; i++) {
        struct rpc_channel_options options = o->channel;
        struct rpc_channel *channel = NULL;
        options.target = o->targets[i];
        err = rpc_channel_open(&options, &channel, e);
        rpc_channel_close(channel);
    }
    return err;
}

static void init_locks(struct observer *o)
{
    pthread_condattr_t attributes;
    int error = pthread_mutex_init(&o->lock, NULL);
    error |= pthread_mutex_init(&o->picture_lock, NULL);
    error |= pthread_condattr_init(&attributes);
    error |= pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    error |= pthread_cond_init(&o->wakes, &attributes);
    error |= pthread_condattr_destroy(&attributes);
    ASSERT(error == 0);
}

enum err observer_new(struct service *service, const struct service_options *options, struct observer **out,
                      struct error *e)
{
    const struct rpc_channel_options *channel = &options->to_workers;
    struct observer *o = mem_calloc(1, sizeof *o);
    char name[64] = "observer-";
    random_hex(name + strlen(name), 32);
    snprintf(o->url, sizeof o->url, "memory:%s", name);
    o->service = service;
    o->cancel = rpc_cancel_new();
    o->silence_ms = options->silence_ms != 0 ? options->silence_ms : SILENCE_MS;
    o->started_mono_ms = clock_mono_ms();
    o->complete_mono_ms = o->started_mono_ms;
    o->channel = (struct rpc_channel_options){.token = mem_strdup(channel->token),
                                              .message_bytes_max = LIMIT_WIRE_BYTES,
                                              .tls = channel->tls,
                                              .identity = channel->identity,
                                              .tls_ca_pem = mem_strdup(channel->tls_ca_pem),
                                              .tls_cert_pem = mem_strdup(channel->tls_cert_pem),
                                              .tls_key_pem = mem_strdup(channel->tls_key_pem)};
    init_locks(o);
    enum err err = read_targets(o, options->follow, e);
    if (err == ERR_OK) {
        err = check_targets(o, e);
    }
    if (err == ERR_OK) {
        err = copy_open(&o->copy, name, e);
    }
    if (err != ERR_OK) {
        observer_free(o);
        return err;
    }
    *out = o;
    return ERR_OK;
}

const char *observer_store_url(const struct observer *o)
{
    return o->url;
}

void observer_start(struct observer *o)
{
    int error = pthread_create(&o->follower, NULL, observer__follow, o);
    error |= pthread_create(&o->timer, NULL, watch_time, o);
    ASSERT(error == 0);
    o->is_started = true;
}

void observer_wind_up(struct observer *o)
{
    struct list left;
    list_init(&left);
    pthread_mutex_lock(&o->lock);
    o->is_stopping = true;
    pthread_cond_broadcast(&o->wakes);
    pthread_mutex_unlock(&o->lock);
    rpc_cancel_fire(o->cancel);
    if (o->is_started) {
        pthread_join(o->follower, NULL);
        pthread_join(o->timer, NULL);
        o->is_started = false;
    }
    pthread_mutex_lock(&o->lock);
    await_take_all(&o->await, &left);
    pthread_mutex_unlock(&o->lock);
    send_on(o, &left);
}

void observer_free(struct observer *o)
{
    if (o == NULL) {
        return;
    }
    ASSERT(!o->is_started);
    await_deinit(&o->await);
    core_free(o->picture);
    copy_close(&o->copy);
    rpc_cancel_free(o->cancel);
    pthread_cond_destroy(&o->wakes);
    pthread_mutex_destroy(&o->lock);
    pthread_mutex_destroy(&o->picture_lock);
    mem_free((void *)(uintptr_t)o->channel.token);
    mem_free((void *)(uintptr_t)o->channel.tls_ca_pem);
    mem_free((void *)(uintptr_t)o->channel.tls_cert_pem);
    mem_free((void *)(uintptr_t)o->channel.tls_key_pem);
    mem_free(o);
}
