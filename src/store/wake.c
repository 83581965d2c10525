/* A wait that another thread can end: an eventfd beside whatever else is waited for. */
#include "store/wake.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"

enum err wake_init(struct wake *wake, struct error *e)
{
    wake->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return wake->fd >= 0 ? ERR_OK : error_set(e, ERR_UNAVAILABLE, "cannot make an eventfd: %s", strerror(errno));
}

void wake_deinit(struct wake *wake)
{
    if (wake->fd >= 0) {
        close(wake->fd);
        wake->fd = -1;
    }
}

void wake_up(const struct wake *wake)
{
    uint64_t one = 1;
    ssize_t ignored = write(wake->fd, &one, sizeof one); /* it fails only if it is set already, to the brim */
    UNUSED(ignored);
}

bool wake_wait(const struct wake *wake, int fd, int64_t timeout_ms)
{
    struct pollfd fds[] = {{.fd = wake->fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    int64_t now_ms = clock_mono_ms();
    int64_t deadline_ms = timeout_ms > INT64_MAX - now_ms ? INT64_MAX : now_ms + timeout_ms;
    for (;;) {
        int64_t left_ms = deadline_ms - now_ms;
        int rc = poll(fds, ARRAY_LEN(fds), left_ms <= 0 ? 0 : left_ms > INT_MAX ? INT_MAX : (int)left_ms);
        if (rc > 0 && fds[0].revents != 0) {
            uint64_t count;
            ssize_t ignored = read(wake->fd, &count, sizeof count); /* the next wait is a new one */
            UNUSED(ignored);
            return false;
        }
        if (rc > 0) {
            return true;
        }
        now_ms = clock_mono_ms();
        if (now_ms >= deadline_ms) {
            return false;
        }
    }
}
