/*
 * proc.c - the life of a worker process.
 */
#include "sim/proc.h"

#include <string.h>

#include "base/check.h"
#include "sim/sim.h"

static struct proc *proc_at(struct sim *sim, uint32_t p)
{
    ASSERT(p < MAX_PROCS);
    return &sim->workers.procs[p];
}

void procs_reset(struct sim *sim)
{
    struct workers *workers = &sim->workers;
    workers->n_procs = 0;
    memset(workers->n_written, 0, sizeof(workers->n_written));
    for (uint32_t i = 0; i < MAX_WORKERS; i++) {
        workers->workers[i] = (struct worker){.proc = NO_INDEX};
    }
}

uint32_t proc_random(struct sim *sim)
{
    struct workers *workers = &sim->workers;
    for (uint32_t tries = 0; tries < 8 && workers->n_procs > 0; tries++) {
        uint32_t back = (uint32_t)prng_below(&sim->prng, workers->n_procs < 12 ? workers->n_procs : 12);
        uint32_t p = workers->n_procs - 1 - back;
        if (workers->procs[p].is_alive) {
            return p;
        }
    }
    return NO_INDEX;
}

static void request(struct sim *sim, uint32_t m)
{
    struct msg *msg = net_msg(sim, m);
    msg->rpc = ++proc_at(sim, msg->proc)->next_rpc;
    net_send(sim, m);
}

/* ---- start and end ---- */

void proc_register(struct sim *sim, uint32_t p)
{
    struct proc *proc = proc_at(sim, p);
    proc->registered_sent_ms = sim->now_ms;
    uint32_t m = net_new(sim, CMD_REGISTER, p);
    net_msg(sim, m)->u.reg = proc->traits;
    request(sim, m);
}

void proc_start(struct sim *sim, uint32_t w)
{
    struct workers *workers = &sim->workers;
    workers->workers[w].is_start_due = false;
    if (workers->n_procs == MAX_PROCS) {
        return;
    }
    uint32_t p = workers->n_procs++;
    struct proc *proc = &workers->procs[p];
    for (uint32_t i = 0; i < MAX_SLOTS; i++) {
        proc->slots[i].state = SLOT_FREE;
        proc->slots[i].generation = 0;
    }
    proc->is_alive = true;
    proc->is_registered = false;
    proc->ignores_orders = !sim->is_healed && prng_permille(&sim->prng, 200);
    proc->is_leaving = false;
    proc->worker = w;
    proc->traits = sim->is_healed ? traits_full() : traits_random(&sim->prng);
    proc->lacking_ops = 0;
    proc->n_slots = sim->world.n_slots;
    proc->stalled_until_ms = 0;
    proc->poll_rpc = 0;
    proc->next_rpc = 0;
    proc->file_epoch = 0;
    proc->n_said = 0;
    memset(proc->held, 0, sizeof(proc->held));
    workers->workers[w].proc = p;
    TRACE(sim, "worker %s starts as %s", worker_name(w), proc_name(p));
    proc_register(sim, p);
    events_add(&sim->events, sim->now_ms + 20, EVENT_PROC_TIMER, p, 0);
}

void proc_kill(struct sim *sim, uint32_t p)
{
    TRACE(sim, "worker process %s of %s is gone", proc_name(p), worker_name(proc_at(sim, p)->worker));
    proc_at(sim, p)->is_alive = false;
}

/* ---- polls ---- */

static uint32_t free_slots(const struct proc *proc)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < proc->n_slots; i++) {
        n += proc->slots[i].state == SLOT_FREE;
    }
    return n;
}

static void send_poll(struct sim *sim, uint32_t p)
{
    struct proc *proc = proc_at(sim, p);
    uint32_t wait_ms = (uint32_t)prng_range(&sim->prng, 50, 500);
    uint32_t m = net_new(sim, CMD_GET_TASK, p);
    struct msg *msg = net_msg(sim, m);
    msg->u.get_task.capacity = proc->is_leaving ? 0 : free_slots(proc);
    msg->u.get_task.wait_ms = wait_ms;
    proc->poll_capacity = msg->u.get_task.capacity;
    proc->poll_until_ms = sim->now_ms + (int64_t)wait_ms + 400;
    request(sim, m);
    proc->poll_rpc = proc->next_rpc;
}

