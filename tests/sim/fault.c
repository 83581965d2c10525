/*
 * fault.c - one function per fault, and the heal.
 */
#include "sim/fault.h"

#include "base/check.h"
#include "sim/sim.h"

const char *fault_text(enum fault fault)
{
    static const char *const texts[] = {
#define FAULT_ENTRY(symbol, text) text,
        FAULT_TABLE(FAULT_ENTRY)
#undef FAULT_ENTRY
    };
    ASSERT(fault < FAULT_COUNT);
    return texts[fault];
}

static void calm_later(struct sim *sim, enum fault fault, uint32_t where, int64_t after_ms)
{
    events_add(&sim->events, sim->now_ms + after_ms, EVENT_CALM, (uint32_t)fault, where);
}

static void start_later(struct sim *sim, uint32_t worker, int64_t after_ms)
{
    if (!sim->workers.workers[worker].is_start_due) {
        sim->workers.workers[worker].is_start_due = true;
        events_add(&sim->events, sim->now_ms + after_ms, EVENT_PROC_START, worker, 0);
    }
}

/* Each returns false if there was nothing to break. */
typedef bool fault_fn(struct sim *sim);

static bool crash_worker(struct sim *sim)
{
    uint32_t p = proc_random(sim);
    if (p == NO_INDEX) {
        return false;
    }
    uint32_t worker = sim->workers.procs[p].worker;
    proc_kill(sim, p);
    if (sim->workers.workers[worker].proc == p) {
        bool is_slow = prng_permille(&sim->prng, 400);
        start_later(sim, worker, is_slow ? prng_range(&sim->prng, 500, 4000) : prng_range(&sim->prng, 10, 300));
    }
    return true;
}

static bool double_worker(struct sim *sim)
{
    uint32_t p = proc_random(sim);
    if (p == NO_INDEX) {
        return false;
    }
    if (prng_permille(&sim->prng, 600)) { /* frozen for now, and back later */
        sim->workers.procs[p].stalled_until_ms = sim->now_ms + prng_range(&sim->prng, 100, 3000);
    }
    start_later(sim, sim->workers.procs[p].worker, 1);
    return true;
}

static bool stall_worker(struct sim *sim)
{
    uint32_t p = proc_random(sim);
    if (p == NO_INDEX) {
        return false;
    }
    sim->workers.procs[p].stalled_until_ms = sim->now_ms + prng_range(&sim->prng, 50, 2000);
    return true;
}

static bool partition(struct sim *sim)
{
    uint32_t worker = (uint32_t)prng_below(&sim->prng, sim->world.n_workers);
    uint32_t ways = (uint32_t)prng_range(&sim->prng, 1, 3);
    sim->net.cut_to_leader |= (ways & 1) << worker;
    sim->net.cut_from_leader |= (ways >> 1) << worker;
    calm_later(sim, FAULT_PARTITION, worker, prng_range(&sim->prng, 100, 2000));
    return true;
}

static bool storm(struct sim *sim)
{
    sim->net.storm_drop = (uint32_t)prng_range(&sim->prng, 0, 400);
    sim->net.storm_slow_ms = (uint32_t)prng_range(&sim->prng, 0, 200);
    calm_later(sim, FAULT_STORM, 0, prng_range(&sim->prng, 100, 1000));
    return true;
}

static bool crash_leader(struct sim *sim)
{
    if (sim->leader.core == NULL) {
        return false;
    }
    enum crash_mode mode = (enum crash_mode)prng_below(&sim->prng, 3);
    if (sim->world.mood.fault_weight[FAULT_CLOCK_JUMP] > 0 && prng_permille(&sim->prng, 300)) {
        /* the next leader's clock is another one */
        sim->leader.clock_offset_ms += prng_range(&sim->prng, -2000, 2000);
    }
    leader_crash(sim, mode);
    return true;
}

static bool stall_leader(struct sim *sim)
{
    sim->leader.stalled_until_ms = sim->now_ms + prng_range(&sim->prng, 50, 2500);
    return true;
}

