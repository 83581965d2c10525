/*
 * parquet.h - a result as a Parquet file, written by DuckDB on this machine.
 *
 * Ownership: nothing is kept. Threads: the caller's; DuckDB reads the rows from threads of its own, one at a time.
 */
#ifndef CAPSTAN_CLI_PARQUET_H
#define CAPSTAN_CLI_PARQUET_H

#include <stdint.h>

#include "base/check.h"
#include "base/err.h"

struct cli;

/*
 * Fetches the rows of the job into the file, which is there when it is complete. Columns get names that differ, as in
 * jsonl; an ENUM becomes VARCHAR. ERR_UNAVAILABLE if DuckDB's library is missing.
 */
MUST_USE enum err parquet_write(struct cli *cli, const char *job_id, const char *path, uint64_t *out_rows,
                                struct error *e);

#endif
