#include "exec/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

struct range {
    uint8_t bytes[16];
    uint8_t bits; /* of `bytes` that count */
    enum address_kind kind;
};

/* The first that fits decides; what fits none is public. */
static const struct range ranges4[] = {
    {{169, 254}, 16, ADDRESS_LINK_LOCAL}, {{0}, 8, ADDRESS_PRIVATE},          /* this host */
    {{10}, 8, ADDRESS_PRIVATE},                                               /* private networks */
    {{100, 64}, 10, ADDRESS_PRIVATE},                                         /* behind a provider's translation */
    {{127}, 8, ADDRESS_PRIVATE},                                              /* loopback */
    {{172, 16}, 12, ADDRESS_PRIVATE},     {{192, 0, 0}, 24, ADDRESS_PRIVATE}, /* protocols */
    {{192, 168}, 16, ADDRESS_PRIVATE},    {{198, 18}, 15, ADDRESS_PRIVATE},   /* benchmarks */
    {{224}, 4, ADDRESS_PRIVATE},                                              /* multicast */
    {{240}, 4, ADDRESS_PRIVATE},                                              /* reserved, broadcast */
};

static const struct range ranges6[] = {
    {{0xfe, 0x80}, 10, ADDRESS_LINK_LOCAL},
    {{0xfd, 0x00, 0x0e, 0xc2}, 32, ADDRESS_LINK_LOCAL}, /* the metadata of one large cloud */
    {{0}, 127, ADDRESS_PRIVATE},                        /* unspecified and loopback */
    {{0xfc}, 7, ADDRESS_PRIVATE},                       /* unique local */
    {{0xfe, 0xc0}, 10, ADDRESS_PRIVATE},                /* site-local */
    {{0xff}, 8, ADDRESS_PRIVATE},                       /* multicast */
};

/* IPv6 addresses that stand for the IPv4 address that begins at byte `at`. */
struct wrapping {
    uint8_t bytes[16];
    uint8_t bits;
    uint8_t at;
};

static const struct wrapping wrappings[] = {
    {{[10] = 0xff, [11] = 0xff}, 96, 12},           /* mapped */
    {{[8] = 0xff, [9] = 0xff}, 96, 12},             /* translated */
    {{0x00, 0x64, 0xff, 0x9b}, 96, 12},             /* NAT64 */
    {{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 48, 12}, /* NAT64, local */
    {{0x20, 0x02}, 16, 2},                          /* 6to4 */
    {{0}, 96, 12},                                  /* compatible; after ::1 was looked for */
};

static bool fits(const uint8_t *address, const uint8_t *bytes, uint8_t bits)
{
    size_t whole = bits / 8;
    uint8_t mask = (uint8_t)(0xff00 >> (bits % 8));
    return memcmp(address, bytes, whole) == 0 && (bits % 8 == 0 || (address[whole] & mask) == (bytes[whole] & mask));
}

static enum address_kind look_up(const uint8_t *address, const struct range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (fits(address, ranges[i].bytes, ranges[i].bits)) {
            return ranges[i].kind;
        }
    }
    return ADDRESS_PUBLIC;
}

static enum address_kind kind_of_6(const uint8_t *address)
{
    enum address_kind kind = look_up(address, ranges6, ARRAY_LEN(ranges6));
    for (size_t i = 0; i < ARRAY_LEN(wrappings) && kind == ADDRESS_PUBLIC; i++) {
        if (fits(address, wrappings[i].bytes, wrappings[i].bits)) {
            return look_up(address + wrappings[i].at, ranges4, ARRAY_LEN(ranges4));
        }
    }
    return kind;
}

enum address_kind address_kind_of(const struct sockaddr *address, socklen_t n)
{
    uint8_t bytes[16];
    if (address->sa_family == AF_INET && n >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in in;
        memcpy(&in, address, sizeof(in));
        memcpy(bytes, &in.sin_addr, 4);
        return look_up(bytes, ranges4, ARRAY_LEN(ranges4));
    }
    if (address->sa_family == AF_INET6 && n >= sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 in;
        memcpy(&in, address, sizeof(in));
        memcpy(bytes, &in.sin6_addr, 16);
        return kind_of_6(bytes);
    }
    return ADDRESS_FOREIGN;
}

void address_text(const struct sockaddr *address, socklen_t n, char out[ADDRESS_TEXT_BYTES])
{
    const char *text = NULL;
    if (address->sa_family == AF_INET && n >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in in;
        memcpy(&in, address, sizeof(in));
        text = inet_ntop(AF_INET, &in.sin_addr, out, ADDRESS_TEXT_BYTES);
    } else if (address->sa_family == AF_INET6 && n >= sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 in;
        memcpy(&in, address, sizeof(in));
        text = inet_ntop(AF_INET6, &in.sin6_addr, out, ADDRESS_TEXT_BYTES);
    }
    if (text == NULL) {
        snprintf(out, ADDRESS_TEXT_BYTES, "an address of another family");
    }
}
