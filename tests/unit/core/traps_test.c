/*
 * traps_test.c - semantics section 12: the traps that other systems fell into, by their numbers there. Those marked (C)
 * are the core's.
 */
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "cluster.h"

TEST(trap_02_a_late_report_does_not_revive_a_canceled_job)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 3);
    const struct assignment *a = worker_takes(&c, "w1");
    const struct assignment *b = worker_takes(&c, "w1");
    const struct assignment *d = worker_takes(&c, "w1");
    client_cancels(&c, "j");
    CHECK_STALE(worker_fails(&c, "w1", a, "late"));
    CHECK_STALE(worker_succeeds(&c, "w1", b));
    CHECK_STALE(worker_releases(&c, "w1", d));
    CHECK_STALE(worker_starts(&c, "w1", d));
    cluster_advance(&c, 60 * SECOND_MS);
    CHECK_INT(job_state_of(&c, "j"), JOB_CANCELED);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_INT(state_of(&c, "j", 0, i), TASK_CANCELED);
        CHECK_INT(stored_task(&c.store, at("j", 0, i))->state, TASK_CANCELED);
    }
    CHECK_UINT(node_of(&c, "w1").failures, 0);
    worker_gets_nothing(&c, "w1");
    cluster_finish(&c);
}

TEST(trap_02_a_late_report_does_not_change_a_failed_job)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    const struct assignment *a = worker_takes(&c, "w1");
    const struct assignment *b = worker_takes(&c, "w1");
    CHECK_INT(worker_fails_for_good(&c, "w1", a, "no"), REFUSE_NONE);
    CHECK_STALE(worker_succeeds(&c, "w1", b));
    CHECK_INT(job_state_of(&c, "j"), JOB_FAILED);
    CHECK_INT(state_of(&c, "j", 0, 1), TASK_CANCELED);
    cluster_finish(&c);
}

static struct core_config one_per_worker(void)
{
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_worker = 1;
    return config;
}

TEST(trap_03_a_superseded_attempt_frees_its_place_on_the_worker)
{
    struct cluster c;
    cluster_init_with(&c, one_per_worker());
    worker_joins(&c, "w1");
    submit_tasks(&c, "canceled", 1);
    worker_takes(&c, "w1");
    client_cancels(&c, "canceled");
    CHECK_UINT(node_of(&c, "w1").running, 0);

    submit_tasks(&c, "lost_reply", 1);
    worker_takes(&c, "w1");
    worker_forgets(&c, "w1");
    cluster_advance(&c, 10 * SECOND_MS);
    CHECK_UINT(node_of(&c, "w1").running, 0);
    client_cancels(&c, "lost_reply");

    submit_tasks(&c, "restart", 1);
    worker_takes(&c, "w1");
    worker_restarts(&c, "w1");
    CHECK_UINT(node_of(&c, "w1").running, 0);
    cluster_advance(&c, SECOND_MS);

    const struct assignment *a = worker_takes(&c, "w1"); /* there is one place, and it is free */
    worker_gets_nothing(&c, "w1");
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    cluster_finish(&c);
}

TEST(trap_03_a_worker_that_comes_back_after_silence_has_free_places)
{
    struct cluster c;
    cluster_init_with(&c, one_per_worker());
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    worker_takes(&c, "w1");
    worker_named(&c, "w1")->beats = false;
    cluster_advance(&c, 20 * SECOND_MS);
    worker_joins(&c, "w2");
    worker_takes(&c, "w2");
    worker_registers(&c, "w1");
    worker_beats(&c, "w1");
    submit_tasks(&c, "k", 1);
    worker_takes_task(&c, "w1", at("k", 0, 0));
    cluster_finish(&c);
}

