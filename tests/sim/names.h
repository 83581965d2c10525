/*
 * names.h - the names of things in a simulation, and the numbers behind them.
 *
 * Every name is one letter and a number ("j12", "w3"), so that a row or a reply leads to an array index without any
 * comparison of strings. The tables are made once and never change.
 *
 * Ownership: the strings live as long as the program. Threads: one.
 */
#ifndef CAPSTAN_SIM_NAMES_H
#define CAPSTAN_SIM_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

#define MAX_JOBS 160   /* of one run, children included */
#define MAX_STAGES 40  /* of one job, added ones included */
#define MAX_TASKS 2048 /* of one run */
#define MAX_WORKERS 12 /* names of workers */
#define MAX_PROCS 240  /* worker processes of one run, dead ones included */
#define MAX_PARTITIONS 4
#define MAX_KEYS 32
#define N_EXECUTORS 4
#define N_OPS 6
#define NAME_BYTES 12

#define NO_INDEX UINT32_MAX

void names_init(void);

/* The tables; names.c fills them. */
struct names {
    char jobs[MAX_JOBS][NAME_BYTES];
    char workers[MAX_WORKERS][NAME_BYTES];
    char procs[MAX_PROCS][NAME_BYTES];
    char addresses[MAX_PROCS][NAME_BYTES];
    char stages[MAX_STAGES][NAME_BYTES];
    char keys[MAX_KEYS][NAME_BYTES];
    char ops[N_OPS][NAME_BYTES];
    char executors[N_EXECUTORS][NAME_BYTES];
};

extern struct names names;

static inline const char *job_name(uint32_t i)
{
    ASSERT(i < MAX_JOBS);
    return names.jobs[i];
}

static inline const char *worker_name(uint32_t i)
{
    ASSERT(i < MAX_WORKERS);
    return names.workers[i];
}

/* Of a worker process: its incarnation. */
static inline const char *proc_name(uint32_t i)
{
    ASSERT(i < MAX_PROCS);
    return names.procs[i];
}

/* Where a worker process serves its map outputs. */
static inline const char *proc_address(uint32_t i)
{
    ASSERT(i < MAX_PROCS);
    return names.addresses[i];
}

/* Of a task in a tree. */
static inline const char *stage_name(uint32_t i)
{
    ASSERT(i < MAX_STAGES);
    return names.stages[i];
}

/* An idempotency key. */
static inline const char *key_name(uint32_t i)
{
    ASSERT(i < MAX_KEYS);
    return names.keys[i];
}

static inline const char *op_name(uint32_t i)
{
    ASSERT(i < N_OPS);
    return names.ops[i];
}

static inline const char *executor_name(uint32_t i)
{
    ASSERT(i < N_EXECUTORS);
    return names.executors[i];
}

/* The number behind a name; NO_INDEX for NULL. */
static inline uint32_t name_index(const char *name)
{
    if (name == NULL) {
        return NO_INDEX;
    }
    uint32_t n = 0;
    for (const char *p = name + 1; *p != '\0'; p++) {
        n = n * 10 + (uint32_t)(*p - '0');
    }
    return n;
}

/* The number of the operator or executor with this name, which is longer than one letter; NO_INDEX: none such. */
uint32_t op_index(const char *name);
uint32_t executor_index(const char *name);

#endif
