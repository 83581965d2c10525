#include "main/certificate.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/buf.h"

extern char **environ;

/* Runs it with nothing to read and nobody to hear it. */
static enum err run(char *const *argv, struct error *e)
{
    posix_spawn_file_actions_t files;
    pid_t pid = 0;
    int status = 0;
    posix_spawn_file_actions_init(&files);
    for (int fd = 0; fd <= 2; fd++) {
        posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
    }
    int failed = posix_spawnp(&pid, argv[0], &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    while (failed == 0 && waitpid(pid, &status, 0) < 0) {
        failed = errno == EINTR ? 0 : errno;
    }
    if (failed == 0 && status == 0) {
        return ERR_OK;
    }
    error_set(e, ERR_UNAVAILABLE, "%s cannot make a certificate: %s", argv[0],
              failed != 0 ? strerror(failed) : "it ended with an error");
    error_hint(e, "install the package openssl, or leave out --tls");
    return ERR_UNAVAILABLE;
}

static enum err read_text(struct arena *arena, const char *path, const char **out, struct error *e)
{
    struct buf text = {0};
    char chunk[4096];
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return error_set(e, ERR_UNAVAILABLE, "cannot open %s: %s", path, strerror(errno));
    }
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, file)) > 0;) {
        buf_append(&text, chunk, n);
    }
    (void)fclose(file);
    *out = arena_strdup(arena, text.n > 0 ? text.data : "");
    buf_deinit(&text);
    return ERR_OK;
}

enum err certificate_make(struct arena *arena, const char *folder, struct certificate *out, struct error *e)
{
    struct certificate made = {.cert_file = arena_format(arena, "%s/node.pem", folder),
                               .key_file = arena_format(arena, "%s/node.key", folder)};
    char *const argv[] = {"openssl",
                          "req",
                          "-x509",
                          "-newkey",
                          "ec",
                          "-pkeyopt",
                          "ec_paramgen_curve:prime256v1",
                          "-nodes",
                          "-days",
                          "2",
                          "-subj",
                          "/CN=capstan",
                          "-addext",
                          "subjectAltName=IP:127.0.0.1,DNS:localhost",
                          "-keyout",
                          (char *)made.key_file,
                          "-out",
                          (char *)made.cert_file,
                          NULL};
    enum err err = run(argv, e);
    if (err == ERR_OK) {
        err = read_text(arena, made.cert_file, &made.cert_pem, e);
    }
    if (err == ERR_OK) {
        *out = made;
    }
    return err;
}
