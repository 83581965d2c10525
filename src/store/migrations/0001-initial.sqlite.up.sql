-- The scheduler's tables. Numbers for states, outcomes and event types are the enums of src/core; times are milliseconds
-- since 1970, by the leader's clock. Payloads are bytes: nothing that was accepted may be refused here for its content.

-- A job that has not ended has a state below 2.
CREATE TABLE jobs (
    job_id TEXT NOT NULL,
    kind INTEGER NOT NULL,
    name TEXT,
    priority INTEGER NOT NULL,
    stop_on_failure INTEGER NOT NULL,
    idempotency_key TEXT,
    content BLOB,
    parent_job_id TEXT,
    parent_stage INTEGER,
    parent_task INTEGER,
    parent_attempt INTEGER,
    submitted_at_ms INTEGER NOT NULL,
    state INTEGER NOT NULL,
    started_at_ms INTEGER NOT NULL,
    finished_at_ms INTEGER NOT NULL,
    n_stages INTEGER NOT NULL,
    inline_bytes INTEGER NOT NULL,
    message TEXT,
    PRIMARY KEY (job_id)
) WITHOUT ROWID;
-- Lists of jobs, newest first: over all states they are put together from one list per state. A row whose removal has
-- begun has the kind -1.
CREATE INDEX jobs_by_state ON jobs (state, submitted_at_ms, job_id);
CREATE INDEX jobs_by_name ON jobs (name, state, submitted_at_ms, job_id) WHERE name IS NOT NULL;
CREATE INDEX jobs_ended ON jobs (finished_at_ms) WHERE state >= 2;
CREATE INDEX jobs_by_key ON jobs (idempotency_key, submitted_at_ms) WHERE idempotency_key IS NOT NULL;

-- name is the spec's, in a column of its own for lists of tasks.
CREATE TABLE stages (
    job_id TEXT NOT NULL,
    stage INTEGER NOT NULL,
    name TEXT,
    spec TEXT NOT NULL,
    recovered BLOB,
    PRIMARY KEY (job_id, stage)
) WITHOUT ROWID;

-- lease_id, attempt_id, last_assigned_node and idempotency_key are those of the latest attempt. None of the columns that
-- change is indexed, so that a change of state stays in its page.
CREATE TABLE tasks (
    job_id TEXT NOT NULL,
    stage INTEGER NOT NULL,
    task INTEGER NOT NULL,
    inputs BLOB,
    inputs_bytes INTEGER NOT NULL,
    placement_constraints TEXT,
    state INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    attempt_id INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    lease_id BLOB,
    lease_expires_at_ms INTEGER NOT NULL,
    idempotency_key BLOB,
    last_assigned_node TEXT,
    failed_on TEXT,
    ready_at_ms INTEGER NOT NULL,
    queued_at_ms INTEGER NOT NULL,
    started_at_ms INTEGER NOT NULL,
    finished_at_ms INTEGER NOT NULL,
    result BLOB,
    result_bytes INTEGER NOT NULL,
    n_rows INTEGER NOT NULL,
    n_bytes INTEGER NOT NULL,
    message TEXT,
    PRIMARY KEY (job_id, stage, task)
) WITHOUT ROWID;

-- One lease per task, by its key; a token is never given twice.
CREATE TABLE task_leases (
    job_id TEXT NOT NULL,
    stage INTEGER NOT NULL,
    task INTEGER NOT NULL,
    attempt_id INTEGER NOT NULL,
    lease_token BLOB NOT NULL UNIQUE,
    node_id TEXT NOT NULL,
    acquired_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL CHECK (expires_at_ms > acquired_at_ms),
    PRIMARY KEY (job_id, stage, task)
) WITHOUT ROWID;

CREATE TABLE map_outputs (
    job_id TEXT NOT NULL,
    stage INTEGER NOT NULL,
    task INTEGER NOT NULL,
    attempt_id INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    node_id TEXT NOT NULL,
    incarnation TEXT NOT NULL,
    address TEXT,
    partitions BLOB,
    PRIMARY KEY (job_id, stage, task, attempt_id)
) WITHOUT ROWID;

CREATE TABLE results (
    job_id TEXT NOT NULL,
    stage INTEGER NOT NULL,
    task INTEGER NOT NULL,
    attempt_id INTEGER NOT NULL,
    node_id TEXT,
    n_rows INTEGER NOT NULL,
    n_bytes INTEGER NOT NULL,
    is_inline INTEGER NOT NULL,
    PRIMARY KEY (job_id, stage, task, attempt_id)
) WITHOUT ROWID;

CREATE TABLE payloads (
    job_id TEXT NOT NULL,
    digest BLOB NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (job_id, digest)
) WITHOUT ROWID;

-- capabilities: executor types, operators, capabilities and engine, as JSON.
CREATE TABLE distributed_nodes (
    node_id TEXT NOT NULL,
    incarnation TEXT,
    past_incarnations TEXT,
    address TEXT,
    version TEXT,
    slots INTEGER NOT NULL,
    capabilities TEXT,
    status INTEGER NOT NULL,
    is_live INTEGER NOT NULL,
    draining INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    blacklisted_until_ms INTEGER NOT NULL,
    registered_at_ms INTEGER NOT NULL,
    heartbeat_at_ms INTEGER NOT NULL,
    PRIMARY KEY (node_id)
) WITHOUT ROWID;

-- Every attempt that ever was, and how it ended. A key is a digest of the job's id among others, so that two jobs never
-- share one. It is unique inside its job: an index over the digests of all of history would be hit at a random place by
-- every attempt.
CREATE TABLE execution_idempotency (
    job_id TEXT NOT NULL,
    stage INTEGER NOT NULL,
    task INTEGER NOT NULL,
    attempt_id INTEGER NOT NULL,
    idempotency_key BLOB NOT NULL,
    node_id TEXT,
    created_at_ms INTEGER NOT NULL,
    status INTEGER NOT NULL,
    changed_at_ms INTEGER NOT NULL,
    PRIMARY KEY (job_id, stage, task, attempt_id),
    UNIQUE (job_id, idempotency_key)
) WITHOUT ROWID;

-- Only added to, and cut off at the old end. seq is the identity of an event; the newest one is never removed.
CREATE TABLE task_events (
    seq INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    event_type INTEGER NOT NULL,
    job_id TEXT,
    stage INTEGER,
    task INTEGER,
    attempt_id INTEGER,
    node_id TEXT,
    details TEXT
);
CREATE INDEX task_events_of_job ON task_events (job_id, seq) WHERE job_id IS NOT NULL;

CREATE TABLE data_sets (
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    format TEXT NOT NULL,
    PRIMARY KEY (name)
) WITHOUT ROWID;

-- One row: who leads, and since which epoch. The lock file of the process decides; this tells the tale.
CREATE TABLE cluster_leader (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    node_id TEXT NOT NULL,
    address TEXT NOT NULL,
    token BLOB NOT NULL,
    epoch INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL
);

CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id TEXT NOT NULL,
    tree BLOB NOT NULL
);
