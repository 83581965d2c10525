/*
 * newer.c - a plug-in of a version that no worker knows yet.
 */
#include <capstan/executor.h>

#include <stddef.h>

static void run_never(void *context, const struct capstan_task *task, const struct capstan_host *host,
                      struct capstan_run *run)
{
    (void)context;
    (void)task;
    (void)host;
    (void)run;
}

const struct capstan_executor *capstan_executor_v1(void)
{
    static const struct capstan_executor executor = {
        .size = sizeof(executor) + 64, .abi = CAPSTAN_EXECUTOR_ABI + 1, .name = "newer", .run = run_never};
    return &executor;
}
