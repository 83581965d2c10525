/*
 * order.h - whether the order of a query's rows is part of its answer.
 *
 * Ownership: none. Threads: any.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_QUERY_ORDER_H
#define CAPSTAN_TESTS_INTEGRATION_QUERY_ORDER_H

#include <stdbool.h>

#include "query/plan.h"

/* Whether the plan says how its rows are ordered. NULL, which is a plan without a tree, says nothing. */
bool order_is_given(const struct plan_node *root);

#endif
