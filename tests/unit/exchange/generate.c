#include "generate.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "exchange/bits.h"
#include "exchange/layout.h"
#include "exchange/schema.h"

const char *const generate_formats[] = {
    "n",
    "b",
    "c",
    "C",
    "s",
    "S",
    "i",
    "I",
    "l",
    "L",
    "e",
    "f",
    "g",
    "z",
    "Z",
    "u",
    "U",
    "tdD",
    "tdm",
    "tts",
    "ttm",
    "ttu",
    "ttn",
    "tss:",
    "tsm:",
    "tsu:UTC",
    "tsn:",
    "tDs",
    "tDm",
    "tDu",
    "tDn",
    "tiM",
    "tiD",
    "tin",
    "w:16",
    "w:3",
    "w:1",
    "d:18,3",
    "d:38,0",
    "d:76,10,256",
    "d:9,2,32",
    "d:18,-2,64",
    "tsu:Europe/Berlin",
};
const uint32_t generate_n_formats = ARRAY_LEN(generate_formats);

static void make(struct ArrowSchema *out, const char *format, const char *name, uint32_t n_children,
                 bool has_dictionary)
{
    struct schema_parts parts = {.format = mem_strdup(format),
                                 .name = mem_strdup(name),
                                 .flags = ARROW_FLAG_NULLABLE,
                                 .n_children = n_children,
                                 .has_dictionary = has_dictionary};
    schema_make(out, &parts);
}

/* What DuckDB says about types that Arrow does not have. */
static void add_extension(struct ArrowSchema *schema)
{
    static const char metadata[] = "\2\0\0\0\24\0\0\0ARROW:extension:name\14\0\0\0arrow.opaque"
                                   "\30\0\0\0ARROW:extension:metadata\2\0\0\0{}";
    schema->metadata = mem_copy(metadata, sizeof(metadata) - 1);
}

void generate_flat_schema(const char *format, struct ArrowSchema *out)
{
    make(out, "+s", "", 1, false);
    make(out->children[0], format, "x", 0, false);
    if (strcmp(format, "w:16") == 0) {
        add_extension(out->children[0]);
    }
}

static void generate_field(struct prng *prng, const char *name, uint32_t depth, struct ArrowSchema *out)
{
    static const char *const indices[] = {"c", "C", "s", "S", "i", "I", "l", "L"};
    uint64_t kind = depth == 0 ? 0 : prng_below(prng, 14);
    if (kind == 1) {
        make(out, "+l", name, 1, false);
    } else if (kind == 2) {
        make(out, "+L", name, 1, false);
    } else if (kind == 3) {
        make(out, prng_permille(prng, 100) ? "+w:0" : "+w:3", name, 1, false);
    } else if (kind == 4) {
        make(out, "+s", name, (uint32_t)prng_below(prng, 4), false);
    } else if (kind == 5) {
        make(out, "+us:0,5,2", name, 3, false);
    } else if (kind == 6) {
        make(out, "+m", name, 1, false);
        make(out->children[0], "+s", "entries", 2, false);
        generate_field(prng, "key", 0, out->children[0]->children[0]);
        generate_field(prng, "value", depth - 1, out->children[0]->children[1]);
        return;
    } else if (kind == 7) {
        make(out, indices[prng_below(prng, ARRAY_LEN(indices))], name, 0, true);
        make(out->dictionary, prng_permille(prng, 700) ? "u" : "l", "", 0, false);
    } else {
        make(out, generate_formats[prng_below(prng, generate_n_formats)], name, 0, false);
        if (prng_permille(prng, 200)) {
            add_extension(out);
        }
    }
    for (int64_t i = 0; i < out->n_children; i++) {
        char child[16];
        snprintf(child, sizeof(child), "f%d", (int)i);
        generate_field(prng, child, depth - 1, out->children[i]);
    }
}

void generate_schema(struct prng *prng, uint32_t n_columns, uint32_t depth, struct ArrowSchema *out)
{
    make(out, "+s", "", n_columns, false);
    for (uint32_t i = 0; i < n_columns; i++) {
        char name[16];
        snprintf(name, sizeof(name), "c%u", i);
        generate_field(prng, name, depth, out->children[i]);
    }
}

/* ---- arrays ---- */

