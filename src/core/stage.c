/*
 * Stages: how they hang together, when they may run, what the end of one means for the others.
 *
 * An edge is satisfied when its parent succeeded as a whole, or, if it is optional, when its parent has no open task.
 * A stage waits for its unsatisfied edges. Chains can be 100,000 long: nothing here recurses.
 */
#include <string.h>

#include "base/mem.h"
#include "core/core_internal.h"

/* ---- validation ---- */

static bool same_requirement(const void *value, const void *key)
{
    return requirement_equal(value, key);
}

/* Counts requirements that differ, without building anything. */
static uint32_t count_needs(const struct stage_spec *specs, uint32_t n)
{
    struct map seen = {0};
    for (uint32_t i = 0; i < n && seen.count <= LIMIT_REQUIREMENTS_PER_JOB; i++) {
        if (i > 0 && specs[i].need == specs[i - 1].need) {
            continue;
        }
        uint64_t hash = requirement_hash(specs[i].need);
        if (map_get(&seen, hash, same_requirement, specs[i].need) == NULL) {
            map_put(&seen, hash, (void *)(uintptr_t)specs[i].need);
        }
    }
    uint32_t count = (uint32_t)seen.count;
    map_deinit(&seen);
    return count;
}

static enum err check_parent(const struct job *job, const struct stage_spec *specs, uint32_t n, uint32_t i,
                             const struct stage_parent *parent, struct error *e)
{
    bool is_new = job == NULL || parent->added;
    uint32_t count = is_new ? n : job->n_stages;
    if (parent->stage >= count) {
        return error_set(e, ERR_INVALID, "stage %u: unknown parent stage %u", i, parent->stage);
    }
    if (is_new && parent->stage == i) {
        return error_set(e, ERR_INVALID, "stage %u depends on itself", i);
    }
    uint8_t output = is_new ? (uint8_t)specs[parent->stage].output : job->stages[parent->stage]->output;
    if (parent->read != READ_NONE && (specs[i].planning || specs[i].child)) {
        return error_set(e, ERR_INVALID, "stage %u plans or runs as a job: it can wait for stages, but not read them",
                         i);
    }
    if (parent->read != READ_NONE && output != OUTPUT_SHUFFLE) {
        return error_set(e, ERR_INVALID, "stage %u reads stage %u, which leaves no partitions", i, parent->stage);
    }
    return ERR_OK;
}

static enum err check_spec(const struct job *job, const struct stage_spec *specs, uint32_t n, uint32_t i,
                           struct error *e)
{
    const struct stage_spec *spec = &specs[i];
    if (spec->n_tasks == 0) {
        return error_set(e, ERR_INVALID, "stage %u has no tasks", i);
    }
    if (spec->output == OUTPUT_SHUFFLE && (spec->partitions == 0 || spec->partitions > LIMIT_PARTITIONS)) {
        return error_set(e, ERR_INVALID, "stage %u must have 1 to %u partitions", i, (unsigned)LIMIT_PARTITIONS);
    }
    if (spec->child && (spec->n_tasks != 1 || spec->output != OUTPUT_NONE)) {
        return error_set(e, ERR_INVALID, "stage %u runs as a job: it has one task and no output of its own", i);
    }
    for (uint32_t k = 0; k < spec->n_parents; k++) {
        enum err err = check_parent(job, specs, n, i, &spec->parents[k], e);
        if (err != ERR_OK) {
            return err;
        }
    }
    return ERR_OK;
}

static bool is_inner(const struct job *job, const struct stage_parent *parent)
{
    return job == NULL || parent->added;
}

struct cycle_check {
    uint32_t *open;  /* per stage: parents that are not done */
    uint32_t *first; /* per stage: where its children begin in `children`; one more at the end */
    uint32_t *children;
    uint32_t *work; /* stages without open parents, in the order in which they were found */
};

static void list_children(const struct job *job, const struct stage_spec *specs, uint32_t n, struct cycle_check *c)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < specs[i].n_parents; k++) {
            if (is_inner(job, &specs[i].parents[k])) {
                c->first[specs[i].parents[k].stage]++;
                c->open[i]++;
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        c->first[i + 1] += c->first[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < specs[i].n_parents; k++) {
            if (is_inner(job, &specs[i].parents[k])) {
                c->children[--c->first[specs[i].parents[k].stage]] = i;
            }
        }
    }
}

