#include "main/private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/random.h"
#include "cli/client.h"
#include "client/tokens.h"
#include "main/folder.h"

extern char **environ;

#define READY_MS_MAX 60000
#define STOP_MS_MAX 15000
#define CALL_MS_MAX 10000
#define ARGS_MAX 128
#define LOG_TAIL_BYTES 1500
#define LOG_BYTES 65536 /* at a time */
#define METRICS_MS_MAX 10000
#define METRICS_LINE "health and metrics on http://"

char *const *private_environment(struct arena *arena)
{
    size_t n = 0;
    size_t kept = 0;
    while (environ[n] != NULL) {
        n++;
    }
    char **out = arena_alloc(arena, (n + 1) * sizeof *out);
    for (size_t i = 0; i < n; i++) {
        if (strncmp(environ[i], "CAPSTAN_", 8) != 0 || strncmp(environ[i], "CAPSTAN_DUCKDB=", 15) == 0) {
            out[kept++] = environ[i];
        }
    }
    out[kept] = NULL;
    return out;
}

/* The same with the token and with the store, whose address may have a password in it: neither can be an argument. */
static char *const *environment_of(struct arena *arena, const char *store, const char *token)
{
    char *const *clean = private_environment(arena);
    size_t n = 0;
    while (clean[n] != NULL) {
        n++;
    }
    char **out = arena_alloc(arena, (n + 3) * sizeof *out);
    memcpy(out, clean, n * sizeof *out);
    out[n] = arena_format(arena, "CAPSTAN_STORE=%s", store);
    out[n + 1] = arena_format(arena, "CAPSTAN_TOKEN=%s", token);
    out[n + 2] = NULL;
    return out;
}

static const char *settings_file(struct arena *arena, const struct private_cluster *cluster)
{
    return arena_format(arena, "%s/settings", cluster->folder);
}

/* Any port for each worker: an option of `up` would be the same port for all of them. */
static enum err write_settings(struct arena *arena, const struct private_cluster *cluster, struct error *e)
{
    FILE *file = fopen(settings_file(arena, cluster), "we");
    if (file == NULL || fprintf(file, "[worker]\nhttp = 127.0.0.1:0\n") < 0 || fclose(file) != 0) {
        return error_set(e, ERR_UNAVAILABLE, "cannot write into %s: %s", cluster->folder, strerror(errno));
    }
    return ERR_OK;
}

static char *const *arguments_of(struct arena *arena, const struct private_options *options,
                                 const struct private_cluster *cluster)
{
    char **argv = arena_zalloc(arena, ARGS_MAX * sizeof *argv);
    uint32_t n = 0;
    argv[n++] = "capstan";
    argv[n++] = "up";
    argv[n++] = "--json";
    argv[n++] = arena_format(arena, "--data=%s", cluster->folder);
    argv[n++] = "--listen=127.0.0.1:0";
    argv[n++] = arena_format(arena, "--workers=%u", options->workers);
    argv[n++] = arena_format(arena, "--slots=%u", options->slots);
    if (options->shuffle_compression != NULL) {
        argv[n++] = arena_format(arena, "--shuffle-compression=%s", options->shuffle_compression);
    }
    if (options->has_metrics) {
        argv[n++] = arena_format(arena, "--config=%s", settings_file(arena, cluster));
    }
    if (options->is_open) {
        argv[n++] = "--no-auth";
    }
    if (options->has_tls) {
        argv[n++] = arena_format(arena, "--tls-cert=%s", cluster->certificate.cert_file);
        argv[n++] = arena_format(arena, "--tls-key=%s", cluster->certificate.key_file);
        argv[n++] = arena_format(arena, "--tls-ca=%s", cluster->certificate.cert_file);
    }
    for (uint32_t i = 0; i < options->n_settings && n + 1 < ARGS_MAX; i++) {
        argv[n++] = arena_format(arena, "--set=%s", options->settings[i]);
    }
    return argv;
}

