#include "main/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 32

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

enum err folder_make(const char *path, struct error *e)
{
    struct arena arena = {0};
    char *copy = arena_strdup(&arena, path);
    enum err err = ERR_OK;
    for (char *p = copy + 1; *p != '\0'; p++) {
        if (*p == '/') {
            *p = '\0';
            (void)mkdir(copy, 0700); /* the last one tells whether it went well */
            *p = '/';
        }
    }
    if (mkdir(copy, 0700) != 0 && !is_folder(copy)) {
        err = error_set(e, ERR_INVALID, "cannot make the folder %s: %s", path, strerror(errno));
    }
    arena_deinit(&arena);
    return err;
}

enum err folder_make_temporary(struct arena *arena, const char **out_path, struct error *e)
{
    const char *parent = getenv("TMPDIR");
    char *path = arena_format(arena, "%s/capstan-XXXXXX", parent != NULL && parent[0] != '\0' ? parent : "/tmp");
    if (mkdtemp(path) == NULL) {
        return error_set(e, ERR_UNAVAILABLE, "cannot make a temporary folder %s: %s", path, strerror(errno));
    }
    *out_path = path;
    return ERR_OK;
}

/* Empties the folder that `fd` is open on, which it closes. */
static void empty(int fd, int depth)
{
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        close(fd);
        return;
    }
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (unlinkat(fd, entry->d_name, 0) != 0 && depth < DEPTH_MAX) {
            int inner = openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (inner >= 0) {
                empty(inner, depth + 1);
                (void)unlinkat(fd, entry->d_name, AT_REMOVEDIR);
            }
        }
    }
    closedir(dir);
}

void folder_remove(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        empty(fd, 0);
        (void)rmdir(path);
    }
}

/* The lock is the process's: it ends with it, however it ends. The descriptor is left open for that. */
enum err folder_lock(const char *path, struct error *e)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct flock other = lock;
    char name[4096];
    char pid[32];
    if (snprintf(name, sizeof name, "%s/up.lock", path) >= (int)sizeof name) {
        return error_set(e, ERR_INVALID, "the name of the folder is too long");
    }
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return error_set(e, ERR_INVALID, "cannot open %s: %s", name, strerror(errno));
    }
    if (fcntl(fd, F_SETLK, &lock) != 0) {
        if (fcntl(fd, F_GETLK, &other) == 0 && other.l_type != F_UNLCK) {
            error_set(e, ERR_BUSY, "another 'capstan up' (process %ld) runs in %s", (long)other.l_pid, path);
        } else {
            error_set(e, ERR_BUSY, "another 'capstan up' runs in %s", path);
        }
        error_hint(e, "stop it, or choose another folder with --data and another port with --listen");
        close(fd);
        return ERR_BUSY;
    }
    int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || write(fd, pid, (size_t)n) != n) {
        return error_set(e, ERR_INVALID, "cannot write %s: %s", name, strerror(errno));
    }
    return ERR_OK;
}
