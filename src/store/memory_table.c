#include "store/memory_table.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

void memory_table_init(struct memory_table *table, const char *name, uint32_t n_columns, uint32_t n_keys)
{
    *table = (struct memory_table){
        .name = name,
        .n_columns = n_columns,
        .unique = MEMORY_NO_COLUMN,
        .required = (UINT64_C(1) << n_keys) - 1,
        .by_key = {.n_columns = n_keys},
    };
}

void memory_table_deinit(struct memory_table *table)
{
    for (uint32_t i = 0; i < table->by_key.n; i++) {
        mem_free(table->by_key.items[i]);
    }
    mem_free(table->by_key.items);
    mem_free(table->by_unique.items);
    table->by_key = (struct memory_order){.n_columns = table->by_key.n_columns};
    table->by_unique =
        (struct memory_order){.first = table->unique, .n_columns = 1, .by_owner = table->unique_by_owner};
}

/* ---- order ---- */

static int rank(const struct value *value)
{
    return value->type == VALUE_IS_NULL ? 0 : value->type == VALUE_IS_INT ? 1 : 2;
}

int memory_compare(const struct value *a, const struct value *b)
{
    if (rank(a) != rank(b)) {
        return rank(a) - rank(b);
    }
    if (rank(a) == 0) {
        return 0;
    }
    if (rank(a) == 1) {
        return (a->number > b->number) - (a->number < b->number);
    }
    size_t shorter = a->n < b->n ? a->n : b->n;
    int order = shorter == 0 ? 0 : memcmp(a->bytes, b->bytes, shorter);
    return order != 0 ? order : (a->n > b->n) - (a->n < b->n);
}

/* Compares the first `n` of the columns that the order is by. */
static int compare_some(const struct memory_order *order, const struct value *a, const struct value *b, uint32_t n)
{
    int result = order->by_owner ? memory_compare(&a[0], &b[0]) : 0;
    for (uint32_t i = order->first; i < order->first + n && result == 0; i++) {
        result = memory_compare(&a[i], &b[i]);
    }
    return result;
}

