/*
 * What succeeded attempts leave behind: map outputs that later stages read, results for the client. And what happens
 * when map outputs are lost.
 *
 * A map output counts once the attempt that registered it has succeeded. It stays on its worker; if that incarnation is
 * gone, or a reader could not fetch it, it is missing. A missing output that somebody still has to read is a recovery:
 * the map task runs again, its readers wait. Outputs of one incarnation that are lost together are one recovery of
 * their stage, however many reports tell of it. Redoing a task of a stage that is not deterministic restarts all of its
 * readers, and theirs, because they must not mix two versions of its rows.
 *
 * Recoveries reach up (the inputs of what runs again) and down (readers to restart), so they go through a work list.
 */
#include <string.h>

#include "base/mem.h"
#include "core/core_internal.h"

#define RECOVER_REDO 1u    /* run tasks whose output is missing again */
#define RECOVER_INPUTS 2u  /* see that what it reads is there */
#define RECOVER_READERS 4u /* restart everyone who read it */

#define BEST_WORKER_OUTPUTS 256
#define BEST_WORKER_CANDIDATES 16

/* ---- outputs ---- */

struct output *output_new(struct task *task, uint32_t n_partitions)
{
    struct output *output = mem_calloc(1, sizeof *output + n_partitions * sizeof output->partitions[0]);
    output->task = task;
    output->n_partitions = n_partitions;
    return output;
}

/* Hands the output over to its task, in place of an earlier one of the same attempt. */
void output_attach(struct core *core, struct output *output)
{
    struct task *task = output->task;
    struct stage *stage = task->stage;
    output_drop(core, task, false);
    task->output = output;
    stage->rows += output->rows;
    stage->bytes += output->bytes;
    if (stage->output == OUTPUT_SHUFFLE) {
        stage->job->n_outputs++;
        list_push_back(&output->worker->outputs, &output->in_worker);
    } else if (output->is_inline) {
        stage->job->inline_bytes += output->bytes;
    }
}

/* Keeps what a task without an output of its own says about its rows. */
void output_tally(struct core *core, struct task *task, uint64_t rows, uint64_t bytes)
{
    if (task->stage->output == OUTPUT_NONE && (rows > 0 || bytes > 0)) {
        struct output *output = output_new(task, 0);
        output->attempt = task->attempt;
        output->rows = rows;
        output->bytes = bytes;
        output_attach(core, output);
    }
}

void output_drop(struct core *core, struct task *task, bool emit)
{
    struct output *output = task->output;
    struct stage *stage = task->stage;
    if (output == NULL) {
        return;
    }
    stage->rows -= output->rows;
    stage->bytes -= output->bytes;
    if (stage->output == OUTPUT_SHUFFLE) {
        stage->job->n_outputs--;
    } else if (output->is_inline && stage->job->inline_bytes >= output->bytes) {
        stage->job->inline_bytes -= output->bytes;
    }
    if (emit) {
        core__emit_output_gone(core, output);
        if (output->is_inline) {
            core__emit_job(core, stage->job, false);
        }
    }
    list_remove(&output->in_worker);
    task->output = NULL;
    mem_free(output->worker_id);
    mem_free(output);
}

bool output_is_current(const struct task *task)
{
    return task->state == TASK_SUCCEEDED && task->output != NULL && task->output->attempt == task->attempt;
}

/*
 * The task for which an output may be registered now: the one whose lease `ref` proves. NULL with REFUSE_NONE if the
 * attempt has registered and won already, so that there is nothing to do; NULL with a reason if it may not.
 */
static struct task *may_register(struct core *core, const struct attempt_ref *ref, const char *worker_id,
                                 enum output_kind kind, enum refusal *out_refusal)
{
    struct task *task = attempt_find(core, ref, out_refusal);
    if (task == NULL) {
        return NULL;
    }
    if (task->stage->output == kind && output_is_current(task) && task->attempt == ref->attempt &&
        lease_token_equal(task->token, ref->token)) {
        return NULL;
    }
    *out_refusal = attempt_current(core, ref, task);
    if (*out_refusal == REFUSE_NONE && strcmp(task->u.lease->worker->id, worker_id) != 0) {
        *out_refusal = REFUSE_WRONG_WORKER;
    }
    if (*out_refusal == REFUSE_NONE && task->stage->output != kind) {
        *out_refusal = REFUSE_BAD_OUTPUT;
    }
    return *out_refusal == REFUSE_NONE ? task : NULL;
}

