/* The table of joins. */
#include "query/join.h"

const struct join_rules join_rules_default =
    {
        .plain =
            {
                [JOIN_INNER] = {"inner", .may_replicate_right = true, .may_replicate_left = true, .may_hash = true,
                                .keeps_left = true, .keeps_right = true, .drops_left = true, .drops_right = true},
                [JOIN_LEFT] = {"left", .may_replicate_right = true, .may_hash = true, .keeps_left = true,
                               .drops_right = true},
                [JOIN_RIGHT] = {"right", .may_replicate_left = true, .may_hash = true, .keeps_right = true,
                                .drops_left = true},
                [JOIN_FULL] = {"full", .may_hash = true},
                [JOIN_SEMI] = {"semi", .may_replicate_right = true, .may_hash = true, .keeps_left = true,
                               .drops_left = true, .drops_right = true},
                [JOIN_ANTI] = {"anti", .may_replicate_right = true, .may_hash = true, .keeps_left = true,
                               .drops_right = true},
                [JOIN_MARK] = {"mark", .may_replicate_right = true, .may_hash = true, .is_hash_two_valued = true,
                               .keeps_left = true, .drops_right = true},
                [JOIN_SINGLE] = {"single", .may_replicate_right = true, .may_hash = true, .keeps_left = true,
                                 .drops_right = true},
            },
        .asof =
            {
                [JOIN_INNER] = {"asof inner", .may_replicate_right = true, .may_hash = true, .keeps_left = true},
                [JOIN_LEFT] = {"asof left", .may_replicate_right = true, .may_hash = true, .keeps_left = true},
                [JOIN_RIGHT] = {"asof right"},
                [JOIN_FULL] = {"asof full"},
                [JOIN_SEMI] = {"asof semi", .may_replicate_right = true, .may_hash = true, .keeps_left = true},
                [JOIN_ANTI] = {"asof anti", .may_replicate_right = true, .may_hash = true, .keeps_left = true},
                [JOIN_MARK] = {"asof mark"},
                [JOIN_SINGLE] = {"asof single"},
            },
};

const struct join_rule *join_rule_of(const struct join_rules *rules, const struct join *join)
{
    if (join == NULL) {
        return &rules->plain[JOIN_INNER];
    }
    return join->is_asof ? &rules->asof[join->type] : &rules->plain[join->type];
}

bool join_may_hash(const struct join_rule *rule, const struct join *join)
{
    bool has_equality = false;
    if (join == NULL || !rule->may_hash) {
        return false;
    }
    for (uint32_t i = 0; i < join->n_conditions; i++) {
        enum comparison comparison = join->conditions[i].comparison;
        has_equality = has_equality || comparison == COMPARE_EQUAL || comparison == COMPARE_NOT_DISTINCT;
        bool is_two_valued = comparison == COMPARE_NOT_DISTINCT || comparison == COMPARE_DISTINCT;
        if (rule->is_hash_two_valued && (!is_two_valued || join->residual != NULL)) {
            return false;
        }
    }
    return has_equality;
}
