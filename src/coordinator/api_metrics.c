/* What machines ask: metrics and health. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "coordinator/api_internal.h"
#include "coordinator/observer.h"
#include "exchange/channels.h"
#include "http/metric.h"

/* ---- metrics ---- */

/* What only the leader's scheduler knows. */
struct scheduler_view {
    struct api *api;
    struct http_request *http;
    struct core_stats stats;
    uint64_t slots;
    uint64_t slots_busy;
    bool is_known;
};

static void read_scheduler(const struct core *core, struct request *request)
{
    struct scheduler_view *view = request->context;
    struct node_filter all = {0};
    struct node_info node;
    size_t cursor = 0;
    view->stats = core_stats(core);
    while (core_next_node(core, &all, &cursor, &node)) {
        if (node.status == NODE_HEALTHY) {
            view->slots += node.slots;
            view->slots_busy += node.running < node.slots ? node.running : node.slots;
        }
    }
    view->is_known = true;
}

static void write_labeled(struct buf *out, const char *name, const char *label, const char *value, double number)
{
    char labels[128];
    snprintf(labels, sizeof labels, "%s=\"%s\"", label, value);
    metric_value(out, name, labels, number);
}

static void write_jobs(struct buf *out, const struct scheduler_view *view)
{
    struct metrics *metrics = &view->api->service->metrics;
    metric_family(out, "capstan_jobs", METRIC_GAUGE,
                  "Jobs by state; those that have ended: since this process leads or has led.");
    write_labeled(out, "capstan_jobs", "state", "queued", (double)(view->stats.jobs - view->stats.jobs_running));
    write_labeled(out, "capstan_jobs", "state", "running", (double)view->stats.jobs_running);
    write_labeled(out, "capstan_jobs", "state", "succeeded", (double)atomic_load(&metrics->succeeded));
    write_labeled(out, "capstan_jobs", "state", "failed", (double)atomic_load(&metrics->failed));
    write_labeled(out, "capstan_jobs", "state", "canceled", (double)atomic_load(&metrics->canceled));
}

static void write_tasks(struct buf *out, const struct core_stats *stats)
{
    static const enum attempt_outcome outcomes[] = {OUTCOME_COMPLETED, OUTCOME_FAILED, OUTCOME_LOST};
    metric_family(out, "capstan_tasks", METRIC_GAUGE, "Tasks of jobs that have not ended, by state.");
    for (int i = 0; i < TASK_STATE_COUNT; i++) {
        write_labeled(out, "capstan_tasks", "state", task_state_name((enum task_state)i), (double)stats->tasks[i]);
    }
    metric_family(out, "capstan_task_attempts_total", METRIC_COUNTER, "Attempts that have ended, by outcome.");
    for (size_t i = 0; i < ARRAY_LEN(outcomes); i++) {
        write_labeled(out, "capstan_task_attempts_total", "outcome", attempt_outcome_name(outcomes[i]),
                      (double)stats->outcomes_total[outcomes[i]]);
    }
    write_labeled(out, "capstan_task_attempts_total", "outcome", "canceled", (double)stats->canceled_total);
    write_labeled(out, "capstan_task_attempts_total", "outcome", "released", (double)stats->released_total);
    metric_family(out, "capstan_stuck_tasks", METRIC_GAUGE, "Tasks that no live worker can run.");
    metric_value(out, "capstan_stuck_tasks", NULL, (double)stats->stuck_tasks);
    metric_family(out, "capstan_leases", METRIC_GAUGE, "Leases that are held.");
    metric_value(out, "capstan_leases", NULL, (double)stats->leases);
    metric_family(out, "capstan_lease_expired_total", METRIC_COUNTER, "Leases that ran out.");
    metric_value(out, "capstan_lease_expired_total", NULL, (double)stats->lease_expired_total);
}

/* Words for labels: short, and fit for a query of Prometheus. */
static void write_refusals(struct buf *out, const struct core_stats *stats)
{
    static const char *const reasons[] = {
#define REASON(symbol, text) [REFUSE_##symbol] = #symbol,
        REFUSE_TABLE(REASON)
#undef REASON
    };
    metric_family(out, "capstan_stale_reports_total", METRIC_COUNTER, "What workers said and was refused, by reason.");
    for (int i = REFUSE_NONE + 1; i < REFUSE_COUNT; i++) {
        char word[64];
        size_t n = 0;
        for (; reasons[i][n] != '\0' && n + 1 < sizeof word; n++) {
            char c = reasons[i][n];
            word[n] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
        }
        word[n] = '\0';
        write_labeled(out, "capstan_stale_reports_total", "reason", word, (double)stats->refused_total[i]);
    }
}

static void write_nodes(struct buf *out, const struct scheduler_view *view)
{
    static const char *const statuses[] = {[NODE_HEALTHY] = "healthy", [NODE_STALE] = "stale", [NODE_DEAD] = "dead"};
    metric_family(out, "capstan_nodes", METRIC_GAUGE, "Workers by status.");
    for (size_t i = 0; i < ARRAY_LEN(statuses); i++) {
        write_labeled(out, "capstan_nodes", "status", statuses[i], (double)view->stats.nodes[i]);
    }
    metric_family(out, "capstan_worker_slots", METRIC_GAUGE, "Slots of healthy workers by state.");
    write_labeled(out, "capstan_worker_slots", "state", "busy", (double)view->slots_busy);
    write_labeled(out, "capstan_worker_slots", "state", "free", (double)(view->slots - view->slots_busy));
}

