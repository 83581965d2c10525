/*
 * check_identity.c - one job per id and per idempotency key, and none that is not valid.
 *
 * A known id with the same content is answered with that job, with another content it is refused; two jobs never share
 * an idempotency key, and whoever brings a known one is told the job that had it first.
 */
#include <string.h>

#include "sim/check.h"
#include "sim/sim.h"

struct identity {
    uint32_t key_job[MAX_KEYS]; /* as committed; NO_INDEX: none */
    bool is_known[MAX_JOBS];
};

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    struct identity *identity = state;
    memset(identity->key_job, 0xff, sizeof(identity->key_job));
    memset(identity->is_known, 0, sizeof(identity->is_known));
}

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    struct identity *identity = state;
    const struct row_job *job = (const struct row_job *)note->row;
    if (!job->is_new) {
        return;
    }
    if (identity->is_known[note->job]) {
        sim_fail(sim, PROPERTY_identity, "%s is made a second time", job->job_id);
    }
    identity->is_known[note->job] = true;
    if (sim->world.jobs[note->job].is_invalid) {
        sim_fail(sim, PROPERTY_identity, "%s is not valid and is stored", job->job_id);
    }
    if (memcmp(&job->content, &sim->world.jobs[note->job].submit.content, sizeof(job->content)) != 0) {
        sim_fail(sim, PROPERTY_identity, "%s is stored with another content", job->job_id);
    }
    if (job->idempotency_key == NULL) {
        return;
    }
    uint32_t *owner = &identity->key_job[name_index(job->idempotency_key)];
    if (*owner != NO_INDEX) {
        sim_fail(sim, PROPERTY_identity, "%s and %s share the idempotency key %s", job_name(*owner), job->job_id,
                 job->idempotency_key);
    }
    *owner = note->job;
}

static void leave(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    const struct identity *identity = state;
    uint32_t key = sim->world.jobs[request->job].key;
    if (request->u.submit.other_content && reply->kind == REPLY_SUBMIT &&
        name_index(reply->u.job.job_id) == request->job) {
        sim_fail(sim, PROPERTY_identity, "%s was submitted again with another content and accepted",
                 job_name(request->job));
    }
    if (reply->kind != REPLY_SUBMIT) {
        return;
    }
    uint32_t told = name_index(reply->u.job.job_id);
    bool is_by_key = key != NO_INDEX && identity->key_job[key] == told;
    if (told != request->job && !is_by_key) {
        sim_fail(sim, PROPERTY_identity, "a submit of %s is answered with %s", job_name(request->job), job_name(told));
    }
}

const struct checker check_identity = {
    .property = PROPERTY_identity,
    .state_size = sizeof(struct identity),
    .row_kinds = BIT(ROW_JOB),
    .leave_kinds = BIT(CMD_SUBMIT),
    .reset = reset,
    .row = row,
    .leave = leave,
};
