/*
 * Several things at once, each in one statement, and news of the inbox.
 *
 * What is asked for comes as arrays: its keys, and the place of each in the answer. A subquery per key (LATERAL with a
 * LIMIT) goes along the table's key whatever the planner thinks of the sizes.
 */
#include <string.h>

#include "base/clock.h"
#include "store/postgres_internal.h"

static struct value int_value(int64_t number)
{
    return (struct value){.type = VALUE_IS_INT, .number = number};
}

/* A copy that is not NULL even if it is empty; nothing for NULL. */
static struct found_bytes bytes_at(const PGresult *result, int row, int column, struct arena *arena)
{
    if (PQgetisnull(result, row, column)) {
        return (struct found_bytes){NULL, 0};
    }
    size_t n = (size_t)PQgetlength(result, row, column);
    return (struct found_bytes){n == 0 ? "" : arena_copy(arena, PQgetvalue(result, row, column), n), n};
}

/* The place in the answer that a row is for; the database echoes what it was sent. */
static enum err place_at(const PGresult *result, int row, uint32_t n, uint32_t *out, struct error *e)
{
    int64_t place = postgres__int_at(result, row, 0);
    if (place < 0 || place >= n) {
        return error_set(e, ERR_DATA_LOSS, "the database answers what was not asked");
    }
    *out = (uint32_t)place;
    return ERR_OK;
}

/* Keys of one column, and their places. */
static void start_keys(struct postgres *pg, enum value_type type)
{
    const enum value_type types[] = {type, VALUE_IS_INT};
    postgres__arrays_start(&pg->arrays, types, 2);
}

static void put_key(struct postgres *pg, struct value key)
{
    postgres__arrays_put(&pg->arrays, 0, key);
    postgres__arrays_put(&pg->arrays, 1, int_value(pg->arrays.n_rows));
    pg->arrays.n_rows++;
}

/* Asks with the job's id, if there is one, the keys and their places as parameters. */
static enum err ask_keys(struct postgres *pg, enum postgres_question question, const char *sql, const char *job_id,
                         PGresult **out, struct error *e)
{
    struct postgres_params params = {0};
    postgres__arrays_finish(&pg->arrays);
    postgres__param_array(&params, &pg->arrays, 0);
    postgres__param_array(&params, &pg->arrays, 1);
    if (job_id != NULL) {
        postgres__param_text(&params, job_id);
    }
    return postgres__ask(pg, question, sql, &params, out, e);
}

#define KEYS(type) "(SELECT unnest($1::" type "[]) AS key, unnest($2::bigint[]) AS place) u"

enum err postgres__payloads(struct store *store, const char *job_id, const struct digest *digests, uint32_t n,
                            struct arena *arena, struct found_bytes *out, struct error *e)
{
    static const char sql[] = "SELECT u.place, l.bytes FROM " KEYS(
        "bytea") ", LATERAL (SELECT p.bytes FROM capstan.payloads p WHERE p.job_id = $3 AND p.digest = u.key LIMIT 1) l";
    struct postgres *pg = postgres__of(store);
    PGresult *result = NULL;
    start_keys(pg, VALUE_IS_BYTES);
    for (uint32_t i = 0; i < n; i++) {
        put_key(pg, (struct value){.type = VALUE_IS_BYTES, .bytes = &digests[i], .n = sizeof digests[i]});
    }
    enum err err = ask_keys(pg, ASK_PAYLOADS, sql, job_id, &result, e);
    if (err != ERR_OK) {
        return err;
    }
    struct found_bytes *found = arena_zalloc(arena, n * sizeof *found);
    for (int i = 0; i < PQntuples(result) && err == ERR_OK; i++) {
        uint32_t place = 0;
        err = place_at(result, i, n, &place, e);
        if (err == ERR_OK) {
            found[place] = bytes_at(result, i, 1, arena);
        }
    }
    PQclear(result);
    if (err == ERR_OK) {
        memcpy(out, found, n * sizeof *found);
    }
    return err;
}

