/*
 * sql_write.c - queries that write files (COPY … TO, CREATE TABLE … AS): all or nothing.
 *
 * Each task of the stage that writes (physical_write) makes one file in a hidden folder beside the target that belongs to
 * the job, `.<target>.capstan-<job>`, called part-<task>-<attempt>.<ending>. The last task (physical_publish) gets the
 * names of those that count. It removes all others from the folder, leaves a marker in it, `_capstan_<job>`, and renames
 * the folder to the target. So the target is there as a whole or not at all, has no file of an attempt that failed, and a
 * task that is repeated after it was done finds its own marker and does no harm. Nothing is ever replaced: a target that
 * somebody else has made is an error. Of a job that ends without success between the rename and the report on it, the
 * target stays: workers are told that a job is over, and not how.
 *
 * Files without rows are left out, but for one if there are no others: they only have columns, or not even these.
 *
 * Who removes the folder if the job fails is in sql_folder.c.
 */
#define _GNU_SOURCE /* renameat2 */

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/num.h"
#include "exec/sql_internal.h"
#include "query/plan.h"

#define MARKER "_capstan_"
#define MARKER_BYTES_MAX 64

/* A file that was written, without its folder. */
struct written {
    const char *name;
    uint64_t rows;
};

/* Fails with the reason in errno. */
static enum err failed(struct error *e, const char *what, const char *path)
{
    int code = errno;
    enum err err = code == ENOSPC || code == EDQUOT ? ERR_EXHAUSTED : ERR_INTERNAL;
    return error_set(e, err, "%s '%s': %s", what, path, strerror(code));
}

/* ---- the target ---- */

static const char *marker_of(const char *folder, const char *job, struct arena *arena)
{
    return arena_format(arena, "%s/" MARKER "%s", folder, job);
}

/* What is at the place of the target. */
enum target { TARGET_FREE, TARGET_OURS, TARGET_OTHERS };

static enum target look_at_target(const char *to, const char *job, struct arena *arena, uint64_t *out_rows)
{
    struct stat st;
    char text[MARKER_BYTES_MAX] = "";
    if (lstat(to, &st) != 0 && errno == ENOENT) {
        return TARGET_FREE;
    }
    int fd = open(marker_of(to, job, arena), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return TARGET_OTHERS;
    }
    ssize_t n = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    *out_rows = n > 0 ? strtoull(text, NULL, 10) : 0;
    return TARGET_OURS;
}

/* The job whose marker is in the folder; NULL if there is none. */
static const char *find_maker(const char *folder, struct arena *arena)
{
    const char *job = NULL;
    DIR *dir = opendir(folder);
    for (const struct dirent *entry = NULL; job == NULL && dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (strncmp(entry->d_name, MARKER, strlen(MARKER)) == 0 && entry->d_name[strlen(MARKER)] != '\0') {
            job = arena_strdup(arena, entry->d_name + strlen(MARKER));
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return job;
}

/* A job may have made its folder, and have been canceled or lost its worker before it could report that. */
static enum err refuse_target(const char *to, struct arena *arena, struct error *e)
{
    const char *job = find_maker(to, arena);
    error_set(e, ERR_INVALID, "'%s' exists already", to);
    if (job != NULL) {
        error_hint(e,
                   "job %s has made it, and if that did not succeed, 'capstan retry %s' completes it; else name "
                   "another folder, or remove this one",
                   job, job);
    } else {
        error_hint(e, "name a folder that does not exist yet, or remove this one");
    }
    return ERR_INVALID;
}

/* ---- one file ---- */

enum err sql__file_begin(struct sql_run *run, const struct physical_stage *stage, struct arena *arena,
                         struct sql_file *out, struct error *e)
{
    const struct exec_task *task = run->task;
    const char *to = stage->write.to;
    const char *folder = sql__folder_of(to, task->job_id, arena);
    uint64_t rows = 0;
    if (look_at_target(to, task->job_id, arena, &rows) == TARGET_OTHERS) {
        return refuse_target(to, arena, e);
    }
    sql__folder_remember(run->sql, task->job_id, folder); /* before it is there */
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        error_set(e, errno == ENOSPC ? ERR_EXHAUSTED : ERR_INVALID, "the folder '%s' cannot be made: %s", folder,
                  strerror(errno));
        error_hint(e, "the folder in which '%s' is to be must exist, and workers must be allowed to write there", to);
        return e == NULL ? ERR_INVALID : e->code;
    }
    /* Numbers of one length, so that the order of names is that of the tasks. */
    const char *name = arena_format(arena, "part-%05" PRIu64 "-%" PRIu32 ".%s", task->task, task->attempt,
                                    physical_write_ending(&stage->write));
    *out = (struct sql_file){.folder = folder, .name = name, .path = arena_format(arena, "%s/%s", folder, name)};
    return ERR_OK;
}

void sql__file_drop(const struct sql_file *file)
{
    (void)unlink(file->path);
}

static enum err keep_count(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    int64_t rows = 0;
    if (n != 1 || values[0].bytes == NULL || !num_parse_int(values[0].bytes, &rows) || rows < 0) {
        return error_set(e, ERR_INTERNAL, "DuckDB does not say how many rows it has written");
    }
    *(uint64_t *)context = (uint64_t)rows;
    return ERR_OK;
}

/* What was written is on the disk before anybody is told. */
static enum err sync_path(const char *path, struct error *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return failed(e, "cannot open", path);
    }
    enum err err = fsync(fd) == 0 ? ERR_OK : failed(e, "cannot sync", path);
    (void)close(fd);
    return err;
}

