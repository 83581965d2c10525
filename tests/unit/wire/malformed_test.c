/*
 * Requests that no honest peer sends, and what is said about them. Each must be refused before anything is allocated,
 * so the arena stays empty.
 */
#include "../test.h"

#include <string.h>

#include "bytes.h"
#include "wire/message.h"

struct malformed {
    const char *why;
    enum pb_kind kind;
    const char *bytes;
    enum err err;
    const char *message;
};

#define TOKEN "'0123456789abcdef'"
#define WORKER "0a{'w1'} 12{'i1'} "
#define POLL "0a{'w1'} 22{'i1'} "
#define BEAT "0a{'w1'} 2a{'i1'} "
#define LEASED "0a{'job'} 20 01 2a{" TOKEN "} "
#define GOOD_REPORT "1a{ 0a{ " LEASED "} 10 03 } "
#define JOB "0a{'job'} "
#define TABLE(name, source, format) "0a{ 0a{" name "} 12{" source "} 1a{" format "} }"

static const struct malformed well_formedness[] = {
    {"a tag that does not end", PB_GET_TASK_REQUEST, "8a", ERR_INVALID,
     "GetTaskRequest: the bytes end inside a number at byte 0"},
    {"a tag of six bytes", PB_GET_TASK_REQUEST, "8a 80 80 80 80 00", ERR_INVALID,
     "GetTaskRequest: a number is too long at byte 0"},
    {"a tag beyond 32 bits", PB_GET_TASK_REQUEST, "80 80 80 80 7f 00", ERR_INVALID,
     "GetTaskRequest: a field has a number that does not exist at byte 5"},
    {"field number zero", PB_GET_TASK_REQUEST, "02 00", ERR_INVALID,
     "GetTaskRequest: a field has a number that does not exist at byte 1"},
    {"a number that does not end", PB_GET_TASK_REQUEST, POLL "10 ff", ERR_INVALID,
     "capacity: the bytes end inside a number at byte 9"},
    {"a number of eleven bytes", PB_GET_TASK_REQUEST, POLL "10 ff ff ff ff ff ff ff ff ff ff 01", ERR_INVALID,
     "capacity: a number is too long at byte 9"},
    {"a number of 65 bits", PB_GET_TASK_REQUEST, POLL "10 ff ff ff ff ff ff ff ff ff 02", ERR_INVALID,
     "capacity: a number is too long at byte 9"},
    {"a number that is not there", PB_GET_TASK_REQUEST, POLL "10", ERR_INVALID,
     "capacity: the bytes end inside a number at byte 9"},
    {"a length that does not end", PB_GET_TASK_REQUEST, "0a 80", ERR_INVALID,
     "worker_id: the bytes end inside a number at byte 1"},
    {"a length of six bytes", PB_GET_TASK_REQUEST, "0a 81 80 80 80 80 00", ERR_INVALID,
     "worker_id: a number is too long at byte 1"},
    {"a length one beyond the end", PB_GET_TASK_REQUEST, "0a 03 'w1'", ERR_INVALID,
     "worker_id: 3 bytes are announced at byte 2, 2 are left"},
    {"a length of 2^31", PB_GET_TASK_REQUEST, "0a 80 80 80 80 08 'w1'", ERR_INVALID,
     "worker_id: 2147483648 bytes are announced at byte 6, 2 are left"},
    {"a length of 2^35 - 1", PB_GET_TASK_REQUEST, "0a ff ff ff ff 7f 'w1'", ERR_INVALID,
     "worker_id: 34359738367 bytes are announced at byte 6, 2 are left"},
    {"a message longer than the one around it", PB_REPORT_TASK_STATUS_REQUEST, WORKER "1a{ 0a 05 'abc' }", ERR_INVALID,
     "reports[0].ref: 5 bytes are announced at byte 12, 3 are left"},
    {"a text longer than the message around it", PB_REPORT_TASK_STATUS_REQUEST,
     WORKER "1a{ 0a{ 0a 09 'job' } } 0a{'more'}", ERR_INVALID,
     "reports[0].ref.query_id: 9 bytes are announced at byte 14, 3 are left"},
    {"the end of a group", PB_GET_TASK_REQUEST, POLL "34", ERR_INVALID,
     "GetTaskRequest: a field has an encoding that does not exist at byte 9"},
    {"the start of a group", PB_GET_TASK_REQUEST, POLL "33 34", ERR_INVALID,
     "GetTaskRequest: a field has an encoding that does not exist at byte 9"},
    {"encoding 6", PB_GET_TASK_REQUEST, POLL "36", ERR_INVALID,
     "GetTaskRequest: a field has an encoding that does not exist at byte 9"},
    {"encoding 7", PB_GET_TASK_REQUEST, POLL "37", ERR_INVALID,
     "GetTaskRequest: a field has an encoding that does not exist at byte 9"},
    {"an unknown 64-bit number that is cut off", PB_GET_TASK_REQUEST, POLL "31 00 00", ERR_INVALID,
     "GetTaskRequest: the bytes end inside a number at byte 9"},
    {"an unknown 32-bit number that is cut off", PB_GET_TASK_REQUEST, POLL "35 00 00", ERR_INVALID,
     "GetTaskRequest: the bytes end inside a number at byte 9"},
    {"an unknown text that is cut off", PB_GET_TASK_REQUEST, POLL "32 03 'ab'", ERR_INVALID,
     "GetTaskRequest: 3 bytes are announced at byte 10, 2 are left"},
    {"a double that is cut off", PB_HEARTBEAT_REQUEST, BEAT "39 00 00 00", ERR_INVALID,
     "load: the bytes end inside a number at byte 9"},
    {"packed numbers that are cut off", PB_STAGE_STATUS, "1a{ 01 80 }", ERR_INVALID,
     "parents[1]: the bytes end inside a number at byte 3"},
    {"packed numbers that announce 2^31 bytes", PB_STAGE_STATUS, "1a 80 80 80 80 08 01", ERR_INVALID,
     "parents: 2147483648 bytes are announced at byte 6, 1 are left"},
    {"plain rubbish", PB_SUBMIT_TASKS_REQUEST, "'GET / HTTP/1.1'", ERR_INVALID,
     "SubmitTasksRequest: a field has an encoding that does not exist at byte 1"},
};

