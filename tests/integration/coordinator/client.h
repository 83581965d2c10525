/*
 * client.h - blocking calls of a coordinator, for tests: one at a time per thread.
 *
 * Each call sends a request and waits for its answer. The struct tells what came back; ERR_PRECONDITION means that the
 * coordinator does not lead.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_COORDINATOR_CLIENT_H
#define CAPSTAN_TESTS_INTEGRATION_COORDINATOR_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/coordinator.h"

#define CLIENT_TASKS_MAX 16

struct client_task {
    char job_id[64];
    uint32_t stage;
    uint32_t task;
    uint32_t attempt;
    struct lease_token token;
};

struct client_answer {
    enum err err;         /* of the coordinator, or of the core's reply */
    enum job_state state; /* submit, cancel, status */
    bool existed;         /* submit */
    enum refusal refusal; /* report: of the only one */
    struct client_task tasks[CLIENT_TASKS_MAX];
    uint32_t n_tasks;
};

/*
 * Every task has an input, every success a result (content.h), which are stored with it; but a job of more than
 * CLIENT_TASKS_MAX tasks is there for its size and has no inputs.
 */
struct client_answer client_submit(struct coordinator *c, const char *job_id, uint32_t n_tasks);
struct client_answer client_register(struct coordinator *c, const char *worker_id, const char *incarnation);
struct client_answer client_poll(struct coordinator *c, const char *worker_id, const char *incarnation,
                                 uint32_t capacity);
struct client_answer client_succeed(struct coordinator *c, const char *worker_id, const char *incarnation,
                                    const struct client_task *task);
struct client_answer client_cancel(struct coordinator *c, const char *job_id);
/* Without a source: removes it. */
struct client_answer client_data_set(struct coordinator *c, const char *name, const char *source);
/* A read: err is ERR_NOT_FOUND if the core does not know the job. */
struct client_answer client_status(struct coordinator *c, const char *job_id);

/*
 * Whether the core knows the job at this moment, durable or not. Unlike client_status this does not wait until what the
 * core has seen is durable. False, too, if the coordinator does not lead.
 */
bool client_knows(struct coordinator *c, const char *job_id);

/* What a new leader would have in memory. NULL if the store fails. To be freed with core_free. */
struct core *client_load(struct store *store);

/*
 * Compares the coordinator's memory, as it is, with what a new leader would load from the store. Everything that was sent
 * before has become durable by then; nobody may send commands meanwhile. ERR_DATA_LOSS with a line in `out` if they
 * differ, ERR_PRECONDITION if it does not lead, ERR_UNAVAILABLE if the store could not be read.
 */
struct client_difference {
    char text[256];
};

enum err client_compare(struct coordinator *c, const char *url, struct client_difference *out);

/* Until it leads, or for `ms`. */
bool client_await_leader(struct coordinator *c, int64_t ms);

#endif
