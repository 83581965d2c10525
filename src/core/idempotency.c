/* Both keys are one SHA-256 over a purpose, the identity of the task, and what sets attempts apart. */
#include "core/idempotency.h"

#include <string.h>

#include "base/sha256.h"

static struct digest hash_parts(const char *purpose, struct task_ref ref, const void *rest, size_t rest_bytes)
{
    struct digest out;
    struct sha256 sha;
    uint32_t numbers[2] = {ref.stage, ref.task};
    sha256_init(&sha);
    sha256_update(&sha, purpose, strlen(purpose) + 1);
    sha256_update(&sha, ref.job_id, strlen(ref.job_id) + 1);
    sha256_update(&sha, numbers, sizeof numbers);
    sha256_update(&sha, rest, rest_bytes);
    sha256_final(&sha, out.bytes);
    return out;
}

struct digest attempt_key(struct task_ref ref, uint32_t attempt, const struct digest *inputs)
{
    struct {
        uint32_t attempt;
        struct digest inputs;
    } rest = {attempt, *inputs};
    return hash_parts("attempt", ref, &rest, sizeof rest);
}

struct digest task_key(struct task_ref ref)
{
    return hash_parts("task", ref, NULL, 0);
}
