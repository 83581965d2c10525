/* write.c - COPY … TO and CREATE TABLE … AS, read from their text. */
#include "query/write.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/limits.h"
#include "query/physical.h"
#include "query/physical_internal.h"
#include "query/plan_sql.h"
#include "query/sql_text.h"

#define SUPPORTED                                                                                                      \
    "supported are queries, COPY (query) TO '/folder' (FORMAT parquet|csv|json, …) and CREATE TABLE name AS query"

/* What is still to be read of the statement. */
struct cursor {
    const char *at;
    struct arena *arena;
    struct error *e;
};

static enum err refuse(struct cursor *c, const char *what)
{
    error_set(c->e, ERR_INVALID, "%s", what);
    error_hint(c->e, SUPPORTED);
    return ERR_INVALID;
}

/* White space and comments. */
static void skip_space(struct cursor *c)
{
    for (;;) {
        bool is_comment = (c->at[0] == '-' && c->at[1] == '-') || (c->at[0] == '/' && c->at[1] == '*');
        if (is_comment) {
            c->at += sql_quoted_bytes(c->at, false);
        } else if (isspace((unsigned char)*c->at)) {
            c->at++;
        } else {
            return;
        }
    }
}

/* Takes the word if it is next, in any case. */
static bool take_word(struct cursor *c, const char *word)
{
    size_t n = strlen(word);
    skip_space(c);
    if (strncasecmp(c->at, word, n) != 0 || sql_is_word(c->at[n])) {
        return false;
    }
    c->at += n;
    skip_space(c);
    return true;
}

/* Takes what is in brackets; NULL if there are none, or they do not close. */
static const char *take_group(struct cursor *c)
{
    if (*c->at != '(') {
        return NULL;
    }
    const char *start = c->at + 1;
    const char *end = start;
    while (*(end += sql_item_bytes(end)) == ',') {
        end++;
    }
    if (*end != ')') {
        return NULL;
    }
    char *inside = arena_copy(c->arena, start, (size_t)(end - start) + 1);
    inside[end - start] = '\0';
    c->at = end + 1;
    skip_space(c);
    return inside;
}

/* Takes a text or a name in quotes, which are doubled inside; NULL if there is none, or it does not end. */
static const char *take_quoted(struct cursor *c, char quote)
{
    size_t n = *c->at == quote ? sql_quoted_bytes(c->at, false) : 0;
    if (n < 2 || c->at[n - 1] != quote) {
        return NULL;
    }
    char *text = arena_alloc(c->arena, n);
    size_t length = 0;
    for (size_t i = 1; i < n - 1; i++) {
        text[length++] = c->at[i];
        i += c->at[i] == quote ? 1 : 0;
    }
    text[length] = '\0';
    c->at += n;
    skip_space(c);
    return text;
}

/* Takes a name, with quotes or without. */
static const char *take_name(struct cursor *c)
{
    if (*c->at == '"') {
        return take_quoted(c, '"');
    }
    size_t n = 0;
    while (sql_is_word(c->at[n])) {
        n++;
    }
    if (n == 0 || isdigit((unsigned char)c->at[0])) {
        return NULL;
    }
    char *name = arena_copy(c->arena, c->at, n + 1);
    name[n] = '\0';
    c->at += n;
    skip_space(c);
    return name;
}

static bool is_at_end(struct cursor *c)
{
    skip_space(c);
    while (*c->at == ';') {
        c->at++;
        skip_space(c);
    }
    return *c->at == '\0';
}

/* Options of COPY. */

/* Options that concern what is inside of a file. Others would make several files of it, or put it elsewhere. */
static const struct {
    const char *format;
    const char *names;
} known_options[] = {
    {"parquet", "COMPRESSION COMPRESSION_LEVEL ROW_GROUP_SIZE ROW_GROUP_SIZE_BYTES PARQUET_VERSION "
                "DICTIONARY_SIZE_LIMIT STRING_DICTIONARY_PAGE_SIZE_LIMIT FIELD_IDS KV_METADATA"},
    {"csv", "HEADER DELIMITER DELIM SEP QUOTE ESCAPE NULL NULLSTR FORCE_QUOTE DATEFORMAT TIMESTAMPFORMAT COMPRESSION"},
    {"json", "ARRAY DATEFORMAT TIMESTAMPFORMAT COMPRESSION"},
};

