/*
 * probe.c - a plug-in that does what its inputs say, for the tests: {"do":"..."}.
 */
#include <capstan/executor.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool is_asked(const struct capstan_task *task, const char *what)
{
    return strstr(task->inputs, what) != NULL;
}

/* Hears nothing for a while, as a plug-in does that calls some slow library. */
static void be_deaf(void)
{
    struct timespec pause = {.tv_sec = 0, .tv_nsec = 300 * 1000 * 1000};
    nanosleep(&pause, NULL);
}

static void answer_with_all(void *context, const struct capstan_task *task, const struct capstan_host *host,
                            struct capstan_run *run)
{
    char text[1024];
    int n = snprintf(text, sizeof(text),
                     "{\"job\":\"%s\",\"name\":\"%s\",\"attempt\":%u,\"stage\":%u,\"task\":%u,\"key\":\"%s\","
                     "\"task_key\":\"%s\",\"timeout_ms\":%u,\"n_inputs\":%u,\"context\":%d,\"sizes\":%d}",
                     task->job_id, task->name, (unsigned)task->attempt, (unsigned)task->stage, (unsigned)task->task,
                     task->idempotency_key, task->task_key, (unsigned)task->timeout_ms, (unsigned)task->n_inputs,
                     *(int *)context, task->size == sizeof(*task) && host->size == sizeof(*host));
    host->set_result(run, text, (size_t)n);
}

static void answer_with_much(const struct capstan_host *host, struct capstan_run *run)
{
    size_t n = (size_t)2 * 1024 * 1024;
    char *text = malloc(n);
    if (text != NULL) {
        memset(text, 'x', n);
        text[0] = '"';
        text[n - 1] = '"';
        host->set_result(run, text, n);
    }
    free(text);
}

static void run_probe(void *context, const struct capstan_task *task, const struct capstan_host *host,
                      struct capstan_run *run)
{
    if (is_asked(task, "tell")) {
        answer_with_all(context, task, host, run);
    } else if (is_asked(task, "obey")) {
        while (host->wait(run, 60000) == 0) {
        }
        host->set_error(run, CAPSTAN_NO_RETRY, "obeyed", 6);
    } else if (is_asked(task, "deaf")) {
        be_deaf();
        host->set_result(run, "1", 1);
    } else if (is_asked(task, "nonsense")) {
        host->set_result(run, "{1}", 3);
    } else if (is_asked(task, "much")) {
        answer_with_much(host, run);
    } else if (is_asked(task, "fail for good")) {
        host->set_result(run, "1", 1);
        host->set_error(run, CAPSTAN_NO_RETRY, "for good\xff", 9);
    } else if (is_asked(task, "fail")) {
        host->set_error(run, CAPSTAN_RETRY, "for now", 7);
    } else if (is_asked(task, "progress")) {
        host->set_progress(run, 0.25, 1, 10);
        host->set_progress(run, 7, 4, 40);
    }
}

static const char *open_probe(void **context)
{
    int *number = malloc(sizeof(*number));
    if (number == NULL) {
        return "out of memory";
    }
    *number = 4711;
    *context = number;
    return NULL;
}

static void close_probe(void *context)
{
    free(context); /* the leak sanitizer sees whether this was called */
}

const struct capstan_executor *capstan_executor_v1(void)
{
    static const struct capstan_executor executor = {.size = sizeof(executor),
                                                     .abi = CAPSTAN_EXECUTOR_ABI,
                                                     .name = "probe",
                                                     .open = open_probe,
                                                     .run = run_probe,
                                                     .close = close_probe};
    return &executor;
}
