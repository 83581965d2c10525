#include "integration/coordinator/node.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "integration/coordinator/clocks.h"
#include "integration/coordinator/content.h"
#include "test.h"

#define CLIENTS_MAX LEDGER_CLIENTS_MAX
#define COMPARE_MS_MAX 60000 /* to lead again, with a database that was away */
#define COMPARE_TRIES 5      /* a timer may have written something just then, but not every time */
#define CANCEL_EVERY 5
#define DATA_SET_EVERY 3
#define ANSWER_MS_MAX 120000
#define SHY_MS 2 /* how long a client waits that was refused */

enum order_kind {
    ORDER_LOOK,
    ORDER_SUBMIT,
    ORDER_CANCEL,
    ORDER_STATUS,
    ORDER_KNOWS,
    ORDER_HOLD,
    ORDER_RELEASE,
    ORDER_COMPARE,
    ORDER_WORK,
    ORDER_SEND,
    ORDER_SEND_POLL,
    ORDER_STOP
};

struct order {
    enum order_kind kind;
    uint32_t n_tasks;
    char job_id[40];
};

struct order_answer {
    struct client_answer answer;
    struct node_view view;
    bool has_worked;
    bool is_known;
    struct client_difference difference; /* between memory and store */
};

/* ---- the process ---- */

struct process {
    struct coordinator *c;
    const char *url;
    struct ledger *ledger;
    uint32_t number;
    uint32_t n_clients;
    atomic_bool is_stopping;
    atomic_bool are_held;
    atomic_uint n_held; /* clients that wait */
    bool has_worker;
    char incarnation[32];   /* of its worker "w" */
    atomic_uint n_troubles; /* see struct node_view */
    atomic_uint n_prune_troubles;
    atomic_uint n_prune_mended;
};

struct client {
    struct process *process;
    uint32_t index;
    uint32_t version; /* of its data set: the last one that was acknowledged */
    char worker_id[32];
    char incarnation[32];
};

static struct fact fact_about(const struct process *p, enum fact_kind kind, const char *name)
{
    struct fact fact = {.kind = kind, .node = p->number};
    size_t n = strlen(name);
    CHECK(n < sizeof fact.job_id);
    memcpy(fact.job_id, name, n + 1);
    return fact;
}

static void tell(const struct process *p, enum fact_kind kind, const char *name, enum err err)
{
    struct fact fact = fact_about(p, kind, name);
    fact.err = err;
    ledger_add(p->ledger, &fact);
}

static void tell_role(void *context, bool leads, const char *why)
{
    tell(context, leads ? FACT_LEADS : FACT_FOLLOWS, why, ERR_OK);
}

static void count_trouble(void *context, const char *why)
{
    struct process *p = context;
    if (why != NULL) {
        atomic_fetch_add(&p->n_troubles, 1);
    }
}

static void count_prune(void *context, const char *why)
{
    struct process *p = context;
    atomic_fetch_add(why != NULL ? &p->n_prune_troubles : &p->n_prune_mended, 1);
}

static void tell_done(const struct process *p, const struct client_task *task)
{
    struct fact fact = fact_about(p, FACT_DONE, task->job_id);
    fact.task = task->task;
    fact.version = task->attempt;
    ledger_add(p->ledger, &fact);
}

static struct client_answer cancel(const struct process *p, const char *job_id)
{
    struct client_answer answer = client_cancel(p->c, job_id);
    if (answer.err == ERR_OK) {
        struct fact fact = fact_about(p, FACT_CANCELED, job_id);
        fact.state = answer.state;
        ledger_add(p->ledger, &fact);
    }
    return answer;
}

static void change_data_set(struct client *client)
{
    struct arena arena = {0};
    const struct process *p = client->process;
    char *name = arena_format(&arena, "set-n%u-c%u", p->number, client->index);
    const char *source = content_source(&arena, name, client->version + 1);
    if (client_data_set(p->c, name, source).err == ERR_OK) {
        struct fact fact = fact_about(p, FACT_DATA_SET, name);
        fact.task = client->index;
        fact.version = ++client->version; /* else the same again, which may be there already */
        ledger_add(p->ledger, &fact);
    }
    arena_deinit(&arena);
}

