#include "../test.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>

#include "base/clock.h"
#include "exec/executor.h"

static bool is_readable(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, 0) == 1;
}

TEST(a_new_stop_is_not_fired)
{
    struct exec_stop *stop = exec_stop_new();
    CHECK_INT(exec_stop_reason(stop), STOP_NONE);
    CHECK(!exec_stop_is_urgent(stop));
    CHECK(!exec_stop_wait(stop, 0));
    CHECK(!exec_stop_wait(stop, -1));
    CHECK(!is_readable(exec_stop_fd(stop)));
    exec_stop_free(stop);
    exec_stop_free(NULL);
}

TEST(the_first_reason_wins)
{
    struct exec_stop *stop = exec_stop_new();
    exec_stop_fire(stop, STOP_LEASE_LOST);
    exec_stop_fire(stop, STOP_CANCELED);
    CHECK_INT(exec_stop_reason(stop), STOP_LEASE_LOST);
    exec_stop_free(stop);
}

TEST(only_the_time_limit_leaves_time_for_a_grace)
{
    struct exec_stop *stop = exec_stop_new();
    exec_stop_fire(stop, STOP_TIMEOUT);
    CHECK(!exec_stop_is_urgent(stop));
    exec_stop_fire(stop, STOP_CANCELED);
    CHECK_INT(exec_stop_reason(stop), STOP_TIMEOUT);
    CHECK(exec_stop_is_urgent(stop));
    exec_stop_free(stop);
}

TEST(the_descriptor_of_a_stop_is_the_same_at_each_call_and_readable_from_the_firing_on)
{
    struct exec_stop *stop = exec_stop_new();
    int fd = exec_stop_fd(stop);
    CHECK(fd >= 0);
    CHECK_INT(exec_stop_fd(stop), fd);
    exec_stop_fire(stop, STOP_SHUTDOWN);
    CHECK(is_readable(fd));
    CHECK(is_readable(fd));
    exec_stop_free(stop);
}

TEST(a_descriptor_that_is_asked_for_after_the_firing_is_readable)
{
    struct exec_stop *stop = exec_stop_new();
    exec_stop_fire(stop, STOP_CANCELED);
    CHECK(is_readable(exec_stop_fd(stop)));
    exec_stop_free(stop);
}

TEST(a_wait_ends_when_its_time_is_over)
{
    struct exec_stop *stop = exec_stop_new();
    int64_t start_us = clock_mono_us();
    CHECK(!exec_stop_wait(stop, 20));
    CHECK(clock_mono_us() - start_us >= 20000);
    exec_stop_free(stop);
}

static void *wait_long(void *stop)
{
    return exec_stop_wait(stop, INT64_C(1000000000000)) ? stop : NULL;
}

static void *fire(void *stop)
{
    exec_stop_fire(stop, STOP_CANCELED);
    return NULL;
}

TEST(a_wait_ends_when_the_stop_is_fired)
{
    for (int round = 0; round < 200; round++) {
        struct exec_stop *stop = exec_stop_new();
        pthread_t waiter;
        pthread_t firer;
        CHECK_INT(pthread_create(&waiter, NULL, wait_long, stop), 0);
        CHECK_INT(pthread_create(&firer, NULL, fire, stop), 0);
        int fd = exec_stop_fd(stop); /* at the same time as the others */
        void *seen = NULL;
        CHECK_INT(pthread_join(waiter, &seen), 0);
        CHECK_INT(pthread_join(firer, NULL), 0);
        CHECK(seen == stop);
        CHECK(is_readable(fd));
        exec_stop_free(stop);
    }
}

TEST(firing_for_no_reason_is_a_mistake)
{
    struct exec_stop *stop = exec_stop_new();
    CHECK_ABORTS(exec_stop_fire(stop, STOP_NONE));
    exec_stop_free(stop);
}
