#include "server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "test.h"

#define CONNECTIONS_MAX 256

struct server {
    int listener;
    int port;
    pthread_t acceptor;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_t threads[CONNECTIONS_MAX];
    int fds[CONNECTIONS_MAX];
    int count;
    int requests;
    int desertions;
    struct buf last;
};

struct connection {
    struct server *server;
    int fd;
};

static bool send_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0) {
            return false;
        }
        bytes += sent;
        n -= (size_t)sent;
    }
    return true;
}

static void answer(int fd, int status, const char *headers, const char *body, size_t n)
{
    struct buf head = {0};
    buf_format(&head, "HTTP/1.1 %d Told\r\nContent-Length: %zu\r\n%s\r\n", status, n, headers);
    if (send_all(fd, head.data, head.n)) {
        send_all(fd, body, n);
    }
    buf_deinit(&head);
}

static void note_desertion(struct server *server)
{
    pthread_mutex_lock(&server->mutex);
    server->desertions++;
    pthread_mutex_unlock(&server->mutex);
}

static void be_silent(const struct connection *c)
{
    char byte = 0;
    while (recv(c->fd, &byte, 1, 0) > 0) {
    }
    note_desertion(c->server);
}

static void go_on_without_end(const struct connection *c)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    struct buf chunk = {0};
    buf_text(&chunk, "1000\r\n");
    for (int i = 0; i < 4096; i++) {
        buf_char(&chunk, 'e');
    }
    buf_text(&chunk, "\r\n");
    bool is_there = send_all(c->fd, head, strlen(head));
    while (is_there) {
        is_there = send_all(c->fd, chunk.data, chunk.n);
    }
    buf_deinit(&chunk);
    note_desertion(c->server);
}

static void send_quotes(int fd)
{
    size_t n = (size_t)1024 * 1024;
    char *quotes = mem_alloc(n);
    memset(quotes, '"', n);
    answer(fd, 200, "", quotes, n);
    mem_free(quotes);
}

/* [1,2], by gzip. */
static const char packed[] =
    "\037\213\010\000\000\000\000\000\002\003\213\066\324\061\212\005\000\277\120\213\010\005\000\000\000";

static void send_elsewhere(int fd, const char *path)
{
    struct buf header = {0};
    const char *url = path + strlen("/to/302/");
    if (*url != '\0') {
        buf_format(&header, "Location: %s\r\n", url);
    }
    answer(fd, (int)strtol(path + strlen("/to/"), NULL, 10), header.data != NULL ? header.data : "", "", 0);
    buf_deinit(&header);
}

/* False if the connection is not to be used any more. */
static bool respond(const struct connection *c, const char *path, const struct buf *request)
{
    static const char half[] = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf";
    bool goes_on = true;
    if (strcmp(path, "/echo") == 0) {
        answer(c->fd, 200, "Content-Type: text/plain\r\n", request->data, request->n);
    } else if (strcmp(path, "/json") == 0) {
        answer(c->fd, 200, "Content-Type: application/json\r\n", "{\"a\": [1, 2]}\n", 14);
    } else if (strncmp(path, "/status/", 8) == 0) {
        answer(c->fd, (int)strtol(path + 8, NULL, 10), "", "told", 4);
    } else if (strncmp(path, "/to/", 4) == 0) {
        send_elsewhere(c->fd, path);
    } else if (strcmp(path, "/packed") == 0) {
        answer(c->fd, 200, "Content-Encoding: gzip\r\n", packed, sizeof(packed) - 1);
    } else if (strcmp(path, "/binary") == 0) {
        answer(c->fd, 200, "", "a\xff\0b", 4);
    } else if (strcmp(path, "/headers") == 0) {
        answer(c->fd, 200, "X-Mixed:  Some Value \r\nSet-Cookie: a=1\r\nX-Empty:\r\nset-cookie: b=2\r\n", "", 0);
    } else if (strcmp(path, "/quotes") == 0) {
        send_quotes(c->fd);
    } else {
        goes_on = false;
        if (strcmp(path, "/endless") == 0) {
            go_on_without_end(c);
        } else if (strcmp(path, "/silence") == 0) {
            be_silent(c);
        } else if (strcmp(path, "/half") == 0) {
            send_all(c->fd, half, strlen(half));
        } else if (strcmp(path, "/nonsense") == 0) {
            send_all(c->fd, "good morning\r\n\r\n", 16);
        }
    }
    return goes_on;
}