/* The first place whose record is not below the values. */
static uint32_t place_of(const struct memory_order *order, const struct value *values, uint32_t n)
{
    uint32_t low = 0;
    uint32_t high = order->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (compare_some(order, order->items[middle]->values, values, n) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct record *look_up(const struct memory_order *order, const struct value *values)
{
    uint32_t at = place_of(order, values, order->n_columns);
    bool found = at < order->n && compare_some(order, order->items[at]->values, values, order->n_columns) == 0;
    return found ? order->items[at] : NULL;
}

static void link_record(struct memory_order *order, struct record *record)
{
    uint32_t at = place_of(order, record->values, order->n_columns);
    order->items = mem_grow(order->items, &order->cap, order->n + 1, sizeof *order->items);
    memmove(order->items + at + 1, order->items + at, (order->n - at) * sizeof *order->items);
    order->items[at] = record;
    order->n++;
}

static void unlink_record(struct memory_order *order, const struct record *record)
{
    uint32_t at = place_of(order, record->values, order->n_columns);
    ASSERT(at < order->n);
    ASSERT(order->items[at] == record);
    order->n--;
    memmove(order->items + at, order->items + at + 1, (order->n - at) * sizeof *order->items);
}

static void add(struct memory_table *table, struct record *record)
{
    link_record(&table->by_key, record);
    if (table->unique != MEMORY_NO_COLUMN) {
        link_record(&table->by_unique, record);
    }
}

static void take(struct memory_table *table, const struct record *record)
{
    unlink_record(&table->by_key, record);
    if (table->unique != MEMORY_NO_COLUMN) {
        unlink_record(&table->by_unique, record);
    }
}

struct record *memory_table_find(const struct memory_table *table, const struct value *key)
{
    return look_up(&table->by_key, key);
}

uint32_t memory_table_from(const struct memory_table *table, const struct value *key, uint32_t n)
{
    return place_of(&table->by_key, key, n);
}

bool memory_table_at(const struct memory_table *table, uint32_t index, const struct value *key, uint32_t n)
{
    return index < table->by_key.n && compare_some(&table->by_key, table->by_key.items[index]->values, key, n) == 0;
}

/* ---- changes ---- */

/* One block: the values, then what they point to. */
static struct record *record_new(const struct value *values, uint32_t n)
{
    size_t size = sizeof(struct record) + n * sizeof *values;
    size_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes += values[i].type >= VALUE_IS_TEXT ? values[i].n + 1 : 0;
    }
    struct record *record = mem_alloc(size + bytes);
    char *to = (char *)record + size;
    record->n_values = n;
    for (uint32_t i = 0; i < n; i++) {
        record->values[i] = values[i];
        if (values[i].type >= VALUE_IS_TEXT) {
            if (values[i].n > 0) {
                memcpy(to, values[i].bytes, values[i].n);
            }
            to[values[i].n] = '\0';
            record->values[i].bytes = to;
            to += values[i].n + 1;
        }
    }
    return record;
}

static void note(struct memory_journal *journal, struct memory_change change)
{
    journal->changes = mem_grow(journal->changes, &journal->cap, journal->n + 1, sizeof *journal->changes);
    journal->changes[journal->n++] = change;
}

static enum err check_values(const struct memory_table *table, const struct value *values, struct error *e)
{
    for (uint32_t i = 0; i < table->n_columns; i++) {
        if (values[i].type == VALUE_IS_NULL && ((table->required >> i) & 1) != 0) {
            return error_set(e, ERR_INVALID, "table %s: column %u must not be NULL", table->name, i);
        }
        if (values[i].type == VALUE_IS_TEXT && !utf8_is_valid(values[i].bytes, values[i].n)) {
            return error_set(e, ERR_INVALID, "table %s: column %u is not UTF-8", table->name, i);
        }
    }
    return ERR_OK;
}

enum err memory_table_put(struct memory_table *table, struct memory_journal *journal, const struct value *values,
                          struct error *e)
{
    enum err err = check_values(table, values, e);
    if (err != ERR_OK) {
        return err;
    }
    struct record *before = memory_table_find(table, values);
    if (table->unique != MEMORY_NO_COLUMN) {
        const struct record *other = look_up(&table->by_unique, values);
        if (other != NULL && other != before) {
            return error_set(e, ERR_INVALID, "table %s: column %u must be unique", table->name, table->unique);
        }
    }
    struct record *after = record_new(values, table->n_columns);
    if (before != NULL && table->unique == MEMORY_NO_COLUMN) {
        table->by_key.items[place_of(&table->by_key, values, table->by_key.n_columns)] = after;
    } else if (before != NULL) {
        take(table, before);
        add(table, after);
    } else {
        add(table, after);
    }
    note(journal, (struct memory_change){table, before, after});
    return ERR_OK;
}

void memory_table_remove(struct memory_table *table, struct memory_journal *journal, struct record *record)
{
    take(table, record);
    note(journal, (struct memory_change){table, record, NULL});
}

/* Takes out those between two places, which are still in the order by key. */
static void forget_unique(struct memory_table *table, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to && table->unique != MEMORY_NO_COLUMN; i++) {
        unlink_record(&table->by_unique, table->by_key.items[i]);
    }
}

void memory_table_cut(struct memory_table *table, uint32_t from, uint32_t to)
{
    struct memory_order *order = &table->by_key;
    ASSERT(from <= to && to <= order->n);
    if (from == to) {
        return;
    }
    forget_unique(table, from, to);
    for (uint32_t i = from; i < to; i++) {
        mem_free(order->items[i]);
    }
    memmove(order->items + from, order->items + to, (order->n - to) * sizeof *order->items);
    order->n -= to - from;
}

static void journal_end(struct memory_journal *journal)
{
    mem_free(journal->changes);
    *journal = (struct memory_journal){0};
}

void memory_journal_keep(struct memory_journal *journal)
{
    for (uint32_t i = 0; i < journal->n; i++) {
        mem_free(journal->changes[i].before);
    }
    journal_end(journal);
}

void memory_journal_undo(struct memory_journal *journal)
{
    while (journal->n > 0) {
        struct memory_change *change = &journal->changes[--journal->n];
        if (change->after != NULL) {
            take(change->table, change->after);
            mem_free(change->after);
        }
        if (change->before != NULL) {
            add(change->table, change->before);
        }
    }
    journal_end(journal);
}
