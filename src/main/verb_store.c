/*
 * capstan store: what people do to a store while no coordinator runs on it, and a look at it at any time.
 *
 * A rollback takes the leadership first, so that it can neither begin under a leader nor a leader under it. A copy locks
 * both sides itself.
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/num.h"
#include "base/random.h"
#include "cli/text.h"
#include "main/verbs.h"
#include "store/store.h"

/* Long enough for any rollback. If this process dies meanwhile, a coordinator has to wait for so long. */
#define LEAD_MS 60000

/* ---- opening ---- */

static bool is_file(const char *url)
{
    return strncmp(url, "sqlite:", strlen("sqlite:")) == 0;
}

/* A file that is not there would be made by looking at it. */
static enum err check_file(const char *url, struct error *e)
{
    const char *path = url + strlen("sqlite:");
    if (!is_file(url) || access(path, F_OK) == 0) {
        return ERR_OK;
    }
    enum err err = error_set(e, ERR_NOT_FOUND, "there is no store at %s", path);
    error_hint(e, "--store names another one; capstan store migrate makes it");
    return err;
}

static enum err open_store(const char *url, struct store **out, struct error *e)
{
    enum err err = check_file(url, e);
    return err != ERR_OK ? err : store_open(url, out, e);
}

/* ---- status ---- */

struct picture {
    const char *url; /* without a password */
    struct migration_status schema;
    bool has_leader;
    struct leader leader;
    bool has_summary;
    struct store_summary summary;
};

static enum err look(struct store *store, struct arena *arena, struct picture *out, struct error *e)
{
    enum err err = store_schema(store, &out->schema, e);
    if (err != ERR_OK || out->schema.current != out->schema.newest) {
        return err; /* there is nothing else that this program could read */
    }
    err = store_leader(store, arena, &out->leader, e);
    out->has_leader = err == ERR_OK;
    if (err != ERR_OK && err != ERR_NOT_FOUND) {
        return err;
    }
    err = store_summarize(store, &out->summary, e);
    out->has_summary = err == ERR_OK;
    return err;
}

static const char *schema_state(const struct migration_status *schema)
{
    return schema->is_too_new                 ? "newer than this program"
           : schema->current == 0             ? "empty"
           : schema->current < schema->newest ? "old"
                                              : "current";
}

static void write_member(struct buf *out, const char *name, uint64_t number)
{
    buf_format(out, ",\"%s\":%" PRIu64, name, number);
}

static void write_status_json(struct buf *out, const struct picture *p)
{
    buf_text(out, "{\"store\":");
    json_write_text(out, p->url);
    buf_format(out, ",\"schema\":{\"version\":%u,\"newest\":%u,\"state\":\"%s\"},\"leader\":", p->schema.current,
               p->schema.newest, schema_state(&p->schema));
    if (p->has_leader) {
        buf_text(out, "{\"node_id\":");
        json_write_text(out, p->leader.node_id);
        buf_text(out, ",\"address\":");
        json_write_text(out, p->leader.address);
        write_member(out, "epoch", p->leader.fence.epoch);
        buf_format(out, ",\"expires_in_ms\":%" PRId64 "}", p->leader.expires_in_ms);
    } else {
        buf_text(out, "null");
    }
    if (p->has_summary) {
        buf_format(out, ",\"jobs\":{\"queued\":%" PRIu64 ",\"running\":%" PRIu64 "}", p->summary.queued_jobs,
                   p->summary.running_jobs);
        write_member(out, "nodes", p->summary.nodes);
        write_member(out, "inbox", p->summary.inbox);
        write_member(out, "last_event", p->summary.last_event_seq);
        write_member(out, "bytes", p->summary.bytes);
    }
    buf_char(out, '}');
}

static void write_leader(struct buf *out, const struct picture *p)
{
    if (!p->has_leader) {
        buf_text(out, "\nleader   nobody");
        return;
    }
    buf_text(out, "\nleader   ");
    text_clean(out, p->leader.node_id);
    buf_text(out, " at ");
    text_clean(out, p->leader.address);
    buf_format(out, ", epoch %" PRIu64, p->leader.fence.epoch);
    if (p->leader.expires_in_ms <= 0) {
        buf_text(out, "; its time has run out");
    }
}

/* Up to STORE_SUMMARY_MAX they were counted. */
static void write_count(struct buf *out, uint64_t n, const char *what)
{
    text_count(out, n);
    buf_format(out, "%s %s", n >= STORE_SUMMARY_MAX ? " or more" : "", what);
}