static bool jump_clock(struct sim *sim)
{
    int64_t jump_ms = prng_range(&sim->prng, -400, 1500);
    if (prng_permille(&sim->prng, 150)) {
        jump_ms = prng_range(&sim->prng, -5000, 60000);
    }
    TRACE(sim, "the leader's clock jumps by %lld ms", (long long)jump_ms);
    sim->leader.clock_offset_ms += jump_ms;
    if (jump_ms > 0 && sim->leader.core != NULL && sim->leader.next_tick_ms > sim->now_ms) {
        sim->leader.next_tick_ms = sim->now_ms + 1; /* a real clock would wake it at once */
        events_add(&sim->events, sim->now_ms + 1, EVENT_LEADER_TICK, sim->leader.number, 0);
    }
    return true;
}

static bool lose_outputs(struct sim *sim)
{
    uint32_t p = proc_random(sim);
    if (p == NO_INDEX) {
        return false;
    }
    sim->workers.procs[p].file_epoch++;
    return true;
}

static bool lose_op(struct sim *sim)
{
    uint32_t p = proc_random(sim);
    if (p == NO_INDEX) {
        return false;
    }
    struct proc *proc = &sim->workers.procs[p];
    if (prng_permille(&sim->prng, 500)) {
        proc->lacking_ops |= 1U << prng_below(&sim->prng, N_OPS);
    } else {
        proc->lacking_ops = 0;
        uint64_t bits = prng_u64(&sim->prng);
        proc->traits.ops = (uint32_t)(bits | bits >> 32) & ((1U << N_OPS) - 1);
    }
    return true;
}

static bool operate(struct sim *sim)
{
    uint32_t worker = (uint32_t)prng_below(&sim->prng, sim->world.n_workers);
    switch (prng_below(&sim->prng, 6)) {
    case 4:
    case 5:
        return client_meddle(sim);
    case 0:
        client_set_node(sim, worker, 1, false);
        calm_later(sim, FAULT_OPERATOR, worker, prng_range(&sim->prng, 100, 3000));
        break;
    case 1:
        client_set_node(sim, worker, -1, true);
        break;
    case 2:
        client_set_node(sim, worker, 0, prng_permille(&sim->prng, 500));
        break;
    default: {
        uint32_t p = sim->workers.workers[worker].proc;
        if (p == NO_INDEX || !sim->workers.procs[p].is_alive) {
            return false;
        }
        sim->workers.procs[p].is_leaving = true;
        start_later(sim, worker, prng_range(&sim->prng, 500, 3000));
        break;
    }
    }
    return true;
}

static bool slow_commit(struct sim *sim)
{
    sim->leader.slow_commit_ms = prng_range(&sim->prng, 20, 700);
    calm_later(sim, FAULT_SLOW_COMMIT, 0, prng_range(&sim->prng, 50, 800));
    return true;
}

/* ---- lies ---- */

/* A past or present attempt of any task, with its true token. False if there is none yet. */
static bool draw_attempt(struct sim *sim, struct ref *out)
{
    if (sim->store.n_tids == 0) {
        return false;
    }
    const struct stored_task *task = &sim->store.tasks[prng_below(&sim->prng, sim->store.n_tids)];
    *out = (struct ref){
        .job = name_index(task->row.ref.job_id),
        .stage = task->row.ref.stage,
        .task = task->row.ref.task,
        .attempt = task->row.attempt,
        .token = task->row.token,
    };
    return task->row.attempt > 0;
}

static bool lie_with_wrong_token(struct sim *sim, uint32_t p)
{
    struct report report = {.missing_op = NO_INDEX};
    if (!draw_attempt(sim, &report.ref)) {
        return false;
    }
    if (prng_permille(&sim->prng, 500)) {
        report.ref.token.bits[0] ^= 1ULL << prng_below(&sim->prng, 64);
    } else {
        report.ref.attempt += prng_permille(&sim->prng, 500) ? 1 : UINT32_MAX;
    }
    report.state = prng_permille(&sim->prng, 500) ? TASK_SUCCEEDED : TASK_FAILED;
    proc_send_report(sim, p, &report);
    return true;
}

