#include "integration/coordinator/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "core/core.h"
#include "integration/coordinator/client.h"
#include "integration/coordinator/clocks.h"
#include "integration/coordinator/content.h"
#include "test.h"

#define PAGE_JOBS 500
#define TASKS_MAX CLIENT_TASKS_MAX /* of a job with inputs; others are not looked at here */
#define RECENT 1024                /* jobs that were looked at and are not loaded again for the next fact about them */
#define READS_MAX 3                /* of thousands of reads one may wait longer for a busy database than a store does */

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

static bool is_acknowledgement(enum fact_kind kind)
{
    return kind == FACT_SUBMITTED || kind == FACT_DONE || kind == FACT_CANCELED || kind == FACT_DATA_SET;
}

void ledger_add(struct ledger *ledger, const struct fact *fact)
{
    uint32_t i = atomic_fetch_add(&ledger->n, 1);
    ASSERT(i < LEDGER_FACTS_MAX);
    struct fact *to = &ledger->facts[i];
    to->kind = fact->kind;
    to->node = fact->node;
    to->task = fact->task;
    to->version = fact->version;
    to->state = fact->state;
    to->err = fact->err;
    to->at_ms = clocks_mono_ms();
    memcpy(to->job_id, fact->job_id, sizeof to->job_id);
    atomic_store(&to->is_whole, true);
    if (is_acknowledgement(fact->kind)) {
        atomic_fetch_add(&ledger->n_acknowledged, 1);
    }
}

/* ---- what the store must have ---- */

struct seen_task {
    bool is_there;
    enum task_state state;
    uint32_t attempt;
    struct digest inputs, result;
    uint32_t inputs_bytes, result_bytes;
};

struct seen {
    char job_id[40];
    enum job_state state;
    uint32_t n_tasks, n_stages, tasks_expected, stages_expected;
    struct seen_task tasks[TASKS_MAX];
};

static void see_row(void *context, const struct row *row)
{
    struct seen *seen = context;
    if (row->kind == ROW_JOB) {
        const struct row_job *job = (const struct row_job *)(const void *)row;
        seen->stages_expected = job->n_stages;
        seen->state = job->state;
    } else if (row->kind == ROW_STAGE) {
        seen->n_stages++;
        seen->tasks_expected += ((const struct row_stage *)(const void *)row)->spec->n_tasks;
    } else if (row->kind == ROW_TASK) {
        const struct row_task *task = (const struct row_task *)(const void *)row;
        seen->n_tasks++;
        if (task->ref.task < TASKS_MAX) {
            seen->tasks[task->ref.task] = (struct seen_task){
                true, task->state, task->attempt, task->inputs, task->result, task->inputs_bytes, task->result_bytes};
        }
    }
}

static void check_content(const struct seen *seen, uint32_t task, const struct digest *digest, uint32_t n,
                          const struct content *expected, const struct found_bytes *found)
{
    bool is_same = memcmp(digest, &expected->digest, sizeof *digest) == 0 && n == expected->n && found->bytes != NULL &&
                   found->n_bytes == expected->n && memcmp(found->bytes, expected->bytes, expected->n) == 0;
    if (!is_same) {
        print_error("job %s, task %u: %s\n", seen->job_id, task, (const char *)expected->bytes);
        CHECK(!"the bytes are those that went in");
    }
}

/* Every task's input, and the result of each that succeeded. */
static void check_bytes(struct store *store, const struct seen *seen)
{
    struct error e = {0};
    struct arena arena = {0};
    struct digest digests[2 * TASKS_MAX];
    struct found_bytes found[2 * TASKS_MAX];
    CHECK(seen->n_tasks <= TASKS_MAX);
    for (uint32_t i = 0; i < seen->n_tasks; i++) {
        CHECK(seen->tasks[i].is_there);
        digests[i] = seen->tasks[i].inputs;
        digests[seen->n_tasks + i] = seen->tasks[i].result;
    }
    enum err err = ERR_UNAVAILABLE;
    for (int i = 0; i < READS_MAX && err == ERR_UNAVAILABLE; i++) {
        err = store_payloads(store, seen->job_id, digests, 2 * seen->n_tasks, &arena, found, &e);
    }
    CHECK_ERR(err, ERR_OK);
    for (uint32_t i = 0; i < seen->n_tasks; i++) {
        const struct seen_task *task = &seen->tasks[i];
        struct content input = content_input(&arena, seen->job_id, i);
        check_content(seen, i, &task->inputs, task->inputs_bytes, &input, &found[i]);
        if (task->state == TASK_SUCCEEDED) {
            struct content result = content_result(&arena, seen->job_id, i, task->attempt);
            check_content(seen, i, &task->result, task->result_bytes, &result, &found[seen->n_tasks + i]);
        }
    }
    arena_deinit(&arena);
}

