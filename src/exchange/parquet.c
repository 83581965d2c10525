/*
 * parquet.c - a file is "PAR1", row groups, a table of contents, its length, "PAR1".
 *
 * The table and the heads of pages are in Thrift's compact protocol: a struct is fields, each with the distance of its
 * number from the one before and its type in one byte, and a zero at the end; numbers are zigzag varints. The numbers of
 * fields, types and encodings are those of parquet.thrift.
 */
#include "exchange/parquet.h"

#include <lz4.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "exchange/bits.h"
#include "exchange/columns.h"

#define MAGIC "PAR1"
#define CREATOR "capstan"
#define ENCODING_PLAIN 0
#define ENCODING_RLE 3
#define CODEC_NONE 0
#define CODEC_LZ4_RAW 7
#define CONVERTED_NONE (-1)
#define PAGE_BYTES_MAX ((size_t)1 << 30)

enum physical {
    PHYSICAL_BOOLEAN = 0,
    PHYSICAL_INT32 = 1,
    PHYSICAL_INT64 = 2,
    PHYSICAL_FLOAT = 4,
    PHYSICAL_DOUBLE = 5,
    PHYSICAL_BYTES = 6,
    PHYSICAL_FIXED = 7,
};

/* How values are taken out of an Arrow array. */
enum source {
    SOURCE_TEXT, /* as text_cell writes them */
    SOURCE_BITS,
    SOURCE_NUMBER, /* of `width` bytes, which become `wide` ones */
    SOURCE_DECIMAL,
    SOURCE_BYTES, /* with offsets of `width` bytes */
};

struct kind {
    const char *format;
    enum physical physical;
    int converted; /* ConvertedType */
    enum source source;
    uint8_t width;
    bool is_signed;
};

static const struct kind kinds[] = {
    {"b", PHYSICAL_BOOLEAN, CONVERTED_NONE, SOURCE_BITS, 0, false},
    {"c", PHYSICAL_INT32, 15, SOURCE_NUMBER, 1, true},
    {"C", PHYSICAL_INT32, 11, SOURCE_NUMBER, 1, false},
    {"s", PHYSICAL_INT32, 16, SOURCE_NUMBER, 2, true},
    {"S", PHYSICAL_INT32, 12, SOURCE_NUMBER, 2, false},
    {"i", PHYSICAL_INT32, 17, SOURCE_NUMBER, 4, true},
    {"I", PHYSICAL_INT32, 13, SOURCE_NUMBER, 4, false},
    {"l", PHYSICAL_INT64, 18, SOURCE_NUMBER, 8, true},
    {"L", PHYSICAL_INT64, 14, SOURCE_NUMBER, 8, false},
    {"f", PHYSICAL_FLOAT, CONVERTED_NONE, SOURCE_NUMBER, 4, false},
    {"g", PHYSICAL_DOUBLE, CONVERTED_NONE, SOURCE_NUMBER, 8, false},
    {"u", PHYSICAL_BYTES, 0, SOURCE_BYTES, 4, false},
    {"U", PHYSICAL_BYTES, 0, SOURCE_BYTES, 8, false},
    {"z", PHYSICAL_BYTES, CONVERTED_NONE, SOURCE_BYTES, 4, false},
    {"Z", PHYSICAL_BYTES, CONVERTED_NONE, SOURCE_BYTES, 8, false},
    {"tdD", PHYSICAL_INT32, 6, SOURCE_NUMBER, 4, true},
    {"ttu", PHYSICAL_INT64, 8, SOURCE_NUMBER, 8, true},
};
static const struct kind kind_text = {"", PHYSICAL_BYTES, 0, SOURCE_TEXT, 0, false};
static const struct kind kind_decimal = {"", PHYSICAL_FIXED, 5, SOURCE_DECIMAL, 16, false};
static const struct kind kind_timestamp = {"", PHYSICAL_INT64, CONVERTED_NONE, SOURCE_NUMBER, 8, true};

