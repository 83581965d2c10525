/*
 * request.h - something asked of the coordinator: a command or a read, and what to do with the answer.
 *
 * Whoever asks makes a request, builds the command in the request's own arena and hands both over with
 * coordinator_send(). From then on it belongs to the coordinator, which calls `answer` exactly once, on its loop thread,
 * and frees the request afterwards.
 */
#ifndef CAPSTAN_COORDINATOR_REQUEST_H
#define CAPSTAN_COORDINATOR_REQUEST_H

#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/list.h"
#include "core/command.h"
#include "core/core.h"
#include "core/effects.h"
#include "store/store.h"

struct request;

/*
 * The answer. `reply` is the core's, or NULL: then `err` says why there is none. ERR_PRECONDITION: this process does not
 * lead (any more); the command may or may not have been carried out if it was on its way, and can be sent again.
 */
typedef void answer_fn(struct request *request, const struct reply *reply, enum err err);

/* Looks at the core and leaves what it found in the request's arena. Runs on the loop thread. */
typedef void read_fn(const struct core *core, struct request *request);

struct request {
    struct list in_list; /* the coordinator's */
    struct arena arena;
    struct command command; /* unless `read` is set; reply_to is the coordinator's */
    read_fn *read;
    const struct payload *payloads; /* to be stored in the same transaction */
    uint32_t n_payloads;
    uint64_t inbox_id; /* not 0: the command came from this entry of the inbox */
    answer_fn *answer;
    void *context;
};

struct request *request_new(answer_fn *answer, void *context);
void request_free(struct request *request); /* only before it was sent */

#endif
