#include "main/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/version.h"
#include "client/job.h"

#define WAIT_MS 30000
#define CHILDREN_MAX 128

/* ---- the cluster ---- */

/* The workers of the cluster and their slots together, as it tells them. */
static void count_workers(struct bench *bench)
{
    struct client *client = NULL;
    struct arena arena = {0};
    struct pb_list_nodes_response *nodes = NULL;
    struct client_call call = {.path = "/capstan.v1.Cluster/ListNodes",
                               .message = wire_new(PB_LIST_NODES_REQUEST, &arena),
                               .answer = PB_LIST_NODES_RESPONSE};
    if (client_open(&bench->client, &client, NULL) == ERR_OK &&
        client_call(client, &call, &arena, &nodes, NULL) == ERR_OK) {
        for (size_t i = 0; i < nodes->n_nodes; i++) {
            bool is_live = strcmp(nodes->nodes[i]->status, "healthy") == 0;
            bench->workers += is_live ? 1 : 0;
            bench->slots += is_live ? nodes->nodes[i]->slots : 0;
        }
    }
    client_close(client);
    arena_deinit(&arena);
}

enum err bench_start(struct bench *bench, const struct bench_shape *shape, struct error *e)
{
    struct cli *cli = bench->cli;
    uint32_t n = 0;
    const char *const *given = cli_list(cli, "set", &n);
    enum err err = ERR_OK;
    bench->is_private = !cli_is_given(cli, "server");
    if (!bench->is_private) {
        err = cli_client_options(cli, &bench->client, e);
    } else {
        for (uint32_t i = 0; i < shape->n_settings && bench->n_settings < BENCH_SETTINGS_MAX; i++) {
            bench->settings[bench->n_settings++] = shape->settings[i];
        }
        for (uint32_t i = 0; i < n && bench->n_settings < BENCH_SETTINGS_MAX; i++) {
            bench->settings[bench->n_settings++] = given[i];
        }
        struct private_options options = {.workers = shape->workers,
                                          .slots = shape->slots,
                                          .store = cli_text(cli, "store"),
                                          .has_metrics = shape->has_metrics,
                                          .has_tls = cli_flag(cli, "tls"),
                                          .is_open = cli_flag(cli, "no-auth"),
                                          .shuffle_compression = cli_text(cli, "shuffle-compression"),
                                          .settings = bench->settings,
                                          .n_settings = bench->n_settings};
        err = private_start(&cli->arena, &options, &bench->cluster, e);
        bench->client = (struct client_options){.servers = bench->cluster.address,
                                                .token = bench->cluster.token,
                                                .tls = options.has_tls,
                                                .tls_ca_pem = bench->cluster.certificate.cert_pem,
                                                .patience_ms = cli_number(cli, "timeout")};
    }
    if (err == ERR_OK) {
        count_workers(bench);
    }
    return err;
}

void bench_stop(struct bench *bench)
{
    private_stop(&bench->cluster);
}

void bench_end(struct bench *bench)
{
    bench_stop(bench);
    if (cli_flag(bench->cli, "keep") && bench->cluster.folder != NULL) {
        fprintf(bench->cli->err, "kept: %s\n", bench->cluster.folder);
    } else {
        private_remove(&bench->cluster);
    }
}

enum err bench_await(const struct bench *bench, struct client *client, const char *job_id, struct error *e)
{
    struct arena arena = {0};
    enum err err = ERR_OK;
    for (;;) {
        struct pb_get_query_status_request *request = wire_new(PB_GET_QUERY_STATUS_REQUEST, &arena);
        struct pb_get_query_status_response *response = NULL;
        request->query_id = (char *)job_id;
        request->wait_ms = WAIT_MS;
        struct client_call call = {.path = "/capstan.v1.ControlPlane/GetQueryStatus",
                                   .message = request,
                                   .answer = PB_GET_QUERY_STATUS_RESPONSE,
                                   .wait_ms = WAIT_MS,
                                   .cancel = interrupt_cancel(bench->interrupt)};
        err = client_call(client, &call, &arena, &response, e);
        if (err != ERR_OK || response->status == NULL || query_state_is_terminal(response->status->state)) {
            if (err == ERR_OK && (response->status == NULL ||
                                  response->status->state != CAPSTAN__V1__QUERY_STATE__QUERY_STATE_SUCCEEDED)) {
                err = error_set(e, ERR_INTERNAL, "job %s did not succeed: %s", job_id,
                                response->status == NULL ? "" : response->status->message);
            }
            break;
        }
        arena_reset(&arena);
    }
    arena_deinit(&arena);
    return err;
}

/* ---- figures ---- */

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

double bench_percentile_ms(int64_t *us, size_t n, double part)
{
    qsort(us, n, sizeof *us, by_size);
    size_t i = (size_t)(part * (double)n);
    return (double)us[i < n ? i : n - 1] / 1000;
}

double bench_median_ms(int64_t *us, size_t n)
{
    return bench_percentile_ms(us, n, 0.5);
}

/* ---- conditions ---- */

const char *bench_store_kind(const struct bench *bench)
{
    if (!bench->is_private) {
        return "unknown";
    }
    return strncmp(bench->cluster.store, "sqlite:", 7) == 0 ? "sqlite" : "postgres";
}

