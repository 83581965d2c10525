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

struct client_answer client_submit(struct coordinator *c, const char *job_id, uint32_t n_tasks);
struct client_answer client_register(struct coordinator *c, const char *worker_id, const char *incarnation);
struct client_answer client_poll(struct coordinator *c, const char *worker_id, const char *incarnation,
                                 uint32_t capacity);
struct client_answer client_succeed(struct coordinator *c, const char *worker_id, const char *incarnation,
                                    const struct client_task *task);
struct client_answer client_cancel(struct coordinator *c, const char *job_id);
/* A read: err is ERR_NOT_FOUND if the core does not know the job. */
struct client_answer client_status(struct coordinator *c, const char *job_id);

/* Until it leads, or for `ms`. */
bool client_await_leader(struct coordinator *c, int64_t ms);

#endif