enum err sql__file_write(struct duck_connection *connection, const struct physical_write *write,
                         const struct sql_file *file, const char *select, uint64_t *out_rows, struct error *e)
{
    struct buf trimmed = {0};
    struct buf to = {0};
    size_t n = strlen(select);
    while (n > 0 && (isspace((unsigned char)select[n - 1]) || select[n - 1] == ';')) {
        n--;
    }
    buf_append(&trimmed, select, n);
    sql_write_text(&to, file->path, strlen(file->path));
    buf_format(&to, " (FORMAT %s%s%s)", write->format, write->options[0] != '\0' ? ", " : "", write->options);
    enum err err = duck_copy(connection, trimmed.data, to.data, keep_count, out_rows, e);
    buf_deinit(&trimmed);
    buf_deinit(&to);
    return err == ERR_OK ? sync_path(file->path, e) : err;
}

/* ---- publishing ---- */

struct written_list {
    struct arena *arena;
    struct written *files; /* on the heap */
    uint32_t n;
    uint32_t cap;
    uint64_t rows;
};

static enum err add_file(void *context, const struct duck_text *values, uint32_t n, struct error *e)
{
    struct written_list *list = context;
    int64_t rows = 0;
    if (n != 2 || values[0].bytes == NULL || values[1].bytes == NULL || !num_parse_int(values[1].bytes, &rows) ||
        rows < 0) {
        return error_set(e, ERR_INVALID, "a stage that publishes files must read their names and numbers of rows");
    }
    const char *name = values[0].bytes;
    if (name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL) {
        return error_set(e, ERR_INVALID, "'%s' is no name of a file to publish", name);
    }
    list->files = mem_grow(list->files, &list->cap, list->n + 1, sizeof(*list->files));
    list->files[list->n++] = (struct written){.name = arena_strdup(list->arena, name), .rows = (uint64_t)rows};
    list->rows += (uint64_t)rows;
    return ERR_OK;
}

/* All must be there, else somebody has written into another folder of the same name. */
static enum err check_files(const char *folder, const struct written_list *list, struct error *e)
{
    for (uint32_t i = 0; i < list->n; i++) {
        struct stat st;
        const char *path = arena_format(list->arena, "%s/%s", folder, list->files[i].name);
        if (lstat(path, &st) != 0) {
            error_set(e, ERR_INTERNAL, "the file '%s', which another task has written, is not there", path);
            error_hint(e, "paths must mean the same on all workers");
            return ERR_INTERNAL;
        }
    }
    return ERR_OK;
}