static const struct malformed encodings[] = {
    {"a number where a text belongs", PB_GET_TASK_REQUEST, "08 01", ERR_INVALID,
     "worker_id: has encoding 0, which is not that of its type"},
    {"a text where a number belongs", PB_GET_TASK_REQUEST, POLL "12{'1'}", ERR_INVALID,
     "capacity: has encoding 2, which is not that of its type"},
    {"a 64-bit number where a text belongs", PB_GET_TASK_REQUEST, "09 00 00 00 00 00 00 00 00", ERR_INVALID,
     "worker_id: has encoding 1, which is not that of its type"},
    {"a number where a double belongs", PB_HEARTBEAT_REQUEST, BEAT "38 01", ERR_INVALID,
     "load: has encoding 0, which is not that of its type"},
    {"a 32-bit number where a number belongs", PB_GET_TASK_REQUEST, POLL "15 01 00 00 00", ERR_INVALID,
     "capacity: has encoding 5, which is not that of its type"},
    {"a number where a message belongs", PB_REPORT_TASK_STATUS_REQUEST, WORKER "18 01", ERR_INVALID,
     "reports[0]: has encoding 0, which is not that of its type"},
    {"a double among numbers", PB_STAGE_STATUS, "19 00 00 00 00 00 00 00 00", ERR_INVALID,
     "parents[0]: has encoding 1, which is not that of its type"},
    {"a worker with two names", PB_GET_TASK_REQUEST, POLL "0a{'w2'}", ERR_INVALID, "worker_id: is given twice"},
    {"a number given twice", PB_GET_TASK_REQUEST, POLL "10 01 10 01", ERR_INVALID, "capacity: is given twice"},
    {"a message given twice", PB_REPORT_TASK_STATUS_REQUEST, WORKER "1a{ 0a{" LEASED "} 0a{" LEASED "} }", ERR_INVALID,
     "reports[0].ref: is given twice"},
};

