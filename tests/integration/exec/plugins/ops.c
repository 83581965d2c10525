/*
 * ops.c - operators for tests: such as change columns, drop, keep and add rows, fail, and emit what they must not.
 */
#include <capstan/operator.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_MAX 4096
#define COLUMNS_MAX 4

/* ---- making schemas and arrays of BIGINTs ---- */

struct schema_memory {
    struct ArrowSchema children[COLUMNS_MAX];
    struct ArrowSchema *pointers[COLUMNS_MAX];
};

static void release_schema(struct ArrowSchema *schema)
{
    free(schema->private_data);
    schema->release = NULL;
}

static void release_child_schema(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static void make_schema(struct ArrowSchema *out, const char *const *names, int n, const char *format)
{
    struct schema_memory *memory = calloc(1, sizeof(*memory));
    for (int i = 0; i < n; i++) {
        memory->children[i] = (struct ArrowSchema){
            .format = format, .name = names[i], .flags = ARROW_FLAG_NULLABLE, .release = release_child_schema};
        memory->pointers[i] = &memory->children[i];
    }
    *out = (struct ArrowSchema){.format = "+s",
                                .n_children = n,
                                .children = memory->pointers,
                                .release = release_schema,
                                .private_data = memory};
}

struct array_memory {
    struct ArrowArray children[COLUMNS_MAX];
    struct ArrowArray *pointers[COLUMNS_MAX];
    const void *buffers[COLUMNS_MAX][2];
    const void *no_buffers[1];
    int64_t values[COLUMNS_MAX];
};

static void release_array(struct ArrowArray *array)
{
    free(array->private_data);
    array->release = NULL;
}

static void release_child_array(struct ArrowArray *array)
{
    array->release = NULL;
}

/* One row. */
static struct array_memory *make_row(struct ArrowArray *out, const int64_t *values, int n)
{
    struct array_memory *memory = calloc(1, sizeof(*memory));
    for (int i = 0; i < n; i++) {
        memory->values[i] = values[i];
        memory->buffers[i][1] = &memory->values[i];
        memory->children[i] = (struct ArrowArray){
            .length = 1, .n_buffers = 2, .buffers = memory->buffers[i], .release = release_child_array};
        memory->pointers[i] = &memory->children[i];
    }
    *out = (struct ArrowArray){.length = 1,
                               .n_buffers = 1,
                               .buffers = memory->no_buffers,
                               .n_children = n,
                               .children = memory->pointers,
                               .release = release_array,
                               .private_data = memory};
    return memory;
}

static void emit_row(const int64_t *values, int n, const struct capstan_operator_host *host,
                     struct capstan_operator_run *run)
{
    struct ArrowArray row;
    make_row(&row, values, n);
    host->emit(run, &row);
    if (row.release != NULL) {
        abort(); /* emit takes it over in any case */
    }
}

static void *create_nothing(const char *config_json, const struct ArrowSchema *input, struct ArrowSchema *output,
                            const struct capstan_operator_host *host, struct capstan_operator_run *run)
{
    (void)config_json;
    (void)input;
    (void)output;
    (void)host;
    (void)run;
    return NULL;
}

/* ---- pass: the rows as they come ---- */

static void process_pass(void *instance, struct ArrowArray *rows, const struct capstan_operator_host *host,
                         struct capstan_operator_run *run)
{
    (void)instance;
    host->emit(run, rows);
}

/* ---- measure: a row for each batch: how many rows and columns it has ---- */

static void *create_measure(const char *config_json, const struct ArrowSchema *input, struct ArrowSchema *output,
                            const struct capstan_operator_host *host, struct capstan_operator_run *run)
{
    static const char *const names[] = {"n rows", "n_columns"};
    (void)config_json;
    (void)input;
    (void)host;
    (void)run;
    make_schema(output, names, 2, "l");
    return NULL;
}

static void process_measure(void *instance, struct ArrowArray *rows, const struct capstan_operator_host *host,
                            struct capstan_operator_run *run)
{
    (void)instance;
    emit_row((int64_t[]){rows->length, rows->n_children}, 2, host, run);
}

/* ---- odd: of one BIGINT column the odd values, one array for each ---- */

static void process_odd(void *instance, struct ArrowArray *rows, const struct capstan_operator_host *host,
                        struct capstan_operator_run *run)
{
    (void)instance;
    const struct ArrowArray *column = rows->children[0];
    const uint8_t *valid = column->buffers[0];
    const int64_t *values = column->buffers[1];
    for (int64_t i = column->offset; i < column->offset + column->length; i++) {
        if ((valid == NULL || (valid[i / 8] >> (i % 8) & 1) != 0) && values[i] % 2 != 0) {
            emit_row(&values[i], 1, host, run);
        }
    }
}

/* ---- tail: each batch without its first 3 rows, by an offset ---- */

static void process_tail(void *instance, struct ArrowArray *rows, const struct capstan_operator_host *host,
                         struct capstan_operator_run *run)
{
    (void)instance;
    int64_t cut = rows->length < 3 ? rows->length : 3;
    rows->offset += cut;
    rows->length -= cut;
    host->emit(run, rows);
}

/* ---- keep: all rows at the end, the last batch first ---- */

struct kept {
    struct ArrowArray arrays[KEPT_MAX];
    int n;
};

static void *create_keep(const char *config_json, const struct ArrowSchema *input, struct ArrowSchema *output,
                         const struct capstan_operator_host *host, struct capstan_operator_run *run)
{
    (void)config_json;
    (void)input;
    (void)output;
    (void)host;
    (void)run;
    return calloc(1, sizeof(struct kept));
}

static void process_keep(void *instance, struct ArrowArray *rows, const struct capstan_operator_host *host,
                         struct capstan_operator_run *run)
{
    struct kept *kept = instance;
    if (kept->n == KEPT_MAX) {
        host->set_error(run, CAPSTAN_RETRY, "too many", 8);
        return;
    }
    kept->arrays[kept->n++] = *rows;
    rows->release = NULL;
}

static void finish_keep(void *instance, const struct capstan_operator_host *host, struct capstan_operator_run *run)
{
    struct kept *kept = instance;
    while (kept->n > 0) {
        host->emit(run, &kept->arrays[--kept->n]);
    }
}

static void destroy_keep(void *instance)
{
    struct kept *kept = instance;
    for (int i = 0; i < kept->n; i++) {
        kept->arrays[i].release(&kept->arrays[i]);
    }
    free(kept);
}

/* ---- count: one row at the end, also of nothing ---- */

static void *create_count(const char *config_json, const struct ArrowSchema *input, struct ArrowSchema *output,
                          const struct capstan_operator_host *host, struct capstan_operator_run *run)
{
    static const char *const names[] = {"n", "stopped"};
    (void)config_json;
    (void)input;
    (void)host;
    (void)run;
    make_schema(output, names, 2, "l");
    return calloc(1, sizeof(int64_t));
}

static void process_count(void *instance, struct ArrowArray *rows, const struct capstan_operator_host *host,
                          struct capstan_operator_run *run)
{
    (void)host;
    (void)run;
    int64_t *count = instance;
    *count += rows->length;
}

static void finish_count(void *instance, const struct capstan_operator_host *host, struct capstan_operator_run *run)
{
    const int64_t *count = instance;
    emit_row((int64_t[]){*count, host->is_stopped(run)}, 2, host, run);
}

/* ---- mute: no rows at all ---- */

static void process_mute(void *instance, struct ArrowArray *rows, const struct capstan_operator_host *host,
                         struct capstan_operator_run *run)
{
    (void)instance;
    (void)rows;
    (void)host;
    (void)run;
}

/* ---- broken: fails where its configuration says ---- */

struct broken {
    bool in_process;
    bool in_finish;
    bool again;
};

static void fail_for(const struct broken *broken, const char *where, const struct capstan_operator_host *host,
                     struct capstan_operator_run *run)
{
    host->set_error(run, broken->again ? CAPSTAN_RETRY : CAPSTAN_NO_RETRY, where, strlen(where));
    host->set_error(run, CAPSTAN_NO_RETRY, "not this one", 12);
}

static void *create_broken(const char *config_json, const struct ArrowSchema *input, struct ArrowSchema *output,
                           const struct capstan_operator_host *host, struct capstan_operator_run *run)
{
    static const char *const names[] = {"n"};
    struct broken broken = {.in_process = strstr(config_json, "process") != NULL,
                            .in_finish = strstr(config_json, "finish") != NULL,
                            .again = strstr(config_json, "again") != NULL};
    (void)input;
    make_schema(output, names, 1, "l");
    if (strstr(config_json, "create") != NULL) {
        fail_for(&broken, "it broke in create", host, run);
        return NULL;
    }
    struct broken *instance = malloc(sizeof(*instance));
    *instance = broken;
    return instance;
}

static void process_broken(void *instance, struct ArrowArray *rows, const struct capstan_operator_host *host,
                           struct capstan_operator_run *run)
{
    const struct broken *broken = instance;
    (void)rows;
    emit_row((int64_t[]){1}, 1, host, run);
    if (broken->in_process) {
        fail_for(broken, "it broke in process", host, run);
        emit_row((int64_t[]){2}, 1, host, run);
    }
}

static void finish_broken(void *instance, const struct capstan_operator_host *host, struct capstan_operator_run *run)
{
    const struct broken *broken = instance;
    if (broken->in_finish) {
        fail_for(broken, "it broke in finish", host, run);
    }
}

/* ---- liar: announces and emits what its configuration says, wrongly ---- */

struct liar {
    char config[100];
};

static void *create_liar(const char *config_json, const struct ArrowSchema *input, struct ArrowSchema *output,
                         const struct capstan_operator_host *host, struct capstan_operator_run *run)
{
    static const char *const names[] = {"a", "b"};
    (void)input;
    bool is_bad = strstr(config_json, "format") != NULL;
    make_schema(output, names, strstr(config_json, "nothing") != NULL ? 0 : 2, is_bad ? "?" : "l");
    if (strstr(config_json, "early") != NULL) {
        emit_row((int64_t[]){1, 2}, 2, host, run); /* it goes on as if nothing were wrong */
    }
    if (strstr(config_json, "no struct") != NULL) {
        output->format = "l";
    }
    struct liar *liar = calloc(1, sizeof(*liar));
    snprintf(liar->config, sizeof(liar->config), "%s", config_json);
    return liar;
}

static void process_liar(void *instance, struct ArrowArray *rows, const struct capstan_operator_host *host,
                         struct capstan_operator_run *run)
{
    static const uint8_t none_valid[1] = {0};
    const struct liar *liar = instance;
    (void)rows;
    struct ArrowArray row;
    struct array_memory *memory = make_row(&row, (int64_t[]){1, 2}, 2);
    if (strstr(liar->config, "columns") != NULL) {
        row.n_children = 1;
    } else if (strstr(liar->config, "length") != NULL) {
        row.length = 2;
    } else if (strstr(liar->config, "negative") != NULL) {
        row.length = -1;
    } else if (strstr(liar->config, "buffers") != NULL) {
        memory->children[1].n_buffers = 3;
    } else if (strstr(liar->config, "values") != NULL) {
        memory->buffers[1][1] = NULL;
    } else if (strstr(liar->config, "bitmap") != NULL) {
        memory->children[0].null_count = 1;
    } else if (strstr(liar->config, "null row") != NULL) {
        memory->no_buffers[0] = none_valid;
        row.null_count = 1;
    } else if (strstr(liar->config, "released") != NULL) {
        row.release(&row);
    }
    host->emit(run, &row);
}

#define COMMON .size = sizeof(struct capstan_operator), .abi = CAPSTAN_OPERATOR_ABI

static const struct capstan_operator operators[] = {
    {COMMON, .name = "pass", .create = create_nothing, .process = process_pass},
    {COMMON, .name = "measure", .create = create_measure, .process = process_measure},
    {COMMON, .name = "odd", .create = create_nothing, .process = process_odd},
    {COMMON, .name = "tail", .create = create_nothing, .process = process_tail},
    {COMMON, .name = "keep", .create = create_keep, .process = process_keep, .finish = finish_keep,
     .destroy = destroy_keep},
    {COMMON, .name = "count", .create = create_count, .process = process_count, .finish = finish_count,
     .destroy = free},
    {COMMON, .name = "mute", .create = create_nothing, .process = process_mute},
    {COMMON, .name = "broken", .create = create_broken, .process = process_broken, .finish = finish_broken,
     .destroy = free},
    {COMMON, .name = "liar", .create = create_liar, .process = process_liar, .destroy = free},
};

const struct capstan_operator *const *capstan_operators_v1(void)
{
    static const struct capstan_operator *all[sizeof(operators) / sizeof(operators[0]) + 1];
    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++) {
        all[i] = &operators[i];
    }
    return all;
}
