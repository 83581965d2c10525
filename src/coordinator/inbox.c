/*
 * The inbox: jobs that applications left in the database, in transactions of their own (capstan.submit).
 *
 * One thread waits for the database to say that there is something, with a slow look as a net, and while this process
 * leads turns each entry into a submit. The entry is done in the same transaction that makes the job durable, so a job is
 * made once. A tree that is not valid becomes a failed job with the errors: it never holds up those behind it. Nor does
 * one under the id of another job: it is removed, with a warning. Should the store refuse even what is in an entry, it is
 * tried once more as a failed job with nothing but its id, and then removed: each refusal costs a term of leadership, so
 * nothing is tried for ever. What the scheduler has no room for at the moment stays in the inbox and is tried again; what
 * is behind it is tried all the same, since there may be room for that (pages.h).
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "coordinator/pages.h"
#include "coordinator/service_internal.h"
#include "wire/tree.h"

#define LOOK_MS 5000 /* without being woken */
#define RETRY_MS 1000
#define VERDICTS_MAX 64 /* remembered; older ones start anew */

/* What is to be done with an entry that the store refused. */
enum verdict { VERDICT_TRY, VERDICT_FAIL, VERDICT_DISCARD };

struct verdict_on {
    uint64_t id; /* 0: none */
    enum verdict verdict;
};

struct inbox {
    struct service *service;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t answered;
    struct store *store; /* guarded by the lock where others touch it */
    uint32_t n_waiting;  /* submits that have not been answered */
    uint64_t n_taken;    /* of those that have, how many left the inbox; guarded by the lock */
    uint64_t n_refused;  /* and how many found no room; guarded by the lock */
    struct pages pages;  /* of the thread */
    struct verdict_on verdicts[VERDICTS_MAX];
    uint32_t next_verdict;
    bool is_full; /* the scheduler had no room for the last one; guarded by the lock, like is_stopping */
    bool is_stopping;
};

static bool is_stopping(struct inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    bool stopping = inbox->is_stopping;
    pthread_mutex_unlock(&inbox->lock);
    return stopping;
}

static enum verdict verdict_on(struct inbox *inbox, uint64_t id)
{
    enum verdict verdict = VERDICT_TRY;
    pthread_mutex_lock(&inbox->lock);
    for (uint32_t i = 0; i < VERDICTS_MAX; i++) {
        verdict = inbox->verdicts[i].id == id ? inbox->verdicts[i].verdict : verdict;
    }
    pthread_mutex_unlock(&inbox->lock);
    return verdict;
}

/* The store has refused this entry, alone: next time less of it is tried. */
static void judge(struct inbox *inbox, uint64_t id)
{
    struct verdict_on *found = NULL;
    pthread_mutex_lock(&inbox->lock);
    for (uint32_t i = 0; i < VERDICTS_MAX && found == NULL; i++) {
        found = inbox->verdicts[i].id == id ? &inbox->verdicts[i] : NULL;
    }
    if (found == NULL) {
        found = &inbox->verdicts[inbox->next_verdict++ % VERDICTS_MAX];
        *found = (struct verdict_on){.id = id, .verdict = VERDICT_TRY};
    }
    found->verdict = found->verdict == VERDICT_TRY ? VERDICT_FAIL : VERDICT_DISCARD;
    pthread_mutex_unlock(&inbox->lock);
}

static answer_fn answer;

/* The scheduler does not take the job: it is kept as a failed one, so that whoever left it there finds out why. */
static void keep_as_failed(struct inbox *inbox, const struct request *from, const char *why)
{
    const struct cmd_submit *submit = &from->command.u.submit;
    struct request *request = request_new(answer, inbox);
    request->inbox_id = from->inbox_id;
    request->command = (struct command){.kind = CMD_SUBMIT,
                                        .u.submit = {.job_id = arena_strdup(&request->arena, submit->job_id),
                                                     .kind = submit->kind,
                                                     .name = arena_strdup(&request->arena, submit->name),
                                                     .priority = submit->priority < 4 ? submit->priority : 2,
                                                     .content = submit->content,
                                                     .refusal = arena_strdup(&request->arena, why)}};
    coordinator_send(atomic_load(&inbox->service->coordinator), request);
}

/* Says so once, not for each that waits, nor each time that it is tried. */
static void note_room(struct inbox *inbox, const char *job_id, const char *why)
{
    pthread_mutex_lock(&inbox->lock);
    bool was_full = inbox->is_full;
    inbox->is_full = why != NULL;
    pthread_mutex_unlock(&inbox->lock);
    if (why != NULL && !was_full) {
        log_warn("inbox", "the job '%s' and others wait in the inbox: %s", job_id, why);
    }
}

