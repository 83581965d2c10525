#include "exchange/flat.h"

#include <string.h>

static size_t end_of(const struct flat_writer *w)
{
    return w->out->n - w->base;
}

static void put_zeros(struct flat_writer *w, size_t n)
{
    static const uint8_t zeros[64] = {0};
    while (n > 0) {
        size_t some = n < sizeof(zeros) ? n : sizeof(zeros);
        buf_append(w->out, zeros, some);
        n -= some;
    }
}

/* Zeros until what comes `ahead` bytes later is at a multiple of `align`. */
static void pad(struct flat_writer *w, size_t ahead, size_t align)
{
    size_t over = (end_of(w) + ahead) % align;
    put_zeros(w, over == 0 ? 0 : align - over);
}

static void put_number(struct flat_writer *w, uint64_t value, size_t size)
{
    buf_append(w->out, &value, size); /* little-endian */
}

static uint64_t number_at(const uint8_t *p, size_t size)
{
    uint64_t value = 0;
    memcpy(&value, p, size);
    return value;
}

struct flat_writer flat_begin(struct buf *out)
{
    struct flat_writer w = {.out = out, .base = out->n};
    ASSERT(out->n % 8 == 0);
    put_zeros(&w, 4);
    return w;
}

size_t flat_put_table(struct flat_writer *w, const uint8_t *sizes, uint32_t n)
{
    ASSERT(n <= FLAT_SLOTS_MAX);
    uint16_t vtable[2 + FLAT_SLOTS_MAX] = {0};
    size_t vtable_bytes = 4 + 2 * (size_t)n;
    size_t table_bytes = 4;
    for (size_t size = 8; size > 0; size /= 2) { /* the widest first, so that nothing needs padding */
        for (uint32_t i = 0; i < n; i++) {
            if (sizes[i] == size) {
                vtable[2 + i] = (uint16_t)table_bytes;
                table_bytes += size;
            }
        }
    }
    vtable[0] = (uint16_t)vtable_bytes;
    vtable[1] = (uint16_t)table_bytes;
    pad(w, vtable_bytes + 4, 8); /* what follows the table's first four bytes may be eight wide */
    buf_append(w->out, vtable, vtable_bytes);
    size_t table = end_of(w);
    put_number(w, vtable_bytes, 4);
    put_zeros(w, table_bytes - 4);
    return table;
}

static uint8_t *at(const struct flat_writer *w, size_t pos)
{
    return (uint8_t *)w->out->data + w->base + pos;
}

size_t flat_slot(const struct flat_writer *w, size_t table, uint32_t slot)
{
    size_t vtable = table - number_at(at(w, table), 4);
    size_t offset = number_at(at(w, vtable + 4 + 2 * (size_t)slot), 2);
    ASSERT(offset != 0);
    return table + offset;
}

void flat_set(struct flat_writer *w, size_t table, uint32_t slot, uint64_t value)
{
    size_t vtable = table - number_at(at(w, table), 4);
    size_t pos = flat_slot(w, table, slot);
    size_t n = number_at(at(w, vtable), 2) / 2 - 2;
    size_t end = number_at(at(w, vtable + 2), 2);
    for (size_t i = 0; i < n; i++) { /* the field ends where the next one begins */
        size_t other = number_at(at(w, vtable + 4 + 2 * i), 2);
        if (other > pos - table && other < end) {
            end = other;
        }
    }
    memcpy(at(w, pos), &value, end - (pos - table));
}

void flat_link(struct flat_writer *w, size_t from, size_t to)
{
    ASSERT(to > from);
    uint32_t distance = (uint32_t)(to - from);
    memcpy(at(w, from), &distance, sizeof(distance));
}

size_t flat_put_text(struct flat_writer *w, const char *text, size_t n)
{
    pad(w, 0, 4);
    size_t pos = end_of(w);
    put_number(w, n, 4);
    buf_append(w->out, text, n);
    put_zeros(w, 1);
    return pos;
}

size_t flat_put_links(struct flat_writer *w, uint32_t n)
{
    pad(w, 0, 4);
    size_t pos = end_of(w);
    put_number(w, n, 4);
    put_zeros(w, 4 * (size_t)n);
    return pos;
}

size_t flat_put_structs(struct flat_writer *w, const void *elements, uint32_t n, size_t size)
{
    ASSERT(size % 4 == 0);
    pad(w, 4, size % 8 == 0 ? 8 : 4);
    size_t pos = end_of(w);
    put_number(w, n, 4);
    buf_append(w->out, elements, n * size);
    return pos;
}

