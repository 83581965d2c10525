/* Jobs that are not in the leader's memory are looked for while everything else goes on. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "integration/coordinator/clocks.h"
#include "integration/coordinator/world.h"

#define WAIT_MS 30000
#define ROUNDS 3

static struct coordinator *start(struct world *w, int64_t ttl_ms, uint32_t ended_jobs_resident)
{
    struct coordinator_options options = {.store_url = world_url(w, "node-a", false),
                                          .node_id = "node-a",
                                          .address = "127.0.0.1:7400",
                                          .config = core_config_default(),
                                          .leader_ttl_ms = ttl_ms};
    struct coordinator *c = NULL;
    options.config.ended_jobs_resident = ended_jobs_resident;
    CHECK_ERR(coordinator_start(&options, &c, NULL), ERR_OK);
    CHECK(client_await_leader(c, WAIT_MS));
    return c;
}

/* A call whose answer the test can look for. */
struct pending {
    struct coordinator *c;
    atomic_bool is_done;
    enum err err;
    enum job_state state;
    bool existed;         /* what was submitted */
    enum refusal refusal; /* of the first report */
};

static void on_answer(struct request *request, const struct reply *reply, enum err err)
{
    struct pending *pending = request->context;
    pending->err = reply != NULL && reply->kind == REPLY_ERROR ? reply->code : err;
    if (reply != NULL && reply->kind == REPLY_JOB) {
        pending->state = reply->u.job.state;
    } else if (reply != NULL && reply->kind == REPLY_SUBMIT) {
        pending->existed = reply->u.job.existed;
    } else if (reply != NULL && reply->kind == REPLY_REPORT) {
        pending->refusal = reply->u.report.outcomes[0];
    }
    atomic_store(&pending->is_done, true);
}

static bool await(struct pending *pending)
{
    int64_t until_ms = clocks_mono_ms() + WAIT_MS;
    while (!atomic_load(&pending->is_done) && clocks_mono_ms() < until_ms) {
        clocks_pause(1);
    }
    return atomic_load(&pending->is_done);
}

static void send(struct coordinator *c, struct pending *pending, const struct command *command)
{
    *pending = (struct pending){.err = ERR_OK};
    struct request *request = request_new(on_answer, pending);
    request->command = *command;
    coordinator_send(c, request);
}

static void send_cancel(struct coordinator *c, struct pending *pending, const char *job_id)
{
    send(c, pending, &(struct command){.kind = CMD_CANCEL, .u.cancel = {.job_id = job_id}});
}

static void send_submit(struct coordinator *c, struct pending *pending, struct sight unknown, const char *job_id,
                        const char *key)
{
    static const struct requirement need = {.executor = "noop"};
    static const struct stage_spec stage = {.need = &need, .n_tasks = 1, .backoff_ms = -1};
    *pending = (struct pending){.err = ERR_OK};
    struct request *request = request_new(on_answer, pending);
    request->unknown = unknown;
    request->command = (struct command){.kind = CMD_SUBMIT,
                                        .u.submit = {.job_id = job_id,
                                                     .idempotency_key = key,
                                                     .kind = JOB_KIND_TREE,
                                                     .priority = 2,
                                                     .stages = &stage,
                                                     .n_stages = 1}};
    coordinator_send(c, request);
}

/* A new job that nobody need look for. */
static void send_unseen(struct coordinator *c, struct pending *pending, const char *job_id)
{
    send_submit(c, pending, coordinator_sight(c), job_id, NULL);
}

static void submit_unseen(struct coordinator *c, const char *job_id)
{
    struct pending pending;
    send_unseen(c, &pending, job_id);
    CHECK(await(&pending));
    CHECK_ERR(pending.err, ERR_OK);
}

static bool await_looking(struct world *w)
{
    return world_await(w, WAIT_MS,
                       "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'node-a' "
                       "AND wait_event_type = 'Lock' AND query LIKE 'COPY%'");
}

/* If a look outlasts the patience with a silent store, the round shows nothing. */
TEST(a_look_for_a_job_that_hangs_in_the_store_holds_up_nobody)
{
    struct world *w = world_open();
    struct coordinator *c = start(w, 60000, 10000);
    static const struct command beat = {.kind = CMD_HEARTBEAT, .u.heartbeat = {.worker_id = "w1", .incarnation = "i1"}};
    bool is_shown = false;
    CHECK_ERR(client_register(c, "w1", "i1").err, ERR_OK);
    for (int i = 0; i < ROUNDS && !is_shown; i++) {
        struct server_session lock;
        struct pending cancel, heartbeat;
        server_session_open(&lock, &w->server);
        server_session_run(&lock, "BEGIN; LOCK TABLE capstan.jobs IN ACCESS EXCLUSIVE MODE");
        send_cancel(c, &cancel, "nosuch");
        CHECK(await_looking(w));
        send(c, &heartbeat, &beat);
        CHECK(await(&heartbeat));
        CHECK_ERR(heartbeat.err, ERR_OK);
        CHECK_ERR(client_poll(c, "w1", "i1", 1).err, ERR_OK);
        CHECK_ERR(client_status(c, "nosuch").err, ERR_NOT_FOUND);
        is_shown = !atomic_load(&cancel.is_done);
        server_session_run(&lock, "COMMIT");
        server_session_close(&lock);
        CHECK(await(&cancel));
        is_shown = is_shown && cancel.err == ERR_NOT_FOUND;
    }
    CHECK(is_shown);
    CHECK_UINT(coordinator_stats(c).stepped_down, 0);
    coordinator_stop(c);
    world_close(w);
}