static void reply_accept(struct core *core, uint64_t to, enum refusal refusal)
{
    if (refusal != REFUSE_NONE) {
        core__refused(core, refusal);
    }
    core__reply(core, to, REPLY_ACCEPT)->u.accept = refusal;
}

/* Keeps the partitions that the running attempt has written. */
enum refusal output_take_map(struct core *core, struct task *task, const struct partition *partitions, uint32_t n)
{
    if (task->stage->output != OUTPUT_SHUFFLE || n != task->stage->partitions) {
        return REFUSE_BAD_OUTPUT;
    }
    struct output *output = output_new(task, n);
    memcpy(output->partitions, partitions, n * sizeof *partitions);
    for (uint32_t i = 0; i < n; i++) {
        output->rows += partitions[i].rows;
        output->bytes += partitions[i].bytes;
    }
    output->worker = task->u.lease->worker;
    output->incarnation_mark = output->worker->incarnation_mark;
    output->attempt = task->attempt;
    output->generation = task->stage->n_recovered;
    output_attach(core, output);
    core__emit_map_output(core, output);
    return REFUSE_NONE;
}

void output_register_map(struct core *core, const struct command *command)
{
    const struct cmd_map_output *cmd = &command->u.map_output;
    enum refusal refusal;
    struct task *task = may_register(core, &cmd->ref, cmd->worker_id, OUTPUT_SHUFFLE, &refusal);
    if (task != NULL) {
        refusal = output_take_map(core, task, cmd->partitions, cmd->n_partitions);
    }
    reply_accept(core, command->reply_to, refusal);
}

/* Whether so many bytes may lie in the store, besides what the job's other tasks have there. */
static bool fits_inline(const struct task *task, uint64_t bytes)
{
    const struct output *before = task->output;
    uint64_t others = task->stage->job->inline_bytes - (before != NULL && before->is_inline ? before->bytes : 0);
    return bytes <= LIMIT_INLINE_RESULT_BYTES && others + bytes <= LIMIT_INLINE_RESULT_BYTES;
}

/* Keeps where the rows of the running attempt are. */
enum refusal output_take_rows(struct core *core, struct task *task, const struct task_rows *rows)
{
    if (task->stage->output != OUTPUT_RESULT) {
        return REFUSE_BAD_OUTPUT;
    }
    if (rows->is_inline && !fits_inline(task, rows->bytes)) {
        return REFUSE_INLINE_LIMIT;
    }
    bool touches_inline = rows->is_inline || (task->output != NULL && task->output->is_inline);
    struct output *output = output_new(task, 0);
    output->worker_id = mem_strdup(task->u.lease->worker->id);
    output->attempt = task->attempt;
    output->rows = rows->rows;
    output->bytes = rows->bytes;
    output->is_inline = rows->is_inline;
    output_attach(core, output);
    core__emit_result(core, output);
    if (touches_inline) {
        core__emit_job(core, task->stage->job, false);
    }
    return REFUSE_NONE;
}

void output_register_results(struct core *core, const struct command *command)
{
    const struct cmd_results *cmd = &command->u.results;
    enum refusal refusal;
    struct task *task = may_register(core, &cmd->ref, cmd->worker_id, OUTPUT_RESULT, &refusal);
    if (task != NULL) {
        refusal = output_take_rows(core, task, &cmd->rows);
    }
    reply_accept(core, command->reply_to, refusal);
}

/* ---- who reads what ---- */

/* True if a stage that reads this one has not finished. */
bool stage_outputs_needed(const struct stage *stage)
{
    const struct job *job = stage->job;
    for (uint32_t i = stage->first_child; stage->has_readers && i != EDGE_NONE; i = job->edges[i].next_of_parent) {
        const struct stage *child = job->stages[job->edges[i].child];
        if (job->edges[i].read != READ_NONE && child->counts[TASK_SUCCEEDED] < child->n_tasks) {
            return true;
        }
    }
    return false;
}

