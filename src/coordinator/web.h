/*
 * web.h - the dashboard: the files of web/, as the build has put them into the program.
 *
 * They are constants, made by web/embed.js: each file as it is and compressed, with its type and its digest. Whatever has a
 * digest in its name never changes; only the page itself, which names the others, is asked for again each time.
 *
 * Threads: any.
 */
#ifndef CAPSTAN_COORDINATOR_WEB_H
#define CAPSTAN_COORDINATOR_WEB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct web_file {
    const char *path; /* as it is asked for */
    const char *type;
    const char *etag; /* with its quotes */
    const unsigned char *plain;
    size_t n_plain;
    const unsigned char *gzip;
    size_t n_gzip;
    bool is_immutable;
};

extern const struct web_file web_files[];
extern const uint32_t web_n_files;

struct http_request;
struct http_answer;

/* The file of a path; NULL: there is none. */
const struct web_file *web_find(const char *path);

/* Answers a GET of it: compressed, if the reader can take that; only that it has not changed, if he has it already. */
void web_answer(const struct web_file *file, struct http_request *http, struct http_answer *answer);

#endif
