/*
 * help.h - texts that are made from the tables of verbs: help, and the completion of the shell.
 *
 * Ownership: the buffer is the caller's. Threads: any.
 */
#ifndef CAPSTAN_CLI_HELP_H
#define CAPSTAN_CLI_HELP_H

#include "base/buf.h"
#include "cli/verb.h"

/* What `capstan VERB --help` prints. */
void help_verb(struct buf *out, const struct verb *verb);

/* What `capstan help` prints. */
void help_all(struct buf *out, const struct verb_table *table);

/* What `capstan completion bash` prints: a script to be sourced. */
void completion_bash(struct buf *out, const struct verb_table *table);

#endif
