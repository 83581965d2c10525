/*
 * wordcount.c - an executor that counts lines, words and bytes, as an example of a plug-in.
 *
 *     inputs   {"text": "..."} or {"file": "/path/to/a/file"}
 *     result   {"lines": 1, "words": 2, "bytes": 12}
 *
 * It shows what an executor has to do: read its inputs (plug-ins bring their own JSON reader; this one has a small one for
 * texts), tell how far it is, end soon when it is stopped, and say clearly what went wrong and whether another try makes
 * sense. Nothing here is shared between runs, so it may run on any number of threads at a time.
 */
#include <capstan/executor.h>

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BLOCK_BYTES 65536

struct count {
    uint64_t lines;
    uint64_t words;
    uint64_t bytes;
    bool is_in_word;
};

static void count_bytes(struct count *count, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool is_space = isspace((unsigned char)bytes[i]) != 0;
        count->lines += bytes[i] == '\n' ? 1 : 0;
        count->words += !is_space && !count->is_in_word ? 1 : 0;
        count->is_in_word = !is_space;
    }
    count->bytes += n;
}

__attribute__((format(printf, 4, 5))) static void fail(const struct capstan_host *host, struct capstan_run *run,
                                                       enum capstan_failure kind, const char *format, ...)
{
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    host->set_error(run, kind, text, strlen(text));
}

/* Reading the inputs. The worker has checked that they are valid JSON, so this only has to find its way. */

static const char *skip_space(const char *p)
{
    while (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r') {
        p++;
    }
    return p;
}

/* `p` is at the quote that begins a text; returns what follows the one that ends it. */
static const char *skip_text(const char *p)
{
    for (p++; *p != '"'; p++) {
        if (*p == '\\') {
            p++;
        }
    }
    return p + 1;
}

/* Returns what follows the value at `p`. */
static const char *skip_value(const char *p)
{
    int depth = 0;
    for (;;) {
        if (*p == '"') {
            p = skip_text(p);
        } else {
            depth += *p == '{' || *p == '[' ? 1 : 0;
            depth -= *p == '}' || *p == ']' ? 1 : 0;
            p++;
        }
        if (depth == 0 && (*p == ',' || *p == '}' || *p == '\0')) {
            return p;
        }
    }
}

/* The value of a member of the object, NULL if there is none. */
static const char *find_member(const char *object, const char *key)
{
    size_t n = strlen(key);
    const char *p = skip_space(object + 1);
    while (*p == '"') {
        const char *name = p + 1;
        const char *end = skip_text(p);
        const char *value = skip_space(skip_space(end) + 1);
        if ((size_t)(end - name) == n + 1 && memcmp(name, key, n) == 0) {
            return value;
        }
        p = skip_space(skip_value(value));
        p = *p == ',' ? skip_space(p + 1) : p;
    }
    return NULL;
}

/* Writes the character as UTF-8; returns the number of bytes. */
static size_t put_character(char *out, unsigned long c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | (c >> 6));
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | (c >> 12));
        out[1] = (char)(0x80 | ((c >> 6) & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | (c >> 18));
    out[1] = (char)(0x80 | ((c >> 12) & 0x3f));
    out[2] = (char)(0x80 | ((c >> 6) & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

static unsigned long read_hex(const char *p)
{
    char digits[5] = {p[0], p[1], p[2], p[3], '\0'};
    return strtoul(digits, NULL, 16);
}

/* Reads \uXXXX, or two of them that make one character. Returns what follows. */
static const char *read_escaped(const char *p, unsigned long *out)
{
    unsigned long c = read_hex(p + 2);
    p += 6;
    if (c >= 0xd800 && c < 0xdc00) {
        c = 0x10000 + ((c - 0xd800) << 10) + (read_hex(p + 2) - 0xdc00);
        p += 6;
    }
    *out = c;
    return p;
}

/* The text at `p`, decoded and with a NUL after it. It is never longer than it was. The caller frees it. */
static char *read_text(const char *p, size_t *out_n)
{
    static const char names[] = "bfnrt";
    static const char meant[] = "\b\f\n\r\t";
    char *text = malloc((size_t)(skip_text(p) - p));
    size_t n = 0;
    if (text == NULL) {
        return NULL;
    }
    for (p++; *p != '"';) {
        if (*p != '\\') {
            text[n++] = *p++;
        } else if (p[1] == 'u') {
            unsigned long c = 0;
            p = read_escaped(p, &c);
            n += put_character(text + n, c);
        } else {
            const char *name = strchr(names, p[1]);
            text[n++] = name != NULL ? meant[name - names] : p[1];
            p += 2;
        }
    }
    text[n] = '\0';
    *out_n = n;
    return text;
}

/* The work. False: it has failed, or was stopped. */

static bool count_file(const char *path, struct count *count, const struct capstan_host *host, struct capstan_run *run)
{
    static _Thread_local char block[BLOCK_BYTES];
    struct stat about;
    FILE *file = fopen(path, "rb");
    if (file == NULL || fstat(fileno(file), &about) != 0) {
        fail(host, run, errno == ENOENT ? CAPSTAN_NO_RETRY : CAPSTAN_RETRY, "inputs.file: %s: %s", path,
             strerror(errno));
        if (file != NULL) {
            fclose(file);
        }
        return false;
    }
    size_t n = 0;
    while (!host->is_stopped(run) && (n = fread(block, 1, sizeof(block), file)) > 0) {
        count_bytes(count, block, n);
        double fraction = about.st_size > 0 ? (double)count->bytes / (double)about.st_size : 0;
        host->set_progress(run, fraction, count->lines, count->bytes);
    }
    bool is_bad = ferror(file) != 0;
    if (is_bad) {
        fail(host, run, CAPSTAN_RETRY, "inputs.file: %s cannot be read", path);
    }
    fclose(file);
    return !is_bad && !host->is_stopped(run);
}

static void run_wordcount(void *context, const struct capstan_task *task, const struct capstan_host *host,
                          struct capstan_run *run)
{
    (void)context;
    const char *text_at = find_member(task->inputs, "text");
    const char *file_at = find_member(task->inputs, "file");
    const char *at = text_at != NULL ? text_at : file_at;
    if (at == NULL || *at != '"' || (text_at != NULL && file_at != NULL)) {
        fail(host, run, CAPSTAN_NO_RETRY, "inputs must have a text `text` or the path of a file `file`");
        return;
    }
    size_t n = 0;
    char *text = read_text(at, &n);
    if (text == NULL) {
        fail(host, run, CAPSTAN_RETRY, "out of memory");
        return;
    }
    struct count count = {0};
    bool is_done = true;
    if (text_at != NULL) {
        count_bytes(&count, text, n);
        host->set_progress(run, 1, count.lines, count.bytes);
    } else {
        is_done = count_file(text, &count, host, run);
    }
    if (is_done) {
        char result[128];
        int length =
            snprintf(result, sizeof(result), "{\"lines\":%" PRIu64 ",\"words\":%" PRIu64 ",\"bytes\":%" PRIu64 "}",
                     count.lines, count.words, count.bytes);
        host->set_result(run, result, (size_t)length);
    }
    free(text);
}

const struct capstan_executor *capstan_executor_v1(void)
{
    static const struct capstan_executor executor = {
        .size = sizeof(executor),
        .abi = CAPSTAN_EXECUTOR_ABI,
        .name = "wordcount",
        .run = run_wordcount,
    };
    return &executor;
}
