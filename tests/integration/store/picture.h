/*
 * picture.h - all that a store gives back, value by value, to be compared.
 *
 * A picture is a list of entries: where they were read (a load, a job's load, a page), from which table, and the values
 * of all columns as table_get sees them. Entries are sorted, because a store may hand out rows of one kind in any
 * order; what order there must be is checked while the picture is taken.
 *
 * Ownership: a picture owns everything in it. Zero-initialised is empty.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_STORE_PICTURE_H
#define CAPSTAN_TESTS_INTEGRATION_STORE_PICTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "store/table.h"
#include "subject.h"

struct entry {
    const char *where;
    const char *table;
    const struct table *columns; /* NULL: not a row of the scheduler */
    const struct value *values;
    uint32_t n_values;
};

struct picture {
    struct arena arena;
    struct entry *entries;
    uint32_t n;
    uint32_t cap;
};

void picture_deinit(struct picture *p);

void picture_add_row(struct picture *p, const char *where, const struct row *row);

/* What store_load gives; ends the test if it comes in a wrong order or without exactly one ROW_META. */
void picture_load(struct picture *p, struct subject *s);
/* What store_load_job gives; nothing if there is no such job. */
void picture_load_job(struct picture *p, struct subject *s, const char *job_id);
/* Pages of `limit` rows, until there are no more. */
void picture_jobs(struct picture *p, struct subject *s, struct job_query query);
void picture_tasks(struct picture *p, struct subject *s, struct task_query query);
void picture_events(struct picture *p, struct subject *s, struct event_query query);
void picture_data_sets(struct picture *p, struct subject *s);
void picture_payload(struct picture *p, struct subject *s, const char *job_id, struct digest digest);

/* All of the above for these jobs. */
void picture_all(struct picture *p, struct subject *s, const char *const *job_ids, uint32_t n_jobs);

/* A line about the first difference, in the arena; NULL if there is none. */
const char *picture_diff(struct picture *actual, struct picture *expected, struct arena *arena);

/* Ends the test if they differ. */
#define CHECK_PICTURES(actual, expected) picture_check((actual), (expected), __FILE__, __LINE__)
void picture_check(struct picture *actual, struct picture *expected, const char *file, int line);

/* Whether two pictures of one load hold the same; how many rows of a table there are. */
uint32_t picture_count(const struct picture *p, const char *table);
/* The only entry of that table; ends the test if there is another number of them. */
const struct entry *picture_only(const struct picture *p, const char *table);
int64_t entry_number(const struct entry *entry, const char *column);
/* NULL for NULL. */
const char *entry_text(const struct entry *entry, const char *column);

#endif
