#include "query/refine.h"

#include <stdio.h>
#include <string.h>

#include "test.h"

/* Two sides by keys, a join that may choose, and an aggregate behind it. */
static const char join_plan[] =
    "{\"stages\":["
    "{\"id\":0,\"sql\":\"SELECT 1 AS c0\",\"output\":{\"exchange\":\"hash\",\"keys\":[\"c0\"],\"partitions\":4}},"
    "{\"id\":1,\"sql\":\"SELECT * FROM read_parquet({{split}}) WHERE {{rows:n}}\",\"splits\":[{\"file\":\"a\"},{\"file\":\"b\"}],"
    "\"output\":{\"exchange\":\"hash\",\"keys\":[\"c0\"],\"partitions\":4}},"
    "{\"id\":2,\"inputs\":{\"s\":0,\"l\":1},\"sql\":\"SELECT * FROM l, s\",\"empty_if\":[\"s\",\"l\"],"
    "\"choice\":{\"small\":0,\"large\":1,\"bytes\":1000},"
    "\"output\":{\"exchange\":\"hash\",\"keys\":[\"c0\"],\"partitions\":4}},"
    "{\"id\":3,\"inputs\":{\"j\":2},\"sql\":\"SELECT c0 FROM j GROUP BY c0\",\"empty_if\":[\"j\"],"
    "\"output\":{\"exchange\":\"result\"}}]}";

struct fixture {
    struct arena arena;
    struct physical_plan *plan;
    struct stage_size sizes[8];
};

static struct fixture fixture_of(const char *text)
{
    struct fixture f = {0};
    struct error e = {0};
    CHECK_ERR(physical_read(text, strlen(text), &f.arena, &f.plan, NULL, &e), ERR_OK);
    return f;
}

/* The same for a plan that could not be read. */
static const struct physical_plan *refine_any(struct fixture *f)
{
    struct refine_options options = {0};
    return query_refine(f->plan, f->sizes, &options, &f->arena);
}

static const struct physical_plan *refine(struct fixture *f, uint64_t partition_bytes)
{
    struct refine_options options = {.partition_bytes = partition_bytes};
    const struct physical_plan *next = query_refine(f->plan, f->sizes, &options, &f->arena);
    struct buf text = {0};
    struct physical_plan *read = NULL;
    struct error e = {0};
    physical_write(&text, next); /* what comes out must be a plan that everybody takes */
    CHECK_ERR(physical_read(text.data, text.n, &f->arena, &read, NULL, &e), ERR_OK);
    buf_deinit(&text);
    return next;
}

TEST(nothing_starts_that_an_open_choice_is_about)
{
    struct fixture f = fixture_of(join_plan);
    CHECK(!physical_is_waiting(f.plan, 0));
    CHECK(physical_is_waiting(f.plan, 1));
    CHECK(physical_is_waiting(f.plan, 2));
    CHECK(!physical_is_waiting(f.plan, 3));
    const struct physical_plan *same = refine(&f, 0);
    CHECK_UINT(same->n_stages, 4);
    CHECK(same->stages[2].choice.is_open);
    arena_deinit(&f.arena);
}

TEST(a_small_side_is_read_by_all_and_the_large_one_stays)
{
    struct fixture f = fixture_of(join_plan);
    f.sizes[0] = (struct stage_size){.is_finished = true, .rows = 10, .bytes = 1000};
    const struct physical_plan *next = refine(&f, 0);
    CHECK_UINT(next->n_stages, 3);
    const struct physical_stage *join = &next->stages[1];
    CHECK_UINT(join->id, 2);
    CHECK_STR(join->sql, "WITH \"l\" AS (SELECT * FROM read_parquet({{split}}) WHERE {{rows:n}}) SELECT * FROM l, s");
    CHECK_UINT(join->n_inputs, 1);
    CHECK(join->inputs[0].is_whole);
    CHECK_UINT(physical_tasks(next, 1), 2);
    CHECK(!physical_is_waiting(next, 1));
    CHECK_UINT(join->n_empty_if, 1);
    CHECK_UINT(f.plan->n_stages, 4); /* the plan that was given is as it was */
    CHECK_UINT(f.plan->stages[2].n_inputs, 2);
    arena_deinit(&f.arena);
}

