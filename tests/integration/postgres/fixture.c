#include "integration/postgres/fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/command.h"

static struct server shared;
static pid_t owner; /* of the server */

static void remove_server(void)
{
    if (getpid() == owner) {
        server_remove(&shared);
    }
}

void fixture_open(struct fixture *f)
{
    static uint32_t n_databases;
    char name[32];
    if (owner == 0) {
        owner = getpid();
        server_start(&shared, NULL);
        atexit(remove_server);
    }
    *f = (struct fixture){0};
    snprintf(name, sizeof name, "test_%u", ++n_databases);
    f->server = server_database(&shared, name);
    CHECK_CALL(f, store_open(f->server.url, &f->store, &f->e), ERR_OK);
}

void fixture_lead(struct fixture *f, int64_t ttl_ms)
{
    struct leader leader;
    struct leader_claim claim = fixture_claim("first", ttl_ms);
    fixture_open(f);
    CHECK_CALL(f, store_migrate(f->store, STORE_NEWEST, &f->e), ERR_OK);
    CHECK_CALL(f, store_lead(f->store, &claim, &f->arena, &leader, &f->e), ERR_OK);
    f->fence = leader.fence;
}

void fixture_close(struct fixture *f)
{
    store_close(f->store);
    arena_deinit(&f->arena);
}

/* A backend hands in its statistics before it disappears from the list of backends. */
void fixture_hang_up(struct fixture *f)
{
    store_close(f->store);
    f->store = NULL;
    while (server_number(&f->server, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'capstan' "
                                     "AND datname = current_database()") > 0) {
        pause_ms(5);
    }
}

void fixture_call_again(struct fixture *f)
{
    CHECK_CALL(f, store_open(f->server.url, &f->store, &f->e), ERR_OK);
}

void fixture_check(struct fixture *f, enum err actual, enum err expected, const char *text, const char *file, int line)
{
    if (actual != expected) {
        print_error("%s\n", actual == ERR_OK ? "it succeeds" : f->e.message);
    }
    test_check_err(actual, expected, text, file, line);
}

struct leader_claim fixture_claim(const char *node_id, int64_t ttl_ms)
{
    static uint64_t last;
    return (struct leader_claim){
        .node_id = node_id, .address = "host:7400", .ttl_ms = ttl_ms, .token = {{(uint64_t)getpid(), ++last}}};
}

void fixture_outwait(struct fixture *f)
{
    struct leader leader = {.expires_in_ms = 1};
    while (leader.expires_in_ms > 0) {
        pause_ms(10);
        CHECK_CALL(f, store_leader(f->store, &f->arena, &leader, &f->e), ERR_OK);
    }
}

/* ---- batches ---- */

#define TASKS_MAX 16

struct small_batch {
    char job_id[32];
    struct requirement need;
    struct stage_spec spec;
    struct row_job job;
    struct row_stage stage;
    struct row_task tasks[TASKS_MAX];
    struct row_event event;
};

static void fill(struct small_batch *b, uint64_t seq, uint32_t n_tasks)
{
    snprintf(b->job_id, sizeof b->job_id, "job-%llu", (unsigned long long)seq);
    b->need.executor = "command";
    b->spec = (struct stage_spec){.need = &b->need, .n_tasks = n_tasks, .max_attempts = 3};
    b->job = (struct row_job){.row = {.next = &b->stage.row, .kind = ROW_JOB},
                              .is_new = true,
                              .kind = JOB_KIND_TREE,
                              .job_id = b->job_id,
                              .submitted_at_ms = (int64_t)seq,
                              .n_stages = 1};
    b->stage = (struct row_stage){
        .row = {.next = &b->event.row, .kind = ROW_STAGE}, .is_new = true, .job_id = b->job_id, .spec = &b->spec};
    b->event = (struct row_event){.row = {.next = n_tasks == 0 ? NULL : &b->tasks[0].row, .kind = ROW_EVENT},
                                  .seq = seq,
                                  .at_ms = (int64_t)seq,
                                  .ref = {b->job_id, EVENT_WHOLE_JOB, EVENT_WHOLE_JOB}};
    for (uint32_t i = 0; i < n_tasks; i++) {
        b->tasks[i] =
            (struct row_task){.row = {.next = i + 1 == n_tasks ? NULL : &b->tasks[i + 1].row, .kind = ROW_TASK},
                              .is_new = true,
                              .ref = {b->job_id, 0, i},
                              .queued_at_ms = 1};
    }
}

