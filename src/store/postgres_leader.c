/*
 * Leadership: one row, by the database's clock.
 *
 * Locks on the row decide who may write. A commit holds FOR KEY SHARE on it (capstan.fence) until it ends. Taking over
 * locks the row FOR UPDATE, because the statement sets the key too (to what it was): it waits for every commit of the old
 * leader, and later ones see the new epoch. Renewing locks it FOR NO KEY UPDATE, which conflicts with neither, so that a
 * renewal waits for no commit and no commit for a renewal.
 *
 * A leader that is stopped inside a transaction would keep that lock for ever. Who challenges an expired row and finds it
 * locked ends the backends that hold it. They show in pg_locks: all that a fence leaves behind there is a lock on the
 * table that nothing else takes.
 *
 * A leader that resigns leaves its row, with the epoch but without a token, so that the epoch only grows.
 */
#include <string.h>

#include "store/migration.h"
#include "store/postgres_internal.h"

#define TRIES 4
#define LOCKED_MS "250" /* how long whoever holds an expired row may take to let go of it */

#define NOW_MS "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
#define EXPIRY(ttl) "clock_timestamp() + " ttl " * interval '1 millisecond'"

/* Rounded up: for a part of a millisecond it is a leadership, too, which nobody else can claim. */
static const char leader_sql[] = "SELECT epoch, token, node_id, address, "
                                 "ceil(extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint, " NOW_MS
                                 " FROM capstan.cluster_leader WHERE id = 1 AND token <> ''::bytea";

static const char claim_sql[] =
    "INSERT INTO capstan.cluster_leader AS c (id, node_id, address, token, epoch, backend_pid, expires_at) "
    "VALUES (1, $1, $2, $3, 1, pg_backend_pid(), " EXPIRY(
        "$4") ") "
              "ON CONFLICT (id) DO UPDATE SET id = excluded.id, node_id = excluded.node_id, address = excluded.address, "
              "token = excluded.token, epoch = c.epoch + 1, backend_pid = excluded.backend_pid, expires_at = " EXPIRY(
                  "$4") " WHERE c.expires_at <= clock_timestamp() OR c.token = ''::bytea RETURNING c.epoch, " NOW_MS;

/* Only while the row is still expired: whoever holds it then is no leader any more. */
static const char terminate_sql[] =
    "SELECT pg_terminate_backend(l.pid) FROM pg_locks l, capstan.cluster_leader c "
    "WHERE l.relation = 'capstan.cluster_leader'::regclass AND l.granted AND l.pid <> pg_backend_pid() "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND (l.mode = 'RowShareLock' OR l.pid = c.backend_pid) "
    "AND c.id = 1 AND c.expires_at <= clock_timestamp()";

static const char renew_sql[] = "UPDATE capstan.cluster_leader SET expires_at = " EXPIRY(
    "$3") ", backend_pid = CASE WHEN $4 = 1 THEN pg_backend_pid() ELSE backend_pid END WHERE id = 1 AND epoch = $1 AND token = $2 RETURNING " NOW_MS;

static const char resign_sql[] = "UPDATE capstan.cluster_leader SET expires_at = to_timestamp(0), token = ''::bytea "
                                 "WHERE id = 1 AND epoch = $1 AND token = $2";

void postgres__param_fence(struct postgres_params *params, const struct fence *fence)
{
    postgres__param_int(params, (int64_t)fence->epoch);
    postgres__param_bytes(params, &fence->token, sizeof fence->token);
}

/* What leads to nothing for reasons of the database's own is all the same to who asks for leadership. */
static enum err plain(enum err err, struct error *e)
{
    if (err == ERR_OK || err == ERR_UNAVAILABLE || err == ERR_FENCED || err == ERR_PRECONDITION) {
        return err;
    }
    return error_set(e, ERR_UNAVAILABLE, "%s", e == NULL ? "" : e->message);
}

static enum err read_leader(struct postgres *pg, struct arena *arena, struct leader *out, struct error *e)
{
    PGresult *result = NULL;
    enum err err = postgres__query(pg, leader_sql, NULL, &result, e);
    if (err != ERR_OK) {
        return plain(err, e);
    }
    if (PQntuples(result) == 0) {
        err = error_set(e, ERR_NOT_FOUND, "nobody leads");
    } else if (PQgetlength(result, 0, 1) != sizeof out->fence.token) {
        err = error_set(e, ERR_DATA_LOSS, "the leader's token is damaged");
    } else {
        *out = (struct leader){
            .fence = {.epoch = (uint64_t)postgres__int_at(result, 0, 0)},
            .node_id = postgres__text_at(result, 0, 2, arena),
            .address = postgres__text_at(result, 0, 3, arena),
            .expires_in_ms = postgres__int_at(result, 0, 4),
            .now_ms = postgres__int_at(result, 0, 5),
        };
        memcpy(&out->fence.token, PQgetvalue(result, 0, 1), sizeof out->fence.token);
    }
    PQclear(result);
    return err;
}

/*
 * Ready for a look at the leader's row, which is the same in all versions of the schema: during an upgrade coordinators of
 * two releases share it.
 */
static enum err begin_look(struct postgres *pg, struct error *e)
{
    uint32_t version = 0;
    enum err err = postgres__begin(pg, POSTGRES_LEADER_SILENCE_MS, false, e);
    if (err != ERR_OK || pg->is_leader_known) {
        return err;
    }
    err = postgres__schema_version(pg, &version, e);
    if (err == ERR_OK && version == 0) {
        return postgres__no_schema(e);
    }
    pg->is_leader_known = err == ERR_OK;
    return plain(err, e);
}

