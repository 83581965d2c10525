#include "cli/query.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/limits.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/picture.h"
#include "cli/suggest.h"
#include "cli/value.h"
#include "client/job.h"
#include "wire/json_shape.h"

#define PICTURE_FIRST_MS 300 /* most queries have ended by then and need no picture */
#define PICTURE_EVERY_MS 250

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

/* Digits that count, from the first that is not zero to the last before the exponent that is not. */
static size_t count_digits(const char *number)
{
    size_t n = 0;
    size_t n_zeros = 0;
    for (const char *p = number; *p != '\0' && *p != 'e' && *p != 'E'; p++) {
        if (isdigit((unsigned char)*p) != 0 && *p != '0') {
            n += n_zeros + 1;
            n_zeros = 0;
        } else if (*p == '0' && n > 0) {
            n_zeros++;
        }
    }
    return n;
}

/* With more digits than that, no number of 64 bits is the one that was meant. */
#define DOUBLE_DIGITS 17

/* The value as it is if it is JSON, else as a text. */
static enum err put_value(struct buf *out, const char *text, struct error *e)
{
    struct json *root = NULL;
    enum err err = ERR_OK;
    if (json_parse(text, strlen(text), &root, NULL) != ERR_OK) {
        json_write_text(out, text);
        return ERR_OK;
    }
    if (json_kind_of(root) == JSON_NUMBER && !json_is_int(root) && count_digits(text) > DOUBLE_DIGITS) {
        err = error_set(e, ERR_INVALID, "--param %s: a number of so many digits would be rounded", text);
        error_hint(e, "give it as a text, --param '\"%s\"', and cast it in the SQL, as in $1::DECIMAL(38,10)", text);
    } else {
        buf_text(out, text);
    }
    json_free(root);
    return err;
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
        enum err err = put_value(out, texts[i] + (n_name > 0 ? n_name + 1 : 0), e);
        if (err != ERR_OK) {
            return err;
        }
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
            query.job_id = client_new_job_id(&cli->arena);
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
    struct client_caller caller;
    struct query_submission submission = {.job_id = query->job_id,
                                          .sql = query->sql,
                                          .params_json = query->params_json,
                                          .options_json = query->options_json,
                                          .key = cli_text(cli, "key"),
                                          .has_priority = cli_is_given(cli, "priority"),
                                          .priority = (uint32_t)cli_number(cli, "priority"),
                                          .explains = explain};
    enum err err = cli_caller(cli, &caller, e);
    return err == ERR_OK ? cli_hint(client_submit_query(&caller, &submission, out, e), e) : err;
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

struct show {
    struct cli *cli;
    const struct client_caller *caller;
    int64_t began_ms;
    struct picture picture;
    bool has_asked; /* for the plan */
};

static void write_out(struct cli *cli, struct buf *text)
{
    if (text->n > 0) {
        fwrite(text->data, 1, text->n, cli->err);
        fflush(cli->err);
    }
    buf_deinit(text);
}

/* What the stages do is in the plan, the result of the first task. It is asked for once: a picture can do without. */
static void ask_plan(struct show *show, const struct pb_query_status *status)
{
    struct arena arena = {0};
    struct pb_list_tasks_request *request = wire_new(PB_LIST_TASKS_REQUEST, &arena);
    struct pb_list_tasks_response *page = NULL;
    request->query_id = status->query_id;
    request->limit = 1;
    struct client_call call = {.path = "/capstan.v1.ControlPlane/ListTasks",
                               .message = request,
                               .answer = PB_LIST_TASKS_RESPONSE,
                               .cancel = show->caller->cancel};
    show->has_asked = true;
    if (client_call(show->caller->client, &call, &arena, &page, &(struct error){0}) == ERR_OK && page->n_tasks > 0 &&
        page->tasks[0]->result_json.len > 0) {
        picture_take_plan(&show->picture, status, (const char *)page->tasks[0]->result_json.data,
                          page->tasks[0]->result_json.len);
    }
    arena_deinit(&arena);
}

static void show_status(void *context, const struct pb_query_status *status)
{
    struct show *show = context;
    struct terminal_size size = cli_terminal_size(show->cli);
    struct buf text = {0};
    int64_t now_ms = clock_mono_ms();
    if (!show->has_asked && picture_wants_plan(&show->picture, status)) {
        ask_plan(show, status);
    }
    struct picture_view view = {.columns = size.columns,
                                .lines = size.lines > 4 ? size.lines - 2 : 2,
                                .now_ms = now_ms,
                                .elapsed_ms = now_ms - show->began_ms,
                                .has_colors = show->cli->has_colors_err};
    picture_draw(&show->picture, status, &view, &text);
    write_out(show->cli, &text);
}

enum err query_wait(struct cli *cli, const char *job_id, bool is_quiet, const struct pb_query_status **out,
                    struct error *e)
{
    struct client_caller caller;
    struct pb_query_status *status = NULL;
    struct buf text = {0};
    enum err err = cli_caller(cli, &caller, e);
    if (err != ERR_OK) {
        return err;
    }
    struct show show = {.cli = cli, .caller = &caller, .began_ms = clock_mono_ms()};
    struct client_wait wait = {0};
    if (cli->err_is_terminal && !is_quiet) {
        wait = (struct client_wait){
            .first_ms = PICTURE_FIRST_MS, .every_ms = PICTURE_EVERY_MS, .on_status = show_status, .context = &show};
    }
    err = client_await(&caller, job_id, &wait, &status, e);
    picture_clear(&show.picture, &text);
    write_out(cli, &text);
    picture_deinit(&show.picture);
    if (err == ERR_OK) {
        *out = status;
    }
    return err;
}
