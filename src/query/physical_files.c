/*
 * physical_files.c - files that the SQL of a stage names itself, and what they were like when the query was planned.
 *
 * In the text of a plan they are a comment at the end of the SQL, of names, bytes and times of change in milliseconds:
 *
 *   files: [["/data/names.parquet",4711,1700000000000]]
 *
 * Another one before it, "all files", says that the SQL reads no others, but for those of splits.
 *
 * Not a member of their own: coordinators and workers of earlier releases refuse a plan with members that they do not know,
 * and take one with a comment. An asterisk in a name is escaped, so that nothing in there begins or ends a comment.
 */
#include <inttypes.h>
#include <string.h>

#include "base/limits.h"
#include "query/physical_internal.h"

static const char comment_start[] = " /* files: ";
static const char comment_end[] = " */";
static const char all_files[] = " /* all files */";

static void write_comment(struct buf *out, const struct physical_stage *stage)
{
    struct buf list = {0};
    for (uint32_t i = 0; i < stage->n_files; i++) {
        const struct physical_file *file = &stage->files[i];
        buf_text(&list, i == 0 ? "[" : ",[");
        json_write_text(&list, file->path);
        buf_format(&list, ",%" PRIu64 ",%" PRId64 "]", file->bytes, file->mtime_ms);
    }
    buf_format(out, "%s[", comment_start);
    for (size_t i = 0; i < list.n; i++) {
        if (list.data[i] == '*') {
            buf_text(out, "\\u002a");
        } else {
            buf_char(out, list.data[i]);
        }
    }
    buf_format(out, "]%s", comment_end);
    buf_deinit(&list);
}

void physical__write_sql(struct buf *out, const struct physical_stage *stage)
{
    struct buf sql = {0};
    buf_text(&sql, stage->sql);
    if (stage->n_files > 0 || stage->knows_files) {
        buf_text(&sql, stage->knows_files ? all_files : "");
        write_comment(&sql, stage);
    }
    /* SQL that would be too long with them does without. */
    json_write_text(out, sql.n <= LIMIT_SQL_BYTES ? sql.data : stage->sql);
    buf_deinit(&sql);
}

static bool read_file(struct plan_reader *r, const struct json *item, struct physical_file *out)
{
    size_t n = 0;
    const char *path = json_text(json_at(item, 0), &n);
    if (json_count(item) != 3 || path == NULL || n == 0 || n > LIMIT_SOURCE_BYTES || strlen(path) != n ||
        !json_uint(json_at(item, 1), &out->bytes) || !json_int(json_at(item, 2), &out->mtime_ms)) {
        return false;
    }
    out->path = arena_strdup(r->arena, path);
    return true;
}

static bool read_files(struct plan_reader *r, struct physical_stage *stage, const char *text, size_t n)
{
    struct json *list = NULL;
    struct error e = {0};
    bool is_good = json_parse(text, n, &list, &e) == ERR_OK && json_kind_of(list) == JSON_ARRAY;
    stage->n_files = is_good ? (uint32_t)json_count(list) : 0;
    stage->files = arena_zalloc(r->arena, stage->n_files * sizeof *stage->files);
    for (uint32_t i = 0; i < stage->n_files && is_good; i++) {
        is_good = read_file(r, json_at(list, i), &stage->files[i]);
    }
    json_free(list);
    return is_good;
}

void physical__take_files(struct plan_reader *r, struct physical_stage *stage)
{
    if (stage->sql == NULL) {
        return;
    }
    size_t n = strlen(stage->sql);
    size_t n_end = strlen(comment_end);
    const char *start = NULL;
    if (n < n_end || strcmp(stage->sql + n - n_end, comment_end) != 0) {
        return;
    }
    for (const char *p = stage->sql; (p = strstr(p, comment_start)) != NULL; p += strlen(comment_start)) {
        start = p;
    }
    const char *list = start == NULL ? NULL : start + strlen(comment_start);
    if (list == NULL || list > stage->sql + n - n_end || strstr(list, "*/") != stage->sql + n - strlen("*/")) {
        return; /* a comment of somebody else */
    }
    if (start == stage->sql || !read_files(r, stage, list, (size_t)(stage->sql + n - n_end - list))) {
        stage->n_files = 0; /* the same: what looks like ours is a comment, or a part of a text, of the user's */
        return;
    }
    size_t n_sql = (size_t)(start - stage->sql);
    size_t n_all = strlen(all_files);
    stage->knows_files = n_sql > n_all && strncmp(start - n_all, all_files, n_all) == 0;
    n_sql -= stage->knows_files ? n_all : 0;
    stage->sql = arena_format(r->arena, "%.*s", (int)n_sql, stage->sql);
}

void physical__add_files(struct physical_stage *stage, const struct physical_stage *from, struct arena *arena)
{
    uint32_t n = stage->n_files;
    stage->knows_files = stage->knows_files && from->knows_files;
    struct physical_file *files = arena_alloc(arena, ((size_t)n + from->n_files) * sizeof *files);
    for (uint32_t i = 0; i < n; i++) {
        files[i] = stage->files[i];
    }
    for (uint32_t i = 0; i < from->n_files; i++) {
        uint32_t at = 0;
        while (at < stage->n_files && strcmp(stage->files[at].path, from->files[i].path) != 0) {
            at++;
        }
        if (at == stage->n_files) {
            files[n++] = from->files[i];
        }
    }
    stage->files = files;
    stage->n_files = n;
}