static void check_job(struct store *store, const char *job_id, struct seen *seen)
{
    struct error e = {0};
    enum err err = ERR_UNAVAILABLE;
    for (int i = 0; i < READS_MAX && err == ERR_UNAVAILABLE; i++) {
        *seen = (struct seen){.n_tasks = 0};
        snprintf(seen->job_id, sizeof seen->job_id, "%s", job_id);
        err = store_load_job(store, job_id, see_row, seen, &e);
    }
    if (err != ERR_OK) {
        print_error("job %s: %s\n", job_id, e.message);
    }
    CHECK_ERR(err, ERR_OK);
    CHECK(seen->stages_expected > 0);
    CHECK_UINT(seen->n_stages, seen->stages_expected);
    CHECK_UINT(seen->n_tasks, seen->tasks_expected);
    check_bytes(store, seen);
}

/* The job of a fact; loaded, unless that was just done. */
static const struct seen *see_job(struct store *store, struct seen *recent, const char *job_id)
{
    uint32_t slot = 5381;
    for (const char *at = job_id; *at != '\0'; at++) {
        slot = slot * 33 + (unsigned char)*at;
    }
    struct seen *seen = &recent[slot % RECENT];
    if (strcmp(seen->job_id, job_id) != 0) {
        check_job(store, job_id, seen);
    }
    return seen;
}

static void check_fact(struct store *store, struct seen *recent, const struct fact *fact)
{
    bool is_about_job = fact->kind == FACT_SUBMITTED || fact->kind == FACT_DONE || fact->kind == FACT_CANCELED ||
                        (fact->kind == FACT_ANSWERED && fact->err == ERR_OK);
    if (!is_about_job) {
        return;
    }
    const struct seen *seen = see_job(store, recent, fact->job_id);
    if (fact->kind == FACT_DONE) {
        CHECK(fact->task < seen->n_tasks && fact->task < TASKS_MAX);
        const struct seen_task *task = &seen->tasks[fact->task];
        if (task->state != TASK_SUCCEEDED || task->attempt != fact->version) {
            print_error("task %u of job %s was acknowledged as done by attempt %u and is %s by attempt %u\n",
                        fact->task, fact->job_id, fact->version, task_state_name(task->state), task->attempt);
            CHECK(!"done");
        }
    } else if (fact->kind == FACT_CANCELED && seen->state != fact->state) {
        print_error("job %s was acknowledged as %s and is %s\n", fact->job_id, job_state_name(fact->state),
                    job_state_name(seen->state));
        CHECK(!"canceled");
    }
}

/* ---- data sets ---- */

