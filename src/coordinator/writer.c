/*
 * The writer: the one thread that talks to the store for the leader.
 *
 * Not leading, it stands for election again and again. Elected, it loads the state into a new core and hands that to the
 * loop; then it commits flights and renews the leadership, on one connection, so that a leader that froze inside a
 * transaction can be got rid of by ending that connection's backend. It stops leading when the loop has let go of the
 * core, and only then stands for election again.
 *
 * A term that ended with the connection leaves its row behind, unexpired. The writer remembers that it owes the row
 * (is_owed), and hands it back before it stands again. A commit of that term whose outcome nobody knows cannot land in
 * the next one: whoever takes the row waits for the commit's lock on it, or ends its backend.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/planted.h"
#include "coordinator/coordinator_internal.h"

#define RETRY_MS_MIN 50
#define RETRY_MS_MAX 5000
/* Between two looks at the leader's row: one that is handed back is taken within this, and an idle standby must not be
 * a burden to the database (under three statements a second). */
#define STAND_BY_MS_MAX 400
#define PRUNE_STEP 500
#define PRUNE_MORE_MS 5 /* between two steps: what is pruned must keep up with what is made */
#define PRUNE_PAUSE_MS_MIN 1000
#define PRUNE_PAUSE_MS_MAX 60000

/*
 * A leader with this node's name that is not this process: most likely the one that ran here before and was killed. Then
 * its time runs out; if it is renewed, somebody else has the same name.
 */
struct former {
    uint64_t epoch; /* 0: none was seen */
    int64_t until_mono_ms;
};

struct writer {
    struct coordinator *c;
    struct store *store; /* NULL: not connected */
    int64_t retry_ms;
    bool is_troubled; /* the store did not answer the last time */
    struct error e;   /* of the last call of the store that failed */
    struct fence fence;
    bool is_owed;          /* the row of the last term was not handed back yet */
    bool has_failed_start; /* elected the last time, this process could not begin its term */
    int64_t ttl_ms;
    int64_t renew_at_mono_ms;
    int64_t prune_at_mono_ms;
    uint32_t prune_told;     /* kinds of errors of pruning that were told: a bit each */
    uint64_t followed_epoch; /* of the leader that was told last; 0: none, or this process has led since */
    bool is_following_self;  /* and it was told as this node's own, of before */
    int64_t followed_since_mono_ms;
    struct former former;
};

/* Sleeps unless the coordinator stops. */
static void nap(struct writer *w, int64_t ms)
{
    int64_t until_mono_ms = clock_mono_ms() + ms;
    pthread_mutex_lock(&w->c->lock);
    while (!w->c->is_stopping && clock_mono_ms() < until_mono_ms) {
        coordinator__wait(w->c, &w->c->writer_wakes, until_mono_ms);
    }
    pthread_mutex_unlock(&w->c->lock);
}

static bool is_stopping(struct writer *w)
{
    pthread_mutex_lock(&w->c->lock);
    bool stopping = w->c->is_stopping;
    pthread_mutex_unlock(&w->c->lock);
    return stopping;
}

static void count_error(struct writer *w)
{
    pthread_mutex_lock(&w->c->lock);
    w->c->stats.store_errors++;
    pthread_mutex_unlock(&w->c->lock);
}

/* Tells once that the store does not answer, with the last error, and once that it does again. */
static void note_trouble(struct writer *w, bool is_troubled)
{
    if (w->is_troubled != is_troubled && w->c->options.on_store != NULL) {
        w->c->options.on_store(w->c->options.context, is_troubled ? w->e.message : NULL);
    }
    w->is_troubled = is_troubled;
}

/* The store did not answer: drop the connection, wait longer every time. */
static void back_off(struct writer *w)
{
    count_error(w);
    note_trouble(w, true);
    store_close(w->store);
    w->store = NULL;
    nap(w, w->retry_ms);
    w->retry_ms = w->retry_ms * 2 < RETRY_MS_MAX ? w->retry_ms * 2 : RETRY_MS_MAX;
}

/* Hands the row of the last term back, so that the next can take it at once. It runs out by itself if this fails. */
static enum err hand_back(struct writer *w, struct error *e)
{
    enum err err = w->is_owed ? store_resign(w->store, &w->fence, e) : ERR_OK;
    w->is_owed = err != ERR_OK;
    return err;
}

/* ---- election and load ---- */

