/* Forgetting what ended first, so that a database that is fed without end stays within its limits. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "store/memory.h"
#include "store/memory_internal.h"

static uint64_t payload_bytes(const struct database *db)
{
    const struct memory_order *order = &db->tables[TABLE_PAYLOADS].by_key;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < order->n; i++) {
        bytes += order->items[i]->values[2].n;
    }
    return bytes;
}

static uint32_t count_ended(const struct database *db)
{
    const struct memory_order *jobs = &db->tables[ROW_JOB].by_key;
    uint32_t n = 0;
    for (uint32_t i = 0; i < jobs->n; i++) {
        n += !memory__job_is_open(jobs->items[i]);
    }
    return n;
}

/* An ended job, and when it did. */
struct ended {
    const char *job_id; /* in its record */
    int64_t at_ms;
};

static int by_end(const void *a, const void *b)
{
    const struct ended *x = a;
    const struct ended *y = b;
    return x->at_ms != y->at_ms ? (x->at_ms > y->at_ms) - (x->at_ms < y->at_ms) : strcmp(x->job_id, y->job_id);
}

static struct ended *list_ended(const struct database *db, uint32_t n)
{
    const struct memory_order *jobs = &db->tables[ROW_JOB].by_key;
    struct ended *list = mem_calloc(n + 1, sizeof *list);
    uint32_t at = 0;
    for (uint32_t i = 0; i < jobs->n; i++) {
        if (!memory__job_is_open(jobs->items[i])) {
            list[at++] = (struct ended){.job_id = jobs->items[i]->values[0].bytes,
                                        .at_ms = memory__number(jobs->items[i], ROW_JOB, "finished_at_ms")};
        }
    }
    qsort(list, n, sizeof *list, by_end);
    return list;
}

/* Returns the bytes of its payloads. The id is that of its record, which goes last. */
static uint64_t forget_job(struct database *db, const char *job_id)
{
    static const int tables[] = {ROW_STAGE,  ROW_TASK,    ROW_LEASE,      ROW_MAP_OUTPUT,
                                 ROW_RESULT, ROW_ATTEMPT, TABLE_PAYLOADS, ROW_JOB};
    struct value key = memory__text(job_id);
    uint64_t bytes = 0;
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        struct memory_table *table = &db->tables[tables[i]];
        uint32_t from = memory_table_from(table, &key, 1);
        uint32_t to = from;
        while (memory_table_at(table, to, &key, 1)) {
            bytes += tables[i] == TABLE_PAYLOADS ? table->by_key.items[to]->values[2].n : 0;
            to++;
        }
        memory_table_cut(table, from, to);
    }
    return bytes;
}

static bool is_over(uint64_t value, uint64_t limit)
{
    return value > limit + limit / 8;
}

void memory__trim(struct database *db, const struct memory_limits *limits)
{
    struct memory_table *events = &db->tables[ROW_EVENT];
    const struct memory_order *tasks = &db->tables[ROW_TASK].by_key;
    uint32_t n = count_ended(db);
    uint64_t bytes = payload_bytes(db);
    if (is_over(n, limits->ended_jobs) || is_over(tasks->n, limits->tasks) || is_over(bytes, limits->payload_bytes)) {
        struct ended *list = list_ended(db, n);
        for (uint32_t i = 0; i < n; i++) {
            if (n - i <= limits->ended_jobs && tasks->n <= limits->tasks && bytes <= limits->payload_bytes) {
                break;
            }
            bytes -= forget_job(db, list[i].job_id);
        }
        mem_free(list);
    }
    if (is_over(events->by_key.n, limits->events)) {
        memory_table_cut(events, 0, events->by_key.n - limits->events);
    }
}
