/*
 * verbs.c - the table of the verbs that are processes. Each row is all that parsing, help and completion know of a verb.
 */
#include "main/verbs.h"

#include "cli/verbs.h"
#include "coordinator/settings.h"

#define STORE_DEFAULT "sqlite:./capstan-data/state.db"
#define LISTEN_DEFAULT UP_LISTEN_DEFAULT
#define HTTP_DEFAULT "127.0.0.1:7480"
#define WORKERS_MAX 64
#define SLOTS_MAX 1000
#define VERBS_MAX 64
#define MEMORY_MIN 64000000 /* DuckDB cannot do much with less */

#define OPTIONS(list) .options = (list), .n_options = ARRAY_LEN(list)

/* What commands may use; `up` hands these to its workers. */
/* clang-format off */
#define COMMAND_LIMIT_OPTIONS                                                                                          \
    {"command-cpu", 0, false, OPTION_DURATION, "TIME", NULL, 1000, 0,                                                  \
     "processor time that each process of a command may use, in whole seconds; tasks can ask for less"},               \
    {"command-memory", 0, false, OPTION_SIZE, "SIZE", NULL, 1, 0, "memory for data that each of them may have"},       \
    {"command-files", 0, false, OPTION_NUMBER, "N", NULL, 8, 1000000, "files that each of them may have open"},        \
    {"command-file-size", 0, false, OPTION_SIZE, "SIZE", NULL, 1, 0, "how large a file they may write"},               \
    {"command-output", 0, false, OPTION_SIZE, "SIZE", NULL, 1, 0,                                                      \
     "what a command may write to stdout and stderr before it is stopped"}
/* clang-format on */

static const struct option up_options[] = {
    {"data", 0, false, OPTION_FOLDER, "DIR", "./capstan-data", 0, 0, "where everything is kept"},
    {"workers", 0, false, OPTION_NUMBER, "N", "2", 0, WORKERS_MAX, "how many workers to run"},
    {"slots", 0, false, OPTION_NUMBER, "N", NULL, 1, SLOTS_MAX,
     "tasks that each worker runs at one time; else the number of cores"},
    {"memory", 0, false, OPTION_SIZE, "SIZE", NULL, MEMORY_MIN, 0, "for SQL, of all workers together; else 2GB each"},
    {"shuffle-compression", 0, false, OPTION_CHOICE, "none|lz4", "none", 0, 0, "of rows between workers"},
    {"store", 0, false, OPTION_TEXT, "URL", NULL, 0, 0,
     "sqlite:PATH or postgres://USER@HOST/DB; else sqlite in the data folder"},
    {"listen", 0, false, OPTION_ADDRESS, "HOST:PORT", LISTEN_DEFAULT, 0, 0, "where clients and workers connect"},
    {"advertise", 0, false, OPTION_ADDRESS, "HOST:PORT", NULL, 0, 0,
     "where other machines find it; needed when it listens on 0.0.0.0 or [::]"},
    {"http", 0, false, OPTION_ADDRESS, "HOST:PORT", HTTP_DEFAULT, 0, 0,
     "where the HTTP API is; with another --listen only if it is said here"},
    {"warehouse", 0, false, OPTION_FOLDER, "DIR", NULL, 0, 0,
     "where CREATE TABLE ... AS makes its tables: a folder that all workers have; else one in the data folder"},
    {"set", 0, true, OPTION_PAIR, "NAME=VALUE", NULL, 0, 0,
     "a setting of the coordinator; 'capstan help settings' lists all"},
    {"auth-tokens", 0, false, OPTION_FILE, "FILE", NULL, 0, 0,
     "who may do what: SHA-256 of a token, name, scopes; else a token is made, which this user's commands find"},
    {"no-auth", 0, false, OPTION_FLAG, NULL, NULL, 0, 0, "every user of this machine may do everything"},
    {"tls-client-ca", 0, false, OPTION_FILE, "FILE", NULL, 0, 0,
     "who connects must present a certificate that one of these has signed (PEM)"},
    {"insecure", 0, false, OPTION_FLAG, NULL, NULL, 0, 0, "listen for other machines without encryption"},
    COMMAND_LIMIT_OPTIONS,
};

