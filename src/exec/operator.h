/*
 * operator.h - the custom operators that a worker has: C code over Arrow batches, after a fragment's SQL.
 *
 * A registry holds factories (include/capstan/operator.h) by name: those that were linked in, and those of plug-ins. It is
 * filled before the worker starts and only read afterwards.
 *
 * Ownership: said at each function. What an operator has made (streams, arrays, schemas) is released before the registry is
 * freed, which unloads plug-ins. Threads: reading a registry is for any; a stream is for one at a time.
 */
#ifndef CAPSTAN_EXEC_OPERATOR_H
#define CAPSTAN_EXEC_OPERATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "capstan/arrow.h"

struct operators;
struct exec_stop;

struct operators *operators_new(void);            /* with those that capstan_register_operator() has been given */
void operators_free(struct operators *operators); /* NULL ok */

/*
 * What was wrong with the first operator that capstan_register_operator() has refused: ERR_INVALID, ERR_EXISTS or
 * ERR_EXHAUSTED. ERR_OK if it has taken all of them.
 */
MUST_USE enum err operators_linked(struct error *e);

/*
 * Loads the operators of FILE.so, all or none. ERR_NOT_FOUND if there is no such file; ERR_PRECONDITION if it is a shared
 * object without a function capstan_operators_v1, so that it may still be the plug-in of an executor; ERR_INVALID if it
 * cannot be loaded or used, or needs a newer worker; ERR_EXISTS if there is an operator of a name already; ERR_EXHAUSTED
 * beyond LIMIT_OPS_PER_WORKER.
 */
MUST_USE enum err operators_load(struct operators *operators, const char *path, struct error *e);

uint32_t operators_count(const struct operators *operators);
const char *operators_name(const struct operators *operators, uint32_t i); /* sorted */
bool operators_have(const struct operators *operators, const char *name);

/*
 * The columns that the operator makes of such an input: `out` is the caller's to release. ERR_NOT_FOUND, with
 * "custom physical operator '<name>' is not registered on worker", if there is no such operator; ERR_INVALID, with the
 * operator's message, if it does not like the input or its configuration, or announces columns that are none;
 * ERR_UNAVAILABLE, with its message, if it says that another try makes sense. `config_json` NULL: {}; else it must be a
 * JSON object.
 */
MUST_USE enum err operators_schema(const struct operators *operators, const char *name, const char *config_json,
                                   const struct ArrowSchema *input, struct ArrowSchema *out, struct error *e);

/*
 * Puts the operator behind a stream: `out` yields what it makes of the rows of `input`, which is taken over, even on
 * failure. An error of either comes out of get_next with its message, again and again; the code is the input's, and for
 * the operator's EINVAL if another try makes no sense, else EIO. Errors as above; ERR_INTERNAL if the input does not tell
 * its columns. At most what the operator emits for one batch is kept.
 */
MUST_USE enum err operators_apply(const struct operators *operators, const char *name, const char *config_json,
                                  struct ArrowArrayStream *input, struct ArrowArrayStream *out, struct error *e);

/*
 * Lets the operator behind a stream of operators_apply know when it should stop; without this it is never told. `stop`
 * outlives the stream.
 */
void operators_watch(struct ArrowArrayStream *applied, const struct exec_stop *stop);

#endif
