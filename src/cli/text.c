#include "cli/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/utf8.h"

void text_duration(struct buf *out, int64_t ms)
{
    int64_t s = ms / 1000;
    if (ms < 1000) {
        buf_format(out, "%" PRId64 " ms", ms > 0 ? ms : 0);
    } else if (s < 60) {
        buf_format(out, "%" PRId64 ".%" PRId64 " s", s, ms % 1000 / 100);
    } else if (s < 3600) {
        buf_format(out, "%" PRId64 " min %02" PRId64 " s", s / 60, s % 60);
    } else if (s < 86400) {
        buf_format(out, "%" PRId64 " h %02" PRId64 " min", s / 3600, s / 60 % 60);
    } else {
        buf_format(out, "%" PRId64 " d %" PRId64 " h", s / 86400, s / 3600 % 24);
    }
}

void text_size(struct buf *out, uint64_t bytes)
{
    static const char *const units[] = {"KB", "MB", "GB", "TB", "PB", "EB"};
    if (bytes < 1000) {
        buf_format(out, "%" PRIu64 " B", bytes);
        return;
    }
    size_t unit = 0;
    double value = (double)bytes / 1000;
    /* 999.95 would be written as 1000.0. */
    while (value >= 999.95 && unit + 1 < ARRAY_LEN(units)) {
        value /= 1000;
        unit++;
    }
    buf_format(out, "%.1f %s", value, units[unit]);
}

void text_count(struct buf *out, uint64_t number)
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%" PRIu64, number);
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0) {
            buf_char(out, ',');
        }
        buf_char(out, digits[i]);
    }
}

void text_time(struct buf *out, uint64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm utc;
    char text[40];
    if (ms == 0 || ms / 1000 > INT32_MAX * UINT64_C(100) || gmtime_r(&seconds, &utc) == NULL) {
        buf_char(out, '-');
        return;
    }
    buf_append(out, text, strftime(text, sizeof text, "%Y-%m-%d %H:%M:%SZ", &utc));
}

/* Reads one character. Bytes that are no UTF-8 count as one character each, as U+FFFD. */
static uint32_t next_character(const char **text)
{
    const unsigned char *p = (const unsigned char *)*text;
    size_t n = *p < 0x80 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;
    if (strnlen(*text, n) < n || !utf8_is_valid(*text, n)) {
        *text += 1;
        return 0xfffd;
    }
    uint32_t c = n == 1 ? *p : *p & (0x7fU >> n);
    for (size_t i = 1; i < n; i++) {
        c = c << 6 | (p[i] & 0x3fU);
    }
    *text += n;
    return c;
}

