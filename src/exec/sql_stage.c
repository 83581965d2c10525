/*
 * sql_stage.c - one task of a stage: rows of other tasks and of files in, through DuckDB, partitions or a result out.
 *
 *   sources ──fetch──► tables ──SQL──► rows ──────────────────────────────────► writer
 *                                        └──operator──► rows ──SQL: partition──┘
 *
 * A stage that writes files (sql_write.c) has COPY in the place of the last SQL; what goes on are the files' names.
 *
 * Each arrow is an Arrow stream that yields rows when the next asks for them, so nothing is held as a whole unless DuckDB
 * needs it. Only where rows go straight to other tasks, DuckDB pours them into the writer (duck_pour), which spares them two
 * copies. A stage with an operator of the user's own and an exchange with partitions needs a second query, over the
 * operator's rows, on a connection of its own, since the first is still running.
 *
 * A failure may show at the far end of that chain, as text inside of other texts. So every stream remembers why it failed
 * (sql_stream.c), and the first cause is what is reported.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "exchange/writer.h"
#include "exec/sql_internal.h"
#include "query/sql_text.h"
#include "query/write.h"

#define CUSTOM_ROWS "capstan_custom_rows" /* the operator's rows as a table */

#define WINDOW_BYTES_MAX ((uint64_t)64 * 1024 * 1024)
#define WINDOW_BYTES_MIN ((uint64_t)1024 * 1024)
#define WINDOW_SHARE 8 /* of DuckDB's memory, all windows of all tasks together have this part */
#define HELD_SHARE 4   /* the same for rows that wait in scatters until they are a batch */

struct fragment {
    struct sql_run *run;
    const struct physical_plan *plan;
    const struct physical_stage *stage;
    uint32_t position; /* of the stage in the plan */
    uint32_t task;
    bool is_alone;        /* in the room */
    bool keeps_rows;      /* of its inputs, so that they can be read often */
    bool is_careful;      /* it has met an error of DuckDB's own before */
    uint32_t n_elsewhere; /* how often others broke its DuckDB */
    struct arena arena;
    struct sql_instance *instance;
    enum sql_trust trust;                                     /* in what it remembers of files */
    struct duck_connection *connections[SQL_CONNECTIONS_MAX]; /* the second is for the operator's rows */
    struct exchange_fetch **fetches;                          /* one for each input, NULL if it is not open */
    struct sql_tap *taps;
    struct sql_rows rows[SQL_CONNECTIONS_MAX];
    struct sql_tap operator_tap;
    struct ArrowArrayStream stream; /* the end of the chain */
    struct exchange_writer *writer;
    bool is_poured; /* the rows are in the writer already */
    struct ipc_tally *tallies;
    uint32_t n_partitions;
    struct sql_file file; /* of a stage that writes files */
};

static bool has_operator(const struct fragment *f)
{
    return f->stage->custom.op != NULL;
}

static bool is_partitioned(const struct fragment *f)
{
    return exchange_is_partitioned(f->stage->output.exchange);
}

static bool is_result(const struct fragment *f)
{
    return f->stage->output.exchange == EXCHANGE_RESULT;
}

/* ---- inputs ---- */

/* What one fetch may hold: the windows of all tasks that run at a time have to fit beside DuckDB. */
static uint64_t window_of(const struct fragment *f)
{
    const struct sql_options *options = &f->run->sql->options;
    uint64_t tasks = options->threads > 0 ? options->threads : 1;
    uint64_t bytes = options->memory_bytes_max / WINDOW_SHARE / tasks;
    bytes = bytes == 0 || bytes > WINDOW_BYTES_MAX ? WINDOW_BYTES_MAX : bytes;
    bytes /= f->stage->n_inputs;
    return bytes < WINDOW_BYTES_MIN ? WINDOW_BYTES_MIN : bytes;
}

static bool is_wanted(const struct fragment *f, const struct physical_input *input, uint32_t partition)
{
    struct physical_group group = physical_task_group(f->plan, f->position, f->task);
    return input->is_whole || (partition >= group.first && partition <= group.last);
}

