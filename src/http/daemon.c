/*
 * daemon.c - libmicrohttpd's daemons behind a server.
 *
 * A daemon keeps the certificate that it was started with. So a new certificate means a new daemon, which takes over the
 * socket that listens; the one before serves the connections that it has, each up to its next answer, and is stopped when
 * they are gone. There is no moment at which nobody listens, and a certificate that cannot be used never gets that far.
 * Streams can last for ever: so when there are many daemons of before, the oldest is ended, and its clients connect anew.
 *
 * Connections are bounded, so whoever holds many keeps others out. One address gets half of them, and whoever connects and
 * asks for nothing is soon cut off.
 *
 * By itself libmicrohttpd only asks clients for a certificate and takes what comes. So each connection is told, before its
 * handshake, that it needs one for clients that the authorities have signed; and each request looks whether that was done.
 */
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "http/http_internal.h"

#define IDLE_SECONDS 60
#define SILENT_SECONDS 10
#define CONNECTION_BYTES ((size_t)96 * 1024) /* of memory for one: headers, and what is on its way out */

static gnutls_session_t session_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    return info == NULL ? NULL : info->tls_session;
}

static void on_connection(void *context, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode code)
{
    static gnutls_typed_vdata_st for_clients = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                                .data = (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT};
    const struct http__daemon *daemon = context;
    const struct http_server *server = daemon->server;
    UNUSED(state);
    gnutls_session_t session = code == MHD_CONNECTION_NOTIFY_STARTED ? session_of(connection) : NULL;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        (void)MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT,
                                        server->silent_s > 0 ? server->silent_s : SILENT_SECONDS);
    }
    if (server->wants_client_cert && session != NULL) {
        gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
        gnutls_session_set_verify_cert2(session, &for_clients, 1, 0);
    }
}

bool http__daemon_is_client_known(const struct http_server *server, struct MHD_Connection *connection)
{
    if (!server->wants_client_cert) {
        return true;
    }
    unsigned n = 0;
    gnutls_session_t session = session_of(connection);
    return session != NULL && gnutls_certificate_get_peers(session, &n) != NULL && n > 0 &&
           gnutls_session_get_verify_cert_status(session) == 0;
}

void http__daemon_is_spoken_to(struct MHD_Connection *connection)
{
    (void)MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)IDLE_SECONDS);
}

/* A path with a NUL in it would end there, and mean something else; it stays as it was written, and means nothing. */
static size_t unescape(void *context, struct MHD_Connection *connection, char *text)
{
    UNUSED(context);
    UNUSED(connection);
    return strstr(text, "%00") != NULL ? strlen(text) : MHD_http_unescape(text);
}

struct http__daemon *http__daemon_start(struct http_server *server, const struct http__tls *tls,
                                        const struct sockaddr *address, int listening)
{
    struct http__daemon *daemon = mem_calloc(1, sizeof *daemon);
    bool has_tls = tls->cert_pem != NULL;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | (server->is_ipv6 ? MHD_USE_IPv6 : 0) |
                     (has_tls ? MHD_USE_TLS : 0);
    struct MHD_OptionItem items[] = {
        {MHD_OPTION_CONNECTION_LIMIT, server->connections_max, NULL},
        {MHD_OPTION_PER_IP_CONNECTION_LIMIT, (server->connections_max + 1) / 2, NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SECONDS, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, (intptr_t)CONNECTION_BYTES, NULL},
        {MHD_OPTION_THREAD_POOL_SIZE, server->threads, NULL},
        {MHD_OPTION_UNESCAPE_CALLBACK, (intptr_t)unescape, NULL},
        {address != NULL ? MHD_OPTION_SOCK_ADDR : MHD_OPTION_LISTEN_SOCKET, listening, (void *)(uintptr_t)address},
        {has_tls ? MHD_OPTION_HTTPS_MEM_CERT : MHD_OPTION_END, 0, (void *)(uintptr_t)tls->cert_pem},
        {has_tls ? MHD_OPTION_HTTPS_MEM_KEY : MHD_OPTION_END, 0, (void *)(uintptr_t)tls->key_pem},
        {tls->client_ca_pem != NULL ? MHD_OPTION_HTTPS_MEM_TRUST : MHD_OPTION_END, 0,
         (void *)(uintptr_t)tls->client_ca_pem},
        {MHD_OPTION_END, 0, NULL},
    };
    daemon->server = server;
    list_init(&daemon->in_retired);
    daemon->mhd = MHD_start_daemon(flags, 0, NULL, NULL, http__on_request, daemon, MHD_OPTION_NOTIFY_COMPLETED,
                                   http__on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection, daemon,
                                   MHD_OPTION_ARRAY, items, MHD_OPTION_END);
    if (daemon->mhd == NULL) {
        mem_free(daemon);
        return NULL;
    }
    return daemon;
}

