/*
 * leader_reply.c - the core's replies as messages.
 */
#include <string.h>

#include "base/check.h"
#include "sim/leader_internal.h"
#include "sim/sim.h"

static struct ref ref_of(const struct attempt_ref *from)
{
    return (struct ref){
        .job = name_index(from->task.job_id),
        .stage = from->task.stage,
        .task = from->task.task,
        .attempt = from->attempt,
        .token = from->token,
    };
}

static uint32_t copy_stops(struct msg *to, const struct attempt_ref *stops, uint32_t n)
{
    n = n < MAX_REFS ? n : MAX_REFS; /* the next heartbeat repeats the others */
    for (uint32_t i = 0; i < n; i++) {
        to->u.answer.refs[i] = ref_of(&stops[i]);
    }
    return n;
}

static uint32_t copy_assignment(struct sim *sim, const struct assignment *from)
{
    uint32_t h = net_new_handout(sim);
    struct handout *to = &sim->net.handouts[h];
    to->ref = ref_of(&from->ref);
    to->def = from->timeout_ms - STAGE_DEF_BASE;
    ASSERT(from->n_sources <= MAX_SOURCES);
    to->n_sources = from->n_sources;
    for (uint32_t i = 0; i < from->n_sources; i++) {
        to->sources[i] = (struct source_told){
            .stage = from->sources[i].ref.stage,
            .task = from->sources[i].ref.task,
            .attempt = from->sources[i].attempt,
            .proc = name_index(from->sources[i].address),
        };
    }
    to->next = 0;
    return h;
}

static void copy_tasks(struct sim *sim, struct msg *to, const struct reply *reply)
{
    uint32_t *tail = &to->u.answer.handouts;
    for (const struct assignment *a = reply->u.tasks.first; a != NULL; a = a->next) {
        sim->stats.attempts++;
        *tail = copy_assignment(sim, a);
        tail = &sim->net.handouts[*tail].next;
    }
    *tail = 0;
    to->u.answer.n_refs = copy_stops(to, reply->u.tasks.stop, reply->u.tasks.n_stop);
}

static void copy_heartbeat(struct msg *to, const struct reply *reply)
{
    to->u.answer.accepted = reply->u.heartbeat.accepted;
    to->u.answer.refusal = reply->u.heartbeat.refusal;
    to->u.answer.drain = reply->u.heartbeat.drain;
    to->u.answer.n_refs = copy_stops(to, reply->u.heartbeat.stop, reply->u.heartbeat.n_stop);
    memset(to->u.answer.ended, 0, sizeof(to->u.answer.ended));
    for (uint32_t i = 0; i < reply->u.heartbeat.n_ended_jobs; i++) {
        uint32_t job = name_index(reply->u.heartbeat.ended_jobs[i]);
        to->u.answer.ended[job / 64] |= 1ULL << (job % 64);
    }
}

static void copy_report(struct sim *sim, struct msg *to, const struct msg *request, const struct reply *reply)
{
    ASSERT(reply->u.report.n_outcomes <= MAX_REPORTS);
    to->u.answer.n_refs = reply->u.report.n_outcomes;
    for (uint32_t i = 0; i < reply->u.report.n_outcomes; i++) {
        to->u.answer.refs[i] = request->u.report.reports[i].ref;
        to->u.answer.outcomes[i] = reply->u.report.outcomes[i];
        sim->stats.refused += reply->u.report.outcomes[i] != REFUSE_NONE;
    }
}

/* The payload of an answer; everything in it that is read later is set here. */
static void fill_answer(struct sim *sim, struct msg *to, const struct msg *request, const struct reply *reply)
{
    to->is_answer = true;
    to->job = request->job;
    to->rpc = request->rpc;
    to->worker = request->worker;
    to->u.answer.reply = reply->kind;
    to->u.answer.code = ERR_OK;
    to->u.answer.refusal = REFUSE_NONE;
    to->u.answer.accepted = true;
    to->u.answer.n_refs = 0;
    to->u.answer.handouts = 0;
    switch (reply->kind) {
    case REPLY_ERROR:
        to->u.answer.code = reply->code;
        break;
    case REPLY_SUBMIT:
    case REPLY_JOB:
        to->u.answer.job = name_index(reply->u.job.job_id);
        to->u.answer.job_state = reply->u.job.state;
        break;
    case REPLY_HEARTBEAT:
        copy_heartbeat(to, reply);
        break;
    case REPLY_TASKS:
        copy_tasks(sim, to, reply);
        break;
    case REPLY_REPORT:
        copy_report(sim, to, request, reply);
        break;
    case REPLY_ACCEPT:
        to->u.answer.refusal = reply->u.accept;
        to->u.answer.refs[0] = request->u.output.ref;
        to->u.answer.n_refs = 1;
        break;
    case REPLY_REGISTER:
    case REPLY_DONE:
        break;
    }
}

void leader__send_reply(struct sim *sim, const struct reply *reply)
{
    uint32_t m = (uint32_t)reply->to;
    const struct msg *request = net_msg(sim, m);
    ASSERT(request->at_leader);
    leader__unlink(sim, m);
    if (request->kind == CMD_SUBMIT && request->u.submit.has_parent && reply->kind == REPLY_SUBMIT &&
        reply->u.job.existed && job_state_is_terminal(reply->u.job.state)) {
        leader__read_child(sim, request->u.submit.parent, reply->u.job.state); /* it ended under another leader */
    }
    if (request->proc == NO_INDEX && request->job == NO_INDEX && request->kind != CMD_SET_NODE) {
        net_free(sim, m); /* the leader itself asked */
        return;
    }
    uint32_t a = net_new(sim, request->kind, request->proc);
    fill_answer(sim, net_msg(sim, a), request, reply);
    net_free(sim, m);
    net_send(sim, a);
}
