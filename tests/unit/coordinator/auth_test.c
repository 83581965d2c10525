#include "coordinator/auth.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/sha256.h"
#include "test.h"

struct file {
    char folder[64];
    char path[96];
};

static void write_text(const struct file *file, const char *text)
{
    FILE *out = fopen(file->path, "w");
    CHECK(out != NULL);
    CHECK(fputs(text, out) >= 0);
    CHECK_INT(fclose(out), 0);
}

static void file_init(struct file *file, const char *text)
{
    snprintf(file->folder, sizeof file->folder, "/tmp/capstan-auth-XXXXXX");
    CHECK(mkdtemp(file->folder) != NULL);
    snprintf(file->path, sizeof file->path, "%s/tokens", file->folder);
    write_text(file, text);
}

static void file_deinit(struct file *file)
{
    (void)unlink(file->path);
    CHECK_INT(rmdir(file->folder), 0);
}

/* A line of the file for a token. */
static void line_of(char *out, size_t size, const char *token, const char *rest)
{
    uint8_t digest[SHA256_BYTES];
    char hex[2 * SHA256_BYTES + 1];
    sha256_once(token, strlen(token), digest);
    hex_encode(digest, sizeof digest, hex);
    snprintf(out, size, "%s %s\n", hex, rest);
}

/* The same clock tick, or the file's size, must not hide a change: the test sets another time. */
static void touch(const struct file *file, time_t seconds)
{
    struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    CHECK_INT(utimensat(AT_FDCWD, file->path, times, 0), 0);
}

static const char four[] = "# who may do what\n"
                           "\n"
                           "%s%s%s%s";

static struct auth *open_four(struct file *file)
{
    char lines[4][128];
    char text[1024];
    struct auth *auth = NULL;
    struct error e = {0};
    line_of(lines[0], sizeof lines[0], "t-read", "dashboard read");
    line_of(lines[1], sizeof lines[1], "t-submit", "ci submit");
    line_of(lines[2], sizeof lines[2], "t-worker", "rack-1\tworker");
    line_of(lines[3], sizeof lines[3], "t-admin", "  ops@home   admin  \r");
    snprintf(text, sizeof text, four, lines[0], lines[1], lines[2], lines[3]);
    file_init(file, text);
    CHECK_ERR(auth_open(file->path, &auth, &e), ERR_OK);
    return auth;
}

TEST(a_token_may_do_what_its_scopes_say_and_what_these_include)
{
    static const char *const headers[] = {NULL, "Bearer t-read", "Bearer t-submit", "Bearer t-worker",
                                          "Bearer t-admin"};
    static const enum scope scopes[] = {SCOPE_NONE, SCOPE_READ, SCOPE_SUBMIT, SCOPE_WORKER, SCOPE_ADMIN};
    static const enum err expected[5][5] = {
        {ERR_OK, ERR_UNAUTHENTICATED, ERR_UNAUTHENTICATED, ERR_UNAUTHENTICATED, ERR_UNAUTHENTICATED},
        {ERR_OK, ERR_OK, ERR_DENIED, ERR_DENIED, ERR_DENIED},
        {ERR_OK, ERR_OK, ERR_OK, ERR_DENIED, ERR_DENIED},
        {ERR_OK, ERR_OK, ERR_DENIED, ERR_OK, ERR_DENIED},
        {ERR_OK, ERR_OK, ERR_OK, ERR_OK, ERR_OK},
    };
    struct file file;
    struct auth *auth = open_four(&file);
    for (size_t t = 0; t < 5; t++) {
        for (size_t s = 0; s < 5; s++) {
            CHECK_ERR(auth_check(auth, headers[t], scopes[s], NULL, NULL), expected[t][s]);
            CHECK_ERR(auth_check(NULL, headers[t], scopes[s], NULL, NULL), ERR_OK);
        }
    }
    /* One of several is enough. */
    CHECK_ERR(auth_check(auth, headers[2], SCOPE_SUBMIT | SCOPE_WORKER, NULL, NULL), ERR_OK);
    auth_close(auth);
    file_deinit(&file);
}

