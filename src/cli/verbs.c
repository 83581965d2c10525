/*
 * verbs.c - the table of the client's verbs. Each row is all that parsing, help and completion know about a verb.
 */
#include "cli/verbs.h"

#include "base/limits.h"
#include "cli/print.h"

#define JOB_STATES "queued|running|succeeded|failed|canceled"
#define TASK_STATES "queued|running|succeeded|failed|canceled|skipped"

#define OUTPUT_OPTION                                                                                                  \
    {                                                                                                                  \
        "output", 'o', false, OPTION_CHOICE, PRINT_FORMATS, NULL, 0, 0, "how rows are printed; else as a table"        \
    }
#define OUT_OPTION                                                                                                     \
    {                                                                                                                  \
        "out", 0, false, OPTION_FILE, "FILE", NULL, 0, 0, "write there; the file appears when it is complete"          \
    }

#define OPTIONS(list) .options = (list), .n_options = ARRAY_LEN(list)

static const struct option sql_options[] = {
    {"file", 'f', false, OPTION_FILE, "FILE", NULL, 0, 0, "read the SQL from a file"},
    OUTPUT_OPTION,
    OUT_OPTION,
    {"explain", 0, false, OPTION_FLAG, NULL, NULL, 0, 0,
     "do not run it, print its stages; the plan itself with -o json"},
    {"analyze", 0, false, OPTION_FLAG, NULL, NULL, 0, 0,
     "run it, print what its stages took; rows only with -o or --out"},
    {"param", 'p', true, OPTION_TEXT, "[NAME=]VALUE", NULL, 0, 0,
     "a value for $NAME in the SQL, or for $1, $2, ... in turn: JSON, else a text"},
    {"set", 0, true, OPTION_PAIR, "NAME=VALUE", NULL, 0, 0,
     "for this query: partitions, forced, single_task_bytes, broadcast_bytes, partition_bytes, tail_bytes"},
    {"priority", 0, false, OPTION_NUMBER, "N", NULL, 0, 3, "0 urgent, 1 high, 2 normal, 3 low"},
    {"id", 0, false, OPTION_TEXT, "ID", NULL, 0, 0, "the job's id; else one is made"},
    {"key", 0, false, OPTION_TEXT, "KEY", NULL, 0, 0,
     "idempotency key: a second submit with it within a day yields the first job"},
    {"detach", 'd', false, OPTION_FLAG, NULL, NULL, 0, 0, "do not wait: print the job's id"},
    {"quiet", 'q', false, OPTION_FLAG, NULL, NULL, 0, 0, "show no progress"},
};

static const struct option results_options[] = {OUTPUT_OPTION, OUT_OPTION};

static const struct option run_options[] = {
    {"param", 'p', true, OPTION_PAIR, "NAME=VALUE", NULL, 0, 0, "a text for ${params.NAME} in the tree"},
    {"param-json", 0, true, OPTION_PAIR, "NAME=JSON", NULL, 0, 0, "a JSON value for ${params.NAME} in the tree"},
    {"id", 0, false, OPTION_TEXT, "ID", NULL, 0, 0, "the job's id; else one is made"},
    {"key", 0, false, OPTION_TEXT, "KEY", NULL, 0, 0,
     "idempotency key: a second submit with it within a day yields the first job"},
    {"detach", 'd', false, OPTION_FLAG, NULL, NULL, 0, 0, "do not wait: print the job's id, as submit does"},
    {"quiet", 'q', false, OPTION_FLAG, NULL, NULL, 0, 0, "show no progress"},
};

static const struct option submit_options[] = {
    {"param", 'p', true, OPTION_PAIR, "NAME=VALUE", NULL, 0, 0, "a text for ${params.NAME} in the tree"},
    {"param-json", 0, true, OPTION_PAIR, "NAME=JSON", NULL, 0, 0, "a JSON value for ${params.NAME} in the tree"},
    {"id", 0, false, OPTION_TEXT, "ID", NULL, 0, 0, "the job's id; else one is made"},
    {"key", 0, false, OPTION_TEXT, "KEY", NULL, 0, 0,
     "idempotency key: a second submit with it within a day yields the first job"},
};