static void stop(struct http__daemon *daemon)
{
    MHD_stop_daemon(daemon->mhd);
    list_remove(&daemon->in_retired);
    mem_free(daemon);
}

/* Whether it can be stopped: it has no connections, or is ending and none of them is suspended. */
static bool is_done(struct http__daemon *daemon)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon->mhd, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
    pthread_mutex_lock(&daemon->server->lock);
    bool is_over = daemon->is_ending && daemon->n_busy == 0;
    pthread_mutex_unlock(&daemon->server->lock);
    return is_over || (info != NULL && info->num_connections == 0);
}

/* Stops those that have nothing left to do. */
static void sweep(struct http_server *server)
{
    LIST_EACH_SAFE(at, next, &server->retired) {
        struct http__daemon *daemon = CONTAINER_OF(at, struct http__daemon, in_retired);
        if (is_done(daemon)) {
            server->n_retired -= !daemon->is_ending;
            stop(daemon);
        }
    }
}

/* Ends the oldest that is not ending yet: its streams break, what it has yet to answer it answers. */
static void end_oldest(struct http_server *server)
{
    LIST_EACH(at, &server->retired) {
        struct http__daemon *daemon = CONTAINER_OF(at, struct http__daemon, in_retired);
        if (!daemon->is_ending) {
            pthread_mutex_lock(&server->lock);
            daemon->is_ending = true;
            http__streams_break(daemon);
            pthread_mutex_unlock(&server->lock);
            server->n_retired--;
            return;
        }
    }
}

enum err http_server_reload_tls(struct http_server *server, const char *cert_pem, const char *key_pem,
                                const char *client_ca_pem, struct error *e)
{
    struct http__tls tls = {cert_pem, key_pem, client_ca_pem};
    if (!server->has_tls) {
        return error_set(e, ERR_INVALID, "this server was started without TLS");
    }
    if ((client_ca_pem != NULL) != server->wants_client_cert) {
        return error_set(e, ERR_INVALID, "whether clients need a certificate cannot change while the server runs");
    }
    sweep(server);
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(server->daemon->mhd, MHD_DAEMON_INFO_LISTEN_FD);
    int listening = info == NULL ? -1 : fcntl(info->listen_fd, F_DUPFD_CLOEXEC, 0);
    struct http__daemon *next = listening < 0 ? NULL : http__daemon_start(server, &tls, NULL, listening);
    if (next == NULL) { /* and the copy of the socket is closed */
        return error_set(e, ERR_INVALID, "the certificate for HTTP cannot be used, or is not its key's");
    }
    int before = MHD_quiesce_daemon(server->daemon->mhd);
    if (before >= 0) {
        close(before);
    }
    atomic_store(&server->daemon->is_retired, true);
    list_push_back(&server->retired, &server->daemon->in_retired);
    server->daemon = next;
    if (++server->n_retired > HTTP_RETIRED_MAX) {
        end_oldest(server);
    }
    return ERR_OK;
}

void http__daemons_stop(struct http_server *server)
{
    stop(server->daemon);
    while (!list_is_empty(&server->retired)) {
        stop(CONTAINER_OF(list_first(&server->retired), struct http__daemon, in_retired));
    }
}
