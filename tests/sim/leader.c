/*
 * leader.c - batches, commits, crashes and loads.
 */
#include "sim/leader.h"

#include <string.h>

#include "base/check.h"
#include "sim/leader_internal.h"
#include "sim/sim.h"

#define STEPS_PER_CHECK 400

/* ---- time ---- */

static int64_t clock_ms(struct sim *sim)
{
    struct leader *leader = &sim->leader;
    int64_t now_ms = sim->now_ms + leader->clock_offset_ms;
    if (now_ms > leader->now_max_ms) {
        int64_t passed_ms = now_ms - leader->now_max_ms;
        if (leader->now_max_ms != 0 && passed_ms > CORE_STALL_MS) {
            int64_t before_ms = leader->n_gaps == 0 ? 0 : leader->gaps[(leader->n_gaps - 1) % MAX_GAPS].total_ms;
            leader->gaps[leader->n_gaps++ % MAX_GAPS] =
                (struct gap){.until_ms = now_ms, .total_ms = before_ms + passed_ms};
        }
        leader->now_max_ms = now_ms;
    }
    return now_ms;
}

int64_t leader_attended_ms(const struct leader *leader, int64_t at_ms)
{
    for (uint32_t back = 1; back <= MAX_GAPS && back <= leader->n_gaps; back++) {
        const struct gap *gap = &leader->gaps[(leader->n_gaps - back) % MAX_GAPS];
        if (gap->until_ms <= at_ms) {
            return at_ms - gap->total_ms;
        }
    }
    return at_ms;
}

static struct core_input input_now(struct sim *sim)
{
    uint64_t bits = prng_u64(&sim->prng);
    return (struct core_input){.now_ms = clock_ms(sim), .seed = {bits, bits * 0x9e3779b97f4a7c15ULL}};
}

static void step(struct sim *sim, const struct command *command)
{
    struct leader *leader = &sim->leader;
    struct core_input input = input_now(sim);
    core_step(leader->core, &input, command, &leader->batch[leader->gathering].fx);
    sim->stats.commands++;
    sim->stats.by_kind[command->kind]++;
}

static bool is_stalled(struct sim *sim, enum event_kind kind)
{
    struct leader *leader = &sim->leader;
    if (leader->stalled_until_ms <= sim->now_ms) {
        return false;
    }
    events_add(&sim->events, leader->stalled_until_ms, kind, leader->number, 0);
    return true;
}

/* ---- requests at the leader ---- */

static void link_request(struct sim *sim, uint32_t m)
{
    struct msg *msg = net_msg(sim, m);
    struct leader *leader = &sim->leader;
    msg->at_leader = true;
    msg->prev = 0;
    msg->next = leader->first_held;
    if (msg->next != 0) {
        net_msg(sim, msg->next)->prev = m;
    }
    leader->first_held = m;
}

void leader__unlink(struct sim *sim, uint32_t m)
{
    struct msg *msg = net_msg(sim, m);
    if (msg->prev != 0) {
        net_msg(sim, msg->prev)->next = msg->next;
    } else {
        sim->leader.first_held = msg->next;
    }
    if (msg->next != 0) {
        net_msg(sim, msg->next)->prev = msg->prev;
    }
    msg->at_leader = false;
}

static void schedule_step(struct sim *sim)
{
    struct leader *leader = &sim->leader;
    if (!leader->is_step_due) {
        leader->is_step_due = true;
        int64_t at_ms = sim->now_ms + (int64_t)prng_below(&sim->prng, 2);
        events_add(&sim->events, at_ms, EVENT_LEADER_STEP, leader->number, 0);
    }
}

void leader_receive(struct sim *sim, uint32_t m)
{
    struct leader *leader = &sim->leader;
    if (leader->core == NULL || leader->n_inbox == MAX_INBOX) {
        net_free(sim, m);
        return;
    }
    link_request(sim, m);
    leader->inbox[leader->n_inbox++] = m;
    schedule_step(sim);
}

/* ---- jobs that the core has forgotten ---- */

static bool names_job(const struct effects *fx, const char *job_id, const char *key)
{
    for (const struct row *row = fx->rows; row != NULL; row = row->next) {
        if (row->kind != ROW_JOB) {
            continue;
        }
        const struct row_job *job = (const struct row_job *)row;
        if (job_id != NULL && strcmp(job->job_id, job_id) == 0) {
            return true;
        }
        if (key != NULL && job->is_new && job->idempotency_key != NULL && strcmp(job->idempotency_key, key) == 0) {
            return true;
        }
    }
    return false;
}

