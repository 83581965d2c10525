#include "main/bench_exchange.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define WAIT_S 5
#define ANSWER_BYTES_MAX ((size_t)1 << 20)
#define METRIC "capstan_shuffle_work_seconds_total"

/* ADDRESS:PORT of this machine, as numbers. */
static bool read_address(const char *text, struct sockaddr_in *out)
{
    char host[INET_ADDRSTRLEN] = "";
    const char *colon = strrchr(text, ':');
    if (colon == NULL || (size_t)(colon - text) >= sizeof host) {
        return false;
    }
    memcpy(host, text, (size_t)(colon - text));
    *out = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10))};
    return inet_pton(AF_INET, host, &out->sin_addr) == 1;
}

/* The whole answer, with its head; empty if there is none. */
static void get_metrics(const char *address, struct buf *out)
{
    static const char request[] = "GET /metrics HTTP/1.0\r\n\r\n";
    struct timeval wait = {.tv_sec = WAIT_S};
    struct sockaddr_in to;
    char chunk[4096];
    int fd = read_address(address, &to) ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0) {
        return;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0 &&
        send(fd, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request)) {
        ssize_t n = 0;
        while (out->n < ANSWER_BYTES_MAX && (n = recv(fd, chunk, sizeof chunk, 0)) > 0) {
            buf_append(out, chunk, (size_t)n);
        }
    }
    close(fd);
}

/* The value behind a name with its labels, at the beginning of a line. */
static bool find_value(const char *metrics, const char *name, double *out)
{
    for (const char *at = metrics; (at = strstr(at, name)) != NULL; at += strlen(name)) {
        bool is_line = at == metrics || at[-1] == '\n';
        if (is_line && at[strlen(name)] == ' ') {
            *out = strtod(at + strlen(name) + 1, NULL);
            return true;
        }
    }
    return false;
}

bool bench_exchange_add(const char *metrics, struct bench_exchange *sum)
{
    double in_s = 0;
    double out_s = 0;
    if (!find_value(metrics, METRIC "{direction=\"in\"}", &in_s) ||
        !find_value(metrics, METRIC "{direction=\"out\"}", &out_s)) {
        return false;
    }
    sum->in_ms += in_s * 1000;
    sum->out_ms += out_s * 1000;
    return true;
}

bool bench_exchange(const struct bench *bench, struct bench_exchange *out)
{
    struct bench_exchange sum = {0};
    bool is_known = bench->cluster.n_metrics > 0;
    for (uint32_t i = 0; i < bench->cluster.n_metrics && is_known; i++) {
        struct buf answer = {0};
        get_metrics(bench->cluster.metrics[i], &answer);
        is_known = answer.n > 0 && bench_exchange_add(answer.data, &sum);
        buf_deinit(&answer);
    }
    if (is_known) {
        *out = sum;
    }
    return is_known;
}
