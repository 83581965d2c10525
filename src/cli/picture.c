#include "cli/picture.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/text.h"
#include "wire/json_shape.h"

#define KIND_COLUMNS_MAX 20
#define BAR_COLUMNS_MIN 6
#define BAR_COLUMNS_MAX 24
#define RATE_AFTER_MS 200 /* before, it is an accident */
#define FULL "\xe2\x96\x88"
#define EMPTY "\xe2\x96\x91"

struct picture_stage {
    int64_t began_ms; /* when it was first seen at work; 0: not yet */
    int64_t ended_ms; /* when it was first seen done */
    char *kind;       /* what it does, in a word or two; NULL: not known */
};

/* The columns beside name and bar, in the order in which they are given up. */
enum figure { FIGURE_TASKS, FIGURE_ROWS, FIGURE_RATE, FIGURE_BYTES };
#define FIGURES 4

/* How wide the parts of a line are; 0: left out. */
struct layout {
    size_t name;
    size_t bar;
    size_t figures[FIGURES];
};

static void grow(struct picture *picture, size_t n)
{
    if (n > picture->n_stages) {
        struct picture_stage *stages = mem_calloc(n, sizeof *stages);
        if (picture->n_stages > 0) {
            memcpy(stages, picture->stages, picture->n_stages * sizeof *stages);
        }
        mem_free(picture->stages);
        picture->stages = stages;
        picture->n_stages = (uint32_t)n;
    }
}

void picture_deinit(struct picture *picture)
{
    for (uint32_t i = 0; i < picture->n_stages; i++) {
        mem_free(picture->stages[i].kind);
    }
    mem_free(picture->stages);
    *picture = (struct picture){0};
}

static bool is_done(const struct pb_stage_status *stage)
{
    return stage->queued == 0 && stage->running == 0;
}

static void note_times(struct picture *picture, const struct pb_query_status *status, int64_t now_ms)
{
    for (size_t i = 0; i < status->n_stages; i++) {
        const struct pb_stage_status *stage = status->stages[i];
        struct picture_stage *seen = &picture->stages[i];
        bool is_at_work = stage->running > 0 || stage->succeeded > 0;
        seen->began_ms = is_at_work && seen->began_ms == 0 ? now_ms : seen->began_ms;
        if (!is_done(stage)) {
            seen->ended_ms = 0; /* also of one whose rows were lost: it is at work again */
        } else if (seen->ended_ms == 0) {
            seen->ended_ms = now_ms;
        }
    }
}

/* ---- what stages do ---- */

/* "aggregate (one step of two) by 1 column\n..." becomes "aggregate", "scan a.parquet: k, v" "scan a.parquet". */
static char *kind_of(const char *what)
{
    size_t n = strcspn(what, "\n(:");
    while (n > 0 && what[n - 1] == ' ') {
        n--;
    }
    char *kind = mem_calloc(1, n + 1);
    memcpy(kind, what, n);
    return kind;
}

static void take_stage(struct picture *picture, const struct pb_query_status *status, const struct json *stage)
{
    char name[32];
    int64_t id = -1;
    const char *what = json_text(json_get(stage, "what"), NULL);
    if (what == NULL || !json_int(json_get(stage, "id"), &id)) {
        return;
    }
    snprintf(name, sizeof name, "s%" PRId64, id);
    for (size_t i = 0; i < status->n_stages; i++) {
        if (picture->stages[i].kind == NULL && strcmp(status->stages[i]->name, name) == 0) {
            picture->stages[i].kind = kind_of(what);
        }
    }
}

void picture_take_plan(struct picture *picture, const struct pb_query_status *status, const char *json, size_t n)
{
    struct json *plan = NULL;
    grow(picture, status->n_stages);
    if (json_parse_with_nan(json, n, &plan, NULL) != ERR_OK) {
        return;
    }
    const struct json *stages = json_get(plan, "stages");
    for (size_t i = 0; i < json_count(stages); i++) {
        take_stage(picture, status, json_at(stages, i));
    }
    json_free(plan);
}

bool picture_wants_plan(const struct picture *picture, const struct pb_query_status *status)
{
    for (uint32_t i = 0; i < picture->n_stages; i++) {
        if (picture->stages[i].kind != NULL) {
            return false;
        }
    }
    return status->n_stages > 1 && is_done(status->stages[0]);
}

/* ---- figures ---- */