static void load_one(void *context, const struct row *row)
{
    struct sim *sim = context;
    struct command command = {.kind = CMD_LOAD, .u.load = row};
    struct core_input input = input_now(sim);
    core_step(sim->leader.core, &input, &command, &sim->leader.batch[sim->leader.gathering].fx);
    sim->stats.loads++;
}

static void load_job(struct sim *sim, uint32_t job)
{
    if (store_job_is_open(&sim->store, job)) {
        sim_fail(sim, PROPERTY_acked, "the core does not know %s, which is stored and has not ended", job_name(job));
        return;
    }
    TRACE(sim, "leader loads the ended job %s", job_name(job));
    sim->stats.reloads++;
    store_each_row_of_job(&sim->store, job, load_one, sim);
    struct command command = {.kind = CMD_LOADED_JOB, .u.loaded_job = job_name(job)};
    struct core_input input = input_now(sim);
    core_step(sim->leader.core, &input, &command, &sim->leader.batch[sim->leader.gathering].fx);
    sim->stats.loads++;
}

/* False if the answer depends on a job that left the core before its rows are committed: ask again later. */
static bool bring_job(struct sim *sim, uint32_t job)
{
    const struct leader *leader = &sim->leader;
    const char *job_id = job_name(job);
    if (core_has_job(leader->core, job_id)) {
        return true;
    }
    if (names_job(&leader->batch[0].fx, job_id, NULL) || names_job(&leader->batch[1].fx, job_id, NULL)) {
        return false;
    }
    if (sim->store.jobs[job].present) {
        load_job(sim, job);
    }
    return true;
}

static bool bring_key(struct sim *sim, uint32_t key)
{
    const struct leader *leader = &sim->leader;
    if (core_job_by_key(leader->core, key_name(key)) != NULL) {
        return true;
    }
    if (names_job(&leader->batch[0].fx, NULL, key_name(key)) || names_job(&leader->batch[1].fx, NULL, key_name(key))) {
        return false;
    }
    uint32_t job = sim->store.key_job[key];
    return job == NO_INDEX || bring_job(sim, job);
}

static bool bring_jobs(struct sim *sim, const struct msg *msg)
{
    switch (msg->kind) {
    case CMD_SUBMIT: {
        uint32_t key = sim->world.jobs[msg->job].key;
        bool has_parent = msg->u.submit.has_parent;
        return bring_job(sim, msg->job) && (key == NO_INDEX || bring_key(sim, key)) &&
               (!has_parent || bring_job(sim, msg->u.submit.parent.job));
    }
    case CMD_REPORT:
        for (uint32_t i = 0; i < msg->u.report.n_reports; i++) {
            if (!bring_job(sim, msg->u.report.reports[i].ref.job)) {
                return false;
            }
        }
        return true;
    case CMD_MAP_OUTPUT:
    case CMD_RESULTS:
        return bring_job(sim, msg->u.output.ref.job);
    case CMD_CANCEL:
    case CMD_RETRY:
        return bring_job(sim, msg->job);
    case CMD_CHILD_DONE:
    case CMD_CHILD_FAILED:
        return bring_job(sim, msg->u.child_news.job);
    case CMD_REGISTER:
    case CMD_HEARTBEAT:
    case CMD_DEREGISTER:
    case CMD_GET_TASK:
    case CMD_SET_NODE:
    case CMD_TICK:
    case CMD_LOAD:
    case CMD_LOADED:
    case CMD_LOADED_JOB:
        return true;
    }
    return true;
}

/* ---- a batch ---- */

static void leave(struct sim *sim, const struct reply *reply)
{
    check_leave(sim, net_msg(sim, (uint32_t)reply->to), reply);
    leader__send_reply(sim, reply);
}

static bool leaves_at_once(const struct sim *sim, const struct reply *reply)
{
    return reply->immediate || sim->options.bug == BUG_ack_before_commit;
}

static void send_immediate(struct sim *sim)
{
    struct batch *batch = &sim->leader.batch[sim->leader.gathering];
    struct reply *reply = batch->walked == NULL ? batch->fx.replies : batch->walked->next;
    for (; reply != NULL; reply = reply->next) {
        batch->walked = reply;
        if (leaves_at_once(sim, reply)) {
            check_fact(sim, net_msg(sim, (uint32_t)reply->to), reply);
            leave(sim, reply);
        }
    }
}

