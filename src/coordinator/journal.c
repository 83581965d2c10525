/*
 * What the coordinator writes into its log of what has become durable: nodes that come and go, tasks that are stuck, jobs
 * that failed. Never what belongs to users: their error messages stay in the store.
 */
#include <string.h>

#include "base/log.h"
#include "coordinator/service_internal.h"

static const char *or_empty(const char *text)
{
    return text != NULL ? text : "";
}

static void note_job(const struct row_event *event)
{
    if (event->type == EVENT_FAILED && event->ref.stage == EVENT_WHOLE_JOB) {
        log_info("job", "job %s failed", event->ref.job_id);
    } else if (event->type == EVENT_STUCK) {
        log_warn("stuck", "job %s, stage %u waits for something that no live worker has: capstan why %s tells what",
                 event->ref.job_id, event->ref.stage, event->ref.job_id);
    }
}

static void note_node(const struct row_event *event)
{
    const char *worker = or_empty(event->worker_id);
    const char *why = or_empty(event->message); /* the scheduler's own words */
    const char *colon = why[0] != '\0' ? ": " : "";
    switch (event->type) {
    case EVENT_JOINED:
        log_info("node", "worker %s has joined%s%s", worker, colon, why);
        break;
    case EVENT_LOST:
        if (strcmp(why, "left") == 0) {
            log_info("node", "worker %s has left", worker);
        } else {
            log_warn("node", "worker %s is lost%s%s", worker, colon, why);
        }
        break;
    case EVENT_BLACKLISTED:
        log_warn("node", "worker %s gets no more tasks for a while, because too many failed on it%s%s", worker, colon,
                 why);
        break;
    case EVENT_CLEARED:
        log_info("node", "worker %s gets tasks again%s%s", worker, colon, why);
        break;
    case EVENT_DRAINING:
        log_info("node", "worker %s is being drained%s%s", worker, colon, why);
        break;
    case EVENT_CREATED:
    case EVENT_PENDING:
    case EVENT_ASSIGNED:
    case EVENT_STARTED:
    case EVENT_COMPLETED:
    case EVENT_FAILED:
    case EVENT_REASSIGNED:
    case EVENT_CANCELLED:
    case EVENT_RETRIED:
    case EVENT_SKIPPED:
    case EVENT_STUCK:
        break;
    }
}

void journal_durable(const struct row *rows)
{
    for (const struct row *row = rows; row != NULL; row = row->next) {
        if (row->kind != ROW_EVENT) {
            continue;
        }
        const struct row_event *event = (const struct row_event *)(const void *)row;
        if (event->ref.job_id != NULL) {
            note_job(event);
        } else {
            note_node(event);
        }
    }
}