/* One partition of one map output. */
static enum err make_source(const struct fragment *f, const struct exec_source *from,
                            const struct exec_partition *partition, struct exchange_source *out, struct error *e)
{
    struct exchange_source source = {
        .partition = partition->number,
        .address = from->address,
        .is_local = from->worker_id != NULL && strcmp(from->worker_id, f->run->sql->worker_id) == 0,
        .tally = {.bytes = partition->bytes,
                  .rows = partition->rows,
                  .batches = partition->batches,
                  .checksum = partition->checksum},
    };
    if (from->stage > UINT32_MAX || from->task > UINT32_MAX ||
        !exchange_key_make(f->run->task->job_id, (uint32_t)from->stage, (uint32_t)from->task, from->attempt,
                           &source.key)) {
        return error_set(e, ERR_INTERNAL, "stage %" PRIu64 ", task %" PRIu64 " of job '%s' cannot be named",
                         from->stage, from->task, f->run->task->job_id);
    }
    *out = source;
    return ERR_OK;
}

/* Begins to read an input. `out_rows` is how many rows it has. */
static enum err open_input(struct fragment *f, uint32_t i, struct sql_sources sources, uint64_t *out_rows,
                           struct error *e)
{
    const struct physical_input *input = &f->stage->inputs[i];
    struct exchange_source *list = NULL;
    uint32_t n = 0;
    uint32_t cap = 0;
    uint64_t rows = 0;
    enum err err = ERR_OK;
    for (uint32_t s = 0; s < sources.n; s++) {
        const struct exec_source *from = &sources.list[s];
        for (uint32_t k = 0; k < from->n_partitions && err == ERR_OK; k++) {
            if (is_wanted(f, input, from->partitions[k].number)) {
                list = mem_grow(list, &cap, n + 1, sizeof(*list));
                err = make_source(f, from, &from->partitions[k], &list[n++], e);
                rows += from->partitions[k].rows;
            }
        }
    }
    if (err == ERR_OK && n == 0) {
        err = error_set(e, ERR_INTERNAL, "nobody says where the input '%s' is", input->name);
    }
    if (err == ERR_OK) {
        struct exchange_fetch_options options = {.store = f->run->sql->options.store,
                                                 .channels = f->run->sql->options.channels,
                                                 .window_bytes = window_of(f)};
        err = exchange_fetch_open(list, n, &options, &f->fetches[i], e);
        *out_rows = rows;
    }
    mem_free(list);
    return err;
}

static enum err open_inputs(struct fragment *f, uint64_t *out_rows, struct error *e)
{
    uint32_t *parents = NULL;
    bool *is_whole = NULL;
    struct sql_sources *sources = NULL;
    uint32_t n = physical_parents(f->plan, f->position, &f->arena, &parents, &is_whole);
    enum err err = sql__part_sources(f->run->task, n, &f->arena, &sources, e);
    for (uint32_t i = 0; i < f->stage->n_inputs && err == ERR_OK; i++) {
        uint32_t k = 0;
        while (parents[k] != f->stage->inputs[i].stage) {
            k++;
        }
        err = open_input(f, i, sources[k], &out_rows[i], e);
        if (err == ERR_OK) {
            atomic_fetch_add(&f->run->rows_expected, out_rows[i]);
            sql__run_set_fetches(f->run, f->fetches, i + 1);
        }
    }
    return err;
}

/* The connection on which an input is a table: that of the query which reads it. */
static struct duck_connection *reader_of(const struct fragment *f, const struct physical_input *input)
{
    const char *bounds = f->stage->output.bounds;
    bool is_late = has_operator(f) && bounds != NULL && strcmp(bounds, input->name) == 0;
    return f->connections[is_late ? 1 : 0];
}

static enum err register_inputs(struct fragment *f, struct error *e)
{
    uint32_t n = f->stage->n_inputs;
    if (n == 0) {
        return ERR_OK;
    }
    f->fetches = arena_zalloc(&f->arena, n * sizeof(struct exchange_fetch *));
    f->taps = arena_zalloc(&f->arena, n * sizeof(*f->taps));
    uint64_t *rows = arena_zalloc(&f->arena, n * sizeof(*rows));
    enum err err = open_inputs(f, rows, e);
    for (uint32_t i = 0; i < n && err == ERR_OK; i++) {
        const struct physical_input *input = &f->stage->inputs[i];
        struct duck_input table = {.name = input->name,
                                   .rows = rows[i],
                                   .is_chosen = input->is_whole && f->stage->n_splits > 0,
                                   .is_kept = input->is_repeated || f->keeps_rows};
        struct ArrowArrayStream stream;
        exchange_fetch_stream(f->fetches[i], &f->taps[i].inner);
        f->taps[i].rows_in = &f->run->rows_in;
        sql__tap(&f->taps[i], &stream);
        err = duck_register(reader_of(f, input), &table, &stream, e);
    }
    return err;
}

