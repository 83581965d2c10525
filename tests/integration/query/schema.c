#include "query/schema.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/num.h"
#include "test.h"

#define COLUMNS_MAX 64

static enum err add_column(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    struct schema_table *table = context;
    UNUSED(n);
    UNUSED(e);
    if (table->n_columns < COLUMNS_MAX) {
        table->columns[table->n_columns++] =
            (struct schema_column){.name = mem_strdup(values[0].bytes), .class = column_class_of(values[1].bytes)};
    }
    return ERR_OK;
}

static enum err add_rows(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    struct schema_table *table = context;
    int64_t rows = 0;
    UNUSED(n);
    UNUSED(e);
    CHECK(num_parse_int(values[0].bytes, &rows));
    table->rows = (uint64_t)rows;
    return ERR_OK;
}

struct schema schema_open(struct duck_connection *connection, const struct planner_table *tables, uint32_t n)
{
    struct schema schema = {.n_tables = n, .tables = mem_calloc(n, sizeof *schema.tables)};
    struct error e = {0};
    for (uint32_t i = 0; i < n; i++) {
        struct schema_table *table = &schema.tables[i];
        struct buf sql = {0};
        table->name = tables[i].name;
        table->columns = mem_calloc(COLUMNS_MAX, sizeof *table->columns);
        buf_format(&sql, "DESCRIBE %s", table->name);
        CHECK_ERR(duck_rows(connection, sql.data, NULL, 0, add_column, table, &e), ERR_OK);
        buf_reset(&sql);
        buf_format(&sql, "SELECT count(*) FROM %s", table->name);
        CHECK_ERR(duck_rows(connection, sql.data, NULL, 0, add_rows, table, &e), ERR_OK);
        buf_deinit(&sql);
    }
    return schema;
}

void schema_close(struct schema *schema)
{
    for (uint32_t i = 0; i < schema->n_tables; i++) {
        for (uint32_t k = 0; k < schema->tables[i].n_columns; k++) {
            mem_free((char *)schema->tables[i].columns[k].name);
        }
        mem_free(schema->tables[i].columns);
    }
    mem_free(schema->tables);
}
