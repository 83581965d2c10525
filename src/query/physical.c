/* What can be said about a physical plan, and how it is written. */
#include "query/physical.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "query/physical_internal.h"
#include "query/plan.h"
#include "query/sql_text.h"
#include "query/tail.h"

static const char *const exchange_names[N_EXCHANGES] = {
    [EXCHANGE_RESULT] = "result",   [EXCHANGE_HASH] = "hash",           [EXCHANGE_RANGE] = "range",
    [EXCHANGE_FORWARD] = "forward", [EXCHANGE_BROADCAST] = "broadcast", [EXCHANGE_GATHER] = "gather",
};

const char *exchange_name(enum exchange exchange)
{
    ASSERT(exchange < N_EXCHANGES);
    return exchange_names[exchange];
}

bool exchange_is_partitioned(enum exchange exchange)
{
    return exchange == EXCHANGE_HASH || exchange == EXCHANGE_RANGE || exchange == EXCHANGE_FORWARD;
}

/* The partitions of the inputs that are read by partition; 0 if there are none. */
static uint32_t partitions_read(const struct physical_plan *plan, const struct physical_stage *stage)
{
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        if (!stage->inputs[i].is_whole) {
            return plan->stages[stage->inputs[i].stage].output.partitions;
        }
    }
    return 0;
}

uint32_t physical_task_splits(const struct physical_stage *stage, uint32_t task, const struct physical_split **out)
{
    uint32_t first = 0;
    uint32_t end = 0;
    for (uint32_t i = 0; i < stage->n_splits && task != UINT32_MAX; i++) {
        end = i + 1;
        if (!stage->splits[i].is_continued && task-- > 0) {
            first = i + 1;
        }
    }
    ASSERT(first < end);
    *out = &stage->splits[first];
    return end - first;
}

uint32_t physical_tasks(const struct physical_plan *plan, uint32_t stage)
{
    ASSERT(stage < plan->n_stages);
    const struct physical_stage *s = &plan->stages[stage];
    if (s->n_splits > 0) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < s->n_splits; i++) {
            n += s->splits[i].is_continued ? 0 : 1;
        }
        return n;
    }
    if (s->n_groups > 0) {
        return s->n_groups;
    }
    uint32_t partitions = partitions_read(plan, s);
    return partitions > 0 ? partitions : 1;
}

struct physical_group physical_task_group(const struct physical_plan *plan, uint32_t stage, uint32_t task)
{
    ASSERT(task < physical_tasks(plan, stage));
    const struct physical_stage *s = &plan->stages[stage];
    if (s->n_splits == 0 && s->n_groups > 0) {
        return s->groups[task];
    }
    return (struct physical_group){.first = task, .last = task};
}

bool physical_is_waiting(const struct physical_plan *plan, uint32_t stage)
{
    ASSERT(stage < plan->n_stages);
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        const struct physical_choice *choice = &plan->stages[i].choice;
        if (choice->is_open && (i == stage || choice->large == stage)) {
            return true;
        }
    }
    if (plan->tail_bytes == 0) {
        return false;
    }
    struct arena arena = {0};
    bool is_in = tail_find(plan, &arena).is_in[stage];
    arena_deinit(&arena);
    return is_in;
}

const char *physical_required_op(const struct physical_stage *stage)
{
    return stage->custom.op;
}

const char *physical_write_ending(const struct physical_write *write)
{
    static const char *const endings[][3] = {{"csv", "csv.gz", "csv.zst"}, {"json", "json.gz", "json.zst"}};
    for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
        if (strcmp(write->format, endings[i][0]) == 0) {
            bool is_gzip = physical__option_is(write->options, "COMPRESSION", "gzip");
            bool is_zstd = physical__option_is(write->options, "COMPRESSION", "zstd");
            return endings[i][is_gzip ? 1 : is_zstd ? 2 : 0];
        }
    }
    return "parquet";
}

bool physical_is_sieve(const struct physical_stage *stage)
{
    size_t n = strlen(stage->sql);
    size_t n_mark = strlen(PHYSICAL_SIEVE);
    return n > n_mark && strcmp(stage->sql + n - n_mark, PHYSICAL_SIEVE) == 0;
}

#define NAMES "\n/* columns "
#define NAMES_END " */"

/* The last comment that may be one with names; NULL if there is none. */
static const char *find_names(const char *sql)
{
    const char *found = NULL;
    for (const char *p = strstr(sql, NAMES); p != NULL; p = strstr(p + 1, NAMES)) {
        found = p;
    }
    return found;
}

