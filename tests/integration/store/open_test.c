/* open_test.c - URLs, good and bad, and what a lost connection does. */
#include <string.h>

#include "content.h"
#include "picture.h"

static enum err open_url(const char *url, struct error *e)
{
    struct store *store = NULL;
    *e = (struct error){0};
    enum err err = store_open(url, &store, e);
    store_close(store);
    return err;
}

TEST(a_url_of_no_known_kind_is_refused)
{
    static const char *const urls[] = {"",         "x",          "mysql://host/db", "sqlite",
                                       "SQLITE:x", "postgres:x", "/tmp/file",       ":"};
    struct error e;
    for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
        CHECK_ERR(open_url(urls[i], &e), ERR_INVALID);
        CHECK(e.message[0] != '\0');
        CHECK(e.hint[0] != '\0');
    }
}

TEST(a_database_that_is_not_there_is_unavailable_and_no_password_is_told)
{
    static const char *const urls[] = {
        "sqlite:/no/such/folder/file.db",
        "sqlite:/dev/null/file.db",
        "postgres://somebody:geheim@127.0.0.1:1/db?connect_timeout=5",
        "postgresql://somebody:geheim@127.0.0.1:1/db?connect_timeout=5",
        "postgres:///db?host=/no/such/folder&password=geheim",
    };
    struct error e;
    for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
        CHECK_ERR(open_url(urls[i], &e), ERR_UNAVAILABLE);
        CHECK(e.message[0] != '\0');
        CHECK(strstr(e.message, "geheim") == NULL);
        CHECK(strstr(e.hint, "geheim") == NULL);
    }
}

CONTRACT_OF_POSTGRES(a_lost_connection_is_unavailable_once_and_then_made_again)
{
    struct rows rows = {0};
    struct picture p = {0};
    subject_lead(s);
    add_whole_job(&rows, "j");
    for (int round = 0; round < 5; round++) {
        subject_sql(s, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                       "WHERE datname = current_database() AND pid <> pg_backend_pid()");
        enum err err = rows_commit(s, &rows);
        CHECK(err == ERR_OK || err == ERR_UNAVAILABLE);
        CHECK_OK(s, rows_commit(s, &rows));
        subject_sql(s, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                       "WHERE datname = current_database() AND pid <> pg_backend_pid()");
        struct leader leader;
        err = store_leader(s->store, &s->arena, &leader, &s->e);
        CHECK(err == ERR_OK || err == ERR_UNAVAILABLE);
        picture_load_job(&p, s, "j");
        CHECK_UINT(p.n, 6);
        picture_deinit(&p);
    }
    rows_deinit(&rows);
}