/* True if it was acknowledged. */
static bool stream_one(struct client *client, const char *job_id, uint32_t i)
{
    struct process *p = client->process;
    enum err err = client_submit(p->c, job_id, 1 + i % 3).err;
    if (err == ERR_OK) {
        tell(p, FACT_SUBMITTED, job_id, ERR_OK);
        if (i % CANCEL_EVERY == CANCEL_EVERY - 1) {
            cancel(p, job_id);
        }
        if (i % DATA_SET_EVERY == 0) {
            change_data_set(client);
        }
    }
    struct client_answer got = client_poll(p->c, client->worker_id, client->incarnation, 3);
    for (uint32_t t = 0; t < got.n_tasks; t++) {
        struct client_answer done = client_succeed(p->c, client->worker_id, client->incarnation, &got.tasks[t]);
        if (done.err == ERR_OK && done.refusal == REFUSE_NONE) {
            tell_done(p, &got.tasks[t]);
        }
    }
    return err == ERR_OK;
}

/* Stays here while it must. */
static void wait_if_held(struct process *p)
{
    if (atomic_load(&p->are_held)) {
        atomic_fetch_add(&p->n_held, 1);
        while (atomic_load(&p->are_held) && !atomic_load(&p->is_stopping)) {
            clocks_pause(1);
        }
        atomic_fetch_sub(&p->n_held, 1);
    }
}

static void *run_client(void *context)
{
    struct client *client = context;
    struct process *p = client->process;
    bool is_registered = false;
    for (uint32_t i = 0; !atomic_load(&p->is_stopping);) {
        char job_id[40];
        wait_if_held(p);
        if (!is_registered) {
            is_registered = client_register(p->c, client->worker_id, client->incarnation).err == ERR_OK;
        }
        snprintf(job_id, sizeof job_id, "n%u-c%u-%u", p->number, client->index, i);
        if (is_registered && stream_one(client, job_id, i)) {
            i++;
        } else {
            atomic_fetch_add(&p->ledger->n_refused, 1);
            is_registered = false; /* perhaps nobody knows it any more */
            i += i % 2;            /* the same again, as clients do, or never again */
            clocks_pause(SHY_MS);
        }
    }
    return NULL;
}

struct sending {
    struct process *process;
    struct order order;
};

static void *run_sending(void *context)
{
    struct sending *sending = context;
    struct process *p = sending->process;
    const struct order *order = &sending->order;
    enum err err = order->kind == ORDER_SEND ? client_submit(p->c, order->job_id, order->n_tasks).err
                                             : client_poll(p->c, "w", p->incarnation, 1).err;
    tell(p, order->kind == ORDER_SEND ? FACT_ANSWERED : FACT_POLLED, order->job_id, err);
    mem_free(sending);
    return NULL;
}

static void send_order(struct process *p, const struct order *order)
{
    pthread_t thread;
    struct sending *sending = mem_calloc(1, sizeof *sending);
    *sending = (struct sending){p, *order};
    int error = pthread_create(&thread, NULL, run_sending, sending);
    error |= pthread_detach(thread);
    ASSERT(error == 0);
}

static bool work(struct process *p)
{
    if (!p->has_worker && client_register(p->c, "w", p->incarnation).err != ERR_OK) {
        return false;
    }
    p->has_worker = true;
    struct client_answer got = client_poll(p->c, "w", p->incarnation, 1);
    if (got.n_tasks == 0) {
        p->has_worker = got.err == ERR_OK;
        return false;
    }
    struct client_answer done = client_succeed(p->c, "w", p->incarnation, &got.tasks[0]);
    if (done.err != ERR_OK || done.refusal != REFUSE_NONE) {
        return false;
    }
    tell_done(p, &got.tasks[0]);
    return true;
}

static void hold(struct process *p)
{
    while (atomic_load(&p->n_held) > 0 && !atomic_load(&p->are_held)) {
        clocks_pause(1); /* some have not noticed yet that they were released */
    }
    atomic_store(&p->are_held, true);
    while (atomic_load(&p->n_held) < p->n_clients) {
        clocks_pause(1);
    }
}

static enum err compare(struct process *p, struct client_difference *out)
{
    int64_t until_ms = clocks_mono_ms() + COMPARE_MS_MAX;
    uint32_t n_different = 0;
    for (;;) {
        enum err err = client_compare(p->c, p->url, out);
        n_different += err == ERR_DATA_LOSS;
        if (err == ERR_OK || n_different >= COMPARE_TRIES || clocks_mono_ms() >= until_ms) {
            return err;
        }
        clocks_pause(5);
    }
}

