/*
 * fill_inputs.c - any bytes as inputs and results, or as a tree and parameters, that are put together.
 *
 * The bytes are cut at each NUL: the inputs, then a name and a value in turn. Names are taken as they come; values that
 * are not JSON are results of null. Promises: inputs that are an object and are filled are JSON again, within the limits
 * of size and depth, with all results beside them; a refusal says why and leaves the output alone; a tree that is JSON
 * and is filled stays JSON.
 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "fuzz/fuzz.h"
#include "wire/template.h"

#define PAIRS_MAX 8
#define BYTES_MAX 65536

static void must(bool holds)
{
    if (!holds) {
        abort();
    }
}

static bool is_kind(const char *text, size_t n, enum json_kind kind)
{
    struct json *root = NULL;
    bool is_good = json_parse(text, n, &root, NULL) == ERR_OK && json_kind_of(root) == kind;
    json_free(root);
    return is_good;
}

static bool is_json(const char *text, size_t n)
{
    struct json *root = NULL;
    bool is_good = json_parse(text, n, &root, NULL) == ERR_OK;
    json_free(root);
    return is_good;
}

static bool has_name(const struct template_result *results, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(results[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Cuts the pairs; names that are there already are left out. The text ends with a NUL. */
static uint32_t cut_pairs(const char *text, const char *end, struct template_result *results)
{
    uint32_t n = 0;
    while (text < end && n < PAIRS_MAX) {
        const char *name = text;
        const char *value = name + strlen(name) + 1;
        if (value >= end) {
            break;
        }
        size_t length = strlen(value);
        if (!has_name(results, n, name)) {
            results[n++] = (struct template_result){name, value, is_json(value, length) ? length : 0};
        }
        text = value + length + 1;
    }
    return n;
}

static bool are_texts(const struct template_result *results, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct buf text = {0};
        json_write_text(&text, results[i].name);
        bool is_text = is_json(text.data, text.n);
        buf_deinit(&text);
        if (!is_text) {
            return false;
        }
    }
    return true;
}

static bool is_printable(const char *text)
{
    for (size_t i = 0; text[i] != '\0'; i++) {
        if ((unsigned char)text[i] < 0x20) {
            return false;
        }
    }
    return utf8_is_valid(text, strlen(text));
}

static void check_filled(const struct buf *out, const struct template_result *results, uint32_t n)
{
    struct json *root = NULL;
    must(out->n <= BYTES_MAX);
    must(json_parse(out->data, out->n, &root, NULL) == ERR_OK);
    must(json_kind_of(root) == JSON_OBJECT);
    if (n > 0) {
        const struct json *all = json_get(root, "results");
        must(json_count(all) == n);
        for (uint32_t i = 0; i < n; i++) {
            must(json_has(all, results[i].name));
        }
    }
    json_free(root);
}

static void fill_inputs(const char *inputs, size_t n_inputs, const struct template_result *results, uint32_t n)
{
    struct buf out = {0};
    struct error e = {0};
    enum err err = wire_fill_inputs(inputs, n_inputs, results, n, BYTES_MAX, &out, &e);
    if (err != ERR_OK) {
        must(err == ERR_INVALID || err == ERR_EXHAUSTED);
        must(e.code == err && e.message[0] != '\0');
        must(!is_json(inputs, n_inputs) || !are_texts(results, n) || is_printable(e.message));
        must(out.n == 0);
    } else if (is_kind(inputs, n_inputs, JSON_OBJECT) && are_texts(results, n)) {
        check_filled(&out, results, n);
    }
    buf_deinit(&out);
}

static void fill_params(const char *tree, size_t n_tree, const struct template_result *results, uint32_t n)
{
    struct template_param params[PAIRS_MAX];
    struct buf out = {0};
    struct error e = {0};
    for (uint32_t i = 0; i < n; i++) {
        params[i] = (struct template_param){results[i].name, results[i].json, results[i].n > 0 && i % 2 == 0};
    }
    enum err err = wire_fill_params(tree, n_tree, params, n, &out, &e);
    if (err != ERR_OK) {
        must(err == ERR_INVALID || err == ERR_EXHAUSTED);
        must(e.code == err && e.message[0] != '\0');
        must(out.n == 0);
    } else if (is_json(tree, n_tree)) {
        must(is_json(out.data, out.n));
    }
    buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct template_result results[PAIRS_MAX];
    char *text = mem_alloc(n + 1);
    if (n > 0) {
        memcpy(text, bytes, n);
    }
    text[n] = '\0';
    size_t n_inputs = strlen(text);
    /* A copy with nothing behind it, so that the sanitizer sees a read too far. */
    char *inputs = mem_copy(text, n_inputs);
    uint32_t n_results = n_inputs < n ? cut_pairs(text + n_inputs + 1, text + n + 1, results) : 0;
    fill_inputs(inputs, n_inputs, results, n_results);
    fill_params(inputs, n_inputs, results, n_results);
    mem_free(inputs);
    mem_free(text);
    return 0;
}