static void write_status(struct buf *out, const struct picture *p)
{
    buf_text(out, "store    ");
    text_clean(out, p->url);
    buf_format(out, "\nschema   version %u", p->schema.current);
    if (p->schema.is_too_new) {
        buf_format(out, ", newer than this program, which knows %u", p->schema.newest);
    } else if (p->schema.current < p->schema.newest) {
        buf_format(out, " of %u: capstan store migrate brings it up to date", p->schema.newest);
    }
    if (!p->has_summary) {
        return;
    }
    write_leader(out, p);
    buf_text(out, "\njobs     ");
    write_count(out, p->summary.queued_jobs, "queued, ");
    write_count(out, p->summary.running_jobs, "running");
    buf_text(out, "\nnodes    ");
    text_count(out, p->summary.nodes);
    buf_text(out, "\ninbox    ");
    write_count(out, p->summary.inbox, "waiting");
    buf_format(out, "\nevents   up to number %" PRIu64 "\nsize     ", p->summary.last_event_seq);
    text_size(out, p->summary.bytes);
}

static int status(struct cli *cli)
{
    const char *url = cli_text(cli, "store");
    struct picture picture = {.url = store_url_text(url, &cli->arena)};
    struct store *store = NULL;
    struct buf text = {0};
    struct error e = {0};
    enum err err = open_store(url, &store, &e);
    if (err == ERR_OK) {
        err = look(store, &cli->arena, &picture, &e);
    }
    store_close(store);
    if (err != ERR_OK) {
        return cli_fail(cli, &e);
    }
    if (cli->wants_json) {
        write_status_json(&text, &picture);
    } else {
        write_status(&text, &picture);
    }
    cli_print(cli, &text);
    buf_deinit(&text);
    return EXIT_DONE;
}

/* ---- migrate and rollback ---- */

static int tell_versions(struct cli *cli, uint32_t before, uint32_t after)
{
    struct buf text = {0};
    if (cli->wants_json) {
        buf_format(&text, "{\"before\":%u,\"version\":%u}", before, after);
    } else if (before == after) {
        buf_format(&text, "the schema has version %u already", after);
    } else {
        buf_format(&text, "the schema was version %u and is %u now", before, after);
    }
    cli_print(cli, &text);
    buf_deinit(&text);
    return EXIT_DONE;
}

/* Whoever leads on an older schema is of an earlier release and does not know what is new: it is not done under its feet. */
static enum err check_nobody_leads(struct store *store, const struct migration_status *schema, struct arena *arena,
                                   struct error *e)
{
    struct leader leader;
    if (schema->current == 0 || schema->current >= schema->newest ||
        store_leader(store, arena, &leader, NULL) != ERR_OK || leader.expires_in_ms <= 0) {
        return ERR_OK;
    }
    error_set(e, ERR_PRECONDITION, "%s leads, with the schema of an earlier release", leader.node_id);
    error_hint(e, "start a coordinator of this release and stop that one: the schema goes along with the leadership");
    return ERR_PRECONDITION;
}

static int migrate(struct cli *cli)
{
    struct migration_status before = {0};
    struct store *store = NULL;
    struct error e = {0};
    enum err err = store_open(cli_text(cli, "store"), &store, &e);
    if (err == ERR_OK) {
        err = store_schema(store, &before, &e);
    }
    if (err == ERR_OK && !is_file(cli_text(cli, "store"))) {
        err = check_nobody_leads(store, &before, &cli->arena, &e);
    }
    if (err == ERR_OK) {
        err = store_migrate(store, STORE_NEWEST, &e);
    }
    store_close(store);
    return err != ERR_OK ? cli_fail(cli, &e) : tell_versions(cli, before.current, before.newest);
}

/* Which version to go back to: --to, or the one before. */
static enum err read_target(struct cli *cli, const struct migration_status *schema, uint32_t *out, struct error *e)
{
    const char *text = cli_text(cli, "to");
    int64_t version = (int64_t)schema->current - 1;
    if (schema->current == 0) {
        return error_set(e, ERR_PRECONDITION, "the store is empty: there is nothing to roll back");
    }
    if (text == NULL && version == 0) {
        enum err err =
            error_set(e, ERR_PRECONDITION, "the version before this one is an empty store: everything would be lost");
        error_hint(e, "if that is what you want, say so: --to 0");
        return err;
    }
    if (text != NULL && (!num_parse_int(text, &version) || version < 0 || version >= schema->current)) {
        return error_set(e, ERR_INVALID, "--to must be a version below the present one, which is %u, not '%s'",
                         schema->current, text);
    }
    *out = (uint32_t)version;
    return ERR_OK;
}

/*
 * Leads, so that nobody else does: in a database also not one of an earlier release, on an older schema. A newer schema than
 * this program's is refused by the step itself.
 */
static enum err lead(struct store *store, bool has_file, const struct migration_status *schema, struct arena *arena,
                     struct fence *out_fence, struct error *e)
{
    struct leader_claim claim = {.node_id = "capstan store rollback", .address = "", .ttl_ms = LEAD_MS};
    struct leader leader = {0};
    if (schema->is_too_new || (schema->current != schema->newest && has_file)) {
        return ERR_OK;
    }
    random_bytes(&claim.token, sizeof claim.token);
    enum err err = store_lead(store, &claim, arena, &leader, e);
    if (err == ERR_BUSY) {
        char holder[128];
        (void)!snprintf(holder, sizeof holder, "%s", leader.node_id);
        error_set(e, ERR_BUSY, "%s leads: a store that is in use cannot be rolled back",
                  holder[0] == '\0' ? "a coordinator" : holder);
        error_hint(e, "stop all coordinators first");
    } else if (err == ERR_OK) {
        *out_fence = leader.fence;
    }
    return err;
}