/* Ended, and not in memory. */
static struct coordinator *start_after_old(struct world *w, uint32_t ended_jobs_resident)
{
    struct coordinator *c = start(w, 60000, ended_jobs_resident);
    CHECK_ERR(client_submit(c, "old", 1).err, ERR_OK);
    CHECK_INT(client_cancel(c, "old").state, JOB_CANCELED);
    coordinator_stop(c);
    c = start(w, 60000, ended_jobs_resident);
    CHECK_ERR(client_register(c, "w1", "i1").err, ERR_OK);
    return c;
}

/* Has a look begun for both jobs, which finds that there is no such job as the first and hangs at "old". */
static void hang(struct world *w, struct coordinator *c, struct server_session *lock, struct pending *report,
                 struct task_report reports[2])
{
    reports[1].ref.task.job_id = "old";
    server_session_open(lock, &w->server);
    server_session_run(lock, "BEGIN; LOCK TABLE capstan.results IN ACCESS EXCLUSIVE MODE");
    send(c, report,
         &(struct command){.kind = CMD_REPORT,
                           .u.report = {.worker_id = "w1", .incarnation = "i1", .reports = reports, .n_reports = 2}});
    CHECK(await_looking(w));
}

static void go_on(struct server_session *lock, struct pending *report)
{
    server_session_run(lock, "COMMIT");
    server_session_close(lock);
    CHECK(await(report));
}

/* While the look hangs, the job is submitted, ends, and leaves the memory again. */
TEST(a_job_that_came_and_went_during_a_look_is_looked_for_again)
{
    static const char *const ids[ROUNDS] = {"new-1", "new-2", "new-3"};
    struct world *w = world_open();
    struct coordinator *c = start_after_old(w, 0);
    struct pending report = {.err = ERR_UNAVAILABLE};
    for (int i = 0; i < ROUNDS && report.err == ERR_UNAVAILABLE; i++) {
        struct task_report reports[2] = {{.ref = {.task = {.job_id = ids[i]}, .attempt = 1}, .state = TASK_SUCCEEDED}};
        struct server_session lock;
        hang(w, c, &lock, &report, reports);
        submit_unseen(c, ids[i]);
        CHECK_INT(client_cancel(c, ids[i]).state, JOB_CANCELED);
        CHECK(!client_knows(c, ids[i]));
        go_on(&lock, &report);
    }
    CHECK_ERR(report.err, ERR_OK);
    CHECK_INT(report.refusal, REFUSE_JOB_ENDED);
    coordinator_stop(c);
    world_close(w);
}

/* It has ended and left the memory, and the store can be read, but does not take what has happened. */
TEST(a_job_that_is_on_its_way_to_the_store_is_not_looked_for_before_it_is_there)
{
    struct world *w = world_open();
    struct coordinator *c = start(w, 60000, 0);
    struct server_session lock;
    struct pending submit, first, second;
    server_session_open(&lock, &w->server);
    server_session_run(&lock, "BEGIN; LOCK TABLE capstan.jobs IN SHARE MODE");
    send_unseen(c, &submit, "new");
    CHECK(world_await(w, WAIT_MS,
                      "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'node-a' "
                      "AND wait_event_type = 'Lock'"));
    send_cancel(c, &first, "new");
    while (client_knows(c, "new")) {
        clocks_pause(1);
    }
    send_cancel(c, &second, "new");
    CHECK(!client_knows(c, "new")); /* the second one has been seen by now */
    server_session_run(&lock, "COMMIT");
    server_session_close(&lock);
    CHECK(await(&submit) && await(&first) && await(&second));
    CHECK_ERR(submit.err, ERR_OK);
    CHECK_INT(first.state, JOB_CANCELED);
    CHECK_ERR(second.err, ERR_OK);
    CHECK_INT(second.state, JOB_CANCELED);
    coordinator_stop(c);
    world_close(w);
}

