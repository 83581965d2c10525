/*
 * verb_bench.c - how fast is this installation? Figures, always with the conditions that they were made under.
 *
 *   tasks     jobs of tasks that do nothing (sleep 0 ms), submitted by several clients at a time; the time from the first
 *             submit to the moment when the last job is seen to have ended
 *   latency   one job of one task after the other; from the submit to the moment when its end is seen
 *
 * Every task goes the whole way: durable before the submit is answered, leased, run by a worker process, durable again.
 * `commit_ms` is what the same kind of store needs for one small transaction, measured in the same run, so that the
 * latency can be judged by what the disk allows.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/random.h"
#include "cli/client.h"
#include "cli/interrupt.h"
#include "cli/text.h"
#include "cli/value.h"
#include "cli/version.h"
#include "cli/watch.h"
#include "main/private.h"
#include "main/verbs.h"
#include "store/store.h"

#define TASKS_DEFAULT 50000
#define LATENCY_DEFAULT 200
#define WARM_UP_JOBS 5
#define WAIT_MS 30000
#define COMMITS 100
#define COMMITS_PER_TASK 3 /* submit, assignment, completion: none can wait for another */
#define LEADER_TTL_MS 10000
#define SETTINGS_MAX 64

struct bench {
    struct cli *cli;
    struct client_options client;
    struct interrupt *interrupt;
    struct private_cluster cluster;
    bool is_private;
    const char *settings[SETTINGS_MAX];
    uint32_t n_settings;

