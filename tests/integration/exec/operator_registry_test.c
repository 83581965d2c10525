/*
 * Which operators a worker has: those of plug-ins, and those that are linked in.
 */
#define _DEFAULT_SOURCE /* setenv */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "capstan/worker.h"
#include "exec/operator.h"
#include "fixture.h"
#include "test.h"

static void load(struct operators *operators, const char *plugin)
{
    char path[600];
    struct error e = {0};
    plugin_path(plugin, path, sizeof(path));
    enum err err = operators_load(operators, path, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
}

TEST(operators_are_listed_by_name)
{
    struct operators *operators = operators_new();
    CHECK(!operators_have(operators, "add_five"));
    load(operators, "ops");
    load(operators, "add_five");
    for (uint32_t i = 1; i < operators_count(operators); i++) {
        CHECK(strcmp(operators_name(operators, i - 1), operators_name(operators, i)) < 0);
    }
    CHECK(operators_count(operators) >= 10);
    CHECK(operators_have(operators, "add_five"));
    CHECK(operators_have(operators, "tail"));
    CHECK(!operators_have(operators, "add_"));
    CHECK(!operators_have(operators, "add_five "));
    CHECK(!operators_have(operators, ""));
    operators_free(operators);
    operators_free(NULL);
}

static void check_refused(const char *path, enum err expected, const char *message)
{
    struct operators *operators = operators_new();
    uint32_t before = operators_count(operators);
    struct error e = {0};
    char text[1400];
    CHECK_ERR(operators_load(operators, path, &e), expected);
    fill_in(message, path, text, sizeof(text));
    CHECK_STR(e.message, text);
    CHECK_UINT(operators_count(operators), before);
    CHECK_ERR(operators_load(operators, path, NULL), expected);
    operators_free(operators);
}

static void check_bad(const char *reason, enum err expected, const char *message)
{
    char path[600];
    plugin_path("ops_bad", path, sizeof(path));
    CHECK_INT(setenv("TEST_OPS_BAD", reason, 1), 0);
    check_refused(path, expected, message);
}

TEST(a_file_without_operators_is_told_from_a_broken_one)
{
    char path[600];
    check_refused("/no/such/plugin.so", ERR_NOT_FOUND, "plug-in @: No such file or directory");
    check_refused("plugin.so", ERR_NOT_FOUND, "plug-in @: No such file or directory");
    check_refused("/etc/passwd", ERR_INVALID, "plug-in @ cannot be loaded: /etc/passwd: invalid ELF header");
    plugin_path("stranger", path, sizeof(path));
    check_refused(path, ERR_PRECONDITION, "@ has no operators: it has no function capstan_operators_v1");
    plugin_path("wordcount", path, sizeof(path));
    check_refused(path, ERR_PRECONDITION, "@ has no operators: it has no function capstan_operators_v1");
}

TEST(of_a_plugin_all_operators_are_taken_or_none)
{
    check_bad("empty", ERR_INVALID, "@: its capstan_operators_v1() returned nothing");
    check_bad("null", ERR_INVALID, "@: its capstan_operators_v1() returned nothing");
    check_bad("newer", ERR_INVALID, "@ needs version 2 of the operator interface, this worker has 1");
    check_bad("small", ERR_INVALID, "@ does not say its size and the version of the operator interface");
    check_bad("misnamed", ERR_INVALID, "@: 'no name' is no name for an operator");
    check_bad("nameless", ERR_INVALID, "@: '' is no name for an operator");
    check_bad("create", ERR_INVALID, "@: operator 'bad' has no create()");
    check_bad("process", ERR_INVALID, "@: operator 'bad' has no process()");
    check_bad("twins", ERR_EXISTS, "@: there are two operators 'good'");
}

/* Registers in a child, because what is linked in stays. */
static void check_linked(void (*registers)(void), const char *expected)
{
    if (test_enter_child()) {
        struct error e = {0};
        registers();
        enum err err = operators_linked(&e);
        if (strcmp(e.message, expected) == 0 && (err == ERR_OK) == (expected[0] == '\0')) {
            abort(); /* what CHECK_ABORTS looks for */
        }
        test_leave_child();
    }
    test_check_aborted(expected, __FILE__, __LINE__);
}

static void *create_linked(const char *config_json, const struct ArrowSchema *input, struct ArrowSchema *output,
                           const struct capstan_operator_host *host, struct capstan_operator_run *run)
{
    UNUSED(config_json);
    UNUSED(input);
    UNUSED(output);
    UNUSED(host);
    UNUSED(run);
    return NULL;
}

static void process_linked(void *instance, struct ArrowArray *rows, const struct capstan_operator_host *host,
                           struct capstan_operator_run *run)
{
    UNUSED(instance);
    host->emit(run, rows);
}

#define LINKED(text)                                                                                                   \
    (struct capstan_operator)                                                                                          \
    {                                                                                                                  \
        .size = sizeof(struct capstan_operator), .abi = CAPSTAN_OPERATOR_ABI, .name = (text), .create = create_linked, \
        .process = process_linked                                                                                      \
    }

static void register_two(void)
{
    static struct capstan_operator one;
    static struct capstan_operator two;
    one = LINKED("z-last");
    two = LINKED("A_first");
    capstan_register_operator(&one);
    capstan_register_operator(&two);
    struct operators *operators = operators_new();
    if (operators_count(operators) != 2 || strcmp(operators_name(operators, 0), "A_first") != 0) {
        _exit(3);
    }
    operators_free(operators);
}

static void register_twins(void)
{
    register_two();
    register_two();
}

static void register_wrong_name(void)
{
    static char name[LIMIT_NAME_BYTES + 2];
    static struct capstan_operator op;
    memset(name, 'x', LIMIT_NAME_BYTES);
    op = LINKED(name);
    capstan_register_operator(&op); /* just fits */
    static struct capstan_operator wrong;
    wrong = LINKED("7up");
    capstan_register_operator(&wrong);
    capstan_register_operator(NULL); /* the first problem is told */
}

static void register_too_long(void)
{
    static char name[LIMIT_NAME_BYTES + 2];
    static struct capstan_operator op;
    memset(name, 'x', LIMIT_NAME_BYTES + 1);
    op = LINKED(name);
    capstan_register_operator(&op);
}

static void register_too_many(void)
{
    static struct capstan_operator ops[LIMIT_OPS_PER_WORKER + 1];
    static char names[LIMIT_OPS_PER_WORKER + 1][16];
    for (int i = LIMIT_OPS_PER_WORKER; i >= 0; i--) {
        snprintf(names[i], sizeof(names[i]), "o%d", i);
        ops[i] = LINKED(names[i]);
        capstan_register_operator(&ops[i]);
    }
}

TEST(operators_that_are_linked_in_are_there_and_mistakes_are_told)
{
    char expected[300];
    char name[LIMIT_NAME_BYTES + 2] = "";
    check_linked(register_two, "");
    check_linked(register_twins, "capstan_register_operator(): there are two operators 'z-last'");
    check_linked(register_wrong_name, "capstan_register_operator(): '7up' is no name for an operator");
    memset(name, 'x', LIMIT_NAME_BYTES + 1);
    fill_in("capstan_register_operator(): '@' is no name for an operator", name, expected, sizeof(expected));
    check_linked(register_too_long, expected);
    check_linked(register_too_many, "capstan_register_operator(): a worker has at most 1024 operators");
}
