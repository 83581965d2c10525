/*
 * split.h - what files hold, and how a scan is shared out among tasks.
 *
 * The metadata of all Parquet files of a plan is read once (split_catalog_load); after that, cutting needs no files.
 * A split is a file, or rows of one: whole row groups, so that no row group is read by two tasks, unless there are so few
 * that some tasks would have much more to do than others. A file of CSV or JSON is never split; of several, each has one task.
 *
 * Ownership: all lies in the arena given. Threads: a catalog that is loaded may be read by several.
 */
#ifndef CAPSTAN_QUERY_SPLIT_H
#define CAPSTAN_QUERY_SPLIT_H

#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"
#include "query/physical.h"
#include "query/plan.h"
#include "query/planner.h"

struct split_group {
    uint64_t rows;
    uint64_t bytes; /* compressed, as in the file */
};

/* A column of whole numbers or dates (days). */
struct split_column {
    const char *name;
    int64_t least;
    int64_t greatest;
    int64_t *first; /* the least value of each row group, if they ascend and none is NULL; else NULL */
    int64_t *last;  /* likewise the greatest one */
};

struct split_file {
    const char *path;
    uint64_t rows;
    uint64_t bytes;
    bool has_identity; /* the times are known; not so for files behind a URL */
    uint64_t inode;
    int64_t mtime_ms;
    int64_t changed_ns; /* the inode's own time, which nobody can set */
    int64_t placed_ns;  /* that of its name and of its folder, the later one */
    uint32_t n_groups;
    struct split_group *groups;
    bool is_unread;           /* what is below is not known, as if DuckDB would take its name for a pattern */
    bool has_file_row_number; /* a column of the file's own, which hides what DuckDB calls so */
    bool has_file_name;       /* the same for filename or file_index */
    bool has_share_file;      /* and one called as SCAN_SHARE_FILE */
    uint64_t shape;           /* a hash of the names, places and types of all columns; 0: not known */
    uint32_t n_columns;       /* of which something is known */
    struct split_column *columns;
};

struct split_catalog {
    uint32_t n_files;
    struct split_file *files; /* sorted by path */
};

/*
 * What is known about files from plans before. A file whose size or time has changed is looked at again, and so is one that
 * was written in the last moments, for then it may change once more without its time showing it.
 */
struct split_cache;
struct split_cache *split_cache_new(void);
void split_cache_free(struct split_cache *cache); /* NULL ok */

/* At most so many values of row groups are kept, and are known to one plan; 4 Mi unless said otherwise. */
void split_cache_bound(struct split_cache *cache, uint64_t n_values_max);

/*
 * Reads the metadata of all Parquet files that the plan scans, unless the planner's cache has it, and looks at the sizes
 * of others (split_others_load).
 */
MUST_USE enum err split_catalog_load(struct planner *planner, struct plan_node *root, struct arena *arena,
                                     struct split_catalog **out_catalog, struct error *e);

/* Whether no file, nor its folder, has changed in the two seconds before `time_ms`, nor since. */
bool split_catalog_is_settled(const struct split_catalog *catalog, int64_t time_ms);

/*
 * Whether all files of the catalog were as they are at `time_ms`: they were so when they were looked at for `before`, which
 * was earlier, or they have come since then, and not changed after that time.
 */
bool split_catalog_was_there(const struct split_catalog *before, const struct split_catalog *catalog, int64_t time_ms);

/* A plan, and what it reads. */
struct query_planned {
    struct plan *plan;
    struct split_catalog *catalog; /* NULL: the plan has no tree */
    int64_t started_ms;            /* the plan knows nothing of files that is older than this */
};

/*
 * Plans (query_plan_request) and loads the catalog, again if a file has changed meanwhile. ERR_UNAVAILABLE if that does not
 * end.
 */
MUST_USE enum err query_plan_files(struct planner *planner, const struct planner_request *request, struct arena *arena,
                                   struct query_planned *out, struct error *e);

/* NULL if it is not there. */
const struct split_file *split_find(const struct split_catalog *catalog, const char *path);

struct split_total {
    uint64_t rows;
    uint64_t bytes;
};

/* What all files of the scan hold together. Files that the catalog does not know count as nothing. */
struct split_total split_total_of(const struct split_catalog *catalog, const struct scan *scan);

/* What is known of a column; NULL: nothing. */
const struct split_column *split_column_of(const struct split_file *file, const char *name);

/* About how many rows the scan's filters leave; negative if the files do not say. */
double split_rows_left(const struct split_catalog *catalog, const struct scan *scan);

struct split_sizes {
    uint64_t bytes_target;   /* of a split */
    uint32_t slots;          /* that will work on them; 0: not known, and each split is a task */
    uint64_t task_bytes_min; /* a task for less is not worth it */
    uint64_t task_bytes_max; /* what a task should read at most; at least 1 if slots are known */
};

/*
 * Whether two files have the same columns in the same places, so that one task can read both: by the one that it sees first,
 * or by the places of columns. Of files that differ, it would take values of other columns, or types that are too narrow.
 */
bool split_are_alike(const struct split_catalog *catalog, const char *a, const char *b);

/* How many tasks should share so many bytes. */
uint64_t split_tasks(uint64_t bytes, const struct split_sizes *sizes);

/*
 * The splits of a scan with files, at least one: a file ends a split, and so does a row group with which it has
 * `bytes_target` bytes. If the slots are known, splits are chained so that all of these have the same to do.
 */
void split_scan(const struct split_catalog *catalog, const struct scan *scan, const struct split_sizes *sizes,
                struct arena *arena, struct physical_split **out_splits, uint32_t *out_n);

/*
 * Looks which files scans of CSV and JSON read, and whether they can be shared out (split_other.c): then the scan gets a
 * `shared_call`. Of more than a thousand files, of a call that is not understood, and behind a URL, nothing is known.
 */
void split_others_load(struct planner *planner, struct plan_node *root, struct arena *arena);

/* What the files of a scan of CSV or JSON have together, as far as they are known. */
uint64_t split_others_bytes(const struct scan *scan);

/* The splits of a scan with a `shared_call`: one for each file, chained to at most `n_tasks` tasks, which is at least 1. */
void split_others(const struct scan *scan, uint64_t n_tasks, struct arena *arena, struct physical_split **out_splits);

/* Appends the FROM item of a task of such a scan. `which` is ":1" for scan number 1 of the stage, "" for number 0. */
void split_others_write(struct buf *sql, const struct scan *scan, const struct physical_split *splits,
                        const char *which);

#endif