static void obey(struct process *p, const struct order *order, struct order_answer *out)
{
    switch (order->kind) {
    case ORDER_SUBMIT:
        out->answer = client_submit(p->c, order->job_id, order->n_tasks);
        if (out->answer.err == ERR_OK) {
            tell(p, FACT_SUBMITTED, order->job_id, ERR_OK);
        }
        break;
    case ORDER_CANCEL:
        out->answer = cancel(p, order->job_id);
        break;
    case ORDER_STATUS:
        out->answer = client_status(p->c, order->job_id);
        break;
    case ORDER_KNOWS:
        out->is_known = client_knows(p->c, order->job_id);
        break;
    case ORDER_HOLD:
        hold(p);
        break;
    case ORDER_RELEASE:
        atomic_store(&p->are_held, false);
        break;
    case ORDER_COMPARE:
        out->answer.err = compare(p, &out->difference);
        break;
    case ORDER_WORK:
        out->has_worked = work(p);
        break;
    case ORDER_SEND:
    case ORDER_SEND_POLL:
        send_order(p, order);
        break;
    case ORDER_LOOK:
    case ORDER_STOP:
        break;
    }
    out->view = (struct node_view){.epoch = coordinator_epoch(p->c),
                                   .gave_up = coordinator_gave_up(p->c, NULL),
                                   .date_ms = clocks_date_ms(),
                                   .stats = coordinator_stats(p->c),
                                   .leader = coordinator_leader(p->c),
                                   .n_troubles = atomic_load(&p->n_troubles),
                                   .n_prune_troubles = atomic_load(&p->n_prune_troubles),
                                   .n_prune_mended = atomic_load(&p->n_prune_mended)};
}

static void serve(struct process *p, int orders, int answers)
{
    struct order order;
    while (read(orders, &order, sizeof order) == (ssize_t)sizeof order && order.kind != ORDER_STOP) {
        struct order_answer answer;
        memset(&answer, 0, sizeof answer); /* its padding goes down the pipe, too */
        obey(p, &order, &answer);
        if (write(answers, &answer, sizeof answer) != (ssize_t)sizeof answer) {
            _exit(3);
        }
    }
}

static _Noreturn void run_process(const struct node *node, const struct node_options *options, int orders, int answers)
{
    static struct process process;
    static struct client clients[CLIENTS_MAX];
    pthread_t threads[CLIENTS_MAX];
    process.url = options->url;
    process.n_clients = options->n_clients;
    process.are_held = options->are_held;
    process.ledger = node->ledger;
    process.number = node->number;
    snprintf(process.incarnation, sizeof process.incarnation, "one-%u", node->number);
    clocks_shift(options->clock_shift_s);
    struct coordinator_options coordinator = {.store_url = options->url,
                                              .node_id = options->node_id,
                                              .address = "127.0.0.1:7400",
                                              .config = core_config_default(),
                                              .leader_ttl_ms = options->leader_ttl_ms,
                                              .history_ttl_ms = options->history_ttl_ms,
                                              .must_lead = options->must_lead,
                                              .on_role = tell_role,
                                              .on_store = count_trouble,
                                              .on_prune = count_prune,
                                              .context = &process};
    if (options->lease_ms > 0) {
        coordinator.config.lease_ms = options->lease_ms;
        coordinator.config.worker_liveness_timeout_ms = options->lease_ms;
        coordinator.config.node_stale_ms = options->lease_ms;
        coordinator.config.node_dead_ms = 2 * options->lease_ms;
    }
    if (coordinator_start(&coordinator, &process.c, NULL) != ERR_OK) {
        _exit(2);
    }
    for (uint32_t i = 0; i < options->n_clients; i++) {
        struct client *client = &clients[i];
        *client = (struct client){.process = &process, .index = i};
        snprintf(client->worker_id, sizeof client->worker_id, "%s-w%u", options->node_id, i);
        snprintf(client->incarnation, sizeof client->incarnation, "i%u-%u", process.number, i);
        pthread_create(&threads[i], NULL, run_client, client);
    }
    serve(&process, orders, answers);
    atomic_store(&process.is_stopping, true);
    for (uint32_t i = 0; i < options->n_clients; i++) {
        pthread_join(threads[i], NULL);
    }
    coordinator_stop(process.c);
    _exit(0);
}

/* ---- the test's side ---- */

void node_start(struct node *node, struct ledger *ledger, const struct node_options *options)
{
    int orders[2], answers[2];
    CHECK(options->n_clients <= CLIENTS_MAX);
    CHECK_INT(pipe(orders), 0);
    CHECK_INT(pipe(answers), 0);
    *node = (struct node){.ledger = ledger, .number = atomic_fetch_add(&ledger->n_nodes, 1)};
    fflush(NULL);
    node->pid = fork();
    CHECK(node->pid >= 0);
    if (node->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(orders[1]);
        close(answers[0]);
        run_process(node, options, orders[0], answers[1]);
    }
    close(orders[0]);
    close(answers[1]);
    node->orders = orders[1];
    node->answers = answers[0];
}

/* The wait status. */
static int collect(struct node *node)
{
    int status = 0;
    while (waitpid(node->pid, &status, 0) < 0 && errno == EINTR) {
    }
    close(node->orders);
    close(node->answers);
    node->pid = 0;
    return status;
}

