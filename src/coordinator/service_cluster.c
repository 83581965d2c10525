/* What people ask about the cluster: the leader, the nodes, named data sets. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "coordinator/observer.h"
#include "coordinator/service_internal.h"
#include "wire/command.h"
#include "wire/reply.h"

/* ---- leader ---- */

void service__GetLeader(struct exchange *exchange)
{
    struct coordinator *coordinator = atomic_load(&exchange->service->coordinator);
    struct observer *observer = exchange->service->observer;
    struct leader_news news = observer != NULL ? observer_leader(observer) : coordinator_leader(coordinator);
    struct arena *arena = &exchange->request->arena;
    struct pb_get_leader_response *response = wire_new(PB_GET_LEADER_RESPONSE, arena);
    if (news.is_self && coordinator_epoch(coordinator) == 0) {
        news = (struct leader_news){0}; /* its time has run out, and nobody is known to have been elected since */
    }
    response->node_id = news.node_id;
    response->address = news.address;
    response->epoch = news.epoch;
    response->role = arena_strdup(arena, observer != NULL ? "observer" : news.is_self ? "leader" : "standby");
    response->staleness_ms = observer != NULL ? (uint64_t)observer_staleness_ms(observer, 0) : 0;
    exchange_reply(exchange, response);
}

/* ---- nodes ---- */

static void read_nodes(const struct core *core, struct request *request)
{
    struct exchange *exchange = exchange_of(request);
    struct pb_list_nodes_response *response = wire_new(PB_LIST_NODES_RESPONSE, &request->arena);
    const struct node_filter *filter = exchange->more;
    struct node_info node;
    size_t cursor = 0;
    size_t n = 0;
    while (core_next_node(core, filter, &cursor, &node)) {
        n++;
    }
    response->nodes = arena_alloc(&request->arena, n * sizeof *response->nodes);
    cursor = 0;
    while (core_next_node(core, filter, &cursor, &node)) {
        response->nodes[response->n_nodes++] = wire_node(&node, &request->arena);
    }
    wire_own(response, &request->arena);
    exchange->more = response;
}

static int by_worker_id(const void *a, const void *b)
{
    const struct pb_node *const *x = a;
    const struct pb_node *const *y = b;
    return strcmp((*x)->worker_id, (*y)->worker_id);
}

static void answer_nodes(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    struct pb_list_nodes_response *response = exchange->more;
    if (exchange_failed(exchange, reply, err)) {
        return;
    }
    if (response->n_nodes > 1) {
        qsort(response->nodes, response->n_nodes, sizeof *response->nodes, by_worker_id);
    }
    exchange_reply(exchange, response);
}

