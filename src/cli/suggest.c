#include "cli/suggest.h"

#include <string.h>

#include "base/check.h"

#define WORD_BYTES_MAX 40

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The optimal string alignment distance, with three rows of its table. Longer words are infinitely far away. */
static uint32_t distance_between(const char *a, const char *b)
{
    size_t n = strlen(a);
    size_t m = strlen(b);
    uint32_t rows[3][WORD_BYTES_MAX + 1];
    if (n > WORD_BYTES_MAX || m > WORD_BYTES_MAX) {
        return UINT32_MAX;
    }
    for (size_t j = 0; j <= m; j++) {
        rows[0][j] = (uint32_t)j;
    }
    for (size_t i = 1; i <= n; i++) {
        uint32_t *row = rows[i % 3];
        const uint32_t *above = rows[(i - 1) % 3];
        row[0] = (uint32_t)i;
        for (size_t j = 1; j <= m; j++) {
            uint32_t change = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = least(change, least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = least(row[j], rows[(i - 2) % 3][j - 2] + 1);
            }
        }
    }
    return rows[n % 3][m];
}

void suggestion_try(struct suggestion *suggestion, const char *candidate)
{
    size_t n = strlen(suggestion->wanted);
    uint32_t distance = distance_between(suggestion->wanted, candidate);
    uint32_t allowed = n < 3 ? 1 : n < 6 ? 2 : 3;
    if (n >= 3 && strncmp(candidate, suggestion->wanted, n) == 0) {
        distance = 1;
    }
    if (n > 0 && distance <= allowed && distance < n && (suggestion->best == NULL || distance < suggestion->distance)) {
        suggestion->best = candidate;
        suggestion->distance = distance;
    }
}
