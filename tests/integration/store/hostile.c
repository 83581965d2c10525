/* hostile.c - values that look for trouble: what a text may hold, in every place where a text may be. */
#include <string.h>

#include "content.h"

const char *const hostile_texts[] = {
    "plain",
    "",
    " ",
    "  blanks around  ",
    "a",
    "a ",
    "A",
    "'",
    "''",
    "\"",
    "\"\"",
    "`",
    "\\",
    "\\\\",
    "\\'",
    "\\\"",
    "\\n",
    "\\0",
    "\\x41",
    "\\u0000",
    "\\N",
    "\\.",
    "NULL",
    "null",
    "true",
    "0",
    "-1",
    "1e309",
    "%s%n%d",
    "$1",
    "?1",
    ":name",
    "@name",
    "{",
    "}",
    "{}",
    "{a,b}",
    "{\"a\":1}",
    "[",
    "[]",
    "[\"x\"]",
    "a,b",
    "(1,2)",
    "'); DROP TABLE jobs; --",
    "/* comment */",
    "-- comment",
    "E'\\n'",
    "$$",
    "$tag$",
    "&amp;<b>",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "line\nline\n",
    "\x01",
    "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f",
    "\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f",
    "\x1b[31mred\x1b[0m",
    "\xc2\x80",                         /* U+0080 */
    "\xc2\x85",                         /* next line */
    "\xc2\xa0",                         /* blank that does not break */
    "\xc3\xa9",                         /* e acute, one character */
    "e\xcc\x81",                        /* and as two */
    "\xc3\x9f",                         /* sharp s */
    "\xc4\xb0\xc4\xb1",                 /* Turkish i */
    "\xdf\xbf",                         /* U+07FF */
    "\xe0\xa0\x80",                     /* U+0800 */
    "\xe2\x80\x8b\xe2\x80\x8d",         /* zero width */
    "\xe2\x80\xaexyz",                  /* right to left */
    "\xe2\x80\xa8\xe2\x80\xa9",         /* line and paragraph separator */
    "\xed\x9f\xbf",                     /* U+D7FF, before the surrogates */
    "\xee\x80\x80",                     /* U+E000, after them */
    "\xef\xbb\xbfmark",                 /* byte order mark */
    "\xef\xbf\xbd",                     /* replacement character */
    "\xef\xbf\xbe\xef\xbf\xbf",         /* U+FFFE, U+FFFF */
    "\xf0\x90\x80\x80\xf0\x9f\xbf\xbf", /* plane 1, first and last */
    "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb",
    "\xf0\xa0\x80\x80\xf0\xaf\xbf\xbf", /* 2 */
    "\xf0\xb0\x80\x80\xf0\xbf\xbf\xbf", /* 3 */
    "\xf1\x80\x80\x80\xf1\x8f\xbf\xbf", /* 4 */
    "\xf1\x90\x80\x80\xf1\x9f\xbf\xbf", /* 5 */
    "\xf1\xa0\x80\x80\xf1\xaf\xbf\xbf", /* 6 */
    "\xf1\xb0\x80\x80\xf1\xbf\xbf\xbf", /* 7 */
    "\xf2\x80\x80\x80\xf2\x8f\xbf\xbf", /* 8 */
    "\xf2\x90\x80\x80\xf2\x9f\xbf\xbf", /* 9 */
    "\xf2\xa0\x80\x80\xf2\xaf\xbf\xbf", /* 10 */
    "\xf2\xb0\x80\x80\xf2\xbf\xbf\xbf", /* 11 */
    "\xf3\x80\x80\x80\xf3\x8f\xbf\xbf", /* 12 */
    "\xf3\x90\x80\x80\xf3\x9f\xbf\xbf", /* 13 */
    "\xf3\xa0\x80\x80\xf3\xaf\xbf\xbf", /* 14 */
    "\xf3\xb0\x80\x80\xf3\xbf\xbf\xbf", /* 15 */
    "\xf4\x80\x80\x80\xf4\x8f\xbf\xbf", /* 16 */
};

const uint32_t n_hostile_texts = (uint32_t)ARRAY_LEN(hostile_texts);

/* ---- long ones ---- */

