/*
 * codec.h - the values that one column cannot hold as they are: lists, offers, stage specs, as JSON.
 *
 * Writers return a text in the arena, NULL for nothing. Readers take what the writers wrote (NULL: nothing) and answer
 * ERR_DATA_LOSS for anything else. JSON, so that a person with a database client can read it.
 */
#ifndef CAPSTAN_STORE_CODEC_H
#define CAPSTAN_STORE_CODEC_H

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "core/command.h"
#include "core/requirement.h"

const char *codec_strings(struct string_list list, struct arena *arena);
MUST_USE enum err codec_read_strings(const char *text, struct arena *arena, struct string_list *out, struct error *e);

/* The incarnations before the present one, newest first. */
struct string_list codec_past_list(const char *const past[NODE_PAST_INCARNATIONS]);
MUST_USE enum err codec_read_past(const char *text, struct arena *arena, const char *out[NODE_PAST_INCARNATIONS],
                                  struct error *e);

const char *codec_offer(const struct offer *offer, struct arena *arena);
MUST_USE enum err codec_read_offer(const char *text, struct arena *arena, const struct offer **out, struct error *e);

/* Everything but the tasks' digests, which the tasks have. */
const char *codec_spec(const struct stage_spec *spec, struct arena *arena);
MUST_USE enum err codec_read_spec(const char *text, struct arena *arena, const struct stage_spec **out,
                                  struct error *e);

/*
 * The last spec that was read, because the next one is most often the same: a load of a million small jobs would parse the
 * same text a million times. What it yields lives until another one is read. Zero-initialised is empty.
 */
struct spec_memo {
    struct arena arena;
    const char *text; /* NULL: nothing */
    size_t n;
    const struct stage_spec *spec;
};

/* As codec_read_spec, for a text of `n` bytes; NULL: nothing. */
MUST_USE enum err codec_recall_spec(struct spec_memo *memo, const char *text, size_t n, const struct stage_spec **out,
                                    struct error *e);
void spec_memo_deinit(struct spec_memo *memo);

/* Only the placement part of a requirement, as a tree would give it. */
const char *codec_placement(const struct requirement *need, struct arena *arena);

#endif