TEST(a_side_that_is_taken_in_brings_the_files_that_it_names)
{
    struct fixture f = fixture_of(join_plan);
    struct physical_file mine[] = {{"x", 1, 10}, {"y", 2, 20}};
    struct physical_file theirs[] = {{"y", 2, 20}, {"z", 3, 30}};
    f.plan->stages[2].files = mine;
    f.plan->stages[1].files = theirs;
    f.plan->stages[2].n_files = f.plan->stages[1].n_files = 2;
    f.sizes[0] = (struct stage_size){.is_finished = true, .rows = 10, .bytes = 1000};
    const struct physical_stage *join = &refine(&f, 0)->stages[1];
    CHECK_UINT(join->n_files, 3);
    CHECK_STR(join->files[0].path, "x");
    CHECK_STR(join->files[1].path, "y");
    CHECK_STR(join->files[2].path, "z");
    CHECK_INT(join->files[2].mtime_ms, 30);
    arena_deinit(&f.arena);
}

TEST(the_last_stages_as_one_read_the_files_of_them_all)
{
    struct fixture f = fixture_of(join_plan);
    struct physical_file files[] = {{"x", 1, 10}, {"y", 2, 20}};
    f.plan->stages[2].choice.is_open = false;
    f.plan->tail_bytes = 1000;
    f.plan->stages[2].files = &files[0];
    f.plan->stages[3].files = &files[1];
    f.plan->stages[2].n_files = f.plan->stages[3].n_files = 1;
    f.plan->first_job_stage = 2;
    for (uint32_t i = 0; i < 2; i++) {
        f.plan->stages[i].job_stage = i;
        f.sizes[i] = (struct stage_size){.is_finished = true, .rows = 1, .bytes = 1};
    }
    const struct physical_plan *next = refine(&f, 0);
    CHECK_UINT(next->n_stages, 3);
    CHECK_UINT(next->stages[2].n_files, 2);
    arena_deinit(&f.arena);
}

/* SQL that people wrote may end in a semicolon or a comment, begin in its own way, or have views before it. */
TEST(what_ends_sql_ends_with_it_where_stages_are_put_together)
{
    struct fixture f = fixture_of(join_plan);
    f.sizes[0] = (struct stage_size){.is_finished = true, .rows = 10, .bytes = 1000};
    f.plan->stages[1].sql = "SELECT 'a;--' ; -- b";
    CHECK_STR(refine(&f, 0)->stages[1].sql, "WITH \"l\" AS (SELECT 'a;--') SELECT * FROM l, s");
    f.plan->stages[1].sql = "CREATE TEMP VIEW v AS SELECT 1; FROM v";
    CHECK_UINT(refine_any(&f)->n_stages, 4);
    f.plan->stages[1].sql = "SELECT 1";
    f.plan->stages[2].sql = "with x as (select 1) select * from l, s";
    CHECK_UINT(refine(&f, 0)->n_stages, 4);
    f.plan->stages[2].sql = "SELECT * FROM l, s -- c";
    f.plan->stages[2].choice.is_open = false;
    f.plan->tail_bytes = 1000;
    f.plan->first_job_stage = 2;
    for (uint32_t i = 0; i < 2; i++) {
        f.plan->stages[i].job_stage = i;
        f.sizes[i] = (struct stage_size){.is_finished = true, .rows = 1, .bytes = 1};
    }
    CHECK_STR(refine(&f, 0)->stages[2].sql, "WITH \"j\" AS (SELECT * FROM l, s) SELECT c0 FROM j GROUP BY c0");
    f.plan->stages[2].sql = "CREATE TEMP VIEW v AS SELECT 1; FROM v";
    CHECK(strstr(refine_any(&f)->stages[2].sql, "WITH") == NULL);
    arena_deinit(&f.arena);
}

