/*
 * SubmitQuery: SQL, or a physical plan.
 *
 * SQL is not looked at here. It becomes a job with one planning task, whose inputs are the statement, its parameters, the
 * named data sets that it may mean, and how large the cluster is; what that task brings are the job's further stages
 * (query.h). A physical plan is checked here, all of it, and becomes stages at once.
 */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/siphash.h"
#include "coordinator/query.h"
#include "coordinator/service_internal.h"
#include "wire/reply.h"

#define SQL_EXECUTOR "sql"
#define PRIORITY_NORMAL 2

/* ---- the cluster ---- */

static bool is_usable(const struct node_info *node)
{
    return node->status == NODE_HEALTHY && !node->blacklisted && !node->draining;
}

static uint32_t slots_with(const struct core *core, const char *engine)
{
    struct node_filter filter = {.executor = SQL_EXECUTOR};
    struct node_info node;
    size_t cursor = 0;
    uint32_t slots = 0;
    while (core_next_node(core, &filter, &cursor, &node)) {
        bool has_it = engine == NULL || (node.offer->engine != NULL && strcmp(node.offer->engine, engine) == 0);
        slots += is_usable(&node) && has_it ? node.slots : 0;
    }
    return slots;
}

struct fleet service__read_fleet(const struct core *core, struct arena *arena)
{
    struct fleet fleet = {.slots = slots_with(core, NULL)};
    struct node_filter filter = {.executor = SQL_EXECUTOR};
    struct node_info node;
    size_t cursor = 0;
    while (core_next_node(core, &filter, &cursor, &node)) {
        const char *engine = is_usable(&node) ? node.offer->engine : NULL;
        if (engine == NULL || (fleet.engine != NULL && strcmp(engine, fleet.engine) == 0)) {
            continue;
        }
        uint32_t slots = slots_with(core, engine);
        if (slots > fleet.engine_slots) {
            fleet.engine = arena_strdup(arena, engine);
            fleet.engine_slots = slots;
        }
    }
    return fleet;
}

static void read_fleet(const struct core *core, struct request *request)
{
    struct fleet *fleet = exchange_of(request)->more;
    *fleet = service__read_fleet(core, &request->arena);
}

/* ---- the inputs of the planning task ---- */

/* A data set, and whether the statement may mean it. */
struct named_set {
    const struct data_set *set;
    bool is_named;
};

static uint64_t hash_of_name(const char *name, size_t n)
{
    static const struct siphash_key key = {0};
    char lower[LIMIT_TABLE_NAME_BYTES];
    for (size_t i = 0; i < n; i++) {
        lower[i] = (char)tolower((unsigned char)name[i]);
    }
    return siphash(&key, lower, n);
}

struct word {
    const char *text;
    size_t n;
};

static bool is_set_called(const void *named, const void *key)
{
    const char *name = ((const struct named_set *)named)->set->name;
    const struct word *word = key;
    return strlen(name) == word->n && strncasecmp(name, word->text, word->n) == 0;
}

#define ESCAPE_BYTES_MAX 9 /* behind the backslash: U and eight digits */

static bool is_in_names(char c)
{
    return isalnum((unsigned char)c) != 0 || c == '_';
}

static void mark_named(const struct map *sets, const struct word *word)
{
    struct named_set *named = NULL;
    if (word->n > 0 && word->n <= LIMIT_TABLE_NAME_BYTES) {
        named = map_get(sets, hash_of_name(word->text, word->n), is_set_called, word);
    }
    if (named != NULL) {
        named->is_named = true;
    }
}

/*
 * Only a data set whose name is somewhere in the text, in whatever case, can be meant. A text with escapes, as in
 * query(E'FROM\nt'), may have a name right behind one: what follows a backslash is also looked at without its first letters.
 */
static void find_named(const char *sql, const struct map *sets)
{
    for (const char *p = sql; *p != '\0';) {
        struct word word = {.text = p};
        while (is_in_names(p[word.n])) {
            word.n++;
        }
        size_t escape = p > sql && p[-1] == '\\' ? ESCAPE_BYTES_MAX : 0;
        escape = escape < word.n ? escape : word.n;
        for (size_t i = 0; i <= escape; i++) {
            mark_named(sets, &(struct word){.text = p + i, .n = word.n - i});
        }
        p += word.n > 0 ? word.n : 1;
    }
}