static const struct malformed texts[] = {
    {"a NUL inside a text", PB_CANCEL_QUERY_REQUEST, JOB "12{'ab' 00 'c'}", ERR_INVALID,
     "reason: must not contain a NUL; byte 2 is one"},
    {"a NUL at the end of a text", PB_CANCEL_QUERY_REQUEST, JOB "12{'ab' 00}", ERR_INVALID,
     "reason: must not contain a NUL; byte 2 is one"},
    {"a NUL inside an id", PB_CANCEL_QUERY_REQUEST, "0a{'jo' 00 'b'}", ERR_INVALID,
     "query_id: must consist of letters, digits, '.', '_' and '-'; byte 2 is 0x00"},
    {"a NUL in an element", PB_REGISTER_WORKER_REQUEST, WORKER "2a{'sql'} 2a{'s' 00}", ERR_INVALID,
     "executor_types[1]: must not contain control characters; byte 1 is 0x00"},
    {"a byte that is no UTF-8", PB_CANCEL_QUERY_REQUEST, JOB "12{'a' ff}", ERR_INVALID, "reason: is not UTF-8"},
    {"a character cut off", PB_CANCEL_QUERY_REQUEST, JOB "12{'a' e2 82}", ERR_INVALID, "reason: is not UTF-8"},
    {"an overlong character", PB_CANCEL_QUERY_REQUEST, JOB "12{ c0 80 }", ERR_INVALID, "reason: is not UTF-8"},
    {"a surrogate", PB_CANCEL_QUERY_REQUEST, JOB "12{ ed a0 80 }", ERR_INVALID, "reason: is not UTF-8"},
    {"beyond the last character", PB_CANCEL_QUERY_REQUEST, JOB "12{ f4 90 80 80 }", ERR_INVALID,
     "reason: is not UTF-8"},
    {"a name that is no UTF-8", PB_RETRY_JOB_REQUEST, JOB "12{ ff }", ERR_INVALID, "from_task: is not UTF-8"},
    {"a name of two lines", PB_RETRY_JOB_REQUEST, JOB "12{'a' 0a 'b'}", ERR_INVALID,
     "from_task: must not contain control characters; byte 1 is 0x0a"},
    {"a job id with a slash", PB_CANCEL_QUERY_REQUEST, "0a{'a/b'}", ERR_INVALID,
     "query_id: must consist of letters, digits, '.', '_' and '-'; byte 1 is '/'"},
    {"a job id with a blank", PB_CANCEL_QUERY_REQUEST, "0a{'a b'}", ERR_INVALID,
     "query_id: must consist of letters, digits, '.', '_' and '-'; byte 1 is 0x20"},
    {"a job id beyond ASCII", PB_CANCEL_QUERY_REQUEST, "0a{'j' c3 bc}", ERR_INVALID,
     "query_id: must consist of letters, digits, '.', '_' and '-'; byte 1 is 0xc3"},
    {"a job id of 101 bytes", PB_CANCEL_QUERY_REQUEST, "0a{ 101*('j') }", ERR_EXHAUSTED,
     "query_id: must be at most 100 bytes, got 101"},
    {"no job id", PB_CANCEL_QUERY_REQUEST, "", ERR_INVALID, "query_id: is missing"},
    {"an empty job id", PB_CANCEL_QUERY_REQUEST, "0a{}", ERR_INVALID, "query_id: is missing"},
    {"a held job without a name", PB_HEARTBEAT_REQUEST, BEAT "4a{'j'} 4a{}", ERR_INVALID,
     "held_jobs[1]: must not be empty"},
    {"a worker id with a blank", PB_GET_TASK_REQUEST, "0a{'w 1'} 22{'i1'}", ERR_INVALID,
     "worker_id: must consist of letters, digits, '.', '_', '-', ':' and '@'; byte 1 is 0x20"},
    {"a worker without a name", PB_GET_TASK_REQUEST, "22{'i1'}", ERR_INVALID, "worker_id: is missing"},
    {"a process without a name", PB_GET_TASK_REQUEST, "0a{'w1'}", ERR_INVALID, "incarnation: is missing"},
    {"an address without a port", PB_REGISTER_WORKER_REQUEST, WORKER "1a{'host'}", ERR_INVALID,
     "address: must be HOST:PORT"},
    {"an address without a host", PB_REGISTER_WORKER_REQUEST, WORKER "1a{':7400'}", ERR_INVALID,
     "address: must be HOST:PORT"},
    {"port 0", PB_REGISTER_WORKER_REQUEST, WORKER "1a{'host:0'}", ERR_INVALID, "address: must be HOST:PORT"},
    {"port 65536", PB_REGISTER_WORKER_REQUEST, WORKER "1a{'host:65536'}", ERR_INVALID, "address: must be HOST:PORT"},
    {"a port of 2^32 + 80", PB_REGISTER_WORKER_REQUEST, WORKER "1a{'host:4294967376'}", ERR_INVALID,
     "address: must be HOST:PORT"},
    {"a port that is no number", PB_REGISTER_WORKER_REQUEST, WORKER "1a{'host:80a'}", ERR_INVALID,
     "address: must be HOST:PORT"},
    {"an IPv6 address without brackets", PB_REGISTER_WORKER_REQUEST, WORKER "1a{'::1:7400'}", ERR_INVALID,
     "address: must be HOST:PORT"},
    {"a URL as an address", PB_REGISTER_WORKER_REQUEST, WORKER "1a{'http://host:80'}", ERR_INVALID,
     "address: must be HOST:PORT"},
    {"an address that is no UTF-8", PB_REGISTER_WORKER_REQUEST, WORKER "1a{ ff ':80'}", ERR_INVALID,
     "address: is not UTF-8"},
    {"a table called 1a", PB_PUT_TABLE_REQUEST, TABLE("'1a'", "'x'", ""), ERR_INVALID,
     "table.name: must not begin with a digit"},
    {"a table called a-b", PB_PUT_TABLE_REQUEST, TABLE("'a-b'", "'x'", ""), ERR_INVALID,
     "table.name: must consist of letters, digits and '_'; byte 1 is '-'"},
    {"a table name of 64 bytes", PB_PUT_TABLE_REQUEST, TABLE("64*('t')", "'x'", ""), ERR_EXHAUSTED,
     "table.name: must be at most 63 bytes, got 64"},
    {"a table of an unknown format", PB_PUT_TABLE_REQUEST, TABLE("'t'", "'x'", "'xls'"), ERR_INVALID,
     "table.format: must be parquet, csv or json"},
    {"a table without a source", PB_PUT_TABLE_REQUEST, TABLE("'t'", "", "'csv'"), ERR_INVALID,
     "table.source: is missing"},
    {"a source of 4,097 bytes", PB_PUT_TABLE_REQUEST, TABLE("'t'", "4097*('x')", "'csv'"), ERR_EXHAUSTED,
     "table.source: must be at most 4096 bytes, got 4097"},
    {"no table at all", PB_PUT_TABLE_REQUEST, "", ERR_INVALID, "table: is missing"},
    {"an idempotency key of 513 bytes", PB_SUBMIT_TASKS_REQUEST, "12{'{}'} 1a{ 513*('k') }", ERR_EXHAUSTED,
     "idempotency_key: must be at most 512 bytes, got 513"},
    {"a tree without a tree", PB_SUBMIT_TASKS_REQUEST, "", ERR_INVALID, "tree_json: is missing"},
    {"an executor name of 101 bytes", PB_REGISTER_WORKER_REQUEST, WORKER "2a{ 101*('e') }", ERR_EXHAUSTED,
     "executor_types[0]: must be at most 100 bytes, got 101"},
};

