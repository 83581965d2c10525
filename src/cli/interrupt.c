#include "cli/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "rpc/rpc.h"

struct interrupt {
    pthread_t thread;
    atomic_int count; /* of signals that have come, and one more if the next is to end the process */
    atomic_bool is_on;
    struct rpc_cancel *cancel;
    sigset_t waits_for;
    sigset_t before;
};

/* SIGUSR1 is only ever sent by interrupt_end, to this thread. */
static void *wait_for_signals(void *context)
{
    struct interrupt *interrupt = context;
    for (;;) {
        int signal_number = 0;
        if (sigwait(&interrupt->waits_for, &signal_number) != 0) {
            continue;
        }
        if (signal_number == SIGUSR1) {
            return NULL;
        }
        if (atomic_fetch_add(&interrupt->count, 1) > 0) {
            _exit(EXIT_INTERRUPTED);
        }
        atomic_store(&interrupt->is_on, true);
        rpc_cancel_fire(interrupt->cancel);
    }
}

struct interrupt *interrupt_begin(void)
{
    struct interrupt *interrupt = mem_calloc(1, sizeof *interrupt);
    interrupt->cancel = rpc_cancel_new();
    sigemptyset(&interrupt->waits_for);
    sigaddset(&interrupt->waits_for, SIGINT);
    sigaddset(&interrupt->waits_for, SIGTERM);
    sigaddset(&interrupt->waits_for, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &interrupt->waits_for, &interrupt->before);
    int failed = pthread_create(&interrupt->thread, NULL, wait_for_signals, interrupt);
    ASSERT(failed == 0);
    return interrupt;
}

void interrupt_end(struct interrupt *interrupt)
{
    if (interrupt == NULL) {
        return;
    }
    pthread_kill(interrupt->thread, SIGUSR1);
    pthread_join(interrupt->thread, NULL);
    pthread_sigmask(SIG_SETMASK, &interrupt->before, NULL);
    rpc_cancel_free(interrupt->cancel);
    mem_free(interrupt);
}

bool interrupt_is_on(const struct interrupt *interrupt)
{
    return interrupt != NULL && atomic_load(&interrupt->is_on);
}

bool interrupt_hurry(struct interrupt *interrupt)
{
    return atomic_fetch_add(&interrupt->count, 1) == 0;
}

struct rpc_cancel *interrupt_cancel(struct interrupt *interrupt)
{
    return interrupt->cancel;
}
