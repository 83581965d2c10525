/*
 * row_json.h - changes of the state as JSON, for those who hold a copy of it: observers.
 *
 * A change is a row of core/rows.h, a payload or a data set: all that a batch consists of but for the inbox. A kept row is
 * an object with the name of its table as "change" and its columns, as table.h has them, under their names: numbers, texts,
 * and bytes as hexadecimal digits. What is zero or NULL is left out, and so is what cannot change if the row is not new.
 * Columns that a reader does not know are skipped, so that both sides may differ in age.
 *
 * A lease token proves the right to speak for an attempt, so it never leaves: a digest of it takes its place, which tells
 * leases apart as well. Attempts (ROW_ATTEMPT) are history that nobody reads from a copy; they are not written.
 *
 * Pure functions. What is read lives in the caller's arena.
 */
#ifndef CAPSTAN_STORE_ROW_JSON_H
#define CAPSTAN_STORE_ROW_JSON_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"
#include "store/store.h"

struct json;

/* Appends the row. False: rows of this kind are not passed on, and nothing was written. The arena is for scratch. */
bool row_json_write(const struct row *row, struct buf *out, struct arena *arena);
void row_json_write_payload(const struct payload *payload, struct buf *out);
void row_json_write_data_set(const struct data_set *set, struct buf *out);

enum change_kind { CHANGE_ROW, CHANGE_PAYLOAD, CHANGE_DATA_SET, CHANGE_UNKNOWN };

struct change {
    enum change_kind kind; /* CHANGE_UNKNOWN: of a newer program; to be passed over */
    struct row *row;
    struct payload payload;
    struct data_set data_set;
};

/* ERR_INVALID for what row_json_write and its like do not write. */
MUST_USE enum err row_json_read(const struct json *node, struct arena *arena, struct change *out, struct error *e);

#endif