static void release(struct ArrowArray *array)
{
    for (int64_t i = 0; i < array->n_buffers; i++) {
        mem_free((void *)array->buffers[i]);
    }
    for (int64_t i = 0; i < array->n_children; i++) {
        if (array->children[i]->release != NULL) {
            array->children[i]->release(array->children[i]);
        }
        mem_free(array->children[i]);
    }
    if (array->dictionary != NULL) {
        array->dictionary->release(array->dictionary);
        mem_free(array->dictionary);
    }
    mem_free((void *)array->buffers);
    mem_free((void *)array->children);
    array->release = NULL;
}

static uint8_t *random_bytes_of(struct prng *prng, size_t n)
{
    uint8_t *bytes = mem_alloc(n + 8);
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = prng_u64(prng);
        memcpy(bytes + i, &word, 8);
    }
    return bytes;
}

/* Texts in which many characters have several bytes. */
static uint8_t *random_text(struct prng *prng, const uint64_t *offsets, size_t n)
{
    static const char *const characters[] = {"a", "Z", " ", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x99\x82"};
    uint8_t *bytes = mem_calloc(offsets[n] + 8, 1);
    memset(bytes, '.', offsets[n]);
    for (size_t i = 0; i < n; i++) {
        for (uint64_t at = offsets[i]; at < offsets[i + 1];) {
            const char *character = characters[prng_below(prng, ARRAY_LEN(characters))];
            if (strlen(character) > offsets[i + 1] - at) {
                character = "x";
            }
            for (const char *p = character; *p != '\0'; p++) {
                bytes[at++] = (uint8_t)*p;
            }
        }
    }
    return bytes;
}

static void fill(struct prng *prng, const struct layout *layout, int64_t n, bool is_awkward, struct ArrowArray *out);

static void fill_validity(struct prng *prng, size_t total, bool is_awkward, struct ArrowArray *out)
{
    uint64_t kind = prng_below(prng, 4);
    if (kind == 0) {
        return;
    }
    uint8_t *bits = mem_calloc(bits_bytes(total) + 8, 1);
    for (size_t i = 0; i < total; i++) {
        if (kind == 1 || prng_permille(prng, 800)) {
            bits_set(bits, i);
        }
    }
    out->buffers[0] = bits;
    out->null_count = out->length - (int64_t)bits_count(bits, (size_t)out->offset, (size_t)out->length);
    out->null_count = is_awkward && prng_permille(prng, 500) ? -1 : out->null_count;
}

static uint64_t *random_offsets(struct prng *prng, size_t total, bool is_awkward, uint64_t longest)
{
    uint64_t *offsets = mem_alloc((total + 1) * sizeof(*offsets));
    offsets[0] = is_awkward ? prng_below(prng, 5) : 0;
    for (size_t i = 0; i < total; i++) {
        offsets[i + 1] = offsets[i] + (prng_permille(prng, 300) ? 0 : prng_below(prng, longest));
    }
    return offsets;
}

static void *narrow(const uint64_t *offsets, size_t n, bool is_wide)
{
    if (is_wide) {
        return mem_copy(offsets, n * sizeof(*offsets));
    }
    int32_t *narrowed = mem_alloc(n * sizeof(*narrowed));
    for (size_t i = 0; i < n; i++) {
        narrowed[i] = (int32_t)offsets[i];
    }
    return narrowed;
}

static void fill_fixed(struct prng *prng, const struct layout *layout, size_t total, struct ArrowArray *out)
{
    static const struct prng same = {{1, 2, 3, 4}};
    uint8_t *values = random_bytes_of(prng, total * layout->width);
    if (layout->dictionary != NULL) {
        struct prng dictionary = same;
        out->dictionary = mem_calloc(1, sizeof(*out));
        fill(&dictionary, layout->dictionary, 20, false, out->dictionary);
        memset(values, 0, total * layout->width);
        for (size_t i = 0; i < total; i++) {
            values[i * layout->width] = (uint8_t)prng_below(prng, 20);
        }
    }
    out->buffers[1] = values;
}

static void fill_children(struct prng *prng, const struct layout *layout, int64_t n, bool is_awkward,
                          struct ArrowArray *out)
{
    for (uint32_t i = 0; i < layout->n_children; i++) {
        fill(prng, &layout->children[i], n + (is_awkward ? (int64_t)prng_below(prng, 3) : 0), is_awkward,
             out->children[i]);
    }
}

static void fill_values(struct prng *prng, const struct layout *layout, size_t total, bool is_awkward,
                        struct ArrowArray *out)
{
    bool is_wide = layout->kind == LAYOUT_BYTES64 || layout->kind == LAYOUT_LIST64;
    uint64_t *offsets = NULL;
    switch (layout->kind) {
    case LAYOUT_NULL:
        out->null_count = out->length;
        break;
    case LAYOUT_BITS:
        out->buffers[1] = random_bytes_of(prng, bits_bytes(total));
        break;
    case LAYOUT_FIXED:
        fill_fixed(prng, layout, total, out);
        break;
    case LAYOUT_BYTES:
    case LAYOUT_BYTES64:
        offsets = random_offsets(prng, total, is_awkward, 30);
        out->buffers[1] = narrow(offsets, total + 1, is_wide);
        out->buffers[2] = layout->is_text ? random_text(prng, offsets, total) : random_bytes_of(prng, offsets[total]);
        break;
    case LAYOUT_LIST:
    case LAYOUT_LIST64:
        offsets = random_offsets(prng, total, is_awkward, 6);
        out->buffers[1] = narrow(offsets, total + 1, is_wide);
        fill_children(prng, layout, (int64_t)offsets[total], is_awkward, out);
        break;
    case LAYOUT_FIXED_LIST:
        fill_children(prng, layout, (int64_t)total * layout->width, is_awkward, out);
        break;
    case LAYOUT_STRUCT:
        fill_children(prng, layout, (int64_t)total, is_awkward, out);
        break;
    case LAYOUT_UNION: {
        static const uint8_t ids[] = {0, 5, 2};
        uint8_t *types = mem_alloc(total + 1);
        for (size_t i = 0; i < total; i++) {
            types[i] = ids[prng_below(prng, 3)];
        }
        out->buffers[0] = types;
        fill_children(prng, layout, (int64_t)total, is_awkward, out);
        break;
    }
    }
    mem_free(offsets);
}

static void fill(struct prng *prng, const struct layout *layout, int64_t n, bool is_awkward, struct ArrowArray *out)
{
    int64_t offset = is_awkward && prng_permille(prng, 600) ? (int64_t)prng_below(prng, 20) : 0;
    uint32_t n_buffers = layout_buffers(layout->kind);
    *out = (struct ArrowArray){.length = n,
                               .offset = offset,
                               .n_buffers = n_buffers,
                               .n_children = layout->n_children,
                               .buffers = mem_calloc(n_buffers, sizeof(void *)),
                               .children = mem_calloc(layout->n_children, sizeof(struct ArrowArray *)),
                               .release = release};
    for (uint32_t i = 0; i < layout->n_children; i++) {
        out->children[i] = mem_calloc(1, sizeof(*out));
    }
    size_t total = (size_t)(offset + n);
    if (layout->kind != LAYOUT_NULL && layout->kind != LAYOUT_UNION) {
        fill_validity(prng, total, is_awkward, out);
    }
    fill_values(prng, layout, total, is_awkward, out);
}

static struct layout *layout_of(const struct ArrowSchema *schema)
{
    struct layout *layout = NULL;
    uint32_t n = 0;
    enum err err = layout_new(schema, &layout, &n, NULL);
    ASSERT(err == ERR_OK);
    return layout;
}

void generate_array(struct prng *prng, const struct ArrowSchema *schema, int64_t n, bool is_awkward,
                    struct ArrowArray *out)
{
    struct layout *layout = layout_of(schema);
    fill(prng, layout, n, is_awkward, out);
    mem_free((void *)out->buffers[0]); /* rows themselves are never NULL */
    out->buffers[0] = NULL;
    out->null_count = 0;
    layout_free(layout);
}

void generate_numbers(int64_t first, int64_t n, struct ArrowSchema *out_schema, struct ArrowArray *out_array)
{
    struct prng prng;
    prng_init(&prng, 1);
    generate_flat_schema("l", out_schema);
    generate_array(&prng, out_schema, n, false, out_array);
    struct ArrowArray *column = out_array->children[0];
    mem_free((void *)column->buffers[0]);
    column->buffers[0] = NULL;
    column->null_count = 0;
    int64_t *values = (int64_t *)column->buffers[1];
    for (int64_t i = 0; i < n; i++) {
        values[i] = first + i;
    }
}

/* ---- comparing ---- */

static int64_t number_at(const void *values, uint32_t width, bool is_signed, size_t i)
{
    int64_t value = 0;
    memcpy(&value, (const uint8_t *)values + i * width, width);
    UNUSED(is_signed); /* indices are small */
    return value;
}

static int64_t offset_at(const void *offsets, bool is_wide, size_t i)
{
    return is_wide ? ((const int64_t *)offsets)[i] : ((const int32_t *)offsets)[i];
}

static bool is_same_value(const struct layout *layout, const struct ArrowArray *a, size_t i, const struct ArrowArray *b,
                          size_t k);

static bool are_same_values(const struct layout *layout, const struct ArrowArray *a, size_t i,
                            const struct ArrowArray *b, size_t k, size_t n)
{
    for (size_t at = 0; at < n; at++) {
        if (!is_same_value(layout, a, i + at, b, k + at)) {
            return false;
        }
    }
    return true;
}

/* Lists and texts. */
static bool is_same_span(const struct layout *layout, const struct ArrowArray *a, size_t i, const struct ArrowArray *b,
                         size_t k)
{
    bool is_wide = layout->kind == LAYOUT_BYTES64 || layout->kind == LAYOUT_LIST64;
    int64_t start_a = offset_at(a->buffers[1], is_wide, i);
    int64_t start_b = offset_at(b->buffers[1], is_wide, k);
    int64_t n = offset_at(a->buffers[1], is_wide, i + 1) - start_a;
    if (n != offset_at(b->buffers[1], is_wide, k + 1) - start_b) {
        return false;
    }
    if (layout->n_children == 1) {
        return are_same_values(&layout->children[0], a->children[0], (size_t)start_a, b->children[0], (size_t)start_b,
                               (size_t)n);
    }
    return n == 0 ||
           memcmp((const uint8_t *)a->buffers[2] + start_a, (const uint8_t *)b->buffers[2] + start_b, (size_t)n) == 0;
}

static bool is_null(const struct layout *layout, const struct ArrowArray *array, size_t i)
{
    return layout->kind != LAYOUT_NULL && layout->kind != LAYOUT_UNION && array->buffers[0] != NULL &&
           array->null_count != 0 && !bits_get(array->buffers[0], i);
}

/* Rows are counted from the array's offset. */
static bool is_same_value(const struct layout *layout, const struct ArrowArray *a, size_t i, const struct ArrowArray *b,
                          size_t k)
{
    i += (size_t)a->offset;
    k += (size_t)b->offset;
    if (is_null(layout, a, i) || is_null(layout, b, k)) {
        return is_null(layout, a, i) == is_null(layout, b, k);
    }
    if (layout->dictionary != NULL) {
        return is_same_value(layout->dictionary, a->dictionary,
                             (size_t)number_at(a->buffers[1], layout->width, layout->is_signed, i), b->dictionary,
                             (size_t)number_at(b->buffers[1], layout->width, layout->is_signed, k));
    }
    bool is_same = true;
    switch (layout->kind) {
    case LAYOUT_NULL:
        return true;
    case LAYOUT_BITS:
        return bits_get(a->buffers[1], i) == bits_get(b->buffers[1], k);
    case LAYOUT_FIXED:
        return memcmp((const uint8_t *)a->buffers[1] + i * layout->width,
                      (const uint8_t *)b->buffers[1] + k * layout->width, layout->width) == 0;
    case LAYOUT_BYTES:
    case LAYOUT_BYTES64:
    case LAYOUT_LIST:
    case LAYOUT_LIST64:
        return is_same_span(layout, a, i, b, k);
    case LAYOUT_FIXED_LIST:
        return are_same_values(&layout->children[0], a->children[0], i * layout->width, b->children[0],
                               k * layout->width, layout->width);
    case LAYOUT_UNION:
        is_same = ((const uint8_t *)a->buffers[0])[i] == ((const uint8_t *)b->buffers[0])[k];
        break;
    case LAYOUT_STRUCT:
        break;
    }
    for (uint32_t c = 0; c < layout->n_children && is_same; c++) {
        is_same = is_same_value(&layout->children[c], a->children[c], i, b->children[c], k);
    }
    return is_same;
}

bool generate_is_same_row(const struct ArrowSchema *schema, const struct ArrowArray *a, int64_t i,
                          const struct ArrowArray *b, int64_t k)
{
    struct layout *layout = layout_of(schema);
    bool is_same = is_same_value(layout, a, (size_t)i, b, (size_t)k);
    layout_free(layout);
    return is_same;
}

bool generate_is_same(const struct ArrowSchema *schema, const struct ArrowArray *a, const struct ArrowArray *b)
{
    struct layout *layout = layout_of(schema);
    bool is_same = a->length == b->length && are_same_values(layout, a, 0, b, 0, (size_t)a->length);
    layout_free(layout);
    return is_same;
}
