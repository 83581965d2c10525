/*
 * verb_up.c - everything on one machine: one coordinator and some workers as child processes.
 *
 *     starting ──coordinator answers, workers are registered──► ready ──signal──► workers drain ──► coordinator stops
 *
 * The loop waits for signals and for output of the children. A thread of its own asks the coordinator whether all are
 * there, so that nothing holds the loop up. A child that dies is started again after a pause that grows; but one that
 * says at its first start that it cannot run at all (a wrong setting, a port that is taken) ends everything, because
 * nothing would change.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/random.h"
#include "base/sha256.h"
#include "cli/client.h"
#include "cli/value.h"
#include "client/tokens.h"
#include "exec/command_limits.h"
#include "main/folder.h"
#include "main/member.h"
#include "main/verbs.h"

extern char **environ;

#define MEMBERS_MAX 65
#define ARGS_MAX 512
#define NODE_BYTES_MAX 100
#define PORTS_MAX 2 /* for gRPC and for HTTP */
#define PROBE_MS 50
#define STOP_MS 10000 /* for the coordinator, when the workers have gone */
#define KILL_MS 3000  /* after the second signal */

enum up_phase { UP_STARTING, UP_READY, UP_DRAINING, UP_STOPPING, UP_KILLING };

struct up {
    struct cli *cli;
    const char *address; /* where clients of this machine connect */
    const char *listen;
    const char *http;     /* NULL: none */
    int ports[PORTS_MAX]; /* sockets that keep what the coordinator listens on */
    uint32_t n_ports;
    const char *advertise; /* where other machines find the coordinator; NULL: where it listens */
    const char *store;
    const char *data;
    const char *node;
    struct client_options credentials; /* of this process and its workers */
    const char *tokens;                /* the file of tokens for the coordinator; NULL: it knows none */
    const char *left;                  /* the file in which the token lies for this user's commands; NULL: none */
    int left_lock;                     /* keeps that file locked */
    uint32_t slots;
    struct member members[MEMBERS_MAX]; /* [0] is the coordinator */
    uint32_t n_members;
    const char *worker_ids[MEMBERS_MAX];
    enum up_phase phase;
    bool was_ready;
    int64_t deadline_ms; /* of the phase; 0: none */
    int signals;         /* signalfd */
    int code;

    pthread_t probe;
    atomic_bool is_probing;
    atomic_bool is_ready;
};

/* ---- addresses ---- */

/*
 * Binds a socket to the address and keeps it, without listening: while it is there no other process is given the port, and
 * the coordinator can listen on it, also when it is started again (both sockets have SO_REUSEADDR). Says which port it got,
 * for port 0 one that is free. A port that is taken is found here, before anything is started: workers would join whoever
 * has it.
 */
static enum err keep_port(struct up *up, const char *host, const char *port, const char *flag, uint16_t *out_port,
                          struct error *e)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    struct sockaddr_storage bound = {0};
    socklen_t n = sizeof bound;
    int on = 1;
    int problem = getaddrinfo(host, port, &hints, &found);
    if (problem != 0) {
        return error_set(e, ERR_INVALID, "cannot listen on %s: %s", host, gai_strerror(problem));
    }
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                bind(fd, found->ai_addr, found->ai_addrlen) == 0 && getsockname(fd, (struct sockaddr *)&bound, &n) == 0;
    int error = errno;
    freeaddrinfo(found);
    if (!good) {
        if (fd >= 0) {
            close(fd);
        }
        error_set(e, ERR_UNAVAILABLE, "cannot listen on %s:%s: %s", host, port, strerror(error));
        error_hint(e, "choose another address with --%s, or stop what listens there", flag);
        return ERR_UNAVAILABLE;
    }
    ASSERT(up->n_ports < PORTS_MAX);
    up->ports[up->n_ports++] = fd;
    /* The port is at the same place in the addresses of both families. */
    *out_port = ntohs(((const struct sockaddr_in *)(const void *)&bound)->sin_port);
    return ERR_OK;
}

/* What stands before the port, with the brackets of an IPv6 address. */
static char *host_of(struct arena *arena, const char *address)
{
    size_t n = (size_t)(strrchr(address, ':') - address);
    char *host = arena_copy(arena, address, n + 1);
    host[n] = '\0';
    return host;
}

