/*
 * bare.h - the engines themselves, without anything of ours around them: the yardstick.
 *
 * Equal rows in equal tables, written in the simplest good way: SQLite by prepared statements, row by row; PostgreSQL by one
 * prepared statement per table and kind of change, with arrays, in one pipeline. All values lie ready before the clock runs,
 * nothing is checked, and there is no fence.
 *
 * Everything that goes wrong ends the program. Ownership: bare_open's caller calls bare_close. Threads: one at a time.
 */
#ifndef CAPSTAN_BENCH_STORE_BARE_H
#define CAPSTAN_BENCH_STORE_BARE_H

#include "script.h"

struct bare;

/* A connection to sqlite:PATH or postgres://..., whose tables are there. */
struct bare *bare_open(const char *url);
void bare_close(struct bare *bare);

/* Brings transactions into the form that the engine takes. */
struct bare_script;
struct bare_script *bare_prepare(struct bare *bare, const struct script *script);
void bare_script_free(struct bare_script *script);

/* Writes one transaction and commits it. */
void bare_write(struct bare *bare, const struct bare_script *script, uint32_t transaction);

/* Runs SQL, several statements if need be. */
void bare_run(struct bare *bare, const char *sql);
/* The first number that SQL yields. */
long long bare_number(struct bare *bare, const char *sql);

#endif