TEST(trap_04_a_lost_get_task_reply_leaves_no_task_running_nowhere)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 2);
    const struct assignment *lost = worker_takes(&c, "w1");
    const struct assignment *kept = worker_takes(&c, "w1");
    struct worker *w1 = worker_named(&c, "w1");
    w1->running[0] = w1->running[1]; /* the first answer never arrived */
    w1->n_running = 1;
    cluster_advance(&c, 10 * SECOND_MS);
    CHECK_INT(state_of(&c, "j", 0, lost->ref.task.task), TASK_QUEUED);
    CHECK_INT(state_of(&c, "j", 0, kept->ref.task.task), TASK_RUNNING);
    CHECK_UINT(worker_takes(&c, "w2")->ref.attempt, 2);
    CHECK_STALE(worker_succeeds(&c, "w1", lost)); /* had it arrived after all, it would be too late */
    CHECK_INT(worker_succeeds(&c, "w1", kept), REFUSE_NONE);
    cluster_finish(&c);
}

TEST(trap_05_a_worker_restarted_under_its_old_name_hides_no_orphans)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    const struct assignment *orphan = worker_takes(&c, "w1");
    worker_restarts(&c, "w1"); /* within the liveness timeout: nobody noticed that it was away */
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED);
    CHECK_INT(stored_attempt(&c.store, at("j", 0, 0), 1)->outcome, OUTCOME_LOST);
    CHECK_STALE(worker_succeeds(&c, "w1", orphan));
    cluster_advance(&c, SECOND_MS);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 8), 2);
    cluster_finish(&c);
}

TEST(trap_05_orphans_are_found_after_a_failover_too)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    worker_takes(&c, "w1");
    cluster_fail_over(&c);
    worker_restarts(&c, "w1");
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED);
    cluster_finish(&c);
}

TEST(trap_06_a_blacklisted_worker_that_dies_gives_its_tasks_back)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "bad");
    worker_joins(&c, "good");
    submit_tasks(&c, "j", 4);
    const struct assignment *first = worker_polls(&c, "bad", 4)->u.tasks.first;
    const struct assignment *a = first->next;
    for (int i = 0; i < 3; i++, a = a->next) {
        CHECK_INT(worker_fails(&c, "bad", a, "boom"), REFUSE_NONE);
    }
    CHECK(node_of(&c, "bad").blacklisted);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_RUNNING); /* what runs there may go on */
    worker_dies(&c, "bad");
    cluster_advance(&c, 17 * SECOND_MS);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_QUEUED);
    CHECK_INT(node_of(&c, "bad").status, NODE_STALE);
    CHECK_UINT(worker_takes_up_to(&c, "good", 8), 4);
    cluster_finish(&c);
}

/* The lease alone would give the task back, too; only the loss of the worker gives up what it kept. */
TEST(trap_06_a_blacklisted_worker_that_dies_takes_its_map_outputs_along)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "bad");
    worker_joins(&c, "good");
    struct stage_spec stages[] = {MAP_STAGE(1, 1), QUERY_STAGE(1, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "bad", at("q", 0, 0), 1);
    submit_tasks(&c, "j", 3);
    CHECK_UINT(worker_takes_up_to(&c, "good", 1), 1); /* the reader, so that "bad" gets the others */
    for (int i = 0; i < 3; i++) {
        CHECK_INT(worker_fails(&c, "bad", worker_takes(&c, "bad"), "boom"), REFUSE_NONE);
    }
    CHECK(node_of(&c, "bad").blacklisted);
    worker_dies(&c, "bad");
    cluster_advance(&c, 17 * SECOND_MS);
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_QUEUED);
    cluster_finish(&c);
}

/* After a refused registration the task does not go on "running" without anybody. */
static void check_not_left_running(struct cluster *c, const struct assignment *a)
{
    struct task_report report = report_on(a, TASK_SUCCEEDED);
    worker_reports(c, "w1", &report); /* a success without an output; whatever the answer, it is the last word */
    CHECK(state_of(c, "q", 0, 0) != TASK_SUCCEEDED);
    cluster_advance(c, 10 * SECOND_MS);
    CHECK_INT(state_of(c, "q", 0, 0), TASK_QUEUED);
    CHECK_UINT(node_of(c, "w1").running, 0);
    CHECK_UINT(worker_takes(c, "w1")->ref.attempt, 2);
}

