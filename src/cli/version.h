/*
 * version.h - which Capstan this is.
 *
 * Ownership: nothing is owned. Threads: any.
 */
#ifndef CAPSTAN_CLI_VERSION_H
#define CAPSTAN_CLI_VERSION_H

#define CAPSTAN_VERSION "0.1.0"

#endif
