/* Moments at which a coordinator could be left with half of something, or waiting for what never comes. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "integration/coordinator/clocks.h"
#include "integration/coordinator/world.h"
#include "integration/store/subject.h"

static struct coordinator *start(struct subject *s)
{
    struct coordinator_options options = {.store_url = s->url,
                                          .node_id = "n1",
                                          .address = "127.0.0.1:7400",
                                          .config = core_config_default(),
                                          .leader_ttl_ms = 10000};
    struct coordinator *c = NULL;
    CHECK_ERR(coordinator_start(&options, &c, &s->e), ERR_OK);
    CHECK(client_await_leader(c, 10000));
    return c;
}

struct retrying {
    atomic_bool is_done;
    enum err err;
};

static void on_retried(struct request *request, const struct reply *reply, enum err err)
{
    struct retrying *retrying = request->context;
    retrying->err = reply != NULL && reply->kind == REPLY_ERROR ? reply->code : err;
    atomic_store(&retrying->is_done, true);
}

static enum err retry(struct coordinator *c, const char *job_id)
{
    struct retrying retrying = {.err = ERR_OK};
    struct request *request = request_new(on_retried, &retrying);
    request->command = (struct command){.kind = CMD_RETRY, .u.retry = {.job_id = job_id}};
    coordinator_send(c, request);
    while (!atomic_load(&retrying.is_done)) {
        clocks_pause(1);
    }
    return retrying.err;
}

/* An ended job is read from several tables. If that breaks off in between, the core must not keep what it has got. */
CONTRACT_OF_FILES(a_job_of_which_only_a_part_could_be_read_is_not_taken_for_the_whole)
{
    const char *schema = s->kind == ENGINE_POSTGRES ? "capstan." : "";
    struct store *store = subject_open(s);
    CHECK_ERR(store_migrate(store, STORE_NEWEST, &s->e), ERR_OK);
    struct coordinator *c = start(s);
    CHECK_ERR(client_register(c, "w1", "i1").err, ERR_OK);
    CHECK_ERR(client_submit(c, "old", 3).err, ERR_OK);
    struct client_answer got = client_poll(c, "w1", "i1", 1);
    CHECK_UINT(got.n_tasks, 1);
    CHECK_INT(client_succeed(c, "w1", "i1", &got.tasks[0]).refusal, REFUSE_NONE);
    CHECK_INT(client_cancel(c, "old").state, JOB_CANCELED);
    coordinator_stop(c);

    c = start(s);
    subject_sql(s, arena_format(&s->arena, "ALTER TABLE %stasks RENAME TO hidden", schema));
    CHECK_ERR(client_cancel(c, "old").err, ERR_UNAVAILABLE);
    subject_sql(s, arena_format(&s->arena, "ALTER TABLE %shidden RENAME TO tasks", schema));
    CHECK(client_await_leader(c, 10000));
    CHECK_ERR(client_register(c, "w1", "i1").err, ERR_OK);
    CHECK_ERR(retry(c, "old"), ERR_OK);
    CHECK_UINT(client_poll(c, "w1", "i1", 8).n_tasks, 2); /* what is done is not done again */
    coordinator_stop(c);
}

#define TTL_MS 400

struct stopping {
    struct coordinator *c;
    atomic_bool is_done;
};

static void *stop_and_say(void *context)
{
    struct stopping *stopping = context;
    coordinator_stop(stopping->c);
    atomic_store(&stopping->is_done, true);
    return NULL;
}

