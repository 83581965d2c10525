/*
 * sql_folder.c - the hidden folders of jobs that write files, and who removes them.
 *
 * The folder of a job that has succeeded is gone: it was renamed. That of one that has failed is removed by every worker
 * that had any part in the job, also by one that only planned it or read files for it, as soon as it hears that the job is
 * over; so it does not matter if those that wrote into it are dead. For the case that all of them are, each notes the
 * folder in a file of its own data folder before it can be there, and goes on when it is started again.
 *
 * A note is a file that is called as the hash of the folder's path, and has the job in its first line and the path in the
 * rest. One that is not whole, because its writer was killed, does not fit its name and is removed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "exec/sql_internal.h"

#define INFIX ".capstan-"
#define NOTE_BYTES_MAX 8192 /* longer than any path */
#define NOTE_NAME_BYTES (2 * SHA256_BYTES + 1)

/* A folder of a job, on the heap. */
struct job_folder {
    struct list link;
    char *job;
    char *path;
};

const char *sql__folder_of(const char *to, const char *job, struct arena *arena)
{
    const char *slash = strrchr(to, '/');
    ASSERT(slash != NULL); /* the plan's reader has seen to it */
    return arena_format(arena, "%.*s/.%s" INFIX "%s", (int)(slash - to), to, slash + 1, job);
}

/* ---- what is in a folder ---- */

int sql__compare_names(const void *a, const void *b)
{
    const char *const *left = a;
    const char *const *right = b;
    return strcmp(*left, *right);
}

enum err sql__folder_keep(const char *folder, const char *const *names, uint32_t n, struct error *e)
{
    enum err err = ERR_OK;
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        return error_set(e, ERR_INTERNAL, "cannot read the folder '%s': %s", folder, strerror(errno));
    }
    for (struct dirent *entry = NULL; err == ERR_OK && (entry = readdir(dir)) != NULL;) {
        const char *name = entry->d_name;
        bool is_self = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
        if (is_self || (n > 0 && bsearch(&name, names, n, sizeof(char *), sql__compare_names) != NULL)) {
            continue;
        }
        if (unlinkat(dirfd(dir), name, 0) != 0 && errno != ENOENT) {
            err = error_set(e, ERR_INTERNAL, "cannot remove a leftover in '%s': %s", folder, strerror(errno));
        }
    }
    (void)closedir(dir);
    return err;
}

void sql__folder_remove(const char *folder)
{
    if (sql__folder_keep(folder, NULL, 0, NULL) == ERR_OK) {
        (void)rmdir(folder);
    }
}

/* ---- notes ---- */

static void name_note(const char *path, char out[NOTE_NAME_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t hash[SHA256_BYTES];
    sha256_once(path, strlen(path), hash);
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        out[2 * i] = digits[hash[i] >> 4];
        out[2 * i + 1] = digits[hash[i] & 15];
    }
    out[NOTE_NAME_BYTES - 1] = '\0';
}

static const char *note_path(const struct sql_executor *sql, const char *path, struct arena *arena)
{
    char name[NOTE_NAME_BYTES];
    name_note(path, name);
    return arena_format(arena, "%s/%s", sql->notes_folder, name);
}

/* Without a note, the folder of a job that fails may stay if no worker of the job lives; that is no reason to fail it. */
static void write_note(const struct sql_executor *sql, const char *job, const char *path)
{
    struct arena arena = {0};
    if (sql->notes_folder == NULL) {
        return;
    }
    (void)mkdir(sql->notes_folder, 0700);
    const char *note = note_path(sql, path, &arena);
    const char *text = arena_format(&arena, "%s\n%s", job, path);
    int fd = open(note, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
        size_t n = strlen(text);
        if (write(fd, text, n) != (ssize_t)n) {
            (void)unlink(note);
        }
        (void)close(fd);
    }
    arena_deinit(&arena);
}

static void remove_note(const struct sql_executor *sql, const char *path)
{
    struct arena arena = {0};
    if (sql->notes_folder != NULL) {
        (void)unlink(note_path(sql, path, &arena));
    }
    arena_deinit(&arena);
}

