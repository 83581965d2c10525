/*
 * pages.h - which page of the inbox is tried next.
 *
 * A look begins with the oldest entries and goes on page by page, past what there is no room for: there may be room for
 * what is behind it. Room comes and goes meanwhile. So after a page of which some were taken and some found no room it
 * begins again with the oldest, who have waited longest; if there is still no room for them, it goes on where it was. A look
 * does not go through all of an inbox for which there is no room: after a few pages in vain it is over, and the next one
 * goes on there when it has tried the oldest.
 *
 * Ownership: a value; all zero: nothing was tried yet. Threads: one at a time.
 */
#ifndef CAPSTAN_COORDINATOR_PAGES_H
#define CAPSTAN_COORDINATOR_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#define PAGES_ENTRIES 100
#define PAGES_IN_VAIN 4 /* in one look: so many of which nothing was taken */

struct pages {
    uint64_t after_id;  /* the page to be tried is behind this entry; 0: with the oldest */
    uint64_t resume_id; /* where to go on if the oldest find no room; 0: behind them */
    uint32_t n_in_vain; /* in this look */
};

/* What has become of a page. */
struct page_tried {
    uint64_t last_id; /* of its entries */
    uint32_t n;       /* of them; fewer than PAGES_ENTRIES: there are no more */
    uint64_t n_taken;
    uint64_t n_refused; /* those that found no room */
};

/* Begins a look. */
static inline void pages_begin(struct pages *pages)
{
    pages->after_id = 0;
    pages->n_in_vain = 0;
}

/* False: this look is over. */
static inline bool pages_go_on(struct pages *pages, const struct page_tried *tried)
{
    bool is_first = pages->after_id == 0;
    bool is_in_vain = tried->n_taken == 0;
    if (tried->n < PAGES_ENTRIES) {
        pages->resume_id = 0;
        return false;
    }
    if (!is_in_vain && tried->n_refused > 0) {
        pages->resume_id = is_first ? pages->resume_id : pages->after_id;
        pages->after_id = 0;
        return true;
    }
    pages->after_id = tried->last_id;
    if (is_first && is_in_vain && pages->resume_id > pages->after_id) {
        pages->after_id = pages->resume_id;
    }
    pages->n_in_vain += is_in_vain ? 1 : 0;
    if (pages->n_in_vain == PAGES_IN_VAIN) {
        pages->resume_id = pages->after_id;
        return false;
    }
    return true;
}

#endif
