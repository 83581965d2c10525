/*
 * server.h - a PostgreSQL server for tests, by way of server.sh, and psql to look into it from outside.
 *
 * Everything that goes wrong here ends the process with a message: there is nothing that a test could do about it.
 *
 * Ownership: server_start's caller calls server_remove. Threads: any, one at a time per server or session.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_POSTGRES_SERVER_H
#define CAPSTAN_TESTS_INTEGRATION_POSTGRES_SERVER_H

#include <sys/types.h>

struct server {
    char dir[64];
    char url[160];
};

/* Another handle of the same server, for a new database of that name. */
struct server server_database(const struct server *server, const char *name);

/* A new server in a temporary folder. `setting`: one more argument of `server.sh start`; NULL: none. */
void server_start(struct server *server, const char *setting);
void server_stop(const struct server *server);
void server_restart(const struct server *server);
/* All its processes at once, with kill -9. server_restart brings it back. */
void server_kill(const struct server *server);
/* Stops it and removes its folder. */
void server_remove(const struct server *server);

/*
 * What psql prints for the SQL: rows in lines, columns separated by bars, NULL as <null>. The caller frees it. The
 * process ends if the SQL fails.
 */
char *server_sql(const struct server *server, const char *sql);
/* The number in the first column of the first row. */
long long server_number(const struct server *server, const char *sql);
/* psql's exit status; what it prints is thrown away. */
int server_try(const struct server *server, const char *sql);

/* A psql that stays connected, so that it can hold a transaction open. */
struct server_session {
    pid_t pid;
    int in;
    int out;
};

void server_session_open(struct server_session *session, const struct server *server);
/* Runs the SQL and waits for it. */
void server_session_run(struct server_session *session, const char *sql);
void server_session_close(struct server_session *session);

#endif