static void step_request(struct sim *sim, uint32_t m)
{
    struct leader *leader = &sim->leader;
    struct msg *msg = net_msg(sim, m);
    if (!bring_jobs(sim, msg)) {
        leader__unlink(sim, m);
        events_add(&sim->events, sim->now_ms + 5, EVENT_DELIVER, m, 0);
        return;
    }
    struct command_room room;
    struct command command;
    leader__command(sim, m, &room, &command);
    const struct batch *batch = &leader->batch[leader->gathering];
    msg->step_row = batch->row_base + batch->fx.n_rows;
    (void)clock_ms(sim);
    msg->step_now_ms = leader->now_max_ms;
    step(sim, &command);
}

/* Somebody asks whether a map attempt may be fetched. The answer is judged when all that it could see is committed. */
static void probe_outputs(struct sim *sim)
{
    struct batch *batch = &sim->leader.batch[sim->leader.gathering];
    if (sim->store.n_tids == 0 || batch->n_probes == MAX_PROBES) {
        return;
    }
    uint32_t tid = (uint32_t)prng_below(&sim->prng, sim->store.n_tids);
    const struct stored_task *task = &sim->store.tasks[tid];
    uint32_t job = name_index(task->row.ref.job_id);
    if (sim->store.jobs[job].stages[task->row.ref.stage].spec->output != OUTPUT_SHUFFLE || task->row.attempt == 0) {
        return;
    }
    uint32_t attempt = task->row.attempt + 1 - (uint32_t)prng_below(&sim->prng, 3);
    struct attempt_ref ref = {.task = task->row.ref, .attempt = attempt};
    struct output_info info;
    struct error e;
    bool served = core_map_output(sim->leader.core, &ref, &info, &e) == ERR_OK;
    batch->probes[batch->n_probes++] = (struct fetch_probe){
        .tid = tid,
        .attempt = attempt,
        .step_row = batch->row_base + batch->fx.n_rows,
        .served = served,
        .proc = served ? name_index(info.address) : NO_INDEX,
    };
}

/* Asks everything that can be read about one job and the nodes: it must not change or break anything. */
static void read_something(struct sim *sim)
{
    const struct core *core = sim->leader.core;
    const char *job_id = job_name((uint32_t)prng_below(&sim->prng, sim->world.n_jobs));
    struct job_status status;
    if (core_job_status(core, job_id, &status) == ERR_OK) {
        struct pending_reason reasons[8];
        arena_reset(&sim->leader.arena);
        (void)core_why_pending(core, job_id, &sim->leader.arena, reasons, ARRAY_LEN(reasons));
        for (uint32_t s = 0; s < status.n_stages; s++) {
            struct stage_status stage;
            enum err err = core_stage_status(core, job_id, s, &stage);
            ASSERT(err == ERR_OK);
            struct task_status task;
            err = core_task_status(core, (struct task_ref){job_id, s, 0}, &task);
            ASSERT(err == ERR_OK);
            struct output_info output;
            (void)!core_result(core, (struct task_ref){job_id, s, 0}, &output, NULL);
        }
    }
    struct node_filter filter = {.op = op_name(0)};
    struct node_info node;
    for (size_t cursor = 0; core_next_node(core, &filter, &cursor, &node);) {
        ASSERT(node.worker_id != NULL);
    }
    (void)core_stats(core);
}

static void schedule_tick(struct sim *sim, int64_t wake_at_ms)
{
    struct leader *leader = &sim->leader;
    int64_t at_ms = wake_at_ms - leader->clock_offset_ms;
    at_ms = at_ms <= sim->now_ms ? sim->now_ms + 1 : at_ms;
    if (leader->next_tick_ms <= sim->now_ms || at_ms < leader->next_tick_ms) {
        leader->next_tick_ms = at_ms;
        events_add(&sim->events, at_ms, EVENT_LEADER_TICK, leader->number, 0);
    }
}

static int64_t commit_takes_ms(struct sim *sim)
{
    if (sim->is_healed) {
        return prng_range(&sim->prng, 1, 4);
    }
    return prng_range(&sim->prng, 1, sim->world.mood.commit_ms_max) + sim->leader.slow_commit_ms;
}

static bool batch_is_empty(const struct batch *batch)
{
    return batch->fx.n_rows == 0 && batch->fx.n_replies == 0 && batch->fx.children == NULL &&
           batch->fx.child_ends == NULL;
}

static void batch_clear(struct batch *batch, uint64_t row_base)
{
    effects_reset(&batch->fx);
    batch->row_base = row_base;
    batch->walked = NULL;
    batch->n_probes = 0;
}

