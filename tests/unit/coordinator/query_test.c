/*
 * query_test.c - a physical plan becomes stages of a job.
 */
#include <string.h>

#include "base/buf.h"
#include "base/sha256.h"
#include "coordinator/query.h"
#include "test.h"

struct fixture {
    struct arena arena;
    const struct stage_spec *stages;
    uint32_t n;
    struct error e;
};

static enum err read_plan(struct fixture *f, const char *plan, int64_t planner)
{
    return query_stages(plan, strlen(plan), planner, "engine-of-the-fleet", &f->arena, &f->stages, &f->n, &f->e);
}

static const char two_stages[] =
    "{\"stages\":[{\"id\":0,\"sql\":\"select k, sum(v) s from read_parquet({{split}}) group by k\","
    "\"splits\":[{\"file\":\"a.parquet\"},{\"file\":\"b.parquet\",\"first_row\":0,\"last_row\":122879}],"
    "\"output\":{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":4}},"
    "{\"id\":1,\"inputs\":{\"m\":0},\"sql\":\"select k, sum(s) s from m group by k\","
    "\"custom\":{\"op\":\"add_five\",\"config\":{}},\"deterministic\":false,\"output\":{\"exchange\":\"result\"}}]}";

TEST(a_plan_becomes_stages_with_tasks_by_split_and_by_partition)
{
    struct fixture f = {0};
    CHECK_ERR(read_plan(&f, two_stages, -1), ERR_OK);
    CHECK_UINT(f.n, 2);
    const struct stage_spec *map = &f.stages[0];
    const struct stage_spec *reduce = &f.stages[1];
    CHECK_STR(map->name, "s0");
    CHECK_UINT(map->n_tasks, 2);
    CHECK_INT(map->output, OUTPUT_SHUFFLE);
    CHECK_UINT(map->partitions, 4);
    CHECK(!map->nondeterministic);
    CHECK_STR(map->need->executor, "sql");
    CHECK_STR(map->need->engine, "engine-of-the-fleet");
    CHECK_UINT(map->need->ops.count, 0);
    CHECK_STR(reduce->name, "s1");
    CHECK_UINT(reduce->n_tasks, 4);
    CHECK_INT(reduce->output, OUTPUT_RESULT);
    CHECK(reduce->nondeterministic);
    CHECK_UINT(reduce->need->ops.count, 1);
    CHECK_STR(reduce->need->ops.items[0], "add_five");
    CHECK_UINT(reduce->n_parents, 1);
    CHECK(reduce->parents[0].added);
    CHECK_UINT(reduce->parents[0].stage, 0);
    CHECK_INT(reduce->parents[0].read, READ_PARTITION);
    arena_deinit(&f.arena);
}

TEST(all_tasks_have_the_plan_as_their_inputs)
{
    struct fixture f = {0};
    struct digest digest;
    CHECK_ERR(read_plan(&f, two_stages, -1), ERR_OK);
    sha256_once(two_stages, strlen(two_stages), digest.bytes);
    for (uint32_t s = 0; s < f.n; s++) {
        for (uint32_t t = 0; t < f.stages[s].n_tasks; t++) {
            CHECK(memcmp(&f.stages[s].tasks[t].inputs, &digest, sizeof digest) == 0);
            CHECK_UINT(f.stages[s].tasks[t].inputs_bytes, strlen(two_stages));
        }
    }
    arena_deinit(&f.arena);
}

TEST(a_plan_from_a_planning_task_says_where_its_stages_go)
{
    struct fixture f = {0};
    const char *plan = "{\"engine\":\"duckdb-x\",\"first_job_stage\":3,\"stages\":["
                       "{\"id\":0,\"job_stage\":1,\"sql\":\"select 1 k\",\"output\":{\"exchange\":\"broadcast\"}},"
                       "{\"id\":5,\"inputs\":{\"m\":0},\"sql\":\"from m\",\"output\":{\"exchange\":\"result\"}}]}";
    CHECK_ERR(read_plan(&f, plan, 2), ERR_OK);
    CHECK_UINT(f.n, 1); /* the other one is in the job already */
    CHECK_STR(f.stages[0].name, "s5");
    CHECK_STR(f.stages[0].need->engine, "duckdb-x");
    CHECK(!f.stages[0].parents[0].added);
    CHECK_UINT(f.stages[0].parents[0].stage, 1);
    CHECK_INT(f.stages[0].parents[0].read, READ_ALL);
    CHECK_ERR(read_plan(&f, plan, 0), ERR_INVALID);
    CHECK(strstr(f.e.message, "first_job_stage: must be 1, got 3") != NULL);
    CHECK_ERR(read_plan(&f, plan, -1), ERR_INVALID); /* a client knows nothing of a job that is not there yet */
    arena_deinit(&f.arena);
}

