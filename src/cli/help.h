/*
 * help.h - texts that are made from the tables of verbs: help, the references, and the completion of the shell.
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

/* What `capstan help settings` prints: all names of --set. */
void help_settings(struct buf *out, const struct verb_table *table);

/* What `capstan help --markdown` prints: all that can be configured, for docs/configuration.md. */
void reference_markdown(struct buf *out, const struct verb_table *table);

/* What `capstan help --man` prints: the manual page, in the language of man(7). */
void reference_man(struct buf *out, const struct verb_table *table);

/* Variables that are no flags. */
struct variable_info {
    const char *name;
    const char *help;
};
extern const struct variable_info reference_variables[];
extern const uint32_t reference_variable_count;

/* The values that an option takes, in words. */
void reference_values(struct buf *out, const struct option *option);

/* What `capstan completion bash` prints: a script to be sourced. */
void completion_bash(struct buf *out, const struct verb_table *table);

#endif
