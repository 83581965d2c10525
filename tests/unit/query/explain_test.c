#include "query/explain.h"

#include <string.h>

#include "test.h"

static void check(const char *plan_text, const char *expected)
{
    struct arena arena = {0};
    struct physical_plan *plan = NULL;
    struct buf text = {0};
    struct error e = {0};
    CHECK_ERR(physical_read(plan_text, strlen(plan_text), &arena, &plan, NULL, &e), ERR_OK);
    explain_write(&text, plan);
    CHECK_STR(text.data, expected);
    buf_deinit(&text);
    arena_deinit(&arena);
}

TEST(one_task_says_why)
{
    check(
        "{\"single\":\"its input is small: 5 bytes\",\"stages\":[{\"id\":0,\"sql\":\"x\",\"what\":\"the whole query\","
        "\"output\":{\"exchange\":\"result\"}}]}",
        "one task: its input is small: 5 bytes\n"
        "stage 0: 1 task; result\n"
        "    the whole query\n");
}

TEST(stages_are_a_tree_with_the_result_on_top)
{
    check(
        "{\"stages\":[{\"id\":0,\"sql\":\"x\",\"splits\":[{\"file\":\"f\",\"bytes\":5000000},{\"file\":\"g\"}],"
        "\"what\":\"scan f\",\"estimated_rows\":1234567,\"estimated_bytes\":2048,\"deterministic\":false,"
        "\"output\":{\"exchange\":\"hash\",\"keys\":[\"c0\",\"c1\"],\"partitions\":4}},"
        "{\"id\":1,\"sql\":\"y\",\"inputs\":{\"a\":0,\"b\":{\"stage\":0,\"read\":\"all\"}},\"what\":\"join\\n  rows of a\","
        "\"custom\":{\"op\":\"add_five\"},\"output\":{\"exchange\":\"result\"}}]}",
        "stage 1: 4 tasks by partition; result; then the operator add_five\n"
        "    join\n"
        "      rows of a\n"
        "    a, a partition:\n"
        "        stage 0: 2 tasks by split, 4.8 MB of files; hash by c0, c1 to 4 partitions; about 1.2 million rows, "
        "2.0 KB; not the same each time\n"
        "            scan f\n"
        "    b, all rows:\n"
        "        stage 0: see above\n");
}

TEST(an_open_choice_is_told)
{
    check("{\"stages\":[{\"id\":0,\"sql\":\"x\",\"output\":{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":1}},"
          "{\"id\":1,\"sql\":\"x\",\"output\":{\"exchange\":\"hash\",\"keys\":[\"k\"],\"partitions\":1}},"
          "{\"id\":2,\"sql\":\"y\",\"inputs\":{\"a\":0,\"b\":1},\"choice\":{\"small\":1,\"large\":0,\"bytes\":65536},"
          "\"output\":{\"exchange\":\"result\"}}]}",
          "stage 2: 1 task; result\n"
          "    when stage 1 is done: if it has up to 64 KB, everybody reads it, and stage 0 need not move its rows\n"
          "    a, a partition:\n"
          "        stage 0: 1 task; hash by k to 1 partitions\n"
          "    b, a partition:\n"
          "        stage 1: 1 task; hash by k to 1 partitions\n");
}

TEST(what_is_written_and_published_is_said)
{
    check("{\"stages\":[{\"id\":0,\"sql\":\"x\",\"write\":{\"to\":\"/d/t\",\"format\":\"parquet\"},"
          "\"output\":{\"exchange\":\"gather\"}},{\"id\":1,\"sql\":\"y\",\"inputs\":{\"files\":0},"
          "\"publish\":{\"to\":\"/d/t\",\"table\":\"t\"},\"output\":{\"exchange\":\"result\"}}]}",
          "stage 1: 1 task; result; the folder /d/t appears as the data set t\n"
          "    files, all rows:\n"
          "        stage 0: 1 task; gather; a file each, parquet, for /d/t\n");
}