struct parquet_column {
    struct kind kind;
    int scale; /* of decimals */
    int precision;
    int unit; /* of timestamps: 1 milliseconds, 2 microseconds, 3 nanoseconds; 0: it is none */
    bool has_zone;
};

struct parquet_file {
    struct columns columns; /* names, and texts */
    struct parquet_column *kinds;
    uint64_t offset; /* of the next byte of the file */
    uint64_t n_rows;
    uint32_t n_groups;
    struct buf groups; /* their entries in the table of contents */
    struct buf page;   /* of the column that is being written */
    struct buf cell;
};

/* ---- Thrift ---- */

enum {
    THRIFT_TRUE = 1,
    THRIFT_FALSE = 2,
    THRIFT_I32 = 5,
    THRIFT_I64 = 6,
    THRIFT_BINARY = 8,
    THRIFT_LIST = 9,
    THRIFT_STRUCT = 12
};

static void put_varint(struct buf *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) {
        buf_char(out, (char)(value | 0x80));
    }
    buf_char(out, (char)value);
}

/* The head of field `id`; `last` is the number of the one before it in the same struct. */
static void put_field(struct buf *out, int *last, int id, int type)
{
    ASSERT(id > *last && id - *last < 16);
    buf_char(out, (char)((id - *last) << 4 | type));
    *last = id;
}

static void put_number(struct buf *out, int *last, int id, int type, int64_t value)
{
    put_field(out, last, id, type);
    put_varint(out, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

static void put_bytes(struct buf *out, const char *text)
{
    put_varint(out, strlen(text));
    buf_text(out, text);
}

static void put_list(struct buf *out, int *last, int id, int type, uint32_t n)
{
    put_field(out, last, id, THRIFT_LIST);
    if (n < 15) {
        buf_char(out, (char)(n << 4 | (uint32_t)type));
    } else {
        buf_char(out, (char)(0xf0 | type));
        put_varint(out, n);
    }
}

static void put_end(struct buf *out)
{
    buf_char(out, 0);
}

/* ---- types ---- */

static bool parse_decimal(const char *format, struct parquet_column *column)
{
    char *end = NULL;
    if (strncmp(format, "d:", 2) != 0) {
        return false;
    }
    long precision = strtol(format + 2, &end, 10);
    long scale = *end == ',' ? strtol(end + 1, &end, 10) : -1;
    /* A third number would be a width other than 128 bits. */
    if (*end != '\0' || precision < 1 || precision > 38 || scale < 0 || scale > precision) {
        return false;
    }
    column->precision = (int)precision;
    column->scale = (int)scale;
    column->kind = kind_decimal;
    return true;
}

static bool parse_timestamp(const char *format, struct parquet_column *column)
{
    static const char units[] = "smun";
    const char *unit = strncmp(format, "ts", 2) == 0 && format[2] != '\0' ? strchr(units, format[2]) : NULL;
    if (unit == NULL || *unit == 's' || format[3] != ':') {
        return false; /* Parquet has no seconds: a text is better than a number that nobody expects */
    }
    column->kind = kind_timestamp;
    column->unit = (int)(unit - units);
    column->has_zone = format[4] != '\0';
    return true;
}

/* Types that Arrow lacks travel as others, and say so in their metadata: these become texts. */
static bool is_extension(const struct ArrowSchema *schema)
{
    return schema->metadata != NULL;
}

static struct parquet_column column_of(const struct ArrowSchema *schema)
{
    struct parquet_column column = {.kind = kind_text};
    bool is_text = strcmp(schema->format, "u") == 0 || strcmp(schema->format, "U") == 0;
    if (schema->dictionary != NULL || (is_extension(schema) && !is_text)) {
        return column;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].format, schema->format) == 0) {
            column.kind = kinds[i];
            return column;
        }
    }
    if (!parse_decimal(schema->format, &column)) {
        (void)parse_timestamp(schema->format, &column);
    }
    return column;
}

