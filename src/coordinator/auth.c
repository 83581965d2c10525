/*
 * auth.c - the tokens of a file, by their digests.
 *
 * How long a check takes tells nothing about the tokens: all entries are looked at, each to its end. A check and a reload
 * exclude each other by a lock that checks share. Passes that were handed out stay valid over reloads, because whoever asked
 * may be about to log a name, or look at its pass again.
 */
#include "coordinator/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/sha256.h"

#define FILE_BYTES_MAX ((size_t)1024 * 1024)
#define TOKENS_MAX 1000 /* each costs every call some nanoseconds */
#define NAME_BYTES_MAX 64
#define FIELDS 3
#define BLANKS " \t\r"

struct auth_pass {
    uint8_t digest[SHA256_BYTES];
    const char *name;
    atomic_uint scopes; /* at this moment; 0: there is no such token any more */
    unsigned scopes_next;
};

struct entry {
    uint8_t digest[SHA256_BYTES];
    unsigned scopes;  /* with all that they include */
    const char *name; /* while the file is read */
    struct auth_pass *pass;
    uint32_t line;
};

struct entries {
    struct entry *items;
    uint32_t n;
};

/* What a file that was not changed has the same. */
struct stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
};

struct auth {
    char *path;
    pthread_rwlock_t lock; /* for all below */
    struct entries entries;
    struct stamp stamp;
    struct arena passes; /* of all entries that there have been, each once */
    struct auth_pass **known;
    uint32_t n_known;
};

static struct auth_pass pass_of_nobody = {.name = ""};
static struct auth_pass pass_of_everybody = {.name = "", .scopes = UINT_MAX}; /* where nobody is asked */

static const struct {
    const char *name;
    enum scope scope;
    unsigned includes;
} scopes_by_name[] = {
    {"read", SCOPE_READ, SCOPE_READ},
    {"submit", SCOPE_SUBMIT, SCOPE_SUBMIT | SCOPE_READ},
    {"worker", SCOPE_WORKER, SCOPE_WORKER | SCOPE_READ},
    {"admin", SCOPE_ADMIN, SCOPE_ADMIN | SCOPE_SUBMIT | SCOPE_WORKER | SCOPE_READ},
};

/* ---- the file ---- */

static struct stamp stamp_of(const struct stat *st)
{
    return (struct stamp){.device = st->st_dev, .inode = st->st_ino, .size = st->st_size, .changed = st->st_mtim};
}

static bool same_stamp(const struct stamp *a, const struct stamp *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

static enum err read_file(const char *path, struct buf *out, struct stamp *out_stamp, struct error *e)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0) {
        enum err code = errno == ENOENT ? ERR_NOT_FOUND : ERR_INVALID;
        error_set(e, code, "cannot open the file of tokens %s: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return code;
    }
    enum err err = ERR_OK;
    buf_append(out, NULL, 0);
    while (err == ERR_OK) {
        char chunk[16384];
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n == 0) {
            break;
        }
        if (n < 0 && errno != EINTR) {
            err = error_set(e, ERR_INVALID, "cannot read the file of tokens %s: %s", path, strerror(errno));
        } else if (n > 0 && out->n + (size_t)n > FILE_BYTES_MAX) {
            err =
                error_set(e, ERR_INVALID, "the file of tokens %s is too long: at most %zu bytes", path, FILE_BYTES_MAX);
        } else if (n > 0) {
            buf_append(out, chunk, (size_t)n);
        }
    }
    close(fd);
    *out_stamp = stamp_of(&st);
    return err;
}

/* ---- its lines ---- */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static enum err read_digest(const char *text, uint8_t out[SHA256_BYTES], struct error *e)
{
    bool is_good = strlen(text) == (size_t)2 * SHA256_BYTES;
    for (size_t i = 0; i < SHA256_BYTES && is_good; i++) {
        int high = hex_value(text[2 * i]);
        int low = hex_value(text[2 * i + 1]);
        is_good = high >= 0 && low >= 0;
        out[i] = (uint8_t)((unsigned)high << 4 | (unsigned)low);
    }
    /* What stands there instead may be the token itself, so it is not repeated. */
    return is_good ? ERR_OK : error_set(e, ERR_INVALID, "the first word is not a SHA-256 of 64 hex digits");
}

static enum err read_name(const char *text, struct error *e)
{
    static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-@";
    if (strlen(text) > NAME_BYTES_MAX || strspn(text, good) != strlen(text)) {
        return error_set(e, ERR_INVALID, "a name has at most %d letters, digits, '.', '_', '-' or '@'", NAME_BYTES_MAX);
    }
    return ERR_OK;
}