static const struct option coordinator_options[] = {
    {"store", 0, false, OPTION_TEXT, "URL", STORE_DEFAULT, 0, 0, "sqlite:PATH or postgres://USER@HOST/DB"},
    {"store-wait", 0, false, OPTION_DURATION, "TIME", "60s", 0, 86400000,
     "how long to wait for the store at the start"},
    {"role", 0, false, OPTION_CHOICE, "auto|leader|observer", "auto", 0, 0,
     "auto stands by while another leads; leader ends if another node does, but waits for the database and for its own "
     "row of before; observer answers reads from a copy"},
    {"follow", 0, false, OPTION_ADDRESSES, "HOST:PORT[,...]", NULL, 0, 0,
     "observer: where coordinators listen; it has no store of its own, and calls them as it calls workers"},
    {"listen", 0, false, OPTION_ADDRESS, "HOST:PORT", LISTEN_DEFAULT, 0, 0, "where clients and workers connect"},
    {"advertise", 0, false, OPTION_ADDRESS, "HOST:PORT", NULL, 0, 0,
     "where others find this coordinator; else where it listens. Needed with 0.0.0.0 and [::]"},
    {"http", 0, false, OPTION_ADDRESS, "HOST:PORT", NULL, 0, 0, "where the HTTP API is; else there is none"},
    {"http-name", 0, true, OPTION_TEXT, "NAME", NULL, 0, 0,
     "another name, without port, under which the HTTP API is called, such as that of a proxy in front of it"},
    {"node-id", 0, false, OPTION_ID, "ID", NULL, 0, 0, "the name of this coordinator; else one is made"},
    {"warehouse", 0, false, OPTION_FOLDER, "DIR", NULL, 0, 0,
     "where CREATE TABLE ... AS makes its tables: a folder that all workers have"},
    {"set", 0, true, OPTION_PAIR, "NAME=VALUE", NULL, 0, 0,
     "a setting, such as lease_ms=20000; 'capstan help settings' lists all"},
    {"auth-tokens", 0, false, OPTION_FILE, "FILE", NULL, 0, 0,
     "who may do what: lines of a token's SHA-256, a name, and scopes (read,submit,worker,admin); read again when it changes"},
    {"no-auth", 0, false, OPTION_FLAG, NULL, NULL, 0, 0, "every user of this machine may do everything"},
    {"tls-cert", 0, false, OPTION_FILE, "FILE", NULL, 0, 0,
     "certificate to listen with, also presented to those it calls (PEM); read again when it changes"},
    {"tls-key", 0, false, OPTION_FILE, "FILE", NULL, 0, 0, "its key (PEM)"},
    {"tls-client-ca", 0, false, OPTION_FILE, "FILE", NULL, 0, 0,
     "who connects must present a certificate that one of these has signed (PEM); read again when it changes"},
    {"tls", 0, false, OPTION_FLAG, NULL, NULL, 0, 0, "workers listen with TLS: trust what this machine trusts"},
    {"tls-ca", 0, false, OPTION_FILE, "FILE", NULL, 0, 0,
     "workers listen with TLS: trust these certificates (PEM); read again when it changes"},
    {"token-file", 0, false, OPTION_FILE, "FILE", NULL, 0, 0,
     "file with the workers' token, to fetch rows from them; else CAPSTAN_TOKEN is that token"},
    {"insecure", 0, false, OPTION_FLAG, NULL, NULL, 0, 0,
     "listen for other machines without encryption, or without tokens"},
};

