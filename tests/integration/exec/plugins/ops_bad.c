/*
 * ops_bad.c - a plug-in with a good operator, and then one that must be refused, for the reason that the environment says.
 */
#include <capstan/operator.h>

#include <stdlib.h>
#include <string.h>

static void *create_never(const char *config_json, const struct ArrowSchema *input, struct ArrowSchema *output,
                          const struct capstan_operator_host *host, struct capstan_operator_run *run)
{
    (void)config_json;
    (void)input;
    (void)output;
    (void)host;
    (void)run;
    return NULL;
}

static void process_never(void *instance, struct ArrowArray *rows, const struct capstan_operator_host *host,
                          struct capstan_operator_run *run)
{
    (void)instance;
    (void)rows;
    (void)host;
    (void)run;
}

const struct capstan_operator *const *capstan_operators_v1(void)
{
    static const struct capstan_operator good = {.size = sizeof(good),
                                                 .abi = CAPSTAN_OPERATOR_ABI,
                                                 .name = "good",
                                                 .create = create_never,
                                                 .process = process_never};
    static struct capstan_operator bad;
    static const struct capstan_operator *all[] = {&good, &bad, NULL};
    const char *reason = getenv("TEST_OPS_BAD");
    bad = good;
    bad.name = "bad";
    all[0] = &good;
    if (reason == NULL || strcmp(reason, "empty") == 0) {
        all[0] = NULL;
    } else if (strcmp(reason, "null") == 0) {
        return NULL;
    } else if (strcmp(reason, "newer") == 0) {
        bad.abi = CAPSTAN_OPERATOR_ABI + 1;
        bad.size += 64;
    } else if (strcmp(reason, "small") == 0) {
        bad.size -= 8;
    } else if (strcmp(reason, "misnamed") == 0) {
        bad.name = "no name";
    } else if (strcmp(reason, "nameless") == 0) {
        bad.name = NULL;
    } else if (strcmp(reason, "create") == 0) {
        bad.create = NULL;
    } else if (strcmp(reason, "process") == 0) {
        bad.process = NULL;
    } else if (strcmp(reason, "twins") == 0) {
        bad.name = "good";
    }
    return all;
}
