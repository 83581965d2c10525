/*
 * scan.c - looks at a peer's bytes before anything is allocated for them.
 *
 * protobuf-c reads what it is given: it cuts a text at its first NUL, takes any bytes for UTF-8, allocates whatever a
 * count asks for, drops the upper half of a number that is too large. So the bytes are walked here first, along
 * protobuf-c's own descriptors, and every value is held to its rule. Unknown fields, which a newer peer may send, are
 * stepped over; they count towards the number of fields. A field that is not repeated may be given once only: which of
 * two values counts is nothing that two readers should have to agree on.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/utf8.h"
#include "wire/message_internal.h"

#define TAG_BYTES_MAX 5
#define LENGTH_BYTES_MAX 5
#define VARINT_BYTES_MAX 10

/* The encodings that precede a value: the lower three bits of its tag. */
enum encoding { ENCODED_VARINT = 0, ENCODED_64_BIT = 1, ENCODED_LENGTH = 2, ENCODED_32_BIT = 5 };

#define NO_FIELD UINT32_MAX

/* One message that is being looked at, inside another. */
struct frame {
    const struct frame *up;
    const ProtobufCMessageDescriptor *type;
    const struct message_rules *rules;
    const uint8_t *next;
    const uint8_t *end;
    uint32_t field; /* index of the one that is being looked at; NO_FIELD: the message as such */
    uint32_t given; /* fields that occurred, as bits by index */
    uint32_t has;   /* those of them that are neither empty nor zero */
    uint32_t depth;
    uint32_t counts[WIRE_FIELDS_MAX]; /* of repeated fields: elements so far */
};

struct scan {
    const uint8_t *start;
    uint32_t fields_left;
    bool needs_trim;
    struct error *e;
};

/* The field that is being looked at, as a bit. */
static inline uint32_t bit_of(const struct frame *frame)
{
    ASSERT(frame->field < WIRE_FIELDS_MAX);
    return 1u << frame->field;
}

/* A value that has a length. */
struct piece {
    const uint8_t *bytes;
    size_t n;
};

/* Where the scan is: "reports[3].ref.lease_token", or the message's name at the very top. */
static void write_path(const struct frame *frame, char *out, size_t size)
{
    const struct frame *chain[WIRE_DEPTH_MAX];
    size_t n = 0;
    ASSERT(frame != NULL);
    for (const struct frame *at = frame; at != NULL; at = at->up) {
        ASSERT(n < ARRAY_LEN(chain));
        chain[n++] = at;
    }
    size_t used = 0;
    while (n > 0) {
        const struct frame *at = chain[--n];
        if (at->field == NO_FIELD) {
            break;
        }
        const ProtobufCFieldDescriptor *field = &at->type->fields[at->field];
        int more = snprintf(out + used, size - used, "%s%s", used > 0 ? "." : "", field->name);
        used += (size_t)more;
        if (at->counts[at->field] > 0) {
            more = snprintf(out + used, size - used, "[%u]", (unsigned)at->counts[at->field] - 1);
            used += (size_t)more;
        }
        ASSERT(used < size); /* names and numbers of our own */
    }
    if (used == 0) {
        snprintf(out, size, "%s", frame->type->short_name);
    }
}

/* Records what is wrong with the value that the scan is at. */
PRINTF_LIKE(4, 0)
static enum err refuse_list(const struct scan *s, const struct frame *frame, enum err code, const char *fmt,
                            va_list args)
{
    if (s->e != NULL) {
        char path[512];
        char text[512];
        vsnprintf(text, sizeof(text), fmt, args);
        write_path(frame, path, sizeof(path));
        error_set(s->e, code, "%s: %s", path, text);
    }
    return code;
}

PRINTF_LIKE(4, 5)
static enum err refuse(const struct scan *s, const struct frame *frame, enum err code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    refuse_list(s, frame, code, fmt, args);
    va_end(args);
    return code;
}

