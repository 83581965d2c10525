/* Reads a physical plan from JSON that anybody may have written. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/limits.h"
#include "base/utf8.h"
#include "query/physical.h"
#include "query/physical_internal.h"

#define SHOWN_BYTES 40

void physical__complain(struct plan_reader *r, const struct physical_stage *stage, const char *fmt, ...)
{
    if (r->n_errors++ >= LIMIT_PLAN_ERRORS) {
        return;
    }
    char text[sizeof(struct error)]; /* the longest that is quoted is an error of the JSON reader */
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    buf_text(&r->lines, r->lines.n > 0 ? "\n" : "");
    if (stage != NULL) {
        buf_format(&r->lines, "stage %" PRIu32 ": ", stage->id);
    }
    for (char *c = text; *c != '\0'; c++) { /* what is quoted from the plan may hold anything */
        *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
    }
    buf_text(&r->lines, text);
}

/* How much of a text is shown. */
static int shown_bytes(const char *text)
{
    return (int)utf8_clip(text, strlen(text), SHOWN_BYTES);
}

/* An object may have no other members than these; a slip of the pen must not go unnoticed. */
static void check_members(struct plan_reader *r, const struct physical_stage *stage, const struct json *object,
                          const char *what, const char *const *known, size_t n)
{
    size_t cursor = 0;
    const char *key = NULL;
    const struct json *value = NULL;
    while (json_next(object, &cursor, &key, &value)) {
        bool is_known = false;
        for (size_t i = 0; i < n && !is_known; i++) {
            is_known = strcmp(key, known[i]) == 0;
        }
        if (!is_known) {
            physical__complain(r, stage, "%s has an unknown member \"%.*s\"", what, shown_bytes(key), key);
        }
    }
}

/* A text with between 1 and `max` bytes and no NUL; NULL, after a complaint, if it is none. */
static const char *read_text(struct plan_reader *r, const struct physical_stage *stage, const struct json *node,
                             const char *what, size_t max)
{
    size_t n = 0;
    const char *text = json_text(node, &n);
    if (text == NULL || n == 0) {
        physical__complain(r, stage, "%s must be a text that is not empty", what);
        return NULL;
    }
    if (n > max || strlen(text) != n) {
        physical__complain(r, stage, n > max ? "%s has more than %zu bytes" : "%s has a NUL inside (of %zu bytes)",
                           what, n > max ? max : n);
        return NULL;
    }
    return arena_strdup(r->arena, text);
}

/* A whole number up to `max`. False, after a complaint, if it is none. */
static bool read_number(struct plan_reader *r, const struct physical_stage *stage, const struct json *node,
                        const char *what, uint64_t max, uint64_t *out)
{
    uint64_t number = 0;
    if (!json_uint(node, &number) || number > max) {
        physical__complain(r, stage, "%s must be a whole number from 0 to %" PRIu64, what, max);
        return false;
    }
    *out = number;
    return true;
}

static bool read_id(struct plan_reader *r, const struct physical_stage *stage, const struct json *node,
                    const char *what, uint32_t *out)
{
    uint64_t number = 0;
    bool is_good = read_number(r, stage, node, what, UINT32_MAX - 1, &number);
    *out = is_good ? (uint32_t)number : PHYSICAL_NO_STAGE;
    return is_good;
}

/* Which stage of a job it is. */
static void read_job_stage(struct plan_reader *r, const struct physical_stage *stage, const struct json *node,
                           const char *what, uint32_t *out)
{
    uint64_t number = 0;
    if (read_number(r, stage, node, what, LIMIT_STAGES_PER_JOB, &number)) {
        *out = (uint32_t)number;
    }
}

static bool read_flag(struct plan_reader *r, const struct physical_stage *stage, const struct json *object,
                      const char *key, bool otherwise)
{
    const struct json *node = json_get(object, key);
    if (!json_has(object, key)) {
        return otherwise;
    }
    if (json_kind_of(node) != JSON_BOOL) {
        physical__complain(r, stage, "\"%s\" must be true or false", key);
    }
    return json_bool(node);
}

