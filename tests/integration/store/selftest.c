/*
 * selftest.c - a contract that nothing can break shows nothing: each of the faulty stores of broken.c must be noticed.
 *
 * The program runs itself, with one fault and one test, and looks whether that test fails. It must be that test, and it
 * must hold without the fault.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broken.h"
#include "test.h"

/* Whether the test holds for the engine in memory; prints what it says if it is not as expected. */
static bool holds(const char *fault, const char *test, bool expected)
{
    static char output[1 << 20];
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK(n > 0);
    self[n] = '\0';
    char name[256];
    snprintf(name, sizeof name, "memory: %s", test);
    setenv("SELF", self, 1);
    setenv("NAME", name, 1);
    if (fault != NULL) {
        setenv("CAPSTAN_BROKEN_STORE", fault, 1);
    }
    /* A test that fails leaves by longjmp, and so leaks. */
    FILE *pipe = popen("ASAN_OPTIONS=detect_leaks=0 \"$SELF\" \"$NAME\" 2>&1", "r");
    unsetenv("CAPSTAN_BROKEN_STORE");
    CHECK(pipe != NULL);
    size_t length = fread(output, 1, sizeof output - 1, pipe);
    output[length] = '\0';
    pclose(pipe);
    /* A program that dies otherwise has neither line. */
    char *passed = strstr(output, "\n1 passed, 0 failed\n");
    char *failed = strstr(output, "\n0 passed, 1 failed\n");
    if ((expected ? passed : failed) == NULL) {
        print_error("with the fault %s:\n%s\n", fault == NULL ? "none" : fault, output);
    }
    CHECK((passed == NULL) != (failed == NULL));
    return passed != NULL;
}

TEST(each_fault_of_a_store_is_noticed_by_the_test_for_it)
{
    for (const struct fault *fault = broken_faults; fault->name != NULL; fault++) {
        CHECK(holds(NULL, fault->noticed_by, true));
        CHECK(!holds(fault->name, fault->noticed_by, false));
    }
}
