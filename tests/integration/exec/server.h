/*
 * server.h - a small HTTP server on the loopback, for tests: it does what the path says.
 *
 *     /echo                 200, the request as it came, as text
 *     /json                 200, {"a": [1, 2]}
 *     /status/503           that status, with the body "told"
 *     /to/302/URL           that status, with the URL as the new place; /to/302/ has none
 *     /binary               200, bytes that are no UTF-8
 *     /headers              200, with headers in mixed case, twice, and empty
 *     /endless              200, a body without an end
 *     /packed               200, [1,2] compressed by gzip, and a header that says so
 *     /quotes               200, a megabyte of quotes, which take two megabytes as JSON
 *     /silence              no answer until the client goes away
 *     /half                 200, half of the body that was announced
 *     /close                closes at once
 *     /nonsense             something that is no HTTP
 *
 * Ownership: server_open ... server_close. Threads: each connection has one of its own; requests are counted and the last
 * one is kept under a lock.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_EXEC_SERVER_H
#define CAPSTAN_TESTS_INTEGRATION_EXEC_SERVER_H

#include <stddef.h>

struct server;

struct server *server_open(void);
void server_close(struct server *server);
int server_port(const struct server *server);

/* Requests that have come in whole, so far; how many clients have gone away from /silence and /endless. */
int server_requests(struct server *server);
int server_desertions(struct server *server);

/* The last request, head and body; the caller frees it. */
char *server_last(struct server *server);

#endif
