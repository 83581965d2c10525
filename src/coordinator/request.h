/*
 * request.h - something asked of the coordinator: a command or a read, and what to do with the answer.
 *
 * Whoever asks makes a request, builds the command in the request's own arena and hands both over with
 * coordinator_send(). From then on it belongs to the coordinator, which calls `answer` exactly once, on its loop thread
 * (or on the sender's, after coordinator_wind_up), and frees the request afterwards. With `is_kept` it is the answer's
 * to free instead, at once or later.
 */
#ifndef CAPSTAN_COORDINATOR_REQUEST_H
#define CAPSTAN_COORDINATOR_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/heap.h"
#include "base/list.h"
#include "coordinator/turns.h"
#include "core/command.h"
#include "core/core.h"
#include "core/effects.h"
#include "store/store.h"

struct flight;
struct request;

/*
 * The answer. `reply` is the core's, or NULL: then `err` says why there is none. ERR_PRECONDITION: this process does not
 * lead (any more); the command may or may not have been carried out if it was on its way, and can be sent again.
 */
typedef void answer_fn(struct request *request, const struct reply *reply, enum err err);

/* Looks at the core and leaves what it found in the request's arena. Runs on the loop thread. */
typedef void read_fn(const struct core *core, struct request *request);

/*
 * The state of the leader's memory when somebody looked into the store (coordinator_sight). With it the loop knows
 * whether a job that was not found there could have come and gone since.
 */
struct sight {
    uint64_t term; /* 0: nobody looked */
    uint64_t ended;
};

/* A command, unless `read` or `is_discard` is set or `data_set` has a name. */
struct request {
    struct list in_list; /* the coordinator's, like `flight` and `await_timer` */
    struct arena arena;
    struct sender sender; /* whose turn it takes; nobody's: it is taken at once */
    struct command command;
    struct sight unknown; /* of the jobs and the key that it names, what was in the store then is in memory */
    uint32_t n_looks;     /* into the store for these, weighed. The coordinator's */
    bool is_suspect;      /* it was in a batch that the database refused. The coordinator's */
    read_fn *read;
    const char *await_job;       /* a read that waits until this job has ended; NULL: it does not wait */
    int64_t await_until_mono_ms; /* but no longer than this */
    struct heap_node await_timer;
    struct flight *flight;          /* that its effects are in */
    struct data_set data_set;       /* to be stored or, without a source, removed */
    const struct payload *payloads; /* to be stored in the same transaction; those without bytes are not */
    uint32_t n_payloads; /* of CMD_REPORT: as many as reports, or twice; stored only for reports that are accepted */
    const struct data_set *made; /* of CMD_REPORT: data sets that tasks have made, one place for each report; or NULL */
    uint64_t inbox_id;           /* not 0: the command came from this entry of the inbox */
    bool is_discard;             /* no command: the entry of the inbox goes, and nothing else happens */
    bool is_kept;
    answer_fn *answer;
    void *context;
};

struct request *request_new(answer_fn *answer, void *context);
void request_free(struct request *request); /* before it was sent, or after the answer if it is kept; NULL ok */

#endif