/* The host without brackets, as the resolver wants it. */
static char *bare_host(struct arena *arena, const char *host)
{
    char *bare = arena_strdup(arena, host[0] == '[' ? host + 1 : host);
    bare[strcspn(bare, "]")] = '\0';
    return bare;
}

/*
 * Where the HTTP API is: as it was told. Else it has its own port if the coordinator has its own, too; of several on one
 * machine, which all listen elsewhere, nobody would know who got it.
 */
static enum err choose_http(struct up *up, struct error *e)
{
    struct arena *arena = &up->cli->arena;
    const char *http = cli_text(up->cli, "http");
    uint16_t port = 0;
    bool is_usual = strcmp(cli_text(up->cli, "listen"), UP_LISTEN_DEFAULT) == 0;
    if (!cli_is_given(up->cli, "http") && !is_usual) {
        return ERR_OK;
    }
    const char *host = host_of(arena, http);
    enum err err = keep_port(up, bare_host(arena, host), strrchr(http, ':') + 1, "http", &port, e);
    if (err == ERR_OK) {
        up->http = arena_format(arena, "%s:%u", host, (unsigned)port);
    }
    return err;
}

static enum err choose_addresses(struct up *up, struct error *e)
{
    struct arena *arena = &up->cli->arena;
    const char *listen = cli_text(up->cli, "listen");
    const char *colon = strrchr(listen, ':');
    const char *host = host_of(arena, listen);
    char *bare = bare_host(arena, host);
    uint16_t port = 0;
    enum err err = keep_port(up, bare, colon + 1, "listen", &port, e);
    if (err == ERR_OK) {
        err = choose_http(up, e);
    }
    if (err != ERR_OK) {
        return err;
    }
    const char *own = host[0] == '[' ? "[::1]" : "127.0.0.1";
    up->listen = arena_format(arena, "%s:%u", host, (unsigned)port);
    up->address = arena_format(arena, "%s:%u", address_is_wildcard(listen) ? own : host, (unsigned)port);
    up->advertise = cli_text(up->cli, "advertise");
    if (up->advertise != NULL && strcmp(strrchr(up->advertise, ':'), ":0") == 0) {
        up->advertise = arena_format(arena, "%s:%u", host_of(arena, up->advertise), (unsigned)port);
    }
    if (up->advertise != NULL && up->credentials.tls) {
        up->address = up->advertise; /* the name that is in the certificate */
    }
    return ERR_OK;
}

/* ---- children ---- */

struct arguments {
    struct arena *arena;
    char **argv;
    uint32_t n;
};

static void add(struct arguments *args, const char *text)
{
    ASSERT(args->n + 1 < ARGS_MAX);
    args->argv[args->n++] = arena_strdup(args->arena, text);
    args->argv[args->n] = NULL;
}

static void add_option(struct arguments *args, const char *flag, const char *value)
{
    add(args, flag);
    add(args, value);
}

static struct arguments begin(struct up *up, const char *verb)
{
    struct cli *cli = up->cli;
    struct arguments args = {.arena = &cli->arena};
    args.argv = arena_alloc(args.arena, ARGS_MAX * sizeof *args.argv);
    add(&args, "capstan");
    add(&args, verb);
    add_option(&args, "--log-level", cli_text(cli, "log-level"));
    add_option(&args, "--log-format", cli->wants_json ? "json" : cli_text(cli, "log-format"));
    if (cli_text(cli, "config") != NULL) {
        add_option(&args, "--config", cli_text(cli, "config"));
    }
    if (cli_flag(cli, "insecure")) {
        add(&args, "--insecure");
    }
    return args;
}

/* How children find each other: files that are the same for all of them, and the coordinator's own. */
static void add_keys(struct up *up, struct arguments *args, bool is_coordinator)
{
    static const char *const names[] = {"tls-cert", "tls-key", "tls-client-ca", "tls-ca"};
    if (is_coordinator && up->tokens != NULL) {
        add_option(args, "--auth-tokens", up->tokens);
    }
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (cli_text(up->cli, names[i]) != NULL) {
            add_option(args, arena_format(args->arena, "--%s", names[i]), cli_text(up->cli, names[i]));
        }
    }
    if (up->credentials.tls) {
        add(args, "--tls");
    }
}

