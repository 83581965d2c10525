/*
 * placement_test.c - semantics section 7: which worker may run a task, and how many of them.
 */
#include "base/mem.h"
#include "cluster.h"

#define CAPABILITIES(...)                                                                                              \
    {                                                                                                                  \
        .items = (const struct capability[]){__VA_ARGS__},                                                             \
        .count = sizeof((const struct capability[]){__VA_ARGS__}) / sizeof(struct capability)                          \
    }
#define TEXT_IS(k, t)                                                                                                  \
    {                                                                                                                  \
        .key = (k), .kind = VALUE_TEXT, .text = (t)                                                                    \
    }
#define NUMBER_IS(k, n)                                                                                                \
    {                                                                                                                  \
        .key = (k), .kind = VALUE_NUMBER, .number = (n)                                                                \
    }

TEST(placement_executor_constraint)
{
    struct cluster c;
    cluster_init(&c);
    const struct offer shell = {.executors = TEXTS("command")};
    const struct offer docker = {.executors = TEXTS("http", "docker")};
    worker_joins_with(&c, "shell", &shell);
    worker_joins_with(&c, "docker", &docker);
    worker_joins(&c, "bare");
    const struct requirement any_of = {.any_executors = TEXTS("podman", "docker")};
    submit_tasks_for(&c, "j", 1, &any_of);
    worker_gets_nothing(&c, "shell");
    worker_gets_nothing(&c, "bare");
    worker_runs(&c, "docker", at("j", 0, 0)); /* one of them is enough */

    const struct requirement own = {.executor = "command"};
    submit_tasks_for(&c, "k", 1, &own);
    worker_gets_nothing(&c, "docker");
    worker_gets_nothing(&c, "bare");
    const struct assignment *a = worker_takes_task(&c, "shell", at("k", 0, 0));
    CHECK_STR(a->executor, "command");
    cluster_finish(&c);
}

TEST(placement_capability_constraint)
{
    struct cluster c;
    cluster_init(&c);
    const struct offer small = {.capabilities = CAPABILITIES(TEXT_IS("gpu", "nvidia"), NUMBER_IS("cpu_cores", 4))};
    const struct offer large = {.capabilities = CAPABILITIES(TEXT_IS("gpu", "nvidia"), NUMBER_IS("cpu_cores", 16))};
    const struct offer other = {.capabilities = CAPABILITIES(TEXT_IS("gpu", "amd"), NUMBER_IS("cpu_cores", 16))};
    worker_joins_with(&c, "small", &small);
    worker_joins_with(&c, "large", &large);
    worker_joins_with(&c, "other", &other);
    worker_joins(&c, "bare");
    const struct requirement need = {.capabilities =
                                         CAPABILITIES(TEXT_IS("gpu", "nvidia"), TEXT_IS("cpu_cores", ">=8"))};
    submit_tasks_for(&c, "j", 1, &need);
    worker_gets_nothing(&c, "small");
    worker_gets_nothing(&c, "other");
    worker_gets_nothing(&c, "bare");
    worker_takes_task(&c, "large", at("j", 0, 0));
    cluster_finish(&c);
}

TEST(placement_whitelist)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    worker_joins(&c, "w3");
    const struct requirement need = {.allowed_nodes = TEXTS("w2", "w3")};
    submit_tasks_for(&c, "j", 2, &need);
    worker_gets_nothing(&c, "w1");
    worker_takes(&c, "w2");
    worker_takes(&c, "w3");
    cluster_finish(&c);
}

TEST(an_allowed_node_must_meet_the_rest_as_well)
{
    struct cluster c;
    cluster_init(&c);
    const struct offer docker = {.executors = TEXTS("docker")};
    worker_joins(&c, "w1");
    worker_joins_with(&c, "w2", &docker);
    worker_joins_with(&c, "w3", &docker);
    const struct requirement need = {.executor = "docker", .allowed_nodes = TEXTS("w1", "w2")};
    submit_tasks_for(&c, "j", 1, &need);
    worker_gets_nothing(&c, "w1"); /* allowed, but cannot */
    worker_gets_nothing(&c, "w3"); /* can, but is not allowed */
    worker_takes(&c, "w2");
    cluster_finish(&c);
}

