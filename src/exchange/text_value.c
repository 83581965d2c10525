/*
 * text_value.c - single values as DuckDB prints them.
 *
 * Values are copied out of their buffers, which need not be aligned.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exchange/text_internal.h"

#define MICROS_PER_SECOND INT64_C(1000000)
#define NANOS_PER_SECOND INT64_C(1000000000)
#define SECONDS_PER_DAY 86400

/* ---- numbers ---- */

uint64_t text__number(const struct text_type *type, const uint8_t *bytes)
{
    uint64_t value = 0;
    uint32_t bits = 8 * type->width;
    memcpy(&value, bytes, type->width);
    if (type->is_signed && bits < 64 && (value >> (bits - 1) & 1) != 0) {
        value |= UINT64_MAX << bits;
    }
    return value;
}

static int32_t get_int32(const uint8_t *bytes)
{
    int32_t value = 0;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static int64_t get_int64(const uint8_t *bytes)
{
    int64_t value = 0;
    memcpy(&value, bytes, sizeof value);
    return value;
}

void text__bool(struct buf *out, const struct text_type *type, const uint8_t *bytes, size_t n)
{
    UNUSED(type);
    UNUSED(n);
    buf_text(out, bytes[0] != 0 ? "true" : "false");
}

#define LIMBS_MAX 64 /* of 32 bits: what is put on the stack; a longer BIGNUM is shown in hexadecimal */
#define DIGITS_MAX (LIMBS_MAX * 10 + 2)

/* The decimal digits of a number of any length, which is used up. Returns where they begin in `digits`. */
static const char *limbs_to_digits(uint32_t *limbs, size_t n, char digits[DIGITS_MAX])
{
    char *p = digits + DIGITS_MAX - 1;
    *p = '\0';
    while (n > 0 && limbs[n - 1] == 0) {
        n--;
    }
    while (n > 0) {
        uint64_t rest = 0;
        for (size_t i = n; i-- > 0;) {
            uint64_t value = rest << 32 | limbs[i];
            limbs[i] = (uint32_t)(value / 1000000000);
            rest = value % 1000000000;
        }
        n -= limbs[n - 1] == 0 ? 1 : 0;
        for (int i = 0; i < 9 && (n > 0 || rest > 0); i++) {
            *--p = (char)('0' + rest % 10);
            rest /= 10;
        }
    }
    if (*p == '\0') {
        *--p = '0';
    }
    return p;
}

/* The digits of a number of 4 to 32 bytes without its sign. */
static const char *whole_digits(const uint8_t *bytes, size_t n, bool is_signed, bool *out_negative,
                                char digits[DIGITS_MAX])
{
    uint32_t limbs[8] = {0};
    bool is_negative = is_signed && (bytes[n - 1] & 0x80) != 0;
    memcpy(limbs, bytes, n);
    uint64_t carry = 1;
    for (size_t i = 0; i < n / 4 && is_negative; i++) {
        carry += (uint32_t)~limbs[i];
        limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    *out_negative = is_negative;
    return limbs_to_digits(limbs, n / 4, digits);
}

void text__whole(struct buf *out, const struct text_type *type, const uint8_t *bytes, size_t n)
{
    if (type->width <= 8) {
        uint64_t value = text__number(type, bytes);
        char text[24];
        int length = type->is_signed ? snprintf(text, sizeof text, "%" PRId64, (int64_t)value)
                                     : snprintf(text, sizeof text, "%" PRIu64, value);
        buf_append(out, text, (size_t)length);
        return;
    }
    char digits[DIGITS_MAX];
    bool is_negative = false;
    const char *text = whole_digits(bytes, n, type->is_signed, &is_negative, digits);
    buf_text(out, is_negative ? "-" : "");
    buf_text(out, text);
}

/* The zero before the point is left out where no digit can be there, as in DECIMAL(4,4). */
void text__decimal(struct buf *out, const struct text_type *type, const uint8_t *bytes, size_t n)
{
    char digits[DIGITS_MAX];
    bool is_negative = false;
    const char *text = whole_digits(bytes, n, true, &is_negative, digits);
    size_t n_digits = strlen(text);
    buf_text(out, is_negative ? "-" : "");
    if (type->scale <= 0) {
        buf_text(out, text);
        for (int32_t i = type->scale; i < 0 && text[0] != '0'; i++) {
            buf_char(out, '0');
        }
        return;
    }
    size_t scale = (size_t)type->scale;
    size_t n_whole = n_digits > scale ? n_digits - scale : 0;
    if (n_whole == 0 && type->precision > type->scale) {
        buf_char(out, '0');
    }
    buf_append(out, text, n_whole);
    buf_char(out, '.');
    for (size_t i = n_digits; i < scale; i++) {
        buf_char(out, '0');
    }
    buf_text(out, text + n_whole);
}

/*
 * DuckDB's own form: three bytes with the sign (the highest bit is set if it is not negative) and the length, then the
 * number, highest byte first; all bits are turned over in a negative one.
 */
void text__bignum(struct buf *out, const struct text_type *type, const uint8_t *bytes, size_t n)
{
    UNUSED(type);
    if (n < 4) {
        return;
    }
    bool is_negative = (bytes[0] & 0x80) == 0;
    size_t n_number = n - 3;
    buf_text(out, is_negative ? "-" : "");
    if (n_number > LIMBS_MAX * sizeof(uint32_t)) {
        buf_text(out, "0x");
        for (size_t i = 3; i < n; i++) {
            buf_format(out, "%02x", is_negative ? (uint8_t)~bytes[i] : bytes[i]);
        }
        return;
    }
    uint32_t limbs[LIMBS_MAX] = {0};
    char digits[DIGITS_MAX];
    for (size_t i = 0; i < n_number; i++) {
        uint8_t byte = bytes[n - 1 - i];
        limbs[i / 4] |= (uint32_t)(is_negative ? (uint8_t)~byte : byte) << (i % 4 * 8);
    }
    buf_text(out, limbs_to_digits(limbs, LIMBS_MAX, digits));
}

static double half_to_double(uint16_t half)
{
    int exponent = half >> 10 & 0x1f;
    double fraction = half & 0x3ff;
    double value = exponent == 0x1f ? (fraction == 0 ? (double)INFINITY : (double)NAN)
                   : exponent == 0  ? ldexp(fraction, -24)
                                    : ldexp(fraction + 1024, exponent - 25);
    return (half & 0x8000) != 0 ? -value : value;
}

/* "d.ddde±xx" with the fewest digits that read back as the same number; its width says how exact it has to be. */
static void shortest(char out[40], double value, uint32_t width)
{
    /* All numbers of so few digits survive, so that no shorter form exists; but for the smallest, which have less. */
    bool is_subnormal = fabs(value) < (width == 8 ? 2.3e-308 : 1.2e-38);
    int first = is_subnormal ? 1 : width == 8 ? 15 : 6;
    int last = width == 8 ? 17 : 9;
    for (int digits = first; digits <= last; digits++) {
        snprintf(out, 40, "%.*e", digits - 1, value);
        double back = width == 8 ? strtod(out, NULL) : (double)strtof(out, NULL);
        if (back == value) {
            break;
        }
    }
}

/* Numbers from 1e-4 to 1e16 are written without an exponent, and always with a point. */
static void put_float(struct buf *out, char text[40])
{
    char *mark = strchr(text, 'e');
    int exponent = (int)strtol(mark + 1, NULL, 10);
    char digits[40] = "0";
    int n = 0;
    for (const char *p = text; p < mark; p++) {
        if (*p >= '0' && *p <= '9') {
            digits[n++] = *p;
        }
    }
    while (n > 1 && digits[n - 1] == '0') {
        n--;
    }
    buf_text(out, text[0] == '-' ? "-" : "");
    if (exponent < -4 || exponent >= 16) {
        buf_char(out, digits[0]);
        buf_text(out, n > 1 ? "." : "");
        buf_append(out, digits + 1, (size_t)n - 1);
        buf_format(out, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    if (exponent < 0) {
        buf_append(out, "0.0000", (size_t)(1 - exponent));
        buf_append(out, digits, (size_t)n);
        return;
    }
    for (int i = 0; i <= exponent; i++) {
        buf_char(out, i < n ? digits[i] : '0');
    }
    buf_char(out, '.');
    if (n > exponent + 1) {
        buf_append(out, digits + exponent + 1, (size_t)(n - exponent - 1));
    } else {
        buf_char(out, '0');
    }
}

void text__float(struct buf *out, const struct text_type *type, const uint8_t *bytes, size_t n)
{
    double value = 0;
    char text[40];
    if (n == 8) {
        memcpy(&value, bytes, sizeof value);
    } else if (n == 4) {
        float single = 0;
        memcpy(&single, bytes, sizeof single);
        value = (double)single;
    } else {
        uint16_t half = 0;
        memcpy(&half, bytes, sizeof half);
        value = half_to_double(half);
    }
    if (isnan(value) || isinf(value)) {
        buf_text(out, signbit(value) != 0 ? "-" : "");
        buf_text(out, isnan(value) ? "nan" : "inf");
        return;
    }
    shortest(text, value, type->width == 8 ? 8 : 4);
    put_float(out, text);
}

/* ---- bytes ---- */

void text__varchar(struct buf *out, const struct text_type *type, const uint8_t *bytes, size_t n)
{
    UNUSED(type);
    buf_append(out, bytes, n);
}

static void put_hex(struct buf *out, uint8_t byte, const char *alphabet)
{
    buf_char(out, alphabet[byte >> 4]);
    buf_char(out, alphabet[byte & 15]);
}

void text__blob(struct buf *out, const struct text_type *type, const uint8_t *bytes, size_t n)
{
    UNUSED(type);
    for (size_t i = 0; i < n; i++) {
        bool is_plain = bytes[i] >= 32 && bytes[i] <= 126 && bytes[i] != '\\' && bytes[i] != '\'' && bytes[i] != '"';
        if (is_plain) {
            buf_char(out, (char)bytes[i]);
        } else {
            buf_text(out, "\\x");
            put_hex(out, bytes[i], "0123456789ABCDEF");
        }
    }
}

/* The first byte says how many bits of the second one are not used. */
void text__bit(struct buf *out, const struct text_type *type, const uint8_t *bytes, size_t n)
{
    UNUSED(type);
    for (size_t i = 8 + (n > 0 ? bytes[0] : 0); i < 8 * n; i++) {
        buf_char(out, (bytes[i / 8] >> (7 - i % 8) & 1) != 0 ? '1' : '0');
    }
}

void text__uuid(struct buf *out, const struct text_type *type, const uint8_t *bytes, size_t n)
{
    UNUSED(type);
    for (size_t i = 0; i < n; i++) {
        put_hex(out, bytes[i], "0123456789abcdef");
        buf_text(out, i == 3 || i == 5 || i == 7 || i == 9 ? "-" : "");
    }
}

/* ---- times ---- */

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0 ? 1 : 0);
}

/* Days since 1970 as a date of the Gregorian calendar, extended to all times. The year before 1 is 1 (BC). */
static void put_date(struct buf *out, int64_t days)
{
    /* Years begin in March here, so that the leap day is a year's last; an era is 400 of them. */
    int64_t from_zero = days + 719468;
    int64_t era = floor_div(from_zero, 146097);
    int64_t day_of_era = from_zero - era * 146097;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month = (5 * day_of_year + 2) / 153;
    int64_t day = day_of_year - (153 * month + 2) / 5 + 1;
    int64_t year = year_of_era + era * 400 + (month >= 10 ? 1 : 0);
    month += month < 10 ? 3 : -9;
    buf_format(out, "%04" PRId64 "-%02" PRId64 "-%02" PRId64 "%s", year > 0 ? year : 1 - year, month, day,
               year > 0 ? "" : " (BC)");
}

/* "01:02:03.5" of a number that is not negative. */
static void put_clock(struct buf *out, int64_t seconds, int64_t nanos)
{
    buf_format(out, "%02" PRId64 ":%02" PRId64 ":%02" PRId64, seconds / 3600, seconds / 60 % 60, seconds % 60);
    if (nanos == 0) {
        return;
    }
    char digits[16];
    int n = snprintf(digits, sizeof digits, "%09" PRId64, nanos);
    while (n > 0 && digits[n - 1] == '0') {
        n--;
    }
    buf_char(out, '.');
    buf_append(out, digits, (size_t)n);
}

static int64_t units_per_second(char unit)
{
    return unit == 's' ? 1 : unit == 'm' ? 1000 : unit == 'u' ? MICROS_PER_SECOND : NANOS_PER_SECOND;
}

static bool put_infinity(struct buf *out, int64_t value, int64_t infinity)
{
    if (value != infinity && value != -infinity) {
        return false;
    }
    buf_text(out, value < 0 ? "-infinity" : "infinity");
    return true;
}

void text__date(struct buf *out, const struct text_type *type, const uint8_t *bytes, size_t n)
{
    UNUSED(type);
    if (n == 8) {
        put_date(out, floor_div(get_int64(bytes), INT64_C(1000) * SECONDS_PER_DAY));
    } else if (!put_infinity(out, get_int32(bytes), INT32_MAX)) {
        put_date(out, get_int32(bytes));
    }
}

void text__time(struct buf *out, const struct text_type *type, const uint8_t *bytes, size_t n)
{
    int64_t per_second = units_per_second(type->unit);
    int64_t value = n == 4 ? get_int32(bytes) : get_int64(bytes);
    put_clock(out, value / per_second, value % per_second * (NANOS_PER_SECOND / per_second));
}

/* DuckDB's own form: 40 bits of microseconds, then 24 of how far the offset is below the largest one, 15:59:59. */
void text__time_tz(struct buf *out, const struct text_type *type, const uint8_t *bytes, size_t n)
{
    UNUSED(type);
    UNUSED(n);
    uint64_t value = (uint64_t)get_int64(bytes);
    int64_t micros = (int64_t)(value >> 24);
    int64_t offset = INT64_C(57599) - (int64_t)(value & 0xffffff);
    int64_t size = offset < 0 ? -offset : offset;
    put_clock(out, micros / MICROS_PER_SECOND, micros % MICROS_PER_SECOND * 1000);
    buf_format(out, "%c%02" PRId64, offset < 0 ? '-' : '+', size / 3600);
    if (size % 3600 != 0) {
        buf_format(out, ":%02" PRId64, size / 60 % 60);
    }
    if (size % 60 != 0) {
        buf_format(out, ":%02" PRId64, size % 60);
    }
}

void text__timestamp(struct buf *out, const struct text_type *type, const uint8_t *bytes, size_t n)
{
    UNUSED(n);
    int64_t value = get_int64(bytes);
    int64_t per_second = units_per_second(type->unit);
    if (put_infinity(out, value, INT64_MAX)) {
        return;
    }
    int64_t seconds = floor_div(value, per_second);
    int64_t nanos = (value - seconds * per_second) * (NANOS_PER_SECOND / per_second);
    int64_t days = floor_div(seconds, SECONDS_PER_DAY);
    put_date(out, days);
    buf_char(out, ' ');
    put_clock(out, seconds - days * SECONDS_PER_DAY, nanos);
    buf_text(out, type->has_zone ? "+00" : "");
}

static void put_part(struct buf *out, bool *is_first, int64_t number, const char *unit)
{
    if (number != 0) {
        buf_format(out, "%s%" PRId64 " %s%s", *is_first ? "" : " ", number, unit,
                   number == 1 || number == -1 ? "" : "s");
        *is_first = false;
    }
}

static void put_interval(struct buf *out, int64_t months, int64_t days, int64_t seconds, int64_t nanos)
{
    bool is_first = true;
    put_part(out, &is_first, months / 12, "year");
    put_part(out, &is_first, months % 12, "month");
    put_part(out, &is_first, days, "day");
    if (seconds != 0 || nanos != 0) {
        buf_text(out, is_first ? "" : " ");
        buf_text(out, seconds < 0 || nanos < 0 ? "-" : "");
        /* The lowest number of all has no opposite; it stays what it is. */
        put_clock(out, seconds < 0 ? (int64_t)(0 - (uint64_t)seconds) : seconds, nanos < 0 ? -nanos : nanos);
    } else if (is_first) {
        buf_text(out, "00:00:00");
    }
}

void text__interval(struct buf *out, const struct text_type *type, const uint8_t *bytes, size_t n)
{
    if (n == 16) {
        int64_t nanos = get_int64(bytes + 8);
        put_interval(out, get_int32(bytes), get_int32(bytes + 4), nanos / NANOS_PER_SECOND, nanos % NANOS_PER_SECOND);
    } else if (type->unit == 'M') {
        put_interval(out, get_int32(bytes), 0, 0, 0);
    } else if (type->unit == 'D') {
        int32_t millis = get_int32(bytes + 4);
        put_interval(out, 0, get_int32(bytes), millis / 1000, millis % 1000 * INT64_C(1000000));
    } else {
        int64_t per_second = units_per_second(type->unit);
        int64_t value = get_int64(bytes);
        put_interval(out, 0, 0, value / per_second, value % per_second * (NANOS_PER_SECOND / per_second));
    }
}
