/*
 * worker.h - a worker of your own: Capstan's, with your operators linked in.
 *
 *     #include <capstan/worker.h>
 *
 *     extern const struct capstan_operator my_operator;
 *
 *     int main(int argc, char **argv)
 *     {
 *         capstan_register_operator(&my_operator);
 *         return capstan_worker_main(argc, argv);
 *     }
 *
 * It is linked with libcapstan_worker.a; the file capstan-worker.flags beside that has all that the compiler must know:
 *
 *     cc -std=c17 main.c my_operator.c @build/release/lib/capstan-worker.flags -o my-worker
 *     ./my-worker --join 127.0.0.1:7400 --slots 2
 *
 * Ownership: operators (capstan/operator.h) stay the program's, as they are, until it ends. Threads: both functions are for
 * the main thread, before the program has others.
 */
#ifndef CAPSTAN_WORKER_H
#define CAPSTAN_WORKER_H

#include "capstan/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The worker will have this operator. If something is wrong with it, or another has its name, capstan_worker_main says so
 * and does not start.
 */
void capstan_register_operator(const struct capstan_operator *op);

/*
 * Does what `capstan worker` does, with the same options, environment variables and settings file: argv[0] is the program, all
 * others are options. Returns the exit code of the process: 0 after it was stopped by a signal, 2 if it could not start.
 */
int capstan_worker_main(int argc, char **argv);

#ifdef __cplusplus
}
#endif

#endif
