#include "../test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/prng.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "core/core.h"
#include "wire/canonical.h"
#include "wire/tree.h"

/* The example of docs/task-trees.md. */
static const char example[] =
    "{ \"name\": \"nightly\", \"priority\": 2, \"on_failure\": \"continue\","
    "  \"tasks\": ["
    "    { \"name\": \"extract\", \"executor\": \"command\","
    "      \"inputs\": { \"argv\": [\"sh\", \"-c\", \"echo '{\\\"rows\\\": 3}'\"] },"
    "      \"timeout_ms\": 60000, \"exclusive\": true, \"retry\": { \"max_attempts\": 4, \"backoff_ms\": 100 } },"
    "    { \"name\": \"count\", \"executor\": \"sql\", \"depends_on\": [\"extract\"],"
    "      \"inputs\": { \"sql\": \"select 41 + 1 as n\" } },"
    "    { \"name\": \"notify\", \"executor\": \"http\","
    "      \"depends_on\": [\"count\", { \"task\": \"extract\", \"required\": false }],"
    "      \"inputs\": { \"method\": \"POST\", \"url\": \"http://127.0.0.1:9/hook\","
    "        \"json\": { \"n\": \"${results.count.rows[0].n}\" } },"
    "      \"placement\": { \"requires_capabilities\": { \"zone\": \"a\" }, \"forbidden_nodes\": [\"w9\"],"
    "        \"max_parallel_per_node\": 2 } } ] }";

struct fixture {
    struct arena arena;
    struct tree_submit tree;
    struct buf errors;
    struct error e;
};

static void fixture_deinit(struct fixture *f)
{
    arena_deinit(&f->arena);
    buf_deinit(&f->errors);
}

/* Reads exactly `n` bytes: a copy with nothing behind them, so that the sanitizer sees a read too far. */
static enum err read_bytes(struct fixture *f, const char *text, size_t n)
{
    char *copy = mem_copy(text, n);
    *f = (struct fixture){.tree.n_stages = 77};
    enum err err = wire_read_tree(copy, n, &f->arena, &f->tree, &f->errors, &f->e);
    mem_free(copy);
    return err;
}

static void read_good(struct fixture *f, const char *text)
{
    if (read_bytes(f, text, strlen(text)) != ERR_OK) {
        print_error("%s: %s\n", text, f->e.message);
        CHECK(false);
    }
    CHECK_UINT(f->errors.n, 0);
}

/* The errors of a tree that is refused, as one text. */
static void check_refused(const char *text, const char *errors)
{
    struct fixture f;
    CHECK_ERR(read_bytes(&f, text, strlen(text)), ERR_INVALID);
    CHECK_STR(f.errors.data, errors);
    CHECK_STR(f.e.message, errors);
    CHECK_ERR(f.e.code, ERR_INVALID);
    CHECK_UINT(f.tree.n_stages, 77);
    fixture_deinit(&f);
}

static const char *payload_of(const struct fixture *f, uint32_t stage)
{
    const struct task_spec *task = &f->tree.stages[stage].tasks[0];
    for (uint32_t i = 0; i < f->tree.n_payloads; i++) {
        if (memcmp(&f->tree.payloads[i].digest, &task->inputs, sizeof task->inputs) == 0) {
            CHECK_UINT(task->inputs_bytes, f->tree.payloads[i].n);
            return arena_format((struct arena *)(uintptr_t)&f->arena, "%.*s", (int)f->tree.payloads[i].n,
                                f->tree.payloads[i].bytes);
        }
    }
    return NULL;
}

/* One task, a plug-in's, with the members given. */
static char *plug(struct fixture *f, const char *members)
{
    struct buf text = {0};
    buf_format(&text, "{\"tasks\":[{\"name\":\"a\",\"executor\":\"plug\"%s%s}]}", members[0] == '\0' ? "" : ",",
               members);
    read_good(f, text.data);
    return text.data;
}

static const char *canonical_inputs(struct fixture *f, const char *inputs)
{
    struct buf text = {0};
    buf_format(&text, "{\"tasks\":[{\"name\":\"a\",\"executor\":\"plug\",\"inputs\":%s}]}", inputs);
    read_good(f, text.data);
    buf_deinit(&text);
    return payload_of(f, 0);
}

