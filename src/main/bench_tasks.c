/*
 * bench_tasks.c - tasks per second: jobs of tasks that do nothing (sleep 0 ms), submitted by several clients at a time.
 *
 * The time is that from the first submit to the moment when the last job is seen to have ended. Every task goes the whole
 * way: durable before the submit is answered, leased, run by a worker process, durable again.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "cli/text.h"
#include "main/bench.h"
#include "main/bench_tree.h"

#define TASKS_DEFAULT 50000
#define SLOTS_DEFAULT 256

struct many {
    struct bench *bench;
    uint64_t n_tasks;
    uint64_t batch;
    uint32_t n_clients;
    uint64_t n_jobs;
    struct buf tree;
    struct buf last_tree; /* of the last job, which may be smaller */
    atomic_uint_fast64_t next_job;
    atomic_bool has_failed;
    int64_t began_us;
};

/* One thread that submits and waits. */
struct many_client {
    struct many *many;
    pthread_t thread;
    char (*job_ids)[UUID_TEXT_BYTES];
    uint32_t n_jobs;
    uint32_t cap_jobs;
    int64_t submitted_us; /* when its last submit was answered */
    int64_t ended_us;
    struct error error;
};

static enum err work(struct many_client *c, struct client *client, struct error *e)
{
    struct many *many = c->many;
    enum err err = ERR_OK;
    for (;;) {
        uint64_t i = atomic_fetch_add(&many->next_job, 1);
        if (i >= many->n_jobs || atomic_load(&many->has_failed)) {
            break;
        }
        c->job_ids = mem_grow(c->job_ids, &c->cap_jobs, c->n_jobs + 1, sizeof *c->job_ids);
        random_uuid7(c->job_ids[c->n_jobs]);
        const struct buf *tree = i + 1 == many->n_jobs ? &many->last_tree : &many->tree;
        err = bench_submit_tree(many->bench, client, c->job_ids[c->n_jobs], tree, e);
        if (err != ERR_OK) {
            return err;
        }
        c->n_jobs++;
    }
    c->submitted_us = clock_mono_us();
    for (uint32_t i = 0; i < c->n_jobs && err == ERR_OK && !atomic_load(&many->has_failed); i++) {
        err = bench_await(many->bench, client, c->job_ids[i], e);
    }
    c->ended_us = clock_mono_us();
    return err;
}

static void *run_client(void *context)
{
    struct many_client *c = context;
    struct client *client = NULL;
    enum err err = client_open(&c->many->bench->client, &client, &c->error);
    if (err == ERR_OK) {
        err = work(c, client, &c->error);
    }
    if (err != ERR_OK) {
        c->error.code = err;
        atomic_store(&c->many->has_failed, true);
    }
    client_close(client);
    return NULL;
}

struct tasks_figures {
    double tasks_per_s;
    double submit_per_s;
    double seconds;
    struct bench_cpu cpu; /* during that time */
};

static double seconds_from(int64_t began_us, int64_t ended_us)
{
    return ended_us > began_us ? (double)(ended_us - began_us) / 1e6 : 1e-6;
}

static enum err measure(struct many *many, struct tasks_figures *out, struct error *e)
{
    struct many_client *clients = mem_calloc(many->n_clients, sizeof *clients);
    int64_t submitted_us = 0;
    int64_t ended_us = 0;
    enum err err = ERR_OK;
    many->n_jobs = (many->n_tasks + many->batch - 1) / many->batch;
    bench_write_tree(&many->tree, many->batch);
    bench_write_tree(&many->last_tree, many->n_tasks - (many->n_jobs - 1) * many->batch);
    struct bench_cpu before = bench_cpu(many->bench);
    many->began_us = clock_mono_us();
    for (uint32_t i = 0; i < many->n_clients; i++) {
        clients[i].many = many;
        int failed = pthread_create(&clients[i].thread, NULL, run_client, &clients[i]);
        ASSERT(failed == 0);
    }
    for (uint32_t i = 0; i < many->n_clients; i++) {
        pthread_join(clients[i].thread, NULL);
        submitted_us = clients[i].submitted_us > submitted_us ? clients[i].submitted_us : submitted_us;
        ended_us = clients[i].ended_us > ended_us ? clients[i].ended_us : ended_us;
        if (err == ERR_OK && clients[i].error.code != ERR_OK) {
            err = clients[i].error.code;
            *e = clients[i].error;
        }
        mem_free(clients[i].job_ids);
    }
    struct bench_cpu after = bench_cpu(many->bench);
    if (err == ERR_OK) {
        out->cpu = (struct bench_cpu){.client_ms = after.client_ms - before.client_ms,
                                      .coordinator_ms = after.coordinator_ms - before.coordinator_ms,
                                      .workers_ms = after.workers_ms - before.workers_ms};
        out->seconds = seconds_from(many->began_us, ended_us);
        out->tasks_per_s = (double)many->n_tasks / out->seconds;
        out->submit_per_s = (double)many->n_tasks / seconds_from(many->began_us, submitted_us);
    }
    mem_free(clients);
    buf_deinit(&many->tree);
    buf_deinit(&many->last_tree);
    return err;
}