/* The last lines of the log: why it did not start. */
static void explain(const struct private_cluster *cluster, struct error *e)
{
    char text[LOG_TAIL_BYTES + 1];
    int fd = open(cluster->up.log_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    off_t end = lseek(fd, 0, SEEK_END);
    (void)lseek(fd, end > LOG_TAIL_BYTES ? end - LOG_TAIL_BYTES : 0, SEEK_SET);
    ssize_t n = read(fd, text, LOG_TAIL_BYTES);
    close(fd);
    if (n > 0) {
        text[n] = '\0';
        error_set(e, e->code, "%s\n%s", e->message, text);
    }
}

/* Waits for the line that says it is ready. False at its end, or when the time is up. */
static bool read_line(struct member *up, struct buf *line)
{
    int64_t until_ms = clock_mono_ms() + READY_MS_MAX;
    while (line->n == 0 || line->data[line->n - 1] != '\n') {
        char chunk[1024];
        int64_t left_ms = until_ms - clock_mono_ms();
        struct pollfd fd = {.fd = up->output, .events = POLLIN};
        if (left_ms <= 0) {
            return false;
        }
        if (poll(&fd, 1, (int)left_ms) <= 0) {
            continue;
        }
        ssize_t n = read(up->output, chunk, sizeof chunk);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            return false;
        }
        buf_append(line, chunk, n > 0 ? (size_t)n : 0);
    }
    return true;
}

static enum err wait_until_ready(struct arena *arena, struct private_cluster *cluster, struct error *e)
{
    struct buf line = {0};
    struct json *root = NULL;
    enum err err = ERR_OK;
    if (!read_line(&cluster->up, &line)) {
        err = error_set(e, ERR_UNAVAILABLE, "the private cluster did not start");
        explain(cluster, e);
    } else {
        err = json_parse(line.data, line.n, &root, e);
    }
    if (err == ERR_OK) {
        const char *address = json_text(json_get(root, "address"), NULL);
        cluster->address = arena_strdup(arena, address);
        err = address != NULL ? ERR_OK : error_set(e, ERR_INTERNAL, "the private cluster has no address");
    }
    json_free(root);
    buf_deinit(&line);
    return err;
}

/* The text ends with a line. */
static void find_addresses(struct arena *arena, struct private_cluster *cluster, uint32_t max, const char *text)
{
    for (const char *at = text; cluster->n_metrics < max && (at = strstr(at, METRICS_LINE)) != NULL;) {
        at += strlen(METRICS_LINE);
        cluster->metrics[cluster->n_metrics++] = arena_format(arena, "%.*s", (int)strspn(at, "0123456789.:"), at);
    }
}

uint32_t private_read_metrics(struct arena *arena, struct private_cluster *cluster, uint32_t max)
{
    char *text = mem_alloc(LOG_BYTES + 1);
    int fd = open(cluster->up.log_path, O_RDONLY | O_CLOEXEC);
    bool has_more = fd >= 0;
    while (has_more && cluster->n_metrics < max) {
        ssize_t n = pread(fd, text, LOG_BYTES, (off_t)cluster->metrics_read);
        size_t kept = n > 0 ? (size_t)n : 0;
        while (kept > 0 && text[kept - 1] != '\n') { /* the last line may not be complete */
            kept--;
        }
        kept = kept == 0 && n == LOG_BYTES ? LOG_BYTES : kept; /* no line of ours is that long */
        text[kept] = '\0';
        find_addresses(arena, cluster, max, text);
        cluster->metrics_read += (int64_t)kept;
        has_more = kept > 0;
    }
    if (fd >= 0) {
        close(fd);
    }
    mem_free(text);
    return cluster->n_metrics;
}

