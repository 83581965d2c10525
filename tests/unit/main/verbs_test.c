#include "../test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/help.h"
#include "coordinator/settings.h"
#include "main/folder.h"
#include "main/verbs.h"

TEST(every_verb_has_a_name_of_its_own_and_a_help_with_an_example)
{
    struct verb_table table = verbs_all();
    for (uint32_t i = 0; i < table.n_verbs; i++) {
        const struct verb *verb = table.verbs[i];
        struct buf out = {0};
        char own[64];
        help_verb(&out, verb);
        snprintf(own, sizeof own, "capstan %s", verb->name);
        CHECK(strstr(strstr(out.data, "\nexample:\n"), own) != NULL);
        CHECK(verb_find(&table, verb->name) == verb);
        CHECK(verb->run != NULL);
        buf_deinit(&out);
    }
}

TEST(every_default_is_a_value_that_its_own_option_takes)
{
    for (uint32_t i = 0; i < main_verb_count; i++) {
        const struct verb *verb = &main_verbs[i];
        for (uint32_t j = 0; j < verb_option_count(verb); j++) {
            const struct option *option = verb_option_at(verb, j);
            int64_t number = 0;
            CHECK(option->kind == OPTION_FLAG || option->argument != NULL);
            CHECK(option->fallback == NULL || option_check(option, option->fallback, &number, NULL) == ERR_OK);
            CHECK_INT(verb_option_find(verb, option->name), (int64_t)j);
        }
    }
}

/* Sets NAME=NUMBER in settings that are as they come. */
static enum err set(const char *name, int64_t number)
{
    struct settings settings = settings_default();
    char assignment[128];
    snprintf(assignment, sizeof assignment, "%s=%lld", name, (long long)number);
    return settings_set(&settings, assignment, NULL);
}

TEST(every_setting_that_is_explained_takes_what_it_is_said_to_take)
{
    struct verb_table table = verbs_all();
    CHECK(table.n_settings > 20);
    for (uint32_t i = 0; i < table.n_settings; i++) {
        const struct setting_info *setting = &table.settings[i];
        struct settings settings = settings_default();
        char assignment[128];
        snprintf(assignment, sizeof assignment, "%s=%s", setting->name, setting->fallback);
        CHECK_ERR(settings_set(&settings, assignment, NULL), ERR_OK);
        struct settings untouched = settings_default();
        CHECK_MEM(&settings, &untouched, sizeof settings);
        CHECK_ERR(set(setting->name, setting->min), ERR_OK);
        CHECK_ERR(set(setting->name, setting->max), ERR_OK);
        CHECK_ERR(set(setting->name, setting->min - 1), ERR_INVALID);
        CHECK_ERR(set(setting->name, setting->max + 1), ERR_INVALID);
        CHECK(setting->help[0] != '\0');
    }
}

TEST(the_references_have_every_verb_flag_and_setting)
{
    struct verb_table table = verbs_all();
    struct buf page = {0};
    struct buf manual = {0};
    char text[128];
    reference_markdown(&page, &table);
    reference_man(&manual, &table);
    for (uint32_t i = 0; i < table.n_verbs; i++) {
        snprintf(text, sizeof text, "\n### capstan %s\n", table.verbs[i]->name);
        CHECK(strstr(page.data, text) != NULL);
        snprintf(text, sizeof text, "\n.SS \"capstan %s\"\n", table.verbs[i]->name);
        CHECK(strstr(manual.data, text) != NULL);
        for (uint32_t j = 0; j < verb_option_count(table.verbs[i]); j++) {
            snprintf(text, sizeof text, "\n| `--%s`", verb_option_at(table.verbs[i], j)->name);
            CHECK(strstr(page.data, text) != NULL);
        }
    }
    for (uint32_t i = 0; i < table.n_settings; i++) {
        snprintf(text, sizeof text, "\n| `%s` | %s |", table.settings[i].name, table.settings[i].fallback);
        CHECK(strstr(page.data, text) != NULL);
        snprintf(text, sizeof text, "\n.B %s\n", table.settings[i].name);
        CHECK(strstr(manual.data, text) != NULL);
    }
    buf_deinit(&page);
    buf_deinit(&manual);
}

TEST(every_process_that_listens_can_be_kept_to_this_machine)
{
    for (uint32_t i = 0; i < main_verb_count; i++) {
        bool listens = verb_option_find(&main_verbs[i], "listen") >= 0;
        CHECK(!listens || verb_option_find(&main_verbs[i], "insecure") >= 0);
    }
}

TEST(a_temporary_folder_goes_with_all_that_is_in_it_but_not_what_links_lead_to)
{
    struct arena arena = {0};
    const char *folder = NULL;
    const char *kept = NULL;
    CHECK_ERR(folder_make_temporary(&arena, &folder, NULL), ERR_OK);
    CHECK_ERR(folder_make_temporary(&arena, &kept, NULL), ERR_OK);
    CHECK_ERR(folder_make(arena_format(&arena, "%s/a/b/c", folder), NULL), ERR_OK);
    CHECK_ERR(folder_make(arena_format(&arena, "%s/a/b/c", folder), NULL), ERR_OK);
    CHECK_INT(symlink(kept, arena_format(&arena, "%s/a/link", folder)), 0);

    folder_remove(folder);

    CHECK_INT(access(folder, F_OK), -1);
    CHECK_INT(access(kept, F_OK), 0);
    folder_remove(kept);
    CHECK_INT(access(kept, F_OK), -1);
    arena_deinit(&arena);
}

TEST(a_folder_that_cannot_be_made_is_an_error)
{
    struct error e = {0};
    CHECK_ERR(folder_make("/dev/null/x", &e), ERR_INVALID);
    CHECK(strstr(e.message, "/dev/null/x") != NULL);
}