static void put_timestamp_type(struct buf *out, const struct parquet_column *column)
{
    int in_type = 0;
    int in_stamp = 0;
    int in_unit = 0;
    put_field(out, &in_type, 8, THRIFT_STRUCT); /* LogicalType.TIMESTAMP */
    put_field(out, &in_stamp, 1, column->has_zone ? THRIFT_TRUE : THRIFT_FALSE);
    put_field(out, &in_stamp, 2, THRIFT_STRUCT);
    put_field(out, &in_unit, column->unit, THRIFT_STRUCT);
    put_end(out); /* of the unit itself, which is empty */
    put_end(out);
    put_end(out);
    put_end(out);
}

static void put_schema_column(struct buf *out, const struct parquet_column *column, const char *name)
{
    int last = 0;
    put_number(out, &last, 1, THRIFT_I32, (int64_t)column->kind.physical);
    if (column->kind.physical == PHYSICAL_FIXED) {
        put_number(out, &last, 2, THRIFT_I32, column->kind.width);
    }
    put_number(out, &last, 3, THRIFT_I32, 1); /* optional */
    put_field(out, &last, 4, THRIFT_BINARY);
    put_bytes(out, name);
    if (column->kind.converted != CONVERTED_NONE) {
        put_number(out, &last, 6, THRIFT_I32, column->kind.converted);
    }
    if (column->kind.source == SOURCE_DECIMAL) {
        put_number(out, &last, 7, THRIFT_I32, column->scale);
        put_number(out, &last, 8, THRIFT_I32, column->precision);
    }
    if (column->unit > 0) {
        put_field(out, &last, 10, THRIFT_STRUCT);
        put_timestamp_type(out, column);
    }
    put_end(out);
}

/* ---- values ---- */

/* Rows of one column of a batch: the array, and where they begin in its buffers. */
struct stretch {
    const struct ArrowArray *array;
    size_t start;
    size_t n;
};

static bool is_there(const struct stretch *rows, size_t i)
{
    const uint8_t *validity = rows->array->n_buffers > 0 ? rows->array->buffers[0] : NULL;
    return validity == NULL || bits_get(validity, rows->start + i);
}

/* Which rows have a value: one bit each, as a run of bits, or as one run of ones. */
static void put_levels(const struct stretch *rows, const uint8_t *bits, bool has_nulls, struct buf *out)
{
    size_t at = out->n;
    uint32_t n = 0;
    buf_append(out, &n, sizeof n);
    if (has_nulls) {
        put_varint(out, (uint64_t)bits_bytes(rows->n) << 1 | 1);
        buf_append(out, bits, bits_bytes(rows->n));
    } else {
        put_varint(out, (uint64_t)rows->n << 1);
        buf_char(out, 1);
    }
    n = (uint32_t)(out->n - at - sizeof n);
    memcpy(out->data + at, &n, sizeof n); /* little-endian, as the machine */
}

static void put_bit_values(const struct stretch *rows, struct buf *out)
{
    const uint8_t *data = rows->array->buffers[1];
    uint8_t byte = 0;
    size_t n = 0;
    for (size_t i = 0; i < rows->n; i++) {
        if (is_there(rows, i)) {
            byte = (uint8_t)(byte | (unsigned)bits_get(data, rows->start + i) << n % 8);
            if (++n % 8 == 0) {
                buf_char(out, (char)byte);
                byte = 0;
            }
        }
    }
    if (n % 8 != 0) {
        buf_char(out, (char)byte);
    }
}

