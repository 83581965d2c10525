/*
 * world.h - a PostgreSQL server, a database of its own for each test, and the coordinators that use it.
 *
 * world_open gives an empty database with the schema, and ends what a test that failed has left running. The server is
 * shared by all tests of the program, and removed at its end; tests may crash it and restart it.
 *
 * Every coordinator connects under its own name, so the database can tell who wrote what: world_watch makes the database
 * keep a history of all committed writes.
 *
 * Ownership: world_open's caller calls world_close. Threads: one.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_COORDINATOR_WORLD_H
#define CAPSTAN_TESTS_INTEGRATION_COORDINATOR_WORLD_H

#include "integration/coordinator/ledger.h"
#include "integration/coordinator/node.h"
#include "integration/coordinator/relay.h"
#include "integration/postgres/server.h"
#include "test.h"

#define WORLD_NODES_MAX 8

struct world {
    struct server server; /* with the URL of the database */
    char database[32];
    struct ledger *ledger;
    struct node nodes[WORLD_NODES_MAX];
    uint32_t n_nodes;
    struct relay relay; /* dir "": none */
    struct arena arena;
};

/* `tablespace` NULL: the default one. */
struct world *world_open(void);
struct world *world_open_in(const char *tablespace);
void world_close(struct world *w);

/* A node that the world ends. The options' url is set here if it is NULL. */
struct node *world_start(struct world *w, struct node_options options);
/* The database's URL, with this name for whoever uses it; by way of the relay if there is one and `relayed`. */
const char *world_url(struct world *w, const char *name, bool relayed);

/* What psql prints, without the last newline; in the world's arena. Parameters as for printf. */
const char *world_sql(struct world *w, const char *format, ...) PRINTF_LIKE(2, 3);
int64_t world_number(struct world *w, const char *format, ...) PRINTF_LIKE(2, 3);
/* Until the query gives another number than 0, for `ms` at most. */
bool world_await(struct world *w, int64_t ms, const char *sql);

/*
 * From now on the table public.history has a row for every statement of a committed transaction that changed one of
 * capstan's tables: id (in order), writer (the name), epoch (of the leader's row at that time), what, at. And
 * public.events has one for every event: seq, writer, epoch.
 */
void world_watch(struct world *w);
/* That every event has the epoch of its writer's term: epochs only grow with seq, and each belongs to one writer. */
void world_check_history(struct world *w);

/* That everything in the ledger is in the database, and everything in the database whole. Nobody may be writing. */
void world_check(struct world *w);
/* The same for what came into the ledger from fact number `from` on; what is in the database is checked as a whole. */
void world_check_since(struct world *w, uint32_t from);
/* That nothing is wrong with the tables of that database, as far as SQL can tell (ledger_tables_sql). */
void world_check_tables(struct world *w);

/* How many lines of the server's log contain both texts. */
uint32_t world_log_lines(struct world *w, const char *a, const char *b);

/* So many rounds of what a test does `usual` times in ./dev test: CAPSTAN_CRASH_ROUNDS is the number for tests that do
 * 20, others do more or fewer in proportion, at least one. */
uint32_t world_rounds(uint32_t usual);

#endif
