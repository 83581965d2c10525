/*
 * sql.c - the executor `sql`: what its runs share, and which kind of task a run is.
 *
 *   inputs {"sql": …}              plan the query (sql_plan.c)
 *   inputs {"stages": …}           a physical plan; the task's name says what to do with it:
 *     "refine"                     go on planning with actual sizes (sql_refine.c)
 *     "s<id>"                      run the task of that number of the plan's stage <id> (sql_stage.c)
 *
 * All tasks of a query have the same plan as their inputs, so it is read once and kept for a while, known by its hash.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/num.h"
#include "base/slice.h"
#include "duck/excerpt.h"
#include "exec/sql_internal.h"

#define PLANS_KEPT 16 /* that nobody uses at the moment */
/*
 * DuckDB 1.5.6 fails with an error of its own where this one replaces a window, `... row_number() OVER (PARTITION BY x) = 1`,
 * above a range condition on x that no scan has taken, as it often is behind an exchange. A worker that has seen such an error
 * does without; all others keep what it is good for.
 */
#define CARE "top_n_window_elimination"
#define PLANNER_WAIT_MS 25 /* how often one who waits for the planner looks at his stop */

/* ---- DuckDB ---- */

enum err sql__take_instance(struct sql_executor *sql, struct sql_instance **out, struct error *e)
{
    enum err err = ERR_OK;
    pthread_mutex_lock(&sql->mutex);
    if (sql->instance == NULL) {
        struct duck_options options = {.memory_bytes_max = sql->options.memory_bytes_max,
                                       .threads = sql->options.threads,
                                       .temp_folder = sql->options.temp_folder,
                                       .has_short_decimals = true,
                                       .disabled_optimizers = sql->is_careful ? CARE : NULL,
                                       .keeps_metadata = true};
        struct duck *duck = NULL;
        err = duck_open(&options, &duck, e);
        if (err == ERR_OK) {
            sql->instance = mem_calloc(1, sizeof(*sql->instance));
            *sql->instance = (struct sql_instance){.duck = duck, .refs = 1};
        }
    }
    if (err == ERR_OK) {
        sql->instance->refs++;
        *out = sql->instance;
    }
    pthread_mutex_unlock(&sql->mutex);
    return err;
}

void sql__take_care(struct sql_executor *sql)
{
    pthread_mutex_lock(&sql->mutex);
    sql->is_careful = true;
    pthread_mutex_unlock(&sql->mutex);
}

/* With the mutex held. Returns the instance if that was the last reference, for the caller to end it without. */
static struct sql_instance *unref(struct sql_instance *instance)
{
    return --instance->refs == 0 ? instance : NULL;
}

static void end_instance(struct sql_instance *instance)
{
    if (instance != NULL) {
        duck_close(instance->duck);
        sql__files_forget(&instance->files);
        mem_free(instance);
    }
}

void sql__give_instance(struct sql_executor *sql, struct sql_instance *instance, bool is_broken)
{
    if (instance == NULL) {
        return;
    }
    pthread_mutex_lock(&sql->mutex);
    if (is_broken && sql->instance == instance) {
        sql->instance = NULL;
        struct sql_instance *unused = unref(instance);
        ASSERT(unused == NULL); /* the caller's own reference is left */
    }
    struct sql_instance *last = unref(instance);
    pthread_mutex_unlock(&sql->mutex);
    end_instance(last);
}

/* ---- the planner ---- */

/* With the mutex held. False if the run is to stop. */
static bool wait_for_planner(struct sql_run *run)
{
    struct sql_executor *sql = run->sql;
    while (sql->is_planning && exec_stop_reason(run->stop) == STOP_NONE) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)PLANNER_WAIT_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&sql->planner_is_free, &sql->mutex, &until);
    }
    return !sql->is_planning;
}

enum err sql__take_planner(struct sql_run *run, struct planner **out, struct error *e)
{
    struct sql_executor *sql = run->sql;
    pthread_mutex_lock(&sql->mutex);
    bool is_mine = wait_for_planner(run);
    struct planner *planner = sql->planner;
    sql->is_planning = true;
    pthread_mutex_unlock(&sql->mutex);
    if (!is_mine) {
        return error_set(e, ERR_CANCELED, "stopped while it waited for the planner");
    }
    enum err err = planner == NULL ? planner_open(&planner, e) : ERR_OK;
    if (err != ERR_OK) {
        sql__give_planner(run, NULL, false);
        return err;
    }
    sql__run_set_planner(run, planner);
    *out = planner;
    return ERR_OK;
}

void sql__give_planner(struct sql_run *run, struct planner *planner, bool is_spoiled)
{
    struct sql_executor *sql = run->sql;
    sql__run_set_planner(run, NULL);
    if (is_spoiled) {
        planner_close(planner);
    }
    pthread_mutex_lock(&sql->mutex);
    sql->planner = is_spoiled ? NULL : planner;
    sql->is_planning = false;
    pthread_cond_signal(&sql->planner_is_free);
    pthread_mutex_unlock(&sql->mutex);
}