/* Takes away stages without open parents until none is left; what remains is a cycle. */
static enum err check_cycles(const struct job *job, const struct stage_spec *specs, uint32_t n, uint64_t n_edges,
                             struct error *e)
{
    struct cycle_check c = {
        .open = mem_calloc(n, sizeof *c.open),
        .first = mem_calloc((size_t)n + 1, sizeof *c.first),
        .children = mem_alloc((size_t)n_edges * sizeof *c.children),
        .work = mem_alloc((size_t)n * sizeof *c.work),
    };
    uint32_t n_work = 0;
    list_children(job, specs, n, &c);
    for (uint32_t i = 0; i < n; i++) {
        if (c.open[i] == 0) {
            c.work[n_work++] = i;
        }
    }
    for (uint32_t done = 0; done < n_work; done++) {
        uint32_t parent = c.work[done];
        for (uint32_t k = c.first[parent]; k < c.first[parent + 1]; k++) {
            if (--c.open[c.children[k]] == 0) {
                c.work[n_work++] = c.children[k];
            }
        }
    }
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < n && err == ERR_OK && n_work < n; i++) {
        if (c.open[i] > 0) {
            err = error_set(e, ERR_INVALID, "stage %u is part of a cycle, or depends on one", i);
        }
    }
    mem_free(c.open);
    mem_free(c.first);
    mem_free(c.children);
    mem_free(c.work);
    return err;
}

/* No stage may depend on another twice. A fan-in can be wide, so each parent remembers who named it last. */
static enum err check_twice(const struct job *job, const struct stage_spec *specs, uint32_t n, struct error *e)
{
    uint32_t n_old = job == NULL ? 0 : job->n_stages;
    uint32_t *named_by = mem_calloc((size_t)n_old + n, sizeof *named_by);
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < n && err == ERR_OK; i++) {
        for (uint32_t k = 0; k < specs[i].n_parents && err == ERR_OK; k++) {
            const struct stage_parent *parent = &specs[i].parents[k];
            uint32_t *mark = &named_by[is_inner(job, parent) ? n_old + parent->stage : parent->stage];
            if (*mark == i + 1) {
                err = error_set(e, ERR_INVALID, "stage %u depends on stage %u twice", i, parent->stage);
            }
            *mark = i + 1;
        }
    }
    mem_free(named_by);
    return err;
}

/* Looks at stages before anything is built: for a new job (`job` NULL), or added to one. */
enum err stages_check(const struct job *job, const struct stage_spec *specs, uint32_t n, struct error *e)
{
    uint64_t n_tasks = job == NULL ? 0 : job->n_tasks;
    uint64_t n_edges = 0;
    uint64_t n_inner = 0;
    if (n == 0) {
        return error_set(e, ERR_INVALID, "there are no stages");
    }
    for (uint32_t i = 0; i < n; i++) {
        enum err err = check_spec(job, specs, n, i, e);
        if (err != ERR_OK) {
            return err;
        }
        n_tasks += specs[i].n_tasks;
        n_edges += specs[i].n_parents;
        for (uint32_t k = 0; k < specs[i].n_parents; k++) {
            n_inner += is_inner(job, &specs[i].parents[k]);
        }
    }
    if (n_tasks > LIMIT_TASKS_PER_JOB) {
        return error_set(e, ERR_INVALID, "a job has at most %u tasks", (unsigned)LIMIT_TASKS_PER_JOB);
    }
    if ((job == NULL ? 0 : job->n_stages) + (uint64_t)n > LIMIT_STAGES_PER_JOB) {
        return error_set(e, ERR_INVALID, "a job has at most %u stages", (unsigned)LIMIT_STAGES_PER_JOB);
    }
    if ((job == NULL ? 0 : job->n_edges) + n_edges > LIMIT_EDGES_PER_JOB) {
        return error_set(e, ERR_INVALID, "a job has at most %u dependencies", (unsigned)LIMIT_EDGES_PER_JOB);
    }
    uint32_t n_needs = n == 1 ? 1 : count_needs(specs, n);
    if ((job == NULL ? 0 : job->n_needs) + n_needs > LIMIT_REQUIREMENTS_PER_JOB) {
        return error_set(e, ERR_INVALID, "a job has at most %u different combinations of executor and placement",
                         (unsigned)LIMIT_REQUIREMENTS_PER_JOB);
    }
    enum err err = n_edges < 2 ? ERR_OK : check_twice(job, specs, n, e);
    return err != ERR_OK || n_inner == 0 ? err : check_cycles(job, specs, n, n_inner, e);
}

