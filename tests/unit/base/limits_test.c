#include "../test.h"

#include "base/limits.h"

TEST(what_a_task_may_require_a_worker_may_offer)
{
    CHECK(LIMIT_OPS_PER_TASK <= LIMIT_OPS_PER_WORKER);
}

TEST(counts_fit_into_32_bits)
{
    CHECK(INT64_C(1) * LIMIT_TASKS_PER_JOB < INT32_MAX);
    CHECK(INT64_C(1) * LIMIT_EDGES_PER_JOB < INT32_MAX);
    CHECK(INT64_C(1) * LIMIT_STAGES_PER_JOB < INT32_MAX);
    CHECK(INT64_C(1) * LIMIT_PAYLOAD_BYTES < INT32_MAX);
}

TEST(every_stage_may_have_a_task)
{
    CHECK(LIMIT_STAGES_PER_JOB <= LIMIT_TASKS_PER_JOB);
}
