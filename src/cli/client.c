#include "cli/client.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "client/tokens.h"

#define FILE_BYTES_MAX ((size_t)64 * 1024)

static enum err read_text(struct cli *cli, const char *option, const char **out, struct error *e)
{
    const char *path = cli_text(cli, option);
    size_t n = 0;
    return path == NULL ? ERR_OK : cli_read_file(cli, path, FILE_BYTES_MAX, out, &n, e);
}

/* What `up` has left for the servers of this command line; NULL if there is nothing. */
static enum err find_left_token(struct cli *cli, const char **out, struct error *e)
{
    static const char *const options[] = {"server", "join"};
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        if (verb_option_find(cli->verb, options[i]) >= 0 && cli_text(cli, options[i]) != NULL) {
            return token_find(&cli->arena, cli_text(cli, options[i]), out, e);
        }
    }
    return ERR_OK;
}

/*
 * The token is the first line of its file, or the variable itself; without either, the one that `up` has left for this
 * user. It is never printed.
 */
enum err cli_token(struct cli *cli, const char **out, struct error *e)
{
    const char *from_environment = getenv("CAPSTAN_TOKEN");
    const char *text = NULL;
    enum err err = ERR_OK;
    if (!cli_is_specific(cli, "token-file") && from_environment != NULL && from_environment[0] != '\0') {
        text = from_environment;
    } else if (cli_text(cli, "token-file") != NULL) {
        err = read_text(cli, "token-file", &text, e);
    } else {
        err = find_left_token(cli, &text, e);
    }
    if (err != ERR_OK || text == NULL) {
        return err;
    }
    size_t n = strcspn(text, "\r\n");
    char *token = arena_copy(&cli->arena, text, n + 1);
    token[n] = '\0';
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)token[i] <= ' ' || (unsigned char)token[i] >= 0x7f) {
            return error_set(e, ERR_INVALID, "the token has characters that a token cannot have");
        }
    }
    *out = n > 0 ? token : NULL;
    return ERR_OK;
}

enum err cli_credentials(struct cli *cli, struct client_options *out, struct error *e)
{
    struct client_options options = *out;
    enum err err = cli_token(cli, &options.token, e);
    options.tls = cli_flag(cli, "tls") || cli_text(cli, "tls-ca") != NULL || cli_text(cli, "tls-cert") != NULL;
    if (err == ERR_OK) {
        err = read_text(cli, "tls-ca", &options.tls_ca_pem, e);
    }
    if (err == ERR_OK) {
        err = read_text(cli, "tls-cert", &options.tls_cert_pem, e);
    }
    if (err == ERR_OK) {
        err = read_text(cli, "tls-key", &options.tls_key_pem, e);
    }
    if (err == ERR_OK && (options.tls_cert_pem == NULL) != (options.tls_key_pem == NULL)) {
        err = error_set(e, ERR_INVALID, "--tls-cert and --tls-key belong together");
    }
    if (err == ERR_OK) {
        *out = options;
    }
    return err;
}

enum err cli_client_options(struct cli *cli, struct client_options *out, struct error *e)
{
    struct client_options options = {.servers = cli_text(cli, "server"), .patience_ms = cli_number(cli, "timeout")};
    enum err err = cli_credentials(cli, &options, e);
    if (err == ERR_OK) {
        *out = options;
    }
    return err;
}

enum err cli_client(struct cli *cli, struct client **out, struct error *e)
{
    if (cli->client == NULL) {
        struct client_options options;
        enum err err = cli_client_options(cli, &options, e);
        if (err == ERR_OK) {
            err = client_open(&options, &cli->client, e);
        }
        if (err != ERR_OK) {
            return err;
        }
    }
    *out = cli->client;
    return ERR_OK;
}

enum err cli_caller(struct cli *cli, struct client_caller *out, struct error *e)
{
    struct client *client = NULL;
    enum err err = cli_client(cli, &client, e);
    if (err == ERR_OK) {
        *out = (struct client_caller){.client = client, .cancel = cli->cancel, .arena = &cli->arena};
    }
    return err;
}

enum err cli_hint(enum err err, struct error *e)
{
    if (err == ERR_UNAUTHENTICATED && e->hint[0] == '\0') {
        error_hint(e, "set CAPSTAN_TOKEN, or name a file with the token: --token-file FILE");
    }
    return err;
}

enum err cli_call(struct cli *cli, const char *path, enum pb_kind answer, const void *message, void *out_answer,
                  struct error *e)
{
    struct client_caller caller;
    enum err err = cli_caller(cli, &caller, e);
    if (err != ERR_OK) {
        return err;
    }
    struct client_call call = {.path = path, .message = message, .answer = answer, .cancel = cli->cancel};
    return cli_hint(client_call(caller.client, &call, &cli->arena, out_answer, e), e);
}

enum err cli_rows(struct cli *cli, const char *job_id, rows_bytes_fn *on_bytes, void *context, struct rows **out,
                  struct error *e)
{
    struct client_caller caller;
    enum err err = cli_caller(cli, &caller, e);
    if (err == ERR_OK) {
        *out = rows_open(&caller, job_id, on_bytes, context);
    }
    return err;
}

void *cli_message(struct cli *cli, enum pb_kind kind)
{
    return wire_new(kind, &cli->arena);
}
