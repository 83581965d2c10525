/*
 * add_five.c - an operator that adds 5 to numbers, as an example.
 *
 *     custom('add_five', (SELECT id, price FROM orders))
 *     custom('add_five', (SELECT id, price FROM orders), config := '{"column": "price", "amount": 0.5}')
 *
 *     amount   what is added; 5 if it is not there
 *     column   the column that it is added to; if it is not there, all columns of whole numbers (up to 64 bits) and of
 *              FLOAT and DOUBLE
 *
 * Other columns, and NULLs, pass as they are. A number that becomes too large for its type fails the query.
 *
 * It shows what an operator has to do: read its configuration and the columns of its input, say clearly what is wrong with
 * them, and make new arrays of those that it is given, which must not be changed. What it leaves alone it does not copy.
 *
 * Start reading at the end: `add_five` names the four functions that the worker calls.
 */
#include "add_five.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((format(printf, 3, 4))) static void fail(const struct capstan_operator_host *host,
                                                       struct capstan_operator_run *run, const char *format, ...)
{
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    /* Neither the configuration nor the rows will be better the next time. */
    host->set_error(run, CAPSTAN_NO_RETRY, text, strlen(text));
}

/* Reading the configuration. The worker has checked that it is a JSON object, so this only has to find its way. */

static const char *skip_space(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

/* `p` is at the quote that begins a text; returns what follows the one that ends it. */
static const char *skip_text(const char *p)
{
    for (p++; *p != '"'; p++) {
        p += *p == '\\' ? 1 : 0;
    }
    return p + 1;
}

/* Returns what follows the value at `p`: a comma, or the bracket that ends the object. */
static const char *skip_value(const char *p)
{
    for (int depth = 0; depth > 0 || (*p != ',' && *p != '}');) {
        depth += (*p == '{' || *p == '[' ? 1 : 0) - (*p == '}' || *p == ']' ? 1 : 0);
        p = *p == '"' ? skip_text(p) : p + 1;
    }
    return p;
}

/* Whether the text at `p` is this one. \u escapes are not read: write the characters themselves. */
static bool is_text(const char *p, const char *text)
{
    static const char letters[] = "\"\\/bfnrt";
    static const char meant[] = "\"\\/\b\f\n\r\t";
    for (p++; *p != '"'; p++, text++) {
        char c = *p;
        if (c == '\\') {
            const char *escaped = strchr(letters, *++p);
            c = escaped != NULL ? meant[escaped - letters] : '\0';
        }
        if (c == '\0' || c != *text) {
            return false;
        }
    }
    return *text == '\0';
}

struct config {
    double amount;
    int64_t whole_amount;
    bool is_whole;      /* `whole_amount` is the same */
    const char *column; /* in the JSON, at its quote; NULL: all */
};

static bool read_amount(const char *value, struct config *out)
{
    char *end = NULL;
    if (strchr("-0123456789", *value) == NULL) {
        return false;
    }
    out->amount = strtod(value, &end);
    errno = 0;
    char *whole_end = NULL;
    out->whole_amount = strtoll(value, &whole_end, 10);
    out->is_whole = errno == 0 && whole_end == end; /* no fraction, and it fits */
    return true;
}

static bool read_config(const char *json, struct config *out, const struct capstan_operator_host *host,
                        struct capstan_operator_run *run)
{
    *out = (struct config){.amount = 5, .whole_amount = 5, .is_whole = true};
    const char *p = skip_space(skip_space(json) + 1);
    while (*p == '"') {
        const char *key = p;
        const char *value = skip_space(skip_space(skip_text(p)) + 1);
        if (is_text(key, "amount")) {
            if (!read_amount(value, out)) {
                fail(host, run, "\"amount\" must be a number");
                return false;
            }
        } else if (is_text(key, "column")) {
            if (*value != '"') {
                fail(host, run, "\"column\" must be a text, the name of a column");
                return false;
            }
            out->column = value;
        } else {
            fail(host, run, "the configuration has \"amount\" and \"column\", but no %.*s", (int)(skip_text(key) - key),
                 key);
            return false;
        }
        p = skip_value(value);
        p = *p == ',' ? skip_space(p + 1) : p;
    }
    return true;
}

/* The columns. */

/* What can be added to, and how wide it is: the letters are Arrow's. */
static int width_of(char format)
{
    switch (format) {
    case 'c':
    case 'C':
        return 1;
    case 's':
    case 'S':
        return 2;
    case 'i':
    case 'I':
    case 'f':
        return 4;
    default:
        return 8;
    }
}

/* Metadata are a number of pairs, and then each key and value, with its length before it. */
static bool is_extension(const char *metadata)
{
    static const char wanted[] = "ARROW:extension:name";
    int32_t n_pairs = 0;
    if (metadata == NULL) {
        return false;
    }
    memcpy(&n_pairs, metadata, sizeof(n_pairs));
    const char *p = metadata + sizeof(n_pairs);
    for (int32_t i = 0; i < 2 * n_pairs; i++) {
        int32_t n = 0;
        memcpy(&n, p, sizeof(n));
        p += sizeof(n);
        if (i % 2 == 0 && (size_t)n == strlen(wanted) && memcmp(p, wanted, (size_t)n) == 0) {
            return true;
        }
        p += n;
    }
    return false;
}

/*
 * Whether the column holds numbers. The format alone does not tell: the numbers of an ENUM stand for its values, which are in
 * a dictionary, and an extension type says that they mean something else.
 */
static bool is_numeric(const struct ArrowSchema *column)
{
    return strlen(column->format) == 1 && strchr("cCsSiIlLfg", column->format[0]) != NULL &&
           column->dictionary == NULL && !is_extension(column->metadata);
}

/* What create() makes and process() needs: the schema is gone by then. */
struct instance {
    double amount;
    int64_t whole_amount;
    int64_t n_columns;
    char formats[]; /* one for each column: Arrow's letter, or 0 if the column passes as it is */
};

/* Chooses the columns. False: it has failed. */
static bool choose(struct instance *instance, const struct config *config, const struct ArrowSchema *input,
                   const struct capstan_operator_host *host, struct capstan_operator_run *run)
{
    bool is_found = config->column == NULL;
    for (int64_t i = 0; i < input->n_children; i++) {
        const struct ArrowSchema *column = input->children[i];
        if (config->column != NULL && !is_text(config->column, column->name)) {
            continue;
        }
        is_found = true;
        if (is_numeric(column)) {
            instance->formats[i] = column->format[0];
        } else if (config->column != NULL) {
            fail(host, run, "column '%s' holds no numbers that something can be added to", column->name);
            return false;
        }
        if (instance->formats[i] != 0 && strchr("fg", instance->formats[i]) == NULL && !config->is_whole) {
            fail(host, run, "\"amount\" is no whole number, but the numbers of column '%s' are; name a \"column\"",
                 column->name);
            return false;
        }
    }
    if (!is_found) {
        fail(host, run, "there is no column %.*s", (int)(skip_text(config->column) - config->column), config->column);
    }
    return is_found;
}

static void *create(const char *config_json, const struct ArrowSchema *input, struct ArrowSchema *output,
                    const struct capstan_operator_host *host, struct capstan_operator_run *run)
{
    (void)output; /* left alone: the columns stay as they are, only their values change */
    struct config config;
    if (!read_config(config_json, &config, host, run)) {
        return NULL;
    }
    struct instance *instance = calloc(1, sizeof(*instance) + (size_t)input->n_children);
    if (instance == NULL) {
        host->set_error(run, CAPSTAN_RETRY, "out of memory", 13);
        return NULL;
    }
    instance->amount = config.amount;
    instance->whole_amount = config.whole_amount;
    instance->n_columns = input->n_children;
    if (!choose(instance, &config, input, host, run)) {
        free(instance); /* after an error, destroy() is not called */
        return NULL;
    }
    return instance;
}

/*
 * The rows. A new batch shares the columns that stay as they are with the batch that came in; so that one is kept until the
 * last of them is released. Releases may happen on any thread, hence the atomic count.
 */

struct shared {
    atomic_int users;
    struct ArrowArray rows; /* what came in */
};

static void drop(struct shared *shared)
{
    if (atomic_fetch_sub(&shared->users, 1) == 1) {
        shared->rows.release(&shared->rows);
        free(shared);
    }
}

static void release_column(struct ArrowArray *array)
{
    drop(array->private_data);
    array->release = NULL;
}

/* A column with new numbers: they are its own, its bitmap of NULLs is that of the old one. */
struct numbers {
    struct shared *shared;
    const void *buffers[2];
};

static void release_numbers(struct ArrowArray *array)
{
    struct numbers *numbers = array->private_data;
    free((void *)numbers->buffers[1]);
    drop(numbers->shared);
    free(numbers);
    array->release = NULL;
}

/* The batch itself: its children follow it in one piece of memory. */
struct batch {
    const void *buffers[1];
    struct ArrowArray **pointers;
    struct ArrowArray children[];
};

static void release_batch(struct ArrowArray *array)
{
    struct batch *batch = array->private_data;
    for (int64_t i = 0; i < array->n_children; i++) {
        if (batch->children[i].release != NULL) {
            batch->children[i].release(&batch->children[i]);
        }
    }
    free(batch->pointers);
    free(batch);
    array->release = NULL;
}

static bool is_null(const struct ArrowArray *array, int64_t i)
{
    const uint8_t *bits = array->buffers[0];
    return bits != NULL && (bits[i / 8] >> (i % 8) & 1) == 0;
}

/* Adds to the rows from `offset` on; false if one does not fit. Where a value is NULL, anything may lie in its place. */
#define ADD(type, amount, add_one)                                                                                     \
    do {                                                                                                               \
        const type *from = column->buffers[1];                                                                         \
        type *to = values;                                                                                             \
        for (int64_t i = column->offset; i < column->offset + column->length; i++) {                                   \
            to[i] = from[i];                                                                                           \
            if (!is_null(column, i) && !add_one(from[i], (amount), &to[i])) {                                          \
                return false;                                                                                          \
            }                                                                                                          \
        }                                                                                                              \
        return true;                                                                                                   \
    } while (0)
#define ADD_WHOLE(a, b, sum) (!__builtin_add_overflow((a), (b), (sum)))
#define ADD_DOUBLE(a, b, sum) (*(sum) = (a) + (b), true)
#define ADD_FLOAT(a, b, sum) (*(sum) = (float)((a) + (b)), true)

static bool add_to(const struct ArrowArray *column, char format, const struct instance *instance, void *values)
{
    switch (format) {
    case 'c':
        ADD(int8_t, instance->whole_amount, ADD_WHOLE);
    case 'C':
        ADD(uint8_t, instance->whole_amount, ADD_WHOLE);
    case 's':
        ADD(int16_t, instance->whole_amount, ADD_WHOLE);
    case 'S':
        ADD(uint16_t, instance->whole_amount, ADD_WHOLE);
    case 'i':
        ADD(int32_t, instance->whole_amount, ADD_WHOLE);
    case 'I':
        ADD(uint32_t, instance->whole_amount, ADD_WHOLE);
    case 'l':
        ADD(int64_t, instance->whole_amount, ADD_WHOLE);
    case 'L':
        ADD(uint64_t, instance->whole_amount, ADD_WHOLE);
    case 'f':
        ADD(float, instance->amount, ADD_FLOAT);
    default:
        ADD(double, instance->amount, ADD_DOUBLE);
    }
}

/* Fills in one column of the new batch. False: it has failed, and there is nothing to release. */
static bool make_column(struct ArrowArray *out, const struct ArrowArray *old, char format,
                        const struct instance *instance, struct shared *shared,
                        const struct capstan_operator_host *host, struct capstan_operator_run *run)
{
    *out = *old; /* length, offset, children: all of it, but who releases it */
    out->private_data = shared;
    out->release = release_column;
    if (format != 0) {
        size_t n_bytes = (size_t)(old->offset + old->length) * (size_t)width_of(format);
        struct numbers *numbers = calloc(1, sizeof(*numbers));
        void *values = malloc(n_bytes > 0 ? n_bytes : 1);
        bool has_memory = numbers != NULL && values != NULL;
        if (!has_memory || !add_to(old, format, instance, values)) {
            if (has_memory) {
                fail(host, run, "a number becomes too large for the type of its column");
            } else {
                host->set_error(run, CAPSTAN_RETRY, "out of memory", 13);
            }
            free(numbers);
            free(values);
            out->release = NULL;
            return false;
        }
        *numbers = (struct numbers){.shared = shared, .buffers = {old->buffers[0], values}};
        out->buffers = numbers->buffers;
        out->private_data = numbers;
        out->release = release_numbers;
    }
    atomic_fetch_add(&shared->users, 1);
    return true;
}

/* An empty batch with room for its columns. */
static bool make_batch(struct ArrowArray *out, const struct ArrowArray *rows)
{
    size_t n = (size_t)rows->n_children;
    struct batch *batch = calloc(1, sizeof(*batch) + n * sizeof(batch->children[0]));
    struct ArrowArray **pointers = calloc(n, sizeof(*pointers));
    if (batch == NULL || pointers == NULL) {
        free(batch);
        free(pointers);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        pointers[i] = &batch->children[i];
    }
    batch->pointers = pointers;
    *out = (struct ArrowArray){.length = rows->length,
                               .offset = rows->offset,
                               .n_buffers = 1,
                               .buffers = batch->buffers,
                               .n_children = rows->n_children,
                               .children = pointers,
                               .release = release_batch,
                               .private_data = batch};
    return true;
}

static void process(void *instance_, struct ArrowArray *rows, const struct capstan_operator_host *host,
                    struct capstan_operator_run *run)
{
    const struct instance *instance = instance_;
    struct shared *shared = calloc(1, sizeof(*shared));
    struct ArrowArray batch;
    if (shared == NULL || !make_batch(&batch, rows)) {
        host->set_error(run, CAPSTAN_RETRY, "out of memory", 13);
        free(shared);
        return; /* `rows` are released by the worker */
    }
    shared->rows = *rows; /* moved: they are ours now */
    rows->release = NULL;
    atomic_init(&shared->users, 1); /* this function, until it returns */
    bool is_good = true;
    for (int64_t i = 0; is_good && i < instance->n_columns; i++) {
        is_good =
            make_column(batch.children[i], shared->rows.children[i], instance->formats[i], instance, shared, host, run);
    }
    if (is_good) {
        host->emit(run, &batch); /* takes it over */
    } else {
        batch.release(&batch);
    }
    drop(shared);
}

/* Nothing is kept from one batch to the next, so there is nothing to do at the end of the rows: no finish(). */
const struct capstan_operator add_five = {
    .size = sizeof(add_five),
    .abi = CAPSTAN_OPERATOR_ABI,
    .name = "add_five",
    .create = create,
    .process = process,
    .destroy = free,
};

/* What `capstan worker --plugin` looks for. A program that has the operator linked in does not need it. */
const struct capstan_operator *const *capstan_operators_v1(void)
{
    static const struct capstan_operator *const all[] = {&add_five, NULL};
    return all;
}
