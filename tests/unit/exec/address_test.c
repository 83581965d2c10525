#include "../test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/un.h>

#include "exec/address.h"

static enum address_kind kind_of(const char *text)
{
    struct sockaddr_in in4 = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    struct sockaddr_storage address = {0};
    char back[ADDRESS_TEXT_BYTES];
    if (inet_pton(AF_INET, text, &in4.sin_addr) == 1) {
        memcpy(&address, &in4, sizeof(in4));
    } else {
        CHECK_INT(inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
        memcpy(&address, &in6, sizeof(in6));
    }
    address_text((const struct sockaddr *)&address, sizeof(address), back);
    CHECK_STR(back, text);
    return address_kind_of((const struct sockaddr *)&address, sizeof(address));
}

TEST(link_local_addresses_are_told_whatever_they_are_wrapped_in)
{
    CHECK_INT(kind_of("169.254.0.0"), ADDRESS_LINK_LOCAL);
    CHECK_INT(kind_of("169.254.169.254"), ADDRESS_LINK_LOCAL);
    CHECK_INT(kind_of("169.254.255.255"), ADDRESS_LINK_LOCAL);
    CHECK_INT(kind_of("fe80::1"), ADDRESS_LINK_LOCAL);
    CHECK_INT(kind_of("febf:ffff::"), ADDRESS_LINK_LOCAL);
    CHECK_INT(kind_of("fd00:ec2::254"), ADDRESS_LINK_LOCAL);
    CHECK_INT(kind_of("::ffff:169.254.169.254"), ADDRESS_LINK_LOCAL);
    CHECK_INT(kind_of("::169.254.169.254"), ADDRESS_LINK_LOCAL);
    CHECK_INT(kind_of("64:ff9b::a9fe:a9fe"), ADDRESS_LINK_LOCAL);
    CHECK_INT(kind_of("2002:a9fe:a9fe::1"), ADDRESS_LINK_LOCAL);
}

TEST(addresses_beside_the_link_local_ones_are_none)
{
    CHECK_INT(kind_of("169.253.255.255"), ADDRESS_PUBLIC);
    CHECK_INT(kind_of("169.255.0.0"), ADDRESS_PUBLIC);
    CHECK_INT(kind_of("fe7f:ffff::"), ADDRESS_PUBLIC);
}

TEST(private_addresses_are_told)
{
    const char *const all[] = {"0.0.0.0",
                               "10.0.0.1",
                               "10.255.255.255",
                               "100.64.0.1",
                               "100.127.255.255",
                               "127.0.0.1",
                               "127.255.255.255",
                               "172.16.0.1",
                               "172.31.255.255",
                               "192.0.0.8",
                               "192.168.0.1",
                               "198.18.0.1",
                               "198.19.255.255",
                               "224.0.0.1",
                               "239.255.255.255",
                               "255.255.255.255",
                               "240.0.0.1",
                               "::",
                               "::1",
                               "fc00::1",
                               "fdff:ffff::1",
                               "fec0::1",
                               "ff02::1",
                               "::ffff:127.0.0.1",
                               "::ffff:10.1.2.3",
                               "64:ff9b::7f00:1",
                               "2002:7f00:1::"};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        CHECK_INT(kind_of(all[i]), ADDRESS_PRIVATE);
    }
}

TEST(public_addresses_are_told)
{
    const char *const all[] = {
        "1.1.1.1",    "9.255.255.255",   "11.0.0.0",        "100.63.255.255",  "100.128.0.0",    "126.255.255.255",
        "128.0.0.1",  "172.15.255.255",  "172.32.0.0",      "192.167.255.255", "192.169.0.0",    "198.17.255.255",
        "198.20.0.0", "223.255.255.255", "2606:4700::1111", "::ffff:1.1.1.1",  "2002:101:101::", "fbff::1"};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        CHECK_INT(kind_of(all[i]), ADDRESS_PUBLIC);
    }
}

TEST(other_families_and_short_addresses_are_foreign)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    char text[ADDRESS_TEXT_BYTES];
    CHECK_INT(address_kind_of((const struct sockaddr *)&local, sizeof(local)), ADDRESS_FOREIGN);
    address_text((const struct sockaddr *)&local, sizeof(local), text);
    CHECK_STR(text, "an address of another family");
    struct sockaddr_in in = {.sin_family = AF_INET};
    CHECK_INT(address_kind_of((const struct sockaddr *)&in, sizeof(in) - 1), ADDRESS_FOREIGN);
}