/* The partitions of a parent that a task reads. */
static void partition_range(const struct edge *edge, const struct stage *parent, const struct task *task,
                            uint32_t *out_first, uint32_t *out_n)
{
    uint64_t n_tasks = task->stage->n_tasks;
    uint64_t i = task_index(task);
    *out_first = 0;
    *out_n = parent->partitions;
    if (edge->read == READ_PARTITION) {
        *out_first = (uint32_t)(i * parent->partitions / n_tasks);
        *out_n = (uint32_t)((i + 1) * parent->partitions / n_tasks) - *out_first;
    }
}

static void describe_source(struct core *core, struct source *source, const struct task *map, uint32_t first,
                            uint32_t n)
{
    const struct output *output = map->output;
    source->ref = core__ref(core, map);
    source->attempt = BUG(core, serve_unregistered_map) ? 1 : output->attempt;
    source->worker_id = core__text(core, output->worker->id);
    source->address = core__text(core, output->worker->address);
    source->first_partition = first;
    source->n_partitions = n;
    source->partitions = arena_copy(&core->fx->arena, &output->partitions[first], n * sizeof *output->partitions);
}

/* Whether the task is told about the outputs of a parent: to read them, or, if it plans, for their sizes. */
static bool is_source(const struct task *task, const struct edge *edge)
{
    const struct stage *parent = task->stage->job->stages[edge->parent];
    return edge->read != READ_NONE || (task->stage->planning && parent->output == OUTPUT_SHUFFLE);
}

/* Exactly the map outputs, by attempt, that a reader is to fetch. */
const struct source *output_sources(struct core *core, const struct task *task, uint32_t *out_n)
{
    const struct job *job = task->stage->job;
    size_t total = 0;
    for (uint32_t i = task->stage->first_parent; i != EDGE_NONE; i = job->edges[i].next_of_child) {
        total += is_source(task, &job->edges[i]) ? job->stages[job->edges[i].parent]->n_tasks : 0;
    }
    *out_n = 0;
    if (total == 0) {
        return NULL;
    }
    struct source *sources = arena_zalloc(&core->fx->arena, total * sizeof *sources);
    for (uint32_t i = task->stage->first_parent; i != EDGE_NONE; i = job->edges[i].next_of_child) {
        const struct edge *edge = &job->edges[i];
        const struct stage *parent = job->stages[edge->parent];
        uint32_t first, n;
        if (!is_source(task, edge)) {
            continue;
        }
        partition_range(edge, parent, task, &first, &n);
        for (uint32_t t = 0; t < parent->n_tasks; t++) {
            if (parent->tasks[t].output != NULL) {
                describe_source(core, &sources[(*out_n)++], &parent->tasks[t], first, n);
            }
        }
    }
    return sources;
}

struct share {
    struct worker *worker;
    uint64_t bytes;
};

static void add_share(struct share *shares, uint32_t *n, struct worker *worker, uint64_t bytes)
{
    for (uint32_t i = 0; i < *n; i++) {
        if (shares[i].worker == worker) {
            shares[i].bytes += bytes;
            return;
        }
    }
    if (*n < BEST_WORKER_CANDIDATES) {
        shares[(*n)++] = (struct share){worker, bytes};
    }
}

/* The worker that holds most of what the task reads, as far as a short look can tell; NULL if it reads nothing. */
struct worker *output_best_worker(const struct task *task)
{
    const struct job *job = task->stage->job;
    struct share shares[BEST_WORKER_CANDIDATES];
    uint32_t n_shares = 0;
    uint32_t looked = 0;
    for (uint32_t i = task->stage->first_parent; i != EDGE_NONE; i = job->edges[i].next_of_child) {
        const struct edge *edge = &job->edges[i];
        const struct stage *parent = job->stages[edge->parent];
        uint32_t first, n;
        if (edge->read == READ_NONE) {
            continue;
        }
        partition_range(edge, parent, task, &first, &n);
        for (uint32_t t = 0; t < parent->n_tasks && looked < BEST_WORKER_OUTPUTS; t++, looked++) {
            const struct output *output = parent->tasks[t].output;
            uint64_t bytes = 0;
            for (uint32_t p = first; output != NULL && p < first + n; p++) {
                bytes += output->partitions[p].bytes;
            }
            if (bytes > 0) {
                add_share(shares, &n_shares, output->worker, bytes);
            }
        }
    }
    struct share best = {NULL, 0};
    for (uint32_t i = 0; i < n_shares; i++) {
        best = shares[i].bytes > best.bytes ? shares[i] : best;
    }
    return best.worker;
}

/* ---- recovery ---- */