static const struct option worker_options[] = {
    {"join", 0, false, OPTION_ADDRESSES, "HOST:PORT[,...]", "127.0.0.1:7400", 0, 0, "where coordinators listen"},
    {"id", 0, false, OPTION_ID, "ID", NULL, 0, 0, "the worker's name; else one that is kept in the data folder"},
    {"slots", 0, false, OPTION_NUMBER, "N", NULL, 1, SLOTS_MAX, "tasks at one time; else the number of cores"},
    {"listen", 0, false, OPTION_ADDRESS, "HOST:PORT", "127.0.0.1:0", 0, 0, "where other workers fetch data"},
    {"advertise", 0, false, OPTION_ADDRESS, "HOST:PORT", NULL, 0, 0,
     "where they find it; else where it listens. Needed with 0.0.0.0 and [::]; port 0: the one it listens on"},
    {"http", 0, false, OPTION_ADDRESS, "HOST:PORT", NULL, 0, 0, "serve /healthz and /metrics here"},
    {"data", 0, false, OPTION_FOLDER, "DIR", "./capstan-data/worker", 0, 0, "its own folder; made if it is missing"},
    {"memory", 0, false, OPTION_SIZE, "SIZE", "2GB", MEMORY_MIN, 0,
     "memory for SQL: half for DuckDB, a quarter for rows between workers; offered as the capability memory_bytes"},
    {"shuffle-compression", 0, false, OPTION_CHOICE, "none|lz4", "none", 0, 0,
     "of rows for other workers; lz4 takes processor time, and pays on networks below some hundred MB/s"},
    {"executors", 0, false, OPTION_TEXT, "NAME[,...]", NULL, 0, 0, "offer only these; else all that there are"},
    {"capability", 0, true, OPTION_PAIR, "NAME=VALUE", NULL, 0, 0, "something that tasks can require"},
    {"label", 0, true, OPTION_TEXT, "LABEL", NULL, 0, 0, "one of the capability 'labels'"},
    {"plugin", 0, true, OPTION_FILE, "FILE.so", NULL, 0, 0,
     "load an executor, or custom operators (include/capstan/executor.h, operator.h)"},
    {"require-ops", 0, false, OPTION_TEXT, "NAME[,...]", NULL, 0, 0, "do not start without these custom operators"},
    {"pass-env", 0, true, OPTION_TEXT, "NAME", NULL, 0, 0, "a variable that commands get from the worker's own"},
    COMMAND_LIMIT_OPTIONS,
    {"http-deny-private", 0, false, OPTION_FLAG, NULL, NULL, 0, 0, "the http executor refuses private addresses"},
    {"tls-client-ca", 0, false, OPTION_FILE, "FILE", NULL, 0, 0,
     "who fetches data must present a certificate that one of these has signed (PEM); read again when it changes"},
    {"insecure", 0, false, OPTION_FLAG, NULL, NULL, 0, 0, "listen for other machines without encryption"},
};

static const struct option store_options[] = {
    {"store", 0, false, OPTION_TEXT, "URL", STORE_DEFAULT, 0, 0, "sqlite:PATH or postgres://USER@HOST/DB"},
    {"to", 0, false, OPTION_TEXT, "URL|N", NULL, 0, 0, "copy: the store that is written; rollback: the version"},
};