/* ---- output ---- */

/* A task's share of what may travel inside of reports. */
static uint64_t inline_bytes_max(const struct fragment *f)
{
    uint64_t bytes = LIMIT_INLINE_RESULT_BYTES / physical_tasks(f->plan, f->position);
    return bytes > 0 ? bytes : 1; /* 1: none, for a stream has more */
}

/* What the scatter may hold, beside DuckDB's memory. */
static size_t held_bytes_of(const struct fragment *f)
{
    const struct sql_options *options = &f->run->sql->options;
    uint64_t bytes = options->memory_bytes_max / HELD_SHARE / (options->threads > 0 ? options->threads : 1);
    return bytes == 0 || bytes > SCATTER_HELD_BYTES ? SCATTER_HELD_BYTES : (size_t)bytes;
}

/*
 * Arrow has no NULL for a UNION, only for what is in it: rows that another stage reads would not be the same any more. Our
 * own plans have none there.
 */
static bool has_union(const struct ArrowSchema *schema)
{
    bool has_one = strncmp(schema->format, "+u", 2) == 0;
    for (int64_t i = 0; i < schema->n_children && !has_one; i++) {
        has_one = has_union(schema->children[i]);
    }
    return has_one;
}

static enum err open_writer(struct fragment *f, const struct ArrowSchema *schema, struct error *e)
{
    const struct exec_task *task = f->run->task;
    struct exchange_writer_options options = {
        .store = f->run->sql->options.store,
        .kind = is_result(f) ? EXCHANGE_KIND_RESULT : EXCHANGE_KIND_SHUFFLE,
        .inline_bytes_max = inline_bytes_max(f),
        .is_compressed = f->run->sql->options.is_compressed && !is_result(f), /* not all readers of Arrow know it */
        .scatter = {.mode = is_partitioned(f) ? SCATTER_COLUMN : SCATTER_ONE,
                    .n_partitions = f->n_partitions,
                    .held_bytes_max = held_bytes_of(f)},
    };
    if (task->stage > UINT32_MAX || task->task > UINT32_MAX ||
        !exchange_key_make(task->job_id, (uint32_t)task->stage, (uint32_t)task->task, task->attempt, &options.key)) {
        return error_set(e, ERR_INVALID, "an output of stage %" PRIu64 ", task %" PRIu64 " of job '%s' cannot be named",
                         task->stage, task->task, task->job_id);
    }
    options.scatter.column = schema->n_children > 0 ? (uint32_t)schema->n_children - 1 : 0;
    if (!is_result(f) && has_union(schema)) {
        error_set(e, ERR_INVALID, "a column of type UNION cannot go from stage to stage");
        error_hint(e, "cast it, as in x::VARCHAR");
        return ERR_INVALID;
    }
    return exchange_writer_open(&options, schema, &f->writer, e);
}

static enum err write_batch(struct fragment *f, const struct ArrowArray *batch, struct error *e)
{
    enum err err = exchange_writer_append(f->writer, batch, e);
    atomic_fetch_add(&f->run->rows, (uint64_t)batch->length);
    atomic_store(&f->run->bytes, exchange_writer_bytes(f->writer));
    if (err == ERR_OK && exec_stop_reason(f->run->stop) != STOP_NONE) {
        err = error_set(e, ERR_CANCELED, "stopped");
    }
    return err;
}

/* ---- rows ---- */

static enum err connect(struct fragment *f, uint32_t i, struct error *e)
{
    enum err err = duck_connect(f->instance->duck, &f->connections[i], e);
    if (err == ERR_OK) {
        sql__run_set_connection(f->run, i, f->connections[i]);
    }
    if (err == ERR_OK && f->trust != SQL_TRUST) {
        err = duck_run(f->connections[i], "SET parquet_metadata_cache = false", e);
    }
    return err;
}

