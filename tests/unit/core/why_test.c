/*
 * why_test.c - semantics section 4: every queued task can say why it does not run, and the stuck ones say so unasked.
 */
#include <string.h>

#include "cluster.h"

#define MANY 16

struct reasons {
    struct pending_reason list[MANY];
    uint32_t count;
    struct arena arena;
};

static struct reasons why(const struct cluster *c, const char *job_id)
{
    struct reasons r = {.count = 0};
    r.count = core_why_pending(c->core, job_id, &r.arena, r.list, MANY);
    return r;
}

/* Wants exactly one reason, for that many tasks. */
static void check_why(const struct cluster *c, const char *job_id, const char *text, uint32_t n_tasks)
{
    struct reasons r = why(c, job_id);
    CHECK_UINT(r.count, 1);
    CHECK_STR(r.list[0].reason, text);
    CHECK_UINT(r.list[0].n_tasks, n_tasks);
    arena_deinit(&r.arena);
}

/* Wants that reason for the first waiting task of a stage. */
static void check_why_stage(const struct cluster *c, const char *job_id, uint32_t stage, const char *text)
{
    struct reasons r = why(c, job_id);
    bool found = false;
    for (uint32_t i = 0; i < r.count && !found; i++) {
        if (r.list[i].stage == stage) {
            CHECK_STR(r.list[i].reason, text);
            found = true;
        }
    }
    CHECK(found);
    arena_deinit(&r.arena);
}

TEST(why_waiting_for_a_stage)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {QUERY_STAGE(1), QUERY_STAGE(8), QUERY_STAGE(3, AFTER(ON(0), ON(1)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_runs(&c, "w1", at("q", 0, 0));
    const struct assignment *a = worker_polls(&c, "w1", 8)->u.tasks.first;
    for (int i = 0; i < 6; i++, a = a->next) {
        CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    }
    check_why(&c, "q", "waiting for stage 1 (2 of 8 tasks left)", 3);
    CHECK_INT(worker_succeeds(&c, "w1", a), REFUSE_NONE);
    check_why(&c, "q", "waiting for stage 1 (1 of 8 tasks left)", 3);
    cluster_finish(&c);
}

TEST(why_backoff)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    struct reasons r = why(&c, "j");
    CHECK_UINT(r.count, 1);
    CHECK_UINT(r.list[0].n_tasks, 1);
    static const char prefix[] = "backoff until ";
    CHECK_MEM(r.list[0].reason, prefix, sizeof(prefix) - 1);
    CHECK(strstr(r.list[0].reason, "2023-11-14T22:13:20.") !=
          NULL); /* the fixture's clock and a fraction of a second */
    arena_deinit(&r.arena);
    cluster_finish(&c);
}

TEST(why_no_live_worker_advertises_an_operator)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct requirement need = {.ops = TEXTS("x")};
    submit_tasks_for(&c, "j", 2, &need);
    check_why(&c, "j", "no live worker advertises operator 'x'", 2);
    const struct offer has_x = {.ops = TEXTS("x")};
    worker_joins_with(&c, "w2", &has_x);
    worker_dies(&c, "w2");
    cluster_advance(&c, 17 * SECOND_MS);
    check_why(&c, "j", "no live worker advertises operator 'x'", 2); /* one does, but it is not live */
    cluster_finish(&c);
}

TEST(why_no_live_worker_has_an_executor)
{
    struct cluster c;
    cluster_init(&c);
    const struct requirement need = {.executor = "docker"};
    submit_tasks_for(&c, "j", 1, &need);
    check_why(&c, "j", "no live worker has executor 'docker'", 1); /* there is no worker at all */
    const struct offer shell = {.executors = TEXTS("command")};
    worker_joins_with(&c, "w1", &shell);
    check_why(&c, "j", "no live worker has executor 'docker'", 1);
    cluster_finish(&c);
}

