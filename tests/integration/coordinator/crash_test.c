/*
 * kill -9 at any instant. A child process runs a coordinator and, beside it, a few clients that submit jobs, take tasks
 * and report them done; whatever is acknowledged goes down a pipe. The test kills the child at a random moment, loads
 * what the store has, and looks for everything that came up the pipe.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/prng.h"
#include "integration/coordinator/client.h"
#include "integration/store/subject.h"

#define CLIENTS 4
#define ROUNDS_DEFAULT 20

enum fact_kind { FACT_SUBMITTED, FACT_DONE };

/* Something that was acknowledged. Small enough that the pipe takes it whole. */
struct fact {
    enum fact_kind kind;
    uint32_t task;
    char job_id[40];
};

/* ---- the child ---- */

struct client {
    struct coordinator *c;
    int pipe;
    uint32_t round;
    uint32_t index;
};

static void tell(const struct client *client, enum fact_kind kind, const char *job_id, uint32_t task)
{
    struct fact fact = {.kind = kind, .task = task};
    snprintf(fact.job_id, sizeof fact.job_id, "%s", job_id);
    if (write(client->pipe, &fact, sizeof fact) != (ssize_t)sizeof fact) {
        _exit(3);
    }
}

static void *run_client(void *context)
{
    struct client *client = context;
    char worker_id[32], incarnation[32];
    snprintf(worker_id, sizeof worker_id, "w%u", client->index);
    snprintf(incarnation, sizeof incarnation, "i%u-%u", client->round, client->index);
    client_register(client->c, worker_id, incarnation);
    for (uint32_t i = 0;; i++) {
        char job_id[40];
        snprintf(job_id, sizeof job_id, "r%u-c%u-%u", client->round, client->index, i);
        struct client_answer answer = client_submit(client->c, job_id, 1 + i % 3);
        if (answer.err == ERR_OK) {
            tell(client, FACT_SUBMITTED, job_id, 0);
        }
        answer = client_poll(client->c, worker_id, incarnation, 3);
        for (uint32_t t = 0; t < answer.n_tasks; t++) {
            struct client_answer done = client_succeed(client->c, worker_id, incarnation, &answer.tasks[t]);
            if (done.err == ERR_OK && done.refusal == REFUSE_NONE) {
                tell(client, FACT_DONE, answer.tasks[t].job_id, answer.tasks[t].task);
            }
        }
    }
    return NULL;
}

static _Noreturn void run_child(const char *url, int pipe, uint32_t round)
{
    static struct client clients[CLIENTS];
    struct coordinator_options options = {.store_url = url,
                                          .node_id = "n1",
                                          .address = "127.0.0.1:7400",
                                          .config = core_config_default(),
                                          .leader_ttl_ms = 300};
    struct coordinator *c = NULL;
    if (coordinator_start(&options, &c, NULL) != ERR_OK || !client_await_leader(c, 20000)) {
        _exit(2);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        pthread_t thread;
        clients[i] = (struct client){c, pipe, round, i};
        pthread_create(&thread, NULL, run_client, &clients[i]);
    }
    for (;;) {
        pause();
    }
}

/* ---- the test ---- */

struct facts {
    struct fact *items;
    uint32_t n, cap;
};

/* Reads until so many facts are there, kills the child, reads what is left in the pipe. */
static void watch(pid_t child, int pipe, uint32_t enough, struct facts *facts)
{
    struct fact fact;
    bool killed = false;
    while (read(pipe, &fact, sizeof fact) == (ssize_t)sizeof fact) {
        facts->items = mem_grow(facts->items, &facts->cap, facts->n + 1, sizeof *facts->items);
        facts->items[facts->n++] = fact;
        if (!killed && --enough == 0) {
            kill(child, SIGKILL);
            killed = true;
        }
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(killed); /* it did not end by itself */
}

struct seen {
    const char *job_id;
    uint32_t n_tasks, n_stages, tasks_expected, stages_expected;
    uint32_t done; /* bit per task */
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
        seen->done |= task->state == TASK_SUCCEEDED ? 1u << task->ref.task : 0;
    }
}

static void check_fact(struct subject *s, struct store *store, const struct fact *fact)
{
    struct seen seen = {.job_id = fact->job_id};
    CHECK_ERR(store_load_job(store, fact->job_id, see_row, &seen, &s->e), ERR_OK);
    CHECK_UINT(seen.n_stages, seen.stages_expected);
    CHECK_UINT(seen.n_tasks, seen.tasks_expected);
    if (fact->kind == FACT_DONE) {
        CHECK((seen.done & 1u << fact->task) != 0);
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

static struct core *load(struct subject *s, struct store *store)
{
    struct core_config config = core_config_default();
    struct loading loading = {.core = core_new(&config, 7), .input = {.now_ms = INT64_C(2000000000000)}};
    CHECK_ERR(store_load(store, load_row_into, &loading, &s->e), ERR_OK);
    struct command command = {.kind = CMD_LOADED};
    core_step(loading.core, &loading.input, &command, &loading.fx);
    effects_deinit(&loading.fx);
    return loading.core;
}

static void check_whole(struct subject *s, struct store *store)
{
    char why[256] = "";
    struct core *a = load(s, store);
    struct core *b = load(s, store);
    core_check(a);
    if (!core_equal(a, b, why, sizeof why)) {
        printf("%s\n", why);
        CHECK(!"two loads are equal");
    }
    core_free(a);
    core_free(b);
}

static uint32_t count_rounds(void)
{
    const char *text = getenv("CAPSTAN_CRASH_ROUNDS");
    return text != NULL ? (uint32_t)strtoul(text, NULL, 10) : ROUNDS_DEFAULT;
}

CONTRACT_OF_FILES(nothing_acknowledged_is_missing_after_kill_9)
{
    struct prng prng;
    struct facts facts = {0};
    struct store *store = subject_open(s);
    CHECK_ERR(store_migrate(store, STORE_NEWEST, &s->e), ERR_OK);
    prng_init(&prng, 42);
    for (uint32_t round = 0; round < count_rounds(); round++) {
        int ends[2];
        CHECK_INT(pipe(ends), 0);
        uint32_t first = facts.n;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            close(ends[0]);
            run_child(s->url, ends[1], round);
        }
        close(ends[1]);
        watch(child, ends[0], (uint32_t)prng_range(&prng, 1, 120), &facts);
        close(ends[0]);
        for (uint32_t i = first; i < facts.n; i++) {
            check_fact(s, store, &facts.items[i]);
        }
        check_whole(s, store);
    }
    for (uint32_t i = 0; i < facts.n; i++) { /* nor does it go missing later */
        check_fact(s, store, &facts.items[i]);
    }
    mem_free(facts.items);
}
