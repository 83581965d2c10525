/* A coordinator without a network: commands in, durable answers out, on every engine. */
#include <stdio.h>
#include <string.h>

#include "integration/coordinator/client.h"
#include "integration/coordinator/clocks.h"
#include "integration/store/subject.h"

static struct coordinator *start(struct subject *s, const char *node_id, int64_t ttl_ms)
{
    struct coordinator_options options = {.store_url = s->url,
                                          .node_id = node_id,
                                          .address = "127.0.0.1:7400",
                                          .config = core_config_default(),
                                          .leader_ttl_ms = ttl_ms};
    struct coordinator *c = NULL;
    CHECK_ERR(coordinator_start(&options, &c, &s->e), ERR_OK);
    return c;
}

static struct coordinator *start_leading(struct subject *s)
{
    struct store *store = subject_open(s);
    CHECK_ERR(store_migrate(store, STORE_NEWEST, &s->e), ERR_OK);
    struct coordinator *c = start(s, "n1", 10000);
    CHECK(client_await_leader(c, 10000));
    return c;
}

CONTRACT(what_was_acknowledged_is_there_after_a_restart)
{
    struct coordinator *c = start_leading(s);
    CHECK_ERR(client_register(c, "w1", "i1").err, ERR_OK);
    CHECK_ERR(client_submit(c, "a", 2).err, ERR_OK);
    struct client_answer got = client_poll(c, "w1", "i1", 1);
    CHECK_UINT(got.n_tasks, 1);
    CHECK_INT(client_succeed(c, "w1", "i1", &got.tasks[0]).refusal, REFUSE_NONE);
    coordinator_stop(c);

    c = start(s, "n2", 10000);
    CHECK(client_await_leader(c, 10000));
    CHECK_UINT(coordinator_epoch(c), 2);
    CHECK_INT(client_status(c, "a").state, JOB_RUNNING);
    CHECK_INT(client_succeed(c, "w1", "i1", &got.tasks[0]).refusal, REFUSE_NONE); /* the answer may have been lost */
    struct client_answer next = client_poll(c, "w1", "i1", 8);
    CHECK_UINT(next.n_tasks, 1);
    CHECK_UINT(next.tasks[0].task, 1);
    CHECK_INT(client_succeed(c, "w1", "i1", &next.tasks[0]).refusal, REFUSE_NONE);
    CHECK_INT(client_status(c, "a").state, JOB_SUCCEEDED);
    coordinator_stop(c);
}

CONTRACT(a_job_that_ended_before_a_restart_is_known_when_somebody_asks)
{
    struct coordinator *c = start_leading(s);
    CHECK_ERR(client_submit(c, "old", 1).err, ERR_OK);
    CHECK_INT(client_cancel(c, "old").state, JOB_CANCELED);
    coordinator_stop(c);

    c = start(s, "n1", 10000);
    CHECK(client_await_leader(c, 10000));
    CHECK_ERR(client_status(c, "old").err, ERR_NOT_FOUND); /* not in memory */
    struct client_answer again = client_submit(c, "old", 1);
    CHECK(again.existed);
    CHECK_INT(again.state, JOB_CANCELED);
    CHECK_INT(client_cancel(c, "old").state, JOB_CANCELED);
    coordinator_stop(c);
}

CONTRACT(a_second_coordinator_stands_by_and_takes_over_when_the_first_stops)
{
    struct coordinator *first = start_leading(s);
    CHECK_ERR(client_submit(first, "a", 1).err, ERR_OK);
    struct coordinator *second = start(s, "n2", 1000); /* looks every third of that */
    CHECK(!client_await_leader(second, 200));
    CHECK_ERR(client_submit(second, "b", 1).err, ERR_PRECONDITION);
    coordinator_stop(first); /* hands it back, so nobody waits for its time to run out */
    CHECK(client_await_leader(second, 8000));
    CHECK_INT(client_status(second, "a").state, JOB_QUEUED);
    coordinator_stop(second);
}

/* Somebody else takes the leader's row for a while, however that came about. */
static void depose(struct subject *s)
{
    if (s->kind == ENGINE_POSTGRES) {
        subject_sql(s, "UPDATE capstan.cluster_leader SET epoch = epoch + 1, token = decode(repeat('01', 16), 'hex'), "
                       "expires_at = clock_timestamp() + interval '3 s'");
    } else {
        subject_sql(s, "UPDATE cluster_leader SET epoch = epoch + 1, token = x'01010101010101010101010101010101'");
    }
}

CONTRACT_OF_FILES(a_deposed_leader_answers_nothing_and_stands_for_election_again)
{
    struct coordinator *c = start_leading(s);
    CHECK_ERR(client_submit(c, "a", 1).err, ERR_OK);
    depose(s);
    CHECK_ERR(client_submit(c, "b", 1).err, ERR_PRECONDITION);
    CHECK(client_await_leader(c, 20000)); /* the usurper's time runs out */
    CHECK_INT(client_status(c, "a").state, JOB_QUEUED);
    CHECK_ERR(client_status(c, "b").err, ERR_NOT_FOUND);
    coordinator_stop(c);
}

TEST(an_unreachable_store_means_that_nobody_leads)
{
    struct coordinator_options options = {.store_url = "postgres://nobody@127.0.0.1:1/none",
                                          .node_id = "n1",
                                          .address = "127.0.0.1:7400",
                                          .config = core_config_default()};
    struct coordinator *c = NULL;
    CHECK_ERR(coordinator_start(&options, &c, NULL), ERR_OK);
    CHECK(!client_await_leader(c, 300));
    CHECK_ERR(client_submit(c, "a", 1).err, ERR_PRECONDITION);
    for (int64_t until_ms = clocks_mono_ms() + 20000; coordinator_stats(c).store_errors == 0; clocks_pause(5)) {
        CHECK(clocks_mono_ms() < until_ms);
    }
    coordinator_stop(c);
}