struct loader {
    struct writer *w;
    struct core *core;
    struct effects fx;
    struct core_input input;
    struct store *second; /* for renewals while the first is busy with the load; NULL: not needed yet */
};

/*
 * A load may take longer than the leadership lasts, so that is renewed meanwhile, over a connection of its own. If that
 * fails, the renewal after the load tells.
 */
static void renew_while_loading(struct loader *loader)
{
    struct writer *w = loader->w;
    int64_t now_ms;
    int64_t asked_mono_ms = clock_mono_ms();
    if (asked_mono_ms < w->renew_at_mono_ms) {
        return;
    }
    w->renew_at_mono_ms = asked_mono_ms + w->ttl_ms / 3;
    if (loader->second == NULL && store_open(w->c->options.store_url, &loader->second, NULL) != ERR_OK) {
        loader->second = NULL;
        return;
    }
    if (store_renew(loader->second, &w->fence, w->ttl_ms, &now_ms, NULL) != ERR_OK) {
        count_error(w);
    }
}

#ifdef CAPSTAN_PLANTED_BUGS
/* As if nobody had remembered who works on what: whatever ran waits again. NULL: the row is forgotten as a whole. */
static const struct row *forget_lease(const struct row *row, struct row_task *out)
{
    if (row->kind == ROW_LEASE) {
        return NULL;
    }
    const struct row_task *task = (const struct row_task *)(const void *)row;
    if (row->kind != ROW_TASK || task->state != TASK_RUNNING) {
        return row;
    }
    *out = *task;
    out->state = TASK_QUEUED;
    return &out->row;
}