static void poll_if_useful(struct sim *sim, uint32_t p)
{
    struct proc *proc = proc_at(sim, p);
    if (!proc->is_alive || !proc->is_registered) {
        return;
    }
    bool is_lost = proc->poll_rpc != 0 && sim->now_ms > proc->poll_until_ms;
    bool wants_more = proc->poll_capacity == 0 && free_slots(proc) > 0 && !proc->is_leaving;
    if (proc->poll_rpc == 0 || is_lost || wants_more) {
        send_poll(sim, p);
    }
}

/* ---- reports ---- */

static void send_reports(struct sim *sim, uint32_t p, const struct report *const *reports, uint32_t n)
{
    uint32_t m = net_new(sim, CMD_REPORT, p);
    struct msg *msg = net_msg(sim, m);
    msg->u.report.n_reports = n;
    for (uint32_t i = 0; i < n; i++) {
        msg->u.report.reports[i] = *reports[i];
    }
    request(sim, m);
}

void proc_send_report(struct sim *sim, uint32_t p, const struct report *report)
{
    send_reports(sim, p, &report, 1);
}

static void report_slot(struct sim *sim, uint32_t p, struct slot *slot)
{
    struct proc *proc = proc_at(sim, p);
    slot->state = SLOT_REPORTING;
    slot->sent_at_ms = sim->now_ms;
    proc->said[proc->n_said++ % ARRAY_LEN(proc->said)] = slot->report;
    const struct report *reports[MAX_REPORTS] = {&slot->report};
    uint32_t n = 1;
    for (uint32_t i = 0; i < proc->n_slots && n < MAX_REPORTS; i++) {
        struct slot *other = &proc->slots[i];
        if (other != slot && other->state == SLOT_REPORTING && sim->now_ms - other->sent_at_ms > 50) {
            other->sent_at_ms = sim->now_ms;
            reports[n++] = &other->report;
        }
    }
    send_reports(sim, p, reports, n);
}

/* Registers what the attempt has written; success is reported when that was taken. */
static void register_output(struct sim *sim, uint32_t p, struct slot *slot)
{
    const struct stage_def *def = &sim->world.stage_defs[slot->def];
    slot->state = SLOT_REGISTERING;
    slot->sent_at_ms = sim->now_ms;
    enum command_kind kind = def->spec.output == OUTPUT_SHUFFLE ? CMD_MAP_OUTPUT : CMD_RESULTS;
    uint32_t m = net_new(sim, kind, p);
    struct msg *msg = net_msg(sim, m);
    msg->u.output.ref = slot->ref;
    msg->u.output.n_partitions = def->spec.partitions;
    msg->u.output.is_inline = slot->is_inline;
    msg->u.output.bytes = slot->is_inline ? 600000 : 9000000;
    request(sim, m);
}

static void resend(struct sim *sim, uint32_t p)
{
    struct proc *proc = proc_at(sim, p);
    int64_t patience_ms = sim->world.config.heartbeat_interval_ms + 100;
    for (uint32_t i = 0; i < proc->n_slots; i++) {
        struct slot *slot = &proc->slots[i];
        if (slot->state < SLOT_REGISTERING || sim->now_ms - slot->sent_at_ms < patience_ms) {
            continue;
        }
        if (slot->state == SLOT_REGISTERING) {
            register_output(sim, p, slot);
        } else {
            report_slot(sim, p, slot);
        }
    }
}

/* ---- heartbeats ---- */

static void send_heartbeat(struct sim *sim, uint32_t p)
{
    struct proc *proc = proc_at(sim, p);
    uint32_t m = net_new(sim, CMD_HEARTBEAT, p);
    struct msg *msg = net_msg(sim, m);
    uint32_t n = 0;
    for (uint32_t i = 0; i < proc->n_slots; i++) {
        if (proc->slots[i].state != SLOT_FREE) {
            msg->u.heartbeat.running[n++] = proc->slots[i].ref;
        }
    }
    msg->u.heartbeat.n_running = n;
    msg->u.heartbeat.ops = proc->traits.ops;
    memcpy(msg->u.heartbeat.held, proc->held, sizeof(proc->held));
    request(sim, m);
}

static void maybe_leave(struct sim *sim, uint32_t p)
{
    struct proc *proc = proc_at(sim, p);
    if (proc->is_leaving && free_slots(proc) == proc->n_slots) {
        request(sim, net_new(sim, CMD_DEREGISTER, p));
        proc_kill(sim, p);
    }
}