TEST(placement_blacklist)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    const struct requirement need = {.forbidden_nodes = TEXTS("w1")};
    submit_tasks_for(&c, "j", 1, &need);
    worker_gets_nothing(&c, "w1");
    worker_runs(&c, "w2", at("j", 0, 0));

    const struct requirement both = {.allowed_nodes = TEXTS("w1", "w2"), .forbidden_nodes = TEXTS("w1")};
    submit_tasks_for(&c, "k", 1, &both);
    worker_gets_nothing(&c, "w1"); /* forbidden wins */
    worker_runs(&c, "w2", at("k", 0, 0));
    cluster_finish(&c);
}

TEST(placement_concurrency_limit)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    worker_joins(&c, "w2");
    const struct requirement need = {.max_parallel_per_node = 2};
    submit_tasks_for(&c, "j", 6, &need);
    const struct reply *got = worker_polls(&c, "w1", 8);
    CHECK_UINT(got->u.tasks.n_tasks, 2);
    worker_gets_nothing(&c, "w1");
    CHECK_UINT(worker_takes_up_to(&c, "w2", 8), 2);
    CHECK_INT(worker_succeeds(&c, "w1", got->u.tasks.first), REFUSE_NONE);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 8), 1);
    CHECK_INT(worker_fails(&c, "w1", got->u.tasks.first->next, "boom"), REFUSE_NONE);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 8), 1);
    cluster_finish(&c);
}

TEST(the_limit_per_node_counts_per_job_and_per_constraint)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct requirement one = {.max_parallel_per_node = 1};
    const struct requirement one_other = {.max_parallel_per_node = 1, .forbidden_nodes = TEXTS("w9")};
    struct stage_spec stages[] = {QUERY_STAGE(2), QUERY_STAGE(2), QUERY_STAGE(2)};
    stages[0].need = &one;
    stages[1].need = &one;
    stages[2].need = &one_other;
    SUBMIT_QUERY(&c, "j", stages);
    SUBMIT_QUERY(&c, "k", stages);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 100), 4); /* of each job one under each constraint */
    CHECK_INT(state_of(&c, "j", 0, 0), TASK_RUNNING);
    CHECK_INT(state_of(&c, "j", 1, 0), TASK_QUEUED); /* the same constraint as stage 0 */
    CHECK_INT(state_of(&c, "j", 2, 0), TASK_RUNNING);
    CHECK_UINT(job_of(&c, "k").running, 2);
    cluster_fail_over(&c);
    worker_gets_nothing(&c, "w1");
    cluster_finish(&c);
}

TEST(a_job_at_its_limit_on_this_node_does_not_hide_its_other_tasks)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct requirement one = {.max_parallel_per_node = 1};
    struct stage_spec stages[] = {QUERY_STAGE(100), QUERY_STAGE(3)};
    stages[0].need = &one;
    SUBMIT_QUERY(&c, "j", stages);
    CHECK_UINT(worker_takes_up_to(&c, "w1", 100), 4);
    cluster_finish(&c);
}

TEST(absent_and_empty_mean_no_constraint)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    static const char *const none[] = {NULL};
    const struct requirement empty = {.any_executors = {none, 0}, .allowed_nodes = {none, 0}, .ops = {none, 0}};
    submit_tasks_for(&c, "j", 1, &empty);
    worker_takes(&c, "w1");
    CHECK(requirement_equal(&empty, &ANY_WORKER));
    CHECK_UINT(requirement_hash(&empty), requirement_hash(&ANY_WORKER));
    cluster_finish(&c);
}