static const struct option jobs_options[] = {
    {"state", 0, false, OPTION_CHOICE, JOB_STATES, NULL, 0, 0, "only jobs in this state"},
    {"name", 0, false, OPTION_TEXT, "NAME", NULL, 0, 0, "only jobs of this name"},
    {"limit", 'n', false, OPTION_NUMBER, "N", "20", 1, 1000, "at most so many"},
    {"after", 0, false, OPTION_TEXT, "PAGE", NULL, 0, 0, "go on where a list ended"},
};

static const struct option tasks_options[] = {
    {"state", 0, false, OPTION_CHOICE, TASK_STATES, NULL, 0, 0, "only tasks in this state"},
    {"limit", 'n', false, OPTION_NUMBER, "N", "1000", 1, LIMIT_TASKS_PER_JOB, "at most so many"},
    {"after", 0, false, OPTION_TEXT, "PAGE", NULL, 0, 0, "go on where a list ended"},
};

static const struct option cancel_options[] = {
    {"reason", 0, false, OPTION_TEXT, "TEXT", NULL, 0, 0, "why; kept with the job"},
};

static const struct option retry_options[] = {
    {"from", 0, false, OPTION_TEXT, "TASK", NULL, 0, 0,
     "run this task again, and all that depend on it; of a query: this stage"},
};

static const struct option events_options[] = {
    {"follow", 'f', false, OPTION_FLAG, NULL, NULL, 0, 0, "go on with what happens, until Ctrl-C"},
    {"after", 0, false, OPTION_NUMBER, "NUMBER", "0", 0, 0, "only events with a higher number"},
};

static const struct option nodes_options[] = {
    {"executor", 0, false, OPTION_TEXT, "NAME", NULL, 0, 0, "only workers with this executor"},
    {"capability", 0, false, OPTION_PAIR, "NAME=VALUE", NULL, 0, 0, "only workers with this capability"},
    {"operator", 0, false, OPTION_TEXT, "NAME", NULL, 0, 0, "only workers with this custom operator"},
};

static const struct option table_options[] = {
    {"format", 0, false, OPTION_CHOICE, "parquet|csv|json", NULL, 0, 0, "of the files; else by their names"},
};

static const struct option help_options[] = {
    {"markdown", 0, false, OPTION_FLAG, NULL, NULL, 0, 0, "all verbs, flags and settings as a page of Markdown"},
    {"man", 0, false, OPTION_FLAG, NULL, NULL, 0, 0, "all verbs, flags and settings as a manual page"},
};

