/*
 * scatter.c - rows to partitions.
 *
 * The input is looked at in strides of a few thousand rows, so that what is needed per stride (the order of its rows)
 * stays in the processor's cache and batches never grow much over their bound.
 */
#include "exchange/scatter.h"

#include <inttypes.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "exchange/bits.h"
#include "exchange/column.h"
#include "exchange/schema.h"

#define STRIDE_ROWS 8192
#define BATCH_BYTES_MIN ((size_t)64 * 1024)       /* smaller batches are not worth their headers */
#define STRIDE_BYTES ((uint64_t)32 * 1024 * 1024) /* strides with more are halved: rows may share large texts */

struct partition {
    struct column *columns; /* NULL until it gets a row */
    uint64_t load; /* bytes and values of all strides that it took part in: over 2^31, offsets could overflow */
};

struct dictionary {
    struct column values;
    bool is_there;
    struct ArrowArray *view;
    struct column_view memory;
};

struct scatter {
    struct scatter_options options;
    scatter_emit_fn *emit;
    void *context;
    size_t column_width; /* of the column with the numbers */
    struct layout *layout;
    uint32_t n_dictionaries;
    struct dictionary *dictionaries;
    struct partition *partitions;
    uint32_t next; /* SCATTER_DEAL: who gets the next stride */
    struct column_view view;
    struct ArrowArray **root_children;
    uint32_t numbers[STRIDE_ROWS];
    uint32_t order[STRIDE_ROWS];
    uint32_t *starts; /* for each partition, where its rows begin in `order`; one more for the end */
};

static void view_init(struct column_view *view, const struct layout *layout)
{
    size_t n = column_view_nodes(layout);
    view->arrays = mem_calloc(n, sizeof(*view->arrays));
    view->buffers = mem_calloc(3 * n, sizeof(void *));
    view->links = mem_calloc(n, sizeof(struct ArrowArray *));
}

static void view_deinit(struct column_view *view)
{
    mem_free(view->arrays);
    mem_free((void *)view->buffers);
    mem_free((void *)view->links);
}

/* ---- opening and closing ---- */

static enum err check_options(const struct ArrowSchema *schema, const struct scatter_options *options,
                              size_t *out_width, struct error *e)
{
    if (options->n_partitions == 0 || options->n_partitions > LIMIT_PARTITIONS) {
        return error_set(e, ERR_INVALID, "%" PRIu32 " partitions are not possible, but 1 to %d are",
                         options->n_partitions, LIMIT_PARTITIONS);
    }
    if (options->mode != SCATTER_COLUMN) {
        return ERR_OK;
    }
    if (options->column >= schema->n_children) {
        return error_set(e, ERR_INVALID, "there is no column %" PRIu32 " with the numbers of partitions",
                         options->column);
    }
    const char *format = schema->children[options->column]->format;
    if (strlen(format) != 1 || strchr("iIlL", format[0]) == NULL) {
        return error_set(e, ERR_INVALID, "the numbers of partitions must be INTEGER or BIGINT, not '%.100s'", format);
    }
    *out_width = strchr("iI", format[0]) != NULL ? 4 : 8;
    return ERR_OK;
}

static void set_bounds(struct scatter_options *options)
{
    size_t held = options->held_bytes_max == 0 ? SCATTER_HELD_BYTES : options->held_bytes_max;
    size_t fair = held / options->n_partitions;
    options->rows_max = options->rows_max == 0 ? SCATTER_BATCH_ROWS : options->rows_max;
    options->bytes_max = options->bytes_max == 0 ? SCATTER_BATCH_BYTES : options->bytes_max;
    if (fair < options->bytes_max) {
        options->bytes_max = fair < BATCH_BYTES_MIN ? BATCH_BYTES_MIN : fair;
    }
}

enum err scatter_open(const struct ArrowSchema *schema, const struct scatter_options *options, scatter_emit_fn *emit,
                      void *context, struct scatter **out, struct error *e)
{
    struct ArrowSchema kept = {0};
    struct scatter *scatter = mem_calloc(1, sizeof(*scatter));
    enum err err = check_options(schema, options, &scatter->column_width, e);
    if (err == ERR_OK && options->mode == SCATTER_COLUMN) {
        schema_copy_without(schema, options->column, &kept);
        err = layout_new(&kept, &scatter->layout, &scatter->n_dictionaries, e);
        schema_release(&kept);
    } else if (err == ERR_OK) {
        err = layout_new(schema, &scatter->layout, &scatter->n_dictionaries, e);
    }
    if (err != ERR_OK) {
        scatter_close(scatter);
        return err;
    }
    scatter->options = *options;
    scatter->emit = emit;
    scatter->context = context;
    set_bounds(&scatter->options);
    scatter->dictionaries = mem_calloc(scatter->n_dictionaries, sizeof(*scatter->dictionaries));
    scatter->partitions = mem_calloc(options->n_partitions, sizeof(*scatter->partitions));
    scatter->starts = mem_calloc((size_t)options->n_partitions + 1, sizeof(*scatter->starts));
    scatter->root_children = mem_calloc(scatter->layout->n_children, sizeof(struct ArrowArray *));
    view_init(&scatter->view, scatter->layout);
    *out = scatter;
    return ERR_OK;
}

