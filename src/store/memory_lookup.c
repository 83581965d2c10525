/* Several things at once, and what can be told at a glance. */
#include "store/memory_internal.h"

static struct found_bytes find_payload(const struct database *db, const char *job_id, struct value digest,
                                       struct arena *arena)
{
    struct value key[] = {memory__text(job_id), digest};
    const struct record *record = memory_table_find(&db->tables[TABLE_PAYLOADS], key);
    if (record == NULL) {
        return (struct found_bytes){NULL, 0};
    }
    const struct value *bytes = &record->values[2];
    return (struct found_bytes){bytes->n == 0 ? "" : arena_copy(arena, bytes->bytes, bytes->n), bytes->n};
}

enum err memory__payloads(struct store *store, const char *job_id, const struct digest *digests, uint32_t n,
                          struct arena *arena, struct found_bytes *out, struct error *e)
{
    struct database *db;
    enum err err = memory__enter(store, &db, e);
    if (err != ERR_OK) {
        return err;
    }
    for (uint32_t i = 0; i < n; i++) {
        out[i] = find_payload(db, job_id, memory__bytes(&digests[i], sizeof digests[i]), arena);
    }
    return memory__leave(ERR_OK);
}

const char *memory__stage_name(const struct database *db, const struct record *task, struct arena *arena)
{
    const struct record *stage = memory_table_find(&db->tables[ROW_STAGE], task->values);
    const struct value *name = stage == NULL ? NULL : &stage->values[memory__column(ROW_STAGE, "name")];
    return name == NULL || name->type == VALUE_IS_NULL ? NULL : arena_strdup(arena, name->bytes);
}

static struct task_result result_of(const struct database *db, const struct record *task, struct arena *arena)
{
    struct task_result found = {
        .stage = (uint32_t)task->values[1].number,
        .name = memory__stage_name(db, task, arena),
        .state = (enum task_state)memory__number(task, ROW_TASK, "state"),
        .is_found = true,
    };
    const struct value *digest = &task->values[memory__column(ROW_TASK, "result")];
    if (digest->type != VALUE_IS_NULL) {
        found.result = find_payload(db, task->values[0].bytes, *digest, arena);
    }
    return found;
}

enum err memory__results(struct store *store, const char *job_id, const uint32_t *stages, uint32_t n,
                         struct arena *arena, struct task_result *out, struct error *e)
{
    struct database *db;
    enum err err = memory__enter(store, &db, e);
    if (err != ERR_OK) {
        return err;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct value key[] = {memory__text(job_id), memory__int(stages[i]), memory__int(0)};
        const struct record *task = memory_table_find(&db->tables[ROW_TASK], key);
        out[i] = task == NULL ? (struct task_result){.stage = stages[i]} : result_of(db, task, arena);
    }
    return memory__leave(ERR_OK);
}

enum err memory__task_results(struct store *store, const char *job_id, int64_t after_stage, uint32_t limit,
                              struct arena *arena, const struct task_result **out, uint32_t *out_n, struct error *e)
{
    struct database *db;
    enum err err = memory__enter(store, &db, e);
    if (err != ERR_OK) {
        return err;
    }
    const struct memory_table *tasks = &db->tables[ROW_TASK];
    struct value job = memory__text(job_id);
    uint32_t n = 0;
    for (int pass = 0; pass < 2; pass++) { /* the first counts */
        struct task_result *found = pass == 0 ? NULL : arena_alloc(arena, n * sizeof *found);
        n = 0;
        for (uint32_t i = memory_table_from(tasks, &job, 1); memory_table_at(tasks, i, &job, 1) && n < limit; i++) {
            const struct record *task = tasks->by_key.items[i];
            if (task->values[1].number <= after_stage || task->values[2].number != 0) {
                continue;
            }
            if (found != NULL) {
                found[n] = result_of(db, task, arena);
            }
            n++;
        }
        *out = found;
    }
    *out_n = n;
    return memory__leave(ERR_OK);
}

enum err memory__known_jobs(struct store *store, const char *const *job_ids, uint32_t n, bool *out_known,
                            struct error *e)
{
    struct database *db;
    enum err err = memory__enter(store, &db, e);
    if (err != ERR_OK) {
        return err;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct value key = memory__text(job_ids[i]);
        out_known[i] = memory_table_find(&db->tables[ROW_JOB], &key) != NULL;
    }
    return memory__leave(ERR_OK);
}

enum err memory__summarize(struct store *store, struct store_summary *out, struct error *e)
{
    struct database *db;
    enum err err = memory__enter(store, &db, e);
    if (err != ERR_OK) {
        return err;
    }
    const struct memory_order *jobs = &db->tables[ROW_JOB].by_key;
    const struct memory_order *events = &db->tables[ROW_EVENT].by_key;
    *out = (struct store_summary){
        .nodes = db->tables[ROW_NODE].by_key.n,
        .inbox = db->tables[TABLE_INBOX].by_key.n,
        .last_event_seq = events->n == 0 ? 0 : (uint64_t)events->items[events->n - 1]->values[0].number,
    };
    for (uint32_t i = 0; i < jobs->n; i++) {
        int64_t state = memory__number(jobs->items[i], ROW_JOB, "state");
        out->queued_jobs += state == JOB_QUEUED && out->queued_jobs < STORE_SUMMARY_MAX;
        out->running_jobs += state == JOB_RUNNING && out->running_jobs < STORE_SUMMARY_MAX;
    }
    return memory__leave(ERR_OK);
}
