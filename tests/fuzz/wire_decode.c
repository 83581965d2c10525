/*
 * wire_decode.c - any bytes as any message: the first byte chooses the kind, the rest are the message.
 *
 * Promises: a message that decodes encodes to bytes that decode again, and these encode to the same bytes. What scan.c
 * lets pass, protobuf-c can read. A request that decodes becomes a command, or is refused with a text.
 */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "fuzz/fuzz.h"
#include "wire/command.h"
#include "wire/message.h"
#include "wire/reply.h"

static void must(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* A refusal has a code for the peer, and a text that says what is wrong. */
static void must_be_refusal(enum err err, const struct error *e)
{
    must(err == ERR_INVALID || err == ERR_EXHAUSTED);
    must(e->code == err);
    must(e->message[0] != '\0');
}

/* Conversions, by the kind of the request. Each returns what it said. */

typedef enum err convert_fn(const void *message, struct arena *arena, struct error *e);

#define CONVERT(name, request, command)                                                                                \
    static enum err convert_##name(const void *message, struct arena *arena, struct error *e)                          \
    {                                                                                                                  \
        struct command out;                                                                                            \
        const struct request *m = message;                                                                             \
        return wire_##name(m, arena, &out, e);                                                                         \
    }

CONVERT(register, pb_register_worker_request, cmd_register)
CONVERT(heartbeat, pb_heartbeat_request, cmd_heartbeat)
CONVERT(deregister, pb_deregister_worker_request, cmd_deregister)
CONVERT(get_task, pb_get_task_request, cmd_get_task)
CONVERT(map_output, pb_register_map_output_request, cmd_map_output)
CONVERT(results, pb_register_query_results_request, cmd_results)
CONVERT(cancel, pb_cancel_query_request, cmd_cancel)
CONVERT(retry, pb_retry_job_request, cmd_retry)
CONVERT(set_node, pb_set_node_request, cmd_set_node)
CONVERT(node_filter, pb_list_nodes_request, node_filter)

static enum err convert_report(const void *message, struct arena *arena, struct error *e)
{
    const struct pb_report_task_status_request *m = message;
    struct cmd_report out;
    const struct wire_bytes *results;
    enum err err = wire_report(m, arena, &out, &results, e);
    for (uint32_t i = 0; err == ERR_OK && i < out.n_reports; i++) {
        must(results[i].n == out.reports[i].result_bytes);
        must(!lease_token_is_none(out.reports[i].ref.token));
    }
    return err;
}

/* An attempt's name comes back as it was. */
static enum err convert_ref(const void *message, struct arena *arena, struct error *e)
{
    const struct pb_attempt_ref *m = message;
    struct attempt_ref ref;
    enum err err = wire_ref(m, &ref, e);
    if (err == ERR_OK) {
        const struct pb_attempt_ref *back = wire_ref_message(&ref, arena);
        must(back->stage_id == m->stage_id && back->task_id == m->task_id && back->attempt == m->attempt);
        must(back->lease_token.len == m->lease_token.len);
        must(m->lease_token.len == 0 || memcmp(back->lease_token.data, m->lease_token.data, m->lease_token.len) == 0);
    }
    return err;
}

static enum err convert_list_tasks(const void *message, struct arena *arena, struct error *e)
{
    (void)arena;
    enum task_state state;
    return wire_task_state_word(((const struct pb_list_tasks_request *)message)->state, &state, e);
}

static convert_fn *const conversions[PB_KIND_COUNT] = {
    [PB_ATTEMPT_REF] = convert_ref,
    [PB_REGISTER_WORKER_REQUEST] = convert_register,
    [PB_HEARTBEAT_REQUEST] = convert_heartbeat,
    [PB_DEREGISTER_WORKER_REQUEST] = convert_deregister,
    [PB_GET_TASK_REQUEST] = convert_get_task,
    [PB_REPORT_TASK_STATUS_REQUEST] = convert_report,
    [PB_REGISTER_MAP_OUTPUT_REQUEST] = convert_map_output,
    [PB_REGISTER_QUERY_RESULTS_REQUEST] = convert_results,
    [PB_CANCEL_QUERY_REQUEST] = convert_cancel,
    [PB_RETRY_JOB_REQUEST] = convert_retry,
    [PB_SET_NODE_REQUEST] = convert_set_node,
    [PB_LIST_NODES_REQUEST] = convert_node_filter,
    [PB_LIST_TASKS_REQUEST] = convert_list_tasks,
};

static void encode_again(enum pb_kind kind, const void *message, struct arena *arena)
{
    struct buf first = {0};
    struct buf second = {0};
    void *again = NULL;
    wire_encode(message, &first);
    must(wire_decode(kind, first.data, first.n, arena, &again, NULL) == ERR_OK);
    wire_encode(again, &second);
    must(first.n == second.n);
    must(first.n == 0 || memcmp(first.data, second.data, first.n) == 0);
    buf_deinit(&first);
    buf_deinit(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n == 0) {
        return 0;
    }
    enum pb_kind kind = (enum pb_kind)(bytes[0] % PB_KIND_COUNT);
    struct arena arena = {0};
    struct error e = {0};
    void *message = NULL;
    enum err err = wire_decode(kind, bytes + 1, n - 1, &arena, &message, &e);
    if (err != ERR_OK) {
        must_be_refusal(err, &e);
        must(message == NULL);
    } else {
        encode_again(kind, message, &arena);
        if (conversions[kind] != NULL) {
            err = conversions[kind](message, &arena, &e);
            if (err != ERR_OK) {
                must_be_refusal(err, &e);
            }
        }
    }
    arena_deinit(&arena);
    return 0;
}
