#define _GNU_SOURCE /* close_range */
#include "exec/child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>

CHILD_SIDE void child_close_from(int first)
{
    if (close_range((unsigned)first, UINT_MAX, 0) == 0) {
        return;
    }
    /* A kernel before 5.9, or a sandbox that does not know the call. */
    struct rlimit files = {0};
    getrlimit(RLIMIT_NOFILE, &files);
    for (int fd = first; fd < (int)files.rlim_cur; fd++) {
        close(fd);
    }
}

CHILD_SIDE void child_keep_two(int a, int b)
{
    /* First out of the way, so that neither is overwritten by the other. */
    a = fcntl(a, F_DUPFD, 2);
    b = b < 0 ? -1 : fcntl(b, F_DUPFD, 2);
    dup2(a, 0);
    if (b >= 0) {
        dup2(b, 1);
    } else {
        close(1);
    }
    child_close_from(2);
}

CHILD_SIDE void child_reset_signals(void)
{
    struct sigaction plain = {.sa_flags = 0};
    plain.sa_handler = SIG_DFL;
    for (int signal = 1; signal <= SIGRTMAX; signal++) {
        /* Fails for SIGKILL, SIGSTOP and those of the C library, which are never handled otherwise. */
        (void)sigaction(signal, &plain, NULL);
    }
}
