/*
 * copy_test.c - an embedded store copied into PostgreSQL: every row of every table, all or nothing, and only when nobody
 * else is there. What a core makes of a copy is in core_test.c.
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "content.h"
#include "picture.h"

/* ---- all rows of all tables, by the engines' own clients ---- */

struct shape {
    const char *name;
    uint32_t n_columns;
    const char *columns[32];
    enum value_type types[32];
};

static struct shape shape_of(enum row_kind kind)
{
    const struct table *table = table_of(kind);
    struct shape shape = {.name = table->name, .n_columns = table->n_columns};
    for (uint32_t i = 0; i < table->n_columns; i++) {
        shape.columns[i] = table->columns[i].name;
        shape.types[i] = column_type(&table->columns[i]);
    }
    return shape;
}

static const char *column_text(struct subject *s, const struct shape *shape, uint32_t i)
{
    const char *name = shape->columns[i];
    if (shape->types[i] == VALUE_IS_INT) {
        return arena_format(&s->arena, "coalesce(CAST(%s AS text), '-')", name);
    }
    if (s->kind == ENGINE_SQLITE) {
        return arena_format(&s->arena, "CASE WHEN %s IS NULL THEN '-' ELSE hex(CAST(%s AS BLOB)) END", name, name);
    }
    return arena_format(&s->arena,
                        shape->types[i] == VALUE_IS_TEXT ? "coalesce(upper(encode(convert_to(%s, 'UTF8'), 'hex')), '-')"
                                                         : "coalesce(upper(encode(%s, 'hex')), '-')",
                        name);
}

static const char *dump_table(struct subject *s, const struct shape *shape)
{
    struct buf sql = {0};
    for (uint32_t i = 0; i < shape->n_columns; i++) {
        buf_format(&sql, "%s%s", i == 0 ? "SELECT " : " || '|' || ", column_text(s, shape, i));
    }
    buf_format(&sql, " AS line FROM @%s ORDER BY 1", shape->name);
    const char *text = subject_sql(s, sql.data);
    buf_deinit(&sql);
    return text;
}

static void check_all_tables_equal(struct subject *copy, struct subject *source)
{
    static const enum row_kind kinds[] = {ROW_JOB,    ROW_STAGE, ROW_TASK,    ROW_LEASE, ROW_MAP_OUTPUT,
                                          ROW_RESULT, ROW_NODE,  ROW_ATTEMPT, ROW_EVENT};
    static const struct shape others[] = {
        {"payloads", 3, {"job_id", "digest", "bytes"}, {VALUE_IS_TEXT, VALUE_IS_BYTES, VALUE_IS_BYTES}},
        {"data_sets", 3, {"name", "source", "format"}, {VALUE_IS_TEXT, VALUE_IS_TEXT, VALUE_IS_TEXT}},
        {"inbox", 3, {"id", "job_id", "tree"}, {VALUE_IS_INT, VALUE_IS_TEXT, VALUE_IS_BYTES}},
    };
    for (size_t i = 0; i < ARRAY_LEN(kinds) + ARRAY_LEN(others); i++) {
        struct shape shape = i < ARRAY_LEN(kinds) ? shape_of(kinds[i]) : others[i - ARRAY_LEN(kinds)];
        const char *expected = dump_table(source, &shape);
        CHECK(expected[0] != '\0'); /* there is something to compare */
        CHECK_STR(dump_table(copy, &shape), expected);
    }
}

/* ---- what is copied ---- */