/* Runs SQL on a connection; its rows are the end of the chain. */
static enum err start_query(struct fragment *f, uint32_t i, const char *sql, struct error *e)
{
    enum err err = duck_query(f->connections[i], sql, &f->rows[i].result, e);
    if (err == ERR_OK) {
        bool is_for_us = !is_result(f) && (!has_operator(f) || i == 1); /* the next to read it is a DuckDB of ours */
        if (is_for_us) {
            duck_result_shorten(f->rows[i].result);
        }
        sql__rows_stream(&f->rows[i], &f->stream);
    }
    return err;
}

static enum err start_operator(struct fragment *f, struct error *e)
{
    const struct physical_custom *custom = &f->stage->custom;
    struct ArrowArrayStream input = f->stream;
    f->stream.release = NULL;
    if (f->run->sql->options.operators == NULL) {
        input.release(&input);
        return error_set(e, ERR_UNAVAILABLE, "custom physical operator '%s' is not registered on worker", custom->op);
    }
    enum err err = operators_apply(f->run->sql->options.operators, custom->op, custom->config_json, &input,
                                   &f->operator_tap.inner, e);
    if (err == ERR_OK) {
        operators_watch(&f->operator_tap.inner, f->run->stop);
        sql__tap(&f->operator_tap, &f->stream);
    }
    /* Another worker may have it. */
    return err == ERR_NOT_FOUND ? error_set(e, ERR_UNAVAILABLE, "%s", e->message) : err;
}

/* The operator's rows become a table of the second connection. */
static enum err start_scatter(struct fragment *f, struct error *e)
{
    struct buf sql = {0};
    struct duck_input table = {.name = CUSTOM_ROWS};
    enum err err = duck_register(f->connections[1], &table, &f->stream, e);
    if (err == ERR_OK) {
        physical_scatter_sql(&sql, f->stage, f->task, CUSTOM_ROWS);
        err = start_query(f, 1, sql.data, e);
    }
    buf_deinit(&sql);
    return err;
}

/* Writes the rows of the SELECT to a file; the rows of the task are then its name and their number. */
static enum err start_file(struct fragment *f, const char *select, struct error *e)
{
    uint64_t rows = 0;
    struct buf sql = {0};
    enum err err = sql__file_begin(f->run, f->stage, &f->arena, &f->file, e);
    if (err == ERR_OK) {
        err = sql__file_write(f->connections[0], &f->stage->write, &f->file, select, &rows, e);
    }
    if (err == ERR_OK) {
        buf_format(&sql, "SELECT '%s' AS file, CAST(%" PRIu64 " AS BIGINT) AS rows", f->file.name, rows);
        err = start_query(f, 0, sql.data, e);
    }
    buf_deinit(&sql);
    return err;
}

static enum err start_publish(struct fragment *f, const char *select, struct error *e)
{
    uint64_t rows = 0;
    char sql[80];
    enum err err = sql__publish(f->run, &f->stage->publish, f->connections[0], select, &f->arena, &rows, e);
    if (err != ERR_OK) {
        return err;
    }
    (void)snprintf(sql, sizeof(sql), "SELECT CAST(%" PRIu64 " AS BIGINT) AS rows", rows);
    err = start_query(f, 0, sql, e);
    if (err == ERR_OK && f->stage->publish.table != NULL) {
        buf_reset(&f->run->out->table_name); /* it may be the second try */
        buf_reset(&f->run->out->table_files);
        buf_text(&f->run->out->table_name, f->stage->publish.table);
        buf_format(&f->run->out->table_files, "%s/*.parquet", f->stage->publish.to);
    }
    return err;
}

static enum err pour_open(void *context, const struct ArrowSchema *schema, struct error *e)
{
    return open_writer(context, schema, e);
}

static enum err pour_take(void *context, const struct ArrowArray *rows, struct error *e)
{
    return write_batch(context, rows, e);
}

/* The columns of SQL that our planner has written; NULL if it is of somebody else. */
static const char *const *known_names(struct fragment *f, uint32_t *out_n)
{
    uint32_t n_own = is_result(f) ? 0 : sql_numbered_columns(f->stage->sql);
    uint32_t n = n_own + (is_partitioned(f) ? 1 : 0);
    const char *const *of_result = NULL;
    if (is_result(f)) {
        *out_n = physical_read_names(f->stage->sql, &f->arena, &of_result);
        return of_result;
    }
    if (n_own == 0) {
        return NULL;
    }
    const char **names = arena_alloc(&f->arena, n * sizeof(char *));
    for (uint32_t i = 0; i < n; i++) {
        names[i] = i < n_own ? arena_format(&f->arena, "c%" PRIu32, i) : PHYSICAL_PARTITION_COLUMN;
    }
    *out_n = n;
    return names;
}

