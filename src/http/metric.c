#include "http/metric.h"

#include "base/json.h"

void metric_family(struct buf *out, const char *name, enum metric_kind kind, const char *help)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    buf_format(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kinds[kind]);
}

void metric_value(struct buf *out, const char *name, const char *labels, double value)
{
    buf_text(out, name);
    if (labels != NULL) {
        buf_format(out, "{%s}", labels);
    }
    buf_char(out, ' ');
    json_write_number(out, value);
    buf_char(out, '\n');
}