static void write_table(struct buf *out, const struct data_set *set, bool is_first)
{
    buf_text(out, is_first ? "{\"name\":" : ",{\"name\":");
    json_write_text(out, set->name);
    buf_text(out, ",\"source\":");
    json_write_text(out, set->source);
    buf_text(out, ",\"format\":");
    json_write_text(out, set->format == NULL ? "" : set->format);
    buf_char(out, '}');
}

static void write_tables(struct buf *out, const char *sql, const struct data_set *sets, uint32_t n)
{
    struct named_set *named = mem_calloc((size_t)n + 1, sizeof *named);
    struct map by_name = {0};
    bool is_first = true;
    for (uint32_t i = n; i-- > 0;) { /* of names that differ in case, as old stores may have them, the last is meant */
        size_t n_name = strlen(sets[i].name);
        struct word word = {.text = sets[i].name, .n = n_name};
        named[i].set = &sets[i];
        if (n_name <= LIMIT_TABLE_NAME_BYTES &&
            map_get(&by_name, hash_of_name(word.text, n_name), is_set_called, &word) == NULL) {
            map_put(&by_name, hash_of_name(word.text, n_name), &named[i]);
        }
    }
    find_named(sql, &by_name);
    buf_text(out, ",\"tables\":[");
    for (uint32_t i = 0; i < n; i++) {
        if (named[i].is_named) {
            write_table(out, &sets[i], is_first);
            is_first = false;
        }
    }
    buf_char(out, ']');
    map_deinit(&by_name);
    mem_free(named);
}

/* What a client may ask for itself, and what is configured. `limit` 0: true or false. */
struct option {
    const char *name;
    uint64_t most; /* 0: true or false */
};

static const struct option known_options[] = {
#define OPTION(name, most, help) {#name, most},
    QUERY_OPTIONS_TABLE(OPTION)
#undef OPTION
};

static const struct option *find_option(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(known_options); i++) {
        if (strcmp(known_options[i].name, name) == 0) {
            return &known_options[i];
        }
    }
    return NULL;
}

static enum err check_option(const char *name, const struct json *value, struct error *e)
{
    const struct option *option = find_option(name);
    uint64_t number = 0;
    if (option == NULL) {
        error_set(e, ERR_INVALID, "options_json: there is no option '%.100s'", name);
        error_hint(e, "partitions, forced, single_task_bytes, broadcast_bytes, partition_bytes, tail_bytes");
        return ERR_INVALID;
    }
    if (option->most == 0) {
        return json_kind_of(value) == JSON_BOOL
                   ? ERR_OK
                   : error_set(e, ERR_INVALID, "options_json: %s: must be true or false", name);
    }
    if (!json_uint(value, &number) || number > option->most) {
        return error_set(e, ERR_INVALID, "options_json: %s: must be a whole number up to %" PRIu64, name, option->most);
    }
    return ERR_OK;
}

static enum err check_options(const struct json *root, struct error *e)
{
    size_t cursor = 0;
    const char *name;
    const struct json *value;
    if (json_kind_of(root) != JSON_OBJECT) {
        return error_set(e, ERR_INVALID, "options_json: must be an object");
    }
    while (json_next(root, &cursor, &name, &value)) {
        enum err err = check_option(name, value, e);
        if (err != ERR_OK) {
            return err;
        }
    }
    return ERR_OK;
}

static void write_number(struct buf *out, const struct json *given, const char *name, int64_t configured)
{
    uint64_t number = 0;
    if (given == NULL || !json_has(given, name) || !json_uint(json_get(given, name), &number)) {
        number = (uint64_t)configured;
    }
    buf_format(out, ",\"%s\":%" PRIu64, name, number);
}

