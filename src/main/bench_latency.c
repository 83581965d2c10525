/*
 * bench_latency.c - one job of one task after the other: from the submit to the moment when its end is seen.
 *
 * `commit_ms` is what the same kind of store needs for one small transaction, measured in the same run, so that the
 * latency can be judged by what the disk allows.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "main/bench.h"
#include "main/bench_tree.h"
#include "store/store.h"

#define LATENCY_DEFAULT 200
#define SLOTS_DEFAULT 256
#define WARM_UP_JOBS 5
#define COMMITS 100
#define COMMITS_PER_TASK 3 /* submit, assignment, completion: none can wait for another */
#define LEADER_TTL_MS 10000

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
static enum err measure(struct bench *bench, uint64_t n_tasks, struct bare *bare, int64_t *us, struct error *e)
{
    struct client *client = NULL;
    struct buf tree = {0};
    char job_id[UUID_TEXT_BYTES];
    enum err err = client_open(&bench->client, &client, e);
    bench_write_tree(&tree, 1);
    for (uint64_t i = 0; i < n_tasks + WARM_UP_JOBS && err == ERR_OK; i++) {
        int64_t began_us = clock_mono_us();
        random_uuid7(job_id);
        err = bench_submit_tree(bench, client, job_id, &tree, e);
        if (err == ERR_OK) {
            err = bench_await(bench, client, job_id, e);
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

struct latency_figures {
    double p50_ms;
    double p99_ms;
    double commit_ms; /* below 0: not measured */
};

static void print_figures(const struct bench *bench, uint64_t n_tasks, const struct latency_figures *f)
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
        buf_format(&out, ",\"tasks\":%" PRIu64 ",", n_tasks);
        bench_write_conditions_json(bench, &out);
        buf_text(&out, "}\n");
    } else {
        buf_format(&out, "p50     %8.3f ms   from the submit to the end being seen\np99     %8.3f ms\n", f->p50_ms,
                   f->p99_ms);
        if (f->commit_ms >= 0) {
            buf_format(&out, "commit  %8.3f ms   a bare commit on the same store, median of %d\n", f->commit_ms,
                       COMMITS);
            buf_format(&out, "ratio   %8.2f      of p50 to the %d commits that a task needs\n",
                       f->p50_ms / (COMMITS_PER_TASK * f->commit_ms), COMMITS_PER_TASK);
        }
        buf_format(&out, "\nconditions:\n  tasks         %" PRIu64 " that do nothing, one after the other\n", n_tasks);
        bench_write_conditions(bench, &out);
    }
    bench_print(bench, &out);
    buf_deinit(&out);
}

/*
 * On SQLite the bare commits go to a second file beside the first. A database of PostgreSQL has one leader at a time, so
 * there they follow when the cluster has stopped.
 */
static enum err measure_with_commits(struct bench *bench, uint64_t n_tasks, struct bare *bare, int64_t *us,
                                     struct error *e)
{
    bool is_sqlite = bench->is_private && strcmp(bench_store_kind(bench), "sqlite") == 0;
    enum err err = ERR_OK;
    if (is_sqlite) {
        err = bare_open(bare, arena_format(&bench->cli->arena, "sqlite:%s/commit.db", bench->cluster.folder), e);
    }
    if (err == ERR_OK) {
        err = measure(bench, n_tasks, bare, us, e);
    }
    bench_stop(bench);
    if (err == ERR_OK && bench->is_private && !is_sqlite) {
        err = bare_open(bare, bench->cluster.store, e);
    }
    while (err == ERR_OK && bare->store != NULL && bare->n < COMMITS) {
        err = bare_commit(bare, e);
    }
    bare_close(bare);
    return err;
}

enum err bench_latency(struct bench *bench, struct error *e)
{
    static const char *const settings[] = {BENCH_TREE_SETTINGS};
    int64_t given = cli_number(bench->cli, "tasks");
    int64_t slots = cli_number(bench->cli, "slots");
    uint64_t n_tasks = (uint64_t)(given > 0 ? given : LATENCY_DEFAULT);
    struct bench_shape shape = {.workers = (uint32_t)cli_number(bench->cli, "workers"),
                                .slots = (uint32_t)(slots > 0 ? slots : SLOTS_DEFAULT),
                                .settings = settings,
                                .n_settings = ARRAY_LEN(settings)};
    struct latency_figures figures = {.commit_ms = -1};
    struct bare *bare = mem_calloc(1, sizeof *bare);
    int64_t *us = mem_calloc(n_tasks, sizeof *us);
    enum err err = bench_start(bench, &shape, e);
    if (err == ERR_OK) {
        err = measure_with_commits(bench, n_tasks, bare, us, e);
    }
    if (err == ERR_OK) {
        figures.p50_ms = bench_percentile_ms(us, n_tasks, 0.5);
        figures.p99_ms = bench_percentile_ms(us, n_tasks, 0.99);
        figures.commit_ms = bare->n > 0 ? bench_percentile_ms(bare->us, bare->n, 0.5) : -1;
        print_figures(bench, n_tasks, &figures);
    }
    mem_free(bare);
    mem_free(us);
    return err;
}
