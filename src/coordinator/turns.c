#include "coordinator/turns.h"

#include "base/mem.h"

/* Records that are kept for the next ones: a queue that is nearly always empty makes and drops two for each thing in it. */
#define SPARES_MAX 64

/* Somebody with something in the queue: a client, with its connections in `waiting`, or a connection, with its things. */
struct turn {
    struct list in_ring; /* of the client that it belongs to; of a client: of all clients */
    struct list waiting;
    struct turn *client; /* NULL: it is one */
    uint64_t key;
};

/* What a turn is looked for by. A number that two connections happen to share makes them no less two. */
struct turn_key {
    const struct turn *client;
    uint64_t key;
};

static bool has_key(const void *value, const void *key)
{
    const struct turn *turn = value;
    const struct turn_key *wanted = key;
    return turn->key == wanted->key && turn->client == wanted->client;
}

void turns_init(struct turns *turns)
{
    *turns = (struct turns){0};
    list_init(&turns->ring);
    list_init(&turns->spares);
}

void turns_deinit(struct turns *turns)
{
    ASSERT(turns_is_empty(turns));
    for (struct list *first; (first = list_first(&turns->spares)) != NULL;) {
        list_remove(first);
        mem_free(CONTAINER_OF(first, struct turn, in_ring));
    }
    map_deinit(&turns->clients);
    map_deinit(&turns->connections);
}

static struct turn *turn_new(struct turns *turns, uint64_t key, struct turn *client)
{
    struct list *spare = list_first(&turns->spares);
    struct turn *turn = spare != NULL ? CONTAINER_OF(spare, struct turn, in_ring) : mem_calloc(1, sizeof *turn);
    if (spare != NULL) {
        list_remove(spare);
        turns->n_spares--;
    }
    turn->key = key;
    turn->client = client;
    list_init(&turn->waiting);
    return turn;
}

/* Whoever is new in a ring comes behind all that wait there. */
static struct turn *find(struct turns *turns, struct map *map, struct list *ring, uint64_t key, struct turn *client)
{
    struct turn_key wanted = {client, key};
    struct turn *turn = map_get(map, key, has_key, &wanted);
    if (turn == NULL) {
        turn = turn_new(turns, key, client);
        map_put(map, key, turn);
        list_push_back(ring, &turn->in_ring);
    }
    return turn;
}

void turns_push(struct turns *turns, struct sender sender, struct list *item)
{
    struct turn *client = find(turns, &turns->clients, &turns->ring, sender.client, NULL);
    struct turn *connection = find(turns, &turns->connections, &client->waiting, sender.connection, client);
    list_push_back(&connection->waiting, item);
}

/* Its turn is over: to the end of the ring, or out of it if it has nothing more. */
static void step_back(struct turns *turns, struct map *map, struct list *ring, struct turn *turn)
{
    list_remove(&turn->in_ring);
    if (!list_is_empty(&turn->waiting)) {
        list_push_back(ring, &turn->in_ring);
        return;
    }
    (void)map_take_value(map, turn->key, turn);
    if (turns->n_spares < SPARES_MAX) {
        turns->n_spares++;
        list_push_back(&turns->spares, &turn->in_ring);
    } else {
        mem_free(turn);
    }
}

struct list *turns_take(struct turns *turns)
{
    if (turns_is_empty(turns)) {
        return NULL;
    }
    struct turn *client = CONTAINER_OF(list_first(&turns->ring), struct turn, in_ring);
    struct turn *connection = CONTAINER_OF(list_first(&client->waiting), struct turn, in_ring);
    struct list *item = list_first(&connection->waiting);
    list_remove(item);
    step_back(turns, &turns->connections, &client->waiting, connection);
    step_back(turns, &turns->clients, &turns->ring, client);
    return item;
}