TEST(why_placement_matches_nobody)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    worker_joins(&c, "w3");
    const struct capability gpu = {.key = "gpu", .kind = VALUE_TEXT, .text = "nvidia"};
    const struct requirement need = {.capabilities = {&gpu, 1}};
    submit_tasks_for(&c, "j", 4, &need);
    check_why(&c, "j", "placement: requires_capabilities gpu=nvidia matches 0 of 3 live workers", 4);
    worker_dies(&c, "w3");
    cluster_advance(&c, 17 * SECOND_MS);
    check_why(&c, "j", "placement: requires_capabilities gpu=nvidia matches 0 of 2 live workers", 4);
    cluster_finish(&c);
}

TEST(why_other_placements_match_nobody)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct requirement needs[] = {
        {.any_executors = TEXTS("docker", "podman")},
        {.allowed_nodes = TEXTS("w7")},
        {.forbidden_nodes = TEXTS("w1")},
    };
    const char *const jobs[] = {"any", "allowed", "forbidden"};
    for (int i = 0; i < 3; i++) {
        submit_tasks_for(&c, jobs[i], 1, &needs[i]);
        struct reasons r = why(&c, jobs[i]);
        CHECK_UINT(r.count, 1);
        CHECK(strncmp(r.list[0].reason, "placement: ", 11) == 0);
        CHECK(strstr(r.list[0].reason, "0 of 1 live worker") != NULL);
        arena_deinit(&r.arena);
    }
    cluster_finish(&c);
}

TEST(why_all_matching_workers_are_full)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_worker = 1;
    cluster_init_with(&c, config);
    const struct offer docker = {.executors = TEXTS("docker")};
    worker_joins_with(&c, "w1", &docker);
    worker_joins_with(&c, "w2", &docker);
    worker_joins(&c, "free");
    const struct requirement need = {.executor = "docker"};
    submit_tasks_for(&c, "j", 5, &need);
    worker_takes(&c, "w1");
    worker_takes(&c, "w2");
    check_why(&c, "j", "all 2 matching workers are full", 3);
    cluster_finish(&c);
}

TEST(why_the_query_limit_is_reached)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_worker = 100;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 40);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 100), 32);
    check_why(&c, "j", "query limit 32 reached", 8);
    cluster_finish(&c);
}

TEST(why_lists_the_stages_of_a_job_in_order)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct requirement need = {.executor = "docker"};
    struct stage_spec stages[] = {QUERY_STAGE(1), QUERY_STAGE(2), QUERY_STAGE(1, AFTER(ON(0)))};
    stages[1].need = &need;
    SUBMIT_QUERY(&c, "q", stages);
    worker_takes_task(&c, "w1", at("q", 0, 0));
    struct reasons r = why(&c, "q");
    CHECK_UINT(r.count, 2);
    CHECK_UINT(r.list[0].stage, 1);
    CHECK_UINT(r.list[0].task, 0);
    CHECK_UINT(r.list[0].n_tasks, 2);
    CHECK_UINT(r.list[1].stage, 2);
    CHECK_STR(r.list[1].reason, "waiting for stage 0 (1 of 1 tasks left)");
    arena_deinit(&r.arena);

    struct pending_reason one;
    struct arena arena = {0};
    CHECK_UINT(core_why_pending(c.core, "q", &arena, &one, 1), 1);
    CHECK_UINT(one.stage, 1);
    CHECK_UINT(core_why_pending(c.core, "nobody", &arena, &one, 1), 0);
    arena_deinit(&arena);
    check_why_stage(&c, "q", 1, "no live worker has executor 'docker'");
    cluster_finish(&c);
}

TEST(why_every_queued_task_has_a_reason)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 3); /* assignable, but nobody polls */
    struct reasons r = why(&c, "j");
    CHECK(r.count > 0);
    CHECK(strlen(r.list[0].reason) > 0);
    arena_deinit(&r.arena);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 8), 3);
    r = why(&c, "j");
    CHECK_UINT(r.count, 0); /* nothing is pending */
    arena_deinit(&r.arena);
    cluster_finish(&c);
}