/* The names that stay, sorted, with the marker's: files with rows, or, if there are none, the first. */
static const char **kept_names(const struct written_list *list, const char *job, uint32_t *out_n)
{
    const char **names = arena_alloc(list->arena, ((size_t)list->n + 1) * sizeof(char *));
    uint32_t n = 0;
    names[n++] = arena_format(list->arena, MARKER "%s", job);
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->rows > 0 ? list->files[i].rows > 0 : i == 0) {
            names[n++] = list->files[i].name;
        }
    }
    qsort(names, n, sizeof(char *), sql__compare_names);
    *out_n = n;
    return names;
}

static enum err leave_marker(const char *path, uint64_t rows, struct error *e)
{
    char text[MARKER_BYTES_MAX];
    int n = snprintf(text, sizeof(text), "%" PRIu64 "\n", rows);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    enum err err = ERR_OK;
    if (fd < 0 || write(fd, text, (size_t)n) != n || fsync(fd) != 0) {
        err = failed(e, "cannot make the file", path);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return err;
}

/* Renames to a name that is free. Not all file systems can see to that by themselves. */
static int rename_to_free(const char *from, const char *to)
{
    int failure = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
    return failure != 0 && (errno == EINVAL || errno == ENOSYS) ? rename(from, to) : failure;
}

/* The folder is complete: it becomes the target. */
static enum err rename_folder(const char *folder, const char *to, const char *job, struct arena *arena, struct error *e)
{
    uint64_t rows = 0;
    struct error why = {0};
    enum err err = sync_path(folder, e);
    if (err == ERR_OK && rename_to_free(folder, to) != 0) {
        err = failed(&why, "cannot rename the folder to", to);
        enum target target = look_at_target(to, job, arena, &rows);
        if (target == TARGET_OURS) { /* a twin of this task was faster */
            err = ERR_OK;
        } else if (target == TARGET_OTHERS) {
            err = refuse_target(to, arena, e);
        } else if (e != NULL) {
            *e = why;
        }
    }
    char *parent = arena_strdup(arena, to);
    char *slash = strrchr(parent, '/');
    slash[slash == parent ? 1 : 0] = '\0';
    return err == ERR_OK ? sync_path(parent, e) : err;
}

/* Makes the files of the list the target. */
static enum err publish(const struct written_list *list, const char *to, const char *job, struct error *e)
{
    const char *folder = sql__folder_of(to, job, list->arena);
    uint32_t n = 0;
    const char **names = kept_names(list, job, &n);
    enum err err = check_files(folder, list, e);
    if (err == ERR_OK) {
        err = sql__folder_keep(folder, names, n, e);
    }
    if (err == ERR_OK) {
        err = leave_marker(marker_of(folder, job, list->arena), list->rows, e);
    }
    if (err == ERR_OK) {
        err = rename_folder(folder, to, job, list->arena, e);
    }
    if (err == ERR_OK) { /* of an attempt that did not know that it was over */
        err = sql__folder_keep(to, names, n, e);
    }
    return err;
}

enum err sql__publish(struct sql_run *run, const struct physical_publish *what, struct duck_connection *connection,
                      const char *select, struct arena *arena, uint64_t *out_rows, struct error *e)
{
    const char *job = run->task->job_id;
    struct written_list list = {.arena = arena};
    uint64_t rows = 0;
    enum err err = duck_read_rows(connection, select, add_file, &list, e);
    if (err == ERR_OK) {
        switch (look_at_target(what->to, job, arena, &rows)) {
        case TARGET_FREE:
            err = publish(&list, what->to, job, e);
            rows = list.rows;
            break;
        case TARGET_OURS: /* it was done before; tasks that were repeated since have left their files */
            sql__folder_remove(sql__folder_of(what->to, job, arena));
            break;
        case TARGET_OTHERS:
            err = refuse_target(what->to, arena, e);
            break;
        }
    }
    if (err == ERR_OK) {
        *out_rows = rows;
    }
    mem_free(list.files);
    return err;
}
