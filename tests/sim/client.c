/*
 * client.c - submits, cancels, retries, and the operator's orders.
 */
#include "sim/client.h"

#include "base/check.h"
#include "sim/sim.h"

#define RESEND_MS 400

void clients_reset(struct sim *sim)
{
    for (uint32_t i = 0; i < MAX_JOBS; i++) {
        sim->clients.clients[i] = (struct client){0};
    }
    for (uint32_t i = 0; i < sim->world.n_client_jobs; i++) {
        const struct job_def *job = &sim->world.jobs[i];
        const int64_t at_ms[] = {job->submit_at_ms + 1, job->cancel_at_ms, job->retry_at_ms[0], job->retry_at_ms[1],
                                 job->resubmit_at_ms};
        for (uint32_t action = 0; action < ARRAY_LEN(at_ms); action++) {
            if (at_ms[action] != 0) {
                events_add(&sim->events, at_ms[action], EVENT_CLIENT, i, action);
            }
        }
    }
}

static void submit(struct sim *sim, uint32_t job, bool other_content)
{
    uint32_t m = net_new(sim, CMD_SUBMIT, NO_INDEX);
    struct msg *msg = net_msg(sim, m);
    msg->job = job;
    msg->u.submit.other_content = other_content;
    msg->u.submit.has_parent = false;
    net_send(sim, m);
}

static void retry(struct sim *sim, uint32_t job)
{
    const struct job_def *def = &sim->world.jobs[job];
    uint32_t m = net_new(sim, CMD_RETRY, NO_INDEX);
    struct msg *msg = net_msg(sim, m);
    msg->job = job;
    msg->u.retry.from_stage = NO_INDEX;
    if (def->retry_from_task) {
        msg->u.retry.from_stage = (uint32_t)prng_below(&sim->prng, def->submit.n_stages + 1);
    }
    msg->u.retry.results_lost = def->retry_results_lost;
    net_send(sim, m);
}

static void cancel(struct sim *sim, uint32_t job)
{
    uint32_t m = net_new(sim, CMD_CANCEL, NO_INDEX);
    net_msg(sim, m)->job = job;
    net_send(sim, m);
}

void client_act(struct sim *sim, uint32_t job, uint32_t action)
{
    struct client *client = &sim->clients.clients[job];
    switch ((enum client_action)action) {
    case ACT_SUBMIT:
        if (!client->is_answered) {
            client->is_submitted = true;
            TRACE(sim, "client submits %s", job_name(job));
            submit(sim, job, false);
            events_add(&sim->events, sim->now_ms + RESEND_MS, EVENT_CLIENT, job, ACT_SUBMIT);
        }
        break;
    case ACT_CANCEL:
        TRACE(sim, "client cancels %s", job_name(job));
        cancel(sim, job);
        break;
    case ACT_RETRY:
    case ACT_RETRY_AGAIN:
        TRACE(sim, "client retries %s", job_name(job));
        retry(sim, job);
        break;
    case ACT_RESUBMIT:
        if (client->is_answered) { /* before that it would be the first submit, with whatever content */
            TRACE(sim, "client submits %s again", job_name(job));
            submit(sim, job, sim->world.jobs[job].resubmit_other);
        }
        break;
    }
}

bool client_meddle(struct sim *sim)
{
    uint32_t job = (uint32_t)prng_below(&sim->prng, sim->world.n_jobs);
    if (!sim->store.jobs[job].present) {
        return false;
    }
    if (prng_permille(&sim->prng, 500)) {
        cancel(sim, job);
    } else {
        retry(sim, job);
    }
    return true;
}

void client_set_node(struct sim *sim, uint32_t worker, int draining, bool clear_blacklist)
{
    uint32_t m = net_new(sim, CMD_SET_NODE, NO_INDEX);
    struct msg *msg = net_msg(sim, m);
    msg->worker = worker;
    msg->u.set_node.set_draining = draining >= 0;
    msg->u.set_node.draining = draining > 0;
    msg->u.set_node.clear_blacklist = clear_blacklist;
    net_send(sim, m);
}

void client_receive(struct sim *sim, uint32_t m)
{
    const struct msg *msg = net_msg(sim, m);
    if (msg->kind == CMD_SUBMIT) {
        TRACE(sim, "client of %s is answered: %s", job_name(msg->job),
              msg->u.answer.reply == REPLY_SUBMIT ? "accepted" : err_name(msg->u.answer.code));
        sim->clients.clients[msg->job].is_answered = true;
    }
    net_free(sim, m);
}

bool clients_are_done(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->world.n_client_jobs; i++) {
        if (!sim->clients.clients[i].is_answered) {
            return false;
        }
    }
    return true;
}