TEST(a_node_that_registers_with_other_offers_is_matched_anew)
{
    struct cluster c;
    cluster_init(&c);
    worker_joins(&c, "w1");
    const struct requirement need = {.executor = "docker"};
    submit_tasks_for(&c, "j", 1, &need);
    worker_gets_nothing(&c, "w1");
    const struct offer docker = {.executors = TEXTS("docker")};
    worker_named(&c, "w1")->offer = docker;
    worker_restarts(&c, "w1");
    worker_takes(&c, "w1");
    cluster_finish(&c);
}

static bool satisfies(struct capability offered, struct capability required)
{
    return capability_satisfies(&offered, &required);
}

TEST(a_required_capability_equals_or_compares_or_is_contained)
{
    struct capability eight = NUMBER_IS("cpu", 8);
    struct capability nine = NUMBER_IS("cpu", 9);
    struct capability nvidia = TEXT_IS("gpu", "nvidia");
    struct capability amd = TEXT_IS("gpu", "amd");
    const char *const labels[] = {"ml", "fast"};
    struct capability list = {.key = "labels", .kind = VALUE_LIST, .items = labels, .n_items = 2};
    struct capability yes = {.key = "ssd", .kind = VALUE_BOOL, .number = 1};
    struct capability no = {.key = "ssd", .kind = VALUE_BOOL, .number = 0};

    CHECK(satisfies(eight, eight));
    CHECK(!satisfies(eight, nine));
    CHECK(!satisfies(nine, eight)); /* a plain number must be equal */
    CHECK(satisfies(nvidia, nvidia));
    CHECK(!satisfies(nvidia, amd));
    CHECK(satisfies(yes, yes));
    CHECK(!satisfies(yes, no));
    CHECK(satisfies(eight, (struct capability)TEXT_IS("cpu", ">=8")));
    CHECK(satisfies(nine, (struct capability)TEXT_IS("cpu", ">=8")));
    CHECK(!satisfies(eight, (struct capability)TEXT_IS("cpu", ">=8.5")));
    CHECK(!satisfies(nvidia, (struct capability)TEXT_IS("gpu", ">=8")));
    CHECK(satisfies(list, (struct capability)TEXT_IS("labels", "ml")));
    CHECK(satisfies(list, (struct capability)TEXT_IS("labels", "fast")));
    CHECK(!satisfies(list, (struct capability)TEXT_IS("labels", "slow")));
    CHECK(!satisfies(eight, (struct capability)TEXT_IS("cpu", "x8")));
}

TEST(a_mismatch_says_which_part_it_was)
{
    uint32_t index = 99;
    const struct offer offer = {.executors = TEXTS("command"),
                                .ops = TEXTS("a"),
                                .engine = "duck-1.5",
                                .capabilities = CAPABILITIES(TEXT_IS("zone", "a"))};
    struct requirement need = {.executor = "command", .ops = TEXTS("a"), .engine = "duck-1.5"};
    CHECK_INT(requirement_match(&need, &offer, NULL), MISMATCH_NONE);
    need.engine = "duck-1.4";
    CHECK_INT(requirement_match(&need, &offer, NULL), MISMATCH_ENGINE);
    CHECK_INT(requirement_match(&need, &NOTHING_SPECIAL, NULL), MISMATCH_EXECUTOR);
    need = (struct requirement){.ops = TEXTS("a", "b")};
    CHECK_INT(requirement_match(&need, &offer, &index), MISMATCH_OP);
    CHECK_UINT(index, 1);
    need = (struct requirement){.any_executors = TEXTS("x", "y")};
    CHECK_INT(requirement_match(&need, &offer, NULL), MISMATCH_ANY_EXECUTOR);
    need = (struct requirement){.capabilities = CAPABILITIES(TEXT_IS("zone", "a"), TEXT_IS("gpu", "any"))};
    CHECK_INT(requirement_match(&need, &offer, &index), MISMATCH_CAPABILITY);
    CHECK_UINT(index, 1);
    need = (struct requirement){.allowed_nodes = TEXTS("w1")};
    CHECK(requirement_allows_node(&need, "w1"));
    CHECK(!requirement_allows_node(&need, "w2"));
}