const struct verb cli_verbs[] = {
    {.name = "sql",
     .usage = "'SELECT ...' | -f FILE [-o FORMAT] [--out FILE] [--param [NAME=]VALUE]... [--explain | --analyze]",
     .summary = "run SQL on the cluster, print its rows",
     .help =
         "Runs SQL, DuckDB's dialect, over files and named data sets ('capstan table'), and prints the rows: from an "
         "argument, a file or stdin. Rows come as a table for people, also when stdout is no terminal; scripts say "
         "-o csv, json or jsonl, or --json. parquet needs --out FILE. With --explain nothing is run. Ctrl-C cancels "
         "the query on the cluster. Exits with 0 if it succeeded, 1 if it failed, 130 if it was interrupted.",
     .example = "capstan sql \"SELECT city, count(*) FROM '/data/orders/*.parquet' GROUP BY city\"\n"
                "capstan sql 'SELECT * FROM orders WHERE day = $day' --param day=2026-11-15 -o csv --out day.csv\n"
                "capstan sql -f report.sql --analyze",
     .args_max = 1,
     .groups = VERB_CLIENT,
     OPTIONS(sql_options),
     .run = verb_sql},
    {.name = "run",
     .usage = "TREE.json [--param NAME=VALUE]... [--detach]",
     .summary = "submit a task tree, show live progress, print its results",
     .help =
         "Submits the tree in the file ('-': from stdin), shows on stderr how its tasks go, and prints their results "
         "as JSON when all have succeeded. Ctrl-C cancels the job on the cluster. Exits with 0 if the job succeeded, "
         "1 if it failed, 130 if it was interrupted.",
     .example = "capstan run nightly.json --param day=2026-11-15",
     .args_min = 1,
     .args_max = 1,
     .takes_files = true,
     .groups = VERB_CLIENT,
     OPTIONS(run_options),
     .run = verb_run},
    {.name = "submit",
     .usage = "TREE.json [--param NAME=VALUE]...",
     .summary = "submit a task tree, print the job's id",
     .help = "Submits the tree in the file ('-': from stdin) and prints the job's id as soon as the job is durable.",
     .example = "id=$(capstan submit nightly.json)\ncapstan job $id",
     .args_min = 1,
     .args_max = 1,
     .takes_files = true,
     .groups = VERB_CLIENT,
     OPTIONS(submit_options),
     .run = verb_submit},
    {.name = "jobs",
     .usage = "[--state STATE] [--name NAME] [--limit N]",
     .summary = "list jobs, the newest first",
     .help = "Lists jobs, running ones and ended ones, the newest first.",
     .example = "capstan jobs --state failed --limit 5",
     .groups = VERB_CLIENT,
     OPTIONS(jobs_options),
     .run = verb_jobs},
    {.name = "job",
     .usage = "ID",
     .summary = "show one job with its stages",
     .help = "Shows the state of one job and of its stages. In a task tree each task is a stage.",
     .example = "capstan job 0197a3c2-7d54-7e11-8c7b-5a1f2f0e9b21",
     .args_min = 1,
     .args_max = 1,
     .takes_job = true,
     .groups = VERB_CLIENT,
     .run = verb_job},
    {.name = "tasks",
     .usage = "ID [--state STATE] [--limit N]",
     .summary = "list the tasks of a job",
     .help = "Lists the tasks of a job with their state, worker, time and last error.",
     .example = "capstan tasks 0197a3c2-7d54-7e11-8c7b-5a1f2f0e9b21 --state failed",
     .args_min = 1,
     .args_max = 1,
     .takes_job = true,
     .groups = VERB_CLIENT,
     OPTIONS(tasks_options),
     .run = verb_tasks},
    {.name = "results",
     .usage = "ID [-o FORMAT] [--out FILE]",
     .summary = "print the results of a job",
     .help =
         "Prints the rows of a query, in the formats of 'capstan sql'; of a task tree one JSON object with the result of "
         "each task by its name: laid out for people, or on one line with --json. Of a tree that failed or was canceled "
         "it prints what there is, says so on stderr and exits with 1.",
     .example = "capstan results 0197a3c2-7d54-7e11-8c7b-5a1f2f0e9b21 --json\n"
                "capstan results 0197a3c2-7d54-7e11-8c7b-5a1f2f0e9b21 -o parquet --out rows.parquet",
     .args_min = 1,
     .args_max = 1,
     .takes_job = true,
     .groups = VERB_CLIENT,
     OPTIONS(results_options),
     .run = verb_results},
    {.name = "cancel",
     .usage = "ID [--reason TEXT]",
     .summary = "cancel a job; what runs is stopped",
     .help = "Cancels a job. Tasks that wait never start, tasks that run are stopped on their workers. A job that has "
             "ended stays as it is.",
     .example = "capstan cancel 0197a3c2-7d54-7e11-8c7b-5a1f2f0e9b21 --reason 'wrong day'",
     .args_min = 1,
     .args_max = 1,
     .takes_job = true,
     .groups = VERB_CLIENT,
     OPTIONS(cancel_options),
     .run = verb_cancel},
    {.name = "retry",
     .usage = "ID [--from TASK]",
     .summary = "run what failed in a job once more",
     .help =
         "Queues the failed and skipped tasks of an ended job again, or with --from the named task and all that "
         "depend on it. Results of the other tasks are kept. Of a query --from names a stage, such as s1; what passes "
         "between stages goes with the end of a query, so what that stage reads is computed again, too.",
     .example = "capstan retry 0197a3c2-7d54-7e11-8c7b-5a1f2f0e9b21 --from load",
     .args_min = 1,
     .args_max = 1,
     .takes_job = true,
     .groups = VERB_CLIENT,
     OPTIONS(retry_options),
     .run = verb_retry},
    {.name = "why",
     .usage = "ID",
     .summary = "say why tasks of a job are not running",
     .help = "Says for every queued task of a job what it is waiting for.",
     .example = "capstan why 0197a3c2-7d54-7e11-8c7b-5a1f2f0e9b21",
     .args_min = 1,
     .args_max = 1,
     .takes_job = true,
     .groups = VERB_CLIENT,
     .run = verb_why},
    {.name = "events",
     .usage = "[ID] [--follow] [--after NUMBER]",
     .summary = "print what happened to a job, or to all",
     .help =
         "Prints events, oldest first, of one job or of the whole cluster; --follow goes on until Ctrl-C. With --json "
         "there is one object per line.",
     .example = "capstan events --follow",
     .args_max = 1,
     .takes_job = true,
     .groups = VERB_CLIENT,
     OPTIONS(events_options),
     .run = verb_events},
    {.name = "nodes",
     .usage = "[--executor NAME] [--capability NAME=VALUE] [--operator NAME]",
     .summary = "list workers",
     .help = "Lists the workers that the cluster knows, with what they can do and how busy they are.",
     .example = "capstan nodes --capability gpu=nvidia",
     .groups = VERB_CLIENT,
     OPTIONS(nodes_options),
     .run = verb_nodes},
    {.name = "node",
     .usage = "drain|undrain|clear ID",
     .summary = "drain a worker, or give it work again",
     .help = "drain: the worker gets no new tasks and finishes what it has. undrain: it gets tasks again. clear: its "
             "failures are forgotten, and its blacklisting ends.",
     .example = "capstan node drain worker-3",
     .actions = "drain|undrain|clear",
     .args_min = 2,
     .args_max = 2,
     .groups = VERB_CLIENT,
     .run = verb_node},
    {.name = "leader",
     .usage = "",
     .summary = "say which coordinator leads",
     .help = "Says which coordinator leads, where it is, and under which epoch.",
     .example = "capstan leader --server 10.0.0.1:7400,10.0.0.2:7400",
     .groups = VERB_CLIENT,
     .run = verb_leader},
    {.name = "table",
     .usage = "add NAME 'GLOB' [--format parquet|csv|json] | list | rm NAME",
     .summary = "name data sets, list them, forget them",
     .help = "Gives files a name that can be used in SQL. The files themselves are not touched.",
     .example = "capstan table add orders '/data/orders/*.parquet'",
     .actions = "add|list|rm",
     .args_min = 1,
     .args_max = 3,
     .groups = VERB_CLIENT,
     OPTIONS(table_options),
     .run = verb_table},
    {.name = "completion",
     .usage = "bash",
     .summary = "print the completion script for the shell",
     .help = "Prints a script that lets bash complete verbs, flags and values.",
     .example = "source <(capstan completion bash)",
     .actions = "bash",
     .args_min = 1,
     .args_max = 1,
     .run = verb_completion},
    {.name = "help",
     .usage = "[VERB | settings] [--markdown | --man]",
     .summary = "explain a verb, or list all",
     .help = "Lists the verbs, explains one of them as 'capstan VERB --help' does, or lists the settings that --set "
             "takes. --markdown and --man print the reference of everything.",
     .example = "capstan help run\ncapstan help settings",
     .args_max = 1,
     OPTIONS(help_options),
     .run = verb_help},
    {.name = "version",
     .usage = "",
     .summary = "print the version",
     .help = "Prints the version of this program.",
     .example = "capstan version",
     .run = verb_version},
};

const uint32_t cli_verb_count = ARRAY_LEN(cli_verbs);