/* Variables that mean the same to `up` and its children. All others of Capstan's are for one process only, such as
 * CAPSTAN_HTTP, which all children would listen on. */
static bool is_for_children(const char *variable)
{
    static const char *const names[] = {"CAPSTAN_LOG_LEVEL=", "CAPSTAN_LOG_FORMAT=", "CAPSTAN_DUCKDB="};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strncmp(variable, names[i], strlen(names[i])) == 0) {
            return true;
        }
    }
    return strncmp(variable, "CAPSTAN_", 8) != 0;
}

/*
 * The environment of a child, with the token, and with CAPSTAN_STORE if `store` is given. Every user of the machine could
 * read from a command line the token, and the password that the store's address can have in it.
 */
static char *const *environment_with(struct up *up, const char *store)
{
    struct arena *arena = &up->cli->arena;
    size_t n = 0;
    size_t kept = 0;
    while (environ[n] != NULL) {
        n++;
    }
    char **out = arena_alloc(arena, (n + 3) * sizeof *out);
    for (size_t i = 0; i < n; i++) {
        if (is_for_children(environ[i])) {
            out[kept++] = environ[i];
        }
    }
    if (up->credentials.token != NULL) {
        out[kept++] = arena_format(arena, "CAPSTAN_TOKEN=%s", up->credentials.token);
    }
    if (store != NULL) {
        out[kept++] = arena_format(arena, "CAPSTAN_STORE=%s", store);
    }
    out[kept] = NULL;
    return out;
}

static void plan_coordinator(struct up *up)
{
    struct arguments args = begin(up, "coordinator");
    uint32_t n = 0;
    const char *const *settings = cli_list(up->cli, "set", &n);
    add_option(&args, "--listen", up->listen);
    if (up->http != NULL) {
        add_option(&args, "--http", up->http);
    }
    add_keys(up, &args, true);
    if (up->advertise != NULL) {
        add_option(&args, "--advertise", up->advertise);
    }
    const char *warehouse = cli_text(up->cli, "warehouse");
    add_option(&args, "--warehouse",
               warehouse != NULL ? warehouse : arena_format(&up->cli->arena, "%s/warehouse", up->data));
    for (uint32_t i = 0; i < n && i < ARGS_MAX / 4; i++) {
        add_option(&args, "--set", settings[i]);
    }
    member_init(&up->members[up->n_members++], "coordinator", args.argv, environment_with(up, up->store));
}

/*
 * The name of this node, which the names of its workers begin with. It lies in the data folder, so that two nodes on one
 * machine have different names, and one node always the same.
 */
static enum err find_node(struct up *up, struct error *e)
{
    struct cli *cli = up->cli;
    const char *path = arena_format(&cli->arena, "%s/node", up->data);
    const char *text = NULL;
    size_t n = 0;
    if (access(path, F_OK) != 0) {
        char host[48] = "";
        char suffix[5];
        if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') {
            snprintf(host, sizeof host, "local");
        }
        host[strcspn(host, ".")] = '\0';
        random_hex(suffix, sizeof suffix - 1);
        FILE *file = fopen(path, "we");
        if (file == NULL || fprintf(file, "%s-%s\n", host, suffix) < 0 || fclose(file) != 0) {
            return error_set(e, ERR_INVALID, "cannot write %s: %s", path, strerror(errno));
        }
    }
    enum err err = cli_read_file(cli, path, NODE_BYTES_MAX, &text, &n, e);
    if (err != ERR_OK) {
        return err;
    }
    char *node = arena_strdup(&cli->arena, text);
    node[strcspn(node, "\r\n")] = '\0';
    for (char *p = node; *p != '\0'; p++) {
        bool good = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9');
        *p = good ? *p : '-';
    }
    up->node = node[0] != '\0' ? node : "local";
    return ERR_OK;
}

