#define _DEFAULT_SOURCE /* mkdtemp */
#include "sql_cluster.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "exchange/schema.h"
#include "test.h"

/* ---- life ---- */

static void open_worker(struct cluster *cluster, uint32_t i, const struct cluster_options *options)
{
    struct cluster_worker *worker = &cluster->workers[i];
    struct error e = {0};
    snprintf(worker->id, sizeof(worker->id), "worker-%" PRIu32, i);
    folder_open(&worker->folder, options->shuffle_bytes);
    worker->server = exchange_server_open(worker->folder.store, 2);
    struct rpc_method method = {.path = EXCHANGE_FETCH_PATH, .handler = exchange_serve};
    struct rpc_server_options server = {
        .listen = "127.0.0.1:0", .methods = &method, .n_methods = 1, .context = worker->server, .pollers = 1};
    CHECK_ERR(rpc_server_open(&server, &worker->rpc, &e), ERR_OK);
    snprintf(worker->address, sizeof(worker->address), "%s", rpc_server_address(worker->rpc));
    worker->channels = exchange_channels_open(&(struct rpc_channel_options){0});
    struct sql_options sql = {
        .store = worker->folder.store,
        .channels = worker->channels,
        .operators = cluster->operators,
        .worker_id = worker->id,
        .memory_bytes_max = options->memory_bytes > 0 ? options->memory_bytes : 500000000,
        .settled_ms = options->settled_ms,
        .threads = 2,
        .temp_folder = cluster->folder,
        .notes_folder = options->notes_folder,
    };
    worker->set = executor_set_new();
    CHECK_ERR(executor_set_add(worker->set, executor_sql(&sql), &e), ERR_OK);
}

void cluster_open(struct cluster *cluster, const struct cluster_options *options)
{
    struct error e = {0};
    struct duck_options duck = {.threads = 2, .memory_bytes_max = 1000000000};
    *cluster = (struct cluster){.folder = "/tmp/capstan-sql-XXXXXX"};
    CHECK(mkdtemp(cluster->folder) != NULL);
    if (options->plugin != NULL) {
        cluster->operators = operators_new();
        CHECK_ERR(operators_load(cluster->operators, options->plugin, &e), ERR_OK);
    }
    for (uint32_t i = 0; i < CLUSTER_WORKERS; i++) {
        open_worker(cluster, i, options);
    }
    CHECK_ERR(duck_open(&duck, &cluster->duck, &e), ERR_OK);
    CHECK_ERR(duck_connect(cluster->duck, &cluster->connection, &e), ERR_OK);
}

void cluster_stop_server(struct cluster *cluster, uint32_t worker)
{
    rpc_server_close(cluster->workers[worker].rpc, 0);
    cluster->workers[worker].rpc = NULL;
}

static void remove_files(const char *path)
{
    DIR *folder = opendir(path);
    CHECK(folder != NULL);
    const struct dirent *entry = NULL;
    while ((entry = readdir(folder)) != NULL) {
        char inner[600];
        snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
        bool is_own = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        if (!is_own && unlink(inner) != 0) {
            remove_files(inner);
        }
    }
    closedir(folder);
    CHECK_INT(rmdir(path), 0);
}

void cluster_close(struct cluster *cluster)
{
    for (uint32_t i = 0; i < CLUSTER_WORKERS; i++) {
        struct cluster_worker *worker = &cluster->workers[i];
        executor_set_free(worker->set);
        rpc_server_close(worker->rpc, 0);
        exchange_server_close(worker->server);
        exchange_channels_close(worker->channels);
        folder_close(&worker->folder);
    }
    operators_free(cluster->operators);
    duck_disconnect(cluster->connection);
    duck_close(cluster->duck);
    remove_files(cluster->folder);
}

/* ---- texts ---- */

static void fill_in_folder(const struct cluster *cluster, const char *text, struct buf *out)
{
    for (const char *p = text; *p != '\0'; p++) {
        buf_append(out, *p == '@' ? cluster->folder : p, *p == '@' ? strlen(cluster->folder) : 1);
    }
}