/* ---- plans ---- */

static void free_plan(struct sql_plan *plan)
{
    arena_deinit(&plan->arena);
    mem_free(plan);
}

/* With the mutex held. NULL: it is not there. */
static struct sql_plan *find_plan(struct sql_executor *sql, const uint8_t hash[SHA256_BYTES])
{
    LIST_EACH(node, &sql->plans) {
        struct sql_plan *plan = CONTAINER_OF(node, struct sql_plan, link);
        if (memcmp(plan->hash, hash, SHA256_BYTES) == 0) {
            list_remove(node);
            list_insert_before(sql->plans.next, node);
            return plan;
        }
    }
    return NULL;
}

static enum err add_plan(struct sql_executor *sql, const char *text, size_t n, struct sql_plan **out, struct error *e)
{
    struct sql_plan *plan = mem_calloc(1, sizeof(*plan));
    enum err err = physical_read(text, n, &plan->arena, &plan->plan, NULL, e);
    if (err != ERR_OK) {
        free_plan(plan);
        return err;
    }
    list_insert_before(sql->plans.next, &plan->link);
    sql->n_plans++;
    *out = plan;
    return ERR_OK;
}

enum err sql__take_plan(struct sql_executor *sql, const char *text, size_t n, struct sql_plan **out, struct error *e)
{
    uint8_t hash[SHA256_BYTES];
    enum err err = ERR_OK;
    sha256_once(text, n, hash);
    pthread_mutex_lock(&sql->plans_mutex);
    struct sql_plan *plan = find_plan(sql, hash);
    if (plan == NULL) {
        err = add_plan(sql, text, n, &plan, e);
    }
    if (err == ERR_OK) {
        memcpy(plan->hash, hash, sizeof(hash));
        plan->refs++;
        *out = plan;
    }
    pthread_mutex_unlock(&sql->plans_mutex);
    return err;
}

void sql__give_plan(struct sql_executor *sql, struct sql_plan *plan)
{
    pthread_mutex_lock(&sql->plans_mutex);
    plan->refs--;
    for (struct list *node = sql->plans.prev; sql->n_plans > PLANS_KEPT && node != &sql->plans;) {
        struct sql_plan *old = CONTAINER_OF(node, struct sql_plan, link);
        node = node->prev;
        if (old->refs == 0) {
            list_remove(&old->link);
            free_plan(old);
            sql->n_plans--;
        }
    }
    pthread_mutex_unlock(&sql->plans_mutex);
}

/* ---- tasks ---- */

void sql__hint_of_failure(struct error *e)
{
    error_hint(e, "this is a mistake in DuckDB: write the query in another way, or have it run as one task (--set "
                  "single_task_bytes=1TB)");
}

void sql__fail(struct sql_run *run, bool not_retryable, const struct error *e)
{
    const char *message = e->message[0] != '\0' ? e->message : err_text(e->code);
    size_t n = duck_excerpt_start(message); /* a caret is the last that is seen */
    exec_fail(run->out, not_retryable, "%.*s%s%s%s", (int)n, message, e->hint[0] != '\0' ? "; " : "", e->hint,
              message + n);
}

enum err sql__part_sources(const struct exec_task *task, uint32_t n_parents, struct arena *arena,
                           struct sql_sources **out, struct error *e)
{
    struct sql_sources *parts = arena_zalloc(arena, ((size_t)n_parents + 1) * sizeof(*parts));
    uint32_t n = 0;
    for (uint32_t i = 0; i < task->n_sources && n <= n_parents; i++) {
        if (n == 0 || task->sources[i].stage != task->sources[i - 1].stage) {
            parts[n++].list = &task->sources[i];
        }
        parts[n - 1].n++;
    }
    if (n != n_parents) {
        return error_set(e, ERR_INTERNAL, "the task has sources of %s%" PRIu32 " stages, but its plan reads %" PRIu32,
                         n > n_parents ? "at least " : "", n, n_parents);
    }
    *out = parts;
    return ERR_OK;
}

/* "s12" → 12. */
static bool read_stage_name(const char *name, uint32_t *out_id)
{
    int64_t id = -1;
    bool is_one = name != NULL && name[0] == 's' && name[1] >= '0' && name[1] <= '9' && num_parse_int(name + 1, &id) &&
                  id >= 0 && id < UINT32_MAX;
    if (is_one) {
        *out_id = (uint32_t)id;
    }
    return is_one;
}

/* Those who answer calls come first: a stage that waits to be handed out costs more time than one that computes. */
#define SLICE_US 20000

