/*
 * The data folder: one worker's alone, held by a lock on a file in it, and emptied of what an earlier process left.
 */
#include "worker/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#define DEPTH_MAX 200 /* folders inside each other; every level holds a descriptor */

static enum err os_error(struct error *e, const char *what, const char *path)
{
    return error_set(e, ERR_UNAVAILABLE, "%s %s: %s", what, path, strerror(errno));
}

/* Removes all that is in the folder, never following a link. Takes the descriptor over. Best effort. */
static void empty(int fd, int depth)
{
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            unlinkat(fd, entry->d_name, 0) == 0) {
            continue;
        }
        int inner = depth < DEPTH_MAX ? openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (inner >= 0) {
            empty(inner, depth + 1);
        }
        unlinkat(fd, entry->d_name, AT_REMOVEDIR);
    }
    closedir(dir);
}

/* Makes the folder and those above it. */
static enum err make_path(const char *path, struct error *e)
{
    char *copy = mem_strdup(path);
    enum err err = ERR_OK;
    for (char *at = copy + 1; err == ERR_OK && *copy != '\0'; at++) {
        if (*at != '/' && *at != '\0') {
            continue;
        }
        bool is_last = *at == '\0';
        *at = '\0';
        if (mkdir(copy, 0700) != 0 && errno != EEXIST) {
            err = os_error(e, "cannot make the folder", copy);
        }
        if (is_last) {
            break;
        }
        *at = '/';
    }
    mem_free(copy);
    return err;
}

static enum err make_inner(int dir, const char *path, const char *name, bool is_emptied, struct error *e)
{
    if (mkdirat(dir, name, 0700) != 0 && errno != EEXIST) {
        return error_set(e, ERR_UNAVAILABLE, "cannot make %s/%s: %s", path, name, strerror(errno));
    }
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return error_set(e, ERR_UNAVAILABLE, "cannot open %s/%s: %s", path, name, strerror(errno));
    }
    if (is_emptied) {
        empty(fd, 0);
    } else {
        close(fd);
    }
    return ERR_OK;
}

static enum err take_lock(int dir, const char *path, int *out_fd, struct error *e)
{
    int fd = openat(dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return os_error(e, "cannot open the lock in", path);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        error_set(e, ERR_BUSY, "another worker uses the data folder %s", path);
        error_hint(e, "give each worker a folder of its own with --data");
        return ERR_BUSY;
    }
    *out_fd = fd;
    return ERR_OK;
}

enum err worker_folder_take(const char *path, int *out_fd, struct error *e)
{
    static const char *const emptied[] = {WORKER_DIR_WORK, WORKER_DIR_TMP, WORKER_DIR_SHUFFLE};
    int lock = -1;
    enum err err = make_path(path, e);
    if (err != ERR_OK) {
        return err;
    }
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        return os_error(e, "cannot open the folder", path);
    }
    err = take_lock(dir, path, &lock, e);
    for (size_t i = 0; err == ERR_OK && i < ARRAY_LEN(emptied); i++) {
        err = make_inner(dir, path, emptied[i], true, e);
    }
    if (err == ERR_OK) {
        err = make_inner(dir, path, WORKER_DIR_RESULTS, false, e);
    }
    close(dir);
    if (err != ERR_OK) {
        worker_folder_give_back(lock);
        return err;
    }
    *out_fd = lock;
    return ERR_OK;
}

void worker_folder_give_back(int fd)
{
    if (fd >= 0) {
        close(fd); /* which gives the lock back, too */
    }
}