void proc_timer(struct sim *sim, uint32_t p)
{
    struct proc *proc = proc_at(sim, p);
    if (!proc->is_alive) {
        return;
    }
    if (proc->stalled_until_ms > sim->now_ms) {
        events_add(&sim->events, proc->stalled_until_ms, EVENT_PROC_TIMER, p, 0);
        return;
    }
    int64_t interval_ms = sim->world.config.heartbeat_interval_ms;
    if (proc->is_registered) {
        send_heartbeat(sim, p);
        resend(sim, p);
        poll_if_useful(sim, p);
        maybe_leave(sim, p);
    } else {
        if (sim->now_ms - proc->registered_sent_ms > 80) {
            proc_register(sim, p);
        }
        interval_ms = 40;
    }
    events_add(&sim->events, sim->now_ms + interval_ms, EVENT_PROC_TIMER, p, 0);
}

/* ---- work ---- */

static void free_slot(struct sim *sim, uint32_t p, struct slot *slot)
{
    slot->state = SLOT_FREE;
    slot->generation++;
    poll_if_useful(sim, p);
}

static struct slot *find_slot(struct proc *proc, const struct ref *ref)
{
    for (uint32_t i = 0; i < proc->n_slots; i++) {
        struct slot *slot = &proc->slots[i];
        if (slot->state != SLOT_FREE && lease_token_equal(slot->ref.token, ref->token) &&
            slot->ref.attempt == ref->attempt) {
            return slot;
        }
    }
    return NULL;
}

static void start_work(struct sim *sim, uint32_t p, const struct handout *handout)
{
    struct proc *proc = proc_at(sim, p);
    if (find_slot(proc, &handout->ref) != NULL) {
        return; /* the answer came twice */
    }
    struct report report = {.ref = handout->ref, .state = TASK_QUEUED, .def = handout->def, .missing_op = NO_INDEX};
    uint32_t s = 0;
    while (s < proc->n_slots && proc->slots[s].state != SLOT_FREE) {
        s++;
    }
    if (s == proc->n_slots) {
        proc_send_report(sim, p, &report); /* no room: given back untouched */
        return;
    }
    struct slot *slot = &proc->slots[s];
    slot->state = SLOT_RUNNING;
    slot->def = handout->def;
    slot->ref = handout->ref;
    slot->report = report;
    slot->is_inline = prng_permille(&sim->prng, 500);
    slot->n_sources = handout->n_sources;
    memcpy(slot->sources, handout->sources, sizeof(*handout->sources) * handout->n_sources);
    if (!sim->is_healed && prng_permille(&sim->prng, sim->world.mood.task_reports_running)) {
        report.state = TASK_RUNNING;
        proc_send_report(sim, p, &report);
    }
    int64_t takes_ms = prng_range(&sim->prng, 1, sim->world.mood.task_ms_max);
    uint32_t slot_gen = s | (slot->generation & 0xfff) << 3;
    events_add(&sim->events, sim->now_ms + takes_ms, EVENT_TASK_DONE, p, slot_gen);
}

static bool can_fetch(struct sim *sim, const struct slot *slot, const struct source_told *source)
{
    uint32_t tid = store_tid(&sim->store, slot->ref.job, source->stage, source->task);
    if (tid == NO_INDEX) {
        return false;
    }
    for (uint32_t i = 0; i < MAX_WRITTEN && i < sim->workers.n_written[tid]; i++) {
        const struct written *written = &sim->workers.written[tid][i];
        const struct proc *owner = &sim->workers.procs[written->proc];
        if (written->attempt == source->attempt && written->proc == source->proc) {
            bool is_cut = ((sim->net.cut_to_leader | sim->net.cut_from_leader) >> owner->worker & 1) != 0;
            return owner->is_alive && owner->file_epoch == written->epoch &&
                   !(is_cut && prng_permille(&sim->prng, 300));
        }
    }
    return false;
}

/* Reads its inputs; what cannot be read goes into the report. */
static bool fetch_all(struct sim *sim, struct slot *slot)
{
    for (uint32_t i = 0; i < slot->n_sources; i++) {
        const struct source_told *source = &slot->sources[i];
        if (!can_fetch(sim, slot, source) && slot->report.n_fetch < MAX_FETCH) {
            slot->report.fetch[slot->report.n_fetch++] =
                (struct fetch_failure){.stage = source->stage, .task = source->task, .attempt = source->attempt};
        }
    }
    return slot->report.n_fetch == 0;
}

