-- The scheduler's tables. Numbers for states, outcomes and event types are the enums of src/core; times are milliseconds
-- since 1970, by the leader's clock. Payloads are bytes: nothing that was accepted may be refused here for its content.
-- Names compare byte by byte (COLLATE "C"), whatever the database's locale: pages have the same order in every store, and
-- an update of the system's locales damages no index.

-- A job that has not ended has a state below 2.
CREATE TABLE capstan.jobs (
    job_id text COLLATE "C" NOT NULL,
    kind bigint NOT NULL,
    name text COLLATE "C",
    priority bigint NOT NULL,
    stop_on_failure bigint NOT NULL,
    idempotency_key text COLLATE "C",
    content bytea,
    parent_job_id text COLLATE "C",
    parent_stage bigint,
    parent_task bigint,
    parent_attempt bigint,
    submitted_at_ms bigint NOT NULL,
    state bigint NOT NULL,
    started_at_ms bigint NOT NULL,
    finished_at_ms bigint NOT NULL,
    n_stages bigint NOT NULL,
    inline_bytes bigint NOT NULL,
    message text,
    PRIMARY KEY (job_id)
) WITH (fillfactor = 80);
-- Lists of jobs, newest first: over all states they are put together from one list per state. A row whose removal has
-- begun has the kind -1. Every change of a job's state goes into every index, so there are few.
CREATE INDEX jobs_by_state ON capstan.jobs (state, submitted_at_ms, job_id);
CREATE INDEX jobs_by_name ON capstan.jobs (name, state, submitted_at_ms, job_id) WHERE name IS NOT NULL;
CREATE INDEX jobs_ended ON capstan.jobs (finished_at_ms) WHERE state >= 2;
CREATE INDEX jobs_by_key ON capstan.jobs (idempotency_key, submitted_at_ms) WHERE idempotency_key IS NOT NULL;

-- name is the spec's, in a column of its own for lists of tasks.
CREATE TABLE capstan.stages (
    job_id text COLLATE "C" NOT NULL,
    stage bigint NOT NULL,
    name text,
    spec text NOT NULL,
    recovered bytea,
    PRIMARY KEY (job_id, stage)
);

-- lease_id, attempt_id, last_assigned_node and idempotency_key are those of the latest attempt. None of the columns that
-- change is indexed, so that a change of state can stay in its page. There must also be room for it: all tasks of a page
-- may change in one transaction, when none of the old versions can go yet, and a row with a lease is longer than one
-- without. So new rows fill less than half of a page.
CREATE TABLE capstan.tasks (
    job_id text COLLATE "C" NOT NULL,
    stage bigint NOT NULL,
    task bigint NOT NULL,
    inputs bytea,
    inputs_bytes bigint NOT NULL,
    placement_constraints text,
    state bigint NOT NULL,
    outcome bigint NOT NULL,
    attempt_id bigint NOT NULL,
    failures bigint NOT NULL,
    lease_id bytea,
    lease_expires_at_ms bigint NOT NULL,
    idempotency_key bytea,
    last_assigned_node text,
    failed_on text,
    ready_at_ms bigint NOT NULL,
    queued_at_ms bigint NOT NULL,
    started_at_ms bigint NOT NULL,
    finished_at_ms bigint NOT NULL,
    result bytea,
    result_bytes bigint NOT NULL,
    n_rows bigint NOT NULL,
    n_bytes bigint NOT NULL,
    message text,
    PRIMARY KEY (job_id, stage, task)
) WITH (fillfactor = 40);

-- One lease per task, by its key; a token is never given twice.
CREATE TABLE capstan.task_leases (
    job_id text COLLATE "C" NOT NULL,
    stage bigint NOT NULL,
    task bigint NOT NULL,
    attempt_id bigint NOT NULL,
    lease_token bytea NOT NULL UNIQUE,
    node_id text COLLATE "C" NOT NULL,
    acquired_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL CHECK (expires_at_ms > acquired_at_ms),
    PRIMARY KEY (job_id, stage, task)
);

CREATE TABLE capstan.map_outputs (
    job_id text COLLATE "C" NOT NULL,
    stage bigint NOT NULL,
    task bigint NOT NULL,
    attempt_id bigint NOT NULL,
    generation bigint NOT NULL,
    node_id text COLLATE "C" NOT NULL,
    incarnation text NOT NULL,
    address text,
    partitions bytea,
    PRIMARY KEY (job_id, stage, task, attempt_id)
);

CREATE TABLE capstan.results (
    job_id text COLLATE "C" NOT NULL,
    stage bigint NOT NULL,
    task bigint NOT NULL,
    attempt_id bigint NOT NULL,
    node_id text COLLATE "C",
    n_rows bigint NOT NULL,
    n_bytes bigint NOT NULL,
    is_inline bigint NOT NULL,
    PRIMARY KEY (job_id, stage, task, attempt_id)
);

CREATE TABLE capstan.payloads (
    job_id text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (job_id, digest)
);