static void dictionary_deinit(struct dictionary *dictionary)
{
    if (dictionary->is_there) {
        column_deinit(&dictionary->values);
        view_deinit(&dictionary->memory);
    }
}

void scatter_close(struct scatter *scatter)
{
    if (scatter == NULL) {
        return;
    }
    for (uint32_t i = 0; scatter->partitions != NULL && i < scatter->options.n_partitions; i++) {
        struct column *columns = scatter->partitions[i].columns;
        for (uint32_t k = 0; columns != NULL && k < scatter->layout->n_children; k++) {
            column_deinit(&columns[k]);
        }
        mem_free(columns);
    }
    for (uint32_t i = 0; scatter->dictionaries != NULL && i < scatter->n_dictionaries; i++) {
        dictionary_deinit(&scatter->dictionaries[i]);
    }
    view_deinit(&scatter->view);
    layout_free(scatter->layout);
    mem_free(scatter->dictionaries);
    mem_free(scatter->partitions);
    mem_free(scatter->starts);
    mem_free((void *)scatter->root_children);
    mem_free(scatter);
}

/* ---- emitting ---- */

/* Gives every array its dictionary. */
static void attach(const struct scatter *scatter, const struct layout *layout, struct ArrowArray *array)
{
    for (uint32_t i = 0; i < layout->n_children; i++) {
        attach(scatter, &layout->children[i], array->children[i]);
    }
    if (layout->dictionary != NULL) {
        array->dictionary = scatter->dictionaries[layout->dictionary_id].view;
    }
}

static enum err flush(struct scatter *scatter, uint32_t number, struct error *e)
{
    struct partition *partition = &scatter->partitions[number];
    const struct layout *layout = scatter->layout;
    const void *no_validity[1] = {NULL};
    if (partition->columns == NULL || partition->columns[0].length == 0) {
        return ERR_OK;
    }
    scatter->view.n = 0;
    scatter->view.n_links = 0;
    for (uint32_t i = 0; i < layout->n_children; i++) {
        scatter->root_children[i] = column_view(&partition->columns[i], &scatter->view);
        if (scatter->n_dictionaries > 0) {
            attach(scatter, &layout->children[i], scatter->root_children[i]);
        }
    }
    struct ArrowArray root = {.length = (int64_t)partition->columns[0].length,
                              .n_buffers = 1,
                              .n_children = layout->n_children,
                              .buffers = no_validity,
                              .children = scatter->root_children};
    enum err err = scatter->emit(scatter->context, number, &root, e);
    for (uint32_t i = 0; i < layout->n_children; i++) {
        column_reset(&partition->columns[i]);
    }
    partition->load = 0;
    return err;
}

enum err scatter_finish(struct scatter *scatter, struct error *e)
{
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < scatter->options.n_partitions && err == ERR_OK; i++) {
        err = flush(scatter, i, e);
    }
    return err;
}

/* ---- dictionaries ---- */

static bool is_same_bytes(const struct column_bytes *a, const struct column_bytes *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->p, b->p, a->n) == 0);
}

static bool is_same_column(const struct column *a, const struct column *b)
{
    bool is_same = a->length == b->length && is_same_bytes(&a->validity, &b->validity) &&
                   is_same_bytes(&a->values, &b->values) && is_same_bytes(&a->bytes, &b->bytes);
    for (uint32_t i = 0; i < a->layout->n_children && is_same; i++) {
        is_same = is_same_column(&a->children[i], &b->children[i]);
    }
    return is_same;
}

/* Rows that wait refer to the dictionary that they came with, so they leave before another takes its place. */
static enum err note_dictionary(struct scatter *scatter, const struct layout *layout, const struct ArrowArray *array,
                                struct error *e)
{
    struct dictionary *dictionary = &scatter->dictionaries[layout->dictionary_id];
    struct column values;
    column_init(&values, layout->dictionary);
    column_append(&values, array, (struct column_pick){.n = (uint32_t)array->length});
    if (dictionary->is_there && is_same_column(&dictionary->values, &values)) {
        column_deinit(&values);
        return ERR_OK;
    }
    enum err err = dictionary->is_there ? scatter_finish(scatter, e) : ERR_OK;
    dictionary_deinit(dictionary);
    *dictionary = (struct dictionary){.values = values, .is_there = true};
    view_init(&dictionary->memory, layout->dictionary);
    dictionary->view = column_view(&dictionary->values, &dictionary->memory);
    return err;
}