/* With less to read it ends before anybody looks. */
#define WATCHED_BYTES (UINT64_C(128) * 1024 * 1024)

/* Parts the last statement, a SELECT, from those before it, which stay in `sql`. */
static char *split_last(char *sql)
{
    size_t last = physical_last_statement(sql);
    sql[physical_trimmed(sql)] = '\0';
    if (last > 0) {
        sql[last - 1] = '\0'; /* the semicolon */
    }
    return sql + last;
}

/*
 * Has DuckDB write all rows, since to stream them it would bind the SQL twice, and copy them twice. That takes one thread; a
 * stage with fewer tasks wants more. What is left to be run otherwise is in `sql` afterwards.
 */
static enum err pour(struct fragment *f, const char **sql, struct error *e)
{
    struct duck_sink sink = {.is_long = is_result(f), .open = pour_open, .take = pour_take, .context = f};
    bool has_enough_tasks = physical_tasks(f->plan, f->position) >= f->run->sql->options.threads;
    if (has_operator(f) || !has_enough_tasks) {
        return ERR_OK;
    }
    sink.names = known_names(f, &sink.n);
    sink.is_watched = physical_task_bytes(f->stage, f->task) >= WATCHED_BYTES;
    if (is_result(f) && sink.names == NULL) {
        return ERR_OK;
    }
    char *copy = arena_strdup(&f->arena, *sql);
    char *select = split_last(copy);
    enum err err = select > copy ? duck_run_views(f->connections[0], copy, e) : ERR_OK;
    if (err == ERR_OK) {
        *sql = select > copy ? select : *sql; /* what is before it must not be run twice */
        err = duck_pour(f->connections[0], select, &sink, &f->is_poured, e);
    }
    if (err != ERR_OK && !f->is_poured) { /* the usual way says better what is wrong */
        *e = (struct error){0};
        err = ERR_OK;
    }
    return err;
}

/* DuckDB does not tell what an EXPLAIN explains, so that stands by itself: what is before it is run before it. */
static enum err part_explain(struct fragment *f, const char **sql, struct error *e)
{
    char *copy = arena_strdup(&f->arena, *sql);
    char *last = split_last(copy);
    if (last == copy || !query_explains(last)) {
        return ERR_OK;
    }
    *sql = last;
    return duck_run_views(f->connections[0], copy, e);
}

/* What the SQL is for, after the inputs are there. */
static enum err start_sql(struct fragment *f, char *sql, struct error *e)
{
    if (f->stage->publish.to != NULL) {
        return start_publish(f, sql, e);
    }
    if (f->stage->write.to != NULL) { /* with no operator, says physical_check.c */
        const char *select = split_last(sql);
        enum err err = select > sql ? duck_run_views(f->connections[0], sql, e) : ERR_OK;
        return err == ERR_OK ? start_file(f, select, e) : err;
    }
    const char *rest = sql;
    enum err err = pour(f, &rest, e);
    if (err != ERR_OK || f->is_poured) {
        return err;
    }
    err = part_explain(f, &rest, e);
    if (err == ERR_OK) {
        err = start_query(f, 0, rest, e);
    }
    if (err == ERR_OK && has_operator(f)) {
        err = start_operator(f, e);
    }
    if (err == ERR_OK && has_operator(f) && is_partitioned(f)) {
        err = start_scatter(f, e);
    }
    return err;
}

static enum err take_instance(struct fragment *f, struct error *e)
{
    struct sql_executor *sql = f->run->sql;
    enum err err = ERR_OK;
    f->trust = SQL_TRUST_LOST;
    for (int i = 0; i < 2 && err == ERR_OK && f->trust == SQL_TRUST_LOST; i++) {
        sql__give_instance(sql, f->instance, true);
        f->instance = NULL;
        err = sql__take_instance(sql, &f->instance, e);
        f->trust = err == ERR_OK ? sql__files_trust(sql, f->instance, f->stage, f->task) : f->trust;
    }
    return err;
}

