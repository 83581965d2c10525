#include "coordinator/pages.h"

#include "test.h"

#define ALL PAGES_ENTRIES

/* A full page whose last entry is this one. */
static bool tried(struct pages *pages, uint64_t last_id, uint64_t n_taken, uint64_t n_refused)
{
    return pages_go_on(pages,
                       &(struct page_tried){.last_id = last_id, .n = ALL, .n_taken = n_taken, .n_refused = n_refused});
}

TEST(pages_for_which_there_is_room_are_tried_one_after_the_other)
{
    struct pages pages = {0};
    pages_begin(&pages);
    for (uint64_t i = 1; i < 50; i++) {
        CHECK(tried(&pages, 100 * i, ALL, 0));
        CHECK_UINT(pages.after_id, 100 * i);
    }
    CHECK(!pages_go_on(&pages, &(struct page_tried){.last_id = 5001, .n = 1, .n_taken = 1}));
    pages_begin(&pages);
    CHECK_UINT(pages.after_id, 0);
}

TEST(the_oldest_are_tried_again_when_there_was_room_for_some)
{
    struct pages pages = {0};
    pages_begin(&pages);
    CHECK(tried(&pages, 100, 3, ALL - 3));
    CHECK_UINT(pages.after_id, 0); /* the 97 that found no room, and three behind them */
    CHECK(tried(&pages, 103, 0, ALL));
    CHECK_UINT(pages.after_id, 103);
    CHECK(tried(&pages, 203, 1, ALL - 1)); /* there is room again: not for what is younger still */
    CHECK_UINT(pages.after_id, 0);
    CHECK(tried(&pages, 103, ALL, 0));
    CHECK_UINT(pages.after_id, 103);
}

TEST(who_begins_again_in_vain_goes_on_where_there_was_room)
{
    struct pages pages = {0};
    pages_begin(&pages);
    CHECK(tried(&pages, 100, 0, ALL));
    CHECK(tried(&pages, 200, 0, ALL));
    CHECK(tried(&pages, 300, 5, ALL - 5)); /* smaller ones */
    CHECK_UINT(pages.after_id, 0);
    CHECK(tried(&pages, 100, 0, ALL));
    CHECK_UINT(pages.after_id, 200);
}

TEST(a_look_is_over_after_some_pages_in_vain_and_the_next_goes_on_there)
{
    struct pages pages = {0};
    uint64_t at = 100;
    for (int look = 0; look < 3; look++) {
        pages_begin(&pages);
        CHECK_UINT(pages.after_id, 0);
        CHECK(tried(&pages, 100, 0, ALL));
        for (int i = 2; i <= PAGES_IN_VAIN; i++) {
            CHECK_UINT(pages.after_id, at);
            at += 100;
            CHECK_UINT(tried(&pages, at, 0, ALL), i < PAGES_IN_VAIN);
        }
    }
    pages_begin(&pages);
    CHECK(tried(&pages, 100, 0, ALL));
    CHECK_UINT(pages.after_id, 1000);
    CHECK(!pages_go_on(&pages, &(struct page_tried){.last_id = 1001, .n = 1, .n_refused = 1})); /* that was all */
    pages_begin(&pages);
    CHECK(tried(&pages, 100, 0, ALL));
    CHECK_UINT(pages.after_id, 100);
}

/* An inbox of entries 1, 2, ...: takes as many of a page as there is room for. Returns what pages_go_on says. */
struct box {
    bool is_gone[1001];
    struct pages pages;
    uint64_t last_taken;
    bool is_in_order; /* nobody was taken before somebody older */
};

static bool try_page(struct box *box, uint64_t room)
{
    struct page_tried page = {0};
    for (uint64_t id = box->pages.after_id + 1; id < 1001 && page.n < ALL; id++) {
        bool is_there = !box->is_gone[id];
        bool fits = is_there && page.n_taken < room;
        page.n += is_there;
        page.last_id = is_there ? id : page.last_id;
        page.n_taken += fits;
        page.n_refused += is_there && !fits;
        box->is_gone[id] |= fits;
        box->is_in_order &= !fits || id == box->last_taken + 1;
        box->last_taken = fits ? id : box->last_taken;
    }
    return pages_go_on(&box->pages, &page);
}

TEST(room_that_comes_while_pages_are_tried_goes_to_the_oldest)
{
    struct box box = {.is_in_order = true};
    pages_begin(&box.pages);
    uint64_t i = 0;
    while (try_page(&box, 1 + i % 30)) { /* some tasks have ended since the last page */
        i++;
    }
    CHECK(box.is_in_order);
    CHECK(box.last_taken > 900);
}
