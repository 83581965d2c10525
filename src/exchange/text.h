/*
 * text.h - values of Arrow arrays as text: as DuckDB prints them, and as JSON.
 *
 * A type is made once for a column, then each cell costs no look at the schema any more. Texts are those of DuckDB's
 * CAST(x AS VARCHAR), but for one thing: TIMESTAMP WITH TIME ZONE is always shown in UTC, since a stream says what zone its
 * maker had and not what that zone means.
 *
 * In JSON, a number is a number if every reader gets exactly that one: floating point, and whole numbers of up to 64 bits
 * within 2^53. All others are texts: larger ones, HUGEINT, UHUGEINT, BIGNUM, DECIMAL, NaN and the infinities. Lists are
 * arrays, structs objects (arrays if their fields have no names), maps objects by the text of the key, a union an object
 * with one member, its tag. A JSON column is taken over as JSON. All else is a text as DuckDB prints it.
 *
 * Arrays must be well-formed, as those are that come from DuckDB or from ipc.h.
 *
 * Ownership: a type owns copies of all that it needs; texts are appended to the caller's buffer. Threads: a type never
 * changes and may be shared.
 */
#ifndef CAPSTAN_EXCHANGE_TEXT_H
#define CAPSTAN_EXCHANGE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"
#include "capstan/arrow.h"

struct text_type;

/* The type of one column. ERR_INVALID for what type.h does not take. */
MUST_USE enum err text_type_new(const struct ArrowSchema *schema, struct text_type **out, struct error *e);
void text_type_free(struct text_type *type); /* NULL ok */

/*
 * Appends the name in SQL: BIGINT, DECIMAL(12,2), INTEGER[], STRUCT(a INTEGER). An ENUM is just that, since its values are
 * not in the schema.
 */
void text_type_name(struct buf *out, const struct text_type *type);

/* Whether its values are numbers, which people want to see flush right. */
bool text_type_is_number(const struct text_type *type);

/* Appends the value in that row. False, and nothing is appended, if it is NULL. The array is the type's column. */
bool text_cell(struct buf *out, const struct text_type *type, const struct ArrowArray *array, int64_t row);

/* The same as JSON, on one line; NULL is null. */
void text_cell_json(struct buf *out, const struct text_type *type, const struct ArrowArray *array, int64_t row);

#endif