static void put_number_values(const struct stretch *rows, const struct kind *kind, bool has_nulls, struct buf *out)
{
    const uint8_t *data = (const uint8_t *)rows->array->buffers[1] + rows->start * kind->width;
    if (!has_nulls && kind->width >= 4) {
        buf_append(out, data, rows->n * kind->width);
        return;
    }
    for (size_t i = 0; i < rows->n; i++) {
        const uint8_t *value = data + i * kind->width;
        if (!is_there(rows, i)) {
            continue;
        }
        if (kind->width >= 4) {
            buf_append(out, value, kind->width);
        } else {
            bool is_negative = kind->is_signed && (value[kind->width - 1] & 0x80) != 0;
            uint8_t wide[4];
            memset(wide, is_negative ? 0xff : 0, sizeof wide);
            memcpy(wide, value, kind->width);
            buf_append(out, wide, sizeof wide);
        }
    }
}

/* Arrow's are little-endian, Parquet's big-endian. */
static void put_decimal_values(const struct stretch *rows, struct buf *out)
{
    const uint8_t *data = (const uint8_t *)rows->array->buffers[1] + rows->start * kind_decimal.width;
    for (size_t i = 0; i < rows->n; i++) {
        uint8_t turned[16];
        for (size_t k = 0; k < sizeof turned; k++) {
            turned[k] = data[i * sizeof turned + sizeof turned - 1 - k];
        }
        if (is_there(rows, i)) {
            buf_append(out, turned, sizeof turned);
        }
    }
}

static void put_one_text(struct buf *out, const void *bytes, size_t n)
{
    uint32_t length = (uint32_t)n;
    buf_append(out, &length, sizeof length);
    buf_append(out, bytes, n);
}

static void put_byte_values(const struct stretch *rows, uint8_t width, struct buf *out)
{
    const char *data = rows->array->buffers[2];
    for (size_t i = 0; i < rows->n; i++) {
        size_t at = rows->start + i;
        size_t from = width == 4 ? (size_t)((const int32_t *)rows->array->buffers[1])[at]
                                 : (size_t)((const int64_t *)rows->array->buffers[1])[at];
        size_t to = width == 4 ? (size_t)((const int32_t *)rows->array->buffers[1])[at + 1]
                               : (size_t)((const int64_t *)rows->array->buffers[1])[at + 1];
        if (is_there(rows, i)) {
            put_one_text(out, to > from ? data + from : "", to - from);
        }
    }
}

/* The texts come first, because only they say which of them are NULL. */
static void put_text_page(struct parquet_file *file, uint32_t column, const struct ArrowArray *batch, int64_t at,
                          const struct stretch *rows, struct buf *out)
{
    struct buf values = {0};
    uint8_t *bits = mem_calloc(1, bits_bytes(rows->n) + 1);
    size_t n_there = 0;
    for (size_t i = 0; i < rows->n; i++) {
        buf_reset(&file->cell);
        if (columns_text(&file->columns, batch, column, at + (int64_t)i, &file->cell)) {
            bits_set(bits, i);
            put_one_text(&values, file->cell.data, file->cell.n);
            n_there++;
        }
    }
    put_levels(rows, bits, n_there < rows->n, out);
    buf_append(out, values.data, values.n);
    buf_deinit(&values);
    mem_free(bits);
}

static void put_native_page(const struct kind *kind, const struct stretch *rows, struct buf *out)
{
    const uint8_t *validity = rows->array->buffers[0];
    bool has_nulls = validity != NULL && bits_count(validity, rows->start, rows->n) < rows->n;
    uint8_t *bits = has_nulls ? mem_calloc(1, bits_bytes(rows->n) + 1) : NULL;
    if (has_nulls) {
        bits_copy(validity, rows->start, rows->n, bits);
    }
    put_levels(rows, bits, has_nulls, out);
    mem_free(bits);
    switch (kind->source) {
    case SOURCE_BITS:
        put_bit_values(rows, out);
        break;
    case SOURCE_NUMBER:
        put_number_values(rows, kind, has_nulls, out);
        break;
    case SOURCE_DECIMAL:
        put_decimal_values(rows, out);
        break;
    case SOURCE_BYTES:
        put_byte_values(rows, kind->width, out);
        break;
    case SOURCE_TEXT:
        ASSERT(kind->source != SOURCE_TEXT); /* put_text_page writes these */
        break;
    }
}

