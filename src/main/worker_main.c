/*
 * worker_main.c - the way in for workers that others link (include/capstan/worker.h): the verb `worker` of this program.
 */
#include <stdio.h>

#include "base/mem.h"
#include "capstan/worker.h"
#include "cli/cli.h"
#include "exec/operator.h"
#include "main/program.h"

int capstan_worker_main(int argc, char **argv)
{
    static char verb[] = "worker";
    struct error e = {0};
    if (operators_linked(&e) != ERR_OK) {
        struct buf text = {0};
        cli_write_error(&text, &e);
        fputs(text.data, stderr);
        buf_deinit(&text);
        return EXIT_USAGE;
    }
    char **full = mem_calloc((size_t)(argc > 0 ? argc : 1) + 2, sizeof(*full));
    full[0] = argc > 0 ? argv[0] : verb;
    full[1] = verb;
    for (int i = 1; i < argc; i++) {
        full[i + 1] = argv[i];
    }
    int code = program_run(argc > 0 ? argc + 1 : 2, full);
    mem_free((void *)full);
    return code;
}
