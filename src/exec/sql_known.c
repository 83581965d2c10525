/*
 * sql_known.c - plans of queries that were planned before.
 *
 * A query that comes again with the same text, data sets and options gets the same plan, as long as the files that the
 * plan depends on, and the folders that they are in, are what they were: their sizes, times and inodes are looked at each
 * time. A file that was written shortly before the plan was made may change once more without its time showing it, and one
 * that was written since is not what the plan was made for; so such a plan is not kept. Which plans may be kept at all is
 * for plan_repeat.h to say.
 */
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "exec/sql_internal.h"

#define KNOWN_MAX 64
#define KNOWN_PLAN_BYTES_MAX (256 * 1024)
#define KNOWN_FILES_MAX 4096
#define SETTLED_NS (INT64_C(2) * 1000000000)

/* What a file or a folder was like. */
struct identity {
    uint64_t device;
    uint64_t inode;
    uint64_t bytes;
    int64_t modified_ns;
    int64_t changed_ns;
};

struct known_file {
    char *path;
    struct identity identity;
};

struct sql_known {
    struct list link; /* in the executor's list, the last used in front */
    uint8_t key[SHA256_BYTES];
    uint32_t n_files;
    struct known_file *files;
    char *plan;
    size_t n_plan;
};

static bool identify(const char *path, struct identity *out)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        return false;
    }
    *out = (struct identity){
        .device = (uint64_t)st.st_dev,
        .inode = (uint64_t)st.st_ino,
        .bytes = (uint64_t)st.st_size,
        .modified_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
        .changed_ns = (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec,
    };
    return true;
}

static bool is_same(const struct identity *a, const struct identity *b)
{
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes && a->modified_ns == b->modified_ns &&
           a->changed_ns == b->changed_ns;
}

static bool is_current(const struct sql_known *known)
{
    for (uint32_t i = 0; i < known->n_files; i++) {
        struct identity now;
        if (!identify(known->files[i].path, &now) || !is_same(&now, &known->files[i].identity)) {
            return false;
        }
    }
    return true;
}

static void free_known(struct sql_known *known)
{
    for (uint32_t i = 0; i < known->n_files; i++) {
        mem_free(known->files[i].path);
    }
    mem_free(known->files);
    mem_free(known->plan);
    mem_free(known);
}

/* With the mutex held. */
static void forget(struct sql_executor *sql, struct sql_known *known)
{
    list_remove(&known->link);
    sql->n_known--;
    free_known(known);
}

static struct sql_known *find(struct sql_executor *sql, const uint8_t key[SHA256_BYTES])
{
    LIST_EACH(node, &sql->known) {
        struct sql_known *known = CONTAINER_OF(node, struct sql_known, link);
        if (memcmp(known->key, key, SHA256_BYTES) == 0) {
            return known;
        }
    }
    return NULL;
}

bool sql__known_find(struct sql_executor *sql, const uint8_t key[SHA256_BYTES], struct buf *out)
{
    bool is_found = false;
    pthread_mutex_lock(&sql->plans_mutex);
    struct sql_known *known = find(sql, key);
    if (known != NULL && !is_current(known)) {
        forget(sql, known);
    } else if (known != NULL) {
        list_remove(&known->link);
        list_insert_before(sql->known.next, &known->link);
        buf_append(out, known->plan, known->n_plan);
        is_found = true;
    }
    pthread_mutex_unlock(&sql->plans_mutex);
    return is_found;
}

void sql__known_add(struct sql_executor *sql, const uint8_t key[SHA256_BYTES], const struct buf *plan,
                    const struct sql_known_files *files)
{
    int64_t settled_ns = files->planned_ms * 1000000 - SETTLED_NS;
    if (plan->n > KNOWN_PLAN_BYTES_MAX || files->n > KNOWN_FILES_MAX) {
        return;
    }
    struct sql_known *known = mem_calloc(1, sizeof(*known));
    bool is_settled = true;
    memcpy(known->key, key, SHA256_BYTES);
    known->files = mem_calloc((size_t)files->n + 1, sizeof(*known->files));
    for (uint32_t i = 0; i < files->n && is_settled; i++) {
        struct known_file *file = &known->files[known->n_files++];
        file->path = mem_strdup(files->paths[i]);
        is_settled = identify(files->paths[i], &file->identity) && file->identity.modified_ns < settled_ns &&
                     file->identity.changed_ns < settled_ns;
    }
    if (!is_settled) {
        free_known(known);
        return;
    }
    known->plan = mem_copy(plan->data, plan->n);
    known->n_plan = plan->n;
    pthread_mutex_lock(&sql->plans_mutex);
    struct sql_known *old = find(sql, key);
    if (old != NULL) {
        forget(sql, old);
    }
    if (sql->n_known == KNOWN_MAX) {
        forget(sql, CONTAINER_OF(sql->known.prev, struct sql_known, link));
    }
    list_insert_before(sql->known.next, &known->link);
    sql->n_known++;
    pthread_mutex_unlock(&sql->plans_mutex);
}

void sql__known_deinit(struct sql_executor *sql)
{
    LIST_EACH_SAFE(node, next, &sql->known) {
        forget(sql, CONTAINER_OF(node, struct sql_known, link));
    }
}
