/*
 * constant.c - constants in SQL: each with exactly its type, so that DuckDB binds what is around it as it was bound.
 *
 * One table says, by type, how a value is written between CAST(' and ' AS type). What is not of that form is written by
 * the few functions after it.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "query/plan.h"

/* Text and names. */

void sql_write_text(struct buf *sql, const char *bytes, size_t n)
{
    bool has_nul = memchr(bytes, '\0', n) != NULL;
    buf_text(sql, has_nul ? "('" : "'");
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\0') {
            buf_text(sql, "' || chr(0) || '"); /* SQL text cannot hold it */
            continue;
        }
        if (bytes[i] == '\'') {
            buf_char(sql, '\'');
        }
        buf_char(sql, bytes[i]);
    }
    buf_text(sql, has_nul ? "')" : "'");
}

void sql_write_name(struct buf *sql, const char *name)
{
    buf_char(sql, '"');
    for (const char *p = name; *p != '\0'; p++) {
        if (*p == '"') {
            buf_char(sql, '"');
        }
        buf_char(sql, *p);
    }
    buf_char(sql, '"');
}

/* Numbers. */

static unsigned __int128 unsigned_of(struct wide_int value)
{
    return (unsigned __int128)(uint64_t)value.upper << 64 | value.lower;
}

/* Appends the digits, with a decimal point before the last `scale` ones. */
static void write_digits(struct buf *sql, unsigned __int128 value, unsigned scale)
{
    char text[48];
    size_t at = sizeof(text);
    unsigned n = 0;
    do {
        if (n == scale && scale > 0) {
            text[--at] = '.';
        }
        text[--at] = (char)('0' + (int)(value % 10));
        value /= 10;
        n++;
    } while (value > 0 || n <= scale);
    buf_append(sql, text + at, sizeof(text) - at);
}

static void write_signed(struct buf *sql, struct wide_int value, unsigned scale)
{
    unsigned __int128 magnitude = unsigned_of(value);
    if (value.upper < 0) {
        buf_char(sql, '-');
        magnitude = ~magnitude + 1;
    }
    write_digits(sql, magnitude, scale);
}

/* Dates and times. */

struct civil {
    int64_t year; /* 0 is 1 BC */
    int month;
    int day;
};

/* The Gregorian date, extended into the past, of a day counted from 1970-01-01. */
static struct civil civil_of(int64_t days)
{
    /* Years are counted from March, in eras of 400 years, so that the leap day is the last of its year. */
    int64_t shifted = days + 719468;
    int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
    int64_t day_of_era = shifted - era * 146097;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month = (5 * day_of_year + 2) / 153;
    struct civil civil = {.year = year_of_era + era * 400,
                          .month = (int)(month < 10 ? month + 3 : month - 9),
                          .day = (int)(day_of_year - (153 * month + 2) / 5 + 1)};
    civil.year += civil.month <= 2 ? 1 : 0;
    return civil;
}

static void write_date(struct buf *sql, int64_t days)
{
    struct civil civil = civil_of(days);
    if (civil.year <= 0) {
        buf_format(sql, "%04" PRId64 "-%02d-%02d (BC)", 1 - civil.year, civil.month, civil.day);
    } else {
        buf_format(sql, "%04" PRId64 "-%02d-%02d", civil.year, civil.month, civil.day);
    }
}

/* A time of day in units of which there are 10^digits in a second. */
static void write_time(struct buf *sql, int64_t units, int digits)
{
    int64_t per_second = 1;
    for (int i = 0; i < digits; i++) {
        per_second *= 10;
    }
    int64_t seconds = units / per_second;
    buf_format(sql, "%02" PRId64 ":%02d:%02d", seconds / 3600, (int)(seconds / 60 % 60), (int)(seconds % 60));
    if (units % per_second != 0) {
        buf_format(sql, ".%0*" PRId64, digits, units % per_second);
    }
}

static void write_moment(struct buf *sql, int64_t units, int digits)
{
    int64_t per_day = 86400;
    for (int i = 0; i < digits; i++) {
        per_day *= 10;
    }
    int64_t days = units / per_day;
    int64_t rest = units % per_day;
    if (rest < 0) {
        rest += per_day;
        days--;
    }
    write_date(sql, days);
    buf_char(sql, ' ');
    write_time(sql, rest, digits);
}

