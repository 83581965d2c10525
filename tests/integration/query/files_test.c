/*
 * A plan and the files that it reads belong together, also if the files change while it is made. The operator of a custom(…)
 * is asked for its columns when what it reads has been planned, and before anybody looks at the files of the plan: it
 * changes them then. And what is known of many files stays within bounds.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "query/cut.h"
#include "query/data.h"
#include "query/operators.h"
#include "query/split.h"
#include "test.h"

struct fixture {
    struct planner *planner;
    struct duck *duck;
    struct duck_connection *connection;
    struct arena arena;
    const char *path;
    uint32_t n_asked;
    uint32_t n_changes; /* that are still to be made */
};

/* Puts another file into the place of the file, with `n` numbers from 0. */
static void put_file(struct fixture *f, uint32_t n)
{
    struct error e = {0};
    const char *next = arena_format(&f->arena, "%s.next", f->path);
    CHECK_ERR(duck_run(f->connection,
                       arena_format(&f->arena, "COPY (SELECT i AS a FROM range(%u) r(i)) TO '%s' (FORMAT parquet)",
                                    (unsigned)n, next),
                       &e),
              ERR_OK);
    CHECK_INT(rename(next, f->path), 0);
}

static enum err change_files(void *context, const char *op, const char *config_json, const struct ArrowSchema *in,
                             struct ArrowSchema *out, struct error *e)
{
    struct fixture *f = context;
    f->n_asked++;
    if (f->n_changes > 0) {
        f->n_changes--;
        put_file(f, 1000 + f->n_asked);
    }
    return operator_columns(f->connection, op, config_json, in, out, e);
}

static struct fixture fixture_open(void)
{
    struct fixture f = {0};
    struct error e = {0};
    CHECK_ERR(planner_open(&f.planner, &e), ERR_OK);
    CHECK_ERR(duck_open(&(struct duck_options){.threads = 1}, &f.duck, &e), ERR_OK);
    CHECK_ERR(duck_connect(f.duck, &f.connection, &e), ERR_OK);
    f.path = arena_format(&f.arena, "%s/changing.parquet", test_data()->ugly);
    put_file(&f, 10);
    return f;
}

static void fixture_close(struct fixture *f)
{
    CHECK_INT(remove(f->path), 0);
    planner_close(f->planner);
    duck_disconnect(f->connection);
    duck_close(f->duck);
    arena_deinit(&f->arena);
}

static enum err plan(struct fixture *f, struct query_planned *out, struct error *e)
{
    struct planner_request request = {
        .sql = arena_format(&f->arena, "SELECT a FROM custom('add', (SELECT a FROM '%s' WHERE a < 100))", f->path),
        .custom = change_files,
        .custom_context = f};
    return query_plan_files(f->planner, &request, &f->arena, out, e);
}

/* Whether a stage of the plan has the condition, which is true of all rows of the first file. */
static bool has_condition(struct fixture *f, const struct query_planned *planned)
{
    struct cut_options options = {.slots = 2, .is_forced = true, .catalog = planned->catalog};
    struct physical_plan *cut = NULL;
    struct error e = {0};
    bool is_found = false;
    CHECK_ERR(query_cut(planned->plan, &options, &f->arena, &cut, &e), ERR_OK);
    for (uint32_t i = 0; i < cut->n_stages; i++) {
        is_found = is_found || strstr(cut->stages[i].sql, "'100'") != NULL;
    }
    return is_found;
}

TEST(a_condition_is_left_out_if_it_is_true_of_all_rows_of_a_file)
{
    struct fixture f = fixture_open();
    struct query_planned planned;
    struct error e = {0};
    CHECK_ERR(plan(&f, &planned, &e), ERR_OK);
    CHECK(!has_condition(&f, &planned));
    CHECK_UINT(planned.catalog->files[0].rows, 10);
    fixture_close(&f);
}

TEST(a_file_that_is_replaced_while_a_query_is_planned_is_planned_again)
{
    struct fixture f = fixture_open();
    struct query_planned planned;
    struct error e = {0};
    f.n_changes = 1;
    CHECK_ERR(plan(&f, &planned, &e), ERR_OK);
    CHECK_UINT(planned.catalog->files[0].rows, 1001);
    CHECK(has_condition(&f, &planned));
    CHECK_UINT(f.n_asked, 2);
    fixture_close(&f);
}

TEST(a_file_that_changes_again_and_again_is_waited_for_by_nobody)
{
    struct fixture f = fixture_open();
    struct query_planned planned;
    struct error e = {0};
    f.n_changes = UINT32_MAX;
    CHECK_ERR(plan(&f, &planned, &e), ERR_UNAVAILABLE);
    CHECK_STR(e.message, "the files of the query change while it is planned");
    fixture_close(&f);
}

