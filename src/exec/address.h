/*
 * address.h - which network addresses a task may talk to.
 *
 * Refused always: link-local addresses, where clouds answer with the credentials of the machine (169.254.169.254 and its
 * kin). Refused on demand: every address that is not public. An IPv4 address inside an IPv6 one is looked at as what it is.
 *
 * Ownership: nothing is owned. Threads: any.
 */
#ifndef CAPSTAN_EXEC_ADDRESS_H
#define CAPSTAN_EXEC_ADDRESS_H

#include <sys/socket.h>

#define ADDRESS_TEXT_BYTES 64 /* with the NUL */

enum address_kind { ADDRESS_PUBLIC, ADDRESS_PRIVATE, ADDRESS_LINK_LOCAL, ADDRESS_FOREIGN /* neither IPv4 nor IPv6 */ };

/* `address` has `n` bytes. */
enum address_kind address_kind_of(const struct sockaddr *address, socklen_t n);

/* Writes it as people do, without the port. */
void address_text(const struct sockaddr *address, socklen_t n, char out[ADDRESS_TEXT_BYTES]);

#endif
