/*
 * subject.h - the store under test: one contract, run against every engine.
 *
 * CONTRACT(a_batch_is_whole_or_absent) { ... } defines a test with the parameter `struct subject *s` and registers it
 * once per engine, as "memory: a_batch_is_whole_or_absent" and so on. Each run gets a new, empty database. Most tests
 * begin with subject_lead(), which migrates it and takes the leadership.
 *
 * PostgreSQL is started when the first test needs it and stopped when the program ends. CAPSTAN_TEST_POSTGRES may name
 * a server that runs already. If there is no server to be had, every test that needs one fails.
 *
 * Ownership: the subject owns all that it hands out, until the test ends.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_STORE_SUBJECT_H
#define CAPSTAN_TESTS_INTEGRATION_STORE_SUBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/check.h"
#include "store/store.h"
#include "test.h"

enum engine_kind { ENGINE_MEMORY, ENGINE_SQLITE, ENGINE_POSTGRES };

#define SUBJECT_STORES_MAX 64

struct subject {
    enum engine_kind kind;
    const char *engine;   /* its name */
    const char *database; /* its name, or its file */
    const char *url;
    struct arena arena;
    struct error e;      /* of the last call that got it */
    struct store *store; /* the one that subject_lead opened */
    struct fence fence;  /* and its leadership */
    struct store *open[SUBJECT_STORES_MAX];
    uint32_t n_open;
};

typedef void contract_fn(struct subject *s);

void subject_run(enum engine_kind kind, contract_fn *fn);

#define CONTRACT_ON(engine, kind, sentence)                                                                            \
    static void engine##_run_##sentence(void)                                                                          \
    {                                                                                                                  \
        subject_run((kind), contract_##sentence);                                                                      \
    }                                                                                                                  \
    __attribute__((constructor)) static void engine##_register_##sentence(void)                                        \
    {                                                                                                                  \
        static struct test_case test = {.name = #engine ": " #sentence, .run = engine##_run_##sentence, .next = NULL}; \
        test_register(&test);                                                                                          \
    }

/*
 * For all engines, for those that several processes can share, for those where a leadership runs out (from a process
 * that lives nobody can take the lock of SQLite), or for what only PostgreSQL has.
 */
#define CONTRACT(sentence)                                                                                             \
    static void contract_##sentence(struct subject *s);                                                                \
    CONTRACT_ON(memory, ENGINE_MEMORY, sentence)                                                                       \
    CONTRACT_ON(sqlite, ENGINE_SQLITE, sentence)                                                                       \
    CONTRACT_ON(postgres, ENGINE_POSTGRES, sentence)                                                                   \
    static void contract_##sentence(struct subject *s)

#define CONTRACT_OF_FILES(sentence)                                                                                    \
    static void contract_##sentence(struct subject *s);                                                                \
    CONTRACT_ON(sqlite, ENGINE_SQLITE, sentence)                                                                       \
    CONTRACT_ON(postgres, ENGINE_POSTGRES, sentence)                                                                   \
    static void contract_##sentence(struct subject *s)

#define CONTRACT_OF_CLOCKS(sentence)                                                                                   \
    static void contract_##sentence(struct subject *s);                                                                \
    CONTRACT_ON(memory, ENGINE_MEMORY, sentence)                                                                       \
    CONTRACT_ON(postgres, ENGINE_POSTGRES, sentence)                                                                   \
    static void contract_##sentence(struct subject *s)

#define CONTRACT_OF_POSTGRES(sentence)                                                                                 \
    static void contract_##sentence(struct subject *s);                                                                \
    CONTRACT_ON(postgres, ENGINE_POSTGRES, sentence)                                                                   \
    static void contract_##sentence(struct subject *s)

/* That a call on a store succeeds; prints its message if not. */
#define CHECK_OK(s, call) subject_check((s), (call), ERR_OK, #call, __FILE__, __LINE__)
/* That it fails so. */
#define CHECK_FAILS(s, call, code) subject_check((s), (call), (code), #call, __FILE__, __LINE__)
void subject_check(struct subject *s, enum err actual, enum err expected, const char *text, const char *file, int line);

/* Another store on the same database; closed when the test ends, or before. */
struct store *subject_open(struct subject *s);
void subject_close(struct subject *s, struct store *store);

/* Opens the first store, migrates the database and leads for an hour. */
void subject_lead(struct subject *s);
/* A claim of that node for `ttl_ms`, with a token that no other claim has. */
struct leader_claim subject_claim(const char *node_id, int64_t ttl_ms);
/* Lets the leadership of `ttl_ms`, just taken or renewed, run out; not for SQLite, where it does not. */
void subject_outwait(struct subject *s, struct store *store, int64_t ttl_ms);

/*
 * What the engine's own client prints for a statement, `@` standing for the schema's name and a dot: rows as lines,
 * columns with | between them. Not for the engine in memory. Ends the test if the client fails.
 */
const char *subject_sql(struct subject *s, const char *sql);

/* Sets the version that the database says that its schema has. */
void subject_set_schema(struct subject *s, uint32_t version);
/* Leaves a tree in the inbox as an application would. */
void subject_add_inbox(struct subject *s, const char *job_id, const char *tree);
/*
 * The history of attempts, which store.h cannot read: one line each, by key, as job_id in hexadecimal, stage, task,
 * attempt, key in hexadecimal, node in hexadecimal (or nothing for NULL), created, status, changed, with | in between.
 */
const char *subject_attempts(struct subject *s);

/* A database in memory to compare with: migrated, led, never broken. Closed when the test ends. */
struct subject *subject_reference(void);
/* A database of SQLite beside the one under test, new and empty; nothing is opened yet. */
struct subject *subject_embedded(void);
/* Ends both, so that a test can have them anew. */
void subject_end_others(void);

#endif