/* ---- row groups ---- */

static void put_page_head(struct buf *out, size_t n_page, size_t n_packed, size_t n_values)
{
    int last = 0;
    int in_data = 0;
    put_number(out, &last, 1, THRIFT_I32, 0); /* a data page */
    put_number(out, &last, 2, THRIFT_I32, (int64_t)n_page);
    put_number(out, &last, 3, THRIFT_I32, (int64_t)n_packed);
    put_field(out, &last, 5, THRIFT_STRUCT);
    put_number(out, &in_data, 1, THRIFT_I32, (int64_t)n_values);
    put_number(out, &in_data, 2, THRIFT_I32, ENCODING_PLAIN);
    put_number(out, &in_data, 3, THRIFT_I32, ENCODING_RLE);
    put_number(out, &in_data, 4, THRIFT_I32, ENCODING_RLE);
    put_end(out);
    put_end(out);
}

struct chunk_place {
    uint64_t offset;
    size_t n_values;
    size_t n_plain; /* bytes, with the head of the page */
    size_t n_packed;
    int codec;
};

static void put_chunk_entry(struct buf *out, const struct parquet_column *column, const char *name,
                            const struct chunk_place *place)
{
    int last = 0;
    int in_meta = 0;
    put_number(out, &last, 2, THRIFT_I64, (int64_t)place->offset);
    put_field(out, &last, 3, THRIFT_STRUCT);
    put_number(out, &in_meta, 1, THRIFT_I32, (int64_t)column->kind.physical);
    put_list(out, &in_meta, 2, THRIFT_I32, 2);
    put_varint(out, ENCODING_PLAIN << 1);
    put_varint(out, ENCODING_RLE << 1);
    put_list(out, &in_meta, 3, THRIFT_BINARY, 1);
    put_bytes(out, name);
    put_number(out, &in_meta, 4, THRIFT_I32, place->codec);
    put_number(out, &in_meta, 5, THRIFT_I64, (int64_t)place->n_values);
    put_number(out, &in_meta, 6, THRIFT_I64, (int64_t)place->n_plain);
    put_number(out, &in_meta, 7, THRIFT_I64, (int64_t)place->n_packed);
    put_number(out, &in_meta, 9, THRIFT_I64, (int64_t)place->offset);
    put_end(out);
    put_end(out);
}

/* Appends the page that has been made, and says where it is. */
static enum err put_page(struct parquet_file *file, size_t n_values, struct buf *bytes, struct chunk_place *out,
                         struct error *e)
{
    struct buf *page = &file->page;
    if (page->n > PAGE_BYTES_MAX) {
        return error_set(e, ERR_EXHAUSTED, "the values of a column take %zu bytes: fetch them with format=arrow",
                         page->n);
    }
    int room = LZ4_compressBound((int)page->n);
    char *packed = mem_alloc((size_t)room);
    int n = LZ4_compress_default(page->data, packed, (int)page->n, room);
    bool is_smaller = n > 0 && (size_t)n < page->n;
    size_t n_packed = is_smaller ? (size_t)n : page->n;
    size_t before = bytes->n;
    put_page_head(bytes, page->n, n_packed, n_values);
    size_t head = bytes->n - before;
    buf_append(bytes, is_smaller ? packed : page->data, n_packed);
    mem_free(packed);
    *out = (struct chunk_place){.offset = file->offset,
                                .n_values = n_values,
                                .n_plain = head + page->n,
                                .n_packed = head + n_packed,
                                .codec = is_smaller ? CODEC_LZ4_RAW : CODEC_NONE};
    file->offset += head + n_packed;
    return ERR_OK;
}

