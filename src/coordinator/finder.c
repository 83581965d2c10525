#include "coordinator/finder.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "coordinator/coordinator_internal.h"
#include "store/table.h"

#define KEY_KEPT_MS 86400000 /* how long a client's idempotency key means the same job */

/* ---- what is looked for ---- */

/* A walk over the jobs that a command names. */
struct walk {
    const struct core *core;
    struct search *search; /* that gets those which the core does not know; NULL: they are only counted */
    const char *last;
    uint32_t n_unknown;
};

static void pass(struct walk *walk, const char *job_id)
{
    /* Reports about one job often follow each other; it need not be looked for again. */
    bool is_seen = walk->last != NULL && strcmp(walk->last, job_id) == 0;
    walk->last = job_id;
    if (is_seen || core_has_job(walk->core, job_id)) {
        return;
    }
    if (walk->search != NULL) {
        walk->search->job_ids[walk->n_unknown] = arena_strdup(&walk->search->arena, job_id);
    }
    walk->n_unknown++;
}

static void pass_all(struct walk *walk, const struct command *command)
{
    switch (command->kind) {
    case CMD_SUBMIT:
        pass(walk, command->u.submit.job_id);
        break;
    case CMD_REPORT:
        for (uint32_t i = 0; i < command->u.report.n_reports; i++) {
            pass(walk, command->u.report.reports[i].ref.task.job_id);
        }
        break;
    case CMD_MAP_OUTPUT:
        pass(walk, command->u.map_output.ref.task.job_id);
        break;
    case CMD_RESULTS:
        pass(walk, command->u.results.ref.task.job_id);
        break;
    case CMD_CANCEL:
        pass(walk, command->u.cancel.job_id);
        break;
    case CMD_RETRY:
        pass(walk, command->u.retry.job_id);
        break;
    case CMD_REGISTER:
    case CMD_HEARTBEAT:
    case CMD_DEREGISTER:
    case CMD_GET_TASK:
    case CMD_SET_NODE:
    case CMD_CHILD_DONE:
    case CMD_CHILD_FAILED:
    case CMD_TICK:
    case CMD_LOAD:
    case CMD_LOADED:
    case CMD_LOADED_JOB:
        break;
    }
}

bool search_is_needed(const struct core *core, const struct command *command)
{
    struct walk walk = {.core = core};
    pass_all(&walk, command);
    return walk.n_unknown > 0;
}

struct search *search_new(const struct core *core, struct request *request, struct sight sight, int64_t now_ms)
{
    const struct command *command = &request->command;
    struct walk walk = {.core = core};
    pass_all(&walk, command);
    struct search *search = mem_calloc(1, sizeof *search);
    search->request = request;
    search->sight = sight;
    search->job_ids = arena_alloc(&search->arena, walk.n_unknown * sizeof *search->job_ids);
    search->n_job_ids = walk.n_unknown;
    walk = (struct walk){.core = core, .search = search};
    pass_all(&walk, command);
    const char *key = command->kind == CMD_SUBMIT ? command->u.submit.idempotency_key : NULL;
    if (key != NULL && core_job_by_key(core, key) == NULL) {
        search->key = arena_strdup(&search->arena, key);
        search->key_not_before_ms = now_ms - KEY_KEPT_MS;
    }
    return search;
}

void search_free(struct search *search)
{
    if (search != NULL) {
        arena_deinit(&search->arena);
        mem_free(search);
    }
}

static bool is_wanted(const struct search *search, const struct row_job *job)
{
    bool is = search->key != NULL && job->idempotency_key != NULL && strcmp(search->key, job->idempotency_key) == 0;
    for (uint32_t i = 0; i < search->n_job_ids && !is; i++) {
        is = strcmp(search->job_ids[i], job->job_id) == 0;
    }
    return is;
}

bool search_is_named(const struct search *search, const struct row *rows)
{
    for (const struct row *row = rows; row != NULL; row = row->next) {
        if (row->kind == ROW_JOB && is_wanted(search, (const struct row_job *)(const void *)row)) {
            return true;
        }
    }
    return false;
}

void search_watch(struct search *search, const struct row *rows)
{
    search->is_stale = search->is_stale || search_is_named(search, rows);
}

/* ---- looking ---- */

struct reading {
    struct search *search;
    struct found_job *job; /* whose rows come; NULL: it has not ended */
    struct arena scratch;
    enum err err;
};

static void read_row(void *context, const struct row *row)
{
    struct reading *reading = context;
    struct search *search = reading->search;
    const struct row_job *job = (const struct row_job *)(const void *)row;
    if (row->kind == ROW_JOB && job_state_is_terminal(job->state)) {
        reading->job = arena_zalloc(&search->arena, sizeof *reading->job);
        reading->job->job_id = arena_strdup(&search->arena, job->job_id);
        reading->job->rows_end = &reading->job->rows;
        reading->job->next = search->jobs;
        search->jobs = reading->job;
    } else if (row->kind == ROW_JOB) {
        search->is_live = true;
    }
    if (reading->job != NULL && reading->err == ERR_OK) {
        reading->err = table_copy(row, &search->arena, &reading->scratch, reading->job->rows_end, NULL);
        reading->job->rows_end = &(*reading->job->rows_end)->next;
        arena_reset(&reading->scratch);
    }
}

static enum err read_job(struct store *store, struct search *search, const char *job_id)
{
    struct reading reading = {.search = search};
    enum err err = store_load_job(store, job_id, read_row, &reading, NULL);
    arena_deinit(&reading.scratch);
    return err == ERR_NOT_FOUND ? ERR_OK : err != ERR_OK ? err : reading.err;
}

static enum err look(struct store *store, struct search *search)
{
    const char *by_key = NULL;
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < search->n_job_ids && err == ERR_OK; i++) {
        err = read_job(store, search, search->job_ids[i]);
    }
    if (err != ERR_OK || search->key == NULL) {
        return err;
    }
    err = store_find_key(store, search->key, search->key_not_before_ms, &search->arena, &by_key, NULL);
    return err == ERR_NOT_FOUND ? ERR_OK : err != ERR_OK ? err : read_job(store, search, by_key);
}

/* The next search; NULL: the coordinator stops. */
static struct search *await_search(struct coordinator *c)
{
    pthread_mutex_lock(&c->lock);
    while (c->asked == NULL && !c->is_stopping) {
        pthread_cond_wait(&c->finder_wakes, &c->lock);
    }
    struct search *search = c->is_stopping ? NULL : c->asked;
    c->asked = search == NULL ? c->asked : NULL;
    pthread_mutex_unlock(&c->lock);
    return search;
}

void *coordinator__finder(void *coordinator)
{
    struct coordinator *c = coordinator;
    struct store *store = NULL;
    for (struct search *search; (search = await_search(c)) != NULL;) {
        search->err = store != NULL ? ERR_OK : store_open(c->options.store_url, &store, NULL);
        if (search->err == ERR_OK) {
            search->err = look(store, search);
        }
        if (search->err != ERR_OK) {
            store_close(store);
            store = NULL;
        }
        pthread_mutex_lock(&c->lock);
        c->found = search;
        pthread_cond_signal(&c->loop_wakes);
        pthread_mutex_unlock(&c->lock);
    }
    store_close(store);
    return NULL;
}
