/*
 * A process that is only a client, which is not the same as one with a server inside: nobody in it waits for the network
 * between its calls. The servers are this program again, in processes of their own.
 */
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "integration/rpc/loop.h"

#define LISTEN "CAPSTAN_TEST_RPC_LISTEN"
#define REPORT_FD 3

struct child {
    pid_t pid;
    int alive; /* the child ends when this is closed, by us or because we ended */
};

/* What a child runs. It is no test for those who call it by its name. */
TEST(child_that_serves)
{
    const char *listen = getenv(LISTEN);
    if (listen == NULL) {
        skip();
    }
    struct loop loop = {0};
    struct rpc_server_options options = loop_options(&loop);
    options.listen = listen;
    loop_open_with(&loop, &options);
    dprintf(REPORT_FD, "%s", rpc_server_address(loop.server));
    close(REPORT_FD);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    loop_close(&loop);
}

/* Starts a server. `address` is where it shall listen, and becomes where it does. */
static struct child start_child(char address[64])
{
    extern char **environ;
    char *argv[] = {"integration-rpc", "child_that_serves", NULL};
    int alive[2];
    int report[2];
    struct child child = {0};
    posix_spawn_file_actions_t actions;
    CHECK_INT(pipe(alive), 0);
    CHECK_INT(pipe(report), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, alive[0], STDIN_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", 0, 0);
    posix_spawn_file_actions_addclose(&actions, alive[1]);
    posix_spawn_file_actions_adddup2(&actions, report[1], 100);
    posix_spawn_file_actions_addclose(&actions, report[0]);
    posix_spawn_file_actions_addclose(&actions, report[1]);
    posix_spawn_file_actions_adddup2(&actions, 100, REPORT_FD);
    posix_spawn_file_actions_addclose(&actions, 100);
    setenv(LISTEN, address, 1);
    CHECK_INT(posix_spawn(&child.pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
    unsetenv(LISTEN);
    posix_spawn_file_actions_destroy(&actions);
    close(alive[0]);
    close(report[1]);
    ssize_t n = read(report[0], address, 63);
    close(report[0]);
    CHECK(n > 0);
    address[n] = '\0';
    child.alive = alive[1];
    return child;
}

static void kill_child(struct child *child)
{
    kill(child->pid, SIGKILL);
    waitpid(child->pid, NULL, 0);
    close(child->alive);
}

static enum err call_echo(struct rpc_channel *channel)
{
    struct buf out = {0};
    struct rpc_request request = {.path = "/t/Echo", .bytes = "x", .n = 1, .timeout_ms = 10000};
    enum err err = rpc_unary(channel, &request, &out, NULL, NULL);
    buf_deinit(&out);
    return err;
}

TEST(a_mere_client_finds_a_server_again_that_was_killed_and_started_anew)
{
    char address[64] = "127.0.0.1:0";
    struct child child = start_child(address);
    struct rpc_channel *channel = NULL;
    struct rpc_channel_options options = {.target = address};
    CHECK_ERR(rpc_channel_open(&options, &channel, NULL), ERR_OK);
    CHECK_ERR(call_echo(channel), ERR_OK);
    int64_t took_ms = INT64_MAX;
    for (int round = 0; round < 3 && took_ms >= 3000; round++) { /* a busy machine may be late once */
        kill_child(&child);
        for (int i = 0; i < 20; i++) {
            CHECK_ERR(call_echo(channel), ERR_UNAVAILABLE);
            nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* an outage that makes the channel wait longer */
        }
        child = start_child(address);
        int64_t from_ms = clock_mono_ms();
        while (call_echo(channel) != ERR_OK) {
            CHECK(clock_mono_ms() - from_ms < 60000);
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        }
        took_ms = clock_mono_ms() - from_ms;
        print_message("found after %lld ms\n", (long long)took_ms);
    }
    CHECK(took_ms < 3000);
    rpc_channel_close(channel);
    kill_child(&child);
}