double bench_load(void)
{
    double load = -1;
    char text[64] = "";
    FILE *file = fopen("/proc/loadavg", "re");
    if (file != NULL) {
        if (fgets(text, sizeof text, file) != NULL) {
            load = strtod(text, NULL);
        }
        (void)fclose(file);
    }
    return load;
}

/* The first line of a file in /proc, two NULs behind it; "" if there is none. */
static void read_proc(char *out, size_t size, const char *name, int pid)
{
    char path[64];
    memset(out, 0, size);
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        out[0] = fgets(out, (int)size - 1, file) != NULL ? out[0] : '\0';
        (void)fclose(file);
    }
}

/* Of this process alone. */
static double process_cpu_ms(int pid)
{
    char text[1024];
    double ticks = 0;
    read_proc(text, sizeof text, "stat", pid);
    char *p = strrchr(text, ')'); /* the name before it may have anything in it */
    for (int field = 3; p != NULL && field <= 15; field++) {
        p = strchr(p + 1, ' ');
        ticks += p != NULL && field >= 14 ? strtod(p, NULL) : 0; /* 14 in user space, 15 in the kernel */
    }
    return ticks * 1000 / (double)sysconf(_SC_CLK_TCK);
}

/* The processes that this one has started and that live; how many there are. */
static uint32_t find_children(int pid, int *out, uint32_t max)
{
    char name[64];
    char text[1024];
    uint32_t n = 0;
    snprintf(name, sizeof name, "task/%d/children", pid);
    read_proc(text, sizeof text, name, pid);
    for (char *p = text, *end = NULL; n < max; p = end) {
        long child = strtol(p, &end, 10);
        if (end == p) {
            break;
        }
        out[n++] = (int)child;
    }
    return n;
}

/* Of the process and of those below it: a cluster is `up` and its members. */
static double tree_cpu_ms(int pid, int depth)
{
    int children[CHILDREN_MAX];
    double ms = process_cpu_ms(pid);
    uint32_t n = depth > 0 ? find_children(pid, children, CHILDREN_MAX) : 0;
    for (uint32_t i = 0; i < n; i++) {
        ms += tree_cpu_ms(children[i], depth - 1);
    }
    return ms;
}

double bench_cluster_cpu_ms(const struct bench *bench)
{
    return bench->cluster.up.pid > 0 ? tree_cpu_ms((int)bench->cluster.up.pid, 2) : 0;
}

struct bench_cpu bench_cpu(const struct bench *bench)
{
    struct bench_cpu cpu = {.client_ms = bench_own_cpu_ms()};
    int members[CHILDREN_MAX];
    uint32_t n = bench->cluster.up.pid > 0 ? find_children((int)bench->cluster.up.pid, members, CHILDREN_MAX) : 0;
    for (uint32_t i = 0; i < n; i++) {
        char command[1024] = "";
        read_proc(command, sizeof command, "cmdline", members[i]);
        bool is_coordinator = strcmp(command + strlen(command) + 1, "coordinator") == 0; /* NUL ends each argument */
        *(is_coordinator ? &cpu.coordinator_ms : &cpu.workers_ms) += tree_cpu_ms(members[i], 1);
    }
    return cpu;
}

double bench_own_cpu_ms(void)
{
    struct timespec time = {0};
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0 ? (double)time.tv_sec * 1000 + (double)time.tv_nsec / 1e6
                                                               : 0;
}

void bench_write_conditions_json(const struct bench *bench, struct buf *out)
{
    buf_format(out, "\"store\":\"%s\",\"workers\":%u,\"slots\":%u,\"cores\":%ld", bench_store_kind(bench),
               bench->workers, bench->slots, sysconf(_SC_NPROCESSORS_ONLN));
    buf_format(out, ",\"tls\":%s,\"version\":\"%s\",\"private\":%s,\"limits\":", bench->client.tls ? "true" : "false",
               CAPSTAN_VERSION, bench->is_private ? "true" : "false");
    if (!bench->is_private) {
        buf_text(out, "null");
        return;
    }
    buf_char(out, '{');
    for (uint32_t i = 0; i < bench->n_settings; i++) {
        size_t n = strcspn(bench->settings[i], "=");
        buf_text(out, i > 0 ? "," : "");
        json_write_bytes(out, bench->settings[i], n);
        buf_format(out, ":%s", bench->settings[i] + n + 1);
    }
    buf_char(out, '}');
}

void bench_write_conditions(const struct bench *bench, struct buf *out)
{
    buf_format(out, "  store         %s\n  workers       %u with %u slots together\n  cores         %ld",
               bench_store_kind(bench), bench->workers, bench->slots, sysconf(_SC_NPROCESSORS_ONLN));
    buf_text(out, bench->is_private ? ", for the coordinator, the store, the workers and the clients together\n"
                                    : " where the clients run\n");
    bool is_open = bench->is_private && bench->client.token == NULL;
    if (bench->client.tls || is_open) {
        buf_format(out, "  connections   with%s TLS and with%s a token\n", bench->client.tls ? "" : "out",
                   is_open ? "out" : "");
    }
    for (uint32_t i = 0; i < bench->n_settings && bench->is_private; i++) {
        buf_format(out, "  %-13s %s\n", i == 0 ? "settings" : "", bench->settings[i]);
    }
}

void bench_print(const struct bench *bench, const struct buf *text)
{
    fwrite(text->data, 1, text->n, bench->cli->out);
    fflush(bench->cli->out);
}