static enum err note_dictionaries(struct scatter *scatter, const struct layout *layout, const struct ArrowArray *array,
                                  struct error *e)
{
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < layout->n_children && err == ERR_OK; i++) {
        err = note_dictionaries(scatter, &layout->children[i], array->children[i], e);
    }
    if (err == ERR_OK && layout->dictionary != NULL) {
        err = note_dictionaries(scatter, layout->dictionary, array->dictionary, e);
        if (err == ERR_OK) {
            err = note_dictionary(scatter, layout, array->dictionary, e);
        }
        if (err == ERR_OK) {
            attach(scatter, layout->dictionary, scatter->dictionaries[layout->dictionary_id].view);
        }
    }
    return err;
}

/* ---- appending ---- */

/* Which child of the input is column `i`. */
static uint32_t child_of(const struct scatter *scatter, uint32_t i)
{
    return scatter->options.mode == SCATTER_COLUMN && i >= scatter->options.column ? i + 1 : i;
}

/*
 * How many bytes and values rows have that are not the same for each row: a bound for every offset that they can lead
 * to. UINT64_MAX if there are more values than can be counted in 32 bits, or one text that is too long for its offset.
 */
static uint64_t measure(const struct layout *layout, const struct ArrowArray *array, uint64_t start, uint64_t n)
{
    uint64_t total = n;
    uint64_t first = start + (uint64_t)array->offset;
    uint64_t end = first + n;
    if (n == 0) {
        return 0;
    }
    if (layout->kind == LAYOUT_BYTES && array->n_buffers == 2) {
        uint64_t bytes = column_text_bytes(array, first, n);
        return n == 1 && bytes >= INT32_MAX ? UINT64_MAX : n + bytes;
    }
    if (layout->kind == LAYOUT_BYTES || layout->kind == LAYOUT_LIST) {
        const int32_t *offsets = array->buffers[1];
        end = (uint64_t)offsets[end];
        first = (uint64_t)offsets[first];
    } else if (layout->kind == LAYOUT_BYTES64 || layout->kind == LAYOUT_LIST64) {
        const int64_t *offsets = array->buffers[1];
        end = (uint64_t)offsets[end];
        first = (uint64_t)offsets[first];
    } else if (layout->kind == LAYOUT_FIXED_LIST) {
        end *= layout->width;
        first *= layout->width;
    }
    total += end - first;
    bool is_too_much = end > UINT32_MAX && layout->kind != LAYOUT_BYTES64;
    for (uint32_t i = 0; i < layout->n_children && !is_too_much; i++) {
        uint64_t inner = measure(&layout->children[i], array->children[i], first, end - first);
        is_too_much = inner == UINT64_MAX;
        total += inner;
    }
    return is_too_much ? UINT64_MAX : total;
}

static enum err append_pick(struct scatter *scatter, const struct ArrowArray *batch, uint32_t number,
                            struct column_pick pick, uint64_t load, struct error *e)
{
    struct partition *partition = &scatter->partitions[number];
    const struct layout *layout = scatter->layout;
    enum err err = ERR_OK;
    size_t bytes = 0;
    if (partition->columns == NULL) {
        partition->columns = mem_calloc(layout->n_children, sizeof(*partition->columns));
        for (uint32_t i = 0; i < layout->n_children; i++) {
            column_init(&partition->columns[i], &layout->children[i]);
        }
    }
    if (partition->columns[0].length + pick.n > scatter->options.rows_max || partition->load + load > INT32_MAX) {
        err = flush(scatter, number, e);
    }
    for (uint32_t i = 0; i < layout->n_children && err == ERR_OK; i++) {
        column_append(&partition->columns[i], batch->children[child_of(scatter, i)], pick);
        bytes += column_bytes_used(&partition->columns[i]);
    }
    partition->load += load;
    if (err == ERR_OK && bytes >= scatter->options.bytes_max) {
        err = flush(scatter, number, e);
    }
    return err;
}