/* Builds the chain from the inputs to the rows that are to be written. */
static enum err start(struct fragment *f, struct error *e)
{
    struct buf sql = {0};
    bool has_second = has_operator(f) && is_partitioned(f);
    enum err err = take_instance(f, e);
    if (err == ERR_OK) {
        err = connect(f, 0, e);
    }
    if (err == ERR_OK && has_second) {
        err = connect(f, 1, e);
    }
    if (err == ERR_OK) {
        err = physical_task_sql(&sql, f->plan, f->position, f->task, e);
    }
    if (err == ERR_OK) {
        err = register_inputs(f, e);
    }
    if (err == ERR_OK) {
        err = start_sql(f, sql.data, e);
    }
    buf_deinit(&sql);
    return err;
}

/* ---- the end of the chain ---- */

static enum err open_for_stream(struct fragment *f, struct error *e)
{
    struct ArrowSchema schema = {0};
    if (f->stream.get_schema(&f->stream, &schema) != 0) {
        return error_set(e, ERR_INTERNAL, "%s", f->stream.get_last_error(&f->stream));
    }
    enum err err = open_writer(f, &schema, e);
    schema.release(&schema);
    return err;
}

static enum err write_rows(struct fragment *f, struct error *e)
{
    enum err err = open_for_stream(f, e);
    while (err == ERR_OK) {
        struct ArrowArray batch = {0};
        if (f->stream.get_next(&f->stream, &batch) != 0) {
            const char *text = f->stream.get_last_error(&f->stream);
            return error_set(e, ERR_INTERNAL, "%s", text != NULL ? text : "the rows ended too early");
        }
        if (batch.release == NULL) {
            break;
        }
        err = write_batch(f, &batch, e);
        batch.release(&batch);
    }
    return err;
}

/* All rows are written: they become an output, unless it turns out that they were not what was planned. */
static enum err finish(struct fragment *f, struct error *e)
{
    struct exec_outcome *out = f->run->out;
    if (sql__files_have_changed(f->stage, f->task, e)) {
        return ERR_STALE;
    }
    f->tallies = arena_zalloc(&f->arena, f->n_partitions * sizeof(*f->tallies));
    enum err err = exchange_writer_finish(f->writer, f->tallies, e);
    struct buf ipc = {0};
    if (err == ERR_OK && is_result(f) && f->tallies[0].bytes <= inline_bytes_max(f)) {
        err = exchange_writer_take(f->writer, &ipc, e);
    }
    if (err != ERR_OK) {
        buf_deinit(&ipc);
        return err;
    }
    for (uint32_t i = 0; i < f->n_partitions; i++) {
        out->rows += f->tallies[i].rows;
        out->bytes += f->tallies[i].bytes;
    }
    out->output = (struct exec_output){.kind = is_result(f) ? EXEC_OUTPUT_RESULT : EXEC_OUTPUT_MAP, .ipc = ipc};
    if (is_result(f)) {
        out->output.rows = out->rows;
        out->output.bytes = out->bytes;
        return ERR_OK;
    }
    out->output.n_partitions = f->n_partitions;
    out->output.partitions = mem_calloc(f->n_partitions, sizeof(*out->output.partitions));
    for (uint32_t i = 0; i < f->n_partitions; i++) {
        const struct ipc_tally *tally = &f->tallies[i];
        out->output.partitions[i] = (struct exec_partition){.number = i,
                                                            .bytes = tally->bytes,
                                                            .rows = tally->rows,
                                                            .batches = tally->batches,
                                                            .checksum = tally->checksum};
    }
    return ERR_OK;
}

/* ---- the end ---- */

/*
 * Ends the chain, from its end. The fetches come first: nobody wants their rows any more, and a thread of DuckDB that
 * waits for some would be waited for.
 */
static void end_chain(struct fragment *f)
{
    for (uint32_t i = 0; i < f->stage->n_inputs && f->fetches != NULL; i++) {
        if (f->fetches[i] != NULL) {
            exchange_fetch_cancel(f->fetches[i]);
        }
    }
    if (f->stream.release != NULL) {
        f->stream.release(&f->stream);
    }
    for (uint32_t i = SQL_CONNECTIONS_MAX; i-- > 0;) {
        sql__run_set_connection(f->run, i, NULL);
        duck_disconnect(f->connections[i]);
    }
    exchange_writer_close(f->writer);
    sql__run_set_fetches(f->run, NULL, 0);
}

