/*
 * store.h - what a worker keeps for others: map outputs until their job ends, and results of queries for a while longer.
 *
 * An output belongs to one attempt of one task and has partitions; each is an Arrow stream. It is written by that
 * attempt, and nobody else sees it until it is finished. Pieces of partitions (a message each) stay in memory up to the
 * store's budget; then the output with the most memory goes to a file. An output that is not finished when its writer
 * closes it is gone without a trace.
 *
 * Files: `shuffle/JOB.STAGE.TASK.ATTEMPT.arrows` holds the spilled pieces of one output; all of them are removed when
 * the store is opened. `results/JOB.STAGE.TASK.ATTEMPT.arrows` is a result, a whole Arrow stream; it is found again after
 * a restart and removed when it is old, or when its attempt does not count or its job is said to have failed. Not every end
 * of a job that failed is heard of as such: then it gets old. While it is written it is called `….part`. Files are not
 * synced: one that a crash of the machine cut short is recognised by its checksums when it is read.
 *
 * What the end of a job, a heartbeat, or room in memory costs does not depend on how many results there are whose jobs have
 * ended: only the search for old ones looks at these.
 *
 * Locks: one for the table of outputs, one for each output. None is held while a file is read or written.
 *
 * Ownership: said at each function. Threads: any; an output is written by one at a time.
 */
#ifndef CAPSTAN_EXCHANGE_STORE_H
#define CAPSTAN_EXCHANGE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "base/limits.h"
#include "exchange/block.h"
#include "exchange/ipc.h"

#define EXCHANGE_NOT_REGISTERED "map output not registered for requested attempt"

/* One attempt of one task. */
struct exchange_key {
    char job[LIMIT_ID_BYTES + 1];
    uint32_t stage;
    uint32_t task;
    uint32_t attempt;
};

/* False if the job's name is too long or has other characters than [A-Za-z0-9._-]. */
MUST_USE bool exchange_key_make(const char *job, uint32_t stage, uint32_t task, uint32_t attempt,
                                struct exchange_key *out);

struct exchange_store_options {
    const char *shuffle_folder; /* both exist */
    const char *result_folder;
    uint64_t memory_bytes_max;
};

struct exchange_store;

/* Removes old shuffle files and finds old results. ERR_UNAVAILABLE if a folder cannot be read. */
MUST_USE enum err exchange_store_open(const struct exchange_store_options *options, struct exchange_store **out,
                                      struct error *e);

/* NULL ok. Removes shuffle files, keeps results. After all outputs and readers are closed. */
void exchange_store_close(struct exchange_store *store);

/* Another budget. What is over it goes to files when the next piece comes, not at once. */
void exchange_store_set_memory(struct exchange_store *store, uint64_t memory_bytes_max);

/* Bytes of outputs in memory, and in shuffle files. */
uint64_t exchange_store_memory_bytes(struct exchange_store *store);
uint64_t exchange_store_file_bytes(struct exchange_store *store);

/*
 * How long tasks have been busy with rows that go from stage to stage, all of them together, in microseconds: to write map
 * outputs, the disk included; and to take rows of map outputs of whichever worker, the wait for them included.
 */
enum exchange_work { EXCHANGE_WRITING, EXCHANGE_TAKING, EXCHANGE_WORKS };
void exchange_store_note_work(struct exchange_store *store, enum exchange_work work, int64_t us); /* NULL ok */
uint64_t exchange_store_work_us(struct exchange_store *store, enum exchange_work work);

/* Stands for all outputs that there have been until now: later ones have larger numbers. */
uint64_t exchange_store_number(struct exchange_store *store);
#define EXCHANGE_ALL_NUMBERS UINT64_MAX

/*
 * The job has ended: forgets its map outputs at once; whoever writes one gets ERR_CANCELED. Its results go, too, if it
 * `has_failed`; else they stay until they are old. What is newer than `number` is not meant: the job was retried.
 */
void exchange_store_end_job(struct exchange_store *store, const char *job, bool has_failed, uint64_t number);

/* Forgets one output of any kind, if there is one: its attempt does not count. */
void exchange_store_drop(struct exchange_store *store, const struct exchange_key *key);

