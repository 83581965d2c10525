/*
 * memory_table.h - tables of the store in memory: sorted arrays of records, and a journal to undo changes.
 *
 * A record is a row of values and never changes: to change one is to put another in its place. The journal remembers
 * both until it is known whether the transaction ends well.
 *
 * Ownership: a table owns its records, a journal those that were replaced. Zero-initialised journals are empty.
 * Threads: one at a time.
 */
#ifndef CAPSTAN_STORE_MEMORY_TABLE_H
#define CAPSTAN_STORE_MEMORY_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "store/table.h"

#define MEMORY_NO_COLUMN UINT32_MAX

struct record {
    uint32_t n_values;
    struct value values[];
};

/* Records sorted by `n_columns` columns from `first` on, perhaps inside their owner: the column 0. */
struct memory_order {
    struct record **items;
    uint32_t n;
    uint32_t cap;
    uint32_t first;
    uint32_t n_columns;
    bool by_owner;
};

struct memory_table {
    const char *name;
    uint32_t n_columns;
    uint32_t unique;            /* a column, besides the key, that no two records share; MEMORY_NO_COLUMN: none */
    bool unique_by_owner;       /* no two records with the same column 0 */
    uint64_t required;          /* columns that are never NULL, one bit each */
    struct memory_order by_key; /* the key is the first columns */
    struct memory_order by_unique;
};

struct memory_change {
    struct memory_table *table;
    struct record *before; /* NULL: there was none */
    struct record *after;  /* NULL: removed */
};

struct memory_journal {
    struct memory_change *changes;
    uint32_t n;
    uint32_t cap;
};

void memory_table_init(struct memory_table *table, const char *name, uint32_t n_columns, uint32_t n_keys);
void memory_table_deinit(struct memory_table *table);

/* Sorts NULL before numbers before texts and bytes; these byte by byte. */
int memory_compare(const struct value *a, const struct value *b);

/* The record whose key starts with these `n` values, if it is the whole key; NULL if there is none. */
struct record *memory_table_find(const struct memory_table *table, const struct value *key);
/* The index of the first record whose key is not below these `n` values. */
uint32_t memory_table_from(const struct memory_table *table, const struct value *key, uint32_t n);
/* Whether a record at this index exists and its key starts with these `n` values. */
bool memory_table_at(const struct memory_table *table, uint32_t index, const struct value *key, uint32_t n);

/*
 * Puts a copy of the values in the place of what has their key. ERR_INVALID if a required column is NULL, a unique one
 * is taken or a text is not UTF-8; nothing changes then.
 */
MUST_USE enum err memory_table_put(struct memory_table *table, struct memory_journal *journal,
                                   const struct value *values, struct error *e);
void memory_table_remove(struct memory_table *table, struct memory_journal *journal, struct record *record);

/* Forgets the records from one place in the order by key up to before another, for good: no journal brings them back. */
void memory_table_cut(struct memory_table *table, uint32_t from, uint32_t to);

/* Both empty the journal. */
void memory_journal_keep(struct memory_journal *journal);
void memory_journal_undo(struct memory_journal *journal);

#endif
