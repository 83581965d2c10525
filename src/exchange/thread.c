#include "exchange/thread.h"

#include <signal.h>

#include "base/check.h"

void exchange__thread_start(pthread_t *out, void *(*run)(void *context), void *context)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(out, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    ASSERT(failed == 0);
}
