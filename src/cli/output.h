/*
 * output.h - where results are written: stdout, or a file that appears under its name when it is complete.
 *
 * Ownership: output_open's caller ends it with output_close, which removes what was not finished. Threads: one.
 */
#ifndef CAPSTAN_CLI_OUTPUT_H
#define CAPSTAN_CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"

struct cli;

struct output {
    FILE *file;       /* NULL: somebody else writes the file `temporary` */
    const char *path; /* NULL: stdout */
    char *temporary;
    bool is_finished;
    bool reader_is_gone; /* nobody reads stdout any more: no error to speak of */
};

/*
 * With a path, makes a new file beside it under another name, unless there is a device or a pipe, which is opened as it is.
 * Without `writes_itself` the new file is left closed, for others to write. ERR_INVALID if it cannot be made.
 */
MUST_USE enum err output_open(struct cli *cli, const char *path, bool writes_itself, struct output *out,
                              struct error *e);

/* Whether it could be opened, and renamed in the end. Leaves nothing behind; a device or a pipe is not touched. */
MUST_USE enum err output_check(struct cli *cli, const char *path, bool writes_itself, struct error *e);

/* ERR_PRECONDITION if it cannot be written, with `reader_is_gone` if that is why. */
MUST_USE enum err output_write(struct output *output, const void *bytes, size_t n, struct error *e);

/* Writes what the buffer has, and empties it. */
MUST_USE enum err output_flush(struct output *output, struct buf *text, struct error *e);

/* All is written: the file gets its name. */
MUST_USE enum err output_finish(struct output *output, struct error *e);
void output_close(struct output *output);

#endif
