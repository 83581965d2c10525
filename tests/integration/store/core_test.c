/*
 * core_test.c - real histories: a core with workers and clients that do anything, its rows committed batch by batch.
 * After every commit a core loaded from the store is equal to the one that wrote it; now and then it takes over.
 *
 * The cluster, its clock and its workers are those of the core's unit tests.
 */
#include "core/core.h"

#include <stdio.h>
#include <string.h>

#include "content.h"
#include "picture.h"
#include "unit/core/cluster.h"

#define N_HISTORIES 8
#define N_STEPS 200
#define N_WORKERS 4
#define JOBS_MAX 40
#define HELD_MAX 400

static const char *const worker_names[N_WORKERS] = {"w0", "w-'\\", "w-\xc3\xa9", "w-\xf0\x9f\x92\xbb"};

struct held {
    const char *worker;
    const struct assignment *assignment;
};

struct driver {
    struct cluster c;
    struct subject *s;
    struct subject *reference;
    struct prng prng;
    const struct row *last; /* the last that was committed */
    const struct child_start *last_child;
    const struct child_end *last_child_end;
    bool joined[N_WORKERS];
    bool alive[N_WORKERS];
    const char *jobs[JOBS_MAX];
    uint32_t n_jobs;
    struct held held[HELD_MAX]; /* what workers were given */
    uint32_t n_held;
};

static uint32_t below(struct driver *d, uint32_t n)
{
    return (uint32_t)prng_below(&d->prng, n);
}

/* ---- from the store ---- */

struct loading {
    struct core *core;
    struct core_input input;
    struct effects *fx;
};

static void load_row(void *context, const struct row *row)
{
    struct loading *loading = context;
    struct command command = {.kind = CMD_LOAD, .u = {.load = row}};
    core_step(loading->core, &loading->input, &command, loading->fx);
}

static struct loading begin_load(struct driver *d, struct core *core, struct effects *fx)
{
    struct loading loading = {.core = core, .input = {.now_ms = d->c.now_ms}, .fx = fx};
    loading.input.seed[0] = prng_u64(&d->prng);
    loading.input.seed[1] = prng_u64(&d->prng);
    return loading;
}

static struct core *load_core(struct driver *d, struct effects *fx)
{
    struct loading loading = begin_load(d, core_new(&d->c.config, 77), fx);
    struct command loaded = {.kind = CMD_LOADED};
    CHECK_OK(d->s, store_load(d->s->store, load_row, &loading, &d->s->e));
    core_step(loading.core, &loading.input, &loaded, fx);
    core_check(loading.core);
    return loading.core;
}

/* Brings back an ended job that left with the leader that knew it. */
static void load_job(struct driver *d, const char *job_id)
{
    struct loading loading = begin_load(d, d->c.core, &d->c.fx);
    struct command loaded = {.kind = CMD_LOADED_JOB, .u = {.loaded_job = job_id}};
    CHECK_OK(d->s, store_load_job(d->s->store, job_id, load_row, &loading, &d->s->e));
    core_step(loading.core, &loading.input, &loaded, loading.fx);
    cluster_tick(&d->c);
}

static void check_equal(struct driver *d)
{
    struct effects fx = {0};
    char why[512] = "";
    struct core *twin = load_core(d, &fx);
    bool equal = core_equal(d->c.core, twin, why, sizeof why);
    if (!equal) {
        fprintf(stderr, "a core loaded from %s differs: %s\n", d->s->engine, why);
    }
    CHECK(equal);
    core_free(twin);
    effects_deinit(&fx);
}

/* Commits what is new, to both stores. */
static void commit(struct driver *d)
{
    const struct row *head = d->last == NULL ? d->c.fx.rows : d->last->next;
    struct batch batch = {.rows = &head, .n_rows = 1};
    if (head == NULL) {
        return;
    }
    CHECK_OK(d->s, store_commit(d->s->store, &d->s->fence, &batch, &d->s->e));
    CHECK_OK(d->reference, store_commit(d->reference->store, &d->reference->fence, &batch, &d->reference->e));
    while (head->next != NULL) {
        head = head->next;
    }
    d->last = head;
    check_equal(d);
}

static void fail_over(struct driver *d)
{
    commit(d);
    core_free(d->c.core);
    d->c.core = load_core(d, &d->c.fx);
    cluster_tick(&d->c);
}

/* ---- clients ---- */

/* The first letter says what a job is made of. */
static const char *new_job(struct driver *d, char letter)
{
    const char *id = arena_format(&d->c.arena, "%c-%u-'\\\xf0\x9f\x92\xbb", letter, d->n_jobs);
    d->jobs[d->n_jobs++] = id;
    return id;
}

