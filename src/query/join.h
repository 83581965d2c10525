/*
 * join.h - which side of a join may be sent to everybody, and where its rows are then.
 *
 * A replicated side is right only if no row of it can come out, or be missed, by what a single task sees: a LEFT join's
 * left rows without a match would come out once per task if the left side were replicated.
 *
 * Ownership: constant tables. Threads: any.
 */
#ifndef CAPSTAN_QUERY_JOIN_H
#define CAPSTAN_QUERY_JOIN_H

#include <stdbool.h>

#include "query/plan.h"

struct join_rule {
    const char *name;
    bool may_replicate_right;
    bool may_replicate_left;
    bool may_hash;           /* both sides by the keys of the equalities */
    bool is_hash_two_valued; /* … but only if there are no comparisons that a NULL makes unknown */
    bool keeps_left;         /* rows that were together by the left side's keys still are, after a join by hash */
    bool keeps_right;
    bool drops_left; /* a left row that has no partner by the equalities yields nothing, and changes nothing */
    bool drops_right;
};

/* One rule per join type, and for ASOF joins. */
struct join_rules {
    struct join_rule plain[JOIN_SINGLE + 1];
    struct join_rule asof[JOIN_SINGLE + 1];
};

/* The right rules. */
extern const struct join_rules join_rules_default;

/* The rule for a join; INNER's for a cross product (NULL). */
const struct join_rule *join_rule_of(const struct join_rules *rules, const struct join *join);

/* Whether both sides can be spread by the equalities of the join. */
bool join_may_hash(const struct join_rule *rule, const struct join *join);

#endif