/* The first cause: what broke nearest to the inputs. */
static const struct error *cause_of(const struct fragment *f, const struct error *e, bool *out_is_fetch)
{
    for (uint32_t i = 0; i < f->stage->n_inputs && f->taps != NULL; i++) {
        enum err code = f->taps[i].error.code;
        if (code != ERR_OK && code != ERR_CANCELED) {
            *out_is_fetch = true;
            return &f->taps[i].error;
        }
    }
    const struct error *causes[] = {&f->rows[0].error, &f->operator_tap.error, &f->rows[1].error};
    for (size_t i = 0; i < ARRAY_LEN(causes); i++) {
        if (causes[i]->code != ERR_OK) {
            return causes[i];
        }
    }
    return e;
}

static bool is_noted(const struct exec_outcome *out, const struct exec_lost *lost)
{
    for (uint32_t i = 0; i < out->n_lost; i++) {
        const struct exec_lost *other = &out->lost[i];
        if (other->stage == lost->stage && other->task == lost->task && other->attempt == lost->attempt) {
            return true;
        }
    }
    return false;
}

/* Names the map outputs that could not be read. */
static void note_lost(const struct fragment *f)
{
    struct exec_outcome *out = f->run->out;
    struct exchange_key *keys = mem_calloc(LIMIT_FETCH_FAILED, sizeof(*keys));
    out->lost = mem_calloc(LIMIT_FETCH_FAILED, sizeof(*out->lost));
    for (uint32_t i = 0; i < f->stage->n_inputs; i++) {
        uint32_t n = f->fetches[i] != NULL ? exchange_fetch_failed(f->fetches[i], keys, LIMIT_FETCH_FAILED) : 0;
        for (uint32_t k = 0; k < n && out->n_lost < LIMIT_FETCH_FAILED; k++) {
            struct exec_lost lost = {.stage = keys[k].stage, .task = keys[k].task, .attempt = keys[k].attempt};
            if (i == 0 || !is_noted(out, &lost)) {
                out->lost[out->n_lost++] = lost;
            }
        }
    }
    mem_free(keys);
}

/* DuckDB's memory, and not the disk to which it spills: that is told with the same words, and another worker may have room. */
static bool is_out_of_memory(const struct error *e)
{
    return e->code == ERR_EXHAUSTED && strstr(e->message, "Out of Memory Error") != NULL &&
           strstr(e->message, "failed to offload data block") == NULL;
}

/* Whether another attempt would end the same way: the query itself is wrong, or what it reads, or it had all memory. */
static bool is_hopeless(const struct fragment *f, const struct error *e)
{
    return e->code == ERR_INVALID || e->code == ERR_STALE || (e->code == ERR_NOT_FOUND && f->stage->n_splits == 0) ||
           is_out_of_memory(e) || duck_has_failed(e);
}

static void add_hint(const struct fragment *f, struct error *e)
{
    if (e->hint[0] != '\0') {
        return;
    }
    uint64_t megabytes = f->run->sql->options.memory_bytes_max / 1000000;
    if (is_out_of_memory(e)) {
        error_hint(
            e, "it had all memory for queries of this worker, %" PRIu64 " MB, to itself: give workers more (--memory)",
            megabytes);
    } else if (e->code == ERR_EXHAUSTED) {
        error_hint(e, "queries of this worker have %" PRIu64 " MB of memory, and the disk behind it to spill to",
                   megabytes);
    } else if (e->code == ERR_NOT_FOUND) {
        error_hint(e, "paths must mean the same on all workers");
    } else if (duck_has_failed(e)) {
        sql__hint_of_failure(e);
    }
}

/* Now and then DuckDB begins to read a table twice that is named once. */
static bool is_read_twice(const struct error *e)
{
    return strstr(e->message, "an Arrow stream can be read only once") != NULL;
}

/* Whether, and how, a fragment is to be run once more at once. */
enum again { AGAIN_NOT, AGAIN_ALONE, AGAIN_WITH_ROWS_KEPT, AGAIN_WITH_CARE, AGAIN_ELSEWHERE };

/* So often may others break the DuckDB in which it runs. */
#define ELSEWHERE_MAX 5

/*
 * If it ran out of memory beside others, must have its inputs as tables, or DuckDB erred, nothing is said: it is run again. What
 * DuckDB errs at twice, it errs at on every worker.
 */
