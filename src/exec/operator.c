/*
 * operator.c - the registry of custom operators, and those that are linked into the program.
 */
#include "exec/operator.h"

#include <dlfcn.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "capstan/worker.h"
#include "exec/operator_internal.h"

/* Filled before the worker starts, by the one thread that there is then; kept until the process ends. */
static struct operator_list linked;
static struct error linked_error;

static bool is_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    static const char others[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789-";
    size_t n = strlen(name);
    return n > 0 && n <= LIMIT_NAME_BYTES && strspn(name, letters) > 0 && strspn(name, others) == n;
}

static enum err check(const struct capstan_operator *op, const char *where, struct error *e)
{
    if (op == NULL) {
        return error_set(e, ERR_INVALID, "%s: an operator is NULL", where);
    }
    if (op->abi > CAPSTAN_OPERATOR_ABI) {
        error_set(e, ERR_INVALID, "%s needs version %u of the operator interface, this worker has %d", where,
                  (unsigned)op->abi, CAPSTAN_OPERATOR_ABI);
        error_hint(e, "update the worker, or compile the operator with this worker's capstan/operator.h");
        return ERR_INVALID;
    }
    if (op->abi == 0 || op->size < sizeof(*op)) {
        return error_set(e, ERR_INVALID, "%s does not say its size and the version of the operator interface", where);
    }
    if (op->name == NULL || !is_name(op->name)) {
        error_set(e, ERR_INVALID, "%s: '%s' is no name for an operator", where, op->name != NULL ? op->name : "");
        error_hint(e, "a letter or _, then letters, digits, _ and -, at most %d", LIMIT_NAME_BYTES);
        return ERR_INVALID;
    }
    if (op->create == NULL || op->process == NULL) {
        return error_set(e, ERR_INVALID, "%s: operator '%s' has no %s()", where, op->name,
                         op->create == NULL ? "create" : "process");
    }
    return ERR_OK;
}

/* Where the name is, or belongs. */
static uint32_t place_of(const struct operator_list *list, const char *name, bool *out_is_there)
{
    uint32_t low = 0;
    uint32_t high = list->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (strcmp(list->items[middle]->name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *out_is_there = low < list->n && strcmp(list->items[low]->name, name) == 0;
    return low;
}

enum err operator__add(struct operator_list *list, const struct capstan_operator *op, const char *where,
                       struct error *e)
{
    enum err err = check(op, where, e);
    if (err != ERR_OK) {
        return err;
    }
    bool is_there = false;
    uint32_t place = place_of(list, op->name, &is_there);
    if (is_there) {
        error_set(e, ERR_EXISTS, "%s: there are two operators '%s'", where, op->name);
        error_hint(e, "one of them needs another name, or is loaded twice");
        return ERR_EXISTS;
    }
    if (list->n == LIMIT_OPS_PER_WORKER) {
        return error_set(e, ERR_EXHAUSTED, "%s: a worker has at most %d operators", where, LIMIT_OPS_PER_WORKER);
    }
    list->items = mem_grow((void *)list->items, &list->cap, list->n + 1, sizeof(list->items[0]));
    memmove((void *)(list->items + place + 1), (const void *)(list->items + place),
            (list->n - place) * sizeof(list->items[0]));
    list->items[place] = op;
    list->n++;
    return ERR_OK;
}

void operator__remove(struct operator_list *list, const struct capstan_operator *op)
{
    bool is_there = false;
    uint32_t place = place_of(list, op->name, &is_there);
    ASSERT(is_there);
    list->n--;
    memmove((void *)(list->items + place), (const void *)(list->items + place + 1),
            (list->n - place) * sizeof(list->items[0]));
}

const struct capstan_operator *operator__find(const struct operator_list *list, const char *name)
{
    bool is_there = false;
    uint32_t place = place_of(list, name, &is_there);
    return is_there ? list->items[place] : NULL;
}

void capstan_register_operator(const struct capstan_operator *op)
{
    struct error e = {0};
    if (operator__add(&linked, op, "capstan_register_operator()", &e) != ERR_OK && linked_error.code == ERR_OK) {
        linked_error = e;
    }
}

enum err operators_linked(struct error *e)
{
    if (linked_error.code != ERR_OK && e != NULL) {
        *e = linked_error;
    }
    return linked_error.code;
}

struct operators *operators_new(void)
{
    struct operators *operators = mem_calloc(1, sizeof(*operators));
    if (linked.n > 0) {
        operators->list.items = mem_copy((const void *)linked.items, linked.n * sizeof(linked.items[0]));
        operators->list.n = linked.n;
        operators->list.cap = linked.n;
    }
    return operators;
}

void operators_free(struct operators *operators)
{
    if (operators == NULL) {
        return;
    }
    for (uint32_t i = 0; i < operators->n_libraries; i++) {
        dlclose(operators->libraries[i]);
    }
    mem_free((void *)operators->libraries);
    mem_free((void *)operators->list.items);
    mem_free(operators);
}

uint32_t operators_count(const struct operators *operators)
{
    return operators->list.n;
}

const char *operators_name(const struct operators *operators, uint32_t i)
{
    ASSERT(i < operators->list.n);
    return operators->list.items[i]->name;
}

bool operators_have(const struct operators *operators, const char *name)
{
    return operator__find(&operators->list, name) != NULL;
}