/* Filters of joins would change which rows these stages take (join_filter.h). */
TEST(limits_and_distinct_on_are_materialized_where_stages_are_put_together)
{
    struct fixture f = fixture_of(join_plan);
    f.sizes[0] = (struct stage_size){.is_finished = true, .rows = 10, .bytes = 1000};
    f.plan->stages[1].sql = "SELECT DISTINCT ON (c0) c0 FROM read_parquet({{split}})";
    CHECK_STR(refine(&f, 0)->stages[1].sql, "WITH \"l\" AS MATERIALIZED (SELECT DISTINCT ON (c0) c0 FROM "
                                            "read_parquet({{split}})) SELECT * FROM l, s");
    arena_deinit(&f.arena);
    f = fixture_of(join_plan);
    f.plan->stages[2].choice.is_open = false;
    f.plan->tail_bytes = 1000;
    f.plan->first_job_stage = 2;
    for (uint32_t i = 0; i < 2; i++) {
        f.plan->stages[i].job_stage = i;
        f.sizes[i] = (struct stage_size){.is_finished = true, .rows = 1, .bytes = 1};
    }
    CHECK_STR(refine(&f, 0)->stages[2].sql, "WITH \"j\" AS (SELECT * FROM l, s) SELECT c0 FROM j GROUP BY c0");
    f.plan->stages[2].sql = "SELECT * FROM l, s LIMIT 3";
    CHECK_STR(refine(&f, 0)->stages[2].sql,
              "WITH \"j\" AS MATERIALIZED (SELECT * FROM l, s LIMIT 3) SELECT c0 FROM j GROUP BY c0");
    f.plan->stages[2].sql = "SELECT * FROM l, s OFFSET 3";
    CHECK(strstr(refine(&f, 0)->stages[2].sql, "WITH \"j\" AS MATERIALIZED (") != NULL);
    f.plan->stages[2].sql = "SELECT * FROM l, s, read_parquet(['a', 'b']) /* files of several kinds */ t";
    CHECK(strstr(refine(&f, 0)->stages[2].sql, "WITH \"j\" AS MATERIALIZED (") != NULL);
    arena_deinit(&f.arena);
}

TEST(a_side_that_is_not_small_leaves_the_plan_as_it_was)
{
    struct fixture f = fixture_of(join_plan);
    f.sizes[0] = (struct stage_size){.is_finished = true, .rows = 10, .bytes = 1001};
    const struct physical_plan *next = refine(&f, 0);
    CHECK_UINT(next->n_stages, 4);
    CHECK(!next->stages[2].choice.is_open);
    CHECK(!physical_is_waiting(next, 1));
    arena_deinit(&f.arena);
}

/* A small side, a large one, a sieve between that and its readers: a join, and a second sieve that waits for the first. */
static const char sieve_plan[] =
    "{\"stages\":["
    "{\"id\":0,\"sql\":\"SELECT 1 AS c0\",\"output\":{\"exchange\":\"hash\",\"keys\":[\"c0\"],\"partitions\":4}},"
    "{\"id\":1,\"sql\":\"SELECT 2 AS c0\",\"output\":{\"exchange\":\"hash\",\"keys\":[\"c0\"],\"partitions\":4}},"
    "{\"id\":2,\"inputs\":{\"l\":1,\"s\":0},\"sql\":\"SELECT * FROM l SEMI JOIN s USING (c0) /* sieve */\","
    "\"choice\":{\"small\":0,\"large\":1,\"bytes\":1000},"
    "\"output\":{\"exchange\":\"hash\",\"keys\":[\"c0\"],\"partitions\":4}},"
    "{\"id\":3,\"sql\":\"SELECT 3 AS c0\",\"output\":{\"exchange\":\"hash\",\"keys\":[\"c0\"],\"partitions\":4}},"
    "{\"id\":4,\"inputs\":{\"m\":3,\"t\":2},\"sql\":\"SELECT * FROM m SEMI JOIN t USING (c0) /* sieve */\","
    "\"choice\":{\"small\":2,\"large\":3,\"bytes\":1000},"
    "\"output\":{\"exchange\":\"hash\",\"keys\":[\"c0\"],\"partitions\":4}},"
    "{\"id\":5,\"inputs\":{\"a\":2,\"b\":4},\"sql\":\"SELECT * FROM a, b\",\"output\":{\"exchange\":\"result\"}}]}";

TEST(a_sieve_takes_the_large_side_in_if_the_small_one_is_small)
{
    struct fixture f = fixture_of(sieve_plan);
    f.sizes[0] = (struct stage_size){.is_finished = true, .rows = 10, .bytes = 1000};
    const struct physical_plan *next = refine(&f, 0);
    CHECK_UINT(next->n_stages, 5);
    CHECK_UINT(next->stages[1].id, 2);
    CHECK_STR(next->stages[1].sql, "WITH \"l\" AS (SELECT 2 AS c0) SELECT * FROM l SEMI JOIN s USING (c0) /* sieve */");
    CHECK(!next->stages[1].choice.is_open);
    CHECK(next->stages[3].choice.is_open); /* it waits for the first */
    CHECK_UINT(next->stages[3].choice.small, 1);
    arena_deinit(&f.arena);
}

