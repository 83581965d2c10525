/*
 * names.h - names that resolve to what a test needs. The real resolver answers for all others.
 *
 *     local.test      127.0.0.1
 *     metadata.test   169.254.169.254
 *     metadata6.test  ::ffff:169.254.169.254
 *     private.test    10.1.2.3
 *     mixed.test      169.254.169.254, then 127.0.0.1
 *     rebind.test     127.0.0.1 the first time, 169.254.169.254 from then on
 *     hangs.test      no answer until names_release
 *
 * Ownership: nothing is owned. Threads: any.
 */
#ifndef CAPSTAN_TESTS_INTEGRATION_EXEC_NAMES_H
#define CAPSTAN_TESTS_INTEGRATION_EXEC_NAMES_H

#include <stdbool.h>

/* Whether somebody waits for hangs.test. */
bool names_is_asked(void);

/* Lets all who wait for hangs.test go, and waits until they have. */
void names_release(void);

#endif
