/*
 * verb_bench.c - how fast is this installation? Figures, always with the conditions that they were made under.
 *
 * Each benchmark is a file: bench_tasks.c, bench_latency.c, bench_sql.c, bench_shuffle.c.
 */
#include <string.h>

#include "main/bench.h"
#include "main/verbs.h"

static const struct {
    const char *name;
    enum err (*run)(struct bench *bench, struct error *e);
} benches[] = {
    {"tasks", bench_tasks},
    {"latency", bench_latency},
    {"sql", bench_sql},
    {"shuffle", bench_shuffle},
};

int verb_bench(struct cli *cli)
{
    struct bench bench = {.cli = cli, .cluster.up.output = -1};
    struct error e = {0};
    enum err err = ERR_OK;
    int code = EXIT_DONE;
    bench.interrupt = interrupt_begin();
    for (size_t i = 0; i < ARRAY_LEN(benches); i++) {
        if (strcmp(cli->args[0], benches[i].name) == 0) { /* the table of verbs has let through no other name */
            err = benches[i].run(&bench, &e);
        }
    }
    bench_end(&bench);
    if (err != ERR_OK) {
        code = interrupt_is_on(bench.interrupt) ? EXIT_INTERRUPTED : cli_fail(cli, &e);
    }
    interrupt_end(bench.interrupt);
    return code;
}