static void submit_shaped(struct driver *d, char letter, struct stage_spec *stages, uint32_t n)
{
    struct cmd_submit request =
        submit_request(new_job(d, letter), letter == 't' || letter == 'c' ? JOB_KIND_TREE : JOB_KIND_QUERY, stages, n);
    struct arena *arena = &d->c.arena;
    request.priority = (uint8_t)below(d, 4);
    request.stop_on_failure = below(d, 2) == 0;
    request.name = below(d, 2) == 0 ? NULL : random_text(&d->prng, arena);
    request.idempotency_key = below(d, 2) == 0 ? NULL : arena_format(arena, "key of %s", request.job_id);
    submit_ok(&d->c, &request);
    if (request.idempotency_key != NULL) {
        const char *found = NULL;
        commit(d);
        CHECK_OK(d->s, store_find_key(d->s->store, request.idempotency_key, 0, arena, &found, &d->s->e));
        CHECK_STR(found, request.job_id);
    }
}

static void submit_plain(struct driver *d)
{
    struct requirement need = {0};
    struct capability capability = {.key = "gpu", .kind = VALUE_TEXT, .text = ">=2"};
    const char *const nodes[] = {worker_names[0], worker_names[3]};
    if (below(d, 2) == 0) {
        need.executor = "python";
        need.max_parallel_per_node = below(d, 3);
        need.forbidden_nodes = (struct string_list){nodes, below(d, 3)};
        need.capabilities = (struct capability_list){&capability, below(d, 2)};
    }
    struct stage_spec stages[] = {QUERY_STAGE(1 + below(d, 4))};
    stages[0].need = &need;
    submit_shaped(d, 'p', stages, 1);
}

static void submit_shuffle(struct driver *d)
{
    uint32_t partitions = 1 + below(d, 3);
    struct stage_spec stages[] = {
        MAP_STAGE(1 + below(d, 3), partitions, .nondeterministic = below(d, 3) == 0),
        MAP_STAGE(1 + below(d, 2), 2, AFTER(READS_ALL(0))),
        RESULT_STAGE(1 + below(d, 2), AFTER(READS(1))),
    };
    submit_shaped(d, 'm', stages, 3);
}

static void submit_tree(struct driver *d)
{
    struct stage_spec stages[] = {
        TREE_TASK("a", .max_attempts = 1),
        TREE_TASK("b", AFTER(ON(0))),
        TREE_TASK("\xe2\x80\xae'c\\", AFTER(ON_ANY_END(0), ON(1)), .exclusive = true, .timeout_ms = 1000),
        TREE_TASK("d", AFTER(ON_ANY_END(1))),
    };
    stages[3].backoff_ms = 1000;
    submit_shaped(d, 't', stages, 4);
}

static void submit_planned(struct driver *d)
{
    struct stage_spec stages[] = {QUERY_STAGE(1, .planning = true)};
    submit_shaped(d, 'x', stages, 1);
}

static void submit_parent(struct driver *d)
{
    struct stage_spec stages[] = {TREE_TASK("child", .child = true), TREE_TASK("after", AFTER(ON(0)))};
    submit_shaped(d, 'c', stages, 2);
}

static void submit_any(struct driver *d)
{
    typedef void submit_fn(struct driver *);
    static submit_fn *const shapes[] = {submit_plain,   submit_shuffle, submit_shuffle, submit_shuffle,
                                        submit_planned, submit_tree,    submit_parent};
    if (d->n_jobs < JOBS_MAX - 5) {
        shapes[below(d, ARRAY_LEN(shapes))](d);
    }
}

/* Child jobs that the core wants to be started are, or fail. */
static void start_children(struct driver *d)
{
    const struct child_start *start = d->last_child == NULL ? d->c.fx.children : d->last_child->next;
    for (; start != NULL; start = start->next) {
        d->last_child = start;
        struct attempt_ref parent = start->ref;
        struct stage_spec stages[] = {TREE_TASK("only")};
        if (below(d, 4) == 0 || d->n_jobs == JOBS_MAX) {
            struct command command = {.kind = CMD_CHILD_FAILED,
                                      .u = {.child_failed = {.ref = parent, .message = "no '\\ child"}}};
            cluster_do(&d->c, &command);
            continue;
        }
        struct cmd_submit request = submit_request(new_job(d, 'k'), JOB_KIND_TREE, stages, 1);
        request.parent = &parent;
        submit(&d->c, &request);
    }
}

/* Those that have succeeded are read, or cannot be. A few are left alone: the next leader asks again. */
static void read_children(struct driver *d)
{
    const struct child_end *end = d->last_child_end == NULL ? d->c.fx.child_ends : d->last_child_end->next;
    for (; end != NULL; end = end->next) {
        d->last_child_end = end;
        struct attempt_ref ref = end->ref;
        uint64_t chance = below(d, 8);
        if (chance == 0) {
            struct command command = {.kind = CMD_CHILD_FAILED,
                                      .u = {.child_failed = {.ref = ref, .message = "no '\\ rows"}}};
            cluster_do(&d->c, &command);
        } else if (chance > 1) {
            (void)child_is_done(&d->c, ref);
        }
    }
}

