/* How little coordinators ask of their database when there is nothing to do: a leader and a standby, each with its inbox. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "integration/postgres/server.h"
#include "service/peer.h"
#include "test.h"

#define SECONDS 6 /* longer than the inbox waits between two looks */
#define PER_SECOND_MAX 3

static void pause_ms(int64_t ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Statements in the server's log that this name sent, and that contain the text. */
static uint32_t statements(const struct server *server, const char *name, const char *text)
{
    char path[128];
    char line[4096];
    uint32_t n = 0;
    snprintf(path, sizeof path, "%s/log", server->dir);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        n += strstr(line, name) != NULL && strstr(line, "LOG:  ") != NULL && strstr(line, text) != NULL;
    }
    fclose(file);
    return n;
}

static void await_statement(const struct server *server, const char *name, const char *text)
{
    for (int64_t until_ms = clock_mono_ms() + 30000; statements(server, name, text) == 0; pause_ms(20)) {
        CHECK(clock_mono_ms() < until_ms);
    }
}

TEST(an_idle_leader_and_its_standby_make_less_than_three_statements_a_second_each)
{
    static const char *const names[] = {"<idle-leader>", "<idle-standby>"};
    struct server server;
    struct peer leader;
    struct service *standby = NULL;
    char url[256];
    uint32_t before[2];
    server_start(&server, "log_line_prefix=<%a> ");
    snprintf(url, sizeof url, "%s&application_name=idle-leader", server.url);
    peer_init_on(&leader, url);
    free(server_sql(&server, "ALTER SYSTEM SET log_statement = 'all'"));
    free(server_sql(&server, "SELECT pg_reload_conf()"));
    snprintf(url, sizeof url, "%s&application_name=idle-standby", server.url);
    struct service_options options = {
        .store_url = url, .node_id = "n2", .listen = "127.0.0.1:0", .settings = settings_default()};
    CHECK_ERR(service_start(&options, &standby, &leader.e), ERR_OK);
    /* Both have begun: the standby waits for its inbox and looks at the leader's row, the leader has looked into the inbox. */
    await_statement(&server, names[1], "LISTEN");
    await_statement(&server, names[1], "capstan.cluster_leader");
    await_statement(&server, names[0], "capstan.inbox");
    pause_ms(1500); /* the leader's first look for what is too old comes a second after the start */
    int64_t began_ms = clock_mono_ms();
    for (uint32_t i = 0; i < 2; i++) {
        before[i] = statements(&server, names[i], "");
    }
    pause_ms(SECONDS * 1000);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t n = statements(&server, names[i], "") - before[i];
        int64_t took_ms = clock_mono_ms() - began_ms; /* a busy machine may have made it longer */
        print_message("%s %u statements in %lld ms\n", names[i], n, (long long)took_ms);
        CHECK(n > 0); /* the leadership is renewed, the leader's row looked at */
        CHECK(n * INT64_C(1000) < PER_SECOND_MAX * took_ms);
    }
    service_stop(standby);
    peer_deinit(&leader);
    server_remove(&server);
}