/* Where its workers serve their metrics they say in the log, and perhaps a moment after it is ready. */
static enum err find_metrics(struct arena *arena, uint32_t workers, struct private_cluster *cluster, struct error *e)
{
    int64_t until_ms = clock_mono_ms() + METRICS_MS_MAX;
    cluster->metrics = arena_zalloc(arena, workers * sizeof *cluster->metrics);
    while (private_read_metrics(arena, cluster, workers) < workers) {
        if (clock_mono_ms() > until_ms) {
            return error_set(e, ERR_UNAVAILABLE, "%u of the %u workers of the private cluster serve no metrics",
                             workers - cluster->n_metrics, workers);
        }
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    return ERR_OK;
}

enum err private_start(struct arena *arena, const struct private_options *options, struct private_cluster *out,
                       struct error *e)
{
    *out = (struct private_cluster){.up.output = -1};
    char *token = arena_alloc(arena, TOKEN_DIGITS + 1);
    random_hex(token, TOKEN_DIGITS);
    enum err err = folder_make_temporary(arena, &out->folder, e);
    if (err == ERR_OK && !options->is_open) {
        out->token = token;
        out->token_file = arena_format(arena, "%s/token", out->folder);
        err = token_write(arena, out->token_file, token, NULL, e);
    }
    if (err == ERR_OK && options->has_tls) {
        err = certificate_make(arena, out->folder, &out->certificate, e);
    }
    if (err == ERR_OK && options->has_metrics) {
        err = write_settings(arena, out, e);
    }
    if (err != ERR_OK) {
        return err;
    }
    out->store = options->store != NULL ? options->store : arena_format(arena, "sqlite:%s/state.db", out->folder);
    member_init(&out->up, "up", arguments_of(arena, options, out), environment_of(arena, out->store, token));
    out->up.is_prefixed = true;
    out->up.log_path = arena_format(arena, "%s/up.log", out->folder);
    err = member_start(&out->up, e);
    if (err == ERR_OK) {
        err = wait_until_ready(arena, out, e);
    }
    return err == ERR_OK && options->has_metrics ? find_metrics(arena, options->workers, out, e) : err;
}

enum err private_put_table(const struct private_cluster *cluster, const char *name, const char *source, struct error *e)
{
    struct client_options options = {.servers = cluster->address,
                                     .token = cluster->token,
                                     .tls = cluster->certificate.cert_pem != NULL,
                                     .tls_ca_pem = cluster->certificate.cert_pem,
                                     .patience_ms = CALL_MS_MAX};
    struct client *client = NULL;
    struct arena arena = {0};
    struct pb_put_table_request *request = wire_new(PB_PUT_TABLE_REQUEST, &arena);
    struct pb_put_table_response *response = NULL;
    struct client_call call = {
        .path = "/capstan.v1.Cluster/PutTable", .message = request, .answer = PB_PUT_TABLE_RESPONSE};
    request->table = wire_new(PB_TABLE, &arena);
    request->table->name = (char *)name;
    request->table->source = (char *)source;
    request->table->format = (char *)"parquet";
    enum err err = client_open(&options, &client, e);
    if (err == ERR_OK) {
        err = client_call(client, &call, &arena, &response, e);
    }
    client_close(client);
    arena_deinit(&arena);
    return err;
}

void private_stop(struct private_cluster *cluster)
{
    int64_t until_ms = clock_mono_ms() + STOP_MS_MAX;
    bool is_killed = false;
    member_signal(&cluster->up, SIGTERM);
    while (cluster->up.pid > 0 && waitpid(cluster->up.pid, NULL, WNOHANG) == 0) {
        if (clock_mono_ms() > until_ms && !is_killed) {
            member_signal(&cluster->up, SIGKILL); /* its children follow by themselves */
            is_killed = true;
        }
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    cluster->up.pid = 0;
    member_deinit(&cluster->up);
    cluster->up.output = -1;
}

void private_remove(struct private_cluster *cluster)
{
    if (cluster->folder != NULL) {
        folder_remove(cluster->folder);
    }
}
