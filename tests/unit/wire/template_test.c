#include "../test.h"

#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "wire/template.h"

#define RESULT(name, json)                                                                                             \
    {                                                                                                                  \
        name, json, sizeof(json) - 1                                                                                   \
    }

static const struct template_result count[] = {RESULT(
    "count", "{\"rows\": [{\"n\": 42, \"s\": \"a\\\"b\\n\"}, null], \"ok\": true, \"none\": null, \"a.b\": 1.50, "
             "\"\": {\"x y\": \"deep\"}, \"quo\\\"te\": 7, \"big\": 18446744073709551615, \"list\": []}")};

/* Fills exactly the bytes of the text; the result, which the caller frees. */
static enum err fill_bytes(const char *inputs, const struct template_result *results, uint32_t n, size_t max,
                           struct buf *out, struct error *e)
{
    char *copy = mem_copy(inputs, strlen(inputs));
    buf_text(out, "before:");
    enum err err = wire_fill_inputs(copy, strlen(inputs), results, n, max, out, e);
    CHECK(strncmp(out->data, "before:", 7) == 0);
    mem_free(copy);
    return err;
}

static void check_filled(const char *inputs, const struct template_result *results, uint32_t n, const char *expected)
{
    struct buf out = {0};
    struct error e = {0};
    struct json *root = NULL;
    if (fill_bytes(inputs, results, n, LIMIT_PAYLOAD_BYTES, &out, &e) != ERR_OK) {
        print_error("%s: %s\n", inputs, e.message);
    }
    CHECK_STR(e.message, "");
    CHECK_STR(out.data + 7, expected);
    CHECK_ERR(json_parse(out.data + 7, out.n - 7, &root, NULL), ERR_OK);
    json_free(root);
    buf_deinit(&out);
}

/* What a text in inputs becomes, with the result "count" at hand. */
static void check_text(const char *text, const char *expected)
{
    struct buf inputs = {0};
    struct buf wanted = {0};
    buf_format(&inputs, "{\"x\":%s}", text);
    buf_format(&wanted, "{\"x\":%s,\"results\":{\"count\":%s}}", expected, count[0].json);
    check_filled(inputs.data, count, 1, wanted.data);
    buf_deinit(&inputs);
    buf_deinit(&wanted);
}

static void check_fails(const char *inputs, const struct template_result *results, uint32_t n, const char *message)
{
    struct buf out = {0};
    struct error e = {0};
    CHECK_ERR(fill_bytes(inputs, results, n, LIMIT_PAYLOAD_BYTES, &out, &e), ERR_INVALID);
    CHECK_STR(e.message, message);
    CHECK_STR(out.data, "before:");
    buf_deinit(&out);
}

TEST(inputs_without_results_and_templates_are_copied_as_they_are)
{
    check_filled("{ \"b\" : 1.0, \"a\": \"${HOME} $x $$ $\" }", NULL, 0, "{ \"b\" : 1.0, \"a\": \"${HOME} $x $$ $\" }");
}

TEST(results_are_put_beside_the_inputs)
{
    static const struct template_result two[] = {RESULT("a", "{\"x\":[1]}"), {"b", NULL, 0}};
    check_filled("{}", two, 2, "{\"results\":{\"a\":{\"x\":[1]},\"b\":null}}");
    check_filled(" { \t} \n", two, 2, "{\"results\":{\"a\":{\"x\":[1]},\"b\":null}}");
    check_filled("{\"z\":\"}\"}", two, 2, "{\"z\":\"}\",\"results\":{\"a\":{\"x\":[1]},\"b\":null}}");
    check_filled("{\"z\":\"results\"}", two, 1, "{\"z\":\"results\",\"results\":{\"a\":{\"x\":[1]}}}");
}

TEST(a_text_that_is_one_template_becomes_the_value)
{
    check_text("\"${results.count.rows[0].n}\"", "42");
    check_text("\"${results.count.ok}\"", "true");
    check_text("\"${results.count.none}\"", "null");
    check_text("\"${results.count.rows[1]}\"", "null");
    check_text("\"${results.count.rows[0].s}\"", "\"a\\\"b\\n\"");
    check_text("\"${results.count.rows}\"", "[{\"n\":42,\"s\":\"a\\\"b\\n\"},null]");
    check_text("\"${results.count.big}\"", "18446744073709551615");
    check_text("\"${results.count.list}\"", "[]");
    check_text("[{\"y\":[\"${results.count.rows[0].n}\"]}]", "[{\"y\":[42]}]");
}