static enum err read_scopes(char *text, unsigned *out, struct error *e)
{
    char *rest = NULL;
    *out = 0;
    for (char *word = strtok_r(text, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        unsigned found = 0;
        for (size_t i = 0; i < ARRAY_LEN(scopes_by_name); i++) {
            found |= strcmp(word, scopes_by_name[i].name) == 0 ? scopes_by_name[i].includes : 0;
        }
        if (found == 0) {
            return error_set(e, ERR_INVALID, "'%.40s' is no scope: there are read, submit, worker and admin", word);
        }
        *out |= found;
    }
    return *out != 0 ? ERR_OK : error_set(e, ERR_INVALID, "there is no scope: read, submit, worker or admin");
}

static enum err read_line(char *line, struct entry *out, struct error *e)
{
    char *words[FIELDS + 1] = {0};
    char *rest = NULL;
    int n = 0;
    for (char *word = strtok_r(line, BLANKS, &rest); word != NULL && n <= FIELDS;
         word = strtok_r(NULL, BLANKS, &rest)) {
        words[n++] = word;
    }
    if (n != FIELDS) {
        return error_set(e, ERR_INVALID, "a line has three words: the SHA-256 of a token, a name, scopes");
    }
    out->name = words[1];
    enum err err = read_digest(words[0], out->digest, e);
    if (err == ERR_OK) {
        err = read_name(words[1], e);
    }
    return err == ERR_OK ? read_scopes(words[2], &out->scopes, e) : err;
}

static enum err add_entry(struct entries *entries, const struct entry *entry, struct error *e)
{
    for (uint32_t i = 0; i < entries->n; i++) {
        if (sha256_equal(entries->items[i].digest, entry->digest)) {
            return error_set(e, ERR_INVALID, "the token is on line %u already", entries->items[i].line);
        }
    }
    if (entries->n == TOKENS_MAX) {
        return error_set(e, ERR_EXHAUSTED, "there are too many tokens: at most %d", TOKENS_MAX);
    }
    entries->items = mem_realloc(entries->items, (entries->n + 1) * sizeof *entries->items);
    entries->items[entries->n++] = *entry;
    return ERR_OK;
}

/* Reads all lines, which it cuts into words: names point into the text. */
static enum err read_lines(const char *path, struct buf *text, struct entries *out, struct error *e)
{
    uint32_t number = 0;
    if (memchr(text->data, '\0', text->n) != NULL) {
        return error_set(e, ERR_INVALID, "%s is no text", path);
    }
    for (char *line = (char *)text->data, *next = NULL; line != NULL; line = next) {
        struct entry entry = {.line = ++number};
        struct error why = {0};
        char *end = strchr(line, '\n');
        next = end != NULL ? end + 1 : NULL;
        if (end != NULL) {
            *end = '\0';
        }
        line += strspn(line, BLANKS);
        if (*line == '\0' || *line == '#') {
            continue;
        }
        enum err err = read_line(line, &entry, &why);
        if (err == ERR_OK) {
            err = add_entry(out, &entry, &why);
        }
        if (err != ERR_OK) {
            error_set(e, ERR_INVALID, "%s, line %u: %s", path, number, why.message);
            error_hint(e, "a line is made by: printf %%s \"$TOKEN\" | sha256sum | sed 's/ .*/ NAME SCOPE,SCOPE/'");
            return ERR_INVALID;
        }
    }
    return ERR_OK;
}

/* ---- in use ---- */

/* The pass of the same token and name, old or new. The lock is held. */
static struct auth_pass *keep_pass(struct auth *auth, const struct entry *entry)
{
    ASSERT(entry->name != NULL);
    for (uint32_t i = 0; i < auth->n_known; i++) {
        struct auth_pass *pass = auth->known[i];
        if (sha256_equal(pass->digest, entry->digest) && strcmp(pass->name, entry->name) == 0) {
            return pass;
        }
    }
    struct auth_pass *pass = arena_zalloc(&auth->passes, sizeof *pass);
    memcpy(pass->digest, entry->digest, sizeof pass->digest);
    pass->name = arena_strdup(&auth->passes, entry->name);
    auth->known = mem_realloc(auth->known, (auth->n_known + 1) * sizeof *auth->known);
    auth->known[auth->n_known++] = pass;
    return pass;
}

/* What passes allow changes in one step each, because others look at them without the lock. It is held. */
static void keep_passes(struct auth *auth, struct entries *fresh)
{
    for (uint32_t i = 0; i < auth->n_known; i++) {
        auth->known[i]->scopes_next = 0;
    }
    for (uint32_t i = 0; i < fresh->n; i++) {
        struct entry *entry = &fresh->items[i];
        entry->pass = keep_pass(auth, entry);
        entry->pass->scopes_next = entry->scopes;
    }
    for (uint32_t i = 0; i < auth->n_known; i++) {
        atomic_store(&auth->known[i]->scopes, auth->known[i]->scopes_next);
    }
}

static enum err load(struct auth *auth, struct error *e)
{
    struct buf text = {0};
    struct entries fresh = {0};
    struct stamp stamp = {0};
    enum err err = read_file(auth->path, &text, &stamp, e);
    if (err == ERR_OK) {
        err = read_lines(auth->path, &text, &fresh, e);
    }
    if (err == ERR_OK) {
        pthread_rwlock_wrlock(&auth->lock);
        keep_passes(auth, &fresh);
        struct entries old = auth->entries;
        auth->entries = fresh;
        auth->stamp = stamp;
        fresh = old;
        pthread_rwlock_unlock(&auth->lock);
    }
    mem_free(fresh.items);
    buf_deinit(&text);
    return err;
}

enum err auth_open(const char *path, struct auth **out, struct error *e)
{
    struct auth *auth = mem_calloc(1, sizeof *auth);
    pthread_rwlock_init(&auth->lock, NULL);
    auth->path = mem_strdup(path);
    enum err err = load(auth, e);
    if (err != ERR_OK) {
        auth_close(auth);
        return err;
    }
    *out = auth;
    return ERR_OK;
}

void auth_close(struct auth *auth)
{
    if (auth == NULL) {
        return;
    }
    pthread_rwlock_destroy(&auth->lock);
    mem_free(auth->entries.items);
    mem_free(auth->known);
    arena_deinit(&auth->passes);
    mem_free(auth->path);
    mem_free(auth);
}

enum err auth_reload(struct auth *auth, struct error *e)
{
    struct stat st;
    if (stat(auth->path, &st) != 0) {
        enum err code = errno == ENOENT ? ERR_NOT_FOUND : ERR_INVALID;
        return error_set(e, code, "cannot open the file of tokens %s: %s", auth->path, strerror(errno));
    }
    struct stamp stamp = stamp_of(&st);
    pthread_rwlock_rdlock(&auth->lock);
    bool is_same = same_stamp(&stamp, &auth->stamp);
    pthread_rwlock_unlock(&auth->lock);
    return is_same ? ERR_OK : load(auth, e);
}

/* The scopes of a token; 0: there is none of that digest. */
static unsigned find(struct auth *auth, const uint8_t digest[SHA256_BYTES], const struct auth_pass **out_pass)
{
    const struct entry *found = NULL;
    pthread_rwlock_rdlock(&auth->lock);
    for (uint32_t i = 0; i < auth->entries.n; i++) {
        const struct entry *entry = &auth->entries.items[i];
        found = sha256_equal(entry->digest, digest) ? entry : found; /* and on to the last */
    }
    unsigned scopes = found != NULL ? found->scopes : 0;
    *out_pass = found != NULL ? found->pass : &pass_of_nobody;
    pthread_rwlock_unlock(&auth->lock);
    return scopes;
}

static const char *token_of(const char *authorization)
{
    static const char scheme[] = "Bearer ";
    if (authorization == NULL || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0) {
        return NULL;
    }
    const char *token = authorization + sizeof scheme - 1;
    return token + strspn(token, " ");
}

/* "read", "submit or admin": what is in the set, by name. */
static void write_scopes(unsigned scopes, struct buf *out)
{
    buf_append(out, NULL, 0);
    for (size_t i = 0; i < ARRAY_LEN(scopes_by_name); i++) {
        if ((scopes & scopes_by_name[i].scope) != 0) {
            buf_format(out, "%s%s", out->n > 0 ? " or " : "", scopes_by_name[i].name);
        }
    }
}

static enum err refuse(const char *name, bool is_sent, unsigned scopes, struct error *e)
{
    struct buf needed = {0};
    enum err err;
    write_scopes(scopes, &needed);
    if (name[0] != '\0') {
        err = error_set(e, ERR_DENIED, "the token '%s' does not allow this: it needs the scope %s", name, needed.data);
        error_hint(e, "use a token with that scope; 'admin' has all of them");
    } else {
        err = error_set(e, ERR_UNAUTHENTICATED, "%s: this needs one with the scope %s",
                        is_sent ? "the token is not known here" : "no token was sent", needed.data);
        error_hint(e, "set CAPSTAN_TOKEN, or name a file with the token: --token-file FILE");
    }
    buf_deinit(&needed);
    return err;
}

const char *auth_pass_name(const struct auth_pass *pass)
{
    return pass->name;
}

bool auth_pass_allows(const struct auth_pass *pass, unsigned scopes)
{
    return scopes == SCOPE_NONE || (atomic_load(&pass->scopes) & scopes) != 0;
}

enum err auth_check(struct auth *auth, const char *authorization, unsigned scopes, const struct auth_pass **out_pass,
                    struct error *e)
{
    const struct auth_pass *pass = auth == NULL ? &pass_of_everybody : &pass_of_nobody;
    const char *token = token_of(authorization);
    unsigned granted = 0;
    if (auth != NULL && token != NULL) {
        uint8_t digest[SHA256_BYTES];
        sha256_once(token, strlen(token), digest);
        granted = find(auth, digest, &pass);
    }
    if (out_pass != NULL) {
        *out_pass = pass;
    }
    if (auth == NULL || scopes == SCOPE_NONE || (granted & scopes) != 0) {
        return ERR_OK;
    }
    return refuse(pass->name, token != NULL, scopes, e);
}
