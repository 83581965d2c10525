#include "crowd.h"

#include <pthread.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define CANNOT_OPEN 100

struct thread {
    struct member member;
    const char *url;
    member_fn *fn;
    pthread_barrier_t *start;
    int answer;
};

static void *run_thread(void *context)
{
    struct thread *t = context;
    enum err err = store_open(t->url, &t->member.store, &t->member.e);
    pthread_barrier_wait(t->start);
    t->answer = err == ERR_OK ? t->fn(&t->member) : CANNOT_OPEN;
    return NULL;
}

void crowd_of_threads(struct subject *s, uint32_t n, member_fn *fn, int *out_answers)
{
    static struct thread threads[CROWD_MAX];
    pthread_t ids[CROWD_MAX];
    pthread_barrier_t start;
    CHECK(n <= CROWD_MAX);
    CHECK_INT(pthread_barrier_init(&start, NULL, n), 0);
    for (uint32_t i = 0; i < n; i++) {
        threads[i] = (struct thread){.member = {.index = i}, .url = s->url, .fn = fn, .start = &start};
        CHECK_INT(pthread_create(&ids[i], NULL, run_thread, &threads[i]), 0);
    }
    for (uint32_t i = 0; i < n; i++) {
        CHECK_INT(pthread_join(ids[i], NULL), 0);
    }
    for (uint32_t i = 0; i < n; i++) {
        store_close(threads[i].member.store);
        arena_deinit(&threads[i].member.arena);
        out_answers[i] = threads[i].answer;
        s->e = threads[i].member.e;
        CHECK(out_answers[i] < CANNOT_OPEN);
    }
    pthread_barrier_destroy(&start);
}

/* Three pipes: `go` ends when all are there, `tried` when all have answered. */
struct gates {
    int go[2];
    int tried[2];
    int answers[2];
};

static _Noreturn void run_process(const char *url, struct member *m, member_fn *fn, const struct gates *gates)
{
    char byte;
    alarm(120); /* if another dies without an answer, all would wait for ever */
    enum err err = store_open(url, &m->store, &m->e);
    close(gates->go[1]);
    close(gates->tried[1]);
    while (read(gates->go[0], &byte, 1) > 0) {
    }
    uint8_t answer = err == ERR_OK ? (uint8_t)fn(m) : CANNOT_OPEN;
    ssize_t written = write(gates->answers[1], &answer, 1);
    while (read(gates->tried[0], &byte, 1) > 0) {
    }
    _exit(written == 1 ? answer : CANNOT_OPEN);
}

void crowd_of_processes(struct subject *s, uint32_t n, member_fn *fn, int *out_answers)
{
    struct gates gates;
    pid_t ids[CROWD_MAX];
    CHECK(n <= CROWD_MAX);
    CHECK_UINT(s->n_open, 0); /* a connection must not be carried into another process */
    CHECK_INT(pipe(gates.go), 0);
    CHECK_INT(pipe(gates.tried), 0);
    CHECK_INT(pipe(gates.answers), 0);
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = fork();
        CHECK(ids[i] >= 0);
        if (ids[i] == 0) {
            struct member member = {.index = i};
            run_process(s->url, &member, fn, &gates);
        }
    }
    close(gates.go[0]);
    close(gates.go[1]);
    close(gates.answers[1]);
    uint8_t answer; /* they come in any order; what counts is the exit code */
    for (uint32_t i = 0; i < n && read(gates.answers[0], &answer, 1) == 1; i++) {
    }
    close(gates.tried[0]);
    close(gates.tried[1]);
    close(gates.answers[0]);
    for (uint32_t i = 0; i < n; i++) {
        int status = 0;
        CHECK_INT(waitpid(ids[i], &status, 0), ids[i]);
        CHECK(WIFEXITED(status));
        out_answers[i] = WEXITSTATUS(status);
        CHECK(out_answers[i] < CANNOT_OPEN);
    }
}
