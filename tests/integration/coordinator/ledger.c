#include "integration/coordinator/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/core.h"
#include "core/effects.h"
#include "integration/coordinator/clocks.h"
#include "test.h"

#define PAGE_JOBS 500

struct ledger *ledger_new(void)
{
    char path[] = "/tmp/capstan-ledger-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    unlink(path);
    CHECK_INT(ftruncate(fd, (off_t)sizeof(struct ledger)), 0);
    struct ledger *ledger = mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    CHECK(ledger != MAP_FAILED);
    return ledger;
}

void ledger_free(struct ledger *ledger)
{
    if (ledger != NULL) {
        munmap(ledger, sizeof *ledger);
    }
}

void ledger_add(struct ledger *ledger, const struct fact *fact)
{
    uint32_t i = atomic_fetch_add(&ledger->n, 1);
    ASSERT(i < LEDGER_FACTS_MAX);
    struct fact *to = &ledger->facts[i];
    to->kind = fact->kind;
    to->node = fact->node;
    to->task = fact->task;
    to->err = fact->err;
    to->at_ms = clocks_mono_ms();
    memcpy(to->job_id, fact->job_id, sizeof to->job_id);
    atomic_store(&to->is_whole, true);
    if (fact->kind == FACT_SUBMITTED || fact->kind == FACT_DONE) {
        atomic_fetch_add(&ledger->n_acknowledged, 1);
    }
}

/* ---- what the store must have ---- */

struct seen {
    uint32_t n_tasks, n_stages, tasks_expected, stages_expected;
    uint64_t done; /* bit per task */
};

static void see_row(void *context, const struct row *row)
{
    struct seen *seen = context;
    if (row->kind == ROW_JOB) {
        seen->stages_expected = ((const struct row_job *)(const void *)row)->n_stages;
    } else if (row->kind == ROW_STAGE) {
        seen->n_stages++;
        seen->tasks_expected += ((const struct row_stage *)(const void *)row)->spec->n_tasks;
    } else if (row->kind == ROW_TASK) {
        const struct row_task *task = (const struct row_task *)(const void *)row;
        seen->n_tasks++;
        if (task->state == TASK_SUCCEEDED && task->ref.task < 64) {
            seen->done |= UINT64_C(1) << task->ref.task;
        }
    }
}

static void check_job(struct store *store, const char *job_id, struct seen *seen)
{
    struct error e = {0};
    *seen = (struct seen){0};
    enum err err = store_load_job(store, job_id, see_row, seen, &e);
    if (err != ERR_OK) {
        print_error("job %s: %s\n", job_id, e.message);
    }
    CHECK_ERR(err, ERR_OK);
    CHECK(seen->stages_expected > 0);
    CHECK_UINT(seen->n_stages, seen->stages_expected);
    CHECK_UINT(seen->n_tasks, seen->tasks_expected);
}

void ledger_check(const struct ledger *ledger, uint32_t from, struct store *store)
{
    struct seen seen;
    uint32_t n = atomic_load(&ledger->n);
    for (uint32_t i = from; i < n; i++) {
        const struct fact *fact = &ledger->facts[i];
        if (!atomic_load(&fact->is_whole)) {
            continue; /* its process was killed just before it had written it down */
        }
        if (fact->kind == FACT_SUBMITTED || fact->kind == FACT_DONE ||
            (fact->kind == FACT_ANSWERED && fact->err == ERR_OK)) {
            check_job(store, fact->job_id, &seen);
        }
        if (fact->kind == FACT_DONE && (seen.done & UINT64_C(1) << fact->task) == 0) {
            print_error("task %u of job %s was acknowledged as done and is not\n", fact->task, fact->job_id);
            CHECK(!"done");
        }
    }
}

struct loading {
    struct core *core;
    struct effects fx;
    struct core_input input;
};

static void load_row_into(void *context, const struct row *row)
{
    struct loading *loading = context;
    struct command command = {.kind = CMD_LOAD, .u.load = row};
    core_step(loading->core, &loading->input, &command, &loading->fx);
    effects_reset(&loading->fx);
}

static struct core *load(struct store *store)
{
    struct error e = {0};
    struct core_config config = core_config_default();
    struct loading loading = {.core = core_new(&config, 7), .input = {.now_ms = INT64_C(2000000000000)}};
    CHECK_ERR(store_load(store, load_row_into, &loading, &e), ERR_OK);
    struct command command = {.kind = CMD_LOADED};
    core_step(loading.core, &loading.input, &command, &loading.fx);
    effects_deinit(&loading.fx);
    return loading.core;
}

static void check_equal(struct store *store)
{
    char why[256] = "";
    struct core *a = load(store);
    struct core *b = load(store);
    core_check(a);
    if (!core_equal(a, b, why, sizeof why)) {
        print_error("%s\n", why);
        CHECK(!"two loads are equal");
    }
    core_free(a);
    core_free(b);
}

void ledger_check_whole(struct store *store)
{
    struct error e = {0};
    struct arena arena = {0};
    struct job_query query = {.state = -1, .limit = PAGE_JOBS};
    struct page page;
    struct seen seen;
    char after[256];
    check_equal(store);
    do {
        CHECK_ERR(store_jobs(store, &query, &arena, &page, &e), ERR_OK);
        for (uint32_t i = 0; i < page.n_rows; i++) {
            check_job(store, ((const struct row_job *)(const void *)page.rows[i])->job_id, &seen);
        }
        snprintf(after, sizeof after, "%s", page.next == NULL ? "" : page.next);
        query.after = page.next == NULL ? NULL : after;
        arena_reset(&arena);
    } while (query.after != NULL);
    arena_deinit(&arena);
}

/* ---- looking and waiting ---- */

uint32_t ledger_acknowledged(const struct ledger *ledger, int64_t from_ms, int64_t to_ms)
{
    uint32_t found = 0;
    uint32_t n = atomic_load(&ledger->n);
    for (uint32_t i = 0; i < n; i++) {
        const struct fact *fact = &ledger->facts[i];
        if (atomic_load(&fact->is_whole) && (fact->kind == FACT_SUBMITTED || fact->kind == FACT_DONE)) {
            found += fact->at_ms >= from_ms && fact->at_ms < to_ms;
        }
    }
    return found;
}

bool ledger_await(const struct ledger *ledger, uint32_t more, int64_t ms)
{
    uint32_t enough = atomic_load(&ledger->n_acknowledged) + more;
    int64_t until_ms = clocks_mono_ms() + ms;
    while (atomic_load(&ledger->n_acknowledged) < enough && clocks_mono_ms() < until_ms) {
        clocks_pause(1);
    }
    return atomic_load(&ledger->n_acknowledged) >= enough;
}

enum err ledger_answer(const struct ledger *ledger, const char *job_id, int64_t ms)
{
    int64_t until_ms = clocks_mono_ms() + ms;
    do {
        uint32_t n = atomic_load(&ledger->n);
        for (uint32_t i = 0; i < n; i++) {
            const struct fact *fact = &ledger->facts[i];
            if (atomic_load(&fact->is_whole) && (fact->kind == FACT_ANSWERED || fact->kind == FACT_POLLED) &&
                strcmp(fact->job_id, job_id) == 0) {
                return fact->err;
            }
        }
        clocks_pause(5);
    } while (clocks_mono_ms() < until_ms);
    print_error("no answer to %s\n", job_id);
    CHECK(!"answered");
    return ERR_DEADLINE;
}
