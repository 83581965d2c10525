/* sql_text.c - quotes, comments and brackets. */
#include "query/sql_text.h"

#include <ctype.h>
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

size_t sql_item_bytes(const char *p)
{
    size_t depth = 0;
    size_t n = 0;
    bool is_after_word = false;
    while (p[n] != '\0') {
        size_t quoted = sql_quoted_bytes(p + n, is_after_word);
        is_after_word = quoted == 0 && sql_is_word(p[n]);
        if (quoted == 0 && depth == 0 && (p[n] == ',' || p[n] == ')')) {
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
