/*
 * add_five.h - the operator add_five, for programs that have it linked in.
 */
#ifndef EXAMPLE_ADD_FIVE_H
#define EXAMPLE_ADD_FIVE_H

#include <capstan/operator.h>

extern const struct capstan_operator add_five;

#endif