static const struct malformed values[] = {
    {"a token of 3 bytes in the fourth report", PB_REPORT_TASK_STATUS_REQUEST,
     WORKER "3*( " GOOD_REPORT ") 1a{ 0a{ 0a{'job'} 20 01 2a{'abc'} } 10 03 }", ERR_INVALID,
     "reports[3].ref.lease_token: must be 16 bytes, got 3"},
    {"a token of 17 bytes", PB_REPORT_TASK_STATUS_REQUEST, WORKER "1a{ 0a{ 0a{'job'} 20 01 2a{'0123456789abcdefg'} } }",
     ERR_INVALID, "reports[0].ref.lease_token: must be 16 bytes, got 17"},
    {"a token of nothing but zeroes", PB_HEARTBEAT_REQUEST, BEAT "32{ 0a{'job'} 20 01 2a{ 16*(00) } }", ERR_INVALID,
     "running[0].lease_token: must not be all zero"},
    {"a report without a token", PB_REPORT_TASK_STATUS_REQUEST, WORKER "1a{ 0a{ 0a{'job'} 20 01 } }", ERR_INVALID,
     "reports[0].ref.lease_token: is missing"},
    {"a report without an attempt", PB_REPORT_TASK_STATUS_REQUEST, WORKER "1a{ 0a{ 0a{'job'} 2a{" TOKEN "} } }",
     ERR_INVALID, "reports[0].ref.attempt: is missing"},
    {"a report of attempt 0", PB_REPORT_TASK_STATUS_REQUEST, WORKER "1a{ 0a{ 0a{'job'} 20 00 2a{" TOKEN "} } }",
     ERR_INVALID, "reports[0].ref.attempt: is missing"},
    {"a report about nothing", PB_REPORT_TASK_STATUS_REQUEST, WORKER "1a{ 10 03 }", ERR_INVALID,
     "reports[0].ref: is missing"},
    {"an empty report", PB_REPORT_TASK_STATUS_REQUEST, WORKER GOOD_REPORT "1a{}", ERR_INVALID,
     "reports[1].ref: is missing"},
    {"a failed fetch without an attempt", PB_REPORT_TASK_STATUS_REQUEST, WORKER "1a{ 0a{" LEASED "} 32{ 0a{'job'} } }",
     ERR_INVALID, "reports[0].fetch_failed[0].attempt: is missing"},
    {"a running attempt without a token", PB_HEARTBEAT_REQUEST, BEAT "32{ 0a{'job'} 20 01 }", ERR_INVALID,
     "running[0].lease_token: is missing"},
    {"a state that does not exist", PB_REPORT_TASK_STATUS_REQUEST, WORKER "1a{ 0a{" LEASED "} 10 07 }", ERR_INVALID,
     "reports[0].state: 7 is no TaskState"},
    {"a negative state", PB_REPORT_TASK_STATUS_REQUEST, WORKER "1a{ 0a{" LEASED "} 10 ff ff ff ff ff ff ff ff ff 01 }",
     ERR_INVALID, "reports[0].state: -1 is no TaskState"},
    {"a state that is right in its lower half", PB_REPORT_TASK_STATUS_REQUEST,
     WORKER "1a{ 0a{" LEASED "} 10 83 80 80 80 10 }", ERR_INVALID, "reports[0].state: 4294967299 is no TaskState"},
    {"a stage beyond 32 bits", PB_REPORT_TASK_STATUS_REQUEST, WORKER "1a{ 0a{" LEASED " 10 80 80 80 80 10 } 10 03 }",
     ERR_INVALID, "reports[0].ref.stage_id: must be at most 4294967295, got 4294967296"},
    {"a task beyond 32 bits", PB_REPORT_TASK_STATUS_REQUEST,
     WORKER "1a{ 0a{" LEASED " 18 ff ff ff ff ff ff ff ff ff 01 } 10 03 }", ERR_INVALID,
     "reports[0].ref.task_id: must be at most 4294967295, got 18446744073709551615"},
    {"an attempt beyond 32 bits", PB_REPORT_TASK_STATUS_REQUEST,
     WORKER "1a{ 0a{ 0a{'job'} 20 81 80 80 80 10 2a{" TOKEN "} } 10 03 }", ERR_INVALID,
     "reports[0].ref.attempt: must fit into 32 bits, got 4294967297"},
    {"rows beyond 2^53", PB_REPORT_TASK_STATUS_REQUEST, WORKER "1a{ 0a{" LEASED "} 10 03 38 80 80 80 80 80 80 80 10 }",
     ERR_INVALID, "reports[0].rows: must be at most 9007199254740991, got 9007199254740992"},
    {"a capacity of 1,001", PB_GET_TASK_REQUEST, POLL "10 e9 07", ERR_INVALID,
     "capacity: must be at most 1000, got 1001"},
    {"a capacity that is right in its lower half", PB_GET_TASK_REQUEST, POLL "10 81 80 80 80 10", ERR_INVALID,
     "capacity: must fit into 32 bits, got 4294967297"},
    {"a load of 1.5", PB_HEARTBEAT_REQUEST, BEAT "39 00 00 00 00 00 00 f8 3f", ERR_INVALID,
     "load: must be a number from 0 to 1"},
    {"a load below 0", PB_HEARTBEAT_REQUEST, BEAT "39 00 00 00 00 00 00 f0 bf", ERR_INVALID,
     "load: must be a number from 0 to 1"},
    {"a load that is no number", PB_HEARTBEAT_REQUEST, BEAT "39 00 00 00 00 00 00 f8 7f", ERR_INVALID,
     "load: must be a number from 0 to 1"},
    {"an infinite load", PB_HEARTBEAT_REQUEST, BEAT "39 00 00 00 00 00 00 f0 7f", ERR_INVALID,
     "load: must be a number from 0 to 1"},
    {"progress of 2", PB_HEARTBEAT_REQUEST, BEAT "42{ 0a{ 0a{'j'} } 11 00 00 00 00 00 00 00 40 }", ERR_INVALID,
     "progress[0].fraction: must be a number from 0 to 1"},
    {"partition 10,000", PB_REGISTER_MAP_OUTPUT_REQUEST, JOB "20 01 2a{ 08 90 4e } 32{" TOKEN "} 3a{'w1'}", ERR_INVALID,
     "partitions[0].reduce_partition: must be at most 9999, got 10000"},
    {"a map output without a token", PB_REGISTER_MAP_OUTPUT_REQUEST, JOB "20 01 3a{'w1'}", ERR_INVALID,
     "lease_token: is missing"},
    {"results of nobody", PB_REGISTER_QUERY_RESULTS_REQUEST, "0a{" LEASED "}", ERR_INVALID, "worker_id: is missing"},
    {"10,001 slots", PB_REGISTER_WORKER_REQUEST, WORKER "20 91 4e", ERR_INVALID,
     "slots: must be at most 10000, got 10001"},
};