/* Inputs name stages by id here; physical__check turns these into positions. */
static void read_input(struct plan_reader *r, struct physical_stage *stage, const char *name, const struct json *node,
                       struct physical_input *input)
{
    static const char *const known[] = {"stage", "read", "repeated"};
    size_t n = strlen(name);
    if (n == 0 || n > LIMIT_PLAN_NAME_BYTES) {
        physical__complain(r, stage, "the name of an input must have 1 to %d bytes", LIMIT_PLAN_NAME_BYTES);
    }
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        if (strcasecmp(stage->inputs[i].name, name) == 0) {
            physical__complain(r, stage, "two inputs are called \"%.*s\"", shown_bytes(name), name);
        }
    }
    input->name = arena_strdup(r->arena, name);
    if (json_kind_of(node) != JSON_OBJECT) {
        read_id(r, stage, node, "an input's stage", &input->stage);
        return;
    }
    check_members(r, stage, node, "an input", known, ARRAY_LEN(known));
    read_id(r, stage, json_get(node, "stage"), "an input's stage", &input->stage);
    input->is_repeated = read_flag(r, stage, node, "repeated", false);
    const char *read = json_text(json_get(node, "read"), NULL);
    if (json_has(node, "read") && (read == NULL || strcmp(read, "all") != 0)) {
        physical__complain(r, stage, "an input's \"read\" can only be \"all\"");
    }
    input->is_whole = read != NULL;
}

static void read_inputs(struct plan_reader *r, struct physical_stage *stage, const struct json *node)
{
    size_t n = json_count(node);
    if (json_kind_of(node) != JSON_OBJECT || n > LIMIT_PLAN_INPUTS) {
        physical__complain(r, stage, "\"inputs\" must be an object with at most %d members", LIMIT_PLAN_INPUTS);
        return;
    }
    stage->inputs = arena_zalloc(r->arena, n * sizeof *stage->inputs);
    size_t cursor = 0;
    const char *name = NULL;
    const struct json *value = NULL;
    while (json_next(node, &cursor, &name, &value)) {
        read_input(r, stage, name, value, &stage->inputs[stage->n_inputs]);
        stage->n_inputs++;
    }
}

static uint64_t read_optional(struct plan_reader *r, const struct physical_stage *stage, const struct json *object,
                              const char *key, uint64_t max)
{
    uint64_t number = 0;
    if (json_has(object, key)) {
        char what[64];
        snprintf(what, sizeof what, "a split's \"%s\"", key);
        (void)read_number(r, stage, json_get(object, key), what, max, &number);
    }
    return number;
}

static void read_split(struct plan_reader *r, const struct physical_stage *stage, const struct json *node,
                       struct physical_split *split)
{
    static const char *const known[] = {"file",     "scan", "file_index", "first_row",  "last_row",     "empty",
                                        "and_next", "rows", "bytes",      "file_bytes", "file_mtime_ms"};
    if (json_kind_of(node) != JSON_OBJECT) {
        physical__complain(r, stage, "a split must be an object");
        return;
    }
    check_members(r, stage, node, "a split", known, ARRAY_LEN(known));
    split->file = read_text(r, stage, json_get(node, "file"), "a split's \"file\"", LIMIT_SOURCE_BYTES);
    split->scan = (uint32_t)read_optional(r, stage, node, "scan", LIMIT_PLAN_INPUTS);
    split->file_index = (uint32_t)read_optional(r, stage, node, "file_index", LIMIT_PLAN_CONTAINERS);
    split->first_row = read_optional(r, stage, node, "first_row", LIMIT_QUANTITY);
    split->last_row = read_optional(r, stage, node, "last_row", LIMIT_QUANTITY);
    split->has_rows = json_has(node, "first_row");
    split->rows = read_optional(r, stage, node, "rows", LIMIT_QUANTITY);
    split->bytes = read_optional(r, stage, node, "bytes", LIMIT_QUANTITY);
    split->is_empty = read_flag(r, stage, node, "empty", false);
    split->is_continued = read_flag(r, stage, node, "and_next", false);
    if (split->has_rows != json_has(node, "last_row") || split->first_row > split->last_row) {
        physical__complain(r, stage, "a split has \"first_row\" and \"last_row\", in that order, or none of them");
    }
    split->has_identity = json_has(node, "file_bytes");
    split->file_bytes = read_optional(r, stage, node, "file_bytes", LIMIT_QUANTITY);
    if (split->has_identity != json_has(node, "file_mtime_ms") ||
        (split->has_identity && !json_int(json_get(node, "file_mtime_ms"), &split->file_mtime_ms))) {
        physical__complain(r, stage, "a split has \"file_bytes\" and \"file_mtime_ms\", or none of them");
    }
}

