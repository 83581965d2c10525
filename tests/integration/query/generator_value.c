/* generator_value.c - what a random query says about columns: constants, values, predicates. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "query/generator_internal.h"

enum column_class column_class_of(const char *type)
{
    static const struct {
        const char *start;
        enum column_class class;
    } starts[] = {
        {"TINYINT", CLASS_INT},
        {"SMALLINT", CLASS_INT},
        {"INTEGER", CLASS_INT},
        {"BIGINT", CLASS_INT},
        {"HUGEINT", CLASS_INT},
        {"UTINYINT", CLASS_INT},
        {"USMALLINT", CLASS_INT},
        {"UINTEGER", CLASS_INT},
        {"UBIGINT", CLASS_INT},
        {"DECIMAL", CLASS_DECIMAL},
        {"FLOAT", CLASS_FLOAT},
        {"DOUBLE", CLASS_FLOAT},
        {"VARCHAR", CLASS_TEXT},
        {"DATE", CLASS_DATE},
        {"BOOLEAN", CLASS_BOOL},
        {"TIMESTAMP", CLASS_TIMESTAMP},
        {"TIMESTAMP WITH TIME ZONE", CLASS_TIMESTAMP_TZ},
        {"TIME", CLASS_TIME},
        {"UUID", CLASS_UUID},
        {"BLOB", CLASS_BLOB},
        {"ENUM", CLASS_ENUM},
        {"STRUCT", CLASS_STRUCT},
    };
    size_t n = strcspn(type, "(");
    const char *bracket = strchr(type, '[');
    if (bracket != NULL && strcmp(type, "BIGINT[]") == 0) {
        return CLASS_LIST;
    }
    if (bracket != NULL) {
        return CLASS_OTHER;
    }
    for (size_t i = 0; i < ARRAY_LEN(starts); i++) {
        if (strlen(starts[i].start) == n && strncmp(type, starts[i].start, n) == 0) {
            return starts[i].class;
        }
    }
    return CLASS_OTHER;
}

void generator__show(struct scope *scope, const char *alias, const char *name, enum column_class class)
{
    if (scope->n < SCOPE_MAX) {
        struct visible *column = &scope->columns[scope->n++];
        snprintf(column->sql, sizeof column->sql, "%.15s.\"%.70s\"", alias, name);
        column->class = class;
    }
}

const struct visible *generator__column(struct generator *g, const struct scope *scope, enum column_class class)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < scope->n; i++) {
        n += scope->columns[i].class == class ? 1 : 0;
    }
    if (n == 0) {
        return NULL;
    }
    uint32_t wanted = generator__pick(g, n);
    for (uint32_t i = 0; i < scope->n; i++) {
        if (scope->columns[i].class == class && wanted-- == 0) {
            return &scope->columns[i];
        }
    }
    return NULL;
}

const struct visible *generator__plain(struct generator *g, const struct scope *scope)
{
    uint32_t wanted = generator__pick(g, scope->n);
    for (uint32_t i = 0; i < scope->n; i++) {
        const struct visible *column = &scope->columns[(wanted + i) % scope->n];
        if (column->class != CLASS_OTHER) {
            return column;
        }
    }
    return &scope->columns[wanted];
}

const struct visible *generator__exact(struct generator *g, const struct scope *scope)
{
    uint32_t wanted = generator__pick(g, scope->n);
    for (uint32_t i = 0; i < scope->n; i++) {
        const struct visible *column = &scope->columns[(wanted + i) % scope->n];
        if (column->class != CLASS_FLOAT && column->class != CLASS_OTHER) {
            return column;
        }
    }
    return NULL;
}

void generator__constant(struct generator *g, enum column_class class)
{
    static const char *const texts[] = {"'a'", "''", "'M'", "'%'", "'é'", "'7'"};
    static const char *const dates[] = {"DATE '1995-06-17'", "DATE '1998-01-01'", "DATE '2000-03-01'"};
    switch (class) {
    case CLASS_INT:
    case CLASS_FLOAT:
        buf_format(g->out, "%" PRIu32, generator__pick(g, 4) * generator__pick(g, 50));
        return;
    case CLASS_DECIMAL:
        buf_format(g->out, "%" PRIu32 ".%" PRIu32, generator__pick(g, 3000), generator__pick(g, 100));
        return;
    case CLASS_TEXT:
        buf_text(g->out, texts[generator__pick(g, ARRAY_LEN(texts))]);
        return;
    case CLASS_DATE:
        buf_text(g->out, dates[generator__pick(g, 3)]);
        return;
    case CLASS_BOOL:
        buf_text(g->out, generator__pick(g, 2) == 0 ? "true" : "false");
        return;
    case CLASS_TIMESTAMP:
        buf_text(g->out, generator__pick(g, 2) == 0 ? "TIMESTAMP '2000-01-05 12:34:56.789'" : "TIMESTAMP '2000-01-08'");
        return;
    case CLASS_TIMESTAMP_TZ:
        buf_text(g->out, generator__pick(g, 2) == 0 ? "TIMESTAMPTZ '2020-03-29 01:30:00+01'"
                                                    : "TIMESTAMPTZ '2020-05-01 00:00:00Z'");
        return;
    case CLASS_TIME:
        buf_text(g->out, generator__pick(g, 2) == 0 ? "TIME '12:00:00'" : "TIME '00:00:01'");
        return;
    case CLASS_UUID:
        buf_format(g->out, "'00000000-0000-4000-8000-%012" PRIu32 "'::UUID", generator__pick(g, 1000));
        return;
    case CLASS_BLOB:
        buf_text(g->out, generator__pick(g, 2) == 0 ? "'x'::BLOB" : "''::BLOB");
        return;
    case CLASS_ENUM: /* of the one that there is */
        buf_format(g->out, "'%s'::ENUM('low', 'mid', 'high')", generator__pick(g, 2) == 0 ? "mid" : "high");
        return;
    case CLASS_LIST:
        buf_text(g->out, generator__pick(g, 2) == 0 ? "[1, NULL, 2]::BIGINT[]" : "[]::BIGINT[]");
        return;
    case CLASS_STRUCT:
        buf_text(g->out, "{'a': 1::BIGINT, 'b': 'x', 'in': {'deep': 1::BIGINT}}");
        return;
    case CLASS_OTHER:
        buf_text(g->out, "NULL");
        return;
    }
}

