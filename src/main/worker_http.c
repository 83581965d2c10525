#include "main/worker_http.h"

#include <sys/statvfs.h>

#include "base/json.h"
#include "http/http.h"
#include "http/metric.h"
#include "main/worker_parts.h"
#include "worker/worker.h"

static void serve_health(void *context, struct http_request *request, struct http_answer *answer)
{
    const struct worker_http *http = context;
    struct worker_stats stats;
    UNUSED(request);
    worker_stats(http->worker, &stats);
    answer->type = "application/json";
    answer->status = stats.is_draining ? 503 : 200;
    buf_format(&answer->body, "{\"status\":\"%s\",\"registered\":%s,\"slots\":%u,\"busy\":%u,\"leader\":",
               stats.is_draining ? "draining" : "ok", stats.is_registered ? "true" : "false", stats.slots, stats.busy);
    if (stats.is_accepted) {
        json_write_text(&answer->body, stats.leader);
    } else {
        buf_text(&answer->body, "null");
    }
    buf_text(&answer->body, "}\n");
}

static void write_slots(struct buf *out, const struct worker_stats *stats)
{
    uint32_t busy = stats->busy < stats->slots ? stats->busy : stats->slots;
    metric_family(out, "capstan_worker_slots", METRIC_GAUGE, "Slots by state.");
    metric_value(out, "capstan_worker_slots", "state=\"busy\"", busy);
    metric_value(out, "capstan_worker_slots", "state=\"free\"", stats->slots - busy);
}

static void write_attempts(struct buf *out, const struct worker_stats *stats)
{
    metric_family(out, "capstan_task_attempts_total", METRIC_COUNTER, "Attempts that ended on this worker.");
    metric_value(out, "capstan_task_attempts_total", "outcome=\"completed\"", (double)stats->succeeded_total);
    metric_value(out, "capstan_task_attempts_total", "outcome=\"failed\"", (double)stats->failed_total);
    metric_value(out, "capstan_task_attempts_total", "outcome=\"released\"", (double)stats->released_total);
    metric_value(out, "capstan_task_attempts_total", "outcome=\"stopped\"", (double)stats->stopped_total);
}

static void write_shuffle(struct buf *out, const struct worker_stats *stats, struct worker_parts *parts)
{
    metric_family(
        out, "capstan_shuffle_bytes_total", METRIC_COUNTER,
        "Bytes of map outputs and results that were fetched from other workers (in), or from this one (out).");
    metric_value(out, "capstan_shuffle_bytes_total", "direction=\"in\"",
                 (double)exchange_channels_bytes(parts->channels));
    metric_value(out, "capstan_shuffle_bytes_total", "direction=\"out\"", (double)stats->shuffle_sent_bytes);
    metric_family(out, "capstan_shuffle_memory_bytes", METRIC_GAUGE, "Bytes of outputs that are kept in memory.");
    metric_value(out, "capstan_shuffle_memory_bytes", NULL, (double)stats->shuffle_memory_bytes);
    metric_family(out, "capstan_shuffle_file_bytes", METRIC_GAUGE, "Bytes of outputs that are kept in files.");
    metric_value(out, "capstan_shuffle_file_bytes", NULL, (double)stats->shuffle_file_bytes);
    metric_family(out, "capstan_shuffle_work_seconds_total", METRIC_COUNTER,
                  "Time in which tasks wrote rows for other tasks (out), or waited for such rows and took them (in).");
    metric_value(out, "capstan_shuffle_work_seconds_total", "direction=\"in\"",
                 (double)exchange_store_work_us(parts->store, EXCHANGE_TAKING) / 1e6);
    metric_value(out, "capstan_shuffle_work_seconds_total", "direction=\"out\"",
                 (double)exchange_store_work_us(parts->store, EXCHANGE_WRITING) / 1e6);
    metric_family(out, "capstan_shuffle_fetch_seconds", METRIC_HISTOGRAM,
                  "Time to fetch a piece of rows from another worker.");
    metric_histogram(out, "capstan_shuffle_fetch_seconds", &parts->fetch_seconds);
}

static void write_disk(struct buf *out, const char *folder)
{
    struct statvfs disk;
    if (statvfs(folder, &disk) == 0) {
        metric_family(out, "capstan_worker_disk_free_bytes", METRIC_GAUGE,
                      "Bytes that are free on the disk of the data folder.");
        metric_value(out, "capstan_worker_disk_free_bytes", NULL, (double)disk.f_bavail * (double)disk.f_frsize);
    }
}

static void serve_metrics(void *context, struct http_request *request, struct http_answer *answer)
{
    const struct worker_http *http = context;
    struct worker_stats stats;
    UNUSED(request);
    worker_stats(http->worker, &stats);
    answer->type = METRIC_TYPE;
    write_slots(&answer->body, &stats);
    write_attempts(&answer->body, &stats);
    write_shuffle(&answer->body, &stats, http->parts);
    write_disk(&answer->body, http->folder);
    metric_family(&answer->body, "capstan_stale_reports_total", METRIC_COUNTER, "Reports that were not accepted.");
    metric_value(&answer->body, "capstan_stale_reports_total", NULL, (double)stats.refused_total);
    metric_family(&answer->body, "capstan_worker_unreported", METRIC_GAUGE,
                  "Attempts that ended and whose report no coordinator has answered.");
    metric_value(&answer->body, "capstan_worker_unreported", NULL, stats.unreported);
    metric_family(&answer->body, "capstan_worker_heartbeats_total", METRIC_COUNTER, "Heartbeats by outcome.");
    metric_value(&answer->body, "capstan_worker_heartbeats_total", "outcome=\"accepted\"", (double)stats.beats_total);
    metric_value(&answer->body, "capstan_worker_heartbeats_total", "outcome=\"missed\"",
                 (double)stats.missed_beats_total);
    metric_family(&answer->body, "capstan_worker_registered", METRIC_GAUGE, "1 while a coordinator knows this worker.");
    metric_value(&answer->body, "capstan_worker_registered", NULL, stats.is_registered ? 1 : 0);
}

static const struct http_route routes[] = {
    {"GET", "/healthz", serve_health},
    {"GET", "/metrics", serve_metrics},
};

enum err worker_http_open(const struct worker_http *context, const char *listen, struct http_server **out,
                          struct error *e)
{
    struct http_server_options options = {
        .listen = listen, .routes = routes, .n_routes = ARRAY_LEN(routes), .context = (void *)context};
    return http_server_open(&options, out, e);
}
