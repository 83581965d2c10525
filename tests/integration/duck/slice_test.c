/* Arrays that are longer than DuckDB's vectors, of flat and nested types, with and without an offset. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "duck/fixture.h"

#define N_ROWS 5000
#define N_COLUMNS 6

/* Row i of the memory: n = i, NULL if i % 7 == 0; t = the digits of i; b = i % 3 == 0; l = [i, i + 1], in = {x: {y: i}}, f = [i, -i]. */
struct memory {
    uint8_t validity[N_ROWS / 8 + 1];
    int64_t numbers[N_ROWS];
    int32_t text_offsets[N_ROWS + 1];
    char texts[N_ROWS * 4];
    uint8_t bits[N_ROWS / 8 + 1];
    int32_t list_offsets[N_ROWS + 1];
    int32_t list_values[N_ROWS * 2];
    int32_t fixed_values[N_ROWS * 2];
    int32_t inner[N_ROWS];
    struct ArrowArray arrays[N_COLUMNS + 4];
    struct ArrowArray *columns[N_COLUMNS];
    struct ArrowArray *children[4];
    const void *buffers[N_COLUMNS + 4][3];
    const void *no_buffers[1];
};

static void fill(struct memory *m)
{
    int32_t at = 0;
    for (int32_t i = 0; i < N_ROWS; i++) {
        char digits[16];
        int n = snprintf(digits, sizeof(digits), "%d", i);
        m->validity[i / 8] = (uint8_t)(m->validity[i / 8] | (i % 7 != 0) << i % 8);
        m->bits[i / 8] = (uint8_t)(m->bits[i / 8] | (i % 3 == 0) << i % 8);
        m->numbers[i] = i;
        m->text_offsets[i] = at;
        memcpy(m->texts + at, digits, (size_t)n);
        at += n;
        m->list_offsets[i] = 2 * i;
        m->list_values[2 * i] = i;
        m->list_values[2 * i + 1] = i + 1;
        m->fixed_values[2 * i] = i;
        m->fixed_values[2 * i + 1] = -i;
        m->inner[i] = i;
    }
    m->text_offsets[N_ROWS] = at;
    m->list_offsets[N_ROWS] = 2 * N_ROWS;
}

static void keep(struct ArrowArray *array)
{
    array->release = NULL;
}

/* Array number `i`, with up to two buffers after the validity, and a child. */
static struct ArrowArray *array_of(struct memory *m, int i, int64_t length, int64_t n_buffers,
                                   struct ArrowArray **child)
{
    m->arrays[i] = (struct ArrowArray){.length = length,
                                       .null_count = i == 0 ? -1 : 0,
                                       .n_buffers = n_buffers,
                                       .buffers = m->buffers[i],
                                       .n_children = child != NULL ? 1 : 0,
                                       .children = child,
                                       .release = keep};
    return &m->arrays[i];
}

static void release_memory(struct ArrowArray *array)
{
    mem_free(array->private_data);
    array->release = NULL;
}

/* All columns from row `offset` on. */
static struct ArrowArray make_array(int64_t offset)
{
    struct memory *m = mem_calloc(1, sizeof(*m));
    fill(m);
    m->buffers[0][0] = m->validity;
    m->buffers[0][1] = m->numbers;
    m->buffers[1][1] = m->text_offsets;
    m->buffers[1][2] = m->texts;
    m->buffers[2][1] = m->bits;
    m->buffers[3][1] = m->list_offsets;
    m->buffers[6][1] = m->list_values;
    m->buffers[7][1] = m->fixed_values;
    m->buffers[9][1] = m->inner;
    m->children[0] = array_of(m, 6, 2 * N_ROWS, 2, NULL);
    m->children[1] = array_of(m, 7, 2 * N_ROWS, 2, NULL);
    m->children[3] = array_of(m, 9, N_ROWS, 2, NULL);
    m->children[2] = array_of(m, 8, N_ROWS, 1, &m->children[3]);
    m->columns[0] = array_of(m, 0, N_ROWS, 2, NULL);
    m->columns[1] = array_of(m, 1, N_ROWS, 3, NULL);
    m->columns[2] = array_of(m, 2, N_ROWS, 2, NULL);
    m->columns[3] = array_of(m, 3, N_ROWS, 2, &m->children[0]);
    m->columns[4] = array_of(m, 4, N_ROWS, 1, &m->children[2]);
    m->columns[5] = array_of(m, 5, N_ROWS, 1, &m->children[1]);
    return (struct ArrowArray){.length = N_ROWS - offset,
                               .offset = offset,
                               .n_buffers = 1,
                               .buffers = m->no_buffers,
                               .n_children = N_COLUMNS,
                               .children = m->columns,
                               .release = release_memory,
                               .private_data = m};
}