static void plan_worker(struct up *up, uint32_t number, char *const *environment)
{
#define X(symbol, member, option) option,
    static const char *const limits[] = {COMMAND_LIMITS_TABLE(X)};
#undef X
    struct arena *arena = &up->cli->arena;
    struct arguments args = begin(up, "worker");
    const char *id = arena_format(arena, "%s-%u", up->node, number);
    add_option(&args, "--join", up->address);
    add_keys(up, &args, false);
    add_option(&args, "--id", id);
    add_option(&args, "--slots", arena_format(arena, "%u", up->slots));
    add_option(&args, "--listen", arena_format(arena, "%s:0", host_of(arena, up->listen)));
    if (up->advertise != NULL) {
        add_option(&args, "--advertise", arena_format(arena, "%s:0", host_of(arena, up->advertise)));
    }
    add_option(&args, "--data", arena_format(arena, "%s/worker-%u", up->data, number));
    if (cli_is_given(up->cli, "memory")) {
        int64_t share = cli_number(up->cli, "memory") / cli_number(up->cli, "workers");
        add_option(&args, "--memory", arena_format(arena, "%lld", (long long)share));
    }
    add_option(&args, "--shuffle-compression", cli_text(up->cli, "shuffle-compression"));
    for (int i = 0; i < COMMAND_LIMITS; i++) {
        if (cli_is_given(up->cli, limits[i])) {
            add_option(&args, arena_format(arena, "--%s", limits[i]), cli_text(up->cli, limits[i]));
        }
    }
    up->worker_ids[up->n_members] = id;
    member_init(&up->members[up->n_members++], arena_format(arena, "worker %u", number), args.argv, environment);
}

static void plan(struct up *up)
{
    struct cli *cli = up->cli;
    int64_t slots = cli_number(cli, "slots");
    int64_t workers = cli_number(cli, "workers");
    bool is_prefixed = !cli->wants_json && strcmp(cli_text(cli, "log-format"), "text") == 0;
    up->slots = (uint32_t)(slots > 0 ? slots : sysconf(_SC_NPROCESSORS_ONLN));
    plan_coordinator(up);
    char *const *environment = environment_with(up, NULL);
    for (uint32_t i = 1; i <= (uint32_t)workers; i++) {
        plan_worker(up, i, environment);
    }
    for (uint32_t i = 0; i < up->n_members; i++) {
        up->members[i].is_prefixed = is_prefixed;
        /* After a crash of this process the folder must be free for the next one at once; nothing is lost by it. */
        up->members[i].death_signal = SIGKILL;
    }
}

/* ---- is it ready? ---- */

static bool is_registered(const struct pb_list_nodes_response *nodes, const char *id)
{
    for (size_t i = 0; i < nodes->n_nodes; i++) {
        if (strcmp(nodes->nodes[i]->worker_id, id) == 0) {
            return strcmp(nodes->nodes[i]->status, "healthy") == 0;
        }
    }
    return false;
}

static bool all_are_there(const struct up *up, struct client *client, struct arena *arena)
{
    struct pb_list_nodes_response *nodes = NULL;
    struct client_call call = {.path = "/capstan.v1.Cluster/ListNodes",
                               .message = wire_new(PB_LIST_NODES_REQUEST, arena),
                               .answer = PB_LIST_NODES_RESPONSE,
                               .patience_ms = 1};
    if (client_call(client, &call, arena, &nodes, NULL) != ERR_OK) {
        return false;
    }
    for (uint32_t i = 1; i < up->n_members; i++) {
        if (!is_registered(nodes, up->worker_ids[i])) {
            return false;
        }
    }
    return true;
}

static void *probe(void *context)
{
    struct up *up = context;
    struct client_options options = up->credentials;
    options.servers = up->address;
    options.patience_ms = 1;
    struct client *client = NULL;
    struct arena arena = {0};
    if (client_open(&options, &client, NULL) == ERR_OK) {
        while (atomic_load(&up->is_probing)) {
            if (all_are_there(up, client, &arena)) {
                atomic_store(&up->is_ready, true);
                break;
            }
            arena_reset(&arena);
            nanosleep(&(struct timespec){.tv_nsec = PROBE_MS * 1000000L}, NULL);
        }
    }
    client_close(client);
    arena_deinit(&arena);
    return NULL;
}

/*
 * Where the dashboard is, and the API under the same address. A token that was made here stands behind the #, which
 * browsers do not send, so that nothing has to be typed; one that was given is its owner's to type.
 */