static const char *some_job(struct driver *d)
{
    const char *job_id = d->n_jobs == 0 ? NULL : d->jobs[below(d, d->n_jobs)];
    if (job_id == NULL || core_has_job(d->c.core, job_id)) {
        return job_id;
    }
    commit(d);
    struct picture p = {0};
    picture_load_job(&p, d->s, job_id);
    uint32_t n = picture_count(&p, "jobs");
    picture_deinit(&p);
    if (n == 0) {
        return NULL; /* a child that was refused */
    }
    load_job(d, job_id);
    return job_id;
}

static void cancel_any(struct driver *d)
{
    const char *job_id = some_job(d);
    if (job_id != NULL) {
        client_cancels(&d->c, job_id);
    }
}

static void retry_any(struct driver *d)
{
    const char *job_id = some_job(d);
    if (job_id != NULL) {
        client_retries_from(&d->c, job_id, NULL);
    }
}

/* ---- workers ---- */

static void join_or_restart(struct driver *d)
{
    uint32_t i = below(d, N_WORKERS);
    static const char *const executors[] = {"python"};
    static const struct capability gpus[] = {{.key = "gpu", .kind = VALUE_NUMBER, .number = 2.5}};
    struct offer offer = {.executors = {executors, i % 2}, .capabilities = {gpus, i / 2}, .engine = "v'1\\"};
    if (!d->joined[i]) {
        worker_joins_with(&d->c, worker_names[i], &offer);
    } else {
        worker_restarts(&d->c, worker_names[i]);
    }
    d->joined[i] = true;
    d->alive[i] = true;
}

static void hold(struct driver *d, const char *worker, const struct reply *reply)
{
    for (const struct assignment *a = reply->u.tasks.first; a != NULL && d->n_held < HELD_MAX; a = a->next) {
        d->held[d->n_held++] = (struct held){worker, a};
    }
}

static void poll_any(struct driver *d)
{
    uint32_t i = below(d, N_WORKERS);
    if (d->alive[i]) {
        hold(d, worker_names[i], worker_polls(&d->c, worker_names[i], 1 + below(d, 4)));
    }
}

static void lose_worker(struct driver *d)
{
    uint32_t i = below(d, N_WORKERS);
    if (!d->alive[i]) {
        return;
    }
    d->alive[i] = false;
    if (below(d, 2) == 0) {
        worker_dies(&d->c, worker_names[i]);
    } else {
        worker_leaves(&d->c, worker_names[i]);
    }
}

static void operate(struct driver *d)
{
    uint32_t i = below(d, N_WORKERS);
    if (d->alive[i] && below(d, 2) == 0) {
        operator_drains(&d->c, worker_names[i], below(d, 2) == 0);
    } else if (d->alive[i]) {
        operator_clears(&d->c, worker_names[i]);
    }
}

/* Registers what the stage must leave behind, then succeeds. */
static void succeed(struct driver *d, const char *worker, const struct assignment *a)
{
    static const struct stage_spec planned[] = {RESULT_STAGE(2)};
    char letter = a->ref.task.job_id[0];
    struct task_report report = report_on(a, TASK_SUCCEEDED);
    report.rows = below(d, 1000);
    report.bytes = prng_u64(&d->prng) >> 1;
    report.result = digest_from(prng_u64(&d->prng));
    report.result_bytes = below(d, 100);
    if (letter == 'm' && a->ref.task.stage < 2) {
        for (uint32_t n = 1; n <= 3; n++) { /* only one number fits the stage */
            if (worker_registers_map(&d->c, worker, a, n) == REFUSE_NONE) {
                break;
            }
        }
    } else if (letter == 'm' || (letter == 'x' && a->ref.task.stage == 1)) {
        worker_registers_result(&d->c, worker, a, below(d, 1000), below(d, 2) == 0);
    } else if (letter == 'x') {
        report.added = planned;
        report.n_added = 1;
    }
    worker_reports(&d->c, worker, &report);
}

static bool is_alive(const struct driver *d, const char *worker)
{
    for (uint32_t i = 0; i < N_WORKERS; i++) {
        if (strcmp(worker_names[i], worker) == 0) {
            return d->alive[i];
        }
    }
    return false;
}

