/*
 * cluster.c - the steps, the clock and the leader's change. What workers and clients say is in cluster_calls.c.
 */
#include "cluster.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define START_MS INT64_C(1700000000000)
#define HASH_SEED 42

void cluster_init(struct cluster *c)
{
    cluster_init_with(c, core_config_default());
}

void cluster_init_with(struct cluster *c, struct core_config config)
{
    *c = (struct cluster){.config = config, .now_ms = START_MS, .checks = true};
    struct error e;
    CHECK_ERR(core_config_check(&config, &e), ERR_OK);
    c->core = core_new(&config, HASH_SEED);
    prng_init(&c->prng, 7);
    row_store_init(&c->store);
    cluster_tick(c);
}

/* The counts in the effects are those of its lists. */
static void check_counts(const struct cluster *c)
{
    uint32_t n_rows = 0;
    uint32_t n_replies = 0;
    for (const struct row *row = c->fx.rows; row != NULL; row = row->next) {
        n_rows++;
    }
    for (const struct reply *reply = c->fx.replies; reply != NULL; reply = reply->next) {
        n_replies++;
    }
    CHECK_UINT(c->fx.n_rows, n_rows);
    CHECK_UINT(c->fx.n_replies, n_replies);
}

void cluster_finish(struct cluster *c)
{
    check_counts(c);
    cluster_check_recovery(c);
    core_free(c->core);
    effects_deinit(&c->fx);
    row_store_deinit(&c->store);
    for (struct worker *w = c->workers; w != NULL; w = w->next) {
        mem_free(w->running);
        mem_free(w->stopped);
    }
    mem_free(c->answers);
    map_deinit(&c->jobs);
    arena_deinit(&c->arena);
}

void cluster_forget(struct cluster *c)
{
    effects_reset(&c->fx);
    c->last_row = NULL;
    c->last_reply = NULL;
}

static struct core_input input_of(struct cluster *c)
{
    struct core_input input = {.now_ms = c->now_ms};
    input.seed[0] = prng_u64(&c->prng);
    input.seed[1] = prng_u64(&c->prng);
    return input;
}

/* Stores the new rows and looks at the new replies. */
static void commit(struct cluster *c)
{
    for (struct row *row = c->last_row == NULL ? c->fx.rows : c->last_row->next; row != NULL; row = row->next) {
        row_store_apply(&c->store, row);
        c->last_row = row;
    }
    for (struct reply *r = c->last_reply == NULL ? c->fx.replies : c->last_reply->next; r != NULL; r = r->next) {
        CHECK(r->to > 0);
        CHECK(r->to <= c->last_handle);
        CHECK_INT(c->answers[r->to], 0); /* one reply per command */
        c->answers[r->to] = 1;
        c->last_reply = r;
    }
}

static void step(struct cluster *c, const struct command *command)
{
    struct core_input input = input_of(c);
    core_step(c->core, &input, command, &c->fx);
    c->steps++;
    if (c->checks) {
        core_check(c->core);
    }
    c->store.may_revive |= command->kind == CMD_RETRY;
    commit(c);
    c->store.may_revive &= command->kind != CMD_TICK; /* a batch ends with its tick */
}

void cluster_tick(struct cluster *c)
{
    struct command tick = {.kind = CMD_TICK};
    step(c, &tick);
    CHECK(c->fx.wake_at_ms > c->now_ms);
    CHECK(c->fx.wake_at_ms <= c->now_ms + CORE_TICK_MS);
}

void cluster_begin(struct cluster *c)
{
    CHECK(!c->in_batch);
    c->in_batch = true;
}

void cluster_end(struct cluster *c)
{
    CHECK(c->in_batch);
    c->in_batch = false;
    cluster_tick(c);
}

const struct reply *cluster_do(struct cluster *c, struct command *command)
{
    command->reply_to = ++c->last_handle;
    c->answers = mem_grow(c->answers, &c->cap_answers, c->last_handle + 1, sizeof(*c->answers));
    c->answers[c->last_handle] = 0;
    uint32_t handle = c->last_handle;
    struct reply *before = c->last_reply;
    step(c, command);
    CHECK_INT(c->answers[handle], command->kind == CMD_GET_TASK ? c->answers[handle] : 1);
    if (!c->in_batch) {
        cluster_tick(c);
    }
    for (struct reply *r = before == NULL ? c->fx.replies : before->next; r != NULL; r = r->next) {
        if (r->to == handle) {
            return r;
        }
    }
    return NULL;
}

