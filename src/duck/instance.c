/*
 * instance.c - instances and connections: settings, life and death, interrupts, and what DuckDB's errors mean here.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "duck/duck_internal.h"

struct setting {
    const char *name;
    const char *value; /* NULL: leave it */
};

static enum err configure(duckdb_config config, const struct duck_options *options, struct error *e)
{
    char memory[32] = "";
    char threads[16] = "";
    (void)snprintf(memory, sizeof(memory), "%" PRIu64 "B", options->memory_bytes_max);
    (void)snprintf(threads, sizeof(threads), "%" PRIu32, options->threads);
    const struct setting settings[] = {
        {"memory_limit", options->memory_bytes_max != 0 ? memory : NULL},
        {"threads", options->threads != 0 ? threads : NULL},
        /* An empty folder means: do not spill. DuckDB's default is a folder below the working directory. */
        {"temp_directory", options->temp_folder != NULL ? options->temp_folder : ""},
        {"disabled_optimizers", options->disabled_optimizers},
        /* Otherwise HUGEINT, TIMETZ, BIT and others come out of Arrow as something else. */
        {"arrow_lossless_conversion", "true"},
        {"arrow_output_version", options->has_short_decimals ? "1.5" : NULL},
        /* It takes a file that is written again within a second for the one it knows; the system keeps files, too. */
        {"enable_external_file_cache", options->keeps_files ? "true" : "false"},
        /* A query must not fetch code from the network. */
        {"autoinstall_known_extensions", "false"},
    };
    for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
        if (settings[i].value != NULL &&
            duck__api.set_config(config, settings[i].name, settings[i].value) != DuckDBSuccess) {
            return error_set(e, ERR_INVALID, "DuckDB does not take '%s' for %s", settings[i].value, settings[i].name);
        }
    }
    return ERR_OK;
}

/*
 * Settings that extensions bring, which a configuration cannot have, since it comes before these are there. Without the
 * first, the time zone is that of the machine, and the tasks of one query would disagree. Without the second, each
 * statement reads the metadata of its Parquet files again.
 */
static enum err set_more(struct duck *duck, bool keeps_metadata, struct error *e)
{
    struct duck_connection *connection = NULL;
    enum err err = duck_connect(duck, &connection, e);
    if (err == ERR_OK) {
        err = duck_run(connection, "SET GLOBAL TimeZone = 'UTC'", e);
    }
    if (err == ERR_OK && keeps_metadata) {
        err = duck_run(connection, "SET GLOBAL parquet_metadata_cache = true", e);
    }
    duck_disconnect(connection);
    return err;
}

enum err duck_open(const struct duck_options *options, struct duck **out, struct error *e)
{
    enum err err = duck__load(e);
    if (err != ERR_OK) {
        return err;
    }
    duckdb_config config = NULL;
    duckdb_database database = NULL;
    char *text = NULL;
    if (duck__api.create_config(&config) != DuckDBSuccess) {
        err = error_set(e, ERR_INTERNAL, "DuckDB cannot be configured");
        goto out;
    }
    err = configure(config, options, e);
    if (err != ERR_OK) {
        goto out;
    }
    if (duck__api.open_ext(NULL, &database, config, &text) != DuckDBSuccess) {
        err = error_set(e, ERR_INVALID, "DuckDB does not start: %s", text != NULL ? text : "");
        goto out;
    }
    struct duck *duck = mem_calloc(1, sizeof(*duck));
    duck->database = database;
    (void)pthread_mutex_init(&duck->mutex, NULL);
    err = set_more(duck, options->keeps_metadata, e);
    if (err != ERR_OK) {
        duck_close(duck);
        goto out;
    }
    *out = duck;
out:
    duck__api.free(text);
    duck__api.destroy_config(&config);
    return err;
}

void duck_close(struct duck *duck)
{
    if (duck == NULL) {
        return;
    }
    duck__api.close(&duck->database);
    duck__free_sources(duck);
    (void)pthread_mutex_destroy(&duck->mutex);
    mem_free(duck);
}

enum err duck_connect(struct duck *duck, struct duck_connection **out, struct error *e)
{
    duckdb_connection connection = NULL;
    if (duck__api.connect(duck->database, &connection) != DuckDBSuccess) {
        return error_set(e, ERR_INTERNAL, "DuckDB gives no connection");
    }
    struct duck_connection *made = mem_calloc(1, sizeof(*made));
    made->duck = duck;
    made->connection = connection;
    atomic_init(&made->is_interrupted, false);
    *out = made;
    return ERR_OK;
}