/* ---- building ---- */

struct stage *stage_find(const struct job *job, uint32_t stage)
{
    return stage < job->n_stages ? job->stages[stage] : NULL;
}

/* Adds the edge without chaining it: both ends may not exist yet. */
void stage_add_edge(struct job *job, uint32_t parent, uint32_t child, const struct stage_parent *spec)
{
    job->edges = mem_grow(job->edges, &job->cap_edges, job->n_edges + 1, sizeof *job->edges);
    job->edges[job->n_edges++] =
        (struct edge){.parent = parent, .child = child, .read = (uint8_t)spec->read, .optional = spec->optional};
}

/* Chains the edges from `first` on. Those to one child, which come all at once, stay in their order: it is that of sources. */
void stage_link_edges(struct job *job, uint32_t first)
{
    for (uint32_t i = first; i < job->n_edges; i++) {
        struct edge *edge = &job->edges[i];
        struct stage *parent = job->stages[edge->parent];
        edge->next_of_parent = parent->first_child;
        parent->first_child = i;
        parent->has_readers |= edge->read != READ_NONE;
    }
    for (uint32_t i = job->n_edges; i > first; i--) {
        struct edge *edge = &job->edges[i - 1];
        struct stage *child = job->stages[edge->child];
        edge->next_of_child = child->first_parent;
        child->first_parent = i - 1;
    }
}

/* Makes room for `n` stages. The array may be part of a block so far. */
void stage_reserve(struct job *job, uint32_t n)
{
    if (n > job->cap_stages) {
        struct stage **before = job->stages;
        job->stages = mem_grow(job->has_stage_array ? before : NULL, &job->cap_stages, n, sizeof *job->stages);
        if (!job->has_stage_array && job->n_stages > 0) {
            memcpy(job->stages, before, job->n_stages * sizeof *before);
        }
        job->has_stage_array = true;
    }
    while (job->n_stages < n) {
        job->stages[job->n_stages++] = NULL;
    }
}

/* Makes stage `id` of the job in the given memory. Edges come later. */
void stage_build_one(struct core *core, struct job *job, uint32_t id, const struct stage_spec *spec,
                     struct stage *stage)
{
    struct task *tasks = stage->tasks;
    stage->job = job;
    stage->id = id;
    stage->name = mem_strdup(spec->name);
    stage->n_tasks = spec->n_tasks;
    stage->counts[TASK_QUEUED] = spec->n_tasks;
    stage->first_child = EDGE_NONE;
    stage->first_parent = EDGE_NONE;
    stage->output = (uint8_t)spec->output;
    stage->partitions = spec->output == OUTPUT_SHUFFLE ? spec->partitions : 0;
    stage->max_attempts = spec->max_attempts;
    stage->backoff_ms = spec->backoff_ms;
    stage->timeout_ms = spec->timeout_ms;
    stage->nondeterministic = spec->nondeterministic;
    stage->exclusive = spec->exclusive;
    stage->planning = spec->planning;
    stage->child = spec->child;
    stage->queue = jobqueue_get(core, job, class_get(core, spec->need, job->priority, spec->child));
    for (uint32_t t = 0; t < spec->n_tasks; t++) {
        tasks[t].stage = stage;
        tasks[t].queued_at_ms = core->now_ms;
        if (spec->tasks != NULL) {
            tasks[t].inputs = spec->tasks[t].inputs;
            tasks[t].inputs_bytes = spec->tasks[t].inputs_bytes;
        }
    }
    stage_reserve(job, id + 1);
    job->stages[id] = stage;
    job->n_tasks += spec->n_tasks;
    job->n_open += spec->n_tasks;
    core->stats.tasks[TASK_QUEUED] += spec->n_tasks;
}