/* While somebody looks for the id of a submit, the job that has its key ends and leaves the memory. */
TEST(a_key_whose_job_left_the_memory_during_a_look_still_means_that_job)
{
    static const char *const firsts[ROUNDS] = {"first-1", "first-2", "first-3"};
    static const char *const seconds[ROUNDS] = {"second-1", "second-2", "second-3"};
    static const char *const keys[ROUNDS] = {"key-1", "key-2", "key-3"};
    struct world *w = world_open();
    struct coordinator *c = start(w, 60000, 0);
    struct pending second = {.err = ERR_UNAVAILABLE};
    for (int i = 0; i < ROUNDS && second.err == ERR_UNAVAILABLE; i++) {
        struct server_session lock;
        struct pending first, cancel;
        send_submit(c, &first, coordinator_sight(c), firsts[i], keys[i]);
        CHECK(await(&first) && first.err == ERR_OK && !first.existed);
        server_session_open(&lock, &w->server);
        server_session_run(&lock, "BEGIN; LOCK TABLE capstan.jobs IN ACCESS EXCLUSIVE MODE");
        send_submit(c, &second, (struct sight){0}, seconds[i], keys[i]);
        CHECK(await_looking(w));
        send_cancel(c, &cancel, firsts[i]);
        while (client_knows(c, firsts[i])) {
            clocks_pause(1);
        }
        server_session_run(&lock, "COMMIT");
        server_session_close(&lock);
        CHECK(await(&cancel) && await(&second));
        CHECK_INT(cancel.state, JOB_CANCELED);
    }
    CHECK_ERR(second.err, ERR_OK);
    CHECK(second.existed);
    coordinator_stop(c);
    world_close(w);
}

/* A cancel waits for its turn to be looked for; when that comes, the job has been submitted, and nobody has to look. */
TEST(a_job_that_is_submitted_while_others_are_looked_for_need_not_be_looked_for)
{
    static const char *const ids[ROUNDS] = {"new-1", "new-2", "new-3"};
    struct world *w = world_open();
    struct coordinator *c = start_after_old(w, 10000);
    struct pending report = {.err = ERR_UNAVAILABLE};
    struct pending cancel = {.err = ERR_OK};
    for (int i = 0; i < ROUNDS && report.err == ERR_UNAVAILABLE; i++) {
        struct task_report reports[2] = {
            {.ref = {.task = {.job_id = "nosuch"}, .attempt = 1}, .state = TASK_SUCCEEDED}};
        struct server_session lock;
        hang(w, c, &lock, &report, reports);
        send_cancel(c, &cancel, ids[i]);
        submit_unseen(c, ids[i]);
        go_on(&lock, &report);
        CHECK(await(&cancel));
    }
    CHECK_INT(report.refusal, REFUSE_UNKNOWN_JOB);
    CHECK_ERR(cancel.err, ERR_OK);
    CHECK_INT(cancel.state, JOB_CANCELED);
    coordinator_stop(c);
    world_close(w);
}

TEST(a_look_of_a_term_that_is_over_brings_nothing_into_the_next)
{
    struct world *w = world_open();
    struct coordinator *c = start_after_old(w, 10000);
    struct pending cancel = {.err = ERR_UNAVAILABLE};
    for (int i = 0; i < ROUNDS && cancel.err == ERR_UNAVAILABLE; i++) {
        struct server_session lock;
        server_session_open(&lock, &w->server);
        server_session_run(&lock, "BEGIN; LOCK TABLE capstan.results IN ACCESS EXCLUSIVE MODE");
        send_cancel(c, &cancel, "old");
        CHECK(await_looking(w));
        world_sql(w, "UPDATE capstan.cluster_leader SET epoch = epoch + 1, token = decode(repeat('01', 16), 'hex'), "
                     "expires_at = clock_timestamp() + interval '200 ms'");
        CHECK_ERR(client_data_set(c, "never", "s").err, ERR_PRECONDITION);
        CHECK(await(&cancel)); /* it need not wait for the store */
        CHECK(client_await_leader(c, WAIT_MS));
        server_session_run(&lock, "COMMIT");
        server_session_close(&lock);
    }
    CHECK_ERR(cancel.err, ERR_PRECONDITION);
    CHECK_ERR(client_cancel(c, "nosuch").err, ERR_NOT_FOUND); /* its look comes after the end of the first one */
    CHECK(!client_knows(c, "old"));
    CHECK_INT(client_cancel(c, "old").state, JOB_CANCELED);
    coordinator_stop(c);
    world_close(w);
}

/* ---- a leadership that runs out during a turn of the loop ---- */

static void read_until_late(const struct core *core, struct request *request)
{
    const struct pending *pending = request->context;
    (void)core;
    while (coordinator_epoch(pending->c) != 0) {
        clocks_pause(1);
    }
}

TEST(a_read_that_outlasts_the_leadership_is_not_answered_from_its_memory)
{
    struct world *w = world_open();
    struct coordinator *c = start(w, 2000, 10000);
    struct server_session lock;
    struct pending pending = {.c = c};
    server_session_open(&lock, &w->server);
    server_session_run(&lock, "BEGIN; SELECT FROM capstan.cluster_leader FOR UPDATE"); /* it cannot be renewed */
    struct request *request = request_new(on_answer, &pending);
    request->read = read_until_late;
    coordinator_send(c, request);
    CHECK(await(&pending));
    CHECK_ERR(pending.err, ERR_PRECONDITION);
    server_session_run(&lock, "COMMIT");
    server_session_close(&lock);
    coordinator_stop(c);
    world_close(w);
}