/* A schema that lives for ever. */
static void keep_schema(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

#define FIELD(text, label)                                                                                             \
    {                                                                                                                  \
        .format = text, .name = label, .flags = ARROW_FLAG_NULLABLE, .release = keep_schema                            \
    }

static struct ArrowSchema leaf_item = FIELD("i", "item");
static struct ArrowSchema leaf_y = FIELD("i", "y");
static struct ArrowSchema *items[] = {&leaf_item};
static struct ArrowSchema *y_fields[] = {&leaf_y};
static struct ArrowSchema field_x = {.format = "+s",
                                     .name = "x",
                                     .n_children = 1,
                                     .children = y_fields,
                                     .release = keep_schema};
static struct ArrowSchema *x_fields[] = {&field_x};
static struct ArrowSchema fields[] = {
    FIELD("l", "n"),
    FIELD("u", "t"),
    FIELD("b", "b"),
    {.format = "+l", .name = "l", .n_children = 1, .children = items, .release = keep_schema},
    {.format = "+s", .name = "in", .n_children = 1, .children = x_fields, .release = keep_schema},
    {.format = "+w:2", .name = "f", .n_children = 1, .children = items, .release = keep_schema},
};
static struct ArrowSchema *all_fields[] = {&fields[0], &fields[1], &fields[2], &fields[3], &fields[4], &fields[5]};

struct once {
    int64_t offset;
    bool is_done;
};

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    UNUSED(stream);
    *out = (struct ArrowSchema){
        .format = "+s", .name = "", .n_children = N_COLUMNS, .children = all_fields, .release = keep_schema};
    return 0;
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    struct once *once = stream->private_data;
    *out = once->is_done ? (struct ArrowArray){0} : make_array(once->offset);
    once->is_done = true;
    return 0;
}

static const char *get_error(struct ArrowArrayStream *stream)
{
    UNUSED(stream);
    return NULL;
}

static void release_stream(struct ArrowArrayStream *stream)
{
    stream->release = NULL;
}

TEST(long_arrays_are_cut_rightly_whatever_their_type_and_offset)
{
    static const int64_t offsets[] = {0, 8, 3, 2100, 4999};
    struct fixture f = fixture_open(&(struct duck_options){.threads = 2});
    for (size_t i = 0; i < ARRAY_LEN(offsets); i++) {
        struct error e = {0};
        struct once once = {.offset = offsets[i]};
        struct ArrowArrayStream stream = {.get_schema = get_schema,
                                          .get_next = get_next,
                                          .get_last_error = get_error,
                                          .release = release_stream,
                                          .private_data = &once};
        CHECK_ERR(duck_register(f.connection, &(struct duck_input){.name = "m", .is_kept = true}, &stream, &e), ERR_OK);
        struct buf expected = {0};
        buf_format(&expected, "%d,%d,true", (int)(N_ROWS - offsets[i]), 0);
        CHECK_STR(
            rows_of(&f, f.connection,
                    "SELECT count(*), count(*) FILTER (WHERE (n IS NULL) <> (t::BIGINT % 7 = 0) OR n <> t::BIGINT OR "
                    "b <> (t::BIGINT % 3 = 0) OR l <> [t::INTEGER, t::INTEGER + 1] OR \"in\".x.y <> t::INTEGER OR "
                    "f <> [t::INTEGER, -t::INTEGER]::INTEGER[2]), count(DISTINCT t) = count(*) FROM m"),
            expected.data);
        buf_deinit(&expected);
        duck_unregister(f.connection, "m");
    }
    fixture_close(&f);
}

TEST(a_stream_cannot_be_read_twice)
{
    struct fixture f = fixture_open(&(struct duck_options){.threads = 2});
    struct error e = {0};
    struct once once = {0};
    struct ArrowArrayStream stream = {.get_schema = get_schema,
                                      .get_next = get_next,
                                      .get_last_error = get_error,
                                      .release = release_stream,
                                      .private_data = &once};
    CHECK_ERR(duck_register(f.connection, &(struct duck_input){.name = "m", .rows = 5000}, &stream, &e), ERR_OK);
    CHECK_STR(rows_of(&f, f.connection, "SELECT t FROM m WHERE n = 4999"), "4999");
    CHECK_ERR(duck_run(f.connection, "SELECT * FROM m", &e), ERR_INVALID);
    CHECK(strstr(e.message, "only once") != NULL);
    fixture_close(&f);
}
