/* One batch on its way: what is in it besides the effects of the core. */
#include "base/mem.h"
#include "coordinator/coordinator_internal.h"

void flight_clear(struct flight *flight)
{
    effects_reset(&flight->fx);
    flight->n_payloads = 0;
    flight->n_inbox_done = 0;
    flight->n_data_sets = 0;
    flight->n_carried = 0;
    flight->weight = 0;
    flight->since_ms = 0;
    ASSERT(list_is_empty(&flight->reads));
}

bool flight_writes(const struct flight *flight)
{
    return flight->fx.rows != NULL || flight->n_payloads > 0 || flight->n_inbox_done > 0 || flight->n_data_sets > 0;
}

bool flight_is_empty(const struct flight *flight)
{
    return !flight_writes(flight) && flight->fx.replies == NULL && flight->fx.children == NULL &&
           flight->fx.child_ends == NULL && list_is_empty(&flight->reads);
}

/* Whether the core has taken what this payload belongs to. What it refused is not worth keeping. */
static bool is_taken(const struct reply *reply, uint32_t i)
{
    switch (reply->kind) {
    case REPLY_SUBMIT:
        return !reply->u.job.existed;
    case REPLY_REPORT:
        i %= reply->u.report.n_outcomes;
        return reply->u.report.outcomes[i] == REFUSE_NONE && !reply->u.report.repeated[i];
    case REPLY_ACCEPT:
        return reply->u.accept == REFUSE_NONE;
    case REPLY_ERROR:
    case REPLY_REGISTER:
    case REPLY_HEARTBEAT:
    case REPLY_TASKS:
    case REPLY_JOB:
    case REPLY_DONE:
        return false;
    }
    return false;
}

void flight_carry_inbox_done(struct flight *flight, uint64_t inbox_id)
{
    flight->inbox_done =
        mem_grow(flight->inbox_done, &flight->cap_inbox_done, flight->n_inbox_done + 1, sizeof *flight->inbox_done);
    flight->inbox_done[flight->n_inbox_done++] = inbox_id;
}

void flight_carry_data_set(struct flight *flight, const struct data_set *from)
{
    flight->data_sets =
        mem_grow(flight->data_sets, &flight->cap_data_sets, flight->n_data_sets + 1, sizeof *flight->data_sets);
    struct data_set *to = &flight->data_sets[flight->n_data_sets++];
    to->name = arena_strdup(&flight->fx.arena, from->name);
    to->source = arena_strdup(&flight->fx.arena, from->source);
    to->format = arena_strdup(&flight->fx.arena, from->format);
}

/* Data sets that accepted reports bring. */
static void carry_made(struct flight *flight, const struct request *request, const struct reply *reply)
{
    for (uint32_t i = 0; request->made != NULL && i < request->command.u.report.n_reports; i++) {
        if (request->made[i].name != NULL && is_taken(reply, i)) {
            flight_carry_data_set(flight, &request->made[i]);
        }
    }
}

static void carry_payloads(struct flight *flight, const struct request *request, const struct reply *reply)
{
    for (uint32_t i = 0; i < request->n_payloads; i++) {
        if (request->payloads[i].bytes == NULL || !is_taken(reply, i)) {
            continue;
        }
        flight->payloads =
            mem_grow(flight->payloads, &flight->cap_payloads, flight->n_payloads + 1, sizeof *flight->payloads);
        struct payload *to = &flight->payloads[flight->n_payloads++];
        *to = request->payloads[i]; /* the request may be gone before the commit, so the flight gets a copy */
        to->job_id = arena_strdup(&flight->fx.arena, to->job_id);
        to->bytes = arena_copy(&flight->fx.arena, to->bytes, to->n_bytes);
    }
    if (request->inbox_id != 0 && (reply->kind != REPLY_ERROR || reply->code == ERR_EXISTS)) {
        flight_carry_inbox_done(flight, request->inbox_id);
    }
}

void flight_carry(struct flight *flight, const struct request *request, const struct reply *reply)
{
    carry_payloads(flight, request, reply);
    carry_made(flight, request, reply);
}