enum err parquet_file_rows(struct parquet_file *file, const struct ArrowArray *batch, int64_t at, int64_t n,
                           struct buf *bytes, struct error *e)
{
    struct buf *out = &file->groups;
    size_t groups_before = out->n;
    int last = 0;
    uint64_t total = 0;
    enum err err = ERR_OK;
    if (n == 0) {
        return ERR_OK;
    }
    put_list(out, &last, 1, THRIFT_STRUCT, file->columns.n);
    for (uint32_t c = 0; c < file->columns.n && err == ERR_OK; c++) {
        const struct ArrowArray *array = batch->children[c];
        struct stretch rows = {array, (size_t)(array->offset + batch->offset + at), (size_t)n};
        struct chunk_place place = {0};
        buf_reset(&file->page);
        if (file->kinds[c].kind.source == SOURCE_TEXT) {
            put_text_page(file, c, batch, at, &rows, &file->page);
        } else {
            put_native_page(&file->kinds[c].kind, &rows, &file->page);
        }
        err = put_page(file, rows.n, bytes, &place, e);
        put_chunk_entry(out, &file->kinds[c], file->columns.columns[c].unique, &place);
        total += place.n_plain;
    }
    if (err != ERR_OK) {
        out->n = groups_before;
        return err;
    }
    put_number(out, &last, 2, THRIFT_I64, (int64_t)total);
    put_number(out, &last, 3, THRIFT_I64, n);
    put_end(out);
    file->n_groups++;
    file->n_rows += (uint64_t)n;
    return ERR_OK;
}

/* ---- beginning and end ---- */

enum err parquet_file_new(const struct ArrowSchema *schema, struct parquet_file **out, struct buf *bytes,
                          struct error *e)
{
    struct parquet_file *file = mem_calloc(1, sizeof *file);
    enum err err = columns_init(&file->columns, schema, e);
    if (err != ERR_OK) {
        mem_free(file);
        return err;
    }
    file->kinds = mem_calloc(file->columns.n + 1, sizeof *file->kinds);
    for (uint32_t i = 0; i < file->columns.n; i++) {
        file->kinds[i] = column_of(schema->children[i]);
    }
    buf_text(bytes, MAGIC);
    file->offset = strlen(MAGIC);
    *out = file;
    return ERR_OK;
}

void parquet_file_free(struct parquet_file *file)
{
    if (file != NULL) {
        columns_deinit(&file->columns);
        mem_free(file->kinds);
        buf_deinit(&file->groups);
        buf_deinit(&file->page);
        buf_deinit(&file->cell);
        mem_free(file);
    }
}

static void put_root(struct buf *out, uint32_t n_columns)
{
    int last = 0;
    put_field(out, &last, 4, THRIFT_BINARY);
    put_bytes(out, "schema");
    put_number(out, &last, 5, THRIFT_I32, n_columns);
    put_end(out);
}

void parquet_file_end(struct parquet_file *file, struct buf *bytes)
{
    size_t before = bytes->n;
    int last = 0;
    put_number(bytes, &last, 1, THRIFT_I32, 1); /* version */
    put_list(bytes, &last, 2, THRIFT_STRUCT, file->columns.n + 1);
    put_root(bytes, file->columns.n);
    for (uint32_t i = 0; i < file->columns.n; i++) {
        put_schema_column(bytes, &file->kinds[i], file->columns.columns[i].unique);
    }
    put_number(bytes, &last, 3, THRIFT_I64, (int64_t)file->n_rows);
    put_list(bytes, &last, 4, THRIFT_STRUCT, file->n_groups);
    buf_append(bytes, file->groups.data, file->groups.n);
    put_field(bytes, &last, 6, THRIFT_BINARY);
    put_bytes(bytes, CREATOR);
    put_end(bytes);
    uint32_t n = (uint32_t)(bytes->n - before);
    buf_append(bytes, &n, sizeof n);
    buf_text(bytes, MAGIC);
}