static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = words; *p != '\0'; p += strcspn(p, " "), p += *p == ' ' ? 1 : 0) {
        if (strcspn(p, " ") == n && strncasecmp(p, word, n) == 0) {
            return true;
        }
    }
    return false;
}

/* One option, "NAME value" or "NAME = value". The value is trimmed, and "" if there is none. */
static const char *take_option(struct cursor *c, const char **out_value)
{
    skip_space(c);
    const char *name = take_name(c);
    if (name == NULL) {
        return NULL;
    }
    if (*c->at == '=') {
        c->at++;
        skip_space(c);
    }
    size_t n = sql_item_bytes(c->at);
    size_t trimmed = n;
    while (trimmed > 0 && isspace((unsigned char)c->at[trimmed - 1])) {
        trimmed--;
    }
    char *value = arena_copy(c->arena, c->at, trimmed + 1);
    value[trimmed] = '\0';
    c->at += n;
    *out_value = value;
    return name;
}

/* The value without quotes around it. */
static bool value_is(const char *value, const char *expected)
{
    size_t n = strlen(value);
    if (n >= 2 && value[0] == '\'' && value[n - 1] == '\'') {
        value++;
        n -= 2;
    }
    return strlen(expected) == n && strncasecmp(value, expected, n) == 0;
}

bool physical__option_is(const char *options, const char *name, const char *value)
{
    struct arena arena = {0};
    struct cursor c = {.at = options, .arena = &arena};
    bool is_found = false;
    const char *found = NULL;
    for (const char *option = NULL; !is_found && (option = take_option(&c, &found)) != NULL;) {
        is_found = strcasecmp(option, name) == 0 && value_is(found, value);
        if (*c.at != ',') {
            break;
        }
        c.at++;
    }
    arena_deinit(&arena);
    return is_found;
}

/* The format: as the options say, or as the folder's name ends. */
static enum err find_format(struct cursor *c, const char *options, struct query_write *w)
{
    enum source_format format = SOURCE_PARQUET;
    for (size_t i = 0; i < ARRAY_LEN(known_options); i++) {
        if (physical__option_is(options, "FORMAT", known_options[i].format)) {
            w->format = known_options[i].format;
            return ERR_OK;
        }
    }
    struct cursor o = {.at = options, .arena = c->arena};
    const char *value = NULL;
    for (const char *name = NULL; (name = take_option(&o, &value)) != NULL; o.at++) {
        if (strcasecmp(name, "FORMAT") == 0) {
            return error_set(c->e, ERR_INVALID, "COPY knows the formats parquet, csv and json, not %.100s", value);
        }
        if (*o.at != ',') {
            break;
        }
    }
    if (!plan_sql_format(w->to, &format)) {
        return error_set(c->e, ERR_INVALID, "COPY needs a format: add (FORMAT parquet), csv or json");
    }
    w->format = known_options[format].format;
    return ERR_OK;
}

static enum err read_options(struct cursor *c, const char *options, struct query_write *w)
{
    struct buf text = {0};
    struct cursor o = {.at = options, .arena = c->arena, .e = c->e};
    const char *known = "";
    enum err err = find_format(c, options, w);
    for (size_t i = 0; i < ARRAY_LEN(known_options) && err == ERR_OK; i++) {
        known = strcmp(w->format, known_options[i].format) == 0 ? known_options[i].names : known;
    }
    skip_space(&o);
    while (err == ERR_OK && *o.at != '\0') {
        const char *value = NULL;
        const char *name = take_option(&o, &value);
        if (name == NULL || (*o.at != ',' && *o.at != '\0')) {
            err = refuse(c, "the options of COPY cannot be read");
        } else if (strcasecmp(name, "FORMAT") == 0) {
            o.at += *o.at == ',' ? 1 : 0;
        } else if (!has_word(known, name)) {
            err =
                error_set(c->e, ERR_INVALID, "COPY cannot take the option %.100s with the format %s", name, w->format);
            error_hint(c->e, "each task writes one file; options that it can take: %s", known);
        } else {
            buf_format(&text, "%s%s%s%s", text.n > 0 ? ", " : "", name, value[0] != '\0' ? " " : "", value);
            o.at += *o.at == ',' ? 1 : 0;
        }
    }
    w->options = text.n > 0 ? arena_strdup(c->arena, text.data) : "";
    buf_deinit(&text);
    return err;
}

