/* capstan coordinator: the services in front of a store, until SIGTERM. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "cli/client.h"
#include "coordinator/service.h"
#include "main/keys.h"
#include "main/verbs.h"
#include "store/store.h"

#define LOOK_MS 200
#define STORE_RETRY_MS 500
#define FILES_WANTED 65536

static void block_signals(sigset_t *signals)
{
    sigemptyset(signals);
    sigaddset(signals, SIGINT);
    sigaddset(signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, signals, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* True if one of the signals came within the time. */
static bool signaled(const sigset_t *signals, int64_t ms)
{
    struct timespec time = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (ms % 1000) * 1000000};
    return sigtimedwait(signals, NULL, &time) > 0;
}

/* The folder of a store that is a file, made if it is missing. */
static void make_folder(const char *url, struct arena *arena)
{
    if (strncmp(url, "sqlite:", 7) != 0) {
        return;
    }
    char *path = arena_strdup(arena, url + 7);
    char *slash = strrchr(path, '/');
    if (slash != NULL && slash != path) {
        *slash = '\0';
        (void)mkdir(path, 0700); /* if this fails, opening the store tells why */
    }
}

/*
 * Brings the schema up to date, unless a coordinator of an earlier release leads: that one does not know what is new. Then
 * the first one that leads after it does it.
 */
static enum err update_schema(struct store *store, bool is_file, struct arena *arena, struct error *e)
{
    struct migration_status status;
    struct leader leader;
    enum err err = store_schema(store, &status, e);
    if (err == ERR_OK && !is_file && status.current > 0 && status.current < status.newest &&
        store_leader(store, arena, &leader, NULL) == ERR_OK && leader.expires_in_ms > 0) {
        log_info("store", "the schema stays at version %u until a coordinator of this release leads, with version %u",
                 status.current, status.newest);
        return ERR_OK;
    }
    return err != ERR_OK ? err : store_migrate(store, STORE_NEWEST, e);
}

/*
 * Opens the store and brings its schema up to date. While it cannot be reached this waits, up to `wait_ms`, and says so:
 * a coordinator without its store would be of no use to anybody.
 */
static enum err prepare_store(const char *url, int64_t wait_ms, const sigset_t *signals, struct arena *arena,
                              struct error *e)
{
    int64_t until_ms = clock_mono_ms() + wait_ms;
    bool has_told = false;
    enum err err;
    make_folder(url, arena);
    for (;;) {
        struct store *store = NULL;
        err = store_open(url, &store, e);
        if (err == ERR_OK) {
            err = update_schema(store, strncmp(url, "sqlite:", 7) == 0, arena, e);
            store_close(store);
        }
        if (err != ERR_UNAVAILABLE || clock_mono_ms() >= until_ms) {
            break;
        }
        if (!has_told) {
            log_warn("store", "%s cannot be reached, waiting for it: %s", store_url_text(url, arena), e->message);
            has_told = true;
        }
        if (signaled(signals, STORE_RETRY_MS)) {
            return error_set(e, ERR_CANCELED, "stopped while waiting for the store");
        }
    }
    if (err == ERR_UNAVAILABLE && strncmp(url, "sqlite:", 7) == 0) {
        return error_set(e, ERR_INVALID, "%s", e->message); /* a file that cannot be opened is a wrong path */
    }
    if (err == ERR_UNAVAILABLE) {
        error_hint(e, "is the database running? --store-wait says how long to wait for it");
    }
    return err;
}

static enum err read_settings(struct cli *cli, struct settings *out, struct error *e)
{
    uint32_t n;
    const char *const *pairs = cli_list(cli, "set", &n);
    *out = settings_default();
    for (uint32_t i = 0; i < n; i++) {
        enum err err = settings_set(out, pairs[i], e);
        if (err != ERR_OK) {
            return err;
        }
    }
    return settings_check(out, e);
}

static const char *default_node_id(struct arena *arena)
{
    char host[64] = "";
    char suffix[9];
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') {
        snprintf(host, sizeof host, "coordinator");
    }
    random_hex(suffix, sizeof suffix - 1);
    return arena_format(arena, "%s-%s", host, suffix);
}

static enum err listen_with(void *service, const struct service_tls *tls, struct error *e)
{
    return service_reload_tls(service, tls, e);
}

/*
 * Connections of HTTP and gRPC, the store: each is a file. What shells give is often less than a coordinator may have open,
 * and whoever opens connections could take all of it.
 */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < FILES_WANTED) {
        limit.rlim_cur = limit.rlim_max < FILES_WANTED ? limit.rlim_max : FILES_WANTED;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* if not, it has to do with less */
    }
}