static void print_dashboard(const struct up *up, struct buf *text)
{
    struct arena *arena = &up->cli->arena;
    const char *host = up->http;
    if (address_is_wildcard(up->http)) {
        const char *own = up->http[0] == '[' ? "[::1]" : "127.0.0.1";
        host = arena_format(arena, "%s%s", up->advertise != NULL ? host_of(arena, up->advertise) : own,
                            strrchr(up->http, ':'));
    }
    buf_format(text, "       dashboard and HTTP API at http%s://%s/", up->credentials.tls ? "s" : "", host);
    if (up->left != NULL) {
        buf_format(text, "#token=%s", up->credentials.token);
    }
    buf_char(text, '\n');
}

static void print_ready(const struct up *up)
{
    struct cli *cli = up->cli;
    struct buf text = {0};
    if (cli->wants_json) {
        buf_text(&text, "{\"ready\":true,\"address\":");
        json_write_text(&text, up->address);
        buf_text(&text, ",\"http\":");
        if (up->http != NULL) {
            json_write_text(&text, up->http);
        } else {
            buf_text(&text, "null");
        }
        buf_text(&text, ",\"data\":");
        json_write_text(&text, up->data);
        buf_format(&text, ",\"slots\":%u,\"workers\":[", up->slots);
        for (uint32_t i = 1; i < up->n_members; i++) {
            buf_text(&text, i > 1 ? "," : "");
            json_write_text(&text, up->worker_ids[i]);
        }
        buf_text(&text, "]}");
    } else {
        buf_format(&text, "%sready%s: coordinator at %s, workers: %u with %u slots each, data in %s\n",
                   color_start(cli->has_colors_out, COLOR_GREEN), color_end(cli->has_colors_out, COLOR_GREEN),
                   up->address, up->n_members - 1, up->slots, up->data);
        if (up->http != NULL) {
            print_dashboard(up, &text);
        }
        if (strcmp(up->address, UP_LISTEN_DEFAULT) == 0) {
            buf_text(&text, "       capstan run TREE.json runs a tree of tasks; Ctrl-C here stops everything");
        } else {
            buf_format(&text,
                       "       capstan run TREE.json --server %s runs a tree of tasks; Ctrl-C here stops everything",
                       up->address);
        }
    }
    cli_print(cli, &text);
    fflush(cli->out);
    buf_deinit(&text);
}

/* ---- phases ---- */

static uint32_t running(const struct up *up, uint32_t from)
{
    uint32_t n = 0;
    for (uint32_t i = from; i < up->n_members; i++) {
        n += up->members[i].pid > 0 ? 1 : 0;
    }
    return n;
}

static void signal_from(const struct up *up, uint32_t from, int number)
{
    for (uint32_t i = from; i < up->n_members; i++) {
        member_signal(&up->members[i], number);
    }
}

static void enter(struct up *up, enum up_phase phase, int64_t limit_ms)
{
    up->phase = phase;
    up->deadline_ms = limit_ms > 0 ? clock_mono_ms() + limit_ms : 0;
}

static void begin_to_stop(struct up *up)
{
    if (up->phase < UP_DRAINING) {
        enter(up, UP_DRAINING, 0);
        signal_from(up, 1, SIGTERM);
    }
}

/* The first signal ends everything in order. The second makes workers drop what they run, and is then not patient. */
static void on_stop_signal(struct up *up)
{
    if (up->phase < UP_DRAINING) {
        log_info("stop", "stopping: workers finish what they run; a second Ctrl-C does not wait for that");
        begin_to_stop(up);
    } else if (up->phase == UP_DRAINING) {
        log_info("stop", "ending everything now");
        enter(up, UP_KILLING, KILL_MS);
        signal_from(up, 1, SIGTERM);
    } else {
        signal_from(up, 0, SIGKILL);
    }
}