static size_t put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xc0 | (c >> 6));
        to[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        to[0] = (char)(0xe0 | (c >> 12));
        to[1] = (char)(0x80 | ((c >> 6) & 0x3f));
        to[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | (c >> 18));
    to[1] = (char)(0x80 | ((c >> 12) & 0x3f));
    to[2] = (char)(0x80 | ((c >> 6) & 0x3f));
    to[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* Any character but NUL; half of them plain. */
static uint32_t random_character(struct prng *prng)
{
    static const uint32_t ends[] = {0x20, 0x80, 0x800, 0xd800, 0x110000};
    uint32_t end = ends[prng_below(prng, ARRAY_LEN(ends))];
    uint32_t c =
        prng_permille(prng, 500) ? (uint32_t)prng_range(prng, 0x20, 0x7e) : 1 + (uint32_t)prng_below(prng, end - 1);
    return c >= 0xd800 && c < 0xe000 ? 0xfffd : c;
}

const char *long_text(struct arena *arena, enum long_kind kind, size_t n_bytes)
{
    static const char *const samples[] = {"x", "'\"\\", "\xf0\x9f\x92\xbb"};
    struct prng prng;
    char *text = arena_alloc(arena, n_bytes + 8);
    size_t n = 0;
    prng_init(&prng, n_bytes);
    while (n + 4 <= n_bytes) {
        if (kind == LONG_RANDOM) {
            n += put_utf8(text + n, random_character(&prng));
        } else {
            memcpy(text + n, samples[kind], strlen(samples[kind]));
            n += strlen(samples[kind]);
        }
    }
    while (n < n_bytes) {
        text[n++] = 'z';
    }
    text[n] = '\0';
    return text;
}

/* ---- random ones ---- */

const char *random_text(struct prng *prng, struct arena *arena)
{
    if (prng_permille(prng, 400)) {
        return hostile_texts[prng_below(prng, n_hostile_texts)];
    }
    char *text = arena_alloc(arena, 64);
    size_t n = 0;
    for (uint64_t i = prng_below(prng, 15); i > 0; i--) {
        n += put_utf8(text + n, random_character(prng));
    }
    text[n] = '\0';
    return text;
}

const char *random_text_or_null(struct prng *prng, struct arena *arena)
{
    return prng_permille(prng, 200) ? NULL : random_text(prng, arena);
}

int64_t random_int(struct prng *prng)
{
    static const int64_t edges[] = {0,         1,         -1,        INT32_MAX,       INT32_MIN,     UINT32_MAX,
                                    INT64_MAX, INT64_MIN, 1LL << 53, (1LL << 53) + 1, INT64_MAX - 1, INT64_MIN + 1};
    return prng_permille(prng, 300) ? edges[prng_below(prng, ARRAY_LEN(edges))] : (int64_t)prng_u64(prng);
}

uint32_t random_u32(struct prng *prng)
{
    static const uint32_t edges[] = {0, 1, 127, 128, 255, 32767, 65535, INT32_MAX, 0x80000000, UINT32_MAX};
    return prng_permille(prng, 300) ? edges[prng_below(prng, ARRAY_LEN(edges))] : (uint32_t)prng_u64(prng);
}

struct string_list random_texts(struct prng *prng, struct arena *arena, uint32_t max)
{
    uint32_t n = (uint32_t)prng_below(prng, max + 1);
    const char **items = arena_alloc(arena, (n + 1) * sizeof *items);
    for (uint32_t i = 0; i < n; i++) {
        items[i] = random_text(prng, arena);
    }
    return (struct string_list){n == 0 ? NULL : items, n};
}

static double random_number(struct prng *prng)
{
    static const double edges[] = {0, -0.0, 1, -1, 0.1, 1e308, 5e-324, 9007199254740993.0, -1e-7, 3.25, 1e21};
    return edges[prng_below(prng, ARRAY_LEN(edges))];
}

/* Keys differ, as they do in JSON. */
static struct capability_list random_capabilities(struct prng *prng, struct arena *arena)
{
    uint32_t n = (uint32_t)prng_below(prng, 5);
    struct capability *items = arena_zalloc(arena, (n + 1) * sizeof *items);
    for (uint32_t i = 0; i < n; i++) {
        struct string_list list = random_texts(prng, arena, 3);
        items[i].key = arena_format(arena, "%u%s", i, random_text(prng, arena));
        items[i].kind = (enum value_kind)prng_below(prng, 4);
        switch (items[i].kind) {
        case VALUE_TEXT:
            items[i].text = random_text(prng, arena);
            break;
        case VALUE_NUMBER:
            items[i].number = random_number(prng);
            break;
        case VALUE_BOOL:
            items[i].number = (double)prng_below(prng, 2);
            break;
        case VALUE_LIST:
            items[i].items = list.items;
            items[i].n_items = list.count;
            break;
        }
    }
    return (struct capability_list){n == 0 ? NULL : items, n};
}

const struct offer *random_offer(struct prng *prng, struct arena *arena)
{
    struct offer *offer = arena_zalloc(arena, sizeof *offer);
    offer->executors = random_texts(prng, arena, 3);
    offer->ops = random_texts(prng, arena, 3);
    offer->capabilities = random_capabilities(prng, arena);
    offer->engine = random_text_or_null(prng, arena);
    return offer;
}

const struct requirement *random_requirement(struct prng *prng, struct arena *arena)
{
    struct requirement *need = arena_zalloc(arena, sizeof *need);
    need->executor = random_text_or_null(prng, arena);
    need->ops = random_texts(prng, arena, 3);
    need->engine = random_text_or_null(prng, arena);
    need->any_executors = random_texts(prng, arena, 2);
    need->capabilities = random_capabilities(prng, arena);
    need->allowed_nodes = random_texts(prng, arena, 2);
    need->forbidden_nodes = random_texts(prng, arena, 2);
    need->max_parallel_per_node = random_u32(prng);
    return need;
}

const struct stage_spec *random_spec(struct prng *prng, struct arena *arena)
{
    struct stage_spec *spec = arena_zalloc(arena, sizeof *spec);
    uint32_t n = (uint32_t)prng_below(prng, 4);
    struct stage_parent *parents = arena_zalloc(arena, (n + 1) * sizeof *parents);
    for (uint32_t i = 0; i < n; i++) {
        parents[i].stage = random_u32(prng);
        parents[i].optional = prng_permille(prng, 500);
        parents[i].read = (enum read_mode)prng_below(prng, 3);
    }
    spec->name = random_text_or_null(prng, arena);
    spec->need = random_requirement(prng, arena);
    spec->parents = parents;
    spec->n_parents = n;
    spec->n_tasks = random_u32(prng) | 1;
    spec->output = (enum output_kind)prng_below(prng, 3);
    spec->partitions = random_u32(prng);
    spec->max_attempts = random_u32(prng);
    spec->backoff_ms = random_int(prng);
    spec->timeout_ms = random_u32(prng);
    spec->nondeterministic = prng_permille(prng, 500);
    spec->exclusive = prng_permille(prng, 500);
    spec->planning = prng_permille(prng, 500);
    spec->child = prng_permille(prng, 500);
    return spec;
}