/* The same, with the hint of the rule. */
PRINTF_LIKE(5, 6)
static enum err refuse_limit(const struct scan *s, const struct frame *frame, const struct rule *rule, enum err code,
                             const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    refuse_list(s, frame, code, fmt, args);
    va_end(args);
    if (rule->hint != NULL) {
        error_hint(s->e, "%s", rule->hint);
    }
    return code;
}

static enum err refuse_bytes(const struct scan *s, const struct frame *frame, const char *what)
{
    return refuse(s, frame, ERR_INVALID, "%s at byte %zu", what, (size_t)(frame->next - s->start));
}

/* Reads a number of up to `bytes_max` bytes, 7 bits in each. */
static inline enum err read_varint(const struct scan *s, struct frame *frame, unsigned bytes_max, uint64_t *out)
{
    const uint8_t *p = frame->next;
    if (p < frame->end && *p < 0x80) {
        *out = *p;
        frame->next = p + 1;
        return ERR_OK;
    }
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes_max; i++) {
        if (p + i >= frame->end) {
            return refuse_bytes(s, frame, "the bytes end inside a number");
        }
        uint8_t byte = p[i];
        if (i == VARINT_BYTES_MAX - 1 && byte > 1) {
            break;
        }
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *out = value;
            frame->next = p + i + 1;
            return ERR_OK;
        }
    }
    return refuse_bytes(s, frame, "a number is too long");
}

static enum err read_piece(const struct scan *s, struct frame *frame, struct piece *out)
{
    uint64_t n = 0;
    enum err err = read_varint(s, frame, LENGTH_BYTES_MAX, &n);
    if (err != ERR_OK) {
        return err;
    }
    size_t left = (size_t)(frame->end - frame->next);
    if (n > left) {
        return refuse(s, frame, ERR_INVALID, "%llu bytes are announced at byte %zu, %zu are left",
                      (unsigned long long)n, (size_t)(frame->next - s->start), left);
    }
    *out = (struct piece){frame->next, (size_t)n};
    frame->next += n;
    return ERR_OK;
}

static enum err skip_fixed(const struct scan *s, struct frame *frame, size_t n)
{
    if ((size_t)(frame->end - frame->next) < n) {
        return refuse_bytes(s, frame, "the bytes end inside a number");
    }
    frame->next += n;
    return ERR_OK;
}

static enum err skip_unknown(const struct scan *s, struct frame *frame, unsigned encoding)
{
    uint64_t number = 0;
    struct piece piece = {NULL, 0};
    switch (encoding) {
    case ENCODED_VARINT:
        return read_varint(s, frame, VARINT_BYTES_MAX, &number);
    case ENCODED_64_BIT:
        return skip_fixed(s, frame, 8);
    case ENCODED_LENGTH:
        return read_piece(s, frame, &piece);
    case ENCODED_32_BIT:
        return skip_fixed(s, frame, 4);
    default:
        return refuse_bytes(s, frame, "a field has an encoding that does not exist");
    }
}

/* The texts. */

/* Which alphabets a byte belongs to. */
#define IN_ID 1
#define IN_WORKER_ID 2
#define IN_TABLE_NAME 4
#define IN_HOST 8
#define IN_ALL (IN_ID | IN_WORKER_ID | IN_TABLE_NAME | IN_HOST)
#define IN_IDS (IN_ID | IN_WORKER_ID | IN_HOST)

static const uint8_t alphabet[256] = {
    ['0' ... '9'] = IN_ALL, ['A' ... 'Z'] = IN_ALL, ['a' ... 'z'] = IN_ALL, ['_'] = IN_ALL,
    ['.'] = IN_IDS,         ['-'] = IN_IDS,         [':'] = IN_WORKER_ID,   ['@'] = IN_WORKER_ID,
};

/* The first byte outside the alphabet, or `n`. */
static size_t outside(struct piece text, unsigned letters)
{
    size_t i = 0;
    while (i < text.n && (alphabet[text.bytes[i]] & letters) != 0) {
        i++;
    }
    return i;
}

