#include "integration/rpc/proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"

#define TICK_MS 10

static struct sockaddr_in loopback(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
}

static int open_socket(void)
{
    return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static void add_pair(struct proxy *proxy)
{
    struct sockaddr_in at = loopback(proxy->server_port);
    int client = accept(proxy->listener, NULL, NULL);
    int server = open_socket();
    bool is_ok = client >= 0 && server >= 0 && proxy->n_pairs < PROXY_PAIRS_MAX &&
                 connect(server, (struct sockaddr *)&at, sizeof(at)) == 0;
    if (!is_ok) {
        close(client);
        close(server);
        return;
    }
    int on = 1;
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    proxy->pairs[proxy->n_pairs][0] = client;
    proxy->pairs[proxy->n_pairs][1] = server;
    proxy->n_pairs++;
}

static void remove_pair(struct proxy *proxy, int i)
{
    close(proxy->pairs[i][0]);
    close(proxy->pairs[i][1]);
    proxy->n_pairs--;
    memcpy(proxy->pairs[i], proxy->pairs[proxy->n_pairs], sizeof(proxy->pairs[i]));
}

static bool pass(int from, int to)
{
    char bytes[65536];
    ssize_t n = read(from, bytes, sizeof(bytes));
    for (ssize_t done = 0; done < n;) {
        ssize_t written = send(to, bytes + done, (size_t)(n - done), MSG_NOSIGNAL);
        if (written <= 0) {
            return false;
        }
        done += written;
    }
    return n > 0;
}

static void step(struct proxy *proxy)
{
    struct pollfd fds[1 + 2 * PROXY_PAIRS_MAX];
    int n_pairs = proxy->n_pairs;
    fds[0] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
    for (int i = 0; i < n_pairs; i++) {
        fds[1 + 2 * i] = (struct pollfd){.fd = proxy->pairs[i][0], .events = POLLIN};
        fds[2 + 2 * i] = (struct pollfd){.fd = proxy->pairs[i][1], .events = POLLIN};
    }
    nfds_t n_fds = 1;
    n_fds += 2 * (nfds_t)n_pairs;
    if (poll(fds, n_fds, TICK_MS) <= 0) {
        return;
    }
    for (int i = n_pairs - 1; i >= 0; i--) {
        bool is_open = fds[1 + 2 * i].revents == 0 || pass(proxy->pairs[i][0], proxy->pairs[i][1]);
        is_open = is_open && (fds[2 + 2 * i].revents == 0 || pass(proxy->pairs[i][1], proxy->pairs[i][0]));
        if (!is_open) {
            remove_pair(proxy, i);
        }
    }
    if (fds[0].revents != 0) {
        add_pair(proxy);
    }
}

static void *run(void *context)
{
    struct proxy *proxy = context;
    while (!atomic_load(&proxy->stop)) {
        if (atomic_load(&proxy->cut)) {
            while (proxy->n_pairs > 0) {
                remove_pair(proxy, 0);
            }
            atomic_store(&proxy->cut, false);
        }
        if (atomic_load(&proxy->is_silent)) {
            poll(NULL, 0, TICK_MS);
        } else {
            step(proxy);
        }
    }
    return NULL;
}

void proxy_open(struct proxy *proxy, const char *server_address)
{
    *proxy = (struct proxy){.listener = open_socket()};
    proxy->server_port = (uint16_t)strtol(strrchr(server_address, ':') + 1, NULL, 10);
    struct sockaddr_in at = loopback(0);
    socklen_t size = sizeof(at);
    CHECK_INT(bind(proxy->listener, (struct sockaddr *)&at, sizeof(at)), 0);
    CHECK_INT(listen(proxy->listener, 16), 0);
    CHECK_INT(getsockname(proxy->listener, (struct sockaddr *)&at, &size), 0);
    snprintf(proxy->address, sizeof(proxy->address), "127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
    CHECK_INT(pthread_create(&proxy->thread, NULL, run, proxy), 0);
}

void proxy_close(struct proxy *proxy)
{
    atomic_store(&proxy->stop, true);
    pthread_join(proxy->thread, NULL);
    while (proxy->n_pairs > 0) {
        remove_pair(proxy, 0);
    }
    close(proxy->listener);
}
