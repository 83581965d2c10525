/* Parquet metadata, and scans cut along row groups. */
#include "query/split.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/num.h"

/* What collects the files of a plan, and then what the metadata says about them. */
struct loader {
    struct arena *arena;
    struct split_catalog *catalog;
    uint32_t cap;
    struct split_file *found; /* on the heap until all are there */
};

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
    for (uint32_t i = 0; i < n; i++) {
        struct stat st;
        struct split_file *file = &catalog->files[i];
        file->has_identity = stat(file->path, &st) == 0;
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
    file->rows = numbers[0];
    file->n_groups = (uint32_t)numbers[1];
    file->bytes = numbers[2];
    file->groups = arena_zalloc(l->arena, file->n_groups * sizeof *file->groups);
    return ERR_OK;
}

/* path, number of the row group, rows, bytes */
static enum err add_group(void *context, const char *const *values, uint32_t n, struct error *e)
{
    struct loader *l = context;
    uint64_t numbers[3] = {0};
    UNUSED(n);
    const struct split_file *file = split_find(l->catalog, values[0]);
    enum err err = read_numbers(values + 1, 3, numbers, e);
    if (err == ERR_OK && file != NULL && numbers[0] < file->n_groups) {
        file->groups[numbers[0]] = (struct split_group){.rows = numbers[1], .bytes = numbers[2]};
    }
    return err;
}

enum err split_catalog_load(struct planner *planner, struct plan_node *root, struct arena *arena,
                            struct split_catalog **out_catalog, struct error *e)
{
    struct loader l = {.arena = arena, .catalog = arena_zalloc(arena, sizeof *l.catalog)};
    struct buf list = {0};
    struct buf sql = {0};
    enum err err = ERR_OK;
    plan_visit(root, collect_files, &l);
    settle_files(&l);
    if (l.catalog->n_files == 0) {
        goto out;
    }
    for (uint32_t i = 0; i < l.catalog->n_files; i++) {
        buf_text(&list, i == 0 ? "[" : ", ");
        sql_write_text(&list, l.catalog->files[i].path, strlen(l.catalog->files[i].path));
    }
    buf_char(&list, ']');
    buf_format(
        &sql,
        "SELECT file_name, num_rows, num_row_groups, CAST(file_size_bytes AS BIGINT) FROM parquet_file_metadata(%s)",
        list.data);
    err = planner_rows(planner, sql.data, add_file, &l, e);
    if (err != ERR_OK) {
        goto out;
    }
    buf_reset(&sql);
    buf_format(&sql,
               "SELECT file_name, row_group_id, first(row_group_num_rows), CAST(sum(total_compressed_size) AS BIGINT) "
               "FROM parquet_metadata(%s) GROUP BY ALL",
               list.data);
    err = planner_rows(planner, sql.data, add_group, &l, e);
out:
    if (err == ERR_OK) {
        *out_catalog = l.catalog;
    }
    mem_free(l.found);
    buf_deinit(&list);
    buf_deinit(&sql);
    return err;
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

static void split_one_file(struct splitter *s, const struct split_file *file, uint32_t file_index,
                           uint64_t bytes_target)
{
    uint64_t first_row = 0;
    uint64_t rows = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < file->n_groups; i++) {
        rows += file->groups[i].rows;
        bytes += file->groups[i].bytes;
        bool is_last = i + 1 == file->n_groups;
        if (rows == 0 || (bytes < bytes_target && !is_last)) {
            continue;
        }
        bool is_whole = first_row == 0 && is_last;
        add_split(s, file, file_index,
                  (struct physical_split){.has_rows = !is_whole,
                                          .first_row = is_whole ? 0 : first_row,
                                          .last_row = is_whole ? 0 : first_row + rows - 1,
                                          .rows = rows,
                                          .bytes = bytes});
        first_row += rows;
        rows = 0;
        bytes = 0;
    }
}

void split_scan(const struct split_catalog *catalog, const struct scan *scan, uint64_t bytes_target,
                struct arena *arena, struct physical_split **out_splits, uint32_t *out_n)
{
    struct splitter s = {.arena = arena};
    for (uint32_t i = 0; i < scan->n_files; i++) {
        const struct split_file *file = split_find(catalog, scan->files[i]);
        if (file == NULL) { /* nothing is known about it, so it is read as a whole */
            struct split_file unknown = {.path = scan->files[i]};
            add_split(&s, &unknown, i, (struct physical_split){0});
        } else if (file->n_groups > 0) {
            split_one_file(&s, file, i, bytes_target);
        }
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
