/*
 * The step: one command in, effects out. See core.h for the concepts and the contract.
 */
#include "core/core.h"

#include "base/mem.h"
#include "core/core_internal.h"

struct core *core_new(const struct core_config *config, uint64_t hash_seed)
{
    struct core *core = mem_calloc(1, sizeof *core);
    core->config = *config;
    core->hash_key = (struct siphash_key){hash_seed, 0};
    core->stuck.kind = TIMER_STUCK;
    list_init(&core->profiles);
    list_init(&core->all_classes);
    list_init(&core->unused_classes);
    list_init(&core->hot_profiles);
    list_init(&core->hot_workers);
    list_init(&core->served);
    list_init(&core->ended);
    return core;
}

/* Taking something out of a map moves others, so some are met only in the next round. */
static void free_jobs(struct core *core)
{
    while (core->jobs.count > 0) {
        size_t cursor = 0;
        for (struct job *job; (job = map_next(&core->jobs, &cursor)) != NULL;) {
            job_free(core, job);
        }
    }
}

static void free_workers(struct core *core)
{
    while (core->workers.count > 0) {
        size_t cursor = 0;
        for (struct worker *worker; (worker = map_next(&core->workers, &cursor)) != NULL;) {
            worker_free(core, worker);
        }
    }
}

void core_free(struct core *core)
{
    if (core == NULL) {
        return;
    }
    free_jobs(core);
    free_workers(core);
    classes_free(core);
    leases_free(core);
    holder_deinit(&core->child_holder);
    map_deinit(&core->jobs);
    map_deinit(&core->keys);
    map_deinit(&core->workers);
    map_deinit(&core->needs);
    map_deinit(&core->classes);
    heap_deinit(&core->timers);
    heap_deinit(&core->watches);
    mem_free(core);
}

/* Leader time never goes back; attended time does not count what the leader slept through. */
static void take_time(struct core *core, int64_t now_ms)
{
    int64_t passed_ms = now_ms - core->now_ms;
    if (core->now_ms == 0) {
        passed_ms = 0;
        core->now_ms = now_ms;
    }
    if (passed_ms <= 0) {
        return;
    }
    core->now_ms = now_ms;
    core->attended_ms += passed_ms <= CORE_STALL_MS ? passed_ms : 0;
}

/* ---- the tick ---- */

static void backoff_over(struct core *core, struct task *task)
{
    task_clear_backoff(core, task);
    task_enqueue(core, task);
}

static int64_t stuck_interval_ms(const struct core *core)
{
    int64_t interval_ms = core->config.stuck_task_warn_ms / 8;
    return interval_ms < 100 ? 100 : interval_ms > 1000 ? 1000 : interval_ms;
}

static void timer_fired(struct core *core, struct timer *timer)
{
    switch (timer->kind) {
    case TIMER_POLL:
        poll_due(core, CONTAINER_OF(timer, struct worker, poll.timer));
        break;
    case TIMER_BLACKLIST:
        worker_clear_blacklist(core, CONTAINER_OF(timer, struct worker, blacklist));
        break;
    case TIMER_RETRY:
        backoff_over(core, CONTAINER_OF(timer, struct backoff, timer)->task);
        break;
    case TIMER_STUCK:
        core->is_stuck_due = true;
        break;
    case TIMER_WORKER:
        worker_watch_fired(core, CONTAINER_OF(timer, struct worker, watch));
        break;
    }
}

static void fire(struct core *core, struct heap *heap, int64_t now_ms)
{
    for (struct heap_node *node; (node = heap_min(heap)) != NULL && node->key <= now_ms;) {
        heap_remove(heap, node);
        timer_fired(core, CONTAINER_OF(node, struct timer, node));
    }
}

static void set_wake_up(struct core *core)
{
    int64_t wake_at_ms = core->now_ms + CORE_TICK_MS;
    const struct heap_node *node = heap_min(&core->timers);
    if (node != NULL && node->key < wake_at_ms) {
        wake_at_ms = node->key;
    }
    node = heap_min(&core->watches);
    if (node != NULL && core->now_ms + (node->key - core->attended_ms) < wake_at_ms) {
        wake_at_ms = core->now_ms + (node->key - core->attended_ms);
    }
    core->fx->wake_at_ms = wake_at_ms;
}

static void tick(struct core *core)
{
    job_evict(core);
    fire(core, &core->watches, core->attended_ms);
    fire(core, &core->timers, core->now_ms);
    if (!heap_has(&core->stuck.node)) {
        heap_set(&core->timers, &core->stuck.node, core->now_ms + stuck_interval_ms(core));
    }
    if (core->is_stuck_due) {
        core->is_stuck_due = false;
        class_check_stuck(core);
    }
    poll_dispatch(core);
    set_wake_up(core);
}

/* ---- the step ---- */

static void take_tick(struct core *core, const struct command *command)
{
    UNUSED(command);
    tick(core);
}

static void take_row(struct core *core, const struct command *command)
{
    load_row(core, command->u.load);
}

static void take_loaded(struct core *core, const struct command *command)
{
    UNUSED(command);
    load_done(core);
}

static void take_loaded_job(struct core *core, const struct command *command)
{
    load_job_done(core, command->u.loaded_job);
}

static void (*const handlers[])(struct core *core, const struct command *command) = {
    [CMD_SUBMIT] = job_submit,
    [CMD_REGISTER] = worker_register,
    [CMD_HEARTBEAT] = worker_heartbeat,
    [CMD_DEREGISTER] = worker_deregister,
    [CMD_GET_TASK] = poll_open,
    [CMD_REPORT] = report_take,
    [CMD_MAP_OUTPUT] = output_register_map,
    [CMD_RESULTS] = output_register_results,
    [CMD_CANCEL] = job_cancel,
    [CMD_RETRY] = job_retry,
    [CMD_SET_NODE] = worker_set,
    [CMD_CHILD_DONE] = report_child_done,
    [CMD_CHILD_FAILED] = report_child_failed,
    [CMD_TICK] = take_tick,
    [CMD_LOAD] = take_row,
    [CMD_LOADED] = take_loaded,
    [CMD_LOADED_JOB] = take_loaded_job,
};

void core_step(struct core *core, const struct core_input *input, const struct command *command, struct effects *fx)
{
    core->fx = fx;
    fx->last_job_id = NULL; /* another core may have written it */
    core->random_key = (struct siphash_key){input->seed[0], input->seed[1]};
    core->pending_since_ms = input->pending_since_ms;
    take_time(core, input->now_ms);
    ASSERT((size_t)command->kind < ARRAY_LEN(handlers));
    handlers[command->kind](core, command);
    jobs_tell_parents(core);
    ASSERT(core->recoveries == NULL);
    core->fx = NULL;
}

#ifdef CAPSTAN_PLANTED_BUGS
void core_plant_bug(struct core *core, enum bug bug)
{
    core->bug = bug;
}
#endif
