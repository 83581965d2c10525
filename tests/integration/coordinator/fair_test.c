/* One client sends more than fits: what others send does not wait behind all of it. A real file, no network. */
#include <pthread.h>
#include <stdio.h>

#include "integration/coordinator/client.h"
#include "integration/store/subject.h"

#define FLOOD 8000
#define FLIGHT_REQUESTS 1024 /* of clients, as FLIGHT_WEIGHT_MAX has it in loop.c */
#define FLIGHTS_MAX 3        /* one on its way, one that is full, the one of the request itself */

/* Jobs of one wide stage each. Four tasks count as one request, so few of these jobs fit into a flight. */
#define WIDE_JOBS 60
#define WIDE_TASKS 400
#define FLIGHT_WIDE_JOBS 11

struct crowd {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t n_answered; /* of the flood */
    uint32_t n_failed;
    bool is_served;     /* the other client */
    bool is_held;       /* what has become durable is not told before this is over */
    uint32_t n_largest; /* commands in one batch */
    uint32_t at_answer; /* how many of the flood were answered by then */
};

static void note(struct crowd *crowd, const struct reply *reply, enum err err)
{
    crowd->n_failed += err != ERR_OK || reply == NULL || reply->kind != REPLY_SUBMIT ? 1 : 0;
    pthread_cond_broadcast(&crowd->changed);
}

static void answer_flood(struct request *request, const struct reply *reply, enum err err)
{
    struct crowd *crowd = request->context;
    pthread_mutex_lock(&crowd->lock);
    crowd->n_answered++;
    note(crowd, reply, err);
    pthread_mutex_unlock(&crowd->lock);
}

static void answer_other(struct request *request, const struct reply *reply, enum err err)
{
    struct crowd *crowd = request->context;
    pthread_mutex_lock(&crowd->lock);
    crowd->is_served = true;
    crowd->at_answer = crowd->n_answered;
    note(crowd, reply, err);
    pthread_mutex_unlock(&crowd->lock);
}

static void submit(struct coordinator *c, struct crowd *crowd, answer_fn *answer, struct sender sender, const char *id,
                   uint32_t n_tasks, bool is_looked_for)
{
    static const struct requirement need = {.executor = "noop"};
    struct request *request = request_new(answer, crowd);
    struct stage_spec *stage = arena_zalloc(&request->arena, sizeof *stage);
    *stage = (struct stage_spec){.need = &need, .n_tasks = n_tasks, .backoff_ms = -1};
    request->sender = sender;
    if (!is_looked_for) {
        request->unknown = coordinator_sight(c); /* nobody need look for the id */
    }
    request->command = (struct command){.kind = CMD_SUBMIT,
                                        .u.submit = {.job_id = arena_strdup(&request->arena, id),
                                                     .kind = JOB_KIND_TREE,
                                                     .priority = 2,
                                                     .stages = stage,
                                                     .n_stages = 1}};
    coordinator_send(c, request);
}

/* Keeps the loop from taking anything while requests pile up. */
static void hold(void *context, const struct row *rows)
{
    struct crowd *crowd = context;
    UNUSED(rows);
    pthread_mutex_lock(&crowd->lock);
    while (crowd->is_held) {
        pthread_cond_wait(&crowd->changed, &crowd->lock);
    }
    pthread_mutex_unlock(&crowd->lock);
}

/* What is sent after this piles up until `is_held` is false again, but for a first batch, whose end is held. */
static void hold_from_now(struct coordinator *c, struct crowd *crowd)
{
    submit(c, crowd, answer_flood, (struct sender){1, 1}, "first", 1, true); /* answered: the term is known */
    pthread_mutex_lock(&crowd->lock);
    while (crowd->n_answered < 1) {
        pthread_cond_wait(&crowd->changed, &crowd->lock);
    }
    crowd->n_answered = 0;
    crowd->n_largest = 0;
    crowd->is_held = true;
    pthread_mutex_unlock(&crowd->lock);
}

