/*
 * Who leads. The election is a lock on the file PATH.lock, which its holder keeps until it resigns or its process ends,
 * however it ends: the kernel lets go of it. So nothing here depends on a clock, and a leader that is stopped for a day
 * is still the leader. The row in `cluster_leader` carries the epoch from leader to leader, and every write transaction
 * checks it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "store/sqlite_internal.h"

/* ---- the lock file ---- */

/* Beside the database itself, whatever symbolic link led there. It is never removed: that would let two in. */
static void lock_path(struct sqlite *s, char *out, size_t size)
{
    snprintf(out, size, "%s.lock", sqlite3_db_filename(s->db, "main"));
}

static enum err lock_refused(struct sqlite *s, const char *path, int fd, struct error *e)
{
    char holder[24] = "";
    ssize_t n = read(fd, holder, sizeof holder - 1);
    size_t digits = n > 0 ? strspn(holder, "0123456789") : 0;
    holder[digits] = '\0';
    enum err err = error_set(e, ERR_BUSY, "another coordinator uses this store: %s%s holds the lock on %s",
                             digits > 0 ? "process " : "it", holder, path);
    error_hint(e, "stop it, or give this coordinator a file of its own in place of %s; a cluster needs postgres://",
               sqlite3_db_filename(s->db, "main"));
    return err;
}

enum err sqlite__lock(struct sqlite *s, bool *out_taken, struct error *e)
{
    char path[4096];
    char holder[24];
    *out_taken = false;
    if (s->lock_fd >= 0) {
        return ERR_OK;
    }
    lock_path(s, path, sizeof path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
        return error_set(e, ERR_UNAVAILABLE, "cannot open the lock file %s: %s", path, strerror(errno));
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        enum err err = errno == EWOULDBLOCK
                           ? lock_refused(s, path, fd, e)
                           : error_set(e, ERR_UNAVAILABLE, "cannot lock %s: %s", path, strerror(errno));
        close(fd);
        return err;
    }
    /* For people and for the message above; the lock alone counts, so a full disk does no harm. */
    int n = snprintf(holder, sizeof holder, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) == 0) {
        ssize_t ignored = write(fd, holder, (size_t)n);
        UNUSED(ignored);
    }
    s->lock_fd = fd;
    *out_taken = true;
    return ERR_OK;
}

void sqlite__unlock(struct sqlite *s)
{
    if (s->lock_fd >= 0) {
        close(s->lock_fd);
        s->lock_fd = -1;
    }
}

/* ---- the row ---- */

static enum err read_leader(struct sqlite *s, struct arena *arena, struct leader *out, struct error *e)
{
    sqlite3_stmt *stmt;
    bool is_row;
    size_t n;
    enum err err = sqlite__statement(s, SQL_LEADER, &stmt, e);
    if (err == ERR_OK) {
        err = sqlite__next(s, stmt, &is_row, e);
    }
    if (err != ERR_OK) {
        return err;
    }
    if (!is_row) {
        return error_set(e, ERR_NOT_FOUND, "nobody leads");
    }
    struct leader leader = {.now_ms = sqlite__now_ms()};
    leader.fence.epoch = (uint64_t)sqlite3_column_int64(stmt, 0);
    const void *token = sqlite__bytes(stmt, 1, arena, &n);
    leader.node_id = sqlite__text(stmt, 2, arena);
    leader.address = sqlite__text(stmt, 3, arena);
    leader.expires_in_ms = sqlite3_column_int64(stmt, 4) - leader.now_ms;
    sqlite3_reset(stmt);
    if (n != sizeof leader.fence.token) {
        return error_set(e, ERR_DATA_LOSS, "the leader's token is damaged");
    }
    memcpy(&leader.fence.token, token, n);
    *out = leader;
    return ERR_OK;
}

enum err sqlite__leader(struct store *store, struct arena *arena, struct leader *out, struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    enum err err = sqlite__need_schema(s, e);
    return err != ERR_OK ? err : read_leader(s, arena, out, e);
}

/* Writes the claim, in a transaction of its own. */
static enum err write_claim(struct sqlite *s, const struct leader_claim *claim, uint64_t *out_epoch, struct error *e)
{
    sqlite3_stmt *stmt;
    bool is_row = true;
    enum err err = sqlite__begin_write(s, e);
    if (err != ERR_OK) {
        return err;
    }
    err = sqlite__statement(s, SQL_LEADER_TAKE, &stmt, e);
    if (err == ERR_OK) {
        sqlite__bind_token(stmt, 1, &claim->token);
        sqlite__bind_text(stmt, 2, claim->node_id);
        sqlite__bind_text(stmt, 3, claim->address);
        sqlite3_bind_int64(stmt, 4, sqlite__now_ms() + claim->ttl_ms);
        err = sqlite__next(s, stmt, &is_row, e);
    }
    if (err == ERR_OK) {
        *out_epoch = (uint64_t)sqlite3_column_int64(stmt, 0);
        err = sqlite__next(s, stmt, &is_row, e); /* the end */
    }
    return sqlite__finish(s, err, e);
}