TEST(trap_10_a_failed_map_registration_does_not_leave_the_task_running)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(1, 2), QUERY_STAGE(2, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *a = worker_takes(&c, "w1");
    CHECK_INT(worker_registers_map(&c, "w1", a, 1), REFUSE_BAD_OUTPUT);
    check_not_left_running(&c, a);
    cluster_finish(&c);
}

TEST(trap_10_a_failed_result_registration_does_not_leave_the_task_running)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {RESULT_STAGE(1)};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *a = worker_takes(&c, "w1");
    CHECK_INT(worker_registers_result(&c, "w1", a, 2000000, true), REFUSE_INLINE_LIMIT);
    check_not_left_running(&c, a);
    cluster_finish(&c);
}

TEST(trap_10_a_worker_that_reports_the_failed_registration_is_taken_at_its_word)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(1, 2), QUERY_STAGE(2, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *a = worker_takes(&c, "w1");
    CHECK_INT(worker_registers_map(&c, "w1", a, 1), REFUSE_BAD_OUTPUT);
    CHECK_INT(worker_fails(&c, "w1", a, "registration refused"), REFUSE_NONE);
    CHECK_INT(state_of(&c, "q", 0, 0), TASK_QUEUED);
    cluster_finish(&c);
}

TEST(trap_13_cleanup_of_a_lease_spares_one_that_was_taken_anew)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 1);
    const struct assignment *old = worker_takes(&c, "w1");
    worker_named(&c, "w1")->beats = false;
    cluster_advance(&c, 17 * SECOND_MS);
    const struct assignment *new = worker_takes(&c, "w2");

    CHECK_STALE(worker_releases(&c, "w1", old)); /* the first holder says good-bye in every way it can */
    CHECK_STALE(worker_fails(&c, "w1", old, "late"));
    struct cmd_heartbeat beat = {.worker_id = "w1", .incarnation = "w1#1", .running = &old->ref, .n_running = 1};
    struct command command = {.kind = CMD_HEARTBEAT, .u = {.heartbeat = beat}};
    cluster_do(&c, &command);
    worker_leaves(&c, "w1");
    cluster_advance(&c, 30 * SECOND_MS);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_RUNNING);
    CHECK(lease_token_equal(stored_lease(&c.store, at("j", 0, 0))->token, new->ref.token));
    CHECK_INT(worker_succeeds(&c, "w2", new), REFUSE_NONE);
    cluster_finish(&c);
}

TEST(trap_13_the_same_worker_may_take_its_lost_task_anew)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    const struct assignment *old = worker_takes(&c, "w1");
    CHECK_INT(worker_releases(&c, "w1", old), REFUSE_NONE);
    const struct assignment *new = worker_takes(&c, "w1");
    CHECK(!lease_token_equal(old->ref.token, new->ref.token));
    CHECK_STALE(worker_fails(&c, "w1", old, "late"));
    cluster_advance(&c, 60 * SECOND_MS);
    CHECK(lease_token_equal(stored_lease(&c.store, at("j", 0, 0))->token, new->ref.token));
    cluster_finish(&c);
}

TEST(trap_14_a_finished_tasks_state_is_not_written_when_its_lease_was_lost)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(1, 1), QUERY_STAGE(1, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *a = worker_takes(&c, "w1");
    worker_named(&c, "w1")->beats = false;
    cluster_advance(&c, 17 * SECOND_MS); /* nobody has taken it since */
    uint64_t rows = c.store.n_applied;
    CHECK_STALE(worker_registers_map(&c, "w1", a, 1));
    CHECK_STALE(worker_succeeds(&c, "w1", a));
    CHECK_UINT(c.store.n_applied, rows);
    CHECK_INT(stored_task(&c.store, at("q", 0, 0))->state, TASK_QUEUED);
    CHECK_UINT(row_store_count(&c.store, ROW_MAP_OUTPUT), 0);
    cluster_finish(&c);
}