enum err postgres__known_jobs(struct store *store, const char *const *job_ids, uint32_t n, bool *out_known,
                              struct error *e)
{
    static const char sql[] = "SELECT u.place FROM " KEYS(
        "text") ", LATERAL (SELECT 1 FROM capstan.jobs j WHERE j.job_id = u.key AND j.kind >= 0 LIMIT 1) l";
    struct postgres *pg = postgres__of(store);
    PGresult *result = NULL;
    start_keys(pg, VALUE_IS_TEXT);
    for (uint32_t i = 0; i < n; i++) {
        put_key(pg, (struct value){.type = VALUE_IS_TEXT, .bytes = job_ids[i], .n = strlen(job_ids[i])});
    }
    enum err err = ask_keys(pg, ASK_KNOWN_JOBS, sql, NULL, &result, e);
    if (err != ERR_OK) {
        return err;
    }
    memset(out_known, 0, n * sizeof *out_known);
    for (int i = 0; i < PQntuples(result) && err == ERR_OK; i++) {
        uint32_t place = 0;
        err = place_at(result, i, n, &place, e);
        if (err == ERR_OK) {
            out_known[place] = true;
        }
    }
    PQclear(result);
    return err;
}

/* ---- results of tasks ---- */

/* Behind a task t: its stage's name and its result. */
#define NAME_AND_RESULT(job)                                                                                           \
    " LEFT JOIN LATERAL (SELECT s.name FROM capstan.stages s WHERE s.job_id = " job                                    \
    " AND s.stage = t.stage LIMIT 1) s ON true LEFT JOIN LATERAL (SELECT p.bytes FROM capstan.payloads p "             \
    "WHERE p.job_id = " job " AND p.digest = t.result LIMIT 1) p ON true"

static enum err result_at(const PGresult *result, int row, struct arena *arena, struct task_result *out,
                          struct error *e)
{
    int64_t state = postgres__int_at(result, row, 2);
    if (state < TASK_QUEUED || state > TASK_SKIPPED) {
        return error_set(e, ERR_DATA_LOSS, "a task has a state that there is not");
    }
    *out = (struct task_result){
        .stage = (uint32_t)postgres__int_at(result, row, 1),
        .name = postgres__text_at(result, row, 3, arena),
        .state = (enum task_state)state,
        .is_found = true,
        .result = bytes_at(result, row, 4, arena),
    };
    return ERR_OK;
}

enum err postgres__results(struct store *store, const char *job_id, const uint32_t *stages, uint32_t n,
                           struct arena *arena, struct task_result *out, struct error *e)
{
    static const char sql[] = "SELECT u.place, t.stage, t.state, s.name, p.bytes FROM " KEYS(
        "bigint") ", LATERAL (SELECT x.stage, x.state, x.result FROM capstan.tasks x WHERE x.job_id = $3 "
                  "AND x.stage = u.key AND x.task = 0 LIMIT 1) t" NAME_AND_RESULT("$3");
    struct postgres *pg = postgres__of(store);
    PGresult *result = NULL;
    start_keys(pg, VALUE_IS_INT);
    for (uint32_t i = 0; i < n; i++) {
        put_key(pg, int_value(stages[i]));
    }
    enum err err = ask_keys(pg, ASK_RESULTS, sql, job_id, &result, e);
    if (err != ERR_OK) {
        return err;
    }
    struct task_result *found = arena_zalloc(arena, n * sizeof *found);
    for (uint32_t i = 0; i < n; i++) {
        found[i].stage = stages[i];
    }
    for (int i = 0; i < PQntuples(result) && err == ERR_OK; i++) {
        uint32_t place = 0;
        err = place_at(result, i, n, &place, e);
        if (err == ERR_OK) {
            err = result_at(result, i, arena, &found[place], e);
        }
    }
    PQclear(result);
    if (err == ERR_OK) {
        memcpy(out, found, n * sizeof *found);
    }
    return err;
}

enum err postgres__task_results(struct store *store, const char *job_id, int64_t after_stage, uint32_t limit,
                                struct arena *arena, const struct task_result **out, uint32_t *out_n, struct error *e)
{
    /* A tree's stages have one task each. The first subquery ends before anything is looked up for its rows. */
    static const char sql[] =
        "SELECT 0::bigint, t.stage, t.state, s.name, p.bytes FROM (SELECT x.stage, x.state, x.result "
        "FROM capstan.tasks x WHERE x.job_id = $1 AND x.stage > $2 AND x.task = 0 "
        "ORDER BY x.stage LIMIT $3) t" NAME_AND_RESULT("$1") " ORDER BY t.stage";
    PGresult *result = NULL;
    struct postgres_params params = {0};
    postgres__param_text(&params, job_id);
    postgres__param_int(&params, after_stage);
    postgres__param_int(&params, limit);
    enum err err = postgres__ask(postgres__of(store), ASK_TASK_RESULTS, sql, &params, &result, e);
    if (err != ERR_OK) {
        return err;
    }
    uint32_t n = (uint32_t)PQntuples(result);
    struct task_result *found = arena_alloc(arena, n * sizeof *found);
    for (uint32_t i = 0; i < n && err == ERR_OK; i++) {
        err = result_at(result, (int)i, arena, &found[i], e);
    }
    PQclear(result);
    if (err == ERR_OK) {
        *out = found;
        *out_n = n;
    }
    return err;
}

