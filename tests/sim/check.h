/*
 * check.h - the properties that must hold, and the hooks through which their checkers watch a run.
 *
 * One property, one file check_<name>.c, with a model of its own that is fed by what was committed and by what was
 * told; a checker never asks the core what is right. The driver calls, in this order:
 *
 *   fact     the core took a command and answered so. Called when the batch is committed, before its rows (or at once
 *            if the reply is immediate). The answer may still be lost with the leader.
 *   row      a row is committed, in order. Rows are numbered over all leaders; `request->step_row` is the number of the
 *            last row that had been written when the command was stepped.
 *   leave    the answer leaves the leader, right now.
 *   takeover a new leader has loaded the state.
 *   watch    from time to time after the heal.
 *   end      the run is over.
 *
 * Ownership: a checker's state belongs to the sim. Threads: one.
 */
#ifndef CAPSTAN_SIM_CHECK_H
#define CAPSTAN_SIM_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "core/effects.h"
#include "core/rows.h"
#include "sim/names.h"
#include "sim/net.h"

struct sim;

/* X(name, what it says) */
#define PROPERTY_TABLE(X)                                                                                              \
    X(acked, "no acknowledged job or task is lost")                                                                    \
    X(identity, "one job per id and per idempotency key, and none that is not valid")                                  \
    X(one_result, "at most one committed result per task")                                                             \
    X(stale, "no stale attempt is accepted")                                                                           \
    X(lease, "at most one live lease per task, unique tokens, every lease ends")                                       \
    X(kept, "a lease that is renewed is kept")                                                                         \
    X(incarnation, "only the newest process of a worker is heard")                                                     \
    X(stop, "a worker is told to stop what is over, and nothing else")                                                 \
    X(deps, "a task starts only after what it depends on")                                                             \
    X(limits, "no worker and no query above its limit, and no worker starves below it")                                \
    X(backoff, "a failed task waits before its next attempt")                                                          \
    X(capability, "a task runs only where its executor and operators are")                                             \
    X(placement, "a task runs only where its placement allows")                                                        \
    X(blacklist, "a blacklisted worker gets nothing")                                                                  \
    X(drain, "a draining worker gets nothing new")                                                                     \
    X(budget, "a task is tried as often as its budget says")                                                           \
    X(outcome, "a job ends as its tasks say")                                                                          \
    X(avoid, "a task does not go back to where it failed while another worker could take it")                          \
    X(priority, "urgent tasks go first")                                                                               \
    X(durable, "nothing leaves before it is durable")                                                                  \
    X(terminal, "what has ended stays ended, except by a retry")                                                       \
    X(repeat, "a repeated completion with the winning token is accepted again")                                        \
    X(map_output, "readers are told only registered, current map outputs")                                             \
    X(nondet, "attempts of a nondeterministic map are never mixed among readers")                                      \
    X(events, "events are numbered without gaps, over all leaders")                                                    \
    X(recovery, "a core loaded from the rows equals the one that wrote them")                                          \
    X(end, "every job ends after the heal")                                                                            \
    X(core_check, "the core's own invariants hold")

enum property {
#define PROPERTY_ENUM(name, text) PROPERTY_##name,
    PROPERTY_TABLE(PROPERTY_ENUM)
#undef PROPERTY_ENUM
        PROPERTY_COUNT
};

const char *property_name(enum property property);
const char *property_text(enum property property);

/* A committed row with its names as numbers; what does not apply is NO_INDEX. */
struct row_note {
    const struct row *row;
    uint64_t no;
    uint32_t job;
    uint32_t stage;
    uint32_t tid;
    uint32_t worker;
};

struct checker {
    enum property property;
    size_t state_size;
    uint32_t row_kinds;   /* bits: which rows it wants */
    uint32_t fact_kinds;  /* bits: of which commands it wants the facts */
    uint32_t leave_kinds; /* bits: of which commands it wants to see the answers leave */
    void (*reset)(struct sim *sim, void *state);
    void (*fact)(struct sim *sim, void *state, const struct msg *request, const struct reply *reply);
    void (*row)(struct sim *sim, void *state, const struct row_note *note);
    void (*leave)(struct sim *sim, void *state, const struct msg *request, const struct reply *reply);
    void (*takeover)(struct sim *sim, void *state);
    void (*watch)(struct sim *sim, void *state);
    void (*end)(struct sim *sim, void *state);
};

#define BIT(n) (1U << (n))

/* One per file; the table in check.c lists them. */
extern const struct checker check_acked;
extern const struct checker check_identity;
extern const struct checker check_one_result;
extern const struct checker check_stale;
extern const struct checker check_lease;
extern const struct checker check_kept;
extern const struct checker check_incarnation;
extern const struct checker check_stop;
extern const struct checker check_deps;
extern const struct checker check_limits;
extern const struct checker check_backoff;
extern const struct checker check_capability;
extern const struct checker check_placement;
extern const struct checker check_blacklist;
extern const struct checker check_drain;
extern const struct checker check_budget;
extern const struct checker check_outcome;
extern const struct checker check_avoid;
extern const struct checker check_priority;
extern const struct checker check_durable;
extern const struct checker check_terminal;
extern const struct checker check_repeat;
extern const struct checker check_map_output;
extern const struct checker check_nondet;
extern const struct checker check_events;
extern const struct checker check_end;

#define MAX_CHECKERS 32

struct hook {
    const struct checker *checker;
    void *state;
};

/* The checkers of a run, sorted by what they want to hear of. */
struct checks {
    void *states[MAX_CHECKERS];
    struct hook rows[ROW_META + 1][MAX_CHECKERS];
    uint32_t n_rows[ROW_META + 1];
    struct hook facts[CMD_LOADED_JOB + 1][MAX_CHECKERS];
    uint32_t n_facts[CMD_LOADED_JOB + 1];
    struct hook leaves[CMD_LOADED_JOB + 1][MAX_CHECKERS];
    uint32_t n_leaves[CMD_LOADED_JOB + 1];
};

void checks_init(struct checks *checks);
void checks_deinit(struct checks *checks);
void checks_reset(struct sim *sim);

void check_fact(struct sim *sim, const struct msg *request, const struct reply *reply);
void check_row(struct sim *sim, const struct row *row, uint64_t no);
void check_leave(struct sim *sim, const struct msg *request, const struct reply *reply);
void check_takeover(struct sim *sim);
void check_watch(struct sim *sim);
void check_end_of_run(struct sim *sim);

/* A map output that somebody wanted to fetch, and whether the core would have served it. */
struct fetch_probe {
    uint32_t tid;
    uint32_t attempt;
    uint64_t step_row;
    bool served;
    uint32_t proc; /* by the address served */
};

/* Called when the newest row that the read could see is committed. */
void check_map_output_probe(struct sim *sim, const struct fetch_probe *probe);

/*
 * True if a report ended its attempt: it was taken, or it claimed a success that it could not prove. Whatever is
 * said of that attempt afterwards is repetition.
 */
static inline bool report_is_final(const struct report *report, enum refusal refusal)
{
    return report->state != TASK_RUNNING && (refusal == REFUSE_NONE || refusal == REFUSE_BAD_OUTPUT);
}

/* The property is broken: the run stops, and says so. Only the first one counts. */
void sim_fail(struct sim *sim, enum property property, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* "j3 stage 1 task 0 (tid 17)" in a static buffer. */
const char *task_text(const struct sim *sim, uint32_t tid);

#endif