void cluster_sql(struct cluster *cluster, const char *sql)
{
    struct buf text = {0};
    struct error e = {0};
    fill_in_folder(cluster, sql, &text);
    enum err err = duck_run(cluster->connection, text.data, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
    buf_deinit(&text);
}

void cluster_inputs(const struct cluster *cluster, const char *sql, const char *members, struct buf *out)
{
    struct buf text = {0};
    fill_in_folder(cluster, sql, &text);
    buf_text(out, "{\"sql\":");
    json_write_text(out, text.data);
    if (members[0] != '\0') {
        buf_char(out, ',');
        fill_in_folder(cluster, members, out);
    }
    buf_char(out, '}');
    buf_deinit(&text);
}

/* ---- jobs ---- */

void cluster_begin(struct cluster *cluster, struct cluster_job *job)
{
    *job = (struct cluster_job){0};
    snprintf(job->id, sizeof(job->id), "job-%" PRIu32, cluster->n_jobs++);
}

void cluster_end(struct cluster_job *job)
{
    for (uint32_t i = 0; i < job->n_stages; i++) {
        for (uint32_t k = 0; k < job->stages[i].n_tasks; k++) {
            exec_outcome_deinit(&job->stages[i].outputs[k].outcome);
        }
        mem_free(job->stages[i].outputs);
    }
    buf_deinit(&job->plan);
    arena_deinit(&job->arena);
}

static struct cluster_stage *add_stage(struct cluster_job *job, uint32_t n_tasks)
{
    CHECK(job->n_stages < CLUSTER_STAGES_MAX);
    struct cluster_stage *stage = &job->stages[job->n_stages++];
    stage->n_tasks = n_tasks;
    stage->outputs = mem_calloc(n_tasks, sizeof(*stage->outputs));
    return stage;
}

void cluster_use_plan(struct cluster_job *job, const char *text)
{
    struct error e = {0};
    buf_reset(&job->plan);
    buf_text(&job->plan, text);
    enum err err = physical_read(job->plan.data, job->plan.n, &job->arena, &job->read, NULL, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
}

static void run(struct cluster *cluster, uint32_t worker, const struct exec_task *task, struct exec_stop *stop,
                struct exec_outcome *out)
{
    struct exec_stop *own = stop == NULL ? exec_stop_new() : NULL;
    exec_run(cluster->workers[worker].set, "sql", task, stop == NULL ? own : stop, out);
    exec_stop_free(own);
}

const struct exec_outcome *cluster_plan(struct cluster *cluster, struct cluster_job *job, const char *inputs)
{
    struct exec_task task = {
        .job_id = job->id, .stage = 0, .attempt = 1, .name = "plan", .inputs = inputs, .n_inputs = strlen(inputs)};
    struct cluster_output *output = add_stage(job, 1)->outputs;
    output->attempt = 1;
    run(cluster, 0, &task, NULL, &output->outcome);
    if (output->outcome.plan.n > 0) {
        cluster_use_plan(job, output->outcome.plan.data);
    }
    return &output->outcome;
}

/* ---- sources ---- */

struct sources {
    struct exec_source *list;
    uint32_t n;
    uint32_t cap;
};

/* All outputs of a stage of the job, or only one partition of each. */
static void add_sources(const struct cluster *cluster, const struct cluster_job *job, uint32_t job_stage, bool is_whole,
                        uint32_t partition, struct sources *out)
{
    const struct cluster_stage *stage = &job->stages[job_stage];
    CHECK(job_stage < job->n_stages);
    uint32_t n_read = stage->n_tasks - (job->mistake == CLUSTER_MISTAKE_OUTPUT && stage->n_tasks > 1 ? 1 : 0);
    for (uint32_t i = 0; i < n_read; i++) {
        const struct cluster_output *output = &stage->outputs[i];
        const struct cluster_worker *worker = &cluster->workers[output->worker];
        struct exec_source source = {.stage = job_stage,
                                     .task = i,
                                     .attempt = output->attempt,
                                     .worker_id = worker->id,
                                     .address = worker->address,
                                     .partitions = output->outcome.output.partitions,
                                     .n_partitions = output->outcome.output.n_partitions};
        CHECK_INT(output->outcome.output.kind, EXEC_OUTPUT_MAP);
        if (!is_whole) {
            CHECK(partition < source.n_partitions);
            source.partitions += partition;
            source.n_partitions = 1;
        }
        out->list = mem_grow(out->list, &out->cap, out->n + 1, sizeof(*out->list));
        out->list[out->n++] = source;
    }
}

void cluster_run_task(struct cluster *cluster, struct cluster_job *job, uint32_t stage, uint32_t job_stage,
                      uint32_t task, uint32_t worker, struct exec_stop *stop, struct exec_outcome *out)
{
    char name[16];
    uint32_t *parents = NULL;
    bool *is_whole = NULL;
    struct sources sources = {0};
    uint32_t n = physical_parents(job->read, stage, &job->arena, &parents, &is_whole);
    for (uint32_t i = 0; i < n; i++) {
        add_sources(cluster, job, job->read->stages[parents[i]].job_stage, is_whole[i], task, &sources);
    }
    snprintf(name, sizeof(name), "s%" PRIu32, job->read->stages[stage].id);
    struct exec_task is = {.job_id = job->id,
                           .stage = job_stage,
                           .task = task,
                           .attempt = 1,
                           .name = name,
                           .inputs = job->plan.data,
                           .n_inputs = job->plan.n,
                           .sources = sources.list,
                           .n_sources = sources.n};
    run(cluster, worker, &is, stop, out);
    mem_free(sources.list);
}

/* ---- steps ---- */

/* Whether something waits for the sizes of stages. */
static bool has_choices(const struct physical_plan *plan)
{
    struct arena arena = {0};
    uint32_t *awaited = NULL;
    uint32_t n = physical_awaited(plan, &arena, &awaited);
    arena_deinit(&arena);
    return n > 0;
}

static bool is_well(const struct cluster_job *job, const struct exec_outcome *out)
{
    if (!out->is_success && job->failure != NULL) {
        buf_text(job->failure, out->message.data);
        return false;
    }
    CHECK_STR(out->is_success ? NULL : out->message.data, NULL);
    return true;
}

/* The number-th in turn of those that get tasks. */
static uint32_t worker_of(const struct cluster_job *job, uint32_t number)
{
    return number % (job->n_workers > 0 ? job->n_workers : CLUSTER_WORKERS);
}

/* False if nothing is left to run. */
static bool refine(struct cluster *cluster, struct cluster_job *job)
{
    uint32_t *awaited = NULL;
    struct sources sources = {0};
    uint32_t n = physical_awaited(job->read, &job->arena, &awaited);
    for (uint32_t i = 0; i < n; i++) {
        add_sources(cluster, job, job->read->stages[awaited[i]].job_stage, true, 0, &sources);
    }
    struct exec_task task = {.job_id = job->id,
                             .stage = job->n_stages,
                             .attempt = 1,
                             .name = "refine",
                             .inputs = job->plan.data,
                             .n_inputs = job->plan.n,
                             .sources = sources.list,
                             .n_sources = sources.n};
    struct cluster_output *output = add_stage(job, 1)->outputs;
    output->worker = worker_of(job, job->n_refined++);
    output->attempt = 1;
    run(cluster, output->worker, &task, NULL, &output->outcome);
    mem_free(sources.list);
    if (!is_well(job, &output->outcome)) {
        return false;
    }
    if (output->outcome.output.kind == EXEC_OUTPUT_RESULT) {
        job->answered_by = job->n_stages - 1;
        return false;
    }
    CHECK_INT(output->outcome.output.kind, EXEC_OUTPUT_NONE);
    cluster_use_plan(job, output->outcome.plan.data);
    return true;
}

bool cluster_step(struct cluster *cluster, struct cluster_job *job)
{
    bool is_due[CLUSTER_STAGES_MAX];
    bool has_run = false;
    CHECK(job->read->n_stages <= CLUSTER_STAGES_MAX);
    for (uint32_t i = 0; i < job->read->n_stages; i++) {
        is_due[i] = physical_is_due(job->read, i);
    }
    physical_mark_added(job->read);
    for (uint32_t i = 0; i < job->read->n_stages; i++) {
        if (!is_due[i]) {
            continue;
        }
        CHECK_UINT(job->read->stages[i].job_stage, job->n_stages);
        uint32_t n = physical_tasks(job->read, i);
        struct cluster_stage *stage = add_stage(job, n);
        for (uint32_t k = 0; k < n; k++) {
            struct cluster_output *output = &stage->outputs[k];
            output->attempt = 1;
            output->worker = worker_of(job, i + k);
            cluster_run_task(cluster, job, i, job->read->stages[i].job_stage, k, output->worker, NULL,
                             &output->outcome);
            if (!is_well(job, &output->outcome)) {
                return false;
            }
        }
        has_run = true;
    }
    return !(has_choices(job->read) && !refine(cluster, job)) && has_run;
}

/* ---- results ---- */

/* An Arrow stream's bytes as a stream of arrays. */
struct bytes {
    struct block *block;
    struct ipc_reader *reader;
    size_t at;
    struct error e;
};

static int read_message(struct bytes *bytes, struct ArrowArray *out)
{
    uint64_t n = 0;
    bool is_known = false;
    *out = (struct ArrowArray){0};
    enum err err =
        ipc_message_bytes(bytes->block->bytes + bytes->at, bytes->block->n - bytes->at, &n, &is_known, &bytes->e);
    if (err != ERR_OK || !is_known) {
        return 5;
    }
    err = ipc_reader_message(bytes->reader, bytes->block, bytes->at, (size_t)n, out, &bytes->e);
    bytes->at += (size_t)n;
    return err == ERR_OK ? 0 : 5;
}

static int bytes_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    struct bytes *bytes = stream->private_data;
    struct ArrowArray none;
    int failure = bytes->at == 0 ? read_message(bytes, &none) : 0;
    if (failure == 0) {
        schema_copy(ipc_reader_schema(bytes->reader), out);
    }
    return failure;
}

static int bytes_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    struct bytes *bytes = stream->private_data;
    int failure = 0;
    *out = (struct ArrowArray){0};
    while (failure == 0 && out->release == NULL && !ipc_reader_has_ended(bytes->reader)) {
        failure = read_message(bytes, out);
    }
    return failure;
}

