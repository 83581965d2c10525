/*
 * err.h - what can go wrong: one table of codes, and a text that explains one case to a person.
 *
 * Fallible functions return `enum err`. The table below is the only place that knows how a code is named on the
 * wire and what it becomes in gRPC, in HTTP and as the exit code of the command line.
 *
 * A `struct error` carries the message (what went wrong) and an optional hint (what to do about it).
 *
 * Ownership: a `struct error` is the caller's plain memory and owns nothing; zero-initialised means "no error".
 * Threads: any, each with a `struct error` of its own.
 */
#ifndef CAPSTAN_BASE_ERR_H
#define CAPSTAN_BASE_ERR_H

#include "base/check.h"

/*
 * X(symbol, wire_name, text, grpc_code, http_status, exit_code)
 *
 * Exit codes: 0 done, 1 failed, 2 wrong usage or input, 3 cannot reach a coordinator, 4 refused (auth).
 */
#define ERR_TABLE(X)                                                                                                   \
    X(ERR_OK, "ok", "no error", 0, 200, 0)                                                                             \
    X(ERR_INVALID, "invalid_argument", "the input is not valid", 3, 400, 2)                                            \
    X(ERR_NOT_FOUND, "not_found", "there is no such thing", 5, 404, 2)                                                 \
    X(ERR_EXISTS, "already_exists", "it exists already", 6, 409, 2)                                                    \
    X(ERR_PRECONDITION, "failed_precondition", "the state does not allow this", 9, 409, 1)                             \
    X(ERR_STALE, "stale", "the lease or version is not current any more", 10, 409, 1)                                  \
    X(ERR_BUSY, "busy", "somebody else holds it at the moment", 14, 503, 1)                                            \
    X(ERR_EXHAUSTED, "resource_exhausted", "a limit is reached", 8, 429, 2)                                            \
    X(ERR_UNAVAILABLE, "unavailable", "the service cannot be reached", 14, 503, 3)                                     \
    X(ERR_DEADLINE, "deadline_exceeded", "it took too long", 4, 504, 1)                                                \
    X(ERR_CANCELED, "canceled", "it was canceled", 1, 499, 1)                                                          \
    X(ERR_FENCED, "fenced", "another leader has taken over", 14, 503, 3)                                               \
    X(ERR_DENIED, "permission_denied", "this is not allowed", 7, 403, 4)                                               \
    X(ERR_UNAUTHENTICATED, "unauthenticated", "the credentials are missing or wrong", 16, 401, 4)                      \
    X(ERR_DATA_LOSS, "data_loss", "data is lost or damaged", 15, 500, 1)                                               \
    X(ERR_INTERNAL, "internal", "an internal error", 13, 500, 1)

/* clang-format off */
enum err {
#define X(symbol, wire_name, text, grpc_code, http_status, exit_code) symbol,
    ERR_TABLE(X)
#undef X
};
/* clang-format on */

struct error {
    enum err code;
    char message[4096];
    char hint[256];
};

/* Name on the wire, such as "not_found". A value outside the table is treated as ERR_INTERNAL, here and below. */
const char *err_name(enum err code);

/* A short English text for the code, without a full stop. */
const char *err_text(enum err code);

/* Status code of gRPC. */
int err_grpc(enum err code);

/* Status code of HTTP. */
int err_http(enum err code);

/* Exit code of the command line. */
int err_exit(enum err code);

/*
 * Records code and message in `e`, clears its hint and returns `code`, so that a function can end with
 * `return error_set(e, ERR_INVALID, ...)`. `e` may be NULL. A text too long for the field is cut between two
 * UTF-8 characters. The values may point into `e` itself, so that a caller can wrap the message of its callee.
 */
enum err error_set(struct error *e, enum err code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Sets the hint, cut in the same way. `e` may be NULL. */
void error_hint(struct error *e, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
