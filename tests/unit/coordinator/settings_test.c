#include "coordinator/settings.h"

#include <string.h>

#include "test.h"

TEST(settings_start_as_the_interface_says)
{
    struct settings s = settings_default();
    CHECK_INT(s.core.lease_ms, 15000);
    CHECK_INT(s.leader_ttl_ms, 10000);
    CHECK_INT(s.history_ttl_ms, 604800000);
    CHECK_INT(s.orphan_ms, 600000);
    CHECK_INT(s.drain_timeout_ms, 60000);
    CHECK_INT(s.kill_grace_ms, 5000);
    CHECK_INT(s.single_task_bytes, 33554432);
    CHECK_INT(s.broadcast_bytes, 67108864);
    CHECK_INT(s.partition_bytes, 67108864);
    CHECK_INT(s.result_ttl_ms, 3600000);
}

TEST(both_kinds_of_settings_are_set_by_name)
{
    struct settings s = settings_default();
    CHECK_ERR(settings_set(&s, "lease_ms=30000", NULL), ERR_OK);
    CHECK_ERR(settings_set(&s, "orphan_ms=5000", NULL), ERR_OK);
    CHECK_INT(s.core.lease_ms, 30000);
    CHECK_INT(s.orphan_ms, 5000);
}

TEST(a_wrong_setting_is_named_and_changes_nothing)
{
    static const char *const wrong[] = {"",           "lease_ms",      "=5",           "lease_ms=",     "lease_ms=1s",
                                        "orphan_ms=", "orphan_ms=1e4", "orphan_ms=-1", "no_such_name=1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct settings s = settings_default();
        struct settings before = s;
        struct error e = {0};
        CHECK_ERR(settings_set(&s, wrong[i], &e), ERR_INVALID);
        CHECK(e.message[0] != '\0');
        CHECK_MEM(&s, &before, sizeof s);
    }
    struct error e = {0};
    struct settings s = settings_default();
    CHECK_ERR(settings_set(&s, "orphan_ms=1", &e), ERR_INVALID);
    CHECK_STR(e.message, "orphan_ms: must be from 1000 to 86400000, got 1");
}

TEST(nonsense_as_a_whole_is_refused_with_all_complaints)
{
    struct settings s = settings_default();
    struct error e = {0};
    CHECK_ERR(settings_set(&s, "lease_ms=5000", NULL), ERR_OK);
    CHECK_ERR(settings_set(&s, "node_dead_ms=10000", NULL), ERR_OK);
    CHECK_ERR(settings_check(&s, &e), ERR_INVALID);
    CHECK(strstr(e.message, "lease_ms") != NULL);
    CHECK(strstr(e.message, "node_dead_ms") != NULL);
}

TEST(every_setting_is_listed_with_its_default)
{
    struct buf list = {0};
    settings_list(&list);
    CHECK(strstr(list.data, "lease_ms ") != NULL);
    CHECK(strstr(list.data, "leader_ttl_ms ") != NULL);
    CHECK(strstr(list.data, "604800000\n") != NULL);
    buf_deinit(&list);
}