TEST(keys_with_dots_and_blanks_are_written_in_quotes)
{
    check_text("\"${results.count[\\\"a.b\\\"]}\"", "1.5");
    check_text("\"${results.count[\\\"\\\"][\\\"x y\\\"]}\"", "\"deep\"");
    check_text("\"${results.count[\\\"quo\\\\\\\"te\\\"]}\"", "7");
    check_text("\"${results.count[\\\"rows\\\"][0][\\\"n\\\"]}\"", "42");
}

TEST(inside_a_text_a_value_takes_its_text_form)
{
    check_text("\"n=${results.count.rows[0].n}!\"", "\"n=42!\"");
    check_text("\"${results.count.ok}${results.count.none}\"", "\"truenull\"");
    check_text("\"<${results.count.rows[0].s}>\"", "\"<a\\\"b\\n>\"");
    check_text("\"j=${results.count.rows}\"", "\"j=[{\\\"n\\\":42,\\\"s\\\":\\\"a\\\\\\\"b\\\\n\\\"},null]\"");
    check_text("\"$${results.count.ok}=${results.count.ok}\"", "\"${results.count.ok}=true\"");
}

TEST(an_escape_becomes_what_it_stands_for)
{
    check_filled("{\"x\":\"$${results.a} $${ $$${\"}", NULL, 0, "{\"x\":\"${results.a} ${ $${\"}");
    check_text("\"${HOME} $x $ ${params.p} ${results}\"", "\"${HOME} $x $ ${params.p} ${results}\"");
}

TEST(what_is_put_in_is_not_looked_at_again)
{
    static const struct template_result sly[] = {RESULT("a", "{\"t\":\"${results.a.u} $${\",\"u\":1}")};
    check_filled(
        "{\"x\":\"${results.a.t}\",\"y\":\"<${results.a.t}>\",\"z\":[\"${results.a}\"]}", sly, 1,
        "{\"x\":\"${results.a.u} $${\",\"y\":\"<${results.a.u} $${>\",\"z\":[{\"t\":\"${results.a.u} $${\",\"u\":1}],"
        "\"results\":{\"a\":{\"t\":\"${results.a.u} $${\",\"u\":1}}}");
}

TEST(keys_are_left_alone)
{
    check_filled("{\"${results.a}\":\"$${\"}", NULL, 0, "{\"${results.a}\":\"${\"}");
}

TEST(an_optional_dependency_that_failed_is_null)
{
    static const struct template_result failed[] = {{"count", NULL, 0}};
    check_filled("{\"x\":\"${results.count}\",\"y\":\"<${results.count}>\"}", failed, 1,
                 "{\"x\":null,\"y\":\"<null>\",\"results\":{\"count\":null}}");
    check_fails("{\"x\":\"${results.count.rows}\"}", failed, 1,
                "inputs.x: ${results.count.rows}: 'count' has no result: it failed, was skipped or returned nothing");
}

TEST(a_path_that_does_not_exist_says_how_far_it_leads)
{
    check_fails("{\"json\":{\"n\":\"${results.count.cols[0].n}\"}}", count, 1,
                "inputs.json.n: ${results.count.cols[0].n}: cols does not exist; count has the members rows, ok, none, "
                "\"a.b\", \"\", \"quo\\\"te\", big, list");
    check_fails("{\"x\":[0,\"${results.count.rows[2].n}\"]}", count, 1,
                "inputs.x[1]: ${results.count.rows[2].n}: rows[2] does not exist; rows is a list with 2 elements");
    check_fails("{\"x y\":\"a ${results.count.rows[0].m}\"}", count, 1,
                "inputs[\"x y\"]: ${results.count.rows[0].m}: rows[0].m does not exist; rows[0] has the members n, s");
    check_fails("{\"x\":\"${results.count.rows[1].n}\"}", count, 1,
                "inputs.x: ${results.count.rows[1].n}: rows[1].n does not exist; rows[1] is null");
    check_fails("{\"x\":\"${results.count.ok[0]}\"}", count, 1,
                "inputs.x: ${results.count.ok[0]}: ok[0] does not exist; ok is true");
    check_fails("{\"x\":\"${results.count[\\\"\\\"].n}\"}", count, 1,
                "inputs.x: ${results.count[\"\"].n}: [\"\"].n does not exist; [\"\"] has the member \"x y\"");
    check_fails(
        "{\"x\":\"${results.count[0]}\"}", count, 1,
        "inputs.x: ${results.count[0]}: [0] does not exist; count has the members rows, ok, none, \"a.b\", \"\", "
        "\"quo\\\"te\", big, list");
}

