#include "../test.h"

#include <string.h>

#include "base/list.h"
#include "base/prng.h"

struct item {
    int number;
    struct list link;
};

static int number_of(const struct list *link)
{
    return CONTAINER_OF(link, struct item, link)->number;
}

TEST(a_new_list_is_empty)
{
    struct list head;
    list_init(&head);
    CHECK(list_is_empty(&head));
    CHECK(list_first(&head) == NULL);
    CHECK(list_last(&head) == NULL);
    LIST_EACH(link, &head) {
        CHECK(link == NULL);
    }
}

TEST(a_zeroed_node_and_an_initialised_node_are_not_linked)
{
    struct list zeroed = {0};
    struct list initialised;
    list_init(&initialised);
    CHECK(!list_is_linked(&zeroed));
    CHECK(!list_is_linked(&initialised));
    list_remove(&zeroed);
    list_remove(&initialised);
    CHECK(!list_is_linked(&zeroed));
}

TEST(nodes_come_in_the_order_of_their_insertion)
{
    struct list head;
    struct item items[4] = {{.number = 0}, {.number = 1}, {.number = 2}, {.number = 3}};
    list_init(&head);
    list_push_back(&head, &items[2].link);
    list_push_back(&head, &items[3].link);
    list_push_front(&head, &items[0].link);
    list_insert_before(&items[2].link, &items[1].link);
    int expected = 0;
    LIST_EACH(link, &head) {
        CHECK_INT(number_of(link), expected++);
    }
    CHECK_INT(expected, 4);
    CHECK(list_first(&head) == &items[0].link);
    CHECK(list_last(&head) == &items[3].link);
    CHECK(list_next(&head, &items[0].link) == &items[1].link);
    CHECK(list_next(&head, &items[3].link) == NULL);
}

TEST(a_removed_node_can_be_linked_again)
{
    struct list head;
    struct item item = {.number = 1};
    list_init(&head);
    list_push_back(&head, &item.link);
    CHECK(list_is_linked(&item.link));
    list_remove(&item.link);
    CHECK(!list_is_linked(&item.link));
    CHECK(list_is_empty(&head));
    list_remove(&item.link);
    list_push_front(&head, &item.link);
    CHECK(list_first(&head) == &item.link);
}

TEST(linking_a_linked_node_aborts)
{
    struct list head;
    struct item items[2] = {{.number = 0}, {.number = 1}};
    list_init(&head);
    list_push_back(&head, &items[0].link);
    list_push_back(&head, &items[1].link);
    CHECK_ABORTS(list_push_back(&head, &items[0].link));
}

TEST(a_safe_loop_may_remove_the_node_it_is_at)
{
    struct list head;
    struct item items[10];
    list_init(&head);
    for (int i = 0; i < 10; i++) {
        items[i] = (struct item){.number = i};
        list_push_back(&head, &items[i].link);
    }
    LIST_EACH_SAFE(link, after, &head) {
        if (number_of(link) % 2 == 0) {
            list_remove(link);
        }
    }
    int expected = 1;
    LIST_EACH(link, &head) {
        CHECK_INT(number_of(link), expected);
        expected += 2;
    }
    CHECK_INT(expected, 11);
}

enum { ITEMS = 24 };

/* The naive model: the numbers in order, in an array. */
struct model {
    int numbers[ITEMS];
    size_t count;
};

static void model_insert(struct model *model, size_t at, int number)
{
    memmove(model->numbers + at + 1, model->numbers + at, (model->count - at) * sizeof(int));
    model->numbers[at] = number;
    model->count++;
}

static size_t model_find(const struct model *model, int number)
{
    size_t at = 0;
    while (at < model->count && model->numbers[at] != number) {
        at++;
    }
    return at;
}

static void model_remove(struct model *model, int number)
{
    size_t at = model_find(model, number);
    if (at < model->count) {
        model->count--;
        memmove(model->numbers + at, model->numbers + at + 1, (model->count - at) * sizeof(int));
    }
}

static void check_same(const struct list *head, const struct model *model)
{
    size_t at = 0;
    for (struct list *link = list_first(head); link != NULL; link = list_next(head, link)) {
        CHECK(at < model->count);
        CHECK_INT(number_of(link), model->numbers[at++]);
    }
    CHECK_UINT(at, model->count);
    for (struct list *link = head->prev; link != head; link = link->prev) {
        CHECK_INT(number_of(link), model->numbers[--at]);
    }
    CHECK_UINT(at, 0);
}

TEST(random_operations_agree_with_an_array)
{
    struct item items[ITEMS] = {0};
    struct model model = {0};
    struct list head;
    struct prng prng;
    prng_init(&prng, 3);
    list_init(&head);
    for (int i = 0; i < ITEMS; i++) {
        items[i].number = i;
    }
    for (int step = 0; step < 100000; step++) {
        struct item *item = &items[prng_below(&prng, ITEMS)];
        CHECK(list_is_linked(&item->link) == (model_find(&model, item->number) < model.count));
        if (list_is_linked(&item->link) || prng_permille(&prng, 100)) {
            list_remove(&item->link);
            model_remove(&model, item->number);
        } else if (model.count > 0 && prng_permille(&prng, 300)) {
            size_t at = (size_t)prng_below(&prng, model.count);
            list_insert_before(&items[model.numbers[at]].link, &item->link);
            model_insert(&model, at, item->number);
        } else if (prng_permille(&prng, 500)) {
            list_push_back(&head, &item->link);
            model_insert(&model, model.count, item->number);
        } else {
            list_push_front(&head, &item->link);
            model_insert(&model, 0, item->number);
        }
        if (step % 10 == 0) {
            check_same(&head, &model);
        }
    }
}