static void recovery_due(struct core *core, struct stage *stage, unsigned what)
{
    if (stage->recovery == 0) {
        stage->next_recovery = core->recoveries;
        core->recoveries = stage;
    }
    stage->recovery |= (uint8_t)what;
}

/* The stage is about to run: see that everything that it reads is there. */
void recovery_need(struct core *core, struct stage *stage)
{
    const struct job *job = stage->job;
    if (stage->counts[TASK_QUEUED] + stage->counts[TASK_RUNNING] == 0) {
        return;
    }
    for (uint32_t i = stage->first_parent; i != EDGE_NONE; i = job->edges[i].next_of_child) {
        struct stage *parent = job->stages[job->edges[i].parent];
        if (job->edges[i].read != READ_NONE && parent->n_missing > 0) {
            recovery_due(core, parent, RECOVER_REDO);
        }
    }
}

/*
 * Counts the loss of an output made by the incarnation `mark` after `generation` recoveries of its stage. Losses that an
 * earlier count covers are free. False if the stage has had too many: the job has ended then, and says `why`, if that is not
 * NULL.
 */
static bool recovery_count(struct core *core, struct stage *stage, uint64_t mark, uint32_t generation, const char *why)
{
    for (uint32_t i = generation; i < stage->n_recovered; i++) {
        if (stage->recovered[i] == mark) {
            return true;
        }
    }
    stage->recovered = mem_realloc(stage->recovered, (stage->n_recovered + 1) * sizeof *stage->recovered);
    stage->recovered[stage->n_recovered++] = mark;
    core__emit_stage(core, stage, false);
    if (stage->n_recovered <= core->config.max_fetch_recoveries) {
        return true;
    }
    job_end(core, stage->job, JOB_FAILED,
            arena_format(&core->fx->arena, "stage %u lost its map outputs %u times%s%s", stage->id, stage->n_recovered,
                         why != NULL ? "; at last: " : "", why != NULL ? why : ""));
    return false;
}

/* The output is gone. If somebody still needs it, its task will be redone by recovery_run. */
static void lose_output(struct core *core, struct task *task, const char *why)
{
    struct stage *stage = task->stage;
    ASSERT(task->output != NULL);
    uint64_t mark = task->output->incarnation_mark;
    uint32_t generation = task->output->generation;
    output_drop(core, task, true);
    stage->n_missing += task->state == TASK_SUCCEEDED;
    if (stage_outputs_needed(stage) && recovery_count(core, stage, mark, generation, why)) {
        recovery_due(core, stage, RECOVER_REDO);
    }
}

/* All leases of the worker have been taken back already, so what is left belongs to succeeded tasks. */
void outputs_lost_with(struct core *core, struct worker *worker)
{
    while (!list_is_empty(&worker->outputs)) {
        lose_output(core, CONTAINER_OF(list_first(&worker->outputs), struct output, in_worker)->task, NULL);
    }
}

/* A finished task runs again although nobody failed: its rows are not what readers need any more, or are gone. */
static void run_again(struct core *core, struct task *task, const char *why)
{
    struct task_news news = {.message = why};
    core__task_event(core, EVENT_REASSIGNED, task, NULL, why);
    output_drop(core, task, true);
    task_move(core, task, TASK_QUEUED);
    core__emit_task(core, task, &news);
}

static void enqueue_returned(struct core *core, struct stage *stage)
{
    stage->has_dropped = true;
    if (stage->waiting == 0) {
        stage_enqueue(core, stage);
    }
}

static void redo_missing(struct core *core, struct stage *stage)
{
    for (uint32_t t = 0; t < stage->n_tasks && stage->n_missing > 0; t++) {
        struct task *task = &stage->tasks[t];
        if (task->state == TASK_SUCCEEDED && task->output == NULL) {
            stage->n_missing--;
            run_again(core, task, "its map output was lost");
        }
    }
    stage_unsettle(stage);
    enqueue_returned(core, stage);
    recovery_due(core, stage, RECOVER_INPUTS | (stage->nondeterministic ? RECOVER_READERS : 0));
}