static int rollback(struct cli *cli)
{
    const char *url = cli_text(cli, "store");
    struct migration_status before = {0};
    struct fence fence = {0};
    struct store *store = NULL;
    struct error e = {0};
    uint32_t target = 0;
    enum err err = open_store(url, &store, &e);
    if (err == ERR_OK) {
        err = store_schema(store, &before, &e);
    }
    if (err == ERR_OK) {
        err = read_target(cli, &before, &target, &e);
    }
    if (err == ERR_OK) {
        err = lead(store, is_file(url), &before, &cli->arena, &fence, &e);
    }
    if (err == ERR_OK) {
        err = store_migrate(store, target, &e);
    }
    if (fence.epoch > 0 && (err != ERR_OK || target > 0)) {
        (void)!store_resign(store, &fence, NULL); /* else it runs out by itself */
    }
    store_close(store);
    return err != ERR_OK ? cli_fail(cli, &e) : tell_versions(cli, before.current, target);
}

/* ---- copy ---- */

static void show_progress(void *context, const char *table, uint64_t n_rows)
{
    struct cli *cli = context;
    fprintf(cli->err, "\r\033[K%s: %" PRIu64 " rows", table, n_rows);
    fflush(cli->err);
}

static void write_copy_json(struct buf *out, struct cli *cli, const struct copy_report *report)
{
    uint64_t rows = 0;
    buf_text(out, "{\"from\":");
    json_write_text(out, store_url_text(cli_text(cli, "store"), &cli->arena));
    buf_text(out, ",\"to\":");
    json_write_text(out, store_url_text(cli_text(cli, "to"), &cli->arena));
    buf_text(out, ",\"tables\":{");
    for (uint32_t i = 0; i < report->n_tables; i++) {
        buf_format(out, "%s\"%s\":%" PRIu64, i == 0 ? "" : ",", report->tables[i].table, report->tables[i].n_rows);
        rows += report->tables[i].n_rows;
    }
    buf_format(out, "},\"rows\":%" PRIu64 ",\"epoch\":%" PRIu64 "}", rows, report->epoch);
}

static void write_copy(struct buf *out, struct cli *cli, const struct copy_report *report)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < report->n_tables; i++) {
        buf_format(out, "%-24s", report->tables[i].table);
        text_count(out, report->tables[i].n_rows);
        buf_char(out, '\n');
        rows += report->tables[i].n_rows;
    }
    text_count(out, rows);
    buf_text(out, " rows are in ");
    text_clean(out, store_url_text(cli_text(cli, "to"), &cli->arena));
    buf_text(out, " now, counted on both sides; the source is unchanged");
}

static int copy(struct cli *cli)
{
    const char *to_url = cli_text(cli, "to");
    bool shows_progress = cli->err_is_terminal && !cli->wants_json;
    struct copy_report report;
    struct store *from = NULL;
    struct store *to = NULL;
    struct buf text = {0};
    struct error e = {0};
    if (to_url == NULL) {
        return cli_fail_with(cli, ERR_INVALID, "--to postgres://USER@HOST/DB", "copy needs to know where to");
    }
    enum err err = open_store(cli_text(cli, "store"), &from, &e);
    if (err == ERR_OK) {
        err = store_open(to_url, &to, &e);
    }
    if (err == ERR_OK) {
        err = store_copy(from, to, shows_progress ? show_progress : NULL, cli, &report, &e);
    }
    if (shows_progress) {
        fputs("\r\033[K", cli->err);
    }
    store_close(from);
    store_close(to);
    if (err != ERR_OK) {
        return cli_fail(cli, &e);
    }
    if (cli->wants_json) {
        write_copy_json(&text, cli, &report);
    } else {
        write_copy(&text, cli, &report);
    }
    cli_print(cli, &text);
    buf_deinit(&text);
    return EXIT_DONE;
}

int verb_store(struct cli *cli)
{
    static const struct {
        const char *name;
        int (*run)(struct cli *cli);
    } actions[] = {{"status", status}, {"migrate", migrate}, {"rollback", rollback}, {"copy", copy}};
    for (size_t i = 0; i < ARRAY_LEN(actions); i++) {
        if (strcmp(cli->args[0], actions[i].name) == 0) {
            return actions[i].run(cli);
        }
    }
    return cli_fail_with(cli, ERR_INVALID, "status, migrate, rollback or copy", "store: unknown action '%s'",
                         cli->args[0]);
}
