/*
 * names.c - tables of names.
 */
#include "sim/names.h"

#include <stdio.h>
#include <string.h>

struct names names;

static void fill(char table[][NAME_BYTES], uint32_t n, const char *prefix)
{
    for (uint32_t i = 0; i < n; i++) {
        (void)snprintf(table[i], NAME_BYTES, "%s%u", prefix, (unsigned)i);
    }
}

void names_init(void)
{
    fill(names.jobs, MAX_JOBS, "j");
    fill(names.workers, MAX_WORKERS, "w");
    fill(names.procs, MAX_PROCS, "i");
    fill(names.addresses, MAX_PROCS, "a");
    fill(names.stages, MAX_STAGES, "t");
    fill(names.keys, MAX_KEYS, "k");
    fill(names.ops, N_OPS, "op");
    fill(names.executors, N_EXECUTORS, "ex");
}

uint32_t op_index(const char *name)
{
    return strncmp(name, "op", 2) == 0 ? name_index(name + 1) : NO_INDEX;
}

uint32_t executor_index(const char *name)
{
    return strncmp(name, "ex", 2) == 0 ? name_index(name + 1) : NO_INDEX;
}