static void finish_any(struct driver *d)
{
    if (d->n_held == 0) {
        return;
    }
    uint32_t i = below(d, d->n_held);
    struct held held = d->held[i];
    d->held[i] = d->held[--d->n_held];
    if (!is_alive(d, held.worker) || !core_has_job(d->c.core, held.assignment->ref.task.job_id)) {
        return;
    }
    switch (below(d, 10)) {
    case 0:
        worker_fails(&d->c, held.worker, held.assignment, random_text(&d->prng, &d->c.arena));
        break;
    case 1:
        worker_fails_for_good(&d->c, held.worker, held.assignment, "for '\\ good");
        break;
    case 2:
        worker_releases(&d->c, held.worker, held.assignment);
        break;
    case 3:
        if (held.assignment->n_sources > 0) {
            worker_cannot_fetch(&d->c, held.worker, held.assignment, &held.assignment->sources[0]);
        }
        break;
    default:
        succeed(d, held.worker, held.assignment);
    }
}

/* ---- a history ---- */

static void pass_time(struct driver *d)
{
    static const int64_t spans_ms[] = {1, 300, 1000, 5000, 20000, 130000};
    cluster_advance(&d->c, spans_ms[below(d, ARRAY_LEN(spans_ms))]);
}

static void act(struct driver *d)
{
    typedef void act_fn(struct driver *);
    static act_fn *const acts[] = {
        join_or_restart, join_or_restart, submit_any, submit_any, poll_any,    poll_any,   poll_any,
        poll_any,        poll_any,        poll_any,   finish_any, finish_any,  finish_any, finish_any,
        finish_any,      finish_any,      finish_any, finish_any, finish_any,  finish_any, pass_time,
        pass_time,       cancel_any,      retry_any,  operate,    lose_worker, fail_over,
    };
    acts[below(d, ARRAY_LEN(acts))](d);
    start_children(d);
    read_children(d);
}

/* The leader stops, its store is copied, and a leader of the copy knows all that it knew. */
static void check_copy(struct driver *d, struct subject *copy)
{
    struct picture before = {0};
    struct picture after = {0};
    struct copy_report report;
    struct subject *source = d->s;
    picture_all(&before, source, d->jobs, d->n_jobs);
    CHECK_OK(source, store_resign(source->store, &source->fence, &source->e));
    copy->store = subject_open(copy);
    CHECK_OK(copy, store_copy(source->store, copy->store, NULL, NULL, &report, &copy->e));
    picture_all(&after, copy, d->jobs, d->n_jobs);
    CHECK_PICTURES(&after, &before);
    CHECK_STR(subject_attempts(copy), subject_attempts(source));
    d->s = copy;
    check_equal(d);
    picture_deinit(&before);
    picture_deinit(&after);
}

/* `copy` NULL: it is not copied in the end. */
static void run_history(struct subject *s, struct subject *reference, uint64_t seed, struct subject *copy)
{
    static struct driver d; /* on no account on the stack: a failed check leaves by longjmp */
    struct picture actual = {0};
    struct picture expected = {0};
    d = (struct driver){.s = s, .reference = reference};
    cluster_init(&d.c);
    prng_init(&d.prng, seed);
    prng_init(&d.c.prng, seed + 1000);
    for (int i = 0; i < N_STEPS; i++) {
        act(&d);
        if (below(&d, 3) > 0) {
            commit(&d);
        }
    }
    commit(&d);
    picture_all(&actual, s, d.jobs, d.n_jobs);
    picture_all(&expected, reference, d.jobs, d.n_jobs);
    CHECK_PICTURES(&actual, &expected);
    CHECK_STR(subject_attempts(s), subject_attempts(reference));
    if (copy != NULL) {
        check_copy(&d, copy);
    }
    picture_deinit(&actual);
    picture_deinit(&expected);
    cluster_finish(&d.c);
}

/* Every core starts anew, so the store does, too. */
static void empty(struct subject *s)
{
    struct leader leader;
    struct leader_claim claim = subject_claim("next", INT64_C(3600000));
    CHECK_OK(s, store_migrate(s->store, 0, &s->e));
    CHECK_OK(s, store_migrate(s->store, STORE_NEWEST, &s->e));
    CHECK_OK(s, store_lead(s->store, &claim, &s->arena, &leader, &s->e));
    s->fence = leader.fence;
}

CONTRACT(a_core_loaded_after_any_commit_equals_the_one_that_wrote_it)
{
    struct subject *reference = subject_reference();
    subject_lead(s);
    for (uint64_t seed = 1; seed <= N_HISTORIES; seed++) {
        run_history(s, reference, seed, NULL);
        empty(s);
        empty(reference);
    }
}

CONTRACT_OF_POSTGRES(a_core_loaded_from_a_copy_equals_the_one_that_was_copied)
{
    for (uint64_t seed = 101; seed <= 103; seed++) {
        struct subject *source = subject_embedded();
        struct subject *reference = subject_reference();
        subject_lead(source);
        run_history(source, reference, seed, s);
        subject_end_others();
        CHECK_OK(s, store_migrate(s->store, 0, &s->e)); /* for the next one */
    }
}
