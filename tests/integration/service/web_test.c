/* The dashboard's files, as a browser gets them: types, caching, compression, what the page may do, who may load it. */
#include <stdio.h>
#include <string.h>

#include "coordinator/web.h"
#include "http/talk.h"
#include "service/peer.h"
#include "test.h"

static void ask(struct peer *p, const char *line, const char *headers, struct buf *answer)
{
    talk(service_http_address(p->service), line, headers, NULL, answer);
}

static bool has(const struct buf *answer, const char *text)
{
    const char *end = strstr(answer->data, "\r\n\r\n");
    const char *found = strstr(answer->data, text);
    return found != NULL && found < end;
}

static size_t body_bytes(const struct buf *answer)
{
    return answer->n - (size_t)(strstr(answer->data, "\r\n\r\n") + 4 - answer->data);
}

TEST(web_the_page_is_served_with_rules_that_let_it_load_nothing_from_elsewhere)
{
    struct peer p;
    struct buf answer = {0};
    const struct web_file *page = web_find("/");
    CHECK(page != NULL);
    peer_init(&p);
    ask(&p, "GET /", "Accept-Encoding: br, gzip\r\n", &answer);
    CHECK_INT(talk_status(&answer), 200);
    CHECK(has(&answer, "Content-Type: text/html; charset=utf-8\r\n"));
    CHECK(has(&answer, "Content-Encoding: gzip\r\n"));
    CHECK(has(&answer, "Cache-Control: no-cache\r\n"));
    CHECK(has(&answer, "Vary: Accept-Encoding\r\n"));
    CHECK(has(&answer, "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "));
    CHECK(has(&answer, "frame-ancestors 'none'"));
    CHECK(has(&answer, "Referrer-Policy: no-referrer\r\n"));
    CHECK(has(&answer, "X-Content-Type-Options: nosniff\r\n"));
    CHECK(has(&answer, page->etag));

    ask(&p, "GET /", "Accept-Encoding: gzip;q=0, identity\r\n", &answer);
    CHECK(!has(&answer, "Content-Encoding"));
    CHECK(strstr(answer.data, "<title>Capstan</title>") != NULL);
    ask(&p, "GET /", "", &answer);
    CHECK(!has(&answer, "Content-Encoding"));
    ask(&p, "HEAD /", "", &answer);
    CHECK_INT(talk_status(&answer), 200);
    buf_deinit(&answer);
    peer_deinit(&p);
}

TEST(web_every_file_is_served_as_it_is_and_kept_for_ever_if_its_name_has_its_digest)
{
    struct peer p;
    struct buf answer = {0};
    uint32_t n_kept = 0;
    size_t all = 0;
    peer_init(&p);
    for (uint32_t i = 0; i < web_n_files; i++) {
        const struct web_file *file = &web_files[i];
        char line[256];
        char known[128];
        snprintf(line, sizeof line, "GET %s", file->path);
        ask(&p, line, "", &answer);
        CHECK_INT(talk_status(&answer), 200);
        CHECK(has(&answer, file->type));
        CHECK_UINT(body_bytes(&answer), file->n_plain);
        CHECK(memcmp(answer.data + answer.n - file->n_plain, file->plain, file->n_plain) == 0);
        CHECK(has(&answer, "max-age=31536000, immutable") == file->is_immutable);
        snprintf(known, sizeof known, "If-None-Match: \"other\", %s\r\n", file->etag);
        ask(&p, line, known, &answer);
        CHECK_INT(talk_status(&answer), 304);
        CHECK_UINT(body_bytes(&answer), 0);
        n_kept += file->is_immutable;
        all += file->n_gzip;
    }
    CHECK(n_kept >= 2); /* the script and the style sheet */
    CHECK(all < 300000);
    buf_deinit(&answer);
    peer_deinit(&p);
}

TEST(web_other_sites_methods_and_paths_are_refused)
{
    struct peer p;
    struct buf answer = {0};
    peer_init(&p);
    ask(&p, "POST /", "", &answer);
    CHECK_INT(talk_status(&answer), 405);
    ask(&p, "GET /assets/../index.html", "", &answer);
    CHECK_INT(talk_status(&answer), 404);
    ask(&p, "GET /", "Origin: http://evil.example\r\n", &answer);
    CHECK_INT(talk_status(&answer), 403);
    static const char rebound[] = "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    talk_bytes(service_http_address(p.service), rebound, sizeof rebound - 1, &answer);
    CHECK_INT(talk_status(&answer), 403);
    buf_deinit(&answer);
    peer_deinit(&p);
}
