#include "integration/worker/hands.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#define BIG_BYTES (1024 * 1024 - 100)

static struct hands *hands_of(struct executor *executor, size_t index)
{
    return CONTAINER_OF(executor, struct hands, executors[index]);
}

static void count(struct hands *hands, const struct exec_task *task)
{
    if (task->task < HANDS_TASKS_MAX) {
        atomic_fetch_add(&hands->runs[task->task], 1);
    }
}

static void run_noop(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                     struct exec_outcome *out)
{
    (void)stop;
    count(hands_of(executor, 0), task);
    out->is_success = true;
}

static void run_block(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                      struct exec_outcome *out)
{
    struct hands *hands = hands_of(executor, 1);
    count(hands, task);
    atomic_fetch_add(&hands->running, 1);
    while (atomic_load(&hands->gate) == 0 && !exec_stop_wait(stop, 2)) {
    }
    atomic_fetch_sub(&hands->running, 1);
    if (exec_stop_reason(stop) != STOP_NONE) {
        atomic_store(&hands->reasons[task->task % 64], (int)exec_stop_reason(stop));
        exec_fail(out, false, "stopped");
        return;
    }
    out->is_success = true;
    buf_text(&out->result, "{\"ok\":true}");
}

static void run_stubborn(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                         struct exec_outcome *out)
{
    struct hands *hands = hands_of(executor, 2);
    (void)stop;
    count(hands, task);
    atomic_fetch_add(&hands->running, 1);
    while (atomic_load(&hands->gate) == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    atomic_fetch_sub(&hands->running, 1);
    out->is_success = true;
}

static void run_big(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                    struct exec_outcome *out)
{
    (void)stop;
    count(hands_of(executor, 3), task);
    char *text = mem_alloc(BIG_BYTES);
    memset(text, 'x', BIG_BYTES);
    buf_char(&out->result, '"');
    buf_append(&out->result, text, BIG_BYTES);
    buf_char(&out->result, '"');
    mem_free(text);
    out->is_success = true;
}

static void run_fail(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                     struct exec_outcome *out)
{
    (void)stop;
    count(hands_of(executor, 4), task);
    exec_fail(out, false, "it failed");
}

static void run_poison(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                       struct exec_outcome *out)
{
    (void)stop;
    count(hands_of(executor, 5), task);
    exec_fail(out, false, "poison");
}

struct hands *hands_new(void)
{
    struct hands *hands = mem_calloc(1, sizeof *hands);
    struct executor executors[] = {{.name = "noop", .run = run_noop},         {.name = "block", .run = run_block},
                                   {.name = "stubborn", .run = run_stubborn}, {.name = "big", .run = run_big},
                                   {.name = "fail", .run = run_fail},         {.name = "poison", .run = run_poison}};
    struct error e = {0};
    hands->runs = mem_calloc(HANDS_TASKS_MAX, sizeof *hands->runs);
    hands->set = executor_set_new();
    for (size_t i = 0; i < ARRAY_LEN(executors); i++) {
        hands->executors[i] = executors[i];
        CHECK_ERR(executor_set_add(hands->set, &hands->executors[i], &e), ERR_OK);
    }
    return hands;
}

void hands_free(struct hands *hands)
{
    executor_set_free(hands->set);
    mem_free(hands->runs);
    mem_free(hands);
}

/* Looks every millisecond, since an executor has no way to tell. */
static bool wait_for(atomic_int *value, int wanted)
{
    int64_t until_ms = clock_mono_ms() + SCRIPT_PATIENCE_MS;
    while (atomic_load(value) != wanted && clock_mono_ms() < until_ms) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return atomic_load(value) == wanted;
}

bool hands_wait_running(struct hands *hands, int n)
{
    return wait_for(&hands->running, n);
}

bool hands_wait_reason(struct hands *hands, uint32_t task, enum stop_reason reason)
{
    return wait_for(&hands->reasons[task % 64], (int)reason);
}

void stage_start(struct stage *stage, struct worker_options options)
{
    stage->join[0] = stage->script->address;
    options.join = options.join == NULL ? stage->join : options.join;
    options.n_join = options.n_join == 0 ? 1 : options.n_join;
    options.worker_id = options.worker_id == NULL ? "w1" : options.worker_id;
    options.slots = options.slots == 0 ? 4 : options.slots;
    options.executors = stage->hands->set;
    options.version = "test";
    CHECK_ERR(worker_start(&options, &stage->worker, &stage->e), ERR_OK);
}

struct stage stage_set(uint32_t slots)
{
    log_setup(LOG_NONE, false);
    struct stage stage = {.script = script_start(NULL), .hands = hands_new()};
    if (slots > 0) {
        stage_start(&stage, (struct worker_options){.slots = slots});
        CHECK(script_wait(stage.script, has_open_poll, slots < 1000 ? slots : 1000));
    }
    return stage;
}

void stage_clear(struct stage *stage)
{
    atomic_store(&stage->hands->gate, 1);
    worker_close(stage->worker);
    script_stop(stage->script);
    hands_free(stage->hands);
}
