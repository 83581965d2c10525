/*
 * net.c - the pool of messages, and what becomes of one that is sent.
 */
#include "sim/net.h"

#include "base/check.h"
#include "sim/sim.h"

void net_reset(struct net *net)
{
    net->n_free_msgs = 0;
    for (uint32_t i = MAX_MSGS - 1; i > 0; i--) {
        net->free_msgs[net->n_free_msgs++] = i;
    }
    net->n_free_handouts = 0;
    for (uint32_t i = MAX_HANDOUTS - 1; i > 0; i--) {
        net->free_handouts[net->n_free_handouts++] = i;
    }
    net->cut_to_leader = 0;
    net->cut_from_leader = 0;
    net->storm_drop = 0;
    net->storm_slow_ms = 0;
}

uint32_t net_new(struct sim *sim, enum command_kind kind, uint32_t proc)
{
    struct net *net = &sim->net;
    ASSERT(net->n_free_msgs > 0);
    uint32_t m = net->free_msgs[--net->n_free_msgs];
    struct msg *msg = &net->msgs[m];
    msg->kind = kind;
    msg->is_answer = false;
    msg->at_leader = false;
    msg->proc = proc;
    msg->job = NO_INDEX;
    msg->worker = proc == NO_INDEX ? NO_INDEX : sim->workers.procs[proc].worker;
    msg->rpc = 0;
    msg->step_row = 0;
    return m;
}

void net_free(struct sim *sim, uint32_t m)
{
    struct net *net = &sim->net;
    struct msg *msg = net_msg(sim, m);
    if (msg->is_answer && msg->u.answer.reply == REPLY_TASKS) {
        for (uint32_t h = msg->u.answer.handouts; h != 0; h = net->handouts[h].next) {
            net->free_handouts[net->n_free_handouts++] = h;
        }
    }
    net->free_msgs[net->n_free_msgs++] = m;
}

uint32_t net_new_handout(struct sim *sim)
{
    ASSERT(sim->net.n_free_handouts > 0);
    return sim->net.free_handouts[--sim->net.n_free_handouts];
}

static uint32_t copy_msg(struct sim *sim, uint32_t m)
{
    const struct msg *from = net_msg(sim, m);
    uint32_t copy = net_new(sim, from->kind, from->proc);
    struct msg *to = net_msg(sim, copy);
    *to = *from;
    if (to->is_answer && to->u.answer.reply == REPLY_TASKS) {
        uint32_t *tail = &to->u.answer.handouts;
        for (uint32_t h = from->u.answer.handouts; h != 0; h = sim->net.handouts[h].next) {
            uint32_t twin = net_new_handout(sim);
            sim->net.handouts[twin] = sim->net.handouts[h];
            *tail = twin;
            tail = &sim->net.handouts[twin].next;
        }
        *tail = 0;
    }
    return copy;
}

static bool is_cut(const struct sim *sim, const struct msg *msg)
{
    if (msg->proc == NO_INDEX) {
        return false;
    }
    uint32_t cut = msg->is_answer ? sim->net.cut_from_leader : sim->net.cut_to_leader;
    return (cut >> msg->worker & 1) != 0;
}

static int64_t travel_ms(struct sim *sim)
{
    uint64_t bits = prng_u64(&sim->prng);
    int64_t ms = 1 + (int64_t)(bits & 3);
    if (sim->is_healed) {
        return ms;
    }
    if ((bits >> 8) % 1000 < sim->world.mood.slow) {
        ms += prng_range(&sim->prng, 5, 400);
        sim->stats.delayed++;
    }
    if (sim->net.storm_slow_ms > 0) {
        ms += prng_range(&sim->prng, 0, (int64_t)sim->net.storm_slow_ms);
    }
    return ms;
}

void net_send(struct sim *sim, uint32_t m)
{
    const struct mood *mood = &sim->world.mood;
    const struct msg *msg = net_msg(sim, m);
    if (!sim->is_healed) {
        uint32_t draw = (uint32_t)prng_below(&sim->prng, 1000);
        if (is_cut(sim, msg) || draw < mood->drop + sim->net.storm_drop) {
            sim->stats.dropped++;
            TRACE(sim, "net drops a %s of kind %u", msg->is_answer ? "answer" : "request", (unsigned)msg->kind);
            net_free(sim, m);
            return;
        }
        if (draw >= 1000 - mood->duplicate) {
            sim->stats.duplicated++;
            uint32_t copy = copy_msg(sim, m);
            events_add(&sim->events, sim->now_ms + travel_ms(sim), EVENT_DELIVER, copy, 0);
        }
    }
    events_add(&sim->events, sim->now_ms + travel_ms(sim), EVENT_DELIVER, m, 0);
}
