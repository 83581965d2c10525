#include "integration/coordinator/relay.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "test.h"

#define PAIRS_MAX 64
#define SOCKET_NAME ".s.PGSQL.5432"

/* Two sockets; what comes out of one goes into the other. */
struct pair {
    int fds[2];
};

static struct sockaddr_un address_in(const char *dir)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/" SOCKET_NAME, dir);
    return address;
}

static bool write_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent <= 0) {
            return false;
        }
        bytes += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* False at the end. */
static bool pass_on(int from, int to)
{
    char bytes[65536];
    ssize_t n = read(from, bytes, sizeof bytes);
    return n > 0 && write_all(to, bytes, (size_t)n);
}

static bool connect_pair(struct pair *pair, int listener, const char *server_dir)
{
    struct sockaddr_un address = address_in(server_dir);
    int client = accept(listener, NULL, NULL);
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    if (client < 0 || server < 0 || connect(server, (struct sockaddr *)(void *)&address, sizeof address) != 0) {
        close(client);
        close(server);
        return false;
    }
    *pair = (struct pair){{client, server}};
    return true;
}

static _Noreturn void run(int listener, const char *server_dir)
{
    struct pair pairs[PAIRS_MAX];
    uint32_t n_pairs = 0;
    for (;;) {
        struct pollfd fds[1 + 2 * PAIRS_MAX];
        fds[0] = (struct pollfd){.fd = n_pairs < PAIRS_MAX ? listener : -1, .events = POLLIN};
        for (uint32_t i = 0; i < 2 * n_pairs; i++) {
            fds[1 + i] = (struct pollfd){.fd = pairs[i / 2].fds[i % 2], .events = POLLIN};
        }
        uint32_t n_watched = n_pairs;
        (void)!poll(fds, 1 + 2 * n_watched, -1);
        for (uint32_t i = n_watched; i-- > 0;) {
            bool is_open = true;
            for (uint32_t side = 0; side < 2 && is_open; side++) {
                if (fds[1 + 2 * i + side].revents != 0) {
                    is_open = pass_on(pairs[i].fds[side], pairs[i].fds[1 - side]);
                }
            }
            if (!is_open) {
                close(pairs[i].fds[0]);
                close(pairs[i].fds[1]);
                pairs[i] = pairs[--n_pairs];
            }
        }
        if (fds[0].revents != 0 && connect_pair(&pairs[n_pairs], listener, server_dir)) {
            n_pairs++;
        }
    }
}

void relay_prepare(struct relay *relay)
{
    *relay = (struct relay){0};
    snprintf(relay->dir, sizeof relay->dir, "/tmp/capstan-relay-XXXXXX");
    CHECK(mkdtemp(relay->dir) != NULL);
}

void relay_start(struct relay *relay, const char *server_dir)
{
    struct sockaddr_un address = address_in(relay->dir);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(listener >= 0);
    unlink(address.sun_path);
    CHECK_INT(bind(listener, (struct sockaddr *)(void *)&address, sizeof address), 0);
    CHECK_INT(listen(listener, PAIRS_MAX), 0);
    fflush(NULL);
    relay->pid = fork();
    CHECK(relay->pid >= 0);
    if (relay->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run(listener, server_dir);
    }
    close(listener);
}

void relay_freeze(const struct relay *relay)
{
    int status = 0;
    CHECK_INT(kill(relay->pid, SIGSTOP), 0);
    CHECK_INT(waitpid(relay->pid, &status, WUNTRACED), relay->pid);
    CHECK(WIFSTOPPED(status));
}

void relay_thaw(const struct relay *relay)
{
    CHECK_INT(kill(relay->pid, SIGCONT), 0);
}

void relay_cut(struct relay *relay)
{
    if (relay->pid != 0) {
        struct sockaddr_un address = address_in(relay->dir);
        kill(relay->pid, SIGKILL);
        waitpid(relay->pid, NULL, 0);
        unlink(address.sun_path);
        relay->pid = 0;
    }
}

void relay_stop(struct relay *relay)
{
    if (relay->dir[0] != '\0') {
        relay_cut(relay);
        rmdir(relay->dir);
        relay->dir[0] = '\0';
    }
}
