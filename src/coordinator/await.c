#include "coordinator/await.h"

#include <string.h>

#include "base/mem.h"
#include "base/siphash.h"

/* Everyone who waits for one job. */
struct await_job {
    struct list requests;
    char job_id[];
};

static bool is_job(const void *value, const void *key)
{
    const struct await_job *job = value;
    return strcmp(job->job_id, key) == 0;
}

/* Job ids that are waited for exist; a fixed key is good enough for the few there are. */
static uint64_t hash(const char *job_id)
{
    static const struct siphash_key key = {0x6177616974, 0x6a6f6273};
    return siphash(&key, job_id, strlen(job_id));
}

void await_add(struct await *await, struct request *request)
{
    const char *job_id = request->await_job;
    struct await_job *job = map_get(&await->jobs, hash(job_id), is_job, job_id);
    if (job == NULL) {
        size_t n = strlen(job_id) + 1;
        job = mem_alloc(sizeof *job + n);
        memcpy(job->job_id, job_id, n);
        list_init(&job->requests);
        map_put(&await->jobs, hash(job_id), job);
    }
    list_push_back(&job->requests, &request->in_list);
    heap_set(&await->timers, &request->await_timer, request->await_until_mono_ms);
}

static void take(struct await *await, struct await_job *job, struct list *out)
{
    for (struct list *first; (first = list_first(&job->requests)) != NULL;) {
        struct request *request = CONTAINER_OF(first, struct request, in_list);
        list_remove(first);
        heap_remove(&await->timers, &request->await_timer);
        list_push_back(out, first);
    }
    mem_free(job);
}

void await_take_job(struct await *await, const char *job_id, struct list *out)
{
    struct await_job *job = map_take(&await->jobs, hash(job_id), is_job, job_id);
    if (job != NULL) {
        take(await, job, out);
    }
}

void await_take_due(struct await *await, int64_t now_mono_ms, struct list *out)
{
    for (struct heap_node *node; (node = heap_min(&await->timers)) != NULL && node->key <= now_mono_ms;) {
        struct request *request = CONTAINER_OF(node, struct request, await_timer);
        heap_remove(&await->timers, node);
        list_remove(&request->in_list);
        list_push_back(out, &request->in_list);
        struct await_job *job = map_get(&await->jobs, hash(request->await_job), is_job, request->await_job);
        if (list_is_empty(&job->requests)) {
            mem_free(map_take_value(&await->jobs, hash(job->job_id), job));
        }
    }
}

void await_take_all(struct await *await, struct list *out)
{
    size_t cursor = 0;
    for (struct await_job *job; (job = map_next(&await->jobs, &cursor)) != NULL;) {
        take(await, job, out);
    }
    map_deinit(&await->jobs);
}

int64_t await_next_mono_ms(const struct await *await)
{
    const struct heap_node *node = heap_min(&await->timers);
    return node == NULL ? INT64_MAX : node->key;
}

void await_deinit(struct await *await)
{
    ASSERT(await->timers.count == 0);
    map_deinit(&await->jobs);
    heap_deinit(&await->timers);
}
