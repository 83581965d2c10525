#include "query/sql_text.h"

#include "test.h"

TEST(calls_are_found_outside_of_quotes_and_comments)
{
    CHECK(sql_has_call("select * from custom('a')", "custom"));
    CHECK(sql_has_call("select * from CUSTOM -- (\n /* x */ ( 'a' )", "custom"));
    CHECK(
        !sql_has_call("select 'custom(', \"custom\", $$custom($$ -- custom(\n from custom where customs(1)", "custom"));
    CHECK(!sql_has_call("select a.custom(1), my_custom(2), custom, a$custom(3), custom$(4)", "custom"));
    CHECK(sql_has_call("select 1 as a$$, custom(1), 2 as b$$", "custom"));
}

TEST(an_item_ends_at_its_comma_or_bracket)
{
    CHECK_UINT(sql_item_bytes("a (b, ')', [c, {d, \"]\"}]) , e"), 26);
    CHECK_UINT(sql_item_bytes("a /* , */ -- )\n) b"), 15);
    CHECK_UINT(sql_item_bytes("a ( b"), 5);
    CHECK_UINT(sql_item_bytes(""), 0);
}

TEST(columns_that_a_select_numbers_itself_are_counted)
{
    static const struct {
        const char *sql;
        uint32_t n;
    } cases[] = {
        {"SELECT t0.c0 AS c0 FROM t t0", 1},
        {"SELECT t0.c0 AS c0, f(a, ' FROM ') AS c1 FROM (SELECT x AS c9 FROM y) t0 GROUP BY 1, 2", 2},
        {"SELECT sum(x) AS c0\nFROM t", 1},
        {"SELECT 1 AS c0, 2 AS c1", 2},
        {"select (a IS DISTINCT FROM b) AS c0, [1, 2] AS c1 from t", 2},
        {"SELECT a AS c1 FROM t", 0},
        {"SELECT a AS c0, b AS c0 FROM t", 0},
        {"SELECT a AS c0, b FROM t", 0},
        {"SELECT a AS c00 FROM t", 0},
        {"SELECT a AS c0, * FROM t", 0},
        {"SELECT a AS \"c0\" FROM t", 0},
        {"SELECT ' AS c0' FROM t", 0},
        {"SELECT a IS DISTINCT FROM b AS c0 FROM t", 0},
        {"SELECT a AS b -- AS c0\nFROM t", 0},
        {"SELECT a AS b /* AS c0*/ FROM t", 0},
        {"SELECT 1 AS c0 UNION ALL SELECT 2", 0},
        {"WITH x AS (SELECT 1 AS c0, 2 AS c1) SELECT c0 AS c0 FROM x", 1},
        {"WITH x AS (SELECT 1 AS c0), \"select\" AS MATERIALIZED (SELECT 2) SELECT a AS c0, b AS c1 FROM x /* sieve */",
         2},
        {"WITH x AS (SELECT 1 AS c0), y AS (SELECT 2 AS c0) SELECT a FROM x", 0},
        {"WITH x AS (SELECT 1 AS c0) FROM x", 0},
        {"WITH x AS (SELECT 1 AS c0", 0},
        {"WITH x AS (SELECT 1 AS a) (SELECT 1 AS a) UNION ALL SELECT 2 AS c0", 0},
        {"WITH x AS (SELECT 1 AS a) FROM x UNION ALL SELECT 2 AS c0", 0},
        {"WITH x AS (SELECT 1 AS a) VALUES (1) UNION ALL SELECT 2 AS c0", 0},
        {"WITH ", 0},
        {"SELECT a AS c0) FROM t", 0},
        {"SELECT unnest(a) AS c0 FROM t", 0},
        {"SELECT", 0},
        {"SELECT ", 0},
        {"", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (sql_numbered_columns(cases[i].sql) != cases[i].n) {
            print_error("of: %s\n", cases[i].sql);
        }
        CHECK_UINT(sql_numbered_columns(cases[i].sql), cases[i].n);
    }
}

TEST(what_is_in_quotes_and_comments_is_not_in_the_sql)
{
    CHECK(sql_has("SELECT {{rows:x}}", "{{rows:"));
    CHECK(sql_has("{{rows:x}}", "{{rows:"));
    CHECK(!sql_has("SELECT '{{rows:', \"{{rows:\", $$ {{rows: $$ -- {{rows:\n /* {{rows: */", "{{rows:"));
    CHECK(!sql_has("", "{{rows:"));
}

TEST(names_of_files_that_duckdb_would_look_for_are_known)
{
    CHECK(sql_is_pattern("/data/a*.parquet") && sql_is_pattern("a?.csv") && sql_is_pattern("/d[1]/a") &&
          sql_is_pattern("a\\b"));
    CHECK(!sql_is_pattern("/data/k=1/a b-(2)'.parquet"));
}

TEST(comments_and_quotes_end_where_they_do_for_duckdb)
{
    static const struct {
        const char *sql;
        size_t n;
    } cases[] = {
        {"/* a /* b */ c */ d", 17},
        {"/* a /* b */ c", 14},
        {"-- a\rb", 4},
        {"-- a\nb", 4},
        {"$$ a $$ b", 7},
        {"$a1$ b $a$ $a1$ c", 15},
        {"$1$ b $1$", 0},
        {"$é$ a $é$ b", 11},
        {"e'a\\' b' c", 8},
        {"e'a'' \\' b' c", 11},
        {"'a'' \\' b' c", 7},
        {"\"a\"\"b\" c", 6},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (sql_quoted_bytes(cases[i].sql, false) != cases[i].n) {
            print_error("of: %s\n", cases[i].sql);
        }
        CHECK_UINT(sql_quoted_bytes(cases[i].sql, false), cases[i].n);
    }
    CHECK_UINT(sql_quoted_bytes("$a$ b $a$", true), 0);
    CHECK_UINT(sql_quoted_bytes("e'a\\'", true), 0);
}

/* What would be read in another way than it looks, where it stands between other SQL. */
TEST(sql_that_does_not_close_is_odd)
{
    static const char *const right[] = {"",
                                        "SELECT (1), [2], {'a': 3} -- )",
                                        "SELECT ')', \"(\", $$($$, e'\\')' /* ( */",
                                        "SELECT DATE'2020-01-01', 1.5e3, $1, a1.e FROM t$1",
                                        "a; b",
                                        "SELECT a$$, b$c$, 'a'\n'b', e'a' -- b\n, 'c', 'a\xc2\xa0' -- \xc2\xa0"};
    static const struct {
        const char *sql;
        const char *why;
    } odd[] = {
        {"SELECT 1)", "a bracket that closes, but was not opened"},
        {"SELECT (1", "a bracket that does not close"},
        {"SELECT (1; SELECT 2)", "a statement that ends inside of brackets"},
        {"SELECT 'a", "a quote or a comment that does not end"},
        {"SELECT 'a''", "a quote or a comment that does not end"},
        {"SELECT e'a\\'", "a quote or a comment that does not end"},
        {"SELECT $a$ $b$", "a quote or a comment that does not end"},
        {"SELECT 1 /* /* */", "a quote or a comment that does not end"},
        {"SELECT 1e'\\' '", "a quote right behind a number"},
        {"SELECT 1$a$ ' $a$", "a quote right behind a number"},
        {"SELECT $1$a$ ' $a$", "a quote right behind a number"},
        {"SELECT .5e'a'", "a quote right behind a number"},
        {"SELECT e'a'\n'\\''", "a quote that goes on in the next line"},
        {"SELECT E'a' -- b\r /* c */ 'd'", "a quote that goes on in the next line"},
        {"SELECT 1,\xc2\xa0$q$ '\xc2\xa0$q$", "a blank of Unicode outside of quotes"},
        {"SELECT 1\xe3\x80\x80", "a blank of Unicode outside of quotes"},
        {"SELECT a\xe1\x9a\x80", "a blank of Unicode outside of quotes"},
        {"\xef\xbb\xbfSELECT 1", "a blank of Unicode outside of quotes"},
        {"SELECT\xe2\x80\x80 1", "a blank of Unicode outside of quotes"},
        {"SELECT\xe2\x80\x8b 1", "a blank of Unicode outside of quotes"},
        {"SELECT\xe2\x80\xaf 1", "a blank of Unicode outside of quotes"},
        {"SELECT\xe2\x81\x9f 1", "a blank of Unicode outside of quotes"},
        {"SELECT\xe2\x81\xa0 1", "a blank of Unicode outside of quotes"},
        {"SELECT $\xc2\xa0$ ' $\xc2\xa0$", "a blank of Unicode outside of quotes"},
    };
    for (size_t i = 0; i < ARRAY_LEN(right); i++) {
        CHECK(sql_oddity(right[i]) == NULL);
    }
    for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
        const char *why = sql_oddity(odd[i].sql);
        CHECK_STR(why == NULL ? odd[i].sql : why, odd[i].why);
    }
    CHECK(sql_is_part("c0 || ';--' DESC NULLS LAST"));
    CHECK(!sql_is_part("c0; c1") && !sql_is_part("c0 --") && !sql_is_part("c0 /* */") && !sql_is_part("c0)"));
}

TEST(what_is_behind_a_statement_is_no_part_of_it)
{
    static const struct {
        const char *sql;
        size_t n;
    } cases[] = {
        {"", 0},
        {" ; \n", 0},
        {"SELECT 1", 8},
        {"SELECT 1 ;; ", 8},
        {"SELECT ';' -- ; a", 10},
        {"SELECT 1 /* a; */; -- b", 8},
        {"SELECT $$;$$;", 12},
        {"SELECT 8 - 1;", 12},
        {"SELECT 8 AS a$$; -- $$", 15},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CHECK_UINT(sql_trimmed_bytes(cases[i].sql), cases[i].n);
    }
}