/* Stages and tasks of one command lie in one block; so does the first array of pointers to them. */
void stages_build(struct core *core, struct job *job, const struct stage_spec *specs, uint32_t n)
{
    uint64_t n_tasks = 0;
    uint32_t base = job->n_stages;
    uint32_t first_edge = job->n_edges;
    for (uint32_t i = 0; i < n; i++) {
        n_tasks += specs[i].n_tasks;
    }
    size_t pointer_bytes = base == 0 ? n * sizeof(struct stage *) : 0;
    size_t bytes = sizeof(struct block) + pointer_bytes + n * sizeof(struct stage) + n_tasks * sizeof(struct task);
    struct block *block = mem_calloc(1, bytes);
    struct stage *stages = (struct stage *)(void *)((char *)(block + 1) + pointer_bytes);
    struct task *tasks = (struct task *)(void *)(stages + n);
    block->next = job->blocks;
    job->blocks = block;
    if (base == 0) {
        job->stages = (struct stage **)(void *)(block + 1);
        job->cap_stages = n;
    }
    for (uint32_t i = 0; i < n; i++) {
        stages[i].tasks = tasks;
        stage_build_one(core, job, base + i, &specs[i], &stages[i]);
        tasks += specs[i].n_tasks;
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < specs[i].n_parents; k++) {
            const struct stage_parent *parent = &specs[i].parents[k];
            bool is_new = base == 0 || parent->added;
            stage_add_edge(job, is_new ? base + parent->stage : parent->stage, base + i, parent);
        }
    }
    stage_link_edges(job, first_edge);
}

/* ---- gates ---- */

static uint32_t count_open(const struct stage *stage)
{
    return stage->counts[TASK_QUEUED] + stage->counts[TASK_RUNNING];
}

static bool stage_is_bad(const struct stage *stage)
{
    return stage->counts[TASK_FAILED] + stage->counts[TASK_CANCELED] + stage->counts[TASK_SKIPPED] > 0;
}

static bool edge_holds(const struct edge *edge, const struct stage *parent)
{
    return edge->optional ? count_open(parent) == 0 : parent->counts[TASK_SUCCEEDED] == parent->n_tasks;
}

static void stage_ready(struct core *core, struct stage *stage)
{
    if (stage->counts[TASK_QUEUED] == 0) {
        return;
    }
    core__task_event(core, EVENT_PENDING, &stage->tasks[0], NULL, NULL);
    stage_enqueue(core, stage);
    recovery_need(core, stage);
}

static void skip_stage(struct core *core, struct stage *stage)
{
    for (uint32_t t = 0; t < stage->n_tasks; t++) {
        if (stage->tasks[t].state == TASK_QUEUED) {
            task_skip(core, &stage->tasks[t]);
        }
    }
}

/* Passes on what became of `stage`; returns the stages that were skipped by it, chained before `work`. */
static struct stage *settle_children(struct core *core, struct stage *stage, struct stage *work)
{
    struct job *job = stage->job;
    bool bad = stage_is_bad(stage);
    stage->settled = bad ? SETTLED_BAD : SETTLED_OK;
    for (uint32_t i = stage->first_child; i != EDGE_NONE; i = job->edges[i].next_of_parent) {
        struct edge *edge = &job->edges[i];
        struct stage *child = job->stages[edge->child];
        if (!edge->is_satisfied && edge_holds(edge, stage)) {
            edge->is_satisfied = true;
            child->waiting--;
            if (child->waiting == 0) {
                stage_ready(core, child);
            }
        } else if (bad && !edge->optional && child->counts[TASK_QUEUED] > 0) {
            skip_stage(core, child);
            child->next_work = work;
            work = child;
        }
    }
    return work;
}

/* Passes it on to all that depend on the stage, near and far. */
static void settle_all(struct core *core, struct stage *stage)
{
    struct stage *work = settle_children(core, stage, NULL);
    while (work != NULL) {
        struct stage *next = work;
        work = settle_children(core, next, next->next_work);
    }
}