/* Processor time per task, and which share of all of it; that of a cluster that is somebody else's is not known. */
static void write_cpu(const struct many *many, const struct bench_cpu *cpu, struct buf *out)
{
    const struct {
        const char *name;
        double ms;
        bool is_known;
    } parts[] = {{"client", cpu->client_ms, true},
                 {"coordinator", cpu->coordinator_ms, many->bench->is_private},
                 {"workers", cpu->workers_ms, many->bench->is_private}};
    double all_ms = cpu->client_ms + cpu->coordinator_ms + cpu->workers_ms;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        double us = parts[i].ms * 1000 / (double)many->n_tasks;
        if (many->bench->cli->wants_json && parts[i].is_known) {
            buf_format(out, ",\"%s_cpu_us\":%.2f", parts[i].name, us);
        } else if (many->bench->cli->wants_json) {
            buf_format(out, ",\"%s_cpu_us\":null", parts[i].name);
        } else if (parts[i].is_known) {
            buf_format(out, "%-20s%-6s %6.1f us per task", i == 0 ? "processor time" : "", "", us);
            buf_format(out, ", %2.0f %%: %s\n", all_ms > 0 ? 100 * parts[i].ms / all_ms : 0, parts[i].name);
        }
    }
}

static void print_figures(const struct many *many, const struct tasks_figures *f)
{
    const struct bench *bench = many->bench;
    struct buf out = {0};
    if (bench->cli->wants_json) {
        buf_format(&out, "{\"bench\":\"tasks\",\"tasks_per_s\":%.1f,\"submit_per_s\":%.1f,\"seconds\":%.3f",
                   f->tasks_per_s, f->submit_per_s, f->seconds);
        buf_format(&out, ",\"batch\":%" PRIu64 ",\"clients\":%u", many->batch, many->n_clients);
        buf_format(&out, ",\"tasks\":%" PRIu64, many->n_tasks);
        write_cpu(many, &f->cpu, &out);
        buf_char(&out, ',');
        bench_write_conditions_json(bench, &out);
        buf_text(&out, "}\n");
    } else {
        buf_text(&out, "tasks per second    ");
        text_count(&out, (uint64_t)f->tasks_per_s);
        buf_text(&out, "   from the first submit to the last end\nsubmits per second  ");
        text_count(&out, (uint64_t)f->submit_per_s);
        buf_text(&out, "   tasks, until the last submit was answered\n");
        write_cpu(many, &f->cpu, &out);
        buf_text(&out, "\nconditions:\n  tasks         ");
        text_count(&out, many->n_tasks);
        buf_format(&out, " that do nothing, in jobs of %" PRIu64 ", by %u clients, in %.2f s\n", many->batch,
                   many->n_clients, f->seconds);
        bench_write_conditions(bench, &out);
    }
    bench_print(bench, &out);
    buf_deinit(&out);
}

enum err bench_tasks(struct bench *bench, struct error *e)
{
    /* The defaults are made for tasks that do something; these do not stand in the way of tasks that do nothing. */
    static const char *const settings[] = {BENCH_TREE_SETTINGS};
    struct cli *cli = bench->cli;
    int64_t n_tasks = cli_number(cli, "tasks");
    int64_t slots = cli_number(cli, "slots");
    struct tasks_figures figures = {0};
    struct bench_shape shape = {.workers = (uint32_t)cli_number(cli, "workers"),
                                .slots = (uint32_t)(slots > 0 ? slots : SLOTS_DEFAULT),
                                .settings = settings,
                                .n_settings = ARRAY_LEN(settings)};
    struct many many = {.bench = bench,
                        .n_tasks = (uint64_t)(n_tasks > 0 ? n_tasks : TASKS_DEFAULT),
                        .batch = (uint64_t)cli_number(cli, "batch"),
                        .n_clients = (uint32_t)cli_number(cli, "clients")};
    many.batch = many.batch < many.n_tasks ? many.batch : many.n_tasks;
    enum err err = bench_start(bench, &shape, e);
    if (err == ERR_OK) {
        err = measure(&many, &figures, e);
    }
    bench_stop(bench);
    if (err == ERR_OK) {
        print_figures(&many, &figures);
    }
    return err;
}