/* Hands the gathered batch to the store, if the store is free. */
static void start_commit(struct sim *sim)
{
    struct leader *leader = &sim->leader;
    struct batch *batch = &leader->batch[leader->gathering];
    if (leader->is_committing || batch_is_empty(batch)) {
        return;
    }
    uint64_t next_base = batch->row_base + batch->fx.n_rows;
    leader->is_committing = true;
    leader->gathering ^= 1;
    batch_clear(&leader->batch[leader->gathering], next_base);
    events_add(&sim->events, sim->now_ms + commit_takes_ms(sim), EVENT_COMMIT_DONE, leader->number, 0);
}

static void run_batch(struct sim *sim)
{
    struct leader *leader = &sim->leader;
    uint32_t n = leader->n_inbox;
    for (uint32_t i = 0; i < n; i++) {
        step_request(sim, leader->inbox[i]);
    }
    leader->n_inbox = 0;
    struct command tick = {.kind = CMD_TICK};
    step(sim, &tick);
    schedule_tick(sim, leader->batch[leader->gathering].fx.wake_at_ms);
    if (prng_permille(&sim->prng, 60)) {
        probe_outputs(sim);
    }
    if (prng_permille(&sim->prng, 10)) {
        read_something(sim);
    }
    send_immediate(sim);
    start_commit(sim);
    if (leader->steps_to_check <= n + 1) {
        leader->steps_to_check = STEPS_PER_CHECK;
        if (sim->options.bug == BUG_NONE) {
            core_check(leader->core);
        }
        if (prng_permille(&sim->prng, 80)) {
            leader_rehearse(sim);
        }
    } else {
        leader->steps_to_check -= n + 1;
    }
}

void leader_step(struct sim *sim)
{
    if (is_stalled(sim, EVENT_LEADER_STEP)) {
        return;
    }
    sim->leader.is_step_due = false;
    run_batch(sim);
}

void leader_tick(struct sim *sim, int64_t at_ms)
{
    if (at_ms != sim->leader.next_tick_ms) {
        return; /* another tick was wanted sooner */
    }
    if (sim->leader.stalled_until_ms > sim->now_ms) {
        sim->leader.next_tick_ms = sim->leader.stalled_until_ms;
        (void)is_stalled(sim, EVENT_LEADER_TICK);
        return;
    }
    sim->leader.next_tick_ms = 0;
    run_batch(sim);
}

/* ---- commits ---- */

static struct ref ref_of(const struct attempt_ref *ref)
{
    return (struct ref){name_index(ref->task.job_id), ref->task.stage, ref->task.task, ref->attempt, ref->token};
}

/*
 * Somebody reads what the child of this attempt brought, and says so: at once, or so late that the next leader hears it,
 * who may have been told already.
 */
void leader__read_child(struct sim *sim, struct ref ref, enum job_state state)
{
    bool fails =
        state != JOB_SUCCEEDED || (!sim->is_healed && prng_permille(&sim->prng, sim->world.mood.plan_child_fails));
    uint32_t m = net_new(sim, fails ? CMD_CHILD_FAILED : CMD_CHILD_DONE, NO_INDEX);
    net_msg(sim, m)->u.child_news = ref;
    if (prng_permille(&sim->prng, 500)) {
        leader_receive(sim, m);
    } else {
        int64_t late_ms = prng_range(&sim->prng, 1, prng_permille(&sim->prng, 200) ? 5000 : 50);
        events_add(&sim->events, sim->now_ms + late_ms, EVENT_DELIVER, m, 0);
    }
}

static void start_children(struct sim *sim, const struct batch *batch)
{
    for (const struct child_start *child = batch->fx.children; child != NULL; child = child->next) {
        struct ref ref = ref_of(&child->ref);
        uint32_t tid = store_tid(&sim->store, ref.job, ref.stage, ref.task);
        ASSERT(tid != NO_INDEX);
        while (sim->n_child_jobs <= tid) {
            memset(sim->child_jobs[sim->n_child_jobs++], 0xff, sizeof(sim->child_jobs[0]));
        }
        uint32_t *job = &sim->child_jobs[tid][ref.attempt % MAX_ATTEMPTS];
        bool fails = ref.attempt >= MAX_ATTEMPTS ||
                     (!sim->is_healed && prng_permille(&sim->prng, sim->world.mood.plan_child_fails));
        if (!fails && *job == NO_INDEX) {
            *job = world_add_child(&sim->world, &sim->prng);
        }
        uint32_t m = net_new(sim, fails || *job == NO_INDEX ? CMD_CHILD_FAILED : CMD_SUBMIT, NO_INDEX);
        struct msg *msg = net_msg(sim, m);
        if (msg->kind == CMD_SUBMIT) {
            msg->job = *job;
            msg->u.submit.other_content = false;
            msg->u.submit.has_parent = true;
            msg->u.submit.parent = ref;
            sim->clients.clients[*job].is_submitted = true;
        } else {
            msg->u.child_news = ref;
        }
        leader_receive(sim, m);
    }
}

