#include "../test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/help.h"
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
