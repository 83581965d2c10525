/* Parquet metadata, and scans cut along row groups. */
#include "query/split.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"
#include "query/split_types.h"
#include "query/sql_text.h"

#define CACHE_FILES_MAX 10000
#define VALUES_MAX (UINT64_C(4) << 20)
#define FILES_AT_ONCE 256              /* whose metadata DuckDB holds at a time */
#define TICK_NS INT64_C(100000000)     /* those of most file systems are not coarser */
#define SETTLED_NS INT64_C(2000000000) /* file systems with coarse clocks */

struct file_identity {
    uint64_t bytes;
    int64_t modified_ns;
    int64_t changed_ns;
};

struct cached_file {
    char *path;
    struct file_identity identity;
    struct split_file file; /* what it points to is in the arena, but its path */
    struct arena arena;
};

struct split_cache {
    struct cached_file *files; /* sorted by path */
    uint32_t n;
    uint32_t cap;
    uint64_t n_values; /* of row groups, of all files */
    uint64_t n_values_max;
    struct split_types *types;
};

/* What collects the files of a plan, and then what the metadata says about them. */
struct loader {
    struct arena *arena;
    struct split_cache *cache;
    struct split_catalog *catalog;
    uint32_t cap;
    uint64_t n_values;                /* of row groups, of all files */
    struct split_file *found;         /* on the heap until all are there */
    struct file_identity *identities; /* of the catalog's files; bytes 0: not known */
};

/* ---- the cache ---- */

struct split_cache *split_cache_new(void)
{
    struct split_cache *cache = mem_calloc(1, sizeof *cache);
    cache->n_values_max = VALUES_MAX;
    cache->types = split_types_new();
    return cache;
}

void split_cache_bound(struct split_cache *cache, uint64_t n_values_max)
{
    cache->n_values_max = n_values_max;
}

static void cache_clear(struct split_cache *cache)
{
    for (uint32_t i = 0; i < cache->n; i++) {
        mem_free(cache->files[i].path);
        arena_deinit(&cache->files[i].arena);
    }
    cache->n = 0;
    cache->n_values = 0;
}

void split_cache_free(struct split_cache *cache)
{
    if (cache != NULL) {
        cache_clear(cache);
        split_types_free(cache->types);
        mem_free(cache->files);
        mem_free(cache);
    }
}

/* Where the path is, or belongs. */
static uint32_t cache_place(const struct split_cache *cache, const char *path, bool *out_found)
{
    uint32_t from = 0;
    uint32_t to = cache->n;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (strcmp(cache->files[middle].path, path) < 0) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    *out_found = from < cache->n && strcmp(cache->files[from].path, path) == 0;
    return from;
}

static bool is_same(const struct file_identity *a, const struct file_identity *b)
{
    return a->bytes > 0 && a->bytes == b->bytes && a->modified_ns == b->modified_ns && a->changed_ns == b->changed_ns;
}

/* How many values of its row groups a file has. */
static uint64_t count_values(const struct split_file *file)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < file->n_columns; i++) {
        n += file->columns[i].first != NULL ? 2 * (uint64_t)file->n_groups : 0;
    }
    return n;
}

/* Copies what is known of the inside of a file; the values of its row groups if there is room for them. */
static void copy_inside(const struct split_file *from, bool has_room, struct arena *arena, struct split_file *to)
{
    size_t n_bytes = from->n_groups * sizeof(int64_t);
    to->rows = from->rows;
    to->bytes = from->bytes;
    to->is_unread = from->is_unread;
    to->has_file_row_number = from->has_file_row_number;
    to->has_file_name = from->has_file_name;
    to->has_share_file = from->has_share_file;
    to->shape = from->shape;
    to->n_groups = from->n_groups;
    to->groups = arena_copy(arena, from->groups, from->n_groups * sizeof *from->groups);
    to->n_columns = from->n_columns;
    to->columns = arena_zalloc(arena, from->n_columns * sizeof *from->columns);
    for (uint32_t i = 0; i < from->n_columns; i++) {
        const struct split_column *column = &from->columns[i];
        to->columns[i] = *column;
        to->columns[i].name = arena_strdup(arena, column->name);
        to->columns[i].first = column->first != NULL && has_room ? arena_copy(arena, column->first, n_bytes) : NULL;
        to->columns[i].last = column->last != NULL && has_room ? arena_copy(arena, column->last, n_bytes) : NULL;
    }
}