/* Rows of every kind, with anything in them; `n` jobs. Leaves the store stopped. */
static void fill(struct subject *s, uint32_t n)
{
    struct prng prng;
    struct rows rows = {0};
    static const uint8_t bytes[] = {0, 1, 255, '\'', '\\', '\n', 0};
    subject_lead(s);
    prng_init(&prng, n);
    for (uint32_t i = 0; i < n; i++) {
        const char *id = arena_format(&rows.arena, "job-%u", i);
        add_whole_job(&rows, id);
        struct row_task *task = add_task(&rows, ref_of(id, 1, i));
        task->message = random_text_or_null(&prng, &rows.arena);
        task->failed_on = random_texts(&prng, &rows.arena, 3);
        task->rows = (uint64_t)random_int(&prng);
        task->inputs_bytes = random_u32(&prng);
        struct row_job *job =
            add_job(&rows, arena_format(&rows.arena, "ended-%u %s", i, hostile_texts[i % n_hostile_texts]));
        job->state = JOB_SUCCEEDED;
        job->name = random_text_or_null(&prng, &rows.arena);
        job->message = i == 1 ? long_text(&rows.arena, LONG_RANDOM, 1 << 20) : random_text_or_null(&prng, &rows.arena);
        job->inline_bytes = (uint64_t)random_int(&prng);
        add_node(&rows, arena_format(&rows.arena, "w-%u", i))->offer = random_offer(&prng, &rows.arena);
        add_event(&rows, i + 1, ref_of(i % 2 == 0 ? id : NULL, 0, 0))->message =
            random_text_or_null(&prng, &rows.arena);
    }
    struct payload payloads[] = {{"job-0", digest_from(1), bytes, sizeof bytes}, {"job-0", digest_from(2), "", 0}};
    struct data_set sets[] = {{"a", "s3://'", "csv"}, {"\xf0\x9f\x92\xbb", "", ""}};
    const struct row *head = rows.first;
    struct batch batch = {.rows = &head, .n_rows = 1, .payloads = payloads, .n_payloads = 2};
    batch.data_sets = sets;
    batch.n_data_sets = 2;
    CHECK_OK(s, store_commit(s->store, &s->fence, &batch, &s->e));
    subject_add_inbox(s, "waiting", "{\"job_id\": \"waiting\"}");
    subject_add_inbox(s, "too", "{\"job_id\": \"too\"}");
    CHECK_OK(s, store_resign(s->store, &s->fence, &s->e));
    rows_deinit(&rows);
}

static uint64_t copied(const struct copy_report *report, const char *table)
{
    for (uint32_t i = 0; i < report->n_tables; i++) {
        if (strcmp(report->tables[i].table, table) == 0) {
            return report->tables[i].n_rows;
        }
    }
    return UINT64_MAX;
}

static void note_progress(void *context, const char *table, uint64_t n_rows)
{
    uint64_t *most = context;
    *most = strcmp(table, "tasks") == 0 ? n_rows : *most;
}

CONTRACT_OF_POSTGRES(a_copy_has_every_row_of_every_table)
{
    enum { N = 60 };
    struct copy_report report = {0};
    uint64_t n_tasks = 0;
    struct subject *source = subject_embedded();
    fill(source, N);
    s->store = subject_open(s);
    CHECK_OK(s, store_copy(source->store, s->store, note_progress, &n_tasks, &report, &s->e));
    CHECK_UINT(n_tasks, 2 * N);
    CHECK_UINT(report.n_tables, 12);
    CHECK_UINT(copied(&report, "jobs"), 2 * N);
    CHECK_UINT(copied(&report, "tasks"), 2 * N);
    CHECK_UINT(copied(&report, "task_events"), N);
    CHECK_UINT(copied(&report, "payloads"), 2);
    CHECK_UINT(copied(&report, "inbox"), 2);
    check_all_tables_equal(s, source);
    /* And the source can be used as before. */
    struct leader leader;
    struct leader_claim claim = subject_claim("again", 1000);
    CHECK_OK(source, store_lead(source->store, &claim, &source->arena, &leader, &source->e));
    CHECK_UINT(leader.fence.epoch, 2);
}

