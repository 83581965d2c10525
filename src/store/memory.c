/*
 * The store in memory: the contract of store.h, written down as simply as it can be. Rows are applied one by one, in
 * order; a batch that fails is undone by a journal. The other engines are compared with this one, so it takes no
 * shortcuts and shares nothing with them but the description of the tables.
 */
#include "store/memory.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "store/memory_internal.h"
#include "store/wake.h"

#define SCHEMA_NEWEST 1

struct memory_store {
    struct store store;
    struct database *db;
    struct wake wake;
    bool is_listening;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct database *databases;

/* ---- databases ---- */

uint32_t memory__column(enum row_kind kind, const char *name)
{
    const struct table *table = table_of(kind);
    for (uint32_t i = 0; i < table->n_columns; i++) {
        if (strcmp(table->columns[i].name, name) == 0) {
            return i;
        }
    }
    ASSERT(!"the table has no such column");
    return 0;
}

/* What the schema asks for besides the keys. */
static const struct {
    enum row_kind kind;
    const char *column;
    enum { NOT_NULL, UNIQUE, UNIQUE_IN_JOB } what;
} constraints[] = {
    {ROW_STAGE, "spec", NOT_NULL},
    {ROW_LEASE, "lease_token", UNIQUE},
    {ROW_LEASE, "node_id", NOT_NULL},
    {ROW_MAP_OUTPUT, "node_id", NOT_NULL},
    {ROW_MAP_OUTPUT, "incarnation", NOT_NULL},
    {ROW_ATTEMPT, "idempotency_key", UNIQUE_IN_JOB},
};

static void make_tables(struct database *db)
{
    for (int kind = 0; kind <= ROW_META; kind++) {
        const struct table *table = table_of((enum row_kind)kind);
        if (table == NULL) {
            continue;
        }
        uint32_t n_keys = 0;
        while (n_keys < table->n_columns && table->columns[n_keys].role == ROLE_KEY) {
            n_keys++;
        }
        ASSERT(table->n_columns <= MEMORY_COLUMNS_MAX);
        memory_table_init(&db->tables[kind], table->name, table->n_columns, n_keys);
    }
    for (size_t i = 0; i < ARRAY_LEN(constraints); i++) {
        struct memory_table *table = &db->tables[constraints[i].kind];
        uint32_t column = memory__column(constraints[i].kind, constraints[i].column);
        table->required |= UINT64_C(1) << column;
        if (constraints[i].what != NOT_NULL) {
            table->unique = column;
            table->unique_by_owner = constraints[i].what == UNIQUE_IN_JOB;
            table->by_unique =
                (struct memory_order){.first = column, .n_columns = 1, .by_owner = table->unique_by_owner};
        }
    }
    memory_table_init(&db->tables[TABLE_PAYLOADS], "payloads", 3, 2);
    memory_table_init(&db->tables[TABLE_DATA_SETS], "data_sets", 3, 1);
    memory_table_init(&db->tables[TABLE_INBOX], "inbox", 3, 1);
    db->tables[TABLE_DATA_SETS].required = 7;
}

static void clear(struct database *db)
{
    for (int i = 0; i < TABLE_COUNT; i++) {
        memory_table_deinit(&db->tables[i]);
    }
    mem_free(db->node_id);
    mem_free(db->address);
    db->node_id = NULL;
    db->address = NULL;
    db->has_leader = false;
    db->fence = (struct fence){0};
    db->last_inbox_id = 0;
}

static struct database *find_database(const char *name)
{
    struct database *db = databases;
    while (db != NULL && strcmp(db->name, name) != 0) {
        db = db->next;
    }
    if (db == NULL) {
        db = mem_calloc(1, sizeof *db);
        db->name = mem_strdup(name);
        db->next = databases;
        databases = db;
        make_tables(db);
    }
    return db;
}

static int64_t clock_of(const struct database *db)
{
    struct timespec now;
    if (db->has_clock) {
        return db->now_ms;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void memory_set_clock(const char *name, int64_t now_ms)
{
    pthread_mutex_lock(&lock);
    struct database *db = find_database(name);
    db->has_clock = true;
    db->now_ms = now_ms;
    pthread_mutex_unlock(&lock);
}

void memory_set_schema(const char *name, uint32_t version)
{
    pthread_mutex_lock(&lock);
    find_database(name)->schema = version;
    pthread_mutex_unlock(&lock);
}

void memory_each(const char *name, enum row_kind kind, memory_values_fn *fn, void *context)
{
    pthread_mutex_lock(&lock);
    const struct memory_order *order = &find_database(name)->tables[kind].by_key;
    for (uint32_t i = 0; i < order->n; i++) {
        fn(context, table_of(kind), order->items[i]->values);
    }
    pthread_mutex_unlock(&lock);
}

void memory_swap(const char *a, const char *b)
{
    pthread_mutex_lock(&lock);
    struct database *one = find_database(a);
    struct database *other = find_database(b);
    for (int i = 0; i < TABLE_COUNT; i++) {
        struct memory_table table = one->tables[i];
        one->tables[i] = other->tables[i];
        other->tables[i] = table;
    }
    pthread_mutex_unlock(&lock);
}

int memory_job_state(const char *name, const char *job_id)
{
    struct value key = memory__text(job_id);
    pthread_mutex_lock(&lock);
    const struct record *job = memory_table_find(&find_database(name)->tables[ROW_JOB], &key);
    int state = job == NULL ? -1 : (int)memory__number(job, ROW_JOB, "state");
    pthread_mutex_unlock(&lock);
    return state;
}

void memory_trim(const char *name, const struct memory_limits *limits)
{
    pthread_mutex_lock(&lock);
    memory__trim(find_database(name), limits);
    pthread_mutex_unlock(&lock);
}

void memory_drop(const char *name)
{
    pthread_mutex_lock(&lock);
    struct database *db = find_database(name);
    struct database **at = &databases;
    ASSERT(db->n_open == 0);
    while (*at != db) {
        at = &(*at)->next;
    }
    *at = db->next;
    clear(db);
    mem_free(db->name);
    mem_free(db);
    pthread_mutex_unlock(&lock);
}

/* ---- values ---- */

struct value memory__int(int64_t number)
{
    return (struct value){.type = VALUE_IS_INT, .number = number};
}

struct value memory__text(const char *text)
{
    return text == NULL ? (struct value){.type = VALUE_IS_NULL}
                        : (struct value){.type = VALUE_IS_TEXT, .bytes = text, .n = strlen(text)};
}

struct value memory__bytes(const void *bytes, size_t n)
{
    return (struct value){.type = VALUE_IS_BYTES, .bytes = bytes, .n = n};
}

int64_t memory__number(const struct record *record, enum row_kind kind, const char *column)
{
    return record->values[memory__column(kind, column)].number;
}

bool memory__text_is(const struct value *value, const char *text)
{
    return value->type == VALUE_IS_TEXT && strcmp(value->bytes, text) == 0;
}

/* ---- opening ---- */

static const struct engine engine;

enum err memory_open(const char *url, struct store **out_store, struct error *e)
{
    struct memory_store *store = mem_calloc(1, sizeof *store);
    enum err err = wake_init(&store->wake, e);
    if (err != ERR_OK) {
        mem_free(store);
        return err;
    }
    store->store.engine = &engine;
    pthread_mutex_lock(&lock);
    store->db = find_database(url + strlen("memory:"));
    store->db->n_open++;
    pthread_mutex_unlock(&lock);
    *out_store = &store->store;
    return ERR_OK;
}

static void memory_close(struct store *store)
{
    struct memory_store *memory = (struct memory_store *)(void *)store;
    pthread_mutex_lock(&lock);
    memory->db->n_open--;
    pthread_mutex_unlock(&lock);
    wake_deinit(&memory->wake);
    mem_free(memory);
}

/* Takes the lock and checks that there is a schema to work with. On failure the lock is not taken. */
enum err memory__enter(struct store *store, struct database **out_db, struct error *e)
{
    struct database *db = ((struct memory_store *)(void *)store)->db;
    pthread_mutex_lock(&lock);
    if (db->schema != SCHEMA_NEWEST) {
        pthread_mutex_unlock(&lock);
        error_set(e, ERR_PRECONDITION, "the schema of this store is not the one that this program needs");
        return ERR_PRECONDITION;
    }
    *out_db = db;
    return ERR_OK;
}

enum err memory__leave(enum err err)
{
    pthread_mutex_unlock(&lock);
    return err;
}

/* ---- schema ---- */

static enum err memory_schema(struct store *store, struct migration_status *out, struct error *e)
{
    const struct database *db = ((struct memory_store *)(void *)store)->db;
    UNUSED(e);
    pthread_mutex_lock(&lock);
    *out = (struct migration_status){
        .current = db->schema, .newest = SCHEMA_NEWEST, .is_too_new = db->schema > SCHEMA_NEWEST};
    return memory__leave(ERR_OK);
}

static enum err memory_migrate(struct store *store, uint32_t version, struct error *e)
{
    struct database *db = ((struct memory_store *)(void *)store)->db;
    uint32_t wanted = version == STORE_NEWEST ? SCHEMA_NEWEST : version;
    pthread_mutex_lock(&lock);
    if (db->schema > SCHEMA_NEWEST) {
        return memory__leave(error_set(e, ERR_PRECONDITION, "the schema is newer than this program"));
    }
    if (wanted > SCHEMA_NEWEST) {
        return memory__leave(error_set(e, ERR_INVALID, "there is no schema version %u", wanted));
    }
    if (wanted == 0) {
        clear(db);
    }
    db->schema = wanted;
    return memory__leave(ERR_OK);
}

/* ---- leadership ---- */

bool memory__fence_holds(const struct database *db, const struct fence *fence)
{
    return db->has_leader && db->fence.epoch == fence->epoch && lease_token_equal(db->fence.token, fence->token);
}

enum err memory__fenced(struct error *e)
{
    return error_set(e, ERR_FENCED, "another leader has taken over");
}

static void describe_leader(const struct database *db, struct arena *arena, struct leader *out)
{
    int64_t now_ms = clock_of(db);
    *out = (struct leader){
        .fence = db->fence,
        .node_id = arena_strdup(arena, db->node_id),
        .address = arena_strdup(arena, db->address),
        .expires_in_ms = db->expires_at_ms - now_ms,
        .now_ms = now_ms,
    };
}

static enum err memory_lead(struct store *store, const struct leader_claim *claim, struct arena *arena,
                            struct leader *out, struct error *e)
{
    struct database *db;
    enum err err = memory__enter(store, &db, e);
    if (err != ERR_OK) {
        return err;
    }
    if (db->has_leader && db->expires_at_ms > clock_of(db)) {
        describe_leader(db, arena, out);
        return memory__leave(error_set(e, ERR_BUSY, "%s leads", db->node_id));
    }
    mem_free(db->node_id);
    mem_free(db->address);
    db->node_id = mem_strdup(claim->node_id);
    db->address = mem_strdup(claim->address);
    db->fence.epoch++;
    db->fence.token = claim->token;
    db->expires_at_ms = clock_of(db) + claim->ttl_ms;
    db->has_leader = true;
    describe_leader(db, arena, out);
    return memory__leave(ERR_OK);
}

static enum err memory_renew(struct store *store, const struct fence *fence, int64_t ttl_ms, int64_t *out_now_ms,
                             struct error *e)
{
    struct database *db;
    enum err err = memory__enter(store, &db, e);
    if (err != ERR_OK) {
        return err;
    }
    if (!memory__fence_holds(db, fence)) {
        return memory__leave(memory__fenced(e));
    }
    *out_now_ms = clock_of(db);
    db->expires_at_ms = *out_now_ms + ttl_ms;
    return memory__leave(ERR_OK);
}

static enum err memory_resign(struct store *store, const struct fence *fence, struct error *e)
{
    struct database *db;
    enum err err = memory__enter(store, &db, e);
    if (err != ERR_OK) {
        return err;
    }
    db->has_leader = db->has_leader && !memory__fence_holds(db, fence);
    return memory__leave(ERR_OK);
}

static enum err memory_leader(struct store *store, struct arena *arena, struct leader *out, struct error *e)
{
    struct database *db;
    enum err err = memory__enter(store, &db, e);
    if (err != ERR_OK) {
        return err;
    }
    if (!db->has_leader) {
        return memory__leave(error_set(e, ERR_NOT_FOUND, "nobody leads"));
    }
    describe_leader(db, arena, out);
    return memory__leave(ERR_OK);
}
bool memory__job_is_open(const struct record *job)
{
    return !job_state_is_terminal((enum job_state)memory__number(job, ROW_JOB, "state"));
}

uint64_t memory_add_inbox(const char *name, const char *job_id, const void *tree, size_t n_bytes)
{
    struct memory_journal journal = {0};
    pthread_mutex_lock(&lock);
    struct database *db = find_database(name);
    struct value values[] = {memory__int(++db->last_inbox_id), memory__text(job_id), memory__bytes(tree, n_bytes)};
    enum err err = memory_table_put(&db->tables[TABLE_INBOX], &journal, values, NULL);
    ASSERT(err == ERR_OK);
    memory_journal_keep(&journal);
    pthread_mutex_unlock(&lock);
    return (uint64_t)values[0].number;
}

/* ---- waiting ---- */

static enum err memory_listen(struct store *store, struct error *e)
{
    struct database *db;
    enum err err = memory__enter(store, &db, e);
    if (err == ERR_OK) {
        ((struct memory_store *)(void *)store)->is_listening = true;
        err = memory__leave(ERR_OK);
    }
    return err;
}

static enum err memory_wait(struct store *store, int64_t timeout_ms, bool *out_woken, struct error *e)
{
    const struct memory_store *memory = (const struct memory_store *)(const void *)store;
    if (!memory->is_listening) {
        return error_set(e, ERR_PRECONDITION, "this store does not listen");
    }
    *out_woken = wake_wait(&memory->wake, -1, timeout_ms);
    return ERR_OK;
}

static void memory_interrupt(struct store *store)
{
    wake_up(&((struct memory_store *)(void *)store)->wake);
}

static const struct engine engine = {
    .close = memory_close,
    .schema = memory_schema,
    .migrate = memory_migrate,
    .lead = memory_lead,
    .renew = memory_renew,
    .resign = memory_resign,
    .leader = memory_leader,
    .commit = memory__commit,
    .load = memory__load,
    .load_job = memory__load_job,
    .find_key = memory__find_key,
    .payload = memory__payload,
    .payloads = memory__payloads,
    .results = memory__results,
    .known_jobs = memory__known_jobs,
    .data_sets = memory__data_sets,
    .inbox = memory__inbox,
    .listen = memory_listen,
    .wait = memory_wait,
    .interrupt = memory_interrupt,
    .jobs = memory__jobs,
    .tasks = memory__tasks,
    .task_results = memory__task_results,
    .events = memory__events,
    .prune = memory__prune,
    .summarize = memory__summarize,
};
