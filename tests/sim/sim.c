/*
 * sim.c - the loop over events, and the two phases of a run.
 */
#include "sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"

struct sim *sim_new(void)
{
    names_init();
    struct sim *sim = mem_calloc(1, sizeof(*sim));
    for (uint32_t ops = 0; ops < ARRAY_LEN(sim->op_lists); ops++) {
        sim->op_lists[ops] = traits_ops(ops, &sim->op_arena);
    }
    checks_init(&sim->checks);
    return sim;
}

void sim_free(struct sim *sim)
{
    if (sim == NULL) {
        return;
    }
    leader_deinit(&sim->leader);
    events_deinit(&sim->events);
    store_deinit(&sim->store);
    checks_deinit(&sim->checks);
    arena_deinit(&sim->world.arena);
    arena_deinit(&sim->op_arena);
    mem_free(sim);
}

/* ---- trace and failure ---- */

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        hash = (hash ^ (uint8_t)*p) * 0x100000001b3ULL;
    }
    return hash;
}

void sim_trace(struct sim *sim, const char *fmt, ...)
{
    char line[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    sim->trace_hash = hash_text(sim->trace_hash ^ (uint64_t)sim->now_ms, line);
    if (sim->options.trace) {
        (void)printf("%8lld  %s\n", (long long)sim->now_ms, line);
    }
}

void sim_fail(struct sim *sim, enum property property, const char *fmt, ...)
{
    if (sim->failure.is_set) {
        return;
    }
    sim->failure.is_set = true;
    sim->failure.property = property;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(sim->failure.text, sizeof(sim->failure.text), fmt, args);
    va_end(args);
    TRACE(sim, "BROKEN %s: %s", property_name(property), sim->failure.text);
}

/* ---- the end ---- */

static bool all_is_done(const struct sim *sim)
{
    const struct leader *leader = &sim->leader;
    if (!clients_are_done(sim) || leader->core == NULL || leader->is_committing) {
        return false;
    }
    for (uint32_t i = 0; i < sim->store.n_jobs; i++) {
        if (store_job_is_open(&sim->store, i)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < sim->store.n_tids; i++) {
        if (sim->store.tasks[i].has_lease) {
            return false;
        }
    }
    return true;
}

/* An operator who makes sure that every worker may work. */
static void tend_nodes(struct sim *sim)
{
    for (uint32_t w = 0; w < sim->world.n_safe; w++) {
        const struct stored_node *node = &sim->store.nodes[w];
        if (node->present && (node->row.draining || node->row.blacklisted_until_ms != 0)) {
            client_set_node(sim, w, 0, true);
        }
        uint32_t p = sim->workers.workers[w].proc;
        if (!sim->workers.procs[p].is_alive && !sim->workers.workers[w].is_start_due) {
            proc_start(sim, w);
        }
    }
}

/* Says of one job why it has not ended, if the core knows. */
static void explain_open_job(struct sim *sim, char *out, size_t size)
{
    out[0] = '\0';
    for (uint32_t i = 0; i < sim->store.n_jobs && sim->leader.core != NULL; i++) {
        if (!store_job_is_open(&sim->store, i)) {
            continue;
        }
        struct arena arena = {0};
        struct pending_reason reasons[2];
        uint32_t n = core_why_pending(sim->leader.core, job_name(i), &arena, reasons, ARRAY_LEN(reasons));
        (void)snprintf(out, size, "%s has not ended; the core says: %s", job_name(i),
                       n > 0 ? reasons[0].reason : "nothing is pending");
        arena_deinit(&arena);
        return;
    }
}

static void watch(struct sim *sim)
{
    check_watch(sim);
    if (all_is_done(sim)) {
        sim->is_over = true;
        return;
    }
    if (sim->now_ms - sim->healed_at_ms > HEAL_LIMIT_MS) {
        char why[400];
        explain_open_job(sim, why, sizeof(why));
        sim_fail(sim, PROPERTY_end, "%lld ms after the heal not everything has ended. %s", (long long)HEAL_LIMIT_MS,
                 why);
        return;
    }
    tend_nodes(sim);
    events_add(&sim->events, sim->now_ms + WATCH_MS, EVENT_WATCH, 0, 0);
}

/* ---- the loop ---- */

static void deliver(struct sim *sim, uint32_t m)
{
    const struct msg *msg = net_msg(sim, m);
    if (!msg->is_answer) {
        leader_receive(sim, m);
    } else if (msg->proc != NO_INDEX) {
        proc_receive(sim, m);
    } else {
        client_receive(sim, m);
    }
}

/* Events of a leader that is no more are dropped. */
static bool is_current(const struct sim *sim, const struct event *event)
{
    return event->a == sim->leader.number;
}

static void handle(struct sim *sim, const struct event *event)
{
    switch ((enum event_kind)event->kind) {
    case EVENT_DELIVER:
        deliver(sim, event->a);
        break;
    case EVENT_LEADER_STEP:
        if (is_current(sim, event)) {
            leader_step(sim);
        }
        break;
    case EVENT_LEADER_TICK:
        if (is_current(sim, event)) {
            leader_tick(sim, event->at_ms);
        }
        break;
    case EVENT_COMMIT_DONE:
        if (is_current(sim, event)) {
            leader_commit_done(sim);
        }
        break;
    case EVENT_LEADER_UP:
        leader_start(sim);
        break;
    case EVENT_PROC_TIMER:
        proc_timer(sim, event->a);
        break;
    case EVENT_TASK_DONE:
        proc_task_done(sim, event->a, event->b);
        break;
    case EVENT_PROC_START:
        proc_start(sim, event->a);
        break;
    case EVENT_CLIENT:
        client_act(sim, event->a, event->b);
        break;
    case EVENT_FAULT:
        if (!sim->is_healed) {
            fault_strike(sim);
        }
        break;
    case EVENT_CALM:
        fault_calm(sim, event->a, event->b);
        break;
    case EVENT_HEAL:
        fault_heal(sim);
        events_add(&sim->events, sim->now_ms + WATCH_MS, EVENT_WATCH, 0, 0);
        break;
    case EVENT_WATCH:
        watch(sim);
        break;
    }
}

static void trace_world(struct sim *sim)
{
    const struct world *world = &sim->world;
#define TRACE_SETTING(name, def, lo, hi, help)                                                                         \
    sim_trace(sim, "setting " #name " = %lld", (long long)world->config.name);
    CORE_CONFIG_TABLE(TRACE_SETTING)
#undef TRACE_SETTING
    sim_trace(sim, "%u workers, %u of them safe, %u slots each; %u jobs", world->n_workers, world->n_safe,
              world->n_slots, world->n_client_jobs);
    for (uint32_t i = 0; i < world->n_needs; i++) {
        const struct wants *wants = &world->needs[i].wants;
        sim_trace(sim,
                  "need %u: executor %d, ops %x, engine %d, any of %x, gpu %d, cpu %d, labels %x, ssd %d, "
                  "allowed %x, forbidden %x, "
                  "max parallel %u",
                  i, (int)wants->executor, wants->ops, wants->engine, wants->any_executors, wants->gpu, (int)wants->cpu,
                  wants->labels, wants->ssd, wants->allowed, wants->forbidden, wants->max_parallel);
    }
    for (uint32_t i = 0; i < world->n_stage_defs; i++) {
        const struct stage_def *def = &world->stage_defs[i];
        sim_trace(sim, "stage %u of %s: %u tasks, %u parents, output %d, partitions %u, need %u%s%s%s%s", i,
                  job_name(def->job), def->spec.n_tasks, def->spec.n_parents, (int)def->spec.output,
                  def->spec.partitions, def->need, def->spec.nondeterministic ? ", nondeterministic" : "",
                  def->spec.child ? ", child" : "", def->spec.planning ? ", planning" : "",
                  def->poison != POISON_NONE ? ", poison" : "");
    }
}

static void begin(struct sim *sim, const struct options *options)
{
    sim->options = *options;
    sim->is_tracing = options->trace || options->trace_hash;
    sim->trace_hash = 0xcbf29ce484222325ULL;
    sim->failure.is_set = false;
    sim->now_ms = 0;
    sim->is_healed = false;
    sim->is_over = false;
    sim->n_child_jobs = 0;
    memset(&sim->stats, 0, sizeof(sim->stats));
    prng_init(&sim->prng, options->seed);
    events_clear(&sim->events);
    world_make(&sim->world, &sim->prng);
    if (sim->is_tracing) {
        trace_world(sim);
    }
    store_reset(&sim->store);
    net_reset(&sim->net);
    leader_reset(sim);
    procs_reset(sim);
    clients_reset(sim);
    checks_reset(sim);
    leader_start(sim);
    for (uint32_t w = 0; w < sim->world.n_workers; w++) {
        events_add(&sim->events, prng_range(&sim->prng, 1, 300), EVENT_PROC_START, w, 0);
        sim->workers.workers[w].is_start_due = true;
    }
    events_add(&sim->events, prng_range(&sim->prng, 100, 1000), EVENT_FAULT, 0, 0);
    events_add(&sim->events, sim->world.mood.phase_ms, EVENT_HEAL, 0, 0);
}

static void count_jobs(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->store.n_jobs; i++) {
        if (sim->store.jobs[i].present) {
            sim->stats.jobs++;
            sim->stats.jobs_ended[sim->store.jobs[i].row.state]++;
        }
    }
    sim->stats.tasks = sim->store.n_tids;
    sim->stats.simulated_ms = (uint64_t)sim->now_ms;
}

bool sim_run(struct sim *sim, const struct options *options)
{
    begin(sim, options);
    struct event event;
    while (!sim->is_over && !sim->failure.is_set && events_take(&sim->events, &event)) {
        sim->now_ms = event.at_ms;
        handle(sim, &event);
    }
    if (!sim->failure.is_set) {
        leader_rehearse(sim);
        if (options->bug == BUG_NONE) {
            core_check(sim->leader.core);
        }
        check_end_of_run(sim);
    }
    count_jobs(sim);
    return !sim->failure.is_set;
}
