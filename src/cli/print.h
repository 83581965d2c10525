/*
 * print.h - a result in one of the formats that `capstan sql` and `capstan results` know.
 *
 *   table    for people (grid.h)
 *   csv      names in the first line; RFC 4180 quotes. NULL is nothing at all, an empty text is ""
 *   json     {"columns":[{"name","type"}...],"rows":[[...]...]} on one line
 *   jsonl    an object for each row; a name that was there before is followed by _1, _2, ...
 *   parquet  by DuckDB; needs a file
 *   arrow    the Arrow stream as it comes
 *
 * All of them are written while the rows arrive, in flat memory. What the values look like is told in exchange/text.h.
 *
 * Ownership: nothing is kept. Threads: one; DuckDB makes some of its own for parquet.
 */
#ifndef CAPSTAN_CLI_PRINT_H
#define CAPSTAN_CLI_PRINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"

struct cli;

#define PRINT_FORMATS "table|csv|json|jsonl|parquet|arrow"

struct print_request {
    const char *job_id;
    const char *format; /* one of PRINT_FORMATS */
    const char *path;   /* NULL: stdout */
};

struct print_result {
    uint64_t rows;
    bool reader_is_gone; /* stdout was closed: it failed, but there is nobody to tell */
};

/* Whether the format can go there, and a file can be made there. ERR_INVALID; to be asked before anything is run. */
MUST_USE enum err print_check(struct cli *cli, const char *format, const char *path, struct error *e);

/* Fetches and prints. `out` is written on failure, too. */
MUST_USE enum err print_rows(struct cli *cli, const struct print_request *request, struct print_result *out,
                             struct error *e);

#endif