CONTRACT_OF_POSTGRES(a_leader_of_the_copy_goes_on_where_the_source_stopped)
{
    struct copy_report report = {0};
    struct leader leader;
    struct leader_claim claim = subject_claim("heir", 60000);
    const struct inbox_entry *entries = NULL;
    uint32_t n = 0;
    struct subject *source = subject_embedded();
    fill(source, 3);
    s->store = subject_open(s);
    CHECK_OK(s, store_copy(source->store, s->store, NULL, NULL, &report, &s->e));
    CHECK_UINT(report.epoch, 1);
    CHECK_FAILS(s, store_leader(s->store, &s->arena, &leader, &s->e), ERR_NOT_FOUND);
    CHECK_OK(s, store_lead(s->store, &claim, &s->arena, &leader, &s->e));
    CHECK_UINT(leader.fence.epoch, 2);
    s->fence = leader.fence;
    subject_add_inbox(s, "later", "{\"job_id\": \"later\"}"); /* its number is not taken yet */
    CHECK_OK(s, store_inbox(s->store, &(struct inbox_query){.limit = 10}, &s->arena, &entries, &n, &s->e));
    CHECK_UINT(n, 3);
    CHECK_STR(entries[2].job_id, "later");
    struct rows rows = {0};
    add_job_change(&rows, "job-1", JOB_SUCCEEDED);
    add_event(&rows, 4, ref_of("job-1", 0, 0));
    CHECK_OK(s, rows_commit(s, &rows));
    rows_deinit(&rows);
}

CONTRACT_OF_POSTGRES(an_empty_store_can_be_copied)
{
    struct copy_report report = {0};
    struct subject *source = subject_embedded();
    source->store = subject_open(source);
    CHECK_OK(source, store_migrate(source->store, STORE_NEWEST, &source->e));
    s->store = subject_open(s);
    CHECK_OK(s, store_copy(source->store, s->store, NULL, NULL, &report, &s->e));
    CHECK_UINT(copied(&report, "jobs"), 0);
    CHECK_OK(s, store_copy(source->store, s->store, NULL, NULL, &report, &s->e)); /* the target is still empty */
}

CONTRACT_OF_POSTGRES(a_job_that_is_half_removed_stays_behind)
{
    enum { N_TASKS = 12000 };
    struct rows rows = {0};
    struct copy_report report = {0};
    bool more = false;
    struct subject *source = subject_embedded();
    subject_lead(source);
    struct row_job *job = add_job(&rows, "large");
    job->state = JOB_SUCCEEDED;
    job->finished_at_ms = 1;
    for (uint32_t i = 0; i < N_TASKS; i++) {
        add_task(&rows, ref_of("large", 0, i));
    }
    add_whole_job(&rows, "other");
    CHECK_OK(source, rows_commit(source, &rows));
    CHECK_OK(source, store_prune(source->store, &source->fence, 1000, 10, &more, &source->e));
    CHECK(more);
    CHECK_OK(source, store_resign(source->store, &source->fence, &source->e));
    s->store = subject_open(s);
    CHECK_OK(s, store_copy(source->store, s->store, NULL, NULL, &report, &s->e));
    CHECK_UINT(copied(&report, "jobs"), 1);
    CHECK_UINT(copied(&report, "tasks"), 1);
    rows_deinit(&rows);
}

/* ---- what is refused ---- */

static void check_refused(struct subject *from, struct subject *to, enum err code, const char *word)
{
    struct copy_report report = {.n_tables = 77};
    CHECK_FAILS(to, store_copy(from->store, to->store, NULL, NULL, &report, &to->e), code);
    CHECK_UINT(report.n_tables, 77);
    if (strstr(to->e.message, word) == NULL) {
        print_error("%s\n", to->e.message);
    }
    CHECK(strstr(to->e.message, word) != NULL);
}

CONTRACT_OF_POSTGRES(only_an_embedded_store_can_be_copied_and_only_to_postgres)
{
    struct subject *source = subject_embedded();
    struct subject *reference = subject_reference();
    fill(source, 1);
    s->store = subject_open(s);
    check_refused(source, source, ERR_INVALID, "sqlite: to postgres://");
    check_refused(s, s, ERR_INVALID, "sqlite: to postgres://");
    check_refused(s, source, ERR_INVALID, "sqlite: to postgres://");
    check_refused(reference, s, ERR_INVALID, "sqlite: to postgres://");
    check_refused(source, reference, ERR_INVALID, "sqlite: to postgres://");
}