/* How the attempt goes: fills in the report. */
static void work(struct sim *sim, const struct proc *proc, struct slot *slot)
{
    const struct stage_def *def = &sim->world.stage_defs[slot->def];
    const struct mood *mood = &sim->world.mood;
    struct report *report = &slot->report;
    uint32_t lacking = sim->world.needs[def->need].wants.ops & (proc->lacking_ops | ~proc->traits.ops);
    report->state = TASK_FAILED;
    if (lacking != 0) {
        report->missing_op = (uint32_t)__builtin_ctz(lacking);
        return;
    }
    if (!fetch_all(sim, slot)) {
        return;
    }
    if (!sim->is_healed &&
        prng_permille(&sim->prng, mood->task_blames)) { /* it blames an input, perhaps one it never had */
        report->fetch[report->n_fetch++] = (struct fetch_failure){
            .stage = slot->n_sources > 0 ? slot->sources[0].stage : (uint32_t)prng_below(&sim->prng, 4),
            .task = (uint32_t)prng_below(&sim->prng, 3),
            .attempt = (uint32_t)prng_below(&sim->prng, 4),
        };
        return;
    }
    if (def->poison != POISON_NONE && def->poison_task == slot->ref.task) {
        report->not_retryable = def->poison == POISON_FATAL;
        return;
    }
    if (!sim->is_healed) {
        uint32_t draw = (uint32_t)prng_below(&sim->prng, 1000);
        if (draw < mood->task_fails + mood->task_fatal) {
            report->not_retryable = draw < mood->task_fatal;
            return;
        }
        if (prng_permille(&sim->prng, mood->task_released)) {
            report->state = TASK_QUEUED;
            return;
        }
    }
    report->state = TASK_SUCCEEDED;
    report->plan = def->n_added > 0;
}

static void write_files(struct sim *sim, uint32_t p, const struct slot *slot)
{
    uint32_t tid = store_tid(&sim->store, slot->ref.job, slot->ref.stage, slot->ref.task);
    ASSERT(tid != NO_INDEX);
    struct proc *proc = proc_at(sim, p);
    uint32_t at = sim->workers.n_written[tid]++ % MAX_WRITTEN;
    sim->workers.written[tid][at] =
        (struct written){.attempt = slot->ref.attempt, .proc = p, .epoch = proc->file_epoch};
    proc->held[slot->ref.job / 64] |= 1ULL << (slot->ref.job % 64);
}

void proc_task_done(struct sim *sim, uint32_t p, uint32_t slot_gen)
{
    struct proc *proc = proc_at(sim, p);
    struct slot *slot = &proc->slots[slot_gen & 7];
    if (!proc->is_alive || slot->state != SLOT_RUNNING || (slot->generation & 0xfff) != slot_gen >> 3) {
        return;
    }
    if (proc->stalled_until_ms > sim->now_ms) {
        events_add(&sim->events, proc->stalled_until_ms, EVENT_TASK_DONE, p, slot_gen);
        return;
    }
    work(sim, proc, slot);
    if (slot->report.missing_op != NO_INDEX && prng_permille(&sim->prng, 700)) {
        proc->traits.ops &= ~(1U << slot->report.missing_op); /* now it knows */
    }
    enum output_kind output = sim->world.stage_defs[slot->def].spec.output;
    bool is_lazy = !sim->is_healed && prng_permille(&sim->prng, sim->world.mood.task_lazy);
    if (slot->report.state == TASK_SUCCEEDED && output != OUTPUT_NONE && !is_lazy) {
        if (output == OUTPUT_SHUFFLE) {
            write_files(sim, p, slot);
        }
        register_output(sim, p, slot);
        return;
    }
    report_slot(sim, p, slot);
}

/* ---- answers ---- */

static void obey_stops(struct sim *sim, uint32_t p, const struct msg *msg)
{
    struct proc *proc = proc_at(sim, p);
    for (uint32_t i = 0; i < msg->u.answer.n_refs; i++) {
        struct slot *slot = find_slot(proc, &msg->u.answer.refs[i]);
        if (slot != NULL) {
            TRACE(sim, "%s stops an attempt of %s", proc_name(p), job_name(slot->ref.job));
            free_slot(sim, p, slot);
        }
    }
}