static void check_canonical(const char *inputs, const char *expected)
{
    struct fixture f;
    struct fixture again;
    CHECK_STR(canonical_inputs(&f, inputs), expected);
    CHECK_STR(canonical_inputs(&again, expected), expected);
    CHECK_MEM(&again.tree.payloads[0].digest, &f.tree.payloads[0].digest, sizeof(struct digest));
    CHECK_MEM(&again.tree.content, &f.tree.content, sizeof(struct digest));
    fixture_deinit(&f);
    fixture_deinit(&again);
}

/* ---- what is read ---- */

TEST(the_example_becomes_three_stages)
{
    struct fixture f;
    read_good(&f, example);

    CHECK_STR(f.tree.name, "nightly");
    CHECK_UINT(f.tree.priority, 2);
    CHECK(!f.tree.stop_on_failure);
    CHECK_UINT(f.tree.n_stages, 3);
    const struct stage_spec *extract = &f.tree.stages[0];
    CHECK_STR(extract->name, "extract");
    CHECK_STR(extract->need->executor, "command");
    CHECK_UINT(extract->n_parents, 0);
    CHECK_UINT(extract->n_tasks, 1);
    CHECK_UINT(extract->timeout_ms, 60000);
    CHECK(extract->exclusive);
    CHECK(!extract->child);
    CHECK_UINT(extract->max_attempts, 4);
    CHECK_INT(extract->backoff_ms, 100);
    CHECK_INT(extract->output, OUTPUT_NONE);
    const struct stage_spec *count = &f.tree.stages[1];
    CHECK(count->child);
    CHECK(!count->exclusive);
    CHECK_UINT(count->max_attempts, 0);
    CHECK_INT(count->backoff_ms, -1);
    CHECK_UINT(count->n_parents, 1);
    CHECK_UINT(count->parents[0].stage, 0);
    CHECK(!count->parents[0].optional);
    const struct stage_spec *notify = &f.tree.stages[2];
    CHECK_UINT(notify->n_parents, 2);
    CHECK_UINT(notify->parents[0].stage, 1);
    CHECK_UINT(notify->parents[1].stage, 0);
    CHECK(notify->parents[1].optional);
    CHECK_UINT(notify->need->capabilities.count, 1);
    CHECK_STR(notify->need->capabilities.items[0].key, "zone");
    CHECK_STR(notify->need->capabilities.items[0].text, "a");
    CHECK_UINT(notify->need->forbidden_nodes.count, 1);
    CHECK_STR(notify->need->forbidden_nodes.items[0], "w9");
    CHECK_UINT(notify->need->max_parallel_per_node, 2);
    CHECK_UINT(f.tree.n_payloads, 3);
    CHECK_STR(payload_of(&f, 0), "{\"argv\":[\"sh\",\"-c\",\"echo '{\\\"rows\\\": 3}'\"]}");
    CHECK_STR(payload_of(&f, 2), "{\"json\":{\"n\":\"${results.count.rows[0].n}\"},\"method\":\"POST\","
                                 "\"url\":\"http://127.0.0.1:9/hook\"}");
    fixture_deinit(&f);
}

TEST(what_is_left_out_has_its_default)
{
    struct fixture f;
    char *text = plug(&f, "");
    CHECK_STR(f.tree.name, NULL);
    CHECK_UINT(f.tree.priority, 2);
    CHECK(!f.tree.stop_on_failure);
    CHECK_UINT(f.tree.stages[0].timeout_ms, 0);
    CHECK_UINT(f.tree.stages[0].max_attempts, 0);
    CHECK_INT(f.tree.stages[0].backoff_ms, -1);
    CHECK_STR(payload_of(&f, 0), "{}");
    CHECK_UINT(f.tree.stages[0].need->ops.count, 0);
    CHECK_UINT(f.tree.stages[0].need->allowed_nodes.count, 0);
    mem_free(text);
    fixture_deinit(&f);
}

TEST(null_is_as_if_it_were_left_out)
{
    struct fixture f;
    char *text = plug(&f, "\"inputs\":null,\"depends_on\":null,\"timeout_ms\":null,\"exclusive\":null,\"retry\":null,"
                          "\"placement\":{\"allowed_nodes\":null},\"required_custom_ops\":null");
    CHECK_STR(payload_of(&f, 0), "{}");
    CHECK_UINT(f.tree.stages[0].need->allowed_nodes.count, 0);
    mem_free(text);
    fixture_deinit(&f);
}