TEST(a_task_that_no_live_worker_can_run_is_reported_as_stuck)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct requirement need = {.executor = "docker"};
    submit_tasks_for(&c, "j", 1, &need);
    cluster_advance(&c, 59 * SECOND_MS);
    CHECK_UINT(cluster_events(&c, EVENT_STUCK), 0);
    CHECK_UINT(core_stats(c.core).stuck_tasks, 0);
    cluster_advance(&c, 3 * SECOND_MS);
    CHECK_UINT(cluster_events(&c, EVENT_STUCK), 1);
    CHECK_STR(cluster_event(&c, EVENT_STUCK)->ref.job_id, "j");
    CHECK(strstr(cluster_event(&c, EVENT_STUCK)->message, "no live worker has executor 'docker'") != NULL);
    CHECK_UINT(core_stats(c.core).stuck_tasks, 1);
    cluster_advance(&c, 600 * SECOND_MS);
    CHECK_UINT(cluster_events(&c, EVENT_STUCK), 1); /* said once */

    const struct offer docker = {.executors = TEXTS("docker")};
    worker_joins_with(&c, "w2", &docker);
    worker_runs(&c, "w2", at("j", 0, 0));
    cluster_advance(&c, SECOND_MS);
    CHECK_UINT(core_stats(c.core).stuck_tasks, 0);
    cluster_finish(&c);
}

TEST(a_task_that_only_waits_its_turn_is_not_stuck)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.max_concurrent_tasks_per_worker = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {QUERY_STAGE(2), QUERY_STAGE(1, AFTER(ON(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    worker_takes(&c, "w1");
    cluster_advance(&c, 200 * SECOND_MS);
    CHECK_UINT(cluster_events(&c, EVENT_STUCK), 0);
    CHECK_UINT(core_stats(c.core).stuck_tasks, 0);
    cluster_finish(&c);
}

TEST(a_task_gets_stuck_when_the_last_capable_worker_goes)
{
    struct cluster c;
    cluster_init(&c);
    const struct offer docker = {.executors = TEXTS("docker")};
    worker_joins_with(&c, "w1", &docker);
    const struct requirement need = {.executor = "docker"};
    submit_tasks_for(&c, "j", 2, &need);
    worker_runs(&c, "w1", at("j", 0, 0));
    cluster_advance(&c, 100 * SECOND_MS);
    CHECK_UINT(cluster_events(&c, EVENT_STUCK), 0);
    worker_dies(&c, "w1");
    cluster_advance(&c, 140 * SECOND_MS);
    CHECK(cluster_events(&c, EVENT_STUCK) > 0);
    CHECK_UINT(core_stats(c.core).stuck_tasks, 1);
    client_cancels(&c, "j");
    cluster_advance(&c, SECOND_MS);
    CHECK_UINT(core_stats(c.core).stuck_tasks, 0);
    cluster_finish(&c);
}

TEST(why_does_not_call_a_free_worker_full)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 3); /* nobody has asked for work yet */
    struct reasons r = why(&c, "j");
    CHECK_UINT(r.count, 1);
    CHECK(strstr(r.list[0].reason, "full") == NULL);
    arena_deinit(&r.arena);
    cluster_finish(&c);
}

TEST(why_uses_the_same_words_for_trees)
{
    struct cluster c;
    cluster_init(&c);
    struct stage_spec stages[] = {TREE_TASK("a"), TREE_TASK("b", AFTER(ON(0))), TREE_TASK("d", AFTER(ON_ANY_END(1)))};
    SUBMIT_TREE(&c, "t", stages);
    check_why_stage(&c, "t", 1, "waiting for stage 0 (1 of 1 tasks left)");
    check_why_stage(&c, "t", 2, "waiting for stage 1 (1 of 1 tasks left)");
    cluster_finish(&c);
}

TEST(why_counts_only_the_tasks_that_are_left_of_an_optional_parent)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    struct stage_spec stages[] = {TREE_TASK("a"), TREE_TASK("b"), TREE_TASK("z", AFTER(ON_ANY_END(0), ON(1)))};
    SUBMIT_TREE(&c, "t", stages);
    CHECK_INT(worker_fails_for_good(&c, "w1", worker_takes_task(&c, "w1", at("t", 0, 0)), "no"), REFUSE_NONE);
    check_why_stage(&c, "t", 2, "waiting for stage 1 (1 of 1 tasks left)"); /* the first one has ended */
    cluster_finish(&c);
}

