/* The data folder: one worker's alone, and clean at the start. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "integration/worker/hands.h"
#include "worker/folder.h"

struct place {
    char root[64];
    char path[200];
};

static const char *inside(struct place *place, const char *name)
{
    snprintf(place->path, sizeof place->path, "%s/%s", place->root, name);
    return place->path;
}

static struct place place_make(void)
{
    struct place place = {.root = "/tmp/capstan-worker-XXXXXX"};
    CHECK(mkdtemp(place.root) != NULL);
    return place;
}

static void write_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0);
    close(fd);
}

static bool is_there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static void remove_all(struct place *place)
{
    static const char *const names[] = {"data/results/kept", "data/results", "data/work", "data/tmp",
                                        "data/shuffle",      "data/lock",    "data",      "outside"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        remove(inside(place, names[i]));
    }
    remove(place->root);
}

TEST(the_data_folder_is_private_and_cannot_be_shared)
{
    struct place place = place_make();
    char data[200];
    snprintf(data, sizeof data, "%s", inside(&place, "data"));
    int first = -1, second = -1;
    struct error e = {0};
    CHECK_ERR(worker_folder_take(data, &first, &e), ERR_OK);
    struct stat st;
    CHECK_INT(stat(data, &st), 0);
    CHECK_UINT(st.st_mode & 0777, 0700);
    write_file(inside(&place, "data/shuffle/in-use"));
    CHECK_ERR(worker_folder_take(data, &second, &e), ERR_BUSY);
    CHECK_INT(second, -1);
    CHECK(is_there(inside(&place, "data/shuffle/in-use"))); /* nothing of the other's was touched */
    worker_folder_give_back(first);
    CHECK_ERR(worker_folder_take(data, &second, &e), ERR_OK); /* free again */
    worker_folder_give_back(second);
    remove_all(&place);
}

TEST(what_an_earlier_process_left_is_removed_but_results_stay_and_links_are_not_followed)
{
    struct place place = place_make();
    char data[200];
    snprintf(data, sizeof data, "%s", inside(&place, "data"));
    int fd = -1;
    CHECK_ERR(worker_folder_take(data, &fd, NULL), ERR_OK);
    worker_folder_give_back(fd);
    CHECK_INT(mkdir(inside(&place, "data/shuffle/job"), 0700), 0);
    write_file(inside(&place, "data/shuffle/job/part-0"));
    write_file(inside(&place, "data/tmp/file"));
    write_file(inside(&place, "data/results/kept"));
    write_file(inside(&place, "outside"));
    char outside[200];
    snprintf(outside, sizeof outside, "%s", place.root);
    CHECK_INT(symlink(outside, inside(&place, "data/work/link")), 0);
    CHECK_ERR(worker_folder_take(data, &fd, NULL), ERR_OK);
    CHECK(!is_there(inside(&place, "data/shuffle/job")));
    CHECK(!is_there(inside(&place, "data/tmp/file")));
    CHECK(!is_there(inside(&place, "data/work/link")));
    CHECK(is_there(inside(&place, "data/results/kept")));
    CHECK(is_there(inside(&place, "outside")));
    worker_folder_give_back(fd);
    remove_all(&place);
}

TEST(a_data_folder_that_cannot_be_made_is_refused)
{
    int fd = -1;
    CHECK_ERR(worker_folder_take("/dev/null/data", &fd, NULL), ERR_UNAVAILABLE);
    CHECK_INT(fd, -1);
}

TEST(options_that_make_no_sense_are_refused)
{
    struct hands *hands = hands_new();
    const char *join[] = {"127.0.0.1:1"};
    struct worker *worker = NULL;
    struct worker_options good = {.join = join, .n_join = 1, .worker_id = "w", .slots = 1, .executors = hands->set};
    struct worker_options options = good;
    options.n_join = 0;
    CHECK_ERR(worker_start(&options, &worker, NULL), ERR_INVALID);
    options = good;
    options.worker_id = "";
    CHECK_ERR(worker_start(&options, &worker, NULL), ERR_INVALID);
    options = good;
    options.slots = 0;
    CHECK_ERR(worker_start(&options, &worker, NULL), ERR_INVALID);
    options = good;
    options.listen = "no address";
    CHECK_ERR(worker_start(&options, &worker, NULL), ERR_INVALID);
    CHECK(worker == NULL);
    hands_free(hands);
}
