/*
 * tree_json.c - any bytes as a task tree.
 *
 * Promises: a tree that is accepted is JSON; its content is the digest of its canonical form; each payload is canonical,
 * has its own digest and belongs to a task; reading the tree again gives the same. A tree that is refused has texts that
 * say why, at most LIMIT_TREE_ERRORS and one more, and is called broken only if it is not JSON.
 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "fuzz/fuzz.h"
#include "wire/canonical.h"
#include "wire/tree.h"

static void must(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* Whether it is JSON, and its canonical form if so. A tree may be two levels deeper than base/json.h reads at once. */
static bool is_json(const char *text, size_t n, struct buf *canonical, bool *out_is_deep)
{
    struct json *root = NULL;
    struct error e = {0};
    bool is_good = json_parse(text, n, &root, &e) == ERR_OK;
    if (is_good) {
        wire_write_canonical(canonical, root);
    }
    json_free(root);
    *out_is_deep = strstr(e.message, "nested deeper") != NULL;
    return is_good;
}

static void must_be_digest(const struct digest *digest, const char *bytes, size_t n)
{
    struct digest expected;
    sha256_once(bytes, n, expected.bytes);
    must(memcmp(digest, &expected, sizeof expected) == 0);
}

static void check_payload(const struct tree_payload *payload)
{
    struct buf canonical = {0};
    bool is_deep = false;
    must_be_digest(&payload->digest, payload->bytes, payload->n);
    must(is_json(payload->bytes, payload->n, &canonical, &is_deep));
    must(canonical.n == payload->n && memcmp(canonical.data, payload->bytes, payload->n) == 0);
    must(payload->n <= LIMIT_PAYLOAD_BYTES);
    buf_deinit(&canonical);
}

static void check_stage(const struct tree_submit *tree, const struct stage_spec *stage)
{
    bool is_found = false;
    must(stage->name != NULL && stage->need != NULL && stage->need->executor != NULL);
    must(stage->n_tasks == 1 && stage->tasks != NULL);
    must(stage->child == (strcmp(stage->need->executor, "sql") == 0));
    for (uint32_t i = 0; i < tree->n_payloads && !is_found; i++) {
        is_found = memcmp(&tree->payloads[i].digest, &stage->tasks[0].inputs, sizeof(struct digest)) == 0 &&
                   tree->payloads[i].n == stage->tasks[0].inputs_bytes;
    }
    must(is_found);
    for (uint32_t i = 0; i < stage->n_parents; i++) {
        must(stage->parents[i].stage < tree->n_stages);
    }
}

static void check_accepted(const char *text, size_t n, const struct tree_submit *tree)
{
    struct buf canonical = {0};
    bool is_deep = false;
    if (is_json(text, n, &canonical, &is_deep)) {
        must_be_digest(&tree->content, canonical.data, canonical.n);
        struct arena arena = {0};
        struct tree_submit again = {0};
        must(wire_read_tree(canonical.data, canonical.n, &arena, &again, NULL, NULL) == ERR_OK);
        must(memcmp(&again.content, &tree->content, sizeof again.content) == 0);
        must(again.n_stages == tree->n_stages && again.n_payloads == tree->n_payloads);
        arena_deinit(&arena);
    } else {
        must(is_deep);
    }
    for (uint32_t i = 0; i < tree->n_payloads; i++) {
        check_payload(&tree->payloads[i]);
    }
    for (uint32_t i = 0; i < tree->n_stages; i++) {
        check_stage(tree, &tree->stages[i]);
    }
    buf_deinit(&canonical);
}

/* What people and terminals get to see: UTF-8, and no control characters but line ends. */
static void must_be_printable(const char *text, size_t n)
{
    must(utf8_is_valid(text, n));
    for (size_t i = 0; i < n; i++) {
        must((unsigned char)text[i] >= 0x20 || text[i] == '\n');
    }
}

static void check_refused(const char *text, size_t n, const struct buf *errors, const struct error *e)
{
    size_t lines = 1;
    must(errors->n > 0 && e->message[0] != '\0' && e->code == ERR_INVALID);
    for (size_t i = 0; i < errors->n; i++) {
        lines += errors->data[i] == '\n' ? 1 : 0;
    }
    must(lines <= LIMIT_TREE_ERRORS + 1);
    must_be_printable(errors->data, errors->n);
    must_be_printable(e->message, strlen(e->message));
    if (strncmp(errors->data, "the tree is not JSON", 20) == 0) {
        struct buf canonical = {0};
        bool is_deep = false;
        must(lines == 1);
        must(!is_json(text, n, &canonical, &is_deep));
        buf_deinit(&canonical);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const char *text = (const char *)bytes;
    struct arena arena = {0};
    struct tree_submit tree = {.n_stages = 77};
    struct buf errors = {0};
    struct error e = {0};
    if (wire_read_tree(text, n, &arena, &tree, &errors, &e) == ERR_OK) {
        must(errors.n == 0);
        check_accepted(text, n, &tree);
    } else {
        must(tree.n_stages == 77);
        check_refused(text, n, &errors, &e);
    }
    buf_deinit(&errors);
    arena_deinit(&arena);
    return 0;
}
