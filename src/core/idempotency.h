/*
 * idempotency.h - the keys under which the world outside can recognise work that it has seen before.
 *
 * Pure functions of the task's identity and the digest of its canonical inputs; the same on every leader.
 */
#ifndef CAPSTAN_CORE_IDEMPOTENCY_H
#define CAPSTAN_CORE_IDEMPOTENCY_H

#include "core/ids.h"

/* One attempt: differs for every attempt, and with the inputs. */
struct digest attempt_key(struct task_ref ref, uint32_t attempt, const struct digest *inputs);

/* The task: the same over all its attempts, for de-duplication outside. */
struct digest task_key(struct task_ref ref);

#endif
