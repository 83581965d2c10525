/*
 * check_repeat.c - a repeated completion with the winning token is accepted again.
 *
 * The model knows which attempt of each task completed, with which token, and since and until which row. A worker that
 * says so again in between (its answer was lost) must not be refused.
 */
#include "sim/check.h"
#include "sim/sim.h"

struct win {
    uint32_t attempt; /* 0: none */
    struct lease_token token;
    uint64_t won_no;
    uint64_t undone_no; /* 0: it counts still */
};

struct repeat {
    struct win tasks[MAX_TASKS];
};

static void row(struct sim *sim, void *state, const struct row_note *note)
{
    UNUSED(sim);
    struct repeat *repeat = state;
    const struct row_task *row = (const struct row_task *)note->row;
    struct win *win = &repeat->tasks[note->tid];
    if (row->is_new) {
        *win = (struct win){0};
    }
    if (row->state == TASK_SUCCEEDED) {
        if (win->attempt != row->attempt) {
            *win = (struct win){.attempt = row->attempt, .token = row->token, .won_no = note->no};
        }
    } else if (win->attempt != 0 && win->undone_no == 0) {
        win->undone_no = note->no;
    }
}

static void leave(struct sim *sim, void *state, const struct msg *request, const struct reply *reply)
{
    const struct repeat *repeat = state;
    for (uint32_t i = 0; reply->kind == REPLY_REPORT && i < reply->u.report.n_outcomes; i++) {
        const struct report *report = &request->u.report.reports[i];
        uint32_t tid = store_tid(&sim->store, report->ref.job, report->ref.stage, report->ref.task);
        if (reply->u.report.outcomes[i] == REFUSE_NONE || report->state != TASK_SUCCEEDED || tid == NO_INDEX) {
            continue;
        }
        const struct win *win = &repeat->tasks[tid];
        if (win->attempt == report->ref.attempt && lease_token_equal(win->token, report->ref.token) &&
            win->won_no <= request->step_row && (win->undone_no == 0 || win->undone_no > request->step_row)) {
            sim_fail(sim, PROPERTY_repeat, "%s: attempt %u had won, says so again, and is refused: %s",
                     task_text(sim, tid), win->attempt, refusal_text(reply->u.report.outcomes[i]));
        }
    }
}

static void reset(struct sim *sim, void *state)
{
    UNUSED(sim);
    UNUSED(state); /* a task's model is made with its row */
}

const struct checker check_repeat = {
    .property = PROPERTY_repeat,
    .state_size = sizeof(struct repeat),
    .row_kinds = BIT(ROW_TASK),
    .leave_kinds = BIT(CMD_REPORT),
    .reset = reset,
    .row = row,
    .leave = leave,
};
