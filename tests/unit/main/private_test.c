/* What a private cluster says in its log. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "main/private.h"
#include "test.h"

#define WORKERS 3

static void say(int log, const char *text)
{
    CHECK_INT(write(log, text, strlen(text)), (int64_t)strlen(text));
}

static void say_much(int log)
{
    for (int i = 0; i < 2000; i++) {
        say(log, "12:00:00 warn  planner   something that fills a log with many lines that say nothing\n");
    }
}

TEST(addresses_of_metrics_are_found_however_much_else_the_log_says)
{
    char path[] = "/tmp/capstan-log-XXXXXX";
    struct arena arena = {0};
    const char *metrics[WORKERS] = {0};
    struct private_cluster cluster = {.up.log_path = path, .metrics = metrics};
    int log = mkstemp(path);
    CHECK(log >= 0);
    CHECK_UINT(private_read_metrics(&arena, &cluster, WORKERS), 0);
    say_much(log);
    say(log,
        "worker 1: health and metrics on http://127.0.0.1:4001\nworker 2: health and metrics on http://127.0.0.1:40");
    CHECK_UINT(private_read_metrics(&arena, &cluster, WORKERS), 1);
    say(log, "02\n");
    say_much(log);
    CHECK_UINT(private_read_metrics(&arena, &cluster, WORKERS), 2);
    CHECK_UINT(private_read_metrics(&arena, &cluster, WORKERS), 2);
    say(log, "worker 3: health and metrics on http://127.0.0.1:4003\nand http://127.0.0.1:4004\n");
    CHECK_UINT(private_read_metrics(&arena, &cluster, WORKERS), 3);
    CHECK_STR(metrics[0], "127.0.0.1:4001");
    CHECK_STR(metrics[1], "127.0.0.1:4002");
    CHECK_STR(metrics[2], "127.0.0.1:4003");
    close(log);
    unlink(path);
    arena_deinit(&arena);
}
