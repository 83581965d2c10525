#include "main/bench_tree.h"

#include <inttypes.h>

void bench_write_tree(struct buf *out, uint64_t n)
{
    buf_text(out, "{\"name\":\"bench\",\"tasks\":[");
    for (uint64_t i = 0; i < n; i++) {
        buf_format(out, "%s{\"name\":\"t%" PRIu64 "\",\"executor\":\"sleep\",\"inputs\":{\"ms\":0}}", i > 0 ? "," : "",
                   i);
    }
    buf_text(out, "]}");
}

enum err bench_submit_tree(const struct bench *bench, struct client *client, const char *job_id, const struct buf *tree,
                           struct error *e)
{
    struct arena arena = {0};
    struct pb_submit_tasks_request *request = wire_new(PB_SUBMIT_TASKS_REQUEST, &arena);
    struct pb_submit_tasks_response *response = NULL;
    request->job_id = (char *)job_id;
    request->tree_json.data = (uint8_t *)tree->data;
    request->tree_json.len = tree->n;
    struct client_call call = {.path = "/capstan.v1.ControlPlane/SubmitTasks",
                               .message = request,
                               .answer = PB_SUBMIT_TASKS_RESPONSE,
                               .cancel = interrupt_cancel(bench->interrupt)};
    enum err err = client_call(client, &call, &arena, &response, e);
    arena_deinit(&arena);
    return err;
}
