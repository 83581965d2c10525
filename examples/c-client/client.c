/*
 * client.c - a client of Capstan in C, over libcapstan.
 *
 *     c-client run TREE.json           submit a task tree, wait for it, print what its tasks returned
 *     c-client sql 'SELECT ...' [P]    run SQL, print its rows as they come; P are its parameters as JSON
 *     c-client json JOB                print the results of a job that has ended, as one JSON text
 *     c-client follow JOB [SEQ]        print the events of a job, after number SEQ, until it has ended
 *     c-client status|tasks|why JOB    print how it is, its tasks, why tasks wait, as JSON
 *     c-client cancel JOB              cancel it
 *     c-client retry JOB [TASK]        run again what failed, or a task and all that depend on it
 *     c-client jobs | nodes | leader   print what the cluster has, as JSON
 *
 * CAPSTAN_SERVER says where coordinators listen, CAPSTAN_TOKEN is the token; with `capstan up` of the same user neither is
 * needed. Ctrl-C cancels the job that is waited for. The exit code is that of the error (capstan/client.h), 1 if the job
 * failed.
 */
#define _POSIX_C_SOURCE 200809L
#include <capstan/client.h>

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 20 };

static int fail(const struct capstan_error *e)
{
    fprintf(stderr, "c-client: %s: %s\n", capstan_code_name(e->code), e->message);
    if (e->hint[0] != '\0') {
        fprintf(stderr, "  hint: %s\n", e->hint);
    }
    return (int)e->code;
}

/* ---- Ctrl-C: a thread waits for it, and ends the call that is under way ---- */

static void *wait_for_signal(void *client)
{
    sigset_t signals;
    int which = 0;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    if (sigwait(&signals, &which) == 0) {
        capstan_interrupt(client);
    }
    return NULL;
}

static void watch_signals(struct capstan_client *client)
{
    sigset_t signals;
    pthread_t thread;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before any other thread is made: all leave the signal to ours */
    if (pthread_create(&thread, NULL, wait_for_signal, client) == 0) {
        pthread_detach(thread);
    }
}

/* Waits for the end of the job; after Ctrl-C cancels it. 0 if it succeeded. */
static int await(struct capstan_client *client, const char *id)
{
    struct capstan_error e = {0};
    struct capstan_job *job = NULL;
    fprintf(stderr, "job %s\n", id);
    if (capstan_wait(client, id, -1, &job, &e) != CAPSTAN_OK) {
        if (e.code == CAPSTAN_CANCELED) {
            capstan_resume(client);
            (void)capstan_cancel(client, id, "interrupted", NULL);
        }
        return fail(&e);
    }
    bool is_good = capstan_job_state(job) == CAPSTAN_STATE_SUCCEEDED;
    if (!is_good) {
        fprintf(stderr, "c-client: the job did not succeed: %s\n", capstan_job_message(job));
    }
    capstan_job_free(job);
    return is_good ? 0 : 1;
}

static int print_json(struct capstan_client *client, const char *id)
{
    struct capstan_error e = {0};
    char *text = NULL;
    if (capstan_results_json(client, id, &text, NULL, &e) != CAPSTAN_OK) {
        return fail(&e);
    }
    puts(text);
    capstan_free(text);
    return 0;
}

/* ---- trees ---- */

static int run(struct capstan_client *client, const char *path)
{
    static char text[FILE_BYTES_MAX];
    struct capstan_error e = {0};
    struct capstan_tree tree = {.size = sizeof(tree), .json = text};
    char id[CAPSTAN_ID_BYTES];
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        perror(path);
        return CAPSTAN_INVALID;
    }
    tree.n_json = fread(text, 1, sizeof(text), file);
    fclose(file);
    if (capstan_submit_tree(client, &tree, id, &e) != CAPSTAN_OK) {
        return fail(&e);
    }
    int code = await(client, id);
    return code == 0 ? print_json(client, id) : code;
}

/* ---- SQL ---- */

