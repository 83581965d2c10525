#include "cli/query.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/random.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/suggest.h"
#include "cli/text.h"
#include "cli/value.h"
#include "cli/watch.h"
#include "wire/json_shape.h"

#define STATUS_WAIT_MS 30000
#define PICTURE_FIRST_MS 300 /* most queries have ended by then and need no picture */
#define PICTURE_EVERY_MS 250
#define PATIENCE_MS 60000 /* with a coordinator that was there before */

/* ---- parameters and settings ---- */

/* The length of the name, if the text is NAME=VALUE and NAME is a word; else 0. */
static size_t name_length(const char *text)
{
    size_t n = 0;
    if (isdigit((unsigned char)text[0]) != 0) {
        return 0;
    }
    while (isalnum((unsigned char)text[n]) != 0 || text[n] == '_') {
        n++;
    }
    return text[n] == '=' ? n : 0;
}

/* The value as it is if it is JSON, else as a text. */
static void put_value(struct buf *out, const char *text)
{
    struct json *root = NULL;
    if (json_parse(text, strlen(text), &root, NULL) == ERR_OK) {
        buf_text(out, text);
        json_free(root);
    } else {
        json_write_text(out, text);
    }
}

static bool is_repeated_name(const char *const *texts, uint32_t i, size_t n_name)
{
    for (uint32_t k = 0; k < i; k++) {
        if (strncmp(texts[k], texts[i], n_name + 1) == 0) {
            return true;
        }
    }
    return false;
}

enum err query_params(const char *const *texts, uint32_t n, struct buf *out, struct error *e)
{
    size_t first_name = n > 0 ? name_length(texts[0]) : 0;
    for (uint32_t i = 0; i < n; i++) {
        size_t n_name = name_length(texts[i]);
        if ((n_name > 0) != (first_name > 0)) {
            error_set(e, ERR_INVALID, "--param %s: parameters either all have a name or none has", texts[i]);
            error_hint(e, "write $name in the SQL and --param name=value, or $1 and --param value; a plain text with "
                          "an equals sign in it goes into quotes: --param '\"a=b\"'");
            return ERR_INVALID;
        }
        if (n_name > 0 && is_repeated_name(texts, i, n_name)) {
            return error_set(e, ERR_INVALID, "--param %.*s is given twice", (int)n_name, texts[i]);
        }
        buf_char(out, i > 0 ? ',' : n_name > 0 ? '{' : '[');
        if (n_name > 0) {
            json_write_bytes(out, texts[i], n_name);
            buf_char(out, ':');
        }
        put_value(out, texts[i] + (n_name > 0 ? n_name + 1 : 0));
    }
    buf_text(out, n == 0 ? "" : first_name > 0 ? "}" : "]");
    return ERR_OK;
}

enum setting_kind { SETTING_COUNT, SETTING_BOOL, SETTING_BYTES };

static const struct setting {
    const char *name;
    enum setting_kind kind;
} settings[] = {
    {"partitions", SETTING_COUNT},      {"forced", SETTING_BOOL},           {"single_task_bytes", SETTING_BYTES},
    {"broadcast_bytes", SETTING_BYTES}, {"partition_bytes", SETTING_BYTES}, {"tail_bytes", SETTING_BYTES},
};

static const struct setting *find_setting(const char *name, size_t n_name, struct error *e)
{
    char copy[64];
    snprintf(copy, sizeof copy, "%.*s", (int)n_name, name);
    struct suggestion near = {.wanted = copy};
    for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
        if (strcmp(settings[i].name, copy) == 0) {
            return &settings[i];
        }
        suggestion_try(&near, settings[i].name);
    }
    error_set(e, ERR_INVALID, "--set %s: a query has no such setting", copy);
    if (near.best != NULL) {
        error_hint(e, "did you mean %s?", near.best);
    } else {
        error_hint(e, "it has partitions, forced, single_task_bytes, broadcast_bytes, partition_bytes and tail_bytes");
    }
    return NULL;
}

static enum err put_setting(const struct setting *setting, const char *text, struct buf *out, struct error *e)
{
    int64_t number = 0;
    bool is_on = false;
    struct error why = {0};
    enum err err = setting->kind == SETTING_BOOL ? value_bool(text, &is_on, &why)
                   : setting->kind == SETTING_BYTES
                       ? value_bytes(text, &number, &why)
                       : value_number(text, (struct value_range){0, LIMIT_TASKS_PER_JOB}, &number, &why);
    if (err != ERR_OK) {
        return error_set(e, ERR_INVALID, "--set %s: %s", setting->name, why.message);
    }
    if (setting->kind == SETTING_BOOL) {
        buf_text(out, is_on ? "true" : "false");
    } else {
        json_write_int(out, number);
    }
    return ERR_OK;
}

