/*
 * fixture.h - a database on a PostgreSQL server that all tests of this program share, a store on it, and small batches.
 *
 * Ownership: fixture_close ends what fixture_open began, except the server, which lasts as long as the program.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_POSTGRES_FIXTURE_H
#define CAPSTAN_TESTS_INTEGRATION_POSTGRES_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "integration/postgres/server.h"
#include "store/store.h"
#include "test.h"

struct fixture {
    struct server server; /* with the URL of a database of its own */
    struct store *store;
    struct fence fence;
    struct arena arena;
    struct error e;
};

/* A store on a new and empty database. */
void fixture_open(struct fixture *f);
/* The same, migrated and led for `ttl_ms`. */
void fixture_lead(struct fixture *f, int64_t ttl_ms);
void fixture_close(struct fixture *f);

/* Closes the store and waits until the server has counted what it did; fixture_call_again opens it again. */
void fixture_hang_up(struct fixture *f);
void fixture_call_again(struct fixture *f);

/* That a call on a store ends so; prints its message if not. */
#define CHECK_CALL(f, call, code) fixture_check((f), (call), (code), #call, __FILE__, __LINE__)
void fixture_check(struct fixture *f, enum err actual, enum err expected, const char *text, const char *file, int line);

/* A claim of that node with a token that no other claim of any process has. */
struct leader_claim fixture_claim(const char *node_id, int64_t ttl_ms);
/* Until the leadership has run out by the database's clock. */
void fixture_outwait(struct fixture *f);

/*
 * Commits a job of `n_tasks` tasks, with a stage and an event: all of it new. `seq` is the event's; the job is "job-<seq>".
 * Fails as store_commit.
 */
MUST_USE enum err fixture_commit(struct store *store, const struct fence *fence, uint64_t seq, uint32_t n_tasks,
                                 struct error *e);

/* Changes that job, its tasks and attempts, removes what it may have elsewhere, and sweeps it. */
MUST_USE enum err fixture_change(struct store *store, const struct fence *fence, uint64_t seq, uint32_t n_tasks,
                                 struct error *e);

/* Runs `body` in a process of its own; its result is the exit status. */
typedef int child_fn(void *context);
pid_t child_start(child_fn *body, void *context);
int child_wait(pid_t pid);
/* False once it has ended well; the test ends if it has ended otherwise. */
bool child_is_running(pid_t pid);

void pause_ms(int64_t ms);
/* Milliseconds that only go forwards. */
int64_t clock_ms(void);

#endif