const struct reply *cluster_reply(const struct cluster *c, uint64_t handle)
{
    for (const struct reply *r = c->fx.replies; r != NULL; r = r->next) {
        if (r->to == handle) {
            return r;
        }
    }
    return NULL;
}

void cluster_advance(struct cluster *c, int64_t ms)
{
    int64_t until = c->now_ms + ms;
    while (c->now_ms < until) {
        int64_t next = until < c->fx.wake_at_ms ? until : c->fx.wake_at_ms;
        for (struct worker *w = c->workers; w != NULL; w = w->next) {
            next = w->beats && w->next_beat_ms < next ? w->next_beat_ms : next;
        }
        c->now_ms = next > c->now_ms ? next : c->now_ms + 1;
        cluster_begin(c);
        for (struct worker *w = c->workers; w != NULL; w = w->next) {
            if (w->beats && w->next_beat_ms <= c->now_ms) {
                worker_beats(c, w->name);
            }
        }
        cluster_end(c);
    }
}

void cluster_stall(struct cluster *c, int64_t ms)
{
    c->now_ms += ms;
    cluster_tick(c);
}

struct loading {
    struct core *core;
    struct core_input input;
    struct effects *fx;
};

static void load_row(void *context, const struct row *row)
{
    struct loading *loading = context;
    struct command command = {.kind = CMD_LOAD, .u = {.load = row}};
    core_step(loading->core, &loading->input, &command, loading->fx);
}

static struct core *load_core(struct cluster *c, bool backwards, struct effects *fx)
{
    struct loading loading = {.core = core_new(&c->config, HASH_SEED + 1), .input = input_of(c), .fx = fx};
    row_store_load(&c->store, backwards, load_row, &loading);
    struct command loaded = {.kind = CMD_LOADED};
    core_step(loading.core, &loading.input, &loaded, fx);
    if (c->checks) {
        core_check(loading.core);
    }
    return loading.core;
}

static void check_equal(struct cluster *c, bool backwards)
{
    struct effects fx = {0};
    struct core *twin = load_core(c, backwards, &fx);
    char why[512] = "";
    bool equal = core_equal(c->core, twin, why, sizeof(why));
    if (!equal) {
        fprintf(stderr, "recovery differs%s: %s\n", backwards ? " (rows backwards)" : "", why);
    }
    CHECK(equal);
    core_free(twin);
    effects_deinit(&fx);
}

void cluster_check_recovery(struct cluster *c)
{
    CHECK(!c->in_batch);
    if (c->checks) {
        core_check(c->core);
    }
    check_equal(c, false);
    check_equal(c, true);
}

void cluster_fail_over(struct cluster *c)
{
    cluster_check_recovery(c);
    core_free(c->core);
    c->core = load_core(c, false, &c->fx);
    commit(c);
    cluster_tick(c);
}

void cluster_load_job(struct cluster *c, const char *job_id)
{
    struct loading loading = {.core = c->core, .input = input_of(c), .fx = &c->fx};
    row_store_load_job(&c->store, job_id, load_row, &loading);
    struct command loaded = {.kind = CMD_LOADED_JOB, .u = {.loaded_job = job_id}};
    step(c, &loaded);
    if (!c->in_batch) {
        cluster_tick(c);
    }
}

uint32_t cluster_events(const struct cluster *c, enum event_type type)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->store.n_events; i++) {
        n += c->store.events[i].type == type;
    }
    return n;
}

uint32_t cluster_task_events(const struct cluster *c, enum event_type type, struct task_ref ref)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->store.n_events; i++) {
        const struct row_event *e = &c->store.events[i];
        n += e->type == type && e->ref.job_id != NULL && strcmp(e->ref.job_id, ref.job_id) == 0 &&
             e->ref.stage == ref.stage && e->ref.task == ref.task;
    }
    return n;
}

const struct row_event *cluster_event(const struct cluster *c, enum event_type type)
{
    for (uint32_t i = c->store.n_events; i > 0; i--) {
        if (c->store.events[i - 1].type == type) {
            return &c->store.events[i - 1];
        }
    }
    return NULL;
}