TEST(priority_is_a_number_or_a_word)
{
    static const char *const written[] = {"0", "1", "2", "3", "\"urgent\"", "\"high\"", "\"normal\"", "\"low\""};
    for (size_t i = 0; i < ARRAY_LEN(written); i++) {
        struct fixture f;
        struct buf text = {0};
        buf_format(&text, "{\"priority\": %s, \"on_failure\": \"stop\", \"tasks\": [%s]}", written[i],
                   "{\"name\":\"a\",\"executor\":\"plug\"}");
        read_good(&f, text.data);
        CHECK_UINT(f.tree.priority, i % 4);
        CHECK(f.tree.stop_on_failure);
        buf_deinit(&text);
        fixture_deinit(&f);
    }
}

TEST(placement_becomes_a_requirement)
{
    struct fixture f;
    char *text =
        plug(&f, "\"placement\":{\"requires_executors\":[\"docker\",\"podman\"],\"allowed_nodes\":[\"w1\",\"w2\"],"
                 "\"requires_capabilities\":{\"zone\":\"a\",\"cpu_cores\":\">=8\",\"ssd\":true,\"gpus\":2.0,"
                 "\"labels\":[\"ml\",\"eu\"]}},\"required_custom_ops\":[\"add_five\"]");
    const struct requirement *need = f.tree.stages[0].need;
    CHECK_UINT(need->any_executors.count, 2);
    CHECK_STR(need->any_executors.items[1], "podman");
    CHECK_UINT(need->allowed_nodes.count, 2);
    CHECK_UINT(need->ops.count, 1);
    CHECK_STR(need->ops.items[0], "add_five");
    CHECK_UINT(need->capabilities.count, 5);
    CHECK_STR(need->capabilities.items[0].key, "cpu_cores"); /* sorted */
    CHECK_STR(need->capabilities.items[0].text, ">=8");
    CHECK_INT(need->capabilities.items[1].kind, VALUE_NUMBER);
    CHECK(need->capabilities.items[1].number > 1.5);
    CHECK_INT(need->capabilities.items[2].kind, VALUE_LIST);
    CHECK_STR(need->capabilities.items[2].items[1], "eu");
    CHECK_INT(need->capabilities.items[3].kind, VALUE_BOOL);
    mem_free(text);
    fixture_deinit(&f);
}

TEST(equal_inputs_and_equal_requirements_are_kept_once)
{
    struct fixture f;
    read_good(&f, "{\"tasks\":[{\"name\":\"a\",\"executor\":\"p\",\"inputs\":{\"x\":1,\"y\":[2.0]}},"
                  "{\"name\":\"b\",\"executor\":\"p\",\"inputs\":{ \"y\" : [ 2 ] , \"x\" : 1e0 }},"
                  "{\"name\":\"c\",\"executor\":\"q\"}]}");
    CHECK_UINT(f.tree.n_payloads, 2);
    CHECK_MEM(&f.tree.stages[0].tasks[0].inputs, &f.tree.stages[1].tasks[0].inputs, sizeof(struct digest));
    CHECK(f.tree.stages[0].need == f.tree.stages[1].need);
    CHECK(f.tree.stages[0].need != f.tree.stages[2].need);
    fixture_deinit(&f);
}

/* Whatever is accepted here, the scheduler takes, under any id. */
static void submit(const struct tree_submit *tree)
{
    struct core_config config = core_config_default();
    struct core *core = core_new(&config, 1);
    struct effects fx = {0};
    struct core_input input = {.now_ms = 1000};
    struct command command = {.kind = CMD_SUBMIT,
                              .reply_to = 1,
                              .u.submit = {.job_id = "j",
                                           .kind = JOB_KIND_TREE,
                                           .name = tree->name,
                                           .priority = tree->priority,
                                           .stop_on_failure = tree->stop_on_failure,
                                           .content = tree->content,
                                           .stages = tree->stages,
                                           .n_stages = tree->n_stages}};
    effects_reset(&fx);
    core_step(core, &input, &command, &fx);
    CHECK_STR(fx.replies->message, NULL);
    CHECK_INT(fx.replies->kind, REPLY_SUBMIT);
    effects_reset(&fx);
    core_step(core, &input, &command, &fx);
    CHECK_INT(fx.replies->kind, REPLY_SUBMIT);
    CHECK(fx.replies->u.job.existed);
    effects_deinit(&fx);
    core_free(core);
}

TEST(the_core_takes_what_was_read)
{
    struct fixture f;
    read_good(&f, example);
    submit(&f.tree);
    fixture_deinit(&f);
    char *text = plug(&f, "");
    submit(&f.tree);
    mem_free(text);
    fixture_deinit(&f);
}

/* ---- the canonical form ---- */