TEST(members_are_listed_up_to_a_point)
{
    struct buf json = {0};
    for (int i = 0; i < 25; i++) {
        buf_format(&json, "%s\"m%d\":0", i == 0 ? "{" : ",", i);
    }
    buf_char(&json, '}');
    struct template_result many = {"a", json.data, json.n};
    check_fails(
        "{\"x\":\"${results.a.y}\"}", &many, 1,
        "inputs.x: ${results.a.y}: y does not exist; a has the members m0, m1, m2, m3, m4, m5, m6, m7, m8, m9 and 15 "
        "more");
    buf_deinit(&json);
}

TEST(templates_that_should_not_be_there_are_refused)
{
    check_fails("{\"x\":\"${results.other}\"}", count, 1,
                "inputs.x: ${results.other}: this task does not depend on a task 'other'");
    check_fails("{\"x\":\"${results.count\"}", count, 1, "inputs.x: ${results.count: the closing brace is missing");
    check_fails("{\"x\":\"a${results.count.rows[1}b\"}", count, 1,
                "inputs.x: ${results.count.rows[1}b: a closing bracket is missing");
    check_fails("{\"results\":1}", count, 1, "inputs.results: the name is taken by the results of other tasks");
    check_fails("[]", count, 1, "inputs: not an object");
    check_fails("[\"$${\"]", NULL, 0, "inputs: not an object");
    check_fails("{\"x\":\"$${\"", NULL, 0, "inputs: not JSON: at byte 10: expected a comma or '}', but the text ends");
}

TEST(messages_about_templates_have_no_control_characters)
{
    check_fails(
        "{\"x\":\"${results.count[\\\"a\\n\\\"].b}\"}", count, 1,
        "inputs.x: ${results.count[\"a\\u000a\"].b}: [\"a\\u000a\"] does not exist; count has the members rows, ok, "
        "none, \"a.b\", \"\", \"quo\\\"te\", big, list");
}

TEST(a_result_that_is_not_json_is_refused_and_not_put_in)
{
    static const struct template_result bad[] = {RESULT("a", "{\"x\":")};
    check_fails(
        "{\"x\":\"${results.a.x}\"}", bad, 1,
        "inputs.x: ${results.a.x}: the value of 'a' is not JSON: at byte 5: expected a value, but the text ends");
}

TEST(what_becomes_too_large_is_refused_with_the_sizes)
{
    static const struct template_result a[] = {RESULT("a", "\"0123456789\"")};
    struct buf out = {0};
    struct error e = {0};
    /* {"x":1,"results":{"a":"0123456789"}} has 36 bytes. */
    CHECK_ERR(fill_bytes("{\"x\":1}", a, 1, 36, &out, &e), ERR_OK);
    buf_reset(&out);
    CHECK_ERR(fill_bytes("{\"x\":1}", a, 1, 35, &out, &e), ERR_EXHAUSTED);
    CHECK_STR(e.message, "with the values that are put in there are 36 bytes or more, but at most 35 are allowed");
    CHECK_STR(out.data, "before:");
    buf_reset(&out);
    CHECK_ERR(fill_bytes("{\"x\":1}", a, 1, 20, &out, &e), ERR_EXHAUSTED);
    CHECK_STR(out.data, "before:");
    buf_reset(&out);
    CHECK_ERR(fill_bytes("{\"x\":1}", NULL, 0, 6, &out, &e), ERR_EXHAUSTED);
    CHECK_STR(e.message, "the inputs are 7 bytes, but at most 6 are allowed");
    buf_reset(&out);
    CHECK_ERR(fill_bytes("{\"x\":1,\"y\":\"$${\"}", NULL, 0, 6, &out, &e), ERR_EXHAUSTED);
    CHECK_STR(out.data, "before:");
    buf_deinit(&out);
}