/* What stands between the quotes of CAST('…' AS type), by type. */

typedef void text_fn(struct buf *sql, const struct constant *constant);

static void text_integer(struct buf *sql, const struct constant *constant)
{
    write_signed(sql, constant->as.integer, constant->type->scale);
}

static void text_unsigned(struct buf *sql, const struct constant *constant)
{
    write_digits(sql, unsigned_of(constant->as.integer), 0);
}

static void text_number(struct buf *sql, const struct constant *constant)
{
    double number = constant->as.number;
    if (isnan(number)) {
        buf_text(sql, signbit(number) ? "-nan" : "nan");
    } else if (isinf(number)) {
        buf_text(sql, number > 0 ? "inf" : "-inf");
    } else {
        json_write_number(sql, number);
    }
}

static void text_date(struct buf *sql, const struct constant *constant)
{
    int64_t days = (int64_t)constant->as.integer.lower;
    if (days == INT32_MAX || days == -INT32_MAX) {
        buf_text(sql, days > 0 ? "infinity" : "-infinity");
    } else {
        write_date(sql, days);
    }
}

static void moment_or_infinity(struct buf *sql, const struct constant *constant, int digits)
{
    int64_t units = (int64_t)constant->as.integer.lower;
    if (units == INT64_MAX || units == -INT64_MAX) {
        buf_text(sql, units > 0 ? "infinity" : "-infinity");
        return;
    }
    write_moment(sql, units, digits);
    buf_text(sql, constant->type->id == TYPE_TIMESTAMP_TZ ? "+00" : "");
}

static void text_seconds(struct buf *sql, const struct constant *constant)
{
    moment_or_infinity(sql, constant, 0);
}

static void text_millis(struct buf *sql, const struct constant *constant)
{
    moment_or_infinity(sql, constant, 3);
}

static void text_micros(struct buf *sql, const struct constant *constant)
{
    moment_or_infinity(sql, constant, 6);
}

static void text_nanos(struct buf *sql, const struct constant *constant)
{
    moment_or_infinity(sql, constant, 9);
}

static void text_time(struct buf *sql, const struct constant *constant)
{
    write_time(sql, (int64_t)constant->as.integer.lower, 6);
}

static void text_time_ns(struct buf *sql, const struct constant *constant)
{
    write_time(sql, (int64_t)constant->as.integer.lower, 9);
}

/* DuckDB keeps the time in the upper 40 bits and the largest offset minus the zone's in the others. */
static void text_time_tz(struct buf *sql, const struct constant *constant)
{
    uint64_t bits = constant->as.integer.lower;
    int offset = 16 * 3600 - 1 - (int)(bits & 0xffffff);
    int magnitude = offset < 0 ? -offset : offset;
    write_time(sql, (int64_t)(bits >> 24), 6);
    buf_format(sql, "%c%02d:%02d:%02d", offset < 0 ? '-' : '+', magnitude / 3600, magnitude / 60 % 60, magnitude % 60);
}

/* The top bit is turned round, so that UUIDs sort as signed numbers. */
static void text_uuid(struct buf *sql, const struct constant *constant)
{
    uint64_t upper = (uint64_t)constant->as.integer.upper ^ (UINT64_C(1) << 63);
    uint64_t lower = constant->as.integer.lower;
    buf_format(sql, "%08" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%012" PRIx64, upper >> 32,
               upper >> 16 & 0xffff, upper & 0xffff, lower >> 48, lower & UINT64_C(0xffffffffffff));
}