    /* Of the run of many tasks. */
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
struct bench_client {
    struct bench *bench;
    pthread_t thread;
    char (*job_ids)[UUID_TEXT_BYTES];
    uint32_t n_jobs;
    uint32_t cap_jobs;
    int64_t submitted_us; /* when its last submit was answered */
    int64_t ended_us;
    struct error error;
};

/* ---- one job ---- */

static void write_tree(struct buf *out, uint64_t n)
{
    buf_text(out, "{\"name\":\"bench\",\"tasks\":[");
    for (uint64_t i = 0; i < n; i++) {
        buf_format(out, "%s{\"name\":\"t%" PRIu64 "\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0}}", i > 0 ? "," : "",
                   i);
    }
    buf_text(out, "]}");
}

static enum err submit(const struct bench *bench, struct client *client, const char *job_id, const struct buf *tree,
                       struct error *e)
{
    struct arena arena = {0};
    struct pb_submit_tasks_request *request = wire_new(PB_SUBMIT_TASKS_REQUEST, &arena);
    struct pb_submit_tasks_response *response = NULL;
    request->job_id = (char *)job_id;
    request->tree_json.data = (uint8_t *)tree->data;
    request->tree_json.len = tree->n;
    struct client_call call = {.path = "/capstan.v1.ControlPlane/SubmitTasks",
                               .message = request,
                               .answer = PB_SUBMIT_TASKS_RESPONSE,
                               .cancel = interrupt_cancel(bench->interrupt)};
    enum err err = client_call(client, &call, &arena, &response, e);
    arena_deinit(&arena);
    return err;
}

static enum err await(const struct bench *bench, struct client *client, const char *job_id, struct error *e)
{
    struct arena arena = {0};
    enum err err = ERR_OK;
    for (;;) {
        struct pb_get_query_status_request *request = wire_new(PB_GET_QUERY_STATUS_REQUEST, &arena);
        struct pb_get_query_status_response *response = NULL;
        request->query_id = (char *)job_id;
        request->wait_ms = WAIT_MS;
        struct client_call call = {.path = "/capstan.v1.ControlPlane/GetQueryStatus",
                                   .message = request,
                                   .answer = PB_GET_QUERY_STATUS_RESPONSE,
                                   .wait_ms = WAIT_MS,
                                   .cancel = interrupt_cancel(bench->interrupt)};
        err = client_call(client, &call, &arena, &response, e);
        if (err != ERR_OK || response->status == NULL || query_state_is_terminal(response->status->state)) {
            if (err == ERR_OK && (response->status == NULL ||
                                  response->status->state != CAPSTAN__V1__QUERY_STATE__QUERY_STATE_SUCCEEDED)) {
                err = error_set(e, ERR_INTERNAL, "job %s did not succeed: %s", job_id,
                                response->status == NULL ? "" : response->status->message);
            }
            break;
        }
        arena_reset(&arena);
    }
    arena_deinit(&arena);
    return err;
}

/* ---- many tasks ---- */

static enum err work(struct bench_client *c, struct client *client, struct error *e)
{
    struct bench *bench = c->bench;
    enum err err = ERR_OK;
    for (;;) {
        uint64_t i = atomic_fetch_add(&bench->next_job, 1);
        if (i >= bench->n_jobs || atomic_load(&bench->has_failed)) {
            break;
        }
        c->job_ids = mem_grow(c->job_ids, &c->cap_jobs, c->n_jobs + 1, sizeof *c->job_ids);
        random_uuid7(c->job_ids[c->n_jobs]);
        const struct buf *tree = i + 1 == bench->n_jobs ? &bench->last_tree : &bench->tree;
        err = submit(bench, client, c->job_ids[c->n_jobs], tree, e);
        if (err != ERR_OK) {
            return err;
        }
        c->n_jobs++;
    }
    c->submitted_us = clock_mono_us();
    for (uint32_t i = 0; i < c->n_jobs && err == ERR_OK && !atomic_load(&bench->has_failed); i++) {
        err = await(bench, client, c->job_ids[i], e);
    }
    c->ended_us = clock_mono_us();
    return err;
}

static void *run_client(void *context)
{
    struct bench_client *c = context;
    struct client *client = NULL;
    enum err err = client_open(&c->bench->client, &client, &c->error);
    if (err == ERR_OK) {
        err = work(c, client, &c->error);
    }
    if (err != ERR_OK) {
        c->error.code = err;
        atomic_store(&c->bench->has_failed, true);
    }
    client_close(client);
    return NULL;
}

struct tasks_figures {
    double tasks_per_s;
    double submit_per_s;
    double seconds;
};

static double seconds_from(int64_t began_us, int64_t ended_us)
{
    return ended_us > began_us ? (double)(ended_us - began_us) / 1e6 : 1e-6;
}

static enum err measure_tasks(struct bench *bench, struct tasks_figures *out, struct error *e)
{
    struct bench_client *clients = mem_calloc(bench->n_clients, sizeof *clients);
    int64_t submitted_us = 0;
    int64_t ended_us = 0;
    enum err err = ERR_OK;
    bench->n_jobs = (bench->n_tasks + bench->batch - 1) / bench->batch;
    write_tree(&bench->tree, bench->batch);
    write_tree(&bench->last_tree, bench->n_tasks - (bench->n_jobs - 1) * bench->batch);
    bench->began_us = clock_mono_us();
    for (uint32_t i = 0; i < bench->n_clients; i++) {
        clients[i].bench = bench;
        int failed = pthread_create(&clients[i].thread, NULL, run_client, &clients[i]);
        ASSERT(failed == 0);
    }
    for (uint32_t i = 0; i < bench->n_clients; i++) {
        pthread_join(clients[i].thread, NULL);
        submitted_us = clients[i].submitted_us > submitted_us ? clients[i].submitted_us : submitted_us;
        ended_us = clients[i].ended_us > ended_us ? clients[i].ended_us : ended_us;
        if (err == ERR_OK && clients[i].error.code != ERR_OK) {
            err = clients[i].error.code;
            *e = clients[i].error;
        }
        mem_free(clients[i].job_ids);
    }
    if (err == ERR_OK) {
        out->seconds = seconds_from(bench->began_us, ended_us);
        out->tasks_per_s = (double)bench->n_tasks / out->seconds;
        out->submit_per_s = (double)bench->n_tasks / seconds_from(bench->began_us, submitted_us);
    }
    mem_free(clients);
    buf_deinit(&bench->tree);
    buf_deinit(&bench->last_tree);
    return err;
}

/* ---- one task after the other ---- */

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

/* The value that `part` of all are not above, in milliseconds. The array gets sorted. */
static double percentile_ms(int64_t *us, size_t n, double part)
{
    qsort(us, n, sizeof *us, by_size);
    size_t i = (size_t)(part * (double)n);
    return (double)us[i < n ? i : n - 1] / 1000;
}

/* One small row, durable. */
static enum err commit_one(struct store *store, const struct fence *fence, const char *name, uint32_t i,
                           struct error *e)
{
    char id[64];
    snprintf(id, sizeof id, "%s-%u", name, i);
    struct row_job job = {.row.kind = ROW_JOB,
                          .is_new = true,
                          .priority = 2,
                          .kind = JOB_KIND_TREE,
                          .job_id = id,
                          .name = "bench-commit",
                          .submitted_at_ms = clock_wall_ms(),
                          .state = JOB_SUCCEEDED,
                          .finished_at_ms = clock_wall_ms()};
    const struct row *rows = &job.row;
    struct batch batch = {.rows = &rows, .n_rows = 1};
    return store_commit(store, fence, &batch, e);
}

/* The bare commits that the latency is compared with. */
struct bare {
    struct store *store; /* NULL: there is none */
    struct fence fence;
    char name[UUID_TEXT_BYTES];
    int64_t us[COMMITS];
    uint32_t n;
};

static enum err bare_open(struct bare *bare, const char *url, struct error *e)
{
    struct arena arena = {0};
    struct leader leader;
    struct leader_claim claim = {.node_id = "bench", .address = "127.0.0.1:0", .ttl_ms = LEADER_TTL_MS};
    enum err err = store_open(url, &bare->store, e);
    random_bytes(&claim.token, sizeof claim.token);
    random_uuid7(bare->name);
    if (err == ERR_OK) {
        err = store_migrate(bare->store, STORE_NEWEST, e);
    }
    if (err == ERR_OK) {
        err = store_lead(bare->store, &claim, &arena, &leader, e);
    }
    if (err == ERR_OK) {
        bare->fence = leader.fence;
    }
    arena_deinit(&arena);
    return err;
}

static enum err bare_commit(struct bare *bare, struct error *e)
{
    if (bare->store == NULL || bare->n == COMMITS) {
        return ERR_OK;
    }
    int64_t began_us = clock_mono_us();
    enum err err = commit_one(bare->store, &bare->fence, bare->name, bare->n, e);
    bare->us[bare->n++] = clock_mono_us() - began_us;
    return err;
}

static void bare_close(struct bare *bare)
{
    if (bare->store != NULL) {
        (void)!store_resign(bare->store, &bare->fence, NULL); /* else the leadership runs out by itself */
        store_close(bare->store);
        bare->store = NULL;
    }
}

/* Disks are busy at one moment and idle at the next, so the bare commits are made in between. */
static enum err measure_latency(struct bench *bench, struct bare *bare, int64_t *us, struct error *e)
{
    struct client *client = NULL;
    struct buf tree = {0};
    char job_id[UUID_TEXT_BYTES];
    enum err err = client_open(&bench->client, &client, e);
    write_tree(&tree, 1);
    for (uint64_t i = 0; i < bench->n_tasks + WARM_UP_JOBS && err == ERR_OK; i++) {
        int64_t began_us = clock_mono_us();
        random_uuid7(job_id);
        err = submit(bench, client, job_id, &tree, e);
        if (err == ERR_OK) {
            err = await(bench, client, job_id, e);
        }
        if (i >= WARM_UP_JOBS) {
            us[i - WARM_UP_JOBS] = clock_mono_us() - began_us;
        }
        if (err == ERR_OK) {
            err = bare_commit(bare, e);
        }
    }
    client_close(client);
    buf_deinit(&tree);
    return err;
}

/* ---- conditions ---- */

/* "sqlite" or "postgres": the address itself may have a password in it. */
static const char *store_kind(const struct bench *bench)
{
    if (!bench->is_private) {
        return "unknown";
    }
    return strncmp(bench->cluster.store, "sqlite:", 7) == 0 ? "sqlite" : "postgres";
}

/* The workers of the cluster and their slots together; for a cluster that is not ours, as it tells them. */
static void count_workers(const struct bench *bench, uint32_t *out_workers, uint32_t *out_slots)
{
    struct client *client = NULL;
    struct arena arena = {0};
    struct pb_list_nodes_response *nodes = NULL;
    struct client_call call = {.path = "/capstan.v1.Cluster/ListNodes",
                               .message = wire_new(PB_LIST_NODES_REQUEST, &arena),
                               .answer = PB_LIST_NODES_RESPONSE};
    if (client_open(&bench->client, &client, NULL) == ERR_OK &&
        client_call(client, &call, &arena, &nodes, NULL) == ERR_OK) {
        for (size_t i = 0; i < nodes->n_nodes; i++) {
            bool is_live = strcmp(nodes->nodes[i]->status, "healthy") == 0;
            *out_workers += is_live ? 1 : 0;
            *out_slots += is_live ? nodes->nodes[i]->slots : 0;
        }
    }
    client_close(client);
    arena_deinit(&arena);
}

struct conditions {
    uint32_t workers;
    uint32_t slots;
};

static void write_conditions_json(const struct bench *bench, const struct conditions *c, struct buf *out)
{
    buf_format(out, ",\"tasks\":%" PRIu64 ",\"store\":\"%s\",\"workers\":%u,\"slots\":%u,\"cores\":%ld", bench->n_tasks,
               store_kind(bench), c->workers, c->slots, sysconf(_SC_NPROCESSORS_ONLN));
    buf_format(out, ",\"version\":\"%s\",\"private\":%s,\"limits\":", CAPSTAN_VERSION,
               bench->is_private ? "true" : "false");
    if (!bench->is_private) {
        buf_text(out, "null}\n");
        return;
    }
    buf_char(out, '{');
    for (uint32_t i = 0; i < bench->n_settings; i++) {
        size_t n = strcspn(bench->settings[i], "=");
        buf_text(out, i > 0 ? "," : "");
        json_write_bytes(out, bench->settings[i], n);
        buf_format(out, ":%s", bench->settings[i] + n + 1);
    }
    buf_text(out, "}}\n");
}

static void write_conditions(const struct bench *bench, const struct conditions *c, struct buf *out)
{
    buf_format(out, "  store         %s\n  workers       %u with %u slots together\n  cores         %ld",
               store_kind(bench), c->workers, c->slots, sysconf(_SC_NPROCESSORS_ONLN));
    buf_text(out, bench->is_private ? ", for the coordinator, the store, the workers and the clients together\n"
                                    : " where the clients run\n");
    for (uint32_t i = 0; i < bench->n_settings && bench->is_private; i++) {
        buf_format(out, "  %-13s %s\n", i == 0 ? "settings" : "", bench->settings[i]);
    }
}

static void print(const struct bench *bench, const struct buf *text)
{
    fwrite(text->data, 1, text->n, bench->cli->out);
}

static void print_tasks(const struct bench *bench, const struct conditions *c, const struct tasks_figures *f)
{
    struct buf out = {0};
    if (bench->cli->wants_json) {
        buf_format(&out, "{\"bench\":\"tasks\",\"tasks_per_s\":%.1f,\"submit_per_s\":%.1f,\"seconds\":%.3f",
                   f->tasks_per_s, f->submit_per_s, f->seconds);
        buf_format(&out, ",\"batch\":%" PRIu64 ",\"clients\":%u", bench->batch, bench->n_clients);
        write_conditions_json(bench, c, &out);
    } else {
        buf_text(&out, "tasks per second    ");
        text_count(&out, (uint64_t)f->tasks_per_s);
        buf_text(&out, "   from the first submit to the last end\nsubmits per second  ");
        text_count(&out, (uint64_t)f->submit_per_s);
        buf_text(&out, "   tasks, until the last submit was answered\n\nconditions:\n  tasks         ");
        text_count(&out, bench->n_tasks);
        buf_format(&out, " that do nothing, in jobs of %" PRIu64 ", by %u clients, in %.2f s\n", bench->batch,
                   bench->n_clients, f->seconds);
        write_conditions(bench, c, &out);
    }
    print(bench, &out);
    buf_deinit(&out);
}

struct latency_figures {
    double p50_ms;
    double p99_ms;
    double commit_ms; /* below 0: not measured */
};

static void print_latency(const struct bench *bench, const struct conditions *c, const struct latency_figures *f)
{
    struct buf out = {0};
    if (bench->cli->wants_json) {
        buf_format(&out, "{\"bench\":\"latency\",\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"commit_ms\":", f->p50_ms, f->p99_ms);
        if (f->commit_ms >= 0) {
            buf_format(&out, "%.3f,\"ratio\":%.2f", f->commit_ms, f->p50_ms / (COMMITS_PER_TASK * f->commit_ms));
        } else {
            buf_text(&out, "null,\"ratio\":null");
        }
        buf_format(&out, ",\"commits_per_task\":%d", COMMITS_PER_TASK);
        write_conditions_json(bench, c, &out);
    } else {
        buf_format(&out, "p50     %8.3f ms   from the submit to the end being seen\np99     %8.3f ms\n", f->p50_ms,
                   f->p99_ms);
        if (f->commit_ms >= 0) {
            buf_format(&out, "commit  %8.3f ms   a bare commit on the same store, median of %d\n", f->commit_ms,
                       COMMITS);
            buf_format(&out, "ratio   %8.2f      of p50 to the %d commits that a task needs\n",
                       f->p50_ms / (COMMITS_PER_TASK * f->commit_ms), COMMITS_PER_TASK);
        }
        buf_format(&out, "\nconditions:\n  tasks         %" PRIu64 " that do nothing, one after the other\n",
                   bench->n_tasks);
        write_conditions(bench, c, &out);
    }
    print(bench, &out);
    buf_deinit(&out);
}

/* ---- start and end ---- */

static enum err start(struct bench *bench, struct error *e)
{
    struct cli *cli = bench->cli;
    uint32_t n = 0;
    const char *const *given = cli_list(cli, "set", &n);
    bench->is_private = !cli_is_given(cli, "server");
    if (!bench->is_private) {
        return cli_client_options(cli, &bench->client, e);
    }
    /* The defaults are made for tasks that do something; these do not stand in the way of tasks that do nothing. */
    bench->settings[bench->n_settings++] = "max_concurrent_tasks_per_worker=1000";
    bench->settings[bench->n_settings++] = "max_concurrent_tasks_per_query=100000";
    for (uint32_t i = 0; i < n && bench->n_settings < SETTINGS_MAX; i++) {
        bench->settings[bench->n_settings++] = given[i];
    }
    struct private_options options = {.workers = (uint32_t)cli_number(cli, "workers"),
                                      .slots = (uint32_t)cli_number(cli, "slots"),
                                      .store = cli_text(cli, "store"),
                                      .settings = bench->settings,
                                      .n_settings = bench->n_settings};
    enum err err = private_start(&cli->arena, &options, &bench->cluster, e);
    bench->client =
        (struct client_options){.servers = bench->cluster.address, .patience_ms = cli_number(cli, "timeout")};
    return err;
}

static enum err bench_tasks(struct bench *bench, struct error *e)
{
    struct tasks_figures figures = {0};
    struct conditions conditions = {0};
    count_workers(bench, &conditions.workers, &conditions.slots);
    enum err err = measure_tasks(bench, &figures, e);
    private_stop(&bench->cluster);
    if (err == ERR_OK) {
        print_tasks(bench, &conditions, &figures);
    }
    return err;
}

/*
 * On SQLite the bare commits go to a second file beside the first. A database of PostgreSQL has one leader at a time, so
 * there they follow when the cluster has stopped.
 */
static enum err bench_latency(struct bench *bench, struct error *e)
{
    struct latency_figures figures = {.commit_ms = -1};
    struct conditions conditions = {0};
    struct bare *bare = mem_calloc(1, sizeof *bare);
    int64_t *us = mem_calloc(bench->n_tasks, sizeof *us);
    bool is_sqlite = bench->is_private && strcmp(store_kind(bench), "sqlite") == 0;
    enum err err = ERR_OK;
    count_workers(bench, &conditions.workers, &conditions.slots);
    if (is_sqlite) {
        err = bare_open(bare, arena_format(&bench->cli->arena, "sqlite:%s/commit.db", bench->cluster.folder), e);
    }
    if (err == ERR_OK) {
        err = measure_latency(bench, bare, us, e);
    }
    private_stop(&bench->cluster);
    if (err == ERR_OK && bench->is_private && !is_sqlite) {
        err = bare_open(bare, bench->cluster.store, e);
    }
    while (err == ERR_OK && bare->store != NULL && bare->n < COMMITS) {
        err = bare_commit(bare, e);
    }
    if (err == ERR_OK) {
        figures.p50_ms = percentile_ms(us, bench->n_tasks, 0.5);
        figures.p99_ms = percentile_ms(us, bench->n_tasks, 0.99);
        figures.commit_ms = bare->n > 0 ? percentile_ms(bare->us, bare->n, 0.5) : -1;
        print_latency(bench, &conditions, &figures);
    }
    bare_close(bare);
    mem_free(bare);
    mem_free(us);
    return err;
}

int verb_bench(struct cli *cli)
{
    struct bench bench = {.cli = cli, .cluster.up.output = -1};
    struct error e = {0};
    bool is_tasks = strcmp(cli->args[0], "tasks") == 0;
    int64_t n_tasks = cli_number(cli, "tasks");
    int code = EXIT_DONE;
    bench.interrupt = interrupt_begin();
    bench.n_tasks = (uint64_t)(n_tasks > 0 ? n_tasks : is_tasks ? TASKS_DEFAULT : LATENCY_DEFAULT);
    bench.batch = (uint64_t)cli_number(cli, "batch");
    bench.batch = bench.batch < bench.n_tasks ? bench.batch : bench.n_tasks;
    bench.n_clients = (uint32_t)cli_number(cli, "clients");
    enum err err = start(&bench, &e);
    if (err == ERR_OK) {
        err = is_tasks ? bench_tasks(&bench, &e) : bench_latency(&bench, &e);
    }
    private_stop(&bench.cluster); /* once more does no harm */
    if (err != ERR_OK) {
        code = interrupt_is_on(bench.interrupt) ? EXIT_INTERRUPTED : cli_fail(cli, &e);
    }
    if (cli_flag(cli, "keep") && bench.cluster.folder != NULL) {
        fprintf(cli->err, "kept: %s\n", bench.cluster.folder);
    } else {
        private_remove(&bench.cluster);
    }
    interrupt_end(bench.interrupt);
    return code;
}