/* Speaks for an attempt that another worker runs, with its true token. */
static bool lie_with_stolen_token(struct sim *sim, uint32_t p)
{
    struct report report = {.missing_op = NO_INDEX};
    if (!draw_attempt(sim, &report.ref)) {
        return false;
    }
    uint32_t tid = store_tid(&sim->store, report.ref.job, report.ref.stage, report.ref.task);
    const char *holder = sim->store.tasks[tid].row.worker_id;
    if (holder == NULL || name_index(holder) == sim->workers.procs[p].worker) {
        return false;
    }
    report.state = prng_permille(&sim->prng, 500) ? TASK_SUCCEEDED : TASK_FAILED;
    proc_send_report(sim, p, &report);
    return true;
}

/* Says what it said before; sometimes the contrary. */
static bool lie_by_repeating(struct sim *sim, uint32_t p)
{
    const struct proc *proc = &sim->workers.procs[p];
    if (proc->n_said == 0) {
        return false;
    }
    uint32_t n = proc->n_said < ARRAY_LEN(proc->said) ? proc->n_said : (uint32_t)ARRAY_LEN(proc->said);
    struct report report = proc->said[prng_below(&sim->prng, n)];
    if (prng_permille(&sim->prng, 300)) {
        report.state = report.state == TASK_FAILED ? TASK_SUCCEEDED : TASK_FAILED;
        report.n_fetch = 0;
    }
    proc_send_report(sim, p, &report);
    return true;
}

static bool lie_about_output(struct sim *sim, uint32_t p)
{
    struct ref ref;
    if (!draw_attempt(sim, &ref)) {
        return false;
    }
    uint32_t m = net_new(sim, prng_permille(&sim->prng, 500) ? CMD_MAP_OUTPUT : CMD_RESULTS, p);
    struct msg *msg = net_msg(sim, m);
    if (prng_permille(&sim->prng, 600)) {
        ref.token.bits[1]++;
    }
    msg->u.output.ref = ref;
    msg->u.output.n_partitions = (uint32_t)prng_range(&sim->prng, 1, MAX_PARTITIONS);
    msg->u.output.is_inline = true;
    msg->u.output.bytes = 10;
    msg->rpc = 0;
    net_send(sim, m);
    return true;
}

static bool lie_in_heartbeat(struct sim *sim, uint32_t p)
{
    struct ref ref;
    if (!draw_attempt(sim, &ref) || !sim->workers.procs[p].is_registered) {
        return false;
    }
    uint32_t m = net_new(sim, CMD_HEARTBEAT, p);
    struct msg *msg = net_msg(sim, m);
    msg->u.heartbeat.n_running = 1;
    msg->u.heartbeat.running[0] = ref;
    msg->u.heartbeat.ops = sim->workers.procs[p].traits.ops;
    for (uint32_t i = 0; i < ARRAY_LEN(msg->u.heartbeat.held); i++) {
        msg->u.heartbeat.held[i] = 0;
    }
    net_send(sim, m);
    return true;
}

static bool lie(struct sim *sim)
{
    uint32_t p = proc_random(sim);
    if (p == NO_INDEX) {
        return false;
    }
    switch (prng_below(&sim->prng, 6)) {
    case 0:
    case 1:
        return lie_by_repeating(sim, p);
    case 5:
        return lie_with_stolen_token(sim, p);
    case 2:
        return lie_with_wrong_token(sim, p);
    case 3:
        return lie_about_output(sim, p);
    default:
        return lie_in_heartbeat(sim, p);
    }
}

static fault_fn *const FAULTS[FAULT_COUNT] = {
    [FAULT_WORKER_CRASH] = crash_worker,
    [FAULT_WORKER_ZOMBIE] = double_worker,
    [FAULT_WORKER_STALL] = stall_worker,
    [FAULT_PARTITION] = partition,
    [FAULT_STORM] = storm,
    [FAULT_LIE] = lie,
    [FAULT_LEADER_CRASH] = crash_leader,
    [FAULT_LEADER_STALL] = stall_leader,
    [FAULT_CLOCK_JUMP] = jump_clock,
    [FAULT_OUTPUT_LOSS] = lose_outputs,
    [FAULT_OP_LOSS] = lose_op,
    [FAULT_OPERATOR] = operate,
    [FAULT_SLOW_COMMIT] = slow_commit,
};

