/*
 * table.h - how rows of the scheduler lie in tables: one description, used by every engine.
 *
 * A table says, column by column, where a value lies in the row's struct and how it is written: as a number, a text or
 * bytes. Engines build their statements from it and move values with table_get and table_set; none of them knows the
 * structs.
 *
 * Pure functions. Values point into the row or into the arena.
 */
#ifndef CAPSTAN_STORE_TABLE_H
#define CAPSTAN_STORE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "core/rows.h"

enum value_type { VALUE_IS_NULL, VALUE_IS_INT, VALUE_IS_TEXT, VALUE_IS_BYTES };

struct value {
    enum value_type type;
    int64_t number;
    const void *bytes; /* text: n bytes, and a NUL after them */
    size_t n;
};

/* How a field becomes a value. */
enum column_kind {
    COLUMN_TEXT,       /* const char *, NULL allowed */
    COLUMN_U8,         /* also bool */
    COLUMN_U32,        /* also enums */
    COLUMN_I64,        /* also uint64_t, bit for bit */
    COLUMN_DIGEST,     /* 32 bytes */
    COLUMN_TOKEN,      /* 16 bytes; all zero is NULL */
    COLUMN_STRINGS,    /* struct string_list as a JSON array */
    COLUMN_MARKS,      /* const uint64_t * and, next to it, uint32_t count: 8 bytes each, little-endian */
    COLUMN_PARTITIONS, /* const struct partition * and, next to it, uint32_t count: 32 bytes each */
    COLUMN_OFFER,      /* const struct offer * as JSON */
    COLUMN_SPEC,       /* const struct stage_spec * as JSON */
    COLUMN_NEED,       /* const struct requirement * as JSON, placement only; never read back */
    COLUMN_NAME,       /* const struct stage_spec *: its name alone; never read back */
    COLUMN_PAST,       /* const char *[NODE_PAST_INCARNATIONS] as a JSON array */
};

enum column_role {
    ROLE_KEY,
    ROLE_FIXED,   /* written when the row is new */
    ROLE_CHANGES, /* written always */
};

struct column {
    const char *name;
    enum column_kind kind;
    enum column_role role;
    uint16_t offset;
};

struct table {
    const char *name;
    enum row_kind kind;
    uint16_t row_bytes;
    int new_offset; /* of the bool that says that the row is new; -1: it always may be */
    const struct column *columns;
    uint32_t n_columns;
};

/* The table that rows of this kind are kept in; NULL for kinds that only change or remove others. */
const struct table *table_of(enum row_kind kind);

/* VALUE_IS_INT, VALUE_IS_TEXT or VALUE_IS_BYTES. */
enum value_type column_type(const struct column *column);

/* False for columns that only people and lists read: what they say is in another column, too. */
bool column_is_read(const struct column *column);

bool table_row_is_new(const struct table *table, const struct row *row);

struct value table_get(const struct row *row, const struct column *column, struct arena *arena);

/* An empty row in the arena, for table_set. */
struct row *table_row(const struct table *table, struct arena *arena);

/* ERR_DATA_LOSS if the stored value makes no sense. Copies what it keeps into the arena. */
MUST_USE enum err table_set(struct row *row, const struct column *column, struct value value, struct arena *arena,
                            struct error *e);

/* The same, but a stage's spec comes from the memo and lives as long as that says. */
struct spec_memo;
MUST_USE enum err table_set_from(struct row *row, const struct column *column, struct value value, struct arena *arena,
                                 struct spec_memo *memo, struct error *e);

/*
 * A copy of a loaded row in the arena, for whoever needs it longer than the load lasts: every column that is read.
 * ERR_DATA_LOSS as table_set. The scratch arena is the caller's to reset.
 */
MUST_USE enum err table_copy(const struct row *row, struct arena *arena, struct arena *scratch, struct row **out,
                             struct error *e);

#endif