TEST(copies_of_requirements_and_offers_are_equal_and_stand_alone)
{
    struct requirement need = {
        .executor = "command",
        .ops = TEXTS("a", "b"),
        .engine = "e",
        .any_executors = TEXTS("x"),
        .capabilities =
            CAPABILITIES(TEXT_IS("zone", "a"), NUMBER_IS("n", 3),
                         {.key = "l", .kind = VALUE_LIST, .items = (const char *const[]){"p"}, .n_items = 1}),
        .allowed_nodes = TEXTS("w1"),
        .forbidden_nodes = TEXTS("w2", "w3"),
        .max_parallel_per_node = 4,
    };
    struct requirement *copy = requirement_copy(&need);
    CHECK(requirement_equal(&need, copy));
    CHECK_UINT(requirement_hash(&need), requirement_hash(copy));
    need.max_parallel_per_node = 5;
    CHECK(!requirement_equal(&need, copy));
    need.max_parallel_per_node = 4;
    need.forbidden_nodes.count = 1;
    CHECK(!requirement_equal(&need, copy));
    need.forbidden_nodes.count = 2;
    need.executor = NULL;
    CHECK(!requirement_equal(&need, copy));
    mem_free(copy);

    const struct offer offer = {
        .executors = TEXTS("x"), .ops = TEXTS("a"), .engine = "e", .capabilities = CAPABILITIES(NUMBER_IS("n", 3))};
    struct offer *twin = offer_copy(&offer);
    CHECK(offer_equal(&offer, twin));
    CHECK(!offer_equal(&offer, &NOTHING_SPECIAL));
    mem_free(twin);
}

TEST(a_required_list_is_contained_in_an_offered_one)
{
    const char *const offered[] = {"ml", "fast", "eu"};
    const char *const two[] = {"eu", "ml"};
    const char *const other[] = {"eu", "us"};
    struct capability list = {.key = "labels", .kind = VALUE_LIST, .items = offered, .n_items = 3};
    CHECK(satisfies(list, (struct capability){.key = "labels", .kind = VALUE_LIST, .items = two, .n_items = 2}));
    CHECK(!satisfies(list, (struct capability){.key = "labels", .kind = VALUE_LIST, .items = other, .n_items = 2}));
    CHECK(!satisfies((struct capability)TEXT_IS("labels", "ml"),
                     (struct capability){.key = "labels", .kind = VALUE_LIST, .items = two, .n_items = 2}));
    CHECK(!satisfies(list, (struct capability)NUMBER_IS("labels", 3)));
}

TEST(a_copy_does_not_point_into_its_original)
{
    char executor[] = "command";
    char op[] = "op";
    char key[] = "zone";
    char item[] = "a";
    const char *ops[] = {op};
    const char *items[] = {item};
    struct capability capability = {.key = key, .kind = VALUE_LIST, .items = items, .n_items = 1};
    struct requirement need = {.executor = executor, .ops = {ops, 1}, .capabilities = {&capability, 1}};
    struct offer offer = {.executors = {ops, 1}, .capabilities = {&capability, 1}, .engine = executor};
    struct requirement *need_copy = requirement_copy(&need);
    struct offer *offer_twin = offer_copy(&offer);
    executor[0] = op[0] = key[0] = item[0] = 'X';
    ops[0] = items[0] = "gone";
    capability.key = "gone";
    CHECK_STR(need_copy->executor, "command");
    CHECK_STR(need_copy->ops.items[0], "op");
    CHECK_STR(need_copy->capabilities.items[0].key, "zone");
    CHECK_STR(need_copy->capabilities.items[0].items[0], "a");
    CHECK_STR(offer_twin->executors.items[0], "op");
    CHECK_STR(offer_twin->capabilities.items[0].items[0], "a");
    CHECK_STR(offer_twin->engine, "command");
    mem_free(need_copy);
    mem_free(offer_twin);
}
