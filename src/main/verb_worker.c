/*
 * verb_worker.c - a worker process: its identity, its executors, what it says it can do, and how it ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/num.h"
#include "base/random.h"
#include "cli/client.h"
#include "cli/value.h"
#include "cli/version.h"
#include "http/http.h"
#include "main/keys.h"
#include "main/verbs.h"
#include "main/worker_http.h"
#include "main/worker_parts.h"
#include "worker/worker.h"

#define JOIN_MAX 64
#define ID_FILE "worker-id"
#define LOOK_MS 200

/* ---- identity ---- */

/* Letters that an id may not have, which a host name can, become dashes. */
static void clean_id(char *id)
{
    static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    for (char *p = id; *p != '\0'; p++) {
        *p = strchr(good, *p) != NULL ? *p : '-';
    }
}

static const char *make_id(struct cli *cli)
{
    char host[60] = "";
    char suffix[7];
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') {
        snprintf(host, sizeof host, "worker");
    }
    random_hex(suffix, sizeof suffix - 1);
    clean_id(host);
    return arena_format(&cli->arena, "%s-%s", host, suffix);
}

static enum err write_id(const char *path, const char *id, struct error *e)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    size_t n = strlen(id);
    bool written = fd >= 0 && write(fd, id, n) == (ssize_t)n && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    return written ? ERR_OK : error_set(e, ERR_INVALID, "cannot write %s: %s", path, strerror(error));
}

/* The name stays the same over restarts: it lies in the data folder, where the first start has put it. */
static enum err find_id(struct cli *cli, const char **out, struct error *e)
{
    const char *path = arena_format(&cli->arena, "%s/" ID_FILE, cli_text(cli, "data"));
    const char *text = NULL;
    size_t n = 0;
    if (cli_text(cli, "id") != NULL) {
        *out = cli_text(cli, "id");
        return ERR_OK;
    }
    if (access(path, F_OK) != 0) {
        text = make_id(cli);
        *out = text;
        return write_id(path, text, e);
    }
    enum err err = cli_read_file(cli, path, LIMIT_WORKER_ID_BYTES + 2, &text, &n, e);
    if (err != ERR_OK) {
        return err;
    }
    char *id = arena_strdup(&cli->arena, text);
    id[strcspn(id, "\r\n")] = '\0';
    if (id[0] == '\0') {
        error_set(e, ERR_INVALID, "%s is empty", path);
        error_hint(e, "remove it, or name the worker with --id");
        return ERR_INVALID;
    }
    *out = id;
    return ERR_OK;
}

/* ---- what it can do ---- */

static bool has_capability(struct cli *cli, const char *name)
{
    uint32_t n = 0;
    const char *const *pairs = cli_list(cli, "capability", &n);
    size_t name_n = strlen(name);
    for (uint32_t i = 0; i < n; i++) {
        if (strncmp(pairs[i], name, name_n) == 0 && pairs[i][name_n] == '=') {
            return true;
        }
    }
    return false;
}

static void write_labels(struct cli *cli, struct buf *out)
{
    uint32_t n = 0;
    const char *const *labels = cli_list(cli, "label", &n);
    if (n == 0) {
        return;
    }
    buf_text(out, ",\"labels\":[");
    for (uint32_t i = 0; i < n; i++) {
        buf_text(out, i > 0 ? "," : "");
        json_write_text(out, labels[i]);
    }
    buf_char(out, ']');
}

/*
 * {"cpu_cores": 8, "engine": "duckdb-...", "gpu": "nvidia", "labels": ["ml"]}: a value that is a number is one, any other a
 * text.
 */