enum err query_settings(const char *const *texts, uint32_t n, struct buf *out, struct error *e)
{
    for (uint32_t i = 0; i < n; i++) {
        size_t n_name = strcspn(texts[i], "=");
        const struct setting *setting = find_setting(texts[i], n_name, e);
        if (setting == NULL) {
            return ERR_INVALID;
        }
        if (is_repeated_name(texts, i, n_name)) {
            return error_set(e, ERR_INVALID, "--set %s is given twice", setting->name);
        }
        buf_char(out, i == 0 ? '{' : ',');
        json_write_text(out, setting->name);
        buf_char(out, ':');
        enum err err = put_setting(setting, texts[i] + n_name + 1, out, e);
        if (err != ERR_OK) {
            return err;
        }
    }
    buf_text(out, n == 0 ? "" : "}");
    return ERR_OK;
}

/* ---- submit ---- */

static enum err read_sql(struct cli *cli, const char **out, struct error *e)
{
    const char *file = cli_text(cli, "file");
    const char *sql = cli->n_args > 0 ? cli->args[0] : NULL;
    size_t n = 0;
    if (sql != NULL && file != NULL) {
        return error_set(e, ERR_INVALID, "sql: there is SQL in an argument and in --file %s; give one of them", file);
    }
    if (sql == NULL && file == NULL && isatty(STDIN_FILENO) != 0) {
        error_set(e, ERR_INVALID, "sql: there is no SQL");
        error_hint(e, "capstan sql 'SELECT 42', capstan sql -f FILE, or from a pipe");
        return ERR_INVALID;
    }
    if (sql == NULL || strcmp(sql, "-") == 0) {
        enum err err = cli_read_file(cli, file != NULL ? file : "-", LIMIT_SQL_BYTES, &sql, &n, e);
        if (err != ERR_OK) {
            return err;
        }
        if (strlen(sql) != n) {
            return error_set(e, ERR_INVALID, "sql: there is a zero byte in the SQL");
        }
    }
    if (sql[strspn(sql, " \t\r\n;")] == '\0') {
        return error_set(e, ERR_INVALID, "sql: the SQL is empty");
    }
    *out = sql;
    return ERR_OK;
}

enum err query_read(struct cli *cli, struct query *out, struct error *e)
{
    struct query query = {.job_id = cli_text(cli, "id")};
    struct buf params = {0};
    struct buf options = {0};
    uint32_t n_params = 0;
    uint32_t n_settings = 0;
    const char *const *param_texts = cli_list(cli, "param", &n_params);
    const char *const *setting_texts = cli_list(cli, "set", &n_settings);
    buf_append(&params, NULL, 0);
    buf_append(&options, NULL, 0);
    enum err err = read_sql(cli, &query.sql, e);
    if (err == ERR_OK) {
        err = query_params(param_texts, n_params, &params, e);
    }
    if (err == ERR_OK) {
        err = query_settings(setting_texts, n_settings, &options, e);
    }
    if (err == ERR_OK) {
        if (query.job_id == NULL) {
            char uuid[UUID_TEXT_BYTES];
            random_uuid7(uuid);
            query.job_id = arena_strdup(&cli->arena, uuid);
        }
        query.params_json = arena_strdup(&cli->arena, params.data);
        query.options_json = arena_strdup(&cli->arena, options.data);
        *out = query;
    }
    buf_deinit(&params);
    buf_deinit(&options);
    return err;
}

enum err query_send(struct cli *cli, const struct query *query, bool explain, struct pb_submit_query_response **out,
                    struct error *e)
{
    struct pb_submit_query_request *request = cli_message(cli, PB_SUBMIT_QUERY_REQUEST);
    request->query_id = (char *)query->job_id;
    request->sql = (char *)query->sql;
    request->params_json = (char *)query->params_json;
    request->options_json = (char *)query->options_json;
    request->explain = explain ? 1 : 0;
    request->priority_set = cli_is_given(cli, "priority") ? 1 : 0;
    request->priority = (uint32_t)cli_number(cli, "priority");
    if (cli_text(cli, "key") != NULL) {
        request->idempotency_key = (char *)cli_text(cli, "key");
    }
    return cli_call(cli, "/capstan.v1.ControlPlane/SubmitQuery", PB_SUBMIT_QUERY_RESPONSE, request, out, e);
}

void query_print(struct cli *cli, const struct pb_submit_query_response *response)
{
    struct buf line = {0};
    if (cli->wants_json) {
        wire_json_submitted(&line, response->query_id, response->state, response->existed != 0);
    } else {
        buf_text(&line, response->query_id);
    }
    cli_print(cli, &line);
    buf_deinit(&line);
}

/* ---- wait ---- */

/* "  s1    3 of 8 tasks, 2 running    1,234 rows". */
static void draw_stage(const struct pb_stage_status *stage, struct buf *out)
{
    struct buf name = {0};
    text_clean(&name, stage->name);
    buf_format(out, "  %-8s %" PRIu32 " of %" PRIu32 " task%s", name.n > 0 ? name.data : "-", stage->succeeded,
               stage->tasks, stage->tasks == 1 ? "" : "s");
    if (stage->running > 0) {
        buf_format(out, ", %" PRIu32 " running", stage->running);
    }
    if (stage->failed > 0) {
        buf_format(out, ", %" PRIu32 " failed", stage->failed);
    }
    if (stage->rows > 0) {
        buf_text(out, ", ");
        text_count(out, stage->rows);
        buf_text(out, " rows");
    }
    buf_char(out, '\n');
    buf_deinit(&name);
}