/* Until a signal comes, or another is found to lead where this one must. */
static int serve(struct cli *cli, const struct service_options *options, struct keys *keys, const sigset_t *signals)
{
    struct service *service = NULL;
    struct error e = {0};
    int code = EXIT_DONE;
    raise_file_limit();
    if (service_start(options, &service, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    log_info("listen", "serving on %s, %s %s", service_address(service),
             options->follow != NULL ? "following" : "store",
             options->follow != NULL ? options->follow : store_url_text(options->store_url, &cli->arena));
    if (service_http_address(service) != NULL) {
        log_info("http", "the HTTP API is at http%s://%s", options->tls.cert_pem != NULL ? "s" : "",
                 service_http_address(service));
    }
    while (!signaled(signals, LOOK_MS)) {
        if (keys_look(keys, listen_with, service)) {
            service_tokens_changed(service);
        }
        if (service_gave_up(service, &e)) {
            bool is_file = strncmp(options->store_url, "sqlite:", 7) == 0;
            error_set(&e, ERR_PRECONDITION, "%s%s", is_file ? "" : "another coordinator leads already: ", e.message);
            error_hint(&e, "%s",
                       is_file ? "stop the other one, or use another --store: a file has one coordinator"
                               : "use --role auto to stand by, or stop the other one");
            code = cli_fail(cli, &e);
            break;
        }
    }
    log_info("stop", "stopping");
    service_stop(service);
    return code;
}

/* Workers may run in another folder, so the path must be a whole one. */
static const char *whole_path(const char *path, struct arena *arena)
{
    char here[PATH_MAX];
    if (path == NULL || path[0] == '/' || getcwd(here, sizeof here) == NULL) {
        return path;
    }
    while (path[0] == '.' && path[1] == '/') {
        path += 2;
    }
    return arena_format(arena, "%s/%s", here, path);
}

/* Whom it trusts, and how it shows workers that it is their coordinator. */
static enum err read_keys(struct cli *cli, struct keys *keys, struct service_options *out, struct error *e)
{
    const char *token = NULL;
    enum err err = keys_open(cli, keys, e);
    if (err == ERR_OK) {
        err = cli_token(cli, &token, e);
    }
    out->auth = keys->auth;
    out->tls = keys_tls(keys);
    out->to_workers = (struct rpc_channel_options){
        .token = token, .tls = cli_flag(cli, "tls") || cli_text(cli, "tls-ca") != NULL, .identity = keys->identity};
    return err;
}

/* An observer has somebody to follow and no store; all others have a store. */
static enum err check_role(struct cli *cli, struct service_options *out, struct error *e)
{
    bool is_observer = strcmp(cli_text(cli, "role"), "observer") == 0;
    if (is_observer && !cli_is_given(cli, "follow")) {
        error_set(e, ERR_INVALID, "--role observer: there is nobody to follow");
        error_hint(e, "give --follow HOST:PORT[,...]: where coordinators listen");
        return ERR_INVALID;
    }
    if (!is_observer && cli_is_given(cli, "follow")) {
        error_set(e, ERR_INVALID, "--follow is for observers");
        error_hint(e, "add --role observer, or leave it out");
        return ERR_INVALID;
    }
    if (is_observer && cli_is_given(cli, "store")) {
        error_set(e, ERR_INVALID, "--store: an observer has no store, it follows a leader");
        error_hint(e, "leave out --store (or CAPSTAN_STORE), or use --role auto");
        return ERR_INVALID;
    }
    out->follow = is_observer ? cli_text(cli, "follow") : NULL;
    return ERR_OK;
}

int verb_coordinator(struct cli *cli)
{
    struct keys keys = {0};
    struct service_options options = {.store_url = cli_text(cli, "store"),
                                      .node_id = cli_text(cli, "node-id"),
                                      .listen = cli_text(cli, "listen"),
                                      .advertise = cli_text(cli, "advertise"),
                                      .http = cli_text(cli, "http"),
                                      .warehouse = whole_path(cli_text(cli, "warehouse"), &cli->arena),
                                      .must_lead = strcmp(cli_text(cli, "role"), "leader") == 0};
    if (strncmp(options.store_url, "sqlite:", 7) == 0) {
        options.must_lead = true; /* nobody can stand by for a file that another process has */
    }
    options.http_names = cli_list(cli, "http-name", &options.n_http_names);
    struct error e = {0};
    sigset_t signals;
    umask(077); /* the state holds what people put into their tasks */
    block_signals(&signals);
    if (options.warehouse != NULL && mkdir(options.warehouse, 0777) != 0 && errno != EEXIST) {
        error_set(&e, ERR_INVALID, "cannot make the folder %s: %s", options.warehouse, strerror(errno));
        return cli_fail(cli, &e);
    }
    if (options.node_id == NULL) {
        options.node_id = default_node_id(&cli->arena);
    }
    bool is_good = check_role(cli, &options, &e) == ERR_OK && read_settings(cli, &options.settings, &e) == ERR_OK &&
                   read_keys(cli, &keys, &options, &e) == ERR_OK &&
                   (options.follow != NULL || prepare_store(options.store_url, cli_number(cli, "store-wait"), &signals,
                                                            &cli->arena, &e) == ERR_OK);
    int code = is_good ? serve(cli, &options, &keys, &signals) : cli_fail(cli, &e);
    keys_close(&keys);
    return code;
}