void fault_strike(struct sim *sim)
{
    const struct mood *mood = &sim->world.mood;
    uint32_t total = 0;
    for (uint32_t i = 0; i < FAULT_COUNT; i++) {
        total += mood->fault_weight[i];
    }
    if (total > 0) {
        uint32_t at = (uint32_t)prng_below(&sim->prng, total);
        uint32_t fault = 0;
        while (at >= mood->fault_weight[fault]) {
            at -= mood->fault_weight[fault++];
        }
        if (FAULTS[fault](sim)) {
            TRACE(sim, "fault: %s", fault_text((enum fault)fault));
            sim->stats.faults[fault]++;
        }
    }
    events_add(&sim->events, sim->now_ms + prng_range(&sim->prng, 1, 2 * mood->fault_every_ms), EVENT_FAULT, 0, 0);
}

void fault_calm(struct sim *sim, uint32_t fault, uint32_t where)
{
    switch ((enum fault)fault) {
    case FAULT_PARTITION:
        sim->net.cut_to_leader &= ~(1U << where);
        sim->net.cut_from_leader &= ~(1U << where);
        break;
    case FAULT_STORM:
        sim->net.storm_drop = 0;
        sim->net.storm_slow_ms = 0;
        break;
    case FAULT_OPERATOR:
        client_set_node(sim, where, 0, false);
        break;
    case FAULT_SLOW_COMMIT:
        sim->leader.slow_commit_ms = 0;
        break;
    case FAULT_WORKER_CRASH:
    case FAULT_WORKER_ZOMBIE:
    case FAULT_WORKER_STALL:
    case FAULT_LIE:
    case FAULT_LEADER_CRASH:
    case FAULT_LEADER_STALL:
    case FAULT_CLOCK_JUMP:
    case FAULT_OUTPUT_LOSS:
    case FAULT_OP_LOSS:
    case FAULT_COUNT:
        break;
    }
}

/* The newest process of a worker is well and can do everything; a worker that is not safe leaves for ever. */
static void heal_worker(struct sim *sim, uint32_t w)
{
    uint32_t p = sim->workers.workers[w].proc;
    bool is_alive = p != NO_INDEX && sim->workers.procs[p].is_alive;
    if (w >= sim->world.n_safe) {
        if (is_alive) {
            proc_kill(sim, p);
        }
        return;
    }
    /* Operators come with every heartbeat; to offer anything else anew takes a new process. */
    if (is_alive && !sim->workers.procs[p].is_leaving && traits_are_full(sim->workers.procs[p].traits)) {
        sim->workers.procs[p].traits = traits_full();
        sim->workers.procs[p].lacking_ops = 0;
    } else {
        if (is_alive) {
            proc_kill(sim, p);
        }
        start_later(sim, w, 1);
    }
    client_set_node(sim, w, 0, true);
}

void fault_heal(struct sim *sim)
{
    sim->is_healed = true;
    sim->healed_at_ms = sim->now_ms;
    sim->net.cut_to_leader = 0;
    sim->net.cut_from_leader = 0;
    sim->net.storm_drop = 0;
    sim->net.storm_slow_ms = 0;
    struct leader *leader = &sim->leader;
    leader->slow_commit_ms = 0;
    leader->stalled_until_ms = 0;
    leader->dies_after_commit = false;
    if (leader->core != NULL && sim->now_ms + leader->clock_offset_ms < leader->now_max_ms) {
        leader->clock_offset_ms = leader->now_max_ms - sim->now_ms;
    }
    TRACE(sim, "all heals");
    for (uint32_t i = 0; i < sim->workers.n_procs; i++) {
        struct proc *proc = &sim->workers.procs[i];
        proc->stalled_until_ms = 0;
        if (proc->is_alive && sim->workers.workers[proc->worker].proc != i) {
            proc->ignores_orders = false; /* told that it was replaced, it exits */
        }
        if (proc->is_alive && proc->worker >= sim->world.n_safe) {
            proc_kill(sim, i);
        }
    }
    for (uint32_t w = 0; w < sim->world.n_workers; w++) {
        heal_worker(sim, w);
    }
}
