/*
 * value.h - the kinds of values that people write after a flag, read strictly.
 *
 * A value is right from its first to its last character or refused: no blanks, no plus sign, no trailing letters. The
 * message names what was expected; whoever calls adds where it was found.
 *
 * Ownership: nothing is owned; texts point into the input. Threads: any.
 */
#ifndef CAPSTAN_CLI_VALUE_H
#define CAPSTAN_CLI_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"

#define VALUE_ADDRESS_BYTES 300 /* host, colon, port and the NUL */

struct value_range {
    int64_t min;
    int64_t max;
};

/* A whole number in decimal. */
MUST_USE enum err value_number(const char *text, struct value_range range, int64_t *out, struct error *e);

/* A number with a unit: 250ms, 60s, 1.5m, 2h, 7d. A bare 0 needs none. */
MUST_USE enum err value_duration_ms(const char *text, int64_t *out_ms, struct error *e);

/* Bytes: 4096, 64KB, 2GB (powers of 1000), 64KiB, 2GiB (powers of 1024). */
MUST_USE enum err value_bytes(const char *text, int64_t *out_bytes, struct error *e);

/* true, yes, on, 1 or false, no, off, 0. */
MUST_USE enum err value_bool(const char *text, bool *out, struct error *e);

/* NAME=VALUE with a name that is not empty. Writes the length of the name; the value starts after the equals sign. */
MUST_USE enum err value_pair(const char *text, size_t *out_name_n, struct error *e);

/* The name of a node: letters, digits, '.', '_' and '-', at most LIMIT_WORKER_ID_BYTES. */
MUST_USE enum err value_id(const char *text, struct error *e);

/* The id of a job: the same letters, at most LIMIT_ID_BYTES. */
MUST_USE enum err value_job_id(const char *text, struct error *e);

/* HOST:PORT, where an IPv6 address stands in brackets. */
MUST_USE enum err value_address(const char *text, struct error *e);

/* One of `choices`, which are separated by bars: "auto|leader|observer". */
MUST_USE enum err value_choice(const char *text, const char *choices, struct error *e);

/* Copies part number `i` of a list that is separated by commas. False after the last, or if it does not fit. */
bool value_list_at(const char *list, uint32_t i, char *out, size_t size);

/* Whether the address can be reached from this machine only: 127.0.0.0/8, [::1] or localhost. */
bool address_is_loopback(const char *address);

/* Whether it stands for all addresses of this machine: 0.0.0.0 or [::]. Nobody can connect to that from elsewhere. */
bool address_is_wildcard(const char *address);

struct listen_rule {
    const char *address;
    bool has_tls;
    bool can_tls;      /* there are flags for it */
    bool needs_tokens; /* who calls must be known */
    bool has_tokens;
    bool is_insecure; /* the person insists */
};

/*
 * Refuses to listen where others can connect, unless the connection is encrypted and callers are known, or the person
 * insists. The one rule for every process that listens.
 */
MUST_USE enum err address_check_listen(const struct listen_rule *rule, struct error *e);

struct advertise_rule {
    const char *listen;
    const char *advertise; /* NULL: not given */
    bool may_lack_port;    /* port 0 stands for the one that it listens on */
};

/* Refuses an address that is told to others and that they could not connect to. */
MUST_USE enum err address_check_advertise(const struct advertise_rule *rule, struct error *e);

#endif