/* A task of the stage came to an end: let those that depend on it go on, or skip them. */
void stage_settle(struct core *core, struct stage *stage)
{
    bool first_bad = stage_is_bad(stage) && stage->settled != SETTLED_BAD;
    if (count_open(stage) > 0 && !first_bad) {
        return;
    }
    settle_all(core, stage);
    recovery_run(core);
}

/* A succeeded task of the stage must run again: those that depend on it wait again. */
void stage_unsettle(struct stage *stage)
{
    struct job *job = stage->job;
    stage->settled = SETTLED_NOT;
    for (uint32_t i = stage->first_child; i != EDGE_NONE; i = job->edges[i].next_of_parent) {
        struct edge *edge = &job->edges[i];
        if (edge->is_satisfied && !edge_holds(edge, stage)) {
            edge->is_satisfied = false;
            job->stages[edge->child]->waiting++;
        }
    }
}

/* ---- deriving what is not stored ---- */

static void derive_counts(struct stage *stage)
{
    memset(stage->counts, 0, sizeof stage->counts);
    stage->fresh = 0;
    stage->n_missing = 0;
    stage->rows = 0;
    stage->bytes = 0;
    stage->waiting = 0;
    stage->settled = SETTLED_NOT;
    stage->is_range_queued = false;
    stage->has_dropped = true;
    for (uint32_t t = 0; t < stage->n_tasks; t++) {
        struct task *task = &stage->tasks[t];
        stage->counts[task->state]++;
        task->flags &= (uint8_t)~TASK_IN_HEAP;
        if (task->attempt > 0 || task->state != TASK_QUEUED) {
            stage->fresh = t + 1;
        }
        if (task->output != NULL) {
            stage->rows += task->output->rows;
            stage->bytes += task->output->bytes;
        }
        stage->n_missing += task->state == TASK_SUCCEEDED && stage->output == OUTPUT_SHUFFLE && task->output == NULL;
    }
    if (count_open(stage) == 0 || stage_is_bad(stage)) {
        stage->settled = stage_is_bad(stage) ? SETTLED_BAD : SETTLED_OK;
    }
}

static void derive_edges(struct job *job, const struct stage *stage)
{
    for (uint32_t i = stage->first_parent; i != EDGE_NONE; i = job->edges[i].next_of_child) {
        struct edge *edge = &job->edges[i];
        edge->is_satisfied = edge_holds(edge, job->stages[edge->parent]);
        job->stages[edge->child]->waiting += !edge->is_satisfied;
    }
}

/* Stages that were added below one that has failed already. */
static void skip_hopeless(struct core *core, struct job *job, uint32_t first)
{
    for (uint32_t s = first; s < job->n_stages; s++) {
        struct stage *stage = job->stages[s];
        for (uint32_t i = stage->first_parent; i != EDGE_NONE; i = job->edges[i].next_of_child) {
            const struct edge *edge = &job->edges[i];
            if (!edge->optional && stage->counts[TASK_QUEUED] > 0 && stage_is_bad(job->stages[edge->parent])) {
                skip_stage(core, stage);
                settle_all(core, stage);
            }
        }
    }
}

/* Stages from `first` on were just added. */
void stages_derive(struct core *core, struct job *job, uint32_t first)
{
    for (uint32_t s = first; s < job->n_stages; s++) {
        derive_edges(job, job->stages[s]);
    }
    skip_hopeless(core, job, first);
    for (uint32_t s = first; s < job->n_stages; s++) {
        if (job->stages[s]->waiting == 0 || BUG(core, skip_parent_gate)) {
            stage_enqueue(core, job->stages[s]);
            recovery_need(core, job->stages[s]);
        }
    }
    recovery_run(core);
}

/* Works out everything that follows from the tasks' states, and queues what can run. */
void job_derive(struct core *core, struct job *job)
{
    job->n_open = 0;
    job->n_failed = 0;
    for (struct jobqueue *queue = job->queues; queue != NULL; queue = queue->next) {
        jobqueue_leave(queue);
        jobqueue_clear(queue);
    }
    for (uint32_t s = 0; s < job->n_stages; s++) {
        derive_counts(job->stages[s]);
        job->n_open += count_open(job->stages[s]);
        job->n_failed += job->stages[s]->counts[TASK_FAILED];
    }
    stages_derive(core, job, 0);
}