static enum err write_options(struct buf *out, const struct settings *settings, const struct fleet *fleet,
                              const char *options, struct error *e)
{
    struct json *given = NULL;
    if (options[0] != '\0') {
        enum err err = json_parse(options, strlen(options), &given, e);
        if (err != ERR_OK) {
            return error_set(e, err, "options_json: %s", e->message);
        }
        err = check_options(given, e);
        if (err != ERR_OK) {
            json_free(given);
            return err;
        }
    }
    bool is_forced = given != NULL && json_has(given, "forced") && json_bool(json_get(given, "forced"));
    buf_format(out, ",\"options\":{\"slots\":%u,\"forced\":%s", (unsigned)(fleet->slots > 0 ? fleet->slots : 1),
               is_forced ? "true" : "false");
    write_number(out, given, "partitions", 0);
    write_number(out, given, "single_task_bytes", settings->single_task_bytes);
    write_number(out, given, "broadcast_bytes", settings->broadcast_bytes);
    write_number(out, given, "partition_bytes", settings->partition_bytes);
    if (given != NULL && json_has(given, "tail_bytes")) {
        write_number(out, given, "tail_bytes", 0);
    }
    buf_char(out, '}');
    json_free(given);
    return ERR_OK;
}

static enum err write_params(struct buf *out, const char *params, struct error *e)
{
    struct json *root = NULL;
    if (params[0] == '\0') {
        return ERR_OK;
    }
    enum err err = json_parse(params, strlen(params), &root, e);
    if (err != ERR_OK) {
        return error_set(e, err, "params_json: %s", e->message);
    }
    enum json_kind kind = json_kind_of(root);
    json_free(root);
    if (kind != JSON_ARRAY && kind != JSON_OBJECT) {
        return error_set(e, ERR_INVALID, "params_json: must be an array, or an object for named parameters");
    }
    buf_text(out, ",\"params\":");
    buf_text(out, params);
    return ERR_OK;
}

static enum err write_inputs(struct buf *out, const struct statement *statement, const struct service *service,
                             const struct fleet *fleet, const struct data_set *sets, uint32_t n_sets, struct error *e)
{
    buf_text(out, "{\"sql\":");
    json_write_text(out, statement->sql);
    enum err err = write_params(out, statement->params_json, e);
    if (err == ERR_OK) {
        write_tables(out, statement->sql, sets, n_sets);
        buf_text(out, statement->is_explain ? ",\"explain\":true" : "");
        if (service->warehouse != NULL) {
            buf_text(out, ",\"warehouse\":");
            json_write_text(out, service->warehouse);
        }
        err = write_options(out, &service->settings, fleet, statement->options_json, e);
    }
    buf_char(out, '}');
    return err;
}

/* ---- the job ---- */

static void hash_text(struct sha256 *hash, const char *text)
{
    sha256_update(hash, text, strlen(text) + 1);
}

/* What the client has asked for, without the names that it gave to it. */
static struct digest content_of(const struct pb_submit_query_request *message, uint8_t priority)
{
    struct sha256 hash;
    struct digest content;
    char flags[] = {(char)priority, message->explain ? 1 : 0};
    sha256_init(&hash);
    hash_text(&hash, "query");
    hash_text(&hash, message->sql);
    hash_text(&hash, message->params_json);
    hash_text(&hash, message->options_json);
    sha256_update(&hash, flags, sizeof flags);
    sha256_update(&hash, message->physical_plan_json.data, message->physical_plan_json.len);
    sha256_final(&hash, content.bytes);
    return content;
}

static void set_payload(struct request *request, const void *bytes, size_t n, struct digest digest)
{
    struct payload *payload = arena_zalloc(&request->arena, sizeof *payload);
    *payload =
        (struct payload){.job_id = request->command.u.submit.job_id, .digest = digest, .bytes = bytes, .n_bytes = n};
    request->payloads = payload;
    request->n_payloads = 1;
}