enum err fixture_commit(struct store *store, const struct fence *fence, uint64_t seq, uint32_t n_tasks, struct error *e)
{
    struct small_batch *b = calloc(1, sizeof *b);
    if (b == NULL || n_tasks > TASKS_MAX) {
        abort();
    }
    fill(b, seq, n_tasks);
    const struct row *rows = &b->job.row;
    struct batch batch = {.rows = &rows, .n_rows = 1};
    enum err err = store_commit(store, fence, &batch, e);
    free(b);
    return err;
}

/* A row of `size` bytes in the arena, with its kind, at the end of the list. */
static void *add_row(struct arena *arena, struct row ***end, enum row_kind kind, size_t size)
{
    struct row *row = arena_zalloc(arena, size);
    row->kind = kind;
    **end = row;
    *end = &row->next;
    return row;
}

enum err fixture_change(struct store *store, const struct fence *fence, uint64_t seq, uint32_t n_tasks, struct error *e)
{
    struct arena arena = {0};
    struct row *first = NULL;
    struct row **end = &first;
    const char *job_id = arena_format(&arena, "job-%llu", (unsigned long long)seq);
    struct row_job *job = add_row(&arena, &end, ROW_JOB, sizeof *job);
    *job = (struct row_job){.row = {.kind = ROW_JOB}, .job_id = job_id, .state = JOB_RUNNING, .n_stages = 1};
    struct row_stage *stage = add_row(&arena, &end, ROW_STAGE, sizeof *stage);
    stage->job_id = job_id;
    for (uint32_t i = 0; i < n_tasks; i++) {
        struct task_ref ref = {job_id, 0, i};
        ((struct row_task *)add_row(&arena, &end, ROW_TASK, sizeof(struct row_task)))->ref = ref;
        struct row_attempt *attempt = add_row(&arena, &end, ROW_ATTEMPT, sizeof *attempt);
        attempt->ref = ref;
        attempt->outcome = OUTCOME_LOST;
        struct row_lease_gone *lease = add_row(&arena, &end, ROW_LEASE_GONE, sizeof *lease);
        lease->ref = ref;
        lease->token.bits[0] = 1;
        ((struct row_output_gone *)add_row(&arena, &end, ROW_MAP_OUTPUT_GONE, sizeof(struct row_output_gone)))->ref =
            ref;
        ((struct row_output_gone *)add_row(&arena, &end, ROW_RESULT_GONE, sizeof(struct row_output_gone)))->ref = ref;
    }
    ((struct row_job_sweep *)add_row(&arena, &end, ROW_JOB_SWEEP, sizeof(struct row_job_sweep)))->job_id = job_id;
    const struct row *rows = first;
    struct batch batch = {.rows = &rows, .n_rows = 1};
    enum err err = store_commit(store, fence, &batch, e);
    arena_deinit(&arena);
    return err;
}

/* ---- processes and time ---- */

pid_t child_start(child_fn *body, void *context)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(body(context));
    }
    CHECK(pid > 0);
    return pid;
}

int child_wait(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        CHECK(errno == EINTR);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool child_is_running(pid_t pid)
{
    int status = 0;
    pid_t ended = waitpid(pid, &status, WNOHANG);
    CHECK(ended >= 0);
    CHECK(ended == 0 || status == 0);
    return ended == 0;
}

void pause_ms(int64_t ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

int64_t clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
