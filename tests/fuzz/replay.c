/*
 * replay.c - runs a fuzz target over files: fuzz-X FILE|FOLDER...
 *
 * For builds without libFuzzer. An input that breaks a promise ends the process that runs it, so that is a child, and
 * another one goes on after it. Prints the inputs that failed and at last `N passed, N failed`; a file that cannot be
 * read counts as failed, and no files at all is a failure, too.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

struct files {
    char **paths;
    size_t n;
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void add_file(struct files *files, const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    char **paths = realloc(files->paths, (files->n + 1) * sizeof(*paths));
    if (path == NULL || paths == NULL) {
        die("memory");
    }
    snprintf(path, size, "%s%s%s", folder, folder[0] == '\0' ? "" : "/", name);
    paths[files->n++] = path;
    files->paths = paths;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void add_folder(struct files *files, const char *folder)
{
    struct dirent **entries = NULL;
    int n = scandir(folder, &entries, is_visible, alphasort);
    if (n < 0) {
        die(folder);
    }
    for (int i = 0; i < n; i++) {
        add_file(files, folder, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

static void replay_file(const char *path)
{
    struct stat info;
    FILE *file = fopen(path, "rb");
    if (file == NULL || stat(path, &info) != 0) {
        die(path);
    }
    size_t n = (size_t)info.st_size;
    uint8_t *bytes = malloc(n > 0 ? n : 1); /* of just that size, so that the sanitizer sees a read beyond the end */
    if (bytes == NULL || fread(bytes, 1, n, file) != n) {
        die(path);
    }
    LLVMFuzzerTestOneInput(bytes, n);
    free(bytes);
    fclose(file);
}

/* Replays from file `start` on in a child, which writes a byte for each that went well. Returns how many did. */
static size_t replay_from(const struct files *files, size_t start, bool *out_failed)
{
    int pipe_ends[2];
    fflush(NULL);
    if (pipe(pipe_ends) != 0) {
        die("pipe");
    }
    pid_t child = fork();
    if (child < 0) {
        die("fork");
    }
    if (child == 0) {
        for (size_t i = start; i < files->n; i++) {
            replay_file(files->paths[i]);
            if (write(pipe_ends[1], "", 1) != 1) {
                die("pipe");
            }
        }
        exit(0); /* here the sanitizer looks for leaks */
    }
    close(pipe_ends[1]);
    size_t passed = 0;
    char byte;
    while (read(pipe_ends[0], &byte, 1) == 1) {
        passed++;
    }
    close(pipe_ends[0]);
    int status = 0;
    if (waitpid(child, &status, 0) != child) {
        die("waitpid");
    }
    *out_failed = status != 0;
    return passed;
}

int main(int argc, char **argv)
{
    struct files files = {0};
    for (int i = 1; i < argc; i++) {
        struct stat info;
        if (stat(argv[i], &info) == 0 && S_ISDIR(info.st_mode)) {
            add_folder(&files, argv[i]);
        } else {
            add_file(&files, "", argv[i]);
        }
    }
    size_t passed = 0;
    size_t failed = 0;
    while (passed + failed < files.n) {
        bool has_failed = false;
        passed += replay_from(&files, passed + failed, &has_failed);
        if (has_failed) {
            printf("failed: %s\n", passed + failed < files.n ? files.paths[passed + failed] : "at the end");
            failed++;
        }
    }
    for (size_t i = 0; i < files.n; i++) {
        free(files.paths[i]);
    }
    free(files.paths);
    printf("%zu passed, %zu failed\n", passed, failed);
    return passed > 0 && failed == 0 ? 0 : 1;
}
