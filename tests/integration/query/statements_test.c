/*
 * SQL of clients is parted into statements by its text (sql_text.h), before DuckDB sees it. Whatever is accepted has to be as
 * many statements for DuckDB, however its quotes, comments and blanks are put together.
 */
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "duck/duck.h"
#include "query/physical.h"
#include "query/sql_text.h"
#include "query/write.h"
#include "test.h"

struct fixture {
    struct duck *duck;
    struct duck_connection *connection;
    struct arena arena;
    uint64_t random;
    uint32_t n_compared;
};

static struct fixture fixture_open(void)
{
    struct fixture f = {.random = 1};
    CHECK_ERR(duck_open(&(struct duck_options){.threads = 1}, &f.duck, NULL), ERR_OK);
    CHECK_ERR(duck_connect(f.duck, &f.connection, NULL), ERR_OK);
    return f;
}

static void fixture_close(struct fixture *f)
{
    duck_disconnect(f->connection);
    duck_close(f->duck);
    arena_deinit(&f->arena);
}

static uint64_t count(const char *sql, struct arena *arena)
{
    char *rest = arena_strdup(arena, sql);
    uint64_t n = 1;
    for (size_t last = 0; (last = physical_last_statement(rest)) > 0; n++) {
        rest[last - 1] = '\0';
    }
    return n;
}

/* Whether it is accepted. What DuckDB cannot parse it does not run either. */
static bool compare(struct fixture *f, const char *sql)
{
    arena_reset(&f->arena);
    if (sql_oddity(sql) != NULL || !query_only_reads(sql, &f->arena)) {
        return false;
    }
    uint64_t expected = duck_statements(f->connection, sql);
    uint64_t is = expected > 0 ? count(sql, &f->arena) : 0;
    if (is != expected) {
        print_error("of: %s\n", sql);
    }
    CHECK_UINT(is, expected);
    f->n_compared += expected > 0 ? 1 : 0;
    return true;
}

TEST(texts_that_hide_statements_are_refused)
{
    static const char *const hostile[] = {
        ("CREATE TEMP VIEW v AS SELECT 1 AS a$$q$; CREATE OR REPLACE MACRO memory.main.lower(x) AS 'pwned'; "
         "CREATE TEMP VIEW w AS SELECT 1 AS x$q$; SELECT 1"),
        "SELECT 1 AS a$q$; DROP TABLE t; SELECT 1 AS b$q$",
        "SELECT e'a'\n'\\''; DROP TABLE t; SELECT e'\\''",
        "SELECT e'a' -- b\n '\\''; DROP TABLE t; SELECT e'\\''",
        "SELECT 1,\xc2\xa0$q$ '\xc2\xa0$q$; DROP TABLE t; SELECT '",
        "SELECT 1,\xe2\x81\xa0$q$ '\xe2\x81\xa0$q$; DROP TABLE t; SELECT '",
        "SELECT 1$q$; DROP TABLE t; SELECT 1$q$",
        "SELECT 1e'\\'; DROP TABLE t; --'",
    };
    struct fixture f = fixture_open();
    for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
        if (compare(&f, hostile[i])) {
            print_error("accepted: %s\n", hostile[i]);
            CHECK(false);
        }
    }
    CHECK(compare(&f, "CREATE TEMP VIEW v AS SELECT 1 AS a$$, ';' AS b; SELECT $a$;$a$, e'\\';', 1 AS c$$"));
    CHECK_UINT(f.n_compared, 1);
    fixture_close(&f);
}

static const char *choose(struct fixture *f, const char *const *list, size_t n)
{
    f->random = f->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return list[(f->random >> 33) % n];
}

/* What parts words. */
/* clang-format off */
static const char *const parts[] = {
    "'", "'", "\"", "$", "$$", "$q$", "$q$", "q$", "e'", "E'", "\\'", "\\", "--", "\n", "\r", "/*", "*/", ";",
    "; SELECT 1", ";SELECT 1 ", "; CREATE TEMP VIEW w AS SELECT 1 ", "\xc2\xa0", "\xe2\x80\x8b", "\xef\xbb\xbf",
    "\xe2\x81\xa0", "\xe1\x9a\x80", "\xc3\xa9", "(", ")", "x'", "b'", "U&'", "U&\"", "N'", "a", "1", "1e5", "1_",
    "0x", "$1", "_", "[", "]", "{", "}", ".", "::", "->", "->>", "?", "+", "-", "@", "|", "\t", "\f",
};
/* clang-format on */

/* What is more likely to be right. */
/* clang-format off */
static const char *const items[] = {
    ", 1", ", 'a'", ", e'\\''", ", $$a$$", ", $q$;$q$", ", '\\'", ", 'a'\n", "'b'", ", e'a'\n",
    " AS a$$", " AS a$q$", " AS \"a;\"", ", ';'", ", e';'", " -- '\n",
    " /* ' */ ", ", 1", ", a.b$q$", ", (';')", ", [1]", ", {'a': 1}",
    ",\xc2\xa0", "\xc2\xa0", " AS \xc3\xa9$q$", "$q$", "; SELECT 1", "; CREATE TEMP VIEW w AS SELECT 1",
    ";", " ",
};
/* clang-format on */

static void write_text(struct fixture *f, struct buf *sql)
{
    static const char *const starts[] = {"SELECT 1 ", "CREATE TEMP VIEW v AS SELECT 1 "};
    static const char *const lengths[] = {"1", "22", "333", "4444", "55555", "666666", "7777777", "88888888"};
    static const char *const kinds[] = {"item", "item", "part"};
    buf_text(sql, choose(f, starts, ARRAY_LEN(starts)));
    for (size_t n = strlen(choose(f, lengths, ARRAY_LEN(lengths))); n > 0; n--) {
        bool is_item = choose(f, kinds, ARRAY_LEN(kinds))[0] == 'i';
        buf_text(sql, is_item ? choose(f, items, ARRAY_LEN(items)) : choose(f, parts, ARRAY_LEN(parts)));
    }
}

TEST(texts_of_all_kinds_of_quotes_are_as_many_statements_as_for_duckdb)
{
    const char *rounds = getenv("CAPSTAN_TEST_RANDOM");
    int64_t n_rounds = 30000;
    struct fixture f = fixture_open();
    CHECK(rounds == NULL || num_parse_int(rounds, &n_rounds));
    for (int64_t i = 0; i < n_rounds; i++) {
        struct buf sql = {0};
        write_text(&f, &sql);
        (void)compare(&f, sql.data);
        buf_deinit(&sql);
    }
    CHECK(f.n_compared > n_rounds / 20);
    fixture_close(&f);
}