TEST(a_file_is_settled_when_neither_it_nor_its_place_has_changed_for_two_seconds)
{
    struct split_file files[2] = {{.path = "a"}, {.path = "b", .changed_ns = 10000000000, .placed_ns = 5000000000}};
    struct split_catalog catalog = {.n_files = 2, .files = files};
    CHECK(split_catalog_is_settled(&catalog, 12000));
    CHECK(!split_catalog_is_settled(&catalog, 11999));
    CHECK(!split_catalog_is_settled(&catalog, 9000)); /* it has changed since */
    files[0].placed_ns = 15000000000;                 /* in a folder that is another one since */
    CHECK(!split_catalog_is_settled(&catalog, 12000));
    CHECK(split_catalog_is_settled(&catalog, 17000));
}

TEST(files_that_come_while_a_query_is_planned_again_do_not_keep_it_from_being_planned)
{
    struct split_file old[2] = {{.path = "a", .has_identity = true, .inode = 1, .changed_ns = 10000000000},
                                {.path = "b", .has_identity = true, .inode = 2, .changed_ns = 10000000000}};
    struct split_file now[3] = {old[0], old[1]};
    struct split_catalog before = {.n_files = 2, .files = old};
    struct split_catalog catalog = {.n_files = 3, .files = now};
    now[2] = (struct split_file){.path = "c", .has_identity = true, .inode = 3, .changed_ns = 10500000000};
    CHECK(split_catalog_was_there(&before, &catalog, 11000));
    CHECK(!split_catalog_was_there(&before, &catalog, 10550)); /* it may have been another one when DuckDB looked */
    now[1].inode = 4;                                          /* replaced */
    CHECK(!split_catalog_was_there(&before, &catalog, 11000));
    now[1] = now[2]; /* gone */
    catalog.n_files = 2;
    CHECK(split_catalog_was_there(&before, &catalog, 11000));
}

/* Many files with an ascending column, old enough to be remembered. */
#define FILES 300

static const char *put_many(struct fixture *f)
{
    struct error e = {0};
    const char *folder = arena_format(&f->arena, "%s/many", test_data()->ugly);
    struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    CHECK_INT(mkdir(folder, 0777), 0);
    for (uint32_t i = 0; i < FILES; i++) {
        const char *path = arena_format(&f->arena, "%s/%03" PRIu32 ".parquet", folder, i);
        const char *sql = arena_format(&f->arena, "COPY (SELECT %" PRIu32 " AS a FROM range(3)) TO '%s'", i, path);
        CHECK_ERR(duck_run(f->connection, sql, &e), ERR_OK);
        CHECK_INT(utimensat(AT_FDCWD, path, old, 0), 0);
    }
    return folder;
}

static void remove_many(struct fixture *f, const char *folder)
{
    for (uint32_t i = 0; i < FILES; i++) {
        CHECK_INT(remove(arena_format(&f->arena, "%s/%03" PRIu32 ".parquet", folder, i)), 0);
    }
    CHECK_INT(rmdir(folder), 0);
}

/* Files are remembered when nothing of them, nor their place, has changed for two seconds. */
static void wait_until_settled(const char *folder)
{
    struct stat st = {0};
    CHECK_INT(stat(folder, &st), 0);
    while (clock_wall_ms() < (int64_t)st.st_mtim.tv_sec * 1000 + 3100) {
        poll(NULL, 0, 50);
    }
}

/* Of how many files the values of row groups are known; all of the rest is known of each. */
static uint32_t count_with_values(struct fixture *f, const char *folder)
{
    struct planner_request request = {.sql = arena_format(&f->arena, "SELECT sum(a) FROM '%s/*.parquet'", folder)};
    struct query_planned planned;
    struct error e = {0};
    uint32_t n = 0;
    CHECK_ERR(query_plan_files(f->planner, &request, &f->arena, &planned, &e), ERR_OK);
    CHECK_UINT(planned.catalog->n_files, FILES);
    for (uint32_t i = 0; i < planned.catalog->n_files; i++) {
        const struct split_file *file = &planned.catalog->files[i];
        const struct split_column *column = split_column_of(file, "a");
        CHECK_UINT(file->rows, 3);
        CHECK(column != NULL && column->least == i);
        CHECK(column == NULL || column->first == NULL || (column->first[0] == i && column->last[0] == i));
        n += column != NULL && column->first != NULL ? 1 : 0;
    }
    return n;
}

TEST(what_is_known_of_row_groups_is_bounded)
{
    struct fixture f = fixture_open();
    const char *folder = put_many(&f);
    wait_until_settled(folder);
    CHECK_UINT(count_with_values(&f, folder), FILES);
    CHECK_UINT(count_with_values(&f, folder), FILES); /* from the cache */
    split_cache_bound(planner_cache(f.planner), 2 * 100);
    CHECK_UINT(count_with_values(&f, folder), 100); /* likewise */
    planner_close(f.planner);
    struct error e = {0};
    CHECK_ERR(planner_open(&f.planner, &e), ERR_OK);
    split_cache_bound(planner_cache(f.planner), 2 * 100);
    CHECK_UINT(count_with_values(&f, folder), 100); /* of files */
    CHECK_UINT(count_with_values(&f, folder), 100);
    remove_many(&f, folder);
    fixture_close(&f);
}
