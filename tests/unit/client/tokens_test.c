#include "client/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

struct home {
    char folder[64];
    struct arena arena;
};

/* A configuration folder of this test's own. */
static void home_init(struct home *home)
{
    *home = (struct home){.folder = "/tmp/capstan-tokens-XXXXXX"};
    CHECK(mkdtemp(home->folder) != NULL);
    CHECK_INT(setenv("XDG_CONFIG_HOME", home->folder, 1), 0);
}

static void home_deinit(struct home *home)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", home->folder);
    CHECK_INT(system(command), 0);
    CHECK_INT(unsetenv("XDG_CONFIG_HOME"), 0);
    arena_deinit(&home->arena);
}

static const char *path_of(struct home *home, const char *address)
{
    const char *path = NULL;
    CHECK_ERR(token_path(&home->arena, address, &path, NULL), ERR_OK);
    return path;
}

static int leave(struct home *home, const char *address, const char *token)
{
    int lock = -1;
    const char *path = path_of(home, address);
    CHECK_ERR(token_make_folder(&home->arena, path, NULL), ERR_OK);
    CHECK_ERR(token_write(&home->arena, path, token, &lock, NULL), ERR_OK);
    return lock;
}

static const char *found(struct home *home, const char *addresses)
{
    const char *token = NULL;
    CHECK_ERR(token_find(&home->arena, addresses, &token, NULL), ERR_OK);
    return token == NULL ? "none" : token;
}

static unsigned mode_of(const char *path)
{
    struct stat st = {0};
    CHECK_INT(stat(path, &st), 0);
    return st.st_mode & 0777;
}

TEST(a_token_is_found_by_the_address_that_it_is_for_and_by_no_other)
{
    struct home home;
    home_init(&home);
    CHECK_STR(found(&home, "127.0.0.1:7400"), "none");
    int first = leave(&home, "127.0.0.1:7400", "t1");
    int second = leave(&home, "[::1]:7401", "t2");
    CHECK_STR(found(&home, "127.0.0.1:7400"), "t1");
    CHECK_STR(found(&home, "localhost:7400"), "t1");
    CHECK_STR(found(&home, "[::1]:7401"), "t2");
    CHECK_STR(found(&home, "127.0.0.1:7401"), "none");
    CHECK_STR(found(&home, "10.0.0.1:1,[::1]:7401,127.0.0.1:7400"), "t2");
    CHECK_STR(found(&home, "../127.0.0.1:7400"), "none");
    close(first);
    close(second);
    home_deinit(&home);
}

TEST(only_its_user_can_read_it)
{
    struct home home;
    struct error e = {0};
    const char *token = NULL;
    home_init(&home);
    int lock = leave(&home, "127.0.0.1:7400", "t1");
    const char *path = path_of(&home, "127.0.0.1:7400");
    CHECK_INT(mode_of(path), 0600);
    CHECK_INT(mode_of(arena_format(&home.arena, "%s/capstan", home.folder)), 0700);
    CHECK_INT(mode_of(arena_format(&home.arena, "%s/capstan/tokens", home.folder)), 0700);
    CHECK_INT(chmod(path, 0640), 0);
    CHECK_ERR(token_find(&home.arena, "127.0.0.1:7400", &token, &e), ERR_INVALID);
    CHECK(strstr(e.hint, "chmod 600") != NULL);
    close(lock);
    home_deinit(&home);
}

TEST(what_was_left_behind_is_not_sent_to_whoever_has_the_address_now)
{
    struct home home;
    home_init(&home);
    int lock = leave(&home, "127.0.0.1:7400", "t1");
    close(lock); /* as the end of the process does it, however that comes */
    CHECK_STR(found(&home, "127.0.0.1:7400"), "none");
    lock = leave(&home, "127.0.0.1:7400", "t2");
    CHECK_STR(found(&home, "127.0.0.1:7400"), "t2");
    close(lock);
    home_deinit(&home);
}

TEST(without_a_home_there_is_no_folder)
{
    struct arena arena = {0};
    const char *path = NULL;
    const char *token = NULL;
    struct error e = {0};
    const char *home = getenv("HOME");
    char *kept = home != NULL ? arena_strdup(&arena, home) : NULL;
    CHECK_INT(unsetenv("XDG_CONFIG_HOME"), 0);
    CHECK_INT(setenv("HOME", "/nowhere/somebody", 1), 0);
    CHECK_ERR(token_path(&arena, "h:1", &path, &e), ERR_OK);
    CHECK_STR(path, "/nowhere/somebody/.config/capstan/tokens/h:1");
    CHECK_INT(unsetenv("HOME"), 0);
    CHECK_ERR(token_path(&arena, "h:1", &path, &e), ERR_PRECONDITION);
    CHECK_ERR(token_find(&arena, "h:1", &token, &e), ERR_OK);
    CHECK(token == NULL);
    CHECK_INT(kept != NULL ? setenv("HOME", kept, 1) : 0, 0);
    arena_deinit(&arena);
}