static const char *bytes_error(struct ArrowArrayStream *stream)
{
    return ((struct bytes *)stream->private_data)->e.message;
}

static void bytes_release(struct ArrowArrayStream *stream)
{
    struct bytes *bytes = stream->private_data;
    ipc_reader_free(bytes->reader);
    block_unref(bytes->block);
    mem_free(bytes);
    stream->release = NULL;
}

/* The bytes of a task's result: in its outcome, or in the store of its worker. */
static struct block *bytes_of(struct cluster *cluster, const struct cluster_job *job, uint32_t job_stage, uint32_t task)
{
    const struct cluster_output *output = &job->stages[job_stage].outputs[task];
    const struct exec_output *is = &output->outcome.output;
    struct block *block = block_new((size_t)is->bytes);
    CHECK_INT(is->kind, EXEC_OUTPUT_RESULT);
    if (is->ipc.n > 0) {
        CHECK_UINT(is->ipc.n, is->bytes);
        memcpy(block->bytes, is->ipc.data, is->ipc.n);
        return block;
    }
    struct exchange_key key;
    struct exchange_reader *reader = NULL;
    struct error e = {0};
    size_t at = 0;
    size_t n = 1;
    CHECK(exchange_key_make(job->id, job_stage, task, output->attempt, &key));
    struct exchange_store *store = cluster->workers[output->worker].folder.store;
    CHECK_ERR(exchange_reader_open(store, &key, 0, 0, &reader, &e), ERR_OK);
    while (n > 0 && at < block->n) {
        CHECK_ERR(exchange_reader_read(reader, true, block->bytes + at, block->n - at, &n, &e), ERR_OK);
        at += n;
    }
    CHECK_UINT(at, is->bytes);
    exchange_reader_close(reader);
    return block;
}

