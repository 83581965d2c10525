/*
 * verb.h - the tables that the command line is made of: verbs, and the options of each.
 *
 * One table yields the parsing, --help, `capstan help`, the settings file, the environment variables and the completion
 * of the shell. A new flag is one row.
 *
 * Ownership: tables are constant and live as long as the program. Threads: any.
 */
#ifndef CAPSTAN_CLI_VERB_H
#define CAPSTAN_CLI_VERB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"

struct cli;

enum option_kind {
    OPTION_FLAG,      /* no argument: it is there or not */
    OPTION_TEXT,      /* anything */
    OPTION_ID,        /* the name of a node: letters, digits, '.', '_' and '-' */
    OPTION_FILE,      /* the name of a file; completed as such */
    OPTION_FOLDER,    /* the name of a folder */
    OPTION_NUMBER,    /* a whole number between min and max */
    OPTION_DURATION,  /* 60s; in milliseconds, between min and max */
    OPTION_SIZE,      /* 2GB; in bytes, between min and max */
    OPTION_ADDRESS,   /* HOST:PORT */
    OPTION_ADDRESSES, /* HOST:PORT,HOST:PORT... */
    OPTION_PAIR,      /* name=value */
    OPTION_CHOICE,    /* one of those in `argument`, which are separated by bars */
};

struct option {
    const char *name; /* without the dashes */
    char letter;      /* -o; 0: none */
    bool is_repeated; /* each one counts, instead of the last */
    enum option_kind kind;
    const char *argument; /* how the help calls it; the choices of OPTION_CHOICE */
    const char *fallback; /* the default as it would be written; NULL: none */
    int64_t min;
    int64_t max; /* 0: as large as fits */
    const char *help;
};

/* Which options a verb has besides its own. Every verb has --help, --json and --config. */
enum verb_group {
    VERB_CLIENT = 1,      /* talks to a coordinator: --server, --timeout, and all of the next */
    VERB_CREDENTIALS = 2, /* --token-file, --tls... */
    VERB_LOGS = 4,        /* runs until it is stopped: --log-level, --log-format */
};

struct verb {
    const char *name;
    const char *usage;   /* what follows the name: "TREE.json [--param k=v]..." */
    const char *summary; /* one line, without a full stop */
    const char *help;    /* a few sentences */
    const char *example; /* lines that can be typed */
    const char *actions; /* the first argument must be one of these, separated by bars; NULL: it may be anything */
    uint32_t args_min;   /* arguments that are no flags */
    uint32_t args_max;
    bool takes_files; /* its arguments are names of files */
    bool takes_job;   /* its first argument, if there is one, is the id of a job */
    unsigned groups;  /* enum verb_group, ored */
    const struct option *options;
    uint32_t n_options;
    int (*run)(struct cli *cli); /* returns the exit code */
};

/* A name that --set takes, for the texts about them; the coordinator's own tables read the values. */
struct setting_info {
    const char *name;
    const char *fallback; /* NULL: none */
    int64_t min;
    int64_t max; /* 0: true or false */
    const char *help;
};

/* All that a program can do. */
struct verb_table {
    const struct verb *const *verbs;
    uint32_t n_verbs;
    const struct setting_info *settings; /* of a coordinator */
    uint32_t n_settings;
    const struct setting_info *query_settings; /* of one query */
    uint32_t n_query_settings;
};

/* The options of a verb: its own first, then those of its groups, then those of every verb. */
uint32_t verb_option_count(const struct verb *verb);
const struct option *verb_option_at(const struct verb *verb, uint32_t i);

/* The options of one group, without those of another that it brings along; 0: those of every verb. */
const struct option *verb_group_options(unsigned group, uint32_t *out_n);

/* Its place among them; -1 if the verb has none of that name. */
int verb_option_find(const struct verb *verb, const char *name);

const struct verb *verb_find(const struct verb_table *table, const char *name); /* NULL: none */

/* Reads one value. `out_number` is set for flags (0 or 1), numbers, durations and sizes only. */
MUST_USE enum err option_check(const struct option *option, const char *text, int64_t *out_number, struct error *e);

/* CAPSTAN_STORE_WAIT for store-wait. */
#define OPTION_VARIABLE_BYTES 80
void option_variable(const struct option *option, char out[OPTION_VARIABLE_BYTES]);

#endif
