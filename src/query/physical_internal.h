/*
 * physical_internal.h - what the files about physical plans share.
 *
 * Ownership: a reader lives during one physical_read; what it makes lies in the arena. Threads: one per reader.
 */
#ifndef CAPSTAN_QUERY_PHYSICAL_INTERNAL_H
#define CAPSTAN_QUERY_PHYSICAL_INTERNAL_H

#include <stddef.h>

#include "base/json.h"
#include "query/physical.h"

/* One reading of a plan. Stages are in the order of the text until physical__check has sorted them. */
struct plan_reader {
    struct arena *arena;
    struct buf lines; /* what is wrong, a line each */
    uint32_t n_errors;
    uint64_t n_filled; /* bytes of tasks that were looked at */
    bool is_foreign;   /* a client wrote the SQL */
    struct physical_plan *plan;
    struct stage_sense *senses; /* by stage */
};

/* What of a stage could be read, so that it can be looked at together with others. */
struct stage_sense {
    bool is_good;      /* all of it, and what it reads is there */
    bool has_inputs;   /* who is read; there may be none */
    bool has_exchange; /* how its rows go on */
};

/* Adds a line about the stage (NULL: about the plan). */
void physical__complain(struct plan_reader *r, const struct physical_stage *stage, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/*
 * Looks at what the stages mean together: who reads whom, how many tasks that gives, that it has no cycle and one result.
 * A stage that is wrong by itself is left out of what its mistake would make wrong as well, and of nothing else, so that all
 * mistakes are listed at once. If there are none, sorts the stages so that inputs come before readers.
 */
void physical__check(struct plan_reader *r);

/* Gives range exchanges without "bounds" the stages that find them. Before physical__check. */
void physical__expand_ranges(struct plan_reader *r);

/* The plan without stages that nobody reads and that are not the result. Ids stay, positions change. */
struct physical_plan *physical__without_unread(const struct physical_plan *plan, struct arena *arena);

/* Appends the stage's SQL, with its files behind it, as a text of JSON; and takes such files out of SQL that was read. */
void physical__write_sql(struct buf *out, const struct physical_stage *stage);
void physical__take_files(struct plan_reader *r, struct physical_stage *stage);

/* The stage reads the files as well that the other one reads beside its splits; each is there once. */
void physical__add_files(struct physical_stage *stage, const struct physical_stage *from, struct arena *arena);

/*
 * Appends the stage's SQL in brackets, as a part of others'. What ends it, a semicolon or a comment, ends there; it must be one
 * statement (physical__is_one).
 */
void physical__write_nested(struct buf *out, const char *sql);
bool physical__is_one(const char *sql);

/* Whether options of COPY, such as "HEADER, COMPRESSION 'gzip'", have one of that name with that value, in any case. */
bool physical__option_is(const char *options, const char *name, const char *value);

/* Whether a data set can have that name, if it is not too long: letters, digits and '_', not a digit first. */
bool physical__is_table_name(const char *name);

#endif
