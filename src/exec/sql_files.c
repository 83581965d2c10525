/*
 * sql_files.c - the files of a task: whether they are what they were at planning, and whether DuckDB may remember them.
 *
 * DuckDB keeps the metadata of Parquet files, and takes a file for the one that it knows if inode, bytes and the second of
 * its change are the same. If it is written again within that second, or its time is set back, what the old one's
 * statistics say would hide rows of the new one. So a task whose files could still be written again in the second of
 * their last change neither uses what is kept nor adds to it, nor does one of which nobody knows what it reads. All
 * others can rely on it as long as the times, to the nanosecond, are those with which the file came into the memory; else
 * the whole DuckDB is replaced by a new one, for it forgets nothing.
 */
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/mem.h"
#include "exec/sql_internal.h"

#define SETTLED_MS 10000 /* much more than the second, for the clocks of other machines */
#define REMEMBERED_MAX 65536

/* A file that DuckDB may know: what it goes by, and what it does not look at. */
struct remembered {
    uint64_t device;
    uint64_t inode;
    int64_t bytes;
    int64_t modified_s;
    int64_t modified_ns; /* of that second */
    int64_t changed_ns;  /* since 1970 */
    char path[];
};

static bool is_same_to_duckdb(const void *value, const void *key)
{
    const struct remembered *a = value;
    const struct remembered *b = key;
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes && a->modified_s == b->modified_s &&
           strcmp(a->path, b->path) == 0;
}

static uint64_t hash_of(const struct remembered *file)
{
    return file->inode * UINT64_C(31) + (uint64_t)file->modified_s; /* paths of one inode are few */
}

void sql__files_forget(struct map *files)
{
    size_t cursor = 0;
    for (void *file = NULL; (file = map_next(files, &cursor)) != NULL;) {
        mem_free(file);
    }
    map_deinit(files);
}

/* With the mutex held. */
static enum sql_trust remember(struct map *files, struct remembered *file)
{
    uint64_t hash = hash_of(file);
    const struct remembered *known = map_get(files, hash, is_same_to_duckdb, file);
    bool is_known = known != NULL;
    bool is_same = is_known && known->modified_ns == file->modified_ns && known->changed_ns == file->changed_ns;
    if (is_known || files->count >= REMEMBERED_MAX) {
        mem_free(file);
        return is_same ? SQL_TRUST : (is_known ? SQL_TRUST_LOST : SQL_TRUST_NONE);
    }
    map_put(files, hash, file);
    return SQL_TRUST;
}

static bool is_younger(const struct timespec *time, int64_t ms)
{
    return (int64_t)time->tv_sec * 1000 + (int64_t)time->tv_nsec / 1000000 > clock_wall_ms() - ms;
}

static enum sql_trust trust_file(struct sql_executor *sql, struct sql_instance *instance, const char *path)
{
    struct stat st;
    int64_t settled_ms = sql->options.settled_ms > 0 ? sql->options.settled_ms : SETTLED_MS;
    if (stat(path, &st) != 0 || is_younger(&st.st_mtim, settled_ms) || is_younger(&st.st_ctim, settled_ms)) {
        return SQL_TRUST_NONE;
    }
    size_t n_path = strlen(path) + 1;
    struct remembered *file = mem_calloc(1, sizeof(*file) + n_path);
    *file = (struct remembered){
        .device = (uint64_t)st.st_dev,
        .inode = (uint64_t)st.st_ino,
        .bytes = (int64_t)st.st_size,
        .modified_s = (int64_t)st.st_mtim.tv_sec,
        .modified_ns = (int64_t)st.st_mtim.tv_nsec,
        .changed_ns = (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec,
    };
    memcpy(file->path, path, n_path);
    pthread_mutex_lock(&sql->mutex);
    enum sql_trust trust = remember(&instance->files, file);
    pthread_mutex_unlock(&sql->mutex);
    return trust;
}

enum sql_trust sql__files_trust(struct sql_executor *sql, struct sql_instance *instance,
                                const struct physical_stage *stage, uint32_t task)
{
    const struct physical_split *splits = NULL;
    uint32_t n = stage->n_splits > 0 ? physical_task_splits(stage, task, &splits) : 0;
    enum sql_trust trust = stage->knows_files ? SQL_TRUST : SQL_TRUST_NONE;
    for (uint32_t i = 0; i < n && trust == SQL_TRUST; i++) {
        bool is_again = i > 0 && strcmp(splits[i].file, splits[i - 1].file) == 0;
        trust = is_again || !splits[i].has_identity ? trust /* behind a URL, DuckDB has other ways to know it again */
                                                    : trust_file(sql, instance, splits[i].file);
    }
    for (uint32_t i = 0; i < stage->n_files && trust == SQL_TRUST; i++) {
        trust = trust_file(sql, instance, stage->files[i].path);
    }
    return trust;
}

/* Whether the file is another one than it was. A file that is not there is DuckDB's to complain about. */
static bool is_changed(const char *path, uint64_t bytes, int64_t mtime_ms, struct error *e)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        return false;
    }
    int64_t now_ms = (int64_t)st.st_mtim.tv_sec * 1000 + (int64_t)st.st_mtim.tv_nsec / 1000000;
    if ((uint64_t)st.st_size == bytes && now_ms == mtime_ms) {
        return false;
    }
    error_set(e, ERR_STALE, "the file '%s' has changed since the query was planned", path);
    error_hint(e, "run the query again");
    return true;
}

bool sql__files_have_changed(const struct physical_stage *stage, uint32_t task, struct error *e)
{
    const struct physical_split *splits = NULL;
    uint32_t n = stage->n_splits > 0 ? physical_task_splits(stage, task, &splits) : 0;
    for (uint32_t i = 0; i < n; i++) {
        if (splits[i].has_identity && !splits[i].is_empty &&
            is_changed(splits[i].file, splits[i].file_bytes, splits[i].file_mtime_ms, e)) {
            return true;
        }
    }
    for (uint32_t i = 0; i < stage->n_files; i++) {
        const struct physical_file *file = &stage->files[i];
        if (is_changed(file->path, file->bytes, file->mtime_ms, e)) {
            return true;
        }
    }
    return false;
}
