/*
 * config_test.c - the configuration names and defaults of the interface, and what is refused as nonsense.
 */
#include <string.h>

#include "core/config.h"
#include "test.h"

TEST(defaults_are_those_of_the_interface)
{
    struct core_config config = core_config_default();
    CHECK_INT(config.max_concurrent_tasks_per_worker, 8);
    CHECK_INT(config.max_concurrent_tasks_per_query, 32);
    CHECK_INT(config.max_task_attempts, 3);
    CHECK_INT(config.retry_backoff_base_ms, 250);
    CHECK_INT(config.worker_liveness_timeout_ms, 15000);
    CHECK_INT(config.blacklist_failure_threshold, 3);
    CHECK_INT(config.blacklist_ttl_ms, 600000);
    CHECK_INT(config.lease_ms, 15000);
    CHECK_INT(config.heartbeat_interval_ms, 3000);
    CHECK_INT(config.node_stale_ms, 15000);
    CHECK_INT(config.node_dead_ms, 120000);
    CHECK_INT(config.stuck_task_warn_ms, 60000);
    CHECK_INT(config.max_fetch_recoveries, 4);
    CHECK_ERR(core_config_check(&config, NULL), ERR_OK);
}

TEST(every_setting_is_set_by_its_name)
{
    struct core_config config = core_config_default();
    struct error e;
#define SET_AND_CHECK(name, def, lo, hi, help)                                                                         \
    CHECK_ERR(core_config_set(&config, #name, (lo), &e), ERR_OK);                                                      \
    CHECK_INT(config.name, (lo));                                                                                      \
    CHECK_ERR(core_config_set(&config, #name, (hi), &e), ERR_OK);                                                      \
    CHECK_INT(config.name, (hi));                                                                                      \
    CHECK_ERR(core_config_set(&config, #name, INT64_C(-1), &e), ERR_INVALID);                                          \
    CHECK(strstr(e.message, #name) != NULL);                                                                           \
    CHECK_ERR(core_config_set(&config, #name, (lo)-INT64_C(1), &e), ERR_INVALID);                                      \
    CHECK_ERR(core_config_set(&config, #name, (hi) + INT64_C(1), &e), ERR_INVALID);                                    \
    CHECK_INT(config.name, (hi));
    CORE_CONFIG_TABLE(SET_AND_CHECK)
#undef SET_AND_CHECK
}

TEST(an_unknown_name_is_refused)
{
    struct core_config config = core_config_default();
    struct error e;
    CHECK_ERR(core_config_set(&config, "lease", 1000, &e), ERR_INVALID);
    CHECK(strstr(e.message, "lease") != NULL);
    CHECK_ERR(core_config_set(&config, "", 1000, NULL), ERR_INVALID);
    struct core_config untouched = core_config_default();
    CHECK_MEM(&config, &untouched, sizeof(config));
}

TEST(a_lease_shorter_than_three_heartbeats_is_nonsense)
{
    struct core_config config = core_config_default();
    struct error e;
    config.heartbeat_interval_ms = 5000;
    CHECK_ERR(core_config_check(&config, &e), ERR_OK);
    config.heartbeat_interval_ms = 5001;
    CHECK_ERR(core_config_check(&config, &e), ERR_INVALID);
    CHECK(strstr(e.message, "lease_ms") != NULL);
    CHECK(strstr(e.message, "heartbeat_interval_ms") != NULL);
}

TEST(liveness_below_the_lease_is_nonsense)
{
    struct core_config config = core_config_default();
    struct error e;
    config.worker_liveness_timeout_ms = 14999;
    CHECK_ERR(core_config_check(&config, &e), ERR_INVALID);
    CHECK(strstr(e.message, "worker_liveness_timeout_ms") != NULL);
}

TEST(dead_before_stale_is_nonsense)
{
    struct core_config config = core_config_default();
    struct error e;
    config.node_dead_ms = 14000;
    CHECK_ERR(core_config_check(&config, &e), ERR_INVALID);
    CHECK(strstr(e.message, "node_dead_ms") != NULL);
}

TEST(all_errors_are_listed_one_a_line)
{
    struct core_config config = core_config_default();
    struct error e;
    config.heartbeat_interval_ms = 6000;
    config.worker_liveness_timeout_ms = 1000;
    config.node_dead_ms = 14000;
    config.max_task_attempts = -3;
    CHECK_ERR(core_config_check(&config, &e), ERR_INVALID);
    CHECK(strstr(e.message, "heartbeat_interval_ms") != NULL);
    CHECK(strstr(e.message, "worker_liveness_timeout_ms") != NULL);
    CHECK(strstr(e.message, "node_dead_ms") != NULL);
    CHECK(strstr(e.message, "max_task_attempts") != NULL);
    int lines = 1;
    for (const char *p = e.message; *p != '\0'; p++) {
        lines += *p == '\n' && p[1] != '\0';
    }
    CHECK(lines >= 4);
}