TEST(only_a_whole_token_behind_bearer_counts)
{
    static const char *const wrong[] = {
        "",         "Bearer",          "Bearer ",         "Basic t-admin", "t-admin",
        "Bearer t", "Bearer t-admin ", "Bearer t-admin2", "Bearert-admin", "Bearer T-ADMIN"};
    struct file file;
    struct auth *auth = open_four(&file);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        const struct auth_pass *pass = NULL;
        CHECK_ERR(auth_check(auth, wrong[i], SCOPE_READ, &pass, NULL), ERR_UNAUTHENTICATED);
        CHECK_STR(auth_pass_name(pass), "");
    }
    CHECK_ERR(auth_check(auth, "bearer t-admin", SCOPE_ADMIN, NULL, NULL), ERR_OK);
    auth_close(auth);
    file_deinit(&file);
}

TEST(a_refusal_names_the_token_and_the_scope_but_never_the_secret)
{
    struct file file;
    struct auth *auth = open_four(&file);
    struct error e = {0};
    const struct auth_pass *pass = NULL;
    CHECK_ERR(auth_check(auth, "Bearer t-worker", SCOPE_SUBMIT, &pass, &e), ERR_DENIED);
    CHECK_STR(auth_pass_name(pass), "rack-1");
    CHECK_STR(e.message, "the token 'rack-1' does not allow this: it needs the scope submit");
    CHECK_ERR(auth_check(auth, "Bearer s3cret", SCOPE_SUBMIT | SCOPE_ADMIN, &pass, &e), ERR_UNAUTHENTICATED);
    CHECK_STR(e.message, "the token is not known here: this needs one with the scope submit or admin");
    CHECK_ERR(auth_check(auth, NULL, SCOPE_READ, &pass, &e), ERR_UNAUTHENTICATED);
    CHECK_STR(e.message, "no token was sent: this needs one with the scope read");
    CHECK_ERR(auth_check(auth, "Bearer t-admin", SCOPE_ADMIN, &pass, &e), ERR_OK);
    CHECK_STR(auth_pass_name(pass), "ops@home");
    auth_close(auth);
    file_deinit(&file);
}

/* What auth_open says of a file with this as its second line; the path is left out. */
static void check_bad(const char *second, const char *expected)
{
    struct file file;
    struct error e = {0};
    struct auth *auth = NULL;
    char line[128];
    char text[4096];
    char message[512];
    line_of(line, sizeof line, "t", "first read");
    snprintf(text, sizeof text, "%s%s\n", line, second);
    file_init(&file, text);
    CHECK_ERR(auth_open(file.path, &auth, &e), ERR_INVALID);
    snprintf(message, sizeof message, "%s, line 2: %s", file.path, expected);
    CHECK_STR(e.message, message);
    CHECK(strstr(e.hint, "sha256sum") != NULL);
    CHECK(auth == NULL);
    file_deinit(&file);
}

TEST(a_line_that_is_wrong_is_named_with_its_number)
{
    char again[128];
    char bad_scope[128];
    char no_scope[128];
    char bad_name[128];
    line_of(again, sizeof again, "t", "again submit");
    line_of(bad_scope, sizeof bad_scope, "u", "n read,write");
    line_of(no_scope, sizeof no_scope, "u", "n ,");
    line_of(bad_name, sizeof bad_name, "u", "a/b read");
    check_bad("abc", "a line has three words: the SHA-256 of a token, a name, scopes");
    check_bad("a b c d", "a line has three words: the SHA-256 of a token, a name, scopes");
    check_bad("s3cret name read", "the first word is not a SHA-256 of 64 hex digits");
    check_bad(again, "the token is on line 1 already");
    check_bad(bad_scope, "'write' is no scope: there are read, submit, worker and admin");
    check_bad(no_scope, "there is no scope: read, submit, worker or admin");
    check_bad(bad_name, "a name has at most 64 letters, digits, '.', '_', '-' or '@'");
}

