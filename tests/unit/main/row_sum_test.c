#include "main/row_sum.h"

#include <math.h>

#include "../test.h"

/* Rows of a whole number and a fraction. Bit i of `nulls`: the whole number of row i is NULL. */
struct sample {
    int64_t n;
    int64_t wholes[4];
    double fractions[4];
    uint8_t nulls;
};

static void add(struct row_sum *sum, const struct sample *sample)
{
    uint8_t validity = (uint8_t)~sample->nulls;
    const void *buffers[2][2] = {{&validity, sample->wholes}, {NULL, sample->fractions}};
    const void *none[] = {NULL};
    struct ArrowArray columns[2];
    struct ArrowArray *children[] = {&columns[0], &columns[1]};
    for (int i = 0; i < 2; i++) {
        columns[i] = (struct ArrowArray){.length = sample->n, .n_buffers = 2, .buffers = buffers[i]};
    }
    columns[0].null_count = sample->nulls != 0 ? -1 : 0;
    struct ArrowArray batch = {
        .length = sample->n, .n_buffers = 1, .buffers = none, .n_children = 2, .children = children};
    row_sum_add(sum, &batch);
}

/* Of all batches together. */
static uint64_t sum_of(const struct sample *batches, uint32_t n, const char *name)
{
    struct ArrowSchema columns[] = {{.format = "l", .name = name, .flags = ARROW_FLAG_NULLABLE},
                                    {.format = "g", .name = "fraction", .flags = ARROW_FLAG_NULLABLE}};
    struct ArrowSchema *children[] = {&columns[0], &columns[1]};
    struct ArrowSchema schema = {.format = "+s", .name = "", .n_children = 2, .children = children};
    struct row_sum sum;
    struct error e = {0};
    CHECK_ERR(row_sum_open(&sum, &schema, &e), ERR_OK);
    for (uint32_t i = 0; i < n; i++) {
        add(&sum, &batches[i]);
    }
    row_sum_close(&sum);
    return sum.value;
}

#define SUM(...) sum_of(&(struct sample){__VA_ARGS__}, 1, "whole")

TEST(the_same_rows_have_the_same_sum_whatever_their_order_and_batches)
{
    const struct sample batches[] = {{.n = 1, .wholes = {3}, .fractions = {0.5}},
                                     {.n = 2, .wholes = {1, 2}, .fractions = {1.5, 2.5}}};
    uint64_t sum = SUM(.n = 3, .wholes = {1, 2, 3}, .fractions = {1.5, 2.5, 0.5});
    CHECK_UINT(SUM(.n = 3, .wholes = {2, 3, 1}, .fractions = {2.5, 0.5, 1.5}), sum);
    CHECK_UINT(sum_of(batches, 2, "whole"), sum);
}

TEST(other_rows_have_another_sum)
{
    uint64_t sum = SUM(.n = 2, .wholes = {1, 2}, .fractions = {1.5, 2.5});
    CHECK(SUM(.n = 2, .wholes = {1, 3}, .fractions = {1.5, 2.5}) != sum);
    CHECK(SUM(.n = 2, .wholes = {2, 1}, .fractions = {1.5, 2.5}) != sum); /* the same values, in other rows */
    CHECK(SUM(.n = 1, .wholes = {1}, .fractions = {1.5}) != sum);
    CHECK(SUM(.n = 2, .wholes = {1, 1}, .fractions = {1.5, 1.5}) != SUM(.n = 2, .wholes = {2, 2}, .fractions = {1, 1}));
    CHECK(SUM(.n = 2, .wholes = {1, 2}, .fractions = {1.5, 2.5}, .nulls = 2) != sum);
    CHECK(SUM(.n = 1, .wholes = {0}, .nulls = 1) != SUM(.n = 1, .wholes = {0}));
}

TEST(columns_count_even_without_rows)
{
    const struct sample none = {0};
    CHECK_UINT(sum_of(&none, 1, "whole"), sum_of(NULL, 0, "whole"));
    CHECK(sum_of(NULL, 0, "whole") != sum_of(NULL, 0, "other"));
}

TEST(the_last_digits_of_fractions_do_not_count_and_the_first_nine_do)
{
    uint64_t sum = SUM(.n = 1, .fractions = {0.1});
    CHECK_UINT(SUM(.n = 1, .fractions = {nextafter(0.1, 1)}), sum);
    CHECK(SUM(.n = 1, .fractions = {0.100000001}) != sum);
    CHECK_UINT(SUM(.n = 1, .fractions = {-0.0}), SUM(.n = 1, .fractions = {0.0}));
    CHECK(SUM(.n = 1, .fractions = {(double)INFINITY}) != SUM(.n = 1, .fractions = {(double)-INFINITY}));
}