static void answer(struct request *request, const struct reply *reply, enum err err)
{
    struct inbox *inbox = request->context;
    bool has_no_room = reply != NULL && reply->kind == REPLY_ERROR && reply->code == ERR_EXHAUSTED;
    if (reply != NULL) {
        note_room(inbox, request->command.u.submit.job_id, has_no_room ? reply->message : NULL);
    }
    if (reply != NULL && reply->kind == REPLY_ERROR && !has_no_room) {
        log_warn("inbox", "the job '%s' was not taken: %s", request->command.u.submit.job_id, reply->message);
        if (reply->code != ERR_EXISTS && request->command.u.submit.refusal == NULL) {
            keep_as_failed(inbox, request, reply->message);
            return;
        }
    }
    if (reply == NULL && err == ERR_INVALID) {
        judge(inbox, request->inbox_id);
        log_warn("inbox", "the store refuses to keep the job '%s'", request->command.u.submit.job_id);
    }
    /* Not answered well: it is still in the inbox and comes again. */
    pthread_mutex_lock(&inbox->lock);
    inbox->n_taken += reply != NULL && !has_no_room;
    inbox->n_refused += has_no_room;
    inbox->n_waiting--;
    pthread_cond_signal(&inbox->answered);
    pthread_mutex_unlock(&inbox->lock);
}

/* `unknown`: when there was no such job in the store; 0: there is one, or nobody has looked. */
static void submit(struct inbox *inbox, const struct inbox_entry *entry, struct sight unknown)
{
    struct request *request = request_new(answer, inbox);
    request->unknown = unknown;
    struct cmd_submit *out = &request->command.u.submit;
    struct tree_submit tree;
    struct error e = {0};
    const void *text = arena_copy(&request->arena, entry->tree, entry->n_bytes);
    request->command.kind = CMD_SUBMIT;
    request->inbox_id = entry->id;
    out->job_id = arena_strdup(&request->arena, entry->job_id);
    enum verdict verdict = verdict_on(inbox, entry->id);
    if (verdict == VERDICT_DISCARD) {
        log_error("inbox", "an entry is removed, because the store keeps refusing it: the job '%s'", entry->job_id);
        request->is_discard = true;
    } else if (verdict == VERDICT_FAIL) {
        out->kind = JOB_KIND_TREE;
        out->priority = 2;
        out->refusal = "the store refuses to keep this job";
    } else if (wire_read_tree(text, entry->n_bytes, &request->arena, &tree, NULL, &e) == ERR_OK) {
        service__submit_tree(request, &tree);
    } else {
        out->kind = JOB_KIND_TREE;
        out->priority = 2;
        out->refusal = arena_strdup(&request->arena, e.message);
        sha256_once(text, entry->n_bytes, out->content.bytes);
    }
    pthread_mutex_lock(&inbox->lock);
    inbox->n_waiting++;
    pthread_mutex_unlock(&inbox->lock);
    coordinator_send(atomic_load(&inbox->service->coordinator), request);
}

static void await_answers(struct inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    while (inbox->n_waiting > 0) {
        pthread_cond_wait(&inbox->answered, &inbox->lock);
    }
    pthread_mutex_unlock(&inbox->lock);
}

/* Looks for the jobs of all entries at once, so that nobody has to look for each. */
static enum err submit_all(struct inbox *inbox, struct store *store, const struct inbox_entry *entries, uint32_t n)
{
    const char *job_ids[PAGES_ENTRIES];
    bool is_known[PAGES_ENTRIES];
    struct sight sight = coordinator_sight(atomic_load(&inbox->service->coordinator));
    for (uint32_t i = 0; i < n; i++) {
        job_ids[i] = entries[i].job_id;
    }
    enum err err = store_known_jobs(store, job_ids, n, is_known, NULL);
    for (uint32_t i = 0; i < n && err == ERR_OK; i++) {
        submit(inbox, &entries[i], is_known[i] ? (struct sight){0} : sight);
    }
    await_answers(inbox);
    return err;
}

/* What has become of entries so far. */
struct counts {
    uint64_t taken;
    uint64_t refused;
};

static struct counts count(struct inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    struct counts counts = {.taken = inbox->n_taken, .refused = inbox->n_refused};
    pthread_mutex_unlock(&inbox->lock);
    return counts;
}