static const struct option bench_options[] = {
    {"tasks", 0, false, OPTION_NUMBER, "N", NULL, 1, 10000000, "how many; else 50000 for tasks, 200 for latency"},
    {"batch", 0, false, OPTION_NUMBER, "N", "1000", 1, 100000, "tasks: tasks of one job"},
    {"clients", 0, false, OPTION_NUMBER, "N", "4", 1, 256, "tasks: threads that submit"},
    {"scale", 0, false, OPTION_TEXT, "X", NULL, 0, 0,
     "sql: size of the tables, 1 being 6 million lines; else 1, with --single 0.01"},
    {"queries", 0, false, OPTION_TEXT, "N,...", NULL, 0, 0, "sql: only these, such as 1,3,22"},
    {"repeat", 0, false, OPTION_NUMBER, "N", "5", 1, 1000, "sql, shuffle: runs of which the median counts"},
    {"data", 0, false, OPTION_FOLDER, "DIR", NULL, 0, 0, "sql: keep the tables here, and use those that are here"},
    {"forced", 0, false, OPTION_FLAG, NULL, NULL, 0, 0, "sql: cut queries into stages whatever the size of the tables"},
    {"single", 0, false, OPTION_FLAG, NULL, NULL, 0, 0,
     "sql: small tables, one task each: what a query costs at least"},
    {"gain", 0, false, OPTION_FLAG, NULL, NULL, 0, 0, "sql: one worker and two, beside one thread and two"},
    {"check", 0, false, OPTION_FLAG, NULL, NULL, 0, 0, "sql, shuffle: exit with 1 if a figure is worse than wanted"},
    {"verbose", 'v', false, OPTION_FLAG, NULL, NULL, 0, 0, "sql: where the time went"},
    {"rows", 0, false, OPTION_NUMBER, "N", "6000000", 1000, 1000000000, "shuffle: how many rows to move"},
    {"shuffle-compression", 0, false, OPTION_CHOICE, "none|lz4", "none", 0, 0, "sql, shuffle: of rows between workers"},
    {"workers", 0, false, OPTION_NUMBER, "N", "2", 1, WORKERS_MAX, "workers of the private cluster"},
    {"slots", 0, false, OPTION_NUMBER, "N", NULL, 1, SLOTS_MAX, "of each of its workers; else 256, sql and shuffle: 1"},
    {"store", 0, false, OPTION_TEXT, "URL", NULL, 0, 0, "its store; else SQLite in a temporary folder"},
    {"set", 0, true, OPTION_PAIR, "NAME=VALUE", NULL, 0, 0, "a setting of its coordinator"},
    {"keep", 0, false, OPTION_FLAG, NULL, NULL, 0, 0, "keep its folder"},
    {"no-auth", 0, false, OPTION_FLAG, NULL, NULL, 0, 0, "it asks for no token"},
};

static const struct option demo_options[] = {
    {"keep", 0, false, OPTION_FLAG, NULL, NULL, 0, 0, "keep the folder of the private cluster"},
};