TEST(a_plan_that_waits_for_a_size_gets_a_second_planning_task)
{
    struct fixture f = {0};
    const char *plan =
        "{\"stages\":[{\"id\":0,\"sql\":\"select 1 k\",\"output\":{\"exchange\":\"hash\",\"keys\":[\"k\"],"
        "\"partitions\":2}},{\"id\":1,\"sql\":\"select 2 k\",\"output\":{\"exchange\":\"hash\",\"keys\":[\"k\"],"
        "\"partitions\":2}},{\"id\":2,\"inputs\":{\"a\":0,\"b\":1},\"sql\":\"select * from a join b using (k)\","
        "\"choice\":{\"small\":0,\"large\":1,\"bytes\":1000},\"output\":{\"exchange\":\"result\"}}]}";
    CHECK_ERR(read_plan(&f, plan, -1), ERR_OK);
    CHECK_UINT(f.n, 2);
    CHECK_STR(f.stages[0].name, "s0");
    CHECK_STR(f.stages[1].name, "refine");
    CHECK(f.stages[1].planning);
    CHECK_INT(f.stages[1].output, OUTPUT_RESULT);
    CHECK_UINT(f.stages[1].n_parents, 1);
    CHECK_INT(f.stages[1].parents[0].read, READ_NONE);
    CHECK(f.stages[1].parents[0].added);
    CHECK_UINT(f.stages[1].parents[0].stage, 0);
    arena_deinit(&f.arena);
}

TEST(everything_that_is_wrong_with_a_plan_is_told_at_once)
{
    struct fixture f = {0};
    const char *plan =
        "{\"stages\":[{\"id\":0,\"inputs\":{\"m\":7},\"sql\":\"from m\",\"output\":{\"exchange\":\"result\"}},"
        "{\"id\":1,\"inputs\":{\"x\":1},\"sql\":\"from x\",\"output\":{\"exchange\":\"result\"}}]}";
    CHECK_ERR(read_plan(&f, plan, -1), ERR_INVALID);
    CHECK(strstr(f.e.message, "stage 0: ") != NULL);
    CHECK(strstr(f.e.message, "stage 1: ") != NULL);
    CHECK(strstr(f.e.message, "7") != NULL);
    arena_deinit(&f.arena);
}

static void check_ops(const char *sql, const char *expected)
{
    struct arena arena = {0};
    struct buf found = {0};
    const struct stage_spec *stage = query_planning_stage((struct query_inputs){.n_bytes = 1}, sql, &arena);
    for (uint32_t i = 0; i < stage->need->ops.count; i++) {
        buf_format(&found, "%s%s", i > 0 ? "," : "", stage->need->ops.items[i]);
    }
    buf_char(&found, '\0');
    CHECK_STR(found.data, expected);
    buf_deinit(&found);
    arena_deinit(&arena);
}

TEST(whoever_plans_operators_must_have_them)
{
    check_ops("select 42", "");
    check_ops("select * from custom('add_five', (select 1))", "add_five");
    check_ops("SELECT * FROM CUSTOM /* here */ ( -- and here\n 'b', (from custom('a', (select 1))))", "a,b");
    check_ops("select * from custom('a', (select 1)) x, custom('a', (select 2)) y", "a");
    check_ops("select 'custom(''no'', ' /* custom('no', */ -- custom('no'\n", "");
    check_ops("select mycustom('no'), customs('no'), custom(no), custom ", "");
    check_ops("select $$custom('no'$$, e'\\'custom(\\'no\\''", "");
    check_ops("select custom('open", "");
}