/* A cell of the types that this example knows; a library for Arrow knows them all. */
static void print_cell(const struct ArrowSchema *type, const struct ArrowArray *column, int64_t row)
{
    int64_t at = row + column->offset;
    const uint8_t *valid = column->n_buffers > 0 ? column->buffers[0] : NULL;
    if (valid != NULL && ((valid[at / 8] >> (at % 8)) & 1) == 0) {
        fputs("NULL", stdout);
    } else if (strcmp(type->format, "i") == 0) {
        printf("%" PRId32, ((const int32_t *)column->buffers[1])[at]);
    } else if (strcmp(type->format, "l") == 0) {
        printf("%" PRId64, ((const int64_t *)column->buffers[1])[at]);
    } else if (strcmp(type->format, "g") == 0) {
        printf("%g", ((const double *)column->buffers[1])[at]);
    } else if (strcmp(type->format, "u") == 0) {
        const int32_t *ends = column->buffers[1];
        printf("%.*s", (int)(ends[at + 1] - ends[at]), (const char *)column->buffers[2] + ends[at]);
    } else {
        printf("(%s)", type->format);
    }
}

static void print_batch(const struct ArrowSchema *schema, const struct ArrowArray *batch)
{
    for (int64_t row = 0; row < batch->length; row++) {
        for (int64_t i = 0; i < schema->n_children; i++) {
            fputs(i == 0 ? "" : "\t", stdout);
            print_cell(schema->children[i], batch->children[i], row + batch->offset);
        }
        putchar('\n');
    }
}

static int print_rows(struct ArrowArrayStream *rows)
{
    struct ArrowSchema schema = {0};
    struct ArrowArray batch = {0};
    int failure = rows->get_schema(rows, &schema);
    for (int64_t i = 0; failure == 0 && i < schema.n_children; i++) {
        printf("%s%s", schema.children[i]->name, i + 1 < schema.n_children ? "\t" : "\n");
    }
    while (failure == 0) {
        failure = rows->get_next(rows, &batch);
        if (failure != 0 || batch.release == NULL) {
            break;
        }
        print_batch(&schema, &batch);
        batch.release(&batch);
    }
    if (failure != 0) {
        fprintf(stderr, "c-client: %s\n", rows->get_last_error(rows));
    }
    if (schema.release != NULL) {
        schema.release(&schema);
    }
    return failure == 0 ? 0 : CAPSTAN_DATA_LOSS;
}

static int sql(struct capstan_client *client, const char *text, const char *params)
{
    struct capstan_error e = {0};
    struct capstan_query query = {.size = sizeof(query), .sql = text, .params_json = params};
    struct ArrowArrayStream rows;
    char id[CAPSTAN_ID_BYTES];
    if (capstan_submit_query(client, &query, id, &e) != CAPSTAN_OK) {
        return fail(&e);
    }
    int code = await(client, id);
    if (code != 0) {
        return code;
    }
    if (capstan_results_arrow(client, id, &rows, &e) != CAPSTAN_OK) {
        return fail(&e);
    }
    code = print_rows(&rows);
    rows.release(&rows);
    return code;
}

/* ---- events ---- */

static int follow(struct capstan_client *client, const char *id, const char *after)
{
    struct capstan_error e = {0};
    struct capstan_event event;
    struct capstan_events *events = NULL;
    struct capstan_events_request request = {
        .size = sizeof(request), .job_id = id, .after_seq = strtoull(after, NULL, 10), .follow = 1};
    int has_event = 0;
    enum capstan_code code = capstan_events_open(client, &request, &events, &e);
    while (code == CAPSTAN_OK) {
        code = capstan_events_next(events, &event, &has_event, &e);
        if (code == CAPSTAN_OK && has_event) {
            printf("%" PRIu64 " %s %" PRIu64 ".%" PRIu64 " attempt %" PRIu32 " %s\n", event.seq, event.type,
                   event.stage, event.task, event.attempt, event.worker_id);
            fflush(stdout);
        }
        if (code != CAPSTAN_OK || !has_event || event.is_end) {
            break;
        }
    }
    capstan_events_close(events);
    return code == CAPSTAN_OK ? 0 : fail(&e);
}

