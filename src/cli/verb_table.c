/*
 * verb_table.c - named data sets: add, list, rm.
 */
#include <string.h>

#include "cli/client.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "wire/json_shape.h"

static int wrong_count(struct cli *cli, const char *usage)
{
    return cli_fail_with(cli, ERR_INVALID, NULL, "table: wrong arguments; usage: capstan table %s", usage);
}

/* By the end of the name, as people mean it: *.csv.gz is CSV. */
static const char *guess_format(const char *source)
{
    static const char *const ends[][2] = {{".parquet", "parquet"}, {".csv", "csv"},    {".tsv", "csv"},
                                          {".json", "json"},       {".jsonl", "json"}, {".ndjson", "json"}};
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        const char *found = strstr(source, ends[i][0]);
        if (found != NULL && strcspn(found + 1, "/.") == strlen(ends[i][0]) - 1) {
            return ends[i][1];
        }
    }
    return NULL;
}

static int add(struct cli *cli)
{
    if (cli->n_args != 3) {
        return wrong_count(cli, "add NAME 'GLOB' [--format parquet|csv|json]");
    }
    struct pb_put_table_request *request = cli_message(cli, PB_PUT_TABLE_REQUEST);
    struct pb_put_table_response *response = NULL;
    struct error e = {0};
    const char *format = cli_text(cli, "format");
    format = format != NULL ? format : guess_format(cli->args[2]);
    if (format == NULL) {
        return cli_fail_with(cli, ERR_INVALID, "say it with --format parquet, csv or json",
                             "table: cannot tell the format from the name '%s'", cli->args[2]);
    }
    request->table = cli_message(cli, PB_TABLE);
    request->table->name = (char *)cli->args[1];
    request->table->source = (char *)cli->args[2];
    request->table->format = (char *)format;
    if (cli_call(cli, "/capstan.v1.Cluster/PutTable", PB_PUT_TABLE_RESPONSE, request, &response, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    const struct pb_table *table = response->table != NULL ? response->table : request->table;
    struct buf line = {0};
    if (cli->wants_json) {
        wire_json_table(&line, table);
    } else {
        buf_format(&line, "table %s reads %s as %s", table->name, table->source, table->format);
    }
    cli_print(cli, &line);
    buf_deinit(&line);
    return EXIT_DONE;
}

static int list(struct cli *cli)
{
    static const char *const headings[] = {"TABLE", "FORMAT", "SOURCE"};
    struct pb_list_tables_response *response = NULL;
    struct error e = {0};
    if (cli->n_args != 1) {
        return wrong_count(cli, "list");
    }
    if (cli_call(cli, "/capstan.v1.Cluster/ListTables", PB_LIST_TABLES_RESPONSE,
                 cli_message(cli, PB_LIST_TABLES_REQUEST), &response, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    if (cli->wants_json) {
        struct buf line = {0};
        wire_json_tables(&line, response);
        cli_print(cli, &line);
        buf_deinit(&line);
        return EXIT_DONE;
    }
    struct table table;
    table_init(&table, headings, ARRAY_LEN(headings), 0);
    for (size_t i = 0; i < response->n_tables; i++) {
        table_cell(&table, response->tables[i]->name);
        table_cell(&table, response->tables[i]->format);
        table_cell(&table, response->tables[i]->source);
    }
    table_print(&table, cli->out, (struct table_style){.bold_headings = cli->has_colors_out});
    table_deinit(&table);
    return EXIT_DONE;
}

static int rm(struct cli *cli)
{
    struct pb_delete_table_request *request = cli_message(cli, PB_DELETE_TABLE_REQUEST);
    struct pb_delete_table_response *response = NULL;
    struct error e = {0};
    if (cli->n_args != 2) {
        return wrong_count(cli, "rm NAME");
    }
    request->name = (char *)cli->args[1];
    if (cli_call(cli, "/capstan.v1.Cluster/DeleteTable", PB_DELETE_TABLE_RESPONSE, request, &response, &e) != ERR_OK) {
        return cli_fail(cli, &e);
    }
    if (cli->wants_json) {
        fputs("{}\n", cli->out);
    } else {
        fprintf(cli->out, "table %s is gone\n", cli->args[1]);
    }
    return EXIT_DONE;
}

int verb_table(struct cli *cli)
{
    if (strcmp(cli->args[0], "add") == 0) {
        return add(cli);
    }
    return strcmp(cli->args[0], "list") == 0 ? list(cli) : rm(cli);
}
