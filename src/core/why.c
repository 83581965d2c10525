/*
 * Why a queued task is not running, in words. The order of the reasons is the order of the gates: first what the job
 * itself must wait for, then who could run it at all, then who has room.
 */
#include "base/arena.h"
#include "core/core_internal.h"

/* How many live workers there are, how many pass each part of a requirement, and who of them has room. */
struct census {
    uint32_t live;
    uint32_t failing[MISMATCH_NODE + 1]; /* by the first thing that does not fit */
    uint32_t worst_op;                   /* an op or capability that somebody lacks */
    uint32_t worst_capability;
    uint32_t matching;
    uint32_t blacklisted;
    uint32_t draining;
    uint32_t full; /* of those that are neither */
};

static bool is_full(const struct core *core, const struct job *job, const struct class *class,
                    const struct worker *worker)
{
    uint32_t limit = class->need->value->max_parallel_per_node;
    return class_blocks_worker(core, class, worker) ||
           worker->n_running >= core->config.max_concurrent_tasks_per_worker ||
           (worker->slots > 0 && worker->n_running >= worker->slots) ||
           (limit > 0 && worker_count_alike(worker, job, class->need) >= limit);
}

static void count_worker(const struct core *core, const struct job *job, const struct class *class,
                         const struct worker *worker, struct census *census)
{
    const struct requirement *need = class->need->value;
    uint32_t index = 0;
    enum mismatch mismatch = requirement_match(need, worker->profile->offer, &index);
    census->live++;
    if (mismatch == MISMATCH_NONE && !requirement_allows_node(need, worker->id)) {
        mismatch = MISMATCH_NODE;
    }
    census->failing[mismatch]++;
    if (mismatch == MISMATCH_OP) {
        census->worst_op = index;
    } else if (mismatch == MISMATCH_CAPABILITY) {
        census->worst_capability = index;
    } else if (mismatch == MISMATCH_NONE) {
        census->matching++;
        census->blacklisted += worker->blacklisted_until_ms != 0;
        census->draining += worker->draining && worker->blacklisted_until_ms == 0;
        census->full += worker_is_able(worker) && is_full(core, job, class, worker);
    }
}

static const char *value_text(const struct capability *value, struct arena *arena)
{
    switch (value->kind) {
    case VALUE_TEXT:
        return value->text;
    case VALUE_BOOL:
        return value->number > 0 ? "true" : "false";
    case VALUE_NUMBER:
        return arena_format(arena, "%.15g", value->number);
    case VALUE_LIST:
        break;
    }
    const char *text = "";
    for (uint32_t i = 0; i < value->n_items; i++) {
        text = arena_format(arena, "%s%s%s", text, i > 0 ? "," : "", value->items[i]);
    }
    return text;
}

/* Nobody fits: the requirement that is furthest down the list of gates is the one that keeps it. */
static const char *nobody_fits(const struct requirement *need, const struct census *census, struct arena *arena)
{
    if (census->failing[MISMATCH_NODE] > 0) {
        const char *which = need->allowed_nodes.count > 0 ? "allowed_nodes" : "forbidden_nodes";
        return arena_format(arena, "placement: %s matches 0 of %u live workers", which, census->live);
    }
    if (census->failing[MISMATCH_CAPABILITY] > 0) {
        const struct capability *wanted = &need->capabilities.items[census->worst_capability];
        return arena_format(arena, "placement: requires_capabilities %s=%s matches 0 of %u live workers", wanted->key,
                            value_text(wanted, arena), census->live);
    }
    if (census->failing[MISMATCH_ANY_EXECUTOR] > 0) {
        const char *names = value_text(&(struct capability){.kind = VALUE_LIST,
                                                            .items = need->any_executors.items,
                                                            .n_items = need->any_executors.count},
                                       arena);
        return arena_format(arena, "placement: requires_executors %s matches 0 of %u live workers", names,
                            census->live);
    }
    if (census->failing[MISMATCH_ENGINE] > 0) {
        return arena_format(arena, "no live worker has engine '%s'", need->engine);
    }
    if (census->failing[MISMATCH_OP] > 0 || (census->live == 0 && need->ops.count > 0)) {
        return arena_format(arena, "no live worker advertises operator '%s'", need->ops.items[census->worst_op]);
    }
    if (need->executor != NULL) {
        return arena_format(arena, "no live worker has executor '%s'", need->executor);
    }
    return "there are no live workers";
}