TEST(one_value_has_one_spelling)
{
    check_canonical("{ \"b\" : 1 ,\n\"a\":\t[ true , null ] }", "{\"a\":[true,null],\"b\":1}");
    check_canonical("{\"x\":[1.0,1e0,10e-1,100e-2]}", "{\"x\":[1,1,1,1]}");
    check_canonical("{\"x\":[0.1,1e-1,0.10]}", "{\"x\":[0.1,0.1,0.1]}");
    check_canonical("{\"x\":[0,-0,-0.0]}", "{\"x\":[0,0,-0.0]}");
    check_canonical("{\"x\":[9223372036854775807,-9223372036854775808,18446744073709551615]}",
                    "{\"x\":[9223372036854775807,-9223372036854775808,18446744073709551615]}");
    check_canonical("{\"x\":[1e17,100000000000000000,1e19,-1e18]}",
                    "{\"x\":[100000000000000000,100000000000000000,10000000000000000000,-1000000000000000000]}");
    check_canonical("{\"x\":[18446744073709551616,1.8446744073709552e19,1e300]}",
                    "{\"x\":[1.8446744073709552e19,1.8446744073709552e19,1e300]}");
    check_canonical("{\"x\":\"\\u0041\\/\\n\\u001f\\\"\\\\\\u20ac\\ud83d\\ude80\"}",
                    "{\"x\":\"A/\\n\\u001f\\\"\\\\\xe2\x82\xac\xf0\x9f\x9a\x80\"}");
    check_canonical("{\"\xc3\xa9\":1,\"z\":2,\"Z\":3,\"\":4,\"aa\":5,\"a\":6}",
                    "{\"\":4,\"Z\":3,\"a\":6,\"aa\":5,\"z\":2,\"\xc3\xa9\":1}");
}

TEST(many_members_are_sorted_as_few_are)
{
    struct buf text = {0};
    struct buf expected = {0};
    for (int i = 0; i < 100; i++) {
        buf_format(&text, "%s\"k%02d\":%d", i == 0 ? "{" : ",", (i * 37) % 100, (i * 37) % 100);
        buf_format(&expected, "%s\"k%02d\":%d", i == 0 ? "{" : ",", i, i);
    }
    buf_char(&text, '}');
    buf_char(&expected, '}');
    check_canonical(text.data, expected.data);
    buf_deinit(&text);
    buf_deinit(&expected);
}

TEST(the_content_is_the_digest_of_the_whole_tree_in_its_canonical_form)
{
    static const char *const members[] = {"\"name\":\"x\"", "\"on_failure\":\"stop\"", "\"priority\":1",
                                          "\"tasks\":[{\"name\":\"a\",\"executor\":\"p\"},"
                                          "{\"inputs\":{\"b\":1,\"a\":[]},\"executor\":\"p\",\"name\":\"b\"}]"};
    for (unsigned set = 8; set < 16; set++) { /* each choice of members beside the tasks, backwards */
        struct buf text = {0};
        for (unsigned i = 4; i-- > 0;) {
            if (set >> i & 1) {
                buf_format(&text, "%s %s", text.n == 0 ? "{" : ",\n", members[i]);
            }
        }
        buf_text(&text, " }\n");
        struct fixture f;
        read_good(&f, text.data);
        struct json *root = NULL;
        CHECK_ERR(json_parse(text.data, text.n, &root, NULL), ERR_OK);
        struct buf canonical = {0};
        wire_write_canonical(&canonical, root);
        uint8_t digest[32];
        sha256_once(canonical.data, canonical.n, digest);
        CHECK_MEM(f.tree.content.bytes, digest, sizeof digest);
        json_free(root);
        buf_deinit(&canonical);
        buf_deinit(&text);
        fixture_deinit(&f);
    }
}

/* ---- templates ---- */

TEST(templates_of_dependencies_are_let_pass)
{
    struct fixture f;
    read_good(&f,
              "{\"tasks\":[{\"name\":\"a\",\"executor\":\"plug\"},{\"name\":\"b\",\"executor\":\"command\","
              "\"depends_on\":[\"a\"],\"inputs\":{\"argv\":\"${results.a.argv}\",\"env\":\"${results.a.env}\","
              "\"no_retry_exit_codes\":[1,\"${results.a.code}\"]}},"
              "{\"name\":\"c\",\"executor\":\"http\",\"depends_on\":[{\"task\":\"a\",\"required\":false}],\"inputs\":"
              "{\"url\":\"${results.a.url}/x\",\"method\":\"${results.a.m}\",\"expect_status\":\"${results.a.s}\"}},"
              "{\"name\":\"d\",\"executor\":\"sleep\",\"depends_on\":[\"a\"],\"inputs\":{\"ms\":\"${results.a}\"}},"
              "{\"name\":\"e\",\"executor\":\"sql\",\"depends_on\":[\"a\"],\"inputs\":{\"sql\":\"${results.a.q}\"}}]}");
    CHECK_UINT(f.tree.n_stages, 5);
    fixture_deinit(&f);
}