static void run_stage_named(struct sql_run *run, const struct physical_plan *plan, uint32_t id)
{
    uint32_t stage = 0;
    while (stage < plan->n_stages && plan->stages[stage].id != id) {
        stage++;
    }
    if (stage == plan->n_stages) {
        exec_fail(run->out, true, "the plan has no stage %" PRIu32 ", which the task's name '%s' asks for", id,
                  run->task->name);
    } else if (run->task->task >= physical_tasks(plan, stage)) {
        exec_fail(run->out, true, "stage %" PRIu32 " of the plan has %" PRIu32 " tasks, but this is number %" PRIu64,
                  id, physical_tasks(plan, stage), run->task->task);
    } else {
        uint64_t slice_us = slice_set(SLICE_US);
        sql__run_stage(run, plan, stage, (uint32_t)run->task->task);
        (void)slice_set(slice_us);
    }
}

/* Inputs that are no plan, or none that can be read, which `why` says. */
static void run_other(struct sql_run *run, const struct error *why)
{
    struct json *inputs = NULL;
    if (!exec__read_inputs(run->task, run->out, &inputs)) {
        return;
    }
    if (json_has(inputs, "sql")) {
        sql__plan(run, inputs);
    } else if (!json_has(inputs, "stages")) {
        exec_fail(run->out, true, "inputs must have either the member 'sql', a query, or 'stages', a physical plan");
    } else if (why != NULL) {
        sql__fail(run, true, why);
    } else {
        exec_fail(run->out, true,
                  "a task whose inputs are a physical plan is called 'refine' or as a stage, such as 's0', not '%s'",
                  run->task->name == NULL ? "" : run->task->name);
    }
    json_free(inputs);
}

static void run_watched(struct sql_run *run)
{
    const struct exec_task *task = run->task;
    struct sql_plan *plan = NULL;
    struct error e = {0};
    uint32_t id = 0;
    bool is_stage = read_stage_name(task->name, &id);
    bool is_refine = task->name != NULL && strcmp(task->name, "refine") == 0;
    if (!is_stage && !is_refine) {
        run_other(run, NULL);
        return;
    }
    if (sql__take_plan(run->sql, task->inputs, task->n_inputs, &plan, &e) != ERR_OK) {
        run_other(run, &e);
        return;
    }
    sql__folders_of_plan(run->sql, task->job_id, plan->plan);
    if (is_refine) {
        sql__refine(run, plan->plan);
    } else {
        run_stage_named(run, plan->plan, id);
    }
    sql__give_plan(run->sql, plan);
}

static void run_sql(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                    struct exec_outcome *out)
{
    struct sql_run run = {
        .sql = CONTAINER_OF(executor, struct sql_executor, base), .task = task, .stop = stop, .out = out};
    struct error e = {0};
    if (sql__run_begin(&run, &e) != ERR_OK) {
        sql__fail(&run, false, &e);
        return;
    }
    run_watched(&run);
    sql__run_end(&run);
}

/* ---- life ---- */

static void drop_job(struct executor *executor, const char *job_id)
{
    sql__drop_folders(CONTAINER_OF(executor, struct sql_executor, base), job_id);
}

static void each_job(struct executor *executor, exec_job_fn *fn, void *context)
{
    sql__each_folder_job(CONTAINER_OF(executor, struct sql_executor, base), fn, context);
}

static void close_sql(struct executor *executor)
{
    struct sql_executor *sql = CONTAINER_OF(executor, struct sql_executor, base);
    sql__watch_deinit(&sql->watch);
    sql__room_deinit(&sql->room);
    sql__drop_folders(sql, NULL);
    planner_close(sql->planner);
    end_instance(sql->instance);
    LIST_EACH_SAFE(node, next, &sql->plans) {
        list_remove(node);
        free_plan(CONTAINER_OF(node, struct sql_plan, link));
    }
    sql__known_deinit(sql);
    pthread_mutex_destroy(&sql->mutex);
    pthread_mutex_destroy(&sql->plans_mutex);
    pthread_cond_destroy(&sql->planner_is_free);
    mem_free(sql->worker_id);
    mem_free(sql->temp_folder);
    mem_free(sql->notes_folder);
    mem_free(sql);
}

struct executor *executor_sql(const struct sql_options *options)
{
    struct sql_executor *sql = mem_calloc(1, sizeof(*sql));
    sql->base = (struct executor){
        .name = "sql", .run = run_sql, .drop_job = drop_job, .each_job = each_job, .close = close_sql};
    sql->options = *options;
    sql->worker_id = mem_strdup(options->worker_id == NULL ? "" : options->worker_id);
    sql->temp_folder = mem_strdup(options->temp_folder);
    sql->notes_folder = options->notes_folder == NULL ? NULL : mem_strdup(options->notes_folder);
    sql->options.worker_id = sql->worker_id;
    sql->options.temp_folder = sql->temp_folder;
    sql->options.notes_folder = sql->notes_folder;
    pthread_mutex_init(&sql->mutex, NULL);
    pthread_mutex_init(&sql->plans_mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&sql->planner_is_free, &monotonic);
    pthread_condattr_destroy(&monotonic);
    list_init(&sql->plans);
    list_init(&sql->known);
    list_init(&sql->folders);
    sql__folders_load(sql);
    sql__watch_init(&sql->watch);
    sql__room_init(&sql->room);
    return &sql->base;
}