-- capabilities: executor types, operators, capabilities and engine, as JSON.
CREATE TABLE capstan.distributed_nodes (
    node_id text COLLATE "C" NOT NULL,
    incarnation text,
    past_incarnations text,
    address text,
    version text,
    slots bigint NOT NULL,
    capabilities text,
    status bigint NOT NULL,
    is_live bigint NOT NULL,
    draining bigint NOT NULL,
    failures bigint NOT NULL,
    blacklisted_until_ms bigint NOT NULL,
    registered_at_ms bigint NOT NULL,
    heartbeat_at_ms bigint NOT NULL,
    PRIMARY KEY (node_id)
) WITH (fillfactor = 70);

-- Every attempt that ever was, and how it ended. A key is a digest of the job's id among others, so that two jobs never
-- share one. It is unique inside its job: an index over the digests of all of history would be hit at a random place by
-- every attempt. Every attempt ends, so half of a page is left for that.
CREATE TABLE capstan.execution_idempotency (
    job_id text COLLATE "C" NOT NULL,
    stage bigint NOT NULL,
    task bigint NOT NULL,
    attempt_id bigint NOT NULL,
    idempotency_key bytea NOT NULL,
    node_id text COLLATE "C",
    created_at_ms bigint NOT NULL,
    status bigint NOT NULL,
    changed_at_ms bigint NOT NULL,
    PRIMARY KEY (job_id, stage, task, attempt_id),
    UNIQUE (job_id, idempotency_key)
) WITH (fillfactor = 50);

-- Only added to, and cut off at the old end. seq is the identity of an event; the newest one is never removed.
CREATE TABLE capstan.task_events (
    seq bigint NOT NULL,
    at_ms bigint NOT NULL,
    event_type bigint NOT NULL,
    job_id text COLLATE "C",
    stage bigint,
    task bigint,
    attempt_id bigint,
    node_id text COLLATE "C",
    details text,
    PRIMARY KEY (seq)
);
CREATE INDEX task_events_of_job ON capstan.task_events (job_id, seq) WHERE job_id IS NOT NULL;

CREATE TABLE capstan.data_sets (
    name text COLLATE "C" NOT NULL,
    source text NOT NULL,
    format text NOT NULL,
    PRIMARY KEY (name)
);

-- Removes what is left of a job whose removal had begun (kind -1), because its id is wanted for a new one. Returns the
-- new one's kind, so that it can stand where that is set.
CREATE FUNCTION capstan.clear_job(of_job text, new_kind bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM capstan.payloads WHERE job_id = of_job;
    DELETE FROM capstan.execution_idempotency WHERE job_id = of_job;
    DELETE FROM capstan.results WHERE job_id = of_job;
    DELETE FROM capstan.map_outputs WHERE job_id = of_job;
    DELETE FROM capstan.task_leases WHERE job_id = of_job;
    DELETE FROM capstan.tasks WHERE job_id = of_job;
    DELETE FROM capstan.stages WHERE job_id = of_job;
    RETURN new_kind;
END
$$;

-- One row: who leads, since which epoch, until when by this database's clock, and through which backend.
CREATE TABLE capstan.cluster_leader (
    id int PRIMARY KEY CHECK (id = 1),
    node_id text COLLATE "C" NOT NULL,
    address text NOT NULL,
    token bytea NOT NULL,
    epoch bigint NOT NULL,
    backend_pid int NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Every transaction of a leader starts with this. It fails unless the epoch and the token are the present leader's, and
-- keeps the next one from taking over until the transaction ends.
CREATE FUNCTION capstan.fence(of_epoch bigint, of_token bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM capstan.cluster_leader WHERE id = 1 AND epoch = of_epoch AND token = of_token FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another leader has taken over' USING ERRCODE = 'CPFEN';
    END IF;
END
$$;

-- Trees that applications left here in their own transactions.
CREATE TABLE capstan.inbox (
    id bigserial PRIMARY KEY,
    job_id text COLLATE "C" NOT NULL,
    tree bytea NOT NULL,
    submitted_at timestamptz NOT NULL DEFAULT now()
);

-- SELECT capstan.submit('{"tasks": [...]}') returns the id that the job will have, if the transaction commits. A member
-- "job_id" beside the tasks chooses it. It runs with the rights of the schema's owner, and looks for nothing where its
-- caller could have put something: so a role needs the right to call it and none on any table, and can neither read what
-- others have left nor leave what was not checked. Nobody has that right unless it is granted.
CREATE FUNCTION capstan.submit(tree jsonb) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    id text := coalesce(tree ->> 'job_id', gen_random_uuid()::text);
BEGIN
    IF id !~ '^[A-Za-z0-9._-]{1,100}$' THEN
        RAISE EXCEPTION 'job_id: must be 1 to 100 letters, digits, ''.'', ''_'' or ''-''' USING ERRCODE = '22023';
    END IF;
    IF jsonb_typeof(tree) = 'object' THEN
        tree := tree - 'job_id';
    END IF;
    INSERT INTO capstan.inbox (job_id, tree) VALUES (id, convert_to(tree::text, 'UTF8'));
    PERFORM pg_notify('capstan_inbox', '');
    RETURN id;
END
$$;
REVOKE ALL ON FUNCTION capstan.submit(jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION capstan.clear_job(text, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION capstan.fence(bigint, bytea) FROM PUBLIC;