void physical_write_names(struct buf *sql, const char *const *names, uint32_t n)
{
    struct buf list = {0};
    for (uint32_t i = 0; i < n; i++) {
        buf_text(&list, i > 0 ? ", " : "");
        sql_write_name(&list, names[i]);
    }
    bool fits = sql->n + list.n + sizeof NAMES + sizeof NAMES_END <= LIMIT_SQL_BYTES;
    if (n > 0 && fits && strstr(list.data, "*/") == NULL && strstr(list.data, "/*") == NULL) { /* they nest */
        buf_format(sql, NAMES "%s" NAMES_END, list.data);
    } else if (sql->n > 0 && find_names(sql->data) != NULL) {
        buf_text(sql, NAMES "unknown" NAMES_END); /* what looks like names is not ours */
    }
    buf_deinit(&list);
}

/* Reads a name in quotes. Returns what is behind it, NULL if it does not end. */
static const char *read_name(const char *p, struct arena *arena, const char **out)
{
    struct buf name = {0};
    buf_text(&name, "");
    for (p++; *p != '\0' && !(p[0] == '"' && p[1] != '"'); p++) {
        buf_char(&name, *p);
        p += p[0] == '"' ? 1 : 0;
    }
    *out = arena_strdup(arena, name.data);
    buf_deinit(&name);
    return *p == '"' ? p + 1 : NULL;
}

size_t physical_trimmed(const char *sql)
{
    size_t n = strlen(sql);
    const char *names = find_names(sql);
    const char *end = names != NULL ? strstr(names, NAMES_END) : NULL;
    if (end != NULL && end + strlen(NAMES_END) == sql + n) {
        n = (size_t)(names - sql);
    }
    while (n > 0 && (isspace((unsigned char)sql[n - 1]) || sql[n - 1] == ';')) {
        n--;
    }
    return n;
}

bool physical__is_one(const char *sql)
{
    return physical_last_statement(sql) == 0;
}

void physical__write_nested(struct buf *out, const char *sql)
{
    size_t end = 0;
    bool is_after_word = false;
    for (size_t i = 0; sql[i] != '\0';) {
        size_t n = sql_quoted_bytes(sql + i, is_after_word);
        bool is_comment = n > 0 && (sql[i] == '-' || sql[i] == '/');
        bool is_space = n == 0 && (isspace((unsigned char)sql[i]) || sql[i] == ';');
        is_after_word = n == 0 && sql_is_in_word(is_after_word, sql[i]);
        i += n > 0 ? n : 1;
        end = is_comment || is_space ? end : i;
    }
    buf_char(out, '(');
    buf_append(out, sql, end);
    buf_char(out, ')');
}

uint32_t physical_read_names(const char *sql, struct arena *arena, const char *const **out)
{
    const char *p = find_names(sql);
    if (p == NULL) {
        return 0;
    }
    p += strlen(NAMES);
    const char **names = arena_alloc(arena, (strlen(p) / 2 + 1) * sizeof(char *)); /* each has its quotes */
    for (uint32_t n = 0; p != NULL && *p == '"';) {
        p = read_name(p, arena, &names[n++]);
        if (p != NULL && strcmp(p, NAMES_END) == 0) {
            *out = names;
            return n;
        }
        p = p != NULL && strncmp(p, ", ", 2) == 0 ? p + 2 : NULL;
    }
    return 0;
}

struct physical_plan *physical__without_unread(const struct physical_plan *plan, struct arena *arena)
{
    struct physical_plan *rest = arena_zalloc(arena, sizeof *rest);
    bool *is_needed = arena_zalloc(arena, plan->n_stages * sizeof *is_needed);
    uint32_t *place = arena_zalloc(arena, plan->n_stages * sizeof *place);
    *rest = *plan;
    rest->n_stages = 0;
    rest->stages = arena_zalloc(arena, plan->n_stages * sizeof *rest->stages);
    /* Readers come after what they read, so one pass from the end finds all that is needed. */
    for (uint32_t i = plan->n_stages; i-- > 0;) {
        const struct physical_stage *stage = &plan->stages[i];
        is_needed[i] = is_needed[i] || stage->output.exchange == EXCHANGE_RESULT;
        for (uint32_t k = 0; k < stage->n_inputs && is_needed[i]; k++) {
            is_needed[stage->inputs[k].stage] = true;
        }
    }
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        if (!is_needed[i]) {
            continue;
        }
        place[i] = rest->n_stages;
        struct physical_stage *stage = &rest->stages[rest->n_stages++];
        *stage = plan->stages[i];
        stage->inputs = arena_copy(arena, stage->inputs, stage->n_inputs * sizeof *stage->inputs);
        for (uint32_t k = 0; k < stage->n_inputs; k++) {
            stage->inputs[k].stage = place[stage->inputs[k].stage];
        }
        if (stage->choice.is_open) {
            stage->choice.small = place[stage->choice.small];
            stage->choice.large = place[stage->choice.large];
        }
    }
    return rest;
}

