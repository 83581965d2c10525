/*
 * misnamed.c - a plug-in whose name nobody could ask for.
 */
#include <capstan/executor.h>

const struct capstan_executor *capstan_executor_v1(void)
{
    static const struct capstan_executor executor = {
        .size = sizeof(executor), .abi = CAPSTAN_EXECUTOR_ABI, .name = "no name"};
    return &executor;
}
