#include "main/demo_sales.h"

#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "duck/duck.h"
#include "query/plan.h"

#define FILES 4
#define SALES 2000000
#define CUSTOMERS 50000
#define THREADS 2

const char demo_sales_query[] = "SELECT country, count(DISTINCT customer) AS customers, count(*) AS sales,\n"
                                "       sum(amount) AS revenue, max(amount) AS largest\n"
                                "FROM sales JOIN customers USING (customer)\n"
                                "GROUP BY country ORDER BY revenue DESC LIMIT 5";

/* "COPY (rows) TO 'FOLDER/FILE' ..." */
static void write_copy(struct buf *sql, const char *rows, const char *path)
{
    buf_format(sql, "COPY (%s) TO ", rows);
    sql_write_text(sql, path, strlen(path));
    buf_text(sql, " (FORMAT parquet);\n");
}

/* The same rows on every machine: all is computed from the number of the row. */
static void write_sql(struct buf *sql, const char *folder)
{
    struct arena arena = {0};
    const char *customers = arena_format(
        &arena,
        "SELECT i AS customer, ['Iceland', 'Norway', 'Portugal', 'Kenya', 'Chile', 'Japan', 'Canada', "
        "'Nepal'][1 + (hash(i, 1) %% 8)::BIGINT] AS country, 'customer number ' || i AS name FROM range(%d) t(i)",
        CUSTOMERS);
    write_copy(sql, customers, arena_format(&arena, "%s/customers.parquet", folder));
    for (int k = 0; k < FILES; k++) {
        const char *sales =
            arena_format(&arena,
                         "SELECT i AS sale, (hash(i, 2) %% %d)::BIGINT AS customer, ((hash(i, 3) %% 50000) / "
                         "100)::DECIMAL(9, 2) AS amount, DATE '2026-01-01' + (i %% 365)::INTEGER AS day "
                         "FROM range(%d, %d) t(i)",
                         CUSTOMERS, SALES / FILES * k, SALES / FILES * (k + 1));
        write_copy(sql, sales, arena_format(&arena, "%s/sales-%d.parquet", folder, k));
    }
    arena_deinit(&arena);
}

enum err demo_sales_make(const char *folder, struct error *e)
{
    struct duck *duck = NULL;
    struct duck_connection *connection = NULL;
    struct buf sql = {0};
    write_sql(&sql, folder);
    enum err err = duck_open(&(struct duck_options){.threads = THREADS}, &duck, e);
    if (err == ERR_OK) {
        err = duck_connect(duck, &connection, e);
    }
    if (err == ERR_OK) {
        err = duck_run(connection, sql.data, e);
    }
    duck_disconnect(connection);
    duck_close(duck);
    buf_deinit(&sql);
    return err;
}