static void on_end(struct up *up, struct member *member, int status)
{
    bool is_coordinator = member == &up->members[0];
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    member_pass_on(member, up->cli->has_colors_err);
    member_ended(member, clock_mono_ms());
    if (up->phase >= UP_DRAINING) {
        return;
    }
    bool is_hopeless = WIFEXITED(status) && code != 0 && (is_coordinator || code == EXIT_USAGE || code == EXIT_REFUSED);
    if (!up->was_ready && is_hopeless) {
        log_error("start", "the %s could not start", member->title);
        if (code == EXIT_REFUSED && up->left != NULL && strncmp(up->store, "sqlite:", 7) != 0) {
            log_error("start", "nodes of one cluster share a token: set CAPSTAN_TOKEN on all, or --auth-tokens");
        }
        up->code = code;
        begin_to_stop(up);
    } else if (WIFSIGNALED(status)) {
        log_warn("restart", "the %s was ended by signal %d; it is started again in %lld ms", member->title,
                 WTERMSIG(status), (long long)(member->restart_at_ms - clock_mono_ms()));
    } else {
        log_warn("restart", "the %s ended with code %d; it is started again in %lld ms", member->title, code,
                 (long long)(member->restart_at_ms - clock_mono_ms()));
    }
}

static void reap(struct up *up)
{
    int status = 0;
    for (uint32_t i = 0; i < up->n_members; i++) {
        struct member *member = &up->members[i];
        if (member->pid > 0 && waitpid(member->pid, &status, WNOHANG) == member->pid) {
            on_end(up, member, status);
        }
    }
}

static void restart_due(struct up *up)
{
    int64_t now_ms = clock_mono_ms();
    for (uint32_t i = 0; i < up->n_members && up->phase < UP_DRAINING; i++) {
        struct member *member = &up->members[i];
        if (member->pid == 0 && member->restart_at_ms <= now_ms) {
            struct error e = {0};
            if (member_start(member, &e) != ERR_OK) {
                log_error("restart", "%s", e.message);
                member_ended(member, now_ms);
            }
        }
    }
}

static void move_on(struct up *up)
{
    int64_t now_ms = clock_mono_ms();
    if (up->phase == UP_STARTING && atomic_load(&up->is_ready)) {
        enter(up, UP_READY, 0);
        up->was_ready = true;
        print_ready(up);
    }
    if ((up->phase == UP_DRAINING || up->phase == UP_KILLING) && running(up, 1) == 0) {
        enter(up, UP_STOPPING, STOP_MS);
        member_signal(&up->members[0], SIGTERM);
    }
    if (up->deadline_ms > 0 && now_ms >= up->deadline_ms) {
        up->deadline_ms = now_ms + KILL_MS;
        signal_from(up, 0, SIGKILL);
    }
    restart_due(up);
}

static void read_signals(struct up *up)
{
    struct signalfd_siginfo info;
    while (read(up->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo != SIGCHLD) {
            on_stop_signal(up);
        }
    }
}

/* How long nothing has to be looked at. */
static int wait_ms(const struct up *up)
{
    int64_t now_ms = clock_mono_ms();
    int64_t least = up->phase == UP_STARTING ? PROBE_MS : 60000;
    if (up->deadline_ms > 0 && up->deadline_ms - now_ms < least) {
        least = up->deadline_ms - now_ms;
    }
    for (uint32_t i = 0; i < up->n_members && up->phase < UP_DRAINING; i++) {
        const struct member *member = &up->members[i];
        if (member->pid == 0 && member->restart_at_ms - now_ms < least) {
            least = member->restart_at_ms - now_ms;
        }
    }
    return (int)(least > 0 ? least : 0);
}

static void supervise(struct up *up)
{
    while (up->phase < UP_DRAINING || running(up, 0) > 0) {
        struct pollfd fds[MEMBERS_MAX + 1];
        nfds_t n = 0;
        fds[n++] = (struct pollfd){.fd = up->signals, .events = POLLIN};
        for (uint32_t i = 0; i < up->n_members; i++) {
            if (up->members[i].output >= 0) {
                fds[n++] = (struct pollfd){.fd = up->members[i].output, .events = POLLIN};
            }
        }
        (void)poll(fds, n, wait_ms(up));
        read_signals(up);
        for (uint32_t i = 0; i < up->n_members; i++) {
            member_pass_on(&up->members[i], up->cli->has_colors_err);
        }
        reap(up);
        move_on(up);
    }
}

/* ---- tokens ---- */

