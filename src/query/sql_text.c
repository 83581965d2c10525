/* sql_text.c - quotes, comments and brackets. */
#define _GNU_SOURCE /* memmem */

#include "query/sql_text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"

/* A comment, in which there may be others. 0: it has no end. */
static size_t comment_bytes(const char *p)
{
    size_t depth = 0;
    for (size_t n = 0; p[n] != '\0';) {
        bool is_begin = p[n] == '/' && p[n + 1] == '*';
        bool is_end = p[n] == '*' && p[n + 1] == '/';
        depth += is_begin ? 1 : 0;
        depth -= is_end ? 1 : 0;
        n += is_begin || is_end ? 2 : 1;
        if (depth == 0) {
            return n;
        }
    }
    return 0;
}

/* The length of the tag in $tag$ … $tag$ with its signs, which may be empty, and begins with no digit; 0: this is no tag. */
static size_t tag_bytes(const char *p)
{
    size_t n = 1;
    while (sql_is_word(p[n]) && (n > 1 || !isdigit((unsigned char)p[n]))) {
        n++;
    }
    return p[n] == '$' ? n + 1 : 0;
}

/* What such a tag begins. 0: it has no end. */
static size_t dollar_bytes(const char *p, size_t n_tag)
{
    for (const char *end = p + n_tag; (end = strchr(end, '$')) != NULL; end++) {
        if (strncmp(end, p, n_tag) == 0) {
            return (size_t)(end - p) + n_tag;
        }
    }
    return 0;
}

/* From the quote at `from` on; a quote that is doubled is inside, and so is one behind a backslash, if that counts. 0: no end. */
static size_t text_bytes(const char *p, size_t from, bool has_escapes)
{
    for (size_t n = from + 1; p[n] != '\0'; n++) {
        bool is_pair = (p[n] == p[from] && p[n + 1] == p[from]) || (has_escapes && p[n] == '\\' && p[n + 1] != '\0');
        if (is_pair) {
            n++;
        } else if (p[n] == p[from]) {
            return n + 1;
        }
    }
    return 0;
}

/* As sql_quoted_bytes, and whether what begins there has no end. */
static size_t quoted_bytes(const char *p, bool is_after_word, bool *out_is_open)
{
    size_t n = 0;
    size_t n_tag = p[0] == '$' && !is_after_word ? tag_bytes(p) : 0;
    *out_is_open = false;
    if (p[0] == '\'' || p[0] == '"') {
        n = text_bytes(p, 0, false);
    } else if ((p[0] == 'e' || p[0] == 'E') && p[1] == '\'' && !is_after_word) {
        n = text_bytes(p, 1, true);
    } else if (p[0] == '-' && p[1] == '-') {
        return strcspn(p, "\r\n");
    } else if (p[0] == '/' && p[1] == '*') {
        n = comment_bytes(p);
    } else if (n_tag > 0) {
        n = dollar_bytes(p, n_tag);
    } else {
        return 0;
    }
    *out_is_open = n == 0;
    return n > 0 ? n : strlen(p);
}

size_t sql_quoted_bytes(const char *p, bool is_after_word)
{
    bool is_open = false;
    return quoted_bytes(p, is_after_word, &is_open);
}

size_t sql_trimmed_bytes(const char *sql)
{
    size_t end = 0;
    bool is_after_word = false;
    for (size_t i = 0; sql[i] != '\0';) {
        size_t n = sql_quoted_bytes(sql + i, is_after_word);
        bool is_comment = n > 0 && (sql[i] == '-' || sql[i] == '/');
        bool is_nothing = is_comment || sql[i] == ';' || isspace((unsigned char)sql[i]);
        is_after_word = n == 0 && sql_is_in_word(is_after_word, sql[i]);
        i += n > 0 ? n : 1;
        end = is_nothing ? end : i;
    }
    return end;
}

bool sql_is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

bool sql_is_in_word(bool is_after_word, char c)
{
    return sql_is_word(c) || (c == '$' && is_after_word);
}

/* The length of a number, or of $ and a number, and of the letters right behind it; 0 if there is none. */
static size_t number_bytes(const char *p)
{
    size_t n = p[0] == '$' ? 1 : 0;
    if (!isdigit((unsigned char)p[n]) && !(p[0] == '.' && isdigit((unsigned char)p[1]))) {
        return 0;
    }
    while (sql_is_word(p[n]) || p[n] == '.') {
        n++;
    }
    return n;
}