TEST(trap_19_the_idempotency_key_has_the_inputs_in_it_and_the_attempt_grows)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct digest keys[3];
    const char *const inputs[] = {"a", "b"};
    for (int i = 0; i < 2; i++) {
        struct cluster d; /* the same job id, stage and task, with other inputs */
        cluster_init(&d);
        worker_joins(&d, "w1");
        struct task_spec task = {.inputs = digest_of(inputs[i])};
        struct stage_spec stage = QUERY_STAGE(1, .tasks = &task);
        submit_stages(&d, "j", JOB_KIND_QUERY, &stage, 1);
        keys[i] = worker_takes(&d, "w1")->idempotency_key;
        cluster_finish(&d);
    }
    CHECK(!digest_equal(keys[0], keys[1]));

    submit_tasks(&c, "j", 1);
    for (uint32_t i = 0; i < 3; i++) {
        const struct assignment *a = worker_takes(&c, "w1");
        CHECK_UINT(a->ref.attempt, i + 1);
        keys[i] = a->idempotency_key;
        CHECK_INT(worker_releases(&c, "w1", a), REFUSE_NONE);
        cluster_fail_over(&c);
    }
    CHECK(!digest_equal(keys[0], keys[1]));
    CHECK(!digest_equal(keys[1], keys[2]));
    cluster_finish(&c);
}

TEST(trap_20_priority_0_is_urgent_and_not_unset)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks_urgent(&c, "low", 1, 3);
    submit_tasks_urgent(&c, "normal", 1, 2);
    submit_tasks_urgent(&c, "urgent", 1, 0);
    CHECK_UINT(job_of(&c, "urgent").priority, 0);
    cluster_fail_over(&c);
    worker_takes_task(&c, "w1", at("urgent", 0, 0));
    worker_takes_task(&c, "w1", at("normal", 0, 0));
    worker_takes_task(&c, "w1", at("low", 0, 0));
    cluster_finish(&c);
}

TEST(trap_21_leased_tasks_do_not_clog_the_front_of_the_queue)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_query = 10000;
    cluster_init_with(&c, config);
    submit_tasks(&c, "j", 1000);
    uint8_t seen[1000] = {0};
    for (uint32_t i = 0; i < 100; i++) {
        char *name = arena_format(&c.arena, "w%u", i);
        worker_joins(&c, name);
        const struct reply *reply = worker_polls(&c, name, 8);
        CHECK_UINT(reply->u.tasks.n_tasks, 8);
        for (const struct assignment *a = reply->u.tasks.first; a != NULL; a = a->next) {
            CHECK_UINT(seen[a->ref.task.task]++, 0);
        }
    }
    CHECK_UINT(core_stats(c.core).leases, 800);
    cluster_finish(&c);
}

