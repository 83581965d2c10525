/*
 * library.c - finds libduckdb.so and opens it.
 *
 * It is loaded by hand rather than linked: it has a hundred megabytes and threads of its own, and the command line, the
 * coordinator and an idle worker need nothing of it. It is never closed again, for its threads and thread-local
 * destructors would not survive that.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "duck/duck_internal.h"

struct duck_api duck__api;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct error load_error; /* written once, by load */
static char engine[128];

/*
 * Where the library may lie, seen from the folder of the program: beside it; where `make install` puts it, which comes
 * before the place of a library that somebody else has installed; for programs under build/VARIANT/bin. The last two are
 * for workers that others have linked, and that may lie anywhere.
 */
static const char *const places[] = {
    "libduckdb.so",
    "../lib/capstan/libduckdb.so",
    "../lib/libduckdb.so",
    "../../../.cache/duckdb/lib/libduckdb.so",
    "/usr/local/lib/capstan/libduckdb.so",
    "/usr/lib/capstan/libduckdb.so",
};

/* The folder of the running program, with a slash at its end; "" if nobody knows. */
static void program_folder(char *folder, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", folder, size - 1);
    folder[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(folder, '/');
    folder[slash == NULL ? 0 : slash - folder + 1] = '\0';
}

static void *open_library(struct error *e)
{
    const char *chosen = getenv("CAPSTAN_DUCKDB");
    if (chosen != NULL && chosen[0] != '\0') {
        void *library = dlopen(chosen, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            (void)error_set(e, ERR_UNAVAILABLE, "DuckDB's library cannot be opened: %s", dlerror());
            error_hint(e, "CAPSTAN_DUCKDB must name the file libduckdb.so");
        }
        return library;
    }
    char folder[PATH_MAX];
    program_folder(folder, sizeof(folder));
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        char path[PATH_MAX + 64];
        (void)snprintf(path, sizeof(path), "%s%s", places[i][0] == '/' ? "" : folder, places[i]);
        if (access(path, R_OK) != 0) {
            continue;
        }
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            (void)error_set(e, ERR_UNAVAILABLE, "DuckDB's library cannot be opened: %s", dlerror());
        }
        return library;
    }
    (void)error_set(e, ERR_UNAVAILABLE,
                    "DuckDB's library, libduckdb.so, is not beside the program nor in ../lib/capstan");
    error_hint(e, "set CAPSTAN_DUCKDB to the file; the package and 'make install' bring it, ./dev build fetches it");
    return NULL;
}

static void load(void)
{
    void *library = open_library(&load_error);
    if (library == NULL) {
        return;
    }
    const char *missing = NULL;
    /* POSIX lets an object pointer be copied into a function pointer, which C does not write as a cast. */
#define X(name)                                                                                                        \
    {                                                                                                                  \
        void *symbol = dlsym(library, "duckdb_" #name);                                                                \
        missing = symbol == NULL ? "duckdb_" #name : missing;                                                          \
        memcpy(&duck__api.name, &symbol, sizeof(symbol));                                                              \
    }
    DUCK_FUNCTIONS(X)
#undef X
    if (missing != NULL) {
        (void)error_set(&load_error, ERR_UNAVAILABLE, "DuckDB's library has no function %s", missing);
        error_hint(&load_error, "it is of another version than Capstan was built for");
        return;
    }
    struct utsname machine;
    (void)snprintf(engine, sizeof(engine), "duckdb-%s-%s", duck__api.library_version(),
                   uname(&machine) == 0 ? machine.machine : "unknown");
}

enum err duck__load(struct error *e)
{
    (void)pthread_once(&once, load);
    if (load_error.code != ERR_OK && e != NULL) {
        *e = load_error;
    }
    return load_error.code;
}

enum err duck_engine(const char **out_engine, struct error *e)
{
    enum err err = duck__load(e);
    if (err == ERR_OK) {
        *out_engine = engine;
    }
    return err;
}