/* ---- the inbox ---- */

/* Listens, if this connection does not yet. What came before it did was missed: `*out_new`. */
static enum err ensure_listening(struct postgres *pg, bool *out_new, struct error *e)
{
    enum err err = postgres__begin(pg, POSTGRES_LEADER_SILENCE_MS, true, e);
    *out_new = err == ERR_OK && !pg->is_listening;
    if (err == ERR_OK && !pg->is_listening) {
        err = postgres__script(pg, "LISTEN capstan_inbox", e);
        pg->is_listening = err == ERR_OK;
    }
    return err;
}

enum err postgres__listen(struct store *store, struct error *e)
{
    struct postgres *pg = postgres__of(store);
    bool ignored;
    enum err err = ensure_listening(pg, &ignored, e);
    pg->wants_news = pg->wants_news || err == ERR_OK;
    return err;
}

/* Whether there was any; forgets them. */
static bool take_notifications(struct postgres *pg)
{
    bool any = false;
    for (PGnotify *news; (news = PQnotifies(pg->conn)) != NULL;) {
        any = true;
        PQfreemem(news);
    }
    return any;
}

enum err postgres__wait(struct store *store, int64_t timeout_ms, bool *out_woken, struct error *e)
{
    struct postgres *pg = postgres__of(store);
    bool is_new;
    if (!pg->wants_news) {
        return error_set(e, ERR_PRECONDITION, "this store does not listen");
    }
    enum err err = ensure_listening(pg, &is_new, e); /* also reads what has come */
    if (err != ERR_OK) {
        return err;
    }
    bool woken = take_notifications(pg) || is_new;
    int64_t now_ms = clock_mono_ms();
    int64_t deadline_ms = timeout_ms > INT64_MAX - now_ms ? INT64_MAX : now_ms + timeout_ms;
    /* What can be read may be something else, such as the last words of a server that stops. */
    while (!woken && err == ERR_OK && wake_wait(&pg->wake, PQsocket(pg->conn), deadline_ms - clock_mono_ms())) {
        err = ensure_listening(pg, &is_new, e);
        woken = err == ERR_OK && (take_notifications(pg) || is_new);
    }
    if (err == ERR_OK) {
        *out_woken = woken;
    }
    return err;
}

void postgres__interrupt(struct store *store)
{
    wake_up(&postgres__of(store)->wake);
}

/* ---- at a glance ---- */

enum err postgres__summarize(struct store *store, struct store_summary *out, struct error *e)
{
    static const char sql[] = "SELECT (SELECT count(*) FROM (SELECT 1 FROM capstan.jobs WHERE state = 0 LIMIT $1) a), "
                              "(SELECT count(*) FROM (SELECT 1 FROM capstan.jobs WHERE state = 1 LIMIT $1) a), "
                              "(SELECT count(*) FROM (SELECT 1 FROM capstan.distributed_nodes LIMIT $1) a), "
                              "(SELECT count(*) FROM (SELECT 1 FROM capstan.inbox LIMIT $1) a), "
                              "(SELECT max(seq) FROM capstan.task_events), pg_database_size(current_database())";
    PGresult *result = NULL;
    struct postgres_params params = {0};
    postgres__param_int(&params, STORE_SUMMARY_MAX);
    enum err err = postgres__ask(postgres__of(store), ASK_ONCE, sql, &params, &result, e);
    if (err != ERR_OK) {
        return err;
    }
    *out = (struct store_summary){
        .queued_jobs = (uint64_t)postgres__int_at(result, 0, 0),
        .running_jobs = (uint64_t)postgres__int_at(result, 0, 1),
        .nodes = (uint64_t)postgres__int_at(result, 0, 2),
        .inbox = (uint64_t)postgres__int_at(result, 0, 3),
        .last_event_seq = (uint64_t)postgres__int_at(result, 0, 4),
        .bytes = (uint64_t)postgres__int_at(result, 0, 5),
    };
    PQclear(result);
    return ERR_OK;
}