static void add_rows(struct cluster *cluster, const struct cluster_job *job, uint32_t job_stage, uint32_t task,
                     struct table *out)
{
    struct error e = {0};
    struct bytes *bytes = mem_calloc(1, sizeof(*bytes));
    bytes->block = bytes_of(cluster, job, job_stage, task);
    bytes->reader = ipc_reader_new(&(struct ipc_reader_options){.needs_checksums = true});
    struct ArrowArrayStream stream = {.get_schema = bytes_schema,
                                      .get_next = bytes_next,
                                      .get_last_error = bytes_error,
                                      .release = bytes_release,
                                      .private_data = bytes};
    struct duck_input table = {.name = "result_rows", .is_kept = true};
    uint32_t n_before = out->n_rows;
    if (duck_register(cluster->connection, &table, &stream, &e) != ERR_OK && job->failure != NULL) {
        buf_text(job->failure, e.message);
        return;
    }
    CHECK_ERR(e.code, ERR_OK);
    CHECK_ERR(table_append(out, cluster->connection, "SELECT * FROM result_rows", &e), ERR_OK);
    duck_unregister(cluster->connection, "result_rows");
    CHECK_UINT(job->stages[job_stage].outputs[task].outcome.output.rows, out->n_rows - n_before);
}

void cluster_result(struct cluster *cluster, struct cluster_job *job, struct table *out)
{
    uint32_t job_stage = job->answered_by;
    for (uint32_t i = 0; job_stage == 0 && job->read != NULL && i < job->read->n_stages; i++) {
        bool is_result = job->read->stages[i].output.exchange == EXCHANGE_RESULT;
        job_stage = is_result && job->n_stages > 1 ? job->read->stages[i].job_stage : job_stage;
    }
    uint32_t n = job->stages[job_stage].n_tasks;
    for (uint32_t i = 0; i < n; i++) {
        add_rows(cluster, job, job_stage, job->mistake == CLUSTER_MISTAKE_ORDER ? n - 1 - i : i, out);
    }
}