static bool cache_find(struct loader *l, const struct file_identity *identity, struct split_file *file)
{
    const struct split_cache *cache = l->cache;
    bool is_there = false;
    uint32_t place = cache_place(cache, file->path, &is_there);
    if (!is_there || !is_same(&cache->files[place].identity, identity)) {
        return false;
    }
    uint64_t n_values = count_values(&cache->files[place].file);
    bool has_room = l->n_values + n_values <= l->cache->n_values_max;
    copy_inside(&cache->files[place].file, has_room, l->arena, file);
    l->n_values += has_room ? n_values : 0;
    return true;
}

static void cache_put(struct split_cache *cache, const struct file_identity *identity, const struct split_file *file)
{
    int64_t settled_ns = clock_wall_ms() * 1000000 - SETTLED_NS;
    bool is_there = false;
    if (identity->bytes == 0 || identity->modified_ns > settled_ns || identity->changed_ns > settled_ns) {
        return;
    }
    if (cache->n == CACHE_FILES_MAX || cache->n_values + count_values(file) > cache->n_values_max) {
        cache_clear(cache);
    }
    uint32_t place = cache_place(cache, file->path, &is_there);
    if (!is_there) {
        cache->files = mem_grow(cache->files, &cache->cap, cache->n + 1, sizeof *cache->files);
        memmove(&cache->files[place + 1], &cache->files[place], (cache->n - place) * sizeof *cache->files);
        cache->files[place] = (struct cached_file){.path = mem_strdup(file->path)};
        cache->n++;
    }
    struct cached_file *cached = &cache->files[place];
    cache->n_values += count_values(file) - count_values(&cached->file);
    arena_deinit(&cached->arena);
    cached->arena = (struct arena){0};
    cached->identity = *identity;
    cached->file = *file;
    cached->file.path = cached->path;
    copy_inside(file, true, &cached->arena, &cached->file);
}

/* ---- loading ---- */

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct split_file *)a)->path, ((const struct split_file *)b)->path);
}

const struct split_file *split_find(const struct split_catalog *catalog, const char *path)
{
    struct split_file wanted = {.path = path};
    if (catalog->n_files == 0) {
        return NULL;
    }
    return bsearch(&wanted, catalog->files, catalog->n_files, sizeof wanted, by_path);
}

static bool collect_files(struct plan_node *node, void *context)
{
    struct loader *l = context;
    if (node->kind != NODE_SCAN || node->as.scan->source != SCAN_PARQUET) {
        return true;
    }
    const struct scan *scan = node->as.scan;
    l->found = mem_grow(l->found, &l->cap, l->catalog->n_files + scan->n_files, sizeof *l->found);
    for (uint32_t i = 0; i < scan->n_files; i++) {
        l->found[l->catalog->n_files++] = (struct split_file){.path = scan->files[i]};
    }
    return true;
}