/* The batch is in the store now. Without `send` its answers are lost. */
static void apply_batch(struct sim *sim, struct batch *batch, bool send)
{
    struct effects *fx = &batch->fx;
    for (const struct reply *reply = fx->replies; reply != NULL; reply = reply->next) {
        if (!leaves_at_once(sim, reply)) {
            check_fact(sim, net_msg(sim, (uint32_t)reply->to), reply);
        }
    }
    uint64_t no = batch->row_base;
    for (const struct row *row = fx->rows; row != NULL; row = row->next) {
        store_apply(&sim->store, row);
        check_row(sim, row, ++no);
    }
    sim->stats.rows += fx->n_rows;
    if (!send) {
        return;
    }
    for (uint32_t i = 0; i < batch->n_probes; i++) {
        check_map_output_probe(sim, &batch->probes[i]);
    }
    for (const struct reply *reply = fx->replies; reply != NULL; reply = reply->next) {
        if (!leaves_at_once(sim, reply)) {
            leave(sim, reply);
        }
    }
    start_children(sim, batch);
    for (const struct child_end *end = fx->child_ends; end != NULL; end = end->next) {
        leader__read_child(sim, ref_of(&end->ref), JOB_SUCCEEDED);
    }
}

void leader_commit_done(struct sim *sim)
{
    struct leader *leader = &sim->leader;
    if (is_stalled(sim, EVENT_COMMIT_DONE)) {
        return;
    }
    if (++sim->stats.commits == sim->options.crash_at) {
        leader->dies_after_commit = sim->options.crash_mode == CRASH_AFTER_COMMIT;
        leader_crash(sim, (enum crash_mode)sim->options.crash_mode);
        return;
    }
    if (leader->dies_after_commit) {
        leader_crash(sim, CRASH_AFTER_COMMIT);
        return;
    }
    struct batch *batch = &leader->batch[leader->gathering ^ 1];
    TRACE(sim, "commit of %u rows and %u replies", batch->fx.n_rows, batch->fx.n_replies);
    apply_batch(sim, batch, true);
    batch_clear(batch, 0);
    leader->is_committing = false;
    start_commit(sim);
}

/* ---- loads and rehearsals ---- */

struct loading {
    struct sim *sim;
    struct core *core;
    struct effects *fx;
    int64_t now_ms;
    uint32_t skip; /* how many more rows until one is lost; 0: none is */
};

static void load_row_into(void *context, const struct row *row)
{
    struct loading *loading = context;
    bool may_skip =
        row->kind == ROW_LEASE || row->kind == ROW_MAP_OUTPUT || row->kind == ROW_RESULT || row->kind == ROW_NODE;
    if (may_skip && loading->skip > 0 && --loading->skip == 0) {
        return;
    }
    struct command command = {.kind = CMD_LOAD, .u.load = row};
    struct core_input input = {.now_ms = loading->now_ms, .seed = {1, 2}};
    core_step(loading->core, &input, &command, loading->fx);
    loading->sim->stats.loads++;
}

/* A new core with the stored state. Effects go to `fx`. */
static struct core *load_core(struct sim *sim, int64_t now_ms, struct effects *fx)
{
    struct core *core = core_new(&sim->world.config, prng_u64(&sim->prng));
#ifdef CAPSTAN_PLANTED_BUGS
    core_plant_bug(core, sim->options.bug);
#endif
    struct loading loading = {.sim = sim, .core = core, .fx = fx, .now_ms = now_ms};
    if (sim->options.bug == BUG_lose_row_at_recovery) {
        loading.skip = 1 + (uint32_t)prng_below(&sim->prng, 8);
    }
    store_each_row(&sim->store, load_row_into, &loading);
    struct command command = {.kind = CMD_LOADED};
    struct core_input input = {.now_ms = now_ms, .seed = {prng_u64(&sim->prng), prng_u64(&sim->prng)}};
    core_step(core, &input, &command, fx);
    sim->stats.loads++;
    return core;
}