void duck_disconnect(struct duck_connection *connection)
{
    if (connection == NULL) {
        return;
    }
    duck__api.disconnect(&connection->connection);
    duck__unregister_all(connection);
    mem_free(connection);
}

void duck__begin(struct duck_connection *connection)
{
    atomic_store(&connection->is_interrupted, false);
}

void duck_interrupt(struct duck_connection *connection)
{
    atomic_store(&connection->is_interrupted, true);
    duck__api.interrupt(connection->connection);
}

double duck_progress(struct duck_connection *connection)
{
    return duck__api.query_progress(connection->connection).percentage;
}

/* What DuckDB's kinds of errors, with which its messages start, are to us. All others are internal. */
static const struct {
    const char *prefix;
    enum err err;
} error_kinds[] = {
    {"Parser Error", ERR_INVALID},
    {"Syntax Error", ERR_INVALID},
    {"Binder Error", ERR_INVALID},
    {"Catalog Error", ERR_INVALID},
    {"Conversion Error", ERR_INVALID},
    {"Out of Range Error", ERR_INVALID},
    {"Invalid Input Error", ERR_INVALID},
    {"Invalid Error", ERR_INVALID},
    {"Invalid type Error", ERR_INVALID},
    {"Mismatch Type Error", ERR_INVALID},
    {"Divide by Zero Error", ERR_INVALID},
    {"Not implemented Error", ERR_INVALID},
    {"Parameter Not Resolved Error", ERR_INVALID},
    {"Parameter Not Allowed Error", ERR_INVALID},
    {"Missing Extension Error", ERR_INVALID},
    {"Extension Autoloading Error", ERR_INVALID},
    {"Constraint Error", ERR_INVALID},
    {"Permission Error", ERR_DENIED},
    {"INTERRUPT Error", ERR_CANCELED},
    {"Out of Memory Error", ERR_EXHAUSTED},
};

/* A missing file and a full disk are both errors of input and output; only the text tells them apart. */
static const struct {
    const char *part;
    enum err err;
} io_errors[] = {
    {"No files found that match", ERR_NOT_FOUND},
    {"No such file or directory", ERR_NOT_FOUND},
    {": Permission denied", ERR_NOT_FOUND}, /* for this worker */
    {": Is a directory", ERR_NOT_FOUND},
    {"No space left on device", ERR_EXHAUSTED},
    {"failed to offload data block", ERR_EXHAUSTED},
};

static enum err err_of(const char *text)
{
    for (size_t i = 0; i < ARRAY_LEN(error_kinds); i++) {
        if (strncmp(text, error_kinds[i].prefix, strlen(error_kinds[i].prefix)) == 0) {
            return error_kinds[i].err;
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(io_errors); i++) {
        if (strstr(text, io_errors[i].part) != NULL) {
            return io_errors[i].err;
        }
    }
    return ERR_INTERNAL;
}

/*
 * When one of its threads fails, DuckDB stops the others as an interrupt does, and now and then it is their error that
 * comes out. So an interrupt that nobody asked for is a failure whose reason is lost.
 */
enum err duck__fail(struct duck_connection *connection, struct error *e, const char *text)
{
    enum err err = text != NULL ? err_of(text) : ERR_INTERNAL;
    if (text == NULL || (err == ERR_CANCELED && !atomic_load(&connection->is_interrupted))) {
        return error_set(e, ERR_INTERNAL, "DuckDB ended the statement and does not say why");
    }
    const char *trace = strstr(text, "\n\nStack Trace:"); /* of DuckDB's own errors: places in a library */
    return error_set(e, err, "%.*s", (int)(trace != NULL ? trace - text : (ptrdiff_t)strlen(text)), text);
}

bool duck_has_failed(const struct error *e)
{
    return strncmp(e->message, "INTERNAL Error", 14) == 0;
}

bool duck_is_lost(const struct error *e)
{
    return strncmp(e->message, "FATAL Error", 11) == 0 || strstr(e->message, "has been invalidated") != NULL;
}

enum err duck__take_error(struct duck_connection *connection, duckdb_error_data data, struct error *e)
{
    enum err err = ERR_OK;
    if (data != NULL && duck__api.error_data_has_error(data)) {
        err = duck__fail(connection, e, duck__api.error_data_message(data));
    }
    duck__api.destroy_error_data(&data);
    return err;
}