static const struct malformed counts[] = {
    {"1,025 operators", PB_HEARTBEAT_REQUEST, BEAT "1025*( 22{'op'} )", ERR_EXHAUSTED,
     "custom_operator_capabilities[1024]: there may be at most 1024"},
    {"65 executors", PB_REGISTER_WORKER_REQUEST, WORKER "65*( 2a{'e'} )", ERR_EXHAUSTED,
     "executor_types[64]: there may be at most 64"},
    {"10,001 reports", PB_REPORT_TASK_STATUS_REQUEST, WORKER "10001*( " GOOD_REPORT ")", ERR_EXHAUSTED,
     "reports[10000]: there may be at most 10000"},
    {"10,001 partitions", PB_REGISTER_MAP_OUTPUT_REQUEST, JOB "20 01 10001*( 2a{} ) 32{" TOKEN "} 3a{'w1'}",
     ERR_EXHAUSTED, "partitions[10000]: there may be at most 10000"},
    {"250,001 unknown fields", PB_GET_TASK_REQUEST, "250001*( 78 00 )", ERR_EXHAUSTED,
     "GetTaskRequest: the message has too many fields"},
    {"more fields in messages inside it", PB_REPORT_TASK_STATUS_REQUEST,
     WORKER "10*( 1a{ 0a{" LEASED "} 25000*( 78 00 ) } )", ERR_EXHAUSTED,
     "reports[9]: the message has too many fields"},
    {"an id of 1 MiB", PB_CANCEL_QUERY_REQUEST, "0a{ 1048576*('a') }", ERR_EXHAUSTED,
     "query_id: must be at most 100 bytes, got 1048576"},
    {"SQL of more than 1 MiB", PB_SUBMIT_QUERY_REQUEST, "1a{ 1048577*('a') }", ERR_EXHAUSTED,
     "sql: must be at most 1048576 bytes, got 1048577"},
    {"a result of more than 1 MiB", PB_REPORT_TASK_STATUS_REQUEST, WORKER "1a{ 0a{" LEASED "} 2a{ 1048577*(' ') } }",
     ERR_EXHAUSTED, "reports[0].result_json: must be at most 1048576 bytes, got 1048577"},
    {"a packed list of 1,000,001", PB_STAGE_STATUS, "1a{ 1000001*( 01 ) }", ERR_EXHAUSTED,
     "parents[1000000]: there may be at most 1000000"},
    {"1,001 assignments", PB_GET_TASK_RESPONSE, "1001*( 0a{ 0a{'j'} 20 01 32{" TOKEN "} } )", ERR_EXHAUSTED,
     "tasks[1000]: there may be at most 1000"},
};