static void try_rows(struct sim *sim, const struct batch *batch)
{
    for (const struct row *row = batch->fx.rows; row != NULL; row = row->next) {
        store_apply(&sim->store, row);
    }
}

void leader_rehearse(struct sim *sim)
{
    struct leader *leader = &sim->leader;
    sim->stats.rehearsals++;
    store_try_begin(&sim->store);
    if (leader->is_committing) {
        try_rows(sim, &leader->batch[leader->gathering ^ 1]);
    }
    try_rows(sim, &leader->batch[leader->gathering]);
    struct core *core = load_core(sim, leader->now_max_ms, &leader->scratch);
    store_try_end(&sim->store);
    char why[256] = "";
    if (!core_equal(leader->core, core, why, sizeof(why))) {
        sim_fail(sim, PROPERTY_recovery, "a core loaded from all rows differs from the one that wrote them: %s", why);
    }
    core_free(core);
    effects_reset(&leader->scratch);
}

/* ---- the life of a leader ---- */

static void drop_requests(struct sim *sim)
{
    while (sim->leader.first_held != 0) {
        uint32_t m = sim->leader.first_held;
        leader__unlink(sim, m);
        net_free(sim, m);
    }
    sim->leader.n_inbox = 0;
}

void leader_crash(struct sim *sim, enum crash_mode mode)
{
    struct leader *leader = &sim->leader;
    if (leader->core == NULL) {
        return;
    }
    if (mode == CRASH_AFTER_COMMIT && !leader->dies_after_commit) {
        leader->dies_after_commit = true; /* when the next commit is done */
        return;
    }
    bool is_stored = mode == CRASH_AFTER_COMMIT || (mode == CRASH_DURING_COMMIT && prng_permille(&sim->prng, 500));
    TRACE(sim, "leader %u crashes; the batch on its way is %s", leader->number, is_stored ? "stored" : "lost");
    if (sim->options.bug == BUG_NONE) {
        core_check(leader->core);
    }
    leader_rehearse(sim);
    if (leader->is_committing && is_stored) {
        apply_batch(sim, &leader->batch[leader->gathering ^ 1], false);
    }
    drop_requests(sim);
    core_free(leader->core);
    leader->core = NULL;
    leader->number++;
    leader->is_committing = false;
    leader->is_step_due = false;
    leader->dies_after_commit = false;
    leader->stalled_until_ms = 0;
    leader->next_tick_ms = 0;
    int64_t away_ms =
        prng_permille(&sim->prng, 300) ? prng_range(&sim->prng, 200, 1500) : prng_range(&sim->prng, 1, 50);
    events_add(&sim->events, sim->now_ms + away_ms, EVENT_LEADER_UP, leader->number, 0);
}

void leader_start(struct sim *sim)
{
    struct leader *leader = &sim->leader;
    ASSERT(leader->core == NULL);
    sim->stats.leaders++;
    const struct batch *last = &leader->batch[leader->gathering];
    uint64_t base = last->row_base + last->fx.n_rows;
    batch_clear(&leader->batch[0], base);
    batch_clear(&leader->batch[1], base);
    leader->gathering = 0;
    leader->steps_to_check = STEPS_PER_CHECK;
    leader->past_now_max_ms = leader->now_max_ms;
    leader->now_max_ms = 0;
    leader->n_gaps = 0;
    int64_t now_ms = clock_ms(sim);
    TRACE(sim, "leader %u starts at %lld", leader->number, (long long)now_ms);
    leader->core = load_core(sim, now_ms, &leader->batch[0].fx);
    check_takeover(sim);
    run_batch(sim);
}

void leader_reset(struct sim *sim)
{
    struct leader *leader = &sim->leader;
    core_free(leader->core);
    leader->core = NULL;
    leader->number = 1;
    leader->gathering = 0;
    leader->is_committing = false;
    leader->is_step_due = false;
    leader->dies_after_commit = false;
    leader->n_inbox = 0;
    leader->first_held = 0;
    leader->clock_offset_ms = 1000000;
    leader->now_max_ms = 0;
    leader->stalled_until_ms = 0;
    leader->next_tick_ms = 0;
    leader->slow_commit_ms = 0;
    batch_clear(&leader->batch[0], 0);
    batch_clear(&leader->batch[1], 0);
}

void leader_deinit(struct leader *leader)
{
    core_free(leader->core);
    effects_deinit(&leader->batch[0].fx);
    effects_deinit(&leader->batch[1].fx);
    effects_deinit(&leader->scratch);
    arena_deinit(&leader->arena);
}