/* ---- all of it ---- */

static int list(struct capstan_client *client, const char *what)
{
    struct capstan_error e = {0};
    char *text = NULL;
    enum capstan_code code = strcmp(what, "jobs") == 0    ? capstan_jobs_json(client, NULL, &text, &e)
                             : strcmp(what, "nodes") == 0 ? capstan_nodes_json(client, &text, &e)
                                                          : capstan_leader_json(client, &text, &e);
    if (code != CAPSTAN_OK) {
        return fail(&e);
    }
    puts(text);
    capstan_free(text);
    return 0;
}

static int status(struct capstan_client *client, const char *id)
{
    struct capstan_error e = {0};
    struct capstan_job *job = NULL;
    if (capstan_status(client, id, &job, &e) != CAPSTAN_OK) {
        return fail(&e);
    }
    puts(capstan_job_json(job));
    capstan_job_free(job);
    return 0;
}

/* The first page of its tasks, or what its tasks wait for. */
static int inspect(struct capstan_client *client, const char *what, const char *id)
{
    struct capstan_error e = {0};
    char *text = NULL;
    enum capstan_code code = strcmp(what, "tasks") == 0 ? capstan_tasks_json(client, id, NULL, &text, &e)
                                                        : capstan_why_json(client, id, &text, &e);
    if (code != CAPSTAN_OK) {
        return fail(&e);
    }
    puts(text);
    capstan_free(text);
    return 0;
}

static int act(struct capstan_client *client, int argc, char **argv)
{
    struct capstan_error e = {0};
    const char *verb = argv[1];
    if (argc == 3 && strcmp(verb, "run") == 0) {
        return run(client, argv[2]);
    }
    if ((argc == 3 || argc == 4) && strcmp(verb, "sql") == 0) {
        return sql(client, argv[2], argc == 4 ? argv[3] : NULL);
    }
    if (argc == 3 && strcmp(verb, "json") == 0) {
        return print_json(client, argv[2]);
    }
    if ((argc == 3 || argc == 4) && strcmp(verb, "follow") == 0) {
        return follow(client, argv[2], argc == 4 ? argv[3] : "0");
    }
    if (argc == 3 && strcmp(verb, "cancel") == 0) {
        return capstan_cancel(client, argv[2], "by hand", &e) == CAPSTAN_OK ? 0 : fail(&e);
    }
    if ((argc == 3 || argc == 4) && strcmp(verb, "retry") == 0) {
        return capstan_retry(client, argv[2], argc == 4 ? argv[3] : NULL, &e) == CAPSTAN_OK ? 0 : fail(&e);
    }
    if (argc == 3 && strcmp(verb, "status") == 0) {
        return status(client, argv[2]);
    }
    if (argc == 3 && (strcmp(verb, "tasks") == 0 || strcmp(verb, "why") == 0)) {
        return inspect(client, verb, argv[2]);
    }
    if (argc == 2 && (strcmp(verb, "jobs") == 0 || strcmp(verb, "nodes") == 0 || strcmp(verb, "leader") == 0)) {
        return list(client, verb);
    }
    fputs("c-client: see the head of client.c for what it can do\n", stderr);
    return CAPSTAN_INVALID;
}

int main(int argc, char **argv)
{
    struct capstan_error e = {0};
    struct capstan_client *client = NULL;
    if (argc < 2) {
        fputs("usage: c-client run|sql|json|follow|status|tasks|why|cancel|retry|jobs|nodes|leader ...\n", stderr);
        return CAPSTAN_INVALID;
    }
    if (capstan_open(NULL, &client, &e) != CAPSTAN_OK) {
        return fail(&e);
    }
    watch_signals(client);
    int code = act(client, argc, argv);
    capstan_close(client);
    return code;
}
