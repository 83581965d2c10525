#include "query/join.h"

#include "test.h"

static struct join join_of(enum join_type type, struct join_condition *conditions, uint32_t n)
{
    return (struct join){.type = type, .conditions = conditions, .n_conditions = n};
}

TEST(a_side_whose_rows_can_come_out_alone_is_never_replicated)
{
    const struct join_rule *rules = join_rules_default.plain;
    CHECK(!rules[JOIN_LEFT].may_replicate_left);
    CHECK(!rules[JOIN_RIGHT].may_replicate_right);
    CHECK(!rules[JOIN_FULL].may_replicate_left && !rules[JOIN_FULL].may_replicate_right);
    CHECK(!rules[JOIN_SEMI].may_replicate_left && !rules[JOIN_ANTI].may_replicate_left);
    CHECK(!rules[JOIN_MARK].may_replicate_left && !rules[JOIN_SINGLE].may_replicate_left);
    CHECK(rules[JOIN_INNER].may_replicate_left && rules[JOIN_INNER].may_replicate_right);
}

TEST(keys_that_an_outer_join_fills_with_nulls_are_not_together_any_more)
{
    const struct join_rule *rules = join_rules_default.plain;
    CHECK(!rules[JOIN_LEFT].keeps_right);
    CHECK(!rules[JOIN_RIGHT].keeps_left);
    CHECK(!rules[JOIN_FULL].keeps_left && !rules[JOIN_FULL].keeps_right);
}

TEST(a_join_without_an_equality_cannot_be_spread)
{
    struct join_condition less = {.comparison = COMPARE_LESS};
    struct join_condition equal = {.comparison = COMPARE_EQUAL};
    struct join by_less = join_of(JOIN_INNER, &less, 1);
    struct join by_equal = join_of(JOIN_INNER, &equal, 1);
    const struct join_rule *rule = join_rule_of(&join_rules_default, &by_less);
    CHECK(!join_may_hash(rule, &by_less));
    CHECK(join_may_hash(rule, &by_equal));
    CHECK(!join_may_hash(rule, NULL)); /* a cross product */
}

TEST(a_mark_join_is_spread_only_if_nulls_are_values)
{
    struct join_condition conditions[] = {{.comparison = COMPARE_NOT_DISTINCT}, {.comparison = COMPARE_EQUAL}};
    struct join two_valued = join_of(JOIN_MARK, conditions, 1);
    struct join three_valued = join_of(JOIN_MARK, conditions, 2);
    const struct join_rule *rule = join_rule_of(&join_rules_default, &two_valued);
    CHECK(join_may_hash(rule, &two_valued));
    CHECK(!join_may_hash(rule, &three_valued));
}

TEST(asof_joins_have_rules_of_their_own)
{
    struct join join = {.type = JOIN_INNER, .is_asof = true};
    const struct join_rule *rule = join_rule_of(&join_rules_default, &join);
    CHECK_STR(rule->name, "asof inner");
    CHECK(rule->may_replicate_right);
    CHECK(!rule->may_replicate_left);
    CHECK_STR(join_rule_of(&join_rules_default, NULL)->name, "inner");
}
