/*
 * program.h - one run of the program, for main() and for workers that others link.
 *
 * Ownership: the arguments stay the caller's. Threads: the main thread.
 */
#ifndef CAPSTAN_MAIN_PROGRAM_H
#define CAPSTAN_MAIN_PROGRAM_H

/* Finds the verb, argv[1], reads its options and runs it. Returns the exit code of the process. */
int program_run(int argc, char *const *argv);

#endif
