/*
 * worker.c - a worker of one's own: Capstan's, with the operator add_five linked in.
 *
 *     ./operator-worker --join 127.0.0.1:7400 --slots 2
 *
 * It takes the options of `capstan worker`, and runs everything that such a worker runs.
 */
#include <capstan/worker.h>

#include "../operator-plugin/add_five.h"

int main(int argc, char **argv)
{
    capstan_register_operator(&add_five);
    return capstan_worker_main(argc, argv);
}