/* About side * side tasks in `side` layers, each after two of the layer before. */
static void run_layers(uint32_t side)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_worker = 1000;
    config.max_concurrent_tasks_per_query = 1000;
    cluster_init_with(&c, config);
    c.checks = false;
    worker_joins(&c, "w1");
    uint32_t n = side * side;
    struct stage_spec *stages = mem_calloc(n, sizeof(*stages));
    struct stage_parent *parents = mem_calloc(n, 2 * sizeof(*parents));
    for (uint32_t i = 0; i < n; i++) {
        stages[i] = (struct stage_spec){.need = &ANY_WORKER, .n_tasks = 1, .backoff_ms = -1};
        if (i >= side) {
            uint32_t layer = (i / side - 1) * side;
            parents[2 * i] = (struct stage_parent){.stage = layer + i % side, .added = true};
            parents[2 * i + 1] = (struct stage_parent){.stage = layer + (i + 1) % side, .added = true};
            stages[i].parents = &parents[2 * i];
            stages[i].n_parents = 2;
        }
    }
    submit_stages(&c, "t", JOB_KIND_TREE, stages, n);
    mem_free(parents);
    mem_free(stages);
    uint64_t steps = c.steps;
    uint64_t rows = c.store.n_applied;
    CHECK_UINT(worker_drains_queue(&c, "w1", 1000), n);
    CHECK(c.steps - steps <= 4 * side + 2);
    CHECK((c.store.n_applied - rows) / n <= 12);
    CHECK_INT(job_state_of(&c, "t"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

/* Sixteen times the tasks: linear work takes about 16 times as long, quadratic work 256 times. No time is asserted. */
TEST(trap_23_a_tree_with_100000_tasks_takes_linear_work)
{
    clock_t start = clock();
    run_layers(79);
    clock_t small = clock() - start;
    start = clock();
    run_layers(316);
    clock_t large = clock() - start;
    CHECK(large / (small + 1) < 80);
}

TEST(trap_24_a_reducer_and_the_map_that_it_waits_for_share_a_limit_of_one)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_query = 1;
    config.max_concurrent_tasks_per_worker = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {MAP_STAGE(2, 2), QUERY_STAGE(2, AFTER(READS(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_maps(&c, "w1", at("q", 0, 0), 2);
    worker_maps(&c, "w1", at("q", 0, 1), 2);
    const struct assignment *reducer = worker_takes_task(&c, "w2", at("q", 1, 0));
    worker_dies(&c, "w1");
    cluster_advance(&c, 20 * SECOND_MS);
    CHECK_INT(worker_cannot_fetch(&c, "w2", reducer, &reducer->sources[0]), REFUSE_NONE);
    cluster_advance(&c, SECOND_MS);
    worker_maps(&c, "w2", at("q", 0, 0), 2); /* the reducer has given its place back */
    worker_maps(&c, "w2", at("q", 0, 1), 2);
    cluster_advance(&c, SECOND_MS);
    worker_runs(&c, "w2", at("q", 1, 0));
    worker_runs(&c, "w2", at("q", 1, 1));
    CHECK_INT(job_state_of(&c, "q"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(trap_24_a_child_job_does_not_wait_for_its_parents_slot)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_query = 1;
    config.max_concurrent_tasks_per_worker = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {TREE_TASK("sub", .child = true), TREE_TASK("other")};
    SUBMIT_TREE(&c, "t", stages);
    CHECK(c.fx.children != NULL);
    struct stage_spec work[] = {QUERY_STAGE(2)};
    struct cmd_submit request = submit_request("kid", JOB_KIND_QUERY, work, 1);
    struct attempt_ref parent = c.fx.children->ref;
    request.parent = &parent;
    submit_ok(&c, &request);
    worker_runs(&c, "w1", at("kid", 0, 0)); /* all through the one slot */
    worker_runs(&c, "w1", at("kid", 0, 1));
    CHECK_INT(job_state_of(&c, "kid"), JOB_SUCCEEDED);
    worker_gets_nothing(&c, "w1"); /* the parent's one task that may run is still the child's */
    child_is_read(&c, "kid");
    worker_runs(&c, "w1", at("t", 1, 0));
    CHECK_INT(job_state_of(&c, "t"), JOB_SUCCEEDED);
    cluster_finish(&c);
}

TEST(trap_25_of_two_live_processes_with_one_worker_id_the_newer_works)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    const struct assignment *a = worker_takes(&c, "w1");
    worker_joins_as(&c, "twin", "w1");
    worker_named(&c, "w1")->beats = false;
    const struct assignment *b = worker_takes(&c, "twin");
    for (int i = 0; i < 5; i++) { /* both go on talking; the old one changes nothing */
        const struct reply *beat = worker_beats(&c, "w1");
        CHECK(!beat->u.heartbeat.accepted);
        CHECK_INT(beat->u.heartbeat.refusal, REFUSE_SUPERSEDED);
        CHECK_INT(worker_registers(&c, "w1")->kind, REPLY_ERROR);
        CHECK_STR(node_of(&c, "twin").incarnation, "twin#1");
        cluster_advance(&c, 3 * SECOND_MS);
    }
    CHECK_UINT(worker_named(&c, "twin")->n_running, 1);
    struct task_report late = report_on(a, TASK_SUCCEEDED);
    CHECK(worker_reports(&c, "w1", &late) != REFUSE_NONE);
    struct task_report stolen = report_on(b, TASK_SUCCEEDED); /* even with the right token: not this process */
    CHECK(worker_reports(&c, "w1", &stolen) != REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "twin", b), REFUSE_NONE);
    cluster_finish(&c);
}

TEST(trap_26_a_completion_whose_answer_was_lost_is_accepted_again)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    const struct assignment *a = worker_takes(&c, "w1");
    const struct assignment *b = worker_takes(&c, "w1");
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    cluster_fail_over(&c);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    worker_gets_nothing(&c, "w1"); /* not done again */
    CHECK_INT(worker_succeeds(&c, "w1", b), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "j"), JOB_SUCCEEDED);
    CHECK_INT(worker_succeeds(&c, "w1", b), REFUSE_NONE); /* also when it was the last, and the job has ended */
    cluster_fail_over(&c);
    cluster_load_job(&c, "j");
    CHECK_INT(worker_succeeds(&c, "w1", b), REFUSE_NONE);
    CHECK_UINT(row_store_count(&c.store, ROW_ATTEMPT), 2);
    cluster_finish(&c);
}

TEST(trap_26_repeated_registrations_of_a_winner_are_accepted_again)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {MAP_STAGE(1, 1), RESULT_STAGE(2, AFTER(READS_ALL(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *m = worker_maps(&c, "w1", at("q", 0, 0), 1);
    uint64_t rows = c.store.n_applied;
    CHECK_INT(worker_registers_map(&c, "w1", m, 1), REFUSE_NONE);
    CHECK_UINT(c.store.n_applied, rows);
    const struct assignment *r = worker_takes(&c, "w1");
    CHECK_INT(worker_registers_result(&c, "w1", r, 10, true), REFUSE_NONE);
    CHECK_INT(worker_succeeds(&c, "w1", r), REFUSE_NONE);
    rows = c.store.n_applied;
    CHECK_INT(worker_registers_result(&c, "w1", r, 10, true), REFUSE_NONE);
    CHECK_UINT(c.store.n_applied, rows);
    cluster_finish(&c);
}

TEST(trap_27_an_attempt_that_finished_while_the_leader_was_away_is_not_requeued)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    submit_tasks(&c, "j", 1);
    const struct assignment *a = worker_takes(&c, "w1");
    cluster_advance(&c, 30 * SECOND_MS);
    cluster_stall(&c, 5 * SECOND_MS); /* the task ends now; its report finds no leader */
    cluster_fail_over(&c);

    CHECK_UINT(worker_beats(&c, "w1")->u.heartbeat.n_stop, 0); /* it names the attempt until it is answered */
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_RUNNING);
    worker_gets_nothing(&c, "w2");
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_INT(job_state_of(&c, "j"), JOB_SUCCEEDED);
    CHECK_UINT(row_store_count(&c.store, ROW_ATTEMPT), 1);
    cluster_finish(&c);
}

TEST(trap_27_a_heartbeat_that_names_a_finished_attempt_does_no_harm)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 2);
    const struct assignment *a = worker_takes(&c, "w1");
    struct worker *w = worker_named(&c, "w1");
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    w->running[w->n_running++] = a->ref; /* the old leader's answer was lost with it */
    cluster_fail_over(&c);
    cluster_advance(&c, 10 * SECOND_MS);
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_SUCCEEDED);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    CHECK_UINT(node_of(&c, "w1").running, 0);
    cluster_finish(&c);
}