/* The folder as an absolute path without slashes at its end. */
static enum err set_folder(struct cursor *c, const char *path, struct query_write *w)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') {
        n--;
    }
    if (path[0] != '/' || n < 2 || n > LIMIT_SOURCE_BYTES) {
        error_set(c->e, ERR_INVALID, "'%.200s' is no absolute path of a folder", path);
        error_hint(c->e, "the path must mean the same on all workers, as in '/data/out'");
        return ERR_INVALID;
    }
    char *to = arena_copy(c->arena, path, n + 1);
    to[n] = '\0';
    w->to = to;
    return ERR_OK;
}

static enum err read_copy(struct cursor *c, struct query_write *w)
{
    const char *options = "";
    const char *query = take_group(c);
    if (query == NULL) {
        const char *start = c->at;
        const char *name = take_name(c);
        size_t n = name == NULL ? 0 : (*start == '"' ? sql_quoted_bytes(start, false) : strlen(name));
        query = name == NULL ? NULL : arena_format(c->arena, "FROM %.*s", (int)n, start);
    }
    if (query == NULL || !take_word(c, "TO")) {
        return refuse(c, "this COPY cannot be run");
    }
    const char *path = take_quoted(c, '\'');
    if (path == NULL) {
        return refuse(c, "COPY needs a folder in quotes after TO");
    }
    (void)take_word(c, "WITH");
    if (*c->at == '(') {
        options = take_group(c);
    }
    if (options == NULL || !is_at_end(c)) {
        return refuse(c, "the end of this COPY cannot be read");
    }
    w->sql = query;
    enum err err = set_folder(c, path, w);
    return err == ERR_OK ? read_options(c, options, w) : err;
}

/* The length of a statement, without the semicolon at its end. */
static size_t statement_bytes(const char *sql)
{
    bool is_after_word = false;
    size_t n = 0;
    while (sql[n] != '\0' && sql[n] != ';') {
        size_t quoted = sql_quoted_bytes(sql + n, is_after_word);
        is_after_word = quoted == 0 && sql_is_in_word(is_after_word, sql[n]);
        n += quoted > 0 ? quoted : 1;
    }
    return n;
}

bool physical__is_table_name(const char *name)
{
    const char *p = name;
    while (isalnum((unsigned char)*p) || *p == '_') {
        p++;
    }
    return *p == '\0' && p > name && !isdigit((unsigned char)name[0]);
}

static enum err read_create(struct cursor *c, const char *warehouse, struct query_write *w)
{
    if (take_word(c, "OR") || take_word(c, "TEMP") || take_word(c, "TEMPORARY")) {
        return refuse(c, "only a plain CREATE TABLE name AS query can be run: no OR REPLACE, no TEMPORARY");
    }
    if (!take_word(c, "TABLE")) {
        return refuse(c, "this CREATE cannot be run");
    }
    if (take_word(c, "IF")) {
        return refuse(c, "CREATE TABLE cannot take IF NOT EXISTS");
    }
    const char *name = take_name(c);
    if (name == NULL || !take_word(c, "AS")) {
        return refuse(c, "CREATE TABLE needs a name without a schema, then AS and a query");
    }
    if (name[0] == '\0' || strlen(name) > LIMIT_TABLE_NAME_BYTES) {
        return error_set(c->e, ERR_INVALID, "the name of a table has 1 to %d bytes", LIMIT_TABLE_NAME_BYTES);
    }
    if (!physical__is_table_name(name)) {
        return refuse(c, "the name of a table that is created has letters, digits and _ only, and no digit first");
    }
    if (warehouse == NULL || warehouse[0] == '\0') {
        error_set(c->e, ERR_INVALID, "CREATE TABLE %s AS needs a folder for its files, but `warehouse` is not set",
                  name);
        error_hint(c->e, "set `warehouse` in the coordinator's configuration, or use COPY (query) TO '/folder'");
        return ERR_INVALID;
    }
    char *query = arena_strdup(c->arena, c->at);
    query[statement_bytes(query)] = '\0';
    w->sql = query;
    w->table = name;
    w->format = "parquet";
    w->options = "";
    size_t n = strlen(warehouse);
    const char *slash = warehouse[n - 1] == '/' ? "" : "/";
    return set_folder(c, arena_format(c->arena, "%s%s%s", warehouse, slash, name), w);
}

