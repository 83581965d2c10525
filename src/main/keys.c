#include "main/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define PEM_BYTES_MAX ((size_t)1024 * 1024)

static const char *const options[KEY_FILES] = {[KEY_TOKENS] = "auth-tokens",
                                               [KEY_CERT] = "tls-cert",
                                               [KEY_KEY] = "tls-key",
                                               [KEY_CLIENT_CA] = "tls-client-ca",
                                               [KEY_CA] = "tls-ca"};

static enum err read_pem(const char *path, const char *option, struct buf *out, struct error *e)
{
    char chunk[4096];
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return error_set(e, ERR_INVALID, "--%s: cannot open %s: %s", option, path, strerror(errno));
    }
    buf_reset(out);
    buf_append(out, NULL, 0);
    while ((n = read(fd, chunk, sizeof chunk)) > 0 && out->n < PEM_BYTES_MAX) {
        buf_append(out, chunk, (size_t)n);
    }
    int error = errno;
    close(fd);
    if (n < 0) {
        return error_set(e, ERR_INVALID, "--%s: cannot read %s: %s", option, path, strerror(error));
    }
    if (n > 0) {
        return error_set(e, ERR_INVALID, "--%s: %s is too long: at most %zu bytes", option, path, PEM_BYTES_MAX);
    }
    return ERR_OK;
}

static enum err read_pems(const struct keys *keys, struct buf pems[KEY_FILES], struct error *e)
{
    enum err err = ERR_OK;
    for (int i = KEY_CERT; i < KEY_FILES && err == ERR_OK; i++) {
        err = keys->paths[i] != NULL ? read_pem(keys->paths[i], options[i], &pems[i], e) : ERR_OK;
    }
    return err;
}

/* Texts of files that are not named are NULL. */
static struct service_tls tls_of(const struct buf pems[KEY_FILES])
{
    return (struct service_tls){
        .cert_pem = pems[KEY_CERT].data, .key_pem = pems[KEY_KEY].data, .client_ca_pem = pems[KEY_CLIENT_CA].data};
}

static struct rpc_identity_pems identity_of(const struct buf pems[KEY_FILES])
{
    return (struct rpc_identity_pems){.ca = pems[KEY_CA].data, .cert = pems[KEY_CERT].data, .key = pems[KEY_KEY].data};
}

struct service_tls keys_tls(const struct keys *keys)
{
    return tls_of(keys->pems);
}

/* Whether the file is another than it was, and from now on not any more. One that is away has not changed. */
static bool has_changed(struct keys *keys, int i)
{
    struct stat now;
    struct stat *seen = &keys->seen[i];
    if (keys->paths[i] == NULL || stat(keys->paths[i], &now) != 0) {
        return false;
    }
    bool is_same = now.st_dev == seen->st_dev && now.st_ino == seen->st_ino && now.st_size == seen->st_size &&
                   now.st_mtim.tv_sec == seen->st_mtim.tv_sec && now.st_mtim.tv_nsec == seen->st_mtim.tv_nsec;
    *seen = now;
    return !is_same;
}

enum err keys_open(struct cli *cli, struct keys *keys, struct error *e)
{
    enum err err = ERR_OK;
    for (int i = 0; i < KEY_FILES; i++) {
        keys->paths[i] = verb_option_find(cli->verb, options[i]) >= 0 ? cli_text(cli, options[i]) : NULL;
        (void)has_changed(keys, i); /* before it is read: what changes meanwhile is seen by the first look */
    }
    if ((keys->paths[KEY_CERT] == NULL) != (keys->paths[KEY_KEY] == NULL)) {
        return error_set(e, ERR_INVALID, "--tls-cert and --tls-key belong together");
    }
    if (keys->paths[KEY_CLIENT_CA] != NULL && keys->paths[KEY_CERT] == NULL) {
        return error_set(e, ERR_INVALID, "--tls-client-ca needs --tls-cert and --tls-key");
    }
    if (keys->paths[KEY_TOKENS] != NULL) {
        err = auth_open(keys->paths[KEY_TOKENS], &keys->auth, e);
    }
    if (err == ERR_OK) {
        err = read_pems(keys, keys->pems, e);
    }
    if (err == ERR_OK && (cli_flag(cli, "tls") || keys->paths[KEY_CA] != NULL || keys->paths[KEY_CERT] != NULL)) {
        struct rpc_identity_pems pems = identity_of(keys->pems);
        err = rpc_identity_open(&pems, &keys->identity, e);
    }
    return err;
}

void keys_close(struct keys *keys)
{
    auth_close(keys->auth);
    rpc_identity_close(keys->identity);
    for (int i = 0; i < KEY_FILES; i++) {
        buf_deinit(&keys->pems[i]);
    }
    *keys = (struct keys){0};
}

static bool reload_tokens(struct keys *keys)
{
    struct error e = {0};
    bool is_done = auth_reload(keys->auth, &e) == ERR_OK;
    if (is_done) {
        log_info("auth", "the tokens were read again from %s", keys->paths[KEY_TOKENS]);
    } else {
        log_warn("auth", "the tokens stay as they were: %s", e.message);
    }
    return is_done;
}

/* Maybe only one of two files has been replaced yet, or half of one: what is missing will be another change. */
static void reload_certificates(struct keys *keys, keys_listen_fn *listen, void *listener)
{
    struct buf fresh[KEY_FILES] = {0};
    struct error e = {0};
    struct rpc_identity_pems pems;
    struct service_tls tls;
    enum err err = read_pems(keys, fresh, &e);
    if (err == ERR_OK) {
        pems = identity_of(fresh);
        tls = tls_of(fresh);
        err = rpc_identity_replace(keys->identity, &pems, &e);
    }
    if (err != ERR_OK) {
        log_warn("tls", "the certificates stay as they were: %s", e.message);
    } else if (keys->paths[KEY_CERT] != NULL && listen(listener, &tls, &e) != ERR_OK) {
        log_warn("tls", "those who connect still see the certificates of before: %s", e.message);
    } else {
        log_info("tls", "the certificates were read again; new connections get them");
    }
    for (int i = 0; i < KEY_FILES; i++) {
        buf_deinit(&fresh[i]);
    }
}

bool keys_look(struct keys *keys, keys_listen_fn *listen, void *listener)
{
    bool is_tls_new = false;
    bool has_tokens = false;
    for (int i = KEY_CERT; i < KEY_FILES; i++) {
        is_tls_new = has_changed(keys, i) || is_tls_new;
    }
    if (has_changed(keys, KEY_TOKENS)) {
        has_tokens = reload_tokens(keys);
    }
    if (is_tls_new) {
        reload_certificates(keys, listen, listener);
    }
    return has_tokens;
}
