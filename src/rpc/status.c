#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "rpc/rpc_internal.h"

static const enum err all[] = {
#define X(symbol, wire_name, text, grpc_code, http_status, exit_code) symbol,
    ERR_TABLE(X)
#undef X
};

enum err rpc__err_of_status(grpc_status_code status)
{
    if (status == GRPC_STATUS_UNAVAILABLE) {
        return ERR_UNAVAILABLE; /* several codes have this status */
    }
    if (status == GRPC_STATUS_OUT_OF_RANGE) {
        return ERR_INVALID;
    }
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (err_grpc(all[i]) == (int)status) {
            return all[i];
        }
    }
    return ERR_INTERNAL;
}

static bool is_plain(char c)
{
    return c >= 0x20 && c <= 0x7e && c != '%';
}

grpc_slice rpc__percent_encode(const char *text)
{
    struct buf out = {0};
    buf_append(&out, NULL, 0);
    for (const char *p = text; *p != '\0'; p++) {
        if (is_plain(*p)) {
            buf_char(&out, *p);
        } else {
            buf_format(&out, "%%%02X", (unsigned)(unsigned char)*p);
        }
    }
    grpc_slice slice = grpc_slice_from_copied_buffer(out.data, out.n);
    buf_deinit(&out);
    return slice;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void rpc__percent_decode(grpc_slice value, char *out, size_t size)
{
    const char *bytes = (const char *)GRPC_SLICE_START_PTR(value);
    size_t n = GRPC_SLICE_LENGTH(value);
    struct buf whole = {0};
    buf_append(&whole, NULL, 0);
    for (size_t i = 0; i < n; i++) {
        int high = bytes[i] == '%' && i + 2 < n ? hex_digit(bytes[i + 1]) : -1;
        int low = high < 0 ? -1 : hex_digit(bytes[i + 2]);
        if (low >= 0) {
            buf_char(&whole, (char)(high * 16 + low));
            i += 2;
        } else {
            buf_char(&whole, bytes[i]);
        }
    }
    size_t clipped = utf8_clip(whole.data, strlen(whole.data), size - 1);
    memcpy(out, whole.data, clipped);
    out[clipped] = '\0';
    buf_deinit(&whole);
}

static const grpc_metadata *find(const grpc_metadata_array *metadata, const char *key)
{
    for (size_t i = 0; metadata != NULL && i < metadata->count; i++) {
        if (grpc_slice_str_cmp(metadata->metadata[i].key, key) == 0) {
            return &metadata->metadata[i];
        }
    }
    return NULL;
}

/* -1 for anything but digits that fit. */
static int64_t parse_ms(grpc_slice value)
{
    const uint8_t *bytes = GRPC_SLICE_START_PTR(value);
    size_t n = GRPC_SLICE_LENGTH(value);
    int64_t ms = 0;
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] < '0' || bytes[i] > '9') {
            return -1;
        }
        ms = ms * 10 + (bytes[i] - '0');
    }
    return ms;
}

void rpc__trailer_read(const grpc_metadata_array *metadata, struct rpc_trailer *trailer)
{
    if (trailer == NULL) {
        return;
    }
    *trailer = (struct rpc_trailer){.staleness_ms = -1};
    const grpc_metadata *leader = find(metadata, RPC_LEADER_KEY);
    if (leader != NULL) {
        rpc__percent_decode(leader->value, trailer->leader, sizeof(trailer->leader));
    }
    trailer->is_answered = find(metadata, RPC_CODE_KEY) != NULL;
    const grpc_metadata *staleness = find(metadata, RPC_STALENESS_KEY);
    size_t digits = staleness == NULL ? 0 : GRPC_SLICE_LENGTH(staleness->value);
    if (digits > 0 && digits <= 18) {
        trailer->staleness_ms = parse_ms(staleness->value);
    }
}

enum err rpc__status_read(grpc_status_code status, grpc_slice details, const grpc_metadata_array *metadata,
                          struct error *e)
{
    enum err err = rpc__err_of_status(status);
    if (err == ERR_OK || e == NULL) {
        return err;
    }
    int n = (int)GRPC_SLICE_LENGTH(details); /* bounded by the limit on metadata */
    if (n == 0) {
        error_set(e, err, "%s", err_text(err));
    } else {
        error_set(e, err, "%.*s", n, (const char *)GRPC_SLICE_START_PTR(details));
    }
    const grpc_metadata *hint = find(metadata, RPC_HINT_KEY);
    if (hint != NULL) {
        rpc__percent_decode(hint->value, e->hint, sizeof(e->hint));
    } else if (status == GRPC_STATUS_UNIMPLEMENTED) {
        error_hint(e, "the other side may be of another version");
    }
    return err;
}