/* Takes one name AS (…) of a WITH. */
static bool take_cte(struct cursor *c)
{
    bool is_named = take_name(c) != NULL;
    (void)take_group(c);
    if (take_word(c, "USING") && take_word(c, "KEY")) {
        (void)take_group(c);
    }
    bool has_as = take_word(c, "AS");
    (void)take_word(c, "NOT");
    (void)take_word(c, "MATERIALIZED");
    return is_named && has_as && take_group(c) != NULL;
}

/* Goes to the statement behind WITH …; stays before one that is not understood, of which DuckDB says what is wrong. */
static void skip_ctes(struct cursor *c)
{
    struct cursor ahead = *c;
    bool is_right = take_word(&ahead, "WITH");
    (void)take_word(&ahead, "RECURSIVE");
    while ((is_right = is_right && take_cte(&ahead)) && *ahead.at == ',') {
        ahead.at++;
        skip_space(&ahead);
    }
    c->at = is_right ? ahead.at : c->at;
}

/* Whether the statement only reads, by how it starts. */
static bool starts_query(struct cursor *c)
{
    static const char *const words[] = {"SELECT", "WITH",      "FROM",  "VALUES",  "DESCRIBE", "DESC",
                                        "SHOW",   "SUMMARIZE", "PIVOT", "UNPIVOT", "TABLE"};
    if (take_word(c, "EXPLAIN")) { /* with ANALYZE it runs what follows */
        (void)take_word(c, "ANALYZE");
        (void)take_group(c);
    }
    skip_ctes(c);
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        size_t n = strlen(words[i]);
        if (strncasecmp(c->at, words[i], n) == 0 && !sql_is_word(c->at[n])) {
            return true;
        }
    }
    return *c->at == '(';
}

bool query_explains(const char *sql)
{
    struct cursor c = {.at = sql};
    return take_word(&c, "EXPLAIN");
}

/* Whether the statement makes a view that is gone with its connection, as those of named data sets are. */
static bool starts_view(struct cursor *c)
{
    bool is_create = take_word(c, "CREATE");
    bool is_replacing = take_word(c, "OR");
    bool is_right = is_create && (!is_replacing || take_word(c, "REPLACE"));
    is_right = is_right && (take_word(c, "TEMP") || take_word(c, "TEMPORARY")) && take_word(c, "VIEW");
    is_right = is_right && take_name(c) != NULL;
    (void)take_group(c);
    return is_right && take_word(c, "AS") && starts_query(c);
}

/* Each statement is looked at by itself, so that no bracket in one is sought in all that come after it. */
bool query_only_reads(const char *sql, struct arena *arena)
{
    struct cursor c = {.at = sql, .arena = arena};
    const char *last = sql + physical_last_statement(sql);
    skip_space(&c);
    while (c.at < last) {
        size_t n = statement_bytes(c.at);
        char *statement = arena_copy(arena, c.at, n + 1);
        statement[n] = '\0';
        struct cursor view = {.at = statement, .arena = arena};
        if (!starts_view(&view)) {
            return false;
        }
        c.at += n + 1;
        skip_space(&c);
    }
    return starts_query(&c);
}

enum err query_write_read(const char *sql, const char *warehouse, struct arena *arena, struct query_write *out,
                          struct error *e)
{
    struct query_write w = {0};
    struct cursor c = {.at = sql, .arena = arena, .e = e};
    enum err err = ERR_OK;
    skip_space(&c);
    if (physical_last_statement(sql) > 0) {
        return error_set(e, ERR_INVALID, "one statement is expected, not several");
    }
    if (take_word(&c, "COPY")) {
        err = read_copy(&c, &w);
    } else if (take_word(&c, "CREATE")) {
        err = read_create(&c, warehouse, &w);
    } else if (!starts_query(&c)) {
        size_t n = strcspn(c.at, " \t\r\n(;");
        err = refuse(&c,
                     arena_format(arena, "%.*s: statements of this kind cannot be run", (int)(n < 30 ? n : 30), c.at));
    }
    if (err == ERR_OK) {
        *out = w;
    }
    return err;
}