/* Wants the one reason to hold that text. */
static void check_why_has(const struct cluster *c, const char *job_id, const char *text)
{
    struct reasons r = why(c, job_id);
    CHECK_UINT(r.count, 1);
    if (strstr(r.list[0].reason, text) == NULL) {
        CHECK_STR(r.list[0].reason, text);
    }
    arena_deinit(&r.arena);
}

TEST(why_names_blacklisted_and_draining_workers_and_other_engines)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.blacklist_failure_threshold = 1;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    submit_tasks(&c, "j", 1);
    CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
    cluster_advance(&c, SECOND_MS);
    check_why_has(&c, "j", "blacklisted");
    operator_clears(&c, "w1");
    operator_drains(&c, "w1", true);
    check_why_has(&c, "j", "draining");
    const struct requirement need = {.engine = "duckdb 1.5 amd64"};
    submit_tasks_for(&c, "k", 1, &need);
    check_why_has(&c, "k", "duckdb 1.5 amd64");
    cluster_finish(&c);
}

TEST(why_spells_out_every_kind_of_capability)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct capability wanted[] = {
        {.key = "cores", .kind = VALUE_NUMBER, .number = 8},
        {.key = "cores", .kind = VALUE_TEXT, .text = ">=8"},
        {.key = "ssd", .kind = VALUE_BOOL, .number = 1},
    };
    const char *const texts[] = {"cores=8", ">=8", "ssd=true"};
    const char *const jobs[] = {"a", "b", "d"};
    for (int i = 0; i < 3; i++) {
        const struct requirement need = {.capabilities = {&wanted[i], 1}};
        submit_tasks_for(&c, jobs[i], 1, &need);
        check_why_has(&c, jobs[i], texts[i]);
    }
    cluster_finish(&c);
}

TEST(stuck_tasks_are_counted_and_every_stuck_job_is_named)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct requirement needs[] = {{.executor = "docker"}, {.ops = TEXTS("op")}};
    submit_tasks_for(&c, "a", 3, &needs[0]);
    submit_tasks_for(&c, "b", 1, &needs[0]);
    submit_tasks_for(&c, "d", 1, &needs[1]);
    submit_tasks(&c, "fine", 1);
    cluster_advance(&c, 70 * SECOND_MS);
    CHECK_UINT(core_stats(c.core).stuck_tasks, 5);
    bool named[3] = {false, false, false};
    for (uint32_t i = 0; i < c.store.n_events; i++) {
        const struct row_event *e = &c.store.events[i];
        if (e->type == EVENT_STUCK) {
            CHECK(strcmp(e->ref.job_id, "fine") != 0);
            named[0] |= strcmp(e->ref.job_id, "a") == 0;
            named[1] |= strcmp(e->ref.job_id, "b") == 0;
            named[2] |= strcmp(e->ref.job_id, "d") == 0;
        }
    }
    CHECK(named[0]);
    CHECK(named[1]);
    CHECK(named[2]);
    cluster_finish(&c);
}

TEST(a_stuck_task_is_still_found_when_help_comes)
{
    struct cluster c;
    cluster_init(&c);
    const struct requirement need = {.executor = "docker"};
    submit_tasks_for(&c, "j", 3, &need);
    cluster_advance(&c, 90 * SECOND_MS);
    CHECK_UINT(core_stats(c.core).stuck_tasks, 3);
    cluster_fail_over(&c);
    const struct offer docker = {.executors = TEXTS("docker")};
    worker_joins_with(&c, "w1", &docker);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 8), 3);
    cluster_finish(&c);
}