static enum err make_capabilities(struct cli *cli, const char *engine, const char **out, struct error *e)
{
    uint32_t n = 0;
    const char *const *pairs = cli_list(cli, "capability", &n);
    struct buf json = {0};
    struct json *checked = NULL;
    double number = 0;
    buf_char(&json, '{');
    if (!has_capability(cli, "cpu_cores")) {
        buf_format(&json, "\"cpu_cores\":%ld", sysconf(_SC_NPROCESSORS_ONLN));
    }
    if (cli_is_given(cli, "memory")) {
        buf_format(&json, "%s\"memory_bytes\":%lld", json.n > 1 ? "," : "", (long long)cli_number(cli, "memory"));
    }
    if (engine != NULL) {
        buf_text(&json, json.n > 1 ? ",\"engine\":" : "\"engine\":");
        json_write_text(&json, engine);
    }
    for (uint32_t i = 0; i < n; i++) {
        size_t name_n = strcspn(pairs[i], "=");
        const char *value = pairs[i] + name_n + 1;
        buf_text(&json, json.n > 1 ? "," : "");
        json_write_bytes(&json, pairs[i], name_n);
        buf_char(&json, ':');
        if (num_parse(value, &number)) {
            buf_text(&json, value);
        } else {
            json_write_text(&json, value);
        }
    }
    write_labels(cli, &json);
    buf_char(&json, '}');
    enum err err = json_parse(json.data, json.n, &checked, e); /* finds names that are given twice */
    if (err == ERR_OK) {
        *out = arena_strdup(&cli->arena, json.data);
    } else {
        error_set(e, err, "the capabilities make no sense: %s", e->message);
        error_hint(e, "each --capability needs a name of its own; 'labels' come from --label, 'engine' from DuckDB");
    }
    json_free(checked);
    buf_deinit(&json);
    return err;
}

/* ---- the way to the end ---- */

struct ending {
    struct worker *worker;
    struct keys *keys;
    sigset_t signals;
};

static enum err listen_with(void *worker, const struct service_tls *tls, struct error *e)
{
    return worker_reload_tls(worker, tls->cert_pem, tls->key_pem, tls->client_ca_pem, e);
}

/*
 * The first signal drains, the second stops, the third does not wait any longer. SIGUSR1 is sent by wait_for_end. In between
 * it looks after the certificates.
 */
static void *take_signals(void *context)
{
    struct ending *ending = context;
    int count = 0;
    for (;;) {
        int number = sigtimedwait(&ending->signals, NULL, &(struct timespec){.tv_nsec = LOOK_MS * 1000000L});
        if (number < 0) {
            (void)keys_look(ending->keys, listen_with, ending->worker);
            continue;
        }
        if (number == SIGUSR1) {
            return NULL;
        }
        count++;
        if (count == 1) {
            worker_drain(ending->worker);
        } else if (count == 2) {
            worker_stop_now(ending->worker);
        } else {
            _exit(EXIT_JOB_FAILED);
        }
    }
}

static int wait_for_end(struct worker *worker, struct keys *keys, const sigset_t *signals, struct http_server *http)
{
    struct ending ending = {.worker = worker, .keys = keys, .signals = *signals};
    struct worker_stats stats;
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, take_signals, &ending);
    ASSERT(failed == 0);
    int code = worker_wait(worker);
    pthread_kill(thread, SIGUSR1);
    pthread_join(thread, NULL);
    http_server_close(http);
    worker_stats(worker, &stats);
    if (stats.busy > 0) {
        fflush(NULL);
        _exit(code); /* an executor that does not stop would keep us here */
    }
    worker_close(worker);
    return code;
}

static enum err fill_join(struct cli *cli, struct worker_options *out, struct error *e)
{
    const char **join = arena_alloc(&cli->arena, JOIN_MAX * sizeof *join);
    char address[VALUE_ADDRESS_BYTES];
    for (uint32_t i = 0; value_list_at(cli_text(cli, "join"), i, address, sizeof address); i++) {
        if (i == JOIN_MAX) {
            return error_set(e, ERR_INVALID, "too many coordinators to join: at most %d", JOIN_MAX);
        }
        join[out->n_join++] = arena_strdup(&cli->arena, address);
    }
    out->join = join;
    return ERR_OK;
}

/* What a worker keeps is for those who are of the cluster. */
static enum err check_readers(struct cli *cli, const struct worker_options *options, struct error *e)
{
    if (options->token != NULL || options->listen_client_ca_pem != NULL || cli_flag(cli, "insecure") ||
        address_is_loopback(options->listen)) {
        return ERR_OK;
    }
    error_set(e, ERR_INVALID, "refusing to listen on %s without a token: whoever reaches it could fetch data",
              options->listen);
    error_hint(e, "set CAPSTAN_TOKEN to the workers' token, or give --token-file or --tls-client-ca, or --insecure");
    return ERR_INVALID;
}