TEST(shell_variables_and_escapes_are_no_templates)
{
    struct fixture f;
    read_good(&f, "{\"tasks\":[{\"name\":\"a\",\"executor\":\"command\",\"inputs\":{\"argv\":[\"sh\",\"-c\","
                  "\"echo ${HOME} $HOME $$ ${results} ${results[0]} ${x.y} $${results.nobody} $${params.day}\"]}}]}");
    CHECK_STR(payload_of(&f, 0), "{\"argv\":[\"sh\",\"-c\",\"echo ${HOME} $HOME $$ ${results} ${results[0]} ${x.y} "
                                 "$${results.nobody} $${params.day}\"]}");
    fixture_deinit(&f);
}

TEST(a_key_is_not_looked_at_for_templates)
{
    struct fixture f;
    char *text = plug(&f, "\"inputs\":{\"${results.nobody}\":1}");
    mem_free(text);
    fixture_deinit(&f);
}

TEST(results_is_a_name_like_any_other_where_there_are_none)
{
    struct fixture f;
    char *text = plug(&f, "\"inputs\":{\"results\":1}");
    CHECK_STR(payload_of(&f, 0), "{\"results\":1}");
    mem_free(text);
    fixture_deinit(&f);
}

/* ---- what is refused ---- */

static char *read_file(const char *path, size_t *out_n)
{
    FILE *file = fopen(path, "rb");
    struct buf text = {0};
    char part[4096];
    size_t n;
    if (file == NULL) {
        print_error("%s: cannot be read; run the tests from the root of the project\n", path);
    }
    CHECK(file != NULL);
    buf_append(&text, "", 0);
    while ((n = fread(part, 1, sizeof part, file)) > 0) {
        buf_append(&text, part, n);
    }
    fclose(file);
    *out_n = text.n;
    return text.data;
}

static void check_bad_tree(const char *path, const char *expected_path)
{
    struct fixture f;
    size_t n = 0;
    size_t n_expected = 0;
    char *text = read_file(path, &n);
    char *expected = read_file(expected_path, &n_expected);
    enum err err = read_bytes(&f, text, n);
    CHECK(n_expected > 1 && expected[n_expected - 1] == '\n');
    n_expected--;
    bool is_same = err == ERR_INVALID && f.errors.n >= n_expected && memcmp(f.errors.data, expected, n_expected) == 0 &&
                   (f.errors.n == n_expected || f.errors.data[n_expected] == '\n');
    if (!is_same) {
        print_error("%s: %s\n--- said\n%s\n--- expected\n%s", path, err_name(err), f.errors.data, expected);
    }
    CHECK(is_same);
    CHECK(strncmp(f.e.message, f.errors.data, strcspn(f.errors.data, "\n")) == 0);
    CHECK_UINT(f.tree.n_stages, 77);
    mem_free(text);
    mem_free(expected);
    fixture_deinit(&f);
}

TEST(every_bad_tree_is_refused_with_its_message)
{
    static const char folder[] = "tests/data/bad-trees";
    DIR *dir = opendir(folder);
    struct dirent *entry;
    int n = 0;
    CHECK(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        char path[600];
        char expected[600];
        size_t length = strlen(entry->d_name);
        if (length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0) {
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            snprintf(expected, sizeof expected, "%s/%.*s.txt", folder, (int)length - 5, entry->d_name);
            check_bad_tree(path, expected);
            n++;
        }
    }
    closedir(dir);
    CHECK(n >= 70);
}

TEST(all_errors_come_at_once_with_their_places)
{
    check_refused(
        "{\"tasks\":[{\"name\":\"a\",\"executor\":\"sleep\",\"inputs\":{\"ms\":-1}},{\"executor\":\"p\"}],\"nmae\":1}",
        "nmae: there is no such key; did you mean \"name\"?\n"
        "tasks[0].inputs.ms: must be a whole number from 0 to 2592000000, got -1\n"
        "tasks[1]: \"name\" is missing");
}