CONTRACT_OF_FILES(a_client_that_floods_makes_another_wait_for_a_few_batches_and_everybody_is_answered)
{
    struct store *store = subject_open(s);
    struct crowd crowd = {.is_held = false};
    struct coordinator *c = NULL;
    CHECK_ERR(store_migrate(store, STORE_NEWEST, &s->e), ERR_OK);
    struct coordinator_options options = {.store_url = s->url,
                                          .node_id = "n1",
                                          .address = "127.0.0.1:7400",
                                          .config = core_config_default(),
                                          .leader_ttl_ms = 60000,
                                          .on_durable = hold,
                                          .context = &crowd};
    pthread_mutex_init(&crowd.lock, NULL);
    pthread_cond_init(&crowd.changed, NULL);
    CHECK_ERR(coordinator_start(&options, &c, &s->e), ERR_OK);
    CHECK(client_await_leader(c, 10000));
    hold_from_now(c, &crowd);
    for (uint32_t i = 0; i < FLOOD; i++) {
        char id[32];
        snprintf(id, sizeof id, "flood-%u", i);
        submit(c, &crowd, answer_flood, (struct sender){1, 10 + i % 20}, id, 1, false); /* over twenty connections */
    }
    submit(c, &crowd, answer_other, (struct sender){2, 2}, "other", 1, false);
    pthread_mutex_lock(&crowd.lock);
    crowd.is_held = false;
    pthread_cond_broadcast(&crowd.changed);
    while (crowd.n_answered < FLOOD || !crowd.is_served) {
        pthread_cond_wait(&crowd.changed, &crowd.lock);
    }
    pthread_mutex_unlock(&crowd.lock);
    CHECK_UINT(crowd.n_failed, 0);
    CHECK(FLIGHTS_MAX * FLIGHT_REQUESTS < FLOOD); /* else this shows nothing */
    CHECK(crowd.at_answer <= FLIGHTS_MAX * FLIGHT_REQUESTS);
    coordinator_stop(c);
    pthread_cond_destroy(&crowd.changed);
    pthread_mutex_destroy(&crowd.lock);
}

static void note_batch(void *context, int64_t us, uint32_t n_commands)
{
    struct crowd *crowd = context;
    UNUSED(us);
    pthread_mutex_lock(&crowd->lock);
    crowd->n_largest = n_commands > crowd->n_largest ? n_commands : crowd->n_largest;
    pthread_mutex_unlock(&crowd->lock);
}

/* The largest batch of many jobs that came while nothing could be taken. */
static uint32_t largest_batch(struct subject *s, bool is_looked_for)
{
    struct store *store = subject_open(s);
    struct crowd crowd = {.is_held = false};
    struct coordinator *c = NULL;
    CHECK_ERR(store_migrate(store, STORE_NEWEST, &s->e), ERR_OK);
    struct coordinator_options options = {.store_url = s->url,
                                          .node_id = "n1",
                                          .address = "127.0.0.1:7400",
                                          .config = core_config_default(),
                                          .leader_ttl_ms = 60000,
                                          .on_durable = hold,
                                          .on_commit = note_batch,
                                          .context = &crowd};
    pthread_mutex_init(&crowd.lock, NULL);
    pthread_cond_init(&crowd.changed, NULL);
    CHECK_ERR(coordinator_start(&options, &c, &s->e), ERR_OK);
    CHECK(client_await_leader(c, 10000));
    hold_from_now(c, &crowd);
    for (uint32_t i = 0; i < WIDE_JOBS; i++) {
        char id[32];
        snprintf(id, sizeof id, "wide-%u", i);
        submit(c, &crowd, answer_flood, (struct sender){1, 1}, id, WIDE_TASKS, is_looked_for);
    }
    pthread_mutex_lock(&crowd.lock);
    crowd.is_held = false;
    pthread_cond_broadcast(&crowd.changed);
    while (crowd.n_answered < WIDE_JOBS) {
        pthread_cond_wait(&crowd.changed, &crowd.lock);
    }
    pthread_mutex_unlock(&crowd.lock);
    CHECK_UINT(crowd.n_failed, 0);
    coordinator_stop(c);
    pthread_cond_destroy(&crowd.changed);
    pthread_mutex_destroy(&crowd.lock);
    return crowd.n_largest;
}

CONTRACT_OF_FILES(jobs_of_one_stage_with_many_tasks_fill_a_batch_as_those_of_many_stages_do)
{
    uint32_t n = largest_batch(s, false);
    CHECK(n > 1 && n <= FLIGHT_WIDE_JOBS);
}

CONTRACT_OF_FILES(jobs_that_somebody_has_to_look_for_fill_a_batch_as_well)
{
    uint32_t n = largest_batch(s, true);
    CHECK(n >= 1 && n <= FLIGHT_WIDE_JOBS);
}