static const struct malformed answers[] = {
    {"an assignment without a token", PB_GET_TASK_RESPONSE, "0a{ 0a{'j'} 20 01 }", ERR_INVALID,
     "tasks[0].lease_token: is missing"},
    {"an assignment of no job", PB_GET_TASK_RESPONSE, "0a{ 20 01 32{" TOKEN "} }", ERR_INVALID,
     "tasks[0].query_id: is missing"},
    {"a source that is nowhere", PB_GET_TASK_RESPONSE, "0a{ 0a{'j'} 20 01 32{" TOKEN "} 6a{ 12{'h:1'} } }", ERR_INVALID,
     "tasks[0].sources[0].ref: is missing"},
    {"a partition of a source that is too large", PB_GET_TASK_RESPONSE,
     "0a{ 0a{'j'} 20 01 32{" TOKEN "} 6a{ 0a{ 0a{'j'} 20 01 } 22{} 22{ 08 90 4e } } }", ERR_INVALID,
     "tasks[0].sources[0].partitions[1].reduce_partition: must be at most 9999, got 10000"},
    {"a stop order for nothing", PB_HEARTBEAT_RESPONSE, "12{}", ERR_INVALID, "stop[0].query_id: is missing"},
    {"a leader at no address", PB_HEARTBEAT_RESPONSE, "2a{'nowhere'}", ERR_INVALID, "leader: must be HOST:PORT"},
    {"no status", PB_GET_QUERY_STATUS_RESPONSE, "", ERR_INVALID, "status: is missing"},
    {"a status of an unknown state", PB_GET_QUERY_STATUS_RESPONSE, "0a{ 10 06 }", ERR_INVALID,
     "status.state: 6 is no QueryState"},
    {"a node without a name", PB_LIST_NODES_RESPONSE, "0a{}", ERR_INVALID, "nodes[0].worker_id: is missing"},
};