static void write_key(struct buf *out, bool *is_first, const char *key)
{
    buf_text(out, *is_first ? "" : ",");
    *is_first = false;
    json_write_text(out, key);
    buf_char(out, ':');
}

static void write_uint(struct buf *out, bool *is_first, const char *key, uint64_t value)
{
    write_key(out, is_first, key);
    buf_format(out, "%" PRIu64, value);
}

static void write_flag(struct buf *out, bool *is_first, const char *key, bool value)
{
    if (value) {
        write_key(out, is_first, key);
        buf_text(out, "true");
    }
}

static void write_inputs(struct buf *out, const struct physical_plan *plan, const struct physical_stage *stage)
{
    buf_char(out, '{');
    bool is_first = true;
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        const struct physical_input *input = &stage->inputs[i];
        const struct physical_stage *from = &plan->stages[input->stage];
        write_key(out, &is_first, input->name);
        bool is_plain = !input->is_repeated && input->is_whole != exchange_is_partitioned(from->output.exchange);
        if (is_plain) {
            buf_format(out, "%" PRIu32, from->id);
            continue;
        }
        buf_char(out, '{');
        bool is_first_inside = true;
        write_uint(out, &is_first_inside, "stage", from->id);
        if (input->is_whole) {
            write_key(out, &is_first_inside, "read");
            buf_text(out, "\"all\"");
        }
        write_flag(out, &is_first_inside, "repeated", input->is_repeated);
        buf_char(out, '}');
    }
    buf_char(out, '}');
}

static void write_split(struct buf *out, const struct physical_split *split)
{
    bool is_first = true;
    buf_char(out, '{');
    write_key(out, &is_first, "file");
    json_write_text(out, split->file);
    if (split->scan > 0) {
        write_uint(out, &is_first, "scan", split->scan);
    }
    if (split->file_index > 0) {
        write_uint(out, &is_first, "file_index", split->file_index);
    }
    if (split->has_rows) {
        write_uint(out, &is_first, "first_row", split->first_row);
        write_uint(out, &is_first, "last_row", split->last_row);
    }
    write_flag(out, &is_first, "empty", split->is_empty);
    write_flag(out, &is_first, "and_next", split->is_continued);
    if (split->rows > 0) {
        write_uint(out, &is_first, "rows", split->rows);
    }
    if (split->bytes > 0) {
        write_uint(out, &is_first, "bytes", split->bytes);
    }
    if (split->has_identity) {
        write_uint(out, &is_first, "file_bytes", split->file_bytes);
        write_key(out, &is_first, "file_mtime_ms");
        json_write_int(out, split->file_mtime_ms);
    }
    buf_char(out, '}');
}

static void write_output(struct buf *out, const struct physical_output *output)
{
    bool is_first = true;
    buf_char(out, '{');
    write_key(out, &is_first, "exchange");
    json_write_text(out, exchange_name(output->exchange));
    if (output->n_keys > 0) {
        write_key(out, &is_first, "keys");
        for (uint32_t i = 0; i < output->n_keys; i++) {
            buf_char(out, i == 0 ? '[' : ',');
            json_write_text(out, output->keys[i]);
        }
        buf_char(out, ']');
    }
    if (exchange_is_partitioned(output->exchange)) {
        write_uint(out, &is_first, "partitions", output->partitions);
    }
    if (output->bounds != NULL) {
        write_key(out, &is_first, "bounds");
        json_write_text(out, output->bounds);
    }
    buf_char(out, '}');
}

static void write_estimate(struct buf *out, bool *is_first, const struct physical_estimate *estimate)
{
    if (estimate->rows >= 0) {
        write_key(out, is_first, "estimated_rows");
        json_write_number(out, estimate->rows);
    }
    if (estimate->bytes >= 0) {
        write_key(out, is_first, "estimated_bytes");
        json_write_number(out, estimate->bytes);
    }
}