/*
 * Whether this program may lead. Who leads brings an older schema up to date; a newer one belongs to newer programs. It may
 * have changed under a connection that stands, so it is looked at before every claim.
 */
static enum err check_claim(struct postgres *pg, struct error *e)
{
    uint32_t version = 0;
    uint32_t newest = migration_newest("postgres");
    enum err err = plain(postgres__schema_version(pg, &version, e), e);
    if (err == ERR_OK && version > newest) {
        error_set(e, ERR_PRECONDITION, "the database's schema is version %u, newer than this program's %u", version,
                  newest);
        error_hint(e, "use a newer capstan");
        err = ERR_PRECONDITION;
    }
    pg->is_schema_checked = pg->is_schema_checked && version == newest;
    return err;
}

/* ERR_NOT_FOUND: somebody else was faster. ERR_BUSY: the row is locked. */
static enum err claim_row(struct postgres *pg, const struct leader_claim *claim, struct leader *out, struct error *e)
{
    PGresult *result = NULL;
    struct postgres_params params = {0};
    postgres__param_text(&params, claim->node_id);
    postgres__param_text(&params, claim->address);
    postgres__param_bytes(&params, &claim->token, sizeof claim->token);
    postgres__param_int(&params, claim->ttl_ms);
    enum err err = postgres__script(pg, "BEGIN; SET LOCAL lock_timeout = " LOCKED_MS, e);
    if (err == ERR_OK) {
        err = postgres__query(pg, claim_sql, &params, &result, e);
    }
    bool is_taken = err == ERR_OK && PQntuples(result) == 1;
    if (is_taken) {
        *out = (struct leader){
            .fence = {.epoch = (uint64_t)postgres__int_at(result, 0, 0), .token = claim->token},
            .expires_in_ms = claim->ttl_ms,
            .now_ms = postgres__int_at(result, 0, 1),
        };
    }
    PQclear(result);
    err = postgres__end(pg, err, e);
    return err == ERR_OK && !is_taken ? ERR_NOT_FOUND : err;
}

enum err postgres__lead(struct store *store, const struct leader_claim *claim, struct arena *arena, struct leader *out,
                        struct error *e)
{
    struct postgres *pg = postgres__of(store);
    struct leader found = {0};
    enum err err = begin_look(pg, e);
    for (int i = 0; i < TRIES && err == ERR_OK; i++) {
        /* Looked at first, so that who only stands by locks nothing. */
        err = read_leader(pg, arena, &found, e);
        if (err == ERR_OK && found.expires_in_ms > 0) {
            *out = found;
            return error_set(e, ERR_BUSY, "%s leads", found.node_id);
        }
        if (err != ERR_OK && err != ERR_NOT_FOUND) {
            return err;
        }
        err = check_claim(pg, e);
        if (err != ERR_OK) {
            return err;
        }
        err = claim_row(pg, claim, &found, e);
        if (err == ERR_OK) {
            found.node_id = arena_strdup(arena, claim->node_id);
            found.address = arena_strdup(arena, claim->address);
            *out = found;
            pg->has_led = true;
            return ERR_OK;
        }
        if (err == ERR_BUSY) {
            err = postgres__run(pg, terminate_sql, NULL, e);
        } else if (err == ERR_NOT_FOUND) {
            err = ERR_OK;
        }
    }
    return err != ERR_OK ? plain(err, e)
                         : error_set(e, ERR_UNAVAILABLE, "the leader's row stays locked by a leader that is gone");
}

enum err postgres__renew(struct store *store, const struct fence *fence, int64_t ttl_ms, int64_t *out_now_ms,
                         struct error *e)
{
    struct postgres *pg = postgres__of(store);
    PGresult *result = NULL;
    struct postgres_params params = {0};
    postgres__param_fence(&params, fence);
    postgres__param_int(&params, ttl_ms);
    postgres__param_int(&params, pg->has_led ? 1 : 0); /* another connection may renew, but it is not the leader's */
    enum err err = postgres__begin(pg, POSTGRES_LEADER_SILENCE_MS, true, e);
    if (err == ERR_OK) {
        err = postgres__query(pg, renew_sql, &params, &result, e);
    }
    if (err != ERR_OK) {
        return plain(err, e);
    }
    if (PQntuples(result) == 0) {
        err = error_set(e, ERR_FENCED, "another leader has taken over");
    } else {
        *out_now_ms = postgres__int_at(result, 0, 0);
    }
    PQclear(result);
    return err;
}

enum err postgres__resign(struct store *store, const struct fence *fence, struct error *e)
{
    struct postgres *pg = postgres__of(store);
    struct postgres_params params = {0};
    postgres__param_fence(&params, fence);
    enum err err = begin_look(pg, e); /* whoever has just rolled the schema back resigns, too */
    return err != ERR_OK ? err : plain(postgres__run(pg, resign_sql, &params, e), e);
}

enum err postgres__leader(struct store *store, struct arena *arena, struct leader *out, struct error *e)
{
    struct postgres *pg = postgres__of(store);
    enum err err = begin_look(pg, e);
    return err != ERR_OK ? err : read_leader(pg, arena, out, e);
}