/* What a refusal means for the process. True if it is about the process as a whole. */
static bool obey_refusal(struct sim *sim, uint32_t p, enum refusal refusal)
{
    struct proc *proc = proc_at(sim, p);
    if (refusal == REFUSE_SUPERSEDED) {
        if (!proc->ignores_orders || sim->is_healed) {
            proc_kill(sim, p);
        }
        return true;
    }
    if (refusal == REFUSE_UNKNOWN_WORKER) {
        if (proc->is_registered) {
            proc->is_registered = false;
            proc->registered_sent_ms = 0;
        }
        return true;
    }
    return false;
}

static void take_tasks(struct sim *sim, uint32_t p, const struct msg *msg)
{
    struct proc *proc = proc_at(sim, p);
    if (msg->rpc == proc->poll_rpc) {
        proc->poll_rpc = 0;
    } else if (prng_permille(&sim->prng, 500)) {
        return; /* nobody waits for it any more */
    }
    obey_stops(sim, p, msg);
    for (uint32_t h = msg->u.answer.handouts; h != 0; h = sim->net.handouts[h].next) {
        start_work(sim, p, &sim->net.handouts[h]);
    }
    poll_if_useful(sim, p);
}

static void take_heartbeat_answer(struct sim *sim, uint32_t p, const struct msg *msg)
{
    struct proc *proc = proc_at(sim, p);
    if (!msg->u.answer.accepted) {
        (void)obey_refusal(sim, p, msg->u.answer.refusal);
        return;
    }
    obey_stops(sim, p, msg);
    for (uint32_t i = 0; i < ARRAY_LEN(proc->held); i++) {
        proc->held[i] &= ~msg->u.answer.ended[i];
    }
}

static void take_output_answer(struct sim *sim, uint32_t p, const struct msg *msg)
{
    struct slot *slot = find_slot(proc_at(sim, p), &msg->u.answer.refs[0]);
    if (slot == NULL || slot->state != SLOT_REGISTERING) {
        return;
    }
    enum refusal refusal = msg->u.answer.refusal;
    if (refusal == REFUSE_NONE) {
        report_slot(sim, p, slot);
    } else if (refusal == REFUSE_INLINE_LIMIT) {
        slot->is_inline = false;
        register_output(sim, p, slot);
    } else if (!obey_refusal(sim, p, refusal)) {
        free_slot(sim, p, slot);
    }
}

static void take_report_answer(struct sim *sim, uint32_t p, const struct msg *msg)
{
    struct proc *proc = proc_at(sim, p);
    for (uint32_t i = 0; i < msg->u.answer.n_refs; i++) {
        struct slot *slot = find_slot(proc, &msg->u.answer.refs[i]);
        if (slot == NULL || slot->state != SLOT_REPORTING) {
            continue;
        }
        if (!obey_refusal(sim, p, msg->u.answer.outcomes[i])) {
            free_slot(sim, p, slot);
        }
    }
}

static void take_error(struct sim *sim, uint32_t p, const struct msg *msg)
{
    struct proc *proc = proc_at(sim, p);
    if (msg->kind == CMD_GET_TASK && msg->rpc == proc->poll_rpc) {
        proc->poll_rpc = 0; /* the timer polls again */
    }
    if (msg->kind == CMD_REGISTER) {
        proc_kill(sim, p); /* a newer process has its name */
    }
}

void proc_receive(struct sim *sim, uint32_t m)
{
    const struct msg *msg = net_msg(sim, m);
    uint32_t p = msg->proc;
    struct proc *proc = proc_at(sim, p);
    if (proc->is_alive && proc->stalled_until_ms > sim->now_ms) {
        events_add(&sim->events, proc->stalled_until_ms, EVENT_DELIVER, m, 0);
        return;
    }
    if (proc->is_alive) {
        switch (msg->u.answer.reply) {
        case REPLY_ERROR:
            take_error(sim, p, msg);
            break;
        case REPLY_REGISTER:
            proc->is_registered = true;
            poll_if_useful(sim, p);
            break;
        case REPLY_HEARTBEAT:
            take_heartbeat_answer(sim, p, msg);
            break;
        case REPLY_TASKS:
            take_tasks(sim, p, msg);
            break;
        case REPLY_REPORT:
            take_report_answer(sim, p, msg);
            break;
        case REPLY_ACCEPT:
            take_output_answer(sim, p, msg);
            break;
        case REPLY_SUBMIT:
        case REPLY_JOB:
        case REPLY_DONE:
            break;
        }
    }
    net_free(sim, m);
}