TEST(a_file_that_is_not_there_is_not_found)
{
    struct auth *auth = NULL;
    struct error e = {0};
    CHECK_ERR(auth_open("/nonexistent/tokens", &auth, &e), ERR_NOT_FOUND);
    CHECK(strstr(e.message, "/nonexistent/tokens") != NULL);
}

TEST(a_change_of_the_file_counts_from_the_next_reload_on)
{
    struct file file;
    struct auth *auth = open_four(&file);
    struct error e = {0};
    const struct auth_pass *pass = NULL;
    char line[128];
    CHECK_ERR(auth_check(auth, "Bearer t-admin", SCOPE_ADMIN, &pass, NULL), ERR_OK);
    CHECK(auth_pass_allows(pass, SCOPE_ADMIN));
    line_of(line, sizeof line, "t-new", "new submit,worker");
    write_text(&file, line);
    touch(&file, 1000000);
    CHECK_ERR(auth_check(auth, "Bearer t-new", SCOPE_SUBMIT, NULL, NULL), ERR_UNAUTHENTICATED);
    CHECK_ERR(auth_reload(auth, &e), ERR_OK);
    CHECK_ERR(auth_check(auth, "Bearer t-new", SCOPE_SUBMIT, NULL, NULL), ERR_OK);
    CHECK_ERR(auth_check(auth, "Bearer t-new", SCOPE_WORKER, NULL, NULL), ERR_OK);
    CHECK_ERR(auth_check(auth, "Bearer t-admin", SCOPE_READ, NULL, NULL), ERR_UNAUTHENTICATED);
    CHECK_STR(auth_pass_name(pass), "ops@home"); /* what was handed out is still there */
    CHECK(!auth_pass_allows(pass, SCOPE_READ));

    /* The same size and another time; then another inode with the same of both. */
    line_of(line, sizeof line, "t-two", "new submit,worker");
    write_text(&file, line);
    touch(&file, 2000000);
    CHECK_ERR(auth_reload(auth, &e), ERR_OK);
    CHECK_ERR(auth_check(auth, "Bearer t-two", SCOPE_SUBMIT, NULL, NULL), ERR_OK);
    struct file fresh = file;
    snprintf(fresh.path, sizeof fresh.path, "%s/fresh", file.folder);
    line_of(line, sizeof line, "t-six", "new submit,worker");
    write_text(&fresh, line);
    touch(&fresh, 2000000);
    CHECK_INT(rename(fresh.path, file.path), 0);
    CHECK_ERR(auth_reload(auth, &e), ERR_OK);
    CHECK_ERR(auth_check(auth, "Bearer t-six", SCOPE_SUBMIT, NULL, NULL), ERR_OK);
    auth_close(auth);
    file_deinit(&file);
}

TEST(a_file_that_cannot_be_read_any_more_leaves_the_tokens_as_they_are_and_an_empty_one_has_none)
{
    struct file file;
    struct auth *auth = open_four(&file);
    struct error e = {0};
    write_text(&file, "half a li");
    touch(&file, 1000000);
    CHECK_ERR(auth_reload(auth, &e), ERR_INVALID);
    CHECK_ERR(auth_check(auth, "Bearer t-admin", SCOPE_ADMIN, NULL, NULL), ERR_OK);
    CHECK_ERR(auth_reload(auth, &e), ERR_INVALID); /* until it is mended */
    CHECK_INT(unlink(file.path), 0);
    CHECK_ERR(auth_reload(auth, &e), ERR_NOT_FOUND);
    CHECK_ERR(auth_check(auth, "Bearer t-admin", SCOPE_ADMIN, NULL, NULL), ERR_OK);
    write_text(&file, "");
    CHECK_ERR(auth_reload(auth, &e), ERR_OK);
    CHECK_ERR(auth_check(auth, "Bearer t-admin", SCOPE_ADMIN, NULL, NULL), ERR_UNAUTHENTICATED);
    auth_close(auth);
    file_deinit(&file);
}