TEST(a_sieve_that_would_be_too_large_is_taken_out)
{
    struct fixture f = fixture_of(sieve_plan);
    f.sizes[0] = (struct stage_size){.is_finished = true, .rows = 100, .bytes = 1001};
    const struct physical_plan *next = refine(&f, 0);
    CHECK_UINT(next->n_stages, 4); /* and so nobody reads the small side */
    CHECK_UINT(next->stages[0].id, 1);
    const struct physical_stage *second = &next->stages[2];
    CHECK_UINT(second->id, 4);
    CHECK(second->choice.is_open);
    CHECK_UINT(next->stages[second->choice.small].id, 1); /* it waits for the large side itself now */
    CHECK_UINT(next->stages[second->inputs[1].stage].id, 1);
    CHECK_UINT(next->stages[next->stages[3].inputs[0].stage].id, 1);
    CHECK(!next->stages[3].inputs[0].is_whole);
    arena_deinit(&f.arena);
}

TEST(only_a_sieve_that_writes_as_the_large_side_does_is_taken_out)
{
    static const char *const others[][2] = {{"/* sieve */", "/* sieve. */"}, {"[\"c0\"]", "[\"c1\"]"}};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        struct buf text = {0};
        const char *at = strstr(strstr(sieve_plan, "\"id\":2"), others[i][0]);
        buf_append(&text, sieve_plan, (size_t)(at - sieve_plan));
        buf_text(&text, others[i][1]);
        buf_text(&text, at + strlen(others[i][0]));
        struct fixture f = fixture_of(text.data);
        f.sizes[0] = (struct stage_size){.is_finished = true, .rows = 100, .bytes = 1001};
        const struct physical_plan *next = refine(&f, 0);
        CHECK_UINT(next->n_stages, 6);
        CHECK(!next->stages[2].choice.is_open);
        CHECK_UINT(next->stages[5].inputs[0].stage, 2);
        arena_deinit(&f.arena);
        buf_deinit(&text);
    }
}

TEST(a_stage_without_rows_to_come_reads_nothing)
{
    struct fixture f = fixture_of(join_plan);
    f.sizes[0] = (struct stage_size){.is_finished = true};
    const struct physical_plan *next = refine(&f, 0);
    const struct physical_stage *join = &next->stages[1];
    CHECK_UINT(join->n_splits, 1);
    CHECK(join->splits[0].is_empty);
    arena_deinit(&f.arena);
}

/* It may have rows when it is redone, and nobody plans again then. */
TEST(no_rows_by_chance_are_not_counted_on)
{
    struct fixture f = fixture_of(join_plan);
    f.sizes[0] = (struct stage_size){.is_finished = true};
    f.plan->stages[0].is_deterministic = false;
    const struct physical_stage *join = &refine(&f, 0)->stages[1];
    CHECK_UINT(join->n_splits, 2);
    CHECK(!join->splits[0].is_empty);
    f.plan->stages[0].is_deterministic = true;
    CHECK_UINT(refine(&f, 0)->stages[1].n_splits, 1);
    /* Nor are those of a stage that reads such rows. */
    f.plan->stages[2].choice.is_open = false;
    f.sizes[0].rows = 5;
    f.sizes[1] = f.sizes[0];
    f.sizes[2] = (struct stage_size){.is_finished = true};
    CHECK_UINT(physical_tasks(refine(&f, 0), 3), 1);
    f.plan->stages[0].is_deterministic = false;
    CHECK_UINT(physical_tasks(refine(&f, 0), 3), 4);
    arena_deinit(&f.arena);
}