static text_fn *const texts[] = {
    [TYPE_TINYINT] = text_integer,    [TYPE_SMALLINT] = text_integer,    [TYPE_INTEGER] = text_integer,
    [TYPE_BIGINT] = text_integer,     [TYPE_HUGEINT] = text_integer,     [TYPE_UTINYINT] = text_unsigned,
    [TYPE_USMALLINT] = text_unsigned, [TYPE_UINTEGER] = text_unsigned,   [TYPE_UBIGINT] = text_unsigned,
    [TYPE_UHUGEINT] = text_unsigned,  [TYPE_DECIMAL] = text_integer,     [TYPE_FLOAT] = text_number,
    [TYPE_DOUBLE] = text_number,      [TYPE_UUID] = text_uuid,           [TYPE_DATE] = text_date,
    [TYPE_TIME] = text_time,          [TYPE_TIME_NS] = text_time_ns,     [TYPE_TIME_TZ] = text_time_tz,
    [TYPE_TIMESTAMP] = text_micros,   [TYPE_TIMESTAMP_S] = text_seconds, [TYPE_TIMESTAMP_MS] = text_millis,
    [TYPE_TIMESTAMP_NS] = text_nanos, [TYPE_TIMESTAMP_TZ] = text_micros, [TYPE_INTEGER_LITERAL] = text_integer,
};

static void cast_end(struct buf *sql, const struct type *type)
{
    buf_text(sql, " AS ");
    type_write(sql, type);
    buf_char(sql, ')');
}

/* Nested values. */

static bool write_list(struct buf *sql, const struct constant *constant)
{
    bool has_type = type_has_sql(constant->type);
    buf_text(sql, has_type ? "CAST([" : "[");
    for (uint32_t i = 0; i < constant->as.items.n; i++) {
        buf_text(sql, i == 0 ? "" : ", ");
        if (!constant_write(sql, &constant->as.items.items[i])) {
            return false;
        }
    }
    buf_char(sql, ']');
    if (has_type) {
        cast_end(sql, constant->type);
    }
    return true;
}

static bool write_struct(struct buf *sql, const struct constant *constant)
{
    bool has_names = constant->type->n_fields > 0 && constant->type->fields[0].name[0] != '\0';
    buf_text(sql, has_names ? "{" : "row(");
    for (uint32_t i = 0; i < constant->as.items.n; i++) {
        buf_text(sql, i == 0 ? "" : ", ");
        if (has_names) {
            const char *name = constant->type->fields[i].name;
            sql_write_text(sql, name, strlen(name));
            buf_text(sql, ": ");
        }
        if (!constant_write(sql, &constant->as.items.items[i])) {
            return false;
        }
    }
    buf_text(sql, has_names ? "}" : ")");
    return true;
}

static bool write_map(struct buf *sql, const struct constant *constant)
{
    buf_text(sql, "CAST(MAP(");
    for (uint32_t part = 0; part < 2; part++) {
        buf_text(sql, part == 0 ? "[" : ", [");
        for (uint32_t i = 0; i < constant->as.items.n; i++) {
            buf_text(sql, i == 0 ? "" : ", ");
            if (!constant_write(sql, &constant->as.items.items[i].as.items.items[part])) {
                return false;
            }
        }
        buf_char(sql, ']');
    }
    buf_char(sql, ')');
    cast_end(sql, constant->type);
    return true;
}

static bool write_union(struct buf *sql, const struct constant *constant)
{
    buf_text(sql, "CAST(union_value(");
    sql_write_name(sql, constant->type->fields[constant->as.items.tag].name);
    buf_text(sql, " := ");
    if (!constant_write(sql, &constant->as.items.items[0])) {
        return false;
    }
    buf_char(sql, ')');
    cast_end(sql, constant->type);
    return true;
}

static bool write_items(struct buf *sql, const struct constant *constant)
{
    switch ((int)constant->type->id) {
    case TYPE_STRUCT:
        return write_struct(sql, constant);
    case TYPE_MAP:
        return type_has_sql(constant->type) && write_map(sql, constant);
    case TYPE_UNION:
        return type_has_sql(constant->type) && write_union(sql, constant);
    default:
        return write_list(sql, constant);
    }
}

static void write_text(struct buf *sql, const struct constant *constant)
{
    bool is_plain = constant->type->id != TYPE_BLOB && !constant->type->is_json;
    buf_text(sql, is_plain ? "" : "CAST(");
    sql_write_text(sql, constant->as.text.bytes, constant->as.text.n);
    if (!is_plain) {
        cast_end(sql, constant->type);
    }
}

