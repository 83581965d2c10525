/*
 * query.h - SQL from the command line to a job, and the wait for its end.
 *
 * The job's id is made here, so that a submit whose answer was lost can be repeated, and Ctrl-C can cancel a job whose
 * submit has not been answered.
 *
 * Ownership: all lives in the cli's arena. Threads: the cli's.
 */
#ifndef CAPSTAN_CLI_QUERY_H
#define CAPSTAN_CLI_QUERY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"
#include "wire/message.h"

struct cli;

struct query {
    const char *job_id;
    const char *sql;
    const char *params_json;  /* "": none */
    const char *options_json; /* "": as the coordinator is set */
};

/*
 * Reads the SQL (the argument, the file of --file, or stdin) and the options `param`, `set` and `id`. ERR_INVALID says what
 * is wrong with which.
 */
MUST_USE enum err query_read(struct cli *cli, struct query *out, struct error *e);

/*
 * Parameters as the protocol wants them: an array, or an object if they have names. Each text is NAME=VALUE, where NAME is a
 * word, or a plain value; a value that is JSON counts as that, any other is a text. "" if there are none.
 */
MUST_USE enum err query_params(const char *const *texts, uint32_t n, struct buf *out, struct error *e);

/* Settings of one query, NAME=VALUE, as a JSON object; "" if there are none. */
MUST_USE enum err query_settings(const char *const *texts, uint32_t n, struct buf *out, struct error *e);

/* Sends it, with the options `priority` and `key`. */
MUST_USE enum err query_send(struct cli *cli, const struct query *query, bool explain,
                             struct pb_submit_query_response **out, struct error *e);

/* Prints the id of the job, or {"job_id","state","existed"}. */
void query_print(struct cli *cli, const struct pb_submit_query_response *response);

/*
 * Waits until the job has ended, however long that takes, and shows on a terminal how far its stages are, unless
 * `is_quiet`. ERR_CANCELED after the cli's cancel was fired.
 */
MUST_USE enum err query_wait(struct cli *cli, const char *job_id, bool is_quiet, const struct pb_query_status **out,
                             struct error *e);

#endif