TEST(errors_beyond_the_limit_are_counted_and_those_beyond_the_message_too)
{
    struct fixture f;
    struct buf text = {0};
    for (int i = 0; i < 1000; i++) {
        buf_format(&text, "%s{\"name\":\"t%d\"}", i == 0 ? "{\"tasks\":[" : ",", i);
    }
    buf_text(&text, "]}");
    CHECK_ERR(read_bytes(&f, text.data, text.n), ERR_INVALID);
    size_t lines = 1;
    for (size_t i = 0; i < f.errors.n; i++) {
        lines += f.errors.data[i] == '\n' ? 1 : 0;
    }
    CHECK_UINT(lines, LIMIT_TREE_ERRORS + 1);
    CHECK_STR(strstr(f.errors.data, "\n… and "), "\n… and 900 more");
    size_t shown = 0;
    const char *more = strstr(f.e.message, "\n… and ");
    CHECK(more != NULL);
    for (const char *p = f.e.message; p < more + 1; p++) {
        shown += *p == '\n' ? 1 : 0;
    }
    char expected[40];
    snprintf(expected, sizeof expected, "\n… and %zu more", 1000 - shown);
    CHECK_STR(more, expected);
    CHECK(strlen(f.e.message) > 3500);
    CHECK_ERR(wire_read_tree(text.data, text.n, &f.arena, &f.tree, NULL, NULL), ERR_INVALID);
    buf_deinit(&text);
    fixture_deinit(&f);
}

TEST(inputs_may_be_as_large_as_a_payload_and_no_larger)
{
    struct buf text = {0};
    struct fixture f;
    for (int over = 0; over < 2; over++) {
        buf_reset(&text);
        buf_text(&text, "{\"tasks\":[{\"name\":\"a\",\"executor\":\"plug\",\"inputs\": { \"x\": \"");
        for (int i = 0; i < LIMIT_PAYLOAD_BYTES - 8 + over; i++) {
            buf_char(&text, 'y');
        }
        buf_text(&text, "\" } }]}");
        CHECK_ERR(read_bytes(&f, text.data, text.n), over == 0 ? ERR_OK : ERR_INVALID);
        CHECK_STR(f.e.message, over == 0
                                   ? ""
                                   : "tasks[0].inputs: has 1048577 bytes, but at most 1048576 are allowed; keep large "
                                     "data in a file or table and pass its name");
        fixture_deinit(&f);
    }
    buf_deinit(&text);
}

static void write_tasks(struct buf *text, int n, const char *fmt)
{
    buf_reset(text);
    for (int i = 0; i < n; i++) {
        buf_format(text, "%s{\"name\":\"t%d\",\"executor\":\"p\",", i == 0 ? "{\"tasks\":[" : ",", i);
        buf_text(text, "\"placement\":{");
        buf_format(text, "%s%d", fmt, i + 1);
        buf_text(text, "}}");
    }
    buf_text(text, "]}");
}

TEST(only_so_many_different_placements_are_allowed)
{
    struct buf text = {0};
    struct fixture f;
    write_tasks(&text, LIMIT_REQUIREMENTS_PER_JOB, "\"max_parallel_per_node\":");
    read_good(&f, text.data);
    submit(&f.tree);
    fixture_deinit(&f);
    write_tasks(&text, LIMIT_REQUIREMENTS_PER_JOB + 5, "\"max_parallel_per_node\":");
    check_refused(text.data, "tasks[1000]: a tree has at most 1000 different combinations of executor and placement");
    buf_deinit(&text);
}

TEST(a_task_that_would_take_too_much_memory_is_not_even_read)
{
    struct buf text = {0};
    buf_text(&text, "{\"tasks\":[{\"name\":\"a\",\"executor\":\"p\",\"inputs\":{\"x\":[{}");
    for (int i = 0; i < LIMIT_TASK_CONTAINERS - 3; i++) {
        buf_text(&text, ",{}");
    }
    buf_text(&text, "]}}]}");
    check_refused(text.data, "tasks[0]: has 250001 lists and objects, but one task may have at most 250000");
    buf_reset(&text);
    buf_text(&text, "{\"tasks\":[{\"name\":\"a\",\"executor\":\"p\",\"inputs\":{\"x\":\"");
    for (int i = 0; i < LIMIT_TASK_TEXT_BYTES / 16; i++) {
        buf_text(&text, "0123456789abcdef");
    }
    buf_text(&text, "\"}}]}");
    check_refused(text.data, "tasks[0]: has 16777261 bytes, but one task may have at most 16777216");
    buf_deinit(&text);
}