CONTRACT_OF_POSTGRES(a_store_in_use_is_not_copied_nor_copied_over)
{
    struct copy_report report;
    struct leader leader;
    struct leader_claim claim = subject_claim("elsewhere", 60000);
    struct subject *source = subject_embedded();
    fill(source, 1);
    s->store = subject_open(s);
    struct store *first = source->store;
    CHECK_OK(source, store_lead(first, &claim, &source->arena, &leader, &source->e));
    check_refused(source, s, ERR_BUSY, "leads");
    source->store = subject_open(source);
    check_refused(source, s, ERR_BUSY, "another coordinator uses this store");
    CHECK_OK(source, store_resign(first, &leader.fence, &source->e));
    struct store *other = subject_open(s);
    CHECK_OK(s, store_migrate(other, STORE_NEWEST, &s->e));
    CHECK_OK(s, store_lead(other, &claim, &s->arena, &leader, &s->e));
    check_refused(source, s, ERR_BUSY, "elsewhere leads");
    CHECK_OK(s, store_resign(other, &leader.fence, &s->e));
    CHECK_OK(s, store_copy(source->store, s->store, NULL, NULL, &report, &s->e));
}

CONTRACT_OF_POSTGRES(a_target_that_is_not_empty_or_a_schema_of_another_version_is_refused)
{
    struct copy_report report;
    struct subject *source = subject_embedded();
    fill(source, 2);
    s->store = subject_open(s);
    CHECK_OK(s, store_copy(source->store, s->store, NULL, NULL, &report, &s->e));
    check_refused(source, s, ERR_PRECONDITION, "not empty");
    subject_sql(s, "DELETE FROM @jobs; DELETE FROM @stages; DELETE FROM @tasks; DELETE FROM @task_leases; "
                   "DELETE FROM @map_outputs; DELETE FROM @results; DELETE FROM @distributed_nodes; "
                   "DELETE FROM @execution_idempotency; DELETE FROM @task_events; DELETE FROM @payloads; "
                   "DELETE FROM @data_sets");
    check_refused(source, s, ERR_PRECONDITION, "rows in inbox");
    subject_sql(s, "DELETE FROM @inbox");
    CHECK_OK(s, store_copy(source->store, s->store, NULL, NULL, &report, &s->e));
    subject_set_schema(s, 99);
    subject_close(s, s->store);
    s->store = subject_open(s);
    check_refused(source, s, ERR_PRECONDITION, "version 99");
    subject_set_schema(source, 98);
    subject_close(source, source->store);
    source->store = subject_open(source);
    check_refused(source, s, ERR_PRECONDITION, "version 98");
}

/* ---- in the middle ---- */

static int progress_pipe;

static void tell(void *context, const char *table, uint64_t n_rows)
{
    (void)context;
    if (strcmp(table, "execution_idempotency") == 0 && n_rows > 0) { /* most tables are done, some are not */
        ssize_t n = write(progress_pipe, "x", 1);
        CHECK(n == 1);
        pause(); /* to be killed here */
    }
}

/* A copy that stops in the middle and waits for its end. */
static pid_t start_copy(struct subject *from, struct subject *to, int *out_progress)
{
    int ends[2];
    CHECK_INT(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct store *source = NULL;
        struct store *target = NULL;
        struct copy_report report;
        close(ends[0]);
        progress_pipe = ends[1];
        bool failed = store_open(from->url, &source, NULL) != ERR_OK || store_open(to->url, &target, NULL) != ERR_OK ||
                      store_copy(source, target, tell, NULL, &report, NULL) != ERR_OK;
        _exit(failed ? 1 : 0);
    }
    CHECK(pid > 0);
    close(ends[1]);
    *out_progress = ends[0];
    return pid;
}