static int64_t lstat_changed_ns(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 ? (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec : 0;
}

/* When a name was last made to mean this file: a link may lead elsewhere, and a folder may be another one. */
static int64_t placed_ns(const char *path, struct arena *arena)
{
    const char *slash = strrchr(path, '/');
    int64_t file_ns = lstat_changed_ns(path);
    int64_t folder_ns =
        slash == NULL || slash == path ? 0 : lstat_changed_ns(arena_format(arena, "%.*s", (int)(slash - path), path));
    return file_ns > folder_ns ? file_ns : folder_ns;
}

/* Sorts the files, drops those that are there twice, and looks at their times. */
static void settle_files(struct loader *l)
{
    struct split_catalog *catalog = l->catalog;
    uint32_t n = 0;
    if (catalog->n_files > 0) {
        qsort(l->found, catalog->n_files, sizeof *l->found, by_path);
    }
    for (uint32_t i = 0; i < catalog->n_files; i++) {
        if (n == 0 || strcmp(l->found[n - 1].path, l->found[i].path) != 0) {
            l->found[n++] = l->found[i];
        }
    }
    catalog->n_files = n;
    catalog->files = arena_copy(l->arena, l->found, n * sizeof *l->found);
    l->identities = arena_zalloc(l->arena, n * sizeof *l->identities);
    for (uint32_t i = 0; i < n; i++) {
        struct stat st;
        struct split_file *file = &catalog->files[i];
        file->has_identity = stat(file->path, &st) == 0;
        if (file->has_identity) {
            l->identities[i] = (struct file_identity){
                .bytes = (uint64_t)st.st_size,
                .modified_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
                .changed_ns = (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec,
            };
        }
        file->is_unread = true; /* until something comes */
        file->bytes = l->identities[i].bytes;
        file->inode = file->has_identity ? (uint64_t)st.st_ino : 0;
        file->changed_ns = l->identities[i].changed_ns;
        file->placed_ns = file->has_identity ? placed_ns(file->path, l->arena) : 0;
        file->mtime_ms =
            file->has_identity ? (int64_t)st.st_mtim.tv_sec * 1000 + (int64_t)st.st_mtim.tv_nsec / 1000000 : 0;
    }
}

static enum err read_numbers(const char *const *values, uint32_t n, uint64_t *out, struct error *e)
{
    for (uint32_t i = 0; i < n; i++) {
        int64_t number = 0;
        if (values[i] == NULL || !num_parse_int(values[i], &number) || number < 0) {
            return error_set(e, ERR_INTERNAL, "a Parquet file's metadata has no number where one belongs");
        }
        out[i] = (uint64_t)number;
    }
    return ERR_OK;
}

/* path, rows, row groups, bytes */
static enum err add_file(void *context, const char *const *values, uint32_t n, struct error *e)
{
    struct loader *l = context;
    uint64_t numbers[3] = {0};
    UNUSED(n);
    struct split_file *file = (struct split_file *)split_find(l->catalog, values[0]);
    if (file == NULL) {
        return ERR_OK;
    }
    enum err err = read_numbers(values + 1, 3, numbers, e);
    if (err != ERR_OK) {
        return err;
    }
    file->is_unread = false;
    file->rows = numbers[0];
    file->n_groups = (uint32_t)numbers[1];
    file->bytes = numbers[2];
    file->groups = arena_zalloc(l->arena, file->n_groups * sizeof *file->groups);
    return ERR_OK;
}

/* path, number of the row group, rows, bytes, which names that DuckDB uses itself are those of columns */
static enum err add_group(void *context, const char *const *values, uint32_t n, struct error *e)
{
    struct loader *l = context;
    uint64_t numbers[4] = {0};
    UNUSED(n);
    struct split_file *file = (struct split_file *)split_find(l->catalog, values[0]);
    enum err err = read_numbers(values + 1, 4, numbers, e);
    if (err == ERR_OK && file != NULL && numbers[0] < file->n_groups) {
        file->groups[numbers[0]] = (struct split_group){.rows = numbers[1], .bytes = numbers[2]};
        file->has_file_row_number = (numbers[3] & 1) != 0;
        file->has_file_name = (numbers[3] & 2) != 0;
        file->has_share_file = (numbers[3] & 4) != 0;
    }
    return err;
}

/* path, shape */
static enum err add_shape(void *context, const char *const *values, uint32_t n, struct error *e)
{
    struct loader *l = context;
    uint64_t shape = 0;
    UNUSED(n);
    struct split_file *file = (struct split_file *)split_find(l->catalog, values[0]);
    enum err err = read_numbers(values + 1, 1, &shape, e);
    if (err == ERR_OK && file != NULL) {
        file->shape = shape;
    }
    return err;
}

/* Columns of one file at most. */
#define COLUMNS_MAX 64

/* "1,5,5,9": the least and the greatest values, in turns, of the row groups; of all, or the text means nothing. */
static void read_groups(struct loader *l, const struct split_file *file, const char *text, struct split_column *column)
{
    int64_t *first = arena_zalloc(l->arena, file->n_groups * sizeof *first);
    int64_t *last = arena_zalloc(l->arena, file->n_groups * sizeof *last);
    uint32_t n = 0;
    for (char *end = NULL; *text != '\0' && n < 2 * file->n_groups; text = *end == ',' ? end + 1 : end, n++) {
        *(n % 2 == 0 ? &first[n / 2] : &last[n / 2]) = strtoll(text, &end, 10);
        if (end == text) {
            return;
        }
    }
    if (*text == '\0' && n == 2 * file->n_groups) {
        column->first = first;
        column->last = last;
    }
}

/* path, column, its least and greatest value, and those of the row groups, or NULL */
static enum err add_column(void *context, const char *const *values, uint32_t n, struct error *e)
{
    struct loader *l = context;
    UNUSED(n);
    struct split_file *file = (struct split_file *)split_find(l->catalog, values[0]);
    if (file == NULL || file->n_columns == COLUMNS_MAX) {
        return ERR_OK;
    }
    if (file->columns == NULL) {
        file->columns = arena_zalloc(l->arena, COLUMNS_MAX * sizeof *file->columns);
    }
    struct split_column column = {.name = arena_strdup(l->arena, values[1])};
    if (!num_parse_int(values[2], &column.least) || !num_parse_int(values[3], &column.greatest)) {
        return error_set(e, ERR_INTERNAL, "a Parquet file's metadata has no number where one belongs");
    }
    if (values[4] != NULL && l->n_values + 2 * (uint64_t)file->n_groups <= l->cache->n_values_max) {
        read_groups(l, file, values[4], &column);
        l->n_values += column.first != NULL ? 2 * (uint64_t)file->n_groups : 0;
    }
    file->columns[file->n_columns++] = column;
    return ERR_OK;
}

/* A text of the metadata as a number, NULL if it is none: decimals have a point, times a colon. */
static void write_number(struct buf *sql, const char *column)
{
    buf_format(sql,
               "CASE WHEN contains(%s, '.') OR contains(%s, ':') THEN NULL ELSE "
               "coalesce(TRY_CAST(%s AS BIGINT), TRY_CAST(%s AS DATE) - DATE '1970-01-01') END",
               column, column, column, column);
}

/*
 * What is known of columns of whole numbers and dates, if it is known of all row groups. The values of these are wanted only
 * where they ascend: each begins where the one before ended, or later.
 */
static enum err read_columns(struct planner *planner, const char *list, struct loader *l, struct error *e)
{
    struct buf sql = {0};
    buf_text(&sql, "WITH g AS (SELECT file_name, path_in_schema AS name, row_group_id AS id, ");
    write_number(&sql, "stats_min_value");
    buf_text(&sql, " AS a, ");
    write_number(&sql, "stats_max_value");
    buf_format(&sql,
               " AS b, coalesce(stats_null_count, 1) AS nulls FROM parquet_metadata(%s) "
               "WHERE type IN ('INT32', 'INT64')), "
               "o AS (SELECT *, lag(b) OVER (PARTITION BY file_name, name ORDER BY id) AS before FROM g), "
               "k AS (SELECT file_name, name, min(a) AS least, max(b) AS greatest, "
               "bool_and(nulls = 0 AND (before IS NULL OR a >= before)) AS ascends, "
               "bool_and(a IS NOT NULL AND b IS NOT NULL) AS has_all, "
               "string_agg(a || ',' || b, ',' ORDER BY id) AS groups FROM o GROUP BY file_name, name) "
               "SELECT file_name, name, least, greatest, CASE WHEN ascends THEN groups END FROM k "
               "WHERE has_all ORDER BY file_name, name",
               list);
    enum err err = planner_rows(planner, sql.data, add_column, l, e);
    buf_deinit(&sql);
    return err;
}

/* Asks DuckDB about the files in the list. */
static enum err read_metadata(struct planner *planner, const char *list, struct loader *l, struct error *e)
{
    struct buf sql = {0};
    buf_format(
        &sql,
        "SELECT file_name, num_rows, num_row_groups, CAST(file_size_bytes AS BIGINT) FROM parquet_file_metadata(%s)",
        list);
    enum err err = planner_rows(planner, sql.data, add_file, l, e);
    if (err == ERR_OK) {
        buf_reset(&sql);
        buf_format(
            &sql,
            "SELECT file_name, row_group_id, first(row_group_num_rows), CAST(sum(total_compressed_size) AS BIGINT), "
            "bit_or(CASE lower(split_part(path_in_schema, ', ', 1)) WHEN 'file_row_number' THEN 1 WHEN 'filename' THEN 2 "
            "WHEN 'file_index' THEN 2 WHEN '" SCAN_SHARE_FILE
            "' THEN 4 ELSE 0 END) FROM parquet_metadata(%s) GROUP BY ALL",
            list);
        err = planner_rows(planner, sql.data, add_group, l, e);
    }
    /*
     * Types as DuckDB has them: decimals of one width may differ in their scales. A column of bytes is a GEOMETRY if the file's
     * own metadata say so ("geo"), which are not looked at: DuckDB casts neither to the other, so who takes one for the other
     * has an error, and no rows.
     */
    if (err == ERR_OK) {
        buf_reset(&sql);
        buf_format(
            &sql,
            "SELECT file_name, CAST(bit_xor(hash(column_id, name, type, type_length, num_children, converted_type, "
            "scale, precision, CAST(logical_type AS VARCHAR), duckdb_type)) >> 1 AS BIGINT) "
            "FROM parquet_schema(%s) WHERE column_id > 0 GROUP BY ALL",
            list);
        err = planner_rows(planner, sql.data, add_shape, l, e);
    }
    buf_deinit(&sql);
    return err == ERR_OK ? read_columns(planner, list, l, e) : err;
}

/* Asks about the catalog's files that are not known, some at a time. */
static enum err read_unknown(struct planner *planner, const bool *is_known, struct loader *l, struct error *e)
{
    struct buf list = {0};
    uint32_t n = 0;
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < l->catalog->n_files && err == ERR_OK; i++) {
        const char *path = l->catalog->files[i].path;
        if (!is_known[i] && !sql_is_pattern(path)) {
            buf_text(&list, n++ == 0 ? "[" : ", ");
            sql_write_text(&list, path, strlen(path));
        }
        if (n == FILES_AT_ONCE || (n > 0 && i + 1 == l->catalog->n_files)) {
            buf_char(&list, ']');
            err = read_metadata(planner, list.data, l, e);
            buf_reset(&list);
            n = 0;
        }
    }
    buf_deinit(&list);
    return err;
}

enum err split_catalog_load(struct planner *planner, struct plan_node *root, struct arena *arena,
                            struct split_catalog **out_catalog, struct error *e)
{
    struct loader l = {
        .arena = arena, .cache = planner_cache(planner), .catalog = arena_zalloc(arena, sizeof *l.catalog)};
    plan_visit(root, collect_files, &l);
    settle_files(&l);
    bool *is_known = arena_zalloc(arena, l.catalog->n_files * sizeof *is_known);
    for (uint32_t i = 0; i < l.catalog->n_files; i++) {
        is_known[i] = cache_find(&l, &l.identities[i], &l.catalog->files[i]);
    }
    enum err err = read_unknown(planner, is_known, &l, e);
    for (uint32_t i = 0; i < l.catalog->n_files && err == ERR_OK; i++) {
        if (!is_known[i] && !l.catalog->files[i].is_unread) {
            cache_put(l.cache, &l.identities[i], &l.catalog->files[i]);
        }
    }
    if (err == ERR_OK) {
        split_others_load(planner, root, arena);
        err = split_types_load(planner, l.cache->types, root, l.catalog, arena, e);
    }
    if (err == ERR_OK) {
        *out_catalog = l.catalog;
    }
    mem_free(l.found);
    return err;
}

bool split_catalog_is_settled(const struct split_catalog *catalog, int64_t time_ms)
{
    for (uint32_t i = 0; i < catalog->n_files; i++) {
        int64_t settled_ns = time_ms * 1000000 - SETTLED_NS;
        if (catalog->files[i].changed_ns > settled_ns || catalog->files[i].placed_ns > settled_ns) {
            return false;
        }
    }
    return true;
}

bool split_catalog_was_there(const struct split_catalog *before, const struct split_catalog *catalog, int64_t time_ms)
{
    for (uint32_t i = 0; i < catalog->n_files; i++) {
        const struct split_file *file = &catalog->files[i];
        const struct split_file *old = split_find(before, file->path);
        bool is_same = old != NULL && old->has_identity == file->has_identity && old->inode == file->inode &&
                       old->bytes == file->bytes && old->mtime_ms == file->mtime_ms &&
                       old->changed_ns == file->changed_ns;
        /* One that has come since then, as they do in folders that are always written to, may have been there in time. */
        bool is_older = old == NULL && file->has_identity && file->changed_ns < time_ms * 1000000 - TICK_NS;
        if (!is_same && !is_older) {
            return false;
        }
    }
    return true;
}

struct split_total split_total_of(const struct split_catalog *catalog, const struct scan *scan)
{
    struct split_total total = {0};
    for (uint32_t i = 0; i < scan->n_files; i++) {
        const struct split_file *file = split_find(catalog, scan->files[i]);
        total.rows += file == NULL ? 0 : file->rows;
        total.bytes += file == NULL ? 0 : file->bytes;
    }
    return total;
}

/* The splits of one scan while they are made. */
struct splitter {
    struct arena *arena;
    struct physical_split *splits; /* on the heap */
    uint32_t n;
    uint32_t cap;
};

static void add_split(struct splitter *s, const struct split_file *file, uint32_t file_index,
                      struct physical_split range)
{
    s->splits = mem_grow(s->splits, &s->cap, s->n + 1, sizeof *s->splits);
    range.file = file->path;
    range.file_index = file_index;
    range.has_identity = file->has_identity;
    range.file_bytes = file->has_identity ? file->bytes : 0;
    range.file_mtime_ms = file->mtime_ms;
    s->splits[s->n++] = range;
}

/* Of a row group that is cut, DuckDB reads so many rows at a time. */
#define PIECE_ROWS UINT64_C(2048)
#define PIECES_MAX 8

/* A split as it is, or cut into pieces. */
static void add_pieces(struct splitter *s, const struct split_file *file, uint32_t file_index,
                       struct physical_split range, bool is_cut)
{
    uint64_t step = is_cut ? (range.rows / PIECES_MAX / PIECE_ROWS + 1) * PIECE_ROWS : range.rows;
    uint64_t end = range.first_row + range.rows;
    for (uint64_t first = range.first_row; first < end; first += step) {
        uint64_t rows = end - first < step ? end - first : step;
        bool is_whole = rows == file->rows;
        add_split(
            s, file, file_index,
            (struct physical_split){.has_rows = !is_whole,
                                    .first_row = is_whole ? 0 : first,
                                    .last_row = is_whole ? 0 : first + rows - 1,
                                    .rows = rows,
                                    .bytes = (uint64_t)((double)range.bytes * (double)rows / (double)range.rows)});
    }
}

/* Splits rows `range` of a file, which begin and end with row groups; a row group with which one has the target ends it. */
static void split_rows(struct splitter *s, const struct split_file *file, uint32_t file_index,
                       const struct physical_split *range, uint64_t bytes_target, bool is_cut)
{
    uint64_t next_row = 0;
    uint64_t first_row = range->first_row;
    uint64_t end_row = range->first_row + range->rows;
    uint64_t rows = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < file->n_groups; i++) {
        next_row += file->groups[i].rows;
        if (next_row <= range->first_row || next_row > end_row) {
            continue;
        }
        rows += file->groups[i].rows;
        bytes += file->groups[i].bytes;
        if (rows == 0 || (bytes < bytes_target && next_row < end_row)) {
            continue;
        }
        add_pieces(s, file, file_index, (struct physical_split){.first_row = first_row, .rows = rows, .bytes = bytes},
                   is_cut);
        first_row += rows;
        rows = 0;
        bytes = 0;
    }
}

