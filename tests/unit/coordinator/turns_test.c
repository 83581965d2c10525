#include "coordinator/turns.h"

#include <stdlib.h>

#include "test.h"

struct item {
    struct list in_turns;
    uint64_t client;
    uint64_t connection;
    uint64_t number; /* of its connection */
};

static void push(struct turns *turns, uint64_t client, uint64_t connection, uint64_t number)
{
    struct item *item = calloc(1, sizeof *item);
    CHECK(item != NULL);
    *item = (struct item){.client = client, .connection = connection, .number = number};
    turns_push(turns, (struct sender){client, connection}, &item->in_turns);
}

/* What is taken next, or a client 0 if there is nothing. */
static struct item take(struct turns *turns)
{
    struct list *first = turns_take(turns);
    struct item item = {0};
    if (first != NULL) {
        struct item *found = CONTAINER_OF(first, struct item, in_turns);
        item = *found;
        free(found);
    }
    return item;
}

TEST(what_comes_over_one_connection_keeps_its_order)
{
    struct turns turns;
    turns_init(&turns);
    for (uint64_t i = 1; i <= 5; i++) {
        push(&turns, 7, 70, i);
    }
    for (uint64_t i = 1; i <= 5; i++) {
        CHECK_INT(take(&turns).number, i);
    }
    CHECK(turns_is_empty(&turns));
    CHECK(turns_take(&turns) == NULL);
    turns_deinit(&turns);
}

TEST(a_client_with_one_thing_waits_for_one_turn_whatever_others_have_sent)
{
    struct turns turns;
    turns_init(&turns);
    for (uint64_t i = 0; i < 1000; i++) {
        push(&turns, 1, 100 + i % 50, i); /* over fifty connections */
    }
    push(&turns, 2, 200, 1);
    push(&turns, 3, 300, 1);
    CHECK_INT(take(&turns).client, 1);
    CHECK_INT(take(&turns).client, 2);
    CHECK_INT(take(&turns).client, 3);
    for (int i = 0; i < 999; i++) {
        CHECK_INT(take(&turns).client, 1);
    }
    CHECK(turns_is_empty(&turns));
    turns_deinit(&turns);
}

TEST(the_connections_of_one_client_have_their_turn_too)
{
    struct turns turns;
    turns_init(&turns);
    for (uint64_t i = 0; i < 100; i++) {
        push(&turns, 1, 10, i);
    }
    push(&turns, 1, 11, 0); /* a person at a terminal, with the same token as the script */
    CHECK_INT(take(&turns).connection, 10);
    CHECK_INT(take(&turns).connection, 11);
    for (uint64_t i = 1; i < 100; i++) {
        CHECK_INT(take(&turns).number, i);
    }
    CHECK(turns_is_empty(&turns));
    turns_deinit(&turns);
}

TEST(a_client_that_comes_again_and_again_gets_every_other_turn)
{
    struct turns turns;
    uint64_t by_first = 0;
    turns_init(&turns);
    for (uint64_t i = 0; i < 100; i++) {
        push(&turns, 1, 10, i);
    }
    for (uint64_t i = 0; i < 50; i++) { /* the next one is sent when the one before has been taken */
        push(&turns, 2, 20, i);
        struct item item;
        while ((item = take(&turns)).client == 1) {
            by_first++;
        }
        CHECK_INT(item.client, 2);
        CHECK_INT(item.number, i);
    }
    CHECK(by_first <= 51);
    CHECK(by_first >= 25);
    while (take(&turns).client != 0) {
    }
    turns_deinit(&turns);
}

TEST(connections_with_the_same_number_are_those_of_their_clients)
{
    struct turns turns;
    turns_init(&turns);
    push(&turns, 1, 5, 1);
    push(&turns, 1, 5, 2);
    push(&turns, 2, 5, 3);
    CHECK_INT(take(&turns).number, 1);
    CHECK_INT(take(&turns).number, 3);
    CHECK_INT(take(&turns).number, 2);
    CHECK(turns_is_empty(&turns));
    turns_deinit(&turns);
}

TEST(many_clients_come_and_go_and_nothing_is_lost)
{
    struct turns turns;
    uint64_t sum = 0;
    uint64_t expected = 0;
    turns_init(&turns);
    for (uint64_t round = 0; round < 20; round++) {
        for (uint64_t i = 0; i < 300; i++) {
            push(&turns, 1 + i % 100, 1 + i % 7, i);
            expected += i;
        }
        for (int i = 0; i < 290; i++) {
            sum += take(&turns).number;
        }
    }
    for (struct item item; (item = take(&turns)).client != 0;) {
        sum += item.number;
    }
    CHECK_INT(sum, expected);
    turns_deinit(&turns);
}