static enum again report_failure(struct fragment *f, const struct error *e)
{
    bool is_fetch = false;
    struct error cause = *cause_of(f, e, &is_fetch);
    struct error change = {0};
    if (exec_stop_reason(f->run->stop) != STOP_NONE) {
        exec_fail(f->run->out, false, "stopped");
    } else if (is_fetch) {
        note_lost(f);
        sql__fail(f->run, false, &cause);
    } else if (sql__files_have_changed(f->stage, f->task, &change)) {
        sql__fail(f->run, true, &change);
    } else if (is_out_of_memory(&cause) && !f->is_alone) {
        return AGAIN_ALONE;
    } else if (is_read_twice(&cause) && !f->keeps_rows) {
        return AGAIN_WITH_ROWS_KEPT;
    } else if (duck_is_lost(&cause) && f->n_elsewhere < ELSEWHERE_MAX) {
        return AGAIN_ELSEWHERE;
    } else if (duck_has_failed(&cause) && !f->is_careful) {
        sql__take_care(f->run->sql);
        return AGAIN_WITH_CARE;
    } else {
        add_hint(f, &cause);
        sql__fail(f->run, is_hopeless(f, &cause), &cause);
    }
    return AGAIN_NOT;
}

/* Whether DuckDB refuses everything from now on, or keeps what it could not write of what it spilled until it is closed. */
static bool is_unusable(const struct fragment *f, const struct error *e)
{
    const char *folder = f->run->sql->options.temp_folder;
    bool is_of_spill = folder != NULL && strstr(e->message, folder) != NULL;
    return is_of_spill || duck_has_failed(e) || duck_is_lost(e);
}

/* Runs it once. */
static enum again run_once(struct fragment f)
{
    struct error e = {0};
    struct sql_run *run = f.run;
    enum again again = AGAIN_NOT;
    f.n_partitions = is_partitioned(&f) ? f.stage->output.partitions : 1;
    enum err err = sql__files_have_changed(f.stage, f.task, &e) ? ERR_STALE : start(&f, &e);
    if (err == ERR_OK && !f.is_poured) {
        err = write_rows(&f, &e);
    }
    if (err == ERR_OK) {
        err = finish(&f, &e);
    }
    end_chain(&f);
    run->out->is_success = err == ERR_OK;
    if (err != ERR_OK) {
        again = report_failure(&f, &e);
        if (f.file.path != NULL) {
            sql__file_drop(&f.file);
        }
    }
    for (uint32_t i = 0; i < f.stage->n_inputs && f.fetches != NULL; i++) {
        exchange_fetch_close(f.fetches[i]);
    }
    /* One that may have read a file while that was changing may remember what nobody else has seen. */
    bool is_over = is_unusable(&f, &e) || is_unusable(&f, &f.rows[0].error) || again == AGAIN_WITH_CARE ||
                   again == AGAIN_ELSEWHERE || err == ERR_STALE;
    sql__give_instance(run->sql, f.instance, is_over);
    arena_deinit(&f.arena);
    return again;
}

void sql__run_stage(struct sql_run *run, const struct physical_plan *plan, uint32_t stage, uint32_t task)
{
    struct fragment f = {.run = run, .plan = plan, .stage = &plan->stages[stage], .position = stage, .task = task};
    for (bool is_wanted = true; is_wanted;) {
        if (!sql__room_enter(run, f.is_alone)) {
            exec_fail(run->out, false, "stopped");
            return;
        }
        enum again again = run_once(f);
        is_wanted = again != AGAIN_NOT;
        f.is_alone = f.is_alone || again == AGAIN_ALONE;
        f.keeps_rows = f.keeps_rows || again == AGAIN_WITH_ROWS_KEPT;
        f.is_careful = f.is_careful || again == AGAIN_WITH_CARE;
        f.n_elsewhere += again == AGAIN_ELSEWHERE ? 1 : 0;
        sql__room_leave(run);
        if (is_wanted) {
            atomic_store(&run->rows, 0);
            atomic_store(&run->bytes, 0);
            atomic_store(&run->rows_in, 0);
            atomic_store(&run->rows_expected, 0);
        }
    }
}

void sql__run_select(struct sql_run *run, const char *select)
{
    struct physical_stage stage = {.sql = select, .what = "", .output = {.exchange = EXCHANGE_RESULT}};
    struct physical_plan plan = {.n_stages = 1, .stages = &stage};
    sql__run_stage(run, &plan, 0, 0);
}
