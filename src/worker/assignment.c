/*
 * An attempt from its assignment: everything that the executor will want is copied into one block.
 *
 * The fragment is the exception. It is the same for all tasks of a stage, so attempts share one copy, and it may come
 * without its text if this worker has it. What is wrong with it is noticed here and told where it belongs: one that is not
 * known makes the attempt go back at once, one that is not what its digest says makes the attempt fail.
 */
#include <stdalign.h>
#include <string.h>

#include "base/mem.h"
#include "worker/worker_internal.h"

static const char *missing_op(const struct worker *worker, const struct pb_task_assignment *from)
{
    for (size_t i = 0; i < from->n_required_custom_ops; i++) {
        bool is_here = false;
        for (uint32_t o = 0; o < worker->n_ops && !is_here; o++) {
            is_here = strcmp(worker->ops[o], from->required_custom_ops[i]) == 0;
        }
        if (!is_here) {
            return from->required_custom_ops[i];
        }
    }
    return NULL;
}

/* ---- the block behind the struct: sources, their partitions, texts ---- */

/* Copies a text, with a NUL, to `*at` and moves that on. */
static const char *put(char **at, const void *text, size_t n)
{
    char *copy = *at;
    if (n > 0) {
        memcpy(copy, text, n);
    }
    copy[n] = '\0';
    *at += n + 1;
    return copy;
}

static const char *put_text(char **at, const char *text)
{
    return put(at, text, strlen(text));
}

/* What the parts of the block take. */
struct sizes {
    size_t sources;
    size_t partitions;
    size_t texts;
};

/* No padding between the parts: structs first, texts last. */
static_assert(alignof(struct exec_source) <= alignof(struct attempt), "sources follow the attempt");
static_assert(sizeof(struct attempt) % alignof(struct exec_source) == 0, "sources follow the attempt");
static_assert(alignof(struct exec_partition) <= alignof(struct exec_source), "partitions follow the sources");

static struct sizes measure(const struct pb_task_assignment *from, const char *op)
{
    struct sizes sizes = {.sources = from->n_sources * sizeof(struct exec_source)};
    const char *texts[] = {from->query_id, from->executor, from->name, from->idempotency_key, from->task_key, op};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        sizes.texts += strlen(texts[i]) + 1;
    }
    for (size_t i = 0; i < from->n_sources; i++) {
        const struct pb_map_output_location *source = from->sources[i];
        sizes.partitions += source->n_partitions * sizeof(struct exec_partition);
        sizes.texts += strlen(source->worker_id) + 1 + strlen(source->address) + 1;
    }
    if (from->fragment.len == 0) {
        sizes.texts += from->plan_fragment_json.len + 1;
    }
    return sizes;
}

static void put_partitions(struct exec_partition *out, const struct pb_map_output_location *from)
{
    for (size_t i = 0; i < from->n_partitions; i++) {
        const struct pb_map_output_partition *partition = from->partitions[i];
        out[i] = (struct exec_partition){.number = partition->reduce_partition,
                                         .bytes = partition->bytes,
                                         .rows = partition->rows,
                                         .batches = partition->batches,
                                         .checksum = partition->checksum};
    }
}

static void put_sources(struct exec_source *out, struct exec_partition *partitions, char **texts,
                        const struct pb_task_assignment *from)
{
    for (size_t i = 0; i < from->n_sources; i++) {
        const struct pb_map_output_location *source = from->sources[i];
        put_partitions(partitions, source);
        out[i] = (struct exec_source){.stage = source->ref->stage_id,
                                      .task = source->ref->task_id,
                                      .attempt = source->ref->attempt,
                                      .worker_id = put_text(texts, source->worker_id),
                                      .address = put_text(texts, source->address),
                                      .partitions = partitions,
                                      .n_partitions = (uint32_t)source->n_partitions};
        partitions += source->n_partitions;
    }
}

/* ---- the fragment ---- */

static void take_fragment(struct worker *worker, struct attempt *attempt, const struct pb_task_assignment *from)
{
    const ProtobufCBinaryData *text = &from->plan_fragment_json;
    uint8_t digest[SHA256_BYTES];
    bool is_digest = from->fragment.len == SHA256_BYTES;
    if (is_digest && text->len > 0) {
        sha256_once(text->data, text->len, digest);
    }
    if (!is_digest || (text->len > 0 && memcmp(digest, from->fragment.data, SHA256_BYTES) != 0)) {
        attempt->is_fragment_wrong = true;
        return;
    }
    attempt->fragment = text->len > 0 ? fragments_put(&worker->fragments, digest, text->data, text->len)
                                      : fragments_take(&worker->fragments, from->fragment.data);
    attempt->is_fragment_missing = attempt->fragment == NULL;
    attempt->inputs = attempt->fragment == NULL ? "" : attempt->fragment->text;
    attempt->n_inputs = attempt->fragment == NULL ? 0 : attempt->fragment->n;
}

struct attempt *worker__attempt_new(struct worker *worker, const struct pb_task_assignment *from)
{
    const char *op = missing_op(worker, from);
    struct sizes sizes = measure(from, op == NULL ? "" : op);
    struct attempt *attempt = mem_alloc(sizeof(struct attempt) + sizes.sources + sizes.partitions + sizes.texts);
    struct exec_source *sources = (struct exec_source *)(attempt + 1);
    struct exec_partition *partitions = (struct exec_partition *)(sources + from->n_sources);
    char *at = (char *)partitions + sizes.partitions;
    *attempt = (struct attempt){.stage = from->stage_id,
                                .task = from->task_id,
                                .attempt = from->attempt,
                                .lease_ms = from->lease_ms,
                                .timeout_ms = from->timeout_ms,
                                .is_exclusive = from->exclusive,
                                .sources = sources,
                                .n_sources = (uint32_t)from->n_sources,
                                .inputs = ""};
    ASSERT(from->lease_token.len == TOKEN_BYTES);
    memcpy(attempt->token, from->lease_token.data, TOKEN_BYTES);
    attempt->job_id = put_text(&at, from->query_id);
    attempt->executor = put_text(&at, from->executor);
    attempt->name = put_text(&at, from->name);
    attempt->idempotency_key = put_text(&at, from->idempotency_key);
    attempt->task_key = put_text(&at, from->task_key);
    const char *missing = put_text(&at, op == NULL ? "" : op);
    attempt->missing_op = op == NULL ? NULL : missing;
    put_sources(sources, partitions, &at, from);
    if (from->fragment.len > 0) {
        take_fragment(worker, attempt, from);
    } else {
        attempt->n_inputs = from->plan_fragment_json.len;
        attempt->inputs = put(&at, from->plan_fragment_json.data, from->plan_fragment_json.len);
    }
    attempt->stop = exec_stop_new();
    return attempt;
}

void worker__attempt_free(struct attempt *attempt)
{
    if (attempt == NULL) {
        return;
    }
    fragment_give_back(attempt->fragment);
    exec_stop_free(attempt->stop);
    exec_outcome_deinit(&attempt->outcome);
    mem_free(attempt);
}
