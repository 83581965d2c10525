/*
 * operator_internal.h - what the files about custom operators share.
 *
 * Ownership: factories belong to the program or to a plug-in and outlive the registry's use of them. Threads: as operator.h.
 */
#ifndef CAPSTAN_EXEC_OPERATOR_INTERNAL_H
#define CAPSTAN_EXEC_OPERATOR_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "capstan/operator.h"
#include "exec/operator.h"

/* Factories, sorted by name. */
struct operator_list {
    const struct capstan_operator **items;
    uint32_t n;
    uint32_t cap;
};

struct operators {
    struct operator_list list;
    void **libraries; /* of plug-ins, from dlopen */
    uint32_t n_libraries;
    uint32_t cap_libraries;
};

/*
 * Checks the factory and puts it into its place. `where` begins the message: the file that it comes from. ERR_INVALID if it
 * is not usable, ERR_EXISTS, ERR_EXHAUSTED.
 */
MUST_USE enum err operator__add(struct operator_list *list, const struct capstan_operator *op, const char *where,
                                struct error *e);

/* Takes out what operator__add has put in. */
void operator__remove(struct operator_list *list, const struct capstan_operator *op);

/* NULL: there is none of that name. */
const struct capstan_operator *operator__find(const struct operator_list *list, const char *name);

#endif
