/*
 * test.h - unit tests that read as sentences, on top of cmocka.
 *
 * TEST(a_stale_lease_is_refused) { ... } defines a test and registers it; test_main.c runs all that are linked in,
 * in the order of each file. The CHECKs print file, line and both operands, and end the test when they fail. The
 * operands are evaluated once, in no particular order.
 *
 * Ownership: a test cleans up after itself (the sanitizer build looks for leaks). Threads: only the thread that
 * runs the test may CHECK.
 */
#ifndef CAPSTAN_TESTS_UNIT_TEST_H
#define CAPSTAN_TESTS_UNIT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"

struct test_case {
    const char *name;
    void (*run)(void);
    struct test_case *next;
};

#define TEST(sentence)                                                                                                 \
    static void test_run_##sentence(void);                                                                             \
    __attribute__((constructor)) static void test_register_##sentence(void)                                            \
    {                                                                                                                  \
        static struct test_case test = {.name = #sentence, .run = test_run_##sentence, .next = NULL};                  \
        test_register(&test);                                                                                          \
    }                                                                                                                  \
    static void test_run_##sentence(void)

#define CHECK(cond) test_check((cond), #cond, __FILE__, __LINE__)
#define CHECK_INT(actual, expected) test_check_int((int64_t)(actual), (int64_t)(expected), #actual, __FILE__, __LINE__)
#define CHECK_UINT(actual, expected)                                                                                   \
    test_check_uint((uint64_t)(actual), (uint64_t)(expected), #actual, __FILE__, __LINE__)
#define CHECK_STR(actual, expected) test_check_str((actual), (expected), #actual, __FILE__, __LINE__)
#define CHECK_ERR(actual, expected) test_check_err((actual), (expected), #actual, __FILE__, __LINE__)
#define CHECK_MEM(a, b, n) test_check_mem((a), (b), (n), #a, __FILE__, __LINE__)

/* That the statement aborts the process; it runs in a child. For ASSERTs. */
#define CHECK_ABORTS(statement)                                                                                        \
    do {                                                                                                               \
        if (test_enter_child()) {                                                                                      \
            statement;                                                                                                 \
            test_leave_child();                                                                                        \
        }                                                                                                              \
        test_check_aborted(#statement, __FILE__, __LINE__);                                                            \
    } while (0)

/* Adds a test at the end of the list; TEST calls it before main. */
void test_register(struct test_case *test);

/* What the CHECK macros call. Strings may be NULL. */
void test_check(bool holds, const char *text, const char *file, int line);
void test_check_int(int64_t actual, int64_t expected, const char *text, const char *file, int line);
void test_check_uint(uint64_t actual, uint64_t expected, const char *text, const char *file, int line);
void test_check_str(const char *actual, const char *expected, const char *text, const char *file, int line);
void test_check_err(enum err actual, enum err expected, const char *text, const char *file, int line);
void test_check_mem(const void *actual, const void *expected, size_t n, const char *text, const char *file, int line);

/* What CHECK_ABORTS calls: true in a new child with a silent stderr, false in the parent. */
bool test_enter_child(void);
_Noreturn void test_leave_child(void);
void test_check_aborted(const char *text, const char *file, int line);

#endif
