#include "coordinator/board.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/siphash.h"

/* An attempt of which there is something to tell. */
struct told {
    uint64_t job_hash;
    char job_id[LIMIT_ID_BYTES + 1];
    uint32_t stage;
    uint32_t task;
    uint32_t attempt;
    double fraction;
    uint64_t rows;
    uint64_t bytes;
};

/* What one worker said last. */
struct teller {
    char worker_id[LIMIT_ID_BYTES + 1];
    uint64_t hash;
    int64_t at_mono_ms;
    struct told *told;
    uint32_t n;
    uint32_t cap;
};

struct board {
    int64_t ttl_ms;
    struct siphash_key key; /* ids come from others */
    pthread_mutex_t mutex;  /* guards what follows */
    struct map tellers;
    int64_t swept_mono_ms;
};

struct board *board_new(int64_t ttl_ms)
{
    struct board *board = mem_calloc(1, sizeof *board);
    board->ttl_ms = ttl_ms;
    random_bytes(&board->key, sizeof board->key);
    pthread_mutex_init(&board->mutex, NULL);
    return board;
}

static void teller_free(struct teller *teller)
{
    mem_free(teller->told);
    mem_free(teller);
}

void board_free(struct board *board)
{
    if (board == NULL) {
        return;
    }
    size_t cursor = 0;
    for (struct teller *teller; (teller = map_next(&board->tellers, &cursor)) != NULL;) {
        teller_free(teller);
    }
    map_deinit(&board->tellers);
    pthread_mutex_destroy(&board->mutex);
    mem_free(board);
}

static uint64_t hash_of(const struct board *board, const char *text)
{
    return siphash(&board->key, text, strlen(text));
}

static bool is_teller(const void *value, const void *key)
{
    return strcmp(((const struct teller *)value)->worker_id, key) == 0;
}

/* Workers that have gone take their last words with them. Looks at all of them, hence seldom. */
static void sweep(struct board *board, int64_t now_mono_ms)
{
    if (now_mono_ms - board->swept_mono_ms < board->ttl_ms) {
        return;
    }
    board->swept_mono_ms = now_mono_ms;
    struct teller **gone = mem_calloc(board->tellers.count + 1, sizeof *gone);
    uint32_t n = 0;
    size_t cursor = 0;
    for (struct teller *teller; (teller = map_next(&board->tellers, &cursor)) != NULL;) {
        if (now_mono_ms - teller->at_mono_ms >= board->ttl_ms) {
            gone[n++] = teller;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        map_take_value(&board->tellers, gone[i]->hash, gone[i]);
        teller_free(gone[i]);
    }
    mem_free(gone);
}

static void tell(const struct board *board, struct teller *teller, const struct pb_attempt_progress *said)
{
    if (said->ref == NULL || said->ref->stage_id > UINT32_MAX || said->ref->task_id > UINT32_MAX ||
        strlen(said->ref->query_id) > LIMIT_ID_BYTES) {
        return;
    }
    teller->told = mem_grow(teller->told, &teller->cap, teller->n + 1, sizeof *teller->told);
    struct told *told = &teller->told[teller->n++];
    *told = (struct told){.job_hash = hash_of(board, said->ref->query_id),
                          .stage = (uint32_t)said->ref->stage_id,
                          .task = (uint32_t)said->ref->task_id,
                          .attempt = said->ref->attempt,
                          .fraction = said->fraction,
                          .rows = said->rows,
                          .bytes = said->bytes};
    snprintf(told->job_id, sizeof told->job_id, "%s", said->ref->query_id);
}

void board_take(struct board *board, const struct pb_heartbeat_request *beat, int64_t now_mono_ms)
{
    uint64_t hash = hash_of(board, beat->worker_id);
    pthread_mutex_lock(&board->mutex);
    struct teller *teller = map_get(&board->tellers, hash, is_teller, beat->worker_id);
    if (teller == NULL && beat->n_progress > 0 && strlen(beat->worker_id) <= LIMIT_ID_BYTES) {
        teller = mem_calloc(1, sizeof *teller);
        teller->hash = hash;
        snprintf(teller->worker_id, sizeof teller->worker_id, "%s", beat->worker_id);
        map_put(&board->tellers, hash, teller);
    }
    if (teller != NULL) {
        teller->at_mono_ms = now_mono_ms;
        teller->n = 0;
        for (size_t i = 0; i < beat->n_progress; i++) {
            tell(board, teller, beat->progress[i]);
        }
    }
    sweep(board, now_mono_ms);
    pthread_mutex_unlock(&board->mutex);
}

/* Whether this attempt runs on that worker; else its rows are counted as those of its task, or not at all. */
static bool is_current(const struct core *core, const struct teller *teller, const struct told *told)
{
    struct task_ref ref = {.job_id = told->job_id, .stage = told->stage, .task = told->task};
    struct task_status task;
    return core_task_status(core, ref, &task) == ERR_OK && task.state == TASK_RUNNING &&
           task.attempt == told->attempt && task.worker_id != NULL && strcmp(task.worker_id, teller->worker_id) == 0;
}

static void add_told(struct pb_query_status *status, const struct told *told)
{
    for (size_t i = 0; i < status->n_stages; i++) {
        struct pb_stage_status *stage = status->stages[i];
        if (stage->stage_id == told->stage && stage->tasks > 0) {
            double fraction = stage->fraction + told->fraction / stage->tasks;
            stage->rows += told->rows;
            stage->bytes += told->bytes;
            stage->fraction = fraction < 1 ? fraction : 1;
        }
    }
}

void board_add(struct board *board, const struct core *core, struct pb_query_status *status)
{
    uint64_t hash = hash_of(board, status->query_id);
    size_t cursor = 0;
    pthread_mutex_lock(&board->mutex);
    for (const struct teller *teller; (teller = map_next(&board->tellers, &cursor)) != NULL;) {
        for (uint32_t i = 0; i < teller->n; i++) {
            const struct told *told = &teller->told[i];
            if (told->job_hash == hash && strcmp(told->job_id, status->query_id) == 0 &&
                is_current(core, teller, told)) {
                add_told(status, told);
            }
        }
    }
    pthread_mutex_unlock(&board->mutex);
}
