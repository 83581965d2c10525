/*
 * test_main.c - runs the tests that are linked in.
 *
 * Usage: <binary> [part of a name]. Ends with a line "N passed, N failed"; exits with 1 if a test failed or none
 * passed. A test that calls cmocka's skip() counts as neither.
 */
#include "test.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test_case *first;
static struct test_case *last;
static size_t passed;
static pid_t child; /* of the CHECK_ABORTS that is under way */

void test_register(struct test_case *test)
{
    if (last == NULL) {
        first = test;
    } else {
        last->next = test;
    }
    last = test;
}

void test_check(bool holds, const char *text, const char *file, int line)
{
    if (!holds) {
        print_error("%s does not hold\n", text);
        _fail(file, line);
    }
}

void test_check_int(int64_t actual, int64_t expected, const char *text, const char *file, int line)
{
    if (actual != expected) {
        print_error("%s is %" PRId64 ", expected %" PRId64 "\n", text, actual, expected);
        _fail(file, line);
    }
}

void test_check_uint(uint64_t actual, uint64_t expected, const char *text, const char *file, int line)
{
    if (actual != expected) {
        print_error("%s is %" PRIu64 " (0x%" PRIx64 "), expected %" PRIu64 " (0x%" PRIx64 ")\n", text, actual, actual,
                    expected, expected);
        _fail(file, line);
    }
}

static void print_string(const char *label, const char *value)
{
    if (value == NULL) {
        print_error("%s NULL\n", label);
    } else {
        print_error("%s \"%s\"\n", label, value);
    }
}

void test_check_str(const char *actual, const char *expected, const char *text, const char *file, int line)
{
    bool same = actual == NULL || expected == NULL ? actual == expected : strcmp(actual, expected) == 0;
    if (!same) {
        print_error("%s\n", text);
        print_string("  is      ", actual);
        print_string("  expected", expected);
        _fail(file, line);
    }
}

void test_check_err(enum err actual, enum err expected, const char *text, const char *file, int line)
{
    if (actual != expected) {
        print_error("%s is %s, expected %s\n", text, err_name(actual), err_name(expected));
        _fail(file, line);
    }
}

void test_check_mem(const void *actual, const void *expected, size_t n, const char *text, const char *file, int line)
{
    const unsigned char *a = actual;
    const unsigned char *b = expected;
    for (size_t i = 0; i < n; i++) {
        if (a[i] != b[i]) {
            print_error("%s: byte %zu of %zu is 0x%02x, expected 0x%02x\n", text, i, n, a[i], b[i]);
            _fail(file, line);
        }
    }
}

bool test_enter_child(void)
{
    fflush(NULL);
    child = fork();
    if (child < 0) {
        print_error("cannot fork\n");
        _fail(__FILE__, __LINE__);
    }
    if (child > 0) {
        return false;
    }
    if (freopen("/dev/null", "w", stderr) == NULL) {
        _exit(1);
    }
    return true;
}

_Noreturn void test_leave_child(void)
{
    _exit(0);
}

void test_check_aborted(const char *text, const char *file, int line)
{
    int status = 0;
    pid_t ended = waitpid(child, &status, 0);
    if (ended != child || !WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT) {
        print_error("%s does not abort (wait status 0x%x)\n", text, (unsigned)status);
        _fail(file, line);
    }
}

/* What cmocka calls. A failed check leaves by longjmp, so only a test that holds gets to the count. */
static void run_case(void **state)
{
    const struct test_case *test = *state;
    test->run();
    passed++;
}

int main(int argc, char **argv)
{
    const char *wanted = argc > 1 ? argv[1] : "";
    size_t registered = 0;
    for (const struct test_case *test = first; test != NULL; test = test->next) {
        registered++;
    }
    struct CMUnitTest *units = calloc(registered + 1, sizeof(*units));
    if (units == NULL) {
        return 1;
    }
    size_t count = 0;
    for (struct test_case *test = first; test != NULL; test = test->next) {
        if (strstr(test->name, wanted) != NULL) {
            units[count++] = (struct CMUnitTest){.name = test->name, .test_func = run_case, .initial_state = test};
        }
    }
    int failed = count == 0 ? 0 : _cmocka_run_group_tests("unit", units, count, NULL, NULL);
    free(units);
    fflush(stderr);
    printf("%zu passed, %d failed\n", passed, failed);
    return passed > 0 && failed == 0 ? 0 : 1;
}
