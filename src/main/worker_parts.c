#include "main/worker_parts.h"

#include <string.h>

#include "base/limits.h"
#include "base/log.h"
#include "cli/value.h"
#include "duck/duck.h"
#include "worker/folder.h"

/*
 * Of the worker's memory: what DuckDB may use for fragments, and what stays in memory of outputs. The rest is for rows on
 * their way, in parts of the first (sql_stage.c), and for blocks that are kept, a part of the second (store.c).
 */
#define DUCK_SHARE 2
#define STORE_SHARE 4

static const char *inner(struct cli *cli, const char *name)
{
    return arena_format(&cli->arena, "%s/%s", cli_text(cli, "data"), name);
}

/* ---- executors ---- */

static bool is_listed(const char *list, const char *name)
{
    char part[LIMIT_NAME_BYTES + 1];
    for (uint32_t i = 0; value_list_at(list, i, part, sizeof part); i++) {
        if (strcmp(part, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_wanted(struct cli *cli, const char *executor)
{
    const char *wanted = cli_text(cli, "executors");
    return wanted == NULL || is_listed(wanted, executor);
}

static enum err add_executor(struct cli *cli, struct executor_set *set, struct executor *executor, struct error *e)
{
    if (!is_wanted(cli, executor->name)) {
        executor_close(executor);
        return ERR_OK;
    }
    enum err err = executor_set_add(set, executor, e);
    if (err != ERR_OK) {
        executor_close(executor);
    }
    return err;
}

/*
 * Opening the library costs about 12 MB of memory and 20 ms; a database is opened by the first task that needs one. A
 * worker that cannot open it does everything else, unless SQL was asked for by name.
 */
static enum err find_engine(struct cli *cli, struct worker_parts *parts, struct error *e)
{
    struct error why = {0};
    enum err err = is_wanted(cli, "sql") ? duck_engine(&parts->engine, &why) : ERR_OK;
    if (err != ERR_OK && cli_text(cli, "executors") != NULL) {
        *e = why;
        return err;
    }
    if (err != ERR_OK) {
        log_warn("sql", "this worker runs no SQL: %s%s%s", why.message, why.hint[0] != '\0' ? "; " : "", why.hint);
    }
    return ERR_OK;
}

static enum err add_sql(struct cli *cli, const struct worker_role *role, struct worker_parts *parts, struct error *e)
{
    if (parts->engine == NULL) {
        return ERR_OK;
    }
    struct sql_options options = {.store = parts->store,
                                  .channels = parts->channels,
                                  .operators = parts->operators,
                                  .worker_id = role->worker_id,
                                  .memory_bytes_max = (uint64_t)cli_number(cli, "memory") / DUCK_SHARE,
                                  .threads = role->slots,
                                  .temp_folder = inner(cli, WORKER_DIR_TMP),
                                  .notes_folder = inner(cli, "writes"),
                                  .is_compressed = strcmp(cli_text(cli, "shuffle-compression"), "lz4") == 0};
    return add_executor(cli, parts->executors, executor_sql(&options), e);
}

/* A file may hold an executor, operators, or both. */
static enum err add_plugin(struct cli *cli, struct worker_parts *parts, const char *path, struct error *e)
{
    struct executor *executor = NULL;
    enum err operators_err = operators_load(parts->operators, path, e);
    if (operators_err != ERR_OK && operators_err != ERR_PRECONDITION) {
        return operators_err;
    }
    enum err err = executor_plugin(path, &executor, e);
    if (err == ERR_OK) {
        return add_executor(cli, parts->executors, executor, e);
    }
    if (err != ERR_PRECONDITION) {
        return err;
    }
    if (operators_err == ERR_OK) {
        return ERR_OK;
    }
    error_set(e, ERR_INVALID, "%s is no plug-in: it has neither capstan_executor_v1 nor capstan_operators_v1", path);
    error_hint(e, "export one of these functions; 'nm -D' shows what a file has");
    return ERR_INVALID;
}

static enum err add_plugins(struct cli *cli, struct worker_parts *parts, struct error *e)
{
    uint32_t n = 0;
    const char *const *paths = cli_list(cli, "plugin", &n);
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < n && err == ERR_OK; i++) {
        err = add_plugin(cli, parts, paths[i], e);
    }
    return err;
}

static struct command_limits read_command_limits(struct cli *cli)
{
    struct command_limits limits = {0};
#define X(symbol, member, option)                                                                                      \
    limits.max[symbol] = cli_number(cli, option) > 0 ? (uint64_t)cli_number(cli, option) : 0;
    COMMAND_LIMITS_TABLE(X)
#undef X
    limits.max[COMMAND_CPU] = (limits.max[COMMAND_CPU] + 999) / 1000; /* the system counts seconds */
    return limits;
}

static enum err add_built_in(struct cli *cli, struct executor_set *set, struct error *e)
{
    struct exec_options options = {.http_deny_private = cli_flag(cli, "http-deny-private"),
                                   .work_dir = inner(cli, WORKER_DIR_WORK),
                                   .command_limits = read_command_limits(cli)};
    options.pass_env = cli_list(cli, "pass-env", &options.n_pass_env);
    enum err err = add_executor(cli, set, executor_command(&options), e);
    if (err == ERR_OK) {
        err = add_executor(cli, set, executor_http(&options), e);
    }
    return err == ERR_OK ? add_executor(cli, set, executor_sleep(), e) : err;
}

/* That every executor which was asked for is there, or will be. */
static enum err check_executors(struct cli *cli, const struct worker_parts *parts, struct error *e)
{
    const char *wanted = cli_text(cli, "executors");
    char name[LIMIT_NAME_BYTES + 1];
    for (uint32_t i = 0; wanted != NULL && value_list_at(wanted, i, name, sizeof name); i++) {
        bool is_sql = parts->engine != NULL && strcmp(name, "sql") == 0;
        if (!is_sql && executor_set_find(parts->executors, name) == NULL) {
            error_set(e, ERR_INVALID, "there is no executor '%s'", name);
            error_hint(e, "there are command, http, sleep, sql, and what --plugin loads");
            return ERR_INVALID;
        }
    }
    return ERR_OK;
}

/* ---- operators ---- */

/* Writes the required operators that are not there, with ", " between; nothing if all are. */
static void write_missing_ops(const struct operators *operators, const char *required, struct buf *out)
{
    char name[LIMIT_NAME_BYTES + 1];
    for (uint32_t i = 0; required != NULL && value_list_at(required, i, name, sizeof name); i++) {
        if (!operators_have(operators, name)) {
            buf_format(out, "%s%s", out->n > 0 ? ", " : "", name);
        }
    }
}

static enum err check_operators(struct cli *cli, const struct operators *operators, struct error *e)
{
    struct buf missing = {0};
    enum err err = ERR_OK;
    write_missing_ops(operators, cli_text(cli, "require-ops"), &missing);
    if (missing.n > 0) {
        err = error_set(e, ERR_INVALID, "required operators are missing: %s", missing.data);
        error_hint(e, "load the files that have them with --plugin, or link them into the worker");
    }
    buf_deinit(&missing);
    return err;
}

/* ---- all of them ---- */

enum err worker_parts_take_folder(struct cli *cli, struct worker_parts *parts, struct error *e)
{
    int folder = -1;
    enum err err = worker_folder_take(cli_text(cli, "data"), &folder, e);
    parts->folder = folder + 1;
    return err;
}

static void note_fetched(void *context, int64_t us)
{
    metric_observe(context, (double)us / 1e6);
}

static enum err open_exchange(struct cli *cli, const struct worker_role *role, struct worker_parts *parts,
                              struct error *e)
{
    struct exchange_store_options store = {.shuffle_folder = inner(cli, WORKER_DIR_SHUFFLE),
                                           .result_folder = inner(cli, WORKER_DIR_RESULTS),
                                           .memory_bytes_max = (uint64_t)cli_number(cli, "memory") / STORE_SHARE};
    enum err err = exchange_store_open(&store, &parts->store, e);
    if (err == ERR_OK) {
        parts->channels = exchange_channels_open(&role->to_workers);
        metric_histogram_of_seconds(&parts->fetch_seconds);
        exchange_channels_watch(parts->channels, note_fetched, &parts->fetch_seconds);
    }
    return err;
}

enum err worker_parts_prepare(struct cli *cli, struct worker_parts *parts, struct error *e)
{
    parts->operators = operators_new();
    parts->executors = executor_set_new();
    enum err err = add_built_in(cli, parts->executors, e);
    if (err == ERR_OK) {
        err = add_plugins(cli, parts, e);
    }
    if (err == ERR_OK) {
        err = check_operators(cli, parts->operators, e);
    }
    if (err == ERR_OK) {
        err = find_engine(cli, parts, e);
    }
    return err == ERR_OK ? check_executors(cli, parts, e) : err;
}

enum err worker_parts_open(struct cli *cli, const struct worker_role *role, struct worker_parts *parts, struct error *e)
{
    enum err err = open_exchange(cli, role, parts, e);
    return err == ERR_OK ? add_sql(cli, role, parts, e) : err;
}

void worker_parts_close(struct worker_parts *parts)
{
    executor_set_free(parts->executors);
    operators_free(parts->operators);
    exchange_channels_close(parts->channels);
    exchange_store_close(parts->store);
    worker_folder_give_back(parts->folder - 1);
    *parts = (struct worker_parts){0};
}
