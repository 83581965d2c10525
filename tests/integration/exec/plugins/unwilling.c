/*
 * unwilling.c - a plug-in that cannot be used here, and says why.
 */
#include <capstan/executor.h>

static const char *open_never(void **context)
{
    (void)context;
    return "there is no device";
}

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
    static const struct capstan_executor executor = {.size = sizeof(executor),
                                                     .abi = CAPSTAN_EXECUTOR_ABI,
                                                     .name = "unwilling",
                                                     .open = open_never,
                                                     .run = run_never};
    return &executor;
}
