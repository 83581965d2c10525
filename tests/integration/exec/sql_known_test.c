/* Plans that are kept for queries that come again. */
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "exec/sql_internal.h"
#include "fixture.h"
#include "sql_cluster.h"

/* Files that were there long before the test. A link to one of them can be made to lead to another at any time. */
#define OLD_FILE "/bin/sh"
#define OTHER_FILE "/bin/cat"

struct shelf {
    struct sql_executor sql;
    struct folder folder;
    char link[200];
    uint8_t key[SHA256_BYTES];
    struct buf plan;
};

static void shelf_open(struct shelf *s)
{
    *s = (struct shelf){0};
    pthread_mutex_init(&s->sql.plans_mutex, NULL);
    list_init(&s->sql.known);
    folder_open(&s->folder, 0);
    snprintf(s->link, sizeof(s->link), "%s/link", s->folder.shuffle);
    CHECK_INT(symlink(OLD_FILE, s->link), 0);
    sha256_once("query", 5, s->key);
    buf_text(&s->plan, "the plan");
}

static void shelf_close(struct shelf *s)
{
    sql__known_deinit(&s->sql);
    CHECK_UINT(s->sql.n_known, 0);
    pthread_mutex_destroy(&s->sql.plans_mutex);
    buf_deinit(&s->plan);
    unlink(s->link);
    folder_close(&s->folder);
}

static void add_planned(struct shelf *s, const char *const *paths, uint32_t n, int64_t planned_ms)
{
    struct sql_known_files files = {paths, n, planned_ms};
    sql__known_add(&s->sql, s->key, &s->plan, &files);
}

static void add(struct shelf *s, const char *const *paths, uint32_t n)
{
    add_planned(s, paths, n, clock_wall_ms());
}

static bool is_found(struct shelf *s)
{
    struct buf plan = {0};
    bool is_there = sql__known_find(&s->sql, s->key, &plan);
    if (is_there) {
        CHECK_STR(plan.data, "the plan");
    }
    buf_deinit(&plan);
    return is_there;
}

TEST(a_plan_is_known_as_long_as_its_files_are_what_they_were)
{
    struct shelf s;
    shelf_open(&s);
    const char *paths[] = {s.link, "/bin"};
    CHECK(!is_found(&s));
    add(&s, paths, 2);
    CHECK(is_found(&s));
    CHECK(is_found(&s));
    s.key[0] ^= 1;
    CHECK(!is_found(&s));
    s.key[0] ^= 1;
    CHECK_INT(unlink(s.link), 0);
    CHECK_INT(symlink(OTHER_FILE, s.link), 0);
    CHECK(!is_found(&s));
    CHECK_UINT(s.sql.n_known, 0);
    shelf_close(&s);
}

TEST(a_plan_whose_files_are_new_or_missing_is_not_kept)
{
    struct shelf s;
    shelf_open(&s);
    const char *fresh[] = {s.link, s.folder.shuffle}; /* the link has just been made in it */
    add(&s, fresh, 2);
    CHECK(!is_found(&s));
    const char *missing[] = {s.link, "/there/is/no/such/file"};
    add(&s, missing, 2);
    CHECK(!is_found(&s));
    shelf_close(&s);
}

TEST(a_plan_whose_files_have_changed_since_its_planning_began_is_not_kept)
{
    struct shelf s;
    struct stat st;
    shelf_open(&s);
    const char *paths[] = {s.link};
    CHECK_INT(stat(OLD_FILE, &st), 0);
    int64_t changed_ms = (int64_t)st.st_ctim.tv_sec * 1000;
    CHECK(changed_ms < clock_wall_ms() - 10000); /* nobody would notice by the time of today */
    add_planned(&s, paths, 1, changed_ms - 1000);
    CHECK(!is_found(&s));
    add_planned(&s, paths, 1, changed_ms + 1000);
    CHECK(!is_found(&s));
    add_planned(&s, paths, 1, changed_ms + 5000);
    CHECK(is_found(&s));
    shelf_close(&s);
}

TEST(the_plans_that_were_not_used_for_longest_are_forgotten)
{
    struct shelf s;
    shelf_open(&s);
    const char *paths[] = {s.link};
    add(&s, paths, 1);
    for (uint8_t i = 1; i <= 100; i++) {
        uint8_t key[SHA256_BYTES] = {0};
        key[5] = i;
        struct sql_known_files files = {paths, 1, clock_wall_ms()};
        sql__known_add(&s.sql, key, &s.plan, &files);
        CHECK(is_found(&s)); /* and so it is the one used last but one */
    }
    CHECK_UINT(s.sql.n_known, 64);
    shelf_close(&s);
}

static void expect_count(struct cluster *cluster, const char *inputs, const char *expected)
{
    struct cluster_job job;
    struct table rows = {0};
    cluster_begin(cluster, &job);
    const struct exec_outcome *out = cluster_plan(cluster, &job, inputs);
    CHECK_STR(out->is_success ? NULL : out->message.data, NULL);
    cluster_result(cluster, &job, &rows);
    CHECK_STR(rows.rows[0][0], expected);
    table_deinit(&rows);
    cluster_end(&job);
}

TEST(a_query_that_comes_again_sees_files_that_were_changed_or_added)
{
    struct cluster cluster;
    struct buf inputs = {0};
    cluster_open(&cluster, &(struct cluster_options){.shuffle_bytes = 1000000});
    cluster_sql(&cluster, "COPY (SELECT i AS k FROM range(1000) r(i)) TO '@/a.parquet' (FORMAT parquet)");
    cluster_inputs(&cluster, "SELECT count(*) AS n, max(k) AS m FROM t",
                   "\"tables\":[{\"name\":\"t\",\"source\":\"@/*.parquet\"}]", &inputs);
    expect_count(&cluster, inputs.data, "1000");
    expect_count(&cluster, inputs.data, "1000");
    cluster_sql(&cluster, "COPY (SELECT i AS k FROM range(700) r(i)) TO '@/a.parquet' (FORMAT parquet)");
    expect_count(&cluster, inputs.data, "700");
    cluster_sql(&cluster, "COPY (SELECT i AS k FROM range(10) r(i)) TO '@/b.parquet' (FORMAT parquet)");
    expect_count(&cluster, inputs.data, "710");
    cluster_sql(&cluster, "COPY (SELECT 'x' AS k FROM range(5) r(i)) TO '@/a.parquet' (FORMAT parquet)");
    cluster_sql(&cluster, "COPY (SELECT 'y' AS k FROM range(6) r(i)) TO '@/b.parquet' (FORMAT parquet)");
    expect_count(&cluster, inputs.data,
                 "11"); /* the column has another type now, which a view of before does not have */
    buf_deinit(&inputs);
    cluster_close(&cluster);
}