/* The numbers of the stride's partitions, checked, and how many rows each gets. */
static enum err read_numbers(struct scatter *scatter, const struct ArrowArray *column, size_t start, uint32_t n,
                             struct error *e)
{
    size_t first = (size_t)column->offset + start;
    uint32_t n_partitions = scatter->options.n_partitions;
    const uint8_t *validity = column->buffers[0];
    uint64_t largest = 0;
    if (validity != NULL && column->null_count != 0 && bits_count(validity, first, n) != n) {
        return error_set(e, ERR_INVALID, "the number of a row's partition is NULL");
    }
    for (uint32_t i = 0; i < n; i++) { /* one that is negative is too large as well */
        uint64_t number = scatter->column_width == 4 ? ((const uint32_t *)column->buffers[1])[first + i]
                                                     : ((const uint64_t *)column->buffers[1])[first + i];
        largest = number > largest ? number : largest;
        scatter->numbers[i] = (uint32_t)number;
    }
    if (largest >= n_partitions) {
        return error_set(e, ERR_INVALID, "a row is for partition %" PRIu64 ", but there are %" PRIu32, largest,
                         n_partitions);
    }
    return ERR_OK;
}

/* Puts the rows in the order of their partitions, by counting. */
static void sort_rows(struct scatter *scatter, size_t start, uint32_t n)
{
    uint32_t n_partitions = scatter->options.n_partitions;
    uint32_t *starts = scatter->starts;
    memset(starts, 0, ((size_t)n_partitions + 1) * sizeof(*starts));
    for (uint32_t i = 0; i < n; i++) {
        starts[scatter->numbers[i] + 1]++;
    }
    for (uint32_t p = 0; p < n_partitions; p++) {
        starts[p + 1] += starts[p];
    }
    for (uint32_t i = 0; i < n; i++) {
        scatter->order[starts[scatter->numbers[i]]++] = (uint32_t)start + i;
    }
    memmove(starts + 1, starts, n_partitions * sizeof(*starts)); /* each is now where the next begins */
    starts[0] = 0;
}

static enum err append_stride(struct scatter *scatter, const struct ArrowArray *batch, size_t start, uint32_t n,
                              struct error *e)
{
    const struct scatter_options *options = &scatter->options;
    uint64_t load = 0;
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < scatter->layout->n_children; i++) {
        uint64_t some = measure(&scatter->layout->children[i], batch->children[child_of(scatter, i)], start, n);
        if (some == UINT64_MAX) {
            return error_set(e, ERR_EXHAUSTED,
                             "an Arrow batch has more than 2^32 nested values, or a text of 2 GB or more");
        }
        load += some;
    }
    if (load > STRIDE_BYTES && n > 1) {
        err = append_stride(scatter, batch, start, n / 2, e);
        return err == ERR_OK ? append_stride(scatter, batch, start + n / 2, n - n / 2, e) : err;
    }
    if (options->mode != SCATTER_COLUMN) {
        struct column_pick pick = {.start = (uint32_t)start, .n = n};
        uint32_t number = options->mode == SCATTER_DEAL ? scatter->next++ % options->n_partitions : 0;
        return append_pick(scatter, batch, number, pick, load, e);
    }
    err = read_numbers(scatter, batch->children[options->column], start, n, e);
    if (err != ERR_OK) {
        return err;
    }
    sort_rows(scatter, start, n);
    for (uint32_t p = 0; p < options->n_partitions && err == ERR_OK; p++) {
        struct column_pick pick = {.rows = scatter->order + scatter->starts[p],
                                   .n = scatter->starts[p + 1] - scatter->starts[p]};
        if (pick.n > 0) {
            err = append_pick(scatter, batch, p, pick, load, e);
        }
    }
    return err;
}

enum err scatter_append(struct scatter *scatter, const struct ArrowArray *batch, struct error *e)
{
    uint32_t stride = scatter->options.rows_max < STRIDE_ROWS ? scatter->options.rows_max : STRIDE_ROWS;
    int64_t extra = scatter->options.mode == SCATTER_COLUMN ? 1 : 0;
    enum err err = ERR_OK;
    if (batch->n_children != scatter->layout->n_children + extra || batch->length < 0 || batch->offset < 0 ||
        batch->length > LIMIT_ARROW_ROWS - batch->offset || scatter->layout->n_children == 0) {
        return error_set(e, ERR_INVALID, "an Arrow batch of %" PRId64 " rows and %" PRId64 " columns cannot be split",
                         batch->length, batch->n_children);
    }
    for (uint32_t i = 0; i < scatter->layout->n_children && scatter->n_dictionaries > 0 && err == ERR_OK; i++) {
        err = note_dictionaries(scatter, &scatter->layout->children[i], batch->children[child_of(scatter, i)], e);
    }
    for (int64_t done = 0; done < batch->length && err == ERR_OK; done += stride) {
        int64_t left = batch->length - done;
        err = append_stride(scatter, batch, (size_t)(batch->offset + done), left < stride ? (uint32_t)left : stride, e);
    }
    return err;
}