/* Takes back everything that the stage's tasks made out of an input that is being redone. */
static void restart_stage(struct core *core, struct stage *stage)
{
    bool had_finished = false;
    for (uint32_t t = 0; t < stage->n_tasks; t++) {
        struct task *task = &stage->tasks[t];
        if (task->state == TASK_RUNNING) {
            task_release(core, task, "its input is being redone");
        } else if (task->state == TASK_SUCCEEDED) {
            stage->n_missing -= stage->output == OUTPUT_SHUFFLE && task->output == NULL;
            run_again(core, task, "its input is being redone");
            had_finished = true;
        }
    }
    if (had_finished) {
        stage_unsettle(stage);
        enqueue_returned(core, stage);
    }
    recovery_due(core, stage, RECOVER_INPUTS);
}

/* Everyone who read it, and everyone who read from those, even if some of them are being redone already. */
static void restart_readers(struct core *core, struct stage *from)
{
    const struct job *job = from->job;
    struct stage *work = from;
    struct stage *found = NULL;
    if (BUG(core, mix_nondeterministic_maps)) {
        return;
    }
    from->next_work = NULL;
    while (work != NULL) {
        struct stage *stage = work;
        work = stage->next_work;
        for (uint32_t i = stage->first_child; i != EDGE_NONE; i = job->edges[i].next_of_parent) {
            struct stage *child = job->stages[job->edges[i].child];
            if (job->edges[i].read != READ_NONE && !child->is_marked) {
                child->is_marked = true;
                child->next_marked = found;
                found = child;
                child->next_work = work;
                work = child;
            }
        }
    }
    for (; found != NULL; found = found->next_marked) {
        found->is_marked = false;
        restart_stage(core, found);
    }
}

/* Does all that is due. Nothing that it does can end a job, so it comes to an end itself. */
void recovery_run(struct core *core)
{
    while (core->recoveries != NULL) {
        struct stage *stage = core->recoveries;
        unsigned due = stage->recovery;
        core->recoveries = stage->next_recovery;
        stage->recovery = 0;
        if (job_state_is_terminal((enum job_state)stage->job->state)) {
            continue;
        }
        if (due & RECOVER_REDO && stage->n_missing > 0) {
            redo_missing(core, stage);
        }
        if (due & RECOVER_READERS) {
            restart_readers(core, stage);
        }
        if (due & RECOVER_INPUTS) {
            recovery_need(core, stage);
        }
    }
}

/* ---- fetch failures ---- */

static bool reads_from(const struct stage *reader, uint32_t parent)
{
    const struct job *job = reader->job;
    for (uint32_t i = reader->first_parent; i != EDGE_NONE; i = job->edges[i].next_of_child) {
        if (job->edges[i].parent == parent && (job->edges[i].read != READ_NONE || reader->planning)) {
            return true;
        }
    }
    return false;
}

/* The map task that a key of a fetch failure names, if the reader could have been told of that attempt. */
static struct task *named_map(const struct task *reader, const struct attempt_ref *key)
{
    struct stage *stage = reader->stage;
    struct task *map = NULL;
    if (strcmp(key->task.job_id, stage->job->id) == 0 && reads_from(stage, key->task.stage)) {
        map = task_find(stage->job, key->task.stage, key->task.task);
    }
    return map != NULL && key->attempt > 0 && key->attempt <= map->attempt ? map : NULL;
}

/*
 * The reader could not read its inputs. That costs it nothing, as long as it names inputs that it had; the outputs that
 * are still current are lost.
 */
void output_fetch_failed(struct core *core, struct task *reader, const struct task_report *report)
{
    struct job *job = reader->stage->job;
    bool is_plausible = true;
    for (uint32_t i = 0; i < report->n_fetch_failed; i++) {
        is_plausible &= named_map(reader, &report->fetch_failed[i]) != NULL;
    }
    if (!is_plausible) {
        task_retry_or_fail(
            core, reader,
            &(struct failure){.message = "it reported fetch failures of map outputs that it does not read",
                              .is_retryable = true});
        return;
    }
    task_avoid(core, reader, reader->u.lease->worker->id);
    task_requeue(core, reader, OUTCOME_FAILED, report->message != NULL ? report->message : "fetch failed");
    for (uint32_t i = 0; i < report->n_fetch_failed; i++) {
        const struct attempt_ref *key = &report->fetch_failed[i];
        struct task *map = named_map(reader, key);
        bool ended = job_state_is_terminal((enum job_state)job->state);
        if (!ended && output_is_current(map) && map->attempt == key->attempt) {
            lose_output(core, map, report->message);
        }
    }
}