void generator__value(struct generator *g, const struct scope *scope, enum column_class class)
{
    const struct visible *column = generator__column(g, scope, class);
    const struct visible *text = NULL;
    if (column == NULL) {
        generator__constant(g, class);
        return;
    }
    switch (generator__pick(g, 9)) {
    case 6:
        buf_format(g->out, "coalesce(%s, ", column->sql);
        generator__constant(g, class);
        buf_text(g->out, class == CLASS_DECIMAL ? "::DECIMAL(12,2))" : ")");
        return;
    case 7:
        buf_text(g->out, "CASE WHEN ");
        generator__predicate(g, scope);
        buf_format(g->out, " THEN %s END", column->sql);
        return;
    case 8:
        text = generator__column(g, scope, CLASS_TEXT);
        if (class == CLASS_INT && text != NULL) {
            buf_format(g->out, "length(%s)", text->sql);
        } else if (class == CLASS_TEXT) {
            buf_format(g->out, "substr(%s, 1, %" PRIu32 ")", column->sql, 1 + generator__pick(g, 3));
        } else if (class == CLASS_INT) {
            buf_format(g->out, "(%s %% %" PRIu32 ")", column->sql, 2 + generator__pick(g, 9));
        } else {
            buf_text(g->out, column->sql);
        }
        return;
    default:
        buf_text(g->out, column->sql);
        return;
    }
}

static void write_comparison(struct generator *g, const struct scope *scope)
{
    static const char *const operators[] = {"<", "=", ">", "<>", "<=", ">=", "IS DISTINCT FROM"};
    enum column_class class = generator__plain(g, scope)->class;
    const struct visible *column = generator__column(g, scope, class);
    if (class == CLASS_OTHER || column == NULL) {
        buf_format(g->out, "%s IS NOT NULL", scope->columns[0].sql);
        return;
    }
    buf_format(g->out, "%s %s ", column->sql, operators[generator__pick(g, 7)]);
    if (generator__chance(g, 3)) {
        generator__value(g, scope, class);
    } else {
        generator__constant(g, class);
    }
}

void generator__predicate(struct generator *g, const struct scope *scope)
{
    const struct visible *column = generator__plain(g, scope);
    g->depth++;
    uint32_t form = g->depth > 4 ? 0 : generator__pick(g, 10);
    if (form <= 4) {
        write_comparison(g, scope);
    } else if (form == 5) {
        buf_format(g->out, "%s IS %sNULL", column->sql, generator__pick(g, 2) == 0 ? "NOT " : "");
    } else if (form == 6 && column->class != CLASS_OTHER && column->class != CLASS_BOOL) {
        buf_format(g->out, "%s %sIN (", column->sql, generator__chance(g, 3) ? "NOT " : "");
        for (uint32_t i = 0, n = 1 + generator__pick(g, 4); i < n; i++) {
            buf_text(g->out, i == 0 ? "" : ", ");
            generator__constant(g, column->class);
        }
        buf_char(g->out, ')');
    } else if (form == 7) {
        buf_text(g->out, "NOT (");
        generator__predicate(g, scope);
        buf_char(g->out, ')');
    } else {
        buf_char(g->out, '(');
        generator__predicate(g, scope);
        buf_text(g->out, form == 8 ? " AND " : " OR ");
        generator__predicate(g, scope);
        buf_char(g->out, ')');
    }
    g->depth--;
}

void generator__fill(struct generator *g, const char *template, const struct holes *holes, const struct scope *scope)
{
    const char *at = template;
    for (const char *hole = strchr(at, '{'); hole != NULL; hole = strchr(at, '{')) {
        buf_append(g->out, at, (size_t)(hole - at));
        if (hole[1] == 'p') {
            generator__predicate(g, scope);
        } else {
            buf_text(g->out, holes->texts[hole[1] - 'a']);
        }
        at = hole + strlen("{x}");
    }
    buf_text(g->out, at);
}