/* "1,234", "12.3 k", "1.23 M": three digits are enough for a glance. */
static void put_compact(struct buf *out, uint64_t number)
{
    static const char *const units[] = {"k", "M", "G", "T", "P", "E"};
    if (number < 10000) {
        text_count(out, number);
        return;
    }
    double value = (double)number / 1000;
    size_t unit = 0;
    for (; value >= 999.5 && unit + 1 < ARRAY_LEN(units); unit++) {
        value /= 1000;
    }
    buf_format(out, value < 9.995 ? "%.2f %s" : value < 99.95 ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

static void put_rate(struct buf *out, const struct pb_stage_status *stage, const struct picture_stage *seen,
                     int64_t now_ms)
{
    int64_t worked_ms = (seen->ended_ms > 0 ? seen->ended_ms : now_ms) - seen->began_ms;
    bool is_known = seen->began_ms > 0 && worked_ms >= RATE_AFTER_MS;
    uint64_t rate = is_known ? (uint64_t)((double)stage->rows * 1000 / (double)worked_ms) : 0;
    if (rate > 0) {
        put_compact(out, rate);
        buf_text(out, " rows/s");
    }
}

static void put_figure(enum figure figure, const struct pb_stage_status *stage, const struct picture_stage *seen,
                       int64_t now_ms, struct buf *out)
{
    if (figure == FIGURE_TASKS) {
        buf_format(out, "%" PRIu32 "/%" PRIu32 " tasks", stage->succeeded, stage->tasks);
        if (stage->failed > 0) {
            buf_format(out, ", %" PRIu32 " failed", stage->failed);
        }
    } else if (figure == FIGURE_ROWS && stage->rows > 0) {
        put_compact(out, stage->rows);
        buf_text(out, stage->rows == 1 ? " row" : " rows");
    } else if (figure == FIGURE_RATE) {
        put_rate(out, stage, seen, now_ms);
    } else if (figure == FIGURE_BYTES && stage->bytes > 0) {
        text_size(out, stage->bytes);
    }
}

static void put_name(const struct pb_stage_status *stage, const struct picture_stage *seen, struct buf *out)
{
    text_clean(out, stage->name[0] != '\0' ? stage->name : "-");
    if (seen->kind != NULL) {
        struct buf kind = {0};
        text_clean(&kind, seen->kind);
        buf_char(out, ' ');
        text_clip(out, kind.data != NULL ? kind.data : "", KIND_COLUMNS_MAX);
        buf_deinit(&kind);
    }
}

/* ---- lines ---- */

static size_t width_of(const struct buf *text)
{
    return text->n > 0 ? text_width(text->data) : 0;
}

static void widen(size_t *width, struct buf *text)
{
    size_t wanted = width_of(text);
    *width = wanted > *width ? wanted : *width;
    buf_reset(text);
}

/* What each part would need, and then what it gets. */
static struct layout lay_out(const struct picture *picture, const struct pb_query_status *status,
                             const struct picture_view *view)
{
    struct layout needs = {0};
    struct layout gets = {0};
    struct buf text = {0};
    size_t room = view->columns > 1 ? view->columns - 1 : 1;
    for (size_t i = 0; i < status->n_stages; i++) {
        put_name(status->stages[i], &picture->stages[i], &text);
        widen(&needs.name, &text);
        for (int k = 0; k < FIGURES; k++) {
            put_figure((enum figure)k, status->stages[i], &picture->stages[i], view->now_ms, &text);
            widen(&needs.figures[k], &text);
        }
    }
    buf_deinit(&text);
    size_t used = 2 + needs.name;
    gets.name = used <= room ? needs.name : (room > 2 ? room - 2 : 0);
    for (int k = 0; k < FIGURES; k++) {
        size_t kept = k == FIGURE_TASKS ? 0 : 2 + BAR_COLUMNS_MIN; /* a bar says more than all but the first */
        if (used + 2 + needs.figures[k] + kept > room) {
            break;
        }
        gets.figures[k] = needs.figures[k];
        used += needs.figures[k] > 0 ? needs.figures[k] + 2 : 0;
    }
    if (used + 2 + BAR_COLUMNS_MIN <= room) {
        size_t left = room - used - 2;
        gets.bar = left < BAR_COLUMNS_MAX ? left : BAR_COLUMNS_MAX;
    }
    return gets;
}

static double done_share(const struct pb_stage_status *stage)
{
    double share = stage->tasks > 0 ? (double)stage->succeeded / stage->tasks : 0;
    share = stage->fraction > share ? stage->fraction : share;
    return share < 1 ? share : 1;
}

static void put_bar(const struct pb_stage_status *stage, size_t width, bool has_colors, struct buf *out)
{
    enum color color = stage->failed > 0 ? COLOR_RED : is_done(stage) ? COLOR_GREEN : COLOR_CYAN;
    size_t full = (size_t)(done_share(stage) * (double)width);
    buf_text(out, color_start(has_colors, color));
    for (size_t i = 0; i < width; i++) {
        buf_text(out, i < full ? FULL : EMPTY);
    }
    buf_text(out, color_end(has_colors, color));
}

static void pad(struct buf *out, size_t from, size_t to)
{
    for (; from < to; from++) {
        buf_char(out, ' ');
    }
}

static void put_line(const struct pb_stage_status *stage, const struct picture_stage *seen, const struct layout *layout,
                     const struct picture_view *view, struct buf *out)
{
    struct buf text = {0};
    struct buf name = {0};
    put_name(stage, seen, &name);
    text_clip(&text, name.data, layout->name);
    buf_text(out, "  ");
    buf_append(out, text.data, text.n);
    pad(out, width_of(&text), layout->name);
    if (layout->bar > 0) {
        buf_text(out, "  ");
        put_bar(stage, layout->bar, view->has_colors, out);
    }
    size_t behind = 0; /* blanks that are due if something follows */
    for (int k = 0; k < FIGURES; k++) {
        if (layout->figures[k] == 0) {
            continue;
        }
        buf_reset(&text);
        put_figure((enum figure)k, stage, seen, view->now_ms, &text);
        behind += 2 + layout->figures[k];
        if (text.n > 0) {
            pad(out, width_of(&text), behind); /* flush right, so that digits stand below each other */
            buf_append(out, text.data, text.n);
            behind = 0;
        }
    }
    buf_text(out, "\033[K\n");
    buf_deinit(&text);
    buf_deinit(&name);
}

/* Bytes of stages whose rows others read. */
static uint64_t shuffled_bytes(const struct pb_query_status *status)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < status->n_stages; i++) {
        const struct pb_stage_status *stage = status->stages[i];
        bool is_read = false;
        for (size_t k = 0; k < status->n_stages && !is_read; k++) {
            for (size_t p = 0; p < status->stages[k]->n_parents && !is_read; p++) {
                is_read = status->stages[k]->parents[p] == stage->stage_id;
            }
        }
        bytes += is_read ? stage->bytes : 0;
    }
    return bytes;
}