TEST(why_accounts_for_every_queued_task)
{
    struct cluster c;
    struct core_config config = core_config_default();
    config.blacklist_failure_threshold = 100;
    cluster_init_with(&c, config);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    struct stage_spec stages[] = {QUERY_STAGE(10), QUERY_STAGE(4, AFTER(ON(0)))};
    SUBMIT_QUERY(&c, "q", stages);
    const struct assignment *a = worker_polls(&c, "w1", 6)->u.tasks.first;
    for (int i = 0; i < 3; i++, a = a->next) {
        CHECK_INT(worker_fails(&c, "w1", a, "boom"), REFUSE_NONE); /* 3 in backoff */
    }
    for (int round = 0; round < 3; round++) { /* in backoff; ready again; after a failover */
        struct reasons r = why(&c, "q");
        uint32_t tasks[2] = {0, 0};
        for (uint32_t i = 0; i < r.count; i++) {
            CHECK(r.list[i].stage < 2);
            tasks[r.list[i].stage] += r.list[i].n_tasks;
        }
        CHECK_UINT(tasks[0], 7); /* 3 that failed, 4 never touched */
        CHECK_UINT(tasks[1], 4);
        arena_deinit(&r.arena);
        cluster_advance(&c, SECOND_MS);
        round == 1 ? cluster_fail_over(&c) : (void)0;
    }
    cluster_finish(&c);
}

TEST(a_task_that_every_live_worker_is_forbidden_to_run_is_stuck)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    const struct requirement forbidden = {.forbidden_nodes = TEXTS("w1", "w2", "w3")};
    const struct requirement elsewhere = {.allowed_nodes = TEXTS("w3")};
    const struct requirement fine = {.forbidden_nodes = TEXTS("w1")};
    submit_tasks_for(&c, "a", 1, &forbidden);
    submit_tasks_for(&c, "b", 1, &elsewhere);
    submit_tasks_for(&c, "d", 1, &fine);
    cluster_advance(&c, 70 * SECOND_MS);
    CHECK_UINT(core_stats(c.core).stuck_tasks, 2);
    worker_joins(&c, "w3"); /* allowed for one, forbidden for the other */
    worker_runs(&c, "w3", at("b", 0, 0));
    cluster_advance(&c, SECOND_MS);
    CHECK_UINT(core_stats(c.core).stuck_tasks, 1);
    cluster_finish(&c);
}

TEST(why_a_worker_at_the_limit_per_node_is_full)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct requirement need = {.max_parallel_per_node = 1};
    submit_tasks_for(&c, "j", 3, &need);
    worker_takes(&c, "w1");
    check_why(&c, "j", "all 1 matching workers are full", 2);
    cluster_finish(&c);
}

TEST(why_names_the_operator_that_is_missing)
{
    struct cluster c;
    cluster_init(&c);
    const struct offer has_x = {.ops = TEXTS("x")};
    worker_joins_with(&c, "w1", &has_x);
    const struct requirement need = {.ops = TEXTS("x", "y")};
    submit_tasks_for(&c, "j", 1, &need);
    check_why(&c, "j", "no live worker advertises operator 'y'", 1);
    cluster_finish(&c);
}

TEST(why_tells_the_end_of_a_backoff_on_any_day)
{
    const struct {
        int64_t second;
        const char *text;
    } days[] = {
        {1709208000, "backoff until 2024-02-29T12:00:00."}, {1709251200, "backoff until 2024-03-01T00:00:00."},
        {1735689540, "backoff until 2024-12-31T23:59:00."}, {1735689600, "backoff until 2025-01-01T00:00:00."},
        {4102444799, "backoff until 2099-12-31T23:59:59."}, {1717200000, "backoff until 2024-06-01T00:00:00."},
    };
    for (size_t i = 0; i < ARRAY_LEN(days); i++) {
        struct cluster c;
        cluster_init(&c);
        cluster_stall(&c, days[i].second * SECOND_MS - c.now_ms);
        worker_joins(&c, "w1");
        submit_tasks(&c, "j", 1);
        CHECK_INT(worker_fails(&c, "w1", worker_takes(&c, "w1"), "boom"), REFUSE_NONE);
        check_why_has(&c, "j", days[i].text);
        cluster_finish(&c);
    }
}
