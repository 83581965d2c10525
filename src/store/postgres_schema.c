/*
 * The schema's version and the steps between versions. Each step is one transaction under an advisory lock, which looks at
 * the version first: two that start at once take turns, and one that is killed leaves nothing half done.
 */
#include "store/migration.h"
#include "store/postgres_internal.h"

/* The lock's number is arbitrary but fixed for all versions. */
#define MIGRATION_LOCK "SELECT pg_advisory_xact_lock(7234982734)"

enum err postgres__schema_version(struct postgres *pg, uint32_t *out, struct error *e)
{
    PGresult *result = NULL;
    enum err err = postgres__query(pg, "SELECT to_regclass('capstan.schema_migrations')::text", NULL, &result, e);
    if (err != ERR_OK) {
        return err;
    }
    bool is_empty = PQgetisnull(result, 0, 0);
    PQclear(result);
    if (is_empty) {
        *out = 0;
        return ERR_OK;
    }
    err = postgres__query(pg, "SELECT max(version) FROM capstan.schema_migrations", NULL, &result, e);
    if (err == ERR_OK) {
        *out = (uint32_t)postgres__int_at(result, 0, 0);
        PQclear(result);
    }
    return err;
}

enum err postgres__schema(struct store *store, struct migration_status *out, struct error *e)
{
    struct postgres *pg = postgres__of(store);
    uint32_t version;
    enum err err = postgres__begin(pg, POSTGRES_SILENCE_MS, false, e);
    if (err == ERR_OK) {
        err = postgres__schema_version(pg, &version, e);
    }
    if (err == ERR_OK) {
        uint32_t newest = migration_newest("postgres");
        *out = (struct migration_status){.current = version, .newest = newest, .is_too_new = version > newest};
    }
    return err;
}

/* The place where versions are written down. Nothing is created if it is there, so that a plain user can do without
   the right to create. */
static enum err make_room(struct postgres *pg, struct error *e)
{
    PGresult *result = NULL;
    enum err err = postgres__query(pg, "SELECT to_regclass('capstan.schema_migrations')::text", NULL, &result, e);
    if (err != ERR_OK) {
        return err;
    }
    bool is_there = !PQgetisnull(result, 0, 0);
    PQclear(result);
    return is_there ? ERR_OK
                    : postgres__script(pg,
                                       "CREATE SCHEMA IF NOT EXISTS capstan;"
                                       "CREATE TABLE capstan.schema_migrations (version bigint PRIMARY KEY, "
                                       "name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())",
                                       e);
}

static enum err up(struct postgres *pg, const struct migration *step, struct error *e)
{
    struct postgres_params params = {0};
    postgres__param_int(&params, step->version);
    postgres__param_text(&params, step->name);
    enum err err = postgres__script(pg, step->up, e);
    return err != ERR_OK
               ? err
               : postgres__run(pg, "INSERT INTO capstan.schema_migrations (version, name) VALUES ($1, $2)", &params, e);
}

static enum err down(struct postgres *pg, const struct migration *step, struct error *e)
{
    struct postgres_params params = {0};
    postgres__param_int(&params, step->version);
    enum err err = postgres__script(pg, step->down, e);
    return err != ERR_OK ? err
                         : postgres__run(pg, "DELETE FROM capstan.schema_migrations WHERE version = $1", &params, e);
}

/* Inside a transaction: one step towards `version`. */
static enum err take_step(struct postgres *pg, uint32_t version, bool *out_done, struct error *e)
{
    uint32_t newest = migration_newest("postgres");
    uint32_t current;
    enum err err = postgres__run(pg, MIGRATION_LOCK, NULL, e);
    if (err == ERR_OK) {
        err = make_room(pg, e);
    }
    if (err == ERR_OK) {
        err = postgres__schema_version(pg, &current, e);
    }
    if (err != ERR_OK) {
        return err;
    }
    if (current > newest) {
        error_set(e, ERR_PRECONDITION, "the store's schema has version %u, this program knows up to %u", current,
                  newest);
        error_hint(e, "use a newer program; this one could damage what it does not know");
        return ERR_PRECONDITION;
    }
    *out_done = current == version;
    if (*out_done) {
        return ERR_OK;
    }
    const struct migration *step = migration_find("postgres", current < version ? current + 1 : current);
    ASSERT(step != NULL);
    return current < version ? up(pg, step, e) : down(pg, step, e);
}

enum err postgres__migrate(struct store *store, uint32_t version, struct error *e)
{
    struct postgres *pg = postgres__of(store);
    bool done = false;
    if (version == STORE_NEWEST) {
        version = migration_newest("postgres");
    }
    if (version > migration_newest("postgres")) {
        return error_set(e, ERR_INVALID, "there is no version %u of the schema", version);
    }
    while (!done) {
        enum err err = postgres__begin(pg, POSTGRES_PATIENT_SILENCE_MS, false, e);
        if (err == ERR_OK) {
            /* A step may take its time on a full database; whoever waits for it does so for a minute. */
            err = postgres__script(pg, "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 60000", e);
        }
        if (err == ERR_OK) {
            err = take_step(pg, version, &done, e);
        }
        err = postgres__end(pg, err, e);
        if (err != ERR_OK) {
            return err;
        }
    }
    postgres__disconnect(pg); /* its statements were prepared for the schema as it was */
    return ERR_OK;
}