/* Removes results that were finished before `wall_ms`, as clock_wall_ms. Returns how many. */
uint32_t exchange_store_drop_results(struct exchange_store *store, int64_t wall_ms);

/*
 * The jobs whose end it waits for, each once, `max` at most: those of which it has map outputs, or results. The caller frees
 * each name and the array.
 */
char **exchange_store_jobs(struct exchange_store *store, uint32_t max, uint32_t *out_n);

/* Of how many jobs it has map outputs: other workers may want them, while nobody's task waits for results. */
uint32_t exchange_store_mapped_jobs(struct exchange_store *store);

/* ---- writing ---- */

enum exchange_kind { EXCHANGE_KIND_SHUFFLE, EXCHANGE_KIND_RESULT /* one partition */ };

struct exchange_output;

/* ERR_EXISTS if there is one with that key. */
MUST_USE enum err exchange_output_open(struct exchange_store *store, const struct exchange_key *key,
                                       enum exchange_kind kind, uint32_t n_partitions, struct exchange_output **out,
                                       struct error *e);

/* For a result: more than this, at most LIMIT_INLINE_RESULT_BYTES, goes to its file. Before the first piece. */
void exchange_output_limit(struct exchange_output *output, uint64_t inline_bytes_max);

/*
 * Adds a piece to a partition, and takes the reference, also on failure. A `shared` one (the schema, the end) is in many
 * partitions, small, and stays in memory. May spill, this output or another. ERR_EXHAUSTED if the disk is full,
 * ERR_CANCELED if the job was dropped.
 */
MUST_USE enum err exchange_output_append(struct exchange_output *output, uint32_t partition, struct block *piece,
                                         bool is_shared, struct error *e);

/*
 * From now on it can be read. `tallies`, one for each partition, must agree with what was appended. A result of more than
 * LIMIT_INLINE_RESULT_BYTES (see exchange_output_limit) is in its file then; a smaller one stays in memory, to be sent
 * along. Once.
 */
MUST_USE enum err exchange_output_finish(struct exchange_output *output, const struct ipc_tally *tallies,
                                         struct error *e);

/* Lets go of it. NULL ok. If it was not finished, everything of it is removed; also if `is_dropped`. */
void exchange_output_close(struct exchange_output *output, bool is_dropped);

/* ---- reading ---- */

struct exchange_reader;

/*
 * Reads a partition from byte `offset` on; that may be its end. ERR_NOT_FOUND with EXCHANGE_NOT_REGISTERED if there is no
 * finished output with just that key, ERR_INVALID for a partition or offset that it does not have.
 */
MUST_USE enum err exchange_reader_open(struct exchange_store *store, const struct exchange_key *key, uint32_t partition,
                                       uint64_t offset, struct exchange_reader **out, struct error *e);
void exchange_reader_close(struct exchange_reader *reader); /* NULL ok */

/* Whether the next bytes are in memory, so that reading them does not block. True at the end. */
bool exchange_reader_is_ready(struct exchange_reader *reader);

/*
 * If what comes next is a whole piece in memory, returns it, for the caller to give back, and goes on behind it;
 * else NULL.
 */
struct block *exchange_reader_piece(struct exchange_reader *reader);

/* From now on exchange_reader_read stops in front of pieces in memory that have at least `bytes`: they can be lent. */
void exchange_reader_stop_at(struct exchange_reader *reader, size_t bytes);

/*
 * If what comes next lies in memory, and has at least `min` bytes, lends up to `max` of them and goes on behind: the block
 * is the caller's to give back. Else NULL.
 */
struct block *exchange_reader_lend(struct exchange_reader *reader, size_t min, size_t max, const uint8_t **out_bytes,
                                   size_t *out_n);

/*
 * Reads up to `max` bytes; 0 at the end. Without `may_block`, stops in front of what is in a file. ERR_DATA_LOSS if the
 * file is gone or shorter than it was, ERR_NOT_FOUND if the output was dropped.
 */
MUST_USE enum err exchange_reader_read(struct exchange_reader *reader, bool may_block, void *out, size_t max,
                                       size_t *out_n, struct error *e);

#endif