static void put_summary(const struct pb_query_status *status, const struct picture_view *view, struct buf *out)
{
    struct buf line = {0};
    size_t done = 0;
    for (size_t i = 0; i < status->n_stages; i++) {
        done += is_done(status->stages[i]) ? 1 : 0;
    }
    buf_format(&line, "%s: %zu of %zu stages done, ", wire_query_state_name(status->state), done, status->n_stages);
    text_duration(&line, view->elapsed_ms);
    uint64_t shuffled = shuffled_bytes(status);
    if (shuffled > 0) {
        buf_text(&line, ", ");
        text_size(&line, shuffled);
        buf_text(&line, " shuffled");
    }
    text_clip(out, line.data, view->columns > 1 ? view->columns - 1 : 1);
    buf_text(out, "\033[K\n");
    buf_deinit(&line);
}

void picture_draw(struct picture *picture, const struct pb_query_status *status, const struct picture_view *view,
                  struct buf *out)
{
    uint32_t lines = 1;
    grow(picture, status->n_stages);
    note_times(picture, status, view->now_ms);
    struct layout layout = lay_out(picture, status, view);
    buf_char(out, '\r');
    if (picture->drawn > 0) {
        buf_format(out, "\033[%" PRIu32 "A", picture->drawn);
    }
    put_summary(status, view, out);
    /* Where not all fit, those that are done go first. */
    bool fits = status->n_stages < view->lines;
    for (int round = 0; round < (fits ? 1 : 2); round++) {
        for (size_t i = 0; i < status->n_stages && lines < view->lines; i++) {
            if (fits || is_done(status->stages[i]) == (round == 1)) {
                put_line(status->stages[i], &picture->stages[i], &layout, view, out);
                lines++;
            }
        }
    }
    buf_text(out, "\033[J");
    picture->drawn = lines;
}

void picture_clear(struct picture *picture, struct buf *out)
{
    if (picture->drawn > 0) {
        buf_format(out, "\r\033[%" PRIu32 "A\033[J", picture->drawn);
        picture->drawn = 0;
    }
}
