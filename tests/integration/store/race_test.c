/*
 * race_test.c - writers and readers at the same time: a picture is of one moment, what was acknowledged survives, and a
 * deposed leader is too late.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "content.h"
#include "picture.h"

#define LONG_MS INT64_C(3600000)

struct writer {
    struct store *store;
    struct fence fence;
    atomic_bool stop;
    atomic_bool has_ended;
    atomic_uint n_commits;
    enum err err; /* why it ended; ERR_OK: it was told to */
    struct error e;
    uint64_t seq;
};

/* A job with all its parts, a node whose slots count the batches, and an event. */
static enum err write_batch(struct writer *w)
{
    struct rows rows = {0};
    w->seq++;
    add_whole_job(&rows, arena_format(&rows.arena, "job-%u", (unsigned)w->seq));
    add_node(&rows, "counter")->slots = (uint32_t)w->seq;
    add_event(&rows, w->seq, ref_of(NULL, 0, 0));
    const struct row *head = rows.first;
    struct batch batch = {.rows = &head, .n_rows = 1};
    enum err err = store_commit(w->store, &w->fence, &batch, &w->e);
    rows_deinit(&rows);
    return err;
}

static void *write_on(void *context)
{
    struct writer *w = context;
    while (!atomic_load(&w->stop) && w->err == ERR_OK) {
        w->err = write_batch(w);
        atomic_fetch_add(&w->n_commits, w->err == ERR_OK ? 1 : 0);
    }
    atomic_store(&w->has_ended, true);
    return NULL;
}

static void wait_for_commits(struct writer *w, unsigned n)
{
    while (atomic_load(&w->n_commits) < n && !atomic_load(&w->has_ended)) {
        sched_yield();
    }
}

static uint64_t last_seq(const struct picture *p)
{
    return (uint64_t)picture_only(p, "meta")->values[0].number;
}

/* No batch is there in part. */
static bool is_whole(const struct picture *p)
{
    uint32_t n = (uint32_t)last_seq(p);
    return picture_count(p, "jobs") == n && picture_count(p, "stages") == n && picture_count(p, "tasks") == n &&
           picture_count(p, "task_leases") == n && picture_count(p, "map_outputs") == n &&
           picture_count(p, "results") == n &&
           (n == 0 || entry_number(picture_only(p, "distributed_nodes"), "slots") == (int64_t)n);
}

CONTRACT(a_load_is_one_picture_while_somebody_writes)
{
    static struct writer w;
    pthread_t thread;
    subject_lead(s);
    w = (struct writer){.store = s->store, .fence = s->fence};
    s->store = subject_open(s);
    CHECK_INT(pthread_create(&thread, NULL, write_on, &w), 0);
    wait_for_commits(&w, 1);
    bool is_one = true;
    for (int i = 0; i < 15 && is_one; i++) {
        struct picture p = {0};
        picture_load(&p, s);
        uint32_t n = (uint32_t)last_seq(&p);
        is_one = is_whole(&p);
        picture_deinit(&p);
        wait_for_commits(&w, n + 1);
    }
    atomic_store(&w.stop, true);
    CHECK_INT(pthread_join(thread, NULL), 0);
    s->e = w.e;
    CHECK_OK(s, w.err);
    CHECK(is_one);
}

/* ---- a process that dies ---- */

/* In the child: leads, then commits for ever and says what was acknowledged. */
static _Noreturn void write_until_killed(const char *url, uint64_t seq, int out)
{
    static struct writer w;
    struct arena arena = {0};
    struct leader leader;
    struct leader_claim claim = subject_claim("victim", 1);
    w.seq = seq;
    bool ok = store_open(url, &w.store, &w.e) == ERR_OK && store_lead(w.store, &claim, &arena, &leader, &w.e) == ERR_OK;
    w.fence = leader.fence;
    while (ok) {
        ok = write_batch(&w) == ERR_OK && write(out, &w.seq, sizeof w.seq) == (ssize_t)sizeof w.seq;
    }
    _exit(1);
}

/* The last number that came through the pipe; closes it. */
static uint64_t last_acknowledged(int in, uint64_t otherwise)
{
    uint64_t seq = otherwise;
    for (uint64_t got; read(in, &got, sizeof got) == (ssize_t)sizeof got;) {
        seq = got;
    }
    close(in);
    return seq;
}

CONTRACT_OF_FILES(what_was_acknowledged_survives_the_death_of_its_writer)
{
    struct prng prng;
    uint64_t seq = 0;
    prng_init(&prng, 9);
    s->store = subject_open(s);
    CHECK_OK(s, store_migrate(s->store, STORE_NEWEST, &s->e));
    subject_close(s, s->store);
    for (int round = 0; round < 10; round++) {
        int pipe_ends[2];
        int status = 0;
        struct timespec pause = {.tv_nsec = prng_range(&prng, 50, 250) * 1000000};
        CHECK_INT(pipe(pipe_ends), 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            write_until_killed(s->url, seq, pipe_ends[1]);
        }
        close(pipe_ends[1]);
        nanosleep(&pause, NULL); /* any moment will do */
        kill(child, SIGKILL);
        CHECK_INT(waitpid(child, &status, 0), child);
        CHECK(WIFSIGNALED(status));
        uint64_t acknowledged = last_acknowledged(pipe_ends[0], seq);
        struct picture p = {0};
        s->store = subject_open(s);
        picture_load(&p, s);
        CHECK(is_whole(&p));
        seq = last_seq(&p);
        CHECK(seq == acknowledged || seq == acknowledged + 1); /* the last one may have been under way */
        picture_deinit(&p);
        subject_close(s, s->store);
    }
    CHECK(seq > 0);
}

/* ---- a leader that is deposed ---- */

/* From the moment that another leads, nothing of the old leader's arrives. */
static void check_takeover(struct subject *s, uint64_t *seq)
{
    static struct writer w;
    pthread_t thread;
    struct leader heir;
    struct leader_claim claim = subject_claim("heir", LONG_MS);
    struct picture p = {0};
    w = (struct writer){.store = s->store, .fence = s->fence, .seq = *seq};
    struct store *second = subject_open(s);
    CHECK_INT(pthread_create(&thread, NULL, write_on, &w), 0);
    wait_for_commits(&w, 3);
    enum err resigned = store_resign(second, &s->fence, &s->e);
    enum err led = store_lead(second, &claim, &s->arena, &heir, &s->e);
    s->store = second;
    picture_load(&p, s);
    uint64_t seen = last_seq(&p);
    picture_deinit(&p);
    CHECK_INT(pthread_join(thread, NULL), 0); /* it ends by itself, fenced */
    CHECK_OK(s, resigned);
    CHECK_OK(s, led);
    CHECK_ERR(w.err, ERR_FENCED);
    picture_load(&p, s);
    CHECK_UINT(last_seq(&p), seen);
    CHECK_UINT(seen, *seq + atomic_load(&w.n_commits)); /* and all that it was told is there */
    picture_deinit(&p);
    subject_close(s, w.store);
    s->fence = heir.fence;
    *seq = seen;
}

CONTRACT_OF_CLOCKS(a_deposed_leader_that_is_still_writing_is_too_late)
{
    uint64_t seq = 0;
    subject_lead(s);
    for (int round = 0; round < 10; round++) {
        check_takeover(s, &seq);
    }
}