const struct verb main_verbs[] = {
    {.name = "up",
     .usage = "[--data DIR] [--workers 2] [--slots N] [--store URL] [--listen 127.0.0.1:7400] [--http 127.0.0.1:7480] "
              "[--no-auth]",
     .summary = "run everything on this machine: a coordinator and workers",
     .help = "Starts one coordinator and some workers, starts again what dies, and stops all of them at Ctrl-C: the "
             "workers finish what they run, a second Ctrl-C does not wait for that. State is kept in the data folder. "
             "With a postgres:// store this is a full node of a cluster.",
     .example = "capstan up --workers 4",
     .groups = VERB_CREDENTIALS | VERB_LOGS,
     OPTIONS(up_options),
     .run = verb_up},
    {.name = "demo",
     .usage = "",
     .summary = "show it: a private cluster, a tree of tasks, a query, their results",
     .help =
         "Starts a coordinator and two workers in a temporary folder, runs a small tree of tasks with dependencies, a "
         "fan, a template and a retry, and a query that joins two tables in Parquet files on both workers, prints the "
         "results and how long it took, and stops everything.",
     .example = "capstan demo",
     OPTIONS(demo_options),
     .run = verb_demo},
    {.name = "coordinator",
     .usage =
         "--store URL [--role auto|leader|observer --follow HOST:PORT] [--listen 127.0.0.1:7400] [--http HOST:PORT] [--node-id ID] [--set NAME=VALUE]...",
     .summary = "run a coordinator",
     .help =
         "Runs a coordinator until SIGTERM. Of several on one PostgreSQL database one leads and the others stand by. An "
         "observer needs no database: it follows the leader and answers questions, but changes nothing.",
     .example = "capstan coordinator --store postgres://capstan@db/capstan --set lease_ms=20000\n"
                "capstan coordinator --role observer --follow 10.0.0.1:7400,10.0.0.2:7400 --listen 127.0.0.1:7500",
     .groups = VERB_LOGS,
     OPTIONS(coordinator_options),
     .run = verb_coordinator},
    {.name = "worker",
     .usage = "--join HOST:PORT[,HOST:PORT...] [--slots N] [--capability NAME=VALUE]... [--label LABEL]...",
     .summary = "run a worker",
     .help =
         "Runs a worker: it pulls tasks from the coordinator that leads, runs them and reports. At SIGTERM or Ctrl-C it "
         "takes no new tasks and ends when the running ones have; a second signal stops them. With --http, /healthz "
         "answers 200 while the worker is well, even if it looks for a coordinator, and 503 while it drains; 'registered' "
         "is false when no heartbeat was accepted for a whole lease, 'leader' is null unless the last one was.",
     .example = "capstan worker --join 10.0.0.1:7400,10.0.0.2:7400 --slots 8 --capability gpu=nvidia --label ml",
     .groups = VERB_CREDENTIALS | VERB_LOGS,
     OPTIONS(worker_options),
     .run = verb_worker},
    {.name = "store",
     .usage = "status|migrate|rollback [--to N]|copy --to URL [--store URL]",
     .summary = "look after the store: schema version, migration, copy",
     .help =
         "status: which version its schema has. migrate: bring it to the newest. rollback: one version back. copy: all "
         "of it into another store, while nothing runs on either.",
     .example = "capstan store copy --store sqlite:./capstan-data/state.db --to postgres://capstan@db/capstan",
     .actions = "status|migrate|rollback|copy",
     .args_min = 1,
     .args_max = 1,
     OPTIONS(store_options),
     .run = verb_store},
    {.name = "bench",
     .usage = "tasks|latency|sql|shuffle [--store URL] [--workers N] [--slots N]",
     .summary = "measure this installation",
     .help =
         "tasks: how many tasks that do nothing go through per second. latency: how long one takes, from the submit to "
         "the result being seen. sql: the 22 queries of TPC-H beside DuckDB alone. shuffle: rows from workers to workers "
         "beside Parquet files. Without --server it starts a private cluster and stops it afterwards, with --tls one that "
         "talks over TLS; sql and shuffle always do. The conditions are printed with the figures.",
     .example = "capstan bench tasks --store postgres://capstan@127.0.0.1/bench --json\n"
                "capstan bench sql --scale 1 --verbose",
     .actions = "tasks|latency|sql|shuffle",
     .args_min = 1,
     .args_max = 1,
     .groups = VERB_CLIENT,
     OPTIONS(bench_options),
     .run = verb_bench},
};

const uint32_t main_verb_count = ARRAY_LEN(main_verbs);

/* What --set takes, from the tables that read it. */
static const struct setting_info settings[] = {
#define SETTING(name, def, lo, hi, help) {#name, #def, lo, hi, help},
    CORE_CONFIG_TABLE(SETTING) SETTINGS_TABLE(SETTING)
#undef SETTING
};

static const struct setting_info query_settings[] = {
#define SETTING(name, most, help) {#name, NULL, 0, most, help},
    QUERY_OPTIONS_TABLE(SETTING)
#undef SETTING
};

struct verb_table verbs_all(void)
{
    static const struct verb *all[VERBS_MAX];
    uint32_t n = 0;
    ASSERT(main_verb_count + cli_verb_count <= VERBS_MAX);
    for (uint32_t i = 0; i < main_verb_count; i++) {
        all[n++] = &main_verbs[i];
    }
    for (uint32_t i = 0; i < cli_verb_count; i++) {
        all[n++] = &cli_verbs[i];
    }
    return (struct verb_table){.verbs = all,
                               .n_verbs = n,
                               .settings = settings,
                               .n_settings = ARRAY_LEN(settings),
                               .query_settings = query_settings,
                               .n_query_settings = ARRAY_LEN(query_settings)};
}