/* Whether the path is one of such a folder: nothing else is ever removed. */
static bool is_folder_of(const char *path, const char *job)
{
    const char *slash = strrchr(path, '/');
    size_t n = strlen(path);
    size_t n_job = strlen(job);
    size_t n_end = strlen(INFIX) + n_job;
    return slash != NULL && slash[1] == '.' && n_job > 0 && n > n_end && path + n - n_end > slash + 1 &&
           strncmp(path + n - n_end, INFIX, strlen(INFIX)) == 0 && strcmp(path + n - n_job, job) == 0;
}

/* ---- remembering ---- */

/* With the mutex held. */
static bool is_remembered(struct sql_executor *sql, const char *path)
{
    LIST_EACH(node, &sql->folders) {
        if (strcmp(CONTAINER_OF(node, struct job_folder, link)->path, path) == 0) {
            return true;
        }
    }
    return false;
}

/* With the mutex held. */
static void add_folder(struct sql_executor *sql, const char *job, const char *path)
{
    struct job_folder *folder = mem_calloc(1, sizeof(*folder));
    folder->job = mem_strdup(job);
    folder->path = mem_strdup(path);
    list_push_back(&sql->folders, &folder->link);
}

void sql__folder_remember(struct sql_executor *sql, const char *job, const char *path)
{
    (void)pthread_mutex_lock(&sql->mutex);
    bool is_known = is_remembered(sql, path);
    (void)pthread_mutex_unlock(&sql->mutex);
    if (is_known) {
        return;
    }
    write_note(sql, job, path); /* twice, if two tasks begin at once; it is the same both times */
    (void)pthread_mutex_lock(&sql->mutex);
    if (!is_remembered(sql, path)) {
        add_folder(sql, job, path);
    }
    (void)pthread_mutex_unlock(&sql->mutex);
}

void sql__folders_of_plan(struct sql_executor *sql, const char *job, const struct physical_plan *plan)
{
    struct arena arena = {0};
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        if (plan->stages[i].write.to != NULL) {
            sql__folder_remember(sql, job, sql__folder_of(plan->stages[i].write.to, job, &arena));
        }
    }
    arena_deinit(&arena);
}

/* One note: its folder is remembered, or the note is removed. */
static void load_note(struct sql_executor *sql, int dir, const char *name)
{
    char text[NOTE_BYTES_MAX];
    char expected[NOTE_NAME_BYTES];
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0) {
        (void)close(fd);
    }
    text[n > 0 ? n : 0] = '\0';
    char *line_end = strchr(text, '\n');
    if (line_end != NULL) {
        *line_end = '\0';
        name_note(line_end + 1, expected);
    }
    if (line_end != NULL && strcmp(name, expected) == 0 && is_folder_of(line_end + 1, text)) {
        add_folder(sql, text, line_end + 1);
    } else {
        (void)unlinkat(dir, name, 0);
    }
}

void sql__folders_load(struct sql_executor *sql)
{
    DIR *dir = sql->notes_folder == NULL ? NULL : opendir(sql->notes_folder);
    if (dir == NULL) {
        return;
    }
    for (struct dirent *entry = NULL; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.') {
            load_note(sql, dirfd(dir), entry->d_name);
        }
    }
    (void)closedir(dir);
}

void sql__drop_folders(struct sql_executor *sql, const char *job)
{
    struct list dropped;
    list_init(&dropped);
    (void)pthread_mutex_lock(&sql->mutex);
    LIST_EACH_SAFE(node, next, &sql->folders) {
        if (job == NULL || strcmp(CONTAINER_OF(node, struct job_folder, link)->job, job) == 0) {
            list_remove(node);
            list_push_back(&dropped, node);
        }
    }
    (void)pthread_mutex_unlock(&sql->mutex);
    LIST_EACH_SAFE(node, next, &dropped) {
        struct job_folder *folder = CONTAINER_OF(node, struct job_folder, link);
        if (job != NULL) {
            sql__folder_remove(folder->path);
            remove_note(sql, folder->path);
        }
        list_remove(node);
        mem_free(folder->job);
        mem_free(folder->path);
        mem_free(folder);
    }
}

void sql__each_folder_job(struct sql_executor *sql, exec_job_fn *fn, void *context)
{
    (void)pthread_mutex_lock(&sql->mutex);
    LIST_EACH(node, &sql->folders) {
        fn(context, CONTAINER_OF(node, struct job_folder, link)->job);
    }
    (void)pthread_mutex_unlock(&sql->mutex);
}
