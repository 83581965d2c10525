/* schema_test.c - migrations: up, down, twice, by many at once, killed in the middle, and too new. */
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "content.h"
#include "crowd.h"
#include "picture.h"

static struct migration_status status_of(struct subject *s, struct store *store)
{
    struct migration_status status = {0};
    CHECK_OK(s, store_schema(store, &status, &s->e));
    return status;
}

static void ignore_row(void *context, const struct row *row)
{
    UNUSED(context);
    UNUSED(row);
}

/* Nothing that needs tables works, and nothing crashes. */
static void check_unusable(struct subject *s, struct store *store)
{
    struct fence fence = {.epoch = 1, .token = {{1, 2}}};
    struct leader_claim claim = subject_claim("n", 1000);
    struct leader leader;
    struct batch empty = {0};
    struct page page;
    struct job_query jobs = {.state = -1, .limit = 10};
    CHECK(store_lead(store, &claim, &s->arena, &leader, &s->e) != ERR_OK);
    CHECK(store_commit(store, &fence, &empty, &s->e) != ERR_OK);
    CHECK(store_load(store, ignore_row, NULL, &s->e) != ERR_OK);
    CHECK(store_jobs(store, &jobs, &s->arena, &page, &s->e) != ERR_OK);
}

CONTRACT(a_new_database_is_empty_and_of_no_use_until_it_is_migrated)
{
    struct store *store = subject_open(s);
    struct migration_status status = status_of(s, store);
    CHECK_UINT(status.current, 0);
    CHECK(status.newest >= 1);
    CHECK(!status.is_too_new);
    check_unusable(s, store);
    CHECK_OK(s, store_migrate(store, STORE_NEWEST, &s->e));
    CHECK_UINT(status_of(s, store).current, status.newest);
    s->store = store;
    struct picture p = {0};
    picture_load(&p, s);
    CHECK_UINT(p.n, 1); /* the number of the last event: 0 */
    CHECK_INT(p.entries[0].values[0].number, 0);
    picture_deinit(&p);
}

CONTRACT(migrating_twice_does_nothing_the_second_time)
{
    struct rows rows = {0};
    struct picture before = {0};
    struct picture after = {0};
    subject_lead(s);
    add_whole_job(&rows, "j");
    CHECK_OK(s, rows_commit(s, &rows));
    picture_load(&before, s);
    CHECK_OK(s, store_migrate(s->store, STORE_NEWEST, &s->e));
    CHECK_OK(s, store_migrate(s->store, status_of(s, s->store).newest, &s->e));
    CHECK_OK(s, store_migrate(subject_open(s), STORE_NEWEST, &s->e));
    picture_load(&after, s);
    CHECK_PICTURES(&after, &before);
    CHECK_OK(s, rows_commit(s, &rows)); /* still the leader */
    picture_deinit(&before);
    picture_deinit(&after);
    rows_deinit(&rows);
}

CONTRACT(a_schema_goes_down_step_by_step_and_up_again)
{
    struct rows rows = {0};
    struct picture p = {0};
    subject_lead(s);
    add_whole_job(&rows, "j");
    add_node(&rows, "w1");
    add_event(&rows, 1, ref_of("j", 0, 0));
    CHECK_OK(s, rows_commit(s, &rows));
    struct store *store = subject_open(s);
    for (uint32_t version = status_of(s, store).newest; version > 0; version--) {
        CHECK_OK(s, store_migrate(store, version - 1, &s->e));
        CHECK_UINT(status_of(s, store).current, version - 1);
    }
    check_unusable(s, store);
    for (uint32_t version = 1; version <= status_of(s, store).newest; version++) {
        CHECK_OK(s, store_migrate(store, version, &s->e));
        CHECK_UINT(status_of(s, store).current, version);
    }
    picture_load(&p, s);
    CHECK_UINT(p.n, 1);
    picture_deinit(&p);
    rows_deinit(&rows);
}

CONTRACT(a_version_that_nobody_knows_is_refused)
{
    struct store *store = subject_open(s);
    CHECK(store_migrate(store, 999, &s->e) != ERR_OK);
    CHECK(status_of(s, store).current <= status_of(s, store).newest);
    CHECK_OK(s, store_migrate(store, STORE_NEWEST, &s->e));
}

CONTRACT(a_schema_newer_than_the_program_is_left_alone)
{
    struct store *store = subject_open(s);
    CHECK_OK(s, store_migrate(store, STORE_NEWEST, &s->e));
    uint32_t newest = status_of(s, store).newest;
    subject_set_schema(s, newest + 1);
    struct store *other = subject_open(s);
    struct migration_status status = status_of(s, other);
    CHECK_UINT(status.current, newest + 1);
    CHECK_UINT(status.newest, newest);
    CHECK(status.is_too_new);
    CHECK_FAILS(s, store_migrate(other, STORE_NEWEST, &s->e), ERR_PRECONDITION);
    CHECK_FAILS(s, store_migrate(other, 0, &s->e), ERR_PRECONDITION);
    check_unusable(s, other);
    CHECK_UINT(status_of(s, other).current, newest + 1);
}

static int migrate_up(struct member *m)
{
    return (int)store_migrate(m->store, STORE_NEWEST, &m->e);
}

static void check_migrated_by_all(struct subject *s, const int *answers, uint32_t n)
{
    struct store *store = subject_open(s);
    struct migration_status status = status_of(s, store);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_OK(s, (enum err)answers[i]);
    }
    CHECK_UINT(status.current, status.newest);
    subject_close(s, store);
    subject_lead(s); /* and it works */
}

CONTRACT(eight_threads_migrate_at_once)
{
    int answers[8];
    crowd_of_threads(s, 8, migrate_up, answers);
    check_migrated_by_all(s, answers, 8);
}

CONTRACT_OF_FILES(five_processes_migrate_at_once)
{
    int answers[5];
    crowd_of_processes(s, 5, migrate_up, answers);
    check_migrated_by_all(s, answers, 5);
}

CONTRACT_OF_FILES(a_migration_that_is_killed_leaves_a_version_that_the_next_can_start_from)
{
    struct prng prng;
    prng_init(&prng, 5);
    for (int round = 0; round < 10; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            struct store *store = NULL;
            struct error e;
            enum err err = store_open(s->url, &store, &e);
            while (err == ERR_OK) {
                err = store_migrate(store, STORE_NEWEST, &e);
                err = err == ERR_OK ? store_migrate(store, 0, &e) : err;
            }
            _exit(1);
        }
        struct timespec pause = {.tv_nsec = prng_range(&prng, 1, 120) * 1000000};
        nanosleep(&pause, NULL);
        int status = 0;
        kill(child, SIGKILL);
        CHECK_INT(waitpid(child, &status, 0), child);
        CHECK(WIFSIGNALED(status)); /* it did not fail before */
        struct store *store = subject_open(s);
        CHECK(status_of(s, store).current <= status_of(s, store).newest);
        CHECK_OK(s, store_migrate(store, STORE_NEWEST, &s->e));
        CHECK_UINT(status_of(s, store).current, status_of(s, store).newest);
        CHECK_OK(s, store_migrate(store, 0, &s->e));
        subject_close(s, store);
    }
    subject_lead(s);
}
