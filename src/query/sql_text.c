/* sql_text.c - quotes, comments and brackets. */
#define _GNU_SOURCE /* memmem */

#include "query/sql_text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

size_t sql_quoted_bytes(const char *p, bool is_after_word)
{
    size_t n = 0;
    if (p[0] == '\'' || p[0] == '"') {
        for (n = 1; p[n] != '\0'; n++) {
            if (p[n] == p[0] && p[n + 1] == p[0]) {
                n++;
            } else if (p[n] == p[0]) {
                return n + 1;
            }
        }
        return n;
    }
    if ((p[0] == 'e' || p[0] == 'E') && p[1] == '\'' && !is_after_word) {
        for (n = 2; p[n] != '\0' && p[n] != '\''; n++) {
            n += p[n] == '\\' && p[n + 1] != '\0' ? 1 : 0;
        }
        return p[n] == '\0' ? n : n + 1;
    }
    if (p[0] == '-' && p[1] == '-') {
        return strcspn(p, "\n");
    }
    if (p[0] == '/' && p[1] == '*') {
        const char *end = strstr(p + 2, "*/");
        return end == NULL ? strlen(p) : (size_t)(end + 2 - p);
    }
    if (p[0] == '$' && !is_after_word) {
        for (n = 1; isalpha((unsigned char)p[n]) || p[n] == '_'; n++) {
        }
        if (p[n] == '$') {
            n++;
            for (const char *end = p + n; (end = strchr(end, '$')) != NULL; end++) {
                if (strncmp(end, p, n) == 0) {
                    return (size_t)(end - p) + n;
                }
            }
            return strlen(p);
        }
    }
    return 0;
}

bool sql_is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

/* Whether a bracket opens at `p`, behind white space and comments. */
static bool has_bracket(const char *p)
{
    while (isspace((unsigned char)*p) || ((p[0] == '-' && p[1] == '-') || (p[0] == '/' && p[1] == '*'))) {
        p += isspace((unsigned char)*p) ? 1 : sql_quoted_bytes(p, false);
    }
    return *p == '(';
}

bool sql_has_call(const char *sql, const char *function)
{
    size_t n_function = strlen(function);
    bool is_after_word = false;
    for (const char *p = sql; *p != '\0';) {
        size_t quoted = sql_quoted_bytes(p, is_after_word);
        if (quoted == 0 && !is_after_word && strncasecmp(p, function, n_function) == 0 && !sql_is_word(p[n_function]) &&
            has_bracket(p + n_function)) {
            return true;
        }
        is_after_word = quoted == 0 && (sql_is_word(*p) || *p == '.');
        p += quoted > 0 ? quoted : 1;
    }
    return false;
}

bool sql_has(const char *sql, const char *characters)
{
    size_t n = strlen(characters);
    bool is_after_word = false;
    for (const char *p = sql; *p != '\0';) {
        size_t quoted = sql_quoted_bytes(p, is_after_word);
        if (quoted == 0 && strncmp(p, characters, n) == 0) {
            return true;
        }
        is_after_word = quoted == 0 && sql_is_word(*p);
        p += quoted > 0 ? quoted : 1;
    }
    return false;
}

bool sql_is_pattern(const char *file)
{
    return strstr(file, "://") == NULL && strpbrk(file, "*?[\\") != NULL;
}

/* As sql_item_bytes; `word`, if there is one, ends it too. */
static size_t bytes_before(const char *p, const char *word)
{
    size_t n_word = word != NULL ? strlen(word) : 0;
    size_t depth = 0;
    size_t n = 0;
    bool is_after_word = false;
    while (p[n] != '\0') {
        size_t quoted = sql_quoted_bytes(p + n, is_after_word);
        bool is_here =
            n_word > 0 && !is_after_word && strncasecmp(p + n, word, n_word) == 0 && !sql_is_word(p[n + n_word]);
        is_after_word = quoted == 0 && sql_is_word(p[n]);
        if (quoted == 0 && depth == 0 && (p[n] == ',' || p[n] == ')' || is_here)) {
            return n;
        }
        if (quoted == 0 && strchr("([{", p[n]) != NULL) {
            depth++;
        } else if (quoted == 0 && depth > 0 && strchr(")]}", p[n]) != NULL) {
            depth--;
        }
        n += quoted > 0 ? quoted : 1;
    }
    return n;
}

size_t sql_item_bytes(const char *p)
{
    return bytes_before(p, NULL);
}

/* What is behind a WITH and its tables; "" if that is no SELECT. */
static const char *behind_with(const char *sql)
{
    static const char with[] = "WITH ";
    if (strncasecmp(sql, with, sizeof with - 1) != 0) {
        return sql;
    }
    sql += sizeof with - 1;
    size_t n = bytes_before(sql, "SELECT");
    while (sql[n] == ',') {
        sql += n + 1;
        n = bytes_before(sql, "SELECT");
    }
    size_t n_table = n;
    while (n_table > 0 && isspace((unsigned char)sql[n_table - 1])) {
        n_table--;
    }
    return n_table > 0 && sql[n_table - 1] == ')' ? sql + n : ""; /* else there is more: FROM t UNION SELECT */
}

uint32_t sql_numbered_columns(const char *sql)
{
    static const char select[] = "SELECT ";
    const char *p = behind_with(sql);
    if (strncasecmp(p, select, sizeof select - 1) != 0 || sql_has_call(sql, "unnest")) {
        return 0; /* unnest(s) AS c0 can be a column with the name of a field of s */
    }
    p += sizeof select - 1;
    for (uint32_t i = 0; i < UINT32_MAX; i++) {
        char end[24];
        size_t n_end = (size_t)snprintf(end, sizeof(end), " AS c%" PRIu32, i);
        size_t n = bytes_before(p, "FROM");
        size_t n_item = n;
        while (n_item > 0 && isspace((unsigned char)p[n_item - 1])) {
            n_item--;
        }
        bool may_be_comment = memmem(p, n, "--", 2) != NULL || memmem(p, n, "/*", 2) != NULL;
        if (n_item <= n_end || strncmp(p + n_item - n_end, end, n_end) != 0 || p[n] == ')' || may_be_comment) {
            return 0;
        }
        if (p[n] != ',') {
            return i + 1;
        }
        p += n + 1;
    }
    return 0;
}
