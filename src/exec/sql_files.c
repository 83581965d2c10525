/*
 * sql_files.c - the files of a task: whether they are what they were at planning, and whether DuckDB may remember them.
 *
 * DuckDB keeps the metadata of Parquet files, and takes a file for the one that it knows if inode, bytes and the second of
 * its change are the same. One that is written again within that second is not noticed, and what the old one's statistics
 * say would hide rows of the new one for as long as the worker lives. So a task with a file that could still be written
 * again in the second of its last change neither uses what is kept nor adds to it; all others can rely on it.
 */
#include <sys/stat.h>

#include "base/clock.h"
#include "exec/sql_internal.h"

#define SETTLED_MS 10000 /* much more than the second, for the clocks of other machines */

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

bool sql__files_are_settled(const struct physical_stage *stage, uint32_t task)
{
    const struct physical_split *splits = NULL;
    uint32_t n = stage->n_splits > 0 ? physical_task_splits(stage, task, &splits) : 0;
    int64_t settled_ms = clock_wall_ms() - SETTLED_MS;
    for (uint32_t i = 0; i < n; i++) {
        if (splits[i].has_identity && splits[i].file_mtime_ms > settled_ms) {
            return false;
        }
    }
    for (uint32_t i = 0; i < stage->n_files; i++) {
        if (stage->files[i].mtime_ms > settled_ms) {
            return false;
        }
    }
    /* SQL that nobody could look into may read anything. */
    return n > 0 || stage->n_files > 0 || stage->n_inputs > 0;
}
