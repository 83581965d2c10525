/*
 * leader_command.c - requests as the core wants them.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "sim/leader_internal.h"
#include "sim/sim.h"

struct attempt_ref leader__attempt_ref(const struct ref *ref)
{
    return (struct attempt_ref){
        .task = {.job_id = job_name(ref->job), .stage = ref->stage, .task = ref->task},
        .attempt = ref->attempt,
        .token = ref->token,
    };
}

struct partition leader__partition(const struct ref *ref, uint32_t partition)
{
    uint64_t n = ref->attempt * 1000ULL + ref->task * 10ULL + partition;
    return (struct partition){.bytes = n * 100, .rows = n, .batches = 1, .checksum = n ^ 0x5eedULL};
}

typedef void command_fn(struct sim *sim, const struct msg *msg, struct command_room *room, struct command *out);

static void make_submit(struct sim *sim, const struct msg *msg, struct command_room *room, struct command *out)
{
    const struct job_def *job = &sim->world.jobs[msg->job];
    out->u.submit = msg->u.submit.other_content ? job->other : job->submit;
    if (msg->u.submit.has_parent) {
        room->parent = leader__attempt_ref(&msg->u.submit.parent);
        out->u.submit.parent = &room->parent;
    }
}

static void make_register(struct sim *sim, const struct msg *msg, struct command_room *room, struct command *out)
{
    UNUSED(room);
    const struct proc *proc = &sim->workers.procs[msg->proc];
    arena_reset(&sim->leader.arena);
    out->u.reg = (struct cmd_register){
        .worker_id = worker_name(msg->worker),
        .incarnation = proc_name(msg->proc),
        .address = proc_address(msg->proc),
        .slots = proc->n_slots,
        .offer = traits_offer(msg->u.reg, &sim->leader.arena),
        .version = "sim",
    };
}

static void make_heartbeat(struct sim *sim, const struct msg *msg, struct command_room *room, struct command *out)
{
    uint32_t n = msg->u.heartbeat.n_running;
    for (uint32_t i = 0; i < n; i++) {
        room->refs[i] = leader__attempt_ref(&msg->u.heartbeat.running[i]);
    }
    uint32_t n_held = 0;
    for (uint32_t w = 0; w < ARRAY_LEN(msg->u.heartbeat.held); w++) {
        for (uint64_t bits = msg->u.heartbeat.held[w]; bits != 0; bits &= bits - 1) {
            room->held[n_held++] = job_name(w * 64 + (uint32_t)__builtin_ctzll(bits));
        }
    }
    out->u.heartbeat = (struct cmd_heartbeat){
        .worker_id = worker_name(msg->worker),
        .incarnation = proc_name(msg->proc),
        .running = room->refs,
        .n_running = n,
        .ops = sim->op_lists[msg->u.heartbeat.ops],
        .held_jobs = room->held,
        .n_held_jobs = n_held,
        .load = 0.5,
    };
}

static void make_deregister(struct sim *sim, const struct msg *msg, struct command_room *room, struct command *out)
{
    UNUSED(sim);
    UNUSED(room);
    out->u.deregister =
        (struct cmd_deregister){.worker_id = worker_name(msg->worker), .incarnation = proc_name(msg->proc)};
}

static void make_get_task(struct sim *sim, const struct msg *msg, struct command_room *room, struct command *out)
{
    UNUSED(sim);
    UNUSED(room);
    out->u.get_task = (struct cmd_get_task){
        .worker_id = worker_name(msg->worker),
        .incarnation = proc_name(msg->proc),
        .capacity = msg->u.get_task.capacity,
        .wait_ms = msg->u.get_task.wait_ms,
    };
}

static const char *report_message(const struct report *report, char *room)
{
    if (report->state != TASK_FAILED) {
        return NULL;
    }
    if (report->missing_op != NO_INDEX) {
        (void)snprintf(room, MESSAGE_BYTES, "custom physical operator '%s' is not registered on worker",
                       op_name(report->missing_op));
        return room;
    }
    return report->not_retryable ? "bad inputs" : "it broke";
}

static void make_report(struct sim *sim, const struct msg *msg, struct command_room *room, struct command *out)
{
    for (uint32_t i = 0; i < msg->u.report.n_reports; i++) {
        const struct report *said = &msg->u.report.reports[i];
        struct task_report *report = &room->reports[i];
        *report = (struct task_report){
            .ref = leader__attempt_ref(&said->ref),
            .state = said->state,
            .message = report_message(said, room->messages[i]),
            .not_retryable = said->not_retryable,
            .result_bytes = said->ref.attempt,
            .fetch_failed = room->fetches[i],
            .n_fetch_failed = said->n_fetch,
            .rows = 1,
            .bytes = 10,
        };
        memcpy(report->result.bytes, &said->ref.token, sizeof(said->ref.token));
        for (uint32_t f = 0; f < said->n_fetch; f++) {
            struct ref map = {
                said->ref.job, said->fetch[f].stage, said->fetch[f].task, said->fetch[f].attempt, {{0, 0}}};
            room->fetches[i][f] = leader__attempt_ref(&map);
        }
        if (said->plan) {
            report->added = sim->world.stage_defs[said->def].added;
            report->n_added = sim->world.stage_defs[said->def].n_added;
        }
    }
    out->u.report = (struct cmd_report){
        .worker_id = worker_name(msg->worker),
        .incarnation = proc_name(msg->proc),
        .reports = room->reports,
        .n_reports = msg->u.report.n_reports,
    };
}

static void make_map_output(struct sim *sim, const struct msg *msg, struct command_room *room, struct command *out)
{
    UNUSED(sim);
    for (uint32_t i = 0; i < msg->u.output.n_partitions; i++) {
        room->partitions[i] = leader__partition(&msg->u.output.ref, i);
    }
    out->u.map_output = (struct cmd_map_output){
        .ref = leader__attempt_ref(&msg->u.output.ref),
        .worker_id = worker_name(msg->worker),
        .partitions = room->partitions,
        .n_partitions = msg->u.output.n_partitions,
    };
}

static void make_results(struct sim *sim, const struct msg *msg, struct command_room *room, struct command *out)
{
    UNUSED(sim);
    UNUSED(room);
    out->u.results = (struct cmd_results){
        .ref = leader__attempt_ref(&msg->u.output.ref),
        .worker_id = worker_name(msg->worker),
        .rows = {.rows = 7, .bytes = msg->u.output.bytes, .is_inline = msg->u.output.is_inline},
    };
}

static void make_cancel(struct sim *sim, const struct msg *msg, struct command_room *room, struct command *out)
{
    UNUSED(sim);
    UNUSED(room);
    out->u.cancel = (struct cmd_cancel){.job_id = job_name(msg->job), .reason = "no longer wanted"};
}

static void make_retry(struct sim *sim, const struct msg *msg, struct command_room *room, struct command *out)
{
    UNUSED(sim);
    UNUSED(room);
    out->u.retry = (struct cmd_retry){
        .job_id = job_name(msg->job),
        .from_task = msg->u.retry.from_stage == NO_INDEX ? NULL : stage_name(msg->u.retry.from_stage),
        .results_lost = msg->u.retry.results_lost,
    };
}

static void make_set_node(struct sim *sim, const struct msg *msg, struct command_room *room, struct command *out)
{
    UNUSED(sim);
    UNUSED(room);
    out->u.set_node = (struct cmd_set_node){
        .worker_id = worker_name(msg->worker),
        .set_draining = msg->u.set_node.set_draining,
        .draining = msg->u.set_node.draining,
        .clear_blacklist = msg->u.set_node.clear_blacklist,
    };
}

static void make_child_done(struct sim *sim, const struct msg *msg, struct command_room *room, struct command *out)
{
    UNUSED(sim);
    UNUSED(room);
    out->u.child_done = (struct cmd_child_done){
        .ref = leader__attempt_ref(&msg->u.child_news),
        .result_bytes = 20 + msg->u.child_news.attempt,
        .rows = msg->u.child_news.attempt,
    };
}

static void make_child_failed(struct sim *sim, const struct msg *msg, struct command_room *room, struct command *out)
{
    UNUSED(sim);
    UNUSED(room);
    out->u.child_failed = (struct cmd_child_failed){
        .ref = leader__attempt_ref(&msg->u.child_news),
        .message = "the child job could not be made or read",
    };
}

static command_fn *const MAKERS[] = {
    [CMD_SUBMIT] = make_submit,
    [CMD_REGISTER] = make_register,
    [CMD_HEARTBEAT] = make_heartbeat,
    [CMD_DEREGISTER] = make_deregister,
    [CMD_GET_TASK] = make_get_task,
    [CMD_REPORT] = make_report,
    [CMD_MAP_OUTPUT] = make_map_output,
    [CMD_RESULTS] = make_results,
    [CMD_CANCEL] = make_cancel,
    [CMD_RETRY] = make_retry,
    [CMD_SET_NODE] = make_set_node,
    [CMD_CHILD_DONE] = make_child_done,
    [CMD_CHILD_FAILED] = make_child_failed,
};

void leader__command(struct sim *sim, uint32_t m, struct command_room *room, struct command *out)
{
    const struct msg *msg = net_msg(sim, m);
    ASSERT((size_t)msg->kind < ARRAY_LEN(MAKERS));
    out->kind = msg->kind;
    out->reply_to = m;
    MAKERS[msg->kind](sim, msg, room, out);
}