/*
 * So many tasks that everybody has the same to do, and as few as that allows: each of them has to read again what is sent
 * to everybody.
 */
uint64_t split_tasks(uint64_t bytes, const struct split_sizes *sizes)
{
    uint64_t round =
        sizes->task_bytes_max < UINT64_MAX / sizes->slots ? sizes->slots * sizes->task_bytes_max : UINT64_MAX;
    uint64_t rounds = bytes / round + (bytes % round > 0 ? 1 : 0);
    uint64_t n = sizes->slots * (rounds > 0 ? rounds : 1);
    uint64_t n_max = bytes / (sizes->task_bytes_min > 0 ? sizes->task_bytes_min : 1) + 1;
    return n < n_max ? n : n_max;
}

bool split_are_alike(const struct split_catalog *catalog, const char *a, const char *b)
{
    const struct split_file *x = split_find(catalog, a);
    const struct split_file *y = split_find(catalog, b);
    return x == y || (x != NULL && y != NULL && x->shape == y->shape);
}

/* Puts splits that lie side by side together, as chains, one for each task. Those of one file become one. */
static void chain(struct splitter *s, const struct split_catalog *catalog, uint64_t n_tasks)
{
    double total = 0;
    double done = 0;
    double end = 0; /* of the shares of the tasks so far */
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        total += (double)s->splits[i].bytes;
    }
    double share = total / (double)n_tasks;
    for (uint32_t i = 0; i < s->n; i++) {
        struct physical_split split = s->splits[i];
        struct physical_split *last = kept > 0 ? &s->splits[kept - 1] : NULL;
        if (last != NULL && last->is_continued && last->file_index == split.file_index) {
            last->last_row = split.last_row; /* both are parts of the file */
            last->rows += split.rows;
            last->bytes += split.bytes;
        } else {
            s->splits[kept++] = split;
        }
        done += (double)split.bytes;
        /* A share ends where it is nearest to what it should be. */
        double missing = end + share - done;
        double next = i + 1 < s->n ? (double)s->splits[i + 1].bytes : 0;
        bool is_over = missing <= 0 || next - missing > missing || i + 1 == s->n;
        bool may_go_on = !is_over && split_are_alike(catalog, split.file, s->splits[i + 1].file);
        s->splits[kept - 1].is_continued = may_go_on;
        end += is_over ? share : 0;
        while (is_over && share > 0 && end + share <= done) {
            end += share;
        }
    }
    s->n = kept;
}