static void write_files(struct buf *out, bool *is_first, const struct physical_stage *stage)
{
    if (stage->write.to != NULL) {
        write_key(out, is_first, "write");
        buf_text(out, "{\"to\":");
        json_write_text(out, stage->write.to);
        buf_text(out, ",\"format\":");
        json_write_text(out, stage->write.format);
        if (stage->write.options[0] != '\0') {
            buf_text(out, ",\"options\":");
            json_write_text(out, stage->write.options);
        }
        buf_char(out, '}');
    }
    if (stage->publish.to != NULL) {
        write_key(out, is_first, "publish");
        buf_text(out, "{\"to\":");
        json_write_text(out, stage->publish.to);
        if (stage->publish.table != NULL) {
            buf_text(out, ",\"table\":");
            json_write_text(out, stage->publish.table);
        }
        buf_char(out, '}');
    }
}

/* What only plans of our own have. */
static void write_extras(struct buf *out, bool *is_first, const struct physical_plan *plan,
                         const struct physical_stage *stage)
{
    if (stage->n_groups > 0) {
        write_key(out, is_first, "groups");
        for (uint32_t i = 0; i < stage->n_groups; i++) {
            buf_format(out, "%c[%" PRIu32 ",%" PRIu32 "]", i == 0 ? '[' : ',', stage->groups[i].first,
                       stage->groups[i].last);
        }
        buf_char(out, ']');
    }
    if (stage->n_empty_if > 0) {
        write_key(out, is_first, "empty_if");
        for (uint32_t i = 0; i < stage->n_empty_if; i++) {
            buf_char(out, i == 0 ? '[' : ',');
            json_write_text(out, stage->inputs[stage->empty_if[i]].name);
        }
        buf_char(out, ']');
    }
    if (stage->choice.is_open) {
        write_key(out, is_first, "choice");
        bool is_first_inside = true;
        buf_char(out, '{');
        write_uint(out, &is_first_inside, "small", plan->stages[stage->choice.small].id);
        write_uint(out, &is_first_inside, "large", plan->stages[stage->choice.large].id);
        write_uint(out, &is_first_inside, "bytes", stage->choice.bytes_max);
        buf_char(out, '}');
    }
    write_estimate(out, is_first, &stage->estimate);
    if (stage->what[0] != '\0') {
        write_key(out, is_first, "what");
        json_write_text(out, stage->what);
    }
}

static void write_stage(struct buf *out, const struct physical_plan *plan, const struct physical_stage *stage)
{
    bool is_first = true;
    buf_char(out, '{');
    write_uint(out, &is_first, "id", stage->id);
    if (stage->job_stage != PHYSICAL_NOT_ADDED) {
        write_uint(out, &is_first, "job_stage", stage->job_stage);
    }
    if (stage->n_inputs > 0) {
        write_key(out, &is_first, "inputs");
        write_inputs(out, plan, stage);
    }
    write_key(out, &is_first, "sql");
    physical__write_sql(out, stage);
    if (stage->n_splits > 0) {
        write_key(out, &is_first, "splits");
        for (uint32_t i = 0; i < stage->n_splits; i++) {
            buf_char(out, i == 0 ? '[' : ',');
            write_split(out, &stage->splits[i]);
        }
        buf_char(out, ']');
    }
    write_key(out, &is_first, "deterministic");
    buf_text(out, stage->is_deterministic ? "true" : "false");
    if (stage->custom.op != NULL) {
        write_key(out, &is_first, "custom");
        buf_text(out, "{\"op\":");
        json_write_text(out, stage->custom.op);
        buf_text(out, ",\"config\":");
        buf_text(out, stage->custom.config_json);
        buf_char(out, '}');
    }
    write_files(out, &is_first, stage);
    write_extras(out, &is_first, plan, stage);
    write_key(out, &is_first, "output");
    write_output(out, &stage->output);
    buf_char(out, '}');
}

void physical_write(struct buf *out, const struct physical_plan *plan)
{
    buf_text(out, "{\"stages\":[");
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        buf_text(out, i == 0 ? "" : ",");
        write_stage(out, plan, &plan->stages[i]);
    }
    buf_char(out, ']');
    if (plan->single_reason != NULL) {
        buf_text(out, ",\"single\":");
        json_write_text(out, plan->single_reason);
    }
    if (plan->engine != NULL) {
        buf_text(out, ",\"engine\":");
        json_write_text(out, plan->engine);
    }
    if (plan->tail_bytes > 0) {
        buf_format(out, ",\"tail_bytes\":%" PRIu64, plan->tail_bytes);
    }
    if (plan->partition_bytes > 0) {
        buf_format(out, ",\"partition_bytes\":%" PRIu64, plan->partition_bytes);
    }
    if (plan->first_job_stage > 0) {
        buf_format(out, ",\"first_job_stage\":%" PRIu32, plan->first_job_stage);
    }
    buf_char(out, '}');
}
