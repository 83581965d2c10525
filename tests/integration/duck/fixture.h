/*
 * fixture.h - an instance with one connection, and rows as one text.
 *
 * Ownership: fixture_open's result is closed with fixture_close. Threads: the test's own.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_DUCK_FIXTURE_H
#define CAPSTAN_TESTS_INTEGRATION_DUCK_FIXTURE_H

#include "base/buf.h"
#include "duck/duck.h"
#include "test.h"

struct fixture {
    struct duck *duck;
    struct duck_connection *connection;
    struct buf text;
};

struct fixture fixture_open(const struct duck_options *options);
void fixture_close(struct fixture *f);

/* The rows of the query, values separated by commas, rows by semicolons; NULL is "null". Valid until the next call. */
const char *rows_of(struct fixture *f, struct duck_connection *connection, const char *sql);

#endif