/* A part that has come to be all of its file is read as one: nobody need look at the number of a row then. */
static void make_whole(struct splitter *s, const struct split_catalog *catalog)
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct physical_split *split = &s->splits[i];
        const struct split_file *file = split_find(catalog, split->file);
        if (split->has_rows && file != NULL && split->first_row == 0 && split->last_row + 1 == file->rows) {
            split->has_rows = false;
            split->last_row = 0;
        }
    }
}

/* If tasks have fewer row groups than this, a few are too uneven: they are cut, and two tasks read the same one in part. */
#define GROUPS_PER_TASK_MIN 2
#define TASKS_PER_GROUP_MAX 2 /* what is in common would cost more than it brings */

static uint64_t count_groups(const struct split_catalog *catalog, const struct scan *scan)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < scan->n_files; i++) {
        const struct split_file *file = split_find(catalog, scan->files[i]);
        n += file != NULL ? file->n_groups : 0;
    }
    return n;
}

void split_scan(const struct split_catalog *catalog, const struct scan *scan, const struct split_sizes *sizes,
                struct arena *arena, struct physical_split **out_splits, uint32_t *out_n)
{
    struct splitter s = {.arena = arena};
    uint64_t n_tasks = sizes->slots > 0 ? split_tasks(split_total_of(catalog, scan).bytes, sizes) : 0;
    uint64_t n_groups = count_groups(catalog, scan);
    bool is_cut = n_groups < GROUPS_PER_TASK_MIN * n_tasks && n_tasks <= TASKS_PER_GROUP_MAX * n_groups;
    for (uint32_t i = 0; i < scan->n_files; i++) {
        const struct split_file *file = split_find(catalog, scan->files[i]);
        if (file == NULL || file->is_unread) { /* nothing is known about it, so it is read as a whole */
            struct split_file unknown = {.path = scan->files[i]};
            add_split(&s, &unknown, i, (struct physical_split){0});
        } else if (file->n_groups > 0) {
            struct physical_split whole = {.rows = file->rows};
            split_rows(&s, file, i, &whole, sizes->bytes_target, is_cut);
        }
    }
    if (sizes->slots > 0) {
        chain(&s, catalog, n_tasks);
        make_whole(&s, catalog);
    }
    if (s.n == 0) { /* all are empty; somebody has to say what the columns are */
        struct split_file first = {.path = scan->files[0]};
        const struct split_file *known = split_find(catalog, scan->files[0]);
        add_split(&s, known == NULL ? &first : known, 0, (struct physical_split){0});
    }
    *out_splits = arena_copy(arena, s.splits, s.n * sizeof *s.splits);
    *out_n = s.n;
    mem_free(s.splits);
}