/* A byte as people can read it: 'x' or 0xff. */
static const char *show_byte(uint8_t byte, char out[8])
{
    snprintf(out, 8, byte > 0x20 && byte < 0x7f ? "'%c'" : "0x%02x", byte);
    return out;
}

static enum err check_alphabet(const struct scan *s, const struct frame *frame, struct piece text, unsigned letters,
                               const char *wanted)
{
    size_t bad = outside(text, letters);
    if (bad == text.n) {
        return ERR_OK;
    }
    char shown[8];
    return refuse(s, frame, ERR_INVALID, "must consist of %s; byte %zu is %s", wanted, bad,
                  show_byte(text.bytes[bad], shown));
}

static enum err check_table_name(const struct scan *s, const struct frame *frame, struct piece text)
{
    if (text.bytes[0] >= '0' && text.bytes[0] <= '9') {
        return refuse(s, frame, ERR_INVALID, "must not begin with a digit");
    }
    return check_alphabet(s, frame, text, IN_TABLE_NAME, "letters, digits and '_'");
}

static enum err check_utf8(const struct scan *s, const struct frame *frame, struct piece text)
{
    const uint8_t *nul = memchr(text.bytes, '\0', text.n);
    if (nul != NULL) {
        return refuse(s, frame, ERR_INVALID, "must not contain a NUL; byte %zu is one", (size_t)(nul - text.bytes));
    }
    if (!utf8_is_valid((const char *)text.bytes, text.n)) {
        return refuse(s, frame, ERR_INVALID, "is not UTF-8");
    }
    return ERR_OK;
}

static enum err check_name(const struct scan *s, const struct frame *frame, struct piece text)
{
    for (size_t i = 0; i < text.n; i++) {
        if (text.bytes[i] < 0x20 || text.bytes[i] == 0x7f) {
            return refuse(s, frame, ERR_INVALID, "must not contain control characters; byte %zu is 0x%02x", i,
                          text.bytes[i]);
        }
    }
    return check_utf8(s, frame, text);
}

static bool is_text(struct piece text, const char *wanted)
{
    return text.n == strlen(wanted) && memcmp(text.bytes, wanted, text.n) == 0;
}

static enum err check_format(const struct scan *s, const struct frame *frame, struct piece text)
{
    if (is_text(text, "parquet") || is_text(text, "csv") || is_text(text, "json")) {
        return ERR_OK;
    }
    enum err err = check_utf8(s, frame, text);
    return err != ERR_OK ? err : refuse(s, frame, ERR_INVALID, "must be parquet, csv or json");
}

/* The port at the end of an address: digits that make 1 to 65535. */
static bool is_port(struct piece text)
{
    uint32_t port = 0;
    for (size_t i = 0; i < text.n; i++) {
        if (text.bytes[i] < '0' || text.bytes[i] > '9' || port > 65535) {
            return false;
        }
        port = port * 10 + (uint32_t)(text.bytes[i] - '0');
    }
    return port >= 1 && port <= 65535;
}

/* A name, an IPv4 address, or an IPv6 address in brackets. Whether it can be reached is found out by calling it. */
static bool is_host(struct piece text)
{
    if (text.n > 2 && text.bytes[0] == '[' && text.bytes[text.n - 1] == ']') {
        for (size_t i = 1; i < text.n - 1; i++) {
            if (text.bytes[i] == '\0' || strchr("0123456789abcdefABCDEF:.%", text.bytes[i]) == NULL) {
                return false;
            }
        }
        return true;
    }
    return text.n > 0 && outside(text, IN_HOST) == text.n;
}

static enum err check_address(const struct scan *s, const struct frame *frame, struct piece text)
{
    size_t colon = text.n;
    while (colon > 0 && text.bytes[colon - 1] != ':') {
        colon--;
    }
    if (colon > 0 && is_host((struct piece){text.bytes, colon - 1}) &&
        is_port((struct piece){text.bytes + colon, text.n - colon})) {
        return ERR_OK;
    }
    enum err err = check_utf8(s, frame, text);
    return err != ERR_OK ? err : refuse(s, frame, ERR_INVALID, "must be HOST:PORT");
}

