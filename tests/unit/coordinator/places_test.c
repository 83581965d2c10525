#include "coordinator/places.h"

#include "test.h"

#define HERE "127.0.0.1:1"
#define THERE "127.0.0.1:2"

static struct sender client(uint64_t number)
{
    return (struct sender){.client = number, .connection = number};
}

TEST(an_address_has_so_many_places_and_no_more)
{
    struct places *places = places_new(2);
    CHECK(places_take(places, HERE, client(1), NULL));
    CHECK(places_take(places, HERE, client(1), NULL));
    CHECK(!places_take(places, HERE, client(2), NULL));
    CHECK(places_give(places, HERE) == NULL); /* nobody asked to stand in line */
    CHECK(places_take(places, HERE, client(2), NULL));
    CHECK(places_give(places, HERE) == NULL);
    CHECK(places_give(places, HERE) == NULL);
    places_free(places);
}

TEST(another_address_has_places_of_its_own)
{
    struct list item = {0};
    struct places *places = places_new(1);
    CHECK(places_take(places, HERE, client(1), NULL));
    CHECK(!places_take(places, HERE, client(1), &item));
    CHECK(places_take(places, THERE, client(1), NULL));
    CHECK(places_give(places, THERE) == NULL); /* the line is one for the other */
    CHECK(places_give(places, HERE) == &item);
    CHECK(places_give(places, HERE) == NULL);
    places_free(places);
}

TEST(a_place_that_is_given_back_belongs_to_the_next_in_line)
{
    struct list items[3] = {0};
    struct places *places = places_new(1);
    CHECK(places_take(places, HERE, client(1), NULL));
    CHECK(!places_take(places, HERE, client(1), &items[0]));
    CHECK(!places_take(places, HERE, client(1), &items[1]));
    CHECK(places_give(places, HERE) == &items[0]);
    CHECK(!places_take(places, HERE, client(1), &items[2])); /* who comes now does not get it */
    CHECK(places_give(places, HERE) == &items[1]);
    CHECK(places_give(places, HERE) == &items[2]);
    CHECK(places_give(places, HERE) == NULL);
    CHECK(places_take(places, HERE, client(1), NULL)); /* all are free again */
    CHECK(places_give(places, HERE) == NULL);
    places_free(places);
}

TEST(a_client_with_one_in_line_waits_for_one_turn_whatever_others_have_there)
{
    struct list many[100] = {0};
    struct list one = {0};
    struct places *places = places_new(1);
    CHECK(places_take(places, HERE, client(1), NULL));
    for (size_t i = 0; i < 100; i++) {
        CHECK(!places_take(places, HERE, client(1), &many[i]));
    }
    CHECK(!places_take(places, HERE, client(2), &one));
    CHECK(places_give(places, HERE) == &many[0]);
    CHECK(places_give(places, HERE) == &one);
    for (size_t i = 1; i < 100; i++) {
        CHECK(places_give(places, HERE) == &many[i]);
    }
    CHECK(places_give(places, HERE) == NULL);
    places_free(places);
}
