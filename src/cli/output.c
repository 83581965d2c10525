#define _GNU_SOURCE /* mkostemp */
#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/cli.h"

static enum err make_temporary(const char *path, struct output *out, int *out_file, struct error *e)
{
    struct buf name = {0};
    buf_format(&name, "%s.XXXXXX", path);
    int file = mkostemp(name.data, O_CLOEXEC);
    if (file < 0) {
        error_set(e, ERR_INVALID, "--out %s: %s", path, strerror(errno));
        buf_deinit(&name);
        return ERR_INVALID;
    }
    /* As a new file of the user's would be: mkostemp makes it private. */
    mode_t mask = umask(0);
    (void)umask(mask);
    (void)fchmod(file, 0666 & ~mask);
    out->temporary = name.data;
    *out_file = file;
    return ERR_OK;
}

/* /dev/null, a pipe: nothing that could be renamed. */
static enum err open_device(const char *path, int *out_file, struct error *e)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0) {
        return error_set(e, ERR_INVALID, "--out %s: %s", path, strerror(errno));
    }
    *out_file = file;
    return ERR_OK;
}

enum err output_check(struct cli *cli, const char *path, bool writes_itself, struct error *e)
{
    struct output output = {0};
    struct stat there;
    if (path != NULL && stat(path, &there) == 0 && !S_ISREG(there.st_mode)) {
        bool can_be = writes_itself && !S_ISDIR(there.st_mode);
        return can_be ? ERR_OK
                      : error_set(e, ERR_INVALID, "--out %s: this is %s", path,
                                  S_ISDIR(there.st_mode) ? "a folder" : "no file");
    }
    enum err err = output_open(cli, path, writes_itself, &output, e);
    output_close(&output);
    return err;
}

enum err output_open(struct cli *cli, const char *path, bool writes_itself, struct output *out, struct error *e)
{
    struct output output = {.file = cli->out, .path = path};
    struct stat there;
    int file = -1;
    enum err err = ERR_OK;
    if (path == NULL) {
        *out = output;
        return ERR_OK;
    }
    if (writes_itself && stat(path, &there) == 0 && !S_ISREG(there.st_mode)) {
        err = open_device(path, &file, e);
    } else {
        err = make_temporary(path, &output, &file, e);
    }
    if (err != ERR_OK) {
        return err;
    }
    output.file = writes_itself ? fdopen(file, "wb") : NULL;
    if (output.file == NULL) {
        close(file);
    }
    *out = output;
    return ERR_OK;
}

static enum err fail(struct output *output, struct error *e)
{
    output->reader_is_gone = output->path == NULL && errno == EPIPE;
    return error_set(e, ERR_PRECONDITION, "cannot write %s: %s", output->path != NULL ? output->path : "the output",
                     strerror(errno));
}

enum err output_write(struct output *output, const void *bytes, size_t n, struct error *e)
{
    return n == 0 || fwrite(bytes, 1, n, output->file) == n ? ERR_OK : fail(output, e);
}

enum err output_flush(struct output *output, struct buf *text, struct error *e)
{
    enum err err = output_write(output, text->data, text->n, e);
    buf_reset(text);
    return err;
}

enum err output_finish(struct output *output, struct error *e)
{
    if (output->file != NULL && fflush(output->file) != 0) {
        return fail(output, e);
    }
    if (output->path == NULL) {
        output->is_finished = true;
        return ERR_OK;
    }
    if (output->file != NULL) {
        int failed = fclose(output->file);
        output->file = NULL;
        if (failed != 0) {
            return fail(output, e);
        }
    }
    if (output->temporary != NULL && rename(output->temporary, output->path) != 0) {
        return fail(output, e);
    }
    output->is_finished = true;
    return ERR_OK;
}

void output_close(struct output *output)
{
    if (output->path != NULL && output->file != NULL) {
        fclose(output->file);
    }
    if (output->temporary != NULL && !output->is_finished) {
        (void)unlink(output->temporary);
    }
    mem_free(output->temporary);
    *output = (struct output){0};
}
