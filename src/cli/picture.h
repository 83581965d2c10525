/*
 * picture.h - how a running query looks on a terminal: a line about all of it, then a bar for each stage.
 *
 *   running: 1 of 4 stages done, 2.4 s, 12.3 MB shuffled
 *     plan           ████████████████████  1/1 tasks
 *     s0 scan        ████████████░░░░░░░░  5/8 tasks  1.23 M rows  512 k rows/s  12.3 MB
 *     s1 aggregate   ░░░░░░░░░░░░░░░░░░░░  0/4 tasks
 *
 * A picture replaces the one before. No line is wider than the terminal, and there are never more than it has; where there
 * is too little room, the right columns are left out, then the bars; of the stages, those that are done. Rows per second are
 * those since the stage was first seen at work.
 *
 * Ownership: picture_deinit frees what a zero-initialised picture has come to. Threads: one at a time per value.
 */
#ifndef CAPSTAN_CLI_PICTURE_H
#define CAPSTAN_CLI_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/message.h"

struct picture_stage;

struct picture {
    struct picture_stage *stages;
    uint32_t n_stages;
    uint32_t drawn; /* lines that are on the terminal */
};

struct picture_view {
    uint32_t columns;
    uint32_t lines;     /* the most that a picture may have */
    int64_t now_ms;     /* by the monotonic clock */
    int64_t elapsed_ms; /* since the submit */
    bool has_colors;
};

void picture_deinit(struct picture *picture);

/* Appends what replaces the last picture: escape sequences, then the new one. */
void picture_draw(struct picture *picture, const struct pb_query_status *status, const struct picture_view *view,
                  struct buf *out);

/* Appends what takes the picture away, so that the next line stands where it began. */
void picture_clear(struct picture *picture, struct buf *out);

/* Tells from a physical plan what its stages do; a plan that cannot be read says nothing. */
void picture_take_plan(struct picture *picture, const struct pb_query_status *status, const char *json, size_t n);

/* Whether it is worth asking for the plan: there are stages of one, and none has been taken. */
bool picture_wants_plan(const struct picture *picture, const struct pb_query_status *status);

#endif
