#include "base/num.h"

#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

/* What a well-formed number says, as far as the fast way needs it. */
struct shape {
    bool is_negative;
    bool is_exact;   /* `digits` holds all significant digits, and `exponent` is the true one */
    uint64_t digits; /* the number is digits * 10^exponent */
    int exponent;
};

#define DIGITS_MAX (UINT64_C(1) << 53) /* the largest integer below which all are exact doubles */
#define EXPONENT_CAP 100000            /* beyond it, only the slow way is right */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void add_digit(struct shape *shape, char c)
{
    if (shape->digits > DIGITS_MAX / 10 - 1) {
        shape->is_exact = false;
        return;
    }
    shape->digits = shape->digits * 10 + (uint64_t)(c - '0');
}

static const char *scan_fraction(const char *p, struct shape *shape)
{
    if (!is_digit(*p)) {
        return NULL;
    }
    for (; is_digit(*p); p++) {
        add_digit(shape, *p);
        if (shape->exponent > -EXPONENT_CAP) {
            shape->exponent--;
        } else {
            shape->is_exact = false;
        }
    }
    return p;
}

static const char *scan_exponent(const char *p, struct shape *shape)
{
    bool is_negative = *p == '-';
    if (*p == '-' || *p == '+') {
        p++;
    }
    if (!is_digit(*p)) {
        return NULL;
    }
    int exponent = 0;
    for (; is_digit(*p); p++) {
        if (exponent < EXPONENT_CAP) {
            exponent = exponent * 10 + (*p - '0');
        } else {
            shape->is_exact = false;
        }
    }
    shape->exponent += is_negative ? -exponent : exponent;
    return p;
}

/* Checks the grammar from the first to the last character. */
static bool scan(const char *p, struct shape *shape)
{
    if (*p == '-') {
        shape->is_negative = true;
        p++;
    }
    if (!is_digit(*p) || (*p == '0' && is_digit(p[1]))) {
        return false;
    }
    for (; is_digit(*p); p++) {
        add_digit(shape, *p);
    }
    if (*p == '.') {
        p = scan_fraction(p + 1, shape);
        if (p == NULL) {
            return false;
        }
    }
    if (*p == 'e' || *p == 'E') {
        p = scan_exponent(p + 1, shape);
        if (p == NULL) {
            return false;
        }
    }
    return *p == '\0';
}

/* The C library's exact conversion, with a decimal point that is a point. */
static double convert(const char *text)
{
    locale_t neutral = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    ASSERT(neutral != (locale_t)0);
    locale_t before = uselocale(neutral);
    double value = strtod(text, NULL);
    uselocale(before);
    freelocale(neutral);
    return value;
}

bool num_parse(const char *text, double *out)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    struct shape shape = {.is_exact = true};
    if (text == NULL || !scan(text, &shape)) {
        return false;
    }
    /* Digits and power are exact doubles here, so their product or quotient is rounded once, and correctly. */
    if (shape.is_exact && shape.exponent >= -22 && shape.exponent <= 22) {
        double value = (double)shape.digits;
        value = shape.exponent < 0 ? value / powers[-shape.exponent] : value * powers[shape.exponent];
        *out = shape.is_negative ? -value : value;
        return true;
    }
    double value = convert(text);
    if (isinf(value)) {
        return false;
    }
    *out = value;
    return true;
}

bool num_parse_int(const char *text, int64_t *out)
{
    bool is_negative = text != NULL && *text == '-';
    const char *p = text == NULL ? "" : text + is_negative;
    int64_t value = 0;
    if (*p == '\0') {
        return false;
    }
    for (; *p != '\0'; p++) {
        if (*p < '0' || *p > '9' || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, *p - '0', &value)) { /* counts down: there is one more below zero */
            return false;
        }
    }
    if (!is_negative && value == INT64_MIN) {
        return false;
    }
    *out = is_negative ? value : -value;
    return true;
}