TEST(templates_that_multiply_a_large_result_stop_at_the_limit)
{
    struct buf json = {0};
    struct buf inputs = {0};
    struct buf out = {0};
    struct error e = {0};
    buf_char(&json, '"');
    for (int i = 0; i < 100000; i++) {
        buf_text(&json, "0123456789");
    }
    buf_char(&json, '"');
    for (int i = 0; i < 10000; i++) {
        buf_format(&inputs, "%s\"${results.a}${results.a}\"", i == 0 ? "{\"x\":[" : ",");
    }
    buf_text(&inputs, "]}");
    struct template_result a = {"a", json.data, json.n};
    CHECK_ERR(fill_bytes(inputs.data, &a, 1, 5000000, &out, &e), ERR_EXHAUSTED);
    CHECK(out.cap < 1000);
    buf_reset(&inputs);
    for (int i = 0; i < 300; i++) {
        buf_text(&inputs, i == 0 ? "{\"x\":\"${results.a}" : "${results.a}");
    }
    buf_text(&inputs, "\"}");
    buf_reset(&out);
    CHECK_ERR(fill_bytes(inputs.data, &a, 1, 5000000, &out, &e), ERR_EXHAUSTED);
    CHECK_STR(e.message,
              "with the values that are put in there are 6000005 bytes or more, but at most 5000000 are allowed");
    buf_deinit(&json);
    buf_deinit(&inputs);
    buf_deinit(&out);
}

static void nest(struct buf *out, int n, const char *inner)
{
    for (int i = 0; i < n; i++) {
        buf_char(out, '[');
    }
    buf_text(out, inner);
    for (int i = 0; i < n; i++) {
        buf_char(out, ']');
    }
}

TEST(what_becomes_too_deep_is_refused)
{
    struct buf json = {0};
    struct buf inputs = {0};
    struct buf out = {0};
    struct error e = {0};
    nest(&json, LIMIT_JSON_DEPTH - 2, "\"[\\\"[\"");
    struct template_result deep = {"a", json.data, json.n};
    CHECK_ERR(fill_bytes("{}", &deep, 1, LIMIT_PAYLOAD_BYTES, &out, &e), ERR_OK);
    struct json *root = NULL;
    CHECK_ERR(json_parse(out.data + 7, out.n - 7, &root, NULL), ERR_OK);
    json_free(root);
    buf_reset(&out);
    CHECK_ERR(fill_bytes("{\"x\":\"${results.a}\"}", &deep, 1, LIMIT_PAYLOAD_BYTES, &out, &e), ERR_OK);
    buf_text(&inputs, "{\"x\":[[\"${results.a}\"]]}");
    check_fails(
        inputs.data, &deep, 1,
        "inputs.x[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]"
        "[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]: with the values "
        "that are put in, lists and objects are nested deeper than 64");
    buf_reset(&json);
    nest(&json, LIMIT_JSON_DEPTH - 1, "");
    deep = (struct template_result){"a", json.data, json.n};
    check_fails("{}", &deep, 1,
                "inputs.results.a: with the values that are put in, lists and objects are nested deeper than 64");
    buf_deinit(&json);
    buf_deinit(&inputs);
    buf_deinit(&out);
}

TEST(many_results_are_found_by_name)
{
    enum { N = 20000 };
    struct template_result *results = mem_calloc(N, sizeof *results);
    struct buf names = {0};
    struct buf inputs = {0};
    struct buf out = {0};
    struct error e = {0};
    for (int i = 0; i < N; i++) {
        buf_format(&names, "t%07d", i);
        buf_char(&names, '\0');
    }
    for (int i = 0; i < N; i++) {
        results[i] = (struct template_result){names.data + (size_t)((i * 7) % N) * 9, "1", 1};
        buf_format(&inputs, "%s\"${results.t%07d}\"", i == 0 ? "{\"x\":[" : ",", i);
    }
    buf_text(&inputs, "]}");
    CHECK_ERR(fill_bytes(inputs.data, results, N, (size_t)16 << 20, &out, &e), ERR_OK);
    CHECK(strncmp(out.data, "before:{\"x\":[1,1,1,", 19) == 0);
    mem_free(results);
    buf_deinit(&names);
    buf_deinit(&inputs);
    buf_deinit(&out);
}

/* ---- parameters ---- */

static void check_params(const char *tree, const struct template_param *params, uint32_t n, const char *expected)
{
    struct buf out = {0};
    struct error e = {0};
    enum err err = wire_fill_params(tree, strlen(tree), params, n, &out, &e);
    CHECK_STR(e.message, "");
    CHECK_ERR(err, ERR_OK);
    CHECK_STR(out.data, expected);
    buf_deinit(&out);
}