/* What reads a stage that has just been found to be empty is empty as well. */
TEST(emptiness_is_passed_on)
{
    struct fixture f = fixture_of(join_plan);
    f.plan->stages[2].choice.is_open = false;
    f.sizes[0] = (struct stage_size){.is_finished = true};
    const struct physical_plan *next = refine(&f, 0);
    CHECK_UINT(physical_tasks(next, 2), 1);
    CHECK_UINT(physical_tasks(next, 3), 1);
    f.plan->stages[3].n_empty_if = 0; /* it has rows for nothing, such as a count */
    CHECK_UINT(physical_tasks(refine(&f, 0), 3), 4);
    f.plan->stages[3].n_empty_if = 1;
    f.plan->stages[0].is_deterministic = false;
    CHECK_UINT(physical_tasks(refine(&f, 0), 3), 4);
    arena_deinit(&f.arena);
}

/* Partitions were put together while a second input was awaited, which then turns out to have no rows. */
TEST(a_stage_whose_partitions_share_tasks_already_keeps_all_of_them_if_it_is_empty)
{
    struct fixture f = fixture_of(
        "{\"stages\":["
        "{\"id\":0,\"sql\":\"SELECT 1 AS c0\",\"output\":{\"exchange\":\"hash\",\"keys\":[\"c0\"],\"partitions\":4}},"
        "{\"id\":1,\"sql\":\"SELECT 2 AS c0\",\"output\":{\"exchange\":\"broadcast\"}},"
        "{\"id\":2,\"inputs\":{\"a\":0,\"b\":1},\"sql\":\"SELECT * FROM a, b\",\"empty_if\":[\"b\"],"
        "\"output\":{\"exchange\":\"result\"}}]}");
    static const uint64_t bytes[] = {10, 20, 500, 5};
    f.sizes[0] =
        (struct stage_size){.is_finished = true, .rows = 9, .bytes = 5000, .n_partitions = 4, .partition_bytes = bytes};
    f.plan = (struct physical_plan *)(uintptr_t)refine(&f, 100);
    CHECK_UINT(physical_tasks(f.plan, 2), 3);
    f.sizes[1] = (struct stage_size){.is_finished = true};
    const struct physical_plan *next = refine(&f, 100);
    CHECK_UINT(physical_tasks(next, 2), 1);
    CHECK_UINT(physical_task_group(next, 2, 0).first, 0);
    CHECK_UINT(physical_task_group(next, 2, 0).last, 3);
    arena_deinit(&f.arena);
}

/* Seed 1795045502 of the random queries: a choice that ends because there are no rows was the last that the tail waited for. */
TEST(a_tail_does_not_wait_for_choices_about_nothing)
{
    struct fixture f = fixture_of(
        "{\"stages\":["
        "{\"id\":0,\"sql\":\"SELECT 1 AS c0\",\"splits\":[{\"file\":\"a\"}],"
        "\"output\":{\"exchange\":\"hash\",\"keys\":[\"c0\"],\"partitions\":2}},"
        "{\"id\":1,\"inputs\":{\"a\":0},\"sql\":\"SELECT c0 FROM a\",\"empty_if\":[\"a\"],"
        "\"output\":{\"exchange\":\"hash\",\"keys\":[\"c0\"],\"partitions\":2}},"
        "{\"id\":2,\"inputs\":{\"b\":0},\"sql\":\"SELECT c0 FROM b\",\"empty_if\":[\"b\"],"
        "\"output\":{\"exchange\":\"hash\",\"keys\":[\"c0\"],\"partitions\":2}},"
        "{\"id\":3,\"inputs\":{\"s\":1,\"l\":2},\"sql\":\"SELECT * FROM l, s\",\"empty_if\":[\"s\",\"l\"],"
        "\"choice\":{\"small\":1,\"large\":2,\"bytes\":1000},\"output\":{\"exchange\":\"hash\",\"keys\":[\"c0\"],\"partitions\":2}},"
        "{\"id\":4,\"inputs\":{\"j\":3},\"sql\":\"SELECT c0 FROM j GROUP BY c0\",\"empty_if\":[\"j\"],"
        "\"output\":{\"exchange\":\"result\"}}],\"tail_bytes\":1000,\"first_job_stage\":1}");
    f.plan->stages[0].job_stage = 0;
    f.sizes[0] = (struct stage_size){.is_finished = true};
    const struct physical_plan *next = refine(&f, 0);
    CHECK_UINT(next->tail_bytes, 0);
    for (uint32_t i = 0; i < next->n_stages; i++) {
        CHECK(!physical_is_waiting(next, i));
        CHECK(!next->stages[i].choice.is_open);
    }
    arena_deinit(&f.arena);
}

