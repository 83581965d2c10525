/* What the life of a task costs PostgreSQL: statements, and where new versions of rows are put. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "integration/postgres/lifecycles.h"

#define HOUR_MS INT64_C(3600000)

static void live(struct lifecycles *l, uint32_t width)
{
    lifecycles_submit(l, width);
    lifecycles_assign(l, width);
    lifecycles_finish(l);
}

/* How many of a hundred updates since the beginning stayed in their page, with no index touched. */
static long long hot_percent(const struct fixture *f, const char *table)
{
    char sql[256];
    snprintf(sql, sizeof sql,
             "SELECT 100 * n_tup_hot_upd / n_tup_upd FROM pg_stat_user_tables WHERE schemaname = 'capstan' "
             "AND relname = '%s' AND n_tup_upd >= 4000",
             table);
    char *text = server_sql(&f->server, sql);
    CHECK(text[0] != '\0'); /* all of them have been counted */
    long long percent = strtoll(text, NULL, 10);
    free(text);
    return percent;
}

static void check_share(const struct fixture *f, const char *table, long long wanted)
{
    long long percent = hot_percent(f, table);
    print_message("%s: %lld %% of the updates stay in their page\n", table, percent);
    if (percent < wanted) {
        print_error("%s: %lld %% of the updates stay in their page, wanted are %lld\n", table, percent, wanted);
    }
    CHECK(percent >= wanted);
}

/*
 * All tasks of a page change in one transaction here, before any old version can be cleaned away: the worst case. A job's
 * state is in its indexes, so that no change of it can stay in its page; see src/store/README.md.
 */
TEST(changes_of_tasks_and_attempts_stay_in_their_page)
{
    struct fixture f;
    struct lifecycles l;
    fixture_lead(&f, HOUR_MS);
    lifecycles_begin(&l, &f);
    for (int i = 0; i < 3; i++) {
        live(&l, 1000);
    }
    for (int i = 0; i < 20; i++) {
        live(&l, 100);
    }
    lifecycles_end(&l);
    fixture_hang_up(&f);
    check_share(&f, "tasks", 95);
    check_share(&f, "execution_idempotency", 95);
    fixture_close(&f);
}

/* ---- statements ---- */

/* Statements that commits have run, by the server's log. */
static uint32_t count_statements(const struct fixture *f)
{
    char path[128];
    char line[4096];
    uint32_t n = 0;
    snprintf(path, sizeof path, "%s/log", f->server.dir);
    FILE *log = fopen(path, "r");
    CHECK(log != NULL);
    while (fgets(line, sizeof line, log) != NULL) {
        n += strstr(line, "LOG:  execute cap") != NULL;
    }
    CHECK_INT(fclose(log), 0);
    return n;
}

struct round_cost {
    uint32_t submit;
    uint32_t assign;
    uint32_t finish;
};

static struct round_cost cost_of(struct lifecycles *l, uint32_t width)
{
    uint32_t before = count_statements(l->f);
    lifecycles_submit(l, width);
    uint32_t submitted = count_statements(l->f);
    lifecycles_assign(l, width);
    uint32_t assigned = count_statements(l->f);
    lifecycles_finish(l);
    uint32_t finished = count_statements(l->f);
    return (struct round_cost){submitted - before, assigned - submitted, finished - assigned};
}

/* BEGIN, the fence and COMMIT are three of them. */
#define STATEMENTS_MAX 12

TEST(a_batch_is_a_handful_of_statements_whatever_its_size)
{
    struct fixture f;
    struct lifecycles l;
    char sql[160];
    fixture_lead(&f, HOUR_MS);
    fixture_hang_up(&f);
    snprintf(sql, sizeof sql, "ALTER DATABASE %.*s SET log_statement = 'all'",
             (int)strcspn(strchr(f.server.url, '/') + strlen("//postgres@/"), "?"),
             strchr(f.server.url, '/') + strlen("//postgres@/"));
    free(server_sql(&f.server, sql));
    fixture_call_again(&f);
    lifecycles_begin(&l, &f);
    (void)cost_of(&l, 1); /* the first commit of a connection prepares */
    struct round_cost one = cost_of(&l, 1);
    struct round_cost many = cost_of(&l, 1000);
    print_message("statements of a submit, an assignment, an end: %u, %u, %u\n", one.submit, one.assign, one.finish);
    CHECK(one.submit > 3 && one.submit <= STATEMENTS_MAX);
    CHECK(one.assign > 3 && one.assign <= STATEMENTS_MAX);
    CHECK(one.finish > 3 && one.finish <= STATEMENTS_MAX);
    CHECK_UINT(many.submit, one.submit);
    CHECK_UINT(many.assign, one.assign);
    CHECK_UINT(many.finish, one.finish);
    lifecycles_end(&l);
    fixture_close(&f);
}