/* Bytes of the body that the head announces. */
static size_t announced(const char *head)
{
    for (const char *line = head; line != NULL; line = strstr(line, "\r\n")) {
        line += line == head ? 0 : 2;
        if (strncasecmp(line, "Content-Length:", 15) == 0) {
            return (size_t)strtoul(line + 15, NULL, 10);
        }
    }
    return 0;
}

/* Reads one request. False when there is none any more. */
static bool read_request(int fd, struct buf *request)
{
    size_t whole = 0; /* bytes of the request, when the head is known */
    buf_reset(request);
    while (whole == 0 || request->n < whole) {
        char bytes[65536];
        ssize_t n = recv(fd, bytes, sizeof(bytes), 0);
        if (n <= 0) {
            return false;
        }
        buf_append(request, bytes, (size_t)n);
        const char *end = strstr(request->data, "\r\n\r\n");
        if (whole == 0 && end != NULL) {
            whole = (size_t)(end - request->data) + 4 + announced(request->data);
        }
    }
    return true;
}

static void *serve(void *argument)
{
    struct connection *c = argument;
    struct buf request = {0};
    bool goes_on = true;
    while (goes_on && read_request(c->fd, &request)) {
        pthread_mutex_lock(&c->server->mutex);
        c->server->requests++;
        buf_reset(&c->server->last);
        buf_append(&c->server->last, request.data, request.n);
        pthread_mutex_unlock(&c->server->mutex);
        const char *start = strchr(request.data, ' ') + 1;
        size_t n = strcspn(start, " ");
        char *path = mem_copy(start, n + 1);
        path[n] = '\0';
        goes_on = respond(c, path, &request);
        mem_free(path);
    }
    shutdown(c->fd, SHUT_RDWR);
    buf_deinit(&request);
    mem_free(c);
    return NULL;
}

static void *accept_all(void *argument)
{
    struct server *server = argument;
    for (;;) {
        int fd = accept(server->listener, NULL, NULL);
        if (fd < 0) {
            return NULL;
        }
        struct connection *c = mem_alloc(sizeof(*c));
        *c = (struct connection){.server = server, .fd = fd};
        pthread_mutex_lock(&server->mutex);
        int i = server->count;
        if (i < CONNECTIONS_MAX && pthread_create(&server->threads[i], NULL, serve, c) == 0) {
            server->fds[i] = fd;
            server->count++;
        } else {
            close(fd);
            mem_free(c);
        }
        pthread_mutex_unlock(&server->mutex);
    }
}

struct server *server_open(void)
{
    struct server *server = mem_calloc(1, sizeof(*server));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(address);
    pthread_mutex_init(&server->mutex, NULL);
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(bind(server->listener, (const struct sockaddr *)&address, sizeof(address)), 0);
    CHECK_INT(listen(server->listener, 64), 0);
    CHECK_INT(getsockname(server->listener, (struct sockaddr *)&address, &n), 0);
    server->port = ntohs(address.sin_port);
    CHECK_INT(pthread_create(&server->acceptor, NULL, accept_all, server), 0);
    return server;
}

void server_close(struct server *server)
{
    shutdown(server->listener, SHUT_RDWR);
    pthread_join(server->acceptor, NULL);
    close(server->listener);
    for (int i = 0; i < server->count; i++) {
        shutdown(server->fds[i], SHUT_RDWR);
        pthread_join(server->threads[i], NULL);
        close(server->fds[i]);
    }
    buf_deinit(&server->last);
    pthread_mutex_destroy(&server->mutex);
    mem_free(server);
}

int server_port(const struct server *server)
{
    return server->port;
}

int server_requests(struct server *server)
{
    pthread_mutex_lock(&server->mutex);
    int n = server->requests;
    pthread_mutex_unlock(&server->mutex);
    return n;
}

int server_desertions(struct server *server)
{
    pthread_mutex_lock(&server->mutex);
    int n = server->desertions;
    pthread_mutex_unlock(&server->mutex);
    return n;
}

char *server_last(struct server *server)
{
    pthread_mutex_lock(&server->mutex);
    char *copy = mem_strdup(server->last.data != NULL ? server->last.data : "");
    pthread_mutex_unlock(&server->mutex);
    return copy;
}