/* The writer hangs in a renewal, so the next batch never gets into its hands. */
TEST(a_coordinator_whose_last_batch_was_never_picked_up_can_be_stopped)
{
    static struct stopping stopping;
    struct world *w = world_open();
    struct server_session lock;
    pthread_t thread;
    struct coordinator_options options = {.store_url = world_url(w, "node-a", false),
                                          .node_id = "node-a",
                                          .address = "127.0.0.1:7400",
                                          .config = core_config_default(),
                                          .leader_ttl_ms = TTL_MS};
    CHECK_ERR(coordinator_start(&options, &stopping.c, NULL), ERR_OK);
    CHECK(client_await_leader(stopping.c, 20000));
    server_session_open(&lock, &w->server);
    server_session_run(&lock, "BEGIN; SELECT FROM capstan.cluster_leader FOR UPDATE");
    CHECK(world_await(w, 20000,
                      "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'node-a' "
                      "AND wait_event_type = 'Lock'"));
    CHECK_ERR(client_submit(stopping.c, "late", 1).err, ERR_PRECONDITION); /* when the lease has run out */
    CHECK_INT(pthread_create(&thread, NULL, stop_and_say, &stopping), 0);
    for (int64_t until_ms = clocks_mono_ms() + 20000; !atomic_load(&stopping.is_done) && clocks_mono_ms() < until_ms;) {
        clocks_pause(10);
    }
    CHECK(atomic_load(&stopping.is_done));
    pthread_join(thread, NULL);
    server_session_run(&lock, "COMMIT");
    server_session_close(&lock);
    world_close(w);
}

/* Who shared a batch with a refused value is tried again in the next term; but that may be somebody else's. */
TEST(who_waits_to_be_tried_again_is_told_if_another_leads)
{
    struct world *w = world_open();
    struct server_session lock;
    struct node *node = world_start(w, (struct node_options){.node_id = "node-a", .leader_ttl_ms = 5000});
    CHECK(node_await_leading(node, true, 20000));
    CHECK_ERR(node_submit(node, "before", 1).err, ERR_OK);
    world_sql(w, "ALTER TABLE capstan.jobs ADD CONSTRAINT no_poison CHECK (job_id NOT LIKE 'poison%%');"
                 "CREATE FUNCTION public.usurp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                 "NEW.token := decode(repeat('01', 16), 'hex'); NEW.epoch := NEW.epoch + 1; NEW.node_id := 'usurper'; "
                 "NEW.address := '127.0.0.1:9'; NEW.expires_at := clock_timestamp() + interval '1 hour'; RETURN NEW; "
                 "END $$; CREATE TRIGGER usurp BEFORE UPDATE ON capstan.cluster_leader FOR EACH ROW "
                 "WHEN (NEW.token = ''::bytea) EXECUTE FUNCTION public.usurp()");
    server_session_open(&lock, &w->server);
    server_session_run(&lock, "BEGIN; LOCK TABLE capstan.jobs IN SHARE MODE");
    node_send(node, "first", 1);
    CHECK(world_await(w, 20000,
                      "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'node-a' "
                      "AND wait_event_type = 'Lock'"));
    node_send(node, "good", 1);
    node_send(node, "poison", 1);
    CHECK(node_await_knowing(node, "good", 20000)); /* the core has taken both, so they are in one batch */
    CHECK(node_await_knowing(node, "poison", 20000));
    CHECK_UINT(node_look(node).stats.stepped_down, 0);
    server_session_run(&lock, "COMMIT");
    server_session_close(&lock);
    CHECK_ERR(ledger_answer(w->ledger, "good", 20000), ERR_PRECONDITION);
    CHECK_ERR(ledger_answer(w->ledger, "poison", 20000), ERR_PRECONDITION);
    CHECK_ERR(ledger_answer(w->ledger, "first", 20000), ERR_OK);
    struct node_view view = node_look(node);
    CHECK_UINT(view.epoch, 0);
    CHECK_UINT(view.stats.stepped_down, 1); /* with that batch, and it has not led since */
    CHECK_UINT(view.stats.elected, 1);
    CHECK_STR(world_sql(w, "SELECT node_id, epoch FROM capstan.cluster_leader"), "usurper|2");
    CHECK_STR(world_sql(w, "SELECT string_agg(job_id, ' ' ORDER BY job_id) FROM capstan.jobs"), "before first");
    node_kill(node);
    world_check(w);
    world_close(w);
}
