// clock.c - goes before libfaketime into a process whose clock is shifted: makes its waits end when they should.
//
// libfaketime shifts the time of day that a process reads. It does not see the waits of Abseil, on which gRPC's timers are
// built: system calls on a futex, until a time of day. Taken from a shifted clock, that time is long past for the kernel, so
// that the wait ends at once, over and over, and two threads of gRPC take a core; or it is far off, and timers come late by as
// much as the clock is ahead. A clock that really is wrong does neither. So the time is shifted back before the kernel sees it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000L

typedef long (*Syscall)(long, ...);
typedef int (*ClockGettime)(clockid_t, struct timespec *);

// A function of the C library itself, whoever else has one of that name.
static void *of_libc(const char *name)
{
    return dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), name);
}

// The time at which `shifted` is, by the kernel's clock.
static struct timespec unshifted(const struct timespec *shifted)
{
    struct timespec seen, real;
    clock_gettime(CLOCK_REALTIME, &seen);
    ((ClockGettime)of_libc("clock_gettime"))(CLOCK_REALTIME, &real);
    long s = shifted->tv_sec + real.tv_sec - seen.tv_sec;
    long ns = shifted->tv_nsec + real.tv_nsec - seen.tv_nsec;
    for (; ns < 0; ns += NS_PER_S)
        s--;
    for (; ns >= NS_PER_S; ns -= NS_PER_S)
        s++;
    return (struct timespec){.tv_sec = s < 0 ? 0 : s, .tv_nsec = ns};
}

// Interposes that of the C library.
__attribute__((visibility("default"))) long syscall(long number, ...)
{
    va_list args;
    va_start(args, number);
    long a[6];
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    const struct timespec *until = number == SYS_futex ? (const struct timespec *)a[3] : NULL;
    bool is_of_day = until && (a[1] & FUTEX_CLOCK_REALTIME) != 0 && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
    struct timespec real = is_of_day ? unshifted(until) : (struct timespec){0};
    if (is_of_day)
        a[3] = (long)&real;
    return ((Syscall)of_libc("syscall"))(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
