/*
 * split_estimate.c - how many rows of a scan its filters leave, by what its files say about their columns.
 *
 * DuckDB takes every condition but an equality to leave a fifth of the rows. Files know the least and the greatest value of
 * a column, so a range of days or whole numbers can be told better: as if all values between these were as frequent.
 */
#include <string.h>

#include "query/split.h"

/* What other conditions leave together, as DuckDB has it. */
#define OTHERS_LEAVE 0.2

/* Values that pass, both ends included. */
struct interval {
    int64_t from;
    int64_t to;
};

/* What the conditions say about one column. */
struct column_filter {
    uint32_t column; /* of the source */
    struct interval interval;
    bool is_found; /* there is a condition that is understood */
};

static bool is_counted(const struct type *type)
{
    return type->id == TYPE_DATE || type->id == TYPE_TINYINT || type->id == TYPE_SMALLINT || type->id == TYPE_INTEGER ||
           type->id == TYPE_BIGINT;
}

/* A value that the column can be compared with; false if it is of another kind, or at the end of what there is. */
static bool read_constant(const struct expression *expression, const struct type *type, int64_t *out)
{
    if (expression->kind != EXPRESSION_CONSTANT || expression->as.constant->is_null ||
        expression->as.constant->type->id != type->id) {
        return false;
    }
    struct wide_int value = expression->as.constant->as.integer;
    *out = (int64_t)value.lower;
    return *out > INT64_MIN && *out < INT64_MAX && value.upper == (*out < 0 ? -1 : 0);
}

static void narrow(struct column_filter *filter, enum comparison comparison, int64_t value)
{
    struct interval *interval = &filter->interval;
    int64_t from = comparison == COMPARE_GREATER ? value + 1 : value;
    int64_t to = comparison == COMPARE_LESS ? value - 1 : value;
    if (comparison == COMPARE_GREATER || comparison == COMPARE_GREATER_OR_EQUAL) {
        interval->from = from > interval->from ? from : interval->from;
    } else {
        interval->to = to < interval->to ? to : interval->to;
    }
    filter->is_found = true;
}

/* The same with its sides exchanged. */
static enum comparison turned(enum comparison comparison)
{
    return comparison == COMPARE_LESS               ? COMPARE_GREATER
           : comparison == COMPARE_GREATER          ? COMPARE_LESS
           : comparison == COMPARE_LESS_OR_EQUAL    ? COMPARE_GREATER_OR_EQUAL
           : comparison == COMPARE_GREATER_OR_EQUAL ? COMPARE_LESS_OR_EQUAL
                                                    : comparison;
}

static bool is_order(enum comparison comparison)
{
    return comparison == COMPARE_LESS || comparison == COMPARE_GREATER || comparison == COMPARE_LESS_OR_EQUAL ||
           comparison == COMPARE_GREATER_OR_EQUAL;
}

static bool is_column(const struct expression *expression, const struct column_filter *filter)
{
    return expression->kind == EXPRESSION_REF && expression->as.index == filter->column;
}

/* Takes a condition in; false if it says something else, or something about another column. */
static bool take_condition(const struct expression *e, const struct type *type, struct column_filter *filter)
{
    int64_t value = 0;
    int64_t upper = 0;
    if (e->kind == EXPRESSION_AND) {
        bool is_all = true;
        for (uint32_t i = 0; i < e->n_args; i++) {
            is_all = take_condition(e->args[i], type, filter) && is_all;
        }
        return is_all;
    }
    if (e->kind == EXPRESSION_COMPARISON && is_order(e->as.comparison)) {
        if (is_column(e->args[0], filter) && read_constant(e->args[1], type, &value)) {
            narrow(filter, e->as.comparison, value);
            return true;
        }
        if (is_column(e->args[1], filter) && read_constant(e->args[0], type, &value)) {
            narrow(filter, turned(e->as.comparison), value);
            return true;
        }
    }
    if (e->kind == EXPRESSION_BETWEEN && is_column(e->args[0], filter) && read_constant(e->args[1], type, &value) &&
        read_constant(e->args[2], type, &upper)) {
        narrow(filter, e->as.between.has_lower ? COMPARE_GREATER_OR_EQUAL : COMPARE_GREATER, value);
        narrow(filter, e->as.between.has_upper ? COMPARE_LESS_OR_EQUAL : COMPARE_LESS, upper);
        return true;
    }
    return false;
}

const struct split_column *split_column_of(const struct split_file *file, const char *name)
{
    for (uint32_t i = 0; i < file->n_columns; i++) {
        if (strcmp(file->columns[i].name, name) == 0) {
            return &file->columns[i];
        }
    }
    return NULL;
}

/* Which part of the rows passes; negative if a file does not say. */
static double part_left(const struct split_catalog *catalog, const struct scan *scan,
                        const struct column_filter *filter)
{
    double rows = 0;
    double left = 0;
    for (uint32_t i = 0; i < scan->n_files; i++) {
        const struct split_file *file = split_find(catalog, scan->files[i]);
        const struct split_column *column = file == NULL ? NULL : split_column_of(file, scan->names[filter->column]);
        if (file != NULL && file->rows == 0) {
            continue;
        }
        if (column == NULL) {
            return -1;
        }
        double all = (double)column->greatest - (double)column->least + 1;
        double from = (double)(filter->interval.from > column->least ? filter->interval.from : column->least);
        double to = (double)(filter->interval.to < column->greatest ? filter->interval.to : column->greatest);
        rows += (double)file->rows;
        left += to < from ? 0 : (double)file->rows * (to - from + 1) / all;
    }
    return rows > 0 ? left / rows : -1;
}

double split_rows_left(const struct split_catalog *catalog, const struct scan *scan)
{
    double part = 1;
    bool is_known = false;
    bool has_others = scan->n_filters == 0;
    for (uint32_t i = 0; i < scan->n_filters; i++) {
        bool is_understood = false;
        for (uint32_t column = 0; column < scan->n_names && !is_understood; column++) {
            struct column_filter filter = {.column = column, .interval = {INT64_MIN, INT64_MAX}};
            if (!is_counted(scan->types[column])) {
                continue;
            }
            is_understood = take_condition(scan->filters[i], scan->types[column], &filter);
            double left = filter.is_found ? part_left(catalog, scan, &filter) : -1;
            part *= left >= 0 ? left : 1;
            is_known = is_known || left >= 0;
            is_understood = is_understood && left >= 0;
        }
        has_others = has_others || !is_understood;
    }
    if (!is_known) {
        return -1;
    }
    double rows = (double)split_total_of(catalog, scan).rows * part * (has_others ? OTHERS_LEAVE : 1);
    return rows > 1 ? rows : 1;
}
