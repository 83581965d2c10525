#define _GNU_SOURCE /* mkostemp */
#include "client/tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/client.h"
#include "rpc/rpc.h"

#define TOKEN_BYTES_MAX 4096
#define LOCAL_NAME "localhost:"

enum err token_path(struct arena *arena, const char *address, const char **out, struct error *e)
{
    const char *config = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    if (config != NULL && config[0] == '/') {
        *out = arena_format(arena, "%s/capstan/tokens/%s", config, address);
    } else if (home != NULL && home[0] == '/') {
        *out = arena_format(arena, "%s/.config/capstan/tokens/%s", home, address);
    } else {
        error_set(e, ERR_PRECONDITION, "there is no folder for the token: neither XDG_CONFIG_HOME nor HOME is set");
        error_hint(e, "set one of them, or give the token in CAPSTAN_TOKEN");
        return ERR_PRECONDITION;
    }
    return ERR_OK;
}

enum err token_make_folder(struct arena *arena, const char *path, struct error *e)
{
    char *part = arena_strdup(arena, path);
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST) {
            return error_set(e, ERR_INVALID, "cannot make the folder %s: %s", part, strerror(errno));
        }
        *slash = '/';
    }
    return ERR_OK;
}

enum err token_write(struct arena *arena, const char *path, const char *text, int *out_lock, struct error *e)
{
    const char *line = arena_format(arena, "%s\n", text);
    char *fresh = arena_format(arena, "%s.XXXXXX", path);
    size_t n = strlen(line);
    int fd = mkostemp(fresh, O_CLOEXEC); /* with mode 0600 */
    if (fd < 0) {
        return error_set(e, ERR_INVALID, "cannot write %s: %s", path, strerror(errno));
    }
    bool is_written = write(fd, line, n) == (ssize_t)n && flock(fd, LOCK_EX | LOCK_NB) == 0 && rename(fresh, path) == 0;
    int error = errno;
    if (!is_written || out_lock == NULL) {
        close(fd);
    }
    if (!is_written) {
        (void)unlink(fresh);
        return error_set(e, ERR_INVALID, "cannot write %s: %s", path, strerror(error));
    }
    if (out_lock != NULL) {
        *out_lock = fd;
    }
    return ERR_OK;
}

/* The first line of the file; NULL if there is no file, or it is nobody's any more. */
static enum err read_token(struct arena *arena, const char *path, const char **out, struct error *e)
{
    struct stat st;
    char text[TOKEN_BYTES_MAX + 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return ERR_OK; /* then the server says whether it needs one */
    }
    bool is_in_use = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    ssize_t n = is_in_use && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? read(fd, text, TOKEN_BYTES_MAX) : -1;
    close(fd);
    if (n <= 0) {
        return ERR_OK;
    }
    if ((st.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        error_set(e, ERR_INVALID, "the token in %s is open to other users", path);
        error_hint(e, "start 'capstan up' again, which makes another one, or: chmod 600 %s", path);
        return ERR_INVALID;
    }
    text[n] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    *out = arena_strdup(arena, text);
    return ERR_OK;
}

static enum err find_one(struct arena *arena, const char *address, const char **out, struct error *e)
{
    const char *path = NULL;
    if (rpc_address_check(address, NULL) != ERR_OK || token_path(arena, address, &path, NULL) != ERR_OK) {
        return ERR_OK;
    }
    return read_token(arena, path, out, e);
}

enum err token_find(struct arena *arena, const char *addresses, const char **out, struct error *e)
{
    char address[CLIENT_ADDRESS_BYTES];
    enum err err = ERR_OK;
    *out = NULL;
    for (uint32_t i = 0; err == ERR_OK && *out == NULL && client_server_at(addresses, i, address); i++) {
        err = find_one(arena, address, out, e);
        if (err == ERR_OK && *out == NULL && strncmp(address, LOCAL_NAME, sizeof LOCAL_NAME - 1) == 0) {
            err = find_one(arena, arena_format(arena, "127.0.0.1:%s", address + sizeof LOCAL_NAME - 1), out, e);
        }
    }
    return err;
}
