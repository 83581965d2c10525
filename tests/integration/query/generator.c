#include "query/generator.h"

#include <string.h>

#include "base/mem.h"
#include "query/generator_internal.h"

void decisions_deinit(struct decisions *decisions)
{
    mem_free(decisions->values);
    *decisions = (struct decisions){0};
}

/* A number below `n`; zero leads to the simplest query. */
uint32_t generator__pick(struct generator *g, uint32_t n)
{
    uint32_t value = 0;
    if (g->is_replay) {
        value = g->at < g->decisions->n ? g->decisions->values[g->at] : 0;
    } else {
        value = (uint32_t)prng_below(&g->prng, n);
        g->decisions->values = mem_grow(g->decisions->values, &g->decisions->cap, g->at + 1, sizeof value);
        g->decisions->values[g->at] = value;
        g->decisions->n = g->at + 1;
    }
    g->at++;
    return value % n;
}

bool generator__chance(struct generator *g, uint32_t one_in)
{
    return generator__pick(g, one_in) == one_in - 1;
}

void generate_query(const struct schema *schema, uint64_t seed, struct decisions *out_decisions, struct buf *out_sql)
{
    struct generator g = {.schema = schema, .decisions = out_decisions, .out = out_sql};
    prng_init(&g.prng, seed);
    out_decisions->n = 0;
    generator__query(&g);
}

void generate_from(const struct schema *schema, const struct decisions *decisions, struct buf *out_sql)
{
    struct decisions same = *decisions;
    struct generator g = {.schema = schema, .is_replay = true, .decisions = &same, .out = out_sql};
    generator__query(&g);
}

/* Tries the decisions without `n` of them from `at` on (or with zeros there); keeps what passes. */
static bool try_smaller(const struct schema *schema, struct decisions *decisions, uint32_t at, uint32_t n,
                        bool is_removed, shrink_check_fn *check, void *context)
{
    struct buf sql = {0};
    struct decisions next = {.n = decisions->n, .cap = decisions->n};
    next.values = mem_copy(decisions->values, decisions->n * sizeof *decisions->values);
    if (is_removed) {
        memmove(next.values + at, next.values + at + n, (next.n - at - n) * sizeof *next.values);
        next.n -= n;
    } else {
        memset(next.values + at, 0, n * sizeof *next.values);
    }
    generate_from(schema, &next, &sql);
    bool passes = check(context, sql.data);
    buf_deinit(&sql);
    if (passes) {
        decisions_deinit(decisions);
        *decisions = next;
    } else {
        decisions_deinit(&next);
    }
    return passes;
}

static bool is_zero(const struct decisions *decisions, uint32_t at, uint32_t n)
{
    for (uint32_t i = at; i < at + n; i++) {
        if (decisions->values[i] != 0) {
            return false;
        }
    }
    return true;
}

void generator_shrink(const struct schema *schema, struct decisions *decisions, shrink_check_fn *check, void *context,
                      uint32_t calls_max)
{
    uint32_t calls = 0;
    for (bool has_changed = true; has_changed && calls < calls_max;) {
        has_changed = false;
        for (uint32_t n = decisions->n > 16 ? 16 : decisions->n; n > 0; n /= 2) {
            for (uint32_t at = 0; at + n <= decisions->n && calls < calls_max; at++) {
                calls++;
                if (try_smaller(schema, decisions, at, n, true, check, context)) {
                    has_changed = true;
                } else if (!is_zero(decisions, at, n)) {
                    calls++;
                    has_changed = try_smaller(schema, decisions, at, n, false, check, context) || has_changed;
                }
            }
        }
    }
}