/* ---- reading ---- */

static bool fits(struct flat flat, size_t pos, size_t n)
{
    return pos <= flat.n && n <= flat.n - pos;
}

static bool open_table(struct flat flat, size_t pos, struct flat_table *out)
{
    if (!fits(flat, pos, 4)) {
        return false;
    }
    int32_t back = (int32_t)number_at(flat.bytes + pos, 4);
    int64_t vtable = (int64_t)pos - back;
    if (vtable < 0 || !fits(flat, (size_t)vtable, 4)) {
        return false;
    }
    uint32_t n_vtable = (uint32_t)number_at(flat.bytes + vtable, 2);
    uint32_t n_table = (uint32_t)number_at(flat.bytes + vtable + 2, 2);
    if (n_vtable < 4 || n_table < 4 || !fits(flat, (size_t)vtable, n_vtable) || !fits(flat, pos, n_table)) {
        return false;
    }
    *out = (struct flat_table){
        .flat = flat, .pos = pos, .vtable = (size_t)vtable, .n_vtable = n_vtable, .n_table = n_table};
    return true;
}

/* Follows the link at `pos`. */
static bool follow(struct flat flat, size_t pos, size_t *out)
{
    if (!fits(flat, pos, 4)) {
        return false;
    }
    size_t to = pos + number_at(flat.bytes + pos, 4);
    if (to == pos || to >= flat.n) {
        return false;
    }
    *out = to;
    return true;
}

bool flat_root(struct flat flat, struct flat_table *out)
{
    size_t pos = 0;
    return follow(flat, 0, &pos) && open_table(flat, pos, out);
}

/* Where a field of that size is; 0: it is absent. */
static bool find(const struct flat_table *table, uint32_t slot, size_t size, size_t *out)
{
    size_t entry = 4 + 2 * (size_t)slot;
    *out = 0;
    if (entry + 2 > table->n_vtable) {
        return true;
    }
    size_t offset = number_at(table->flat.bytes + table->vtable + entry, 2);
    if (offset == 0) {
        return true;
    }
    if (offset < 4 || offset + size > table->n_table) {
        return false;
    }
    *out = table->pos + offset;
    return true;
}

bool flat_get(const struct flat_table *table, uint32_t slot, size_t size, uint64_t absent, uint64_t *out)
{
    size_t pos = 0;
    if (!find(table, slot, size, &pos)) {
        return false;
    }
    *out = pos == 0 ? absent : number_at(table->flat.bytes + pos, size);
    return true;
}

bool flat_get_table(const struct flat_table *table, uint32_t slot, struct flat_table *out, bool *out_there)
{
    size_t pos = 0;
    if (!find(table, slot, 4, &pos)) {
        return false;
    }
    *out_there = pos != 0;
    return pos == 0 || (follow(table->flat, pos, &pos) && open_table(table->flat, pos, out));
}

/* A list of elements, or a text: a count and what it counts. */
static bool open_list(const struct flat_table *table, size_t pos, size_t size, struct flat_list *out)
{
    struct flat flat = table->flat;
    size_t start = 0;
    if (!follow(flat, pos, &start) || !fits(flat, start, 4)) {
        return false;
    }
    uint32_t n = (uint32_t)number_at(flat.bytes + start, 4);
    if ((flat.n - start - 4) / size < n) {
        return false;
    }
    *out = (struct flat_list){.flat = flat, .pos = start + 4, .n = n};
    return true;
}

bool flat_get_list(const struct flat_table *table, uint32_t slot, size_t size, struct flat_list *out)
{
    size_t pos = 0;
    if (!find(table, slot, 4, &pos)) {
        return false;
    }
    *out = (struct flat_list){.flat = table->flat};
    return pos == 0 || open_list(table, pos, size, out);
}

bool flat_get_text(const struct flat_table *table, uint32_t slot, const char **out, size_t *out_n, bool *out_there)
{
    struct flat_list list = {0};
    size_t pos = 0;
    if (!find(table, slot, 4, &pos)) {
        return false;
    }
    *out_there = pos != 0;
    if (pos == 0) {
        return true;
    }
    if (!open_list(table, pos, 1, &list)) {
        return false;
    }
    *out = (const char *)list.flat.bytes + list.pos;
    *out_n = list.n;
    return true;
}

bool flat_list_table(const struct flat_list *list, uint32_t i, struct flat_table *out)
{
    size_t pos = 0;
    ASSERT(i < list->n);
    return follow(list->flat, list->pos + 4 * (size_t)i, &pos) && open_table(list->flat, pos, out);
}
