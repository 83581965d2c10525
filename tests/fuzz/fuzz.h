/*
 * fuzz.h - what a fuzz target is: one function that takes any bytes and must neither crash nor break a promise.
 *
 * A target is a file of this folder with LLVMFuzzerTestOneInput. Linked with libFuzzer it searches for inputs; linked
 * with replay.c it is run over inputs that were found before.
 */
#ifndef CAPSTAN_TESTS_FUZZ_FUZZ_H
#define CAPSTAN_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Returns 0. A promise that does not hold aborts. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

#endif
