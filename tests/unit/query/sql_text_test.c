#include "query/sql_text.h"

#include "test.h"

TEST(calls_are_found_outside_of_quotes_and_comments)
{
    CHECK(sql_has_call("select * from custom('a')", "custom"));
    CHECK(sql_has_call("select * from CUSTOM -- (\n /* x */ ( 'a' )", "custom"));
    CHECK(
        !sql_has_call("select 'custom(', \"custom\", $$custom($$ -- custom(\n from custom where customs(1)", "custom"));
    CHECK(!sql_has_call("select a.custom(1), my_custom(2), custom", "custom"));
}

TEST(an_item_ends_at_its_comma_or_bracket)
{
    CHECK_UINT(sql_item_bytes("a (b, ')', [c, {d, \"]\"}]) , e"), 26);
    CHECK_UINT(sql_item_bytes("a /* , */ -- )\n) b"), 15);
    CHECK_UINT(sql_item_bytes("a ( b"), 5);
    CHECK_UINT(sql_item_bytes(""), 0);
}
