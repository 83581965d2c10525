/* Physical plans as text for people. */
#include "query/explain.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "query/tail.h"

#define INDENT 4

struct explainer {
    struct buf *out;
    const struct physical_plan *plan;
    bool *is_shown; /* by stage */
};

/* A number with few digits, as in 12.3 thousand. */
static void write_quantity(struct buf *out, double number, double step, const char *const *units)
{
    uint32_t unit = 0;
    while (number >= step && units[unit + 1] != NULL) {
        number /= step;
        unit++;
    }
    buf_format(out, number < 10 && unit > 0 ? "%.1f%s" : "%.0f%s", number, units[unit]);
}

static void write_rows(struct buf *out, double rows)
{
    static const char *const units[] = {"", " thousand", " million", " billion", NULL};
    write_quantity(out, rows, 1000, units);
    buf_text(out, rows >= 0.5 && rows < 1.5 ? " row" : " rows");
}

static void write_bytes(struct buf *out, double bytes)
{
    static const char *const units[] = {" B", " KB", " MB", " GB", " TB", NULL};
    write_quantity(out, bytes, 1024, units);
}

static void indent(struct explainer *x, uint32_t depth)
{
    buf_format(x->out, "%*s", (int)(depth * INDENT), "");
}

/* Lines of text, each indented. */
static void write_lines(struct explainer *x, const char *text, uint32_t depth)
{
    while (*text != '\0') {
        size_t n = strcspn(text, "\n");
        indent(x, depth);
        buf_append(x->out, text, n);
        buf_char(x->out, '\n');
        text += text[n] == '\n' ? n + 1 : n;
    }
}

static void write_tasks(struct explainer *x, uint32_t at)
{
    const struct physical_stage *stage = &x->plan->stages[at];
    uint32_t tasks = physical_tasks(x->plan, at);
    buf_format(x->out, "%" PRIu32 " task%s", tasks, tasks == 1 ? "" : "s");
    if (stage->n_splits > 0) {
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < stage->n_splits; i++) {
            bytes += stage->splits[i].bytes;
        }
        buf_text(x->out, " by split, ");
        write_bytes(x->out, (double)bytes);
        buf_text(x->out, " of files");
    } else if (stage->n_groups > 0) {
        buf_text(x->out, " by groups of partitions");
    } else if (tasks > 1) {
        buf_text(x->out, " by partition");
    }
}

static void write_output(struct explainer *x, const struct physical_stage *stage)
{
    const struct physical_output *output = &stage->output;
    buf_format(x->out, "; %s", exchange_name(output->exchange));
    for (uint32_t i = 0; i < output->n_keys; i++) {
        buf_format(x->out, "%s%s", i == 0 ? " by " : ", ", output->keys[i]);
    }
    if (output->partitions > 0) {
        buf_format(x->out, " to %" PRIu32 " partitions", output->partitions);
    }
    if (stage->estimate.rows >= 0) {
        buf_text(x->out, "; about ");
        write_rows(x->out, stage->estimate.rows);
        buf_text(x->out, ", ");
        write_bytes(x->out, stage->estimate.bytes < 0 ? 0 : stage->estimate.bytes);
    }
    buf_text(x->out, stage->is_deterministic ? "" : "; not the same each time");
    if (stage->custom.op != NULL) {
        buf_format(x->out, "; then the operator %s", stage->custom.op);
    }
    if (stage->write.to != NULL) {
        buf_format(x->out, "; a file each, %s, for %s", stage->write.format, stage->write.to);
    }
    if (stage->publish.to != NULL) {
        buf_format(x->out, "; the folder %s appears", stage->publish.to);
    }
    if (stage->publish.table != NULL) {
        buf_format(x->out, " as the data set %s", stage->publish.table);
    }
    buf_char(x->out, '\n');
}

static void write_stage(struct explainer *x, uint32_t at, uint32_t depth)
{
    const struct physical_stage *stage = &x->plan->stages[at];
    indent(x, depth);
    buf_format(x->out, "stage %" PRIu32 ": ", stage->id);
    if (x->is_shown[at]) {
        buf_text(x->out, "see above\n");
        return;
    }
    x->is_shown[at] = true;
    write_tasks(x, at);
    write_output(x, stage);
    if (stage->choice.is_open) {
        indent(x, depth + 1);
        buf_format(x->out, "when stage %" PRIu32 " is done: if it has up to ", x->plan->stages[stage->choice.small].id);
        write_bytes(x->out, (double)stage->choice.bytes_max);
        buf_format(x->out, ", everybody reads it, and stage %" PRIu32 " %s\n", x->plan->stages[stage->choice.large].id,
                   physical_is_sieve(stage) ? "moves only rows with a match in it" : "need not move its rows");
    }
    write_lines(x, stage->what, depth + 1);
    for (uint32_t i = 0; i < stage->n_inputs; i++) {
        const struct physical_input *input = &stage->inputs[i];
        indent(x, depth + 1);
        buf_format(x->out, "%s, %s:\n", input->name, input->is_whole ? "all rows" : "a partition");
        write_stage(x, input->stage, depth + 2);
    }
}

/* The end of the plan may become shorter. */
static void write_tail(struct explainer *x)
{
    struct arena arena = {0};
    struct tail tail = tail_find(x->plan, &arena);
    buf_text(x->out, tail.n_reads == 1 ? "when stage" : "when stages");
    for (uint32_t i = 0; i < tail.n_reads; i++) {
        buf_format(x->out, "%s %" PRIu32,
                   i == 0                  ? ""
                   : i + 1 == tail.n_reads ? " and"
                                           : ",",
                   x->plan->stages[tail.reads[i]].id);
    }
    buf_text(x->out, tail.n_reads == 1 ? " is done: if it has up to " : " are done: if they have up to ");
    write_bytes(x->out, (double)x->plan->tail_bytes);
    buf_text(x->out, ", one task does the rest\n");
    arena_deinit(&arena);
}

void explain_write(struct buf *out, const struct physical_plan *plan)
{
    struct explainer x = {.out = out, .plan = plan, .is_shown = mem_calloc(plan->n_stages, sizeof *x.is_shown)};
    if (plan->single_reason != NULL) {
        buf_format(out, "one task: %s\n", plan->single_reason);
    }
    if (plan->tail_bytes > 0) {
        write_tail(&x);
    }
    for (uint32_t i = plan->n_stages; i-- > 0;) {
        if (plan->stages[i].output.exchange == EXCHANGE_RESULT) {
            write_stage(&x, i, 0);
        }
    }
    mem_free(x.is_shown);
}