void service__ListNodes(struct exchange *exchange)
{
    struct request *request = exchange->request;
    struct error e = {0};
    struct node_filter *filter = arena_zalloc(&request->arena, sizeof *filter);
    if (wire_node_filter(exchange->message, &request->arena, filter, &e) != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    exchange->more = filter;
    request->read = read_nodes;
    exchange_send(exchange, answer_nodes);
}

static void read_node(const struct core *core, struct request *request)
{
    struct exchange *exchange = exchange_of(request);
    const struct pb_set_node_request *message = exchange->message;
    struct pb_set_node_response *response = wire_new(PB_SET_NODE_RESPONSE, &request->arena);
    struct node_info node;
    if (core_node(core, message->worker_id, &node) == ERR_OK) {
        response->node = wire_node(&node, &request->arena);
        wire_own(response->node, &request->arena);
    }
    exchange->more = response;
}

static void answer_node(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    if (!exchange_failed(exchange, reply, err)) {
        exchange_reply(exchange, exchange->more);
    }
}

/* The change is durable; now a look at the node as it is. */
static void answer_set_node(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    if (!exchange_failed(exchange, reply, err)) {
        request->read = read_node;
        exchange_send(exchange, answer_node);
    }
}

void service__SetNode(struct exchange *exchange)
{
    struct request *request = exchange->request;
    struct error e = {0};
    request->command.kind = CMD_SET_NODE;
    if (wire_set_node(exchange->message, &request->arena, &request->command.u.set_node, &e) != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    exchange_send(exchange, answer_set_node);
}

/* ---- named data sets ---- */

static void answer_put_table(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    const struct pb_put_table_request *message = exchange->message;
    if (exchange_failed(exchange, reply, err)) {
        return;
    }
    struct pb_put_table_response *response = wire_new(PB_PUT_TABLE_RESPONSE, &request->arena);
    response->table = message->table;
    exchange_reply(exchange, response);
}

/* All data sets that there are. */
static enum err read_tables(struct clerk *clerk, struct exchange *exchange, const struct data_set **sets, uint32_t *n,
                            struct error *e)
{
    struct store *store;
    enum err err = clerk_store(clerk, &store, e);
    return err != ERR_OK ? err : clerk_note(clerk, store_data_sets(store, &exchange->request->arena, sets, n, e));
}

static bool is_among(const struct data_set *sets, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(sets[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* One that SQL, to which case means nothing, would take for the other; NULL: none. */
static const char *find_alike(const struct data_set *sets, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++) {
        if (strcasecmp(sets[i].name, name) == 0 && strcmp(sets[i].name, name) != 0) {
            return sets[i].name;
        }
    }
    return NULL;
}

/* Every query is told all data sets, so their number is bounded; one that is there already can always be changed. */
static void put_table(struct clerk *clerk, void *context)
{
    struct exchange *exchange = context;
    const struct pb_table *table = ((const struct pb_put_table_request *)exchange->message)->table;
    const struct data_set *sets = NULL;
    uint32_t n = 0;
    struct error e = {0};
    enum err err = read_tables(clerk, exchange, &sets, &n, &e);
    if (err == ERR_OK && n >= LIMIT_TABLES && !is_among(sets, n, table->name)) {
        err = error_set(&e, ERR_EXHAUSTED, "there are %u tables, and no more than %d can be", n, LIMIT_TABLES);
        error_hint(&e, "remove one with capstan table rm, or read files by their names in the query");
    }
    const char *alike = err == ERR_OK && !is_among(sets, n, table->name) ? find_alike(sets, n, table->name) : NULL;
    if (alike != NULL) {
        err = error_set(&e, ERR_EXISTS,
                        "table.name: there is a table '%s' already, and SQL makes no difference between them", alike);
        error_hint(&e, "take another name, or remove that one first: capstan table rm %s", alike);
    }
    if (err != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    exchange->request->data_set =
        (struct data_set){.name = table->name, .source = table->source, .format = table->format};
    exchange_send(exchange, answer_put_table);
}

void service__PutTable(struct exchange *exchange)
{
    const struct pb_put_table_request *message = exchange->message;
    struct error e = {0};
    if (message->table == NULL) {
        error_set(&e, ERR_INVALID, "table: is missing");
        exchange_fail(exchange, &e);
        return;
    }
    if (exchange_needs_leader(exchange)) {
        office_send(exchange->service->readers, exchange->request->sender, put_table, exchange);
    }
}

static void answer_delete_table(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    if (!exchange_failed(exchange, reply, err)) {
        exchange_reply(exchange, wire_new(PB_DELETE_TABLE_RESPONSE, &request->arena));
    }
}

/* Finds out first whether there is such a data set: removing nothing is a mistake worth telling. */
static void delete_table(struct clerk *clerk, void *context)
{
    struct exchange *exchange = context;
    const struct pb_delete_table_request *message = exchange->message;
    const struct data_set *sets = NULL;
    uint32_t n = 0;
    struct error e = {0};
    enum err err = read_tables(clerk, exchange, &sets, &n, &e);
    if (err == ERR_OK && !is_among(sets, n, message->name)) {
        err = error_set(&e, ERR_NOT_FOUND, "there is no table '%s'", message->name);
        error_hint(&e, "capstan table list shows all");
    }
    if (err != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    exchange->request->data_set = (struct data_set){.name = message->name};
    exchange_send(exchange, answer_delete_table);
}

void service__DeleteTable(struct exchange *exchange)
{
    if (exchange_needs_leader(exchange)) {
        office_send(exchange->service->readers, exchange->request->sender, delete_table, exchange);
    }
}

static void list_tables(struct clerk *clerk, void *context)
{
    struct exchange *exchange = context;
    struct arena *arena = &exchange->request->arena;
    const struct data_set *sets = NULL;
    uint32_t n = 0;
    struct error e = {0};
    enum err err = read_tables(clerk, exchange, &sets, &n, &e);
    if (err != ERR_OK) {
        exchange_fail(exchange, &e);
        return;
    }
    struct pb_list_tables_response *response = wire_new(PB_LIST_TABLES_RESPONSE, arena);
    response->tables = arena_alloc(arena, n * sizeof *response->tables);
    for (uint32_t i = 0; i < n; i++) {
        struct pb_table *table = wire_new(PB_TABLE, arena);
        table->name = arena_strdup(arena, sets[i].name);
        table->source = arena_strdup(arena, sets[i].source);
        table->format = arena_strdup(arena, sets[i].format);
        response->tables[i] = table;
    }
    response->n_tables = n;
    exchange_reply(exchange, response);
}

void service__ListTables(struct exchange *exchange)
{
    office_send(exchange->service->readers, exchange->request->sender, list_tables, exchange);
}