static void check_params_fail(const char *tree, const struct template_param *params, uint32_t n, const char *message)
{
    struct buf out = {0};
    struct error e = {0};
    CHECK_ERR(wire_fill_params(tree, strlen(tree), params, n, &out, &e), ERR_INVALID);
    CHECK_STR(e.message, message);
    CHECK_UINT(out.n, 0);
    buf_deinit(&out);
}

static const struct template_param params[] = {{"day", "2024-05-06", false},
                                               {"n", "5", false},
                                               {"m", "5", true},
                                               {"o", "{\"a\":[\"${b}\",true]}", true}};

TEST(parameters_are_filled_in_anywhere_in_a_tree)
{
    check_params(
        "{\"name\": \"day ${params.day}\", \"priority\": \"${params.m}\",\n \"tasks\": [{\"${params.day}\": 1.0, "
        "\"inputs\": {\"a\": \"${params.n}\", \"b\": [\"${params.m}\"], \"c\": \"${params.o.a[1]}\"}}]}",
        params, 4,
        "{\"name\":\"day 2024-05-06\",\"priority\":5,\"tasks\":[{\"${params.day}\":1,\"inputs\":{\"a\":\"5\",\"b\":[5],"
        "\"c\":true}}]}");
}

TEST(a_parameter_can_be_written_with_an_escape_of_jsons)
{
    check_params("{\"name\":\"\\u0024{params.n}\"}", params, 4, "{\"name\":\"5\"}");
}

TEST(escapes_and_results_stay_for_later)
{
    check_params(
        "{\"tasks\":[{\"inputs\":{\"x\":\"$${params.n} ${params.n} ${results.a} ${results.\",\"y\":\"${results.a}\","
        "\"z\":\"$${\"}}]}",
        params, 4,
        "{\"tasks\":[{\"inputs\":{\"x\":\"$${params.n} 5 ${results.a} ${results.\",\"y\":\"${results.a}\",\"z\":\"$${\"}"
        "}]}");
}

TEST(a_value_in_inputs_is_never_a_template)
{
    static const struct template_param sly[] = {{"p", "${results.a} $${", false}, {"o", "{\"a\":[\"${b}\"]}", true}};
    check_params(
        "{\"name\":\"${params.p}\",\"tasks\":[{\"inputs\":{\"x\":\"${params.p}\",\"y\":\"<${params.p}>\",\"z\":\"${params."
        "o}\"}}]}",
        sly, 2,
        "{\"name\":\"${results.a} $${\",\"tasks\":[{\"inputs\":{\"x\":\"$${results.a} $$${\",\"y\":\"<$${results.a} "
        "$$${>\",\"z\":{\"a\":[\"$${b}\"]}}}]}");
    check_filled("{\"x\":\"$${results.a} $$${\"}", NULL, 0, "{\"x\":\"${results.a} $${\"}");
}

TEST(a_tree_without_parameters_is_copied_as_it_is)
{
    check_params("{ \"a\" : \"${results.x}\" ", params, 4, "{ \"a\" : \"${results.x}\" ");
}

TEST(a_parameter_that_is_missing_is_named)
{
    check_params_fail(
        "{\"tasks\":[{\"inputs\":{\"x\":\"${params.month}\"}}]}", params, 4,
        "tasks[0].inputs.x: ${params.month}: there is no parameter 'month'; give it with --param month=VALUE");
    check_params_fail("{\"tasks\":[\"${params.o.b}\"]}", params, 4,
                      "tasks[0]: ${params.o.b}: b does not exist; o has the member a");
    check_params_fail(
        "{\"tasks\":[\"${params.}\"]}", params, 4,
        "tasks[0]: ${params.}: a dot must be followed by a name; other keys go into brackets and quotes, [\"a "
        "key\"]");
    check_params("{\"tasks\":\"${params.n}\"", params, 4, "{\"tasks\":\"${params.n}\""); /* not JSON: as it is */
}

TEST(a_parameter_that_is_said_to_be_json_must_be_json)
{
    static const struct template_param bad[] = {{"p", "{", true}};
    static const struct template_param bytes[] = {{"p", "\xff", false}};
    check_params_fail("{}", bad, 1, "parameter 'p': not JSON: at byte 1: expected a key in quotes, but the text ends");
    check_params_fail("{}", bytes, 1, "parameter 'p': not a text: at byte 1: not UTF-8");
}
