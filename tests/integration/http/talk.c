#define _GNU_SOURCE /* strcasestr */
#include "http/talk.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "test.h"

int talk_dial(const char *address, int room)
{
    return talk_dial_from("127.0.0.1", address, room);
}

int talk_dial_from(const char *own, const char *address, int room)
{
    struct sockaddr_in from = {.sin_family = AF_INET};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = 30};
    to.sin_port = htons((uint16_t)strtol(strrchr(address, ':') + 1, NULL, 10));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    CHECK(room == 0 || setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room) == 0);
    CHECK(inet_pton(AF_INET, own, &from.sin_addr) == 1);
    CHECK(bind(fd, (struct sockaddr *)&from, sizeof from) == 0);
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    return fd;
}

void talk_send(int fd, const void *bytes, size_t n)
{
    const char *at = bytes;
    ssize_t sent;
    while (n > 0 && (sent = send(fd, at, n, MSG_NOSIGNAL)) > 0) {
        at += sent;
        n -= (size_t)sent;
    }
}

size_t talk_read(int fd, struct buf *into)
{
    char piece[65536];
    ssize_t got = recv(fd, piece, sizeof piece, 0);
    buf_append(into, piece, got > 0 ? (size_t)got : 0);
    return got > 0 ? (size_t)got : 0;
}

void talk_bytes(const char *address, const char *bytes, size_t n, struct buf *answer)
{
    int fd = talk_dial(address, 0);
    buf_reset(answer);
    talk_send(fd, bytes, n);
    while (talk_read(fd, answer) > 0) {
    }
    close(fd);
    buf_text(answer, "");
}

void talk(const char *address, const char *line, const char *headers, const char *body, struct buf *answer)
{
    struct buf request = {0};
    bool has_host = strstr(headers, "Host:") != NULL;
    buf_format(&request, "%s HTTP/1.1\r\nConnection: close\r\n%s", line, headers);
    if (!has_host) {
        buf_format(&request, "Host: %s\r\n", address);
    }
    if (body != NULL) {
        buf_format(&request, "Content-Length: %zu\r\n", strlen(body));
    }
    buf_format(&request, "\r\n%s", body == NULL ? "" : body);
    talk_bytes(address, request.data, request.n, answer);
    buf_deinit(&request);
}

int talk_status(const struct buf *answer)
{
    return answer->n > 12 ? (int)strtol(answer->data + 9, NULL, 10) : 0;
}

static size_t join_chunks(char *body)
{
    char *to = body;
    char *from = body;
    for (;;) {
        size_t n = strtoul(from, &from, 16);
        from = strstr(from, "\r\n");
        if (from == NULL || n == 0) {
            *to = '\0';
            return (size_t)(to - body);
        }
        memmove(to, from + 2, n);
        to += n;
        from += 2 + n + 2;
    }
}

const char *talk_body(struct buf *answer)
{
    char *end = strstr(answer->data, "\r\n\r\n");
    if (end == NULL) {
        return "";
    }
    *end = '\0';
    bool is_chunked = strcasestr(answer->data, "transfer-encoding: chunked") != NULL;
    *end = '\r';
    if (is_chunked) {
        size_t n = join_chunks(end + 4);
        answer->n = (size_t)(end + 4 - answer->data) + n;
    }
    return end + 4;
}
