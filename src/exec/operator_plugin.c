/*
 * operator_plugin.c - operators that are loaded from shared objects (include/capstan/operator.h).
 */
#define _DEFAULT_SOURCE /* realpath */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "exec/operator_internal.h"

#define ENTRY "capstan_operators_v1"

/* ISO C has no conversion from an object pointer to a function; POSIX promises that the bytes are the same. */
static const struct capstan_operator *const *call_entry(void *symbol)
{
    const struct capstan_operator *const *(*entry)(void) = NULL;
    memcpy(&entry, &symbol, sizeof(entry));
    return entry();
}

/* All or none. */
static enum err add_all(struct operator_list *list, const struct capstan_operator *const *all, const char *path,
                        struct error *e)
{
    uint32_t n = 0;
    enum err err = ERR_OK;
    while (err == ERR_OK && all[n] != NULL) {
        err = operator__add(list, all[n], path, e);
        n += err == ERR_OK ? 1 : 0;
    }
    while (err != ERR_OK && n > 0) {
        operator__remove(list, all[--n]);
    }
    return err;
}

static enum err add_library(struct operators *operators, void *library, const char *path, struct error *e)
{
    void *symbol = dlsym(library, ENTRY);
    if (symbol == NULL) {
        error_set(e, ERR_PRECONDITION, "%s has no operators: it has no function " ENTRY, path);
        error_hint(e, "export it; 'nm -D' shows what a file has");
        return ERR_PRECONDITION;
    }
    const struct capstan_operator *const *all = call_entry(symbol);
    if (all == NULL || all[0] == NULL) {
        return error_set(e, ERR_INVALID, "%s: its " ENTRY "() returned nothing", path);
    }
    return add_all(&operators->list, all, path, e);
}

enum err operators_load(struct operators *operators, const char *path, struct error *e)
{
    /* From the root on: a name without a slash would be looked for among the system's libraries. */
    char absolute[PATH_MAX];
    if (realpath(path, absolute) == NULL) {
        return error_set(e, errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_INVALID, "plug-in %s: %s", path,
                         strerror(errno));
    }
    void *library = dlopen(absolute, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        return error_set(e, ERR_INVALID, "plug-in %s cannot be loaded: %s", path,
                         why != NULL ? why : "no reason given");
    }
    enum err err = add_library(operators, library, path, e);
    if (err != ERR_OK) {
        dlclose(library);
        return err;
    }
    operators->libraries = mem_grow((void *)operators->libraries, &operators->cap_libraries, operators->n_libraries + 1,
                                    sizeof(operators->libraries[0]));
    operators->libraries[operators->n_libraries++] = library;
    return ERR_OK;
}