static void write_interval(struct buf *sql, const struct constant_interval *interval)
{
    buf_format(sql,
               "(to_months(CAST(%" PRId32 " AS INTEGER)) + to_days(CAST(%" PRId32 " AS INTEGER)) + "
               "to_microseconds(CAST(%" PRId64 " AS BIGINT)))",
               interval->months, interval->days, interval->micros);
}

static bool write_enum(struct buf *sql, const struct constant *constant)
{
    uint64_t index = constant->as.integer.lower;
    if (index >= constant->type->n_fields) {
        return false;
    }
    const char *value = constant->type->fields[index].name;
    buf_text(sql, "CAST(");
    sql_write_text(sql, value, strlen(value));
    cast_end(sql, constant->type);
    return true;
}

static bool write_null(struct buf *sql, const struct constant *constant)
{
    if (constant->type->id == TYPE_NULL) {
        buf_text(sql, "NULL");
        return true;
    }
    if (!type_has_sql(constant->type)) {
        return false;
    }
    buf_text(sql, "CAST(NULL");
    cast_end(sql, constant->type);
    return true;
}

/* A value of one of the types in the table. A small whole number is an INTEGER as it stands. */
static void write_simple(struct buf *sql, const struct constant *constant)
{
    if ((constant->type->id == TYPE_INTEGER || constant->type->id == TYPE_INTEGER_LITERAL) &&
        constant->as.integer.upper >= 0) {
        texts[TYPE_INTEGER](sql, constant);
        return;
    }
    buf_text(sql, "CAST('");
    texts[constant->type->id](sql, constant);
    buf_char(sql, '\'');
    cast_end(sql, constant->type);
}

bool constant_write(struct buf *sql, const struct constant *constant)
{
    if (constant->is_null) {
        return write_null(sql, constant);
    }
    switch (type_form(constant->type->id)) {
    case FORM_BOOLEAN:
        buf_text(sql, constant->as.boolean ? "true" : "false");
        return true;
    case FORM_INTEGER:
        if (constant->type->id == TYPE_ENUM) {
            return write_enum(sql, constant);
        }
        write_simple(sql, constant);
        return true;
    case FORM_NUMBER:
        write_simple(sql, constant);
        return true;
    case FORM_TEXT:
        write_text(sql, constant);
        return true;
    case FORM_INTERVAL:
        write_interval(sql, &constant->as.interval);
        return true;
    case FORM_ITEMS:
        return write_items(sql, constant);
    case FORM_NONE:
        break;
    }
    return false;
}

static bool items_equal(const struct constant_items *a, const struct constant_items *b)
{
    if (a->n != b->n || a->tag != b->tag) {
        return false;
    }
    for (uint32_t i = 0; i < a->n; i++) {
        if (!constant_equal(&a->items[i], &b->items[i])) {
            return false;
        }
    }
    return true;
}

bool constant_equal(const struct constant *a, const struct constant *b)
{
    if (!type_equal(a->type, b->type) || a->is_null != b->is_null) {
        return false;
    }
    if (a->is_null) {
        return true;
    }
    switch (type_form(a->type->id)) {
    case FORM_BOOLEAN:
        return a->as.boolean == b->as.boolean;
    case FORM_INTEGER:
        return a->as.integer.upper == b->as.integer.upper && a->as.integer.lower == b->as.integer.lower;
    case FORM_NUMBER: /* bit by bit: NaN is itself, and the zeros differ */
        return memcmp(&a->as.number, &b->as.number, sizeof(double)) == 0;
    case FORM_TEXT:
        return a->as.text.n == b->as.text.n && memcmp(a->as.text.bytes, b->as.text.bytes, a->as.text.n) == 0;
    case FORM_INTERVAL:
        return a->as.interval.months == b->as.interval.months && a->as.interval.days == b->as.interval.days &&
               a->as.interval.micros == b->as.interval.micros;
    case FORM_ITEMS:
        return items_equal(&a->as.items, &b->as.items);
    case FORM_NONE:
        break;
    }
    return false;
}
