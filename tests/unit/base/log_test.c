#define _GNU_SOURCE /* F_SETPIPE_SZ */
#include "../test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

#define ENDED_AFTER_S 60 /* a log line that waits for its reader waits for ever: then the signal ends this program */
#define LINES 5000       /* more than any pipe, socket or terminal holds here */

/* Another stderr for a while. What the tests themselves have to say must wait until it has been put back. */
struct stand_in {
    int kept;
    int reader;
};

static struct stand_in stand_in(int reader, int writer)
{
    struct stand_in in = {.kept = dup(STDERR_FILENO), .reader = reader};
    (void)fcntl(reader, F_SETFL, O_NONBLOCK);
    (void)dup2(writer, STDERR_FILENO);
    close(writer);
    (void)alarm(ENDED_AFTER_S);
    return in;
}

static void put_back(struct stand_in *in)
{
    (void)alarm(0);
    (void)dup2(in->kept, STDERR_FILENO);
    close(in->kept);
    close(in->reader);
}

/* Adds what there is. */
static void read_more(const struct stand_in *in, struct buf *out)
{
    char chunk[4096];
    ssize_t n = 0;
    while ((n = read(in->reader, chunk, sizeof chunk)) > 0) {
        buf_append(out, chunk, (size_t)n);
    }
}

static uint32_t count(const struct buf *text, const char *word)
{
    uint32_t n = 0;
    for (const char *at = text->data; at != NULL && (at = strstr(at, word)) != NULL; at++) {
        n++;
    }
    return n;
}

#define TOLD " lines of the log were dropped"

/*
 * Fills it, then reads while it goes on: each numbered line is there or counted by the line that tells of the lost ones.
 * What is written to a terminal is not there to be read at once.
 */
static void check_full(struct stand_in in)
{
    struct buf text = {0};
    uint32_t i = 0;
    for (; i < LINES; i++) {
        log_warn("test", "line %u.", i);
    }
    int flags = fcntl(STDERR_FILENO, F_GETFL);
    const char *told = NULL;
    const char *next = NULL;
    while (next == NULL) {
        struct pollfd reader = {.fd = in.reader, .events = POLLIN};
        read_more(&in, &text);
        told = text.data == NULL ? NULL : strstr(text.data, TOLD);
        next = told == NULL ? NULL : strstr(told, "test: line ");
        if (next == NULL || strchr(next, '.') == NULL) {
            next = NULL;
            log_warn("test", "line %u.", i++);
            (void)poll(&reader, 1, 100);
        }
    }
    put_back(&in);
    CHECK_INT(flags & O_NONBLOCK, 0); /* others write there, too, and expect to be waited for */
    uint32_t follows = (uint32_t)strtoul(next + strlen("test: line "), NULL, 10);
    const char *number = told;
    while (number[-1] != ' ') {
        number--;
    }
    uint32_t n_lost = (uint32_t)strtoul(number, NULL, 10);
    text.n = (size_t)(told - text.data);
    text.data[text.n] = '\0';
    uint32_t n_there = count(&text, ".\r\n") + count(&text, ".\n");
    CHECK(n_there > 0 && n_there < LINES);
    CHECK(count(&text, "test: line 0.") == 1);
    /* One that lacked nothing but its end is both. */
    CHECK_UINT(n_there + n_lost - (n_there + n_lost > follows), follows);
    buf_deinit(&text);
}

TEST(a_pipe_that_nobody_reads_holds_up_no_line_and_the_lost_ones_are_counted)
{
    int ends[2];
    CHECK_INT(pipe(ends), 0);
    check_full(stand_in(ends[0], ends[1]));
}

TEST(a_socket_that_nobody_reads_holds_up_no_line)
{
    int ends[2];
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    check_full(stand_in(ends[0], ends[1]));
}

TEST(a_terminal_that_nobody_reads_holds_up_no_line)
{
    int screen = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    int locked = 0, number = 0;
    char path[32];
    CHECK(screen >= 0);
    CHECK_INT(ioctl(screen, TIOCSPTLCK, &locked), 0);
    CHECK_INT(ioctl(screen, TIOCGPTN, &number), 0);
    snprintf(path, sizeof path, "/dev/pts/%d", number);
    int terminal = open(path, O_RDWR | O_NOCTTY);
    CHECK(terminal >= 0);
    check_full(stand_in(screen, terminal));
}

TEST(a_line_that_was_cut_is_ended_before_the_next)
{
    int ends[2];
    CHECK_INT(pipe(ends), 0);
    (void)fcntl(ends[1], F_SETPIPE_SZ, 8192);
    struct stand_in in = stand_in(ends[0], ends[1]);
    struct buf text = {0};
    char tabs[4000];
    memset(tabs, '\t', sizeof tabs - 1);
    tabs[sizeof tabs - 1] = '\0';
    log_warn("test", "what was dropped before is told now");
    read_more(&in, &text);
    buf_reset(&text);
    log_warn("test", "%s", tabs); /* four times as long when escaped */
    read_more(&in, &text);
    bool is_whole = count(&text, "\n") > 0;
    buf_reset(&text);
    log_warn("test", "next");
    read_more(&in, &text);
    put_back(&in);
    CHECK(!is_whole);
    CHECK(text.n > 0);
    CHECK_INT(text.data[0], '\n');
    CHECK_UINT(count(&text, "1 lines of the log were dropped"), 1);
    CHECK_UINT(count(&text, "test: next\n"), 1);
    buf_deinit(&text);
}

TEST(a_file_takes_every_line)
{
    char path[] = "/tmp/capstan-log-XXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0);
    int reader = open(path, O_RDONLY);
    CHECK_INT(unlink(path), 0);
    struct stand_in in = stand_in(reader, file);
    struct buf text = {0};
    for (uint32_t i = 0; i < LINES; i++) {
        log_warn("test", "line %04u", i);
    }
    read_more(&in, &text);
    put_back(&in);
    CHECK_UINT(count(&text, "\n"), LINES);
    CHECK_UINT(count(&text, "dropped"), 0);
    buf_deinit(&text);
}

TEST(without_a_stderr_nothing_happens)
{
    int ends[2];
    CHECK_INT(pipe(ends), 0);
    struct stand_in in = stand_in(ends[0], ends[1]);
    struct buf text = {0};
    int pipe_again = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    log_warn("test", "nobody hears this");
    (void)dup2(pipe_again, STDERR_FILENO);
    close(pipe_again);
    log_warn("test", "but this");
    read_more(&in, &text);
    put_back(&in);
    CHECK_UINT(count(&text, "1 lines of the log were dropped"), 1);
    CHECK_UINT(count(&text, "but this\n"), 1);
    CHECK_UINT(count(&text, "nobody hears"), 0);
    buf_deinit(&text);
}