/* A GROUP BY with nothing behind it: what is written decides how many tasks read it, and whether one does. */
TEST(a_last_stage_of_several_tasks_waits_for_what_it_reads)
{
    static const char text[] =
        "{\"stages\":["
        "{\"id\":0,\"sql\":\"SELECT 1 AS c0\",\"splits\":[{\"file\":\"a\"}],"
        "\"output\":{\"exchange\":\"hash\",\"keys\":[\"c0\"],\"partitions\":4}},"
        "{\"id\":1,\"inputs\":{\"m\":0},\"sql\":\"SELECT c0 FROM m GROUP BY c0\",\"empty_if\":[\"m\"],"
        "\"output\":{\"exchange\":\"result\"}}],\"tail_bytes\":1000}";
    static const uint64_t bytes[] = {3000000, 3000000, 1000, 1000};
    struct fixture f = fixture_of(text);
    CHECK(!physical_is_waiting(f.plan, 0));
    CHECK(physical_is_waiting(f.plan, 1));
    f.plan->first_job_stage = 1;
    f.plan->stages[0].job_stage = 0;
    f.sizes[0] = (struct stage_size){.is_finished = true, .rows = 9, .bytes = 1000};
    const struct physical_plan *next = refine(&f, 0);
    CHECK_UINT(physical_tasks(next, 1), 1);
    CHECK(next->stages[1].inputs[0].is_whole);
    CHECK(!physical_is_waiting(next, 1));
    f.sizes[0] = (struct stage_size){
        .is_finished = true, .rows = 9, .bytes = 6002000, .n_partitions = 4, .partition_bytes = bytes};
    next = refine(&f, PHYSICAL_PARTITION_BYTES);
    CHECK_UINT(physical_tasks(next, 1), 3);
    CHECK(!physical_is_waiting(next, 1));
    arena_deinit(&f.arena);
}

/* One that is one task in any case has nothing to wait for. */
TEST(a_last_stage_of_one_task_does_not_wait)
{
    struct fixture f = fixture_of(
        "{\"stages\":[{\"id\":0,\"sql\":\"SELECT 1 AS c0\",\"splits\":[{\"file\":\"a\"}],\"output\":{\"exchange\":\"gather\"}},"
        "{\"id\":1,\"inputs\":{\"m\":0},\"sql\":\"SELECT c0 FROM m\",\"output\":{\"exchange\":\"result\"}}],"
        "\"tail_bytes\":1000}");
    CHECK(!physical_is_waiting(f.plan, 1));
    arena_deinit(&f.arena);
}

TEST(small_partitions_share_a_task)
{
    struct fixture f = fixture_of(join_plan);
    static const uint64_t bytes[] = {10, 20, 500, 5};
    for (int i = 0; i < 3; i++) {
        f.sizes[i] = (struct stage_size){
            .is_finished = true, .rows = 9, .bytes = 5000, .n_partitions = 4, .partition_bytes = bytes};
    }
    const struct physical_plan *next = refine(&f, 100);
    CHECK_UINT(physical_tasks(next, 3), 3);
    CHECK_UINT(physical_task_group(next, 3, 0).last, 1);
    CHECK_UINT(physical_task_group(next, 3, 1).first, 2);
    CHECK_UINT(physical_task_group(next, 3, 2).first, 3);
    f.sizes[2].is_finished = false; /* sizes are not known: one task each */
    CHECK_UINT(physical_tasks(refine(&f, 100), 3), 4);
    arena_deinit(&f.arena);
}

TEST(tasks_are_not_joined_while_each_has_enough_to_do)
{
    struct fixture f = fixture_of(join_plan);
    uint64_t bytes[] = {3000000, 3100000, 2900000, 3000000};
    for (int i = 0; i < 3; i++) {
        f.sizes[i] = (struct stage_size){
            .is_finished = true, .rows = 9, .bytes = 12000000, .n_partitions = 4, .partition_bytes = bytes};
    }
    CHECK_UINT(physical_tasks(refine(&f, PHYSICAL_PARTITION_BYTES), 3), 4);
    for (size_t i = 0; i < ARRAY_LEN(bytes); i++) {
        bytes[i] /= 3; /* a megabyte each: two by two */
    }
    CHECK_UINT(physical_tasks(refine(&f, PHYSICAL_PARTITION_BYTES), 3), 2);
    for (size_t i = 0; i < ARRAY_LEN(bytes); i++) {
        bytes[i] /= 3;
    }
    CHECK_UINT(physical_tasks(refine(&f, PHYSICAL_PARTITION_BYTES), 3), 1);
    arena_deinit(&f.arena);
}

