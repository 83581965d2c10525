/*
 * places.h - how many may wait for one address at the same time, and who is next.
 *
 * Whoever has to wait for an address needs one of its places. If there is none left it stands in line, which takes memory
 * but no thread; those in line have their turn client by client, as in turns.h. A place that is given back belongs to the
 * next in line at once, so that nobody who came later gets it first, and while somebody stands in line all places are
 * taken: each of those who have one will give it back, and the line moves on.
 *
 * Ownership: places_new's caller owns them, and what stands in line. Threads: any.
 */
#ifndef CAPSTAN_COORDINATOR_PLACES_H
#define CAPSTAN_COORDINATOR_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "coordinator/turns.h"

struct places;

struct places *places_new(uint32_t n_of_each_address);
void places_free(struct places *places); /* NULL ok; when all have been given back */

/*
 * True: the caller has a place, which it owes to places_give. False: there is none, and `item` stands in line; from now on
 * it is whoever's who gets it from places_give, who may have done so already. `item` NULL: nobody stands in line.
 */
MUST_USE bool places_take(struct places *places, const char *address, struct sender sender, struct list *item);

/* Gives one back. The next in line, who has it now; NULL: there is nobody. */
MUST_USE struct list *places_give(struct places *places, const char *address);

#endif