void cluster_check_plan(struct cluster *cluster, const char *text, const char *expected)
{
    struct cluster_job job;
    struct table rows = {0};
    cluster_begin(cluster, &job);
    cluster_use_plan(&job, text);
    while (cluster_step(cluster, &job)) {
    }
    cluster_result(cluster, &job, &rows);
    CHECK_UINT(rows.n_rows, 1);
    CHECK_STR(rows.rows[0][0], expected);
    table_deinit(&rows);
    cluster_end(&job);
}

uint32_t cluster_compare(struct cluster *cluster, const char *sql, const char *members, enum table_order order,
                         uint32_t *out_refined)
{
    struct buf inputs = {0};
    struct buf plain = {0};
    struct buf difference = {0};
    struct table expected = {0};
    struct table actual = {0};
    struct error e = {0};
    struct cluster_job job;
    cluster_begin(cluster, &job);
    cluster_inputs(cluster, sql, members, &inputs);
    const struct exec_outcome *planned = cluster_plan(cluster, &job, inputs.data);
    (void)is_well(&job, planned);
    while (planned->output.kind == EXEC_OUTPUT_NONE && cluster_step(cluster, &job)) {
    }
    cluster_result(cluster, &job, &actual);
    fill_in_folder(cluster, sql, &plain);
    enum err err = table_append(&expected, cluster->connection, plain.data, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
    bool is_equal = table_equal(&expected, &actual, order, &difference);
    if (!is_equal) {
        print_error("%s\n%s\n", sql, difference.data);
    }
    CHECK(is_equal);
    uint32_t n = job.n_stages;
    if (out_refined != NULL) {
        *out_refined = job.n_refined;
    }
    table_deinit(&expected);
    table_deinit(&actual);
    buf_deinit(&inputs);
    buf_deinit(&plain);
    buf_deinit(&difference);
    cluster_end(&job);
    return n;
}
