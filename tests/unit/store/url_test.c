/* url_test.c - what of a store's URL people and logs may see. */
#include "store/store.h"
#include "test.h"

static void check(const char *url, const char *expected)
{
    struct arena arena = {0};
    CHECK_STR(store_url_text(url, &arena), expected);
    arena_deinit(&arena);
}

TEST(the_text_of_a_url_has_no_password)
{
    check("postgres://capstan:geheim@db:5432/capstan", "postgres://capstan@db:5432/capstan");
    check("postgresql://capstan:geheim@db/capstan?sslmode=require", "postgresql://capstan@db/capstan?sslmode=require");
    check("postgres://capstan:ge:h@eim@db/capstan", "postgres://capstan@db/capstan");
    check("postgres://capstan:geheim@/capstan?host=/run/pg&password=geheim&port=1",
          "postgres://capstan@/capstan?host=/run/pg&port=1");
    check("postgres://db/capstan?password=geheim", "postgres://db/capstan");
    check("postgres://db/capstan?sslpassword=geheim&a=b&password=geheim", "postgres://db/capstan?a=b");
    check("postgres://:geheim@db", "postgres://@db");
}

TEST(the_text_of_a_url_is_otherwise_the_url)
{
    check("postgres://capstan@db/capstan", "postgres://capstan@db/capstan");
    check("postgres://db:5432/capstan?user=a@b:c", "postgres://db:5432/capstan?user=a@b:c");
    check("postgres://", "postgres://");
    check("sqlite:./a:b@c/state.db?password=x", "sqlite:./a:b@c/state.db?password=x");
    check("memory:x", "memory:x");
    check("", "");
}
