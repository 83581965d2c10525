/*
 * message_internal.h - what message.c, scan.c and rules.c share: the table of rules, and the check of raw bytes by it.
 *
 * Every field of every message has one row in rules.c, in the order of the field numbers, so that a field's index in its
 * protobuf-c descriptor is its index in the table and nothing is looked up by name. A test walks all descriptors and
 * compares.
 *
 * Ownership: all of it is constant. Threads: any.
 */
#ifndef CAPSTAN_WIRE_MESSAGE_INTERNAL_H
#define CAPSTAN_WIRE_MESSAGE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/message.h"

/* What a field may hold. All texts are UTF-8 without NUL. An empty text or a zero is the same as an absent field. */
enum rule_type {
    RULE_NUMBER,     /* up to `max` */
    RULE_BOOL,       /* anything */
    RULE_ENUM,       /* a value that the protocol names */
    RULE_FRACTION,   /* from 0 to 1 */
    RULE_ID,         /* of a job: letters, digits, '.', '_', '-' */
    RULE_WORKER_ID,  /* and of its process: as RULE_ID, and ':' and '@' */
    RULE_NAME,       /* one line: no control characters */
    RULE_TABLE_NAME, /* as a name in SQL: letters, digits, '_', not a digit first */
    RULE_FORMAT,     /* parquet, csv or json */
    RULE_ADDRESS,    /* HOST:PORT */
    RULE_TEXT,       /* anything */
    RULE_BYTES,      /* anything, text or not */
    RULE_TOKEN,      /* 16 bytes, not all zero */
    RULE_MESSAGE,    /* another message: `sub` */
};

/* For `sub_needs`: what an AttemptRef has to say besides its stage and its task, which may be 0. */
#define REF_JOB (1u << 0)
#define REF_ATTEMPT (REF_JOB | 1u << 3)
#define REF_LEASED (REF_ATTEMPT | 1u << 4)

struct rule {
    const char *field;
    enum rule_type type;
    uint64_t max;       /* the largest number, or the most bytes of one value */
    uint32_t count_max; /* repeated fields: the most elements; 0: not repeated */
    bool is_needed;     /* absent, empty or zero is refused */
    bool is_trimmed;    /* a number over `max` becomes `max`, a text is cut, instead of refused */
    enum pb_kind sub;
    uint32_t sub_needs; /* fields of `sub`, as bits by index, that are needed here besides its own */
    const char *hint;   /* what to do when `max` or `count_max` is exceeded; may be NULL */
};

/* Rules that look at several fields of a decoded message. */
typedef enum err rule_check_fn(const void *message, struct error *e);

struct message_rules {
    const struct rule *fields;
    uint32_t n_fields;
    uint32_t fields_max;  /* in the whole message, those of messages inside it included */
    rule_check_fn *check; /* may be NULL */
};

/* The most fields of one message, and the most messages inside each other; a test compares them with the protocol. */
#define WIRE_FIELDS_MAX 32
#define WIRE_DEPTH_MAX 8

const struct message_rules *wire__rules(enum pb_kind kind);

/*
 * Whether the bytes are a message of the kind that keeps to all rules but those of `check`. Allocates nothing.
 * `out_needs_trim` says that some value is over a `max` with `is_trimmed`.
 */
MUST_USE enum err wire__scan(enum pb_kind kind, const void *bytes, size_t n, bool *out_needs_trim, struct error *e);

#endif