enum err service__plan_first(struct service *service, struct clerk *clerk, struct request *request,
                             const struct fleet *fleet, const struct statement *statement, struct error *e)
{
    struct cmd_submit *submit = &request->command.u.submit;
    const struct data_set *sets = NULL;
    struct query_inputs inputs;
    struct buf text = {0};
    struct store *store;
    uint32_t n_sets = 0;
    enum err err = clerk_store(clerk, &store, e);
    if (err == ERR_OK) {
        err = clerk_note(clerk, store_data_sets(store, &request->arena, &sets, &n_sets, e));
    }
    if (err == ERR_OK) {
        err = write_inputs(&text, statement, service, fleet, sets, n_sets, e);
    }
    if (err == ERR_OK) {
        inputs.n_bytes = (uint32_t)text.n;
        sha256_once(text.data, text.n, inputs.digest.bytes);
        submit->stages = query_planning_stage(inputs, statement->sql, &request->arena);
        submit->n_stages = 1;
        set_payload(request, arena_copy(&request->arena, text.data, text.n), text.n, inputs.digest);
    }
    buf_deinit(&text);
    return err;
}

static enum err make_sql_job(struct exchange *exchange, struct clerk *clerk, struct error *e)
{
    const struct pb_submit_query_request *message = exchange->message;
    struct statement statement = {.sql = message->sql,
                                  .params_json = message->params_json,
                                  .options_json = message->options_json,
                                  .is_explain = message->explain};
    return service__plan_first(exchange->service, clerk, exchange->request, exchange->more, &statement, e);
}

static enum err make_plan_job(struct exchange *exchange, struct error *e)
{
    const struct pb_submit_query_request *message = exchange->message;
    const struct fleet *fleet = exchange->more;
    struct request *request = exchange->request;
    struct cmd_submit *submit = &request->command.u.submit;
    struct digest digest;
    if (message->explain) {
        return error_set(e, ERR_INVALID, "explain: is for sql; a physical plan explains itself");
    }
    enum err err = query_stages(message->physical_plan_json.data, message->physical_plan_json.len, -1, fleet->engine,
                                &request->arena, &submit->stages, &submit->n_stages, e);
    if (err == ERR_OK) {
        sha256_once(message->physical_plan_json.data, message->physical_plan_json.len, digest.bytes);
        set_payload(request, message->physical_plan_json.data, message->physical_plan_json.len, digest);
    }
    return err;
}

static void answer_submit(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    if (exchange_failed(exchange, reply, err)) {
        return;
    }
    if (!reply->u.job.existed) {
        service__remember_inputs(exchange->service, request);
    }
    exchange_reply(exchange, wire_submit_query_reply(reply, &request->arena));
}

static void submit_query(struct clerk *clerk, void *context)
{
    struct exchange *exchange = context;
    struct request *request = exchange->request;
    const struct pb_submit_query_request *message = exchange->message;
    struct cmd_submit *submit = &request->command.u.submit;
    struct error e = {0};
    if (exchange_is_gone(exchange)) {
        error_set(&e, ERR_CANCELED, "the client has gone");
        exchange_fail(exchange, &e);
        return;
    }
    request->read = NULL;
    request->command.kind = CMD_SUBMIT;
    submit->job_id = message->query_id[0] != '\0' ? message->query_id : service__new_job_id(&request->arena);
    submit->idempotency_key = message->idempotency_key[0] != '\0' ? message->idempotency_key : NULL;
    submit->kind = JOB_KIND_QUERY;
    submit->priority = message->priority_set ? (uint8_t)message->priority : PRIORITY_NORMAL;
    submit->stop_on_failure = true;
    submit->content = content_of(message, submit->priority);
    enum err err = message->sql[0] != '\0' ? make_sql_job(exchange, clerk, &e) : make_plan_job(exchange, &e);
    if (err != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    service__look_up(exchange->service, clerk, request);
    exchange_send(exchange, answer_submit);
}

static void answer_fleet(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    if (!exchange_failed(exchange, reply, err)) {
        office_send(exchange->service->takers, exchange->request->sender, submit_query, exchange);
    }
}

void service__SubmitQuery(struct exchange *exchange)
{
    if (exchange_needs_leader(exchange)) {
        exchange->more = arena_zalloc(&exchange->request->arena, sizeof(struct fleet));
        exchange->request->read = read_fleet;
        exchange_send(exchange, answer_fleet);
    }
}