static enum err check_token(const struct scan *s, const struct frame *frame, struct piece token)
{
    static const uint8_t none[16];
    if (token.n != sizeof(none)) {
        return refuse(s, frame, ERR_INVALID, "must be %zu bytes, got %zu", sizeof(none), token.n);
    }
    if (memcmp(token.bytes, none, sizeof(none)) == 0) {
        return refuse(s, frame, ERR_INVALID, "must not be all zero");
    }
    return ERR_OK;
}

static enum err check_content(const struct scan *s, const struct frame *frame, const struct rule *rule,
                              struct piece piece)
{
    switch (rule->type) {
    case RULE_ID:
        return check_alphabet(s, frame, piece, IN_ID, "letters, digits, '.', '_' and '-'");
    case RULE_WORKER_ID:
        return check_alphabet(s, frame, piece, IN_WORKER_ID, "letters, digits, '.', '_', '-', ':' and '@'");
    case RULE_NAME:
        return check_name(s, frame, piece);
    case RULE_TABLE_NAME:
        return check_table_name(s, frame, piece);
    case RULE_FORMAT:
        return check_format(s, frame, piece);
    case RULE_ADDRESS:
        return check_address(s, frame, piece);
    case RULE_TEXT:
        return check_utf8(s, frame, piece);
    case RULE_TOKEN:
        return check_token(s, frame, piece);
    case RULE_BYTES:
        return ERR_OK;
    case RULE_NUMBER:
    case RULE_BOOL:
    case RULE_ENUM:
    case RULE_FRACTION:
    case RULE_MESSAGE:
    default:
        return refuse(s, frame, ERR_INTERNAL, "its rule is not one for texts or bytes");
    }
}

static enum err check_piece(struct scan *s, struct frame *frame, const struct rule *rule, struct piece piece)
{
    if (piece.n == 0) {
        if (rule->count_max > 0) {
            return refuse(s, frame, ERR_INVALID, "must not be empty");
        }
        return ERR_OK;
    }
    frame->has |= bit_of(frame);
    if (piece.n > rule->max && rule->type != RULE_TOKEN) {
        if (!rule->is_trimmed) {
            return refuse_limit(s, frame, rule, ERR_EXHAUSTED, "must be at most %llu bytes, got %zu",
                                (unsigned long long)rule->max, piece.n);
        }
        s->needs_trim = true;
    }
    return check_content(s, frame, rule, piece);
}

/* The numbers. */

static enum err check_number(struct scan *s, struct frame *frame, const struct rule *rule,
                             const ProtobufCFieldDescriptor *field, uint64_t number)
{
    if (number == 0) {
        return ERR_OK;
    }
    frame->has |= bit_of(frame);
    if (rule->type == RULE_BOOL) {
        return ERR_OK;
    }
    if (rule->type == RULE_ENUM) {
        const ProtobufCEnumDescriptor *values = field->descriptor;
        return number < values->n_values
                   ? ERR_OK
                   : refuse(s, frame, ERR_INVALID, "%lld is no %s", (long long)number, values->short_name);
    }
    if (number > UINT32_MAX && field->type == PROTOBUF_C_TYPE_UINT32) {
        return refuse(s, frame, ERR_INVALID, "must fit into 32 bits, got %llu", (unsigned long long)number);
    }
    if (number <= rule->max) {
        return ERR_OK;
    }
    if (rule->is_trimmed) {
        s->needs_trim = true;
        return ERR_OK;
    }
    return refuse_limit(s, frame, rule, ERR_INVALID, "must be at most %llu, got %llu", (unsigned long long)rule->max,
                        (unsigned long long)number);
}

static enum err scan_double(const struct scan *s, struct frame *frame)
{
    double number;
    if ((size_t)(frame->end - frame->next) < sizeof(number)) {
        return refuse_bytes(s, frame, "the bytes end inside a number");
    }
    uint64_t bits = 0;
    for (unsigned i = 0; i < sizeof(bits); i++) {
        bits |= (uint64_t)frame->next[i] << (8 * i);
    }
    memcpy(&number, &bits, sizeof(number));
    if (!(number >= 0 && number <= 1)) {
        return refuse(s, frame, ERR_INVALID, "must be a number from 0 to 1");
    }
    frame->next += sizeof(number);
    return ERR_OK;
}