CONTRACT_OF_POSTGRES(a_copy_that_is_killed_leaves_the_target_empty_and_can_be_made_again)
{
    struct copy_report report = {0};
    struct store_summary summary;
    int progress;
    char byte;
    struct subject *source = subject_embedded();
    fill(source, 50);
    subject_close(source, source->store);
    pid_t pid = start_copy(source, s, &progress);
    CHECK_INT(read(progress, &byte, 1), 1);
    s->store = subject_open(s);
    CHECK_STR(subject_sql(s, "SELECT count(*) FROM @jobs"), "0\n"); /* nobody sees it before it is whole */
    source->store = subject_open(source);
    check_refused(source, s, ERR_BUSY, "another coordinator uses this store"); /* the source is held */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(progress);
    CHECK_OK(s, store_summarize(s->store, &summary, &s->e));
    CHECK_UINT(summary.queued_jobs + summary.running_jobs + summary.nodes + summary.last_event_seq, 0);
    CHECK_OK(s, store_copy(source->store, s->store, NULL, NULL, &report, &s->e));
    check_all_tables_equal(s, source);
}

CONTRACT_OF_POSTGRES(nobody_can_lead_the_target_while_it_is_copied_into)
{
    struct leader leader;
    int progress;
    char byte;
    struct leader_claim claim = subject_claim("too early", 60000);
    struct subject *source = subject_embedded();
    fill(source, 20);
    subject_close(source, source->store);
    pid_t pid = start_copy(source, s, &progress);
    CHECK_INT(read(progress, &byte, 1), 1);
    s->store = subject_open(s);
    CHECK(store_lead(s->store, &claim, &s->arena, &leader, &s->e) != ERR_OK);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(progress);
    CHECK_OK(s, store_lead(s->store, &claim, &s->arena, &leader, &s->e));
    CHECK_STR(subject_sql(s, "SELECT count(*) FROM @jobs"), "0\n");
}

/* The server goes away in the middle: an error, and nothing is there afterwards. */
static void end_backends(void *context, const char *table, uint64_t n_rows)
{
    struct subject *s = context;
    (void)n_rows;
    if (strcmp(table, "tasks") == 0) {
        subject_sql(s, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                       "WHERE datname = current_database() AND pid <> pg_backend_pid()");
    }
}

CONTRACT_OF_POSTGRES(a_copy_whose_connection_breaks_fails_and_leaves_nothing)
{
    struct copy_report report = {0};
    struct subject *source = subject_embedded();
    fill(source, 20);
    s->store = subject_open(s);
    CHECK_FAILS(s, store_copy(source->store, s->store, end_backends, s, &report, &s->e), ERR_UNAVAILABLE);
    CHECK_STR(subject_sql(s, "SELECT count(*) FROM @jobs"), "0\n");
    CHECK_OK(s, store_copy(source->store, s->store, NULL, NULL, &report, &s->e));
    check_all_tables_equal(s, source);
}

/* A value that the target refuses: the row says so, and nothing is there. */
CONTRACT_OF_POSTGRES(a_copy_of_a_damaged_store_fails_and_leaves_nothing)
{
    struct copy_report report = {0};
    struct subject *source = subject_embedded();
    fill(source, 5);
    s->store = subject_open(s);
    subject_sql(source, "UPDATE task_events SET details = CAST(x'ff' AS TEXT) WHERE seq = 3");
    CHECK_FAILS(s, store_copy(source->store, s->store, NULL, NULL, &report, &s->e), ERR_INVALID);
    subject_sql(source, "UPDATE task_events SET details = x'00' WHERE seq = 3");
    CHECK_FAILS(s, store_copy(source->store, s->store, NULL, NULL, &report, &s->e), ERR_DATA_LOSS);
    CHECK_STR(subject_sql(s, "SELECT count(*) FROM @jobs"), "0\n");
    subject_sql(source, "UPDATE task_events SET details = NULL WHERE seq = 3");
    CHECK_OK(s, store_copy(source->store, s->store, NULL, NULL, &report, &s->e));
    check_all_tables_equal(s, source);
}