TEST(a_text_beyond_the_limit_is_refused_unread)
{
    struct fixture f = {.tree.n_stages = 77};
    CHECK_ERR(wire_read_tree("{", LIMIT_TREE_BYTES + 1u, &f.arena, &f.tree, NULL, &f.e), ERR_INVALID);
    char expected[100];
    snprintf(expected, sizeof expected, "the tree: has %d bytes, but at most %d are allowed", LIMIT_TREE_BYTES + 1,
             LIMIT_TREE_BYTES);
    CHECK_STR(f.e.message, expected);
    fixture_deinit(&f);
}

TEST(a_fault_in_a_large_text_is_found_too)
{
    struct buf text = {0};
    buf_text(&text, "{\"tasks\":[\n");
    for (int i = 0; i < 20000; i++) {
        buf_format(&text, "{\"name\":\"t%d\",\"executor\":\"%s},\n", i, i == 15000 ? "p" : "p\"");
    }
    buf_text(&text, "{\"name\":\"last\",\"executor\":\"p\"}]}");
    struct fixture f;
    CHECK_ERR(read_bytes(&f, text.data, text.n), ERR_INVALID);
    CHECK(strncmp(f.e.message, "the tree is not JSON: line ", 27) == 0);
    CHECK(strchr(f.e.message, '\n') == NULL);
    buf_deinit(&text);
    fixture_deinit(&f);
}

TEST(a_byte_that_is_no_utf8_is_found_at_its_column)
{
    check_refused("{\"tasks\":\n [{\"name\":\"a\",\"executor\":\"p\",\"inputs\":{\"\xc3\xa9\":\"\xff\"}}]}",
                  "the tree is not JSON: line 2, column 45: not UTF-8");
    check_refused("{\"\xff\":1}", "the tree is not JSON: line 1, column 3: not UTF-8");
}

TEST(what_is_shown_of_a_template_is_one_line_of_whole_characters)
{
    check_refused(
        "{\"tasks\":[{\"name\":\"a\",\"executor\":\"p\",\"inputs\":{\"x\":\"${results.a\\u000a\\u001b[2J\"}}]}",
        "tasks[0].inputs.x: ${results.a\\u000a\\u001b[2J is not a template: after a step come '.', '[' or '}'; write "
        "$${ for ${ itself");
    struct buf text = {0};
    struct fixture f;
    buf_text(&text, "{\"tasks\":[{\"name\":\"a\",\"executor\":\"p\",\"inputs\":{\"x\":\"${results.x");
    for (int i = 0; i < 200; i++) {
        buf_text(&text, "\xc3\xa9");
    }
    buf_text(&text, "}\"}}]}");
    CHECK_ERR(read_bytes(&f, text.data, text.n), ERR_INVALID);
    CHECK(utf8_is_valid(f.errors.data, f.errors.n));
    CHECK(strstr(f.errors.data, "\xc3\xa9… needs the result of 'x\xc3\xa9") != NULL);
    buf_deinit(&text);
    fixture_deinit(&f);
}

TEST(the_inputs_of_a_sql_task_are_a_statement_and_its_parameters)
{
    struct fixture f;
    read_good(&f, "{\"tasks\":[{\"name\":\"a\",\"executor\":\"sql\",\"inputs\":{\"sql\":\"select $1\",\"params\":[1]}},"
                  "{\"name\":\"b\",\"executor\":\"sql\",\"depends_on\":[\"a\"],\"inputs\":{\"sql\":\"select $k\","
                  "\"params\":{\"k\":\"${results.a.rows[0].x}\"}}},"
                  "{\"name\":\"c\",\"executor\":\"sql\",\"depends_on\":[\"a\"],\"inputs\":{\"sql\":\"select $1\","
                  "\"params\":\"${results.a.rows}\"}}]}");
    CHECK(f.tree.stages[0].child);
    fixture_deinit(&f);
    check_refused("{\"tasks\":[{\"name\":\"a\",\"executor\":\"sql\",\"inputs\":{\"params\":3}}]}",
                  "tasks[0].inputs.params: must be a list, or an object for named parameters, got 3\n"
                  "tasks[0].inputs: \"sql\" is missing: the query");
    check_refused("{\"tasks\":[{\"name\":\"a\",\"executor\":\"sql\",\"inputs\":{\"sql\":\" \",\"param\":[]}}]}",
                  "tasks[0].inputs.sql: must be a text that is not empty, got \" \"\n"
                  "tasks[0].inputs.param: there is no such key; did you mean \"params\"?");
}