/* Turns what is there into jobs, page by page. */
static enum err empty_it(struct inbox *inbox, struct store *store)
{
    struct arena arena = {0};
    bool goes_on = true;
    enum err err = ERR_OK;
    pages_begin(&inbox->pages);
    while (err == ERR_OK && goes_on && !is_stopping(inbox) &&
           coordinator_epoch(atomic_load(&inbox->service->coordinator)) != 0) {
        struct inbox_query query = {.after_id = inbox->pages.after_id, .limit = PAGES_ENTRIES};
        const struct inbox_entry *entries = NULL;
        struct page_tried tried = {0};
        struct counts before = count(inbox);
        arena_reset(&arena);
        err = store_inbox(store, &query, &arena, &entries, &tried.n, NULL);
        if (err == ERR_OK && tried.n > 0) {
            err = submit_all(inbox, store, entries, tried.n);
            struct counts now = count(inbox);
            tried.last_id = entries[tried.n - 1].id;
            tried.n_taken = now.taken - before.taken;
            tried.n_refused = now.refused - before.refused;
        }
        goes_on = err == ERR_OK && pages_go_on(&inbox->pages, &tried);
    }
    arena_deinit(&arena);
    return err;
}

/* The connection that waits; it is shared with inbox_stop, which interrupts it. */
static struct store *connect(struct inbox *inbox)
{
    struct store *store = NULL;
    if (store_open(inbox->service->store_url, &store, NULL) != ERR_OK) {
        return NULL;
    }
    if (store_listen(store, NULL) != ERR_OK) {
        store_close(store);
        return NULL;
    }
    pthread_mutex_lock(&inbox->lock);
    inbox->store = store;
    pthread_mutex_unlock(&inbox->lock);
    return store;
}

static void disconnect(struct inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    struct store *store = inbox->store;
    inbox->store = NULL;
    pthread_mutex_unlock(&inbox->lock);
    store_close(store);
}

static void nap(struct inbox *inbox, int64_t ms)
{
    int64_t until_ms = clock_mono_ms() + ms;
    struct timespec until = {.tv_sec = (time_t)(until_ms / 1000), .tv_nsec = (until_ms % 1000) * 1000000};
    pthread_mutex_lock(&inbox->lock);
    if (!inbox->is_stopping) {
        (void)pthread_cond_timedwait(&inbox->answered, &inbox->lock, &until);
    }
    pthread_mutex_unlock(&inbox->lock);
}

static void *work(void *context)
{
    struct inbox *inbox = context;
    struct store *store = NULL;
    struct store *reader = NULL;
    bool is_woken = false;
    while (!is_stopping(inbox)) {
        if (store == NULL && (store = connect(inbox)) == NULL) {
            nap(inbox, RETRY_MS);
            continue;
        }
        if (reader == NULL && store_open(inbox->service->store_url, &reader, NULL) != ERR_OK) {
            reader = NULL;
            nap(inbox, RETRY_MS);
            continue;
        }
        if (coordinator_epoch(atomic_load(&inbox->service->coordinator)) != 0 && empty_it(inbox, reader) != ERR_OK) {
            store_close(reader);
            reader = NULL;
        }
        if (!is_stopping(inbox) && store_wait(store, LOOK_MS, &is_woken, NULL) != ERR_OK) {
            disconnect(inbox);
            store = NULL;
            nap(inbox, RETRY_MS);
        }
    }
    await_answers(inbox);
    disconnect(inbox);
    store_close(reader);
    return NULL;
}

struct inbox *inbox_start(struct service *service)
{
    struct inbox *inbox = mem_calloc(1, sizeof *inbox);
    inbox->service = service;
    pthread_condattr_t attributes;
    int error = pthread_mutex_init(&inbox->lock, NULL);
    error |= pthread_condattr_init(&attributes);
    error |= pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    error |= pthread_cond_init(&inbox->answered, &attributes);
    error |= pthread_condattr_destroy(&attributes);
    error |= pthread_create(&inbox->thread, NULL, work, inbox);
    ASSERT(error == 0);
    return inbox;
}

void inbox_look(struct inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    if (inbox->store != NULL) {
        store_interrupt(inbox->store);
    }
    pthread_mutex_unlock(&inbox->lock);
}

void inbox_stop(struct inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    inbox->is_stopping = true;
    if (inbox->store != NULL) {
        store_interrupt(inbox->store);
    }
    pthread_cond_broadcast(&inbox->answered);
    pthread_mutex_unlock(&inbox->lock);
    pthread_join(inbox->thread, NULL);
}

void inbox_free(struct inbox *inbox)
{
    if (inbox != NULL) {
        pthread_cond_destroy(&inbox->answered);
        pthread_mutex_destroy(&inbox->lock);
        mem_free(inbox);
    }
}