static void plant_in_core(struct core *core)
{
#define PLANT(name)                                                                                                    \
    if (PLANTED(name)) {                                                                                               \
        core_plant_bug(core, BUG_##name);                                                                              \
    }
    BUG_TABLE(PLANT)
#undef PLANT
}
#endif

static void load_one(void *context, const struct row *row)
{
    struct loader *loader = context;
#ifdef CAPSTAN_PLANTED_BUGS
    struct row_task changed;
    row = PLANTED(forget_leases) ? forget_lease(row, &changed) : row;
    if (row == NULL || (row->kind == ROW_MAP_OUTPUT && PLANTED(forget_map_outputs))) {
        return;
    }
#endif
    struct command command = {.kind = CMD_LOAD, .u.load = row};
    core_step(loader->core, &loader->input, &command, &loader->fx);
    effects_reset(&loader->fx);
    renew_while_loading(loader);
}

/* A core with the stored state; the loop takes the last step (CMD_LOADED). NULL if the store failed. */
static struct core *load(struct writer *w, int64_t now_ms)
{
    struct loader loader = {.w = w, .input = {.now_ms = now_ms}};
    coordinator__seed(loader.input.seed);
    loader.core = core_new(&w->c->options.config, loader.input.seed[0]);
#ifdef CAPSTAN_PLANTED_BUGS
    plant_in_core(loader.core);
#endif
    enum err err = store_load(w->store, load_one, &loader, &w->e);
    effects_deinit(&loader.fx);
    store_close(loader.second);
    if (err != ERR_OK) {
        core_free(loader.core);
        return NULL;
    }
    return loader.core;
}

/*
 * While one of an earlier release led, the schema was left as that one knows it. Now it is brought up to date: nobody else
 * writes, and those of earlier releases that stand by do not lead any more.
 */
static enum err update_schema(struct writer *w)
{
    struct migration_status status = {0};
    enum err err = store_schema(w->store, &status, &w->e);
    if (err != ERR_OK || status.current >= status.newest) {
        return err;
    }
    err = store_migrate(w->store, STORE_NEWEST, &w->e);
    if (err == ERR_OK && w->c->options.on_schema != NULL) {
        w->c->options.on_schema(w->c->options.context, status.current, status.newest);
    }
    return err;
}

/* The lock is held. */
static void set_leader(struct coordinator *c, const struct fence *fence, const char *node_id, const char *address)
{
    c->leader = (struct leader_news){.epoch = fence->epoch};
    snprintf(c->leader.node_id, sizeof c->leader.node_id, "%s", node_id);
    snprintf(c->leader.address, sizeof c->leader.address, "%s", address);
}

/* Who leads is told once. `is_self`: it was this node, before it was started again. */
static void tell_leader(struct writer *w, const struct leader *leader, bool is_self)
{
    if (leader->fence.epoch == w->followed_epoch && is_self == w->is_following_self) {
        return;
    }
    struct leader_news news = {.epoch = leader->fence.epoch, .is_self = is_self};
    snprintf(news.node_id, sizeof news.node_id, "%s", leader->node_id);
    snprintf(news.address, sizeof news.address, "%s", leader->address);
    w->followed_epoch = news.epoch;
    w->is_following_self = is_self;
    w->followed_since_mono_ms = clock_mono_ms();
    if (w->c->options.on_leader != NULL) {
        w->c->options.on_leader(w->c->options.context, &news);
    }
}

/* Somebody else leads, or nobody that can be found (NULL). */
static void note_leader(struct writer *w, const struct leader *leader)
{
    pthread_mutex_lock(&w->c->lock);
    if (leader != NULL) {
        set_leader(w->c, &leader->fence, leader->node_id, leader->address);
    } else {
        w->c->leader = (struct leader_news){0};
    }
    pthread_cond_signal(&w->c->loop_wakes); /* somebody may wait for this process to lead again */
    pthread_mutex_unlock(&w->c->lock);
}

/* False if the loop has gone already. */
static bool hand_over(struct writer *w, struct core *core, int64_t offset_ms, int64_t asked_mono_ms)
{
    struct coordinator *c = w->c;
    pthread_mutex_lock(&c->lock);
    if (c->is_stopping) {
        pthread_mutex_unlock(&c->lock);
        core_free(core);
        return false;
    }
    c->elected = core;
    c->fence = w->fence;
    c->is_wanted = true;
    c->is_lost = false;
    c->lost_err = ERR_OK;
    c->outbound = NULL;
    c->is_committed = false;
    c->clock_offset_ms = offset_ms;
    c->writer_renewed_mono_ms = asked_mono_ms;
    coordinator__renewed(c, asked_mono_ms);
    pthread_cond_signal(&c->keeper_wakes);
    c->stats.elected++;
    c->ended_landed = 0;
    set_leader(c, &w->fence, c->options.node_id, c->options.address);
    c->leader.is_self = true;
    pthread_cond_signal(&c->loop_wakes);
    pthread_mutex_unlock(&c->lock);
    return true;
}

static void give_up(struct writer *w)
{
    pthread_mutex_lock(&w->c->lock);
    w->c->has_given_up = true;
    w->c->gave_up_why = w->e;
    pthread_cond_signal(&w->c->loop_wakes);
    pthread_mutex_unlock(&w->c->lock);
}

/* Elected: loads the state and begins the term. True if the loop has its core. */
static bool begin_term(struct writer *w, struct leader *leader)
{
    int64_t offset_ms = leader->now_ms - clock_mono_ms();
    struct core *core = update_schema(w) == ERR_OK ? load(w, leader->now_ms) : NULL;
    int64_t asked_mono_ms = clock_mono_ms();
    w->has_failed_start = core == NULL;
    if (core == NULL) {
        if (w->e.code != ERR_UNAVAILABLE) {
            (void)!hand_back(w, NULL); /* perhaps another one can do it */
        }
        back_off(w);
        return false;
    }
    if (store_renew(w->store, &w->fence, w->ttl_ms, &leader->now_ms, &w->e) != ERR_OK) {
        core_free(core); /* it took too long, and another has taken over */
        back_off(w);
        return false;
    }
    w->retry_ms = RETRY_MS_MIN;
    w->renew_at_mono_ms = asked_mono_ms + w->ttl_ms / 3;
    note_trouble(w, false);
    if (!hand_over(w, core, offset_ms, asked_mono_ms)) {
        (void)!hand_back(w, NULL); /* elected while it stops: others need not wait */
        return false;
    }
    return true;
}

/*
 * Whether the leader that was found is this node itself, before it was started again: it has the name, and its time runs
 * out without being renewed. A lock on a file dies with its holder, so whoever has one is alive. One renewal may have been
 * on its way when that process ended.
 */
static bool is_former(struct writer *w, const struct leader *leader, int64_t asked_mono_ms)
{
    if (strcmp(leader->node_id, w->c->options.node_id) != 0 || coordinator__is_file(w->c)) {
        return false;
    }
    if (leader->fence.epoch != w->former.epoch) {
        w->former = (struct former){leader->fence.epoch, clock_mono_ms() + leader->expires_in_ms};
    }
    return asked_mono_ms + leader->expires_in_ms <= w->former.until_mono_ms + w->ttl_ms / 2;
}

static void stand_by(struct writer *w, const struct leader *leader, int64_t asked_mono_ms)
{
    bool former = is_former(w, leader, asked_mono_ms);
    note_leader(w, former ? NULL : leader);
    tell_leader(w, leader, former);
    /* Whoever could not begin its own term sees others try: the store is good again if one of them succeeds. */
    if (!w->has_failed_start || asked_mono_ms >= w->followed_since_mono_ms + w->ttl_ms) {
        w->has_failed_start = false;
        w->retry_ms = RETRY_MS_MIN;
        note_trouble(w, false);
    }
    if (w->c->options.must_lead && !former) {
        give_up(w);
    }
    int64_t wait_ms = leader->expires_in_ms < STAND_BY_MS_MAX ? leader->expires_in_ms + 1 : STAND_BY_MS_MAX;
    nap(w, wait_ms > RETRY_MS_MIN ? wait_ms : RETRY_MS_MIN);
}

/* Stands for election once. True if this process leads now and the loop has its core. */
static bool stand(struct writer *w)
{
    const struct coordinator_options *options = &w->c->options;
    struct leader_claim claim = {.node_id = options->node_id, .address = options->address, .ttl_ms = w->ttl_ms};
    struct leader leader;
    struct error kept_back;
    struct arena arena = {0};
    bool leads = false;
    coordinator__seed(claim.token.bits);
    enum err back_err = hand_back(w, &kept_back);
    int64_t asked_mono_ms = clock_mono_ms();
    enum err err = store_lead(w->store, &claim, &arena, &leader, &w->e);
    if (err == ERR_OK) {
        w->fence = leader.fence;
        w->is_owed = true;
        w->followed_epoch = 0;
        w->renew_at_mono_ms = asked_mono_ms + w->ttl_ms / 3;
        leads = begin_term(w, &leader);
    } else if (err == ERR_BUSY && back_err != ERR_OK && lease_token_equal(leader.fence.token, w->fence.token)) {
        w->e = kept_back; /* its own row, which the store would not take back */
        back_off(w);
    } else if (err == ERR_BUSY) {
        stand_by(w, &leader, asked_mono_ms);
    } else {
        back_off(w);
    }
    arena_deinit(&arena);
    return leads;
}

/* ---- a term of leadership ---- */

static void lose(struct writer *w, enum err err)
{
    struct coordinator *c = w->c;
    pthread_mutex_lock(&c->lock);
    c->is_lost = true;
    c->lost_err = err;
    pthread_cond_signal(&c->loop_wakes);
    pthread_mutex_unlock(&c->lock);
}

static void commit(struct writer *w, struct flight *flight)
{
    struct coordinator *c = w->c;
    const struct row *rows = flight->fx.rows;
    struct batch batch = flight_batch(flight, &rows);
    int64_t began_us = clock_mono_us();
    enum err err = store_commit(w->store, &w->fence, &batch, &w->e);
    if (err != ERR_OK) {
        lose(w, err);
        return;
    }
    if (c->options.on_commit != NULL) {
        c->options.on_commit(c->options.context, clock_mono_us() - began_us, flight->n_carried);
    }
    pthread_mutex_lock(&c->lock);
    c->is_committed = true;
    c->stats.batches++;
    pthread_cond_signal(&c->loop_wakes);
    pthread_mutex_unlock(&c->lock);
}

/* Keeps the leadership. A store that does not answer is asked again until the time has run out; the loop notices that. */
static void renew(struct writer *w)
{
    struct coordinator *c = w->c;
    int64_t now_ms;
    int64_t asked_mono_ms = clock_mono_ms();
    enum err err = store_renew(w->store, &w->fence, w->ttl_ms, &now_ms, &w->e);
    if (err == ERR_FENCED) {
        lose(w, err);
    } else if (err == ERR_OK) {
        w->renew_at_mono_ms = asked_mono_ms + w->ttl_ms / 3;
        note_trouble(w, false);
        pthread_mutex_lock(&c->lock);
        c->writer_renewed_mono_ms = asked_mono_ms;
        coordinator__renewed(c, asked_mono_ms);
        pthread_mutex_unlock(&c->lock);
    } else {
        count_error(w);
        note_trouble(w, true);
        w->renew_at_mono_ms = asked_mono_ms + RETRY_MS_MIN * 4;
    }
}

/* When nothing is left to prune, the next look need not be soon; but what is kept for seconds is not kept for minutes. */
static int64_t prune_pause_ms(const struct writer *w)
{
    int64_t ms = w->c->options.history_ttl_ms / 10;
    return ms < PRUNE_PAUSE_MS_MIN ? PRUNE_PAUSE_MS_MIN : ms > PRUNE_PAUSE_MS_MAX ? PRUNE_PAUSE_MS_MAX : ms;
}

/* Counts what pruning could not do, and tells each kind of error once; and once that it works again. */
static void note_prune(struct writer *w, enum err err, const struct error *e)
{
    uint32_t kind = err == ERR_OK ? 0 : UINT32_C(1) << err;
    bool is_news = err == ERR_OK ? w->prune_told != 0 : (w->prune_told & kind) == 0;
    w->prune_told = err == ERR_OK ? 0 : w->prune_told | kind;
    if (err != ERR_OK) {
        pthread_mutex_lock(&w->c->lock);
        w->c->stats.prune_errors++;
        w->c->stats.store_errors++;
        pthread_mutex_unlock(&w->c->lock);
    }
    if (is_news && w->c->options.on_prune != NULL) {
        w->c->options.on_prune(w->c->options.context, err == ERR_OK ? NULL : e->message);
    }
}

/* Removes a little of what is too old, between two commits. */
static void prune(struct writer *w, int64_t leader_now_ms)
{
    bool more = false;
    struct error e = {0};
    enum err err =
        store_prune(w->store, &w->fence, leader_now_ms - w->c->options.history_ttl_ms, PRUNE_STEP, &more, &e);
    if (err == ERR_FENCED) {
        lose(w, err);
    } else {
        note_prune(w, err, &e);
    }
    w->prune_at_mono_ms = clock_mono_ms() + (err == ERR_OK && more ? PRUNE_MORE_MS : prune_pause_ms(w));
}

/* Commits and renews until the loop lets go of the core. */
static void lead(struct writer *w)
{
    struct coordinator *c = w->c;
    pthread_mutex_lock(&c->lock);
    while (c->is_wanted) {
        struct flight *flight = c->is_committed || c->is_lost ? NULL : c->outbound;
        int64_t now_mono_ms = clock_mono_ms();
        bool may_renew = !c->is_lost && now_mono_ms >= w->renew_at_mono_ms;
        bool may_prune = flight == NULL && !c->is_lost && now_mono_ms >= w->prune_at_mono_ms;
        int64_t leader_now_ms = now_mono_ms + c->clock_offset_ms;
        if (flight == NULL && !may_renew && !may_prune) {
            int64_t until_ms = w->renew_at_mono_ms < w->prune_at_mono_ms ? w->renew_at_mono_ms : w->prune_at_mono_ms;
            coordinator__wait(c, &c->writer_wakes, c->is_lost ? now_mono_ms + RETRY_MS_MAX : until_ms);
            continue;
        }
        pthread_mutex_unlock(&c->lock);
        if (may_renew) {
            renew(w);
        } else if (flight != NULL) {
            commit(w, flight);
        } else {
            prune(w, leader_now_ms);
        }
        pthread_mutex_lock(&c->lock);
    }
    c->leader = (struct leader_news){0};
    bool unreachable = c->is_lost && c->lost_err == ERR_UNAVAILABLE;
    w->is_owed = !(c->is_lost && c->lost_err == ERR_FENCED);
    pthread_mutex_unlock(&c->lock);
    if (unreachable || hand_back(w, &w->e) != ERR_OK) {
        back_off(w);
    }
}

void *coordinator__writer(void *coordinator)
{
    struct coordinator *c = coordinator;
    struct writer w = {.c = c, .retry_ms = RETRY_MS_MIN, .ttl_ms = c->options.leader_ttl_ms};
    w.prune_at_mono_ms = clock_mono_ms() + PRUNE_PAUSE_MS_MIN;
    while (!is_stopping(&w)) {
        if (w.store == NULL && store_open(c->options.store_url, &w.store, &w.e) != ERR_OK) {
            w.store = NULL;
            back_off(&w);
            continue;
        }
        if (stand(&w)) {
            lead(&w);
        }
    }
    store_close(w.store);
    lose(&w, ERR_CANCELED); /* a flight that was never picked up is in nobody's hands now */
    return NULL;
}