TEST(a_sql_task_cannot_be_placed)
{
    check_refused(
        "{\"tasks\":[{\"name\":\"a\",\"executor\":\"sql\",\"inputs\":{\"sql\":\"select 1\"},"
        "\"required_custom_ops\":[\"x\"]}]}",
        "tasks[0].required_custom_ops: a task with the executor \"sql\" runs as a job of its own and cannot be "
        "placed");
}

/* ---- size ---- */

static void check_size(int n, const char *first, const char *others, bool is_chain)
{
    struct buf text = {0};
    struct fixture f;
    for (int i = 0; i < n; i++) {
        buf_format(&text, "%s{\"name\":\"t%d\",\"executor\":\"command\",\"inputs\":{\"argv\":[\"echo\",\"%d\"]}",
                   i == 0 ? "{\"tasks\":[" : ",", i, i);
        if (i > 0 && is_chain) {
            buf_format(&text, ",\"depends_on\":[\"t%d\"]", i - 1);
        }
        buf_text(&text, i == 0 ? first : others);
        buf_char(&text, '}');
    }
    buf_text(&text, "]}");
    read_good(&f, text.data);
    submit(&f.tree);
    CHECK_UINT(f.tree.n_stages, n);
    CHECK_UINT(f.tree.n_payloads, n);
    CHECK_UINT(f.tree.stages[n - 1].n_parents, is_chain || others[0] != '\0' ? 1 : 0);
    buf_deinit(&text);
    fixture_deinit(&f);
}

TEST(a_fan_and_a_chain_of_100000_tasks_are_read)
{
    check_size(100000, "", ",\"depends_on\":[\"t0\"]", false);
    check_size(100000, "", "", true);
}

TEST(a_task_may_wait_for_100000_others_and_use_their_results)
{
    struct buf text = {0};
    struct fixture f;
    for (int i = 0; i < 100000; i++) {
        buf_format(&text, "%s{\"name\":\"t%d\",\"executor\":\"p\"}", i == 0 ? "{\"tasks\":[" : ",", i);
    }
    buf_text(&text, ",{\"name\":\"all\",\"executor\":\"p\",\"depends_on\":[");
    for (int i = 0; i < 100000; i++) {
        buf_format(&text, "%s{\"task\":\"t%d\",\"required\":false}", i == 0 ? "" : ",", i);
    }
    buf_text(&text, "],\"inputs\":{\"x\":[");
    for (int i = 0; i < 20000; i++) {
        buf_format(&text, "%s\"${results.t%d}\"", i == 0 ? "" : ",", i * 5);
    }
    buf_text(&text, "]}}]}");
    read_good(&f, text.data);
    CHECK_UINT(f.tree.stages[100000].n_parents, 100000);
    buf_deinit(&text);
    fixture_deinit(&f);
}

/* ---- mutations ---- */

static void check_is_canonical(const char *payload)
{
    struct json *root = NULL;
    struct buf again = {0};
    CHECK_ERR(json_parse(payload, strlen(payload), &root, NULL), ERR_OK);
    wire_write_canonical(&again, root);
    CHECK_STR(again.data, payload);
    json_free(root);
    buf_deinit(&again);
}

TEST(random_mutations_of_a_tree_are_refused_or_read_the_same_way_twice)
{
    struct prng prng;
    prng_init(&prng, 7);
    int good = 0;
    for (int i = 0; i < 20000; i++) {
        char text[sizeof example];
        size_t n = sizeof example - 1;
        memcpy(text, example, sizeof example);
        for (uint64_t k = prng_below(&prng, 3) + 1; k > 0; k--) {
            size_t at = prng_below(&prng, n);
            if (prng_below(&prng, 2) == 0) {
                text[at] = example[prng_below(&prng, n)];
            } else {
                memmove(text + at, text + at + 1, n - at - 1);
                n--;
            }
        }
        struct fixture f;
        if (read_bytes(&f, text, n) == ERR_OK) {
            good++;
            submit(&f.tree);
            for (uint32_t s = 0; s < f.tree.n_stages; s++) {
                check_is_canonical(payload_of(&f, s));
            }
        } else {
            CHECK(f.errors.n > 0);
            CHECK(f.e.message[0] != '\0');
        }
        fixture_deinit(&f);
    }
    CHECK(good > 500);
}
