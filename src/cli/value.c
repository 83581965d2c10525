#include "cli/value.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/limits.h"

struct unit {
    const char *name;
    int64_t factor;
};

static const struct unit durations[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60000}, {"min", 60000}, {"h", 3600000}, {"d", 86400000},
};

static const struct unit sizes[] = {
    {"", 1},
    {"B", 1},
    {"KB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", 1000000000000},
    {"KiB", INT64_C(1) << 10},
    {"MiB", INT64_C(1) << 20},
    {"GiB", INT64_C(1) << 30},
    {"TiB", INT64_C(1) << 40},
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads digits up to the first other character. False if there are none or they do not fit. */
static bool read_digits(const char **text, int64_t *out)
{
    const char *p = *text;
    int64_t value = 0;
    if (!is_digit(*p)) {
        return false;
    }
    for (; is_digit(*p); p++) {
        if (__builtin_mul_overflow(value, (int64_t)10, &value) || __builtin_add_overflow(value, *p - '0', &value)) {
            return false;
        }
    }
    *text = p;
    *out = value;
    return true;
}

enum err value_number(const char *text, struct value_range range, int64_t *out, struct error *e)
{
    const char *p = text;
    bool negative = *p == '-';
    int64_t value = 0;
    p += negative;
    if (!read_digits(&p, &value) || *p != '\0') {
        return error_set(e, ERR_INVALID, "'%s' is not a whole number", text);
    }
    value = negative ? -value : value;
    if (value < range.min || value > range.max) {
        return error_set(e, ERR_INVALID, "%s is out of range: from %lld to %lld", text, (long long)range.min,
                         (long long)range.max);
    }
    *out = value;
    return ERR_OK;
}

/* Digits, at most nine more after a point, then one of the units. */
static bool read_with_unit(const char *text, const struct unit *units, size_t n, int64_t *out)
{
    const char *p = text;
    int64_t whole = 0;
    int64_t fraction = 0;
    int64_t scale = 1;
    if (!read_digits(&p, &whole)) {
        return false;
    }
    if (*p == '.') {
        p++;
        const char *start = p;
        if (!read_digits(&p, &fraction) || p - start > 9) {
            return false;
        }
        for (; start < p; start++) {
            scale *= 10;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (strcmp(p, units[i].name) == 0) {
            int64_t value = 0;
            if (__builtin_mul_overflow(whole, units[i].factor, &value)) {
                return false;
            }
            /* The fraction is below 1, so its product is below the factor, which is small enough for a double. */
            int64_t more = (int64_t)((double)fraction / (double)scale * (double)units[i].factor);
            return !__builtin_add_overflow(value, more, out);
        }
    }
    return false;
}

enum err value_duration_ms(const char *text, int64_t *out_ms, struct error *e)
{
    if (strcmp(text, "0") == 0) {
        *out_ms = 0;
        return ERR_OK;
    }
    int64_t ms = 0;
    if (!read_with_unit(text, durations, ARRAY_LEN(durations), &ms)) {
        return error_set(e, ERR_INVALID, "'%s' is not a duration such as 250ms, 60s, 5m, 2h or 7d", text);
    }
    *out_ms = ms;
    return ERR_OK;
}

enum err value_bytes(const char *text, int64_t *out_bytes, struct error *e)
{
    int64_t bytes = 0;
    if (!read_with_unit(text, sizes, ARRAY_LEN(sizes), &bytes)) {
        return error_set(e, ERR_INVALID, "'%s' is not a size such as 4096, 64KB, 512MiB or 2GB", text);
    }
    *out_bytes = bytes;
    return ERR_OK;
}

enum err value_bool(const char *text, bool *out, struct error *e)
{
    static const char *const words[][2] = {{"false", "true"}, {"no", "yes"}, {"off", "on"}, {"0", "1"}};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        for (int value = 0; value < 2; value++) {
            if (strcasecmp(text, words[i][value]) == 0) {
                *out = value == 1;
                return ERR_OK;
            }
        }
    }
    return error_set(e, ERR_INVALID, "'%s' is neither true nor false", text);
}

enum err value_pair(const char *text, size_t *out_name_n, struct error *e)
{
    size_t n = strcspn(text, "=");
    if (n == 0 || text[n] == '\0') {
        return error_set(e, ERR_INVALID, "'%s' is not of the form name=value", text);
    }
    *out_name_n = n;
    return ERR_OK;
}

/* Where the port begins, after the last colon, and how long the host before it is; NULL if there is no such form. */
static const char *split_address(const char *text, size_t *out_host_n)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || colon == text) {
        return NULL;
    }
    size_t n = (size_t)(colon - text);
    if (text[0] == '[') {
        if (n < 3 || text[n - 1] != ']' || strcspn(text, "]") != n - 1) {
            return NULL;
        }
    } else if (strcspn(text, ":[]") != n) {
        return NULL; /* an IPv6 address without brackets says not where its port begins */
    }
    *out_host_n = n;
    return colon + 1;
}

static bool is_plain(const char *text, size_t n_max)
{
    static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strspn(text, good);
    return n > 0 && text[n] == '\0' && n <= n_max;
}