/* Fields. */

/* Counts one more element of the field that the scan is at. */
static enum err count_element(struct scan *s, struct frame *frame, const struct rule *rule)
{
    if (++frame->counts[frame->field] <= rule->count_max) {
        return ERR_OK;
    }
    return refuse_limit(s, frame, rule, ERR_EXHAUSTED, "there may be at most %u", (unsigned)rule->count_max);
}

static enum err count_field(struct scan *s, struct frame *frame)
{
    if (s->fields_left == 0) {
        frame->field = NO_FIELD;
        return refuse(s, frame, ERR_EXHAUSTED, "the message has too many fields");
    }
    s->fields_left--;
    return ERR_OK;
}

/* Several numbers in one piece. The first was not counted as an element yet. */
static enum err scan_packed(struct scan *s, struct frame *frame, const struct rule *rule,
                            const ProtobufCFieldDescriptor *field)
{
    struct piece piece = {NULL, 0};
    enum err err = read_piece(s, frame, &piece);
    const uint8_t *after = frame->next;
    const uint8_t *end = frame->end;
    if (err == ERR_OK) {
        frame->next = piece.bytes;
        frame->end = piece.bytes + piece.n;
    }
    while (err == ERR_OK && frame->next < frame->end) {
        uint64_t number = 0;
        err = count_element(s, frame, rule);
        if (err == ERR_OK) {
            err = count_field(s, frame);
        }
        if (err == ERR_OK) {
            err = read_varint(s, frame, VARINT_BYTES_MAX, &number);
        }
        if (err == ERR_OK) {
            err = check_number(s, frame, rule, field, number);
        }
    }
    frame->next = after;
    frame->end = end;
    return err;
}

static enum err scan_message(struct scan *s, const struct frame *up, enum pb_kind kind, uint32_t needs,
                             struct piece piece);

static enum err scan_value(struct scan *s, struct frame *frame, const struct rule *rule,
                           const ProtobufCFieldDescriptor *field, unsigned encoding)
{
    uint64_t number = 0;
    struct piece piece = {NULL, 0};
    enum err err;
    switch (rule->type) {
    case RULE_NUMBER:
    case RULE_BOOL:
    case RULE_ENUM:
        if (encoding != ENCODED_VARINT) {
            break;
        }
        err = read_varint(s, frame, VARINT_BYTES_MAX, &number);
        return err != ERR_OK ? err : check_number(s, frame, rule, field, number);
    case RULE_FRACTION:
        if (encoding != ENCODED_64_BIT) {
            break;
        }
        return scan_double(s, frame);
    case RULE_MESSAGE:
        if (encoding != ENCODED_LENGTH) {
            break;
        }
        err = read_piece(s, frame, &piece);
        frame->has |= bit_of(frame);
        return err != ERR_OK ? err : scan_message(s, frame, rule->sub, rule->sub_needs, piece);
    case RULE_ID:
    case RULE_WORKER_ID:
    case RULE_NAME:
    case RULE_TABLE_NAME:
    case RULE_FORMAT:
    case RULE_ADDRESS:
    case RULE_TEXT:
    case RULE_BYTES:
    case RULE_TOKEN:
    default:
        if (encoding != ENCODED_LENGTH) {
            break;
        }
        err = read_piece(s, frame, &piece);
        return err != ERR_OK ? err : check_piece(s, frame, rule, piece);
    }
    return refuse(s, frame, ERR_INVALID, "has encoding %u, which is not that of its type", encoding);
}

/* The index of the field with the number, or NO_FIELD. Numbers without gaps are found at once. */
static uint32_t find_field(const ProtobufCMessageDescriptor *type, uint32_t number)
{
    if (number <= type->n_fields && type->fields[number - 1].id == number) {
        return number - 1;
    }
    for (uint32_t i = 0; i < type->n_fields && type->fields[i].id <= number; i++) {
        if (type->fields[i].id == number) {
            return i;
        }
    }
    return NO_FIELD;
}

