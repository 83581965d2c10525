#include "../test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "duck/duck.h"
#include "main/demo_sales.h"
#include "main/folder.h"
#include "main/tpch.h"

TEST(there_are_22_queries_in_order_each_of_one_statement)
{
    struct arena arena = {0};
    struct tpch_query *queries = NULL;
    CHECK_INT(tpch_queries(&arena, &queries), 22);
    for (uint32_t i = 0; i < 22; i++) {
        char name[8];
        snprintf(name, sizeof name, "q%02u", i + 1);
        CHECK_STR(queries[i].name, name);
        CHECK(strncmp(queries[i].sql, "SELECT", 6) == 0 || strncmp(queries[i].sql, "WITH", 4) == 0);
        CHECK(strchr(queries[i].sql, ';') == NULL);
        CHECK(strstr(queries[i].sql, "-- name") == NULL);
    }
    arena_deinit(&arena);
}

static enum err keep_text(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    UNUSED(n);
    UNUSED(e);
    snprintf(context, 64, "%s", values[0].bytes);
    return ERR_OK;
}

/* The one value that the SQL has, as a text. */
static void check_value(struct duck_connection *connection, const char *sql, const char *value)
{
    char found[64] = "";
    struct error e = {0};
    enum err err = duck_rows(connection, sql, NULL, 0, keep_text, found, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
    CHECK_STR(found, value);
}

static int64_t changed_at(struct arena *arena, const char *folder)
{
    struct stat status;
    CHECK_INT(stat(arena_format(arena, "%s/lineitem-0.parquet", folder), &status), 0);
    return (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
}

TEST(tables_are_made_once_and_all_queries_run_on_them)
{
    struct arena arena = {0};
    struct error e = {0};
    const char *folder = NULL;
    const char *made = NULL;
    const char *again = NULL;
    struct duck *duck = NULL;
    struct duck_connection *connection = NULL;
    struct tpch_query *queries = NULL;
    CHECK_ERR(folder_make_temporary(&arena, &folder, NULL), ERR_OK);
    const char *odd = arena_format(&arena, "%s/it's", folder);
    CHECK_ERR(folder_make(odd, NULL), ERR_OK);

    enum err err = tpch_make(odd, 0.001, &arena, &made, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
    int64_t before = changed_at(&arena, made);
    CHECK_ERR(tpch_make(odd, 0.001, &arena, &again, &e), ERR_OK);
    CHECK_STR(again, made);
    CHECK_INT(changed_at(&arena, made), before);

    CHECK_ERR(duck_open(&(struct duck_options){.threads = 2}, &duck, &e), ERR_OK);
    CHECK_ERR(duck_connect(duck, &connection, &e), ERR_OK);
    CHECK_ERR(tpch_create_views(connection, made, &e), ERR_OK);
    check_value(connection, "select count(*) from orders", "1500");
    check_value(connection, "select count(*) > 5000 from lineitem", "true");
    for (uint32_t i = 0; i < tpch_queries(&arena, &queries); i++) {
        CHECK_ERR(duck_run(connection, queries[i].sql, &e), ERR_OK);
    }
    duck_disconnect(connection);
    duck_close(duck);
    folder_remove(folder);
    arena_deinit(&arena);
}

TEST(tables_of_another_generator_are_not_used)
{
    struct arena arena = {0};
    struct error e = {0};
    const char *folder = NULL;
    const char *made = NULL;
    CHECK_ERR(folder_make_temporary(&arena, &folder, NULL), ERR_OK);
    CHECK_ERR(folder_make(arena_format(&arena, "%s/tpch-0.5", folder), NULL), ERR_OK);

    CHECK_ERR(tpch_make(folder, 0.5, &arena, &made, &e), ERR_PRECONDITION);
    CHECK(strstr(e.message, "/tpch-0.5 was not made by this version's generator") != NULL);
    CHECK(strstr(e.hint, "--data") != NULL);
    CHECK(access(arena_format(&arena, "%s/tpch-0.5", folder), F_OK) == 0);
    folder_remove(folder);
    arena_deinit(&arena);
}

TEST(the_query_of_the_demo_has_five_countries)
{
    struct arena arena = {0};
    struct error e = {0};
    const char *folder = NULL;
    struct duck *duck = NULL;
    struct duck_connection *connection = NULL;
    CHECK_ERR(folder_make_temporary(&arena, &folder, NULL), ERR_OK);
    enum err err = demo_sales_make(folder, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
    CHECK_ERR(duck_open(&(struct duck_options){.threads = 2}, &duck, &e), ERR_OK);
    CHECK_ERR(duck_connect(duck, &connection, &e), ERR_OK);
    CHECK_ERR(duck_run(connection,
                       arena_format(&arena,
                                    "CREATE VIEW sales AS FROM '%s/sales-*.parquet';"
                                    "CREATE VIEW customers AS FROM '%s/customers.parquet'",
                                    folder, folder),
                       &e),
              ERR_OK);
    check_value(connection, "select count(*) from sales", "2000000");
    check_value(connection, arena_format(&arena, "select count(country) from (%s)", demo_sales_query), "5");
    duck_disconnect(connection);
    duck_close(duck);
    folder_remove(folder);
    arena_deinit(&arena);
}