static void read_splits(struct plan_reader *r, struct physical_stage *stage, const struct json *node)
{
    size_t n = json_count(node);
    if (json_kind_of(node) != JSON_ARRAY || n == 0) {
        physical__complain(r, stage, "\"splits\" must be a list that is not empty");
        return;
    }
    stage->splits = arena_zalloc(r->arena, n * sizeof *stage->splits);
    stage->n_splits = (uint32_t)n;
    for (uint32_t i = 0; i < n; i++) {
        read_split(r, stage, json_at(node, i), &stage->splits[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (stage->splits[i].is_continued && (i + 1 == n || stage->splits[i + 1].scan != stage->splits[i].scan)) {
            physical__complain(r, stage, "a split with \"and_next\" needs a next one for the same scan");
            stage->splits[i].is_continued = false;
        }
    }
}

static void read_keys(struct plan_reader *r, struct physical_stage *stage, const struct json *node)
{
    size_t n = json_count(node);
    if (json_kind_of(node) != JSON_ARRAY || n == 0 || n > LIMIT_PLAN_KEYS) {
        physical__complain(r, stage, "a %s exchange needs \"keys\", a list of 1 to %d texts",
                           exchange_name(stage->output.exchange), LIMIT_PLAN_KEYS);
        return;
    }
    stage->output.keys = arena_zalloc(r->arena, n * sizeof *stage->output.keys);
    stage->output.n_keys = (uint32_t)n;
    for (uint32_t i = 0; i < n; i++) {
        stage->output.keys[i] = read_text(r, stage, json_at(node, i), "a key", LIMIT_PLAN_KEY_BYTES);
    }
}

static bool find_exchange(const char *name, enum exchange *out)
{
    for (int i = 0; i < N_EXCHANGES; i++) {
        if (strcmp(name, exchange_name((enum exchange)i)) == 0) {
            *out = (enum exchange)i;
            return true;
        }
    }
    return false;
}

/* Returns whether the exchange is known; what else it needs may be wrong. */
static bool read_output(struct plan_reader *r, struct physical_stage *stage, const struct json *node)
{
    static const char *const known[] = {"exchange", "keys", "partitions", "bounds"};
    struct physical_output *output = &stage->output;
    const char *name = json_text(json_get(node, "exchange"), NULL);
    check_members(r, stage, node, "\"output\"", known, ARRAY_LEN(known));
    if (name == NULL || !find_exchange(name, &output->exchange)) {
        physical__complain(r, stage,
                           "\"output\" needs an \"exchange\": hash, range, forward, broadcast, gather or result");
        return false;
    }
    bool has_keys = output->exchange == EXCHANGE_HASH || output->exchange == EXCHANGE_RANGE;
    if (has_keys) {
        read_keys(r, stage, json_get(node, "keys"));
    } else if (json_has(node, "keys")) {
        physical__complain(r, stage, "a %s exchange has no \"keys\"", name);
    }
    uint64_t partitions = 0;
    if (exchange_is_partitioned(output->exchange)) {
        if (read_number(r, stage, json_get(node, "partitions"), "\"partitions\"", LIMIT_PARTITIONS, &partitions) &&
            partitions == 0) {
            physical__complain(r, stage, "\"partitions\" must be 1 at least");
        }
        output->partitions = (uint32_t)partitions;
    } else if (json_has(node, "partitions")) {
        physical__complain(r, stage, "a %s exchange has no \"partitions\"", name);
    }
    if (output->exchange == EXCHANGE_RANGE && json_has(node, "bounds")) {
        output->bounds =
            read_text(r, stage, json_get(node, "bounds"), "a range exchange's \"bounds\"", LIMIT_PLAN_NAME_BYTES);
    } else if (json_has(node, "bounds")) {
        physical__complain(r, stage, "a %s exchange has no \"bounds\"", name);
    }
    return true;
}

/* Writes a tree of JSON again. Depth and size are bounded by what the reader let through. */
static void write_json(struct buf *out, const struct json *node)
{
    size_t n = 0;
    const char *text = json_text(node, &n);
    int64_t whole = 0;
    uint64_t unsigned_whole = 0;
    size_t cursor = 0;
    const char *key = NULL;
    const struct json *value = NULL;
    switch (json_kind_of(node)) {
    case JSON_NULL:
        buf_text(out, "null");
        break;
    case JSON_BOOL:
        buf_text(out, json_bool(node) ? "true" : "false");
        break;
    case JSON_NUMBER:
        if (json_int(node, &whole)) {
            json_write_int(out, whole);
        } else if (json_uint(node, &unsigned_whole)) {
            buf_format(out, "%" PRIu64, unsigned_whole);
        } else {
            json_write_number(out, json_number(node));
        }
        break;
    case JSON_TEXT:
        json_write_bytes(out, text, n);
        break;
    case JSON_ARRAY:
        buf_char(out, '[');
        for (size_t i = 0; i < json_count(node); i++) {
            buf_text(out, i == 0 ? "" : ",");
            write_json(out, json_at(node, i));
        }
        buf_char(out, ']');
        break;
    case JSON_OBJECT:
        buf_char(out, '{');
        for (bool is_first = true; json_next(node, &cursor, &key, &value); is_first = false) {
            buf_text(out, is_first ? "" : ",");
            json_write_text(out, key);
            buf_char(out, ':');
            write_json(out, value);
        }
        buf_char(out, '}');
        break;
    }
}

static void read_custom(struct plan_reader *r, struct physical_stage *stage, const struct json *node)
{
    static const char *const known[] = {"op", "config"};
    check_members(r, stage, node, "\"custom\"", known, ARRAY_LEN(known));
    stage->custom.op = read_text(r, stage, json_get(node, "op"), "\"custom\" needs an \"op\", which", LIMIT_NAME_BYTES);
    const struct json *config = json_get(node, "config");
    if (config == NULL) {
        stage->custom.config_json = "{}";
        return;
    }
    if (json_kind_of(config) != JSON_OBJECT) {
        physical__complain(r, stage, "the \"config\" of an operator must be an object");
    }
    struct buf text = {0};
    write_json(&text, config);
    stage->custom.config_json = arena_strdup(r->arena, text.data);
    buf_deinit(&text);
}

/* The folder that is written, without a slash at its end. */
static const char *read_folder(struct plan_reader *r, const struct physical_stage *stage, const struct json *node,
                               const char *what)
{
    const char *folder = read_text(r, stage, node, what, LIMIT_SOURCE_BYTES);
    if (folder != NULL && (folder[0] != '/' || folder[strlen(folder) - 1] == '/')) {
        physical__complain(r, stage, "%s must be an absolute path without a slash at its end", what);
        return NULL;
    }
    return folder;
}

static void read_write(struct plan_reader *r, struct physical_stage *stage, const struct json *node)
{
    static const char *const known[] = {"to", "format", "options"};
    static const char *const formats[] = {"parquet", "csv", "json"};
    const char *format = json_text(json_get(node, "format"), NULL);
    check_members(r, stage, node, "\"write\"", known, ARRAY_LEN(known));
    stage->write.to = read_folder(r, stage, json_get(node, "to"), "the \"to\" of a write");
    stage->write.options = "";
    for (size_t i = 0; i < ARRAY_LEN(formats) && format != NULL; i++) {
        stage->write.format = strcmp(format, formats[i]) == 0 ? formats[i] : stage->write.format;
    }
    if (stage->write.format == NULL) {
        physical__complain(r, stage, "the \"format\" of a write must be parquet, csv or json");
    }
    if (json_has(node, "options")) {
        stage->write.options =
            read_text(r, stage, json_get(node, "options"), "the \"options\" of a write", LIMIT_PLAN_KEY_BYTES);
    }
}

static void read_publish(struct plan_reader *r, struct physical_stage *stage, const struct json *node)
{
    static const char *const known[] = {"to", "table"};
    check_members(r, stage, node, "\"publish\"", known, ARRAY_LEN(known));
    stage->publish.to = read_folder(r, stage, json_get(node, "to"), "the \"to\" of a publish");
    if (json_has(node, "table")) {
        const char *table =
            read_text(r, stage, json_get(node, "table"), "the \"table\" of a publish", LIMIT_TABLE_NAME_BYTES);
        if (table != NULL && !physical__is_table_name(table)) {
            physical__complain(r, stage,
                               "the \"table\" of a publish has letters, digits and _ only, and no digit first");
        }
        stage->publish.table = table;
    }
}

static void read_groups(struct plan_reader *r, struct physical_stage *stage, const struct json *node)
{
    size_t n = json_count(node);
    if (json_kind_of(node) != JSON_ARRAY || n == 0 || n > LIMIT_PARTITIONS) {
        physical__complain(r, stage, "\"groups\" must be a list of pairs, first and last partition");
        return;
    }
    stage->groups = arena_zalloc(r->arena, n * sizeof *stage->groups);
    stage->n_groups = (uint32_t)n;
    for (uint32_t i = 0; i < n; i++) {
        const struct json *pair = json_at(node, i);
        uint64_t first = 0;
        uint64_t last = 0;
        if (json_count(pair) != 2 || !json_uint(json_at(pair, 0), &first) || !json_uint(json_at(pair, 1), &last) ||
            first > last || last >= LIMIT_PARTITIONS ||
            first != (i == 0 ? 0 : (uint64_t)stage->groups[i - 1].last + 1)) {
            physical__complain(r, stage, "\"groups\" must take up all partitions, in their order, each once");
            return;
        }
        stage->groups[i] = (struct physical_group){.first = (uint32_t)first, .last = (uint32_t)last};
    }
}

static void read_empty_if(struct plan_reader *r, struct physical_stage *stage, const struct json *node)
{
    size_t n = json_count(node);
    if (json_kind_of(node) != JSON_ARRAY || n > stage->n_inputs) {
        physical__complain(r, stage, "\"empty_if\" must be a list of inputs");
        return;
    }
    stage->empty_if = arena_zalloc(r->arena, n * sizeof *stage->empty_if);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = json_text(json_at(node, i), NULL);
        uint32_t at = 0;
        while (at < stage->n_inputs && (name == NULL || strcmp(stage->inputs[at].name, name) != 0)) {
            at++;
        }
        if (at == stage->n_inputs) {
            physical__complain(r, stage, "\"empty_if\" names what is no input");
            return;
        }
        stage->empty_if[stage->n_empty_if++] = at;
    }
}

static void read_choice(struct plan_reader *r, struct physical_stage *stage, const struct json *node)
{
    static const char *const known[] = {"small", "large", "bytes"};
    check_members(r, stage, node, "\"choice\"", known, ARRAY_LEN(known));
    uint64_t bytes = 0;
    stage->choice.is_open =
        read_id(r, stage, json_get(node, "small"), "a choice's \"small\"", &stage->choice.small) &&
        read_id(r, stage, json_get(node, "large"), "a choice's \"large\"", &stage->choice.large) &&
        read_number(r, stage, json_get(node, "bytes"), "a choice's \"bytes\"", LIMIT_QUANTITY, &bytes);
    stage->choice.bytes_max = bytes;
}

static double read_estimate(struct plan_reader *r, const struct physical_stage *stage, const struct json *object,
                            const char *key)
{
    const struct json *node = json_get(object, key);
    if (!json_has(object, key)) {
        return -1;
    }
    double number = json_number(node);
    if (json_kind_of(node) != JSON_NUMBER || !(number >= 0) || !isfinite(number)) {
        physical__complain(r, stage, "\"%s\" must be a number that is not negative", key);
    }
    return number;
}

/* The fields that plans of our own have. */
static void read_extras(struct plan_reader *r, struct physical_stage *stage, const struct json *node)
{
    if (json_has(node, "groups")) {
        read_groups(r, stage, json_get(node, "groups"));
    }
    if (json_has(node, "empty_if")) {
        read_empty_if(r, stage, json_get(node, "empty_if"));
    }
    if (json_has(node, "choice")) {
        read_choice(r, stage, json_get(node, "choice"));
    }
    stage->estimate.rows = read_estimate(r, stage, node, "estimated_rows");
    stage->estimate.bytes = read_estimate(r, stage, node, "estimated_bytes");
    stage->what = "";
    if (json_has(node, "what")) {
        const char *what = read_text(r, stage, json_get(node, "what"), "\"what\"", LIMIT_PLAN_WORDS_BYTES);
        stage->what = what == NULL ? "" : what;
    }
}

static void read_stage(struct plan_reader *r, struct physical_stage *stage, const struct json *node,
                       struct stage_sense *sense)
{
    static const char *const known[] = {
        "id",      "job_stage", "inputs", "sql",      "splits", "deterministic",  "custom",          "write",
        "publish", "output",    "groups", "empty_if", "choice", "estimated_rows", "estimated_bytes", "what",
    };
    stage->job_stage = PHYSICAL_NOT_ADDED;
    if (json_kind_of(node) != JSON_OBJECT || !read_id(r, NULL, json_get(node, "id"), "a stage's \"id\"", &stage->id)) {
        physical__complain(r, NULL, "a stage must be an object with an \"id\"");
        stage->id = PHYSICAL_NO_STAGE;
        return;
    }
    check_members(r, stage, node, "it", known, ARRAY_LEN(known));
    stage->sql = read_text(r, stage, json_get(node, "sql"), "\"sql\"", LIMIT_SQL_BYTES);
    physical__take_files(r, stage);
    if (json_has(node, "job_stage")) {
        read_job_stage(r, stage, json_get(node, "job_stage"), "\"job_stage\"", &stage->job_stage);
    }
    stage->is_deterministic = read_flag(r, stage, node, "deterministic", true);
    uint32_t errors_before = r->n_errors;
    if (json_has(node, "inputs")) {
        read_inputs(r, stage, json_get(node, "inputs"));
    }
    sense->has_inputs = r->n_errors == errors_before;
    if (json_has(node, "splits")) {
        read_splits(r, stage, json_get(node, "splits"));
    }
    if (json_has(node, "custom")) {
        read_custom(r, stage, json_get(node, "custom"));
    }
    if (json_has(node, "write")) {
        read_write(r, stage, json_get(node, "write"));
    }
    if (json_has(node, "publish")) {
        read_publish(r, stage, json_get(node, "publish"));
    }
    read_extras(r, stage, node);
    sense->has_exchange = read_output(r, stage, json_get(node, "output"));
}

/* A size that the plan may have; `value` stays as it is if the member is absent. */
static void read_bytes(struct plan_reader *r, const struct json *root, const char *key, uint64_t *value)
{
    if (json_has(root, key) && (!json_uint(json_get(root, key), value) || *value > LIMIT_QUANTITY)) {
        physical__complain(r, NULL, "\"%s\" must be a whole number", key);
    }
}

static void read_plan(struct plan_reader *r, const struct json *root)
{
    static const char *const known[] = {"stages",          "single",     "engine",
                                        "first_job_stage", "tail_bytes", "partition_bytes"};
    const struct json *stages = json_get(root, "stages");
    size_t n = json_count(stages);
    if (json_kind_of(stages) != JSON_ARRAY || n == 0 || n > LIMIT_PLAN_STAGES) {
        physical__complain(r, NULL, "a plan must be an object with \"stages\", a list of 1 to %d", LIMIT_PLAN_STAGES);
        return;
    }
    check_members(r, NULL, root, "the plan", known, ARRAY_LEN(known));
    if (json_has(root, "single")) {
        r->plan->single_reason = read_text(r, NULL, json_get(root, "single"), "\"single\"", LIMIT_PLAN_WORDS_BYTES);
    }
    read_bytes(r, root, "tail_bytes", &r->plan->tail_bytes);
    read_bytes(r, root, "partition_bytes", &r->plan->partition_bytes);
    if (json_has(root, "engine")) {
        r->plan->engine = read_text(r, NULL, json_get(root, "engine"), "\"engine\"", LIMIT_NAME_BYTES);
    }
    if (json_has(root, "first_job_stage")) {
        read_job_stage(r, NULL, json_get(root, "first_job_stage"), "\"first_job_stage\"", &r->plan->first_job_stage);
    }
    r->plan->stages = arena_zalloc(r->arena, n * sizeof *r->plan->stages);
    r->plan->n_stages = (uint32_t)n;
    r->senses = arena_zalloc(r->arena, n * sizeof *r->senses);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t errors_before = r->n_errors;
        read_stage(r, &r->plan->stages[i], json_at(stages, i), &r->senses[i]);
        r->senses[i].is_good = r->n_errors == errors_before;
    }
    physical__expand_ranges(r);
    physical__check(r);
}

