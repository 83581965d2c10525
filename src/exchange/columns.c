#include "exchange/columns.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/siphash.h"

/* Of a longer name, only so much is hashed; all of it is compared. */
#define HASHED_BYTES_MAX 256

/* Names that columns have so far, whatever the case. */
static uint64_t hash_of(const char *name)
{
    static const struct siphash_key key = {0};
    char lower[HASHED_BYTES_MAX];
    size_t n = 0;
    for (; n < sizeof lower && name[n] != '\0'; n++) {
        lower[n] = (char)tolower((unsigned char)name[n]);
    }
    return siphash(&key, lower, n);
}

static bool is_called(const void *column, const void *name)
{
    return strcasecmp(((const struct column *)column)->unique, name) == 0;
}

static struct column *find_called(const struct map *names, const char *name)
{
    return map_get(names, hash_of(name), is_called, name);
}

/* Of many columns with one name, each goes on counting where the one before has ended. */
static char *make_unique(const struct map *names, const char *name)
{
    struct buf text = {0};
    struct column *first = find_called(names, name);
    buf_text(&text, name);
    while (first != NULL && find_called(names, text.data) != NULL) {
        buf_reset(&text);
        buf_format(&text, "%s_%" PRIu32, name, ++first->n_alike);
    }
    return text.data;
}

enum err columns_init(struct columns *columns, const struct ArrowSchema *schema, struct error *e)
{
    struct map names = {0};
    *columns = (struct columns){.columns = mem_calloc((size_t)schema->n_children + 1, sizeof(struct column))};
    for (int64_t i = 0; i < schema->n_children; i++) {
        const char *name = schema->children[i]->name;
        struct column *column = &columns->columns[i];
        struct buf type_name = {0};
        enum err err = text_type_new(schema->children[i], &column->type, e);
        if (err != ERR_OK) {
            columns_deinit(columns);
            map_deinit(&names);
            return err;
        }
        column->name = mem_strdup(name == NULL ? "" : name);
        column->unique = make_unique(&names, column->name);
        map_put(&names, hash_of(column->unique), column);
        text_type_name(&type_name, column->type);
        column->type_name = type_name.data;
        columns->n++;
    }
    map_deinit(&names);
    return ERR_OK;
}

void columns_deinit(struct columns *columns)
{
    for (uint32_t i = 0; i < columns->n; i++) {
        struct column *column = &columns->columns[i];
        text_type_free(column->type);
        mem_free(column->name);
        mem_free(column->unique);
        mem_free(column->type_name);
    }
    mem_free(columns->columns);
    *columns = (struct columns){0};
}

bool columns_text(const struct columns *columns, const struct ArrowArray *batch, uint32_t column, int64_t row,
                  struct buf *out)
{
    return text_cell(out, columns->columns[column].type, batch->children[column], batch->offset + row);
}

void columns_json(const struct columns *columns, const struct ArrowArray *batch, uint32_t column, int64_t row,
                  struct buf *out)
{
    text_cell_json(out, columns->columns[column].type, batch->children[column], batch->offset + row);
}

/* ---- rows ---- */

static void put_csv(struct buf *out, const char *text, size_t n)
{
    bool needs_quotes = n == 0;
    for (size_t i = 0; i < n && !needs_quotes; i++) {
        needs_quotes = text[i] == ',' || text[i] == '"' || text[i] == '\n' || text[i] == '\r';
    }
    if (!needs_quotes) {
        buf_append(out, text, n);
        return;
    }
    buf_char(out, '"');
    for (size_t i = 0; i < n; i++) {
        buf_text(out, text[i] == '"' ? "\"" : "");
        buf_char(out, text[i]);
    }
    buf_char(out, '"');
}

void columns_csv_names(const struct columns *columns, struct buf *out)
{
    for (uint32_t i = 0; i < columns->n; i++) {
        buf_text(out, i == 0 ? "" : ",");
        put_csv(out, columns->columns[i].name, strlen(columns->columns[i].name));
    }
    buf_char(out, '\n');
}

void columns_csv_row(const struct columns *columns, const struct ArrowArray *batch, int64_t row, struct buf *cell,
                     struct buf *out)
{
    for (uint32_t i = 0; i < columns->n; i++) {
        buf_text(out, i == 0 ? "" : ",");
        buf_reset(cell);
        if (columns_text(columns, batch, i, row, cell)) {
            put_csv(out, cell->data, cell->n);
        }
    }
    buf_char(out, '\n');
}

void columns_json_head(const struct columns *columns, struct buf *out)
{
    buf_text(out, "{\"columns\":[");
    for (uint32_t i = 0; i < columns->n; i++) {
        buf_text(out, i == 0 ? "{\"name\":" : ",{\"name\":");
        json_write_text(out, columns->columns[i].name);
        buf_text(out, ",\"type\":");
        json_write_text(out, columns->columns[i].type_name);
        buf_char(out, '}');
    }
    buf_text(out, "],\"rows\":[");
}

void columns_json_row(const struct columns *columns, const struct ArrowArray *batch, int64_t row, struct buf *out)
{
    buf_char(out, '[');
    for (uint32_t i = 0; i < columns->n; i++) {
        buf_text(out, i == 0 ? "" : ",");
        columns_json(columns, batch, i, row, out);
    }
    buf_char(out, ']');
}