static enum err scan_field(struct scan *s, struct frame *frame)
{
    uint64_t tag = 0;
    frame->field = NO_FIELD;
    enum err err = count_field(s, frame);
    if (err == ERR_OK) {
        err = read_varint(s, frame, TAG_BYTES_MAX, &tag);
    }
    if (err != ERR_OK) {
        return err;
    }
    if (tag > UINT32_MAX || tag >> 3 == 0) {
        return refuse_bytes(s, frame, "a field has a number that does not exist");
    }
    unsigned encoding = (unsigned)(tag & 7);
    uint32_t index = find_field(frame->type, (uint32_t)tag >> 3);
    if (index == NO_FIELD) {
        return skip_unknown(s, frame, encoding);
    }
    const ProtobufCFieldDescriptor *field = &frame->type->fields[index];
    const struct rule *rule = &frame->rules->fields[index];
    frame->field = index;
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        if (rule->type == RULE_NUMBER && encoding == ENCODED_LENGTH) {
            return scan_packed(s, frame, rule, field);
        }
        err = count_element(s, frame, rule);
        if (err != ERR_OK) {
            return err;
        }
    } else if ((frame->given & bit_of(frame)) != 0) {
        return refuse(s, frame, ERR_INVALID, "is given twice");
    }
    frame->given |= bit_of(frame);
    return scan_value(s, frame, rule, field, encoding);
}

static enum err check_needs(const struct scan *s, struct frame *frame, uint32_t needs)
{
    for (uint32_t i = 0; i < frame->rules->n_fields; i++) {
        uint32_t bit = 1u << i;
        if ((frame->rules->fields[i].is_needed || (needs & bit) != 0) && (frame->has & bit) == 0) {
            frame->field = i;
            return refuse(s, frame, ERR_INVALID, "is missing");
        }
    }
    return ERR_OK;
}

/* Messages inside messages: no deeper than WIRE_DEPTH_MAX, which the protocol as it is does not reach. */
static enum err scan_message(struct scan *s, const struct frame *up, enum pb_kind kind, uint32_t needs,
                             struct piece piece)
{
    struct frame frame;
    frame.up = up;
    frame.type = pb_descriptors[kind];
    frame.rules = wire__rules(kind);
    frame.next = piece.bytes;
    frame.end = piece.bytes + piece.n;
    frame.field = NO_FIELD;
    frame.given = 0;
    frame.has = 0;
    frame.depth = up == NULL ? 0 : up->depth + 1;
    ASSERT(frame.rules->n_fields == frame.type->n_fields);
    ASSERT(frame.rules->n_fields <= WIRE_FIELDS_MAX);
    if (up != NULL && frame.depth >= WIRE_DEPTH_MAX) {
        return refuse(s, up, ERR_INVALID, "is nested too deeply");
    }
    memset(frame.counts, 0, frame.rules->n_fields * sizeof(frame.counts[0]));
    while (frame.next < frame.end) {
        enum err err = scan_field(s, &frame);
        if (err != ERR_OK) {
            return err;
        }
    }
    return check_needs(s, &frame, needs);
}

enum err wire__scan(enum pb_kind kind, const void *bytes, size_t n, bool *out_needs_trim, struct error *e)
{
    static const uint8_t nothing[1];
    struct scan s = {.start = n > 0 ? bytes : nothing, .fields_left = wire__rules(kind)->fields_max, .e = e};
    if (n > LIMIT_WIRE_BYTES) {
        return error_set(e, ERR_EXHAUSTED, "%s: must be at most %d bytes, got %zu", pb_descriptors[kind]->short_name,
                         LIMIT_WIRE_BYTES, n);
    }
    enum err err = scan_message(&s, NULL, kind, 0, (struct piece){s.start, n});
    if (err == ERR_OK) {
        *out_needs_trim = s.needs_trim;
    }
    return err;
}
