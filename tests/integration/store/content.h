/*
 * content.h - what is written in the tests: rows of every kind, plain, random or hostile.
 *
 * Rows are made in an arena and gather in a `struct rows`, in order. Plain ones have a value of their own in every
 * field, so that no two columns can be mistaken for each other.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_STORE_CONTENT_H
#define CAPSTAN_TESTS_INTEGRATION_STORE_CONTENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/prng.h"
#include "core/command.h"
#include "core/rows.h"
#include "subject.h"

struct rows {
    struct arena arena;
    struct row *first;
    struct row **end; /* NULL: nothing yet */
    uint32_t n;
};

void rows_deinit(struct rows *rows);

/* Bytes of the struct that rows of this kind are. */
size_t row_size(enum row_kind kind);

/* Appends an empty row of this kind, with the kind set. */
void *rows_add(struct rows *rows, enum row_kind kind);

/* Commits all of them as one list, under the subject's fence. */
enum err rows_commit(struct subject *s, const struct rows *rows);
/* The same, one batch for every row. Ends the test if one is refused. */
void rows_commit_singly(struct subject *s, const struct rows *rows);

/* New rows with something in every field. */
struct row_job *add_job(struct rows *rows, const char *job_id);
struct row_stage *add_stage(struct rows *rows, const char *job_id, uint32_t stage);
struct row_task *add_task(struct rows *rows, struct task_ref ref);
struct row_lease *add_lease(struct rows *rows, struct task_ref ref, uint32_t attempt);
struct row_map_output *add_map_output(struct rows *rows, struct task_ref ref, uint32_t attempt);
struct row_result *add_result(struct rows *rows, struct task_ref ref, uint32_t attempt);
struct row_node *add_node(struct rows *rows, const char *worker_id);
struct row_attempt *add_attempt(struct rows *rows, struct task_ref ref, uint32_t attempt);
struct row_event *add_event(struct rows *rows, uint64_t seq, struct task_ref ref);
/* A job with a stage, a task, a lease, an attempt, a map output, a result. */
void add_whole_job(struct rows *rows, const char *job_id);

/* Changes of what is there. */
struct row_job *add_job_change(struct rows *rows, const char *job_id, enum job_state state);
struct row_task *add_task_change(struct rows *rows, struct task_ref ref, enum task_state state);
void add_attempt_change(struct rows *rows, struct task_ref ref, uint32_t attempt, enum attempt_outcome outcome);
void add_sweep(struct rows *rows, const char *job_id, int64_t at_ms);
void add_lease_gone(struct rows *rows, struct task_ref ref, struct lease_token token);
void add_output_gone(struct rows *rows, enum row_kind kind, struct task_ref ref, uint32_t attempt);
void add_node_gone(struct rows *rows, const char *worker_id);

struct task_ref ref_of(const char *job_id, uint32_t stage, uint32_t task);
struct digest digest_from(uint64_t seed);
/* Of one attempt; no other has it. */
struct lease_token token_of(struct task_ref ref, uint32_t attempt);

/* ---- hostile values ---- */

extern const char *const hostile_texts[];
extern const uint32_t n_hostile_texts;

/* `n_bytes` of valid UTF-8, of one of several kinds. */
enum long_kind { LONG_PLAIN, LONG_QUOTES, LONG_WIDE, LONG_RANDOM, LONG_KINDS };
const char *long_text(struct arena *arena, enum long_kind kind, size_t n_bytes);

/* Up to 60 bytes: hostile, random from all of Unicode, plain or empty. */
const char *random_text(struct prng *prng, struct arena *arena);
const char *random_text_or_null(struct prng *prng, struct arena *arena);
int64_t random_int(struct prng *prng); /* often at an edge */
uint32_t random_u32(struct prng *prng);
const struct offer *random_offer(struct prng *prng, struct arena *arena);
const struct requirement *random_requirement(struct prng *prng, struct arena *arena);
const struct stage_spec *random_spec(struct prng *prng, struct arena *arena);
struct string_list random_texts(struct prng *prng, struct arena *arena, uint32_t max);

#endif
