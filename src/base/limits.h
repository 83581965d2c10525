/*
 * limits.h - every limit on what a peer may ask for, in one place.
 *
 * Sizes that arrive from outside are checked against these before anything is allocated.
 *
 * Ownership: nothing is owned. Threads: any.
 */
#ifndef CAPSTAN_BASE_LIMITS_H
#define CAPSTAN_BASE_LIMITS_H

/* Bytes of a job id, without the NUL. */
#define LIMIT_ID_BYTES 100

/* Bytes of a name (job, stage, executor, operator, capability), without the NUL. */
#define LIMIT_NAME_BYTES 100

/* Bytes of a worker id, without the NUL. */
#define LIMIT_WORKER_ID_BYTES 100

/* Bytes of an error message that a worker reports and the store keeps; longer ones are cut. */
#define LIMIT_MESSAGE_BYTES 4096

/* Tasks of one job, over all its stages. */
#define LIMIT_TASKS_PER_JOB 10000000

/* Stages of one job; in a task tree, each task of the tree is a stage. */
#define LIMIT_STAGES_PER_JOB 1000000

/* Dependencies between the stages of one job. */
#define LIMIT_EDGES_PER_JOB 10000000

/* Different sets of requirements (operators, capabilities, placement) among the tasks of one job. */
#define LIMIT_REQUIREMENTS_PER_JOB 1000

/* Partitions that one stage may write. */
#define LIMIT_PARTITIONS 10000

/* Operators that one task may require. */
#define LIMIT_OPS_PER_TASK 64

/* Operators that one worker may offer. */
#define LIMIT_OPS_PER_WORKER 1024

/* Executors that one worker may offer. */
#define LIMIT_EXECUTORS_PER_WORKER 64

/* Capabilities that one worker may offer, or one task may require. */
#define LIMIT_CAPABILITIES 128

/* Nodes that the placement of one task may name. */
#define LIMIT_NODES_IN_PLACEMENT 1000

/* Bytes of the payload of one task. */
#define LIMIT_PAYLOAD_BYTES (1024 * 1024)

/* Bytes of a result that travels inside a report; larger ones become a partition. */
#define LIMIT_INLINE_RESULT_BYTES (1024 * 1024)

/* Tasks that one GetTask may ask for. */
#define LIMIT_CAPACITY 1000

/* Milliseconds that one GetTask may wait for work. */
#define LIMIT_WAIT_MS 60000

/* Arrays and objects inside each other in one JSON text. */
#define LIMIT_JSON_DEPTH 64

/* Errors that the check of one task tree lists before it stops. */
#define LIMIT_TREE_ERRORS 100

/* Workers that a task is known to have failed on, so that the next attempt avoids them. */
#define LIMIT_ATTEMPTS_REMEMBERED 4

#endif