static enum err fill_credentials(struct cli *cli, struct keys *keys, struct worker_options *out, struct error *e)
{
    enum err err = cli_token(cli, &out->token, e);
    if (err == ERR_OK) {
        err = keys_open(cli, keys, e);
    }
    struct service_tls tls = keys_tls(keys);
    out->identity = keys->identity;
    out->listen_cert_pem = tls.cert_pem;
    out->listen_key_pem = tls.key_pem;
    out->listen_client_ca_pem = tls.client_ca_pem;
    return err == ERR_OK ? check_readers(cli, out, e) : err;
}

static void fill_parts(struct cli *cli, struct worker_options *out, const struct worker_parts *parts)
{
    uint32_t n = operators_count(parts->operators);
    const char **ops = arena_alloc(&cli->arena, n * sizeof *ops);
    for (uint32_t i = 0; i < n; i++) {
        ops[i] = operators_name(parts->operators, i);
    }
    out->ops = ops;
    out->n_ops = n;
    out->executors = parts->executors;
    out->store = parts->store;
}

/* What can be wrong with the command line alone comes first, before the data folder is made. */
static enum err prepare(struct cli *cli, struct keys *keys, struct worker_options *out, struct worker_parts *parts,
                        struct error *e)
{
    int64_t slots = cli_number(cli, "slots");
    out->slots = (uint32_t)(slots > 0 ? slots : sysconf(_SC_NPROCESSORS_ONLN));
    out->listen = cli_text(cli, "listen");
    out->advertise = cli_text(cli, "advertise");
    out->version = CAPSTAN_VERSION;
    enum err err = fill_join(cli, out, e);
    if (err == ERR_OK) {
        err = fill_credentials(cli, keys, out, e);
    }
    if (err == ERR_OK) {
        err = worker_parts_prepare(cli, parts, e);
    }
    if (err == ERR_OK) {
        err = make_capabilities(cli, parts->engine, &out->capabilities_json, e);
    }
    if (err == ERR_OK) {
        err = worker_parts_take_folder(cli, parts, e);
    }
    if (err == ERR_OK) {
        err = find_id(cli, &out->worker_id, e);
    }
    if (err == ERR_OK) {
        /* Workers are alike: the others listen as this one does, with TLS if there is a certificate for it. */
        struct worker_role role = {
            .worker_id = out->worker_id,
            .slots = out->slots,
            .to_workers = {.token = out->token, .tls = out->listen_cert_pem != NULL, .identity = out->identity}};
        err = worker_parts_open(cli, &role, parts, e);
    }
    if (err == ERR_OK) {
        fill_parts(cli, out, parts);
    }
    return err;
}

/* Serves until the worker has ended. A worker that could not open its HTTP address does not begin. */
static int run(struct cli *cli, struct worker *worker, struct worker_parts *parts, struct keys *keys,
               const sigset_t *signals)
{
    struct http_server *http = NULL;
    struct error e = {0};
    const char *listen = cli_text(cli, "http");
    struct worker_http context = {.worker = worker, .parts = parts, .folder = cli_text(cli, "data")};
    if (listen != NULL && worker_http_open(&context, listen, &http, &e) != ERR_OK) {
        worker_stop_now(worker);
        (void)wait_for_end(worker, keys, signals, NULL);
        return cli_fail(cli, &e);
    }
    if (http != NULL) {
        log_info("http", "health and metrics on http://%s", http_server_address(http));
    }
    return wait_for_end(worker, keys, signals, http);
}

int verb_worker(struct cli *cli)
{
    struct worker_options options = {0};
    struct worker_parts parts = {0};
    struct keys keys = {0};
    struct worker *worker = NULL;
    struct error e = {0};
    sigset_t signals;
    int code = EXIT_DONE;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (prepare(cli, &keys, &options, &parts, &e) == ERR_OK && worker_start(&options, &worker, &e) == ERR_OK) {
        log_info("start", "worker %s with %u slots, executors: %u, operators: %u, data in %s", options.worker_id,
                 options.slots, executor_set_count(parts.executors), options.n_ops, cli_text(cli, "data"));
        code = run(cli, worker, &parts, &keys, &signals);
    } else {
        code = cli_fail(cli, &e);
    }
    worker_parts_close(&parts);
    keys_close(&keys);
    return code;
}