static bool is_done(const struct pb_stage_status *stage)
{
    return stage->queued == 0 && stage->running == 0;
}

uint32_t query_draw(const struct pb_query_status *status, int64_t elapsed_ms, uint32_t lines_max, struct buf *out)
{
    uint32_t lines = 1;
    size_t done = 0;
    for (size_t i = 0; i < status->n_stages; i++) {
        done += is_done(status->stages[i]) ? 1 : 0;
    }
    buf_format(out, "%s: %zu of %zu stages done, ", wire_query_state_name(status->state), done, status->n_stages);
    text_duration(out, elapsed_ms);
    buf_char(out, '\n');
    /* Those that are under way first: they are what people wait for. */
    for (int is_second = 0; is_second < 2; is_second++) {
        for (size_t i = 0; i < status->n_stages && lines < lines_max; i++) {
            if (is_done(status->stages[i]) == (is_second == 1)) {
                draw_stage(status->stages[i], out);
                lines++;
            }
        }
    }
    return lines;
}

struct picture {
    struct cli *cli;
    bool is_wanted;
    int64_t began_ms;
    uint32_t drawn; /* lines that are there */
};

/* Replaces the picture; NULL takes it away. */
static void show(struct picture *picture, const struct pb_query_status *status)
{
    struct buf text = {0};
    if (!picture->is_wanted || (status == NULL && picture->drawn == 0)) {
        return;
    }
    if (picture->drawn > 0) {
        buf_format(&text, "\033[%" PRIu32 "A\033[J", picture->drawn);
        picture->drawn = 0;
    }
    if (status != NULL) {
        struct terminal_size size = cli_terminal_size(picture->cli);
        picture->drawn =
            query_draw(status, clock_mono_ms() - picture->began_ms, size.lines > 4 ? size.lines - 2 : 2, &text);
    }
    fwrite(text.data, 1, text.n, picture->cli->err);
    fflush(picture->cli->err);
    buf_deinit(&text);
}

static enum err ask(struct cli *cli, const char *job_id, int64_t wait_ms, struct arena *arena,
                    struct pb_query_status **out, struct error *e)
{
    struct pb_get_query_status_request *request = wire_new(PB_GET_QUERY_STATUS_REQUEST, arena);
    struct pb_get_query_status_response *response = NULL;
    struct client *client = NULL;
    enum err err = cli_client(cli, &client, e);
    if (err != ERR_OK) {
        return err;
    }
    request->query_id = (char *)job_id;
    request->wait_ms = (uint32_t)wait_ms;
    struct client_call call = {.path = "/capstan.v1.ControlPlane/GetQueryStatus",
                               .message = request,
                               .answer = PB_GET_QUERY_STATUS_RESPONSE,
                               .wait_ms = wait_ms,
                               .patience_ms = PATIENCE_MS,
                               .cancel = cli->cancel};
    err = client_call(client, &call, arena, &response, e);
    if (err == ERR_OK && response->status == NULL) {
        return error_set(e, ERR_INTERNAL, "the answer has no job in it");
    }
    *out = err == ERR_OK ? response->status : NULL;
    return err == ERR_DEADLINE ? ERR_OK : err;
}

enum err query_wait(struct cli *cli, const char *job_id, bool is_quiet, const struct pb_query_status **out,
                    struct error *e)
{
    struct picture picture = {.cli = cli, .is_wanted = cli->err_is_terminal && !is_quiet, .began_ms = clock_mono_ms()};
    struct arena arena = {0};
    int64_t wait_ms = picture.is_wanted ? PICTURE_FIRST_MS : STATUS_WAIT_MS;
    enum err err = ERR_OK;
    for (;;) {
        struct pb_query_status *status = NULL;
        arena_reset(&arena);
        err = ask(cli, job_id, wait_ms, &arena, &status, e);
        if (err != ERR_OK) {
            break;
        }
        if (status != NULL && query_state_is_terminal(status->state)) {
            /* The last one is kept: all others live only until the next. */
            struct buf bytes = {0};
            struct pb_query_status *kept = NULL;
            wire_encode(status, &bytes);
            err = wire_decode(PB_QUERY_STATUS, bytes.data, bytes.n, &cli->arena, &kept, e);
            buf_deinit(&bytes);
            *out = kept;
            break;
        }
        if (status != NULL) {
            show(&picture, status);
        }
        wait_ms = picture.is_wanted ? PICTURE_EVERY_MS : STATUS_WAIT_MS;
    }
    show(&picture, NULL);
    arena_deinit(&arena);
    return err;
}
