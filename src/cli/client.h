/*
 * client.h - the client (client/client.h) that the options of a command line describe.
 *
 * Ownership: the cli has its client and ends it; texts live in the cli's arena. Threads: the cli's.
 */
#ifndef CAPSTAN_CLI_CLIENT_H
#define CAPSTAN_CLI_CLIENT_H

#include "client/client.h"
#include "client/rows.h"

struct cli;

/* What the group VERB_CREDENTIALS of this command line says: the token and all about TLS. */
MUST_USE enum err cli_credentials(struct cli *cli, struct client_options *out, struct error *e);

/* The token alone; `out` stays as it is if there is none. */
MUST_USE enum err cli_token(struct cli *cli, const char **out, struct error *e);

/* What the client options of this command line say; texts live in the cli's arena. */
MUST_USE enum err cli_client_options(struct cli *cli, struct client_options *out, struct error *e);

/* The client of this command line, opened at the first call. */
MUST_USE enum err cli_client(struct cli *cli, struct client **out, struct error *e);

/* The same as a caller whose answers live in the cli's arena, and whose calls its cancel ends. */
MUST_USE enum err cli_caller(struct cli *cli, struct client_caller *out, struct error *e);

/* Says what to do about an error of a call, if nobody has; returns its code. */
enum err cli_hint(enum err err, struct error *e);

/* One call with it. `out_answer` lives in the cli's arena. */
MUST_USE enum err cli_call(struct cli *cli, const char *path, enum pb_kind answer, const void *message,
                           void *out_answer, struct error *e);

/* The rows of a query (client/rows.h), with the client and the cancel of the cli. */
MUST_USE enum err cli_rows(struct cli *cli, const char *job_id, rows_bytes_fn *on_bytes, void *context,
                           struct rows **out, struct error *e);

/* A message with all defaults, in the cli's arena. */
void *cli_message(struct cli *cli, enum pb_kind kind);

#endif
