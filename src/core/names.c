/* The words for states, events and refusals, as people and programs read them. */
#include "base/check.h"
#include "core/effects.h"
#include "core/ids.h"
#include "core/rows.h"

static const char *const job_states[] = {"queued", "running", "succeeded", "failed", "canceled"};
static const char *const task_states[] = {"queued", "running", "succeeded", "failed", "canceled", "skipped"};
static const char *const outcomes[] = {"none", "pending", "completed", "failed", "lost"};

static const char *const event_types[] = {
#define EVENT_NAME(symbol, text) #text,
    EVENT_TABLE(EVENT_NAME)
#undef EVENT_NAME
};

static const char *const refusals[] = {
#define REFUSE_NAME(symbol, text) text,
    REFUSE_TABLE(REFUSE_NAME)
#undef REFUSE_NAME
};

const char *job_state_name(enum job_state state)
{
    ASSERT((unsigned)state < ARRAY_LEN(job_states));
    return job_states[state];
}

const char *task_state_name(enum task_state state)
{
    ASSERT((unsigned)state < ARRAY_LEN(task_states));
    return task_states[state];
}

const char *attempt_outcome_name(enum attempt_outcome outcome)
{
    ASSERT((unsigned)outcome < ARRAY_LEN(outcomes));
    return outcomes[outcome];
}

const char *event_type_name(enum event_type type)
{
    ASSERT((unsigned)type < ARRAY_LEN(event_types));
    return event_types[type];
}

const char *refusal_text(enum refusal refusal)
{
    ASSERT((unsigned)refusal < ARRAY_LEN(refusals));
    return refusals[refusal];
}
