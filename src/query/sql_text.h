/*
 * sql_text.h - the little that is looked at in the text of SQL without a parser: where quotes and comments end.
 *
 * Threads: any.
 */
#ifndef CAPSTAN_QUERY_SQL_TEXT_H
#define CAPSTAN_QUERY_SQL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The length of a quoted text, name or comment at `p`; 0 if there is none. An open end goes to the end of the SQL. */
size_t sql_quoted_bytes(const char *p, bool is_after_word);

/* Whether the byte can be part of a name, wherever in it. */
bool sql_is_word(char c);

/* Whether the byte, outside of quotes, is in a word: $ is, if it is behind a part of one. */
bool sql_is_in_word(bool is_after_word, char c);

/* The length of one statement without the semicolons, blanks and comments at its end. */
size_t sql_trimmed_bytes(const char *sql);

/* Whether the SQL calls that function anywhere, in any case, outside of quotes and comments. */
bool sql_has_call(const char *sql, const char *function);

/* Whether it has these characters anywhere outside of quotes and comments. */
bool sql_has(const char *sql, const char *characters);

/* Whether DuckDB would take the name of a local file for a pattern, which may mean other files. */
bool sql_is_pattern(const char *file);

/*
 * How many columns a SELECT has whose own list calls them c0, c1, and so on, as all stages of our planner do but the last;
 * 0 if that cannot be seen.
 */
uint32_t sql_numbered_columns(const char *sql);

/*
 * The length of what is up to the next comma or bracket that closes, or to the end, with quotes and brackets skipped. At
 * `p` must not be the inside of a quote.
 */
size_t sql_item_bytes(const char *p);

/*
 * What makes it unsafe to put the SQL between other, in words: quotes, comments or brackets that do not close, and what DuckDB may
 * part into words in another way than we do. NULL: nothing.
 */
const char *sql_oddity(const char *sql);

/* Whether the SQL can be a part of a statement: nothing of the above, no semicolon, no comment. */
bool sql_is_part(const char *sql);

#endif