/* Why tasks of this class wait, as far as workers go. */
const char *why_class(const struct core *core, const struct job *job, const struct class *class, struct arena *arena)
{
    struct census census = {0};
    size_t cursor = 0;
    for (const struct worker *worker; (worker = map_next(&core->workers, &cursor)) != NULL;) {
        if (worker->is_live) {
            count_worker(core, job, class, worker, &census);
        }
    }
    if (class->child) {
        return "waiting to start its child job";
    }
    if (census.matching == 0) {
        return nobody_fits(class->need->value, &census, arena);
    }
    if (job_is_full(core, job)) {
        return arena_format(arena, "query limit %u reached", (unsigned)core->config.max_concurrent_tasks_per_query);
    }
    uint32_t able = census.matching - census.blacklisted - census.draining;
    if (able == 0) {
        return arena_format(arena, "all %u matching workers are %s", census.matching,
                            census.blacklisted == census.matching ? "blacklisted"
                            : census.draining == census.matching  ? "draining"
                                                                  : "blacklisted or draining");
    }
    if (census.full < able) {
        return "a matching worker has room but has not asked for work yet";
    }
    return arena_format(arena, "all %u matching workers are full", able);
}

static const char *why_stage_waits(const struct stage *stage, struct arena *arena)
{
    const struct job *job = stage->job;
    for (uint32_t i = stage->first_parent; i != EDGE_NONE; i = job->edges[i].next_of_child) {
        const struct stage *parent = job->stages[job->edges[i].parent];
        uint32_t left = parent->counts[TASK_QUEUED] + parent->counts[TASK_RUNNING];
        if (!job->edges[i].is_satisfied) {
            return arena_format(arena, "waiting for stage %u (%u of %u tasks left)", parent->id, left, parent->n_tasks);
        }
    }
    return "waiting";
}

/* Milliseconds since 1970 as 2026-11-15T09:30:00.250Z. */
static const char *utc_text(int64_t at_ms, struct arena *arena)
{
    int64_t second = at_ms / 1000;
    int64_t day = second / 86400 + 719468; /* since 0000-03-01 */
    int64_t era = day / 146097;
    int64_t day_of_era = day % 146097;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month = (5 * day_of_year + 2) / 153; /* March is 0 */
    int64_t day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    int64_t year = year_of_era + era * 400 + (month >= 10);
    return arena_format(arena, "%04lld-%02lld-%02lldT%02lld:%02lld:%02lld.%03lldZ", (long long)year,
                        (long long)(month < 10 ? month + 3 : month - 9), (long long)day_of_month,
                        (long long)(second % 86400 / 3600), (long long)(second % 3600 / 60), (long long)(second % 60),
                        (long long)(at_ms % 1000));
}

/* Adds one more task to the reason of the same kind, or starts a new one. */
static uint32_t add(struct pending_reason *out, uint32_t n, uint32_t max, const struct task *task, const char *reason)
{
    if (n < max) {
        out[n] = (struct pending_reason){task->stage->id, task_index(task), 1, reason};
        return n + 1;
    }
    return n;
}

static uint32_t why_stage(const struct core *core, const struct stage *stage, struct arena *arena,
                          struct pending_reason *out, uint32_t n, uint32_t max)
{
    const struct jobqueue *seen = NULL;
    uint32_t at = n;
    uint32_t left = stage->counts[TASK_QUEUED];
    /* If all queued tasks are untouched ones, there is nothing to look for among the others. */
    uint32_t first = left == stage->n_tasks - stage->fresh ? stage->fresh : 0;
    for (uint32_t t = first; t < stage->n_tasks && left > 0 && n < max; t++) {
        const struct task *task = &stage->tasks[t];
        if (task->state != TASK_QUEUED) {
            continue;
        }
        left--;
        if (stage->waiting > 0) {
            n = add(out, n, max, task, why_stage_waits(stage, arena));
            out[n - 1].n_tasks = stage->counts[TASK_QUEUED];
            return n;
        }
        if (task->u.backoff != NULL) {
            n = add(out, n, max, task, arena_format(arena, "backoff until %s", utc_text(task_timer_at(task), arena)));
            continue;
        }
        if (seen == task_queue(task)) {
            out[at].n_tasks++;
        } else {
            seen = task_queue(task);
            at = n;
            n = add(out, n, max, task, why_class(core, stage->job, seen->class, arena));
        }
        if (t >= stage->fresh) {
            /* The untouched tasks all wait for the same thing; no need to look at each. */
            out[at].n_tasks += left;
            return n;
        }
    }
    return n;
}

uint32_t core_why_pending(const struct core *core, const char *job_id, struct arena *arena, struct pending_reason *out,
                          uint32_t max)
{
    const struct job *job = job_find(core, job_id);
    uint32_t n = 0;
    for (uint32_t s = 0; job != NULL && s < job->n_stages && n < max; s++) {
        if (job->stages[s]->counts[TASK_QUEUED] > 0) {
            n = why_stage(core, job->stages[s], arena, out, n, max);
        }
    }
    return n;
}