static bool same_source(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static void check_data_set(const struct data_set *sets, uint32_t n_sets, const char *name, uint32_t version)
{
    struct arena arena = {0};
    const char *source = NULL;
    for (uint32_t i = 0; i < n_sets; i++) {
        if (strcmp(sets[i].name, name) == 0) {
            CHECK_STR(sets[i].format, "parquet");
            source = sets[i].source;
        }
    }
    /* The next one may have become durable, too, without anybody having been told. */
    if (!same_source(source, content_source(&arena, name, version)) &&
        !same_source(source, content_source(&arena, name, version + 1))) {
        print_error("data set %s was acknowledged in version %u and is %s\n", name, version,
                    source == NULL ? "not there" : source);
        CHECK(!"a data set");
    }
    arena_deinit(&arena);
}

static void check_data_sets(const struct ledger *ledger, uint32_t from, uint32_t n, struct store *store)
{
    struct error e = {0};
    struct arena arena = {0};
    const struct data_set *sets;
    uint32_t n_sets;
    uint32_t n_nodes = atomic_load(&ledger->n_nodes);
    const struct fact **last = mem_calloc((size_t)n_nodes * LEDGER_CLIENTS_MAX, sizeof *last);
    for (uint32_t i = from; i < n; i++) {
        const struct fact *fact = &ledger->facts[i];
        if (atomic_load(&fact->is_whole) && fact->kind == FACT_DATA_SET) {
            last[fact->node * LEDGER_CLIENTS_MAX + fact->task] = fact;
        }
    }
    CHECK_ERR(store_data_sets(store, &arena, &sets, &n_sets, &e), ERR_OK);
    for (uint32_t i = 0; i < n_nodes * LEDGER_CLIENTS_MAX; i++) {
        if (last[i] != NULL) {
            check_data_set(sets, n_sets, last[i]->job_id, last[i]->version);
        }
    }
    mem_free(last);
    arena_deinit(&arena);
}

void ledger_check(const struct ledger *ledger, uint32_t from, struct store *store)
{
    uint32_t n = atomic_load(&ledger->n);
    struct seen *recent = mem_calloc(RECENT, sizeof *recent);
    for (uint32_t i = from; i < n; i++) {
        const struct fact *fact = &ledger->facts[i];
        if (atomic_load(&fact->is_whole)) { /* else its process was killed just before it had written it down */
            check_fact(store, recent, fact);
        }
    }
    mem_free(recent);
    check_data_sets(ledger, from, n, store);
}

/* ---- the whole store ---- */

void ledger_check_whole(struct store *store)
{
    struct error e = {0};
    struct arena arena = {0};
    struct job_query query = {.state = -1, .limit = PAGE_JOBS};
    struct page page;
    struct seen seen;
    char after[256];
    struct core *core = client_load(store);
    CHECK(core != NULL);
    core_check(core);
    core_free(core);
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

/* Numbers are the enums of core/ids.h and core/rows.h: job ended >= 2, task running 1, succeeded 2; attempt pending 1,
 * completed 2; event completed 4. */
#define OF_TASK(a, b) #a ".job_id = " #b ".job_id AND " #a ".stage = " #b ".stage AND " #a ".task = " #b ".task"
const char ledger_tables_sql[] =
    "SELECT 'a job without all of its stages', job_id FROM @jobs j WHERE kind >= 0 AND n_stages <> "
    "(SELECT count(*) FROM @stages s WHERE s.job_id = j.job_id) "
    "UNION ALL SELECT 'a stage without its job or without tasks', job_id FROM @stages s WHERE NOT EXISTS (SELECT 1 FROM "
    "@jobs j WHERE j.job_id = s.job_id) OR NOT EXISTS (SELECT 1 FROM @tasks t WHERE t.job_id = s.job_id AND t.stage = "
    "s.stage) "
    "UNION ALL SELECT 'a task without its stage', job_id FROM @tasks t WHERE NOT EXISTS (SELECT 1 FROM @stages s WHERE "
    "s.job_id = t.job_id AND s.stage = t.stage) "
    "UNION ALL SELECT 'a task that has not ended in a job that has', t.job_id FROM @tasks t JOIN @jobs j ON j.job_id = "
    "t.job_id WHERE j.state >= 2 AND t.state < 2 "
    "UNION ALL SELECT 'a job that has not ended although its tasks have', job_id FROM @jobs j WHERE state < 2 AND NOT "
    "EXISTS (SELECT 1 FROM @tasks t WHERE t.job_id = j.job_id AND t.state < 2) "
    "UNION ALL SELECT 'a lease under which nothing runs', job_id FROM @task_leases l WHERE NOT EXISTS (SELECT 1 FROM "
    "@tasks t WHERE " OF_TASK(
        t,
        l) " AND t.state = 1 AND t.attempt_id = l.attempt_id AND t.lease_id = l.lease_token AND "
           "t.last_assigned_node = l.node_id) "
           "UNION ALL SELECT 'a task that runs without a lease', job_id FROM @tasks t WHERE state = 1 AND NOT EXISTS (SELECT 1 "
           "FROM @task_leases l WHERE " OF_TASK(
               l,
               t) ") "
                  "UNION ALL SELECT 'a task that runs without a pending attempt', job_id FROM @tasks t WHERE state = 1 AND NOT EXISTS "
                  "(SELECT 1 FROM @execution_idempotency a WHERE " OF_TASK(
                      a,
                      t) " AND a.attempt_id = t.attempt_id AND a.status = 1 AND "
                         "a.node_id = t.last_assigned_node AND a.idempotency_key = t.idempotency_key) "
                         "UNION ALL SELECT 'a pending attempt that does not run', job_id FROM @execution_idempotency a WHERE status = 1 AND NOT "
                         "EXISTS (SELECT 1 FROM @tasks t WHERE " OF_TASK(
                             t,
                             a) " AND t.attempt_id = a.attempt_id AND t.state = 1) "
                                "UNION ALL SELECT 'a task that succeeded without a completed attempt', job_id FROM @tasks t WHERE state = 2 AND NOT "
                                "EXISTS (SELECT 1 FROM @execution_idempotency a WHERE " OF_TASK(
                                    a,
                                    t) " AND a.attempt_id = t.attempt_id AND a.status = "
                                       "2) "
                                       "UNION ALL SELECT 'a completed attempt of a task that did not succeed by it', job_id FROM @execution_idempotency a "
                                       "WHERE status = 2 AND NOT EXISTS (SELECT 1 FROM @tasks t WHERE " OF_TASK(
                                           t,
                                           a) " AND t.attempt_id = a.attempt_id AND "
                                              "t.state = 2) "
                                              "UNION ALL SELECT 'attempts that are not numbered from 1 on', t.job_id FROM @tasks t WHERE attempt_id <> (SELECT "
                                              "count(*) FROM @execution_idempotency a WHERE " OF_TASK(
                                                  a,
                                                  t) ") "
                                                     "UNION ALL SELECT 'a task that succeeded without an event', job_id FROM @tasks t WHERE state = 2 AND NOT EXISTS "
                                                     "(SELECT 1 FROM @task_events v WHERE " OF_TASK(
                                                         v,
                                                         t) " AND v.attempt_id = t.attempt_id AND v.event_type = 4) "
                                                            "UNION ALL SELECT 'a task that was completed twice', job_id FROM @task_events v WHERE event_type = 4 GROUP BY job_id, "
                                                            "stage, task HAVING count(*) > 1 "
                                                            "UNION ALL SELECT 'events with a gap', '' FROM (SELECT count(*) AS n, max(seq) - min(seq) + 1 AS expected FROM "
                                                            "@task_events) e WHERE n <> expected "
                                                            "UNION ALL SELECT 'a task without its input', job_id FROM @tasks t WHERE inputs IS NULL OR NOT EXISTS (SELECT 1 FROM "
                                                            "@payloads p WHERE p.job_id = t.job_id AND p.digest = t.inputs) "
                                                            "UNION ALL SELECT 'a task that succeeded without its result', job_id FROM @tasks t WHERE state = 2 AND (result IS NULL "
                                                            "OR NOT EXISTS (SELECT 1 FROM @payloads p WHERE p.job_id = t.job_id AND p.digest = t.result)) "
                                                            "UNION ALL SELECT 'bytes that belong to nothing', job_id FROM @payloads p WHERE NOT EXISTS (SELECT 1 FROM @tasks t "
                                                            "WHERE t.job_id = p.job_id AND (t.inputs = p.digest OR t.result = p.digest)) LIMIT 20";

/* ---- looking and waiting ---- */

uint32_t ledger_acknowledged(const struct ledger *ledger, int64_t from_ms, int64_t to_ms)
{
    uint32_t found = 0;
    uint32_t n = atomic_load(&ledger->n);
    for (uint32_t i = 0; i < n; i++) {
        const struct fact *fact = &ledger->facts[i];
        if (atomic_load(&fact->is_whole) && is_acknowledgement(fact->kind)) {
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