/* Whether one of the blanks of Unicode is here. DuckDB takes these for blanks outside of quotes, all others for letters. */
static bool is_foreign_blank(const char *p)
{
    static const char *const blanks[] = {
        "\xc2\xa0",     /* U+00A0 */
        "\xe1\x9a\x80", /* U+1680, which it leaves */
        "\xe2\x80\xaf", /* U+202F */
        "\xe2\x81\x9f", /* U+205F */
        "\xe2\x81\xa0", /* U+2060 */
        "\xe3\x80\x80", /* U+3000 */
        "\xef\xbb\xbf", /* U+FEFF */
    };
    bool is_one = strncmp(p, "\xe2\x80", 2) == 0 && ((unsigned char)p[2] & 0xf0) == 0x80; /* U+2000 to U+200F */
    for (size_t i = 0; i < ARRAY_LEN(blanks) && !is_one; i++) {
        is_one = strncmp(p, blanks[i], strlen(blanks[i])) == 0;
    }
    return is_one;
}

/* The same in the first `n` bytes. */
static bool has_foreign_blank(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && !is_foreign_blank(p + i)) {
        i++;
    }
    return i < n;
}

/* Whether what follows is a quote on another line: behind E'…' that is more of the same text, with the same escapes. */
static bool goes_on(const char *p)
{
    bool is_next_line = false;
    for (;;) {
        bool is_comment = (p[0] == '-' && p[1] == '-') || (p[0] == '/' && p[1] == '*');
        if (!is_comment && !isspace((unsigned char)*p)) {
            return is_next_line && *p == '\'';
        }
        is_next_line = is_next_line || *p == '\n' || *p == '\r';
        p += is_comment ? sql_quoted_bytes(p, false) : 1;
    }
}

/* What DuckDB may part in another way than we do, in words; `n` bytes are a quote, a comment, or else. NULL: nothing. */
static const char *difference(const char *p, size_t n, bool is_quoted)
{
    bool has_escapes = is_quoted && (*p == 'e' || *p == 'E');
    if (has_escapes && goes_on(p + n)) {
        return "a quote that goes on in the next line";
    }
    size_t n_outside = !is_quoted ? n : *p == '$' ? tag_bytes(p) : 0;
    return has_foreign_blank(p, n_outside) ? "a blank of Unicode outside of quotes" : NULL;
}

const char *sql_oddity(const char *sql)
{
    size_t depth = 0;
    bool is_after_word = false;
    for (const char *p = sql; *p != '\0';) {
        size_t n_number = is_after_word ? 0 : number_bytes(p);
        if (n_number > 0 && (p[n_number] == '\'' || p[n_number] == '$')) {
            return "a quote right behind a number"; /* 1e'…' and 1$$…$$ are for DuckDB what they are for nobody else */
        }
        bool is_open = false;
        size_t quoted = n_number > 0 ? 0 : quoted_bytes(p, is_after_word, &is_open);
        if (is_open) {
            return "a quote or a comment that does not end";
        }
        size_t n = n_number > 0 ? n_number : quoted > 0 ? quoted : 1;
        const char *why = difference(p, n, quoted > 0);
        if (why != NULL) {
            return why;
        }
        if (quoted == 0 && strchr("([{", *p) != NULL) {
            depth++;
        } else if (quoted == 0 && strchr(")]}", *p) != NULL) {
            if (depth == 0) {
                return "a bracket that closes, but was not opened";
            }
            depth--;
        } else if (quoted == 0 && *p == ';' && depth > 0) {
            return "a statement that ends inside of brackets";
        }
        is_after_word = n_number > 0 || (quoted == 0 && sql_is_in_word(is_after_word, *p));
        p += n;
    }
    return depth > 0 ? "a bracket that does not close" : NULL;
}

bool sql_is_part(const char *sql)
{
    bool is_after_word = false;
    for (const char *p = sql; *p != '\0';) {
        size_t quoted = sql_quoted_bytes(p, is_after_word);
        bool is_comment = quoted > 0 && (*p == '-' || *p == '/');
        if (is_comment || (quoted == 0 && *p == ';')) {
            return false;
        }
        is_after_word = quoted == 0 && sql_is_in_word(is_after_word, *p);
        p += quoted > 0 ? quoted : 1;
    }
    return sql_oddity(sql) == NULL;
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
    bool is_after_dot = false;
    for (const char *p = sql; *p != '\0';) {
        size_t quoted = sql_quoted_bytes(p, is_after_word);
        if (quoted == 0 && !is_after_word && !is_after_dot && strncasecmp(p, function, n_function) == 0 &&
            !sql_is_in_word(true, p[n_function]) && has_bracket(p + n_function)) {
            return true;
        }
        is_after_word = quoted == 0 && sql_is_in_word(is_after_word, *p);
        is_after_dot = *p == '.';
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
        is_after_word = quoted == 0 && sql_is_in_word(is_after_word, *p);
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
        is_after_word = quoted == 0 && sql_is_in_word(is_after_word, p[n]);
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
