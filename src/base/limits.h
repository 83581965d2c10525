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

/* Stages that the status of a job lists; a job with more has none in its status. */
#define LIMIT_STAGES_IN_STATUS 1000

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

/* Bytes of one task's inputs with the results of its parents filled in. */
#define LIMIT_FILLED_BYTES (16 * 1024 * 1024)

/* Tasks that one GetTask may ask for. */
#define LIMIT_CAPACITY 1000

/* Milliseconds that one GetTask may wait for work. */
#define LIMIT_WAIT_MS 60000

/* Arrays and objects inside each other in one JSON text. */
#define LIMIT_JSON_DEPTH 64

/* The same in a plan that DuckDB writes, where a node or an expression takes two. */
#define LIMIT_PLAN_JSON_DEPTH 1000

/* Nodes and expressions inside each other in one plan, and all of them together. */
#define LIMIT_PLAN_DEPTH 400
#define LIMIT_PLAN_ITEMS 1000000

/*
 * Bytes of the text of one task in a tree, and lists and objects in it. A task is read as a whole, into a tree of nodes
 * that takes up to 30 bytes for each byte of text and about 1,000 for each list and object.
 */
#define LIMIT_TASK_TEXT_BYTES (16 * 1024 * 1024)
#define LIMIT_TASK_CONTAINERS 250000

/* Attempts that a task may ask for. */
#define LIMIT_TASK_ATTEMPTS 1000

/* Milliseconds that a task may ask to wait between attempts; the scheduler never waits longer. */
#define LIMIT_BACKOFF_MS 30000

/* Milliseconds that a task may be given to run: 30 days. */
#define LIMIT_TIMEOUT_MS 2592000000u

/* Running attempts per node that a placement may allow. */
#define LIMIT_PARALLEL_PER_NODE 1000000

/* Errors that the check of one task tree lists before it stops. */
#define LIMIT_TREE_ERRORS 100

/*
 * A physical plan: bytes of its text, lists and objects in it, stages, inputs of one stage, keys of one exchange, bytes of
 * one key, bytes of a table's name, bytes of a stage's description, and errors that its check lists before it stops.
 */
#define LIMIT_PLAN_BYTES (16 * 1024 * 1024)
#define LIMIT_PLAN_CONTAINERS 250000
#define LIMIT_PLAN_STAGES 1000
#define LIMIT_PLAN_INPUTS 1000
#define LIMIT_PLAN_KEYS 1000
#define LIMIT_PLAN_KEY_BYTES (64 * 1024)
#define LIMIT_PLAN_NAME_BYTES 63
#define LIMIT_PLAN_WORDS_BYTES (64 * 1024)
#define LIMIT_PLAN_ERRORS 100

/* Bytes of the SQL of one task with its splits filled in, and of all that is filled in to check one plan. */
#define LIMIT_TASK_SQL_BYTES (16 * 1024 * 1024)
#define LIMIT_PLAN_FILLED_BYTES (128 * 1024 * 1024)

/* Workers that a task is known to have failed on, so that the next attempt avoids them. */
#define LIMIT_ATTEMPTS_REMEMBERED 4

/* Bytes of one message between processes. */
#define LIMIT_WIRE_BYTES (64 * 1024 * 1024)

/* Bytes of a task tree, of a physical plan, and of one piece of a stream: a message has to hold some more. */
#define LIMIT_TREE_BYTES (LIMIT_WIRE_BYTES - 64 * 1024)

/* Fields in one request, those of the messages inside it included: what it takes in memory is bounded by this. */
#define LIMIT_REQUEST_FIELDS 250000

/* The same for an answer, which may tell a thousand tasks where to read from. */
#define LIMIT_RESPONSE_FIELDS 4000000

/* Bytes of one SQL statement. */
#define LIMIT_SQL_BYTES (1024 * 1024)

/* Bytes of a client's idempotency key. PostgreSQL refuses keys of an index that are much longer. */
#define LIMIT_KEY_BYTES 512

/* Bytes of a text that a coordinator writes for people. */
#define LIMIT_TEXT_BYTES (64 * 1024)

/* Bytes of a short word or text that a client chooses: a filter, the end of a page. */
#define LIMIT_WORD_BYTES 512

/* Bytes of HOST:PORT. A host name has 255 at most. */
#define LIMIT_ADDRESS_BYTES 263

/* Bytes of the path, glob or URL behind a named data set; of its name, as in PostgreSQL; data sets in one list. */
#define LIMIT_SOURCE_BYTES 4096
#define LIMIT_TABLE_NAME_BYTES 63
#define LIMIT_TABLES 10000

/* Bytes of all capabilities of one worker as JSON, and of one value among them. */
#define LIMIT_CAPABILITIES_BYTES (64 * 1024)
#define LIMIT_CAPABILITY_BYTES 256

/* Tasks that one worker may run at a time, and so attempts that one heartbeat names. */
#define LIMIT_SLOTS 10000

/* Fragments that one GetTask may name as known to the worker. */
#define LIMIT_KNOWN_FRAGMENTS 64

/* Jobs of which one worker may keep shuffle files. */
#define LIMIT_HELD_JOBS 10000

/* Reports in one ReportTaskStatus. */
#define LIMIT_REPORTS 10000

/* Map outputs that one report may say could not be read. A task that misses more names the first ones. */
#define LIMIT_FETCH_FAILED 10000

/* Map outputs that one task may read. */
#define LIMIT_SOURCES 1000000

/* Jobs, tasks or reasons in one answer; nodes have no pages. */
#define LIMIT_PAGE 1000
#define LIMIT_NODES 100000

/*
 * Arrow data: types inside each other, fields of one schema with all that are inside them, bytes of one message without
 * and with its buffers, rows of one batch.
 */
#define LIMIT_ARROW_DEPTH 64
#define LIMIT_ARROW_FIELDS 100000
#define LIMIT_ARROW_METADATA_BYTES (16 * 1024 * 1024)
#define LIMIT_ARROW_MESSAGE_BYTES (4ULL * 1024 * 1024 * 1024)
#define LIMIT_ARROW_ROWS 2147483647

/* Bytes that the compressed buffers of one Arrow message may have in all when they are not compressed any more. */
#define LIMIT_ARROW_UNPACKED_BYTES (1024ULL * 1024 * 1024)

/* Rows, bytes and milliseconds that a worker counts: exact in every language's JSON, and every store holds them. */
#define LIMIT_QUANTITY ((1ULL << 53) - 1)

#endif
