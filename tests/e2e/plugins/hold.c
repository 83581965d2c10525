/*
 * hold.c - an operator that lets a test say when a task goes on.
 *
 * {"folder":"/x"}: the first column, an INTEGER, says who a task is, usually {{task}}. When the first rows of task 3 come, a
 * line with the process id is added to /x/at-3, and all rows wait until /x/go-3 or /x/go is there. Rows pass unchanged.
 */
#include <capstan/operator.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FOLDER_BYTES_MAX = 900, PATH_BYTES = 1000 };

struct hold {
    bool has_passed;
    char folder[FOLDER_BYTES_MAX];
};

static void fail(const struct capstan_operator_host *host, struct capstan_operator_run *run, const char *message)
{
    host->set_error(run, CAPSTAN_NO_RETRY, message, strlen(message));
}

static void *create(const char *config_json, const struct ArrowSchema *input, struct ArrowSchema *output,
                    const struct capstan_operator_host *host, struct capstan_operator_run *run)
{
    (void)output;
    static const char key[] = "\"folder\":\"";
    const char *at = strstr(config_json, key);
    const char *end = at == NULL ? NULL : strchr(at + sizeof(key) - 1, '"');
    if (end == NULL || end - at >= FOLDER_BYTES_MAX) {
        fail(host, run, "hold: the configuration has no \"folder\"");
        return NULL;
    }
    if (input->n_children < 1 || strcmp(input->children[0]->format, "i") != 0) {
        fail(host, run, "hold: the first column must be an INTEGER");
        return NULL;
    }
    struct hold *hold = calloc(1, sizeof(*hold));
    if (hold == NULL) {
        fail(host, run, "hold: no memory");
        return NULL;
    }
    at += sizeof(key) - 1;
    memcpy(hold->folder, at, (size_t)(end - at));
    return hold;
}

static bool is_released(const struct hold *hold, int32_t who)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof(path), "%s/go", hold->folder);
    if (access(path, F_OK) == 0) {
        return true;
    }
    (void)snprintf(path, sizeof(path), "%s/go-%d", hold->folder, (int)who);
    return access(path, F_OK) == 0;
}

static void wait_for_release(const struct hold *hold, int32_t who, const struct capstan_operator_host *host,
                             struct capstan_operator_run *run)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof(path), "%s/at-%d", hold->folder, (int)who);
    FILE *file = fopen(path, "a");
    if (file == NULL) {
        fail(host, run, "hold: the folder cannot be written");
        return;
    }
    (void)fprintf(file, "%ld\n", (long)getpid());
    (void)fclose(file);
    struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};
    while (!is_released(hold, who) && host->is_stopped(run) == 0) {
        (void)nanosleep(&pause, NULL);
    }
}

static void process(void *instance, struct ArrowArray *rows, const struct capstan_operator_host *host,
                    struct capstan_operator_run *run)
{
    struct hold *hold = instance;
    if (!hold->has_passed) {
        hold->has_passed = true;
        const struct ArrowArray *first = rows->children[0];
        const int32_t *values = first->buffers[1];
        wait_for_release(hold, values[first->offset + rows->offset], host, run);
    }
    host->emit(run, rows);
}

static const struct capstan_operator hold = {.size = sizeof(hold),
                                             .abi = CAPSTAN_OPERATOR_ABI,
                                             .name = "hold",
                                             .create = create,
                                             .process = process,
                                             .destroy = free};

const struct capstan_operator *const *capstan_operators_v1(void)
{
    static const struct capstan_operator *const all[] = {&hold, NULL};
    return all;
}