/* A tree of JSON takes far more memory than its text, so what it will be made of is counted before. */
static bool is_moderate(const char *text, size_t n)
{
    size_t containers = 0;
    for (size_t i = 0; i < n; i++) {
        containers += text[i] == '[' || text[i] == '{' ? 1 : 0;
    }
    return n <= LIMIT_PLAN_BYTES && containers <= LIMIT_PLAN_CONTAINERS;
}

static enum err read_all(const char *text, size_t n, bool is_foreign, struct arena *arena,
                         struct physical_plan **out_plan, struct buf *errors, struct error *e)
{
    struct json *root = NULL;
    struct error parse_error = {0};
    struct plan_reader r = {.arena = arena, .plan = arena_zalloc(arena, sizeof *r.plan), .is_foreign = is_foreign};
    if (!is_moderate(text, n)) {
        physical__complain(&r, NULL, "the plan is too large: at most %d bytes and %d lists and objects",
                           LIMIT_PLAN_BYTES, LIMIT_PLAN_CONTAINERS);
    } else if (json_parse(text, n, &root, &parse_error) != ERR_OK) {
        physical__complain(&r, NULL, "the plan is not JSON: %s", parse_error.message);
    } else {
        read_plan(&r, root);
    }
    json_free(root);
    enum err err = ERR_OK;
    if (r.n_errors > 0) {
        size_t n_first = strcspn(r.lines.data, "\n");
        err = error_set(e, ERR_INVALID, "%.*s%s", (int)n_first, r.lines.data,
                        r.n_errors > 1 ? " (and more is wrong)" : "");
        if (errors != NULL) {
            buf_append(errors, r.lines.data, r.lines.n);
        }
    } else {
        *out_plan = r.plan;
    }
    buf_deinit(&r.lines);
    return err;
}

enum err physical_read(const char *text, size_t n, struct arena *arena, struct physical_plan **out_plan,
                       struct buf *errors, struct error *e)
{
    return read_all(text, n, false, arena, out_plan, errors, e);
}

enum err physical_read_foreign(const char *text, size_t n, struct arena *arena, struct physical_plan **out_plan,
                               struct buf *errors, struct error *e)
{
    return read_all(text, n, true, arena, out_plan, errors, e);
}