void node_kill(struct node *node)
{
    if (node->pid != 0) {
        kill(node->pid, SIGKILL);
        int status = collect(node);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* it did not end by itself */
    }
}

static void write_order(const struct node *node, const struct order *order)
{
    CHECK_INT(write(node->orders, order, sizeof *order), sizeof *order);
}

void node_stop(struct node *node)
{
    struct order order = {.kind = ORDER_STOP};
    write_order(node, &order);
    CHECK_INT(collect(node), 0);
}

void node_freeze(const struct node *node)
{
    int status = 0;
    CHECK_INT(kill(node->pid, SIGSTOP), 0);
    CHECK_INT(waitpid(node->pid, &status, WUNTRACED), node->pid);
    CHECK(WIFSTOPPED(status));
}

void node_thaw(const struct node *node)
{
    CHECK_INT(kill(node->pid, SIGCONT), 0);
}

static struct order_answer ask(const struct node *node, enum order_kind kind, const char *job_id, uint32_t n_tasks)
{
    struct order order = {.kind = kind, .n_tasks = n_tasks};
    struct order_answer answer;
    struct pollfd answers = {.fd = node->answers, .events = POLLIN};
    snprintf(order.job_id, sizeof order.job_id, "%s", job_id);
    write_order(node, &order);
    CHECK_INT(poll(&answers, 1, ANSWER_MS_MAX), 1);
    CHECK_INT(read(node->answers, &answer, sizeof answer), sizeof answer);
    return answer;
}

struct node_view node_look(const struct node *node)
{
    return ask(node, ORDER_LOOK, "", 0).view;
}

bool node_await_leading(const struct node *node, bool leads, int64_t ms)
{
    int64_t until_ms = clocks_mono_ms() + ms;
    while ((node_look(node).epoch != 0) != leads) {
        if (clocks_mono_ms() >= until_ms) {
            return false;
        }
        clocks_pause(5);
    }
    return true;
}

struct client_answer node_submit(const struct node *node, const char *job_id, uint32_t n_tasks)
{
    return ask(node, ORDER_SUBMIT, job_id, n_tasks).answer;
}

struct client_answer node_cancel(const struct node *node, const char *job_id)
{
    return ask(node, ORDER_CANCEL, job_id, 0).answer;
}

struct client_answer node_status(const struct node *node, const char *job_id)
{
    return ask(node, ORDER_STATUS, job_id, 0).answer;
}

bool node_knows(const struct node *node, const char *job_id)
{
    return ask(node, ORDER_KNOWS, job_id, 0).is_known;
}

bool node_await_knowing(const struct node *node, const char *job_id, int64_t ms)
{
    int64_t until_ms = clocks_mono_ms() + ms;
    while (!node_knows(node, job_id)) {
        if (clocks_mono_ms() >= until_ms) {
            return false;
        }
        clocks_pause(2);
    }
    return true;
}

void node_hold(const struct node *node)
{
    ask(node, ORDER_HOLD, "", 0);
}

void node_release(const struct node *node)
{
    ask(node, ORDER_RELEASE, "", 0);
}

enum err node_compare(const struct node *node)
{
    return ask(node, ORDER_COMPARE, "", 0).answer.err;
}

void node_check_equal(const struct node *node)
{
    struct order_answer answer = ask(node, ORDER_COMPARE, "", 0);
    if (answer.answer.err != ERR_OK) {
        print_error("memory and store differ: %s\n", answer.difference.text);
    }
    CHECK_ERR(answer.answer.err, ERR_OK);
}

bool node_work(const struct node *node)
{
    return ask(node, ORDER_WORK, "", 0).has_worked;
}

void node_send(const struct node *node, const char *job_id, uint32_t n_tasks)
{
    ask(node, ORDER_SEND, job_id, n_tasks);
}

void node_send_poll(const struct node *node, const char *label)
{
    ask(node, ORDER_SEND_POLL, label, 0);
}

/* ---- several ---- */

struct node *node_await_one(struct node *nodes, uint32_t n, int64_t ms)
{
    int64_t until_ms = clocks_mono_ms() + ms;
    for (;;) {
        struct node *leader = NULL;
        uint32_t n_leaders = 0;
        for (uint32_t i = 0; i < n; i++) {
            if (nodes[i].pid != 0 && node_look(&nodes[i]).epoch != 0) {
                leader = &nodes[i];
                n_leaders++;
            }
        }
        if (n_leaders > 0 || clocks_mono_ms() >= until_ms) {
            return n_leaders == 1 ? leader : NULL;
        }
        clocks_pause(5);
    }
}