/* A file for the coordinator, with the digest of the one token that there is. */
static enum err write_tokens(struct up *up, struct error *e)
{
    struct arena *arena = &up->cli->arena;
    const char *token = up->credentials.token;
    uint8_t digest[SHA256_BYTES];
    char hex[2 * SHA256_BYTES + 1];
    sha256_once(token, strlen(token), digest);
    hex_encode(digest, sizeof digest, hex);
    up->tokens = arena_format(arena, "%s/auth-tokens", up->data);
    return token_write(arena, up->tokens, arena_format(arena, "%s up admin", hex), NULL, e);
}

/* A new token, which this user's commands find by the address. With the next start it is another one. */
static enum err make_token(struct up *up, struct error *e)
{
    struct arena *arena = &up->cli->arena;
    char *token = arena_alloc(arena, TOKEN_DIGITS + 1);
    const char *path = NULL;
    random_hex(token, TOKEN_DIGITS);
    enum err err = token_path(arena, up->address, &path, e);
    if (err == ERR_OK) {
        err = token_make_folder(arena, path, e);
    }
    if (err == ERR_OK) {
        err = token_write(arena, path, token, &up->left_lock, e);
    }
    if (err == ERR_OK) {
        up->left = path;
        up->credentials.token = token;
    }
    return err;
}

/* Who may do what: as the file says; else the one token that was given may do everything, or one that is made. */
static enum err choose_tokens(struct up *up, struct error *e)
{
    struct cli *cli = up->cli;
    enum err err = ERR_OK;
    up->tokens = cli_text(cli, "auth-tokens");
    if (cli_flag(cli, "no-auth")) {
        up->credentials.token = NULL;
        return ERR_OK;
    }
    if (up->tokens != NULL && up->credentials.token == NULL) {
        error_set(e, ERR_INVALID, "with --auth-tokens the workers need a token with the scope worker");
        error_hint(e, "set CAPSTAN_TOKEN, or name a file with the token: --token-file FILE");
        return ERR_INVALID;
    }
    if (up->tokens != NULL) {
        return ERR_OK;
    }
    if (up->credentials.token == NULL) {
        err = make_token(up, e);
    }
    return err == ERR_OK ? write_tokens(up, e) : err;
}

/* ---- start and end ---- */

static enum err prepare(struct up *up, struct error *e)
{
    struct cli *cli = up->cli;
    up->data = cli_text(cli, "data");
    if (cli_credentials(cli, &up->credentials, e) != ERR_OK) {
        return e->code;
    }
    /* A port that is taken must not leave a folder behind. In one that is there another `up` may run, which then is
     * the better explanation. */
    bool is_new = access(up->data, F_OK) != 0;
    enum err err = is_new ? choose_addresses(up, e) : ERR_OK;
    if (err == ERR_OK) {
        err = folder_make(up->data, e);
    }
    if (err == ERR_OK) {
        err = folder_lock(up->data, e);
    }
    if (err == ERR_OK && !is_new) {
        err = choose_addresses(up, e);
    }
    if (err == ERR_OK) {
        err = find_node(up, e);
    }
    if (err == ERR_OK) {
        err = choose_tokens(up, e);
    }
    up->store = cli_text_or(cli, "store", arena_format(&cli->arena, "sqlite:%s/state.db", up->data));
    return err;
}

static void block_signals(struct up *up)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    up->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    ASSERT(up->signals >= 0);
}

int verb_up(struct cli *cli)
{
    struct up up = {.cli = cli};
    struct error e = {0};
    if (prepare(&up, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    block_signals(&up);
    plan(&up);
    restart_due(&up); /* starts all of them: each is due since time zero */
    atomic_store(&up.is_probing, true);
    int failed = pthread_create(&up.probe, NULL, probe, &up);
    ASSERT(failed == 0);
    supervise(&up);
    atomic_store(&up.is_probing, false);
    pthread_join(up.probe, NULL);
    for (uint32_t i = 0; i < up.n_members; i++) {
        member_pass_on(&up.members[i], cli->has_colors_err);
        member_deinit(&up.members[i]);
    }
    for (uint32_t i = 0; i < up.n_ports; i++) {
        close(up.ports[i]);
    }
    close(up.signals);
    if (up.left != NULL) {
        (void)unlink(up.left);
        close(up.left_lock);
    }
    return up.code;
}