void text_clean(struct buf *out, const char *text)
{
    for (const char *p = text; *p != '\0';) {
        const char *start = p;
        uint32_t c = next_character(&p);
        if (c == '\n') {
            buf_text(out, "\\n");
        } else if (c == '\t') {
            buf_text(out, "\\t");
        } else if (c < 0x20 || (c >= 0x7f && c < 0xa0)) {
            buf_format(out, "\\x%02x", c);
        } else if (c == 0xfffd) {
            buf_char(out, '?');
        } else {
            /* Marks that turn the direction of writing could make a line say something else than it does. */
            bool turns = (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0x2028 || c == 0x2029;
            buf_append(out, turns ? "?" : start, turns ? 1 : (size_t)(p - start));
        }
    }
}

struct range {
    uint32_t first;
    uint32_t last;
};

static bool is_in(const struct range *ranges, size_t n, uint32_t c)
{
    for (size_t i = 0; i < n; i++) {
        if (c >= ranges[i].first && c <= ranges[i].last) {
            return true;
        }
    }
    return false;
}

static size_t character_width(uint32_t c)
{
    static const struct range zero[] = {{0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},   {0x610, 0x61a},
                                        {0x64b, 0x65f},   {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x200b, 0x200f},
                                        {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}};
    static const struct range wide[] = {{0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0xa4cf},   {0xac00, 0xd7a3},
                                        {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},
                                        {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};
    if (c < 0x300) {
        return 1;
    }
    return is_in(zero, ARRAY_LEN(zero), c) ? 0 : is_in(wide, ARRAY_LEN(wide), c) ? 2 : 1;
}

size_t text_width(const char *text)
{
    size_t width = 0;
    for (const char *p = text; *p != '\0';) {
        width += character_width(next_character(&p));
    }
    return width;
}

void text_clip(struct buf *out, const char *text, size_t width)
{
    if (text_width(text) <= width) {
        buf_text(out, text);
        return;
    }
    size_t used = 1; /* the ellipsis */
    const char *p = text;
    while (width > 0) {
        const char *start = p;
        used += character_width(next_character(&p));
        if (used > width) {
            buf_text(out, "\xe2\x80\xa6");
            return;
        }
        buf_append(out, start, (size_t)(p - start));
    }
}

void table_init(struct table *table, const char *const *headings, uint32_t n_columns, uint32_t right)
{
    ASSERT(n_columns > 0);
    ASSERT(n_columns <= TABLE_COLUMNS_MAX);
    *table = (struct table){.headings = headings, .n_columns = n_columns, .right = right};
}

void table_deinit(struct table *table)
{
    for (uint32_t i = 0; i < table->n_cells; i++) {
        mem_free(table->cells[i]);
    }
    mem_free(table->cells);
    *table = (struct table){0};
}

void table_buf(struct table *table, struct buf *text)
{
    table_cell(table, text->data == NULL ? "" : text->data);
    buf_reset(text);
}

void table_cell(struct table *table, const char *text)
{
    struct buf cleaned = {0};
    text_clean(&cleaned, text == NULL ? "" : text);
    if (cleaned.n == 0) {
        buf_char(&cleaned, '-');
    }
    table->cells = mem_grow(table->cells, &table->cap, table->n_cells + 1, sizeof *table->cells);
    table->cells[table->n_cells++] = cleaned.data;
}

void table_format(struct table *table, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    table_cell(table, text);
}

static void pad(FILE *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        fputc(' ', out);
    }
}

static void print_row(const struct table *table, FILE *out, const char *const *cells, const size_t *widths,
                      size_t width)
{
    size_t used = 0;
    for (uint32_t i = 0; i < table->n_columns; i++) {
        bool is_last = i + 1 == table->n_columns;
        bool is_right = (table->right >> i & 1) != 0;
        size_t gap = widths[i] - text_width(cells[i]);
        pad(out, is_right ? gap : 0);
        if (is_last && !is_right && width > used + 8) {
            struct buf cut = {0};
            text_clip(&cut, cells[i], width - used);
            fputs(cut.data, out);
            buf_deinit(&cut);
        } else {
            fputs(cells[i], out);
        }
        pad(out, is_last ? 0 : 2 + (is_right ? 0 : gap));
        used += widths[i] + 2;
    }
}

void table_print(const struct table *table, FILE *out, struct table_style style)
{
    size_t widths[TABLE_COLUMNS_MAX] = {0};
    ASSERT(table->n_cells % table->n_columns == 0);
    for (uint32_t i = 0; i < table->n_columns; i++) {
        widths[i] = text_width(table->headings[i]);
    }
    for (uint32_t i = 0; i < table->n_cells; i++) {
        size_t width = text_width(table->cells[i]);
        size_t *widest = &widths[i % table->n_columns];
        *widest = width > *widest ? width : *widest;
    }
    fputs(style.bold_headings ? "\033[1m" : "", out);
    print_row(table, out, table->headings, widths, style.width);
    fputs(style.bold_headings ? "\033[0m\n" : "\n", out);
    for (uint32_t i = 0; i < table->n_cells; i += table->n_columns) {
        print_row(table, out, (const char *const *)&table->cells[i], widths, style.width);
        fputc('\n', out);
    }
}