enum err value_id(const char *text, struct error *e)
{
    if (!is_plain(text, LIMIT_WORKER_ID_BYTES)) {
        return error_set(e, ERR_INVALID, "a name has 1 to %d letters, digits, '.', '_' or '-'", LIMIT_WORKER_ID_BYTES);
    }
    return ERR_OK;
}

enum err value_job_id(const char *text, struct error *e)
{
    if (!is_plain(text, LIMIT_ID_BYTES)) {
        return error_set(e, ERR_INVALID, "it has 1 to %d letters, digits, '.', '_' or '-'", LIMIT_ID_BYTES);
    }
    return ERR_OK;
}

enum err value_address(const char *text, struct error *e)
{
    size_t host_n = 0;
    int64_t port = 0;
    bool good = strlen(text) < VALUE_ADDRESS_BYTES;
    for (const char *p = text; *p != '\0'; p++) {
        good = good && (unsigned char)*p > ' ' && (unsigned char)*p < 0x7f && strchr("/,@?#\"'\\", *p) == NULL;
    }
    const char *port_text = good ? split_address(text, &host_n) : NULL;
    if (port_text == NULL || value_number(port_text, (struct value_range){0, 65535}, &port, NULL) != ERR_OK) {
        return error_set(e, ERR_INVALID, "'%.100s' is not an address of the form HOST:PORT", text);
    }
    return ERR_OK;
}

enum err value_choice(const char *text, const char *choices, struct error *e)
{
    size_t n = strlen(text);
    for (const char *p = choices;; p++) {
        size_t part = strcspn(p, "|");
        if (part == n && n > 0 && memcmp(p, text, n) == 0) {
            return ERR_OK;
        }
        p += part;
        if (*p == '\0') {
            return error_set(e, ERR_INVALID, "'%s' is none of %s", text, choices);
        }
    }
}

bool value_list_at(const char *list, uint32_t i, char *out, size_t size)
{
    const char *p = list;
    for (;; i--) {
        size_t n = strcspn(p, ",");
        if (i == 0) {
            if (n >= size) {
                return false;
            }
            memcpy(out, p, n);
            out[n] = '\0';
            return true;
        }
        if (p[n] == '\0') {
            return false;
        }
        p += n + 1;
    }
}

bool address_is_loopback(const char *address)
{
    size_t n = 0;
    if (split_address(address, &n) == NULL) {
        return false;
    }
    if ((n == 9 && strncasecmp(address, "localhost", n) == 0) || (n == 5 && memcmp(address, "[::1]", n) == 0)) {
        return true;
    }
    /* Four numbers; a name that only begins like one, such as 127.example.org, is somewhere else. */
    return n >= 9 && strncmp(address, "127.", 4) == 0 && strspn(address, "0123456789.") == n;
}

bool address_is_wildcard(const char *address)
{
    size_t n = 0;
    if (split_address(address, &n) == NULL) {
        return false;
    }
    /* Zeros in all their spellings: 0.0.0.0, 0, [::], [0:0::0], [::0.0.0.0]. */
    bool is_bracketed = address[0] == '[';
    return strspn(address, is_bracketed ? "[0:.]" : "0.") >= n;
}

enum err address_check_advertise(const struct advertise_rule *rule, struct error *e)
{
    const char *port = rule->advertise == NULL ? NULL : strrchr(rule->advertise, ':');
    if (rule->advertise == NULL && !address_is_wildcard(rule->listen)) {
        return ERR_OK;
    }
    if (rule->advertise == NULL) {
        error_set(e, ERR_INVALID, "%s is no address that others can connect to: --advertise must say which is",
                  rule->listen);
    } else if (address_is_wildcard(rule->advertise)) {
        error_set(e, ERR_INVALID, "--advertise: %s is no address that others can connect to", rule->advertise);
    } else if (port != NULL && strcmp(port, ":0") == 0 && !rule->may_lack_port) {
        error_set(e, ERR_INVALID, "--advertise: %s has no port that others can connect to", rule->advertise);
    } else {
        return ERR_OK;
    }
    error_hint(e, "--advertise HOST:PORT, with the name or address by which other machines reach this one");
    return ERR_INVALID;
}

enum err address_check_listen(const struct listen_rule *rule, struct error *e)
{
    if (rule->is_insecure || address_is_loopback(rule->address)) {
        return ERR_OK;
    }
    if (!rule->has_tls) {
        error_set(e, ERR_INVALID, "refusing to listen on %s without encryption: other machines could connect",
                  rule->address);
        error_hint(e, "listen on 127.0.0.1, %sor insist with --insecure",
                   rule->can_tls ? "or give --tls-cert and --tls-key, " : "");
        return ERR_INVALID;
    }
    if (rule->needs_tokens && !rule->has_tokens) {
        error_set(e, ERR_INVALID, "refusing to listen on %s without tokens: whoever reaches it could run commands",
                  rule->address);
        error_hint(e, "name a file that says who may do what: --auth-tokens FILE, or insist with --insecure");
        return ERR_INVALID;
    }
    return ERR_OK;
}