static void check_refused(const struct malformed *c)
{
    struct arena arena = {0};
    struct buf bytes = {0};
    struct error e = {0};
    void *message = NULL;
    bytes_append(&bytes, c->bytes);
    /* A copy of just that size, so that the sanitizer sees a read beyond the end. */
    struct arena exact = {0};
    const void *copy = arena_copy(&exact, bytes.data, bytes.n);
    enum err err = wire_decode(c->kind, copy, bytes.n, &arena, &message, &e);
    if (err != c->err || strcmp(e.message, c->message) != 0) {
        print_error("%s:\n", c->why);
    }
    CHECK_STR(e.message, c->message);
    CHECK_ERR(err, c->err);
    CHECK_ERR(e.code, c->err);
    CHECK(message == NULL);
    CHECK_UINT(arena_bytes(&arena), 0);
    CHECK_ERR(wire_decode(c->kind, copy, bytes.n, &arena, &message, NULL), c->err);
    arena_deinit(&exact);
    arena_deinit(&arena);
    buf_deinit(&bytes);
}

#define CHECK_ALL(table)                                                                                               \
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {                                                                    \
        check_refused(&(table)[i]);                                                                                    \
    }

TEST(bytes_that_are_no_message_are_refused){CHECK_ALL(well_formedness)}

TEST(fields_in_the_wrong_encoding_or_twice_are_refused){CHECK_ALL(encodings)}

TEST(texts_that_break_a_rule_are_refused){CHECK_ALL(texts)}

TEST(values_that_break_a_rule_are_refused){CHECK_ALL(values)}

TEST(too_much_of_anything_is_refused){CHECK_ALL(counts)}

TEST(answers_are_held_to_the_same_rules)
{
    CHECK_ALL(answers)
}