/*
 * A store that has the lock leads already, as long as the row is its own and its time has not run out: with every engine
 * such a leader is told that somebody leads, even if that is itself.
 */
static enum err refuse_itself(struct sqlite *s, struct arena *arena, struct leader *out, struct error *e)
{
    struct leader present = {0};
    enum err err = read_leader(s, arena, &present, NULL);
    if (err == ERR_OK && present.fence.epoch == s->epoch && present.expires_in_ms > 0) {
        *out = present;
        return error_set(e, ERR_BUSY, "%s leads", present.node_id);
    }
    return ERR_OK;
}

enum err sqlite__lead(struct store *store, const struct leader_claim *claim, struct arena *arena, struct leader *out,
                      struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    bool taken = false;
    uint64_t epoch = 0;
    enum err err = sqlite__need_schema(s, e);
    if (err == ERR_OK) {
        err = sqlite__lock(s, &taken, e);
    }
    if (err == ERR_BUSY) {
        struct leader present = {.node_id = "", .address = ""};
        enum err ignored = read_leader(s, arena, &present, NULL); /* it may not have got that far yet */
        UNUSED(ignored);
        *out = present;
    }
    if (err == ERR_OK && !taken) {
        err = refuse_itself(s, arena, out, e);
    }
    if (err != ERR_OK) {
        return err;
    }
    err = write_claim(s, claim, &epoch, e);
    if (err != ERR_OK) {
        if (taken) {
            sqlite__unlock(s);
        }
        return err;
    }
    s->epoch = epoch;
    *out = (struct leader){.fence = {.epoch = epoch, .token = claim->token},
                           .node_id = arena_strdup(arena, claim->node_id),
                           .address = arena_strdup(arena, claim->address),
                           .expires_in_ms = claim->ttl_ms,
                           .now_ms = sqlite__now_ms()};
    return ERR_OK;
}

enum err sqlite__begin_fenced(struct sqlite *s, const struct fence *fence, struct error *e)
{
    sqlite3_stmt *stmt;
    bool is_row = false;
    enum err err = sqlite__begin_write(s, e);
    if (err != ERR_OK) {
        return err;
    }
    err = sqlite__statement(s, SQL_LEADER_FENCE, &stmt, e);
    if (err == ERR_OK) {
        sqlite3_bind_int64(stmt, 1, (int64_t)fence->epoch);
        sqlite__bind_token(stmt, 2, &fence->token);
        err = sqlite__next(s, stmt, &is_row, e);
        sqlite3_reset(stmt);
    }
    if (err == ERR_OK && !is_row) {
        err = error_set(e, ERR_FENCED, "this coordinator does not lead any more: epoch %llu is over",
                        (unsigned long long)fence->epoch);
    }
    if (err != ERR_OK) {
        sqlite__rollback(s);
    }
    return err;
}

enum err sqlite__renew(struct store *store, const struct fence *fence, int64_t ttl_ms, int64_t *out_now_ms,
                       struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    sqlite3_stmt *stmt;
    int64_t now_ms = sqlite__now_ms();
    enum err err = sqlite__begin_fenced(s, fence, e);
    if (err != ERR_OK) {
        return err;
    }
    err = sqlite__statement(s, SQL_LEADER_RENEW, &stmt, e);
    if (err == ERR_OK) {
        sqlite3_bind_int64(stmt, 1, now_ms + ttl_ms);
        err = sqlite__run(s, stmt, e);
    }
    err = sqlite__finish(s, err, e);
    if (err == ERR_OK) {
        *out_now_ms = now_ms;
    }
    return err;
}

/*
 * The lock goes even if the row cannot be written: whoever resigns does not write any more, and a row that stays stops
 * nobody. A late call for an epoch before the present one leaves it alone.
 */
enum err sqlite__resign(struct store *store, const struct fence *fence, struct error *e)
{
    struct sqlite *s = sqlite__of(store);
    sqlite3_stmt *stmt;
    enum err err = sqlite__statement(s, SQL_LEADER_RESIGN, &stmt, e);
    if (err == ERR_OK) {
        sqlite3_bind_int64(stmt, 1, (int64_t)fence->epoch);
        sqlite__bind_token(stmt, 2, &fence->token);
        err = sqlite__run(s, stmt, e);
    }
    if (fence->epoch == s->epoch) {
        sqlite__unlock(s);
    }
    return err;
}