TEST(tasks_that_others_count_on_are_not_joined)
{
    struct fixture f = fixture_of(
        "{\"stages\":[{\"id\":0,\"sql\":\"x\",\"output\":{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":2}},"
        "{\"id\":1,\"sql\":\"y\",\"inputs\":{\"a\":0},\"output\":{\"exchange\":\"forward\",\"partitions\":2}},"
        "{\"id\":2,\"sql\":\"select {{task}} from b\",\"inputs\":{\"b\":1},\"output\":{\"exchange\":\"result\"}}]}");
    static const uint64_t bytes[] = {1, 1};
    f.sizes[0] =
        (struct stage_size){.is_finished = true, .rows = 9, .bytes = 2, .n_partitions = 2, .partition_bytes = bytes};
    CHECK_UINT(physical_tasks(refine(&f, 1000), 1), 2);
    f.sizes[1] = f.sizes[0];
    CHECK_UINT(physical_tasks(refine(&f, 1000), 2), 2);
    arena_deinit(&f.arena);
}

/* The stage as text, apart from where others are. */
static const char *text_of(const struct physical_plan *plan, uint32_t id, struct buf *out)
{
    buf_reset(out);
    physical_write(out, plan);
    char start[40];
    snprintf(start, sizeof start, "{\"id\":%u,", (unsigned)id);
    char *at = strstr(out->data, start);
    char *end = at == NULL ? NULL : strstr(at + 1, "{\"id\":");
    CHECK(at != NULL);
    if (end != NULL) {
        *end = '\0';
    }
    return at;
}

TEST(stages_that_the_job_has_stay_as_they_are)
{
    struct fixture f = fixture_of(join_plan);
    struct buf before = {0};
    struct buf after = {0};
    static const uint64_t bytes[] = {1, 1, 1, 1};
    f.plan->engine = "e";
    f.plan->first_job_stage = 7;
    f.plan->stages[2].choice.is_open = false;
    for (uint32_t i = 0; i < 3; i++) {
        f.plan->stages[i].job_stage = i;
        f.sizes[i] = (struct stage_size){.is_finished = i < 2, .bytes = 4, .n_partitions = 4, .partition_bytes = bytes};
    }
    const struct physical_plan *next = refine(&f, 1000); /* both sides are empty, and have small partitions */
    CHECK_STR(next->engine, "e");
    CHECK_UINT(next->first_job_stage, 7);
    CHECK_UINT(next->n_stages, 4);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_STR(text_of(next, i, &after), text_of(f.plan, i, &before));
    }
    buf_deinit(&before);
    buf_deinit(&after);
    arena_deinit(&f.arena);
}

TEST(a_side_that_the_job_has_is_not_taken_in)
{
    struct fixture f = fixture_of(join_plan);
    f.plan->first_job_stage = 2;
    f.plan->stages[0].job_stage = 0;
    f.sizes[0] = (struct stage_size){.is_finished = true, .rows = 1, .bytes = 1};
    CHECK_UINT(refine(&f, 0)->n_stages, 3);
    f.plan->stages[1].job_stage = 1;
    const struct physical_plan *next = refine(&f, 0);
    CHECK_UINT(next->n_stages, 4);
    CHECK(!next->stages[2].choice.is_open);
    arena_deinit(&f.arena);
}

TEST(a_side_with_an_operator_is_not_taken_in)
{
    struct fixture f = fixture_of(join_plan);
    f.plan->stages[1].custom = (struct physical_custom){.op = "o", .config_json = "{}"};
    f.sizes[0] = (struct stage_size){.is_finished = true, .rows = 1, .bytes = 1};
    const struct physical_plan *next = refine(&f, 0);
    CHECK_UINT(next->n_stages, 4);
    CHECK_STR(physical_required_op(&next->stages[1]), "o");
    arena_deinit(&f.arena);
}
