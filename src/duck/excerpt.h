/*
 * excerpt.h - the line of a statement that DuckDB shows below an error, with a caret under the place.
 *
 * Statements are often run with words of ours around them. People are to see their own ones.
 *
 * Threads: any.
 */
#ifndef CAPSTAN_DUCK_EXCERPT_H
#define CAPSTAN_DUCK_EXCERPT_H

#include <stddef.h>

#include "base/err.h"

/* Takes what stands before the user's words off the first line, if the excerpt has it. `e` may be NULL. */
void duck_excerpt_without(struct error *e, const char *before);

/* Takes the whole excerpt away: it is of a statement that nobody wrote. `e` may be NULL. */
void duck_excerpt_drop(struct error *e);

/* Adds an excerpt of the statement at the character number `position`, from 0 on, as DuckDB would. `e` may be NULL. */
void duck_excerpt_add(struct error *e, const char *sql, size_t position);

/* How long the message is in front of its excerpt; all of it if there is none. */
size_t duck_excerpt_start(const char *message);

#endif