static void write_histogram(struct buf *out, const char *name, const char *help, struct metric_histogram *histogram)
{
    metric_family(out, name, METRIC_HISTOGRAM, help);
    metric_histogram(out, name, histogram);
}

/* What every coordinator knows, be it leading or not. */
static void write_own(struct buf *out, struct service *service, bool leads)
{
    struct metrics *metrics = &service->metrics;
    struct coordinator *coordinator = atomic_load(&service->coordinator);
    struct coordinator_stats stats = {0};
    if (coordinator != NULL) {
        stats = coordinator_stats(coordinator);
    }
    metric_family(out, "capstan_leader", METRIC_GAUGE, "1 while this process leads.");
    metric_value(out, "capstan_leader", NULL, leads ? 1 : 0);
    metric_family(out, "capstan_leader_changes_total", METRIC_COUNTER,
                  "How often this process began or ceased to lead.");
    metric_value(out, "capstan_leader_changes_total", NULL, (double)(stats.elected + stats.stepped_down));
    metric_family(out, "capstan_store_errors_total", METRIC_COUNTER, "Calls of the store that failed.");
    metric_value(out, "capstan_store_errors_total", NULL, (double)stats.store_errors);
    metric_family(out, "capstan_prune_errors_total", METRIC_COUNTER,
                  "Attempts to remove old jobs and events that failed.");
    metric_value(out, "capstan_prune_errors_total", NULL, (double)stats.prune_errors);
    write_histogram(out, "capstan_assign_seconds", "From queued to handed to a worker.", &metrics->assign_seconds);
    write_histogram(out, "capstan_commit_seconds", "Time of a commit.", &metrics->commit_seconds);
    write_histogram(out, "capstan_commit_batch_size", "Commands in one commit.", &metrics->commit_batch_size);
    write_histogram(out, "capstan_query_seconds", "From submitted to ended, of queries.", &metrics->query_seconds);
    write_histogram(out, "capstan_shuffle_fetch_seconds", "Time to fetch a piece of rows from a worker.",
                    &metrics->fetch_seconds);
    metric_family(out, "capstan_shuffle_bytes_total", METRIC_COUNTER, "Bytes of rows that came from workers.");
    write_labeled(out, "capstan_shuffle_bytes_total", "direction", "in",
                  (double)exchange_channels_bytes(service->channels));
}

static void answer_metrics(struct request *request, const struct reply *reply, enum err err)
{
    struct scheduler_view *view = request->context;
    struct http_answer answer = {.status = 200, .type = METRIC_TYPE};
    UNUSED(reply);
    UNUSED(err); /* it does not lead, then */
    write_own(&answer.body, view->api->service, view->is_known);
    if (view->is_known) {
        write_jobs(&answer.body, view);
        write_tasks(&answer.body, &view->stats);
        write_refusals(&answer.body, &view->stats);
        write_nodes(&answer.body, view);
    }
    http_request_answer(view->http, &answer);
    mem_free(view);
}

void api__metrics(struct api *api, struct http_request *http, struct http_answer *answer)
{
    struct coordinator *coordinator = atomic_load(&api->service->coordinator);
    if (coordinator == NULL) {
        answer->type = METRIC_TYPE;
        write_own(&answer->body, api->service, false);
        return;
    }
    struct scheduler_view *view = mem_calloc(1, sizeof *view);
    *view = (struct scheduler_view){.api = api, .http = http};
    struct request *request = request_new(answer_metrics, view);
    request->read = read_scheduler;
    http_request_defer(http);
    coordinator_send(coordinator, request);
}

/* ---- health ---- */

static void write_health(struct http_answer *answer, bool is_good, const char *status, const char *leader)
{
    answer->status = is_good ? 200 : 503;
    answer->type = "application/json";
    buf_format(&answer->body, "{\"status\":\"%s\",\"leader\":", status);
    if (leader[0] != '\0') {
        json_write_text(&answer->body, leader);
    } else {
        buf_text(&answer->body, "null");
    }
    buf_text(&answer->body, "}\n");
}

struct role {
    bool leads;
    bool observes; /* and has something to answer from */
    struct leader_news news;
};

static struct role look(struct api *api)
{
    struct coordinator *coordinator = atomic_load(&api->service->coordinator);
    struct role role = {0};
    if (api->service->observer != NULL) {
        role.news = observer_leader(api->service->observer);
        role.observes = observer_check(api->service->observer, NULL) == ERR_OK;
    } else if (coordinator != NULL) {
        role.leads = coordinator_epoch(coordinator) != 0;
        role.news = coordinator_leader(coordinator);
        if (role.news.is_self && !role.leads) {
            role.news = (struct leader_news){0};
        }
    }
    return role;
}

void api__healthz(struct api *api, struct http_request *http, struct http_answer *answer)
{
    struct role role = look(api);
    UNUSED(http);
    write_health(answer, true, "ok", role.news.address);
}

void api__readyz(struct api *api, struct http_request *http, struct http_answer *answer)
{
    struct role role = look(api);
    bool stands_by = api->service->observer == NULL && role.news.address[0] != '\0';
    const char *status = role.leads ? "leads" : role.observes ? "observes" : stands_by ? "stands by" : "not ready";
    UNUSED(http);
    write_health(answer, role.leads || role.observes || stands_by, status, role.news.address);
}

void api__leaderz(struct api *api, struct http_request *http, struct http_answer *answer)
{
    struct role role = look(api);
    UNUSED(http);
    write_health(answer, role.leads, role.leads ? "leads" : "does not lead", role.news.address);
}
