/* How much runs, waits and has gone wrong, in a few numbers. */
#include "coordinator/service_internal.h"
#include "wire/message.h"

static void read_overview(const struct core *core, struct request *request)
{
    struct exchange *exchange = exchange_of(request);
    struct pb_get_overview_response *response = wire_new(PB_GET_OVERVIEW_RESPONSE, &request->arena);
    struct core_stats stats = core_stats(core);
    struct node_filter all = {0};
    struct node_info node;
    size_t cursor = 0;
    response->jobs_queued = stats.jobs - stats.jobs_running;
    response->jobs_running = stats.jobs_running;
    response->tasks_queued = stats.tasks[TASK_QUEUED];
    response->tasks_running = stats.tasks[TASK_RUNNING];
    response->stuck_tasks = stats.stuck_tasks;
    response->leases = stats.leases;
    response->attempts_completed = stats.outcomes_total[OUTCOME_COMPLETED];
    response->attempts_failed = stats.outcomes_total[OUTCOME_FAILED];
    response->attempts_lost = stats.outcomes_total[OUTCOME_LOST];
    response->nodes_healthy = stats.nodes[NODE_HEALTHY];
    response->nodes_stale = stats.nodes[NODE_STALE];
    response->nodes_dead = stats.nodes[NODE_DEAD];
    while (core_next_node(core, &all, &cursor, &node)) {
        if (node.status == NODE_HEALTHY) {
            response->slots += node.slots;
            response->slots_busy += node.running < node.slots ? node.running : node.slots;
        }
    }
    exchange->more = response;
}

static void answer_overview(struct request *request, const struct reply *reply, enum err err)
{
    struct exchange *exchange = exchange_of(request);
    struct pb_get_overview_response *response = exchange->more;
    struct metrics *metrics = &exchange->service->metrics;
    if (exchange_failed(exchange, reply, err)) {
        return;
    }
    response->jobs_succeeded = atomic_load(&metrics->succeeded);
    response->jobs_failed = atomic_load(&metrics->failed);
    response->jobs_canceled = atomic_load(&metrics->canceled);
    exchange_reply(exchange, response);
}

void service__GetOverview(struct exchange *exchange)
{
    exchange->request->read = read_overview;
    exchange_send(exchange, answer_overview);
}
